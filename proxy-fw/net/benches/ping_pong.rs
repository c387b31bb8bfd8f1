//! What a bare frame's round trip and a stream of frames cost on this machine, by transport.
//!
//! Raw Ethernet runs over a pair of connected interfaces in a network namespace of its own (root
//! is needed), with packet rings and with batches of one system call each; UDP over loopback, and
//! over such a pair with each end in a namespace of its own, with runs of frames as one message
//! ("segments") and with each frame as one. Both ends spin, each pinned to a processor of its own
//! where there are two.
//!
//! `cargo bench -p proxy-net --bench ping_pong [-- ROUND_TRIPS]`

#[path = "../tests/common/mod.rs"]
mod common;

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proxy_net::{MAX_FRAME, Port, RawOptions, RawPort, Sent, UdpOptions, UdpPort, floor};

/// IPv4 (RFC 791) and UDP (RFC 768) headers, in bytes.
const UDP_HEADERS: usize = 20 + 8;

const SIZES: [usize; 4] = [64, 512, 4096, MAX_FRAME];

/// Processors of this machine that the process may use.
static PROCESSORS: AtomicUsize = AtomicUsize::new(1);

/// Sets the flag when it goes out of scope, also by a panic, so that the other thread ends too.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn main() {
    // Cargo passes --bench, and --test when it only checks that benches run.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = arguments.iter().find_map(|argument| argument.parse().ok());
    let short = arguments.iter().any(|argument| argument == "--test");
    // Asked before any thread is pinned, which would make it one.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    PROCESSORS.store(processors, Ordering::Relaxed);
    let count = asked.unwrap_or(if short { 100 } else { 50_000 }).max(1);

    println!("round trip in µs, p50 / p99, and one-way stream in million frames/s (GB/s)");
    println!("{:18} {}", "", SIZES.map(|size| format!("{size:>28} B")).join(""));
    for segmentation in [true, false] {
        let loopback = || udp(Ipv4Addr::LOCALHOST, segmentation);
        report(udp_name(segmentation, "lo"), loopback(), loopback(), count);
    }
    // In threads, which leave for the namespaces and do not come back.
    let apart = |measure: fn(u32)| {
        let measuring = std::thread::spawn(move || measure(count));
        measuring.join().expect("the measuring thread ran to its end");
    };
    apart(|count| udp_over_veth(true, count));
    apart(|count| udp_over_veth(false, count));
    apart(|count| match common::veth_pair(MAX_FRAME) {
        Ok(()) => {
            report("rings, veth", raw("va", true), raw("vb", true), count);
            report("batches, veth", raw("va", false), raw("vb", false), count);
        }
        Err(reason) => common::skip(&format!("AF_PACKET over veth: {reason}")),
    });
}

fn udp_name(segmentation: bool, over: &str) -> String {
    format!("UDP {}, {over}", if segmentation { "segments" } else { "alone" })
}

fn udp_over_veth(segmentation: bool, count: u32) {
    let end = |last| udp(Ipv4Addr::new(192, 0, 2, last), segmentation);
    match common::veth_apart(MAX_FRAME + UDP_HEADERS, || end(2)) {
        Ok(far) => report(udp_name(segmentation, "veth"), end(1), far, count),
        Err(reason) => common::skip(&format!("UDP over veth: {reason}")),
    }
}

fn udp(ip: Ipv4Addr, segmentation: bool) -> UdpPort {
    let options = UdpOptions { segmentation, ..UdpOptions::new(SocketAddr::from((ip, 0))) };
    UdpPort::open(&options).expect("a UDP port on an address of this machine")
}

fn raw(interface: &str, ring: bool) -> RawPort {
    let options = RawOptions { ring, ..RawOptions::new(interface) };
    RawPort::open(&options).expect("a raw port on veth")
}

fn report(name: impl Display, mut near: impl Port, mut far: impl Port, count: u32) {
    let cells: Vec<String> = SIZES
        .iter()
        .map(|&size| {
            let trips = round_trips(&mut near, &mut far, size, count);
            let rate = stream(&mut near, &mut far, size, count);
            let micros = |per_mille| trips.quantile(per_mille).as_secs_f64() * 1e6;
            format!(
                "{:>8.2} / {:>6.2}  {:>4.2} ({:>4.2})",
                micros(500),
                micros(990),
                rate / 1e6,
                rate * size as f64 / 1e9
            )
        })
        .map(|cell| format!("{cell:>30}"))
        .collect();
    println!("{name:18} {}", cells.join(""));
}

fn round_trips(
    near: &mut dyn Port,
    far: &mut dyn Port,
    size: usize,
    count: u32,
) -> floor::RoundTrips {
    let (to, stop) = (far.local_address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            floor::reflect(far, &stop).expect("the far port works");
        });
        let _stop = StopOnDrop(&stop);
        pin(0);
        let trips = floor::round_trips(near, &to, size, count).expect("the near port works");
        trips.expect("frames come back")
    })
}

/// Frames per second that arrive while the near port sends as fast as it can.
fn stream(near: &mut dyn Port, far: &mut dyn Port, size: usize, count: u32) -> f64 {
    let (to, stop, arrived) = (far.local_address(), AtomicBool::new(false), AtomicU64::new(0));
    let frame = vec![0; size];
    let run = Duration::from_millis(u64::from(count / 100).clamp(1, 500));
    let rate = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !stop.load(Ordering::Relaxed) {
                let got = far.receive(&mut |_, _| {}).expect("the far port works");
                arrived.fetch_add(got as u64, Ordering::Relaxed);
            }
        });
        let _stop = StopOnDrop(&stop);
        let start = Instant::now();
        while start.elapsed() < run {
            while near.send(&to, &frame).expect("the near port works") == Sent::Full {
                std::hint::spin_loop();
            }
        }
        let rate = arrived.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        near.flush().expect("the near port works");
        rate
    });
    // What is left would come between the frames that are measured next.
    while far.receive(&mut |_, _| {}).expect("the far port works") > 0 {}
    rate
}

/// Keeps this thread on one processor, if there are enough for both ends.
fn pin(processor: usize) {
    if PROCESSORS.load(Ordering::Relaxed) < 2 {
        return;
    }
    // SAFETY: cpu_set_t is plain data for which zeros are valid; CPU_SET checks its index.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the processor number is far below the set's size.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the set lives through the call and has that size; 0 is this thread. A refusal
    // only makes the figures less steady.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}
