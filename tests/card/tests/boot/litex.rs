//! The firmware of the board `litex` as it is built, on a model of its SoC: the core, its memory, and as
//! much of the card's blocks (`hw/regs/card.md`) as a start needs, with nothing at either side. What it
//! takes of memory is what it says itself, as for the emulated card.

use super::{Bench, MEMORY, PACKET_POOL};
use crate::firmware::Program;
use anyhow::{Context, Result, ensure};
use board_litex::layout::{
    EUI_48, IDENTITY, LAYOUT, MEMORY as RAM, MODULE_ABSENT, REGISTERS, RETAINED, SHARED,
};
use card_image::Header;
use card_regs::crc::Start;
use card_regs::frame_descriptor::Status as FrameStatus;
use card_regs::id::Capabilities;
use card_regs::irq::Pending;
use card_regs::values::{CrcAlgorithm, PayloadSize};
use card_regs::{Bits, REGISTERS as MAP};
use nor_model::{Direct, Nor, Part, SpiNor};
use proxy_core::control::{ResetCause, ResetReport};
use sim_card::iss::{AccessFault, Bus, Hart, Interrupts, Step, Width};
use soc::reset;
use std::collections::{BTreeMap, VecDeque};
use tlp_codec::fabric::{FrameKind, FrameWriter, Header as FrameHeader};
use tlp_codec::ids::{NodeId, PathId};

/// Nanoseconds of an instruction.
const TICK: u64 = 10;

/// Of the card's time that a start may take.
const BOUND: u64 = 20_000_000_000;

/// Of the card's time that the loop is watched.
const LIFE: u64 = 20_000_000_000;

/// How long the watchdog waits for food, once it has had some.
const PATIENCE: u64 = 6_000_000_000;

/// How long before its reset it warns.
const WARNING: u64 = 100_000_000;

/// What the watchdog is fed with.
const FOOD: u32 = 0xfeed_d09d;

/// The card's address, as its EEPROM has it.
const ADDRESS: [u8; 6] = [0x00, 0x04, 0xa3, 1, 2, 3];

/// VexRiscv's own mask of interrupts, which the simulator's core has not: `csrw 0xbc0, rs1`.
const MASK: (u32, u32) = (0xfff0_7fff, 0xbc00_1073);

/// Whether a block is a queue.
fn is_queue(path: &str) -> bool {
    path.starts_with("tlp.") && !path.contains("slot")
        || path.starts_with("mac") && path.contains('.')
}

/// The memory that I2C bus 0 has, of which one byte after the other is read from the address that was
/// written last.
#[derive(Default)]
struct Eeprom {
    /// It was called, to be read or to be written.
    called: bool,
    pointer: u8,
}

impl Eeprom {
    /// Does a command: what `i2c.status` says of it.
    fn carry_out(&mut self, command: u32) -> u32 {
        const NACK: u32 = 1 << 9;
        let [start, write, read, stop] = [8, 9, 10, 12].map(|bit| command >> bit & 1 != 0);
        let byte = command as u8;
        let mut said = 0;
        if start {
            self.called = byte >> 1 == IDENTITY;
        } else if write && self.called {
            self.pointer = byte;
        }
        if write && !self.called {
            said = NACK;
        } else if read && self.called {
            let index = usize::from(self.pointer.wrapping_sub(EUI_48 as u8));
            said = u32::from(ADDRESS.get(index).copied().unwrap_or(0xff));
            self.pointer = self.pointer.wrapping_add(1);
        }
        self.called &= !stop;
        said
    }
}

