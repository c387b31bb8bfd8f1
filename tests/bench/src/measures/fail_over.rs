use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::loss::Loss;
use crate::network::{BOX, HOST, Network, PATHS};
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::{Result, anyhow, bail};
use processes::output;
use serde_json::Value;
use std::time::Duration;

/// Longest time that requests may stand still, in milliseconds.
const TARGET: f64 = 10.0;
/// Reads underway: at about 5 µs each, well over the time until the path dies.
const READS: &str = "100000";
/// Bytes of a job that a path dies in: some 400 ms of it.
const JOB: &str = "268435456";
/// When the path dies, after the reads began, and how long it is dead.
const BEFORE: Duration = Duration::from_millis(150);
/// How long frames are counted before it, to know which path carries them.
const COUNTED: Duration = Duration::from_millis(5);
/// How often a command is begun anew that was over before the path died: a busy computer gets to that late.
const TRIES: usize = 8;
/// How long a path takes to be found again.
const REST: Duration = Duration::from_millis(1500);

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    if let Err(error) = cut(bench, 1) {
        results.skipped.push(format!("the kernel loses no frames for us ({error:#})"));
        return Ok(());
    }
    let layout = Layout { paths: PATHS, ..Layout::of(&["1=accelerator,memory=1M"]) };
    let system = System::start(&bench.programs, &bench.network, &layout)?;
    let device = system.lend("accelerator", 1)?.remove(0).name;
    let latency = ["latency", &device, "--reads", READS];
    let (mut still, mut calm, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = Vec::new();
    for _ in 0..bench.repeats {
        calm.push(number(&system.host(&latency)?, "/max_ns")? / 1e6);
        let (reads, share) = while_its_path_dies(bench, &system, &latency)?;
        still.push(number(&reads, "/max_ns")? / 1e6);
        shares.push(share * 100.0);
        // Every byte is checked: one that is lost, doubled or late is an error.
        let job = ["bandwidth", &device, "--only", "write", "--bytes", JOB];
        let (job, _) = while_its_path_dies(bench, &system, &job)?;
        whole.push(number(&job, "/device_to_host/bytes")? / 1e6);
    }
    results.figure("longest read, both paths alive", "ms", calm);
    results.aimed(
        "longest read when the path that carries the reads dies",
        "ms",
        still,
        Held::Worst,
        Aim::AtMost,
        TARGET,
    );
    results.figure("frames of the reads that were on that path", "%", shares);
    results.figure("DMA write while a path dies, every byte right", "MB", whole);
    Ok(())
}

/// A path that carries nothing, in neither direction, as long as this is alive.
fn cut(bench: &Bench, path: usize) -> Result<[Loss; 2]> {
    let all = Some(1);
    let near = Network::within(&bench.network.host, || Loss::attach(HOST[path], all))?;
    Ok([near, Network::within(&bench.network.boxes, || Loss::attach(BOX[path], all))?])
}

/// What the host says to a command in the middle of which the path dies that carries most of its
/// frames, and which part of them that path carried.
fn while_its_path_dies(bench: &Bench, system: &System, words: &[&str]) -> Result<(Value, f64)> {
    for _ in 0..TRIES {
        if let Some(done) = if_its_path_dies(bench, system, words)? {
            return Ok(done);
        }
    }
    bail!("`{}` was over before the path died, {TRIES} times", words.join(" "))
}

/// The same; nothing when the command was over before.
fn if_its_path_dies(
    bench: &Bench,
    system: &System,
    words: &[&str],
) -> Result<Option<(Value, f64)>> {
    let mut command = system.host_command(words);
    let working = std::thread::spawn(move || output(&mut command));
    std::thread::sleep(BEFORE);
    let (mut path, mut share) = (0, None);
    // A machine that is busy may not have begun.
    while share.is_none() && !working.is_finished() {
        let before = bench.network.carried()?;
        std::thread::sleep(COUNTED);
        let now = bench.network.carried()?;
        (path, share) = busiest(std::array::from_fn(|path| now[path] - before[path]));
    }
    let dead = cut(bench, path)?;
    let in_its_middle = !working.is_finished();
    let report = working.join().map_err(|_| anyhow!("the command panicked"))??;
    drop(dead);
    std::thread::sleep(REST);
    if !in_its_middle {
        return Ok(None);
    }
    let share = share.ok_or_else(|| anyhow!("no path carried a frame: {report}"))?;
    Ok(Some((serde_json::from_str(&report)?, share)))
}

/// Which path carried most, and its part of all; none where nothing was carried.
fn busiest(carried: [u64; PATHS]) -> (usize, Option<f64>) {
    let (path, most) =
        carried.into_iter().enumerate().max_by_key(|&(_, count)| count).unwrap_or((0, 0));
    let all: u64 = carried.iter().sum();
    (path, (most > 0).then(|| most as f64 / all as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_with_most_frames_is_the_one_that_dies() {
        assert_eq!(busiest([30, 10]), (0, Some(0.75)));
        assert_eq!(busiest([0, 8]), (1, Some(1.0)));
        assert_eq!(busiest([0, 0]).1, None);
    }
}
