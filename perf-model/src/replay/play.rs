//! Playing a graph with a fabric.

use perf_core::{Fabric, Graphs, Kind, Nanos, Proxies, STAGED_AT_ONCE, Settings};

use super::graph::{Between, Constraint, Graph, InGraph, Node, Point};
use crate::trace::{CallKind, Direction, Memory, Operation, OperationKind, Step};

/// How a trace is played.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What each kind of operation costs more, and which proxies the devices are behind.
    pub settings: Settings,
    /// What putting a delay into a stream costs the CPU, under the shim. A fabric takes no such time.
    pub putting: Nanos,
}

impl Scenario {
    /// A fabric, and nothing of the shim's.
    #[must_use]
    pub fn of(settings: Settings, proxies: Proxies) -> Scenario {
        Scenario { settings: Settings { proxies, ..settings }, putting: Nanos::ZERO }
    }
}

/// No constraint: a node that comes when it came in the trace.
pub(super) const NONE: u32 = u32::MAX;

/// A graph that was played: when each point came, in nanoseconds.
#[derive(Debug)]
pub struct Played<'g> {
    pub(super) graph: &'g Graph<'g>,
    /// What it was played with, for each device.
    pub(super) settings: Vec<Settings>,
    pub(super) calls: Vec<Times>,
    pub(super) operations: Vec<Times>,
    /// What operations waited for others at the proxy they share, in nanoseconds.
    pub(super) queued: Vec<u64>,
    /// What each call took longer to put delays into streams, in nanoseconds; empty without a shim.
    pub(super) putting: Vec<u64>,
}

/// When a call or an operation began and ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The constraints that were met last, or [`NONE`]; an operation's end has none.
    pub(super) start_by: u32,
    pub(super) end_by: u32,
}

/// How often a graph is played to find how much several devices use the proxy they share: what they
/// use depends on how long it all takes.
const ROUNDS: usize = 4;

/// Uses that differ less than this are the same.
const SAME_USE: f64 = 0.005;

impl Graph<'_> {
    /// Plays it.
    #[must_use]
    pub fn play(&self, scenario: &Scenario) -> Played<'_> {
        let moved = self.moved(&scenario.settings);
        let shared = scenario.settings.proxies == Proxies::One && self.trace.busy_devices() > 1;
        let mut length = self.trace.length_ns();
        let mut uses = self.uses(&moved, &scenario.settings.fabric, shared, length);
        let mut played = self.play_once(scenario, &uses, shared);
        if shared && !scenario.settings.fabric.is_native() {
            for _ in 1..ROUNDS {
                length = played.length_ns();
                let next = self.uses(&moved, &scenario.settings.fabric, shared, length);
                let same = uses.iter().zip(&next).all(|(old, new)| (old - new).abs() < SAME_USE);
                if same {
                    break;
                }
                uses = next;
                played = self.play_once(scenario, &uses, shared);
            }
        }
        played
    }

    /// Bytes that went to and from each device over the fabric.
    fn moved(&self, settings: &Settings) -> Vec<[u64; 2]> {
        let mut moved = vec![[0_u64; 2]; self.trace.devices.len()];
        for operation in &self.trace.operations {
            if let Some(direction) = over_fabric(operation.kind, settings) {
                let device = self.trace.device_of(operation).index();
                let bytes = &mut moved[device][direction];
                *bytes = bytes.saturating_add(operation.bytes);
            }
        }
        moved
    }

    /// For each device, the part of the proxy's rate that the others use, in the direction in which
    /// that is more.
    fn uses(&self, moved: &[[u64; 2]], fabric: &Fabric, shared: bool, length: u64) -> Vec<f64> {
        if !shared || length == 0 {
            return vec![0.0; moved.len()];
        }
        let all = [0, 1].map(|way| moved.iter().map(|bytes| bytes[way] as f64).sum::<f64>());
        let room = fabric.fabric_rate.get() as f64 * length as f64 / 1e9;
        let of_others = |own: &[u64; 2]| {
            let ways = [0, 1].map(|way| (all[way] - own[way] as f64) / room);
            ways[0].max(ways[1])
        };
        moved.iter().map(of_others).collect()
    }

    fn play_once(&self, scenario: &Scenario, uses: &[f64], shared: bool) -> Played<'_> {
        let settings = uses.iter().map(|used| Settings {
            fabric: scenario.settings.fabric.under_load(*used),
            ..scenario.settings
        });
        let never = Times { start: 0, end: 0, start_by: NONE, end_by: NONE };
        let mut played = Played {
            graph: self,
            settings: settings.collect(),
            calls: vec![never; self.trace.calls.len()],
            operations: vec![never; self.trace.operations.len()],
            queued: vec![0; if shared { self.trace.operations.len() } else { 0 }],
            putting: Vec::new(),
        };
        played.putting = played.delays_of_calls(scenario.putting);
        // When the shared proxy has done what it was given before, in each direction.
        let mut free = [0_u64; 2];
        for (place, node) in self.order.iter().enumerate() {
            let (time, by) = played.due(place, *node);
            match *node {
                Node::CallStart(at) => {
                    let call = &mut played.calls[at as usize];
                    (call.start, call.start_by) = (time, by);
                }
                Node::CallEnd(at) => {
                    let call = &mut played.calls[at as usize];
                    (call.end, call.end_by) = (time, by);
                }
                Node::Operation(at) => played.operate(at, time, by, shared.then_some(&mut free)),
            }
        }
        played
    }
}

