//! Round trip of a register read.

use crate::function::{Function, address};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The function, such as 10000:04:00.0
    #[arg(value_parser = address)]
    function: String,
    /// The BAR
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..6))]
    bar: u8,
    /// The register, a multiple of 4; reading it should have no effect
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// How many reads
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    count: usize,
    median_ns: u64,
    p99_ns: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let function = Function::open(&args.function)?;
    function.enable()?;
    let bar = function.bar(args.bar)?;
    let fits = args.offset.checked_add(4).is_some_and(|end| end <= bar.len() as u64);
    ensure!(fits && args.offset.is_multiple_of(4), "no register at {:#x}", args.offset);
    let mut times: Vec<u64> = (0..args.count)
        .map(|_| {
            let start = Instant::now();
            bar.read32(args.offset);
            start.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    let report = Report { count: times.len(), median_ns: at(50), p99_ns: at(99) };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!(
            "{} reads: median {:.1} us, 99 % within {:.1} us",
            report.count,
            report.median_ns as f64 / 1e3,
            report.p99_ns as f64 / 1e3
        );
    }
    Ok(())
}
