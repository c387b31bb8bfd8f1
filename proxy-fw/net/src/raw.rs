//! Raw Ethernet: an `AF_PACKET` socket bound to one interface and one EtherType.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use pnet::packet::ethernet::{EtherType, EtherTypes, EthernetPacket, MutableEthernetPacket};
use pnet::packet::vlan::MutableVlanPacket;
use pnet::packet::{Packet, PacketSize};
use pnet::util::MacAddr;

use crate::address::is_vlan;
use crate::batch::{ReceiveBatch, SendBatch};
use crate::{
    Address, Counters, ETHERTYPE, MAX_FRAME, NetError, Origin, Port, SOCKET_BUFFER, Sent,
    interface, sys,
};

/// Destination, source, EtherType (IEEE 802.3-2018, clause 3.2).
const ETHERNET_HEADER: usize = 14;
/// Tag control information and the EtherType behind it (IEEE 802.1Q-2018, clause 9.6).
const VLAN_TAG: usize = 4;

/// How to open a [`RawPort`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawOptions {
    /// The interface's name. It stays usable for everything else.
    pub interface: String,
    /// 802.1Q VLAN ID, 1 to 4094, if frames are tagged. The interface is then the one that carries
    /// the tagged frames, not a VLAN interface on top of it.
    pub vlan: Option<u16>,
    /// Largest fabric frame in bytes, 1 to [`MAX_FRAME`]. By default the interface's MTU.
    pub frame_size: Option<usize>,
    /// The frames' EtherType: [`ETHERTYPE`]. Ports with another one on the same interface get
    /// none of each other's frames.
    pub ethertype: u16,
}

impl RawOptions {
    /// The defaults for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into(), vlan: None, frame_size: None, ethertype: ETHERTYPE }
    }
}

/// An Ethernet interface as a path's end. It receives what is addressed to its own MAC address, or
/// to all, in its VLAN.
///
/// Ethernet pads short frames to 46 bytes of payload (IEEE 802.3-2018, clause 3.2.8), so a shorter
/// fabric frame may arrive with zeros behind it.
pub struct RawPort {
    socket: OwnedFd,
    interface: String,
    index: u32,
    mac: MacAddr,
    vlan: Option<u16>,
    ethertype: u16,
    mtu: usize,
    outgoing: SendBatch,
    incoming: ReceiveBatch,
    counters: Counters,
}

impl RawPort {
    /// Opens the port.
    ///
    /// # Errors
    ///
    /// When the interface does not exist, is down, is not Ethernet or its MTU is smaller than the
    /// frame size that was asked for; when raw sockets are not allowed; or what the system refused.
    pub fn open(options: &RawOptions) -> Result<Self, NetError> {
        let name = &options.interface;
        if let Some(vlan) = options.vlan.filter(|vlan| !is_vlan(*vlan)) {
            return Err(NetError::NoSuchVlan(vlan));
        }
        let found = interface::by_name(name)?;
        let mac = found
            .mac
            .filter(|mac| *mac != MacAddr::zero())
            .ok_or_else(|| NetError::NotEthernet { interface: name.clone() })?;
        if !found.is_up() {
            return Err(NetError::InterfaceDown { interface: name.clone() });
        }
        let mtu = frame_size(options)?;
        let socket = open_socket(options, found.index)?;
        let header = ETHERNET_HEADER + options.vlan.map_or(0, |_| VLAN_TAG);
        tracing::debug!(interface = name, %mac, vlan = ?options.vlan, mtu, "raw Ethernet port open");
        Ok(Self {
            socket,
            interface: name.clone(),
            index: found.index,
            mac,
            vlan: options.vlan,
            ethertype: options.ethertype,
            mtu,
            outgoing: SendBatch::new(header, mtu),
            // The kernel takes the tag off a frame that arrives.
            incoming: ReceiveBatch::new(ETHERNET_HEADER + mtu, false),
            counters: Counters::default(),
        })
    }

