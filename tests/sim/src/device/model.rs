//! The model device: registers with side effects, a DMA engine, and bad manners.
//!
//! | BAR offset | what |
//! |---|---|
//! | 0x000 – 0x0ff | scratch registers of 4 bytes |
//! | 0x100 | doorbell: a write counts |
//! | 0x104 | doorbells since the last read of it; reading clears |
//! | 0x108 | atomic counter, 8 bytes |
//! | 0x110 | another one, 4 bytes |
//! | 0x118 | for swaps, 4 bytes |
//! | 0x120 | for compare and swap, 8 bytes |
//! | 0x128 | what the block holds is made from this |
//! | 0x12c | which message it is to send |
//! | 0x130 | how many commands of the DMA engine are not done |
//! | 0x200 | commands of the DMA engine |
//! | 0x300 – 0x3ff | a block of bytes that is only read |
//! | 0x800 – 0xfff | memory for other devices, a part for each port of the host |

use super::config::{Config, Written};
use super::engine::Engine;
use super::{End, Manner, Mark, Part, WAITING, atomic};
use crate::dress::{self, Dresser};
use crate::egress::{Egress, Piece, completion, pieces, written};
use crate::host::HOST_ID;
use crate::host::memory::NOWHERE;
use crate::late::{DOUBLES_US, Late};
use crate::oracle::{Verdict, Violation};
use crate::pattern;
use crate::profile::Work;
use crate::random::{Drawer, Random, mix};
use proxy_core::boxes::SlotSignal;
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{AtomicOp, ByteEnables, Class, CplStatus, Kind, Packet, Repr, TlpType};

/// Scratch registers.
const CELLS: u64 = 64;
pub(crate) const DOORBELL: u64 = 0x100;
pub(crate) const RUNG: u64 = 0x104;
pub(crate) const COUNTER: u64 = 0x108;
pub(crate) const NARROW: u64 = 0x110;
pub(crate) const SWAP: u64 = 0x118;
pub(crate) const COMPARED: u64 = 0x120;
pub(crate) const BLOCK_SEED: u64 = 0x128;
pub(crate) const SAY: u64 = 0x12c;
pub(crate) const GOING: u64 = 0x130;
pub(crate) const COMMANDS: u64 = 0x200;
/// Where the block is, and its bytes.
pub(crate) const BLOCK: (u64, u64) = (0x300, 0x100);
/// What its operations of 4 and 8 bytes work on: from the first counter to before the seed.
const ATOMICS: std::ops::Range<u64> = COUNTER..BLOCK_SEED;
/// Read Completion Boundary of what is no root complex (PCIe 5.0 section 2.3.1.1).
const BOUNDARY: usize = 128;
/// Memory for other devices, and the bytes that the device behind each port has of it.
const AREA: u64 = 0x800;
pub(crate) const PART: u64 = 256;
/// Ports whose devices have a part.
pub(crate) const PARTS: usize = 8;

/// The number of a function that no device has.
const NO_FUNCTION: u16 = 7;

/// What the pattern in a block is made from, when the device was told that number.
pub(crate) fn block_seed(told: u32) -> u64 {
    u64::from(told) << 32
}

/// Where in a device's registers the part of another port's device begins.
pub(crate) const fn part(port: usize) -> u64 {
    AREA + port as u64 * PART
}

/// The device.
pub(crate) struct Model {
    pub(super) end: End,
    serial: u64,
    pub(super) function: u8,
    /// Its INTx wire is asserted.
    pub(super) wire: bool,
    /// Its error messages come to the root complex.
    pub(super) errors: bool,
    pub(super) config: Config,
    cells: [u8; CELLS as usize * 4],
    area: [u8; PARTS * PART as usize],
    rung: u32,
    atomics: [u8; (ATOMICS.end - ATOMICS.start) as usize],
    told: u32,
    /// Bus, device and function, as its host last wrote to it under.
    pub(super) id: u16,
    pub(super) engine: Engine,
    /// Answers that are held back.
    late: Late<Mark>,
    perst: bool,
    /// How long it takes to be ready after a reset, ms, from and to; and when it is.
    ready_ms: [u64; 2],
    ready_at: Instant,
    /// ID-based ordering of its answers, which is the completer's own choice, and how long it takes
    /// to be ready.
    random: Random,
    pub(super) dresser: Dresser,
    /// Requests by an address that it does not decode.
    pub(super) unheard: u64,
    /// It asked while it waited for as long as it has by itself.
    impatient: bool,
}

