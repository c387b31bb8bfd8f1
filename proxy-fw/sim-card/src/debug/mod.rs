//! What a probe sees of the card: a JTAG test access port with the RISC-V debug transport module,
//! and behind it the debug module (RISC-V external debug support, version 0.13.2).
//!
//! The debug module does everything at once, between two edges of the clock: it is never busy, and
//! the transport never answers that it is.

mod abstract_command;
mod jtag;
mod module;
mod other_tap;
mod system_bus;
mod tunnel;

pub(crate) use jtag::idcode;
pub use jtag::{Jtag, TapState};
pub use module::DebugModule;
pub use other_tap::{IR_LENGTHS, OtherTap, Place};
pub use tunnel::TunnelParts;

use crate::iss::Bus;

/// What the debug module can do besides the hart: memory and devices, and their reset.
pub trait System: Bus {
    /// Resets everything but the hart and the debug module.
    fn reset(&mut self);

    /// Where the hart begins after a reset.
    fn reset_vector(&self) -> u32;
}

#[cfg(test)]
mod tests;
