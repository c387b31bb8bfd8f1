//! What the shim knows of the process, from its first call of the driver on.

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::env::VarError;
use std::io::Write;

use perf_core::{BYPASS_VARIABLE, Fabric, Kind, LEDGER_VARIABLE, Nanos, Settings, Text, VARIABLE};

use crate::captures::Captures;
use crate::delay::gpu::Contexts;
use crate::devices::Devices;
use crate::driver::Driver;
use crate::graphs::Graphs;
use crate::kernels::Sampler;
use crate::ledger::Counts;
use crate::mapped::Ranges;
use crate::push::Pushes;
use crate::waits::{self, Pending};

/// What the shim knows of the process.
#[derive(Debug)]
pub(crate) struct Session {
    /// What it is told to do.
    pub(crate) settings: Settings,
    /// Whether nothing is added to anything.
    native: bool,
    /// The driver, as it is.
    pub(crate) driver: Driver,
    /// What it counts.
    pub(crate) ledger: Counts,
    /// The delaying kernel in each context.
    pub(crate) contexts: Contexts,
    /// Which device each context is of that something is kept for.
    pub(crate) devices: Devices,
    /// Kernels whose duration is measured.
    pub(crate) sampler: Sampler,
    /// Executable graphs.
    pub(crate) graphs: Graphs,
    /// Host memory that is mapped into a GPU, and managed memory.
    pub(crate) ranges: Ranges,
    /// Streams and events that were asked for and had not ended.
    pub(crate) pending: Pending,
    /// What was put in since contexts were waited for.
    pub(crate) waits: waits::Contexts,
    /// Allocations that copies are pushed into.
    pub(crate) pushes: Pushes,
    /// Whether CUPTI calls, which cannot replace a call.
    pub(crate) injected: AtomicBool,
    /// Streams that are captured now, in all threads.
    pub(crate) captures: Captures,
}

impl Session {
    /// What one operation of a kind takes longer.
    #[inline]
    pub(crate) fn extra(&self, kind: Kind, bytes: u64) -> Nanos {
        if self.native { Nanos::ZERO } else { self.settings.extra(kind, bytes) }
    }

    /// Whether nothing is added to anything.
    pub(crate) fn is_native(&self) -> bool {
        self.native
    }

    fn begin() -> Self {
        let (settings, wrong) = match std::env::var(VARIABLE) {
            Ok(text) => match text.parse::<Settings>() {
                Ok(settings) => (settings, None),
                Err(error) => (native(), Some(error.to_string())),
            },
            Err(VarError::NotPresent) => (native(), None),
            Err(VarError::NotUnicode(text)) => {
                let text = text.display();
                (native(), Some(format!("{VARIABLE}: \"{text}\": it is no text in UTF-8")))
            }
        };
        let ledger = Counts::begin(std::env::var_os(LEDGER_VARIABLE).as_deref(), settings.range);
        if let Some(wrong) = wrong {
            warn(&format!("{wrong}; nothing is delayed"));
            ledger.say(Text::Note, &wrong);
        }
        Self {
            settings,
            native: settings.fabric.is_native(),
            // A hooked function was called, so there is a driver; one that has another name cannot
            // be asked anything, and then nothing is put on a GPU.
            driver: Driver::loaded().unwrap_or_else(Driver::none),
            ledger,
            contexts: Contexts::default(),
            devices: Devices::default(),
            sampler: Sampler::default(),
            graphs: Graphs::default(),
            ranges: Ranges::default(),
            pending: Pending::default(),
            waits: waits::Contexts::default(),
            pushes: Pushes::default(),
            injected: AtomicBool::new(false),
            captures: Captures::default(),
        }
    }
}

/// Without settings: counted, nothing delayed, nothing measured.
fn native() -> Settings {
    Settings { measure_every: 0, ..Settings::of(Fabric::NATIVE) }
}

/// Says something on standard error, if that can be written: the program goes on whether or not.
pub(crate) fn warn(what: &str) {
    let _ = writeln!(std::io::stderr(), "libdxpu_perf.so: {what}");
}

static SESSION: AtomicPtr<Session> = AtomicPtr::new(null_mut());

/// Whether a thread is making the session (1), or none yet (0).
static MAKING: AtomicUsize = AtomicUsize::new(0);

/// Whether [`forked`] is called in a fork's child.
static WATCHING_FORKS: AtomicBool = AtomicBool::new(false);

/// The process's session. The first call makes it.
pub(crate) fn get() -> &'static Session {
    let session = SESSION.load(Ordering::Acquire);
    if session.is_null() {
        return make();
    }
    // SAFETY: it was made by `make`, which leaks it.
    unsafe { &*session }
}

#[cold]
fn make() -> &'static Session {
    // Another thread may be at it: two would each make a ledger.
    while MAKING.swap(1, Ordering::AcqRel) == 1 {
        std::thread::yield_now();
    }
    if SESSION.load(Ordering::Acquire).is_null() {
        if !WATCHING_FORKS.swap(true, Ordering::AcqRel) {
            // SAFETY: the handler takes no arguments and does what a fork's child may do.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        }
        SESSION.store(Box::into_raw(Box::new(Session::begin())), Ordering::Release);
    }
    MAKING.store(0, Ordering::Release);
    // SAFETY: it was stored above or by another thread before, and is never freed.
    unsafe { &*SESSION.load(Ordering::Acquire) }
}

/// In a fork's child: it has a ledger of its own from its first call on, none of its parent's
/// contexts, and no thread that holds a lock. The parent's session stays where it is, unused.
unsafe extern "C" fn forked() {
    SESSION.store(null_mut(), Ordering::Release);
    MAKING.store(0, Ordering::Release);
}

/// 0: not looked at yet. 1: no. 2: yes.
static BYPASSED: AtomicU8 = AtomicU8::new(0);

/// Whether the shim is to hook nothing.
pub(crate) fn bypassed() -> bool {
    match BYPASSED.load(Ordering::Relaxed) {
        0 => look(),
        state => state == 2,
    }
}

#[cold]
fn look() -> bool {
    let mut name = [0_u8; 64];
    name[..BYPASS_VARIABLE.len()].copy_from_slice(BYPASS_VARIABLE.as_bytes());
    let name = CStr::from_bytes_until_nul(&name).expect("the variable's name is shorter");
    // SAFETY: the name is a C string. The value is looked at at once, and nothing is allocated:
    // this may run within a library's malloc.
    let set = unsafe {
        let value = libc::getenv(name.as_ptr());
        !value.is_null() && *value != 0
    };
    BYPASSED.store(if set { 2 } else { 1 }, Ordering::Relaxed);
    set
}