impl Model {
    /// A function of a device that has so many.
    pub(crate) fn new(
        seed: u64,
        serial: u64,
        (function, functions): (usize, usize),
        (ready_ms, work): ([u64; 2], Work),
    ) -> Self {
        Self {
            end: End::new(),
            serial,
            function: function as u8,
            wire: false,
            errors: work.errors,
            config: Config::new(
                serial,
                [
                    functions > 1,
                    mix(seed ^ mix(serial)) & 1 != 0,
                    work.power_states,
                    mix(seed ^ mix(serial)) & 2 != 0,
                ],
            ),
            cells: [0; CELLS as usize * 4],
            area: [0; PARTS * PART as usize],
            rung: 0,
            atomics: Default::default(),
            told: 0,
            id: 0,
            engine: Engine::default(),
            late: Late::new(),
            perst: false,
            ready_ms,
            ready_at: Instant::ZERO,
            random: Random::stream(seed, Drawer::Answer, serial),
            dresser: Dresser::new(work.dress, seed, serial << 4 | function as u64),
            unheard: 0,
            impatient: false,
        }
    }

    /// Everything in it is as after power on; a while later it is ready.
    pub(crate) fn reset(&mut self, now: Instant) {
        let [from, to] = self.ready_ms;
        self.ready_at = now + Duration::from_millis(self.random.between(from, to));
        self.config.reset(self.serial);
        self.cells.fill(0);
        self.area.fill(0);
        self.wire = false;
        (self.rung, self.told) = (0, 0);
        self.atomics.fill(0);
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
        self.late.next_at()
    }

    /// Says what is due.
    pub(crate) fn wake(&mut self, now: Instant) {
        while let Some((bytes, mark)) = self.late.pop(now) {
            self.end.misdeeds[if matches!(mark, Mark::TooMany) { 2 } else { 0 }] += 1;
            self.end.out.push_bytes(Class::Completion, bytes, mark);
        }
    }

    /// A TLP from its proxy.
    pub(crate) fn handle(&mut self, now: Instant, tlp: &[u8], doubtful: bool) -> Verdict<bool> {
        let mut was_reset = false;
        if self.perst {
            return Ok(false);
        }
        let packet = Packet::new_checked(tlp).expect("checked by the caller");
        match packet.class() {
            Some(Class::Completion) => {
                let done = self.end.requests.complete(tlp, doubtful)?;
                self.answered(&done, packet.payload())?;
            }
            Some(Class::Posted) => self.write(&packet),
            _ if self.end.manner == Manner::Hangs => {
                self.end.misdeeds[1] += 1;
                self.hear_reset(&packet);
            }
            _ => was_reset = self.request(now, &packet),
        }
        self.work();
        Ok(was_reset)
    }

    /// Its proxy sets how long it waits for answers: longer than that proxy does.
    pub(super) fn check(&self) -> Verdict {
        if self.impatient {
            let what = "a device asks its host, and gives up sooner than its proxy lets it";
            return Err(Violation::new(3, what));
        }
        Ok(())
    }

    /// A request of it is taken.
    pub(super) fn asks(&mut self) {
        self.impatient |= self.config.is_impatient();
    }

