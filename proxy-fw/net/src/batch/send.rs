//! Frames that wait to be sent, and the messages that they go in.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::name::write_name;
use crate::patience::Patience;
use crate::udp::{HEADERS_V4, HEADERS_V6};
use crate::{BATCH, Counters};

/// Most frames in one message: `UDP_MAX_SEGMENTS` (linux/udp.h), which was 64 from the first
/// kernel with `UDP_SEGMENT` on and has only grown since.
const MOST_SEGMENTS: usize = 64;
/// Longest packet that passes through the kernel and to a device as one piece, in bytes, from the
/// Ethernet header on: less than `GSO_LEGACY_MAX_SIZE` (linux/netdevice.h). The kernel takes a few
/// bytes more and then cuts them up itself, long before the device, which saves nothing.
const LONGEST_PIECE: usize = 65_535;
/// Ethernet's header with an 802.1Q tag (IEEE 802.3-2018, clause 3.2.7; IEEE 802.1Q-2018).
const ETHERNET: usize = 14 + 4;
/// Most bytes in one message over IPv4: 65,507 is the most that udp(7) can send.
const MOST_BYTES_V4: usize = LONGEST_PIECE - ETHERNET - HEADERS_V4;
/// The same over IPv6.
const MOST_BYTES_V6: usize = LONGEST_PIECE - ETHERNET - HEADERS_V6;

/// Frames that wait to be sent, in order, each behind a header of fixed length.
pub(crate) struct SendBatch {
    slot: usize,
    header: usize,
    buffer: Vec<u8>,
    frames: Vec<Frame>,
    first: usize,
    count: usize,
    calls: Calls,
    /// Whether several frames go as one message.
    segments: bool,
    /// So many frames from the first one on go alone, because together they were refused.
    alone: usize,
    /// Why, if that may be because this system does not segment: then the first one, alone, shows.
    suspected: Option<i32>,
    last_refusal: Option<i32>,
    patience: Patience,
}

/// What is in a slot.
#[derive(Clone, Copy)]
struct Frame {
    to: Option<SocketAddr>,
    /// In bytes, with the header.
    len: usize,
}

impl SendBatch {
    /// For transport headers of `header` bytes and frames of up to `frame` bytes.
    pub(crate) fn new(header: usize, frame: usize) -> Self {
        Self::with(BATCH, header, frame, false)
    }

    /// For frames of up to `frame` bytes that the system can send as segments of UDP messages.
    pub(crate) fn segmented(frame: usize) -> Self {
        Self::with(BATCH, 0, frame, true)
    }

