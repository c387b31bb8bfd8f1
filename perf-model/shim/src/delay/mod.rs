//! Where delays are spent.

pub(crate) mod cpu;
pub(crate) mod gpu;

use perf_core::{Fact, Graphs, Kind, Nanos, Place};

use crate::driver::Stream;
use crate::session::Session;
use crate::work::Work;

/// The CPU waits, in the call.
pub(crate) fn on_cpu(session: &Session, kind: Kind, time: Nanos) {
    if time == Nanos::ZERO || !session.ledger.in_range() {
        return;
    }
    cpu::wait(session, time);
    session.ledger.delayed(kind, Fact::CpuDelays, time);
}

/// The stream waits, after all that is in it; or the CPU, where that is wanted.
pub(crate) fn in_stream(session: &Session, kind: Kind, stream: Stream, time: Nanos) {
    if time == Nanos::ZERO || !session.ledger.in_range() {
        return;
    }
    match session.settings.place {
        Place::Cpu => on_cpu(session, kind, time),
        Place::Gpu if gpu::put_timed(session, stream, time) => {
            session.ledger.delayed(kind, Fact::GpuDelays, time);
        }
        Place::Gpu => session.ledger.add(Fact::LostDelays, 1),
    }
}

/// A captured stream waits each time that its graph is launched, if nodes take their time. The
/// launches count it.
pub(crate) fn recorded(session: &Session, stream: Stream, time: Nanos) {
    let wanted = session.settings.place == Place::Gpu && session.settings.graphs == Graphs::Node;
    if wanted && time != Nanos::ZERO && !gpu::put(session, stream, time) {
        session.ledger.add(Fact::LostDelays, 1);
    }
}

/// The stream of a piece of work waits, after it.
pub(crate) fn after_work(session: &Session, work: &Work) {
    if work.captured {
        recorded(session, work.stream, work.extra);
    } else {
        in_stream(session, work.kind, work.stream, work.extra);
    }
}
