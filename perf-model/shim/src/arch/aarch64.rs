//! aarch64, AAPCS64 (2023Q3, section 6.8): eight integer arguments in registers.

use core::arch::{global_asm, naked_asm};
use core::ffi::{CStr, c_char, c_void};
use core::mem::{offset_of, size_of};

use super::{Frame, POOL, STACK_WORDS};

/// The version of `dlsym` that every glibc for this processor has.
pub(crate) const DLSYM_VERSION: &CStr = c"GLIBC_2.17";

/// Registers that carry arguments: x0 to x7.
pub(super) const REGISTERS: usize = 8;

/// How far a thunk of the pool lies from the one before.
pub(super) const THUNK_BYTES: usize = 16;

const ROOM: usize = size_of::<Frame>().next_multiple_of(16);

global_asm!(
    ".text",
    ".balign 16",
    ".hidden dxpu_perf_thunks",
    ".globl dxpu_perf_thunks",
    "dxpu_perf_thunks:",
    ".set dxpu_perf_slot, {first}",
    ".rept {pool}",
    ".balign 16",
    "bti c",
    "mov x17, #dxpu_perf_slot",
    "b {common}",
    ".set dxpu_perf_slot, dxpu_perf_slot + 1",
    ".endr",
    ".balign 16",
    first = const crate::table::EXPORTS,
    pool = const POOL,
    common = sym common,
);

// A slot is one instruction's constant.
const _: () = assert!(crate::table::EXPORTS + POOL < 1 << 16);

unsafe extern "C" {
    /// The pool's thunks: code, of which only the address is used.
    pub(super) static dxpu_perf_thunks: u8;
}

/// Where every thunk goes, its slot in x17, which belongs to nobody between two functions.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn common() {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "sub sp, sp, #{room}",
        "stp x0, x1, [sp]",
        "stp x2, x3, [sp, #16]",
        "stp x4, x5, [sp, #32]",
        "stp x6, x7, [sp, #48]",
        "add x9, x29, #16",
        "str x9, [sp, #{stack}]",
        "str x17, [sp, #{slot}]",
        "mov x0, sp",
        "bl {before}",
        // No function to call: the result is in the frame.
        "cbz x0, 2f",
        "mov x16, x0",
        "sub sp, sp, #{words}",
        "ldp q0, q1, [x29, #16]",
        "ldp q2, q3, [x29, #48]",
        "stp q0, q1, [sp]",
        "stp q2, q3, [sp, #32]",
        "ldp x0, x1, [sp, #{words}]",
        "ldp x2, x3, [sp, #{words} + 16]",
        "ldp x4, x5, [sp, #{words} + 32]",
        "ldp x6, x7, [sp, #{words} + 48]",
        "blr x16",
        "add sp, sp, #{words}",
        "str x0, [sp, #{result}]",
        "mov x0, sp",
        "bl {after}",
        "2:",
        "ldr x0, [sp, #{result}]",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
        room = const ROOM,
        stack = const offset_of!(Frame, stack),
        slot = const offset_of!(Frame, slot),
        result = const offset_of!(Frame, result),
        words = const STACK_WORDS * 8,
        before = sym crate::call::before,
        after = sym crate::call::after,
    )
}

// The copy above moves 64 bytes.
const _: () = assert!(STACK_WORDS == 8);

/// Exported functions: `export!(0 cuCtxDestroy 1 …)`, each the thunk of its slot.
macro_rules! export {
    ($($slot:literal $name:ident)*) => {
        $(
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(super) unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "bti c",
                    "mov x17, #{slot}",
                    "b {common}",
                    slot = const $slot,
                    common = sym $crate::arch::common,
                )
            }
        )*
    };
}
pub(crate) use export;

/// `dlsym(3)` for the program: what [`crate::resolve::route`] answers, else a jump to the real one.
///
/// A jump, not a call: glibc looks at the return address to know whose `RTLD_NEXT` it is.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "bti c",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "mov x2, x30",
        "bl {route}",
        "mov x9, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbnz x9, 2f",
        "adrp x16, {real}",
        "ldr x16, [x16, #:lo12:{real}]",
        "br x16",
        "2:",
        // 1 stands for null.
        "cmp x9, #1",
        "csel x0, xzr, x9, eq",
        "ret",
        route = sym crate::resolve::route,
        real = sym crate::real::DLSYM,
    )
}
