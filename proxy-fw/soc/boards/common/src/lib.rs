//! What the firmware of every board with a RISC-V core has: memory that is allocated at the start
//! and never after, a stack of which is known how much was used, a log, what a panic says, and what is
//! the same in all boot loaders.

#![cfg_attr(target_os = "none", no_std)]

#[cfg(all(target_os = "none", target_arch = "riscv32"))]
pub mod boot;
#[cfg(all(target_os = "none", target_arch = "riscv32"))]
mod copy;
#[cfg(target_os = "none")]
pub mod log;
#[cfg(any(target_os = "none", test))]
pub mod memory;
#[cfg(target_os = "none")]
pub mod panic;
#[cfg(all(target_os = "none", target_arch = "riscv32"))]
mod saved;
#[cfg(target_os = "none")]
pub mod stack;
