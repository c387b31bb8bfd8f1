//! Other programs: those that run until they are ended, and those that say something and end.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long daemons, devices and hot-plug get.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Daemons and floors come before what else runs on the machine (nice(1)).
const PRIORITY: libc::c_int = -20;

/// This program and what it starts come before other sessions, as long as it is alive. Linux shares
/// processors among sessions first, and nice(1) counts within one only (sched(7), autogroups).
pub(crate) struct Ahead {
    was: Option<String>,
}

const SESSION: &str = "/proc/self/autogroup";

impl Ahead {
    /// Does nothing where the kernel has no such groups.
    pub(crate) fn of_other_sessions() -> Self {
        let told = std::fs::read_to_string(SESSION).unwrap_or_default();
        let was = told.trim().rsplit_once(' ').map(|(_, nice)| nice.to_owned());
        let _ = std::fs::write(SESSION, PRIORITY.to_string());
        Self { was }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(was) = &self.was {
            let _ = std::fs::write(SESSION, was);
        }
    }
}

/// Keeps this thread on a processor, where there is one of that number, and puts it before others.
pub(crate) fn pin(processor: usize) {
    // SAFETY: cpu_set_t is plain data for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the processor number is far below the set's size.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the set lives through the call and has that size; 0 is this thread. Where there is
    // no such processor the thread stays free, and the figures are less steady.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    // SAFETY: a plain call; 0 is this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PRIORITY) };
}

/// A process that runs until it is dropped.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it, on one processor or on all.
    pub(crate) fn start(
        name: &str,
        folder: &Path,
        command: Command,
        processor: Option<usize>,
    ) -> Result<Self> {
        let enough = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let mut command = match processor.filter(|_| enough) {
            None => command,
            Some(processor) => {
                let mut pinned = Command::new("nice");
                pinned.args(["-n", &PRIORITY.to_string(), "taskset", "--cpu-list"]);
                pinned.arg(processor.to_string()).arg(command.get_program());
                pinned.args(command.get_args()).current_dir(folder);
                pinned
            }
        };
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("{name}: {command:?}"))?;
        Ok(Self { child, log })
    }

    pub(crate) fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Memory that it has resident, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kilobytes.context("no VmRSS: the daemon has ended")? << 10)
    }

    /// Processor time that it has used.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // proc(5): the name, in parentheses, may hold anything; user and system time are the 14th
        // and 15th field.
        let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
        let field = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
        let ticks = field(14).zip(field(15)).map(|(user, system)| user + system);
        // SAFETY: a plain call.
        let each = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        Ok(Duration::from_secs_f64(ticks.context("no times in stat")? as f64 / each))
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill(2) has no memory effects; the child is not reaped yet, so its ID is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Runs a command to its end; its standard output, or an error with what it said.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let result = command.stdin(Stdio::null()).output();
    let result = result.with_context(|| format!("{command:?} could not be run"))?;
    if !result.status.success() {
        let said = String::from_utf8_lossy(&result.stderr);
        bail!("{command:?} ended with {}: {}", result.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// Asks again and again until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A number somewhere in JSON.
pub(crate) fn number(value: &Value, path: &str) -> Result<f64> {
    let found = value.pointer(path).and_then(Value::as_f64);
    found.with_context(|| format!("no number {path} in {value}"))
}
