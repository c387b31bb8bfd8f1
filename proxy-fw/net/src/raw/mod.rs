//! Raw Ethernet: an `AF_PACKET` socket bound to one interface and one EtherType.
//!
//! | file | what |
//! |---|---|
//! | `socket` | the socket: its filter and what it is bound to |
//! | `ring` | frames through packet rings |
//! | `shared` | the memory of those rings, which the kernel has, too |
//!
//! Without rings, frames go in batches of one system call each (`batch`).

mod ring;
mod shared;
mod socket;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use pnet::packet::ethernet::{EtherType, EtherTypes, EthernetPacket, MutableEthernetPacket};
use pnet::packet::vlan::MutableVlanPacket;
use pnet::util::MacAddr;

use crate::address::is_vlan;
use crate::batch::{ReceiveBatch, SendBatch};
use crate::{
    Address, Counters, ETHERTYPE, MAX_FRAME, NetError, Origin, Port, Sent, interface, sys,
};
use ring::Ring;

/// Destination, source, EtherType (IEEE 802.3-2018, clause 3.2).
const ETHERNET_HEADER: usize = 14;
/// Tag control information and the EtherType behind it (IEEE 802.1Q-2018, clause 9.6).
const VLAN_TAG: usize = 4;

/// Neither what comes nor what does not says that an interface is of no use any more. Every so many
/// times that nothing came the socket is asked.
const LOOKS_BETWEEN_ERRORS: u32 = 4096;

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
    /// Use packet rings (TPACKET_V2), if the kernel has them: what comes is then seen without a
    /// system call. Where it has none, or without this, frames go in batches of one call each.
    pub ring: bool,
}

impl RawOptions {
    /// The defaults for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            vlan: None,
            frame_size: None,
            ethertype: ETHERTYPE,
            ring: true,
        }
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
    mac: MacAddr,
    vlan: Option<u16>,
    mtu: usize,
    /// What stands in front of each frame, with the last destination.
    header: [u8; ETHERNET_HEADER + VLAN_TAG],
    header_len: usize,
    transport: Transport,
    looks: u32,
    counters: Counters,
}

