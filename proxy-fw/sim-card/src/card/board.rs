//! What is around the core of a card: one of the boards that there are cards of.

use card_regs::values::ResetCause;

use super::Finish;
use super::litex::Litex;
use super::virt::Virt;
use super::{TICK_NANOS, flash, litex, virt};
use crate::debug::{Jtag, System};
use crate::iss::{AccessFault, Bus, Hart, Interrupts, Width};

/// Everything but the core.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a card has one")]
pub enum Board {
    /// As QEMU's machine `virt`.
    Virt(Virt),
    /// A LiteX SoC.
    Litex(Litex),
}

/// Does the same for either.
macro_rules! either {
    ($board:expr, $inner:ident => $what:expr) => {
        match $board {
            Board::Virt($inner) => $what,
            Board::Litex($inner) => $what,
        }
    };
}

impl Board {
    pub(super) fn virt() -> Self {
        Self::Virt(Virt::new())
    }

    pub(super) fn litex() -> Self {
        Self::Litex(Litex::new())
    }

    /// A core for it, as it is when power came on.
    pub(super) fn hart(&self) -> Hart {
        let hart = Hart::new(self.reset_vector());
        match self {
            Self::Virt(_) => hart,
            Self::Litex(_) => hart.with_external_mask(),
        }
    }

    /// Its JTAG port.
    pub(super) fn jtag(&self) -> Jtag {
        match self {
            Self::Virt(_) => Jtag::default(),
            Self::Litex(_) => {
                let mut jtag = Jtag::with_idcode(litex::IDCODE);
                jtag.set_tunnel(litex::TUNNEL);
                jtag
            }
        }
    }

    /// Where memory begins, and how many bytes there are.
    #[must_use]
    pub fn ram(&self) -> (u32, u32) {
        match self {
            Self::Virt(_) => (virt::RAM_BASE, virt::RAM_SIZE),
            Self::Litex(_) => (litex::RAM_BASE, litex::RAM_SIZE),
        }
    }

    /// Banks of the flash, and bytes of each.
    #[must_use]
    pub fn flash(&self) -> (usize, u32) {
        match self {
            Self::Virt(_) => (flash::BANKS, virt::FLASH_BANK),
            Self::Litex(_) => (1, litex::PART.size),
        }
    }

    /// Ticks since power came on.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        either!(self, board => board.ticks())
    }

    /// Nanoseconds since power came on.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.ticks() * TICK_NANOS
    }

    /// The flash's cells, for looking at them and for faults.
    ///
    /// # Panics
    ///
    /// When there is no such bank.
    pub fn nor(&mut self, bank: usize) -> &mut nor_model::Nor {
        match self {
            Self::Virt(board) => board.nor(bank),
            Self::Litex(board) => {
                assert_eq!(bank, 0, "the board has one bank");
                board.nor()
            }
        }
    }

    /// Takes what the console sent.
    pub fn take_console(&mut self) -> Vec<u8> {
        either!(self, board => board.take_console())
    }

    /// Types at the console. Gives how many bytes it took: its FIFO has 16, and what firmware of a LiteX
    /// SoC reads nothing of takes none.
    pub fn type_at_console(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Virt(board) => board.type_at_console(bytes),
            Self::Litex(_) => 0,
        }
    }

    #[inline]
    pub(super) fn tick(&mut self) {
        either!(self, board => board.tick());
    }

    pub(super) fn pass_until(&mut self, ticks: u64) {
        either!(self, board => board.pass_until(ticks));
    }

    /// The same, with the core halted by a debugger.
    pub(super) fn pass_halted_until(&mut self, ticks: u64) {
        match self {
            Self::Virt(board) => board.pass_until(ticks),
            Self::Litex(board) => board.pass_halted_until(ticks),
        }
    }

    /// When it needs attention next though nobody accesses it, in ticks.
    pub(super) fn due(&self) -> u64 {
        either!(self, board => board.due())
    }

    #[inline]
    pub(super) fn needs_attention(&self) -> bool {
        either!(self, board => board.needs_attention())
    }

    pub(super) fn interrupts(&mut self) -> Interrupts {
        either!(self, board => board.interrupts())
    }

    /// Only `virt` has something by which firmware ends everything.
    pub(super) fn finished(&self) -> Option<Finish> {
        match self {
            Self::Virt(board) => board.finished(),
            Self::Litex(_) => None,
        }
    }

    /// Whether something on it wants all of it to be reset.
    pub(super) fn takes_reset_request(&mut self) -> bool {
        match self {
            Self::Virt(board) => board.take_reset_request(),
            Self::Litex(board) => board.wants_reset(),
        }
    }

    /// Resets it for what wanted that, or else for its button.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Virt(board) => board.reset(),
            Self::Litex(board) => board.restart(ResetCause::Pin),
        }
    }
}

impl Bus for Board {
    #[inline]
    fn read(&mut self, at: u32, width: Width) -> Result<u32, AccessFault> {
        either!(self, board => board.read(at, width))
    }

    #[inline]
    fn write(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault> {
        either!(self, board => board.write(at, width, value))
    }

    #[inline]
    fn fetch(&mut self, at: u32) -> Result<u16, AccessFault> {
        either!(self, board => board.fetch(at))
    }

    fn time(&self) -> u64 {
        either!(self, board => board.time())
    }
}

impl System for Board {
    /// A debugger wants it.
    fn reset(&mut self) {
        match self {
            Self::Virt(board) => board.reset(),
            Self::Litex(board) => board.restart(ResetCause::Debug),
        }
    }

    fn reset_vector(&self) -> u32 {
        match self {
            Self::Virt(board) => board.reset_vector(),
            Self::Litex(_) => litex::ROM_BASE,
        }
    }
}
