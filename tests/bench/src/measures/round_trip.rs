use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::floor::{By, Floor};
use crate::network::Traffic;
use crate::process::{number, processor_time};
use crate::system::{Layout, System};
use anyhow::{Result, bail};
use proxy_net::floor::RoundTrips;
use serde_json::Value;
use std::time::Duration;

/// The round trip that is aimed for, in bare ones.
const TARGET: f64 = 1.35;
/// How often a turn is measured at most: until its floor was not disturbed.
const TRIES: usize = 8;
/// TLPs of a read: the request and its completion.
const TLPS: f64 = 2.0;

/// One turn. Of each the p50, p99 and p99.9, in microseconds.
struct Turn {
    bare: [f64; 3],
    path: [f64; 3],
    /// Bare frames by system calls.
    calls: [f64; 3],
    /// Reads that ended in a second.
    per_second: f64,
    /// Processor time of the host's proxy and of the box's.
    spent: [Duration; 2],
}

impl Turn {
    /// The round trip through both daemons, in bare ones.
    fn ratio(&self) -> f64 {
        self.path[0] / self.bare[0]
    }
}

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
    let mut turn = || -> Result<Turn> {
        let bare = micros(&rings.round_trips(frame, count)?);
        let before = spent(&system)?;
        let report = latency()?;
        let after = spent(&system)?;
        Ok(Turn {
            bare,
            path: quantiles(&report)?,
            calls: micros(&calls.round_trips(frame, count)?),
            per_second: number(&report, "/per_second")?,
            spent: [after[0] - before[0], after[1] - before[1]],
        })
    };
    let turns = (0..bench.repeats).map(|_| undisturbed(&mut turn)).collect::<Result<Vec<_>>>()?;
    for (at, quantile) in ["p50", "p99", "p99.9"].into_iter().enumerate() {
        let of = |figure: fn(&Turn) -> [f64; 3]| turns.iter().map(move |turn| figure(turn)[at]);
        let name = |what: &str| format!("{what}, {quantile}");
        results.figure(name("bare frame, packet rings"), "µs", of(|turn| turn.bare));
        results.figure(name("bare frame, system calls"), "µs", of(|turn| turn.calls));
        results.figure(name("4-byte MRd"), "µs", of(|turn| turn.path));
    }
    let (name, ratios) = ("MRd round trip in bare ones, p50", turns.iter().map(Turn::ratio));
    results.aimed(name, "", ratios, Held::Median, Aim::AtMost, TARGET);
    results.figure("frame that carries the read", "B", [frame as f64]);
    results.figure("frames to the box for a read", "", [traffic.sent / f64::from(count)]);
    results.figure("frames back for a read", "", [traffic.received / f64::from(count)]);
    let frames = (traffic.sent + traffic.received) / f64::from(count);
    rates(&turns, (count, frames), results);
    Ok(())
}

/// What so many reads a turn, one at a time, come to, when each takes so many frames.
fn rates(turns: &[Turn], (count, frames): (u32, f64), results: &mut Results) {
    let each = |of_a_read: f64| turns.iter().map(move |turn| turn.per_second * of_a_read / 1e3);
    results.figure("TLPs, reads one at a time", "k/s", each(TLPS));
    results.figure("frames, reads one at a time", "k/s", each(frames));
    let tlps = turns.len() as f64 * f64::from(count) * TLPS;
    for (at, who) in ["host proxy", "box proxy"].into_iter().enumerate() {
        // Of all turns: the kernel counts by hundredths of a second.
        let spent: Duration = turns.iter().map(|turn| turn.spent[at]).sum();
        let name = format!("processor time of the {who} for a TLP, reads one at a time");
        results.figure(name, "ns", [spent.as_nanos() as f64 / tlps]);
    }
}

/// A turn whose floor was not disturbed, as far as that can be seen: no way through two daemons is
/// shorter than the frame alone.
fn undisturbed(turn: &mut impl FnMut() -> Result<Turn>) -> Result<Turn> {
    for _ in 0..TRIES {
        let turn = turn()?;
        if turn.ratio() >= 1.0 {
            return Ok(turn);
        }
    }
    bail!(
        "the floor was disturbed: in each of {TRIES} tries a bare frame took longer than a read \
         through both daemons; is the computer busy with something else?"
    )
}

fn micros(trips: &RoundTrips) -> [f64; 3] {
    [500, 990, 999].map(|per_mille| trips.quantile(per_mille).as_secs_f64() * 1e6)
}

fn quantiles(report: &Value) -> Result<[f64; 3]> {
    let micros = |key| Ok::<_, anyhow::Error>(number(report, key)? / 1e3);
    Ok([micros("/median_ns")?, micros("/p99_ns")?, micros("/p999_ns")?])
}

/// Processor time that the two proxies have used.
fn spent(system: &System) -> Result<[Duration; 2]> {
    Ok([processor_time(&system.host_proxy)?, processor_time(&system.boxes)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(bare: f64, path: f64) -> Turn {
        let (per_second, spent) = (50_000.0, [Duration::from_millis(20); 2]);
        Turn { bare: [bare; 3], path: [path; 3], calls: [bare; 3], per_second, spent }
    }

    #[test]
    fn a_turn_with_a_disturbed_floor_is_measured_again() {
        let mut bare = [30.0, 21.0, 20.0].into_iter();
        let sound = undisturbed(&mut || Ok(turn(bare.next().unwrap(), 20.0))).unwrap();
        assert_eq!(sound.ratio(), 1.0);
        let mut tries = 0;
        let never = undisturbed(&mut || {
            tries += 1;
            Ok(turn(30.0, 20.0))
        });
        let why = never.err().unwrap().to_string();
        assert!(why.starts_with("the floor was disturbed") && tries == TRIES, "{why}, {tries}");
    }

    #[test]
    fn rates_are_of_tlps_and_frames_and_time_is_of_each_tlp() {
        let mut results = Results::new("x", "");
        rates(&[turn(10.0, 20.0), turn(10.0, 20.0)], (5000, 2.5), &mut results);
        let got = results.figures.iter().map(|figure| figure.spread.median);
        assert_eq!(got.collect::<Vec<_>>(), [100.0, 125.0, 2000.0, 2000.0]);
    }
}