/// All but the core.
struct Soc {
    ram: Vec<u8>,
    shared: Vec<u8>,
    /// Registers by address: their names, and what they hold.
    registers: BTreeMap<u32, (&'static str, u32)>,
    flash: SpiNor,
    received: VecDeque<u8>,
    eeprom: Eeprom,
    console: Vec<u8>,
    ticks: u64,
    alarm: u64,
    /// Sources of interrupts.
    pending: u32,
    enabled: u32,
    /// Times that the watchdog was fed, and when it was at last.
    fed: u32,
    fed_at: u64,
    /// Why a reset was asked for, if one was.
    reset: Option<u32>,
    /// What the CRC engine was asked for: which CRC, and of what.
    crcs: Vec<(CrcAlgorithm, Vec<u8>)>,
}

impl Soc {
    fn new(flash: Nor) -> Self {
        let registers = MAP.iter().map(|info| (info.address, (info.path, info.reset))).collect();
        let capabilities = Capabilities::from_bits(0)
            .with_host_role(true)
            .with_box_role(true)
            .with_slots(Bits::new(16).expect("16"))
            .with_ports(Bits::new(1).expect("1"))
            .with_i2c_buses(Bits::new(2).expect("2"))
            .with_queue_order(Bits::new(8).expect("8"))
            .with_max_payload(PayloadSize::Bytes4096);
        let mut soc = Self {
            ram: vec![0; RAM.len as usize],
            shared: vec![0; SHARED.len as usize],
            registers,
            flash: SpiNor::new(flash),
            received: VecDeque::new(),
            eeprom: Eeprom::default(),
            console: Vec::new(),
            ticks: 0,
            alarm: u64::MAX,
            pending: 0,
            enabled: 0,
            fed: 0,
            fed_at: 0,
            reset: None,
            crcs: Vec::new(),
        };
        for (path, value) in [
            ("id.board[0]", u32::from_le_bytes(*b"lite")),
            ("id.board[1]", u32::from(b'x')),
            ("id.capabilities", capabilities.bits()),
            ("id.clock", 100_000_000),
            ("gpio.input", 1 << MODULE_ABSENT),
        ] {
            *soc.register(path) = value;
        }
        soc
    }

    fn nanos(&self) -> u64 {
        self.ticks * TICK
    }

    /// What a register holds.
    fn register(&mut self, path: &str) -> &mut u32 {
        let mut found = self.registers.values_mut().filter(|(name, _)| *name == path);
        &mut found.next().expect(path).1
    }

    /// Whether the core's external interrupt is asserted.
    fn interrupts(&mut self) -> Interrupts {
        if self.nanos() >= self.alarm {
            self.alarm = u64::MAX;
            self.pending |= Pending::from_bits(0).with_timer(true).bits();
        }
        let external = self.pending & self.enabled != 0;
        Interrupts { external, ..Interrupts::default() }
    }

    fn read_register(&mut self, address: u32) -> Result<u32, AccessFault> {
        let (name, value) = *self.registers.get(&address).ok_or(AccessFault)?;
        Ok(match name {
            "timer.low" => {
                *self.register("timer.high") = (self.nanos() >> 32) as u32;
                self.nanos() as u32
            }
            "irq.pending" => self.pending,
            "spi.status" => 16 | (self.received.len() as u32) << 8,
            "spi.receive" => self.received.pop_front().map_or(0, |byte| u32::from(byte) | 1 << 8),
            _ => value,
        })
    }

    fn write_register(&mut self, address: u32, value: u32) -> Result<(), AccessFault> {
        let (name, before) = *self.registers.get(&address).ok_or(AccessFault)?;
        self.registers.insert(address, (name, value));
        match name {
            "irq.pending" => self.pending &= !value,
            "irq.enable" => self.enabled = value,
            "uart.transmit" => self.console.push(value as u8),
            "timer.alarm_high" => {
                self.alarm = u64::from(value) << 32 | u64::from(*self.register("timer.alarm_low"));
            }
            "watchdog.feed" if value == FOOD => {
                self.fed += 1;
                self.fed_at = self.nanos();
            }
            "crc.start" => self.compute(Start::from_bits(value)),
            "reset.request" => self.reset = Some(value),
            // Chip select 0.
            "spi.control" => match (before >> 8 & 1, value >> 8 & 1) {
                (0, 1) => self.flash.select(),
                (1, 0) => self.flash.deselect(),
                _ => {}
            },
            "spi.transmit" => {
                let byte = self.flash.exchange(value as u8);
                self.received.push_back(byte);
            }
            "i2c[0].command" => {
                *self.register("i2c[0].status") = self.eeprom.carry_out(value);
            }
            "mac[0].transmit.tail" => self.throw_away(before, value),
            // A queue runs while it is enabled, and never fails.
            _ => {
                if let Some(path) = name.strip_suffix(".control").filter(|path| is_queue(path)) {
                    *self.register(&format!("{path}.status")) = value & 1;
                } else if name.ends_with(".error") {
                    // What is written as 1 is cleared.
                    self.registers.insert(address, (name, before & !value));
                }
            }
        }
        Ok(())
    }

