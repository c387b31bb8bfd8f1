//! Puts firmware on a card through a debug probe: what the program `dxpu-flash` is made of.
//!
//! [`image`] makes firmware images from ELF files, and [`files`] reads them; these are all there is
//! without the feature `probe`.
//! `board` is what a board file says, `probe` a debug probe, `card` the card behind it,
//! `settings` what settings it can use, and `cli` the program.

#![forbid(unsafe_code)]

#[cfg(feature = "probe")]
pub mod board;
#[cfg(feature = "probe")]
pub mod card;
#[cfg(feature = "probe")]
pub mod cli;
#[cfg(feature = "probe")]
pub mod failure;
pub mod files;
pub mod image;
#[cfg(feature = "probe")]
pub mod log;
#[cfg(feature = "probe")]
pub mod probe;
#[cfg(feature = "probe")]
pub mod settings;
