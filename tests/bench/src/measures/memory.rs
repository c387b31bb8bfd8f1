use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::system::{Layout, System};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// The memory that is aimed for, in MiB.
const TARGET: f64 = 64.0;
const MEBIBYTE: f64 = (1 << 20) as f64;

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let slots: Vec<String> = (1..=16)
        .map(|slot| match slot {
            1..=8 => format!("{slot}=nvme,image=drive-{slot}.img,size=16M,model=nvme"),
            _ => format!("{slot}=accelerator,memory=1M"),
        })
        .collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    let system = System::start(&bench.programs, &bench.network, &Layout::of(&slots))?;
    let resident = || {
        Ok::<_, anyhow::Error>(
            system.boxes.resident().context("the box proxy has ended")? as f64 / MEBIBYTE,
        )
    };
    results.figure("idle", "MiB", [resident()?]);
    let (drives, accelerators) = (system.lend("nvme", 8)?, system.lend("accelerator", 8)?);
    results.figure("all lent", "MiB", [resident()?]);
    let data = system.folder.path().join("data").display().to_string();
    std::fs::write(&data, vec![0xa5; 1 << 20])?;
    let (start, long) = (Instant::now(), Duration::from_secs(bench.pick(10, 1)));
    let mut samples = Vec::new();
    // All devices have had their turn before the last samples.
    for turn in 0.. {
        let accelerator = &accelerators[turn % accelerators.len()].name;
        system.host(&["bandwidth", accelerator, "--bytes", "4194304"])?;
        system.host(&["latency", accelerator, "--reads", "2000"])?;
        system.host(&["nvme-write", &drives[turn % drives.len()].name, &data])?;
        samples.push(resident()?);
        if start.elapsed() > long && turn >= 2 * drives.len() {
            break;
        }
    }
    results.figure("after half of the traffic", "MiB", [samples[samples.len() / 2]]);
    let last = samples.last().copied();
    results.aimed("after the traffic", "MiB", last, Held::Median, Aim::AtMost, TARGET);
    Ok(())
}
