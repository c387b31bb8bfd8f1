//! The card: core, memory, devices and JTAG port, and how time passes for them.

mod board;
mod clint;
mod flash;
pub mod litex;
mod plic;
mod spi;
mod uart;
mod virt;
mod virtio;

pub use board::Board;
pub use flash::{BANKS, FLASH_PART};
pub use uart::OUTPUT_LIMIT as UART_OUTPUT_LIMIT;
pub use virt::{
    CLINT_BASE, FINISHER_BASE, FLASH_BANK, FLASH_BASE, PLIC_BASE, RAM_BASE, RAM_SIZE, SPI_BASE,
    UART_BASE, VIRTIO_BASE, Virt,
};

use crate::debug::{Jtag, OtherTap, Place, System, TunnelParts};
use crate::iss::{AccessFault, Bus, Hart, Step, Width};

/// Nanoseconds of a tick, which is an instruction: the core runs at 100 MHz.
pub const TICK_NANOS: u64 = 10;
/// Ticks of a clock of the JTAG port: it is clocked at 10 MHz.
pub const TICKS_PER_TCK: u64 = 10;

/// What firmware told the test finisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// All is well.
    Pass,
    /// It is not.
    Fail(u16),
}

/// What became of the time that a card was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The core was at work when the time was over.
    Busy,
    /// It waited for an interrupt, or was halted or held in reset.
    Idle,
    /// Firmware used the test finisher: nothing runs any more.
    Finished(Finish),
}

/// A card.
#[derive(Debug)]
pub struct Card {
    /// The core.
    pub hart: Hart,
    /// Memory and devices.
    pub board: Board,
    jtag: Jtag,
    /// Further ports on the chain, before and behind the card's own.
    before: Option<OtherTap>,
    after: Option<OtherTap>,
    tck: bool,
    resets: u64,
}

impl Default for Card {
    fn default() -> Self {
        Self::new()
    }
}

