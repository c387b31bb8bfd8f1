//! The flash algorithm of the board `qemu-virt`, as the simulated card has it.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
flash_algorithm::algorithm! { spi: 0x1001_0000, window: 0x2000_0000, erase_block: 0x4_0000 }

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this runs on a card: build it for riscv32imac-unknown-none-elf");
    std::process::exit(2);
}
