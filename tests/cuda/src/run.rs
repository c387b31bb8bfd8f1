//! Programs on the stand-in, and what it wrote down of them.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

use crate::built;

/// How long a program may run, in seconds. None takes a tenth of it on a machine that is not busy.
const BOUND: &str = "120";

/// The kinds of rows that are calls.
const CALLS: [&str; 4] = ["launch", "sync", "wait", "call"];

/// A folder with the stand-in under the driver's names, and with the files of its programs.
#[derive(Debug)]
pub struct StandIn {
    folder: tempfile::TempDir,
    runs: AtomicUsize,
}

/// A call of the driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Called {
    /// The thread, by the system's number.
    pub thread: u32,
    /// The driver's symbol.
    pub symbol: String,
    /// What it answered: a `CUresult`.
    pub status: i32,
}

/// A name that the driver's resolver was asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LookUp {
    /// The name.
    pub name: String,
    /// The CUDA version.
    pub version: u32,
    /// The flags.
    pub flags: u64,
    /// Whether there was a function.
    pub found: bool,
}

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Virtual time, in nanoseconds.
    pub start: u64,
    /// In nanoseconds.
    pub duration: u64,
    /// `kernel`, `htod`, `dtoh`, `dtod`, `peer`, `htoh`, `memset` or `callback` of the device; `launch`,
    /// `sync`, `wait` or `call`.
    pub kind: String,
    /// The stream's number, where it is about one; 0 is the legacy default stream.
    pub stream: Option<u64>,
    /// Bytes that were moved or set.
    pub bytes: u64,
    /// The kernel or the driver's symbol.
    pub name: String,
    /// A call's number; of an operation, that of the call that asked for it.
    pub correlation: u64,
}

/// What a program did.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it printed.
    pub stdout: String,
    /// What it printed as errors.
    pub stderr: String,
    /// How it ended: its exit code, or none by a signal.
    pub code: Option<i32>,
    /// The driver's functions that it called, in order.
    pub calls: Vec<Called>,
    /// The names that it asked the resolver for, in order.
    pub look_ups: Vec<LookUp>,
    /// What was when.
    pub timeline: Vec<Row>,
    /// The timeline's file.
    pub timeline_file: PathBuf,
}

impl StandIn {
    /// A new folder.
    ///
    /// # Errors
    ///
    /// When the stand-in is not built, or there is no room.
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for files")?;
        let library = built("libcuda_stand_in.so", "cuda-stand-in")?;
        for name in ["libcuda.so", "libcuda.so.1"] {
            symlink(&library, folder.path().join(name)).context("no link to the stand-in")?;
        }
        Ok(Self { folder, runs: AtomicUsize::new(0) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that finds the stand-in as its driver and ends in bounded time.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("timeout");
        command.arg(BOUND).arg(program.as_ref()).env("LD_LIBRARY_PATH", self.folder());
        for variable in ["LD_PRELOAD", "STAND_IN", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    ///
    /// When it does not start, or the stand-in's records cannot be read.
    pub fn run(&self, mut command: Command) -> Result<Run> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let log = self.folder().join(format!("{number}.log"));
        let timeline_file = self.folder().join(format!("{number}.csv"));
        command.env("STAND_IN_LOG", &log).env("STAND_IN_TIMELINE", &timeline_file);
        let Output { status, stdout, stderr } =
            command.output().with_context(|| format!("{command:?} does not start"))?;
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let (look_ups, calls): (Vec<&str>, Vec<&str>) =
            log.lines().partition(|line| line.split(' ').nth(1) == Some("?"));
        let timeline = std::fs::read_to_string(&timeline_file).unwrap_or_default();
        Ok(Run {
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            code: status.code(),
            calls: calls.into_iter().map(called).collect::<Result<_>>()?,
            look_ups: look_ups.into_iter().map(look_up).collect::<Result<_>>()?,
            timeline: timeline.lines().skip(1).map(row).collect::<Result<_>>()?,
            timeline_file,
        })
    }
}

impl Run {
    /// How often each of the driver's functions was called.
    pub fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for call in &self.calls {
            *counts.entry(call.symbol.as_str()).or_default() += 1;
        }
        counts
    }

    /// What the device did, without calls.
    pub fn device(&self) -> impl Iterator<Item = &Row> {
        self.timeline.iter().filter(|row| !CALLS.contains(&row.kind.as_str()))
    }

    /// The call that asked for an operation of the device.
    pub fn call_of(&self, row: &Row) -> Option<&Row> {
        let calls = self.timeline.iter().filter(|other| CALLS.contains(&other.kind.as_str()));
        calls.into_iter().find(|call| call.correlation == row.correlation)
    }

    /// Fails the test where the program did not end well, with what it printed.
    ///
    /// # Panics
    ///
    /// Then.
    pub fn must_succeed(&self) -> &Self {
        let Self { code, stdout, stderr, .. } = self;
        assert_eq!(*code, Some(0), "\n{stdout}\n{stderr}");
        self
    }
}

fn called(line: &str) -> Result<Called> {
    let words: Vec<&str> = line.split(' ').collect();
    let [thread, symbol, status] = words[..] else { bail!("no call: {line}") };
    Ok(Called { thread: thread.parse()?, symbol: symbol.to_owned(), status: status.parse()? })
}

fn look_up(line: &str) -> Result<LookUp> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, _, name, version, flags, found] = words[..] else { bail!("no look-up: {line}") };
    let (version, flags) = (version.parse()?, flags.parse()?);
    Ok(LookUp { name: name.to_owned(), version, flags, found: found == "1" })
}

fn row(line: &str) -> Result<Row> {
    let fields: Vec<&str> = line.splitn(6, ',').collect();
    let [start, duration, kind, stream, bytes, rest] = fields[..] else { bail!("no row: {line}") };
    // Names of tests have no quotes and commas in them. Device, correlation and others follow.
    let rest: Vec<&str> = rest.split(',').collect();
    let [name, _, correlation, ..] = rest[..] else { bail!("no row: {line}") };
    Ok(Row {
        start: start.parse()?,
        duration: duration.parse()?,
        kind: kind.to_owned(),
        stream: if stream.is_empty() { None } else { Some(stream.parse()?) },
        bytes: bytes.parse()?,
        name: name.trim_matches('"').to_owned(),
        correlation: correlation.parse()?,
    })
}
