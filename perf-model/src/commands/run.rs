//! `dxpu-perf run`: a program as if its GPU were at the far end of the fabric.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::fabric::RttArg;
use super::files;
use super::shim::ShimArgs;
use super::tell;
use crate::launch::{self, Said};
use crate::report::Report;
use crate::signals::{Signals, Stopped};

/// What is asked of `dxpu-perf run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The report goes into this file as text, and not to standard error.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The report goes into this file as JSON, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The report goes into this file as a page with plots, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// No report as text.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    rtt: RttArg,
    #[command(flatten)]
    shim: ShimArgs,
}

/// Does it; the exit code is the program's own.
///
/// # Errors
/// The program or the shim that cannot be started, files that cannot be written.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let profile = args.shim.profile(args.rtt.rtt)?;
    let settings = args.shim.settings(&profile)?;
    let launch = args.shim.launch()?;
    // What cannot be written is better known before the program has run for hours.
    for path in [&args.report, &args.json, &args.html].into_iter().flatten() {
        files::probe(path)?;
    }
    let signals = Signals::catch()?;
    // Once the program has ended, whoever ends this one does not want the report.
    let outcome = match launch.run(&settings, Said::Own, &signals, || signals.end()) {
        Ok(outcome) => outcome,
        Err(error) => {
            let Some(Stopped(signal)) = error.downcast_ref() else { return Err(error) };
            tell(&format!("stopped by signal {signal} before the program was started"));
            return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(2)));
        }
    };
    let report = Report {
        command: launch::shown(&launch.command),
        settings,
        profile: profile.name,
        wall: outcome.wall,
        ended: launch::ended(outcome.status),
        processes: outcome.processes,
        lost: outcome.lost,
    };
    let mut text = Vec::new();
    report.write_text(&mut text)?;
    // Nobody may be reading it any more.
    let to_errors = || drop(std::io::stderr().write_all(&text));
    // Each of them: what a long run said is not lost with one file.
    let of_text = match &args.report {
        Some(path) => files::write(path, &text).inspect_err(|_| to_errors()),
        None if args.quiet => Ok(()),
        None => {
            to_errors();
            Ok(())
        }
    };
    files::all([
        of_text,
        args.json.as_ref().map_or(Ok(()), |path| {
            files::write(path, &serde_json::to_vec_pretty(&report.to_json())?)
        }),
        args.html.as_ref().map_or(Ok(()), |path| files::write(path, report.to_html().as_bytes())),
    ])?;
    Ok(ExitCode::from(launch::exit_code(outcome.status)))
}
