//! The boot loader of a card as a LiteX SoC: what LiteX's BIOS starts from flash.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
mod start {
    board_common::boot_start!(main: board_litex::run_boot, trapped: board_litex::boot_trapped);

    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
        board_litex::boot_panicked(info)
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a card's boot loader: build it for riscv32imac-unknown-none-elf");
    std::process::exit(2);
}
