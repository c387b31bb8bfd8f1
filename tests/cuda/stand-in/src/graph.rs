//! Work: single operations, graphs of them, and the capture of streams to graphs.

use std::collections::HashMap;

use crate::call::Call;
use crate::copy::{Copy, Set};
use crate::driver::{Handle, Place};
use crate::ffi::Opaque;
use crate::record::{Recorded, Row, thread};
use crate::schedule::{Need, Span};
use crate::settings::settings;
use crate::status::{Answer, Status};

/// A function that a stream calls on the host (cuda.h: `CUhostFn`).
pub(crate) type HostFunction = extern "C" fn(Opaque);

/// One that a stream calls with itself and its status (cuda.h: `CUstreamCallback`).
pub(crate) type StreamFunction = extern "C" fn(Handle, i32, Opaque);

/// What a stream calls on the host, with what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callback {
    Host(HostFunction, Opaque),
    Stream(StreamFunction, Handle, Opaque),
}

impl Callback {
    fn call(self) {
        match self {
            Self::Host(function, data) => function(data),
            Self::Stream(function, stream, data) => function(stream, 0, data),
        }
    }
}

/// A kernel with the parameters of its launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) function: Handle,
    pub(crate) name: String,
    /// How long it lasts, in nanoseconds.
    pub(crate) duration: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// Where its parameters were.
    pub(crate) parameters: u64,
    pub(crate) extra: u64,
}

/// One thing that a device or a stream does.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Kernel(Kernel),
    Copy(Copy),
    Set(Set),
    Host(Callback),
    Record(Handle),
    Wait(Handle),
    Child(Graph),
    Empty,
    /// Memory was allocated, and freed.
    Allocate,
    Free,
}

impl Operation {
    /// The type of the node that it is in a graph (cuda.h: `CUgraphNodeType`).
    pub(crate) fn node_type(&self) -> i32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Set(_) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Allocate => 10,
            Self::Free => 11,
        }
    }
}

/// A node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) handle: Handle,
    pub(crate) operation: Operation,
    /// What it comes after.
    pub(crate) after: Vec<Handle>,
    pub(crate) enabled: bool,
}

/// A graph. Its nodes are in the order that they were added in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

impl Graph {
    /// The node with a handle.
    pub(crate) fn node(&self, handle: Handle) -> Result<&Node, Status> {
        self.nodes.iter().find(|node| node.handle == handle).ok_or(Status::INVALID_VALUE)
    }

    /// The node with a handle, to be changed.
    pub(crate) fn node_mut(&mut self, handle: Handle) -> Result<&mut Node, Status> {
        self.nodes.iter_mut().find(|node| node.handle == handle).ok_or(Status::INVALID_VALUE)
    }

    /// The nodes, each behind what it comes after. Refuses a circle.
    pub(crate) fn in_order(&self) -> Result<Vec<&Node>, Status> {
        let mut order: Vec<&Node> = Vec::with_capacity(self.nodes.len());
        let mut done: HashMap<Handle, ()> = HashMap::new();
        let mut left: Vec<&Node> = self.nodes.iter().collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|node| {
                let ready = node.after.iter().all(|other| done.contains_key(other));
                if ready {
                    done.insert(node.handle, ());
                    order.push(node);
                }
                !ready
            });
            if left.len() == before {
                return Err(Status::INVALID_VALUE);
            }
        }
        Ok(order)
    }

    /// The same nodes under new handles, which `handle` gives.
    pub(crate) fn copied(&self, mut handle: impl FnMut() -> Handle) -> Self {
        let names: HashMap<Handle, Handle> =
            self.nodes.iter().map(|node| (node.handle, handle())).collect();
        let nodes = self.nodes.iter().map(|node| Node {
            handle: names[&node.handle],
            after: node.after.iter().filter_map(|other| names.get(other).copied()).collect(),
            ..node.clone()
        });
        Self { nodes: nodes.collect() }
    }
}

/// What the timeline says of an operation.
struct What<'a> {
    kind: &'static str,
    name: &'a str,
    bytes: u64,
    memory: &'static str,
}

/// A capture of streams to a graph.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) graph: Handle,
    /// The stream that it was begun with, and is to be ended with.
    pub(crate) origin: Handle,
    pub(crate) thread: i32,
    /// 0 global, 1 of the thread, 2 relaxed (cuda.h: `CUstreamCaptureMode`).
    pub(crate) mode: i32,
    pub(crate) is_invalid: bool,
    /// What an event made other streams part of, and is to be joined again.
    pub(crate) streams: Vec<Handle>,
}