/// Whether an operation moves data over the fabric: to the device 0, from it 1. What is off costs
/// nothing more: it is taken to need none of the fabric either.
fn over_fabric(kind: OperationKind, settings: &Settings) -> Option<usize> {
    let (kind, way) = match kind {
        OperationKind::Copy(Direction::HostToDevice, _) => (Kind::HostToDevice, 0),
        OperationKind::Copy(Direction::DeviceToHost, _) => (Kind::DeviceToHost, 1),
        _ => return None,
    };
    (!settings.off.has(kind)).then_some(way)
}

/// Whether an operation's call returns when the operation has ended. The shim's delay of it is the
/// call's own time then.
pub(super) fn holds_up_its_call(operation: &Operation, call: CallKind) -> bool {
    match operation.kind {
        // Small ones from pageable memory are in the driver's buffer when the call returns.
        OperationKind::Copy(Direction::HostToDevice, memory)
            if operation.bytes <= STAGED_AT_ONCE =>
        {
            call == CallKind::IssueAndWait && memory == Memory::Pinned
        }
        OperationKind::Copy(_, Memory::Pageable) => true,
        _ => call == CallKind::IssueAndWait,
    }
}

impl Played<'_> {
    /// When a node comes, and by which constraint.
    fn due(&self, place: usize, node: Node) -> (u64, u32) {
        let graph = self.graph;
        let (from, to) = (graph.first[place], graph.first[place + 1]);
        let device = match node {
            Node::Operation(at) => {
                graph.trace.device_of(&graph.trace.operations[at as usize]).index()
            }
            Node::CallStart(_) | Node::CallEnd(_) => 0,
        };
        let mut due = (0, NONE);
        for by in from..to {
            let constraint = &graph.constraints[by as usize];
            let time = self
                .time(constraint.point, constraint.index)
                .saturating_add_signed(constraint.lag)
                .saturating_add(self.between(constraint, device).0);
            if due.1 == NONE || time > due.0 {
                due = (time, by);
            }
        }
        if let (Node::CallEnd(at), false) = (node, self.putting.is_empty()) {
            due.0 = due.0.saturating_add(self.putting[at as usize]);
        }
        if due.1 == NONE { (graph.unexplained_node(node), NONE) } else { due }
    }

    /// What each call takes longer if each delay of what it asked for costs the CPU so much. Calls
    /// that wait for their copy are delayed themselves, and captured graphs have their delays in them.
    fn delays_of_calls(&self, putting: Nanos) -> Vec<u64> {
        if putting == Nanos::ZERO {
            return Vec::new();
        }
        let trace = self.graph.trace;
        let mut costs = vec![0_u64; trace.calls.len()];
        for (at, operation) in (0_u32..).zip(&trace.operations) {
            let Some(call) = operation.call else { continue };
            let (_, extra) = self.extra(at, operation);
            let by_node = self.settings[trace.device_of(operation).index()].graphs == Graphs::Node
                && self.graph.in_graph[at as usize] != InGraph::No;
            let waits = holds_up_its_call(operation, trace.calls[call.index()].kind);
            let puts = match operation.kind {
                _ if extra == Nanos::ZERO || by_node || waits => 0,
                // Before it and after it.
                OperationKind::Callback => 2,
                _ => 1,
            };
            let cost = &mut costs[call.index()];
            *cost = cost.saturating_add(putting.0.saturating_mul(puts));
        }
        costs
    }

    /// What the fabric adds to a constraint; of the device of the node that it is of.
    pub(super) fn between(&self, constraint: &Constraint, device: usize) -> Nanos {
        match constraint.between {
            Between::Nothing => Nanos::ZERO,
            Between::Doorbell => self.settings[device].extra(Kind::Doorbell, 0),
            Between::Seen => {
                let operation = &self.graph.trace.operations[constraint.index as usize];
                let device = self.graph.trace.device_of(operation).index();
                self.settings[device].extra(Kind::Synchronise, 0)
            }
        }
    }

    fn operate(&mut self, at: u32, start: u64, by: u32, free: Option<&mut [u64; 2]>) {
        let operation = &self.graph.trace.operations[at as usize];
        let (_, extra) = self.extra(at, operation);
        let mut end = start.saturating_add(operation.duration).saturating_add(extra.0);
        let settings = &self.settings[self.graph.trace.device_of(operation).index()];
        if let (Some(free), Some(way)) = (free, over_fabric(operation.kind, settings)) {
            let fabric = &settings.fabric;
            if !fabric.is_native() {
                let served =
                    start.max(free[way]).saturating_add(fabric.fabric_rate.time(operation.bytes).0);
                free[way] = served;
                self.queued[at as usize] = served.saturating_sub(end);
                end = end.max(served);
            }
        }
        self.operations[at as usize] = Times { start, end, start_by: by, end_by: NONE };
    }

    /// What the fabric adds to an operation, and as what it counts.
    pub(super) fn extra(&self, at: u32, operation: &Operation) -> (Kind, Nanos) {
        let settings = &self.settings[self.graph.trace.device_of(operation).index()];
        let kind = match operation.kind {
            OperationKind::Kernel => Kind::Kernel,
            OperationKind::Graph => Kind::Graph,
            OperationKind::Memset => Kind::Memset,
            OperationKind::Callback => Kind::HostCallback,
            OperationKind::Copy(Direction::HostToDevice, _) => Kind::HostToDevice,
            OperationKind::Copy(Direction::DeviceToHost, _) => Kind::DeviceToHost,
            OperationKind::Copy(Direction::DeviceToDevice, _) => Kind::DeviceToDevice,
            OperationKind::Copy(Direction::PeerToPeer, _) => Kind::PeerToPeer,
        };
        match (self.graph.in_graph[at as usize], settings.graphs) {
            (InGraph::No, _) | (_, Graphs::Node) => (kind, settings.extra(kind, operation.bytes)),
            (InGraph::Last, Graphs::Launch) => (Kind::Graph, settings.extra(Kind::Graph, 0)),
            (InGraph::Inner, Graphs::Launch) => (Kind::Graph, Nanos::ZERO),
        }
    }

    /// When a point came.
    pub(super) fn time(&self, point: Point, index: u32) -> u64 {
        let at = index as usize;
        match point {
            Point::CallStart => self.calls[at].start,
            Point::CallEnd => self.calls[at].end,
            Point::Start => self.operations[at].start,
            Point::End => self.operations[at].end,
            Point::Done => {
                let operation = &self.graph.trace.operations[at];
                match operation.kind {
                    // What a copy takes longer it moves data in.
                    OperationKind::Copy(..) => self.operations[at].end,
                    _ => self.operations[at].start.saturating_add(operation.duration),
                }
            }
        }
    }

    /// When the last call or operation ended, in nanoseconds since the trace began.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        let ends = self.calls.iter().chain(&self.operations).map(|times| times.end);
        ends.max().unwrap_or(0)
    }

    /// How long a step takes on average, in nanoseconds, where the trace marks steps: the same time as
    /// [`crate::trace::Trace::step_ns`].
    #[must_use]
    pub fn step_ns(&self) -> Option<f64> {
        let trace = self.graph.trace;
        let calls = trace.calls_of_steps();
        let came = |step: &Step, native| self.time_in_thread(&calls[&step.thread], native);
        let from = trace.steps.iter().map(|step| came(step, step.start)).min()?;
        let marked = trace.steps.iter().map(|step| came(step, step.end())).max()?;
        let done = trace.asked_in_steps().map(|at| self.operations[at].end).max();
        let length = done.unwrap_or(marked).max(marked).saturating_sub(from);
        Some(length as f64 / trace.steps_of_a_thread())
    }
}
