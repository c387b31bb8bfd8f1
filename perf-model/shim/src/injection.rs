//! The second way in: CUDA loads the library that `CUDA_INJECTION64_PATH` names, and CUPTI calls it
//! around each call of the driver.
//!
//! Nothing is wrapped then, so that programs which reach the driver in a way of their own are seen
//! too. CUPTI has one subscriber in a process: profilers and this exclude each other.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU16, Ordering};

use perf_core::Text;

use crate::arch::{self, Frame, WORDS};
use crate::call::{self, After};
use crate::driver::Result32;
use crate::session::Session;
use crate::table::{self, Class, HOOKS, Hook};
use crate::{real, session};

/// CUPTI by the sonames of CUDA 13 and 12, and as it is where only a toolkit is installed.
const LIBRARIES: [&CStr; 3] = [c"libcupti.so.13", c"libcupti.so.12", c"libcupti.so"];

/// CUPTI_CB_DOMAIN_DRIVER_API (CUPTI, CUpti_CallbackDomain).
const DRIVER_API: u32 = 1;

/// CUPTI_API_ENTER and CUPTI_API_EXIT (CUPTI, CUpti_ApiCallbackSite).
const ENTER: c_int = 0;
const EXIT: c_int = 1;

/// CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (CUPTI, CUptiResult).
const TAKEN: c_int = 39;

/// Functions by CUPTI's number that are remembered; those beyond are looked up at each call.
const NUMBERS: usize = 2048;

/// What CUPTI says of a call: CUpti_CallbackData.
#[repr(C)]
struct CallbackData {
    site: c_int,
    function: *const c_char,
    parameters: *const c_void,
    result: *const Result32,
    symbol: *const c_char,
    context: *mut c_void,
    context_number: u32,
    correlation_data: *mut u64,
    correlation: u32,
}

type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const CallbackData);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> c_int;
type EnableDomain = unsafe extern "C" fn(u32, *mut c_void, u32) -> c_int;

/// What the driver calls when it loads the library: 1 says that all is well, and a program whose
/// injection fails goes on without.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "CUDA's name")]
extern "C" fn InitializeInjection() -> c_int {
    // Loaded before the program as well, the calls are caught already.
    let global = real::symbol(libc::RTLD_DEFAULT, c"dlsym");
    if session::bypassed() || global == Some(arch::dlsym as *mut c_void) {
        return 1;
    }
    let session = session::get();
    session.injected.store(true, Ordering::Release);
    if let Err(why) = subscribe() {
        session::warn(&format!("{why}; nothing is delayed"));
        session.ledger.say(Text::Note, &why);
    }
    1
}

/// Has CUPTI call [`callback`].
fn subscribe() -> Result<(), String> {
    let library = LIBRARIES
        .into_iter()
        // SAFETY: CUPTI's constructors run, as for any program that is linked to it.
        .map(|name| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) })
        .find(|library| !library.is_null())
        .ok_or(
            "CUPTI (libcupti.so) is not found: put its folder into LD_LIBRARY_PATH, or load this \
             library with LD_PRELOAD",
        )?;
    let function = |name: &CStr| {
        real::symbol(library, name)
            .ok_or_else(|| format!("CUPTI has no {}", name.to_string_lossy()))
    };
    let (subscribe, enable) = (function(c"cuptiSubscribe")?, function(c"cuptiEnableDomain")?);
    // SAFETY: CUPTI's symbols of these names have these types (cupti_callbacks.h).
    let (subscribe, enable) = unsafe {
        (
            core::mem::transmute::<*mut c_void, Subscribe>(subscribe),
            core::mem::transmute::<*mut c_void, EnableDomain>(enable),
        )
    };
    let mut subscriber = core::ptr::null_mut();
    // SAFETY: the subscriber is written here; the callback lives as long as this library, which
    // CUDA never unloads.
    match unsafe { subscribe(&raw mut subscriber, callback, core::ptr::null_mut()) } {
        0 => {}
        TAKEN => {
            return Err("CUPTI is in use by a profiler, and has one user at a time: end the \
                        profiler, or load this library with LD_PRELOAD"
                .into());
        }
        error => return Err(format!("CUPTI refuses: error {error}")),
    }
    // SAFETY: the subscriber is the one that was just made.
    match unsafe { enable(1, subscriber, DRIVER_API) } {
        0 => Ok(()),
        error => Err(format!("CUPTI does not report calls of the driver: error {error}")),
    }
}

