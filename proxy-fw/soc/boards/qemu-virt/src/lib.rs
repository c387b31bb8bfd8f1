//! The card in QEMU's riscv32 machine `virt`.
//!
//! Two network interfaces: at the first virtio-mmio place the fabric's, at the second the PCIe
//! side's, with one typed record in a frame (`soc::records`). The machine's first bank of flash
//! holds all that the card keeps, and what it starts from ([`layout`]). Logs go to the UART,
//! encoded by defmt.

#![cfg_attr(target_os = "none", no_std)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod clint;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod end;
#[cfg(target_os = "none")]
mod flash;
pub mod layout;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod plic;
#[cfg(target_os = "none")]
mod retained;
#[cfg(target_os = "none")]
mod run;
#[cfg(target_os = "none")]
mod virtio;
#[cfg(target_os = "none")]
mod watchdog;

#[cfg(target_os = "none")]
pub use boot::{boot_panicked, boot_trapped, run_boot};
#[cfg(target_os = "none")]
pub use end::panicked;
#[cfg(target_os = "none")]
pub use run::{run_box, run_host};
