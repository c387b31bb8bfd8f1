//! The device at the far end: registers, memory, and manners.

use super::*;

/// How the device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Answers,
    Silent,
    Twice,
    WrongTag,
    /// Completions are for somebody else.
    WrongRequester,
    /// Reads in pieces that end at multiples of 64.
    Split,
    /// Every request gets this status.
    Refuses(CplStatus),
    /// Completions say that more is to come than was asked for.
    Miscounts,
    /// Completions are poisoned.
    Poisons,
    /// Nothing until it is told to: see [`Registers::answer`].
    Holds,
}

pub struct Registers {
    pub config: Vec<u8>,
    pub memory: Vec<u8>,
    pub manner: Manner,
    /// One function that has its own manner: silent, holding, or refusing, and then it does nothing.
    pub apart: Option<(u8, Manner)>,
    pub out: VecDeque<Vec<u8>>,
    /// The classes of which it takes what comes.
    pub room: ClassSet,
    pub received: Vec<Vec<u8>>,
    pub resets: usize,
    pub bus: u16,
    /// Whether it has Precision Time Measurement, and where: first in the list or in its middle.
    pub ptm: Option<u16>,
    /// Max_Payload_Size Supported, as Device Capabilities has it.
    pub payload: u32,
    /// Device Capabilities 2: by default completion timeout ranges ABCD and disable.
    pub capabilities_2: u32,
    /// Whether its functions have function-level reset.
    pub flr: bool,
    /// Configuration space of the functions after the first one.
    pub others: Vec<Vec<u8>>,
    /// Whether its memory is one of 64 bits.
    pub wide: bool,
    /// Whether PERST# is held.
    pub perst: bool,
    /// What was done to it beside TLPs.
    pub signals: Vec<SlotSignal>,
    /// Whether it has D3hot, and resets itself when it leaves that.
    pub sleeps: bool,
    held: VecDeque<Vec<u8>>,
}

impl Registers {
    pub fn new() -> Self {
        let mut device = Self {
            config: vec![0; 4096],
            flr: true,
            others: Vec::new(),
            wide: false,
            perst: false,
            signals: Vec::new(),
            memory: vec![0; 4096],
            manner: Manner::Answers,
            apart: None,
            out: VecDeque::new(),
            room: ClassSet::ALL,
            received: Vec::new(),
            resets: 0,
            bus: 0,
            ptm: None,
            payload: 0,
            capabilities_2: 0x1f,
            sleeps: false,
            held: VecDeque::new(),
        };
        device.reset();
        device.resets = 0;
        device
    }

    /// Of this many functions, all alike.
    pub fn with_functions(functions: usize, flr: bool) -> Self {
        let mut device = Self::new();
        device.flr = flr;
        device.others = vec![Vec::new(); functions - 1];
        device.reset();
        device.resets = 0;
        device
    }

    /// What a signal beside TLPs does.
    pub fn signal(&mut self, signal: SlotSignal) {
        self.signals.push(signal);
        match signal {
            SlotSignal::HotReset => self.reset(),
            SlotSignal::Perst { asserted: true } => {
                assert!(!self.perst, "asserted twice");
                self.perst = true;
                self.reset();
            }
            SlotSignal::Perst { asserted: false } => self.perst = false,
        }
    }

    /// Resets the whole device.
    pub fn reset(&mut self) {
        self.reset_first();
        let config = &self.config;
        self.others.iter_mut().for_each(|other| other.clone_from(config));
    }

