//! What can go wrong on the card.

use core::fmt;

/// Why a function did not do what it should, by the number that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// The SPI block does not take or give bytes.
    Bus = 1,
    /// No part answers.
    NotAnswering = 2,
    /// The part does not say what it can (JESD216).
    NoParameters = 3,
    /// The part erases no blocks of the board's size.
    NoSuchErase = 4,
    /// The part is larger than three address bytes reach, and there is no command for four.
    NoLongAddresses = 5,
    /// It does not enable a write.
    Protected = 6,
    /// It is busy for longer than any part may be.
    Busy = 7,
    /// There is no such address, or not so much of it.
    OutOfRange = 8,
    /// A range is not blank.
    NotBlank = 9,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Bus,
        Self::NotAnswering,
        Self::NoParameters,
        Self::NoSuchErase,
        Self::NoLongAddresses,
        Self::Protected,
        Self::Busy,
        Self::OutOfRange,
        Self::NotBlank,
    ];

    /// The fault of a number.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| *fault as u32 == code)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bus => "the card's SPI block does not move bytes",
            Self::NotAnswering => "no flash answers at the card's SPI block",
            Self::NoParameters => "the flash does not say what it can do (SFDP)",
            Self::NoSuchErase => "the flash erases no blocks of the board's size",
            Self::NoLongAddresses => "the flash has no command for addresses of four bytes",
            Self::Protected => "the flash is write-protected",
            Self::Busy => "the flash stays busy",
            Self::OutOfRange => "there is no such address in the flash",
            Self::NotBlank => "the flash is not blank after it was erased",
        })
    }
}
