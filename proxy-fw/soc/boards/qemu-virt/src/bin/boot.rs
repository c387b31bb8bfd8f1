//! The boot loader: the first in flash, and the first that runs.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

#[cfg(target_os = "none")]
mod start {
    // The first instruction is in flash, and what follows is linked for RAM: until it is there,
    // addresses are added to where this runs and never loaded.
    core::arch::global_asm!(
        ".section .init, \"ax\"",
        ".global _start",
        "_start:",
        ".option push",
        ".option norelax",
        "csrw mie, zero",
        "csrci mstatus, 8",
        // How far this is from where it belongs.
        "0: auipc t0, 0",
        "lui t1, %hi(0b)",
        "addi t1, t1, %lo(0b)",
        "sub t2, t0, t1",
        "lui a0, %hi(_start)",
        "addi a0, a0, %lo(_start)",
        "lui a1, %hi(_load_end)",
        "addi a1, a1, %lo(_load_end)",
        "beqz t2, 2f",
        "1: add t3, a0, t2",
        "lw t4, 0(t3)",
        "sw t4, 0(a0)",
        "addi a0, a0, 4",
        "bltu a0, a1, 1b",
        "2: fence.i",
        "lui a0, %hi(_bss_start)",
        "addi a0, a0, %lo(_bss_start)",
        "lui a1, %hi(_bss_end)",
        "addi a1, a1, %lo(_bss_end)",
        "bgeu a0, a1, 4f",
        "3: sw zero, 0(a0)",
        "addi a0, a0, 4",
        "bltu a0, a1, 3b",
        "4: lui sp, %hi(_stack_top)",
        "addi sp, sp, %lo(_stack_top)",
        "lui t0, %hi(5f)",
        "addi t0, t0, %lo(5f)",
        "csrw mtvec, t0",
        "lui t0, %hi({main})",
        "jalr zero, %lo({main})(t0)",
        // A trap: nothing of before is needed any more.
        ".align 2",
        "5: lui sp, %hi(_stack_top)",
        "addi sp, sp, %lo(_stack_top)",
        "lui t0, %hi({trapped})",
        "jalr zero, %lo({trapped})(t0)",
        ".option pop",
        main = sym main,
        trapped = sym board_qemu_virt::boot_trapped,
    );

    extern "C" fn main() -> ! {
        board_qemu_virt::run_boot()
    }

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
