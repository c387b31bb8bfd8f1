//! The loader and the driver as they are without the shim.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::arch;

/// The loader's `dlsym`, once something asked for it. The assembly of [`arch::dlsym`] jumps to it
/// after [`crate::resolve::route`], which has asked.
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The type of `dlsym(3)`.
pub(crate) type DlsymFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The driver's library by its soname.
pub(crate) const DRIVER: &CStr = c"libcuda.so.1";

/// The loader's `dlsym`.
///
/// # Panics
/// If the C library has none, which would be no glibc.
pub(crate) fn dlsym() -> DlsymFn {
    let mut real = DLSYM.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: both names are C strings, and RTLD_NEXT is a handle that dlvsym takes. By its
        // version, because the name alone would be the shim's own.
        real = unsafe {
            libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), arch::DLSYM_VERSION.as_ptr())
        };
        assert!(!real.is_null(), "glibc has dlsym at its first version");
        DLSYM.store(real, Ordering::Release);
    }
    // SAFETY: the symbol dlsym is a function of this type.
    unsafe { core::mem::transmute::<*mut c_void, DlsymFn>(real) }
}

/// The driver's library if the process has loaded it, wherever: one that was loaded RTLD_LOCAL is
/// seen by nobody's RTLD_NEXT.
pub(crate) fn driver() -> Option<*mut c_void> {
    // SAFETY: with RTLD_NOLOAD nothing is loaded and no constructor runs. The reference that this
    // takes is kept: a handle that is looked up in must not go.
    let handle = unsafe { libc::dlopen(DRIVER.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

/// Gives back a reference of [`driver`].
pub(crate) fn release(handle: *mut c_void) {
    // SAFETY: `handle` is one that `dlopen` gave.
    unsafe { libc::dlclose(handle) };
}

/// What `name` is in the library `handle`, if it has it. Not the shim's own answer.
pub(crate) fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string; `handle` is one that dlopen gave or RTLD_NEXT, which is then
    // relative to the shim.
    let found = unsafe { dlsym()(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// What an exported function of the shim stands before: the next library's, as for any library
/// that wraps another, or that of a driver that was loaded RTLD_LOCAL. The driver then stays
/// loaded: what is found is kept.
pub(crate) fn behind_export(name: &CStr) -> Option<*mut c_void> {
    symbol(libc::RTLD_NEXT, name).or_else(|| symbol(driver()?, name))
}

/// Whether a library after the shim, in the scope of all, has `name`.
pub(crate) fn has_next(name: &CStr) -> bool {
    symbol(libc::RTLD_NEXT, name).is_some()
}

/// Whether the library with the code at `caller` is linked to the driver that the process has
/// loaded, and that has `name`: then the loader finds it there for this library.
pub(crate) fn is_linked(caller: *mut c_void, name: &CStr) -> bool {
    let Some(driver) = driver() else { return false };
    let found = symbol(driver, name);
    release(driver);
    found.is_some() && library_of(caller).and_then(|library| symbol(library, name)) == found
}

/// RTLD_DL_LINKMAP (dlfcn.h): `dladdr1` gives a link map.
const LINK_MAP: c_int = 2;

/// The library with the code at `address`.
fn library_of(address: *mut c_void) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let mut library = null_mut();
    // SAFETY: both are written here, and what was not written is not read. A library with code that
    // runs stays; glibc's handles are its link maps.
    let found = unsafe { libc::dladdr1(address, info.as_mut_ptr(), &raw mut library, LINK_MAP) };
    (found != 0 && !library.is_null()).then_some(library)
}

/// A pointer as a number, for packing.
pub(crate) fn address(pointer: *mut c_void) -> usize {
    pointer.expose_provenance()
}

/// A number that [`address`] gave as the pointer again.
pub(crate) fn pointer(address: usize) -> *mut c_void {
    if address == 0 {
        without_provenance_mut(0)
    } else {
        core::ptr::with_exposed_provenance_mut(address)
    }
}
