//! Kernels: what is launched, and how long some of them last.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use perf_core::{Kind, Nanos, Place};

use crate::arch::Frame;
use crate::call::After;
use crate::driver::{Driver, Handle, SUCCESS, Stream};
use crate::session::Session;
use crate::table::{Hook, Role};
use crate::work::{Work, number, stream_or_default};
use crate::{captures, delay, mapped, real};

/// Where a `CUlaunchConfig` begins (cuda.h, since CUDA 11.8).
#[repr(C)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
}

/// A `CUDA_LAUNCH_PARAMS` (cuda.h, since CUDA 9).
#[repr(C)]
struct LaunchParams {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    parameters: Handle,
}

const _: () = assert!(offset_of!(LaunchConfig, stream) == 32);
const _: () = assert!(size_of::<LaunchParams>() == 56);

/// Before one or several kernels are launched.
pub(crate) fn begin(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let at = |role| hook.position(role).map(|position| frame.word(position) as usize);
    if let Some(list) = at(Role::LaunchList) {
        return several(session, hook, frame, list);
    }
    let stream = match at(Role::LaunchConfig) {
        Some(0) => return After::Nothing,
        Some(config) => {
            let config: *const LaunchConfig = real::pointer(config).cast();
            // SAFETY: the program gives the driver this configuration; it begins so.
            let handle = unsafe { (*config).stream };
            Stream { handle, per_thread: hook.per_thread }
        }
        None => stream_or_default(hook, frame),
    };
    let mut work = Work::begin(session, Kind::Kernel, 0, stream);
    if !work.captured {
        mapped::launch(session, hook, frame, stream);
        work.sample = session.sampler.begin(session, &mut work);
    }
    After::Work(work)
}

/// Before a kernel is launched on several devices at once. Each stream gets its own delay, and
/// that of the last is what the call ends with.
fn several(session: &Session, hook: &Hook, frame: &Frame, list: usize) -> After {
    let count = number(hook, frame, Role::Count) as usize;
    if list == 0 || count == 0 {
        return After::Nothing;
    }
    // SAFETY: the program gives the driver a list of so many launches.
    let launches =
        unsafe { core::slice::from_raw_parts(real::pointer(list).cast::<LaunchParams>(), count) };
    let stream =
        |launch: &LaunchParams| Stream { handle: launch.stream, per_thread: hook.per_thread };
    let work = Work::begin(session, Kind::Kernel, 0, stream(&launches[0]));
    After::Launches { work: Work { operations: count as u64, ..work }, list }
}

/// After kernels were launched on several devices: the delay of each stream.
pub(crate) fn ended(session: &Session, work: &Work, list: usize, result: i32) {
    let count = work.operations as usize;
    // SAFETY: as in `several`; the call has not returned to the program, so the list is there.
    let launches =
        unsafe { core::slice::from_raw_parts(real::pointer(list).cast::<LaunchParams>(), count) };
    crate::work::end(session, work, result);
    for launch in launches.iter().skip(1).filter(|_| result == SUCCESS) {
        let stream = Stream { handle: launch.stream, ..work.stream };
        crate::delay::after_work(session, &Work { stream, ..*work });
    }
}

/// Kernels that are measured at a time, in all contexts. While so many have not ended, no other
/// is measured.
const PAIRS: usize = 128;

/// Events around a kernel.
#[derive(Clone, Copy, Debug)]
struct Pair {
    context: usize,
    start: usize,
    end: usize,
    state: State,
    /// What the GPU may have waited for the CPU between the first event and the kernel, at most.
    starved: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// The kernel is being launched.
    Begun,
    /// The kernel was launched and may have ended.
    UnderWay,
    /// A thread asks whether it has.
    Asked,
}

/// The place of a pair whose context went.
const GONE: Pair = Pair { context: 0, start: 0, end: 0, state: State::Free, starved: Nanos::ZERO };

/// Which pair of events is around a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    index: usize,
    /// Its first event: another's, if its context went meanwhile.
    start: usize,
    /// Just before that event was put into the stream.
    since: Instant,
}

/// A kernel that a GPU without other work was given is measured if it lasts so many times as long as
/// the GPU may have waited for it behind the first event.
const MUST_OUTLAST: u64 = 10;

