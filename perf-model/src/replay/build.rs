//! From a trace to what each of its points waited for.
//!
//! The points are gone through in the trace's own order. Each is given the constraints that are
//! known of its kind; where one came later than all of these explain, what ended just before it is
//! taken to be what it waited for. What is then left of waiting is added to the constraint that came
//! last, so that the graph explains the trace exactly.

use std::collections::HashMap;

use super::graph::{Between, Constraint, Graph, InGraph, Node, Point};
use super::handover::Handovers;
use super::play::holds_up_its_call;
use super::queue::{Progress, Queue, launch_ranks};
use super::typical::{Typical, difference};
use crate::trace::{
    Call, CallId, CallKind, Direction, OperationKind, Scope, StreamId, Target, Trace,
};

/// A call for a launch that takes so long, in nanoseconds, waited for room in the queue.
const BLOCKED: u64 = 100_000;

/// How much later than explained an operation begins, in nanoseconds, before something else is
/// looked for that it waited for. Launches differ that much by themselves.
const UNEXPLAINED: u64 = 3_000;

/// How far, in nanoseconds, the end of a copy may lie behind the return of the call that waited for
/// it: the clocks of profilers are rounded to microseconds.
const ROUNDING: u64 = 2_000;

impl<'t> Graph<'t> {
    /// Finds what each point of the trace waited for.
    #[must_use]
    pub fn of(trace: &'t Trace) -> Graph<'t> {
        let order = order(trace);
        let mut build = Build::new(trace, launch_ranks(trace, &order));
        for node in order {
            match node {
                Node::CallStart(call) => build.call_start(call),
                Node::CallEnd(call) => build.call_end(call),
                Node::Operation(operation) => build.operation(operation),
            }
        }
        build.finish()
    }
}

/// All nodes by time; of those at one time what others may wait for first.
fn order(trace: &Trace) -> Vec<Node> {
    let calls = &trace.calls;
    // Where clocks do not agree an operation begins before it was asked for: it comes after that.
    let due = |at: u32| {
        let operation = &trace.operations[at as usize];
        let call = operation.call.map_or(0, |call| calls[call.index()].start);
        operation.start.max(call)
    };
    let mut operations: Vec<u32> = (0..).take(trace.operations.len()).collect();
    operations.sort_by_key(|at| due(*at));
    let mut ends: Vec<u32> =
        (0..).take(calls.len()).filter(|at| calls[*at as usize].duration > 0).collect();
    ends.sort_by_key(|at| calls[*at as usize].end());

    let mut nodes = Vec::with_capacity(operations.len() + 2 * calls.len());
    let (mut operations, mut ends) =
        (operations.into_iter().peekable(), ends.into_iter().peekable());
    for (at, call) in (0_u32..).zip(calls) {
        pass_until(trace, &mut operations, &mut ends, &mut nodes, call.start, due);
        nodes.push(Node::CallStart(at));
        if call.duration == 0 {
            nodes.push(Node::CallEnd(at));
        }
    }
    pass_until(trace, &mut operations, &mut ends, &mut nodes, u64::MAX, due);
    nodes
}

type Places = std::iter::Peekable<std::vec::IntoIter<u32>>;

/// Takes operations that begin before a time, and calls that end by then.
fn pass_until(
    trace: &Trace,
    operations: &mut Places,
    ends: &mut Places,
    nodes: &mut Vec<Node>,
    time: u64,
    due: impl Fn(u32) -> u64,
) {
    loop {
        let start = operations.peek().map_or(u64::MAX, |at| due(*at));
        let end = ends.peek().map_or(u64::MAX, |at| trace.calls[*at as usize].end());
        if end <= time && end <= start && end < u64::MAX {
            nodes.extend(ends.next().map(Node::CallEnd));
        } else if start < time {
            nodes.extend(operations.next().map(Node::Operation));
        } else {
            return;
        }
    }
}

struct Build<'t> {
    trace: &'t Trace,
    typical: Typical,
    graph: Graph<'t>,
    /// Which operations were gone through.
    begun: Vec<bool>,
    queues: Vec<Queue>,
    /// Of each operation, the place of its launch among those of its stream.
    ranks: Vec<u32>,
    /// Of each device and direction, the copy that began last.
    engines: Vec<[Option<u32>; 2]>,
    devices: Vec<Progress>,
    /// Of each process, and last of none.
    processes: Vec<Progress>,
    handovers: Handovers,
    /// Of each call, how often its thread had made a stream wait before.
    stream_waits: Vec<u32>,
    /// Of each call, the operation it asked for, where that is one.
    asked: Vec<Option<u32>>,
    /// Of each thread and stream of a device that it waited for as a whole: for which operation last.
    drained: HashMap<(u32, StreamId), u32>,
    /// When the last of its process had ended before an operation that its call waits for.
    ended: HashMap<u32, u64>,
    without_call: usize,
}

