//! The flash algorithm of the board `litex`: the SPI block is the card's (`hw/regs/card.md`, "spi"), where
//! the SoC has the card's registers.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
flash_algorithm::algorithm! { spi: 0xf001_0700, window: 0xa000_0000, erase_block: 0x1000 }

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this runs on a card: build it for riscv32imac-unknown-none-elf");
    std::process::exit(2);
}
