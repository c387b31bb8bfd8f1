//! A stream waits: a kernel of one thread that does nothing for as long.
//!
//! The kernel comes in a module of its own, loaded into each context when it is first needed there,
//! so that no name of the program's can be the same. It goes into the stream that it delays, by the
//! stream's own handle and with the call's default stream, so that it waits for what the work before
//! it waited for, and nothing else does. Other streams go on; the kernel takes one thread's room.
//!
//! It counts its processor's clock (`clock64`), which has the finest steps, up to as many cycles as
//! the time has. How many those are it learns from earlier delays: each adds the cycles and the
//! nanoseconds (`globaltimer`) that passed to sums in the module's memory, a long one as one of a
//! millisecond. The steps of `globaltimer` are coarse, 1 us on some GPUs, but a sum of many is right.
//! The first delays go by the clock that the driver names. So nothing has to be measured, copied or
//! waited for in the program's way.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use perf_core::{Fact, Nanos, Place, Text, ptx};

use crate::arch::Frame;
use crate::call::After;
use crate::driver::{Driver, Handle, SUCCESS, Stream};
use crate::real;
use crate::session::Session;
use crate::table::{Hook, Role};
use crate::work::number;

/// Contexts of a process that can have delays. More have none, and the ledger says so.
const CONTEXTS: usize = 64;

/// CU_DEVICE_ATTRIBUTE_CLOCK_RATE, kHz.
const CLOCK_RATE: i32 = 13;

/// How many times as long as the shortest one putting a delay takes that waits for something.
const WAITED: u64 = 4;

/// The clock of a device that does not say its own, kHz.
const USUAL_CLOCK: u32 = 1_500_000;

/// The delaying kernel in a context.
#[derive(Debug)]
struct Entry {
    /// The context, or 0.
    context: AtomicUsize,
    /// The kernel, or 0 where it could not be loaded.
    function: AtomicUsize,
    /// The device's clock, kHz.
    clock: AtomicUsize,
}

/// The delaying kernel in each context.
#[derive(Debug)]
pub(crate) struct Contexts {
    entries: [Entry; CONTEXTS],
    /// The least time that putting a delay took, ns.
    shortest: AtomicU64,
    /// Held by who adds an entry.
    adding: Mutex<()>,
}

impl Default for Contexts {
    fn default() -> Self {
        let entry = || Entry {
            context: AtomicUsize::new(0),
            function: AtomicUsize::new(0),
            clock: AtomicUsize::new(0),
        };
        Self {
            entries: core::array::from_fn(|_| entry()),
            shortest: AtomicU64::new(u64::MAX),
            adding: Mutex::new(()),
        }
    }
}

/// The kernel of a context, and its device's clock in kHz.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    function: Handle,
    clock: u32,
}

impl Contexts {
    fn find(&self, context: usize) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.context.load(Ordering::Acquire) == context)
    }

    /// The kernel of the current context, which is `context`.
    fn kernel(&self, session: &Session, context: usize) -> Option<Kernel> {
        let entry = match self.find(context) {
            Some(entry) => entry,
            None => self.add(session, context)?,
        };
        let function = entry.function.load(Ordering::Acquire);
        let clock = entry.clock.load(Ordering::Acquire) as u32;
        (function != 0).then(|| Kernel { function: real::pointer(function), clock })
    }

    #[cold]
    fn add(&self, session: &Session, context: usize) -> Option<&Entry> {
        let _guard = self.adding.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(entry) = self.find(context) {
            return Some(entry);
        }
        let Some(entry) = self.find(0) else {
            session.ledger.say(
                Text::NoGpuDelays,
                &format!("more than {CONTEXTS} contexts: those beyond have no delays"),
            );
            return None;
        };
        let device = session.driver.current_device();
        let function = match load(&session.driver) {
            Ok(function) => function,
            Err(why) => {
                let which = session.driver.which(device);
                session.ledger.say(Text::NoGpuDelays, &format!("in a context of {which}: {why}"));
                core::ptr::null_mut()
            }
        };
        entry.function.store(real::address(function), Ordering::Release);
        let clock = device.and_then(|device| clock(&session.driver, device));
        entry.clock.store(clock.unwrap_or(USUAL_CLOCK) as usize, Ordering::Release);
        session.devices.note(&session.driver, context);
        entry.context.store(context, Ordering::Release);
        if let Some(name) = device.and_then(|device| session.driver.name_of(device)) {
            session.ledger.say(Text::Device, &name);
        }
        Some(entry)
    }

    /// Whether a function is one of the kernels.
    pub(crate) fn is_ours(&self, function: Handle) -> bool {
        let function = real::address(function);
        function != 0
            && self.entries.iter().any(|entry| {
                entry.context.load(Ordering::Acquire) != 0
                    && entry.function.load(Ordering::Acquire) == function
            })
    }

    /// A context goes, and the kernel with it.
    fn forget(&self, context: usize) {
        if let Some(entry) = self.find(context) {
            entry.context.store(0, Ordering::Release);
        }
    }
}

