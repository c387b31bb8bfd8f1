//! What is typical of a trace: how soon things follow each other when nothing holds them up.

use crate::trace::{CallKind, Trace};

/// The gap between two operations of a stream where a trace has no two that were both asked for in
/// time: what current GPUs take.
const UNSEEN_GAP: i64 = 1_000;

/// Times between two points that nothing else holds up, in nanoseconds: medians of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Typical {
    /// From a call to what it asked for, in an idle stream.
    pub(super) launch: i64,
    /// From the end of an operation to the next one's start, which was asked for before.
    pub(super) gap: i64,
    /// From the end of an operation to the return of a call that waited for it.
    pub(super) wake: i64,
    /// A call that synchronises and need not wait.
    pub(super) check: i64,
}

impl Typical {
    pub(super) fn of(trace: &Trace) -> Typical {
        let mut ends: Vec<Option<u64>> = vec![None; trace.streams.len()];
        let (mut launches, mut all_launches) = (Vec::new(), Vec::new());
        // From the end before it to the call, and to the start, of each that was asked for earlier.
        let mut queued = Vec::new();
        for operation in &trace.operations {
            let previous = ends[operation.stream.index()].replace(operation.end());
            let Some(call) = operation.call else { continue };
            let call = trace.calls[call.index()].start;
            let latency = difference(operation.start, call).max(0);
            all_launches.push(latency);
            match previous {
                Some(previous) if previous > call => {
                    let gap = difference(operation.start, previous);
                    queued.push((difference(previous, call), gap));
                }
                _ => launches.push(latency),
            }
        }
        let launch = median(launches).or_else(|| all_launches.into_iter().min()).unwrap_or(0);
        // What was asked for less long before has waited for its launch.
        let in_time = queued.into_iter().filter(|(ahead, gap)| *ahead >= launch && *gap >= 0);
        let gap = median(in_time.map(|(_, gap)| gap).collect()).unwrap_or(UNSEEN_GAP).min(launch);
        Typical { launch, gap, ..Typical::of_waits(trace) }
    }

    /// Looks at calls that synchronise: some waited, some had nothing to wait for.
    fn of_waits(trace: &Trace) -> Typical {
        let mut ends: Vec<u64> = trace.operations.iter().map(|it| it.end()).collect();
        ends.sort_unstable();
        let (mut wakes, mut checks) = (Vec::new(), Vec::new());
        for call in &trace.calls {
            if !matches!(call.kind, CallKind::Synchronise(_)) {
                continue;
            }
            let ended = ends.partition_point(|end| *end <= call.end());
            match ended.checked_sub(1).map(|last| ends[last]) {
                Some(end) if end > call.start => wakes.push(difference(call.end(), end)),
                _ => checks.push(difference(call.end(), call.start)),
            }
        }
        let wake = median(wakes).unwrap_or(0);
        Typical { wake, check: median(checks).unwrap_or(wake), ..Typical::default() }
    }
}

/// From one time to a later one; negative where it is earlier. Times are below a year.
pub(super) fn difference(later: u64, earlier: u64) -> i64 {
    later.cast_signed() - earlier.cast_signed()
}

fn median(mut values: Vec<i64>) -> Option<i64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}
