//! Streams that record what is put into them in a graph, instead of doing it.
//!
//! While any stream is captured some questions to the driver end every capture in the process
//! (CUDA Driver API, cuStreamBeginCapture, mode global). The shim asks none then; and as a capture may
//! begin while it asks, it does so within [`crate::driver::Driver::relaxed`].

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use crate::driver::{Handle, Result32, SUCCESS, Stream};
use crate::real;
use crate::session::Session;

/// Captures that are known at a time. The end of one beyond them is not waited for.
const CAPTURES: usize = 4096;

/// The handle of the calling thread's own default stream (cuda.h, CU_STREAM_PER_THREAD).
const OWN: usize = 2;

/// A stream that is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Captured {
    stream: usize,
    context: usize,
}

/// The streams that are captured now, in all threads.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// So that programs without any are not held up.
    count: AtomicUsize,
    captured: Mutex<Vec<Captured>>,
}

impl Captures {
    fn with(&self, what: impl FnOnce(&mut Vec<Captured>)) {
        let mut captured = self.captured.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        what(&mut captured);
        self.count.store(captured.len(), Ordering::Release);
    }

    /// Takes one capture of a stream out. Each thread's own default stream has the same handle.
    fn remove(&self, stream: usize) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        self.with(|captured| {
            if let Some(index) = captured.iter().position(|captured| captured.stream == stream) {
                captured.swap_remove(index);
            }
        });
    }

    /// A context goes with its streams.
    pub(crate) fn forget(&self, context: usize) {
        self.with(|captured| captured.retain(|captured| captured.context != context));
    }
}

/// A stream's handle, by one number for each.
fn number(stream: Stream) -> usize {
    match real::address(stream.handle) {
        0 if stream.per_thread => OWN,
        handle => handle,
    }
}

/// A capture began, or not.
pub(crate) fn begun(session: &Session, stream: Stream, result: Result32) {
    if result != SUCCESS {
        return;
    }
    let context =
        session.driver.current_context().map_or(0, |context: Handle| real::address(context));
    if context != 0 {
        session.devices.note(&session.driver, context);
    }
    let new = Captured { stream: number(stream), context };
    session.captures.with(|captured| {
        // One that began there before has ended unseen.
        let again = new.stream != OWN && captured.iter().any(|old| old.stream == new.stream);
        if !again && captured.len() < CAPTURES {
            captured.push(new);
        }
    });
}

/// A capture ended, or not. One that was spoilt ends too, with an error; one whose end was asked of
/// another stream or thread goes on.
pub(crate) fn ended(session: &Session, stream: Stream, result: Result32) {
    if result == SUCCESS || session.driver.captures(stream) == Some(false) {
        session.captures.remove(number(stream));
    }
}

/// A stream was destroyed, or not.
pub(crate) fn destroyed(session: &Session, stream: Stream, result: Result32) {
    if result == SUCCESS {
        session.captures.remove(number(stream));
    }
}

/// Whether any stream of the process is captured.
pub(crate) fn any(session: &Session) -> bool {
    session.captures.count.load(Ordering::Acquire) > 0
}

/// Whether this stream is.
pub(crate) fn is_captured(session: &Session, stream: Stream) -> bool {
    any(session) && session.driver.captures(stream) == Some(true)
}
