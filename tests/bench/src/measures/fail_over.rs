use super::Bench;
use crate::figures::{Aim, Results};
use crate::loss::Loss;
use crate::network::{BOX, HOST, Network};
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::{Result, anyhow};
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
/// How long a path takes to be found again.
const REST: Duration = Duration::from_millis(1500);

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let cut = |path: usize| -> Result<[Loss; 2]> {
        let all = Some(1);
        let near = Network::within(&bench.network.host, || Loss::attach(HOST[path], all))?;
        Ok([near, Network::within(&bench.network.boxes, || Loss::attach(BOX[path], all))?])
    };
    if let Err(error) = cut(1) {
        results.skipped.push(format!("the kernel loses no frames for us ({error:#})"));
        return Ok(());
    }
    let layout = Layout { paths: 2, ..Layout::of(&["1=accelerator,memory=1M"]) };
    let system = System::start(&bench.programs, &bench.network, &layout)?;
    let device = system.lend("accelerator", 1)?.remove(0).name;
    // What the host says to a command in the middle of which a path dies.
    let while_one_dies = |turn: usize, words: &[&str]| -> Result<Value> {
        let mut command = system.host_command(words);
        let working = std::thread::spawn(move || output(&mut command));
        std::thread::sleep(BEFORE);
        let dead = cut(turn % 2)?;
        let report = working.join().map_err(|_| anyhow!("the command panicked"))??;
        drop(dead);
        std::thread::sleep(REST);
        Ok(serde_json::from_str(&report)?)
    };
    let latency = ["latency", &device, "--reads", READS];
    let (mut still, mut calm, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..bench.repeats {
        calm.push(number(&system.host(&latency)?, "/max_ns")? / 1e6);
        still.push(number(&while_one_dies(turn, &latency)?, "/max_ns")? / 1e6);
        // Every byte is checked: one that is lost, doubled or late is an error.
        let job = ["bandwidth", &device, "--only", "write", "--bytes", JOB];
        let job = while_one_dies(turn, &job)?;
        whole.push(number(&job, "/device_to_host/bytes")? / 1e6);
    }
    results.figure("longest read, both paths alive", "ms", calm);
    results.aimed("longest read when a path dies", "ms", still, Aim::AtMost, TARGET);
    results.figure("DMA write while a path dies, every byte right", "MB", whole);
    Ok(())
}