    /// What the port is given to send, from one position of its ring to another: it sends nothing, since
    /// its link is down, and says so.
    fn throw_away(&mut self, from: u32, to: u32) {
        let (base, order) =
            (*self.register("mac[0].transmit.base"), *self.register("mac[0].transmit.size"));
        for position in from..to {
            let status = base + 16 * (position & ((1 << order) - 1)) + 8;
            let done = FrameStatus::from_bits(0).with_aborted(true).bits();
            let word = self.memory(status, 4).expect("a ring is in memory");
            word.copy_from_slice(&done.to_le_bytes());
        }
        *self.register("mac[0].transmit.head") = to;
    }

    /// The CRC engine's answer, which is there at once.
    fn compute(&mut self, start: Start) {
        let polynomial: u32 = match start.algorithm() {
            CrcAlgorithm::Crc32c => 0x82f6_3b78,
            _ => 0xedb8_8320,
        };
        let before = if start.continued() { *self.register("crc.seed") } else { 0 };
        let source = *self.register("crc.source");
        let bytes =
            self.memory(source, start.length().into()).expect("a range is in memory").to_vec();
        let register = bytes.iter().fold(!before, |register, byte| {
            (0..8).fold(register ^ u32::from(*byte), |register, _| {
                register >> 1 ^ if register & 1 == 1 { polynomial } else { 0 }
            })
        });
        *self.register("crc.result") = !register;
        self.crcs.push((start.algorithm(), bytes));
    }

    /// A frame of the fabric comes from the network.
    fn comes(&mut self, frame: &[u8]) {
        let [base, order, head] = ["base", "size", "head"]
            .map(|name| *self.register(&format!("mac[0].receive_fabric.{name}")));
        let descriptor = base + 16 * (head & ((1 << order) - 1));
        let word = |soc: &mut Self, at| soc.read(descriptor + at, Width::Word).expect("a ring");
        let (buffer, lengths) = (word(self, 0), word(self, 4));
        assert!(frame.len() <= (lengths >> 16) as usize, "the buffer has room");
        let room = self.memory(buffer, frame.len() as u32).expect("a buffer is in memory");
        room.copy_from_slice(frame);
        let status = FrameStatus::from_bits(0).with_offset(14).with_fabric(true);
        for (at, value) in [(4, lengths & !0xffff | frame.len() as u32), (8, status.bits())] {
            self.write(descriptor + at, Width::Word, value).expect("a ring is in memory");
        }
        *self.register("mac[0].receive_fabric.head") = head + 1;
        self.pending |= Pending::from_bits(0).with_mac0_fabric(true).bits();
    }

    /// Memory from an address on, if there is enough.
    fn memory(&mut self, address: u32, length: u32) -> Option<&mut [u8]> {
        for (region, bytes) in [(RAM, &mut self.ram), (SHARED, &mut self.shared)] {
            if let Some(offset) = address.checked_sub(region.start)
                && offset < region.len
            {
                return bytes.get_mut(offset as usize..(offset + length) as usize);
            }
        }
        None
    }
}

impl Bus for Soc {
    fn read(&mut self, address: u32, width: Width) -> Result<u32, AccessFault> {
        if let Some(bytes) = self.memory(address, width.bytes()) {
            return Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        }
        let offset = address.checked_sub(REGISTERS as u32).ok_or(AccessFault)?;
        if width == Width::Word { self.read_register(offset) } else { Err(AccessFault) }
    }