/// How frames go between us and the kernel.
#[allow(clippy::large_enum_variant)] // one for each port
enum Transport {
    Ring(Ring),
    Calls { outgoing: SendBatch, incoming: ReceiveBatch },
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
        let header_len = ETHERNET_HEADER + options.vlan.map_or(0, |_| VLAN_TAG);
        let (socket, transport) = open_transport(options, header_len, mtu)?;
        socket::join(&socket, found.index, options)?;
        let vlan = options.vlan;
        let port = Self {
            socket,
            interface: name.clone(),
            mac,
            vlan,
            mtu,
            header: header(mac, vlan, options.ethertype),
            header_len,
            transport,
            looks: 0,
            counters: Counters::default(),
        };
        let ring = port.has_ring();
        tracing::debug!(interface = name, %mac, ?vlan, mtu, ring, "raw Ethernet port open");
        Ok(port)
    }

    /// Whether frames go through packet rings.
    pub fn has_ring(&self) -> bool {
        matches!(self.transport, Transport::Ring(_))
    }

    fn broken(&self, what: &'static str, source: io::Error) -> NetError {
        match source.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV) => {
                NetError::InterfaceRemoved { interface: self.interface.clone() }
            }
            _ => system(what, &self.interface, source),
        }
    }

    /// Writes the destination of a frame of `len` bytes into the header.
    fn address(&mut self, to: &Address, len: usize) -> Result<(), NetError> {
        let mac = match *to {
            Address::Ethernet { mac, vlan } if vlan == self.vlan => mac,
            to => return Err(NetError::WrongAddress { to, from: self.local_address() }),
        };
        if len > self.mtu {
            return Err(NetError::TooLong { len, mtu: self.mtu });
        }
        self.header[..6].copy_from_slice(&mac);
        Ok(())
    }

    /// Whether there is room for a frame, if need be after giving the kernel what waits.
    fn make_room(&mut self) -> Result<bool, NetError> {
        let has_room = |transport: &Transport| match transport {
            Transport::Ring(ring) => ring.has_room(),
            Transport::Calls { outgoing, .. } => !outgoing.is_full(),
        };
        let due = matches!(&self.transport, Transport::Ring(ring) if ring.has_batch());
        if due || !has_room(&self.transport) {
            self.flush()?;
        }
        Ok(has_room(&self.transport))
    }

    /// Whether frames wait that the kernel had no room for.
    fn holds_back(&self) -> bool {
        match &self.transport {
            Transport::Ring(ring) => !ring.is_empty(),
            Transport::Calls { outgoing, .. } => !outgoing.is_empty(),
        }
    }

    /// Asks the socket what it would report if it were received from, and whether its interface has
    /// the address still that frames are sent to: a bond can change it whenever its link fails.
    fn look_for_errors(&self) -> Result<(), NetError> {
        let failed = |source| system("asking for errors", &self.interface, source);
        if let Some(source) = sys::take_error(self.socket.as_fd()).map_err(failed)? {
            self.receive_failed(source)?;
        }
        match socket::mac(&self.socket).map_err(failed)? {
            Some(now) if now != self.mac => Err(NetError::AddressChanged {
                interface: self.interface.clone(),
                before: self.mac,
                now,
            }),
            Some(_) => Ok(()),
            // It is switched off first, of which alone a receiver is told.
            None => Err(NetError::InterfaceRemoved { interface: self.interface.clone() }),
        }
    }

    /// What an error on receiving means: an interface that was switched off may come back.
    fn receive_failed(&self, source: io::Error) -> Result<usize, NetError> {
        if source.raw_os_error() != Some(libc::ENETDOWN) {
            return Err(self.broken("receiving", source));
        }
        // The socket tells: a list of the interfaces waits for whoever in the system sets one up or down,
        // which may take seconds, and other paths would wait with it.
        if matches!(socket::mac(&self.socket), Ok(None)) {
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
        self.address(to, frame.len())?;
        if !self.make_room()? {
            self.counters.send_full += 1;
            return Ok(Sent::Full);
        }
        let header = &self.header[..self.header_len];
        match &mut self.transport {
            Transport::Ring(ring) => ring.push(header, frame),
            Transport::Calls { outgoing, .. } => outgoing.push(None, header, frame),
        }
        Ok(Sent::Queued)
    }

    fn place(&mut self) -> Result<Option<&mut [u8]>, NetError> {
        if !self.has_ring() || !self.make_room()? {
            return Ok(None);
        }
        let Transport::Ring(ring) = &mut self.transport else { return Ok(None) };
        Ok(Some(&mut ring.place()[..self.mtu]))
    }

    fn send_placed(&mut self, to: &Address, len: usize) -> Result<Sent, NetError> {
        self.address(to, len)?;
        let Transport::Ring(ring) = &mut self.transport else {
            unreachable!("only a ring has a place")
        };
        ring.push_placed(&self.header[..self.header_len], len);
        Ok(Sent::Queued)
    }

    fn flush(&mut self) -> Result<(), NetError> {
        let (socket, counters) = (self.socket.as_fd(), &mut self.counters);
        let flushed = match &mut self.transport {
            Transport::Ring(ring) => ring.flush(socket, counters),
            Transport::Calls { outgoing, .. } => outgoing.flush(socket, counters),
        };
        flushed.map_err(|source| self.broken("sending", source))
    }

    fn receive(&mut self, sink: &mut dyn FnMut(&Origin, &[u8])) -> Result<usize, NetError> {
        let (vlan, longest, counters) = (self.vlan, self.mtu, &mut self.counters);
        let before = counters.received_frames;
        let mut hand_on = |bytes: Option<&[u8]>| {
            let Some((from, frame)) = bytes.and_then(|bytes| split(bytes, vlan, longest)) else {
                counters.receive_invalid += 1;
                return;
            };
            counters.received_frames += 1;
            counters.received_bytes += frame.len() as u64;
            sink(&Origin::plain(from), frame);
        };
        let came = match &mut self.transport {
            Transport::Ring(ring) => ring.receive(hand_on),
            Transport::Calls { incoming, .. } => match incoming.receive(self.socket.as_fd()) {
                Ok(waiting) => {
                    (0..waiting).for_each(|index| hand_on(incoming.bytes(index)));
                    waiting
                }
                Err(source) => return self.receive_failed(source),
            },
        };
        if came == 0 {
            self.looks = self.looks.wrapping_add(1);
            if self.looks.is_multiple_of(LOOKS_BETWEEN_ERRORS) {
                self.look_for_errors()?;
            }
        }
        Ok((self.counters.received_frames - before) as usize)
    }

    fn may_receive(&self) -> bool {
        match &self.transport {
            Transport::Ring(ring) => ring.has_arrived(),
            Transport::Calls { .. } => true,
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), NetError> {
        sys::wait(self.socket.as_fd(), self.holds_back(), timeout)
            .map_err(|source| self.broken("waiting", source))?;
        self.look_for_errors()
    }

    fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
        Some((self.socket.as_fd(), self.holds_back()))
    }

    fn counters(&self) -> Counters {
        let socket = self.socket.as_fd();
        let receive_dropped = match &self.transport {
            Transport::Ring(ring) => ring.drops(socket),
            Transport::Calls { .. } => sys::receive_drops(socket),
        };
        Counters { receive_dropped, ..self.counters }
    }
}

