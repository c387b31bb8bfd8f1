use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::floor::{By, Floor};
use crate::network::Traffic;
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::{Result, bail};
use proxy_net::floor::RoundTrips;
use serde_json::Value;

/// The round trip that is aimed for, in bare ones.
const TARGET: f64 = 1.35;
/// How often a turn is measured at most: until its floor was not disturbed.
const TRIES: usize = 8;

/// One turn. Of each the p50, p99 and p99.9, in microseconds.
struct Turn {
    bare: [f64; 3],
    path: [f64; 3],
    /// Bare frames by system calls.
    calls: [f64; 3],
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
        let path = quantiles(&latency()?)?;
        Ok(Turn { bare, path, calls: micros(&calls.round_trips(frame, count)?) })
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
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(bare: f64, path: f64) -> Turn {
        Turn { bare: [bare; 3], path: [path; 3], calls: [bare; 3] }
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
}
