//! The model device: registers with side effects, a DMA engine, and bad manners.
//!
//! | BAR offset | what |
//! |---|---|
//! | 0x000 – 0x0ff | scratch registers of 4 bytes |
//! | 0x100 | doorbell: a write counts |
//! | 0x104 | doorbells since the last read of it; reading clears |
//! | 0x108 | atomic counter, 8 bytes |
//! | 0x200 | commands of the DMA engine |
//! | 0x800 – 0xfff | memory for other devices, a part for each port of the host |

use super::config::{Config, Written};
use super::engine::Engine;
use super::{End, Manner, Mark, WAITING};
use crate::egress::{Egress, completion};
use crate::oracle::Verdict;
use crate::random::{Drawer, Random};
use proxy_core::boxes::SlotSignal;
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{AtomicOp, ByteEnables, Class, CplStatus, Kind, Packet, Repr, TlpType};

/// Scratch registers.
const CELLS: u64 = 64;
pub(crate) const DOORBELL: u64 = 0x100;
pub(crate) const RUNG: u64 = 0x104;
pub(crate) const COUNTER: u64 = 0x108;
pub(crate) const COMMANDS: u64 = 0x200;
/// Memory for other devices, and the bytes that the device behind each port has of it.
const AREA: u64 = 0x800;
pub(crate) const PART: u64 = 256;
/// Ports whose devices have a part.
pub(crate) const PARTS: usize = 8;

/// Where in a device's registers the part of another port's device begins.
pub(crate) const fn part(port: usize) -> u64 {
    AREA + port as u64 * PART
}

/// The device.
pub(crate) struct Model {
    pub(super) end: End,
    serial: u64,
    function: u8,
    pub(super) config: Config,
    cells: [u8; CELLS as usize * 4],
    area: [u8; PARTS * PART as usize],
    rung: u32,
    counter: u64,
    /// Bus, device and function, as its host last wrote to it under.
    pub(super) id: u16,
    pub(super) engine: Engine,
    late: VecDeque<(Instant, Class, Vec<u8>)>,
    perst: bool,
    /// How long it takes to be ready after a reset, ms, from and to; and when it is.
    ready_ms: [u64; 2],
    ready_at: Instant,
    /// ID-based ordering of its answers, which is the completer's own choice, and how long it takes
    /// to be ready.
    random: Random,
}

impl Model {
    /// A function of a device that has so many.
    pub(crate) fn new(
        seed: u64,
        serial: u64,
        (function, functions): (usize, usize),
        ready_ms: [u64; 2],
    ) -> Self {
        Self {
            end: End::new(),
            serial,
            function: function as u8,
            config: Config::new(serial, functions > 1),
            cells: [0; CELLS as usize * 4],
            area: [0; PARTS * PART as usize],
            rung: 0,
            counter: 0,
            id: 0,
            engine: Engine::default(),
            late: VecDeque::new(),
            perst: false,
            ready_ms,
            ready_at: Instant::ZERO,
            random: Random::stream(seed, Drawer::Answer, serial),
        }
    }

    /// Everything in it is as after power on; a while later it is ready.
    pub(crate) fn reset(&mut self, now: Instant) {
        let [from, to] = self.ready_ms;
        self.ready_at = now + Duration::from_millis(self.random.between(from, to));
        self.config.reset(self.serial);
        self.cells.fill(0);
        self.area.fill(0);
        (self.rung, self.counter) = (0, 0);
        self.engine = Engine::default();
        self.end.reset();
        self.late.clear();
    }

    /// A signal beside TLPs. Whether it was a reset.
    pub(crate) fn signal(&mut self, now: Instant, signal: SlotSignal) -> bool {
        match signal {
            SlotSignal::HotReset => {}
            SlotSignal::Perst { asserted } => self.perst = asserted,
        }
        self.reset(now);
        // It was reset when PERST# was asserted; it begins to be ready now.
        signal != SlotSignal::Perst { asserted: false }
    }