    fn reset_first(&mut self) {
        self.resets += 1;
        self.config.fill(0);
        self.put(0x0c, if self.others.is_empty() { 0 } else { 0x0080_0000 });
        self.put(0x00, 0xd0ac_1b36);
        self.put(0x08, 0x1200_0001);
        self.put(0x2c, 0x0001_1b36);
        self.config[0x06] = 0x10;
        self.config[0x34] = 0x40;
        self.put(0x40, 0x0002_0010 | if self.sleeps { 0x8000 } else { 0 });
        self.put(0x80, 0x0003_0001);
        self.put(0x44, u32::from(self.flr) << 28 | 1 << 15 | self.payload); // role-based errors
        self.put(0x64, self.capabilities_2);
        self.put(0x100, 0x0001_0003);
        self.put(0x104, 0x5566_7788);
        self.put(0x108, 0x1122_3344);
        match self.ptm {
            Some(0x100) => {
                self.put(0x100, 0x1401_001f);
                self.put(0x104, 0x0000_0a05);
                self.put(0x140, 0x0001_0003);
                self.put(0x144, 0x5566_7788);
                self.put(0x148, 0x1122_3344);
            }
            Some(at) => {
                self.put(0x100, 0x0001_0003 | u32::from(at) << 20);
                self.put(at.into(), 0x1501_001f);
                self.put(usize::from(at) + 4, 0x0000_0a05);
                // Address translation and page requests.
                self.put(0x150, 0x1601_000f);
                self.put(0x160, 0x1801_0013);
                self.put(0x180, 0x0001_0019);
            }
            None => {}
        }
        self.out.clear();
    }

    pub fn put(&mut self, at: usize, value: u32) {
        self.config[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn get(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.config[at..at + 4].try_into().unwrap())
    }

    pub fn handle(&mut self, tlp: &[u8]) {
        self.received.push(tlp.to_vec());
        if self.perst {
            return;
        }
        let packet = Packet::new_checked(tlp).unwrap();
        let asks = packet.class() == Some(Class::NonPosted);
        let configures = matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0);
        let number = configures.then(|| packet.destination().function().get());
        let apart = self.apart.filter(|(function, _)| Some(*function) == number);
        let manner = apart.map_or(self.manner, |(_, manner)| manner);
        match manner {
            Manner::Silent if asks => {}
            Manner::Holds if asks => self.held.push_back(tlp.to_vec()),
            Manner::Refuses(status) if apart.is_some() => self.refuse(&packet, status),
            _ => self.act(tlp),
        }
    }

    /// Whether a request is held.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Answers the oldest request that is held, in this manner.
    pub fn answer(&mut self, manner: Manner) {
        let tlp = self.held.pop_front().expect("a request is held");
        let before = std::mem::replace(&mut self.manner, manner);
        self.act(&tlp);
        self.manner = before;
    }

    fn refuse(&mut self, packet: &Packet<&[u8]>, status: CplStatus) {
        let before = std::mem::replace(&mut self.manner, Manner::Refuses(status));
        self.complete(packet, packet.tag(), &[], 4, 0);
        self.manner = before;
    }