/// Measures the duration of one of so many kernels, with events of its own in the kernel's stream.
///
/// A GPU that has nothing else to do reaches the first event before the CPU has launched the kernel,
/// and what is between the events is the CPU's time. So a kernel that is measured has its delay before
/// it instead of behind it: time in which the CPU puts event and kernel there. A stream with other
/// work takes as long so as otherwise; one without is faster by what the CPU took meanwhile. Where
/// that was not enough, or there is no delay, only long kernels count.
///
/// The driver is called without the lock: where a stream is full it holds up the call until other
/// threads have done their part.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    seen: AtomicU32,
    pairs: Mutex<Vec<Pair>>,
    /// Told when no pair is [`State::Asked`] by a thread any more.
    answered: Condvar,
}

impl Sampler {
    fn pairs(&self) -> MutexGuard<'_, Vec<Pair>> {
        self.pairs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Before a kernel is launched: puts an event before it, if it is one that is measured.
    fn begin(&self, session: &Session, work: &mut Work) -> Option<Sample> {
        let every = session.settings.measure_every;
        if every == 0 || !session.ledger.is_on() || !session.ledger.in_range() {
            return None;
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        if !is_sample(seen, every) || captures::any(session) {
            return None;
        }
        self.harvest(session);
        let context = real::address(session.driver.current_context()?);
        let (index, start) = match self.free(context) {
            Some(taken) => taken,
            None => self.add(session, context)?,
        };
        // A launch that fails then has been delayed all the same: one in so many.
        if work.extra != Nanos::ZERO && session.settings.place == Place::Gpu {
            delay::after_work(session, work);
            work.extra = Nanos::ZERO;
        }
        let sample = Sample { index, start, since: Instant::now() };
        if !session.driver.record(real::pointer(sample.start), work.stream) {
            self.change(sample, State::Begun, State::Free);
            return None;
        }
        Some(sample)
    }

    /// A free pair of a context, which is then taken: its place and its first event.
    fn free(&self, context: usize) -> Option<(usize, usize)> {
        let mut pairs = self.pairs();
        let free = |pair: &Pair| pair.context == context && pair.state == State::Free;
        let index = pairs.iter().position(free)?;
        pairs[index].state = State::Begun;
        Some((index, pairs[index].start))
    }

    /// A new pair of a context, taken: in the place of one whose context went, or in a new one.
    fn add(&self, session: &Session, context: usize) -> Option<(usize, usize)> {
        let driver = &session.driver;
        let has_room =
            |pairs: &[Pair]| pairs.len() < PAIRS || pairs.iter().any(|pair| pair.context == 0);
        if !has_room(&self.pairs()) {
            return None;
        }
        session.devices.note(driver, context);
        let (start, end) = driver.relaxed(|| Some((event(driver)?, event(driver)?)))?;
        let mut pairs = self.pairs();
        if !has_room(&pairs) {
            drop(pairs);
            driver.relaxed(|| destroy(driver, [start, end]));
            return None;
        }
        let pair = Pair { context, start, end, state: State::Begun, starved: Nanos::ZERO };
        let index = match pairs.iter().position(|pair| pair.context == 0) {
            Some(index) => index,
            None => {
                pairs.push(pair);
                pairs.len() - 1
            }
        };
        pairs[index] = pair;
        Some((index, start))
    }

    /// Takes a pair from one state to another. None if it went with its context.
    fn change(&self, sample: Sample, from: State, to: State) -> Option<Pair> {
        self.edit(sample, from, |pair| pair.state = to)
    }

    /// Changes a pair that is in a state. None if it went with its context.
    fn edit(&self, sample: Sample, from: State, edit: impl FnOnce(&mut Pair)) -> Option<Pair> {
        let mut pairs = self.pairs();
        let pair = pairs.get_mut(sample.index)?;
        (pair.start == sample.start && pair.state == from).then(|| {
            edit(pair);
            *pair
        })
    }

    /// After it was launched: puts the other event behind it.
    pub(crate) fn end(&self, session: &Session, sample: Sample, stream: Stream, launched: bool) {
        // A context that went in between took its pairs with it.
        let Some(pair) = self.change(sample, State::Begun, State::Begun) else { return };
        // While any stream is captured no event may be asked.
        let may_ask = launched && !captures::any(session);
        let recorded = may_ask && session.driver.record(real::pointer(pair.end), stream);
        let starved = if recorded { starved(&session.driver, &sample) } else { Nanos::ZERO };
        let state = if recorded { State::UnderWay } else { State::Free };
        self.edit(sample, State::Begun, |pair| (pair.state, pair.starved) = (state, starved));
    }

    /// Counts the kernels that have ended.
    pub(crate) fn harvest(&self, session: &Session) {
        if session.settings.measure_every == 0 || captures::any(session) {
            return;
        }
        let mut asked = Vec::new();
        for (index, pair) in self.pairs().iter_mut().enumerate() {
            if pair.state == State::UnderWay {
                pair.state = State::Asked;
                asked.push((index, *pair));
            }
        }
        if asked.is_empty() {
            return;
        }
        session.driver.relaxed(|| {
            for (index, pair) in &asked {
                let state = count(session, pair);
                self.pairs()[*index].state = state;
            }
        });
        self.answered.notify_all();
    }

    /// Drops the events of a context, which goes with all that is in it.
    pub(crate) fn forget(&self, context: usize) {
        let asked = |pair: &Pair| pair.context == context && pair.state == State::Asked;
        let waited = self.answered.wait_while(self.pairs(), |pairs| pairs.iter().any(asked));
        let mut pairs = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        for pair in pairs.iter_mut().filter(|pair| pair.context == context) {
            *pair = GONE;
        }
    }
}

/// Counts a kernel if it has ended, and says what its events are then.
fn count(session: &Session, pair: &Pair) -> State {
    let driver = &session.driver;
    let (Some(query), Some(elapsed)) = (driver.event_query, driver.elapsed) else {
        return State::UnderWay;
    };
    let (start, end) = (real::pointer(pair.start), real::pointer(pair.end));
    // SAFETY: both events are the shim's, of a context that is there: `forget` waits for this, and
    // drops the events of a context that goes.
    if unsafe { query(end) } != SUCCESS {
        return State::UnderWay;
    }
    let mut millis = 0_f32;
    // SAFETY: as above; the time is written here.
    if unsafe { elapsed(&raw mut millis, start, end) } == SUCCESS && millis >= 0.0 {
        let nanos = (f64::from(millis) * 1e6).round() as u64;
        let own = nanos.saturating_sub(session.settings.event_cost.0);
        let is_its_own = pair.starved.0.saturating_mul(MUST_OUTLAST) <= nanos;
        session.ledger.kernel(is_its_own.then_some(own));
    }
    State::Free
}

/// What the GPU may have waited for a kernel that was just launched, and for the event after it,
/// behind the event before it: as long as the CPU took since, if it has come to that event, and else
/// nothing.
fn starved(driver: &Driver, sample: &Sample) -> Nanos {
    // On a clock of its own a driver's calls take what that says.
    if driver.advance_clock.is_some() {
        return Nanos::ZERO;
    }
    let reached = driver.event_query.is_none() || driver.is_reached(real::pointer(sample.start));
    if reached { Nanos(sample.since.elapsed().as_nanos() as u64) } else { Nanos::ZERO }
}

/// Whether this launch, of those counted, is one of `every` that is measured: the first, then one of
/// each run of `every`, at another place in each. A program that launches the same kernels over and
/// over would else show the same one each time.
fn is_sample(seen: u32, every: u32) -> bool {
    let (run, place) = (seen / every, seen % every);
    // The finaliser of MurmurHash3: spreads the run's number over all bits; 0 stays 0.
    let mut hash = run;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    place == (hash ^ hash >> 16) % every
}

/// An event that notes the time.
fn event(driver: &Driver) -> Option<usize> {
    let mut event = core::ptr::null_mut();
    // SAFETY: the event is written here; flags 0 ask for one with a time.
    let result = unsafe { driver.create_event?(&raw mut event, 0) };
    (result == SUCCESS).then(|| real::address(event))
}

fn destroy(driver: &Driver, events: [usize; 2]) {
    let Some(destroy) = driver.destroy_event else { return };
    for event in events {
        // SAFETY: the event is one that `event` made, and nothing else knows it.
        unsafe { destroy(real::pointer(event)) };
    }
}

#[cfg(test)]
mod tests {
    use super::is_sample;

    #[test]
    fn one_of_so_many_is_measured_and_no_place_of_a_step_is_left_out() {
        for (every, step) in [(16, 2), (16, 48), (1, 7), (10, 10)] {
            let launches = 64_000;
            let mut seen = vec![0_u32; step as usize];
            for launch in (0..launches).filter(|launch| is_sample(*launch, every)) {
                seen[(launch % step) as usize] += 1;
            }
            assert_eq!(seen.iter().sum::<u32>(), launches / every);
            let fair = launches / every / step;
            assert!(seen.iter().all(|seen| (fair / 2..=fair * 2).contains(seen)), "{seen:?}");
        }
        assert!(is_sample(0, 16), "a program with few kernels shows one");
    }
}
