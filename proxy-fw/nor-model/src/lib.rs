//! A NOR flash in memory with the rules of a real part.
//!
//! [`Nor`] is the array of cells: programming only clears bits, erasing sets all bits of a block,
//! both take time, wear the part, and leave something torn when the power goes in between. Three
//! faces are on it: [`SpiNor`] is spoken to byte by byte as an SPI part is, [`CfiNor`] word by word
//! as a parallel part with Intel's command set is, and [`Direct`] is `embedded_storage`'s trait,
//! for tests of what is above a driver.
//!
//! There is no clock: the caller says with [`Nor::advance`] how much time passes. What is random
//! comes from the seed and is the same again for the same calls.

#![forbid(unsafe_code)]

mod cfi;
mod direct;
mod nor;
mod part;
mod sfdp;
mod shared;
mod spi;

pub use cfi::CfiNor;
pub use direct::Direct;
pub use nor::{Fault, Nor};
pub use part::{EraseKind, Part, Timing};
pub use shared::Shared;
pub use spi::SpiNor;
