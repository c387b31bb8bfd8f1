//! The switch seen from outside: through TLPs only.

mod access_control;
mod enumeration;
mod errors;
mod hotplug;
mod messages;
mod placeholders;
mod properties;
mod resets;
mod routing;

use super::*;
use std::vec::Vec;
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{ByteEnables, Kind, MsgCode, MsgRouting, Repr, TlpType};

/// TLPs that the switch made.
type Tlps = Vec<Vec<u8>>;

/// What the host's side of a test has: the switch, a clock, and what came out.
struct Host {
    switch: VirtualSwitch,
    now: Instant,
    /// Towards the root complex, completions of configuration requests taken out.
    out: Tlps,
    /// Towards the devices.
    back: Tlps,
}

/// Where the tests put the upstream port.
const UPSTREAM: u16 = 0x0100;
/// Its secondary bus.
const INTERNAL: u8 = 2;
/// The interrupt address of port 0; each port has its own.
const MSI_ADDRESS: u64 = 0xfee0_1000;
/// The host's own ID.
const ROOT: u16 = 0x0000;

fn port(n: u8) -> PortId {
    PortId::new(n).unwrap()
}

fn bdf(bits: u16) -> Bdf {
    Bdf::from_bits(bits)
}

fn tag(n: u16) -> Tag {
    Tag::new(n).unwrap()
}

fn emit(kind: Kind<'_>) -> Vec<u8> {
    emit_repr(Repr::new(kind))
}

fn emit_repr(repr: Repr<'_>) -> Vec<u8> {
    let mut bytes = std::vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).unwrap();
    bytes
}

fn view(tlp: &[u8]) -> Packet<&[u8]> {
    Packet::new_checked(tlp).unwrap()
}

/// The secondary bus of a port, as [`Host::enumerate`] numbers them.
fn bus(n: u8) -> u8 {
    INTERNAL + 1 + n
}

/// First address of a port's window: one megabyte each, plus 64 MB prefetchable above 4 GB.
fn memory_of(n: u8) -> u64 {
    0xe000_0000 + (u64::from(n) << 20)
}

fn prefetchable_of(n: u8) -> u64 {
    0x40_0000_0000 + (u64::from(n) << 26)
}

fn read_of(requester: u16, address: u64) -> Vec<u8> {
    emit(Kind::MemRead {
        requester: bdf(requester),
        tag: tag(9),
        address,
        length_dw: 1,
        enables: ByteEnables::all(1),
        hint: None,
        locked: false,
    })
}

fn write_of(requester: u16, address: u64) -> Vec<u8> {
    emit(Kind::MemWrite {
        requester: bdf(requester),
        tag: tag(0),
        address,
        enables: ByteEnables::all(1),
        hint: None,
        data: &[1, 2, 3, 4],
    })
}

fn completion_for(requester: u16, status: CplStatus) -> Vec<u8> {
    let data: &[u8] = if status == CplStatus::Success { &[5, 6, 7, 8] } else { &[] };
    emit(Kind::Completion {
        completer: bdf(0x0300),
        requester: bdf(requester),
        tag: tag(3),
        status,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data,
    })
}

fn message_of(requester: u16, code: MsgCode, routing: MsgRouting) -> Vec<u8> {
    emit(Kind::Message {
        routing,
        code,
        requester: bdf(requester),
        tag: tag(0),
        fields: [0; 8],
        data: &[],
    })
}

impl Host {
    fn new(config: &SwitchConfig) -> Self {
        Self {
            switch: VirtualSwitch::new(config).unwrap(),
            now: Instant::ZERO,
            out: Vec::new(),
            back: Vec::new(),
        }
    }

    fn with_ports(ports: u8) -> Self {
        Self::new(&SwitchConfig { ports, ..SwitchConfig::default() })
    }

    /// A switch whose ports are all programmed and enabled, with devices plugged.
    fn ready(ports: u8) -> Self {
        let mut host = Self::with_ports(ports);
        for n in 0..ports {
            host.switch.plug(host.now, port(n), &mut host.out);
        }
        host.enumerate();
        host.events();
        host
    }

    fn down(&mut self, tlp: &mut [u8]) -> DownstreamVerdict {
        let as_it_came = tlp.to_vec();
        let verdict = self.hand_in(tlp);
        if let DownstreamVerdict::Forward(port) = verdict {
            self.switch.forwarded(port, &view(&as_it_came), &mut self.out);
        }
        verdict
    }

