//! What streams, devices and processes have begun and ended, as the trace is gone through.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::Node;
use crate::trace::{CallId, Trace};

/// Launches that a stream takes before the call for the next one waits (CUDA's launch queue).
const LAUNCH_QUEUE: u32 = 1024;

/// The operations that have begun on a device, or for a process, and which of them ended last.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    running: BinaryHeap<Reverse<(u64, u32)>>,
    ended: Option<(u64, u32)>,
}

impl Progress {
    pub(super) fn begin(&mut self, end: u64, operation: u32) {
        self.running.push(Reverse((end, operation)));
    }

    /// The one that ended last by this time, which only grows.
    pub(super) fn ended_by(&mut self, time: u64) -> Option<(u64, u32)> {
        while let Some(Reverse((end, operation))) = self.running.peek().copied() {
            if end > time {
                break;
            }
            self.running.pop();
            self.ended = Some((end, operation));
        }
        self.ended
    }
}

/// What is known of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// Its operations, in order.
    pub(super) operations: Vec<u32>,
    /// Those of [`Trace::waits`] that are of it, in order, and how many were passed on.
    pub(super) waits: Vec<u32>,
    pub(super) waited: usize,
}

impl Queue {
    /// The last operation that was asked for before a call was made.
    pub(super) fn before(&self, trace: &Trace, call: CallId) -> Option<u32> {
        let asked_before =
            |at: &u32| trace.operations[*at as usize].call.is_none_or(|asked| asked < call);
        let count = self.operations.partition_point(asked_before);
        count.checked_sub(1).map(|last| self.operations[last])
    }
    /// The operation that has to begin before there is room for the launch of another one, as far as
    /// the trace has come: the launch so many before that, or, where that one begins just as there is
    /// room, the last before it.
    pub(super) fn leaves_room_for(&self, asked: u32, ranks: &[u32]) -> Option<u32> {
        let rank = |at: &u32| ranks[*at as usize];
        let wanted = rank(&asked).checked_sub(LAUNCH_QUEUE)?;
        let at = self.operations.partition_point(|it| rank(it) < wanted);
        let last = || self.operations.last().filter(|last| rank(last) + 1 == wanted);
        self.operations.get(at).or_else(last).copied()
    }
}

/// Of each operation, how many launches into its stream came before its own: what a graph is made of
/// was launched at once. `order` has the operations of each stream as they begin.
pub(super) fn launch_ranks(trace: &Trace, order: &[Node]) -> Vec<u32> {
    let mut ranks = vec![0; trace.operations.len()];
    // Of each stream, the next launch's rank, and the call for the last one.
    let mut streams: Vec<(u32, Option<CallId>)> = vec![(0, None); trace.streams.len()];
    for node in order {
        let Node::Operation(at) = *node else { continue };
        let operation = &trace.operations[at as usize];
        let (next, last) = &mut streams[operation.stream.index()];
        if *next == 0 || operation.call.is_none() || operation.call != *last {
            (*next, *last) = (*next + 1, operation.call);
        }
        ranks[at as usize] = *next - 1;
    }
    ranks
}