    fn write(&mut self, packet: &Packet<&[u8]>) {
        if packet.tlp_type() != TlpType::MWr {
            return;
        }
        if !self.config.decodes(packet.address()) {
            self.unheard += 1;
            return;
        }
        let at = packet.address() & 0xfff;
        let data = packet.payload();
        match at {
            DOORBELL => self.rung += 1,
            COMMANDS => self.command(data),
            SAY => self.say(data),
            BLOCK_SEED => self.told = data.first_chunk().map_or(0, |w| u32::from_le_bytes(*w)),
            AREA.. => {
                let enables = dress::enables(packet);
                let first = usize::from(enables.first_offset());
                let count = usize::from(enables.byte_count(packet.length_dw()));
                let place = self.area.get_mut((at - AREA) as usize..);
                for (to, byte) in place.into_iter().flatten().zip(data).skip(first).take(count) {
                    *to = *byte;
                }
            }
            at if at + data.len() as u64 <= CELLS * 4 => {
                let (enables, dwords) = (dress::enables(packet), data.len() / 4);
                for (n, byte) in data.iter().enumerate() {
                    let of_dword = match n / 4 {
                        0 => enables.first,
                        dword if dword + 1 == dwords => enables.last,
                        _ => 0xf,
                    };
                    if of_dword >> (n % 4) & 1 != 0 {
                        self.cells[at as usize + n] = *byte;
                    }
                }
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
                if self.config.write(register, enables, packet.payload()) != Written::Nothing {
                    self.function_reset(now);
                    return true;
                }
                self.end.requests.use_ten_bits(self.config.ten_bit_tags());
            }
            TlpType::MRd if self.config.decodes(packet.address()) => {
                let length = usize::from(packet.length_dw()) * 4;
                let mut data = vec![0; length];
                match at as u64 {
                    RUNG => {
                        data[..4].copy_from_slice(&std::mem::take(&mut self.rung).to_le_bytes())
                    }
                    GOING => data[..4].copy_from_slice(&self.engine.going().to_le_bytes()),
                    AREA.. => {
                        let place = &self.area[at - AREA as usize..];
                        data.iter_mut().zip(place).for_each(|(to, byte)| *to = *byte);
                    }
                    at if (BLOCK.0..BLOCK.0 + BLOCK.1).contains(&at) => {
                        pattern::fill(block_seed(self.told), (at - BLOCK.0) as usize, &mut data);
                    }
                    _ if at + length <= self.cells.len() => {
                        data.copy_from_slice(&self.cells[at..at + length]);
                    }
                    _ => {}
                }
                self.answer_read(now, packet, &data);
            }
            TlpType::FetchAdd | TlpType::Swap | TlpType::Cas
                if self.config.decodes(packet.address()) =>
            {
                match self.atomic(packet) {
                    Some(old) => self.answer(now, packet, CplStatus::Success, &old),
                    None => self.answer(now, packet, CplStatus::UnsupportedRequest, &[]),
                }
            }
            _ => {
                self.unheard += u64::from(!by_number);
                self.answer(now, packet, CplStatus::UnsupportedRequest, &[]);
            }
        }
        false
    }

    /// It hangs: a reset of the function does not begin, and is told again. Whoever told it answers
    /// nothing any more that it had asked.
    fn hear_reset(&mut self, packet: &Packet<&[u8]>) {
        if packet.tlp_type() == TlpType::CfgWr0
            && Config::resets(
                packet.register().into(),
                packet.byte_enables().first,
                packet.payload(),
            )
        {
            self.end.requests.forget();
        }
    }

    /// The function forgets everything but the answers that it has sent already; what it would have
    /// answered late it does not answer any more.
    fn function_reset(&mut self, now: Instant) {
        let mut out = Egress::new();
        std::mem::swap(&mut out, &mut self.end.out);
        let wire = self.wire;
        self.reset(now);
        self.end.out = out;
        self.end.function_reset();
        self.wire = wire;
        self.let_go_of_wire();
    }

    /// What an atomic found, if there is something that it is done with.
    fn atomic(&mut self, packet: &Packet<&[u8]>) -> Option<Vec<u8>> {
        let (at, operands) = (packet.address() & 0xfff, packet.payload());
        let (op, width) = match packet.tlp_type() {
            TlpType::FetchAdd => (AtomicOp::FetchAdd, operands.len()),
            TlpType::Swap => (AtomicOp::Swap, operands.len()),
            _ => (AtomicOp::Cas, operands.len() / 2),
        };
        let (place, at) = match at {
            AREA.. => (&mut self.area[..], at - AREA),
            _ => (&mut self.atomics[..], at.checked_sub(ATOMICS.start)?),
        };
        let place = place.get_mut(at as usize..at as usize + width)?;
        Some(atomic(place, op, operands))
    }

    /// A read is answered whole or in parts. Drivers look at what other devices left as a whole.
    fn answer_read(&mut self, now: Instant, asked: &Packet<&[u8]>, data: &[u8]) {
        let payload = self.config.max_payload();
        let short = data.len() <= payload.min(PART as usize);
        if short && asked.address() & 0xfff >= AREA && asked.requester() == HOST_ID {
            let enables = dress::enables(asked);
            let says =
                (enables.byte_count(asked.length_dw()), enables.lower_address(asked.address()));
            return self.answer_part(now, asked, CplStatus::Success, (says, true), data);
        }
        for piece in pieces(asked, (payload, BOUNDARY), &mut self.random) {
            let Piece { at, length, says, last } = piece;
            let data = &data[at..at + length];
            self.answer_part(now, asked, CplStatus::Success, (says, last), data);
        }
    }