/// A socket that is bound to nothing yet, with rings if they are wanted and the kernel gives them.
fn open_transport(
    options: &RawOptions,
    header: usize,
    mtu: usize,
) -> Result<(OwnedFd, Transport), NetError> {
    let interface = &options.interface;
    if options.ring {
        let socket = socket::create(interface)?;
        match Ring::new(socket.as_fd(), header, mtu) {
            Ok(ring) => return Ok((socket, Transport::Ring(ring))),
            Err(error) => tracing::debug!(interface, %error, "no packet rings: frames in batches"),
        }
    }
    // The kernel takes the tag off a frame that arrives.
    let incoming = ReceiveBatch::new(ETHERNET_HEADER + mtu, false);
    let outgoing = SendBatch::new(header, mtu);
    Ok((socket::create(interface)?, Transport::Calls { outgoing, incoming }))
}

/// The headers of frames from a MAC address, in a VLAN or none, to nobody yet.
fn header(from: MacAddr, vlan: Option<u16>, ethertype: u16) -> [u8; ETHERNET_HEADER + VLAN_TAG] {
    let mut bytes = [0; ETHERNET_HEADER + VLAN_TAG];
    let mut ethernet = MutableEthernetPacket::new(&mut bytes).expect("room for both headers");
    ethernet.set_source(from);
    let Some(vlan) = vlan else {
        ethernet.set_ethertype(EtherType(ethertype));
        return bytes;
    };
    ethernet.set_ethertype(EtherTypes::Vlan);
    let mut tag = MutableVlanPacket::new(&mut bytes[ETHERNET_HEADER..]).expect("four bytes");
    tag.set_vlan_identifier(vlan);
    tag.set_ethertype(EtherType(ethertype));
    bytes
}

/// Who sent an Ethernet frame, and what is behind its header; none if that is too long.
fn split(bytes: &[u8], vlan: Option<u16>, longest: usize) -> Option<(Address, &[u8])> {
    let ethernet = EthernetPacket::new(bytes)?;
    let frame = &bytes[ETHERNET_HEADER..];
    let from = Address::Ethernet { mac: ethernet.get_source().octets(), vlan };
    (frame.len() <= longest).then_some((from, frame))
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

fn system(what: &'static str, interface: &str, source: io::Error) -> NetError {
    NetError::System { what, port: format!("interface '{interface}'"), source }
}