    /// The headers of a frame to a MAC address in this port's VLAN.
    fn header(&self, to: MacAddr, bytes: &mut [u8; ETHERNET_HEADER + VLAN_TAG]) -> usize {
        let mut ethernet = MutableEthernetPacket::new(bytes).expect("room for both headers");
        ethernet.set_destination(to);
        ethernet.set_source(self.mac);
        let Some(vlan) = self.vlan else {
            ethernet.set_ethertype(EtherType(self.ethertype));
            return ETHERNET_HEADER;
        };
        ethernet.set_ethertype(EtherTypes::Vlan);
        let mut tag = MutableVlanPacket::new(&mut bytes[ETHERNET_HEADER..]).expect("four bytes");
        tag.set_vlan_identifier(vlan);
        tag.set_ethertype(EtherType(self.ethertype));
        ETHERNET_HEADER + VLAN_TAG
    }

    fn broken(&self, what: &'static str, source: io::Error) -> NetError {
        match source.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV) => {
                NetError::InterfaceRemoved { interface: self.interface.clone() }
            }
            _ => system(what, &self.interface, source),
        }
    }

    /// What an error on receiving means: an interface that was switched off may come back.
    fn receive_failed(&self, source: io::Error) -> Result<usize, NetError> {
        if source.raw_os_error() != Some(libc::ENETDOWN) {
            return Err(self.broken("receiving", source));
        }
        let same = interface::by_name(&self.interface).is_ok_and(|found| found.index == self.index);
        if !same {
            return Err(NetError::InterfaceRemoved { interface: self.interface.clone() });
        }
        tracing::warn!(interface = self.interface, "the interface went down");
        Ok(0)
    }
}

impl Port for RawPort {
    fn local_address(&self) -> Address {
        Address::Ethernet { mac: self.mac.octets(), vlan: self.vlan }
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn send(&mut self, to: &Address, frame: &[u8]) -> Result<Sent, NetError> {
        let mac = match *to {
            Address::Ethernet { mac, vlan } if vlan == self.vlan => mac.into(),
            to => return Err(NetError::WrongAddress { to, from: self.local_address() }),
        };
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
        let mut header = [0; ETHERNET_HEADER + VLAN_TAG];
        let len = self.header(mac, &mut header);
        self.outgoing.push(None, &header[..len], frame);
        Ok(Sent::Queued)
    }

    fn flush(&mut self) -> Result<(), NetError> {
        self.outgoing
            .flush(self.socket.as_fd(), &mut self.counters)
            .map_err(|source| self.broken("sending", source))
    }

    fn receive(&mut self, sink: &mut dyn FnMut(&Origin, &[u8])) -> Result<usize, NetError> {
        let waiting = match self.incoming.receive(self.socket.as_fd()) {
            Ok(waiting) => waiting,
            Err(source) => return self.receive_failed(source),
        };
        let mut handed = 0;
        for index in 0..waiting {
            let ethernet = self.incoming.bytes(index).and_then(EthernetPacket::new);
            let Some(ethernet) = ethernet else {
                self.counters.receive_invalid += 1;
                continue;
            };
            let from = Address::Ethernet { mac: ethernet.get_source().octets(), vlan: self.vlan };
            let frame = &ethernet.packet()[ethernet.packet_size()..];
            handed += 1;
            self.counters.received_bytes += frame.len() as u64;
            sink(&Origin::plain(from), frame);
        }
        self.counters.received_frames += handed as u64;
        Ok(handed)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), NetError> {
        sys::wait(self.socket.as_fd(), !self.outgoing.is_empty(), timeout)
            .map_err(|source| self.broken("waiting", source))
    }

    fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
        Some((self.socket.as_fd(), !self.outgoing.is_empty()))
    }

    fn counters(&self) -> Counters {
        Counters { receive_dropped: sys::receive_drops(self.socket.as_fd()), ..self.counters }
    }
}

