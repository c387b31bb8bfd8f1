//! What depends on the processor: thunks that keep a call's arguments whatever they are, and a
//! `dlsym` that ends in a jump.
//!
//! A thunk knows nothing of the function behind it but its slot. It saves the registers that can
//! carry integer arguments, hands them to [`crate::call::before`], calls the driver with them and
//! with a copy of the arguments on the stack, and hands the result to [`crate::call::after`].
//! Registers of floating-point arguments are not kept: no function of the table takes one.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use crate::call::After;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as imp;
#[cfg(target_arch = "x86_64")]
use x86_64 as imp;

pub(crate) use imp::{DLSYM_VERSION, common, dlsym, export};

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("the shim is for Linux on x86_64 and aarch64, as NVIDIA's driver for servers is");

/// Thunks for pointers that programs asked for, besides one for each exported function.
///
/// A driver has one pointer for each function of the table; this is room for two drivers, or for a
/// driver and a library that wraps it. When it is full a pointer is given out as it is, and counted.
pub(crate) const POOL: usize = 1024;

/// Words of arguments on the stack that a thunk copies: with those in registers room for 14
/// arguments on x86_64. The longest function of the table has 11 (`cuLaunchKernel`).
pub(crate) const STACK_WORDS: usize = 8;

/// What a call was given, as its thunk saved it. The thunk's assembly knows the order of the fields.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Frame {
    /// Arguments in registers.
    registers: [u64; imp::REGISTERS],
    /// Arguments on the caller's stack.
    stack: *const u64,
    /// Which thunk.
    pub(crate) slot: usize,
    /// What the call returns.
    pub(crate) result: u64,
    /// What [`crate::call::before`] leaves for [`crate::call::after`]; the thunk does not set it.
    pub(crate) after: MaybeUninit<After>,
}

/// Arguments that a call can have.
pub(crate) const WORDS: usize = imp::REGISTERS + STACK_WORDS;

impl Frame {
    /// A frame of arguments that did not come through a thunk. It must not outlive `words`.
    pub(crate) fn new(words: &[u64; WORDS]) -> Self {
        let (registers, stack) = words.split_at(imp::REGISTERS);
        Self {
            registers: registers.try_into().expect("split there"),
            stack: stack.as_ptr(),
            slot: 0,
            result: 0,
            after: MaybeUninit::uninit(),
        }
    }

    /// Argument `index`, from 0, as the eight bytes that carry it: those above a narrower
    /// argument are arbitrary.
    pub(crate) fn word(&self, index: usize) -> u64 {
        if let Some(word) = self.registers.get(index) {
            return *word;
        }
        let place = index - imp::REGISTERS;
        assert!(place < STACK_WORDS, "no function of the table has so many arguments");
        // SAFETY: `stack` points to the words of `Frame::new`, or to the caller's frame, which a
        // call of a function with so many arguments has written.
        unsafe { *self.stack.add(place) }
    }

    /// Where the frame is: a call made while another is under way on the same stack lies lower.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }
}

/// The address of the thunk of pool slot `index`.
pub(crate) fn pool_thunk(index: usize) -> *mut c_void {
    assert!(index < POOL, "a slot of the pool");
    // SAFETY: only the address is taken, and `index` lies within the thunks.
    unsafe { (&raw const imp::dxpu_perf_thunks).cast::<u8>().add(index * imp::THUNK_BYTES) }
        .cast_mut()
        .cast()
}

/// Whether `pointer` is a thunk of the pool.
pub(crate) fn is_pool_thunk(pointer: *mut c_void) -> bool {
    let start = pool_thunk(0) as usize;
    (start..start + POOL * imp::THUNK_BYTES).contains(&(pointer as usize))
}
