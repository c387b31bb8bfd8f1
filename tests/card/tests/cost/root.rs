//! A root complex that does what it is told, a request at a time or many, and takes a device's writes.

use crate::lab::Lab;
use crate::lab::build::{bdf, config_write, emit, mem_read, mem_write};
use anyhow::{Context, Result, bail, ensure};
use device_models::accelerator::regs;
use proxy_core::link::ClassSet;
use soc::board::{EthernetMac, PcieSide, SlotWire, class_of};
use soc::records::{Beside, Body, RecordPort, Windows};
use soc::testing::WireMac;
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{Class, CplStatus, Kind, Packet, Repr};

/// TLPs that it stores, by class.
const WINDOWS: Windows = Windows([64, 32, 64]);

/// Tags of its requests.
const TAGS: u16 = 32;

/// Where the device's registers are.
const REGISTERS: u64 = 0xe000_0000;

/// Where the device writes to, and how much.
const MEMORY: u64 = 0x1000_0000;
pub(crate) const WRITTEN: u64 = 1 << 20;

/// Bytes of each write.
pub(crate) const PAYLOAD: usize = 256;

/// A root complex at a wire.
pub(crate) struct Root {
    port: RecordPort<WireMac>,
    /// The card was told that it is here.
    told: bool,
    /// Requests that wait for room.
    outgoing: VecDeque<Vec<u8>>,
    next_tag: u16,
    /// Requests without completion.
    outstanding: Vec<u16>,
    /// Completions: tag, and what they say.
    completions: VecDeque<(u16, CplStatus, Vec<u8>)>,
    /// Where the device's next write has to begin.
    writes_at: u64,
}

impl Root {
    pub(crate) fn new(mac: WireMac) -> Self {
        Self {
            port: RecordPort::new(mac, 0..=0, WINDOWS),
            told: false,
            outgoing: VecDeque::new(),
            next_tag: 0,
            outstanding: Vec::new(),
            completions: VecDeque::new(),
            writes_at: MEMORY,
        }
    }

    /// Takes what came, and sends what waits.
    pub(crate) fn turn(&mut self) {
        let here = Body::Beside(Beside::RootComplex(true));
        loop {
            self.port.look();
            while self.port.beside().is_some() {}
            self.told =
                self.told || self.port.is_met() && self.port.say(SlotWire::HOST, here.clone());
            while let Some(tlp) = self.port.next(SlotWire::HOST, ClassSet::ALL) {
                let tlp = tlp.to_vec();
                self.port.take(SlotWire::HOST);
                self.take(&tlp);
            }
            while let Some(tlp) = self.outgoing.front()
                && self.port.room(SlotWire::HOST).contains(class_of(tlp))
            {
                self.port.send(SlotWire::HOST, tlp);
                self.outgoing.pop_front();
            }
            if !self.port.mac().has_arrived() {
                return;
            }
        }
    }