    fn with(slots: usize, header: usize, frame: usize, segments: bool) -> Self {
        let slot = header + frame;
        assert!(slot > 0, "a batch of empty buffers");
        assert!(!segments || slot <= MOST_BYTES_V6, "a frame that no datagram carries");
        Self {
            slot,
            header,
            buffer: vec![0; slots * slot],
            frames: vec![Frame { to: None, len: 0 }; slots],
            first: 0,
            count: 0,
            calls: Calls::new(slots),
            segments,
            alone: 0,
            suspected: None,
            last_refusal: None,
            patience: Patience::default(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == self.frames.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether several frames go as one message: as asked for, until the system refuses.
    pub(crate) fn has_segments(&self) -> bool {
        self.segments
    }

    /// Where the next frame goes, behind its header; the batch is not full.
    pub(crate) fn place(&mut self) -> &mut [u8] {
        assert!(!self.is_full(), "a frame without a place");
        let (index, header) = (self.index(self.count), self.header);
        &mut self.buffer[index * self.slot..][header..self.slot]
    }

    /// Adds the frame whose first `len` bytes are in the [`place`](Self::place); the batch is not
    /// full. Without a destination it goes where the socket is bound to.
    pub(crate) fn push_placed(&mut self, to: Option<SocketAddr>, header: &[u8], len: usize) {
        assert!(!self.is_full() && header.len() == self.header, "a frame without a place");
        let index = self.index(self.count);
        let len = header.len() + len;
        assert!(len <= self.slot, "a frame longer than its place");
        self.buffer[index * self.slot..][..header.len()].copy_from_slice(header);
        self.frames[index] = Frame { to, len };
        self.count += 1;
    }

    /// Adds a frame; the batch is not full and the frame not too long.
    pub(crate) fn push(&mut self, to: Option<SocketAddr>, header: &[u8], frame: &[u8]) {
        self.place()[..frame.len()].copy_from_slice(frame);
        self.push_placed(to, header, frame.len());
    }

    /// Gives the kernel what it takes. Frames that it refuses one by one are counted and gone;
    /// those that it has no room for stay.
    ///
    /// # Errors
    ///
    /// When the socket or its interface is gone.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>, counters: &mut Counters) -> io::Result<()> {
        while self.count > 0 {
            self.describe();
            match self.calls.send(fd) {
                Ok(messages) => self.count_sent(messages, counters),
                Err(error) => match self.refused(error, counters)? {
                    Refusal::Again => {}
                    Refusal::NoRoom => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// Writes messages with all that waits.
    fn describe(&mut self) {
        self.calls.clear();
        let mut at = 0;
        while at < self.count {
            let run = self.run(at);
            for place in at..at + run {
                let index = self.index(place);
                let bytes = &mut self.buffer[index * self.slot..][..self.frames[index].len];
                self.calls.add_bytes(bytes);
            }
            let first = self.frame(at);
            self.calls.end_message(first.to, run, first.len);
            at += run;
        }
    }

    /// How many frames from the `at`-th waiting one on go as one message, at least one: those of
    /// its length and destination, and one behind them that is shorter.
    fn run(&self, at: usize) -> usize {
        let first = self.frame(at);
        let most = match first.to {
            Some(_) if !self.segments || at < self.alone || first.len == 0 => return 1,
            Some(SocketAddr::V4(_)) => MOST_BYTES_V4,
            Some(SocketAddr::V6(_)) => MOST_BYTES_V6,
            None => return 1,
        };
        let (mut run, mut bytes, mut last) = (1, first.len, first.len);
        while last == first.len && run < MOST_SEGMENTS && at + run < self.count {
            let next = self.frame(at + run);
            last = next.len;
            bytes += last;
            let fits = (1..=first.len).contains(&last) && bytes <= most;
            if !fits || next.to != first.to {
                break;
            }
            run += 1;
        }
        run
    }

    fn count_sent(&mut self, messages: usize, counters: &mut Counters) {
        let frames = self.calls.frames(messages);
        for at in 0..frames {
            counters.sent_frames += 1;
            counters.sent_bytes += (self.frame(at).len - self.header) as u64;
        }
        // Nothing is wrong with the frames, then.
        if let Some(code) = self.suspected.take() {
            self.segments = false;
            let error = io::Error::from_raw_os_error(code);
            tracing::info!(%error, "no UDP segmentation on this way: frames go one by one");
        }
        self.drop_first(frames);
    }

    fn drop_first(&mut self, count: usize) {
        self.count -= count;
        self.alone = self.alone.saturating_sub(count);
        self.patience.renew();
        // Where few wait, always the same slots are used, and stay in the cache.
        self.first = if self.count == 0 { 0 } else { self.index(count) };
    }

    /// What a failed call means for the first message.
    fn refused(&mut self, error: io::Error, counters: &mut Counters) -> io::Result<Refusal> {
        let run = self.calls.frames(1);
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(Refusal::Again),
            Some(libc::EAGAIN) => Ok(Refusal::NoRoom),
            Some(libc::ENOBUFS) if !self.patience.is_over() => Ok(Refusal::NoRoom),
            Some(libc::ENXIO | libc::ENODEV | libc::EBADF | libc::ENOTSOCK) => Err(error),
            code if run > 1 => {
                self.alone = run;
                self.suspected = code.filter(|code| is_about_segments(*code));
                Ok(Refusal::Again)
            }
            code => {
                // One line for each new reason; the counter has the rest.
                if self.last_refusal != code {
                    tracing::warn!(%error, "a frame could not be sent and counts as lost");
                    self.last_refusal = code;
                }
                counters.send_refused += 1;
                self.suspected = None;
                self.drop_first(1);
                Ok(Refusal::Again)
            }
        }
    }

    /// The slot of the frame that waits behind so many others.
    fn index(&self, at: usize) -> usize {
        let index = self.first + at;
        if index < self.frames.len() { index } else { index - self.frames.len() }
    }

    fn frame(&self, at: usize) -> Frame {
        self.frames[self.index(at)]
    }
}

enum Refusal {
    /// Go on with the frames that are left.
    Again,
    /// Stop until there is room.
    NoRoom,
}

/// Whether an error may say that a message cannot be segmented: no checksums in the device, or
/// IPsec (EIO); no checksums wanted, more segments than this kernel takes, or segments longer than
/// the MTU (EINVAL, in newer kernels EMSGSIZE); no such thing here. All can mean something else.
fn is_about_segments(code: i32) -> bool {
    matches!(code, libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::ENOPROTOOPT | libc::EOPNOTSUPP)
}

/// Room for a control message with the length of segments, with the alignment of its header.
type Control = [u64; 4];

/// The structures of one system call, each in as many pieces as there may be messages.
struct Calls {
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    /// One for each frame, in order.
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// Messages written, and the frames that have an iovec in them or in the next one.
    messages: usize,
    frames: usize,
}

// SAFETY: the pointers in `headers` point only into the vectors beside them, which are never
// resized or shared; those in `iovecs` into the buffer of the batch around, which is as steady.
unsafe impl Send for Calls {}

impl Calls {
    fn new(slots: usize) -> Self {
        // SAFETY: sockaddr_storage is plain data for which zeros are valid.
        let mut names: Vec<libc::sockaddr_storage> = vec![unsafe { std::mem::zeroed() }; slots];
        let controls: Vec<Control> = vec![[0; 4]; slots];
        let iovecs = vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; slots];
        // SAFETY: mmsghdr is plain data for which zeros (null pointers) are valid.
        let mut headers: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; slots];
        for (header, name) in headers.iter_mut().zip(&mut names) {
            header.msg_hdr.msg_name = (&raw mut *name).cast();
        }
        Self { names, controls, iovecs, headers, messages: 0, frames: 0 }
    }

    fn clear(&mut self) {
        (self.messages, self.frames) = (0, 0);
    }

    /// A frame of the next message.
    fn add_bytes(&mut self, bytes: &mut [u8]) {
        self.iovecs[self.frames] =
            libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        self.frames += 1;
    }

    /// Makes the last `run` frames a message, of segments of `len` bytes if they are several.
    fn end_message(&mut self, to: Option<SocketAddr>, run: usize, len: usize) {
        let index = self.messages;
        let iovecs = &mut self.iovecs[self.frames - run..self.frames];
        let header = &mut self.headers[index].msg_hdr;
        header.msg_iov = iovecs.as_mut_ptr();
        header.msg_iovlen = iovecs.len();
        header.msg_namelen = to.map_or(0, |to| write_name(&mut self.names[index], to));
        let control = &mut self.controls[index];
        (header.msg_control, header.msg_controllen) = match run {
            1 => (std::ptr::null_mut(), 0),
            _ => (control.as_mut_ptr().cast(), write_segment(control, len) as _),
        };
        self.messages += 1;
    }

    /// Gives the kernel all messages; how many it took.
    fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let headers = &mut self.headers[..self.messages];
        // SAFETY: so many headers, each with a name, iovecs and a control buffer or none. The
        // names, iovecs and controls are in the live vectors of `self`, with lengths within them.
        // The iovecs were written since the last `clear`, in the call of `flush` that makes this
        // call, from slices of the buffer that its batch keeps.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        assert!(sent <= self.messages, "the kernel sent more than it was given");
        Ok(sent)
    }

    /// How many frames are in the first messages.
    fn frames(&self, messages: usize) -> usize {
        let headers = &self.headers[..messages];
        headers.iter().map(|header| header.msg_hdr.msg_iovlen).sum()
    }
}

/// Writes the control message that has a message segmented; its length with padding, in bytes.
fn write_segment(control: &mut Control, len: usize) -> usize {
    let len = u16::try_from(len).expect("a segment is no longer than a datagram");
    // SAFETY: these only compute.
    let (header, space) = unsafe { (libc::CMSG_LEN(2), libc::CMSG_SPACE(2) as usize) };
    assert!(space <= size_of::<Control>(), "room for the control message");
    // SAFETY: cmsghdr is plain data for which zeros are valid.
    let mut written: libc::cmsghdr = unsafe { std::mem::zeroed() };
    written.cmsg_len = header as _;
    written.cmsg_level = libc::SOL_UDP;
    written.cmsg_type = libc::UDP_SEGMENT;
    let place = control.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: `control` has the alignment of cmsghdr and room for it and the data behind it, which
    // is a u16 that may lie anywhere.
    unsafe {
        place.write(written);
        libc::CMSG_DATA(place).cast::<u16>().write_unaligned(len);
    }
    space
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::ReceiveBatch;
    use crate::sys;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn what_the_kernel_has_no_room_for_stays_in_order() {
        // A Unix datagram socket refuses with EAGAIN when its receiver's short queue is full.
        let (tx, rx) = UnixDatagram::pair().unwrap();
        let mut batch = SendBatch::new(1, 8);
        let mut counters = Counters::default();
        let mut pushed = 0u8;
        let mut got = Vec::new();
        for _ in 0..200 {
            while !batch.is_full() && pushed < 250 {
                batch.push(None, &[0xEE], &[pushed]);
                pushed += 1;
            }
            batch.flush(tx.as_fd(), &mut counters).unwrap();
            rx.set_nonblocking(true).unwrap();
            let mut bytes = [0; 9];
            while got.len() < 250 && rx.recv(&mut bytes).is_ok() {
                assert_eq!(bytes[0], 0xEE);
                got.push(bytes[1]);
                // Leave some behind, so that the batch wraps around at every position.
                if got.len() % 7 == 0 {
                    break;
                }
            }
        }
        assert_eq!(got, (0..250).collect::<Vec<u8>>());
        assert!(batch.is_empty());
        assert_eq!((counters.sent_frames, counters.sent_bytes), (250, 250));
        assert_eq!(counters.send_refused, 0);
    }

    #[test]
    fn a_refused_frame_is_counted_and_the_others_go() {
        let (tx, rx) = UnixDatagram::pair().unwrap();
        let mut batch = SendBatch::new(0, 8);
        let mut counters = Counters::default();
        batch.push(None, &[], &[1]);
        // A connected Unix socket takes no IP address as the destination.
        batch.push(Some(([127, 0, 0, 1], 9).into()), &[], &[2]);
        batch.push(None, &[], &[3]);
        batch.flush(tx.as_fd(), &mut counters).unwrap();
        assert_eq!((counters.sent_frames, counters.send_refused), (2, 1));
        let mut receive = ReceiveBatch::new(8, false);
        assert_eq!(receive.receive(rx.as_fd()).unwrap(), 2);
        assert_eq!((receive.bytes(0), receive.bytes(1)), (Some(&[1][..]), Some(&[3][..])));
        assert_eq!(receive.receive(rx.as_fd()).unwrap(), 0);
    }

    /// Frames of these lengths, all to one destination, in messages: how many in each.
    fn runs(to: SocketAddr, lengths: &[usize]) -> Vec<usize> {
        let mut batch = SendBatch::with(lengths.len(), 0, 9000, true);
        lengths.iter().for_each(|len| batch.push_placed(Some(to), &[], *len));
        batch.describe();
        (0..batch.calls.messages)
            .map(|message| batch.calls.frames(message + 1) - batch.calls.frames(message))
            .collect()
    }

    #[test]
    fn a_run_is_of_one_length_and_destination_and_within_limits() {
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(runs(to, &[5; 3]), [3]);
        assert_eq!(runs(to, &[5, 5, 4, 4, 5]), [3, 1, 1]);
        assert_eq!(runs(to, &[5, 6, 6, 7]), [1, 2, 1]);
        assert_eq!(runs(to, &[0, 0, 5, 5, 0, 5]), [1, 1, 2, 1, 1]);
        assert_eq!(runs(to, &[9; 150]), [64, 64, 22]);
        // 65,489 bytes over IPv4 and 65,469 over IPv6.
        assert_eq!(runs(to, &[&[9000; 7][..], &[2489]].concat()), [8]);
        assert_eq!(runs(to, &[&[9000; 7][..], &[2490]].concat()), [7, 1]);
        assert_eq!(runs(to, &[2112; 40]), [31, 9]);
        let to = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 9));
        assert_eq!(runs(to, &[&[9000; 7][..], &[2469]].concat()), [8]);
        assert_eq!(runs(to, &[&[9000; 7][..], &[2470]].concat()), [7, 1]);

        let mut batch = SendBatch::with(6, 0, 8, true);
        for (port, len) in [(1, 8), (1, 8), (2, 8), (1, 8), (1, 8), (1, 8)] {
            batch.push_placed(Some(([127, 0, 0, 1], port).into()), &[], len);
        }
        assert_eq!([0, 2, 3].map(|at| batch.run(at)), [2, 1, 3]);
        (batch.alone, batch.segments) = (4, true);
        assert_eq!([0, 3, 4].map(|at| batch.run(at)), [1, 1, 2]);
        batch.segments = false;
        assert_eq!(batch.run(4), 1);
    }

