//! The command line: what was said, and which file does it.

mod calibrate;
mod compare;
mod fabric;
mod files;
mod kinds;
mod model;
mod paper;
mod predict;
mod run;
mod shim;
mod sweep;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// What disaggregation would cost a CUDA workload.
///
/// Exit codes: 0 done, 2 wrong use or an error; `run` has the exit code of the program that it ran
/// (128 and the number of the signal that killed it), and 2 if it could not run it or write the
/// report; `sweep` that a signal stopped has 128 and that signal's number.
#[derive(Debug, Parser)]
#[command(name = "dxpu-perf", version)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a program as if its GPU were at the far end of the fabric, and reports.
    Run(run::RunArgs),
    /// Runs a program at several round trips: its performance against them.
    Sweep(sweep::SweepArgs),
    /// Measures this host and GPU, and writes a profile.
    Calibrate(calibrate::CalibrateArgs),
    /// What a fabric would cost a program, by a trace of it; needs no GPU.
    Predict(predict::PredictArgs),
    /// Equation 1 and the closed forms: what a round trip costs copies and kernels.
    Model(model::ModelArgs),
    /// The model beside every row that DxPU's paper measured.
    Paper(paper::PaperArgs),
}

/// Says something beside the output; nobody may be there to read it.
fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "dxpu-perf: {what}");
}

/// Does what was asked.
///
/// # Errors
/// What is wrong and what to do about it; exit code 2.
pub fn run(args: Args, out: &mut dyn Write) -> Result<ExitCode> {
    match args.command {
        Command::Run(args) => return run::run(&args),
        Command::Sweep(args) => return sweep::run(&args, out),
        Command::Calibrate(args) => calibrate::run(&args, out)?,
        Command::Predict(args) => predict::run(&args, out)?,
        Command::Model(args) => model::run(&args, out)?,
        Command::Paper(args) => paper::run(&args, out)?,
    }
    Ok(ExitCode::SUCCESS)
}
