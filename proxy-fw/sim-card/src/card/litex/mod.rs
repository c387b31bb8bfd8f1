//! The card as a LiteX SoC with a VexRiscv core and the card's own blocks (`hw/regs/card.md`): its
//! memory, its SPI flash, and as much of the blocks as a start needs, with nothing at either side. Where
//! things are is what the firmware of the board `litex` is built for.
//!
//! The core's first instruction is LiteX's BIOS's, which is played.

mod bios;
mod eeprom;
mod part;
mod registers;
mod watchdog;

pub use eeprom::{ADDRESS, EUI_48, IDENTITY};
pub use part::PART;

use std::ops::Range;

use card_regs::frame_descriptor::Status as FrameStatus;
use card_regs::irq::Pending;
use card_regs::values::{CrcAlgorithm, ResetCause};

use self::eeprom::Eeprom;
use self::part::Flash;
use self::registers::Registers;
use self::watchdog::{Bite, Watchdog};
use super::TICK_NANOS;
use super::spi::Spi;
use crate::debug::TunnelParts;
use crate::iss::{AccessFault, Bus, Interrupts, Width};

/// Where the core begins: ROM with LiteX's BIOS.
pub const ROM_BASE: u32 = 0;
/// Main memory: that of images, and behind it the boot loader's.
pub const RAM_BASE: u32 = 0x4000_0000;
/// Bytes of main memory.
pub const RAM_SIZE: u32 = 8 << 20;
/// Block RAM that the card's blocks reach, too.
pub const SHARED_BASE: u32 = 0x9000_0000;
/// Bytes of it.
pub const SHARED_SIZE: u32 = 256 << 10;
/// The window through which the flash is read. LiteX caches nothing from 0x80000000 on.
pub const WINDOW_BASE: u32 = 0xa000_0000;
/// The card's registers.
pub const REGISTERS_BASE: u32 = 0xf001_0000;
/// The pin of the network module's cage that is high while no module is in it.
pub const MODULE_ABSENT: u8 = 16;

/// IDCODE of the FPGA that it is in, of which only a test access port is modelled.
pub const IDCODE: u32 = crate::debug::idcode(0xdc6d);
/// The way to its core: as of an FPGA of AMD's 7 series, with the core at USER4.
pub const TUNNEL: TunnelParts = TunnelParts { ir_length: 6, instruction: 0x23, ir_width: 5 };

/// Where in the registers the SPI block is.
const SPI: Range<u32> = 0x700..0x700 + card_regs::spi::SIZE;

const RAM_LAST: u32 = RAM_BASE + RAM_SIZE - 1;
const SHARED_LAST: u32 = SHARED_BASE + SHARED_SIZE - 1;
const WINDOW_LAST: u32 = WINDOW_BASE + PART.size - 1;

/// All but the core.
#[derive(Debug)]
pub struct Litex {
    ram: Vec<u8>,
    /// Main memory works: the BIOS, or a loader in its place, has set its controller up since the reset.
    ram_is_set_up: bool,
    shared: Vec<u8>,
    rom: [u32; 2],
    registers: Registers,
    spi: Spi,
    flash: Flash,
    eeprom: Eeprom,
    watchdog: Watchdog,
    console: Vec<u8>,
    /// Since power came on, and when the last reset was.
    ticks: u64,
    began: u64,
    /// When the timer's interrupt is, in nanoseconds since the reset.
    alarm: u64,
    /// What `timer.high` shows since `timer.low` was read.
    timer_high: u32,
    /// Sources of interrupts (`irq.pending`).
    pending: u32,
    enabled: u32,
    /// A register was accessed: the interrupt may be another.
    touched: bool,
    /// When one of the blocks has something to do, in ticks.
    due: u64,
    /// A reset is wanted, for this cause (`reset_control.status.cause`).
    wanted: Option<u32>,
    crcs: Vec<(CrcAlgorithm, Vec<u8>)>,
}

