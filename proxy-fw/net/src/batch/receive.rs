//! Messages that arrived, and the frames in them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::name::read_name;
use crate::BATCH;
use crate::sys::socklen;

/// Buffers of a batch whose messages may be runs of frames. They are large; as few of them take
/// what frames travel at full speed, and their memory stays in a processor's own cache.
const RUNS: usize = 8;
/// The length of such a buffer, in bytes: more than a datagram's longest, which the IP header's
/// 16-bit length bounds. Not a power of two, so that the beginnings of the buffers, all that short
/// messages use, do not crowd one set of the cache.
const RUN: usize = (1 << 16) + 64;

/// Buffers for messages that arrive.
pub(crate) struct ReceiveBatch {
    slot: usize,
    buffer: Vec<u8>,
    /// Room for each message's sender, and for what the kernel says beside it; none without names.
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// Messages of the last call, whose headers the kernel has changed.
    used: usize,
}

/// Control messages of one datagram, with the alignment of their headers: room for the IP
/// header's TOS byte, its traffic class and the length of segments, 24 bytes each, and to spare.
type Control = [u64; 16];

/// What the kernel said beside a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// It came with Congestion Experienced in its IP header.
    pub(crate) marked: bool,
    /// It is a run of frames of this length in bytes, at least 1. The last may be shorter.
    pub(crate) segment: Option<usize>,
}

// SAFETY: the pointers in `iovecs` and `headers` point only into the vectors beside them, which
// are never resized or shared, so everything moves to another thread together.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// For messages of up to `len` bytes. With `names`, each comes with its sender's address.
    pub(crate) fn new(len: usize, names: bool) -> Self {
        Self::with(BATCH, len, names)
    }

    /// For messages that may be runs of frames: any that UDP can carry, with their senders.
    pub(crate) fn of_runs() -> Self {
        Self::with(RUNS, RUN, true)
    }

    fn with(slots: usize, slot: usize, named: bool) -> Self {
        assert!(slot > 0, "a batch of empty buffers");
        let mut buffer = vec![0u8; slots * slot];
        let named = if named { slots } else { 0 };
        // SAFETY: sockaddr_storage is plain data for which zeros are valid.
        let mut names: Vec<libc::sockaddr_storage> = vec![unsafe { std::mem::zeroed() }; named];
        let mut controls: Vec<Control> = vec![[0; 16]; named];
        let mut iovecs: Vec<libc::iovec> = buffer
            .chunks_exact_mut(slot)
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: slot })
            .collect();
        // SAFETY: mmsghdr is plain data for which zeros (null pointers) are valid.
        let mut headers: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; slots];
        for (header, iovec) in headers.iter_mut().zip(&mut iovecs) {
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
        }
        for (header, (name, control)) in headers.iter_mut().zip(names.iter_mut().zip(&mut controls))
        {
            header.msg_hdr.msg_name = (&raw mut *name).cast();
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        }
        Self { slot, buffer, names, controls, iovecs, headers, used: slots }
    }

    /// Takes what waits, up to a batch, and never blocks; zero when nothing waits.
    ///
    /// # Errors
    ///
    /// Whatever the socket has to report; often about its interface.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let named = !self.controls.is_empty();
        for header in &mut self.headers[..self.used] {
            header.msg_hdr.msg_namelen =
                if named { socklen::<libc::sockaddr_storage>() } else { 0 };
            header.msg_hdr.msg_controllen = if named { size_of::<Control>() } else { 0 } as _;
        }
        self.used = 0;
        let slots = self.headers.len();
        // SAFETY: `slots` headers, each with one iovec of a slot's length, and either no name and
        // no control buffer or one of sockaddr_storage's and one of Control's size, all in the
        // live vectors beside `headers`; no timeout.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                slots as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if let Ok(received) = usize::try_from(received) {
            assert!(received <= slots, "the kernel filled more buffers than it was given");
            self.used = received;
            return Ok(received);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            _ => Err(error),
        }
    }

    /// The bytes of a message of the last call; none if it was cut because it was too long.
    pub(crate) fn bytes(&self, index: usize) -> Option<&[u8]> {
        let header = self.header(index);
        let len = header.msg_len as usize;
        assert!(len <= self.iovecs[index].iov_len, "the kernel wrote beyond a buffer");
        let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        whole.then(|| &self.buffer[index * self.slot..][..len])
    }

    /// Who sent a message of the last call; none if that is no IP address.
    pub(crate) fn sender(&self, index: usize) -> Option<SocketAddr> {
        assert!(index < self.used, "message {index} of {} was not received", self.used);
        read_name(&self.names[index])
    }

    /// What the kernel said beside a message of the last call.
    pub(crate) fn notes(&self, index: usize) -> Notes {
        let header = &self.header(index).msg_hdr;
        let mut notes = Notes::default();
        // SAFETY: the kernel has filled `header`, and its control buffer is alive in `controls`.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !control.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers that lie in the buffer whole, and
            // those read below have their data behind them.
            let (level, kind, data) =
                unsafe { ((*control).cmsg_level, (*control).cmsg_type, libc::CMSG_DATA(control)) };
            match (level, kind) {
                // SAFETY: the TOS byte is one byte.
                (libc::IPPROTO_IP, libc::IP_TOS) => notes.class(i32::from(unsafe { *data })),
                // SAFETY: the traffic class is an int, which may lie anywhere.
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => notes.class(unsafe { int(data) }),
                // SAFETY: the length of segments is an int, too.
                (libc::SOL_UDP, libc::UDP_GRO) => notes.segments(unsafe { int(data) }),
                _ => {}
            }
            // SAFETY: `control` came from this header.
            control = unsafe { libc::CMSG_NXTHDR(header, control) };
        }
        notes
    }

    fn header(&self, index: usize) -> &libc::mmsghdr {
        assert!(index < self.used, "message {index} of {} was not received", self.used);
        &self.headers[index]
    }
}

