//! Programs that run until they are ended.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A process that runs until it is dropped.
pub struct Daemon {
    name: String,
    child: Child,
    /// It was asked for its end and has one: its process ID may be another's by now.
    reaped: bool,
    log: PathBuf,
    keep: bool,
}

/// Time that a daemon gets to stop cleanly.
const STOP_BOUND: Duration = Duration::from_secs(5);

/// Makes a command get SIGTERM when this program ends, however it ends.
fn end_with_us(command: &mut Command) {
    let own = std::process::id() as libc::pid_t;
    let ask = move || {
        // SAFETY: prctl(2) with PR_SET_PDEATHSIG takes a signal number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: getppid(2) only returns a number.
        if unsafe { libc::getppid() } != own {
            // It ended before this was set.
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls that are async-signal-safe,
    // and neither allocates nor locks.
    unsafe { command.pre_exec(ask) };
}

impl Daemon {
    /// Starts it; its output goes to `NAME.log` in a folder. Unless it may `outlive` this program, it
    /// ends with it, even if this is killed. To be called by a thread that lives as long as this
    /// program.
    ///
    /// # Errors
    ///
    /// When there is no such program, or the log cannot be written.
    pub fn start(name: &str, folder: &Path, mut command: Command, outlive: bool) -> Result<Self> {
        if !outlive {
            end_with_us(&mut command);
        }
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("log {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{name} could not be started: {command:?}"))?;
        Ok(Self { name: name.into(), child, reaped: false, log, keep: false })
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.reaped |= status.is_some();
        Ok(status)
    }

    /// Whether it runs still.
    ///
    /// # Errors
    ///
    /// With the end of its log if it has ended.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} ended with {status}:\n{}", self.name, self.last_lines());
        }
        Ok(())
    }

    /// The end of its log.
    pub fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Memory that it has resident, in bytes; nothing when it has ended.
    pub fn resident(&self) -> Option<u64> {
        if self.reaped {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes << 10)
    }

    /// Leaves it running when it is dropped.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, unless it is known to have ended. Whether it was sent.
    pub fn signal(&self, signal: libc::c_int) -> bool {
        if self.reaped {
            return false;
        }
        // SAFETY: kill(2) has no memory effects; the child is not reaped yet, so its ID is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) == 0 }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        self.signal(libc::SIGTERM);
        let deadline = Instant::now() + STOP_BOUND;
        while Instant::now() < deadline {
            if !matches!(self.ended(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_sent_no_signal() {
        let folder = tempfile::tempdir().unwrap();
        let start = |name, command| Daemon::start(name, folder.path(), command, false).unwrap();
        let mut short = start("short", Command::new("true"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while short.ended().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!short.signal(libc::SIGTERM), "its process ID may be another's");
        assert_eq!(short.resident(), None);
        assert!(short.check().unwrap_err().to_string().contains("short ended with"));
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let long = start("long", sleep);
        assert!(long.signal(libc::SIGTERM));
    }
}
