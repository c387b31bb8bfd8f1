//! `dxpu-demo`: the whole path on one command. `./dx demo` builds everything and runs it.

mod bandwidth;
mod fabric;
mod input;
mod place;
mod programs;
mod report;
mod running;
mod split;
mod story;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Lends an NVMe drive and an accelerator from two boxes to a host across Ethernet, uses them and
/// gives them back. Manager, host proxy and box proxies are separate processes on this machine; with
/// --card the proxies are firmware in emulated cards.
#[derive(Debug, Parser)]
#[command(
    name = "dx demo",
    bin_name = "./dx demo",
    version,
    after_help = "Exit status: 0 passed, 1 failed, 2 wrong usage."
)]
struct Cli {
    /// What is written to the remote drive and read back [default: the repository's files]
    file: Option<PathBuf>,
    /// Raw Ethernet between two network namespaces instead of UDP on loopback (needs root)
    #[arg(long)]
    l2: bool,
    /// Host proxy and box proxies are the card's firmware, each in an emulated card with a flash of
    /// its own (QEMU riscv32, package qemu-system-misc); much slower than programs
    #[arg(long, conflicts_with = "l2")]
    card: bool,
    /// Print everything as one JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Leave it running at the end, and say how to play with it
    #[arg(long)]
    keep: bool,
    /// Bytes of the bandwidth test in each direction, in MiB [default: what takes about a second]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=65536))]
    bandwidth_mib: Option<u64>,
    /// Register reads of the round-trip measurement
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=1000))]
    reads: u32,
    /// Time that the host's operating system waits after the attention button, in ms
    #[arg(long, default_value_t = 5000)]
    button_ms: u64,
    /// Repository whose files are written when no FILE is named
    #[arg(long, default_value = ".", hide = true)]
    repository: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut report = report::Report::new(cli.json);
    let result = story::run(&cli, &mut report);
    report.finish(result)
}
