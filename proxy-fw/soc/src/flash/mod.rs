//! NOR flash behind a bus, as `embedded_storage`'s traits.
//!
//! [`spi`] is for parts on SPI, [`cfi`] for parallel ones with Intel's command set. Both wait for
//! the part with a delay that the board gives, a bounded number of times. They do not compare what
//! they wrote with what is there: who writes to a card's flash reads it again, and knows what to do
//! where it differs, such as to try the next place. They read the part itself, so code that runs
//! out of a flash must not write to the same one.

pub mod cfi;
pub mod spi;

#[cfg(test)]
mod tests;

use core::fmt;

use embedded_storage::nor_flash::{NorFlashError, NorFlashErrorKind};

/// Why a flash did not do something. `E` is the bus's own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashError<E> {
    /// The bus failed.
    Bus(E),
    /// Nothing is there, or it does not speak: wiring, power, chip select.
    NotAnswering,
    /// The part is one that the driver cannot use, for this reason.
    Unsupported(&'static str),
    /// The part refuses to change this address: it is locked or write-protected.
    Protected {
        /// Where.
        at: u32,
    },
    /// It was still busy after the longest time that such a part may take.
    Timeout {
        /// Where it was programming or erasing.
        at: u32,
    },
    /// The part says itself that it failed: it is worn out, or its supply is too low.
    Failed {
        /// Where.
        at: u32,
    },
    /// Address or length are no multiples of what they must be.
    NotAligned,
    /// Beyond the end of the part.
    OutOfBounds,
}

impl<E: fmt::Debug> fmt::Display for FlashError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bus(error) => write!(f, "the flash's bus failed: {error:?}"),
            Self::NotAnswering => f.write_str("the flash does not answer"),
            Self::Unsupported(why) => write!(f, "the flash cannot be used: {why}"),
            Self::Protected { at } => write!(f, "the flash is write-protected at {at:#x}"),
            Self::Timeout { at } => write!(f, "the flash stays busy at {at:#x}"),
            Self::Failed { at } => write!(f, "the flash reports a failure at {at:#x}"),
            Self::NotAligned => f.write_str("address or length are not aligned"),
            Self::OutOfBounds => f.write_str("there is no such address in the flash"),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for FlashError<E> {}

impl<E: fmt::Debug> NorFlashError for FlashError<E> {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::NotAligned => NorFlashErrorKind::NotAligned,
            Self::OutOfBounds => NorFlashErrorKind::OutOfBounds,
            _ => NorFlashErrorKind::Other,
        }
    }
}

/// Checks a range of a part.
fn check_range<E>(at: u32, length: usize, size: u32, unit: u32) -> Result<(), FlashError<E>> {
    if !at.is_multiple_of(unit) || !length.is_multiple_of(unit as usize) {
        return Err(FlashError::NotAligned);
    }
    let end = (length as u64).saturating_add(at.into());
    if end > size.into() { Err(FlashError::OutOfBounds) } else { Ok(()) }
}

/// Checks a range that is to be erased.
fn check_erase<E>(from: u32, to: u32, size: u32, unit: u32) -> Result<(), FlashError<E>> {
    let length = to.checked_sub(from).ok_or(FlashError::OutOfBounds)?;
    check_range(from, length as usize, size, unit)
}

/// The first pieces of a range that do not cross a boundary, one after the other: address, length.
fn pieces(at: u32, length: u32, boundary: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut at = u64::from(at);
    let end = at + u64::from(length);
    core::iter::from_fn(move || {
        let piece = (u64::from(boundary) - at % u64::from(boundary)).min(end - at);
        let start = at as u32;
        at += piece;
        (piece > 0).then_some((start, piece as u32))
    })
}