    fn write(&mut self, address: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        if let Some(bytes) = self.memory(address, width.bytes()) {
            bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
            return Ok(());
        }
        let offset = address.checked_sub(REGISTERS as u32).ok_or(AccessFault)?;
        if width == Width::Word { self.write_register(offset, value) } else { Err(AccessFault) }
    }
}

/// The SoC with an image in its main memory, where LiteX's own loader puts it.
struct Card {
    hart: Hart,
    soc: Soc,
    program: Program,
    /// Where the image sets the mask of interrupts, which the simulator's core has not.
    masks: Vec<u32>,
}

impl Card {
    /// One with firmware of this name, and settings in its flash.
    fn new(bench: &Bench, name: &str, settings: &str) -> Result<Self> {
        let mut flash: Direct<1, 4096> = Direct(Nor::new(Part::W25Q128, 1));
        soc::settings::store(&mut flash, LAYOUT.config(), settings)?;
        let image = std::fs::read(bench.firmware.join(format!("{name}.img")))?;
        let program = Program::new(std::fs::read(bench.firmware.join(name))?);
        let header = Header::parse(&image)?;
        let payload = &image[image.len() - header.payload_len as usize..];
        let mut soc = Soc::new(flash.0);
        let place = soc.memory(header.load, header.payload_len).context("it fits the memory")?;
        place.copy_from_slice(payload);
        let words = payload.windows(4).zip(header.load..).step_by(2);
        let masks = words.filter(|(word, _)| {
            let word = u32::from_le_bytes((*word).try_into().expect("four bytes"));
            word & MASK.0 == MASK.1
        });
        let masks: Vec<u32> = masks.map(|(_, address)| address).collect();
        ensure!(masks.len() == 1, "the mask is set at {masks:#x?}");
        Ok(Self { hart: Hart::new(header.entry), soc, program, masks })
    }

    /// Lets the core do one thing, or time pass in which it waits.
    fn step(&mut self) -> Result<()> {
        self.hart.set_interrupts(self.soc.interrupts());
        let pc = self.hart.pc();
        if self.masks.contains(&pc) {
            self.hart.set_pc(pc + 4);
        } else if self.hart.step(&mut self.soc) == Step::Waiting {
            let until = self.soc.alarm.div_ceil(TICK);
            ensure!(until > self.soc.ticks, "an alarm that is over wakes the core");
            ensure!(until < u64::MAX / TICK, "the core waits for ever: {:#?}", self.log()?);
            self.soc.ticks = until;
        }
        self.soc.ticks += 1;
        let waited = self.soc.nanos() - self.soc.fed_at;
        ensure!(self.soc.fed == 0 || waited < PATIENCE, "the watchdog bites: {:#?}", self.log()?);
        Ok(())
    }

    /// What it has logged.
    fn log(&self) -> Result<Vec<String>> {
        self.program.log(&self.soc.console)
    }

