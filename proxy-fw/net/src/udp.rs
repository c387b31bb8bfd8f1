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
const HEADERS_V4: usize = 20 + 8;
/// IPv6 (RFC 8200) and UDP headers, in bytes.
const HEADERS_V6: usize = 40 + 8;

/// How to open a [`UdpPort`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Where to receive. Port 0 lets the system choose one.
    pub bind: SocketAddr,
    /// Largest fabric frame in bytes, 1 to [`MAX_FRAME`]. By default what fits the MTU of the
    /// interface with the address, or, for the unspecified address, of all interfaces that are up.
    pub frame_size: Option<usize>,
}

impl UdpOptions {
    /// The defaults for an address.
    pub fn new(bind: SocketAddr) -> Self {
        Self { bind, frame_size: None }
    }
}

/// A UDP socket as a path's end.
///
/// Datagrams are sent with "don't fragment": one that does not fit the way to the other end is
/// refused, logged and counted, so that a frame size that is too large shows itself.
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
        tracing::debug!(%local, mtu, "UDP port open");
        Ok(Self {
            socket,
            local,
            mtu,
            outgoing: SendBatch::new(0, mtu),
            incoming: ReceiveBatch::new(mtu, true),
            counters: Counters::default(),
        })
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
        let to = self.destination(to)?;
        if frame.len() > self.mtu {
            return Err(NetError::TooLong { len: frame.len(), mtu: self.mtu });
        }
        if self.outgoing.is_full() {
            self.flush()?;
            if self.outgoing.is_full() {
                self.counters.send_full += 1;
                return Ok(Sent::Full);
            }
        }
        self.outgoing.push(Some(to), &[], frame);
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
        let mut handed = 0;
        for index in 0..waiting {
            let (Some(frame), Some(from)) =
                (self.incoming.bytes(index), self.incoming.sender(index))
            else {
                self.counters.receive_invalid += 1;
                continue;
            };
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            handed += 1;
            self.counters.received_bytes += frame.len() as u64;
            let congestion_experienced = self.incoming.is_marked(index);
            sink(&Origin { address: Address::Udp(from), congestion_experienced }, frame);
        }
        self.counters.received_frames += handed as u64;
        Ok(handed)
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
fn forbid_fragments(socket: &UdpSocket, bind: IpAddr) -> io::Result<()> {
    let fd = socket.as_fd();
    if bind.is_ipv4() {
        return sys::set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO);
    }
    sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
    sys::set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
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

fn system(what: &'static str, port: SocketAddr, source: io::Error) -> NetError {
    NetError::System { what, port: format!("UDP port {port}"), source }
}
