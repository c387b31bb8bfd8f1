//! A host: its proxy, and a root complex that is honest. It asks under tags that are free, and answers
//! what it is asked once.

use super::device::coded;
use crate::emit::emit;
use proxy_core::host::{HostConfig, HostRole};
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, Class, CplStatus, Kind, Packet, TlpType};

pub(super) const HOSTS: usize = 2;

/// Where the functions' memory is, 4 KB each.
const WINDOW: u32 = 0xe000_0000;

/// Registers that are written: Command, Device Control, Device Control 2, the power state, a BAR, one
/// that is read only; and the bridge's that resets what is behind it.
const REGISTERS: [u16; 6] = [0x04, 0x48, 0x68, 0x84, 0x10, 0xc0];
const BRIDGE_CONTROL: u16 = 0x3c;

pub(super) struct Host {
    pub(super) role: HostRole,
    pub(super) root: Root,
}

impl Host {
    pub(super) fn new(config: &HostConfig) -> Self {
        Self { role: HostRole::new(config).expect("a host"), root: Root::default() }
    }
}

pub(super) struct Root {
    /// What is outstanding by tag, and what its answer has to hold if it is known.
    asked: [Option<Option<u32>>; 256],
    next: u16,
    /// Whether it keeps what it is asked, and that.
    pub(super) holds: bool,
    held: VecDeque<Vec<u8>>,
}

impl Default for Root {
    fn default() -> Self {
        Self { asked: [None; 256], next: 0, holds: false, held: VecDeque::new() }
    }
}

fn bridge() -> Bdf {
    Bdf::from_bits(2 << 8)
}

fn memory(function: usize) -> u32 {
    WINDOW + 0x1000 * function as u32
}

impl Root {
    fn tag(&mut self, expected: Option<u32>) -> Option<Tag> {
        let free = (0..256).map(|step| (self.next + step) % 256);
        let tag = free.into_iter().find(|tag| self.asked[usize::from(*tag)].is_none())?;
        self.next = tag + 1;
        self.asked[usize::from(tag)] = Some(expected);
        Tag::new(tag).ok()
    }

    fn config_write(
        &mut self,
        to: Bdf,
        register: u16,
        first_be: u8,
        value: u32,
    ) -> Option<Vec<u8>> {
        Some(emit(Kind::ConfigWrite {
            type1: to.bus().get() != 1,
            requester: Bdf::default(),
            tag: self.tag(None)?,
            destination: to,
            register,
            first_be,
            data: &value.to_le_bytes(),
        }))
    }

    /// Buses, windows, and memory and bus mastering on.
    pub(super) fn enumeration(&mut self) -> Vec<Vec<u8>> {
        let up = Bdf::from_bits(1 << 8);
        let mut writes = vec![(up, 0x18, 0x0004_0201), (bridge(), 0x18, 0x0003_0302)];
        for id in [up, bridge()] {
            writes.extend([(id, 0x20, 0xe000_e000), (id, 0x04, 0x0006)]);
        }
        for function in 0..super::FUNCTIONS {
            let id = Bdf::from_bits(3 << 8 | function as u16);
            writes.extend([(id, 0x10, memory(function)), (id, 0x04, 0x0006)]);
        }
        let tlps = writes.into_iter().map(|(id, at, value)| self.config_write(id, at, 0xf, value));
        tlps.map(|tlp| tlp.expect("there are tags")).collect()
    }