    /// What goes to a device finds no room there.
    fn hand_in(&mut self, tlp: &mut [u8]) -> DownstreamVerdict {
        self.switch.handle_downstream(self.now, tlp, &mut self.out)
    }

    fn up(&mut self, from: u8, tlp: &mut [u8]) -> UpstreamVerdict {
        self.switch.handle_upstream(self.now, port(from), tlp, &mut self.out, &mut self.back)
    }

    fn events(&mut self) -> Vec<SwitchEvent> {
        std::iter::from_fn(|| self.switch.poll_event()).collect()
    }

    fn take_out(&mut self) -> Tlps {
        std::mem::take(&mut self.out)
    }

    fn counter(&self, name: &str) -> u64 {
        let found = self.switch.counters().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// A configuration request to a function of the switch: the completion's status and data.
    fn config(
        &mut self,
        type1: bool,
        destination: u16,
        register: u16,
        write: Option<(u32, u8)>,
    ) -> (CplStatus, Option<u32>) {
        let data = write.map_or([0; 4], |(value, _)| value.to_le_bytes());
        let (requester, tag, destination) = (bdf(ROOT), tag(1), bdf(destination));
        let kind = match write {
            None => {
                Kind::ConfigRead { type1, requester, tag, destination, register, first_be: 0xf }
            }
            Some((_, first_be)) => Kind::ConfigWrite {
                type1,
                requester,
                tag,
                destination,
                register,
                first_be,
                data: &data,
            },
        };
        let before = self.out.len();
        let _ = self.down(&mut emit(kind));
        let answer = self.out.remove(before);
        let packet = view(&answer);
        assert_eq!(packet.requester(), bdf(ROOT));
        assert_eq!((packet.byte_count(), packet.lower_address()), (4, 0));
        let value = packet.payload().first_chunk::<4>().map(|data| u32::from_le_bytes(*data));
        (packet.status(), value)
    }

    fn read(&mut self, destination: u16, register: u16) -> u32 {
        let (status, value) = self.config(destination != UPSTREAM, destination, register, None);
        assert_eq!(status, CplStatus::Success);
        value.unwrap()
    }

    fn write_bytes(&mut self, destination: u16, register: u16, value: u32, enables: u8) {
        let type1 = destination != UPSTREAM;
        let (status, data) = self.config(type1, destination, register, Some((value, enables)));
        assert_eq!((status, data), (CplStatus::Success, None));
    }

    fn write(&mut self, destination: u16, register: u16, value: u32) {
        self.write_bytes(destination, register, value, 0xf);
    }

    /// The ID of a downstream port.
    fn id(n: u8) -> u16 {
        u16::from(INTERNAL) << 8 | u16::from(n) << 3
    }

    fn enable(&mut self, destination: u16) {
        self.write_bytes(destination, 0x04, 0x7, 0x3);
    }

    /// Numbers the buses, opens the windows, enables everything, sets up interrupts: what an
    /// operating system does, by configuration requests only.
    fn enumerate(&mut self) {
        let ports = self.switch.port_ids().count() as u8;
        let last = bus(ports - 1);
        let span = |base: u64, size: u64, count: u8| {
            let limit = base + size * u64::from(count) - 1;
            (limit as u32 & 0xfff0_0000) | (base >> 16) as u32 & 0xfff0
        };
        self.write(UPSTREAM, 0x18, u32::from_le_bytes([1, INTERNAL, last, 0]));
        self.write(UPSTREAM, 0x20, span(memory_of(0), 1 << 20, ports));
        self.write(UPSTREAM, 0x24, span(prefetchable_of(0), 1 << 26, ports));
        self.write(UPSTREAM, 0x28, 0x40);
        self.write(UPSTREAM, 0x2c, 0x40);
        self.write_bytes(UPSTREAM, 0x1c, 0xf010, 0x3);
        self.enable(UPSTREAM);
        for n in 0..ports {
            let id = Self::id(n);
            self.write(id, 0x18, u32::from_le_bytes([INTERNAL, bus(n), bus(n), 0]));
            self.write(id, 0x20, span(memory_of(n), 1 << 20, 1));
            self.write(id, 0x24, span(prefetchable_of(n), 1 << 26, 1));
            self.write(id, 0x28, 0x40);
            self.write(id, 0x2c, 0x40);
            self.write(id, 0x54, (MSI_ADDRESS as u32) + 0x100 * u32::from(n));
            self.write(id, 0x5c, 0x4000 + u32::from(n));
            self.write(id, 0x50, 0x0001_0000);
            self.enable(id);
        }
    }
}