    #[test]
    fn the_kernel_takes_runs_up_to_the_limits() {
        let open = |ip: &str| {
            let socket = UdpSocket::bind((ip, 0)).ok()?;
            let set = |name, value| sys::set_int(socket.as_fd(), libc::SOL_UDP, name, value);
            let has = set(libc::UDP_SEGMENT, 0).is_ok() && set(libc::UDP_GRO, 1).is_ok();
            sys::set_buffers(socket.as_fd(), 4 << 20).unwrap();
            has.then_some(socket)
        };
        for (ip, last) in [("127.0.0.1", 2489), ("::1", 2469)] {
            let (Some(tx), Some(rx)) = (open(ip), open(ip)) else {
                eprintln!("SKIPPED: no UDP segmentation with {ip} here");
                continue;
            };
            let to = rx.local_addr().unwrap();
            let mut batch = SendBatch::with(80, 0, 9000, true);
            let lengths = [&[9000; 7][..], &[last], &[100; 64], &[7]].concat();
            for (number, len) in lengths.iter().enumerate() {
                batch.push(Some(to), &[], &vec![number as u8; *len]);
            }
            let mut counters = Counters::default();
            batch.flush(tx.as_fd(), &mut counters).unwrap();
            let bytes = lengths.iter().sum::<usize>() as u64;
            assert_eq!((counters.sent_frames, counters.sent_bytes), (73, bytes));
            assert!(batch.has_segments() && counters.send_refused == 0);

            let mut receive = ReceiveBatch::of_runs();
            assert_eq!(receive.receive(rx.as_fd()).unwrap(), 3);
            let mut number = 0;
            for (message, run) in [8, 64, 1].into_iter().enumerate() {
                assert_eq!(receive.sender(message), Some(tx.local_addr().unwrap()));
                let (bytes, notes) = (receive.bytes(message).unwrap(), receive.notes(message));
                assert_eq!(notes.frames(bytes).count(), run);
                for frame in notes.frames(bytes) {
                    assert_eq!(frame, vec![number as u8; lengths[number]]);
                    number += 1;
                }
            }
        }
    }
}
