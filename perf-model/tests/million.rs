//! A trace of a million events: it is read and predicted in little memory.
//!
//! In a process of its own, whose peak of memory is then that of this alone. How long it takes is
//! printed; it depends on the machine and on how this was compiled.

use std::io::{self, Read};
use std::time::Instant;

use perf_core::{Fabric, Settings};
use perf_model::predict::{Native, Prediction};
use perf_model::replay::{Graph, Proxies, Scenario};
use perf_model::trace::{Options, read_text};

const EVENTS: usize = 1_000_000;

/// The most memory that the whole may take, in KiB: 500 MB.
const MOST_KIB: u64 = 500_000_000 / 1024;

/// A Chrome trace of launches and kernels, made while it is read: it is nowhere as a whole.
struct Made {
    event: usize,
    clock: usize,
    gpu: usize,
    text: io::Cursor<Vec<u8>>,
    bytes: usize,
}

impl Made {
    fn next(&mut self) -> String {
        let pair = self.event / 2 + 1;
        self.event += 1;
        if self.event == EVENTS + 1 {
            return "{}]}\n".to_owned();
        }
        if self.event % 2 == 1 {
            self.clock += 9_123;
            let (us, ns) = (self.clock / 1000, self.clock % 1000);
            return format!(
                "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \
                 \"pid\": 1, \"tid\": 1, \"ts\": {us}.{ns:03}, \"dur\": 4.5, \
                 \"args\": {{\"cbid\": 211, \"correlation\": {pair}}}}},\n"
            );
        }
        let duration = 5_000 + pair * 7_919 % 9_000;
        let start = (self.clock + 6_500).max(self.gpu + 1_100);
        self.gpu = start + duration;
        let (us, ns) = (start / 1000, start % 1000);
        let name = "at::native::functor<float>, ".repeat(1 + pair % 49);
        format!(
            "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void kernel<{name}>\", \
             \"pid\": 0, \"tid\": 7, \"ts\": {us}.{ns:03}, \"dur\": {}, \"args\": {{\"device\": 0, \
             \"stream\": 7, \"correlation\": {pair}, \"grid\": [864, 1, 1]}}}},\n",
            duration / 1000,
        )
    }
}

impl Read for Made {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        if read > 0 || self.event > EVENTS {
            return Ok(read);
        }
        let text = self.next().into_bytes();
        self.bytes += text.len();
        self.text = io::Cursor::new(text);
        self.text.read(buffer)
    }
}

/// The most memory that this process had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it has this line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of kB")
}

#[test]
fn a_million_events_take_less_than_500_mb() {
    let begin = b"{\"schemaVersion\": 1, \"traceEvents\": [\n".to_vec();
    let mut made = Made { event: 0, clock: 0, gpu: 0, text: io::Cursor::new(begin), bytes: 0 };
    let start = Instant::now();
    let trace = read_text(&mut made, &Options::default()).unwrap();
    let read = start.elapsed();
    assert_eq!(trace.events(), EVENTS);
    assert!(trace.operations.iter().all(|operation| operation.call.is_some()));

    let start = Instant::now();
    let native = Native::of(&trace);
    let graph = Graph::of(&trace);
    let settings = Settings::of(Fabric::DXPU_68);
    let prediction = Prediction::of(&graph, Scenario::of(settings, Proxies::One));
    let played = start.elapsed();
    assert!(native.performance(&prediction) < 100.0);

    let peak = peak();
    eprintln!(
        "{EVENTS} events, {} MB: read in {read:.2?}, predicted in {played:.2?}, {} MiB at most",
        made.bytes / 1_000_000,
        peak / 1024,
    );
    assert!(peak < MOST_KIB, "{peak} KiB");
}
