//! The one form that all traces are brought into.

use std::collections::{HashMap, HashSet};

use super::call::CallKind;
use super::names::Names;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(u32);

            impl $name {
                /// The ID of what is at this place of its list.
                pub(crate) fn of(index: usize) -> $name {
                    $name(u32::try_from(index).expect("lists are shorter: EVENTS"))
                }

                /// The place in its list.
                #[must_use]
                pub fn index(self) -> usize {
                    self.0 as usize
                }
            }
        )*
    };
}

ids! {
    /// A process of the trace: place in [`Trace::processes`].
    ProcessId
    /// A CPU thread: place in [`Trace::threads`].
    ThreadId
    /// A device: place in [`Trace::devices`].
    DeviceId
    /// A stream: place in [`Trace::streams`].
    StreamId
    /// A name: see [`Names`].
    NameId
    /// A call: place in [`Trace::calls`].
    CallId
}

/// Operations and calls that one trace may have. 40 bytes each: a trace of this many is larger
/// than any profiler's own limits allow.
pub(super) const EVENTS: usize = 100_000_000;

/// The longest time that a trace may span, in nanoseconds: a year. What is longer has a wrong time
/// in it.
pub(super) const LONGEST_NS: u64 = 366 * 24 * 3600 * 1_000_000_000;

/// The most bytes that one operation may move or set: 1 PiB, more than any device holds.
pub(super) const MOST_BYTES: u64 = 1 << 50;

/// What one or several GPUs did, and the calls of CPU threads that asked for it.
///
/// All times are nanoseconds since the trace began: with its first call or operation, or with a step that
/// began before that.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Processes, by the IDs that the file gives them.
    pub processes: Vec<i64>,
    /// Threads that made calls.
    pub threads: Vec<Thread>,
    /// Devices: those that did something in the file, and those that calls waited for.
    pub devices: Vec<Device>,
    /// Streams that something was done in, or that something waited for.
    pub streams: Vec<Stream>,
    /// What the devices did, by start; of those with one start, the shorter first.
    pub operations: Vec<Operation>,
    /// Calls of the driver or runtime, by start. Those of one thread do not overlap: a call that
    /// was made inside another is part of that one.
    pub calls: Vec<Call>,
    /// Streams that waited for an event of another, as far as the file says which.
    pub waits: Vec<Wait>,
    /// Steps (training iterations) that the program marked, by start.
    pub steps: Vec<Step>,
    /// The names.
    pub names: Names,
    /// When the trace began, in nanoseconds of the file's own clock.
    pub origin_ns: i64,
    /// What was not taken as it is in the file.
    pub notes: Notes,
}

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// The ID that the file gives it.
    pub id: i64,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// Which of several files that were read together it is of, from 0: each may have a device 0.
    pub file: u32,
    /// The number that the file gives it.
    pub number: u32,
}

/// A stream: operations of one begin in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The process that made it, where the file says it.
    pub process: Option<ProcessId>,
    /// The device it is of.
    pub device: DeviceId,
    /// The number that the file gives it.
    pub number: i64,
}

/// Something that a device did.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// When it began.
    pub start: u64,
    /// How long it took, in nanoseconds.
    pub duration: u64,
    /// Bytes copied or set; 0 for kernels, and where the file does not say.
    pub bytes: u64,
    /// The call that asked for it.
    pub call: Option<CallId>,
    /// The stream.
    pub stream: StreamId,
    /// The kernel's name, or the copy's as the file has it.
    pub name: NameId,
    /// What it is.
    pub kind: OperationKind,
}

impl Operation {
    /// When it was done, in nanoseconds since the trace began.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.duration
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// A kernel ran.
    Kernel,
    /// A graph ran, of which the file does not say what was in it.
    Graph,
    /// Memory was copied.
    Copy(Direction, Memory),
    /// Memory was set to a value.
    Memset,
    /// The stream waited for a function on the CPU.
    Callback,
}

/// From where to where a copy went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Host to device: the device reads the host's memory.
    HostToDevice,
    /// Device to host: the device writes the host's memory.
    DeviceToHost,
    /// Inside one device.
    DeviceToDevice,
    /// From one device to another.
    PeerToPeer,
}

/// What kind of host memory a copy used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Page-locked, or the file does not say.
    Pinned,
    /// Pageable: the driver stages it, and the call returns when the copy has ended; one of at most
    /// [`perf_core::STAGED_AT_ONCE`] bytes to the device is staged when the call returns.
    Pageable,
}

/// A call of the CUDA runtime or driver.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When it was made.
    pub start: u64,
    /// How long it took until it returned, in nanoseconds.
    pub duration: u64,
    /// The thread that made it.
    pub thread: ThreadId,
    /// The function's name.
    pub name: NameId,
    /// What kind of function that is.
    pub kind: CallKind,
    /// What it waited for, where it waits and the file says it.
    pub target: Target,
}

