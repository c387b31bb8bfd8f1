//! The NVMe controller: any register accesses, queue contents, TLPs, answers to what it asks, and
//! resets. What it sends must be right, every request to it is answered once, and its work ends.

use crate::input::Input;
use core::time::Duration;
use device_models::nvme::image::{Image, MemoryImage};
use device_models::nvme::{BlockSize, Config, Nvme, regs};
use device_models::{Device, ResetKind};
use std::collections::BTreeMap;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, Class, CplStatus, Kind, MAX_TLP, Packet, Repr};

const DEVICE: u16 = 0x0300;
const BAR: u64 = 0xf000_0000;
/// The host's memory: from 0, so that small numbers are addresses.
const MEMORY: usize = 1 << 20;
const STEPS: usize = 300;
/// TLPs that one step may bring out of the device: the largest transfers of all commands.
const TLPS_OF_A_STEP: usize = 200_000;
/// Where the drive has Device Control (PCIe 5.0 section 7.5.3.4).
const DEVICE_CONTROL: u16 = 0x78;

/// Max_Payload_Size after a reset, in bytes.
const LEAST_PAYLOAD: usize = 128;

/// Where what the driver uses is: admin queues, I/O queues, data.
const QUEUES: [u64; 4] = [0x1000, 0x2000, 0x3000, 0x4000];
const DATA: u64 = 0x8000;

/// Takes steps: which, and what it needs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut root = Root::new(input.u8());
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        root.step(&mut input);
    }
    root.pump();
    root.assert_answered();
}

/// How the root answers the device's reads.
#[derive(Clone, Copy)]
enum Answers {
    Right,
    /// In pieces that end at multiples of 64.
    Split,
    Status(CplStatus),
    Poisoned,
    Short,
    Never,
    Twice,
}

struct Root {
    device: Box<dyn Device>,
    now: Duration,
    memory: Vec<u8>,
    answers: Answers,
    /// Requests of the root without their completion, by tag; what is still to come in bytes.
    asked: BTreeMap<u16, usize>,
    next_tag: u16,
    perst: bool,
    power: bool,
    /// What Device Control allows in a write, in bytes.
    max_payload: usize,
    sq_tails: [u16; 2],
}

impl Root {
    fn new(how: u8) -> Self {
        let images: Vec<(Box<dyn Image>, BlockSize)> = vec![
            (Box::new(MemoryImage::new(64 << 10)), BlockSize::B512),
            (Box::new(MemoryImage::new(128 << 10)), BlockSize::B4096),
        ];
        let config = Config { io_queues: 2, tags: 16, ..Config::default() };
        let device = Nvme::device(config, images).expect("a drive");
        let mut root = Self {
            device: Box::new(device),
            now: Duration::from_secs(1),
            memory: vec![0; MEMORY],
            answers: Answers::Right,
            asked: BTreeMap::new(),
            next_tag: 0,
            perst: false,
            power: true,
            max_payload: LEAST_PAYLOAD,
            sq_tails: [0; 2],
        };
        root.configure();
        if how & 1 == 0 {
            root.enable();
        }
        root
    }

    /// An address for the BAR, memory and bus master on, MSI-X as the driver sets it up.
    fn configure(&mut self) {
        self.config_write(0x10, BAR as u32, 0xf);
        self.config_write(0x14, (BAR >> 32) as u32, 0xf);
        self.config_write(0x04, 6, 0xf);
        for vector in 0..3 {
            let entry = BAR + regs::MSIX_TABLE + 16 * vector;
            self.write32(entry, 0xfee0_0000);
            self.write32(entry + 8, vector as u32);
            self.write32(entry + 12, 0);
        }
    }

    /// Admin queues, the controller enabled, and a pair of I/O queues asked for.
    fn enable(&mut self) {
        self.write32(BAR + regs::AQA, 0x001f_001f);
        self.write32(BAR + regs::ASQ, QUEUES[0] as u32);
        self.write32(BAR + regs::ASQ + 4, 0);
        self.write32(BAR + regs::ACQ, QUEUES[1] as u32);
        self.write32(BAR + regs::ACQ + 4, 0);
        self.write32(BAR + regs::CC, 0x0046_0001);
        self.pump();
        self.sq_tails = [0; 2];
        // Create I/O Completion Queue and I/O Submission Queue (NVM Express 1.4 section 5.3, 5.4).
        self.submit(0, &[0x05, 0, QUEUES[3] as u32, 0, 0, 0, 0x001f_0001, 0x0001_0003]);
        self.submit(0, &[0x01, 0, QUEUES[2] as u32, 0, 0, 0, 0x001f_0001, 0x0001_0001]);
        self.pump();
    }

