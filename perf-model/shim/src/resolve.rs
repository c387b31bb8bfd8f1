//! What a program gets when it asks for a function of the driver.
//!
//! A slot is a thunk and what lies behind it. Each exported function has one, and each pointer that
//! `dlsym` or `cuGetProcAddress` gave takes one of a pool. A slot that is taken stays so: programs
//! keep the pointers.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use perf_core::Text;

use crate::arch::{self, Frame, POOL};
use crate::table::{self, EXPORTS, HOOKS, Hook, Role};
use crate::{real, session};

/// What lies behind each slot: [`Behind::pack`], or 0 while nothing does.
static SLOTS: [AtomicU64; EXPORTS + POOL] = [const { AtomicU64::new(0) }; EXPORTS + POOL];

/// Addresses have at most 47 bits on x86_64 and 48 on aarch64; the rest of the word is the hook.
const ADDRESS_BITS: u32 = 48;

/// What [`route`] answers for: no such symbol, and the loader's message says so.
const NOT_FOUND: *mut c_void = core::ptr::without_provenance_mut(1);

/// A function of the driver and which of the table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The function.
    pub(crate) real: *mut c_void,
    hook: u16,
}

impl Behind {
    /// A function that is entry `hook` of the table.
    fn new(real: *mut c_void, hook: usize) -> Self {
        Self { real, hook: u16::try_from(hook).expect("the table has fewer entries") }
    }

    /// Its entry in the table.
    pub(crate) fn hook(self) -> &'static Hook {
        &HOOKS[usize::from(self.hook)]
    }

    /// Never 0: a function has an address.
    fn pack(self) -> Option<u64> {
        let address = real::address(self.real) as u64;
        (address != 0 && address >> ADDRESS_BITS == 0)
            .then_some(u64::from(self.hook) << ADDRESS_BITS | address)
    }

    fn unpack(word: u64) -> Option<Self> {
        let address = word & ((1 << ADDRESS_BITS) - 1);
        (word != 0).then(|| Self {
            real: real::pointer(address as usize),
            hook: (word >> ADDRESS_BITS) as u16,
        })
    }
}

/// What lies behind `slot`. An exported function looks for it when it is called first.
pub(crate) fn behind(slot: usize) -> Option<Behind> {
    if let Some(behind) = Behind::unpack(SLOTS[slot].load(Ordering::Acquire)) {
        return Some(behind);
    }
    let symbol = Symbol::of(HOOKS.get(slot)?);
    let found = Behind::new(real::behind_export(symbol.as_c())?, slot);
    SLOTS[slot].store(found.pack()?, Ordering::Release);
    Some(found)
}

/// The thunk for `real`, entry `hook` of the table: the one that it has, or one of its own. When
/// the pool is full, `real` itself.
fn wrap(real: *mut c_void, hook: usize) -> *mut c_void {
    if real.is_null() || is_ours(real) {
        return real;
    }
    let Some(wanted) = Behind::new(real, hook).pack() else { return real };
    for (index, slot) in SLOTS[EXPORTS..].iter().enumerate() {
        let taken = match slot.load(Ordering::Acquire) {
            0 => slot
                .compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|other| other, |_| wanted),
            taken => taken,
        };
        if taken == wanted {
            return arch::pool_thunk(index);
        }
    }
    let symbol = HOOKS[hook].symbol;
    missed(&format!("{symbol} is not hooked: more than {POOL} pointers were asked for"));
    real
}

/// A symbol of the table with its end, on the stack: nothing is allocated in a program's `dlsym`.
struct Symbol([u8; 64]);

impl Symbol {
    fn of(hook: &Hook) -> Self {
        let mut bytes = [0; 64];
        // The longest symbol of the driver has 51 bytes; a longer one would be a panic in the test
        // of this module.
        bytes[..hook.symbol.len()].copy_from_slice(hook.symbol.as_bytes());
        Self(bytes)
    }

    fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).expect("a symbol is shorter")
    }
}

