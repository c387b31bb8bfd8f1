//! Fabric frames in UDP datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::batch::{ReceiveBatch, SendBatch};
use crate::{
    Address, Counters, MAX_FRAME, NetError, Origin, Port, SOCKET_BUFFER, Sent, interface, sys,
};

/// IPv4 (RFC 791) and UDP (RFC 768) headers, in bytes.
pub(crate) const HEADERS_V4: usize = 20 + 8;
/// IPv6 (RFC 8200) and UDP headers, in bytes.
pub(crate) const HEADERS_V6: usize = 40 + 8;

/// How to open a [`UdpPort`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Where to receive. Port 0 lets the system choose one.
    pub bind: SocketAddr,
    /// Largest fabric frame in bytes, 1 to [`MAX_FRAME`]. By default what fits the MTU of the
    /// interface with the address, or, for the unspecified address, of all interfaces that are up.
    pub frame_size: Option<usize>,
    /// Pass several frames to and from the kernel as one message that it segments (udp(7),
    /// `UDP_SEGMENT` and `UDP_GRO`; Linux 4.18 and 5.0). Where it cannot, or without this, each
    /// frame is a message of its own.
    pub segmentation: bool,
}

impl UdpOptions {
    /// The defaults for an address.
    pub fn new(bind: SocketAddr) -> Self {
        Self { bind, frame_size: None, segmentation: true }
    }
}

/// A UDP socket as a path's end.
///
/// Datagrams are sent with "don't fragment": one that does not fit the way to the other end is
/// refused, logged and counted, so that a frame size that is too large shows itself.
///
/// Frames in a row to one destination and of one length, with a shorter last one or none, go
/// through the kernel as one message of up to [`BATCH`](crate::BATCH) frames and 65,535 bytes with
/// all headers. The network device cuts it into datagrams, or the kernel does; what travels is the same as if each
/// frame had been sent alone. Where a kernel, a device or an IPsec policy refuses such a message
/// and then takes the same frames one by one, the port sends one by one from then on, and says so
/// in the log. In the other direction the kernel puts datagrams of one sender together again, as
/// far as they come close together, and the port hands on each of the frames in them.
pub struct UdpPort {
    socket: UdpSocket,
    local: SocketAddr,
    mtu: usize,
    outgoing: SendBatch,
    incoming: ReceiveBatch,
    counters: Counters,
}

impl UdpPort {
    /// Opens the port.
    ///
    /// # Errors
    ///
    /// [`NetError::Bind`], [`NetError::FrameSize`], or what the system refused.
    pub fn open(options: &UdpOptions) -> Result<Self, NetError> {
        let bind = options.bind;
        let mtu = frame_size(options)?;
        let socket =
            UdpSocket::bind(bind).map_err(|source| NetError::Bind { address: bind, source })?;
        let fail = |what| move |source| system(what, bind, source);
        let local = socket.local_addr().map_err(fail("asking for the address"))?;
        sys::set_buffers(socket.as_fd(), SOCKET_BUFFER).map_err(fail("setting buffer sizes"))?;
        forbid_fragments(&socket, bind.ip()).map_err(fail("forbidding fragments"))?;
        ask_for_marks(&socket, bind.ip()).map_err(fail("asking for congestion marks"))?;
        let segments = options.segmentation && takes_segments(&socket);
        let runs = options.segmentation && gives_runs(&socket);
        tracing::debug!(%local, mtu, segments, runs, "UDP port open");
        Ok(Self {
            socket,
            local,
            mtu,
            outgoing: if segments { SendBatch::segmented(mtu) } else { SendBatch::new(0, mtu) },
            incoming: if runs { ReceiveBatch::of_runs() } else { ReceiveBatch::new(mtu, true) },
            counters: Counters::default(),
        })
    }

    /// Whether several frames go to the kernel as one message: as far as is known so far, it
    /// takes them.
    pub fn has_segmentation(&self) -> bool {
        self.outgoing.has_segments()
    }

    /// Whether there is room for a frame, if need be after giving the kernel what waits.
    fn make_room(&mut self) -> Result<bool, NetError> {
        if self.outgoing.is_full() {
            self.flush()?;
        }
        Ok(!self.outgoing.is_full())
    }

    /// The destination of a frame of `len` bytes, as this socket takes it.
    fn check(&self, to: &Address, len: usize) -> Result<SocketAddr, NetError> {
        let to = self.destination(to)?;
        if len > self.mtu {
            return Err(NetError::TooLong { len, mtu: self.mtu });
        }
        Ok(to)
    }

    /// The destination as this socket takes it.
    fn destination(&self, to: &Address) -> Result<SocketAddr, NetError> {
        match (*to, self.local) {
            (Address::Udp(SocketAddr::V4(to)), SocketAddr::V4(_)) => Ok(to.into()),
            (Address::Udp(SocketAddr::V6(to)), SocketAddr::V6(_)) => Ok(to.into()),
            // A socket on [::] reaches IPv4 by mapped addresses (RFC 4291, section 2.5.5.2).
            (Address::Udp(SocketAddr::V4(to)), SocketAddr::V6(local))
                if local.ip().is_unspecified() =>
            {
                Ok(SocketAddrV6::new(to.ip().to_ipv6_mapped(), to.port(), 0, 0).into())
            }
            _ => Err(NetError::WrongAddress { to: *to, from: self.local_address() }),
        }
    }
}