    /// Puts a command in a queue and rings its doorbell: opcode, namespace, both PRPs, and the
    /// doublewords from 10 on.
    fn submit(&mut self, queue: usize, parts: &[u32]) {
        let mut entry = [0_u32; 16];
        let places = [0, 1, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        for (place, part) in places.into_iter().zip(parts) {
            entry[place] = *part;
        }
        let slot = self.sq_tails[queue];
        entry[0] |= u32::from(slot) << 16;
        let at = QUEUES[2 * queue] as usize + 64 * usize::from(slot);
        for (n, dword) in entry.into_iter().enumerate() {
            self.memory[at + 4 * n..][..4].copy_from_slice(&dword.to_le_bytes());
        }
        self.sq_tails[queue] = (slot + 1) % 32;
        let doorbell = BAR + regs::DOORBELLS + 8 * queue as u64;
        self.write32(doorbell, self.sq_tails[queue].into());
    }

    fn send(&mut self, kind: Kind<'_>) {
        let repr = Repr::new(kind);
        let mut tlp = vec![0; repr.buffer_len()];
        if let Ok(length) = repr.emit(&mut tlp) {
            tlp.truncate(length);
            self.hand_in(&tlp);
        }
    }

    /// Hands in a TLP, if the device has room, and takes note of what it is to answer.
    fn hand_in(&mut self, tlp: &[u8]) {
        let repr = Repr::from_bytes(tlp);
        let class = repr.as_ref().map_or(Class::Posted, Repr::class);
        if !self.device.can_take(class) {
            self.pump();
        }
        if !self.device.can_take(class) {
            return;
        }
        self.device.handle_tlp(self.now, tlp);
        if let Ok(repr) = repr
            && class == Class::NonPosted
            && self.lives()
        {
            let (_, tag) = repr.transaction_id();
            let bytes = match repr.kind {
                Kind::MemRead { length_dw, enables, .. } => enables.byte_count(length_dw).into(),
                Kind::ConfigWrite { register: DEVICE_CONTROL, first_be, data, .. }
                    if first_be & 1 != 0 =>
                {
                    // 6 and 7 are reserved.
                    self.max_payload = LEAST_PAYLOAD << (data[0] >> 5).min(5);
                    0
                }
                _ => 0,
            };
            self.asked.insert(tag.get(), bytes);
        }
    }

    /// While PERST# is asserted or power is off it neither takes nor sends TLPs.
    fn lives(&self) -> bool {
        self.power && !self.perst
    }

    fn tag(&mut self) -> Tag {
        self.next_tag = (self.next_tag + 1) % 256;
        if self.asked.contains_key(&self.next_tag) {
            // Its answer comes first.
            self.pump();
        }
        Tag::new(self.next_tag).expect("a tag")
    }

    fn config_write(&mut self, register: u16, value: u32, first_be: u8) {
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
    }

    fn config_read(&mut self, register: u16) {
        let tag = self.tag();
        self.send(Kind::ConfigRead {
            type1: false,
            requester: Bdf::from_bits(0),
            tag,
            destination: Bdf::from_bits(DEVICE),
            register,
            first_be: 0xf,
        });
    }

    fn write32(&mut self, address: u64, value: u32) {
        self.write(address, &value.to_le_bytes(), ByteEnables { first: 0xf, last: 0 });
    }

    fn write(&mut self, address: u64, data: &[u8], enables: ByteEnables) {
        let (requester, tag) = (Bdf::from_bits(0), Tag::new(0).expect("a tag"));
        self.send(Kind::MemWrite { requester, tag, address, enables, hint: None, data });
    }

    fn read(&mut self, address: u64, length_dw: u16, enables: ByteEnables) {
        let (requester, tag) = (Bdf::from_bits(0), self.tag());
        let (hint, locked) = (None, false);
        self.send(Kind::MemRead { requester, tag, address, length_dw, enables, hint, locked });
    }

    /// Lets the device do its work, and takes what it sends.
    fn pump(&mut self) {
        let mut buffer = [0; MAX_TLP];
        for _ in 0..TLPS_OF_A_STEP {
            if let Some(length) = self.device.poll_tlp(self.now, &mut buffer) {
                assert!(self.lives(), "it sends while PERST# is asserted or power is off");
                let tlp = buffer[..length].to_vec();
                self.take(&tlp);
            } else if self.device.poll_timeout().is_some_and(|at| at <= self.now) {
                self.device.handle_timeout(self.now);
            } else {
                return;
            }
        }
        panic!("the device does not come to an end");
    }

    fn take(&mut self, tlp: &[u8]) {
        let repr = match Repr::from_bytes(tlp) {
            Ok(repr) => repr,
            Err(error) => panic!("it sends what is no TLP ({error}): {tlp:02x?}"),
        };
        match repr.kind {
            Kind::MemWrite { address, enables, data, .. } => {
                assert!(data.len() <= self.max_payload, "{} bytes", data.len());
                self.store(address, data, enables);
            }
            Kind::MemRead { requester, tag, address, length_dw, enables, .. } => {
                assert!(length_dw <= 1024);
                let bytes = enables.byte_count(length_dw);
                self.answer(requester, tag, address, length_dw, bytes);
            }
            Kind::Completion { tag, byte_count, data, status, lower_address, .. } => {
                let left = self.asked.get_mut(&tag.get());
                let left = left.unwrap_or_else(|| panic!("nobody asked for {repr:?}"));
                if status == CplStatus::Success && *left > 0 {
                    assert_eq!(usize::from(byte_count), *left, "still owed: {repr:?}");
                }
                let brought = data.len().saturating_sub(usize::from(lower_address & 3));
                let more =
                    status == CplStatus::Success && *left > 0 && usize::from(byte_count) > brought;
                if more {
                    *left -= brought.min(*left);
                } else {
                    self.asked.remove(&tag.get());
                }
            }
            Kind::Message { .. } => {}
            kind => panic!("a drive does not send {kind:?}"),
        }
    }

    fn store(&mut self, address: u64, data: &[u8], enables: ByteEnables) {
        let last = data.len() - 4;
        for (n, byte) in data.iter().enumerate() {
            let enable = match n {
                n if n < 4 => enables.first >> n & 1,
                n if n >= last => enables.last >> (n - last) & 1,
                _ => 1,
            };
            let place = usize::try_from(address).ok().and_then(|at| self.memory.get_mut(at + n));
            if let Some(place) = place.filter(|_| enable != 0) {
                *place = *byte;
            }
        }
    }

    fn answer(&mut self, requester: Bdf, tag: Tag, address: u64, length_dw: u16, bytes: u16) {
        let len = usize::from(length_dw) * 4;
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        let stored = at.checked_add(len).and_then(|end| self.memory.get(at..end));
        let (stored, answers) = match stored {
            Some(stored) => (stored.to_vec(), self.answers),
            None => (Vec::new(), Answers::Status(CplStatus::UnsupportedRequest)),
        };
        let completion = |status, byte_count: u16, lower: u64, data| Kind::Completion {
            completer: Bdf::from_bits(0),
            requester,
            tag,
            status,
            bcm: false,
            byte_count,
            lower_address: lower as u8 & 0x7f,
            locked: false,
            data,
        };
        let whole = completion(CplStatus::Success, bytes, address, &stored[..]);
        match answers {
            Answers::Right => self.complete(&Repr::new(whole)),
            Answers::Twice => {
                self.complete(&Repr::new(whole));
                self.complete(&Repr::new(whole));
            }
            Answers::Poisoned => {
                let repr = Repr { poisoned: true, ..Repr::new(whole) };
                self.complete(&repr);
            }
            Answers::Status(status) => {
                self.complete(&Repr::new(completion(status, 4, address, &[])));
            }
            Answers::Short => {
                let part = completion(CplStatus::Success, bytes, address, &stored[..4]);
                self.complete(&Repr::new(part));
            }
            Answers::Never => {}
            Answers::Split => {
                // The driver's reads begin at whole doublewords: only then is this the layout.
                let mut done = 0;
                while done < len {
                    let piece = (64 - (at + done) % 64).min(len - done);
                    let left = bytes.saturating_sub(done as u16).max(1);
                    let data = &stored[done..done + piece];
                    let part = completion(CplStatus::Success, left, address + done as u64, data);
                    self.complete(&Repr::new(part));
                    done += piece;
                }
            }
        }
    }

    fn complete(&mut self, repr: &Repr<'_>) {
        let mut tlp = vec![0; repr.buffer_len()];
        // What is asked for in a way that no completion fits is not answered.
        if let Ok(length) = repr.emit(&mut tlp) {
            self.device.handle_tlp(self.now, &tlp[..length]);
        }
    }

    /// After all of the device's work is done nobody waits for it.
    fn assert_answered(&self) {
        assert!(self.asked.is_empty(), "never answered: {:?}", self.asked);
    }

    fn reset(&mut self, kind: ResetKind) {
        self.pump();
        self.assert_answered();
        self.device.handle_reset(self.now, kind);
        self.max_payload = LEAST_PAYLOAD;
        match kind {
            ResetKind::Perst { asserted } => self.perst = asserted,
            ResetKind::Power { on } => self.power = on,
            ResetKind::HotReset => {}
        }
        self.asked.clear();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let n = what >> 4;
        match what & 0xf {
            0 | 1 => {
                // Controller registers, MSI-X, doorbells.
                let bases = [0, 0, regs::DOORBELLS, regs::MSIX_TABLE];
                let at = bases[usize::from(n & 3)] + u64::from(input.u8() & 0x3f) * 4;
                let value = input.u32();
                self.write32(BAR + at, value);
            }
            2 => {
                let (at, length) = (u64::from(input.u16() & 0x3ffc), u16::from(n) + 1);
                let last = if length > 1 { 0xf } else { 0 };
                self.read(BAR + at, length, ByteEnables { first: input.u8() & 0xf, last });
            }
            3 => {
                let (at, enables) = (u64::from(input.u16() & 0x3ffc), input.u8());
                let data: Vec<u8> = input.bytes(4 * usize::from(n & 7) + 4).to_vec();
                let whole = data.len() / 4 * 4;
                if whole > 0 {
                    let last = if whole > 4 { enables >> 4 } else { 0 };
                    let enables = ByteEnables { first: enables & 0xf, last };
                    self.write(BAR + at, &data[..whole], enables);
                }
            }
            4..=6 => self.command(usize::from(what & 1), n, input),
            7 => {
                // Anything anywhere in the queues and the data.
                let at = usize::from(input.u16()) * 4;
                let bytes = input.bytes(usize::from(n) * 4 + 4);
                let end = (at + bytes.len()).min(MEMORY);
                self.memory[at..end].copy_from_slice(&bytes[..end - at]);
            }
            8 => {
                let (register, value) = (input.u16() & 0xffc, input.u32());
                self.config_write(register, value, n);
            }
            9 => self.config_read(input.u16() & 0xffc),
            10 => {
                self.answers = match n {
                    0..=5 => Answers::Right,
                    6 | 7 => Answers::Split,
                    8 => Answers::Status(CplStatus::UnsupportedRequest),
                    9 => Answers::Status(CplStatus::CompleterAbort),
                    10 => Answers::Status(CplStatus::ConfigRetry),
                    11 => Answers::Poisoned,
                    12 => Answers::Short,
                    13 => Answers::Never,
                    _ => Answers::Twice,
                };
            }
            11 => self.pump(),
            12 => {
                self.now += Duration::from_millis(u64::from(input.u8()) << (n & 7));
                if self.device.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.device.handle_timeout(self.now);
                }
            }
            13 => match n {
                0 => self.reset(ResetKind::HotReset),
                1 => self.reset(ResetKind::Perst { asserted: true }),
                2 => self.reset(ResetKind::Perst { asserted: false }),
                3 => self.reset(ResetKind::Power { on: false }),
                4 => self.reset(ResetKind::Power { on: true }),
                5 | 6 => self.configure(),
                _ => {
                    self.configure();
                    self.enable();
                }
            },
            14 => {
                // No request: what is asked in a way of its own is answered in a way of its own.
                let tlp = input.bytes(usize::from(n) * 4 + 12).to_vec();
                if Packet::new_checked(&tlp[..]).is_ok_and(|p| p.class() != Some(Class::NonPosted))
                {
                    self.device.handle_tlp(self.now, &tlp);
                }
            }
            _ => self.pump(),
        }
    }

    /// A command that says something most of the time.
    fn command(&mut self, queue: usize, n: u8, input: &mut Input<'_>) {
        let opcode = u32::from(input.u8());
        let namespace = match n & 3 {
            0 | 1 => 1,
            2 => 2,
            _ => input.u32(),
        };
        let place = input.u16();
        let prp = match n & 0xc {
            0 => [DATA as u32, DATA as u32 + 0x1000],
            4 => [DATA as u32 + u32::from(place & 0xffc), DATA as u32 + 0x2000],
            8 => [DATA as u32, DATA as u32 + u32::from(place & 0x7ff8)],
            _ => [u32::from(place) << 4, input.u32()],
        };
        let mut parts = [opcode, namespace, prp[0], 0, prp[1], 0, 0, 0, 0, 0, 0, 0];
        let count = usize::from(input.u8() & 7).min(6);
        for part in &mut parts[6..6 + count] {
            *part = match input.u8() {
                0xff => input.u32(),
                0xfe => u32::from(input.u16()),
                small => small.into(),
            };
        }
        self.submit(queue, &parts);
    }
}
