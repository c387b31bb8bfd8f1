//! Puts firmware on a card through a debug probe: what the program `dxpu-flash` is made of.
//!
//! [`image`] makes firmware images from ELF files; it is all there is without the feature `probe`.
//! `board` is what a board file says, `probe` a debug probe, `card` the card behind it, and `cli`
//! the program.

#![forbid(unsafe_code)]

#[cfg(feature = "probe")]
pub mod board;
#[cfg(feature = "probe")]
pub mod card;
#[cfg(feature = "probe")]
pub mod cli;
#[cfg(feature = "probe")]
pub mod failure;
pub mod image;
#[cfg(feature = "probe")]
pub mod log;
#[cfg(feature = "probe")]
pub mod probe;