    /// A write to a function, or to the bridge in front of it; nothing when no tag is free.
    pub(super) fn write(
        &mut self,
        function: usize,
        n: usize,
        how: u8,
        value: u16,
    ) -> Option<Vec<u8>> {
        let to = Bdf::from_bits(3 << 8 | function as u16);
        let enables = if how & 0xf == 0 { 0xf } else { how & 0xf };
        let value = u32::from(value);
        match REGISTERS.get(n) {
            Some(0x10) => self.config_write(to, 0x10, 0xf, memory(function)),
            // Reset and power state are what it is about.
            Some(0x48) => self.config_write(to, 0x48, enables, value | 0x8000),
            Some(0x84) => self.config_write(to, 0x84, 0xf, value & 3),
            Some(0x04) if how & 0x80 == 0 => self.config_write(to, 0x04, 0xf, 0x6),
            Some(register) => self.config_write(to, *register, enables, value),
            None if n == 6 => self.config_write(bridge(), BRIDGE_CONTROL, 0xf, (value & 1) << 22),
            None => Some(emit(Kind::MemWrite {
                requester: Bdf::default(),
                tag: Tag::new(0).ok()?,
                address: u64::from(memory(function)) + u64::from(how & 0xfc),
                enables: ByteEnables::all(1),
                hint: None,
                data: &value.to_le_bytes(),
            })),
        }
    }

    /// A read of one: of its registers, or of its memory.
    pub(super) fn read(&mut self, function: usize, n: usize, at: u8) -> Option<Vec<u8>> {
        if n & 1 == 0 {
            let register = u16::from(at & 0xfc);
            let known = coded(((function as u64) << 12) | u64::from(register));
            return Some(emit(Kind::ConfigRead {
                type1: true,
                requester: Bdf::default(),
                tag: self.tag((register >= 0xc0).then_some(known))?,
                destination: Bdf::from_bits(3 << 8 | function as u16),
                register,
                first_be: 0xf,
            }));
        }
        let address = u64::from(memory(function)) + u64::from(at & 0xfc);
        Some(emit(Kind::MemRead {
            requester: Bdf::default(),
            tag: self.tag(Some(coded(address)))?,
            address,
            length_dw: 1,
            enables: ByteEnables::all(1),
            hint: None,
            locked: false,
        }))
    }

    /// The proxy had no room for it.
    pub(super) fn not_sent(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).expect("its own");
        if packet.class() == Some(Class::NonPosted) {
            self.asked[usize::from(packet.tag().get())] = None;
        }
    }

    /// Takes a TLP from the proxy; what it says to it.
    pub(super) fn take(&mut self, tlp: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::new_checked(tlp).expect("the host proxy sends TLPs");
        match packet.class()? {
            Class::Posted => None,
            Class::Completion => {
                let asked = self.asked[usize::from(packet.tag().get())].take();
                let expected = asked.expect("nobody asked for it");
                if let (Some(value), CplStatus::Success) = (expected, packet.status()) {
                    assert_eq!(packet.payload(), value.to_le_bytes(), "of something else");
                }
                None
            }
            Class::NonPosted if self.holds => {
                self.held.push_back(tlp.to_vec());
                None
            }
            Class::NonPosted => Some(completion(&packet)),
        }
    }

    /// The answer to the n-th of what it keeps.
    pub(super) fn answer(&mut self, n: usize) -> Option<Vec<u8>> {
        let tlp = self.held.remove(n % self.held.len().max(1))?;
        Some(completion(&Packet::new_checked(&tlp[..]).expect("it was kept as it came")))
    }

    pub(super) fn assert_nothing_outstanding(&self) {
        let outstanding = self.asked.iter().filter(|asked| asked.is_some()).count();
        assert_eq!(outstanding, 0, "requests of the host that were never answered");
    }
}

fn completion(packet: &Packet<&[u8]>) -> Vec<u8> {
    let known = packet.tlp_type() == TlpType::MRd;
    let data = coded(packet.address()).to_le_bytes();
    emit(Kind::Completion {
        completer: Bdf::default(),
        requester: packet.requester(),
        tag: packet.tag(),
        status: if known { CplStatus::Success } else { CplStatus::UnsupportedRequest },
        bcm: false,
        byte_count: 4,
        lower_address: packet.address() as u8 & 0x7f,
        locked: false,
        data: if known { &data } else { &[] },
    })
}
