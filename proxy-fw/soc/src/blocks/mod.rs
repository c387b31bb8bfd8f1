//! Drivers of the card's own register blocks (`hw/regs/card.md`), for boards that have them:
//! behind `embedded_hal`'s traits where those fit, behind the traits of [`crate::board`] else.

pub mod crc;
pub mod gpio;
pub mod i2c;
pub mod id;
pub mod mac;
mod queue;
pub mod spi;
pub mod timer;
pub mod tlp;
pub mod uart;
pub mod watchdog;

pub use queue::{Buffers, Ring};

#[cfg(test)]
mod testing;
