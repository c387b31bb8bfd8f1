//! Running a program under the shim.

use std::env;
use std::ffi::OsString;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use perf_core::{BYPASS_VARIABLE, LEDGER_VARIABLE, Nanos, Settings, VARIABLE};

use crate::report::{Process, Report};
use crate::signals::Signals;

/// The shim's file.
const SHIM: &str = "libdxpu_perf.so";

/// How the shim comes into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// LD_PRELOAD: every process of the program, no matter how it reaches the driver.
    Preload,
    /// CUDA_INJECTION64_PATH: the driver loads it, and CUPTI tells it of calls. Keeps profilers out.
    Injection,
}

/// A program that is to run, and how.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The shim.
    pub shim: PathBuf,
    /// How it comes in.
    pub way: Way,
    /// The program and its arguments; at least the program.
    pub command: Vec<OsString>,
}

/// What becomes of the program's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is this program's own.
    Own,
    /// It goes where this program's errors go: this program's output is its own.
    ToErrors,
    /// It is kept.
    Kept,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The program's status.
    pub status: ExitStatus,
    /// The last signal that came to end this program until then.
    pub signal: Option<i32>,
    /// How long it ran.
    pub wall: Nanos,
    /// Its processes that called CUDA's driver.
    pub processes: Vec<Process>,
    /// Counts that are lost, and why.
    pub lost: Vec<String>,
    /// What it wrote to its standard output, where that was asked for.
    pub output: Vec<u8>,
}

/// The shim: the file that was named, or the one beside this program, or in ../lib of it.
///
/// # Errors
/// There is none; says where it was looked for.
pub fn find_shim(named: Option<&Path>) -> Result<PathBuf> {
    let looked = match named {
        Some(path) => vec![path.to_owned()],
        None => {
            let own = env::current_exe().context("where this program lies")?;
            let own = own.canonicalize().unwrap_or(own);
            let folder = own.parent().unwrap_or(Path::new("."));
            vec![
                folder.join(SHIM),
                folder.join("deps").join(SHIM),
                folder.join("../lib").join(SHIM),
                folder.join("../lib/dxpu").join(SHIM),
            ]
        }
    };
    let found = looked.iter().find(|path| path.is_file());
    let Some(found) = found else {
        let places: Vec<String> = looked.iter().map(|path| path.display().to_string()).collect();
        bail!(
            "there is no {SHIM} at {}; build it with `cargo build --release -p perf-shim`, or name \
             it with --shim",
            places.join(", ")
        );
    };
    let found = found.canonicalize().with_context(|| found.display().to_string())?;
    // LD_PRELOAD is a list with these between its entries.
    if found.to_string_lossy().contains([' ', ':']) {
        bail!("{}: a preloaded library's path can have neither spaces nor colons", found.display());
    }
    Ok(found)
}

impl Launch {
    /// Runs the program with `settings` to its end, and does `ended` before anything else then.
    ///
    /// # Errors
    /// It cannot be started; there is no room for its ledgers or its output; a signal came before.
    pub(crate) fn run(
        &self,
        settings: &Settings,
        said: Said,
        signals: &Signals,
        ended: impl FnOnce(),
    ) -> Result<Outcome> {
        let ledgers = tempfile::Builder::new()
            .prefix("dxpu-perf-")
            .tempdir()
            .context("a folder for ledgers")?;
        let mut command = self.prepare(settings, ledgers.path())?;
        let mut kept = None;
        match said {
            Said::Own => {}
            Said::ToErrors => drop(command.stdout(std::io::stderr())),
            Said::Kept => {
                // No pipe: a process that the program leaves behind may hold it open.
                let file = tempfile::tempfile().context("a file for the program's output")?;
                command.stdout(file.try_clone().context("the output's file")?);
                kept = Some(file);
            }
        }
        // Ctrl-C reaches the program from the terminal, and this one outlives it to report.
        let held = signals.hold()?;
        let begun = Instant::now();
        let mut child = command.spawn().map_err(|error| {
            let program = self.command[0].display();
            anyhow::Error::new(error).context(format!("{program} cannot be started"))
        })?;
        let passing = held.pass_to(&child);
        let status = child.wait();
        let wall = Nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        ended();
        passing.end();
        let signal = signals.last();
        let status = status.context("waiting for the program")?;
        let (processes, lost) = Report::read_processes(ledgers.path());
        let mut output = Vec::new();
        if let Some(mut kept) = kept {
            kept.rewind()
                .and_then(|()| kept.read_to_end(&mut output))
                .context("the program's output")?;
        }
        Ok(Outcome { status, signal, wall, processes, lost, output })
    }

    fn prepare(&self, settings: &Settings, ledgers: &Path) -> Result<Command> {
        let (program, arguments) =
            self.command.split_first().context("a program to run is missing")?;
        let mut command = Command::new(program);
        command.args(arguments);
        command.env(VARIABLE, settings.to_env()).env(LEDGER_VARIABLE, ledgers);
        command.env_remove(BYPASS_VARIABLE);
        match self.way {
            Way::Preload => {
                let mut list = OsString::from(&self.shim);
                if let Some(others) = env::var_os("LD_PRELOAD").filter(|list| !list.is_empty()) {
                    list.push(":");
                    list.push(others);
                }
                command.env("LD_PRELOAD", list);
            }
            Way::Injection => {
                command.env("CUDA_INJECTION64_PATH", &self.shim);
            }
        }
        Ok(command)
    }
}

/// A command as people see it.
pub fn shown(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// How a program ended, in words; none if it ended well.
pub fn ended(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("ended with exit code {code}")),
        (None, Some(signal)) => Some(format!("was killed by signal {signal}")),
        (None, None) => Some("ended in a way that is not known".to_owned()),
    }
}

/// The exit code that says of this program what `status` says of the one that it ran, as shells
/// have it: 128 and the number of a signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
