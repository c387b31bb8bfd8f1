//! `dxpu-guest`: what runs inside a Linux guest of the tests, without a driver in the kernel. It is
//! linked statically, so that a guest needs nothing else:
//!
//! ```text
//! RUSTFLAGS=-Ctarget-feature=+crt-static \
//!     cargo build --release -p guest-tools --target x86_64-unknown-linux-gnu
//! ```

mod accelerator;
mod function;
mod hammer;
mod memory;
mod round_trip;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Uses PCIe functions from a guest's user space, as root, through sysfs.
#[derive(Debug, Parser)]
#[command(version, after_help = "Exit status: 0 done, 1 failed, 2 wrong arguments.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bandwidth test of the accelerator, both ways, every byte checked
    Accelerator(accelerator::Args),
    /// Round trip of a register read
    RoundTrip(round_trip::Args),
    /// Reads and writes configuration space and BARs at random, for as long as it is told
    Hammer(hammer::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Accelerator(args) => accelerator::run(&args),
        Command::RoundTrip(args) => round_trip::run(&args),
        Command::Hammer(args) => hammer::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dxpu-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}
