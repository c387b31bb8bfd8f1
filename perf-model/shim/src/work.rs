//! Work for a stream: what it is, and what it takes longer.

use perf_core::{Kind, Nanos};

use crate::arch::Frame;
use crate::call::After;
use crate::driver::{Result32, SUCCESS, Stream};
use crate::kernels::Sample;
use crate::session::Session;
use crate::table::{Hook, Role};
use crate::{captures, delay, real};

/// One piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// What it is.
    pub(crate) kind: Kind,
    /// Operations in it.
    pub(crate) operations: u64,
    /// Bytes that it sets.
    pub(crate) bytes: u64,
    /// What it takes longer.
    pub(crate) extra: Nanos,
    /// Where it goes.
    pub(crate) stream: Stream,
    /// Whether the stream records it.
    pub(crate) captured: bool,
    /// The measurement of its duration.
    pub(crate) sample: Option<Sample>,
}

impl Work {
    /// One operation of a kind for `stream`, with what lies before it: a GPU without work hears of
    /// this late.
    pub(crate) fn begin(session: &Session, kind: Kind, bytes: u64, stream: Stream) -> Self {
        let captured = captures::is_captured(session, stream);
        if !captured {
            doorbell(session, stream);
        }
        let extra = session.extra(kind, bytes);
        Self { kind, operations: 1, bytes, extra, stream, captured, sample: None }
    }
}

/// The stream that a call names, or the default stream of calls that name none.
pub(crate) fn stream_of(hook: &Hook, frame: &Frame) -> Option<Stream> {
    let handle = frame.word(hook.position(Role::Stream)?);
    Some(Stream { handle: real::pointer(handle as usize), per_thread: hook.per_thread })
}

/// The stream that a call goes to.
pub(crate) fn stream_or_default(hook: &Hook, frame: &Frame) -> Stream {
    stream_of(hook, frame)
        .unwrap_or(Stream { handle: real::pointer(0), per_thread: hook.per_thread })
}

/// A number that a call was given, as wide as its parameter; 0 if it has no such parameter.
pub(crate) fn number(hook: &Hook, frame: &Frame, role: Role) -> u64 {
    let Some(position) = hook.position(role) else { return 0 };
    let word = frame.word(position);
    match hook.parameters[position].width {
        1 => word & 0xff,
        2 => word & 0xffff,
        4 => word & 0xffff_ffff,
        _ => word,
    }
}

/// An idle GPU hears of work late, and fetches it.
pub(crate) fn doorbell(session: &Session, stream: Stream) {
    let extra = session.extra(Kind::Doorbell, 0);
    let nothing = extra == Nanos::ZERO || !session.ledger.in_range();
    if nothing || captures::any(session) || !session.driver.is_idle(stream) {
        return;
    }
    session.ledger.did(Kind::Doorbell, 1, 0);
    delay::in_stream(session, Kind::Doorbell, stream, extra);
}

/// Before a memset.
pub(crate) fn memset(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let width = hook.position(Role::Value).map_or(1, |at| hook.parameters[at].width);
    let number = |role| number(hook, frame, role);
    let elements = match hook.position(Role::Elements) {
        Some(_) => number(Role::Elements),
        None => number(Role::Width).saturating_mul(number(Role::Height)),
    };
    // An element is as wide as the value that it is set to.
    let bytes = elements.saturating_mul(u64::from(width));
    let stream = stream_or_default(hook, frame);
    After::Work(Work::begin(session, Kind::Memset, bytes, stream))
}

/// Before a function of the host is put into a stream: half of what it takes longer comes before
/// it, until the CPU hears of it, and half after it, until the GPU hears that it has ended.
pub(crate) fn callback(session: &Session, hook: &Hook, frame: &Frame) -> After {
    let stream = stream_or_default(hook, frame);
    let mut work = Work::begin(session, Kind::HostCallback, 0, stream);
    let before = work.extra.half();
    if before != Nanos::ZERO {
        delay::after_work(session, &Work { extra: before, ..work });
    }
    work.extra = work.extra.saturating_sub(before);
    After::Work(work)
}

/// After work was put into a stream.
pub(crate) fn end(session: &Session, work: &Work, result: Result32) {
    if let Some(sample) = work.sample {
        session.sampler.end(session, sample, work.stream, result == SUCCESS);
    }
    if result != SUCCESS {
        return;
    }
    if !work.captured {
        session.ledger.did(work.kind, work.operations, work.bytes);
    }
    if work.extra != Nanos::ZERO {
        delay::after_work(session, work);
    }
}
