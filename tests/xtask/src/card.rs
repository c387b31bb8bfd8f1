//! `./dx card`: a simulated card, flashed as one at a bench is, and its log.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::firmware;
use crate::tools::{cargo, output, run, target_dir};

/// What `card` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Which of the two the card is.
    #[arg(long, value_enum, default_value = "box")]
    role: Role,
    /// Keep what is in the card's flash in this file; a card that is there already is updated, and
    /// keeps its settings.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// End by itself after so many seconds of log.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// At a host's root port.
    Host,
    /// At devices.
    Box,
}

/// How long the card may take to be there.
const READY: Duration = Duration::from_secs(30);

/// How often is looked.
const PAUSE: Duration = Duration::from_millis(50);

/// A program that ends with this one.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It is told first: a simulated card then writes what is in its flash.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let end = Instant::now() + READY;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(PAUSE);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds what is needed, starts the card, flashes it, and shows its log.
pub(crate) fn card(options: &Options) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    // Ctrl-C reaches the programs, too; this one then still tidies up.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("handling signals")?;
    }
    step("building the card's firmware, the simulated card and dxpu-flash");
    let done = firmware::build()?;
    if let Some(reason) = done.skipped {
        bail!("{reason}");
    }
    run(&mut cargo(&["build", "--quiet", "-p", "sim-card", "-p", "dxpu-flash", "--bins"]))?;
    let bench = Bench::new(options)?;
    let (card, probe) = bench.start_card(&stop)?;
    bench.flash(&probe, &stop)?;
    bench.log(options, &stop)?;
    drop(card);
    match &options.keep {
        Some(file) => {
            step(&format!("the card is gone; what is in its flash is in {}", file.display()))
        }
        None => step("the card is gone, and nothing is left of it"),
    }
    Ok(ExitCode::SUCCESS)
}

fn step(what: &str) {
    println!("== {what}");
}

/// Programs and files.
struct Bench {
    programs: PathBuf,
    firmware: PathBuf,
    name: &'static str,
    folder: tempfile::TempDir,
    flash: PathBuf,
    /// Whether the flash is one that had a card in it before.
    known: bool,
}

impl Bench {
    fn new(options: &Options) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the card's files")?;
        let flash = options.keep.clone().unwrap_or_else(|| folder.path().join("flash"));
        Ok(Self {
            programs: target_dir().join("debug"),
            firmware: firmware::folder(),
            name: if options.role == Role::Host { "fw-host" } else { "fw-box" },
            known: flash.exists(),
            folder,
            flash,
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_card(&self, stop: &AtomicBool) -> Result<(Running, String)> {
        let ready = self.file("ready");
        let mut command = Command::new(self.programs.join("dxpu-sim-card"));
        command.arg("--flash").arg(&self.flash).arg("--uart").arg(self.file("console"));
        command.arg("--ready-file").arg(&ready).stdin(Stdio::null()).stderr(Stdio::inherit());
        step(&format!("a simulated card, with its flash in {}", self.flash.display()));
        let mut card = Running(command.spawn().context("dxpu-sim-card does not start")?);
        let end = Instant::now() + READY;
        loop {
            if let Ok(address) = std::fs::read_to_string(&ready) {
                return Ok((card, format!("remote-bitbang:{}", address.trim())));
            }
            ensure!(card.0.try_wait()?.is_none(), "dxpu-sim-card ended at once; it says why above");
            ensure!(Instant::now() < end, "dxpu-sim-card does not get ready");
            ensure!(!stop.load(Ordering::Relaxed), "stopped");
            std::thread::sleep(PAUSE);
        }
    }

    /// Does what a person at a bench does, and shows how.
    fn flash(&self, probe: &str, stop: &AtomicBool) -> Result<()> {
        let boot = self.firmware.join("boot.bin");
        let image = self.firmware.join(format!("{}.img", self.name));
        let (boot, image) = (path(&boot)?, path(&image)?);
        let mut write = vec!["write", "--boot-loader", boot, image, "--no-start"];
        if !self.known {
            write.insert(1, "--erase-all");
        }
        let name = if self.name == "fw-host" { "name=card-host" } else { "name=card-box" };
        let settings = ["config", "set", name, "manager=10.0.2.2:7781", "--no-start"];
        self.dxpu_flash(probe, stop, &write)?;
        // Also of a card that was left before it had all it needs.
        let has = output(self.program().args(["--probe", probe, "config", "get"]))?;
        if has.starts_with("no settings") {
            self.dxpu_flash(probe, stop, &settings)?;
        }
        self.dxpu_flash(probe, stop, &["info"])?;
        self.dxpu_flash(probe, stop, &["reset"])
    }

    fn dxpu_flash(&self, probe: &str, stop: &AtomicBool, arguments: &[&str]) -> Result<()> {
        ensure!(!stop.load(Ordering::Relaxed), "stopped");
        step(&format!("dxpu-flash --probe {probe} {}", arguments.join(" ")));
        run(self.program().args(["--probe", probe]).args(arguments))
    }

    fn program(&self) -> Command {
        let mut command = Command::new(self.programs.join("dxpu-flash"));
        // Whoever has a real card has said which board that is.
        for variable in ["DXPU_BOARD", "DXPU_BOARD_FILE"] {
            command.env_remove(variable);
        }
        command
    }

    /// Shows the console, until this is interrupted or the time is over.
    fn log(&self, options: &Options, stop: &AtomicBool) -> Result<()> {
        step("a simulated card has no network: its firmware says so, and waits");
        let (elf, console) = (self.firmware.join(self.name), self.file("console"));
        let arguments = ["log", "--elf", path(&elf)?, "--uart", path(&console)?];
        step(&format!("dxpu-flash {}   (Ctrl-C ends it)", arguments.join(" ")));
        let mut log =
            Running(self.program().args(arguments).spawn().context("dxpu-flash does not start")?);
        let end = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
            if let Some(status) = log.0.try_wait()? {
                ensure!(stop.load(Ordering::Relaxed), "dxpu-flash log ended ({status})");
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no text", path.display()))
}
