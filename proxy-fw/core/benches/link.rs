//! What the link costs: two links that hand each other their frames in memory.
//!
//! `cargo bench -p proxy-core --bench link` prints nanoseconds for a read that goes out alone and
//! its completion that comes back alone (queue, frame, check, store and drain, twice), and for each
//! write of a stream that shares frames, with the acknowledgements and credits that it
//! takes. *Floor* is a copy and both CRCs of the same frames.

mod pair;

use pair::Pair;
use std::hint::black_box;
use std::time::Instant as Clock;
use tlp_codec::crc;

const ROUNDS: usize = 300;
const TRIPS: usize = 200;
const STREAM: usize = 2000;
const WRITE: usize = 16 + 256;

/// Nanoseconds of the fastest of some rounds, for each of `count`.
fn time(count: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Clock::now();
        work();
        best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
    }
    best
}

fn floor(frame: usize, tlps: usize, tlp: usize) -> f64 {
    let (from, mut to) = (vec![1; frame], vec![0; frame]);
    time(100 * tlps, || {
        for _ in 0..100 {
            to.copy_from_slice(black_box(&from));
            black_box(crc::frame(black_box(&to)));
            for _ in 0..tlps {
                black_box(crc::tlp(black_box(&to[..tlp])));
            }
        }
    })
}

fn main() {
    let (read, completion, write) = ([0; 16], [0; 16], [0; WRITE]);
    let mut pair = Pair::new();
    let trip = time(TRIPS, || {
        for _ in 0..TRIPS {
            pair.round_trip(&read, &completion);
        }
    });
    println!("read and completion alone: {trip:.0} ns, floor {:.0} ns", 4.0 * floor(84, 1, 16));
    let mut pair = Pair::new();
    pair.stream(&write, STREAM);
    pair.frames = 0;
    let each = time(STREAM, || pair.stream(&write, STREAM));
    let frames = pair.frames as f64 / (ROUNDS * STREAM) as f64;
    println!(
        "write of 256 B in a stream: {each:.0} ns, floor {:.0} ns; {frames:.3} frames for each",
        2.0 * floor(8700, 29, WRITE)
    );
}
