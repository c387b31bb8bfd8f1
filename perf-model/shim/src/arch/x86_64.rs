//! x86_64, System V ABI (revision 1.0, section 3.2): six integer arguments in registers.

use core::arch::{global_asm, naked_asm};
use core::ffi::{CStr, c_char, c_void};
use core::mem::{offset_of, size_of};

use super::{Frame, POOL, STACK_WORDS};

/// The version of `dlsym` that every glibc for this processor has.
pub(crate) const DLSYM_VERSION: &CStr = c"GLIBC_2.2.5";

/// Registers that carry arguments: rdi, rsi, rdx, rcx, r8, r9.
pub(super) const REGISTERS: usize = 6;

/// How far a thunk of the pool lies from the one before.
pub(super) const THUNK_BYTES: usize = 16;

// The frame lies under a saved slot and a saved rbp, so that the stack is aligned for the calls.
const ROOM: usize = size_of::<Frame>().next_multiple_of(16) + 8;

global_asm!(
    ".text",
    ".balign 16",
    ".hidden dxpu_perf_thunks",
    ".globl dxpu_perf_thunks",
    "dxpu_perf_thunks:",
    ".set dxpu_perf_slot, {first}",
    ".rept {pool}",
    ".balign 16",
    "endbr64",
    "push dxpu_perf_slot",
    "jmp {common}",
    ".set dxpu_perf_slot, dxpu_perf_slot + 1",
    ".endr",
    ".balign 16",
    first = const crate::table::EXPORTS,
    pool = const POOL,
    common = sym common,
);

unsafe extern "C" {
    /// The pool's thunks: code, of which only the address is used.
    pub(super) static dxpu_perf_thunks: u8;
}

/// Where every thunk goes, its slot pushed under the return address.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn common() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, {room}",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "lea rax, [rbp + 24]",
        "mov [rsp + {stack}], rax",
        "mov rax, [rbp + 8]",
        "mov [rsp + {slot}], rax",
        "mov rdi, rsp",
        "call {before}",
        // No function to call: the result is in the frame.
        "test rax, rax",
        "jz 2f",
        "mov r11, rax",
        "sub rsp, {words}",
        "movups xmm0, [rbp + 24]",
        "movups xmm1, [rbp + 40]",
        "movups xmm2, [rbp + 56]",
        "movups xmm3, [rbp + 72]",
        "movaps [rsp], xmm0",
        "movaps [rsp + 16], xmm1",
        "movaps [rsp + 32], xmm2",
        "movaps [rsp + 48], xmm3",
        "mov rdi, [rsp + {words}]",
        "mov rsi, [rsp + {words} + 8]",
        "mov rdx, [rsp + {words} + 16]",
        "mov rcx, [rsp + {words} + 24]",
        "mov r8, [rsp + {words} + 32]",
        "mov r9, [rsp + {words} + 40]",
        "call r11",
        "add rsp, {words}",
        "mov [rsp + {result}], rax",
        "mov rdi, rsp",
        "call {after}",
        "2:",
        "mov rax, [rsp + {result}]",
        "leave",
        "lea rsp, [rsp + 8]",
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
                    "endbr64",
                    "push {slot}",
                    "jmp {common}",
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
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]",
        "call {route}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "mov rax, [rip + {real}]",
        "jmp rax",
        "2:",
        // 1 stands for null.
        "xor ecx, ecx",
        "cmp rax, 1",
        "cmove rax, rcx",
        "ret",
        route = sym crate::resolve::route,
        real = sym crate::real::DLSYM,
    )
}
