//! What happens around a call of the driver: before it, and after it.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::null_mut;

use perf_core::{Nanos, Range};

use crate::arch::Frame;
use crate::copies::Moves;
use crate::driver::{NOT_FOUND, Result32, SUCCESS, Stream};
use crate::graphs::Made;
use crate::session::{self, Session};
use crate::table::{Class, Hook, Role};
use crate::work::Work;
use crate::{captures, copies, delay, graphs, kernels, mapped, resolve, waits, work};

/// What is to do when the driver has returned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    /// Nothing: the call is a part of another one, or nothing is hooked.
    Outside,
    /// Nothing more.
    Nothing,
    /// The shim did what was asked for: the driver is not called.
    Answered,
    /// The program asked for a function.
    Resolve,
    /// Work for a stream.
    Work(Work),
    /// Copies.
    Moves(Moves),
    /// Kernels on several devices; where the list of launches is.
    Launches { work: Work, list: usize },
    /// A graph with delays as nodes: how many, and their time.
    Delayed { work: Work, delays: u64, time: Nanos },
    /// Memory that the GPU reaches by itself.
    Memory(mapped::Asked),
    /// The CPU waited.
    Wait(waits::Wait),
    /// The CPU asked whether something has ended.
    Query(waits::Asked),
    /// A context was destroyed, or has a user less.
    ContextEnds,
    /// A device's primary context was released or reset.
    PrimaryEnds { device: i32 },
    /// A stream begins to be captured.
    CaptureBegin(Stream),
    /// A stream's capture ends.
    CaptureEnd(Stream),
    /// A stream is destroyed.
    StreamEnds(Stream),
    /// An executable graph was made or changed.
    Graph(Made),
    /// A range begins.
    RangeBegins,
}

thread_local! {
    /// Where the frame of the outermost call is that this thread is in, or 0.
    static OUTERMOST: Cell<usize> = const { Cell::new(0) };
}

/// Whether this is the outermost call of its thread: then the thread is in it until [`leave`].
///
/// A library that wraps the driver is called through the shim and may come through it again. The
/// stack grows down: a frame above the one that is noted says that the noted call was left without
/// a return (longjmp).
fn enter(frame: &Frame) -> bool {
    OUTERMOST.with(|outermost| {
        let address = frame.address();
        let inside = outermost.get() != 0 && address < outermost.get();
        if !inside {
            outermost.set(address);
        }
        !inside
    })
}

fn leave() {
    OUTERMOST.with(|outermost| outermost.set(0));
}

/// Before a call: the function to call, or null where `frame.result` is the answer.
///
/// Called by the thunks alone.
pub(crate) unsafe extern "C" fn before(frame: *mut Frame) -> *mut c_void {
    // SAFETY: the thunk built the frame on its stack, all of it but `after`, and nothing else
    // refers to it.
    let frame = unsafe { &mut *frame };
    let Some(behind) = resolve::behind(frame.slot) else {
        frame.result = NOT_FOUND as u64;
        return null_mut();
    };
    let after = if session::bypassed() || !enter(frame) {
        After::Outside
    } else if behind.hook().class == Class::Resolver {
        After::Resolve
    } else {
        begin(session::get(), behind.hook(), frame)
    };
    if matches!(after, After::Answered) {
        leave();
        frame.result = SUCCESS as u64;
        return null_mut();
    }
    frame.after.write(after);
    behind.real
}

/// After a call.
///
/// Called by the thunks alone, after [`before`] gave a function.
pub(crate) unsafe extern "C" fn after(frame: *mut Frame) {
    // SAFETY: as in `before`.
    let frame = unsafe { &mut *frame };
    // SAFETY: `before` gave a function, so it has set this.
    match unsafe { frame.after.assume_init_ref() } {
        After::Outside => return,
        After::Nothing | After::Answered => {}
        After::Resolve => {
            if let Some(behind) = resolve::behind(frame.slot) {
                resolve::resolved(behind.hook(), frame);
            }
        }
        after => end(session::get(), after, frame.result as Result32),
    }
    leave();
}