thread_local! {
    /// The call that this thread is in, by CUPTI's number, and what is to do after it.
    static CALL: Cell<Option<(u32, After)>> = const { Cell::new(None) };
    /// Whether this thread is in the shim: what it asks the driver is not the program's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Called by CUPTI before and after each call of the driver.
unsafe extern "C" fn callback(
    _user: *mut c_void,
    domain: u32,
    number: u32,
    data: *const CallbackData,
) {
    if domain != DRIVER_API || data.is_null() || INSIDE.get() {
        return;
    }
    // SAFETY: CUPTI gives one that is there until this returns.
    let data = unsafe { &*data };
    INSIDE.set(true);
    match data.site {
        // A call within another one is a part of it.
        ENTER if CALL.get().is_none() => {
            let hook = hook_of(number, data).filter(|hook| hook.class != Class::Resolver);
            if let Some(hook) = hook {
                CALL.set(Some((data.correlation, enter(session::get(), hook, data))));
            }
        }
        EXIT => {
            if let Some((correlation, after)) = CALL.get()
                && correlation == data.correlation
            {
                CALL.set(None);
                // SAFETY: at its end CUPTI has the result of the call, which is a CUresult.
                let result = unsafe { *data.result };
                call::end(session::get(), &after, result);
            }
        }
        _ => {}
    }
    INSIDE.set(false);
}

/// Before a call.
fn enter(session: &Session, hook: &'static Hook, data: &CallbackData) -> After {
    // SAFETY: CUPTI gives the structure that belongs to the function.
    let words = unsafe { arguments(hook, data.parameters.cast()) };
    call::begin(session, hook, &Frame::new(&words))
}

/// A call's arguments, which CUPTI has as the fields of a structure.
///
/// # Safety
/// At `fields` is the structure of the function's parameters.
unsafe fn arguments(hook: &Hook, fields: *const u8) -> [u64; WORDS] {
    let mut words = [0_u64; WORDS];
    let mut offset = 0_usize;
    for (word, parameter) in words.iter_mut().zip(hook.parameters) {
        let width = usize::from(parameter.width);
        offset = offset.next_multiple_of(width);
        // SAFETY: the structure has a field of this width for each parameter, each aligned to its
        // width (CUPTI, generated_cuda_meta.h).
        *word = unsafe {
            let field = fields.add(offset);
            match width {
                1 => u64::from(field.read()),
                2 => u64::from(field.cast::<u16>().read_unaligned()),
                4 => u64::from(field.cast::<u32>().read_unaligned()),
                _ => field.cast::<u64>().read_unaligned(),
            }
        };
        offset += width;
    }
    words
}

/// The table's row of a function that CUPTI names, or none.
fn hook_of(number: u32, data: &CallbackData) -> Option<&'static Hook> {
    /// For each number: 0 unknown, 1 not hooked, else the row and 2.
    static ROWS: [AtomicU16; NUMBERS] = [const { AtomicU16::new(0) }; NUMBERS];
    let known = ROWS.get(number as usize);
    let row = match known.map_or(0, |row| row.load(Ordering::Relaxed)) {
        0 if data.function.is_null() => 1,
        0 => {
            // SAFETY: CUPTI's name of the function is a C string.
            let name = unsafe { CStr::from_ptr(data.function) };
            let row = table::slot_of(name).map_or(1, |slot| slot as u16 + 2);
            if let Some(known) = known {
                known.store(row, Ordering::Relaxed);
            }
            row
        }
        row => row,
    };
    HOOKS.get(usize::from(row).checked_sub(2)?)
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use crate::table::Role;

    #[test]
    fn arguments_are_found_in_their_structure() {
        #[repr(C)]
        struct Memset2d {
            address: u64,
            pitch: u64,
            value: u16,
            width: u64,
            height: u64,
        }
        let fields = Memset2d { address: 1, pitch: 2, value: 3, width: 4, height: 5 };
        let hook = &HOOKS[table::slot_of(c"cuMemsetD2D16_v2").unwrap()];
        // SAFETY: these are that function's parameters.
        let words = unsafe { arguments(hook, (&raw const fields).cast()) };
        assert_eq!(words[..6], [1, 2, 3, 4, 5, 0]);
        let frame = Frame::new(&words);
        assert_eq!(crate::work::number(hook, &frame, Role::Height), 5);
        // The longest: 11, some of them where the stack's are.
        assert!((0..WORDS).all(|index| frame.word(index) == words[index]));
    }

    #[test]
    fn a_program_without_cupti_goes_on() {
        assert_eq!(InitializeInjection(), 1);
    }
}
