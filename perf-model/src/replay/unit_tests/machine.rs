//! A machine that knows what programs mean: it runs one on a host and GPUs with a fabric between
//! them, and writes the trace that a profiler would. What the replay makes of the trace of a native
//! run is compared with a run with the fabric.

use std::fmt::Write;

use perf_core::{Kind, STAGED_AT_ONCE, Settings};

/// What a thread of a program does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Do {
    /// Work of the CPU, in nanoseconds.
    Work(u64),
    Kernel(usize, u64),
    Memset(usize),
    /// A copy in a stream, in bytes.
    ToDevice(usize, u64),
    FromDevice(usize, u64),
    /// The same from or to pageable memory.
    ToDevicePageable(usize, u64),
    FromDevicePageable(usize, u64),
    /// A graph of so many kernels of so many nanoseconds.
    Graph(usize, usize, u64),
    /// Records event of this number in a stream.
    Record(usize, usize),
    /// Makes a stream wait for an event.
    Wait(usize, usize),
    AwaitStream(usize),
    AwaitEvent(usize),
    AwaitDevice,
    /// Another thread of the program goes on, and this one waits for it, for good.
    HandOver,
}

const GAP: u64 = 1_000;
const WAKE: u64 = 2_500;
const CHECK: u64 = 1_500;
const QUEUE: usize = 1024;
const MEMSET: u64 = 1_800;

/// No two calls take the same: from 3 to 5 us, by their number.
fn call_time(number: usize) -> u64 {
    3_000 + number as u64 * 7_919 % 2_000
}

/// Nor do two launches reach the GPU as soon: in 5 to 7 us.
fn launch_time(number: usize) -> u64 {
    5_000 + number as u64 * 6_007 % 2_000
}

/// How the trace is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Whether it says which stream waited for which event.
    pub(super) waits: bool,
    /// How many times as long as without a profiler the CPU takes for what it does.
    pub(super) slower: u64,
}

impl Written {
    /// Without a profiler's cost.
    pub(super) fn with(waits: bool) -> Written {
        Written { waits, slower: 1 }
    }
}

#[derive(Clone, Debug, Default)]
struct Line {
    end: u64,
    begun: Vec<u64>,
}

/// The machine while it runs.
pub(super) struct Machine<'s> {
    settings: &'s Settings,
    written: Written,
    streams: Vec<Line>,
    engines: [u64; 2],
    events: Vec<(u64, usize, usize)>,
    correlation: usize,
    clock: u64,
    /// When the first call was made, and the last one returned: profilers see nothing else.
    first: Option<u64>,
    returned: u64,
    /// What the GPU ended last.
    last: u64,
    trace: String,
}

impl<'s> Machine<'s> {
    /// Runs a program: how long it took in nanoseconds, and its trace.
    pub(super) fn run(
        threads: &[Vec<Do>],
        settings: &'s Settings,
        written: Written,
    ) -> (u64, String) {
        let heading = "start_ns,duration_ns,kind,stream,bytes,name,correlation,thread,memory,\
                       event_stream,event_correlation\n";
        let mut machine = Machine {
            settings,
            written,
            streams: vec![Line::default(); 16],
            engines: [0; 2],
            events: vec![(0, 0, 0); 64],
            correlation: 0,
            clock: 0,
            first: None,
            returned: 0,
            last: 0,
            trace: heading.to_owned(),
        };
        // Each goes on where the one before it stopped.
        let mut places = vec![0; threads.len()];
        let mut thread = 0;
        while let Some(step) = threads[thread].get(places[thread]) {
            places[thread] += 1;
            match step {
                Do::HandOver => thread = (thread + 1) % threads.len(),
                _ => machine.step(*step, thread),
            }
        }
        (machine.returned.max(machine.last) - machine.first.unwrap_or(0), machine.trace)
    }

    fn extra(&self, kind: Kind, bytes: u64) -> u64 {
        self.settings.extra(kind, bytes).0
    }

    fn row(&mut self, start: u64, end: u64, rest: &str) {
        writeln!(self.trace, "{start},{},{rest}", end - start).expect("a string");
    }

    /// How long a call takes of the CPU's time.
    fn call_time(&self, number: usize) -> u64 {
        call_time(number) * self.written.slower
    }

    fn call(&mut self, took: u64, thread: usize, rest: &str) -> u64 {
        let start = self.clock;
        self.first.get_or_insert(start);
        self.clock += took;
        self.returned = self.clock;
        self.correlation += 1;
        let correlation = self.correlation;
        let rest = rest.replace('#', &correlation.to_string()).replace('@', &thread.to_string());
        self.row(start, self.clock, &rest);
        start
    }

    /// Puts an operation into a stream: when it began and ended.
    fn put(
        &mut self,
        stream: usize,
        call: u64,
        duration: u64,
        extra: u64,
        engine: Option<usize>,
    ) -> (u64, u64) {
        let doorbell = self.extra(Kind::Doorbell, 0);
        let line = &self.streams[stream];
        // A launch goes out when most of its call is over.
        let longer = self.call_time(self.correlation) - call_time(self.correlation);
        let mut start = call + launch_time(self.correlation) + longer + doorbell;
        if line.end > 0 {
            start = start.max(line.end + GAP);
        }
        if let Some(engine) = engine {
            start = start.max(self.engines[engine]);
            self.engines[engine] = start + duration + extra;
        }
        let end = start + duration + extra;
        let line = &mut self.streams[stream];
        line.end = end;
        line.begun.push(start);
        self.last = self.last.max(end);
        (start, end)
    }

