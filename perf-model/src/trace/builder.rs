//! What readers find, put together: names and IDs entered once, operations joined with the calls
//! that asked for them, times counted from the trace's begin.

use std::collections::HashMap;

use super::call::{CallKind, Scope};
use super::error::{Place, ReadError};
use super::model::{
    Call, CallId, EVENTS, Event, LONGEST_NS, MOST_BYTES, NameId, Operation, OperationKind,
    ProcessId, Step, Target, Thread, ThreadId, Trace, Wait,
};
pub(super) use super::streams::StreamKey;
use super::streams::Streams;

/// An operation as it stands in a file; the start is on the file's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundOperation {
    pub(super) start: i64,
    pub(super) duration: i64,
    pub(super) bytes: u64,
    pub(super) correlation: Option<u64>,
    pub(super) stream: StreamKey,
    pub(super) name: NameId,
    pub(super) kind: OperationKind,
}

/// A call as it stands in a file.
#[derive(Clone, Debug)]
pub(super) struct FoundCall {
    pub(super) start: i64,
    pub(super) duration: i64,
    pub(super) correlation: Option<u64>,
    pub(super) thread: ThreadId,
    pub(super) name: NameId,
    /// Where the file says more than the function's name.
    pub(super) kind: Option<CallKind>,
    pub(super) target: Option<Box<FoundTarget>>,
}

/// What a file says of what a call waits for, or what it makes wait for what.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoundTarget {
    /// The stream that waits, or that is waited for.
    pub(super) stream: Option<StreamKey>,
    /// The device, where all its streams are waited for.
    pub(super) device: Option<u32>,
    /// The stream in which the event was recorded, and the correlation of that call.
    pub(super) event: Option<(StreamKey, u64)>,
}

/// The same, where it stands apart from the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundWait {
    /// The call's.
    pub(super) correlation: u64,
    /// Its process, where correlations are counted for each.
    pub(super) process: Option<ProcessId>,
    pub(super) target: FoundTarget,
}

/// Collects what a reader finds.
#[derive(Debug)]
pub(super) struct Builder {
    salvage: bool,
    /// Added to every time, in nanoseconds.
    pub(super) base: i64,
    trace: Trace,
    kinds: Vec<CallKind>,
    processes: HashMap<i64, ProcessId>,
    threads: HashMap<(ProcessId, i64), ThreadId>,
    /// The thread that was asked for last, and what with: mostly it is so again.
    last_thread: Option<((ProcessId, i64), ThreadId)>,
    operations: Vec<FoundOperation>,
    calls: Vec<FoundCall>,
    waits: Vec<FoundWait>,
    steps: Vec<(ThreadId, i64, i64)>,
}

impl Builder {
    pub(super) fn new(salvage: bool) -> Builder {
        Builder {
            salvage,
            base: 0,
            trace: Trace::default(),
            kinds: Vec::new(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            last_thread: None,
            operations: Vec::new(),
            calls: Vec::new(),
            waits: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Whether what is wrong is to be left out rather than refused.
    pub(super) fn salvages(&self) -> bool {
        self.salvage
    }

    /// An event is wrong: refuses the file, or leaves the event out and counts it.
    pub(super) fn wrong(&mut self, place: Place, reason: &str) -> Result<(), ReadError> {
        if !self.salvage {
            return Err(ReadError::wrong(place, reason));
        }
        if self.trace.notes.left_out == 0 {
            self.remark(format!("The first event that was left out: {place}: {reason}."));
        }
        self.trace.notes.left_out += 1;
        Ok(())
    }

    /// Says something to whoever reads the prediction.
    pub(super) fn remark(&mut self, remark: String) {
        self.trace.notes.remarks.push(remark);
    }

    pub(super) fn name(&mut self, name: &str) -> Result<NameId, ReadError> {
        let no_room = || ReadError::wrong(Place::File, "more than 256 MiB of names");
        let id = self.trace.names.enter(name).ok_or_else(no_room)?;
        if id.index() == self.kinds.len() {
            self.kinds.push(CallKind::of(name));
        }
        Ok(id)
    }

    pub(super) fn process(&mut self, id: i64) -> ProcessId {
        let processes = &mut self.trace.processes;
        *self.processes.entry(id).or_insert_with(|| {
            processes.push(id);
            ProcessId::of(processes.len() - 1)
        })
    }

    pub(super) fn thread(&mut self, process: ProcessId, id: i64) -> ThreadId {
        let key = (process, id);
        if let Some((_, thread)) = self.last_thread.filter(|(last, _)| *last == key) {
            return thread;
        }
        let threads = &mut self.trace.threads;
        let thread = *self.threads.entry(key).or_insert_with(|| {
            threads.push(Thread { process, id });
            ThreadId::of(threads.len() - 1)
        });
        self.last_thread = Some((key, thread));
        thread
    }

    pub(super) fn operation(&mut self, found: FoundOperation) -> Result<(), &'static str> {
        self.check(found.start, found.duration)?;
        if found.bytes > MOST_BYTES {
            return Err("more than 1 PiB in one operation");
        }
        self.operations.push(found);
        Ok(())
    }

    pub(super) fn call(&mut self, found: FoundCall) -> Result<(), &'static str> {
        self.check(found.start, found.duration)?;
        self.calls.push(found);
        Ok(())
    }

    pub(super) fn wait(&mut self, found: FoundWait) -> Result<(), &'static str> {
        self.check(0, 0)?;
        self.waits.push(found);
        Ok(())
    }

