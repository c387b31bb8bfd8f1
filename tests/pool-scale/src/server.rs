//! The manager, as its users run it.

use anyhow::{Context, Result, bail, ensure};
use processes::Daemon;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a manager may take to start.
const START_BOUND: Duration = Duration::from_secs(60);

/// What the ready file says.
#[derive(Deserialize)]
struct Ready {
    pid: u32,
    listen: SocketAddr,
    control: SocketAddr,
}

/// A manager with its store in a folder.
pub(crate) struct Server {
    folder: PathBuf,
    log: String,
    daemon: Option<Daemon>,
    pid: u32,
    /// Where its REST API is.
    pub(crate) api: SocketAddr,
    /// Where proxies dial in.
    pub(crate) control: SocketAddr,
}

impl Server {
    /// Starts it. The program is beside this one.
    pub(crate) fn start(folder: &Path, log: &str) -> Result<Self> {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (folder, log) = (folder.to_owned(), log.to_owned());
        let mut server = Self { folder, log, daemon: None, pid: 0, api: nowhere, control: nowhere };
        server.run()?;
        Ok(server)
    }

    /// Starts it again, on the same addresses. How long it took until it listens.
    pub(crate) fn run(&mut self) -> Result<Duration> {
        let program = processes::own_folder()?.join("dxpu-manager");
        ensure!(program.exists(), "build it first: {} is not there", program.display());
        let ready = self.folder.join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(program);
        processes::without_settings(&mut command).arg("serve").arg("--store").arg(self.store());
        command.arg("--ready-file").arg(&ready).args(["--log", &self.log]);
        command.args(["--listen", &self.api.to_string(), "--control", &self.control.to_string()]);
        let begun = Instant::now();
        let mut daemon = Daemon::start("manager", &self.folder, command, false)?;
        let text = loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                break text;
            }
            daemon.check()?;
            if begun.elapsed() > START_BOUND {
                bail!("the manager does not start: {}", daemon.last_lines());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = begun.elapsed();
        let ready: Ready = serde_json::from_str(&text).context("the ready file")?;
        (self.pid, self.api, self.control) = (ready.pid, ready.listen, ready.control);
        self.daemon = Some(daemon);
        Ok(took)
    }

    /// Its store's file.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("pool.redb")
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let pid = self.pid.to_string();
        let killed = Command::new("kill").args(["-KILL", &pid]).status()?;
        ensure!(killed.success(), "kill -KILL {pid} did not work");
        let mut daemon = self.daemon.take().context("it runs")?;
        while daemon.ended()?.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// What it has of the machine's memory: now and at most so far, bytes.
    pub(crate) fn memory(&self) -> Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let kilobytes = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.context("/proc has it")?.trim_matches([':', ' ', '\t', 'k', 'B']);
            Ok(number.parse::<f64>()? * 1024.0)
        };
        Ok((kilobytes("VmRSS")?, kilobytes("VmHWM")?))
    }

    /// Time that it has had of the processors so far.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let rest = stat.rsplit(')').next().context("/proc has it")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5): utime and stime are fields 14 and 15, in ticks of 10 ms.
        let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Duration::from_millis(10 * ticks))
    }

    /// The end of its log.
    pub(crate) fn last_lines(&self) -> String {
        self.daemon.as_ref().map(Daemon::last_lines).unwrap_or_default()
    }
}
