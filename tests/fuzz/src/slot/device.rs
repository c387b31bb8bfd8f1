//! A device that is honest, and slow or silent as it is told.

use crate::emit::emit;
use proxy_core::boxes::SlotSignal;
use proxy_core::limits::TEN_BIT_TAGS;
use std::collections::VecDeque;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, Class, CplStatus, Kind, Packet, TlpType};

pub(super) const FUNCTIONS: usize = 2;

/// Device Control 2 with a completion timeout of 4 s to 13 s, which is what the proxy wants of a device
/// that has all ranges.
const SET: u8 = 0b1101;

/// What a function does with what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Answers,
    /// Does it, and answers when it is told to.
    Holds,
    /// It is not ready: configuration requests get Configuration Retry Status, others nothing.
    NotReady,
    /// It is not ready, or broken, and says nothing.
    Silent,
}

impl Manner {
    pub(super) fn of(n: usize) -> Self {
        match n & 3 {
            0 => Self::Answers,
            1 => Self::Holds,
            2 => Self::NotReady,
            _ => Self::Silent,
        }
    }
}

/// What a function's memory and its registers from 0xc0 on hold at an address.
pub(super) fn coded(address: u64) -> u32 {
    (address as u32).wrapping_mul(0x9e37_79b1) ^ 0x5a5a_0000
}

struct Function {
    config: [u8; 0x100],
    manner: Manner,
    /// Whether it answered at once whatever it was asked since its last reset.
    prompt: bool,
    /// Its answers that it keeps.
    held: VecDeque<Vec<u8>>,
    /// Its reads of the host's memory, by tag: where each begins.
    asked: [Option<u64>; 1024],
    /// The number that it takes from what is written to it.
    id: Bdf,
    /// Whether it has 10-bit tags.
    ten_bit_tags: bool,
}

impl Function {
    fn new(number: usize, ten_bit_tags: bool) -> Self {
        let manner = Manner::Answers;
        let mut function = Self {
            config: [0; 0x100],
            manner,
            prompt: true,
            held: VecDeque::new(),
            asked: [None; 1024],
            id: Bdf::from_bits(number as u16),
            ten_bit_tags,
        };
        function.reset(number, manner);
        function
    }

    fn put(&mut self, at: usize, value: u32) {
        self.config[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn get(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.config[at..at + 4].try_into().expect("four bytes"))
    }

    fn reset(&mut self, number: usize, manner: Manner) {
        self.config.fill(0);
        self.put(0x00, 0x0001_1d0f);
        self.put(0x04, 0x0010_0000);
        self.put(0x08, 0x1200_0001);
        self.put(0x0c, 0x0080_0000);
        self.put(0x2c, 0x0001_1d0f);
        self.put(0x34, 0x40);
        // PCI Express with function-level reset, and power management without No_Soft_Reset.
        self.put(0x40, 0x0002_8010);
        self.put(0x44, 1 << 28 | 1 << 15);
        self.put(0x64, 0x1f | if self.ten_bit_tags { 3 << 16 } else { 0 });
        self.put(0x80, 0x0003_0001);
        for at in (0xc0..0x100).step_by(4) {
            self.put(at, coded(((number as u64) << 12) | at as u64));
        }
        (self.manner, self.prompt) = (manner, manner == Manner::Answers);
        self.held.clear();
        self.asked = [None; 1024];
    }

    /// Whether it uses 10-bit tags.
    fn uses_ten_bit_tags(&self) -> bool {
        self.ten_bit_tags && self.config[0x69] & 0x10 != 0
    }

    /// Whether that was a reset.
    fn write(&mut self, at: usize, enables: u8, data: &[u8]) -> bool {
        let mut anew = false;
        for (i, byte) in data.iter().enumerate().filter(|(i, _)| enables >> i & 1 != 0) {
            match at + i {
                0x49 => anew |= byte & 0x80 != 0,
                0x84 => {
                    anew |= self.config[0x84] == 3 && byte & 3 == 0;
                    self.config[0x84] = if byte & 3 == 3 { 3 } else { self.config[0x84] };
                }
                0x11 => self.config[0x11] = byte & 0xf0,
                at @ (0x04 | 0x05 | 0x12 | 0x13 | 0x68 | 0x69) => self.config[at] = *byte,
                _ => {}
            }
        }
        anew
    }
}

/// The device, which may not be there.
pub(super) struct Device {
    functions: [Function; FUNCTIONS],
    there: bool,
    perst: bool,
    /// What a function does after its next resets.
    pub(super) after_reset: Manner,
    pub(super) out: VecDeque<Vec<u8>>,
}

impl Device {
    pub(super) fn new(ten_bit_tags: bool) -> Self {
        Self {
            functions: core::array::from_fn(|number| Function::new(number, ten_bit_tags)),
            there: true,
            perst: false,
            after_reset: Manner::Answers,
            out: VecDeque::new(),
        }
    }