impl<'t> Build<'t> {
    fn new(trace: &'t Trace, ranks: Vec<u32>) -> Build<'t> {
        let mut queues = vec![Queue::default(); trace.streams.len()];
        for (at, wait) in (0..).zip(&trace.waits) {
            queues[wait.stream.index()].waits.push(at);
        }
        let (asked, in_graph) = launches(trace);
        let order = Vec::with_capacity(trace.operations.len() + 2 * trace.calls.len());
        let graph = Graph {
            trace,
            order,
            first: vec![0],
            constraints: Vec::new(),
            begun: HashMap::new(),
            in_graph,
            remarks: Vec::new(),
        };
        Build {
            trace,
            typical: Typical::of(trace),
            graph,
            begun: vec![false; trace.operations.len()],
            queues,
            ranks,
            engines: vec![[None; 2]; trace.devices.len()],
            devices: vec![Progress::default(); trace.devices.len()],
            processes: vec![Progress::default(); trace.processes.len() + 1],
            handovers: Handovers::new(trace),
            stream_waits: stream_waits(trace),
            asked,
            drained: HashMap::new(),
            ended: HashMap::new(),
            without_call: 0,
        }
    }

    /// Adds a constraint of the node that is being built: a lag of at most `lag`, less where the
    /// trace shows that less was enough.
    fn add(&mut self, node: Node, point: Point, index: u32, lag: i64, between: Between) {
        let seen = difference(self.graph.native_node(node), self.graph.native(point, index));
        self.graph.constraints.push(Constraint { lag: lag.min(seen), index, point, between });
    }

    /// Ends a node: what its constraints do not explain is added to the one that explains most.
    fn close(&mut self, node: Node) {
        let from = *self.graph.first.last().expect("never empty") as usize;
        let slack = |it: &Constraint| self.graph.slack(node, it);
        let own = &self.graph.constraints[from..];
        let closest = own.iter().map(slack).enumerate().min_by_key(|(_, slack)| *slack);
        if let Some((at, slack)) = closest {
            self.graph.constraints[from + at].lag += slack.cast_signed();
        }
        let end = u32::try_from(self.graph.constraints.len()).expect("few for each of EVENTS");
        self.graph.first.push(end);
        self.graph.order.push(node);
    }

    /// How much of a node's time its constraints do not explain.
    fn unexplained(&self, node: Node) -> u64 {
        let from = *self.graph.first.last().expect("never empty") as usize;
        let own = &self.graph.constraints[from..];
        own.iter().map(|it| self.graph.slack(node, it)).min().unwrap_or(u64::MAX)
    }

    fn call_start(&mut self, at: u32) {
        let node = Node::CallStart(at);
        let call = &self.trace.calls[at as usize];
        let giver = self.handovers.giver(self.trace, at);
        if let Some(previous) = self.handovers.previous(call) {
            // The thread's own work between its calls; while it waited there was none.
            let lag = if giver.is_some() { 0 } else { i64::MAX };
            self.add(node, Point::CallEnd, previous, lag, Between::Nothing);
        }
        if let Some(giver) = giver {
            self.add(node, Point::CallEnd, giver, i64::MAX, Between::Nothing);
        }
        self.close(node);
    }

    fn call_end(&mut self, at: u32) {
        let node = Node::CallEnd(at);
        let call = &self.trace.calls[at as usize];
        let waited = self.waits_of(at, call, node);
        // Without waiting it takes what such a call takes.
        let own = match (call.kind, waited) {
            (CallKind::Synchronise(_), Some(end)) if end > call.start => self.typical.check,
            (_, Some(_)) => self.typical.launch,
            (_, None) => i64::MAX,
        };
        self.add(node, Point::CallStart, at, own, Between::Nothing);
        self.close(node);
        self.handovers.ended(self.trace, at);
    }

    /// Adds what a call waited for, and says when the last of it ended.
    fn waits_of(&mut self, at: u32, call: &Call, node: Node) -> Option<u64> {
        match call.kind {
            CallKind::Synchronise(scope) => self.synchronises(at, call, scope, node),
            CallKind::Issue | CallKind::IssueGraph | CallKind::IssueAndWait => {
                let holds_up = self.asked[at as usize].is_some_and(|asked| {
                    holds_up_its_call(&self.trace.operations[asked as usize], call.kind)
                });
                match call.kind {
                    _ if holds_up => self.waits_for_own(at, call, node),
                    CallKind::IssueAndWait => self.waits_for_turn(at, call, node),
                    _ => self.queues_up(at, call, node),
                }
            }
            CallKind::StreamWait | CallKind::Other => None,
        }
    }

    fn seen(&mut self, node: Node, operation: u32, lag: i64) -> u64 {
        self.add(node, Point::End, operation, lag, Between::Seen);
        self.graph.native(Point::End, operation)
    }

    fn waits_for_own(&mut self, at: u32, call: &Call, node: Node) -> Option<u64> {
        let own = self.asked[at as usize].filter(|own| self.begun[*own as usize])?;
        let end = self.graph.native(Point::End, own);
        (end <= call.end() + ROUNDING).then(|| self.seen(node, own, i64::MAX))
    }

    /// What is in the driver's buffer when the call returns waited for what was in the stream before
    /// it, and not for its own end. Where something was, the CPU saw the end of that.
    fn waits_for_turn(&mut self, at: u32, call: &Call, node: Node) -> Option<u64> {
        let own = self.asked[at as usize].filter(|own| self.begun[*own as usize])?;
        let start = self.graph.native(Point::Start, own);
        let stream = self.trace.operations[own as usize].stream;
        let before = self.queues[stream.index()].before(self.trace, CallId::of(at as usize));
        let in_stream =
            before.is_some_and(|before| self.graph.native(Point::End, before) > call.start);
        // The legacy default stream waits for others, which shows in when the copy began.
        let launch = self.typical.launch.max(0).cast_unsigned();
        let late = start > call.start + launch + UNEXPLAINED;
        let ended_meanwhile = self.ended.get(&own).is_some_and(|end| *end > call.start);
        let waited = in_stream || late && ended_meanwhile;
        let between = if waited { Between::Seen } else { Between::Nothing };
        (start <= call.end() + ROUNDING).then(|| {
            self.add(node, Point::Start, own, i64::MAX, between);
            start
        })
    }

    /// A launch that took long waited for the device; any other one would, with a full queue.
    fn queues_up(&mut self, at: u32, call: &Call, node: Node) -> Option<u64> {
        let asked = self.asked[at as usize]?;
        let stream = self.trace.operations[asked as usize].stream;
        if let Some(leaves) = self.queues[stream.index()].leaves_room_for(asked, &self.ranks) {
            self.add(node, Point::Start, leaves, 0, Between::Nothing);
        }
        self.blocked(at, call, node)
    }

    /// A call that took so long waited for something, though the trace does not show that there was
    /// anything to wait for: for what ended last meanwhile.
    fn blocked(&mut self, at: u32, call: &Call, node: Node) -> Option<u64> {
        if call.duration < BLOCKED {
            return None;
        }
        let process = self.trace.process_of(CallId::of(at as usize)).index();
        let (end, operation) = self.processes[process].ended_by(call.end())?;
        (end > call.start).then(|| self.seen(node, operation, i64::MAX))
    }

    fn synchronises(&mut self, at: u32, call: &Call, scope: Scope, node: Node) -> Option<u64> {
        let id = CallId::of(at as usize);
        match call.target {
            Target::Stream(stream) => {
                let last = self.queues[stream.index()].before(self.trace, id);
                self.waits_for_last(at, call, last, node)
            }
            Target::Event(event) => {
                let queue = &self.queues[event.stream.index()];
                let last = queue.before(self.trace, event.recorded);
                self.waits_for_last(at, call, last, node)
            }
            Target::Device(device) => {
                let streams = (0..self.trace.streams.len()).map(StreamId::of);
                let of_device = |it: &StreamId| self.trace.streams[it.index()].device == device;
                let streams: Vec<_> = streams.filter(of_device).collect();
                streams.into_iter().filter_map(|stream| self.drains(call, stream, id, node)).max()
            }
            Target::Unknown => {
                debug_assert!(matches!(scope, Scope::Device | Scope::Stream | Scope::Event));
                let process = self.trace.process_of(id).index();
                let (_, operation) = self.processes[process].ended_by(call.end())?;
                Some(self.seen(node, operation, self.typical.wake))
            }
        }
    }

    /// The last of what a call waited for in a stream. Nothing was there: then it did not wait, unless
    /// it took long, as where a graph's operations are in other streams than its launch.
    fn waits_for_last(
        &mut self,
        at: u32,
        call: &Call,
        last: Option<u32>,
        node: Node,
    ) -> Option<u64> {
        match last {
            Some(last) => Some(self.seen(node, last, self.typical.wake)),
            None => self.blocked(at, call, node),
        }
    }

    /// One of a device's streams, all of which a call waited for: what the thread waited for before
    /// need not be looked at again. That is what was asked for before the call: others may have begun.
    fn drains(&mut self, call: &Call, stream: StreamId, id: CallId, node: Node) -> Option<u64> {
        let last = self.queues[stream.index()].before(self.trace, id)?;
        let thread = u32::try_from(call.thread.index()).expect("as many as calls");
        if self.drained.insert((thread, stream), last) == Some(last) {
            return None;
        }
        Some(self.seen(node, last, self.typical.wake))
    }

    fn operation(&mut self, at: u32) {
        let trace = self.trace;
        let node = Node::Operation(at);
        let operation = &trace.operations[at as usize];
        let stream = operation.stream.index();
        let previous = self.queues[stream].operations.last().copied();
        if let Some(call) = operation.call {
            let call = u32::try_from(call.index()).expect("EVENTS fit");
            self.add(node, Point::CallStart, call, self.typical.launch, Between::Doorbell);
        }
        if let Some(previous) = previous {
            self.add(node, Point::Start, previous, 0, Between::Nothing);
            if self.graph.native(Point::End, previous) <= operation.start {
                self.add(node, Point::End, previous, self.typical.gap, Between::Nothing);
            }
        }
        self.engine(at, node);
        let known_wait = self.stream_waits_for(at, node);
        self.unknown_wait(at, previous, known_wait, node);
        self.close(node);

        let waits = |call: CallId| trace.calls[call.index()].kind == CallKind::IssueAndWait;
        if operation.call.is_some_and(waits)
            && let Some((end, _)) = self.process_of(at).ended_by(operation.start)
        {
            self.ended.insert(at, end);
        }
        self.begun[at as usize] = true;
        self.queues[stream].operations.push(at);
        self.devices[trace.device_of(operation).index()].begin(operation.end(), at);
        self.process_of(at).begin(operation.end(), at);
    }

    fn process_of(&mut self, operation: u32) -> &mut Progress {
        let operation = &self.trace.operations[operation as usize];
        let process = match operation.call {
            Some(call) => Some(self.trace.process_of(call)),
            None => self.trace.streams[operation.stream.index()].process,
        };
        let none = self.processes.len() - 1;
        &mut self.processes[process.map_or(none, |process| process.index())]
    }

    /// A copy waits for the one before it of its device and direction, unless they overlapped.
    fn engine(&mut self, at: u32, node: Node) {
        let operation = &self.trace.operations[at as usize];
        let direction = match operation.kind {
            OperationKind::Copy(Direction::HostToDevice, _) => 0,
            OperationKind::Copy(Direction::DeviceToHost, _) => 1,
            _ => return,
        };
        let device = self.trace.device_of(operation).index();
        let before = self.engines[device][direction].replace(at);
        let Some(before) = before else { return };
        let other = self.trace.operations[before as usize].stream != operation.stream;
        if other && self.graph.native(Point::Done, before) <= operation.start {
            self.add(node, Point::Done, before, 0, Between::Nothing);
        }
    }

    /// Events that the stream was made to wait for before this operation was asked for. Whether
    /// the trace says so of this stream.
    fn stream_waits_for(&mut self, at: u32, node: Node) -> bool {
        let trace = self.trace;
        let operation = &trace.operations[at as usize];
        let Some(asked) = operation.call else { return false };
        loop {
            let queue = &mut self.queues[operation.stream.index()];
            let Some(wait) = queue.waits.get(queue.waited) else { break };
            let wait = trace.waits[*wait as usize];
            if wait.call > asked {
                break;
            }
            queue.waited += 1;
            let recorded = wait.event.recorded;
            let last = self.queues[wait.event.stream.index()].before(trace, recorded);
            if let Some(last) = last
                && self.graph.native(Point::End, last) <= operation.start
            {
                self.add(node, Point::End, last, self.typical.gap, Between::Nothing);
            }
        }
        !self.queues[operation.stream.index()].waits.is_empty()
    }

    /// Looks for what an operation waited for that the trace does not say: what ended last on its
    /// device before it began.
    fn unknown_wait(&mut self, at: u32, previous: Option<u32>, known: bool, node: Node) {
        let trace = self.trace;
        let operation = &trace.operations[at as usize];
        let unexplained = self.unexplained(node);
        let device = trace.device_of(operation).index();
        let ended = self.devices[device].ended_by(operation.start);
        let Some(call) = operation.call else {
            // Nobody knows when it was asked for: as soon as what ended before it had ended.
            self.without_call += 1;
            if let Some((_, ended)) = ended.filter(|(_, ended)| previous != Some(*ended)) {
                self.add(node, Point::End, ended, i64::MAX, Between::Nothing);
            }
            return;
        };
        let Some((end, ended)) = ended else { return };
        let elsewhere = trace.operations[ended as usize].stream != operation.stream;
        if !known && elsewhere && self.was_made_to_wait(call, previous) {
            // For an event, which comes with the end; perhaps it had come before.
            self.add(node, Point::End, ended, self.typical.gap, Between::Nothing);
        } else if unexplained > UNEXPLAINED && end + unexplained > operation.start {
            // For room on the device, which is there when the work is done.
            self.add(node, Point::Done, ended, i64::MAX, Between::Nothing);
        }
    }

    /// Whether the thread that asked for an operation made some stream wait for an event since it
    /// asked for the one before it in its stream.
    fn was_made_to_wait(&self, call: CallId, previous: Option<u32>) -> bool {
        let calls = &self.trace.calls;
        let before = previous
            .and_then(|previous| self.trace.operations[previous as usize].call)
            .filter(|before| calls[before.index()].thread == calls[call.index()].thread)
            .map_or(0, |before| self.stream_waits[before.index()]);
        self.stream_waits[call.index()] > before
    }

    fn finish(mut self) -> Graph<'t> {
        let operations = self.trace.operations.len();
        if self.without_call > 0 {
            self.graph.remarks.push(format!(
                "Of {} of {operations} operations the trace does not say which call asked for them: \
                 each is taken to be asked for when the one before it had ended, so that nothing of \
                 what the fabric adds to them is hidden.",
                self.without_call,
            ));
        }
        self.graph
    }
}

