//! What carries the frames: packet rings, and UDP with the kernel taking many frames at once or
//! each alone. Beside each, by turns, the stream of bare frames over rings whose ends copy and
//! compute both CRCs.

use super::Bench;
use super::throughput::{Subject, TAGS, rate};
use crate::figures::Results;
use crate::floor::{By, Ends, Floor};
use crate::system::Transport;
use anyhow::Result;
use std::time::Duration;

const TRANSPORTS: [(&str, Transport); 3] = [
    ("rings", Transport::Rings),
    ("UDP, segmented", Transport::Udp { segmentation: true }),
    ("UDP, one by one", Transport::Udp { segmentation: false }),
];

/// Bytes of a TLP: what usual systems allow, and the most that there is.
const SIZES: [usize; 3] = [256, 512, 4096];

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    for (name, transport) in TRANSPORTS {
        one(&Subject::start(bench, transport)?, name, results)?;
    }
    Ok(())
}

fn one(subject: &Subject<'_>, name: &str, results: &mut Results) -> Result<()> {
    let bench = subject.bench;
    let run = Duration::from_millis(bench.pick(500, 150));
    let mut floor = Floor::open(&bench.network, By::Rings)?;
    let whats = ["write", "read"].into_iter().flat_map(|way| SIZES.map(|size| (way, size)));
    let mut rows = Vec::new();
    for _ in 0..bench.repeats {
        let bare = floor.stream(Ends::CopyAndCrcs, run)?;
        let rates = whats
            .clone()
            .map(|(way, size)| rate(&subject.job(way, subject.bytes(), size, TAGS)?))
            .collect::<Result<Vec<_>>>()?;
        rows.push((bare, rates));
    }
    for (at, (way, size)) in whats.enumerate() {
        let what = format!("{name}: {way}s of {size} B");
        let rates = rows.iter().map(|(_, rates)| rates[at] / 1e6).collect::<Vec<_>>();
        results.figure(&what, "MB/s", rates);
        let shares = rows.iter().map(|(bare, rates)| rates[at] / bare).collect::<Vec<_>>();
        results.figure(format!("{what}, of the stream"), "", shares);
    }
    Ok(())
}