    /// The classes that it has room for.
    pub(super) fn room(&self) -> ClassSet {
        let full = self.end.out.len() > WAITING;
        if full { ClassSet::ALL.without(Class::NonPosted) } else { ClassSet::ALL }
    }

    /// When it has something to say by itself.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.late.front().map(|late| late.0)
    }

    /// Says what is due.
    pub(crate) fn wake(&mut self, now: Instant) {
        while self.late.front().is_some_and(|late| late.0 <= now) {
            let (_, class, bytes) = self.late.pop_front().expect("looked at just now");
            self.end.out.push_bytes(class, bytes, Mark::Answers);
        }
    }

    /// A TLP from its proxy.
    pub(crate) fn handle(&mut self, now: Instant, tlp: &[u8]) -> Verdict<bool> {
        let mut was_reset = false;
        if self.perst {
            return Ok(false);
        }
        let packet = Packet::new_checked(tlp).expect("checked by the caller");
        match packet.class() {
            Some(Class::Completion) => {
                let done = self.end.requests.complete(tlp, false)?;
                self.answered(&done, packet.payload())?;
            }
            Some(Class::Posted) => self.write(&packet),
            _ if self.end.manner == Manner::Hangs => {}
            _ => was_reset = self.request(now, &packet),
        }
        self.work();
        Ok(was_reset)
    }

    fn write(&mut self, packet: &Packet<&[u8]>) {
        if packet.tlp_type() != TlpType::MWr || !self.config.decodes_memory() {
            return;
        }
        let at = packet.address() & 0xfff;
        let data = packet.payload();
        match at {
            DOORBELL => self.rung += 1,
            COMMANDS => self.command(data),
            AREA.. => {
                let enables = packet.byte_enables();
                let first = usize::from(enables.first_offset());
                let count = usize::from(enables.byte_count(packet.length_dw()));
                let place = self.area.get_mut((at - AREA) as usize..);
                for (to, byte) in place.into_iter().flatten().zip(data).skip(first).take(count) {
                    *to = *byte;
                }
            }
            at if at + data.len() as u64 <= CELLS * 4 => {
                self.cells[at as usize..at as usize + data.len()].copy_from_slice(data);
            }
            _ => {}
        }
    }

    /// Whether it was reset by it.
    fn request(&mut self, now: Instant, packet: &Packet<&[u8]>) -> bool {
        let at = (packet.address() & 0xfff) as usize;
        let by_number = matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0);
        if by_number && now < self.ready_at {
            self.answer(now, packet, CplStatus::ConfigRetry, &[]);
            return false;
        }
        match packet.tlp_type() {
            TlpType::CfgRd0 if packet.destination().function().get() == self.function => {
                let value = self.config.read(packet.register().into());
                self.answer(now, packet, CplStatus::Success, &value.to_le_bytes());
            }
            TlpType::CfgWr0 if packet.destination().function().get() == self.function => {
                self.id = packet.destination().bits();
                let enables = packet.byte_enables().first;
                let register = packet.register().into();
                // The completion leaves before the reset begins.
                self.answer(now, packet, CplStatus::Success, &[]);
                if self.config.write(register, enables, packet.payload()) == Written::FunctionReset
                {
                    self.function_reset(now);
                    return true;
                }
                self.end.requests.use_ten_bits(self.config.ten_bit_tags());
            }
            TlpType::MRd if self.config.decodes_memory() => {
                let length = usize::from(packet.length_dw()) * 4;
                let mut data = vec![0; length];
                match at as u64 {
                    RUNG => {
                        data[..4].copy_from_slice(&std::mem::take(&mut self.rung).to_le_bytes())
                    }
                    AREA.. => {
                        let place = &self.area[at - AREA as usize..];
                        data.iter_mut().zip(place).for_each(|(to, byte)| *to = *byte);
                    }
                    COUNTER if length == 8 => data.copy_from_slice(&self.counter.to_le_bytes()),
                    _ if at + length <= self.cells.len() => {
                        data.copy_from_slice(&self.cells[at..at + length]);
                    }
                    _ => {}
                }
                self.answer(now, packet, CplStatus::Success, &data);
            }
            TlpType::FetchAdd if self.config.decodes_memory() && at as u64 == COUNTER => {
                let old = self.counter.to_le_bytes();
                let add = packet.payload().try_into().map_or(0, u64::from_le_bytes);
                self.counter = self.counter.wrapping_add(add);
                self.answer(now, packet, CplStatus::Success, &old);
            }
            TlpType::FetchAdd if self.config.decodes_memory() && at as u64 >= AREA => {
                let (from, operand) = (at - AREA as usize, packet.payload());
                let place = &mut self.area[from..from + operand.len()];
                let old = fetch_add(place, AtomicOp::FetchAdd, operand);
                self.answer(now, packet, CplStatus::Success, &old);
            }
            _ => self.answer(now, packet, CplStatus::UnsupportedRequest, &[]),
        }
        false
    }

    /// The function forgets everything but the answers that it has sent already; what it would have
    /// answered late it does not answer any more.
    fn function_reset(&mut self, now: Instant) {
        let mut out = Egress::new();
        std::mem::swap(&mut out, &mut self.end.out);
        self.reset(now);
        self.end.out = out;
        self.end.function_reset();
    }

    fn answer(&mut self, now: Instant, asked: &Packet<&[u8]>, status: CplStatus, data: &[u8]) {
        let read = asked.tlp_type() == TlpType::MRd;
        let (byte_count, lower_address) = if read && status == CplStatus::Success {
            let enables = asked.byte_enables();
            (enables.byte_count(asked.length_dw()), enables.lower_address(asked.address()))
        } else {
            (data.len().max(4) as u16, 0)
        };
        let id = (Bdf::from_bits(self.id), asked.tag());
        let mut repr = completion(asked, id, status, (byte_count, lower_address), data);
        repr.attributes.id_based_ordering = self.random.chance(400_000);
        let bytes = || {
            let mut bytes = vec![0; repr.buffer_len()];
            let length = repr.emit(&mut bytes).expect("an answer can be written");
            bytes.truncate(length);
            bytes
        };
        match self.end.manner {
            Manner::Late(by) => self.late.push_back((now + by, Class::Completion, bytes())),
            Manner::Twice => {
                self.end.out.push(&repr, Mark::Answers);
                self.end.out.push(&repr, Mark::TooMany);
            }
            Manner::Wrong(wrong) => {
                let mut bytes = bytes();
                wrong.spoil(&mut bytes, &mut self.random);
                let lie = Mark::Lie { asked_under: asked.tag().get() };
                self.end.out.push_bytes(Class::Completion, bytes, lie);
            }
            _ => self.end.out.push(&repr, Mark::Answers),
        }
    }

    /// Writes where it was not told to: into memory that nobody gave it, or into its own host's
    /// at full speed.
    pub(crate) fn flood(&mut self, address: u64, count: usize) {
        if !self.config.masters() {
            return;
        }
        for n in 0..count {
            let kind = Kind::MemWrite {
                requester: Bdf::from_bits(self.id),
                tag: Tag::new(0).expect("a tag"),
                address: address + (n as u64 % 64) * 64,
                enables: ByteEnables::all(16),
                hint: None,
                data: &[0xee; 64],
            };
            self.end.out.push(&Repr::new(kind), Mark::Stray);
        }
    }
}

/// Bytes of an atomic's operand, for the models of both ends.
pub(crate) fn fetch_add(old: &mut [u8], op: AtomicOp, operand: &[u8]) -> Vec<u8> {
    let before = old.to_vec();
    if op == AtomicOp::FetchAdd && old.len() == 8 && operand.len() == 8 {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight"));
        let sum = word(old).wrapping_add(word(operand));
        old.copy_from_slice(&sum.to_le_bytes());
    }
    before
}
