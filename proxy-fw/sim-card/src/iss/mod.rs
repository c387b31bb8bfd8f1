//! An instruction-set simulator of the card's core: RV32IMAC with Zicsr and Zifencei, machine mode
//! only (RISC-V instruction set manual, volumes I 20191213 and II 1.12), and what the debug
//! specification 0.13.2 asks of a hart.
//!
//! [`Hart::step`] carries out one instruction over a [`Bus`]. There is no time in it but the count
//! of instructions; interrupts are lines that the caller sets.

mod compressed;
mod csr;
mod execute;
mod hart;
mod trigger;

pub use compressed::expand;
pub use hart::{DebugCause, Hart, Interrupts, ProgramError, Step};

/// How much an access moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
}

impl Width {
    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
        }
    }

    /// From the binary logarithm of the bytes, as instructions and debug registers have it.
    #[must_use]
    pub const fn from_log2(log2: u32) -> Option<Self> {
        match log2 {
            0 => Some(Self::Byte),
            1 => Some(Self::Half),
            2 => Some(Self::Word),
            _ => None,
        }
    }
}

/// Nothing answers at the address, or not to such an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing answers to this access")]
pub struct AccessFault;

/// What is around the core: memory and devices.
///
/// The hart asks for aligned accesses only: what it has to do misaligned it does in bytes.
pub trait Bus {
    /// Reads; bits above the width are 0.
    ///
    /// # Errors
    ///
    /// [`AccessFault`] where nothing answers.
    fn read(&mut self, at: u32, width: Width) -> Result<u32, AccessFault>;

    /// Writes the low bits of `value`.
    ///
    /// # Errors
    ///
    /// [`AccessFault`] where nothing answers.
    fn write(&mut self, at: u32, width: Width, value: u32) -> Result<(), AccessFault>;

    /// Reads half an instruction, at an even address.
    ///
    /// # Errors
    ///
    /// [`AccessFault`] where nothing answers, or what is there cannot be executed.
    fn fetch(&mut self, at: u32) -> Result<u16, AccessFault> {
        self.read(at, Width::Half).map(|half| half as u16)
    }

    /// What the counter `time` shows.
    fn time(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
