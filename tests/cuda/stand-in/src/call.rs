//! A call of the driver: the calling thread's clock and contexts, and the driver, locked.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use crate::driver::Driver;
use crate::record::{Recorded, Row};
use crate::settings::settings;
use crate::status::{Answer, Status, code};

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

thread_local! {
    /// Virtual time, in nanoseconds. None before the thread's first call.
    static CLOCK: Cell<Option<u64>> = const { Cell::new(None) };
    /// The current context is the last.
    static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// Whether the thread is in a host callback, where the driver must not be called.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// What a call is, which says what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// May be made before `cuInit`, costs nothing and is not written down.
    Ask,
    /// Asks nothing of a device.
    Call,
    /// Only asks what something is.
    Get,
    /// Asks how far something is.
    Query,
    /// Asks a device for something.
    Launch,
    /// Waits.
    Sync,
    /// Has a stream wait for an event.
    Wait,
}

/// A call in progress.
pub(crate) struct Call {
    driver: Option<MutexGuard<'static, Option<Driver>>>,
    /// Whether stream 0 is the thread's own.
    per_thread: bool,
    /// What the timeline calls it and what it asked for.
    pub(crate) correlation: u64,
    /// The stream that it was about, for the timeline.
    pub(crate) stream: Option<u64>,
    /// The event that it was about, for the timeline.
    pub(crate) event: Option<Recorded>,
    /// Bytes that it moved.
    pub(crate) bytes: u64,
}

/// Does a call: locks the driver, lets the clock go on, and writes down what was done.
pub(crate) fn enter(
    symbol: &'static str,
    sort: Sort,
    body: impl FnOnce(&mut Call) -> Answer,
) -> i32 {
    let per_thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
    let mut call = Call::begin(per_thread);
    let driver = &mut *call;
    *driver.calls.entry(symbol).or_default() += 1;
    if sort == Sort::Ask {
        return code(body(&mut call));
    }
    if !driver.is_usable() {
        return code(Err(Status::NOT_INITIALIZED));
    }
    if IN_CALLBACK.get() {
        driver.record.call(symbol, Status::NOT_PERMITTED.0);
        return code(Err(Status::NOT_PERMITTED));
    }
    let start = clock(driver);
    let cost = match sort {
        Sort::Launch => settings().launch_ns,
        Sort::Sync => settings().sync_ns,
        Sort::Call | Sort::Wait | Sort::Ask => settings().call_ns,
        Sort::Get => settings().get_ns,
        Sort::Query => settings().query_ns,
    };
    driver.correlation += 1;
    call.correlation = call.driver().correlation;
    CLOCK.set(Some(start + cost));
    let code = code(body(&mut call));
    let end = call.now();
    let Call { correlation, stream, event, bytes, .. } = call;
    let driver = &mut *call;
    driver.latest = driver.latest.max(end);
    driver.record.call(symbol, code);
    let kind = match sort {
        Sort::Launch => "launch",
        Sort::Sync => "sync",
        Sort::Wait => "wait",
        Sort::Call | Sort::Get | Sort::Query | Sort::Ask => "call",
    };
    let (duration, device) = (end - start, driver.device_of_thread());
    driver.record.row(&Row {
        start,
        duration,
        kind,
        stream,
        bytes,
        name: symbol,
        device,
        correlation,
        memory: "",
        event,
    });
    code
}

/// The thread's clock. A new thread's begins at the latest time that any thread has seen.
fn clock(driver: &Driver) -> u64 {
    let clock = CLOCK.get().unwrap_or(driver.latest);
    CLOCK.set(Some(clock));
    clock
}

/// The thread's current context.
pub(crate) fn current_context() -> Option<u64> {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied())
}

/// Does something with the thread's stack of contexts.
pub(crate) fn with_contexts<T>(f: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CONTEXTS.with_borrow_mut(f)
}

impl Call {
    fn begin(per_thread: bool) -> Self {
        let driver = Some(lock());
        Self { driver, per_thread, correlation: 0, stream: None, event: None, bytes: 0 }
    }

    /// A call that is none of the driver's: a test's.
    pub(crate) fn of_test() -> Self {
        Self::begin(false)
    }

    fn driver(&self) -> &Driver {
        self.driver.as_ref().and_then(|driver| driver.as_ref()).expect("it is locked and made")
    }

    /// The thread's virtual time.
    pub(crate) fn now(&self) -> u64 {
        clock(self.driver())
    }

    /// Lets the thread's time go on to a time, if it is later.
    pub(crate) fn wait_until(&mut self, time: u64) {
        let now = self.now().max(time);
        CLOCK.set(Some(now));
        self.latest = self.latest.max(now);
    }

    /// Makes the call cost something else than calls of its sort do.
    pub(crate) fn costs(&mut self, instead_of: u64, nanoseconds: u64) {
        CLOCK.set(Some((self.now() + nanoseconds).saturating_sub(instead_of)));
    }

    /// Whether stream 0 is the thread's own.
    pub(crate) fn is_per_thread(&self) -> bool {
        self.per_thread
    }

    /// Calls a function of the program's at a virtual time, with the driver unlocked, and says
    /// when it ended.
    pub(crate) fn call_back(&mut self, time: u64, function: impl FnOnce()) -> u64 {
        let before = CLOCK.replace(Some(time));
        self.driver = None;
        IN_CALLBACK.set(true);
        function();
        IN_CALLBACK.set(false);
        self.driver = Some(lock());
        CLOCK.replace(before).unwrap_or(time)
    }
}

impl Deref for Call {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver()
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut Driver {
        let driver = self.driver.as_mut().and_then(|driver| driver.as_mut());
        driver.expect("it is locked and made")
    }
}

fn lock() -> MutexGuard<'static, Option<Driver>> {
    // A thread that panicked aborted the process, so no lock is poisoned.
    let mut driver = DRIVER.lock().expect("no thread panics and lives");
    driver.get_or_insert_with(Driver::new);
    driver
}
