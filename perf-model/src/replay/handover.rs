//! Which thread carried on where another one stopped.
//!
//! Nothing in a trace says that one thread waits for another, as PyTorch's main thread does for the
//! one that runs the backward pass. It shows all the same: one thread makes no call for a while, and
//! the other begins in that while.

use crate::trace::{Call, CallId, Trace};

/// How long a thread makes no call when it waits for another one, at least, in nanoseconds. Between
/// calls for kernels there are some tens of microseconds.
const IDLE: u64 = 100_000;

/// Follows the calls by time.
#[derive(Debug)]
pub(super) struct Handovers {
    /// When each call's thread makes its next one; the longest time there is where it makes none.
    next_start: Vec<u64>,
    /// Of each process, the last call that returned, and the last one of another thread.
    last: Vec<[Option<u32>; 2]>,
    /// Of each thread, its last call that returned.
    own: Vec<Option<u32>>,
}

impl Handovers {
    pub(super) fn new(trace: &Trace) -> Handovers {
        let mut following = vec![u64::MAX; trace.threads.len()];
        let mut next_start = vec![u64::MAX; trace.calls.len()];
        for (at, call) in trace.calls.iter().enumerate().rev() {
            let next = &mut following[call.thread.index()];
            next_start[at] = std::mem::replace(next, call.start);
        }
        Handovers {
            next_start,
            last: vec![[None; 2]; trace.processes.len()],
            own: vec![None; trace.threads.len()],
        }
    }

    /// A call has returned.
    pub(super) fn ended(&mut self, trace: &Trace, call: u32) {
        let process = trace.process_of(CallId::of(call as usize)).index();
        let thread = |call: u32| trace.calls[call as usize].thread;
        let last = &mut self.last[process];
        if last[0].is_some_and(|previous| thread(previous) != thread(call)) {
            last[1] = last[0];
        }
        last[0] = Some(call);
        self.own[thread(call).index()] = Some(call);
    }

    /// The last call of the thread that makes this one.
    pub(super) fn previous(&self, call: &Call) -> Option<u32> {
        self.own[call.thread.index()]
    }

    /// The call of another thread that this one waited for, if it did.
    pub(super) fn giver(&self, trace: &Trace, at: u32) -> Option<u32> {
        let call = &trace.calls[at as usize];
        let process = trace.process_of(CallId::of(at as usize)).index();
        let is_other = |it: &u32| trace.calls[*it as usize].thread != call.thread;
        let giver = self.last[process].into_iter().flatten().find(is_other)?;
        let end = trace.calls[giver as usize].end();
        if let Some(previous) = self.previous(call) {
            let previous = trace.calls[previous as usize].end();
            if call.start.saturating_sub(previous) < IDLE || previous > end {
                return None;
            }
        }
        let idle = self.next_start[giver as usize].saturating_sub(end);
        (idle >= IDLE && self.next_start[giver as usize] >= call.start).then_some(giver)
    }
}
