//! A small root complex for tests: memory, configuration and memory requests, and a judge of
//! every TLP that the device sends.

use crate::device::{Classes, Device};
use crate::endpoint::registers::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{
    Attributes, ByteEnables, Class, CplStatus, Kind, MAX_TLP, MsgCode, Packet, Repr,
};

/// Routing ID that the root gives the device.
pub(crate) const DEVICE: u16 = 0x0300;
/// Where the root's memory starts: above 4 GB, so that both header widths are met.
pub(crate) const MEMORY: u64 = 0x2_0000_0000;
/// Bytes of the root's memory.
pub(crate) const MEMORY_SIZE: usize = 8 << 20;
/// Where interrupts are sent to.
pub(crate) const INTERRUPTS: u64 = 0xfee0_0000;

/// How the root answers the device's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// At once, in pieces that end at multiples of 64.
    Split,
    /// Kept until [`Root::answer`] is called.
    Held,
    /// With this status.
    Status(CplStatus),
    /// Poisoned.
    Poisoned,
}

/// A read of the device that the root has not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRead {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) tag: Tag,
    pub(crate) requester: Bdf,
    pub(crate) attributes: Attributes,
}

pub(crate) struct Root<D: Device> {
    pub(crate) device: D,
    pub(crate) now: Duration,
    pub(crate) memory: Vec<u8>,
    pub(crate) answers: Answers,
    pub(crate) held: VecDeque<HeldRead>,
    /// Data of interrupts, in the order they came.
    pub(crate) interrupts: Vec<u32>,
    pub(crate) messages: Vec<MsgCode>,
    /// Completions of the root's own requests, by tag.
    completions: BTreeMap<u16, (CplStatus, Vec<u8>)>,
    pub(crate) max_payload: usize,
    pub(crate) max_read: usize,
    pub(crate) peak_held: usize,
    /// Lengths of the TLPs that carried data to memory.
    pub(crate) writes: Vec<usize>,
    pub(crate) reads: Vec<usize>,
    next_tag: u16,
}

impl<D: Device> Root<D> {
    pub(crate) fn new(device: D) -> Self {
        Self {
            device,
            now: Duration::from_secs(1),
            memory: vec![0; MEMORY_SIZE],
            answers: Answers::Split,
            held: VecDeque::new(),
            interrupts: Vec::new(),
            messages: Vec::new(),
            completions: BTreeMap::new(),
            max_payload: 128,
            max_read: 512,
            peak_held: 0,
            writes: Vec::new(),
            reads: Vec::new(),
            next_tag: 0,
        }
    }

    pub(crate) fn send(&mut self, kind: Kind) {
        let mut buf = [0; MAX_TLP];
        let len = Repr::new(kind).emit(&mut buf).expect("a valid request");
        self.device.handle_tlp(self.now, &buf[..len]);
    }

    fn tag(&mut self) -> Tag {
        self.next_tag = (self.next_tag + 1) % 256;
        Tag::new(self.next_tag).unwrap()
    }