impl Litex {
    pub(super) fn new() -> Self {
        let mut registers = registers::after_reset();
        set_cause(&mut registers, ResetCause::Power.bits(), 0);
        Self {
            ram: vec![0; RAM_SIZE as usize],
            ram_is_set_up: false,
            shared: vec![0; SHARED_SIZE as usize],
            rom: bios::WAIT,
            registers,
            spi: Spi::new(WINDOW_BASE, PART.size),
            flash: Flash::new(),
            eeprom: Eeprom::default(),
            watchdog: Watchdog::new(0),
            console: Vec::new(),
            ticks: 0,
            began: 0,
            alarm: u64::MAX,
            timer_high: 0,
            pending: 0,
            enabled: 0,
            touched: true,
            due: u64::MAX,
            wanted: None,
            crcs: Vec::new(),
        }
    }

    /// Times that the watchdog was fed since the last reset.
    #[must_use]
    pub fn fed(&self) -> u32 {
        self.watchdog.fed
    }

    /// What the CRC engine was asked for since the last reset: which CRC, and of what.
    #[must_use]
    pub fn crcs(&self) -> &[(CrcAlgorithm, Vec<u8>)] {
        &self.crcs
    }

    /// A block raises its interrupt.
    pub fn raise(&mut self, sources: Pending) {
        self.pending |= sources.bits();
        self.touched = true;
    }

    /// Main memory is set up, as the BIOS does it.
    pub(super) fn set_up_ram(&mut self) {
        self.ram_is_set_up = true;
    }

    /// Memory from an address on as the core and a debugger find it, if there is enough.
    fn reachable(&mut self, address: u32, length: u32) -> Option<&mut [u8]> {
        let in_ram = (RAM_BASE..=RAM_LAST).contains(&address);
        if in_ram && !self.ram_is_set_up { None } else { self.memory(address, length) }
    }

    /// Memory from an address on, if there is enough; what is in it, whether it works or not.
    pub fn memory(&mut self, address: u32, length: u32) -> Option<&mut [u8]> {
        let (start, bytes) = match address {
            RAM_BASE..=RAM_LAST => (RAM_BASE, &mut self.ram),
            SHARED_BASE..=SHARED_LAST => (SHARED_BASE, &mut self.shared),
            _ => return None,
        };
        let offset = (address - start) as usize;
        bytes.get_mut(offset..offset.checked_add(length as usize)?)
    }

    /// A frame of the fabric comes from the network.
    ///
    /// # Panics
    ///
    /// When firmware has no buffer for it.
    pub fn comes(&mut self, frame: &[u8]) {
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
        self.raise(Pending::from_bits(0).with_mac0_fabric(true));
    }

    pub(super) fn nor(&mut self) -> &mut nor_model::Nor {
        self.flash.nor(self.ticks)
    }