/// Loads the kernel into the current context.
fn load(driver: &Driver) -> Result<Handle, String> {
    let (Some(load), Some(find)) = (driver.load_module, driver.function) else {
        return Err("the driver has no cuModuleLoadData".into());
    };
    let mut module = core::ptr::null_mut();
    let mut function = core::ptr::null_mut();
    let result = driver.relaxed(|| {
        // SAFETY: the image is PTX with its zero byte; module and function are written here.
        let result = unsafe {
            match load(&raw mut module, ptx::DELAY_MODULE.as_ptr().cast::<c_void>()) {
                SUCCESS => find(&raw mut function, module, ptx::DELAY.as_ptr()),
                error => error,
            }
        };
        if let (SUCCESS, Some(load_function)) = (result, driver.load_function) {
            // A driver that loads functions late would do it at the first launch, and wait for the GPU.
            // SAFETY: the function is the module's.
            unsafe { load_function(function) };
        }
        result
    });
    match result {
        SUCCESS => Ok(function),
        error => Err(format!("the delaying kernel could not be loaded: CUDA error {error}")),
    }
}

/// A device's clock, kHz.
fn clock(driver: &Driver, device: i32) -> Option<u32> {
    let mut clock = 0;
    // SAFETY: the number is written here.
    let result = unsafe { driver.device_attribute?(&raw mut clock, CLOCK_RATE, device) };
    u32::try_from(clock).ok().filter(|clock| result == SUCCESS && *clock > 0)
}

/// Puts a delay into a stream, and counts what that costs the CPU. False if it could not be put
/// there; the program's own work goes on.
pub(crate) fn put_timed(session: &Session, stream: Stream, time: Nanos) -> bool {
    let begun = Instant::now();
    if !put(session, stream, time) {
        return false;
    }
    let took = begun.elapsed().as_nanos() as u64;
    // One that took far longer than the shortest waited for room in its stream, as the GPU is behind,
    // or for the kernel to be loaded.
    let shortest = session.contexts.shortest.fetch_min(took, Ordering::Relaxed);
    let own = match shortest {
        // The first one loads the kernel.
        u64::MAX => 0,
        shortest if took > shortest.saturating_mul(WAITED) => shortest,
        _ => took,
    };
    session.ledger.add(Fact::PuttingNanos, own);
    session.ledger.add(Fact::PutDelays, 1);
    true
}

/// Loads the kernel into the current context, and into the primary context of each device that has
/// one, so that the first delay there is as short as the others.
pub(crate) fn prepare(session: &Session) {
    if session.is_native() || session.settings.place == Place::Cpu {
        return;
    }
    if let Some(context) = session.driver.current_context() {
        session.contexts.kernel(session, real::address(context));
    }
    for device in 0..session.driver.devices() {
        if session.driver.has_primary(device) == Some(true) {
            prepare_primary(session, device);
        }
    }
}

/// Loads the kernel into a device's primary context, which is there.
fn prepare_primary(session: &Session, device: i32) {
    let driver = &session.driver;
    let (Some(retain), Some(release)) = (driver.retain_primary, driver.release_primary) else {
        return;
    };
    let mut context = core::ptr::null_mut();
    // SAFETY: the context is written here.
    if unsafe { retain(&raw mut context, device) } != SUCCESS {
        return;
    }
    driver.within(context, || session.contexts.kernel(session, real::address(context)));
    // SAFETY: it was retained above.
    unsafe { release(device) };
    // The program may have let go of it meanwhile.
    primary_ended(session, device);
}

/// Puts a delay into a stream, shorter by what the kernel itself takes. False if it could not be put
/// there; the program's own work goes on.
pub(crate) fn put(session: &Session, stream: Stream, time: Nanos) -> bool {
    let driver = &session.driver;
    let time = time.saturating_sub(session.settings.delay_cost);
    let Some(context) = driver.context_of(stream) else { return false };
    let put = driver.within(context, || {
        let kernel = session.contexts.kernel(session, real::address(context));
        kernel.is_some_and(|kernel| launch(driver, kernel, stream, time))
    });
    put == Some(true)
}

fn launch(driver: &Driver, kernel: Kernel, stream: Stream, time: Nanos) -> bool {
    let mut nanos = time.0;
    let mut clock = kernel.clock;
    let mut parameters = [(&raw mut nanos).cast::<c_void>(), (&raw mut clock).cast::<c_void>()];
    // SAFETY: the kernel is the current context's and takes a 64-bit and a 32-bit number, which the
    // driver copies before it returns.
    unsafe { driver.launch_one(kernel.function, stream, &mut parameters) == SUCCESS }
}

/// Before a context goes: nothing of it is used again. Its handle may come back as another's.
pub(crate) fn context_ends(session: &Session, hook: &Hook, frame: &Frame) -> After {
    session.pushes.forget();
    if hook.position(Role::Context).is_some() {
        forget(session, number(hook, frame, Role::Context) as usize);
        return After::ContextEnds;
    }
    // A device's primary context: which one it is the driver does not say once it is gone.
    After::PrimaryEnds { device: number(hook, frame, Role::Device) as i32 }
}

/// After a device's primary context was released or reset: if it is gone, so is all that is kept for
/// it. Another context of the device gets a new kernel when it next needs one.
pub(crate) fn primary_ended(session: &Session, device: i32) {
    if session.driver.has_primary(device) == Some(true) {
        return;
    }
    for context in session.devices.of(device) {
        forget(session, context);
    }
    session.ranges.context_ended(&session.driver);
}

fn forget(session: &Session, context: usize) {
    session.devices.forget(context);
    session.contexts.forget(context);
    session.captures.forget(context);
    session.waits.forget(context);
    session.sampler.forget(context);
}
