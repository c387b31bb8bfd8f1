use super::Bench;
use crate::figures::Results;
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::{Context, Result};

/// Bytes of a drive's command: one logical block.
const BLOCK: u64 = 512;

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let layout = Layout::of(&["1=nvme,image=drive.img,size=64M,model=nvme"]);
    let system = System::start(&bench.programs, &bench.network, &layout)?;
    let drive = system.lend("nvme", 1)?.remove(0).name;
    let bytes = bench.pick(16 << 20, 4 << 20_u64).to_string();
    let file = system.folder.path().join("read").display().to_string();
    let interrupts = || {
        let counters = system.host(&["counters"])?;
        let of_root = |(name, value): (&String, &serde_json::Value)| {
            name.contains("interrupt").then(|| value.as_f64()).flatten()
        };
        let all = counters.as_object().into_iter().flatten().filter_map(of_root);
        all.reduce(|one, other| one + other).context("the host counts no interrupts")
    };
    let (mut rates, mut commands) = (Vec::new(), Vec::new());
    for _ in 0..bench.repeats {
        let before = interrupts()?;
        let words = ["nvme-read", &drive, &file, "--bytes", &bytes, "--depth", "64"];
        let report = system.host(&[&words[..], &["--chunk", &BLOCK.to_string()]].concat())?;
        let seconds = number(&report, "/elapsed_ns")? / 1e9;
        rates.push((interrupts()? - before) / seconds);
        commands.push(number(&report, "/bytes")? / BLOCK as f64 / seconds);
    }
    results.figure("interrupts, a drive reading single blocks", "1/s", rates);
    results.figure("commands of the drive", "1/s", commands);
    Ok(())
}