    pub(super) fn take_console(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.console)
    }

    pub(super) fn ticks(&self) -> u64 {
        self.ticks
    }

    #[inline]
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
    }

    pub(super) fn pass_until(&mut self, ticks: u64) {
        self.ticks = self.ticks.max(ticks);
    }

    /// The same, with the core halted by a debugger.
    pub(super) fn pass_halted_until(&mut self, ticks: u64) {
        self.watchdog.stand_still(ticks.saturating_sub(self.ticks));
        self.touched = true;
        self.pass_until(ticks);
    }

    pub(super) fn due(&self) -> u64 {
        self.due
    }

    #[inline]
    pub(super) fn needs_attention(&self) -> bool {
        self.touched || self.ticks >= self.due
    }

    /// The line to the core, as it is until the next time that attention is needed.
    pub(super) fn interrupts(&mut self) -> Interrupts {
        self.touched = false;
        match self.watchdog.look(self.ticks) {
            Some(Bite::Warns) => {
                self.pending |= Pending::from_bits(0).with_watchdog(true).bits();
            }
            Some(Bite::Resets) => self.bitten(),
            None => {}
        }
        if self.nanos() >= self.alarm {
            self.alarm = u64::MAX;
            self.pending |= Pending::from_bits(0).with_timer(true).bits();
        }
        let alarm = self.alarm.div_ceil(TICK_NANOS).saturating_add(self.began);
        self.due = alarm.min(self.watchdog.due());
        Interrupts { external: self.pending & self.enabled != 0, ..Interrupts::default() }
    }

    pub(super) fn wants_reset(&self) -> bool {
        self.wanted.is_some()
    }

    /// Resets all but memory and what is in the flash: for what a block has wanted it, or else for this.
    pub(super) fn restart(&mut self, cause: ResetCause) {
        let cause = self.wanted.unwrap_or(cause.bits());
        let count = (*self.register("reset.status") >> 8 & 0xff).min(254) + 1;
        let mut registers = registers::after_reset();
        let kept = self.registers.iter().filter(|(_, (name, _))| name.starts_with("reset.scratch"));
        registers.extend(kept);
        set_cause(&mut registers, cause, count);
        self.flash.reset(self.ticks);
        *self = Self {
            ram: std::mem::take(&mut self.ram),
            shared: std::mem::take(&mut self.shared),
            flash: std::mem::replace(&mut self.flash, Flash::new()),
            console: std::mem::take(&mut self.console),
            registers,
            watchdog: Watchdog::new(self.ticks),
            ticks: self.ticks,
            began: self.ticks,
            ..Self::new()
        };
    }

    /// Nanoseconds since the reset, as the timer block has them.
    fn nanos(&self) -> u64 {
        (self.ticks - self.began) * TICK_NANOS
    }

    fn reset_for(&mut self, cause: u32) {
        self.wanted = Some(cause);
    }

    fn bitten(&mut self) {
        self.reset_for(ResetCause::Watchdog.bits());
    }

    /// The BIOS runs: it sets up main memory, puts what it starts there, and the ROM goes on with that.
    fn play_bios(&mut self) {
        self.set_up_ram();
        let program = bios::program(self.flash.nor(self.ticks).cells());
        let place = program.and_then(|program| self.ram.get_mut(..program.len()));
        self.rom = match (program, place) {
            (Some(program), Some(place)) => {
                place.copy_from_slice(program);
                bios::enter(RAM_BASE)
            }
            _ => bios::WAIT,
        };
    }

    fn read_word(&mut self, at: u32) -> Result<u32, AccessFault> {
        match at {
            ROM_BASE..=7 => Ok(self.rom[(at / 4) as usize]),
            WINDOW_BASE..=WINDOW_LAST if self.spi.window_is_open() => {
                let bytes =
                    [0, 1, 2, 3].map(|byte| self.flash.byte(at - WINDOW_BASE + byte, self.ticks));
                Ok(u32::from_le_bytes(bytes))
            }
            _ => Err(AccessFault),
        }
    }
}

/// `reset_control.status`.
fn set_cause(registers: &mut Registers, cause: u32, count: u32) {
    let mut found = registers.values_mut().filter(|(name, _)| *name == "reset.status");
    found.next().expect("the map has it").1 = count << 8 | cause;
}

impl Bus for Litex {
    fn read(&mut self, at: u32, width: Width) -> Result<u32, AccessFault> {
        if let Some(bytes) = self.reachable(at, width.bytes()) {
            return Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        }
        self.touched = true;
        match at.checked_sub(REGISTERS_BASE) {
            Some(offset) if width == Width::Word => self.read_register(offset),
            Some(_) => Err(AccessFault),
            None => super::lanes(at, width, |at| self.read_word(at)),
        }
    }

    fn write(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        if let Some(bytes) = self.reachable(at, width.bytes()) {
            bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
            return Ok(());
        }
        self.touched = true;
        let offset = at.checked_sub(REGISTERS_BASE).ok_or(AccessFault)?;
        if width == Width::Word { self.write_register(offset, value) } else { Err(AccessFault) }
    }

    /// From both memories and the ROM.
    fn fetch(&mut self, at: u32) -> Result<u16, AccessFault> {
        let start = at.wrapping_sub(RAM_BASE) as usize;
        if let Some(half) = self.ram.get(start..).and_then(|bytes| bytes.first_chunk()) {
            return if self.ram_is_set_up {
                Ok(u16::from_le_bytes(*half))
            } else {
                Err(AccessFault)
            };
        }
        if at > 7 && !(SHARED_BASE..=SHARED_LAST).contains(&at) {
            return Err(AccessFault);
        }
        if at == ROM_BASE {
            self.play_bios();
        }
        self.read(at, Width::Half).map(|half| half as u16)
    }
}

#[cfg(test)]
mod tests;