/// Whether a pointer is one that the shim gives out.
fn is_ours(pointer: *mut c_void) -> bool {
    arch::is_pool_thunk(pointer) || table::is_export(pointer)
}

/// What the program's `dlsym(handle, name)` gives, or null for what the loader's own gives. `caller`
/// is where the call returns to.
///
/// It does nothing, and above all asks the loader nothing, for names that are not hooked: the
/// loader's message for `dlerror` stays as it was, and a library that wraps `malloc` may ask from
/// within it.
pub(crate) unsafe extern "C" fn route(
    handle: *mut c_void,
    name: *const c_char,
    caller: *mut c_void,
) -> *mut c_void {
    let real_dlsym = real::dlsym();
    if name.is_null() {
        return null_mut();
    }
    // SAFETY: the program gives `dlsym` a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(hook) = table::slot_of(name) else { return null_mut() };
    if handle == libc::RTLD_NEXT {
        // Only the loader can know whose. A library that asks so wraps the driver itself, and what
        // calls it came through here. Without a driver the shim would be what is next.
        let known = real::has_next(name) || real::is_linked(caller, name);
        return if known { null_mut() } else { not_found(name) };
    }
    // SAFETY: the handle and the name are the program's own.
    let found = unsafe { real_dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        // Asked once more by the jump, for the message.
        return null_mut();
    }
    if table::export(hook) == found {
        // The program asked the global scope, which the shim is in. Without a driver there, it gets
        // what it would have got. A library's own scope comes after the global one.
        let asks_its_own = || handle == libc::RTLD_DEFAULT && real::is_linked(caller, name);
        return if real::has_next(name) || asks_its_own() { found } else { not_found(name) };
    }
    if session::bypassed() { found } else { wrap(found, hook) }
}

/// The answer that there is no such symbol, and the loader's message.
fn not_found(name: &CStr) -> *mut c_void {
    let _ = real::symbol(libc::RTLD_NEXT, name);
    NOT_FOUND
}

/// After the driver's resolver: wraps what it gave, if that is to be hooked.
pub(crate) fn resolved(hook: &Hook, frame: &Frame) {
    let word = |role| hook.position(role).map(|position| frame.word(position));
    let (Some(name), Some(out)) = (word(Role::Name), word(Role::FunctionOut)) else { return };
    let (name, out) = (name as *const c_char, out as *mut *mut c_void);
    if frame.result as u32 != 0 || name.is_null() || out.is_null() {
        return;
    }
    // SAFETY: the driver took both pointers and succeeded: a C string, and a place for a pointer.
    let (name, found) = unsafe { (CStr::from_ptr(name), *out) };
    let Ok(name) = name.to_str() else { return };
    if found.is_null() || !HOOKS.iter().any(|hook| hook.name == name) {
        return;
    }
    let version = word(Role::Version).unwrap_or(0) as u32;
    let flags = word(Role::Flags).unwrap_or(0);
    match which(name, found, version, flags) {
        // SAFETY: as above; the driver has just written there.
        Some(hook) => unsafe { *out = wrap(found, hook) },
        None => missed(&format!(
            "{name} for CUDA {}.{} is not hooked: it is newer than this libdxpu_perf.so",
            version / 1000,
            version % 1000 / 10
        )),
    }
}

/// Says in the ledger that calls of a function are not seen.
#[cold]
fn missed(what: &str) {
    session::get().ledger.say(Text::Note, what);
}

/// Which entry of the table the driver gave for `name`.
///
/// The driver's own export at the same address says it for certain. A driver that gives pointers
/// which it does not export is believed to follow the table, up to the newest version in it.
fn which(name: &str, found: *mut c_void, version: u32, flags: u64) -> Option<usize> {
    let named = || HOOKS.iter().enumerate().filter(move |(_, hook)| hook.name == name);
    if let Some(driver) = real::driver() {
        let same =
            named().find(|(_, hook)| real::symbol(driver, Symbol::of(hook).as_c()) == Some(found));
        real::release(driver);
        if let Some((index, _)) = same {
            return Some(index);
        }
    }
    if version > table::newest() {
        return None;
    }
    let hook = table::by_version(name, version, flags & PER_THREAD_DEFAULT_STREAM != 0)?;
    table::index_of(hook.symbol)
}

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM (CUDA Driver API, CUdriverProcAddress_flags).
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

