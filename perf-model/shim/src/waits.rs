//! The CPU waits for a GPU, or asks it: what the GPU wrote when it was ready comes later.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use perf_core::{Kind, Nanos};

use crate::call::After;
use crate::driver::{NOT_READY, Result32, SUCCESS, Stream};
use crate::session::Session;
use crate::table::{Class, Hook, Role};
use crate::work::{number, stream_of};
use crate::{captures, delay, real};

use crate::arch::Frame;

/// Streams and events that were asked for at a time. One more takes the place of another, which
/// then is not delayed.
const ASKED: usize = 256;

/// Streams and events that had not ended when they were asked for.
#[derive(Debug)]
pub(crate) struct Pending([AtomicUsize; ASKED]);

impl Default for Pending {
    fn default() -> Self {
        Self([const { AtomicUsize::new(0) }; ASKED])
    }
}

/// What a program asked for: a stream or an event, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked(usize);

impl Asked {
    fn stream(stream: Stream) -> Self {
        // Handles are addresses or 0, 1, 2: never so high.
        let flavour = if stream.per_thread && stream.is_default() { 3 } else { 1 };
        Self(real::address(stream.handle) | flavour << 62)
    }

    fn event(handle: usize) -> Self {
        Self(handle | 2 << 62)
    }

    fn place(self, pending: &Pending) -> &AtomicUsize {
        // Handles lie some tens of bytes apart.
        let mixed = (self.0 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &pending.0[mixed >> (usize::BITS - 8)]
    }
}

impl Pending {
    /// Whether something was asked for and had not ended; it is forgotten.
    fn take(&self, asked: Asked) -> bool {
        let place = asked.place(self);
        place.compare_exchange(asked.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Contexts whose last wait is remembered. A wait in one beyond them is always one.
const CONTEXTS: usize = 64;

/// What the process put in since it last waited for a context.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// How often work was put in, in any context.
    puts: AtomicU64,
    /// What `puts` was when a wait for a context began that has ended.
    seen: Mutex<Vec<Seen>>,
}

/// A context, and what was put in when a wait for it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    context: usize,
    puts: u64,
}

impl Contexts {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Before work is put in.
    pub(crate) fn put(&self) {
        self.puts.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether something was put in since the wait that is remembered.
    fn has_more(&self, wait: Seen) -> bool {
        let seen = self.seen();
        let last = seen.iter().find(|seen| seen.context == wait.context);
        wait.puts != last.map_or(0, |last| last.puts)
    }

    /// A wait has ended well.
    fn waited(&self, wait: Seen) {
        let mut seen = self.seen();
        match seen.iter().position(|seen| seen.context == wait.context) {
            Some(last) => seen[last] = wait,
            None if seen.len() < CONTEXTS => seen.push(wait),
            None => {}
        }
    }

    /// A context goes.
    pub(crate) fn forget(&self, context: usize) {
        self.seen().retain(|seen| seen.context != context);
    }
}

/// A wait of the CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// Whether there was something to wait for; not where that was not asked.
    pending: bool,
    asks: bool,
    /// Where it is for a stream or an event: which.
    asked: Option<Asked>,
    /// Where it is for a context: which, and what was put in before.
    context: Option<Seen>,
}

/// Whether a call of this class puts in work that a wait for the context is for. Calls with a stream
/// that are not named here do too: memory that is allocated in its order, for one.
fn puts_work(hook: &Hook) -> bool {
    match hook.class {
        Class::StreamSynchronize
        | Class::EventSynchronize
        | Class::ContextSynchronize
        | Class::Query
        | Class::CaptureBegin
        | Class::CaptureEnd
        | Class::StreamEnd => false,
        Class::Launch
        | Class::HostToDevice
        | Class::DeviceToHost
        | Class::DeviceToDevice
        | Class::Copy
        | Class::CopyPeer
        | Class::Copy2d
        | Class::Copy3d
        | Class::Copy3dPeer
        | Class::CopyBatch
        | Class::Copy3dBatch
        | Class::Memset
        | Class::Memset2d => true,
        _ => hook.position(Role::Stream).is_some(),
    }
}

/// Before any call: work that is put in is something to wait for.
pub(crate) fn note(session: &Session, hook: &Hook) {
    // Where nothing is added, nobody asks.
    if !session.settings.fabric.is_native() && puts_work(hook) {
        session.waits.put();
    }
}

/// Before the CPU waits or asks. Whether there is something to wait for is asked only when it
/// matters: what was ready before has long been seen.
pub(crate) fn begin(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let added = session.ledger.in_range() && session.extra(Kind::Synchronise, 0) != Nanos::ZERO;
    let asked = asked(hook, frame);
    if hook.class == Class::Query {
        return asked.map_or(After::Nothing, After::Query);
    }
    let asks = added && !captures::any(session);
    let event = || hook.position(Role::Event).map(|position| frame.word(position));
    let mut context = None;
    let pending = match hook.class {
        Class::StreamSynchronize if asks => {
            stream_of(hook, frame).is_none_or(|stream| !session.driver.is_idle(stream))
        }
        Class::EventSynchronize if asks => {
            event().is_none_or(|event| !session.driver.is_reached(real::pointer(event as usize)))
        }
        // Also where nothing is added now: what was waited for before a range is not there in it.
        Class::ContextSynchronize if session.extra(Kind::Synchronise, 0) != Nanos::ZERO => {
            context = of_context(session, hook, frame);
            asks && context.is_none_or(|wait| session.waits.has_more(wait))
        }
        _ => false,
    };
    After::Wait(Wait { pending, asks, asked, context })
}

/// The stream or event that a call names.
fn asked(hook: &Hook, frame: &Frame) -> Option<Asked> {
    match hook.position(Role::Event) {
        Some(position) => Some(Asked::event(frame.word(position) as usize)),
        None => stream_of(hook, frame).map(Asked::stream),
    }
}

/// Before a stream or an event is destroyed: its handle may come back as another's.
pub(crate) fn gone(session: &Session, hook: &Hook, frame: &Frame) {
    if let Some(asked) = asked(hook, frame) {
        session.pending.take(asked);
    }
}

/// The context that a call waits for, and what was put in before.
fn of_context(session: &Session, hook: &Hook, frame: &Frame) -> Option<Seen> {
    let puts = session.waits.puts.load(Ordering::Acquire);
    let named = number(hook, frame, Role::Context) as usize;
    let context = match named {
        0 => real::address(session.driver.current_context()?),
        named => named,
    };
    Some(Seen { context, puts })
}

/// The CPU has waited.
pub(crate) fn end(session: &Session, wait: Wait, result: Result32) {
    if result != SUCCESS {
        return;
    }
    // It was seen to have ended: a query that says so later says nothing new. That it had not, when it
    // was asked for before, is known also where the driver is not asked.
    let noted = wait.asked.is_some_and(|asked| session.pending.take(asked));
    let pending = wait.pending || (noted && !wait.asks);
    if let Some(wait) = wait.context {
        session.devices.note(&session.driver, wait.context);
        session.waits.waited(wait);
    }
    session.ledger.did(Kind::Synchronise, 1, 0);
    if pending {
        delay::on_cpu(session, Kind::Synchronise, session.extra(Kind::Synchronise, 0));
    }
    session.ledger.tick();
    session.sampler.harvest(session);
}

/// The CPU has asked. The first yes after a no is what comes later.
pub(crate) fn answered(session: &Session, asked: Asked, result: Result32) {
    match result {
        NOT_READY => asked.place(&session.pending).store(asked.0, Ordering::Release),
        SUCCESS => {
            let noted = session.pending.take(asked);
            session.ledger.did(Kind::Synchronise, 1, 0);
            if noted {
                delay::on_cpu(session, Kind::Synchronise, session.extra(Kind::Synchronise, 0));
            }
        }
        _ => {}
    }
}