impl Call {
    /// Does an operation that is ready at a time, and says when it ends.
    pub(crate) fn perform(
        &mut self,
        place: Place,
        ready: u64,
        operation: &Operation,
    ) -> Result<u64, Status> {
        let settings = settings();
        match operation {
            Operation::Kernel(kernel) => {
                let name = kernel.name.as_str();
                let what = What { kind: "kernel", name, bytes: 0, memory: "" };
                Ok(self.place(place, Need::Kernel, ready, kernel.duration, what))
            }
            Operation::Copy(copy) => {
                copy.perform(&self.memory)?;
                let duration = settings.moving(copy.bytes, copy.direction.rate(settings));
                let (need, kind) = (copy.direction.need(), copy.direction.kind());
                let what = What { kind, name: "", bytes: copy.bytes, memory: copy.memory() };
                self.bytes += copy.bytes;
                Ok(self.place(place, need, ready, duration, what))
            }
            Operation::Set(set) => {
                set.perform(&self.memory)?;
                let duration = settings.moving(set.bytes(), settings.dtod_rate);
                let what = What { kind: "memset", name: "", bytes: set.bytes(), memory: "" };
                self.bytes += set.bytes();
                Ok(self.place(place, Need::Kernel, ready, duration, what))
            }
            Operation::Host(callback) => {
                let callback = *callback;
                let end = self.call_back(ready + settings.callback_ns, || callback.call());
                let what = What { kind: "callback", name: "", bytes: 0, memory: "" };
                self.write(place, Span { start: ready, end }, what);
                Ok(end)
            }
            Operation::Record(event) => {
                let correlation = self.correlation;
                let event = self.events.get_mut(event).ok_or(Status::INVALID_HANDLE)?;
                event.recorded = Some(Recorded { stream: place.number, correlation });
                (event.time, event.captured) = (Some(ready), None);
                Ok(ready)
            }
            Operation::Wait(event) => {
                let event = self.events.get(event).ok_or(Status::INVALID_HANDLE)?;
                Ok(ready.max(event.time.unwrap_or(0)))
            }
            Operation::Child(graph) => self.perform_graph(place, ready, graph),
            Operation::Empty | Operation::Allocate | Operation::Free => Ok(ready),
        }
    }

    /// Does a graph's operations, each as soon as what it comes after has ended.
    pub(crate) fn perform_graph(
        &mut self,
        place: Place,
        ready: u64,
        graph: &Graph,
    ) -> Result<u64, Status> {
        let mut ends: HashMap<Handle, u64> = HashMap::new();
        for node in graph.in_order()? {
            let after = node.after.iter().map(|other| ends[other]).max().unwrap_or(ready);
            let end =
                if node.enabled { self.perform(place, after, &node.operation)? } else { after };
            ends.insert(node.handle, end);
        }
        Ok(ends.into_values().max().unwrap_or(ready))
    }

    /// Finds a time for something, writes it down, and says when it ends.
    fn place(
        &mut self,
        place: Place,
        need: Need,
        ready: u64,
        duration: u64,
        what: What<'_>,
    ) -> u64 {
        let span = self.devices[place.device].place(need, ready, duration);
        self.write(place, span, what);
        span.end
    }

    fn write(&mut self, place: Place, span: Span, what: What<'_>) {
        let (start, duration) = (span.start, span.end - span.start);
        let What { kind, name, bytes, memory } = what;
        let (stream, device, correlation) = (Some(place.number), place.device, self.correlation);
        let event = None;
        self.record.row(&Row {
            start,
            duration,
            kind,
            stream,
            bytes,
            name,
            device,
            correlation,
            memory,
            event,
        });
    }

    /// Adds a node to a graph.
    pub(crate) fn add_node(
        &mut self,
        graph: Handle,
        after: Vec<Handle>,
        operation: Operation,
    ) -> Result<Handle, Status> {
        let handle = self.handle();
        let of = self.graphs.get_mut(&graph).ok_or(Status::INVALID_VALUE)?;
        if !after.iter().all(|other| of.node(*other).is_ok()) {
            return Err(Status::INVALID_VALUE);
        }
        of.nodes.push(Node { handle, operation, after, enabled: true });
        self.nodes.insert(handle, graph);
        Ok(handle)
    }

