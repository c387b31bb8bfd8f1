//! The CPU waits for a GPU, or asks it: what the GPU wrote when it was ready comes later.

use core::sync::atomic::{AtomicUsize, Ordering};

use perf_core::{Kind, Nanos};

use crate::call::After;
use crate::driver::{NOT_READY, Result32, SUCCESS, Stream};
use crate::session::Session;
use crate::table::{Class, Hook, Role};
use crate::work::stream_of;
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

/// Before the CPU waits or asks. Whether there is something to wait for is asked only when it
/// matters: what was ready before has long been seen.
pub(crate) fn begin(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let added = session.extra(Kind::Synchronise, 0) != Nanos::ZERO;
    let stream = || stream_of(hook, frame);
    let event = || hook.position(Role::Event).map(|position| frame.word(position));
    let pending = match hook.class {
        Class::Query => {
            return match (event(), stream()) {
                (Some(event), _) => After::Query(Asked::event(event as usize)),
                (None, Some(stream)) => After::Query(Asked::stream(stream)),
                (None, None) => After::Nothing,
            };
        }
        _ if !added || captures::any(session) => false,
        Class::StreamSynchronize => stream().is_none_or(|stream| !session.driver.is_idle(stream)),
        Class::EventSynchronize => event().is_none_or(|event| {
            let query = session.driver.event_query;
            // SAFETY: the program gives the driver this event to wait for.
            query.is_none_or(|query| unsafe { query(real::pointer(event as usize)) } != SUCCESS)
        }),
        _ => true,
    };
    After::Wait { pending }
}

/// The CPU has waited.
pub(crate) fn end(session: &Session, pending: bool, result: Result32) {
    if result != SUCCESS {
        return;
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
    let place = asked.place(&session.pending);
    match result {
        NOT_READY => place.store(asked.0, Ordering::Release),
        SUCCESS => {
            let noted =
                place.compare_exchange(asked.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            session.ledger.did(Kind::Synchronise, 1, 0);
            if noted {
                delay::on_cpu(session, Kind::Synchronise, session.extra(Kind::Synchronise, 0));
            }
        }
        _ => {}
    }
}