/// Looks at a call before the driver does.
pub(crate) fn begin(session: &Session, hook: &Hook, frame: &Frame) -> After {
    session.ledger.called();
    let after = look(session, hook, frame);
    // Copies that were done instead of the driver's are nothing to wait for.
    if !matches!(after, After::Answered) {
        waits::note(session, hook);
    }
    after
}

/// What is to do after a call.
fn look(session: &Session, hook: &Hook, frame: &Frame) -> After {
    match hook.class {
        Class::Launch => kernels::begin(session, hook, frame),
        Class::GraphLaunch => graphs::launch(session, hook, frame),
        Class::HostToDevice
        | Class::DeviceToHost
        | Class::DeviceToDevice
        | Class::Copy
        | Class::CopyPeer
        | Class::Copy2d
        | Class::Copy3d
        | Class::Copy3dPeer
        | Class::CopyBatch
        | Class::Copy3dBatch
        | Class::Prefetch
        | Class::PrefetchBatch
        | Class::DiscardAndPrefetch => copies::begin(session, hook, frame),
        Class::Memset | Class::Memset2d => work::memset(session, hook, frame),
        Class::HostCallback => work::callback(session, hook, frame),
        Class::StreamSynchronize
        | Class::EventSynchronize
        | Class::ContextSynchronize
        | Class::Query => waits::begin(session, hook, frame),
        Class::CaptureBegin => After::CaptureBegin(work::stream_or_default(hook, frame)),
        Class::CaptureEnd => After::CaptureEnd(work::stream_or_default(hook, frame)),
        Class::StreamEnd => {
            waits::gone(session, hook, frame);
            After::StreamEnds(work::stream_or_default(hook, frame))
        }
        Class::EventEnd => {
            waits::gone(session, hook, frame);
            After::Nothing
        }
        Class::GraphInstantiate | Class::GraphChange => graphs::making(session, hook, frame),
        Class::GraphEnd => graphs::end(session, hook, frame),
        Class::ContextEnd => delay::gpu::context_ends(session, hook, frame),
        Class::RangeBegin | Class::RangeEnd if session.settings.range == Range::All => {
            After::Nothing
        }
        Class::RangeBegin => After::RangeBegins,
        Class::RangeEnd => {
            session.ledger.set_range(false);
            After::Nothing
        }
        Class::AllocateManaged | Class::AllocateHost | Class::RegisterHost => {
            mapped::asked(session, hook, frame).map_or(After::Nothing, After::Memory)
        }
        Class::Free => {
            let address = work::number(hook, frame, Role::Address);
            session.ranges.freed(address);
            if session.settings.push_copies.is_some() {
                session.pushes.freed(address);
            }
            After::Nothing
        }
        Class::Resolver
        | Class::GraphUpload
        | Class::EventRecord
        | Class::StreamWait
        | Class::Allocate
        | Class::MapHost => After::Nothing,
    }
}

/// Does what is to do after the driver returned `result`.
pub(crate) fn end(session: &Session, after: &After, result: Result32) {
    match *after {
        After::Outside | After::Nothing | After::Answered | After::Resolve => {}
        After::Work(ref work) => work::end(session, work, result),
        After::Moves(ref moves) => copies::end(session, moves, result),
        After::Launches { ref work, list } => kernels::ended(session, work, list, result),
        After::Delayed { ref work, delays, time } => {
            graphs::launched(session, work, delays, time, result);
        }
        After::Memory(asked) => session.ranges.given(asked, result),
        After::Wait(wait) => waits::end(session, wait, result),
        After::Query(asked) => waits::answered(session, asked, result),
        After::ContextEnds => session.ranges.context_ended(&session.driver),
        After::PrimaryEnds { device } => delay::gpu::primary_ended(session, device),
        After::CaptureBegin(stream) => captures::begun(session, stream, result),
        After::CaptureEnd(stream) => captures::ended(session, stream, result),
        After::StreamEnds(stream) => captures::destroyed(session, stream, result),
        After::Graph(made) => graphs::made(session, made, result),
        After::RangeBegins if result == SUCCESS => {
            delay::gpu::prepare(session);
            session.ledger.set_range(true);
        }
        After::RangeBegins => {}
    }
}