    fn act(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).unwrap();
        let repr = Repr::parse(&packet).unwrap();
        let asked = packet.destination().function().get();
        let unsupported = match packet.tlp_type() {
            TlpType::CfgRd0 | TlpType::CfgWr0 => usize::from(asked) > self.others.len(),
            // Those are for bridges.
            TlpType::CfgRd1 | TlpType::CfgWr1 => true,
            _ => false,
        };
        if unsupported {
            return self.refuse(&packet, CplStatus::UnsupportedRequest);
        }
        let mut data = [0; 4];
        let (tag, bytes): (Tag, &[u8]) = match repr.kind {
            Kind::ConfigRead { tag, register, destination, .. } => {
                let config = match destination.function().get() {
                    0 => &self.config,
                    function => &self.others[usize::from(function) - 1],
                };
                data.copy_from_slice(&config[register as usize..register as usize + 4]);
                (tag, &data)
            }
            Kind::ConfigWrite { tag, register, first_be, data, destination, .. } => {
                let function = usize::from(destination.function().get());
                // One function at a time is the one that is written.
                if function > 0 {
                    std::mem::swap(&mut self.config, &mut self.others[function - 1]);
                }
                self.bus = destination.bits();
                self.write_config(register as usize, first_be, data);
                if function > 0 {
                    std::mem::swap(&mut self.config, &mut self.others[function - 1]);
                }
                (tag, &[])
            }
            Kind::MemRead { tag, address, length_dw, .. } => {
                let at = address as usize & 0xfff;
                let bytes = self.memory[at..at + length_dw as usize * 4].to_vec();
                return self.complete_read(&packet, tag, &bytes, address);
            }
            Kind::Atomic { tag, address, op, data, .. } => {
                let at = address as usize & 0xfff;
                let old = self.act_atomic(at, op, data);
                return self.complete(&packet, tag, &old, old.len() as u16, 0);
            }
            Kind::MemWrite { address, data, .. } => {
                let at = address as usize & 0xfff;
                self.memory[at..at + data.len()].copy_from_slice(data);
                return;
            }
            _ => return,
        };
        let bytes = bytes.to_vec();
        self.complete(&packet, tag, &bytes, 4, 0);
    }

    fn complete_read(&mut self, request: &Packet<&[u8]>, tag: Tag, data: &[u8], address: u64) {
        let (mut at, mut left) = (address, data);
        while !left.is_empty() {
            let whole = if self.manner == Manner::Split { 64 - at as usize % 64 } else { 4096 };
            let (piece, rest) = left.split_at(whole.min(left.len()));
            self.complete(request, tag, piece, left.len() as u16, at as u8 & 0x7f);
            (at, left) = (at + piece.len() as u64, rest);
        }
    }

    /// Does an atomic operation on 4 bytes; what was there before.
    fn act_atomic(&mut self, at: usize, op: AtomicOp, operands: &[u8]) -> Vec<u8> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let old = self.memory[at..at + 4].to_vec();
        let new = match op {
            AtomicOp::FetchAdd => word(&old).wrapping_add(word(operands)),
            AtomicOp::Swap => word(operands),
            AtomicOp::Cas if old == operands[..4] => word(&operands[4..]),
            AtomicOp::Cas => word(&old),
        };
        self.memory[at..at + 4].copy_from_slice(&new.to_le_bytes());
        old
    }

    fn write_config(&mut self, at: usize, enables: u8, data: &[u8]) {
        for (i, byte) in data.iter().enumerate() {
            if enables >> i & 1 == 0 {
                continue;
            }
            match at + i {
                0x10 => self.config[0x10] = u8::from(self.wide) << 2,
                0x11 => self.config[0x11] = byte & 0xf0,
                at @ (0x04 | 0x05 | 0x12 | 0x13 | 0x68 | 0x69 | 0x148) => self.config[at] = *byte,
                0x84 if self.sleeps => {
                    if self.config[0x84] == 3 && byte & 3 == 0 {
                        self.reset_first();
                        return;
                    }
                    if byte & 3 == 3 {
                        self.config[0x84] = 3;
                    }
                }
                0x49 if self.flr && byte & 0x80 != 0 => {
                    self.reset_first();
                    return;
                }
                _ => {}
            }
        }
    }

    fn complete(&mut self, request: &Packet<&[u8]>, tag: Tag, data: &[u8], count: u16, lower: u8) {
        let tag = match self.manner {
            Manner::WrongTag => Tag::new(tag.get() ^ 0x55).unwrap(),
            _ => tag,
        };
        let (status, data) = match self.manner {
            Manner::Refuses(status) => (status, &[][..]),
            _ => (CplStatus::Success, data),
        };
        let mut repr = Repr::new(Kind::Completion {
            completer: Bdf::from_bits(self.bus),
            requester: match self.manner {
                Manner::WrongRequester => Bdf::from_bits(request.requester().bits() ^ 8),
                _ => request.requester(),
            },
            tag,
            status,
            bcm: false,
            byte_count: if self.manner == Manner::Miscounts { count + 4 } else { count },
            lower_address: lower,
            locked: false,
            data,
        });
        repr.poisoned = self.manner == Manner::Poisons;
        let times = if self.manner == Manner::Twice { 2 } else { 1 };
        for _ in 0..times {
            self.out.push_back(emit(&repr));
        }
    }
}
