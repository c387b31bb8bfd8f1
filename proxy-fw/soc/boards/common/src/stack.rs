//! How much of the stack was used: what was not still has the pattern that it was filled with.

use core::ptr::addr_of;

/// Bytes that the stack may have. There is memory behind them, but no card has to have more.
pub const BUDGET: usize = 128 << 10;

const PATTERN: u32 = 0x57ac_ca17;

/// Bytes below the stack pointer that the filling itself may use.
const MARGIN: usize = 256;

unsafe extern "C" {
    /// Where the stack begins: from the start-up code's linker script.
    static _stack_start: u32;
}

fn end() -> usize {
    addr_of!(_stack_start) as usize - BUDGET
}

/// Fills what is not in use now: what is said from then on is of what runs from then on.
pub fn fill() {
    for address in (end()..pointer() - MARGIN).step_by(4) {
        // SAFETY: memory of the stack (memory.x), below all that is on it.
        unsafe { (address as *mut u32).write_volatile(PATTERN) }
    }
}

fn pointer() -> usize {
    let pointer: usize;
    // SAFETY: only reads the stack pointer.
    unsafe { core::arch::asm!("mv {}, sp", out(reg) pointer) };
    pointer
}

/// Bytes that are in use now.
pub fn in_use() -> usize {
    addr_of!(_stack_start) as usize - pointer()
}

fn is_unused(address: usize) -> bool {
    // SAFETY: memory of the stack; it may be in use, and what is read is only compared.
    unsafe { (address as *const u32).read_volatile() == PATTERN }
}

/// Whether it never had more than its budget.
pub fn is_within_budget() -> bool {
    is_unused(end())
}

/// The most bytes that it had.
pub fn used() -> usize {
    let unused = (end()..).step_by(4).take_while(|address| is_unused(*address)).count();
    BUDGET - 4 * unused
}
