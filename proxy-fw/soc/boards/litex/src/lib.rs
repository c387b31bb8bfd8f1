//! The card as a LiteX SoC with a VexRiscv core and the card's own blocks (`hw/regs/card.md`).
//!
//! All that is this board's own is in [`layout`]; the rest puts drivers together. The firmware runs
//! from main memory, has its images and its settings in the SPI NOR flash, and its address from the
//! EUI-48 in the board's identity EEPROM.

#![cfg_attr(target_os = "none", no_std)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod end;
#[cfg(target_os = "none")]
mod hardware;
pub mod layout;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod panel;
#[cfg(target_os = "none")]
mod run;
#[cfg(target_os = "none")]
mod shared;

#[cfg(target_os = "none")]
pub use boot::{boot_panicked, boot_trapped, run_boot};
#[cfg(target_os = "none")]
pub use end::panicked;
#[cfg(target_os = "none")]
pub use run::{run_box, run_host};