    /// Runs until the loop has begun to feed the watchdog, and then on; the log.
    fn live(&mut self) -> Result<Vec<String>> {
        while self.soc.fed < 3 {
            self.step()?;
            let well = self.soc.nanos() < BOUND && self.soc.reset.is_none();
            ensure!(well, "it does not start: {:#?}", self.log()?);
        }
        let (began, fed) = (self.soc.nanos(), self.soc.fed);
        while self.soc.nanos() < began + LIFE && self.soc.reset.is_none() {
            self.step()?;
        }
        ensure!(self.soc.reset.is_none(), "it resets itself: {:#?}", self.log()?);
        // The loop sleeps for a tenth of a second at most, and does sleep.
        let turns = self.soc.fed - fed;
        ensure!((200..2000).contains(&turns), "{turns} turns in 20 s: {:#?}", self.log()?);
        self.log()
    }
}

/// What the next life would say of the end of this one.
fn left_behind(card: &mut Card) -> ResetReport {
    let kept = card.soc.memory(RETAINED, reset::RETAINED as u32).expect("it is in memory");
    let mut kept: [u8; reset::RETAINED] = kept.try_into().expect("as many");
    reset::begin(&mut kept, None);
    reset::report(&kept).expect("a life was begun")
}

#[test]
fn what_ends_a_life_is_written_down_though_the_console_stands_still() {
    let Some(bench) = Bench::new() else { return };
    let settings = "name = card-1\nmanager = 10.0.2.2:7781\n";
    let mut card = Card::new(&bench, "litex-box", settings).unwrap();
    while card.soc.fed < 3 {
        card.step().unwrap();
    }
    assert_eq!(left_behind(&mut card).cause, ResetCause::Pin, "nobody wrote anything down");
    // The watchdog warns, and so soon resets the core.
    *card.soc.register("uart.status") = 0;
    card.soc.pending |= Pending::from_bits(0).with_watchdog(true).bits();
    let until = card.soc.nanos() + WARNING;
    while card.soc.nanos() < until && card.soc.reset.is_none() {
        card.step().unwrap();
    }
    let report = left_behind(&mut card);
    assert_eq!(report.cause, ResetCause::Watchdog, "{report:?}");
    assert!(report.text.contains("no progress") && report.place != 0, "{report:?}");
}

/// Bytes of memory, and of the packet pool, as the log has them.
fn memory(log: &[String]) -> Result<(u64, u64)> {
    let line = log.iter().find(|line| line.contains("up, with")).context("it came up")?;
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    Ok((numbers.next().context("bytes")?, numbers.next().context("bytes of the pool")?))
}

#[test]
fn the_firmware_for_litex_starts_and_a_box_with_sixteen_slots_has_memory_enough() {
    let Some(bench) = Bench::new() else { return };
    for (name, places) in [("litex-box", 16), ("litex-box", 4), ("litex-host", 4)] {
        let settings = format!("name = card-1\nmanager = 10.0.2.2:7781\nplaces = {places}\n");
        let log = Card::new(&bench, name, &settings).and_then(|mut card| card.live()).unwrap();
        let (memory, pool) = memory(&log).unwrap();
        println!(
            "FIGURE: {name} with {places} places: {memory} of {MEMORY} B, packet pool {pool} of \
             {PACKET_POOL} B"
        );
        assert!(memory <= MEMORY, "{name}: {memory} of {MEMORY} B: {log:#?}");
        assert!(pool <= PACKET_POOL, "{name}: {pool} of {PACKET_POOL} B: {log:#?}");
        assert!(log.iter().any(|line| line.contains("no network module")), "{log:#?}");
        assert!(!log.iter().any(|line| line.contains("a reset follows")), "{log:#?}");
    }
}

#[test]
fn firmware_for_litex_that_cannot_start_says_why_and_waits_for_a_person() {
    let Some(bench) = Bench::new() else { return };
    for name in ["litex-box", "litex-host"] {
        let mut card = Card::new(&bench, name, "name = card-1\nmanager = here:7781\n").unwrap();
        while card.soc.nanos() < LIFE {
            card.step().unwrap();
            assert_eq!(card.soc.reset, None, "{:#?}", card.log().unwrap());
        }
        let log = card.log().unwrap();
        assert_eq!(
            log,
            ["settings: line 2: its key does not have such a value", "the card waits for a reset"]
        );
        // A hang would have been one from before the settings were read.
        assert!(card.soc.fed > 3, "{name}: the watchdog was fed {} times", card.soc.fed);
    }
}

/// A frame that is right, to this card.
fn frame() -> Vec<u8> {
    let header = FrameHeader {
        kind: FrameKind::Probe,
        destination: NodeId::new(1).unwrap(),
        source: NodeId::new(2).unwrap(),
        source_incarnation: 7,
        destination_incarnation: Some(9),
        session: 1,
        path: PathId::new(0).unwrap(),
        packet: 0,
        sequence: 0,
        ack: None,
    };
    let mut bytes = vec![0; 14 + 200];
    bytes[..6].copy_from_slice(&ADDRESS);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    bytes[12..14].copy_from_slice(&tlp_codec::fabric::ETHERTYPE.to_be_bytes());
    let mut writer = FrameWriter::new(&mut bytes[14..], &header).unwrap();
    writer.pad(200);
    assert_eq!(writer.finish(), 200);
    bytes
}

#[test]
fn the_crc_of_a_frame_is_the_engines_where_the_gateware_has_one() {
    let Some(bench) = Bench::new() else { return };
    for has_engine in [true, false] {
        let settings = "name = card-1\nmanager = 10.0.2.2:7781\n";
        let mut card = Card::new(&bench, "litex-host", settings).unwrap();
        let capabilities = card.soc.register("id.capabilities");
        let has = Capabilities::from_bits(*capabilities).with_crc_engine(has_engine);
        *capabilities = has.bits();
        while card.soc.fed < 3 {
            card.step().unwrap();
        }
        let frame = frame();
        card.soc.comes(&frame);
        let fed = card.soc.fed;
        while card.soc.fed < fed + 3 {
            card.step().unwrap();
        }
        // All of it but Ethernet's header and the CRC itself.
        let covered = frame[14..frame.len() - 4].to_vec();
        let asked = has_engine.then_some((CrcAlgorithm::Crc32c, covered));
        assert_eq!(card.soc.crcs, Vec::from_iter(asked));
        let carried = u32::from_le_bytes(*frame.last_chunk().unwrap());
        assert_eq!(*card.soc.register("crc.result"), if has_engine { carried } else { 0 });
    }
}
