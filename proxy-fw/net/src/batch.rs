//! Many frames with one system call: `sendmmsg(2)` and `recvmmsg(2)`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::socklen;
use crate::{BATCH, Counters};

/// The structures of one batch: [`BATCH`] buffers of one size, each with room for a socket
/// address, and the headers that point to them.
struct Messages {
    slot: usize,
    buffer: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `iovecs` and `headers` point only into the vectors beside them, which
// are never resized or shared, so everything moves to another thread together.
unsafe impl Send for Messages {}

impl Messages {
    fn new(slot: usize) -> Self {
        assert!(slot > 0, "a batch of empty buffers");
        let mut buffer = vec![0u8; BATCH * slot];
        // SAFETY: sockaddr_storage is plain data for which zeros are valid.
        let mut names: Vec<libc::sockaddr_storage> = vec![unsafe { std::mem::zeroed() }; BATCH];
        let mut iovecs: Vec<libc::iovec> = buffer
            .chunks_exact_mut(slot)
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: slot })
            .collect();
        let headers = names
            .iter_mut()
            .zip(&mut iovecs)
            .map(|(name, iovec)| {
                // SAFETY: mmsghdr is plain data for which zeros (null pointers) are valid.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_name = (&raw mut *name).cast();
                header.msg_hdr.msg_iov = iovec;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self { slot, buffer, names, iovecs, headers }
    }

    fn bytes(&self, index: usize, len: usize) -> &[u8] {
        assert!(len <= self.slot, "the kernel wrote beyond a buffer");
        &self.buffer[index * self.slot..][..len]
    }

    fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.buffer[index * self.slot..][..self.slot]
    }
}

/// Frames that wait to be sent, in order, each behind a header of fixed length.
pub(crate) struct SendBatch {
    messages: Messages,
    header: usize,
    first: usize,
    count: usize,
    last_refusal: Option<i32>,
}

impl SendBatch {
    /// For transport headers of `header` bytes and frames of up to `frame` bytes.
    pub(crate) fn new(header: usize, frame: usize) -> Self {
        let messages = Messages::new(header + frame);
        Self { messages, header, first: 0, count: 0, last_refusal: None }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == BATCH
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a frame; the batch is not full and the frame not too long. Without a destination it
    /// goes where the socket is bound to.
    pub(crate) fn push(&mut self, to: Option<SocketAddr>, header: &[u8], frame: &[u8]) {
        assert!(!self.is_full() && header.len() == self.header, "a frame without a place");
        let index = (self.first + self.count) % BATCH;
        let len = header.len() + frame.len();
        let bytes = self.messages.bytes_mut(index);
        bytes[..header.len()].copy_from_slice(header);
        bytes[header.len()..len].copy_from_slice(frame);
        self.messages.iovecs[index].iov_len = len;
        let name = &mut self.messages.names[index];
        self.messages.headers[index].msg_hdr.msg_namelen = to.map_or(0, |to| write_name(name, to));
        self.count += 1;
    }

    /// Gives the kernel what it takes. Frames that it refuses one by one are counted and gone;
    /// those that it has no room for stay.
    ///
    /// # Errors
    ///
    /// When the socket or its interface is gone.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>, counters: &mut Counters) -> io::Result<()> {
        while self.count > 0 {
            let run = self.count.min(BATCH - self.first);
            let headers = &mut self.messages.headers[self.first..][..run];
            // SAFETY: `run` headers, each with a name and one iovec that point into the live
            // vectors of `messages`; iov_len is within a slot and msg_namelen within a name.
            let sent = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    headers.as_mut_ptr(),
                    run as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) => {
                    assert!(sent <= run, "the kernel sent more than it was given");
                    self.count_sent(sent, counters);
                }
                Err(_) => match self.refused(io::Error::last_os_error(), counters)? {
                    Refusal::Again => {}
                    Refusal::NoRoom => return Ok(()),
                },
            }
        }
        Ok(())
    }

    fn count_sent(&mut self, sent: usize, counters: &mut Counters) {
        for header in &self.messages.headers[self.first..][..sent] {
            counters.sent_frames += 1;
            counters.sent_bytes += u64::from(header.msg_len) - self.header as u64;
        }
        self.drop_first(sent);
    }

    fn drop_first(&mut self, count: usize) {
        self.first = (self.first + count) % BATCH;
        self.count -= count;
    }

    /// What a failed call means for the first frame of the batch.
    fn refused(&mut self, error: io::Error, counters: &mut Counters) -> io::Result<Refusal> {
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(Refusal::Again),
            Some(libc::EAGAIN | libc::ENOBUFS) => Ok(Refusal::NoRoom),
            Some(libc::ENXIO | libc::ENODEV | libc::EBADF | libc::ENOTSOCK) => Err(error),
            code => {
                // One line for each new reason; the counter has the rest.
                if self.last_refusal != code {
                    tracing::warn!(%error, "a frame could not be sent and counts as lost");
                    self.last_refusal = code;
                }
                counters.send_refused += 1;
                self.drop_first(1);
                Ok(Refusal::Again)
            }
        }
    }
}

enum Refusal {
    /// Go on with the frames that are left.
    Again,
    /// Stop until there is room.
    NoRoom,
}

/// Buffers for frames that arrive.
pub(crate) struct ReceiveBatch {
    messages: Messages,
    /// Room for what the kernel says beside each message; none without names.
    controls: Vec<Control>,
    /// Messages of the last call, whose headers the kernel has changed.
    used: usize,
}

