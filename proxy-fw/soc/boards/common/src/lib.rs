//! What the firmware of every board with a RISC-V core has: memory that is allocated at the start
//! and never after, a stack of which is known how much was used, a log, what a panic says, and what is
//! the same in all boot loaders.

#![cfg_attr(target_os = "none", no_std)]

/// Says in a firmware's ELF file for which role and board it is, so that `dxpu-flash image build` takes
/// it for no other. It is beside what is loaded, and takes no room on the card.
#[macro_export]
macro_rules! program_for {
    (role: $role:literal, board: $board:literal) => {
        ::core::arch::global_asm!(concat!(
            ".pushsection .dxpu.program, \"\", @progbits\n",
            ".ascii \"",
            $role,
            " ",
            $board,
            "\"\n",
            ".popsection"
        ));
    };
}

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
