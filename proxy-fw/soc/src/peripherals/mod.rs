//! What a board has beside its two sides, behind `embedded_hal`'s traits: a thermometer, memories
//! that say what it is and what is plugged in, and wires and lights that are pins.

pub mod cage;
pub mod eeprom;
pub mod lights;
pub mod pins;
pub mod thermometer;
pub mod vpd;

use core::fmt;

/// Text as memories have it: without the blanks that fill it up, and what is no text escaped.
struct Text<'a>(&'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.trim_ascii_end().escape_ascii().fmt(f)
    }
}
