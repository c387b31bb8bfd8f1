//! What a board has beside its two sides, behind `embedded_hal`'s traits: a thermometer, memories
//! that say what is plugged in, and the wires and lights of slots.

pub mod eeprom;
pub mod pins;
pub mod thermometer;
pub mod vpd;
