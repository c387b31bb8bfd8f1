//! The firmware of a host card as a LiteX SoC.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
board_common::program_for!(role: "host", board: "litex");

#[cfg(target_os = "none")]
#[riscv_rt::entry]
fn main() -> ! {
    board_litex::run_host()
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    board_litex::panicked(info)
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a card's firmware: build it for riscv32imac-unknown-none-elf");
    std::process::exit(2);
}