    fn reset(&mut self) {
        let manner = self.after_reset;
        self.functions.iter_mut().enumerate().for_each(|(n, f)| f.reset(n, manner));
        self.out.clear();
    }

    pub(super) fn pull(&mut self) {
        self.there = false;
        self.perst = false;
        self.reset();
    }

    pub(super) fn put_in(&mut self) {
        self.there = true;
    }

    pub(super) fn signal(&mut self, signal: SlotSignal) {
        match signal {
            SlotSignal::HotReset => self.reset(),
            SlotSignal::Perst { asserted } => {
                self.perst = asserted;
                self.reset();
            }
        }
    }

    /// From now on it answers, and at once.
    pub(super) fn recover(&mut self) {
        self.after_reset = Manner::Answers;
        for function in 0..FUNCTIONS {
            self.set_manner(function, Manner::Answers);
        }
    }

    /// What it keeps it says when it comes to answer, and loses when it falls silent.
    pub(super) fn set_manner(&mut self, function: usize, manner: Manner) {
        let function = &mut self.functions[function];
        function.manner = manner;
        function.prompt &= manner == Manner::Answers;
        match manner {
            Manner::Answers => self.out.extend(function.held.drain(..)),
            Manner::Holds => {}
            Manner::NotReady | Manner::Silent => function.held.clear(),
        }
    }

    /// Says the n-th of the answers that it keeps, of both functions.
    pub(super) fn answer(&mut self, n: usize) {
        let held =
            (0..FUNCTIONS).flat_map(|f| (0..self.functions[f].held.len()).map(move |i| (f, i)));
        let held: Vec<_> = held.collect();
        if let Some((function, at)) = held.get(n % held.len().max(1)).copied() {
            self.out.extend(self.functions[function].held.remove(at));
        }
    }

    /// Reads the host's memory, or writes it.
    pub(super) fn ask(&mut self, function: usize, tag: u16, n: usize) {
        let target = &mut self.functions[function];
        let may_ask = target.manner == Manner::Answers && target.config[0x04] & 4 != 0;
        if !self.there || self.perst || !may_ask {
            return;
        }
        let requester = target.id;
        // 10-bit ones have one of the upper two bits set (PCIe 5.0 section 2.2.6.2).
        let upper = if target.uses_ten_bit_tags() { n as u16 % 3 + 1 } else { 0 };
        let tag = upper << 8 | tag;
        let page = (function as u64 + 1) << 20;
        let address = page + u64::from(tag) * 0x100 + n as u64 * 4;
        let tlp = if n & 1 == 0 {
            let asked = &mut target.asked[usize::from(tag)];
            if asked.is_some() {
                return;
            }
            *asked = Some(address);
            emit(Kind::MemRead {
                requester,
                tag: Tag::new(tag).expect("a tag"),
                address,
                length_dw: 1,
                enables: ByteEnables::all(1),
                hint: None,
                locked: false,
            })
        } else {
            emit(Kind::MemWrite {
                requester,
                tag: Tag::new(0).expect("a tag"),
                address,
                enables: ByteEnables::all(1),
                hint: None,
                data: &[7; 4],
            })
        };
        self.out.push_back(tlp);
    }