    /// How long a call for a launch takes: it waits for room in the queue.
    fn launch_took(&self, stream: usize) -> u64 {
        let begun = &self.streams[stream].begun;
        let oldest = begun.len().checked_sub(QUEUE).map_or(0, |at| begun[at]);
        self.call_time(self.correlation).max(oldest.saturating_sub(self.clock))
    }

    fn wait_until(&mut self, end: u64, thread: usize, rest: &str) {
        let seen = if end > 0 { end + self.extra(Kind::Synchronise, 0) + WAKE } else { 0 };
        let took = (CHECK * self.written.slower).max(seen.saturating_sub(self.clock));
        self.call(took, thread, rest);
    }

    fn step(&mut self, step: Do, thread: usize) {
        match step {
            Do::Work(time) => self.clock += time * self.written.slower,
            Do::Kernel(stream, time) => {
                self.launched(stream, time, Kind::Kernel, thread, "kernel", "cuLaunchKernel");
            }
            Do::Memset(stream) => {
                self.launched(stream, MEMSET, Kind::Memset, thread, "memset", "cuMemsetD8Async");
            }
            Do::Graph(stream, count, time) => self.graph(stream, count, time, thread),
            Do::ToDevice(stream, bytes) => self.copy(stream, bytes, 0, false, thread),
            Do::FromDevice(stream, bytes) => self.copy(stream, bytes, 1, false, thread),
            Do::ToDevicePageable(stream, bytes) => self.copy(stream, bytes, 0, true, thread),
            Do::FromDevicePageable(stream, bytes) => self.copy(stream, bytes, 1, true, thread),
            Do::Record(event, stream) => {
                self.call(CHECK * self.written.slower, thread, "call,,,cuEventRecord,#,@,,,");
                self.events[event] = (self.streams[stream].end, stream, self.correlation);
            }
            Do::Wait(stream, event) => {
                let (end, on, recorded) = self.events[event];
                let row = if self.written.waits {
                    format!("wait,{stream},,cuStreamWaitEvent,#,@,,{on},{recorded}")
                } else {
                    "call,,,cuStreamWaitEvent,#,@,,,".to_owned()
                };
                self.call(CHECK * self.written.slower, thread, &row);
                let line = &mut self.streams[stream];
                line.end = line.end.max(end);
            }
            Do::AwaitStream(stream) => {
                let end = self.streams[stream].end;
                self.wait_until(end, thread, &format!("sync,{stream},,cuStreamSynchronize,#,@,,,"));
            }
            Do::AwaitEvent(event) => {
                let end = self.events[event].0;
                self.wait_until(end, thread, "sync,,,cuEventSynchronize,#,@,,,");
            }
            Do::AwaitDevice => self.wait_until(self.last, thread, "sync,,,cuCtxSynchronize,#,@,,,"),
            Do::HandOver => unreachable!("the machine hands over"),
        }
    }

    fn launched(
        &mut self,
        stream: usize,
        time: u64,
        kind: Kind,
        thread: usize,
        row: &str,
        name: &str,
    ) {
        let took = self.launch_took(stream);
        // The launch goes out when there is room.
        let call = self.clock + took - self.call_time(self.correlation);
        self.call(took, thread, &format!("launch,,,{name},#,@,,,"));
        let (start, end) = self.put(stream, call, time, self.extra(kind, 0), None);
        let correlation = self.correlation;
        let own = end - self.extra(kind, 0);
        self.row(start, own, &format!("{row},{stream},,{row} of {time} ns,{correlation},,,,"));
    }

    fn graph(&mut self, stream: usize, count: usize, time: u64, thread: usize) {
        let took = self.call_time(self.correlation);
        let call = self.call(took, thread, "launch,,,cuGraphLaunch,#,@,,,");
        for node in 0..count {
            let last = node + 1 == count;
            let extra = if last { self.extra(Kind::Graph, 0) } else { 0 };
            let (start, end) = self.put(stream, call, time, extra, None);
            let correlation = self.correlation;
            self.row(start, end - extra, &format!("kernel,{stream},,node,{correlation},,,,"));
        }
    }

    fn copy(&mut self, stream: usize, bytes: u64, way: usize, pageable: bool, thread: usize) {
        let fabric = &self.settings.fabric;
        let (kind, row, rate) = match way {
            0 => (Kind::HostToDevice, "htod", fabric.native_htod),
            _ => (Kind::DeviceToHost, "dtoh", fabric.native_dtoh),
        };
        let (time, extra) = (rate.time(bytes).0 + 1_000, self.extra(kind, bytes));
        let call = self.clock;
        let (start, end) = self.put(stream, call, time, extra, Some(way));
        let memory = if pageable { "pageable" } else { "pinned" };
        // Small ones to the device are in the driver's buffer when the call returns.
        let took = if pageable && (way == 1 || bytes > STAGED_AT_ONCE) {
            end + self.extra(Kind::Synchronise, 0) + WAKE - call
        } else {
            self.call_time(self.correlation)
        };
        self.call(took, thread, "call,,,cuMemcpyAsync,#,@,,,");
        let correlation = self.correlation;
        self.row(
            start,
            end - extra,
            &format!("{row},{stream},{bytes},{row},{correlation},,{memory},,"),
        );
    }
}
