//! Signals that reach this program while another runs under it.

use std::fs;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// A signal that came to end this program while others ran under it.
#[derive(Debug, thiserror::Error)]
#[error("stopped by signal {0}: this run does not count")]
pub(crate) struct Stopped(pub(crate) i32);

/// Signals that would end this program, caught while programs run under it, once: between two of them
/// as well, so that none is lost. When this goes they end this program again; it catches them once in a
/// process.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: Vec<i32>,
    /// The last one that came, or 0.
    last: Arc<AtomicUsize>,
    /// Whether the default is done again.
    is_over: Arc<AtomicBool>,
}

impl Signals {
    /// Catches them, but for those that this program was started to ignore (`nohup`): so does the
    /// other one then.
    pub(crate) fn catch() -> Result<Signals> {
        let ignored = ignored();
        let all = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];
        let caught = all.into_iter().filter(|signal| ignored & 1 << (signal - 1) == 0).collect();
        let signals = Signals { caught, last: Arc::default(), is_over: Arc::default() };
        for signal in &signals.caught {
            let number = usize::try_from(*signal).expect("signals are positive numbers");
            // In this order: one that comes between the two is not lost.
            flag::register_usize(*signal, Arc::clone(&signals.last), number)
                .and_then(|_| {
                    flag::register_conditional_default(*signal, Arc::clone(&signals.is_over))
                })
                .context("signals")?;
        }
        Ok(signals)
    }

    /// From now on they end this program again.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// The last one that came.
    pub(crate) fn last(&self) -> Option<i32> {
        let last = self.last.load(Ordering::SeqCst);
        i32::try_from(last).ok().filter(|signal| *signal != 0)
    }

    /// Those that come from now on wait for a program that they are passed on to.
    ///
    /// # Errors
    /// One came before: [`Stopped`].
    pub(crate) fn hold(&self) -> Result<Held> {
        let held = SignalsInfo::new(&self.caught).context("signals")?;
        self.last().map_or(Ok(Held(held)), |signal| Err(Stopped(signal).into()))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.end();
    }
}

/// Signals that wait for a program.
pub(crate) struct Held(SignalsInfo<WithRawSiginfo>);

impl Held {
    /// Passes them on to a program, until that has ended.
    pub(crate) fn pass_to(self, child: &Child) -> Passing {
        let Held(mut signals) = self;
        let handle = signals.handle();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let thread = std::thread::spawn(move || {
            for info in signals.forever() {
                // The terminal, whose signals are the kernel's, tells the program itself. One that
                // another process sent went to this program, as far as can be seen.
                let from_terminal = info.si_code > 0;
                let signal = match info.si_signo {
                    SIGINT | SIGQUIT if from_terminal => continue,
                    SIGINT => Signal::INT,
                    SIGQUIT => Signal::QUIT,
                    _ => Signal::TERM,
                };
                if let Some(pid) = pid {
                    // It may have ended in the meantime: nobody is left to be told.
                    let _ = kill_process(pid, signal);
                }
            }
        });
        Passing { handle, thread }
    }
}

/// Signals that are being passed on.
pub(crate) struct Passing {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Passing {
    /// Ends it.
    pub(crate) fn end(self) {
        self.handle.close();
        self.thread.join().expect("passing signals on cannot panic");
    }
}

/// The signals that this process ignores, a bit each, from 1 on; none where the system does not say.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