impl Call {
    /// When it returned, in nanoseconds since the trace began.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.duration
    }
}

/// What a call that synchronises waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The file does not say, or the call waits for nothing.
    Unknown,
    /// Everything that was asked for in this stream.
    Stream(StreamId),
    /// Everything that was asked for in all streams of this device.
    Device(DeviceId),
    /// An event.
    Event(Event),
}

/// An event: done when everything that was asked for in its stream before it was recorded is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The stream in which it was recorded.
    pub stream: StreamId,
    /// The call that recorded it.
    pub recorded: CallId,
}

/// A stream waits for an event: what it is asked for later begins when the event is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The call that made it wait.
    pub call: CallId,
    /// The stream that waits.
    pub stream: StreamId,
    /// What it waits for.
    pub event: Event,
}

/// One step of the program, such as a training iteration, as its thread marked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The thread that marked it.
    pub thread: ThreadId,
    /// When it began.
    pub start: u64,
    /// How long it took, in nanoseconds.
    pub duration: u64,
}

impl Step {
    /// When it ended, in nanoseconds since the trace began.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.duration)
    }
}

/// What was not taken as it is in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Events that were wrong and left out (only with [`super::Options::salvage`]).
    pub left_out: u64,
    /// Things that a reader of the prediction should know, as sentences.
    pub remarks: Vec<String>,
}

impl Trace {
    /// When the last call or operation ended, in nanoseconds since the trace began.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        let operations = self.operations.iter().map(Operation::end).max();
        let calls = self.calls.iter().map(Call::end).max();
        operations.max(calls).unwrap_or(0)
    }

    /// What is said of how long a trace takes: a step ([`Trace::step_ns`]), where it marks steps, and
    /// else the whole, in nanoseconds.
    #[must_use]
    pub fn measure(&self) -> u64 {
        self.step_ns().map_or_else(|| self.length_ns(), |step| step as u64)
    }

    /// How long a step takes on average, in nanoseconds, where steps are marked: from the first one's
    /// begin to the end of what was asked of the GPU until the last one's end. A CPU that is ahead of
    /// the GPU marks steps that are shorter than they are.
    #[must_use]
    pub fn step_ns(&self) -> Option<f64> {
        let from = self.steps.iter().map(|step| step.start).min()?;
        let marked = self.steps.iter().map(Step::end).max()?;
        let done = self.asked_in_steps().map(|at| self.operations[at].end()).max();
        Some((done.unwrap_or(marked).max(marked) - from) as f64 / self.steps_of_a_thread())
    }

    /// The places of the operations that were asked for in steps, and between them.
    pub(crate) fn asked_in_steps(&self) -> impl Iterator<Item = usize> {
        let from = self.steps.iter().map(|step| step.start).min().unwrap_or(u64::MAX);
        let marked = self.steps.iter().map(Step::end).max().unwrap_or(0);
        let asked = |operation: &Operation| {
            operation.call.map_or(operation.start, |call| self.calls[call.index()].start)
        };
        let is_asked = move |at: &usize| (from..=marked).contains(&asked(&self.operations[*at]));
        (0..self.operations.len()).filter(is_asked)
    }

    /// How many steps each thread that marks some has, on average.
    pub(crate) fn steps_of_a_thread(&self) -> f64 {
        let threads: HashSet<ThreadId> = self.steps.iter().map(|step| step.thread).collect();
        self.steps.len() as f64 / threads.len().max(1) as f64
    }

    /// Of each thread that marks steps, the places of its calls, in order.
    #[must_use]
    pub fn calls_of_steps(&self) -> HashMap<ThreadId, Vec<u32>> {
        let mut calls: HashMap<ThreadId, Vec<u32>> =
            self.steps.iter().map(|step| (step.thread, Vec::new())).collect();
        for (at, call) in (0_u32..).zip(&self.calls) {
            if let Some(calls) = calls.get_mut(&call.thread) {
                calls.push(at);
            }
        }
        calls
    }

    /// Operations and calls together.
    #[must_use]
    pub fn events(&self) -> usize {
        self.operations.len() + self.calls.len()
    }

    /// How many devices did something: fewer than [`Trace::devices`] where a part of a trace is kept,
    /// or where calls waited for one that had nothing to do.
    #[must_use]
    pub fn busy_devices(&self) -> usize {
        let mut busy = vec![false; self.devices.len()];
        for operation in &self.operations {
            busy[self.device_of(operation).index()] = true;
        }
        busy.into_iter().filter(|busy| *busy).count()
    }

    /// The process that made a call.
    #[must_use]
    pub fn process_of(&self, call: CallId) -> ProcessId {
        self.threads[self.calls[call.index()].thread.index()].process
    }

    /// The device of an operation.
    #[must_use]
    pub fn device_of(&self, operation: &Operation) -> DeviceId {
        self.streams[operation.stream.index()].device
    }
}
