//! The card's own register blocks (`hw/regs/card.md`) behind `embedded_hal`'s traits, for boards
//! that have them.

pub mod gpio;
pub mod i2c;
