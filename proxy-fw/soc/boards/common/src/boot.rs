//! How a boot loader begins, and how it enters an image. What is between is `soc::boot`'s.

/// The first instructions of a boot loader, wherever they were put: it copies itself to the memory
/// that it is linked for (`boot.x`), and goes on there with an empty stack and zeroed variables.
///
/// `main` and `trapped` are functions of `extern "C" fn() -> !`: the rest, and who gets exceptions and
/// interrupts, which finds the stack empty.
#[macro_export]
macro_rules! boot_start {
    (main: $main:path, trapped: $trapped:path) => {
        // The first instruction is elsewhere, and what follows is linked for RAM: until it is there,
        // addresses are added to where this runs and never loaded.
        ::core::arch::global_asm!(
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
            main = sym $main,
            trapped = sym $trapped,
        );
    };
}

/// The memory that an image is loaded to.
///
/// # Safety
///
/// It is there, and nobody else has any of it.
pub unsafe fn memory<'a>(start: u32, length: u32) -> &'a mut [u8] {
    let start = core::ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: as said above; bytes have no wrong values.
    unsafe { core::slice::from_raw_parts_mut(start, length as usize) }
}

/// Goes to an image's first instruction, for good, with interrupts on: until the image takes them over
/// they come to the boot loader, as exceptions do.
///
/// # Safety
///
/// An image was loaded that is entered there, and who gets traps does not return.
pub unsafe fn enter(entry: u32) -> ! {
    // SAFETY: what was written is made visible to the fetching of instructions (RISC-V
    // unprivileged ISA, Zifencei) before it runs; bit 3 of mstatus lets the interrupts through that
    // the board enabled.
    unsafe {
        core::arch::asm!(
            "fence.i",
            "csrsi mstatus, 8",
            "jr {entry}",
            entry = in(reg) entry,
            options(noreturn)
        )
    }
}

/// Waits for a probe, which can stop the core here.
pub fn wait() -> ! {
    loop {
        // SAFETY: it only waits; nothing has to come.
        unsafe { core::arch::asm!("wfi") }
    }
}