#[cfg(test)]
mod unit_tests {
    use core::ffi::c_int;

    use super::*;

    /// As long as `cuLaunchKernel`; the result says that each argument came at its place.
    #[rustfmt::skip]
    unsafe extern "C" fn launch(
        a: u64, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32, i: u64, j: u64, k: u64,
    ) -> c_int {
        let numbers = [a, b.into(), c.into(), d.into(), e.into(), f.into(), g.into(), h.into(), i, j, k];
        let right = numbers.iter().zip(1..).all(|(number, place)| *number == place * 3);
        if right { 7 } else { 8 }
    }

    #[test]
    fn a_thunk_passes_every_argument_and_the_result() {
        let hook = table::slot_of(c"cuLaunchKernel").unwrap();
        let thunk = wrap(launch as *mut c_void, hook);
        assert_ne!(thunk, launch as *mut c_void);
        assert!(is_ours(thunk));
        // SAFETY: a thunk has the type of what is behind it.
        let thunk = unsafe {
            core::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(
                    u64,
                    u32,
                    u32,
                    u32,
                    u32,
                    u32,
                    u32,
                    u32,
                    u64,
                    u64,
                    u64,
                ) -> c_int,
            >(thunk)
        };
        // SAFETY: `launch` only looks at its arguments.
        assert_eq!(unsafe { thunk(3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33) }, 7);
    }

    #[test]
    fn a_pointer_has_one_thunk_and_a_thunk_none() {
        extern "C" fn synchronize() -> c_int {
            3
        }
        let hook = table::slot_of(c"cuCtxSynchronize").unwrap();
        let thunk = wrap(synchronize as *mut c_void, hook);
        assert_eq!(wrap(synchronize as *mut c_void, hook), thunk);
        assert_eq!(wrap(thunk, hook), thunk);
        assert_eq!(wrap(table::export(hook), hook), table::export(hook));
        assert_eq!(wrap(null_mut(), hook), null_mut());
    }

    #[test]
    fn symbols_have_room_and_slots_are_rows() {
        for (index, hook) in HOOKS.iter().enumerate() {
            let symbol = Symbol::of(hook);
            assert_eq!(symbol.as_c().to_str(), Ok(hook.symbol));
            assert_eq!(table::slot_of(symbol.as_c()), Some(index));
        }
    }

    #[test]
    fn packed_it_is_the_same() {
        let behind = Behind::new(launch as *mut c_void, 219);
        assert_eq!(Behind::unpack(behind.pack().unwrap()), Some(behind));
        assert_eq!(Behind::unpack(0), None);
        assert_eq!(Behind::new(null_mut(), 1).pack(), None);
    }

    #[test]
    fn other_names_are_the_loaders() {
        for name in [c"strlen", c"cu", c"", c"cudnnCreate", c"cublasCreate_v2", c"cuInit"] {
            // SAFETY: a handle and a name as `dlsym` takes them.
            let found = unsafe { route(libc::RTLD_DEFAULT, name.as_ptr(), null_mut()) };
            assert!(found.is_null(), "{name:?}");
        }
        // SAFETY: as above.
        let found = unsafe { arch::dlsym(libc::RTLD_DEFAULT, c"strlen".as_ptr()) };
        assert_eq!(Some(found), real::symbol(libc::RTLD_DEFAULT, c"strlen"));
        // SAFETY: as above. No driver is loaded into this test.
        assert!(unsafe { arch::dlsym(libc::RTLD_DEFAULT, c"cuLaunchKernel".as_ptr()) }.is_null());
        // SAFETY: as above.
        assert!(unsafe { arch::dlsym(libc::RTLD_NEXT, c"cuLaunchKernel".as_ptr()) }.is_null());
    }
}
