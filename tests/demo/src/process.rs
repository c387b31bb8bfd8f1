//! The programs that the demo runs, each a process of its own.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Where the programs are and where they leave what they write.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Folder of the programs.
    pub(crate) programs: PathBuf,
    /// Folder for logs, stores, images and sockets.
    pub(crate) folder: PathBuf,
    /// Whether daemons go on when the demo is gone; otherwise even SIGKILL ends them with it.
    pub(crate) outlive: bool,
}

/// A process that runs until it is dropped.
pub(crate) struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
    keep: bool,
}

/// Time that a daemon gets to stop cleanly.
const STOP_BOUND: Duration = Duration::from_secs(5);

impl Place {
    /// A command for one of the project's programs, in a network namespace or not.
    pub(crate) fn command(&self, program: &str, namespace: Option<&str>) -> Command {
        let path = self.programs.join(program);
        let mut command = match namespace {
            None => Command::new(path),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(path);
                command
            }
        };
        command.current_dir(&self.folder);
        command
    }

    /// Starts a daemon; its output goes to `NAME.log`.
    pub(crate) fn start(&self, name: &str, mut command: Command) -> Result<Daemon> {
        if !self.outlive {
            end_with_us(&mut command);
        }
        let log = self.folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("log {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{name} could not be started: {command:?}"))?;
        Ok(Daemon { name: name.into(), child, log, keep: false })
    }
}

/// Makes a command get SIGTERM when the demo ends, however it ends.
fn end_with_us(command: &mut Command) {
    let demo = std::process::id() as libc::pid_t;
    let ask = move || {
        // SAFETY: prctl(2) with PR_SET_PDEATHSIG takes a signal number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: getppid(2) only returns a number.
        if unsafe { libc::getppid() } != demo {
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
    /// Fails with the end of its log if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}:\n{}", self.name, self.last_lines());
        }
        Ok(())
    }

    fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Memory that it has resident, in bytes.
    pub(crate) fn resident(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes << 10)
    }

    /// Leaves it running when it is dropped.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // SAFETY: kill(2) has no memory effects; the child is not reaped yet, so its ID is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let deadline = Instant::now() + STOP_BOUND;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end; its standard output, or an error with what it said.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    watched(command, &mut |_| Said::Message)
}

/// What a line of a command's standard error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// How far it has got: nothing to repeat when it fails.
    Progress,
    /// Something else.
    Message,
}

/// As [`output`]; each line of its standard error is told when it comes.
pub(crate) fn watched(command: &mut Command, tell: &mut dyn FnMut(&str) -> Said) -> Result<String> {
    let Output { status, stdout, stderr } = run_watched(command, tell)?;
    if !status.success() {
        bail!("{command:?} ended with {status}: {}", String::from_utf8_lossy(&stderr).trim());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Runs a command to its end, whatever its end is.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    run_watched(command, &mut |_| Said::Message)
}

fn run_watched(command: &mut Command, tell: &mut dyn FnMut(&str) -> Said) -> Result<Output> {
    not_interrupted()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{command:?} could not be run"))?;
    let mut out = child.stdout.take().context("it was piped")?;
    let err = child.stderr.take().context("it was piped")?;
    // Both are read at once: a program that finds one of its pipes full waits.
    let reading = std::thread::spawn(move || {
        let mut stdout = Vec::new();
        out.read_to_end(&mut stdout).map(|_| stdout)
    });
    let mut stderr = Vec::new();
    for line in BufReader::new(err).split(b'\n') {
        let line = line?;
        if tell(&String::from_utf8_lossy(&line)) == Said::Message {
            stderr.extend_from_slice(&line);
            stderr.push(b'\n');
        }
    }
    let stdout = reading.join().expect("reading does not panic")?;
    Ok(Output { status: child.wait()?, stdout, stderr })
}

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP end the demo at its next step, with everything cleaned
/// up.
pub(crate) fn catch_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Under nohup(1) it is to go on.
        if signal != SIGHUP || !is_ignored(signal) {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
        }
    }
    Ok(())
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action, sigaction(2) only writes the present one to a place of its type.
    let got = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeros is a valid value of this structure of numbers and an optional function.
    got == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ends the demo at its next step, as a signal does.
pub(crate) fn interrupt() {
    INTERRUPTED.get_or_init(Arc::default).store(true, Ordering::Relaxed);
}

/// Whether the demo is to end early.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

fn not_interrupted() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

/// Asks again until there is an answer.
///
/// # Errors
///
/// When the time is over, with `what` was waited for.
pub(crate) fn wait_for<T>(
    what: &str,
    bound: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + bound;
    loop {
        not_interrupted()?;
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("waited {} s in vain for {what}", bound.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The folder that this program is in, which the others are in, too.
pub(crate) fn own_folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    own.parent().map(Path::to_path_buf).context("this program has no folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_no_part_of_why_a_command_failed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 7 % >&2; echo the drive is gone >&2; exit 3"]);
        let mut told = Vec::new();
        let failed = watched(&mut command, &mut |line| {
            told.push(line.to_owned());
            if line.ends_with('%') { Said::Progress } else { Said::Message }
        });
        let error = failed.unwrap_err().to_string();
        assert!(error.ends_with("exit status: 3: the drive is gone"), "{error}");
        assert_eq!(told, ["7 %", "the drive is gone"]);
    }
}
