//! A model of the SoC of the board `litex`: its memory, and as much of the card's blocks
//! (`hw/regs/card.md`) as a start needs, with nothing at either side.

use board_litex::layout::{
    BOOT_MEMORY, EUI_48, IDENTITY, MEMORY, MODULE_ABSENT, REGISTERS, SHARED,
};
use card_image::Region;
use card_regs::crc::Start;
use card_regs::frame_descriptor::Status as FrameStatus;
use card_regs::id::Capabilities;
use card_regs::irq::Pending;
use card_regs::values::{CrcAlgorithm, PayloadSize};
use card_regs::{Bits, REGISTERS as MAP};
use nor_model::{Nor, SpiNor};
use sim_card::iss::{AccessFault, Bus, Interrupts, Width};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Main memory: what images have, and behind it what the boot loader has.
const RAM: Region = Region { start: MEMORY.start, len: MEMORY.len + BOOT_MEMORY.len };

/// Nanoseconds of an instruction.
pub(super) const TICK: u64 = 10;

/// The key of a request for a reset (`reset_control.request`).
const RESET_KEY: u32 = 0xd0ff;

/// The watchdog's as a cause of a reset (`reset_control.status`).
pub(super) const BY_WATCHDOG: u32 = 2;

/// What the watchdog is fed with.
const FOOD: u32 = 0xfeed_d09d;

/// The card's address, as its EEPROM has it.
pub(super) const ADDRESS: [u8; 6] = [0x00, 0x04, 0xa3, 1, 2, 3];

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
pub(super) struct Soc {
    ram: Vec<u8>,
    shared: Vec<u8>,
    /// Registers by address: their names, and what they hold.
    registers: BTreeMap<u32, (&'static str, u32)>,
    pub(super) flash: SpiNor,
    /// When the flash was told last how late it is.
    flash_at: u64,
    received: VecDeque<u8>,
    eeprom: Eeprom,
    pub(super) console: Vec<u8>,
    pub(super) ticks: u64,
    pub(super) alarm: u64,
    /// Sources of interrupts.
    pub(super) pending: u32,
    enabled: u32,
    /// Times that the watchdog was fed, and when it was at last.
    pub(super) fed: u32,
    fed_at: u64,
    /// It has warned since.
    warned: bool,
    /// Why a reset was asked for, if one was (`reset_control.status.cause`).
    pub(super) reset: Option<u32>,
    /// What the CRC engine was asked for: which CRC, and of what.
    pub(super) crcs: Vec<(CrcAlgorithm, Vec<u8>)>,
}

impl Soc {
    /// As it is after power came on, with this flash.
    pub(super) fn new(flash: Nor) -> Self {
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
            flash_at: 0,
            received: VecDeque::new(),
            eeprom: Eeprom::default(),
            console: Vec::new(),
            ticks: 0,
            alarm: u64::MAX,
            pending: 0,
            enabled: 0,
            fed: 0,
            fed_at: 0,
            warned: false,
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

    pub(super) fn nanos(&self) -> u64 {
        self.ticks * TICK
    }

    /// Resets all but memory and flash, for this cause; what the console had stays.
    pub(super) fn start_anew(&mut self, cause: u32) {
        let new = Self::new(Nor::new(*self.flash.nor.part(), 1));
        let (ram, shared) = (std::mem::take(&mut self.ram), std::mem::take(&mut self.shared));
        let (flash, console) = (self.flash.clone(), std::mem::take(&mut self.console));
        *self = Self { ram, shared, flash, console, ..new };
        *self.register("reset.status") = cause;
    }

    /// The watchdog counts, once it was enabled: it warns, and then it resets.
    pub(super) fn watch(&mut self) {
        if *self.register("watchdog.control") & 1 == 0 {
            return;
        }
        let waited = (self.nanos() - self.fed_at) / 1000;
        let (period, warning) =
            (*self.register("watchdog.period"), *self.register("watchdog.warning"));
        if waited >= u64::from(period) {
            self.reset = Some(BY_WATCHDOG);
        } else if waited >= u64::from(period - warning) && !self.warned {
            self.warned = true;
            self.pending |= Pending::from_bits(0).with_watchdog(true).bits();
        }
    }

    /// When the watchdog has something to do, in ticks.
    pub(super) fn watch_at(&mut self) -> u64 {
        if *self.register("watchdog.control") & 1 == 0 {
            return u64::MAX;
        }
        let warning = if self.warned { 0 } else { *self.register("watchdog.warning") };
        let waits = u64::from(*self.register("watchdog.period") - warning) * 1000;
        (self.fed_at + waits).div_ceil(TICK)
    }

    /// What a register holds.
    pub(super) fn register(&mut self, path: &str) -> &mut u32 {
        let mut found = self.registers.values_mut().filter(|(name, _)| *name == path);
        &mut found.next().expect(path).1
    }

    /// Whether the core's external interrupt is asserted.
    pub(super) fn interrupts(&mut self) -> Interrupts {
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
                self.warned = false;
            }
            "crc.start" => self.compute(Start::from_bits(value)),
            "watchdog.control" => {
                // Only a reset takes a bit back.
                self.registers.insert(address, (name, before | value));
            }
            "watchdog.period" | "watchdog.warning"
                if *self.register("watchdog.control") & 2 != 0 =>
            {
                self.registers.insert(address, (name, before));
            }
            "reset.request" if value >> 16 == RESET_KEY => {
                self.reset = Some(value & 7);
            }
            // Chip select 0.
            "spi.control" => match (before >> 8 & 1, value >> 8 & 1) {
                (0, 1) => self.flash.select(),
                (1, 0) => self.flash.deselect(),
                _ => {}
            },
            "spi.transmit" => {
                let passed = self.nanos() - self.flash_at;
                self.flash_at = self.nanos();
                self.flash.nor.advance(Duration::from_nanos(passed));
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
    pub(super) fn comes(&mut self, frame: &[u8]) {
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
    pub(super) fn memory(&mut self, address: u32, length: u32) -> Option<&mut [u8]> {
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