/// Control messages of one datagram: room for the IP header's TOS byte or traffic class, with the
/// alignment of their headers.
type Control = [u64; 8];

// SAFETY: the headers of `messages` point into `controls`, too, which is never resized or shared.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// For messages of up to `len` bytes. With `names`, each comes with its sender's address.
    pub(crate) fn new(len: usize, names: bool) -> Self {
        let mut messages = Messages::new(len);
        let mut controls: Vec<Control> = vec![[0; 8]; if names { BATCH } else { 0 }];
        if !names {
            for header in &mut messages.headers {
                header.msg_hdr.msg_name = std::ptr::null_mut();
            }
        }
        for (header, control) in messages.headers.iter_mut().zip(&mut controls) {
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        }
        Self { messages, controls, used: BATCH }
    }

    /// Takes what waits, up to a batch, and never blocks; zero when nothing waits.
    ///
    /// # Errors
    ///
    /// Whatever the socket has to report; often about its interface.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        for header in &mut self.messages.headers[..self.used] {
            let named = !header.msg_hdr.msg_name.is_null();
            header.msg_hdr.msg_namelen =
                if named { socklen::<libc::sockaddr_storage>() } else { 0 };
            let control = if self.controls.is_empty() { 0 } else { size_of::<Control>() };
            header.msg_hdr.msg_controllen = control as _;
        }
        self.used = 0;
        // SAFETY: BATCH headers, each with one iovec of a slot's length, and either no name and no
        // control buffer or one of sockaddr_storage's and one of Control's size, all in the live
        // vectors of `messages` and `controls`; no timeout.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.messages.headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if let Ok(received) = usize::try_from(received) {
            assert!(received <= BATCH, "the kernel filled more buffers than it was given");
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
        assert!(index < self.used, "message {index} of {} was not received", self.used);
        let header = &self.messages.headers[index];
        let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        whole.then(|| self.messages.bytes(index, header.msg_len as usize))
    }

    /// Whether a message of the last call came with Congestion Experienced in its IP header.
    pub(crate) fn is_marked(&self, index: usize) -> bool {
        assert!(index < self.used, "message {index} of {} was not received", self.used);
        let header = &self.messages.headers[index].msg_hdr;
        // SAFETY: the kernel has filled `header`, and its control buffer is alive.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !control.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers that lie in the buffer whole, and
            // those read here have at least one byte of data behind them: the TOS byte is one, and
            // the traffic class an int whose first byte is read below, as the machine stores it.
            let (level, kind, data) =
                unsafe { ((*control).cmsg_level, (*control).cmsg_type, libc::CMSG_DATA(control)) };
            let class = match (level, kind) {
                // SAFETY: as above.
                (libc::IPPROTO_IP, libc::IP_TOS) => Some(unsafe { i32::from(*data) }),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    // SAFETY: as above; an int may lie anywhere.
                    Some(unsafe { data.cast::<libc::c_int>().read_unaligned() })
                }
                _ => None,
            };
            if class.is_some_and(|class| class & 0b11 == 0b11) {
                return true;
            }
            // SAFETY: `control` came from this header.
            control = unsafe { libc::CMSG_NXTHDR(header, control) };
        }
        false
    }

    /// Who sent a message of the last call; none if that is no IP address.
    pub(crate) fn sender(&self, index: usize) -> Option<SocketAddr> {
        assert!(index < self.used, "message {index} of {} was not received", self.used);
        read_name(&self.messages.names[index])
    }
}

/// Writes a C socket address and gives its length.
fn write_name(name: &mut libc::sockaddr_storage, address: SocketAddr) -> libc::socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: sockaddr_storage has the size and alignment of every socket address, and
            // sockaddr_in is plain data.
            let name = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as libc::sa_family_t;
            name.sin_port = v4.port().to_be();
            name.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            socklen::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above, for sockaddr_in6.
            let name = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in6>() };
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_port = v6.port().to_be();
            name.sin6_flowinfo = v6.flowinfo();
            name.sin6_addr.s6_addr = v6.ip().octets();
            name.sin6_scope_id = v6.scope_id();
            socklen::<libc::sockaddr_in6>()
        }
    }
}

/// Reads a C socket address, if it is an IP address.
fn read_name(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in, which sockaddr_storage has the
            // size and alignment for; every bit pattern is valid.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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

    #[test]
    fn a_message_that_was_cut_is_not_shown() {
        let (tx, rx) = UnixDatagram::pair().unwrap();
        let mut receive = ReceiveBatch::new(4, true);
        tx.send(&[7; 4]).unwrap();
        tx.send(&[7; 5]).unwrap();
        assert_eq!(receive.receive(rx.as_fd()).unwrap(), 2);
        assert_eq!((receive.bytes(0), receive.bytes(1)), (Some(&[7; 4][..]), None));
        assert_eq!(receive.sender(0), None, "an unnamed Unix socket has no IP address");
    }

    proptest! {
        #[test]
        fn socket_addresses_survive(ip: std::net::IpAddr, port: u16, scope: u32) {
            // SAFETY: sockaddr_storage is plain data for which zeros are valid.
            let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            let mut address = SocketAddr::new(ip, port);
            if let SocketAddr::V6(v6) = &mut address {
                v6.set_scope_id(scope);
            }
            write_name(&mut name, address);
            prop_assert_eq!(read_name(&name), Some(address));
        }
    }
}