/// Of each call, how often its thread had made a stream wait for an event before it.
fn stream_waits(trace: &Trace) -> Vec<u32> {
    let mut counts = vec![0_u32; trace.threads.len()];
    let count = |call: &Call| {
        let count = &mut counts[call.thread.index()];
        *count += u32::from(call.kind == CallKind::StreamWait);
        *count
    };
    trace.calls.iter().map(count).collect()
}

/// Of each call the last operation that it asked for; and which operations are of graphs.
fn launches(trace: &Trace) -> (Vec<Option<u32>>, Vec<InGraph>) {
    let mut asked: Vec<Option<u32>> = vec![None; trace.calls.len()];
    let mut in_graph = vec![InGraph::No; trace.operations.len()];
    for (at, operation) in (0_u32..).zip(&trace.operations) {
        let Some(call) = operation.call else { continue };
        let last = &mut asked[call.index()];
        let is_last =
            last.is_none_or(|last| trace.operations[last as usize].end() <= operation.end());
        let is_graph = trace.calls[call.index()].kind == CallKind::IssueGraph;
        if is_graph {
            in_graph[at as usize] = if is_last { InGraph::Last } else { InGraph::Inner };
            if let Some(last) = last.filter(|_| is_last) {
                in_graph[last as usize] = InGraph::Inner;
            }
        }
        if is_last {
            *last = Some(at);
        }
    }
    (asked, in_graph)
}