    /// Lets the device send everything it has, and answers.
    pub(crate) fn pump(&mut self) {
        for _ in 0..5_000_000 {
            let mut buf = [0; MAX_TLP];
            let Some(len) = self.device.poll_tlp(self.now, &mut buf) else {
                // What it cut short to keep its bound goes on.
                if self.device.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.device.handle_timeout(self.now);
                    continue;
                }
                return;
            };
            self.take(&buf[..len]);
        }
        panic!("the device never stops");
    }

    /// Polls only these classes; the types that came.
    pub(crate) fn pump_classes(&mut self, classes: Classes) -> Vec<Class> {
        let mut came = Vec::new();
        let mut buf = [0; MAX_TLP];
        while let Some(len) = self.device.poll_tlp_of(self.now, classes, &mut buf) {
            came.push(Packet::new_checked(&buf[..len]).unwrap().class().unwrap());
            self.take(&buf[..len]);
        }
        came
    }

    /// Takes a TLP of a device that was told to use addresses where nothing is.
    pub(crate) fn take_tolerant(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).expect("a TLP");
        let end = MEMORY + MEMORY_SIZE as u64 - 4096;
        let inside = (MEMORY..end).contains(&packet.address());
        if packet.class() != Some(Class::Posted) || inside {
            self.take(tlp);
        }
    }

    fn take(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).expect("a TLP");
        let repr = Repr::parse(&packet).expect("a valid TLP");
        match repr.kind {
            Kind::MemWrite { address, enables, data, .. } => {
                assert!(data.len() <= self.max_payload, "{} bytes written", data.len());
                self.write(address, data, enables);
                self.writes.push(data.len());
            }
            Kind::MemRead { requester, tag, address, length_dw, enables, .. } => {
                let lead = enables.first.trailing_zeros() as usize;
                let dwords = usize::from(length_dw);
                let last = if dwords == 1 { enables.first } else { enables.last };
                let len = dwords * 4 - lead - (last.leading_zeros() as usize - 4);
                let from = address + lead as u64;
                assert!(len <= self.max_read, "{len} bytes read");
                assert!(self.held.iter().all(|held| held.tag != tag), "{tag} is in use");
                let attributes = repr.attributes;
                self.reads.push(len);
                self.held.push_back(HeldRead { address: from, len, tag, requester, attributes });
                self.peak_held = self.peak_held.max(self.held.len());
                if self.answers != Answers::Held {
                    self.answer(0);
                }
            }
            Kind::Completion {
                requester, tag, status, byte_count, lower_address, data, ..
            } => {
                assert_eq!(requester.bits(), 0);
                let entry = self.completions.entry(tag.get()).or_insert((status, Vec::new()));
                assert_eq!(entry.0, status);
                let skip = usize::from(lower_address & 3);
                let len = data.len().saturating_sub(skip).min(byte_count.into());
                entry.1.extend_from_slice(&data[skip.min(data.len())..][..len]);
            }
            Kind::Message { code, .. } => self.messages.push(code),
            other => panic!("an endpoint does not send {other:?}"),
        }
    }

    fn write(&mut self, address: u64, data: &[u8], enables: ByteEnables) {
        if address & !0xf_ffff == INTERRUPTS {
            self.interrupts.push(u32::from_le_bytes(data.try_into().unwrap()));
            return;
        }
        let at = (address - MEMORY) as usize;
        for (i, &byte) in data.iter().enumerate() {
            let enabled = match i {
                0..4 => enables.first >> i & 1 != 0,
                _ if i + 4 >= data.len() => enables.last >> (i + 4 - data.len()) & 1 != 0,
                _ => true,
            };
            if enabled {
                self.memory[at + i] = byte;
            }
        }
    }

    /// Answers the held read at `index`.
    pub(crate) fn answer(&mut self, index: usize) {
        let read = self.held.remove(index).expect("a held read");
        let status = match self.answers {
            Answers::Status(status) => status,
            _ if read.address < MEMORY => CplStatus::UnsupportedRequest,
            _ if read.address + read.len as u64 > MEMORY + MEMORY_SIZE as u64 => {
                CplStatus::UnsupportedRequest
            }
            _ => CplStatus::Success,
        };
        if status != CplStatus::Success {
            self.send_completion(&read, status, read.address, read.len, 0);
            return;
        }
        let mut address = read.address;
        let end = read.address + read.len as u64;
        while address < end {
            let to = (address / 64 + 1) * 64;
            let len = (to.min(end) - address) as usize;
            self.send_completion(&read, status, address, (end - address) as usize, len);
            address += len as u64;
        }
    }

    /// One completion of a read.
    pub(crate) fn send_completion(
        &mut self,
        read: &HeldRead,
        status: CplStatus,
        address: u64,
        byte_count: usize,
        len: usize,
    ) {
        let data = if len == 0 {
            Vec::new()
        } else {
            let from = (address & !3) - MEMORY;
            let to = ((address + len as u64 + 3) & !3) - MEMORY;
            self.memory[from as usize..to as usize].to_vec()
        };
        let mut repr = Repr::new(Kind::Completion {
            completer: Bdf::from_bits(0),
            requester: read.requester,
            tag: read.tag,
            status,
            bcm: false,
            byte_count: byte_count as u16,
            lower_address: (address & 0x7f) as u8,
            locked: false,
            data: &data,
        });
        repr.poisoned = self.answers == Answers::Poisoned;
        let mut buf = [0; MAX_TLP];
        let len = repr.emit(&mut buf).expect("a valid completion");
        self.device.handle_tlp(self.now, &buf[..len]);
    }

    fn finish(&mut self, tag: Tag) -> Result<Vec<u8>, CplStatus> {
        self.pump();
        let (status, data) = self.completions.remove(&tag.get()).expect("a completion");
        if status == CplStatus::Success { Ok(data) } else { Err(status) }
    }

    pub(crate) fn try_config_read(&mut self, register: u16) -> Result<u32, CplStatus> {
        let tag = self.tag();
        self.send(Kind::ConfigRead {
            type1: false,
            requester: Bdf::from_bits(0),
            tag,
            destination: Bdf::from_bits(DEVICE),
            register,
            first_be: 0xf,
        });
        self.finish(tag).map(|data| u32::from_le_bytes(data.try_into().unwrap()))
    }

    pub(crate) fn config_read(&mut self, register: u16) -> u32 {
        self.try_config_read(register).expect("a configuration read")
    }

    pub(crate) fn config_write(&mut self, register: u16, value: u32) {
        self.config_write_enabled(register, value, 0xf);
    }

    pub(crate) fn config_write16(&mut self, register: u16, value: u16) {
        let shift = u32::from(register & 2) * 8;
        let enables = 3 << (register & 2);
        self.config_write_enabled(register & !3, u32::from(value) << shift, enables);
    }

    fn config_write_enabled(&mut self, register: u16, value: u32, first_be: u8) {
        let tag = self.tag();
        self.send(Kind::ConfigWrite {
            type1: false,
            requester: Bdf::from_bits(0),
            tag,
            destination: Bdf::from_bits(DEVICE),
            register,
            first_be,
            data: &value.to_le_bytes(),
        });
        assert_eq!(self.finish(tag), Ok(Vec::new()));
    }

    pub(crate) fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>, CplStatus> {
        let (enables, length_dw) = ByteEnables::for_range(address, len);
        let tag = self.tag();
        self.send(Kind::MemRead {
            requester: Bdf::from_bits(0),
            tag,
            address: address & !3,
            length_dw,
            enables,
            hint: None,
            locked: false,
        });
        self.finish(tag)
    }

    pub(crate) fn read32(&mut self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).unwrap().try_into().unwrap())
    }

    pub(crate) fn read64(&mut self, address: u64) -> u64 {
        u64::from_le_bytes(self.read(address, 8).unwrap().try_into().unwrap())
    }

    /// Writes without letting the device answer.
    pub(crate) fn post(&mut self, address: u64, bytes: &[u8]) {
        let (enables, length_dw) = ByteEnables::for_range(address, bytes.len());
        let mut data = vec![0; usize::from(length_dw) * 4];
        data[(address & 3) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.send(Kind::MemWrite {
            requester: Bdf::from_bits(0),
            tag: Tag::new(0).unwrap(),
            address: address & !3,
            enables,
            hint: None,
            data: &data,
        });
    }

    pub(crate) fn write32(&mut self, address: u64, value: u32) {
        self.post(address, &value.to_le_bytes());
        self.pump();
    }

    pub(crate) fn write64(&mut self, address: u64, value: u64) {
        self.post(address, &value.to_le_bytes());
        self.pump();
    }

    /// Gives every BAR an address, enables memory and bus master; the BARs' addresses.
    pub(crate) fn enable(&mut self) -> [u64; 6] {
        let mut bases = [0; 6];
        let mut bar = 0;
        let (mut low, mut high) = (0x8000_0000_u64, 0x40_0000_0000_u64);
        while bar < 6 {
            let at = BAR0 + 4 * bar as u16;
            let (size, wide) = self.size_bar(at);
            if size > 0 {
                let next = if wide { &mut high } else { &mut low };
                *next = next.next_multiple_of(size);
                bases[bar] = *next;
                *next += size;
                let base = bases[bar];
                self.config_write(at, base as u32);
                if wide {
                    self.config_write(at + 4, (base >> 32) as u32);
                }
            }
            bar += if wide { 2 } else { 1 };
        }
        self.config_write16(COMMAND, COMMAND_MEMORY | COMMAND_BUS_MASTER);
        bases
    }

    /// Size of a BAR, and whether it is 64 bits wide.
    pub(crate) fn size_bar(&mut self, at: u16) -> (u64, bool) {
        self.config_write(at, u32::MAX);
        let low = self.config_read(at);
        let wide = low & 7 == BAR_64;
        let mut mask = u64::from(low & !0xf) | !0xffff_ffff;
        if wide {
            self.config_write(at + 4, u32::MAX);
            mask = mask & 0xffff_ffff | u64::from(self.config_read(at + 4)) << 32;
        }
        if low & !0xf == 0 && !wide { (0, false) } else { ((!mask).wrapping_add(1), wide) }
    }

    /// Unmasks `vectors` MSI-X vectors with data 0x40 and up, and enables MSI-X.
    pub(crate) fn enable_msix(&mut self, table: u64, vectors: u64) {
        for v in 0..vectors {
            self.write64(table + 16 * v, INTERRUPTS);
            self.write32(table + 16 * v + 8, 0x40 + v as u32);
            self.write32(table + 16 * v + 12, 0);
        }
        self.config_write16(MSIX_CONTROL, MSIX_ENABLE);
    }

    /// Sets Max_Payload_Size and Max_Read_Request_Size, in bytes.
    pub(crate) fn set_sizes(&mut self, payload: usize, read: usize) {
        let log = |bytes: usize| bytes.trailing_zeros() as u16 - 7;
        let control = self.config_read(DEVICE_CONTROL) as u16 & !0x70e0;
        let sizes =
            log(payload) << DEVICE_CONTROL_MPS_SHIFT | log(read) << DEVICE_CONTROL_MRRS_SHIFT;
        self.config_write16(DEVICE_CONTROL, control | sizes);
        (self.max_payload, self.max_read) = (payload, read);
    }

    /// A counter of the device.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let list = self.device.counters();
        let name = format!("device.{name}");
        list.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("counter {name}")).1
    }

    /// Fills memory from an offset with bytes that tell their place, different for each seed.
    pub(crate) fn fill(&mut self, at: usize, len: usize, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len)
            .map(|i| (i as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0] ^ seed)
            .collect();
        self.memory[at..at + len].copy_from_slice(&bytes);
        bytes
    }
}
