//! The hooked functions and the symbols that the shim exports for them.

use core::ffi::{CStr, c_void};

pub(crate) use cuda_hooks::{Class, HOOKS, Hook, Role, by_version, index_of, newest};

/// How many functions are exported: slot N is row N of the table.
pub(crate) const EXPORTS: usize = HOOKS.len();

macro_rules! export_all {
    ($($slot:literal $name:ident)*) => {
        /// The exported functions, each the thunk of its slot.
        #[allow(non_snake_case, reason = "the driver's names")]
        mod exported {
            crate::arch::export!($($slot $name)*);
        }

        /// Their addresses, in the order of the slots.
        static ADDRESSES: [unsafe extern "C" fn(); EXPORTS] = [$(exported::$name),*];
    };
}
cuda_hooks::each_hook!(export_all);

/// The exported function of a slot.
pub(crate) fn export(slot: usize) -> *mut c_void {
    ADDRESSES[slot] as *mut c_void
}

/// Whether `pointer` is an exported function.
pub(crate) fn is_export(pointer: *mut c_void) -> bool {
    ADDRESSES.iter().any(|export| *export as *mut c_void == pointer)
}

/// The slot of a symbol, if it is hooked. Other names than the driver's cost a look at three bytes.
pub(crate) fn slot_of(symbol: &CStr) -> Option<usize> {
    let bytes = symbol.to_bytes();
    match bytes {
        [b'c', b'u', third, ..] if third.is_ascii_uppercase() => {
            index_of(core::str::from_utf8(bytes).ok()?)
        }
        _ => None,
    }
}
