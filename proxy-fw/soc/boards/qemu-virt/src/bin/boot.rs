//! The boot loader: the first in flash, and the first that runs.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
mod start {
    board_common::boot_start!(main: board_qemu_virt::run_boot, trapped: board_qemu_virt::boot_trapped);

    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
        board_qemu_virt::boot_panicked(info)
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a card's boot loader: build it for riscv32imac-unknown-none-elf");
    std::process::exit(2);
}
