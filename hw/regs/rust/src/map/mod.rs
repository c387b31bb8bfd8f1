//! The map: a module for each type of block.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

pub mod card;
pub mod crc;
pub mod frame_descriptor;
pub mod gpio;
pub mod i2c;
pub mod id;
pub mod irq;
pub mod mac;
pub mod queue;
mod registers;
pub mod reset_control;
pub mod slot;
pub mod spi;
pub mod timer;
pub mod tlp;
pub mod tlp_descriptor;
pub mod uart;
pub mod values;
pub mod watchdog;

pub use card::Card;
pub use registers::REGISTERS;