    fn answer(&mut self, now: Instant, asked: &Packet<&[u8]>, status: CplStatus, data: &[u8]) {
        let says = (data.len().max(4) as u16, 0);
        self.answer_part(now, asked, status, (says, true), data);
    }

    fn answer_part(
        &mut self,
        now: Instant,
        asked: &Packet<&[u8]>,
        status: CplStatus,
        ((byte_count, lower_address), last): ((u16, u8), bool),
        data: &[u8],
    ) {
        let mark = if last { Mark::Answers } else { Mark::Part };
        let id = (Bdf::from_bits(self.id), asked.tag());
        let mut repr = completion(asked, id, status, (byte_count, lower_address), data);
        repr.attributes.id_based_ordering = self.random.chance(400_000);
        // What spoils an answer knows no prefixes.
        if !matches!(self.end.manner, Manner::Wrong(_)) {
            self.dresser.answer(&mut repr);
        }
        match self.end.manner {
            Manner::Late(by) => self.late.hold(now + by, written(&repr), mark),
            Manner::Twice if last => {
                let double = written(&repr);
                self.end.out.push(&repr, Mark::Answers);
                // At once, or when the tag may be another request's.
                let by = self.random.below(2) * self.random.below(DOUBLES_US);
                self.late.hold(now + Duration::from_micros(by), double, Mark::TooMany);
                self.wake(now);
            }
            Manner::Wrong(wrong) if last => {
                let mut bytes = written(&repr);
                wrong.spoil(&mut bytes, &mut self.random);
                let lie = Mark::Lie { asked_under: asked.tag().get() };
                self.end.out.push_bytes(Class::Completion, bytes, lie);
            }
            _ => self.end.out.push(&repr, mark),
        }
    }

    /// Writes what it was not told to, into its own part of its host's memory, at full speed.
    pub(crate) fn flood(&mut self, address: u64, count: usize) {
        if self.config.masters() {
            let writes = (0..count as u64).map(|n| address + n % 64 * 64);
            writes.for_each(|address| self.write_alone(self.id, address, Mark::Own));
        }
    }

    /// Does what it has no business with: writes and reads where nobody has memory, writes under the ID
    /// of a function that is not there, and answers what nobody asked.
    pub(crate) fn stray(&mut self, count: usize) {
        if !self.config.masters() {
            return;
        }
        for n in 0..count as u64 {
            let address = NOWHERE + n % 64 * 64;
            match self.random.below(8) {
                0 => self.read_nowhere(address),
                1 => self.write_alone(self.id | NO_FUNCTION, address, Mark::Nobodys),
                2 => self.answer_nobody(),
                _ => self.write_alone(self.id, address, Mark::Stray),
            }
        }
    }

    fn write_alone(&mut self, id: u16, address: u64, mark: Mark) {
        let kind = Kind::MemWrite {
            requester: Bdf::from_bits(id),
            tag: Tag::new(0).expect("a tag"),
            address,
            enables: ByteEnables::all(16),
            hint: None,
            data: &[0xee; 64],
        };
        self.end.out.push(&Repr::new(kind), mark);
    }

    fn read_nowhere(&mut self, address: u64) {
        let kind = Kind::MemRead {
            requester: Bdf::from_bits(self.id),
            tag: Tag::new(0).expect("a tag"),
            address,
            length_dw: 16,
            enables: ByteEnables::all(16),
            hint: None,
            locked: false,
        };
        self.end.out.push(&Repr::new(kind), Mark::Asks(Part::NONE));
    }

    fn answer_nobody(&mut self) {
        let tag = self.random.below(256) as u16;
        let data: &[u8] = if self.random.chance(500_000) { &[0xee; 4] } else { &[] };
        let kind = Kind::Completion {
            completer: Bdf::from_bits(self.id),
            requester: HOST_ID,
            tag: Tag::new(tag).expect("8 bits"),
            status: CplStatus::Success,
            bcm: false,
            byte_count: 4,
            lower_address: 0,
            locked: false,
            data,
        };
        self.end.out.push(&Repr::new(kind), Mark::TooMany);
    }
}