    fn take(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).expect("a card sends whole TLPs");
        match packet.class() {
            Some(Class::Completion) => {
                let tag = packet.tag().get();
                let of = self.outstanding.iter().position(|other| *other == tag);
                self.outstanding.swap_remove(of.expect("a completion of what was asked"));
                self.completions.push_back((tag, packet.status(), packet.payload().to_vec()));
            }
            Some(Class::Posted) if packet.payload().len() == PAYLOAD => {
                assert_eq!(packet.address(), self.writes_at, "writes come in their order");
                self.writes_at += PAYLOAD as u64;
            }
            // Messages.
            _ => {}
        }
    }

    fn tag(&mut self) -> Tag {
        let tag = self.next_tag;
        self.next_tag = (tag + 1) % TAGS;
        assert!(!self.outstanding.contains(&tag), "a tag is used once at a time");
        self.outstanding.push(tag);
        Tag::new(tag).expect("it is small")
    }

    fn send(&mut self, repr: &Repr<'_>) {
        self.outgoing.push_back(emit(repr));
    }

    /// What a request got that is the only one.
    fn completed(lab: &mut Lab) -> Result<Vec<u8>> {
        let (_, status, data) =
            lab.until("a completion", |lab| lab.root_mut().completions.pop_front());
        ensure!(status == CplStatus::Success, "a request ends with {status:?}");
        Ok(data)
    }

    fn config_write(lab: &mut Lab, of: Bdf, register: u16, value: u32) -> Result<()> {
        lab.root(|root| {
            let tag = root.tag();
            root.send(&config_write(tag, of, register, &value.to_le_bytes()));
        });
        Self::completed(lab).map(drop).with_context(|| format!("{of:?}, register {register:#x}"))
    }

    fn config_read(lab: &mut Lab, of: Bdf, register: u16) -> Result<u32> {
        lab.root(|root| {
            let tag = root.tag();
            root.send(&Repr::new(Kind::ConfigRead {
                type1: of.bus().get() != 1,
                requester: Bdf::default(),
                tag,
                destination: of,
                register,
                first_be: 0xf,
            }));
        });
        let data = Self::completed(lab)?;
        Ok(u32::from_le_bytes(data.try_into().ok().context("a doubleword")?))
    }

    /// Gives buses and addresses to the switch and the device behind its first port, and lets writes be as
    /// long as the device's are to be.
    pub(crate) fn set_up(lab: &mut Lab) -> Result<()> {
        let (up, down, device) = (bdf(1, 0), bdf(2, 0), bdf(3, 0));
        Self::config_write(lab, up, 0x18, 0x0004_0201)?;
        Self::config_write(lab, down, 0x18, 0x0003_0302)?;
        for bridge in [up, down] {
            Self::config_write(lab, bridge, 0x20, 0xe000_e000)?;
        }
        Self::config_write(lab, device, 0x10, REGISTERS as u32)?;
        for function in [up, down, device] {
            Self::set_payload(lab, function)?;
            Self::config_write(lab, function, 0x04, 0x0006)?;
        }
        Ok(())
    }

    /// Writes of 256 bytes: Max_Payload_Size of Device Control (PCIe 5.0, section 7.5.3.4).
    fn set_payload(lab: &mut Lab, of: Bdf) -> Result<()> {
        let mut at = Self::config_read(lab, of, 0x34)? as u16 & 0xfc;
        loop {
            let capability = Self::config_read(lab, of, at)?;
            if capability & 0xff == 0x10 {
                break;
            }
            at = (capability >> 8) as u16 & 0xfc;
            ensure!(at != 0, "{of:?} has no PCI Express capability");
        }
        let control = Self::config_read(lab, of, at + 8)? & 0x0000_ff1f | 1 << 5;
        Self::config_write(lab, of, at + 8, control)
    }

    /// Reads the same register of the device so many times, with so many requests outstanding.
    pub(crate) fn read(lab: &mut Lab, times: usize, outstanding: usize) -> Result<()> {
        let (mut asked, mut done) = (0, 0);
        while done < times {
            lab.root(|root| {
                while asked < times && root.outstanding.len() < outstanding {
                    let tag = root.tag().get();
                    root.send(&Repr::new(mem_read(Bdf::default(), tag, REGISTERS + regs::ID, 1)));
                    asked += 1;
                }
            });
            if Self::completed(lab)? != regs::ID_VALUE.to_le_bytes() {
                bail!("another register was read");
            }
            done += 1;
        }
        Ok(())
    }

    /// Has the device write to memory, in a stream.
    pub(crate) fn take_writes(lab: &mut Lab) -> Result<()> {
        lab.root(|root| {
            root.writes_at = MEMORY;
            let slot = REGISTERS + regs::SLOT_BASE;
            let mut write = |at: u64, data: &[u8]| {
                root.send(&Repr::new(mem_write(Bdf::default(), at, data)));
            };
            write(slot + regs::SLOT_HOST, &MEMORY.to_le_bytes());
            write(slot + regs::SLOT_LENGTH, &WRITTEN.to_le_bytes());
            write(slot + regs::SLOT_COMMAND, &regs::COMMAND_WRITE.to_le_bytes());
            write(REGISTERS + regs::DOORBELL_BASE, &1_u32.to_le_bytes());
        });
        lab.until("the last write", |lab| {
            (lab.root_mut().writes_at == MEMORY + WRITTEN).then_some(())
        });
        Ok(())
    }
}