impl Notes {
    /// The IP header's TOS byte or traffic class: its last two bits are the mark (RFC 3168,
    /// section 5).
    fn class(&mut self, class: libc::c_int) {
        self.marked |= class & 0b11 == 0b11;
    }

    fn segments(&mut self, len: libc::c_int) {
        self.segment = usize::try_from(len).ok().filter(|len| *len > 0);
    }

    /// The frames in a message with these bytes; an empty message is an empty frame.
    pub(crate) fn frames<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let len = self.segment.unwrap_or(bytes.len());
        let (first, others) = bytes.split_at(len.min(bytes.len()));
        std::iter::once(first).chain(others.chunks(len.max(1)))
    }
}

/// An int that the kernel wrote.
///
/// # Safety
///
/// There is one at `data`, aligned or not.
unsafe fn int(data: *const libc::c_uchar) -> libc::c_int {
    // SAFETY: the caller vouches for it.
    unsafe { data.cast::<libc::c_int>().read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_message_that_was_cut_is_not_shown() {
        let (tx, rx) = UnixDatagram::pair().unwrap();
        let mut receive = ReceiveBatch::new(4, true);
        tx.send(&[7; 4]).unwrap();
        tx.send(&[7; 5]).unwrap();
        assert_eq!(receive.receive(rx.as_fd()).unwrap(), 2);
        assert_eq!((receive.bytes(0), receive.bytes(1)), (Some(&[7; 4][..]), None));
        assert_eq!(receive.sender(0), None, "an unnamed Unix socket has no IP address");
        assert_eq!(receive.notes(0), Notes::default());
    }

    #[test]
    fn a_batch_of_runs_has_room_for_any_datagram() {
        let (tx, rx) = UnixDatagram::pair().unwrap();
        let mut receive = ReceiveBatch::of_runs();
        for _ in 0..2 {
            tx.send(&[7; 65_535]).unwrap();
            assert_eq!(receive.receive(rx.as_fd()).unwrap(), 1);
            assert_eq!(receive.bytes(0), Some(&[7; 65_535][..]));
        }
    }

    proptest! {
        #[test]
        fn frames_make_up_their_message(len in 0..2000_usize, segment in -1..2100) {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut notes = Notes::default();
            notes.segments(segment);
            let frames: Vec<&[u8]> = notes.frames(&bytes).collect();
            prop_assert_eq!(frames.concat(), &bytes[..]);
            let (last, others) = frames.split_last().unwrap();
            let most = notes.segment.unwrap_or(len);
            prop_assert!(others.iter().all(|frame| frame.len() == most));
            prop_assert!(last.len() <= most && (len == 0 || !last.is_empty()));
        }
    }
}