    pub(super) fn take(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).expect("the box sends TLPs");
        if !self.there || self.perst {
            return;
        }
        if packet.class() == Some(Class::Completion) {
            return self.answered(&packet);
        }
        let configures = matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0);
        let number = if configures {
            usize::from(packet.destination().function().get())
        } else {
            let reaches = |f: &Function| u64::from(f.get(0x10)) == packet.address() & !0xfff;
            self.functions.iter().position(reaches).unwrap_or(FUNCTIONS)
        };
        let unsupported = CplStatus::UnsupportedRequest;
        let Some(function) = self.functions.get(number) else {
            let id = Bdf::from_bits(number as u16);
            return self.out.extend(completion(id, &packet, unsupported, &[]));
        };
        match function.manner {
            Manner::Answers | Manner::Holds => self.act(number, &packet),
            Manner::NotReady if configures => {
                let retry = CplStatus::ConfigRetry;
                self.out.extend(completion(function.id, &packet, retry, &[]));
            }
            Manner::NotReady | Manner::Silent => {}
        }
    }

    /// The root complex's answer, or the proxy's: to what was asked, and with what is there.
    fn answered(&mut self, packet: &Packet<&[u8]>) {
        let function = usize::from(packet.requester().function().get());
        let asked = self.functions[function].asked[usize::from(packet.tag().get())].take();
        let address = asked.expect("nobody asked for it");
        if packet.status() == CplStatus::Success {
            assert_eq!(packet.payload(), coded(address).to_le_bytes(), "of something else");
        }
    }

    fn act(&mut self, number: usize, packet: &Packet<&[u8]>) {
        let at = usize::from(packet.register());
        let mut anew = false;
        let word;
        let data: &[u8] = match packet.tlp_type() {
            TlpType::CfgRd0 => {
                let value = if at < 0x100 { self.functions[number].get(at) } else { 0 };
                word = value.to_le_bytes();
                &word
            }
            TlpType::CfgWr0 => {
                self.functions[number].id = packet.destination();
                let enables = packet.byte_enables().first;
                anew = at < 0x100 && self.functions[number].write(at, enables, packet.payload());
                &[]
            }
            TlpType::MRd => {
                word = coded(packet.address()).to_le_bytes();
                &word
            }
            // Nothing that is written is read again.
            _ => return,
        };
        let function = &mut self.functions[number];
        let answer = completion(function.id, packet, CplStatus::Success, data);
        // That of a reset comes before the reset.
        if function.manner == Manner::Holds && !anew {
            function.held.extend(answer);
        } else {
            self.out.extend(answer);
        }
        if anew {
            function.reset(number, self.after_reset);
        }
    }

    pub(super) fn has_what_is_the_proxys(&self, function: usize) -> bool {
        let function = &self.functions[function];
        let has_tags = function.uses_ten_bit_tags() || !function.ten_bit_tags || !TEN_BIT_TAGS;
        has_tags && function.config[0x68] & 0x1f == SET
    }

    /// Whether it answered at once whatever it was asked since its last reset.
    pub(super) fn is_prompt(&self, function: usize) -> bool {
        self.functions[function].prompt
    }

    /// Whether it answers and may ask the host for something, with its own completion timeout.
    pub(super) fn lacks_what_is_the_proxys(&self, function: usize) -> bool {
        let answers =
            self.there && !self.perst && self.functions[function].manner == Manner::Answers;
        let uses = self.functions[function].config[0x04] & 4 != 0;
        answers && uses && !self.has_what_is_the_proxys(function)
    }
}

/// What a function of such a number says to a request.
fn completion(
    completer: Bdf,
    packet: &Packet<&[u8]>,
    status: CplStatus,
    data: &[u8],
) -> Option<Vec<u8>> {
    let reads = packet.tlp_type() == TlpType::MRd;
    (packet.class() == Some(Class::NonPosted)).then(|| {
        emit(Kind::Completion {
            completer,
            requester: packet.requester(),
            tag: packet.tag(),
            status,
            bcm: false,
            byte_count: 4,
            lower_address: if reads { packet.address() as u8 & 0x7f } else { 0 },
            locked: false,
            data,
        })
    })
}
