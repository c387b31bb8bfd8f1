use super::Bench;
use crate::figures::{Aim, Results};
use crate::loss::Loss;
use crate::network::{BOX, HOST, Network};
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::{Result, anyhow};
use processes::output;
use std::time::Duration;

/// Longest time that requests may stand still, in milliseconds.
const TARGET: f64 = 10.0;
/// Reads underway: at about 5 µs each, well over the time until the path dies.
const READS: &str = "100000";
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
    let (mut still, mut calm) = (Vec::new(), Vec::new());
    for turn in 0..bench.repeats {
        calm.push(number(&system.host(&["latency", &device, "--reads", READS])?, "/max_ns")? / 1e6);
        let mut reads = system.host_command(&["latency", &device, "--reads", READS]);
        let reading = std::thread::spawn(move || output(&mut reads));
        std::thread::sleep(BEFORE);
        let dead = cut(turn % 2)?;
        let report = reading.join().map_err(|_| anyhow!("the reads panicked"))??;
        drop(dead);
        still.push(number(&serde_json::from_str(&report)?, "/max_ns")? / 1e6);
        std::thread::sleep(REST);
        // The path is whole again, and so is what comes over it: every byte of a job is compared.
        system.host(&["bandwidth", &device, "--bytes", "4194304"])?;
    }
    results.figure("longest read, both paths alive", "ms", calm);
    results.aimed("longest read when a path dies", "ms", still, Aim::AtMost, TARGET);
    Ok(())
}