    pub(super) fn step(
        &mut self,
        thread: ThreadId,
        start: i64,
        duration: i64,
    ) -> Result<(), &'static str> {
        self.check(start, duration)?;
        self.steps.push((thread, start, duration));
        Ok(())
    }

    /// Whether an event can be taken: its times are possible and there is room for it.
    fn check(&self, start: i64, duration: i64) -> Result<(), &'static str> {
        if duration < 0 {
            return Err("a negative duration");
        }
        if start.unsigned_abs() > 1 << 62 || duration.unsigned_abs() > LONGEST_NS {
            return Err("a time that no trace can have");
        }
        let events = self.operations.len() + self.calls.len() + self.waits.len() + self.steps.len();
        if events >= EVENTS {
            return Err("more than 100 million events");
        }
        Ok(())
    }

    /// The trace.
    pub(super) fn finish(mut self) -> Result<Trace, ReadError> {
        let starts = self.operations.iter().map(|operation| operation.start);
        let starts = starts.chain(self.calls.iter().map(|call| call.start));
        let (first, last) = starts
            .fold((i64::MAX, i64::MIN), |(first, last), start| (first.min(start), last.max(start)));
        if first > last {
            return Err(ReadError::wrong(
                Place::File,
                "no kernel, copy or call in it: was the profiler told to record CUDA activities?",
            ));
        }
        if first.abs_diff(last) > LONGEST_NS {
            let reason = format!(
                "the first event is at {first} ns and the last at {last} ns: \
                                  more than a year apart"
            );
            return Err(ReadError::wrong(Place::File, reason));
        }
        if self.operations.is_empty() {
            let remark = "There are calls in it, and no kernel, copy or graph: nothing that a fabric \
                          would make longer. Was the profiler told to record what GPUs do?";
            self.remark(remark.to_owned());
        }
        let first = self.begin_with_steps(first, last);
        self.trace.origin_ns = first.saturating_add(self.base);
        let issuers = self.take_calls(first);
        let mut streams = self.take_operations(first, &issuers);
        self.take_waits(&mut streams, &issuers);
        self.take_steps(first);
        Ok(self.trace)
    }

    /// When the trace begins, whose first call or operation is at `first` and whose last is at `last`: a
    /// step begins with what the CPU does before its first call. One that ends before is a step of what is
    /// not there.
    fn begin_with_steps(&mut self, first: i64, last: i64) -> i64 {
        self.steps.retain(|(_, start, duration)| start.saturating_add(*duration) > first);
        let starts = self.steps.iter().map(|(_, start, _)| *start);
        let possible = starts.filter(|start| start.abs_diff(last) <= LONGEST_NS);
        possible.chain([first]).min().unwrap_or(first)
    }

    /// Sorts the calls, makes those inside others part of these, and says which correlation is
    /// whose.
    fn take_calls(&mut self, first: i64) -> Issuers {
        let mut found = std::mem::take(&mut self.calls);
        // Within a thread by start; of two that begin together the outer one first.
        found.sort_by_key(|call| (call.thread, call.start, -call.duration));
        let mut calls: Vec<Call> = Vec::with_capacity(found.len());
        let mut correlations = Vec::with_capacity(found.len());
        for call in found {
            let start = call.start.abs_diff(first);
            let end = start + call.duration.unsigned_abs();
            let kind = call.kind.unwrap_or(self.kinds[call.name.index()]);
            let outer = calls.last_mut().filter(|o| o.thread == call.thread && start < o.end());
            let inside = match outer {
                Some(outer) if end <= outer.end() => {
                    if outer.kind == CallKind::Other {
                        outer.kind = kind;
                    }
                    true
                }
                Some(outer) => {
                    // Half inside is a clock's rounding.
                    outer.duration = start - outer.start;
                    false
                }
                None => false,
            };
            if !inside {
                calls.push(Call {
                    start,
                    duration: end - start,
                    thread: call.thread,
                    name: call.name,
                    kind,
                    target: Target::Unknown,
                });
            }
            if call.correlation.is_some() || call.target.is_some() {
                correlations.push((call.correlation, calls.len() - 1, call.target));
            }
        }
        let place = self.put_in_order(calls);
        let mut targets = Vec::new();
        let mut by_correlation = Vec::with_capacity(correlations.len());
        for (correlation, old, target) in correlations {
            let call = CallId::of(place[old] as usize);
            by_correlation.extend(correlation.map(|correlation| (correlation, call)));
            targets.extend(target.map(|target| (call, *target)));
        }
        Issuers::of(by_correlation, targets)
    }

    /// Makes these the trace's calls, by start, and says which became which.
    fn put_in_order(&mut self, calls: Vec<Call>) -> Vec<u32> {
        let count = u32::try_from(calls.len()).expect("EVENTS fit");
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_by_key(|&old| calls[old as usize].start);
        let mut place = vec![0_u32; calls.len()];
        for (new, &old) in (0..count).zip(&order) {
            place[old as usize] = new;
        }
        self.trace.calls = order.iter().map(|&old| calls[old as usize]).collect();
        place
    }

    fn take_operations(&mut self, first: i64, issuers: &Issuers) -> Streams {
        let mut found = std::mem::take(&mut self.operations);
        found.sort_by_key(|operation| (operation.start, operation.duration));
        let call_of = |it: &FoundOperation| {
            let start = it.start.abs_diff(first);
            issuers.find(&self.trace, it.correlation?, it.stream.process, Some(start))
        };
        let calls: Vec<Option<CallId>> = found.iter().map(call_of).collect();
        let owners = self.owners(&found, &calls);
        let mut streams = Streams::default();
        self.trace.operations.reserve_exact(found.len());
        for (operation, call) in found.into_iter().zip(calls) {
            let key = operation.stream;
            let owner = call.map(|call| self.trace.process_of(call));
            let process = key.process.or(owner);
            // Where neither says whose it is, the others of its stream do: else one stream would be
            // two, which nothing keeps in order.
            let of_stream = || owners.get(&(key.device, key.number)).copied().flatten();
            let key = StreamKey { process: process.or_else(of_stream), ..key };
            let stream = streams.enter(&mut self.trace, key);
            self.trace.operations.push(Operation {
                start: operation.start.abs_diff(first),
                duration: operation.duration.unsigned_abs(),
                bytes: operation.bytes,
                call,
                stream,
                name: operation.name,
                kind: operation.kind,
            });
        }
        streams
    }

    /// Whose a device's stream of a number is: of those that are known of its operations, the only
    /// process; none where there are several, each with a stream of this number.
    fn owners(&self, found: &[FoundOperation], calls: &[Option<CallId>]) -> Owners {
        let mut owners = Owners::new();
        for (operation, call) in found.iter().zip(calls) {
            let key = operation.stream;
            let process = key.process.or_else(|| call.map(|call| self.trace.process_of(call)));
            if process.is_some() {
                let owner = owners.entry((key.device, key.number)).or_insert(process);
                *owner = owner.filter(|owner| Some(*owner) == process);
            }
        }
        owners
    }

    /// Takes what is said of waits. A stream in which nothing was done is one, too: who waits for it
    /// waits for nothing, and not for what nobody knows.
    fn take_waits(&mut self, streams: &mut Streams, issuers: &Issuers) {
        for (call, target) in &issuers.targets {
            self.take_wait(*call, target, streams, issuers);
        }
        for wait in std::mem::take(&mut self.waits) {
            if let Some(call) = issuers.find(&self.trace, wait.correlation, wait.process, None) {
                self.take_wait(call, &wait.target, streams, issuers);
            }
        }
        self.trace.waits.sort_by_key(|wait| wait.call);
    }

    fn take_wait(
        &mut self,
        call: CallId,
        said: &FoundTarget,
        streams: &mut Streams,
        issuers: &Issuers,
    ) {
        let owner = self.trace.process_of(call);
        let target = match self.trace.calls[call.index()].kind {
            CallKind::StreamWait => {
                let event = self.event(said, owner, streams, issuers);
                let stream = said.stream.and_then(|it| streams.named(&mut self.trace, it, owner));
                if let (Some(stream), Some(event)) = (stream, event) {
                    self.trace.waits.push(Wait { call, stream, event });
                }
                None
            }
            CallKind::Synchronise(Scope::Device) => {
                let device = said.device.and_then(|it| streams.named_device(&mut self.trace, it));
                device.map(Target::Device)
            }
            CallKind::Synchronise(Scope::Stream) => {
                let stream = said.stream.and_then(|it| streams.named(&mut self.trace, it, owner));
                stream.map(Target::Stream)
            }
            CallKind::Synchronise(Scope::Event) => {
                self.event(said, owner, streams, issuers).map(Target::Event)
            }
            CallKind::Issue | CallKind::IssueGraph | CallKind::IssueAndWait | CallKind::Other => {
                None
            }
        };
        if let Some(target) = target {
            self.trace.calls[call.index()].target = target;
        }
    }

    /// The event that is spoken of, where the call that recorded it is there.
    fn event(
        &mut self,
        said: &FoundTarget,
        owner: ProcessId,
        streams: &mut Streams,
        issuers: &Issuers,
    ) -> Option<Event> {
        let (key, correlation) = said.event?;
        let recorded = issuers.find(&self.trace, correlation, Some(owner), None)?;
        Some(Event { stream: streams.named(&mut self.trace, key, owner)?, recorded })
    }

    fn take_steps(&mut self, first: i64) {
        for (thread, start, duration) in std::mem::take(&mut self.steps) {
            let start = start.saturating_sub(first);
            let end = start.saturating_add(duration).max(0).unsigned_abs();
            let start = start.max(0).unsigned_abs();
            // None is in a trace that is longer than the longest.
            if end > LONGEST_NS {
                continue;
            }
            self.trace.steps.push(Step { thread, start, duration: end - start });
        }
        self.trace.steps.sort_by_key(|step| step.start);
    }
}