/// The largest frame: what was asked for and the interface carries, or what it carries.
fn frame_size(options: &RawOptions) -> Result<usize, NetError> {
    let interface = &options.interface;
    let mtu = interface::mtu(interface)
        .map_err(|source| system("asking for the MTU", interface, source))?;
    match options.frame_size {
        None => Ok(mtu.min(MAX_FRAME)),
        Some(wanted) if !(1..=MAX_FRAME).contains(&wanted) => {
            Err(NetError::FrameSize { wanted, max: MAX_FRAME })
        }
        Some(wanted) if wanted > mtu => {
            Err(NetError::MtuTooSmall { interface: interface.clone(), mtu, wanted })
        }
        Some(wanted) => Ok(wanted),
    }
}

/// Opens, filters and only then binds the socket, so that no foreign frame is ever queued.
fn open_socket(options: &RawOptions, index: u32) -> Result<OwnedFd, NetError> {
    let name = &options.interface;
    // SAFETY: a plain call without pointers. Protocol 0 receives nothing yet.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let source = io::Error::last_os_error();
        return Err(match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => NetError::NotPermitted { interface: name.clone() },
            _ => system("opening a raw socket", name, source),
        });
    }
    // SAFETY: the descriptor was just opened and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let fail = |what| move |source| system(what, name, source);
    sys::set_buffers(socket.as_fd(), SOCKET_BUFFER).map_err(fail("setting buffer sizes"))?;
    attach_filter(&socket, options).map_err(fail("attaching the filter"))?;
    bind(&socket, index, options).map_err(fail("binding"))?;
    Ok(socket)
}

/// Binds to the interface. Untagged frames come by their EtherType. A tagged frame, too, but the
/// kernel has forgotten the tag by then; so with a VLAN the socket taps all frames, where the tag
/// is still known, and the filter chooses.
fn bind(socket: &OwnedFd, index: u32, options: &RawOptions) -> io::Result<()> {
    let tap = libc::ETH_P_ALL as u16;
    let protocol = if options.vlan.is_some() { tap } else { options.ethertype };
    // SAFETY: sockaddr_ll is plain data for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = libc::c_int::try_from(index).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the address lives through the call and has that size.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            sys::socklen::<libc::sockaddr_ll>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The ancillary values that a classic BPF program can load (linux/filter.h).
mod ancillary {
    pub(super) const PACKET_TYPE: u32 = -0x1000_i32 as u32 + 4;
    pub(super) const VLAN_TAG: u32 = -0x1000_i32 as u32 + 44;
    pub(super) const VLAN_TAG_PRESENT: u32 = -0x1000_i32 as u32 + 48;
}

/// Lets through what is for this host (not others' frames seen by a promiscuous interface, which
/// includes those of unknown VLANs, and not what this host sends), has our EtherType, and with a
/// VLAN its tag.
fn attach_filter(socket: &OwnedFd, options: &RawOptions) -> io::Result<()> {
    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_H, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    };
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let accept = op(BPF_RET | BPF_K, 0, 0, u32::MAX);
    let reject = op(BPF_RET | BPF_K, 0, 0, 0);
    let mut program = vec![
        op(BPF_LD | BPF_W | BPF_ABS, 0, 0, ancillary::PACKET_TYPE),
        op(BPF_JMP | BPF_JGT | BPF_K, 0, 1, u32::from(libc::PACKET_MULTICAST)),
        reject,
        op(BPF_LD | BPF_H | BPF_ABS, 0, 0, 12),
        op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, u32::from(options.ethertype)),
        reject,
    ];
    if let Some(vlan) = options.vlan {
        program.extend([
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, ancillary::VLAN_TAG_PRESENT),
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, 1),
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, ancillary::VLAN_TAG),
            op(BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xFFF),
            op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, u32::from(vlan)),
            reject,
        ]);
    }
    program.push(accept);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: SO_ATTACH_FILTER takes a sock_fprog; its instructions are in a vector that outlives
    // the call, and the kernel checks them.
    unsafe { sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

fn system(what: &'static str, interface: &str, source: io::Error) -> NetError {
    NetError::System { what, port: format!("interface '{interface}'"), source }
}
