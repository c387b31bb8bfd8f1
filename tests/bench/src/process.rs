//! Daemons on processors of their own, and what they take.

use anyhow::{Context, Result};
use processes::Daemon;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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

/// A daemon that ends with this program, on one processor or on all.
pub(crate) fn start(
    name: &str,
    folder: &Path,
    command: Command,
    processor: Option<usize>,
) -> Result<Daemon> {
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
    processes::without_settings(&mut command);
    Daemon::start(name, folder, command, false)
}

/// Processor time that a daemon has used.
pub(crate) fn processor_time(daemon: &Daemon) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.id()))?;
    // proc(5): the name, in parentheses, may hold anything; user and system time are the 14th
    // and 15th field.
    let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
    let field = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
    let ticks = field(14).zip(field(15)).map(|(user, system)| user + system);
    // SAFETY: a plain call.
    let each = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    Ok(Duration::from_secs_f64(ticks.context("no times in stat")? as f64 / each))
}

/// As [`processes::wait_for`], with the bound that all here have.
pub(crate) fn wait_for<T>(what: &str, ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    processes::wait_for(what, PATIENCE, ask)
}

/// A number somewhere in JSON.
pub(crate) fn number(value: &Value, path: &str) -> Result<f64> {
    let found = value.pointer(path).and_then(Value::as_f64);
    found.with_context(|| format!("no number {path} in {value}"))
}