impl Port for UdpPort {
    fn local_address(&self) -> Address {
        Address::Udp(self.local)
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn send(&mut self, to: &Address, frame: &[u8]) -> Result<Sent, NetError> {
        let to = self.check(to, frame.len())?;
        if !self.make_room()? {
            self.counters.send_full += 1;
            return Ok(Sent::Full);
        }
        self.outgoing.push(Some(to), &[], frame);
        Ok(Sent::Queued)
    }

    fn place(&mut self) -> Result<Option<&mut [u8]>, NetError> {
        if !self.make_room()? {
            return Ok(None);
        }
        Ok(Some(self.outgoing.place()))
    }

    fn send_placed(&mut self, to: &Address, len: usize) -> Result<Sent, NetError> {
        let to = self.check(to, len)?;
        self.outgoing.push_placed(Some(to), &[], len);
        Ok(Sent::Queued)
    }

    fn flush(&mut self) -> Result<(), NetError> {
        self.outgoing
            .flush(self.socket.as_fd(), &mut self.counters)
            .map_err(|source| system("sending", self.local, source))
    }

    fn receive(&mut self, sink: &mut dyn FnMut(&Origin, &[u8])) -> Result<usize, NetError> {
        let waiting = self
            .incoming
            .receive(self.socket.as_fd())
            .map_err(|source| system("receiving", self.local, source))?;
        let before = self.counters.received_frames;
        for index in 0..waiting {
            let (Some(bytes), Some(from)) =
                (self.incoming.bytes(index), self.incoming.sender(index))
            else {
                self.counters.receive_invalid += 1;
                continue;
            };
            let notes = self.incoming.notes(index);
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            let origin =
                Origin { address: Address::Udp(from), congestion_experienced: notes.marked };
            for frame in notes.frames(bytes) {
                if frame.len() > self.mtu {
                    self.counters.receive_invalid += 1;
                    continue;
                }
                self.counters.received_frames += 1;
                self.counters.received_bytes += frame.len() as u64;
                sink(&origin, frame);
            }
        }
        Ok((self.counters.received_frames - before) as usize)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), NetError> {
        sys::wait(self.socket.as_fd(), !self.outgoing.is_empty(), timeout)
            .map_err(|source| system("waiting", self.local, source))
    }

    fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
        Some((self.socket.as_fd(), !self.outgoing.is_empty()))
    }

    fn counters(&self) -> Counters {
        Counters { receive_dropped: sys::receive_drops(self.socket.as_fd()), ..self.counters }
    }
}

/// The largest frame: what was asked for, or what the interface carries.
fn frame_size(options: &UdpOptions) -> Result<usize, NetError> {
    if let Some(wanted) = options.frame_size {
        return if (1..=MAX_FRAME).contains(&wanted) {
            Ok(wanted)
        } else {
            Err(NetError::FrameSize { wanted, max: MAX_FRAME })
        };
    }
    let ip = options.bind.ip();
    let headers = if ip.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    let mtus =
        interface::behind(ip).into_iter().filter_map(|behind| interface::mtu(&behind.name).ok());
    // No such interface: the bind that follows says so. 1500 is Ethernet's own MTU.
    let mtu = mtus.min().unwrap_or(1500);
    Ok(mtu.saturating_sub(headers).clamp(1, MAX_FRAME))
}

/// Sets "don't fragment" (ip(7), IP_MTU_DISCOVER), for both IP versions where the socket has both.
/// What the kernel learned of a path by ICMP, from anybody and for ten minutes, does not count: the link
/// looks for what a path carries by itself.
fn forbid_fragments(socket: &UdpSocket, bind: IpAddr) -> io::Result<()> {
    let fd = socket.as_fd();
    if bind.is_ipv4() {
        return sys::set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    }
    sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    sys::set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
}

/// ECN-Capable Transport, codepoint ECT(0) (RFC 3168, section 5).
const ECT_0: libc::c_int = 0b10;

/// Lets switches mark what is sent instead of dropping it, and has the marks of what comes told.
fn ask_for_marks(socket: &UdpSocket, bind: IpAddr) -> io::Result<()> {
    let fd = socket.as_fd();
    if bind.is_ipv6() {
        sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ECT_0)?;
        sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
    }
    // A socket on [::] carries IPv4 as well.
    sys::set_int(fd, libc::IPPROTO_IP, libc::IP_TOS, ECT_0)?;
    sys::set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
}

/// Whether this kernel can segment what is sent; one that cannot would send a run as one datagram.
fn takes_segments(socket: &UdpSocket) -> bool {
    // Zero asks for nothing by itself: each message says how it is segmented.
    sys::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Asks the kernel to give runs of datagrams as one message; whether it does.
fn gives_runs(socket: &UdpSocket) -> bool {
    sys::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
}

fn system(what: &'static str, port: SocketAddr, source: io::Error) -> NetError {
    NetError::System { what, port: format!("UDP port {port}"), source }
}
