use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::floor::{By, Floor};
use crate::network::Traffic;
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::Result;

/// The round trip that is aimed for, in bare ones.
const TARGET: f64 = 1.35;

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let layout = Layout::of(&["1=accelerator,memory=1M"]);
    let system = System::start(&bench.programs, &bench.network, &layout)?;
    let device = system.lend("accelerator", 1)?.remove(0).name;
    let count = bench.pick(20_000, 5_000);
    let reads = count.to_string();
    let latency = || system.host(&["latency", &device, "--reads", &reads]);
    // The first one warms up, and shows how long the frames are and how many a read takes.
    let before = Traffic::of(&bench.network)?;
    latency()?;
    let traffic = Traffic::of(&bench.network)?.since(before);
    let frame = traffic.frame_length()?;
    let mut rings = Floor::open(&bench.network, By::Rings)?;
    let mut calls = Floor::open(&bench.network, By::Calls)?;
    let (mut bare, mut batches, mut paths) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.repeats {
        let micros = |trips: &proxy_net::floor::RoundTrips| {
            [500, 990, 999].map(|per_mille| trips.quantile(per_mille).as_secs_f64() * 1e6)
        };
        bare.push(micros(&rings.round_trips(frame, count)?));
        let report = latency()?;
        let nanos = |key| number(&report, key);
        let path = [nanos("/median_ns")?, nanos("/p99_ns")?, nanos("/p999_ns")?];
        paths.push(path.map(|ns| ns / 1e3));
        batches.push(micros(&calls.round_trips(frame, count)?));
    }
    for (at, quantile) in ["p50", "p99", "p99.9"].into_iter().enumerate() {
        let of = |rows: &[[f64; 3]]| rows.iter().map(|row| row[at]).collect::<Vec<_>>();
        results.figure(format!("bare frame, packet rings, {quantile}"), "µs", of(&bare));
        results.figure(format!("bare frame, system calls, {quantile}"), "µs", of(&batches));
        results.figure(format!("4-byte MRd, {quantile}"), "µs", of(&paths));
    }
    let ratios = paths.iter().zip(&bare).map(|(path, bare)| path[0] / bare[0]);
    results.aimed(
        "MRd round trip in bare ones, p50",
        "",
        ratios,
        Held::Median,
        Aim::AtMost,
        TARGET,
    );
    results.figure("frame that carries the read", "B", [frame as f64]);
    results.figure("frames to the box for a read", "", [traffic.sent / f64::from(count)]);
    results.figure("frames back for a read", "", [traffic.received / f64::from(count)]);
    Ok(())
}