/// By device and number of a stream, the process that it is of.
type Owners = HashMap<(u32, i64), Option<ProcessId>>;

/// Which call has which correlation.
#[derive(Debug, Default)]
struct Issuers {
    /// By correlation, then by start.
    by_correlation: Vec<(u64, CallId)>,
    /// Where each correlation's calls begin in that, if they are small numbers, as they mostly are.
    first: Vec<u32>,
    /// What calls were said to wait for.
    targets: Vec<(CallId, FoundTarget)>,
}

impl Issuers {
    fn of(mut by_correlation: Vec<(u64, CallId)>, targets: Vec<(CallId, FoundTarget)>) -> Issuers {
        by_correlation.sort_unstable();
        let highest = by_correlation.last().map_or(0, |(correlation, _)| *correlation);
        let mut first = Vec::new();
        if highest <= 8 * by_correlation.len() as u64 + 1024 {
            first = vec![u32::MAX; usize::try_from(highest).expect("as many as calls") + 1];
            for (place, (correlation, _)) in by_correlation.iter().enumerate().rev() {
                first[*correlation as usize] = u32::try_from(place).expect("EVENTS fit");
            }
        }
        Issuers { by_correlation, first, targets }
    }

    /// The call with this correlation: of this process, where it is known; of several the last
    /// that began before the operation, or at least the first.
    fn find(
        &self,
        trace: &Trace,
        correlation: u64,
        process: Option<ProcessId>,
        start: Option<u64>,
    ) -> Option<CallId> {
        let first = if self.first.is_empty() {
            self.by_correlation.partition_point(|(other, _)| *other < correlation)
        } else {
            *self.first.get(usize::try_from(correlation).ok()?)? as usize
        };
        let same = self
            .by_correlation
            .get(first..)?
            .iter()
            .map_while(|(other, call)| (*other == correlation).then_some(*call));
        let mut best = None;
        for call in same.filter(|call| process.is_none_or(|it| trace.process_of(*call) == it)) {
            let before = start.is_none_or(|start| trace.calls[call.index()].start <= start);
            if best.is_none() || before {
                best = Some(call);
            }
        }
        best
    }
}