impl Card {
    /// A card as QEMU's machine `virt`, with empty flash, at the first instruction after power came on.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Board::virt())
    }

    /// The same as a LiteX SoC, whose core is behind the JTAG port of an FPGA.
    #[must_use]
    pub fn litex() -> Self {
        Self::of(Board::litex())
    }

    fn of(board: Board) -> Self {
        Self {
            hart: board.hart(),
            jtag: board.jtag(),
            board,
            before: None,
            after: None,
            tck: false,
            resets: 0,
        }
    }

    /// Puts a network interface with an Ethernet address into one of the eight places for virtio devices
    /// of QEMU's machine.
    ///
    /// # Panics
    ///
    /// When there is no such place, or on a LiteX SoC.
    #[must_use]
    pub fn with_interface(mut self, place: usize, address: [u8; 6]) -> Self {
        let Board::Virt(board) = &mut self.board else { panic!("a LiteX SoC has no virtio") };
        board.plug(place, address);
        self
    }

    /// Puts a further port on the JTAG chain, with so many bits of instruction register.
    ///
    /// # Panics
    ///
    /// When they are not of [`IR_LENGTHS`](crate::debug::IR_LENGTHS).
    #[must_use]
    pub fn with_tap(mut self, place: Place, ir_length: u32) -> Self {
        let tap = Some(OtherTap::new(place, ir_length));
        match place {
            Place::Before => self.before = tap,
            Place::After => self.after = tap,
        }
        self
    }

    /// Puts the core's debug transport behind a tunnel: the card's JTAG port is an FPGA's then.
    ///
    /// # Panics
    ///
    /// When there can be no such tunnel ([`TunnelParts::check`]).
    #[must_use]
    pub fn with_tunnel(mut self, parts: TunnelParts) -> Self {
        self.jtag.set_tunnel(parts);
        self
    }

    /// Resets all but the debug module and what is in the flash, as the reset button does.
    pub fn reset(&mut self) {
        self.board.restart();
        self.hart.reset(self.board.reset_vector());
        self.jtag.module.note_reset(&mut self.hart);
        self.resets += 1;
    }

    /// Resets that came from the button or from firmware.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Puts bytes into memory, as a loader of the emulator does, for which main memory works at once.
    ///
    /// # Errors
    ///
    /// [`AccessFault`] when there is no RAM for all of them.
    pub fn load(&mut self, at: u32, bytes: &[u8]) -> Result<(), AccessFault> {
        let length = u32::try_from(bytes.len()).map_err(|_| AccessFault)?;
        let (base, size) = self.board.ram();
        let start = at.checked_sub(base).ok_or(AccessFault)?;
        if start > size || length > size - start {
            return Err(AccessFault);
        }
        if let Board::Litex(soc) = &mut self.board {
            soc.set_up_ram();
        }
        (at..)
            .zip(bytes)
            .try_for_each(|(at, byte)| self.board.write(at, Width::Byte, u32::from(*byte)))
    }

    /// Lets so many ticks pass.
    pub fn run(&mut self, ticks: u64) -> Ran {
        let end = self.board.ticks() + ticks;
        while self.board.ticks() < end {
            if self.board.needs_attention() {
                self.hart.set_interrupts(self.board.interrupts());
                if let Some(finish) = self.board.finished() {
                    return Ran::Finished(finish);
                }
                if self.board.takes_reset_request() {
                    self.reset();
                }
            }
            if self.jtag.module.holds_reset() {
                self.board.pass_until(end);
                return Ran::Idle;
            }
            match self.hart.step(&mut self.board) {
                Step::Done => self.board.tick(),
                Step::Waiting => self.board.pass_until(end.min(self.board.due())),
                Step::Halted => self.board.pass_halted_until(end),
            }
        }
        match self.board.finished() {
            Some(finish) => Ran::Finished(finish),
            None if self.hart.is_halted() || self.hart.is_waiting() => Ran::Idle,
            None => Ran::Busy,
        }
    }

    /// Sets the pins of the JTAG port. A rising edge of TCK lets [`TICKS_PER_TCK`] ticks pass.
    pub fn set_jtag(&mut self, tck: bool, tms: bool, tdi: bool) {
        match (std::mem::replace(&mut self.tck, tck), tck) {
            (false, true) => {
                self.shift_chain(tms, tdi);
                self.run(TICKS_PER_TCK);
            }
            (true, false) => {
                for tap in [&mut self.before, &mut self.after].into_iter().flatten() {
                    tap.falling();
                }
                self.jtag.falling(&mut self.hart, &mut self.board);
            }
            _ => {}
        }
    }

    /// A rising edge for all ports of the chain: each takes what the one before it drives.
    fn shift_chain(&mut self, tms: bool, tdi: bool) {
        let own = self.before.as_ref().map_or(tdi, OtherTap::tdo);
        let behind = self.jtag.tdo();
        if let Some(tap) = &mut self.before {
            tap.rising(tms, tdi);
        }
        self.jtag.rising(tms, own);
        if let Some(tap) = &mut self.after {
            tap.rising(tms, behind);
        }
    }

    /// What the JTAG port drives.
    #[must_use]
    pub fn tdo(&self) -> bool {
        self.after.as_ref().map_or(self.jtag.tdo(), OtherTap::tdo)
    }

    /// One clock of the JTAG port, from low to low: gives TDO as it was before the rising edge.
    pub fn clock_jtag(&mut self, tms: bool, tdi: bool) -> bool {
        let tdo = self.tdo();
        self.set_jtag(true, tms, tdi);
        self.set_jtag(false, tms, tdi);
        tdo
    }

    /// TRST# of the JTAG port is asserted.
    pub fn test_reset(&mut self) {
        self.jtag.test_reset();
        for tap in [&mut self.before, &mut self.after].into_iter().flatten() {
            tap.test_reset();
        }
    }
}

/// Takes what an access of less than a word wants out of the word.
fn lanes(
    at: u32,
    width: Width,
    word: impl FnOnce(u32) -> Result<u32, AccessFault>,
) -> Result<u32, AccessFault> {
    let shifted = word(at & !3)? >> (8 * (at & 3));
    Ok(match width {
        Width::Byte => shifted & 0xff,
        Width::Half => shifted & 0xffff,
        Width::Word => shifted,
    })
}

#[cfg(test)]
mod tests;