    /// Adds an operation of a stream to the graph that it is captured to.
    pub(crate) fn capture(&mut self, stream: Handle, operation: Operation) -> Answer {
        let (id, after) = self.capture_of(stream)?.expect("the stream is captured");
        // Waiting and recording are edges of the graph.
        match operation {
            Operation::Record(event) => {
                let event = self.events.get_mut(&event).ok_or(Status::INVALID_HANDLE)?;
                event.captured = Some((id, after));
                return Ok(());
            }
            Operation::Wait(event) => return self.join(stream, event),
            _ => {}
        }
        let graph = self.captures[&id].graph;
        let node = self.add_node(graph, after, operation)?;
        self.streams.get_mut(&stream).expect("it is captured").capture = Some((id, vec![node]));
        Ok(())
    }

    /// The capture that a stream is part of, and what its next node comes after.
    pub(crate) fn capture_of(&self, stream: Handle) -> Result<Option<(u64, Vec<Handle>)>, Status> {
        let Some((id, after)) = &self.streams[&stream].capture else { return Ok(None) };
        if self.captures[id].is_invalid {
            return Err(Status::STREAM_CAPTURE_INVALIDATED);
        }
        Ok(Some((*id, after.clone())))
    }

    /// Makes a stream wait for an event that was recorded in a capture: from now on it is part of
    /// that capture.
    pub(crate) fn join(&mut self, stream: Handle, event: Handle) -> Answer {
        let event = self.events.get(&event).ok_or(Status::INVALID_HANDLE)?;
        let Some((id, nodes)) = event.captured.clone() else {
            // An event of outside has no place in a graph (CUDA Programming Guide, "Cross-stream
            // Dependencies and Events").
            self.invalidate(stream);
            return Err(Status::STREAM_CAPTURE_ISOLATION);
        };
        let driver = &mut **self;
        let capture = driver.captures.get_mut(&id).ok_or(Status::CAPTURED_EVENT)?;
        let of = driver.streams.get(&stream).ok_or(Status::INVALID_HANDLE)?;
        let mut after = match &of.capture {
            Some((other, _)) if *other != id => return Err(Status::STREAM_CAPTURE_MERGE),
            Some((_, after)) => after.clone(),
            None => {
                capture.streams.push(stream);
                Vec::new()
            }
        };
        after.extend(nodes);
        after.sort_unstable();
        after.dedup();
        self.streams.get_mut(&stream).expect("it was there").capture = Some((id, after));
        Ok(())
    }

    /// What is not allowed while a stream is captured makes the capture worthless.
    pub(crate) fn invalidate(&mut self, stream: Handle) {
        let Some((id, _)) = self.streams[&stream].capture.clone() else { return };
        self.captures.get_mut(&id).expect("the stream is part of it").is_invalid = true;
    }

    /// Refuses a call that waits for a stream that is captured.
    pub(crate) fn refuse_captured(&mut self, stream: Handle) -> Answer {
        if self.streams[&stream].capture.is_none() {
            return Ok(());
        }
        self.invalidate(stream);
        Err(Status::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The legacy default stream would wait for streams that are captured (CUDA Programming Guide,
    /// "Prohibited and Unhandled Operations").
    pub(crate) fn refuse_legacy_while_capturing(&mut self, stream: Handle) -> Answer {
        let context = self.streams[&stream].context;
        if self.contexts[&context].legacy != stream {
            return Ok(());
        }
        let captured = self.streams.values().find_map(|other| {
            let (id, _) = other.capture.as_ref()?;
            (other.context == context && other.is_blocking()).then_some(*id)
        });
        let Some(id) = captured else { return Ok(()) };
        self.captures.get_mut(&id).expect("a stream is part of it").is_invalid = true;
        Err(Status::STREAM_CAPTURE_IMPLICIT)
    }

    /// Refuses what may wait for a device, such as an allocation, while this thread's captures, or
    /// any that is global, forbid it.
    pub(crate) fn refuse_unsafe_while_capturing(&mut self) -> Answer {
        let ours = thread();
        let forbidden = |capture: &&mut Capture| {
            capture.mode == 0 || (capture.mode == 1 && capture.thread == ours)
        };
        let Some(capture) = self.captures.values_mut().find(forbidden) else { return Ok(()) };
        capture.is_invalid = true;
        Err(Status::STREAM_CAPTURE_UNSUPPORTED)
    }
}
