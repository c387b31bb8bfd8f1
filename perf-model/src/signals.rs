//! Signals that reach this program while another runs under it.

use std::fs;
use std::process::Child;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// Signals that would end this program, caught: it outlives the other to report.
pub(crate) struct Signals(SignalsInfo<WithRawSiginfo>);

impl Signals {
    /// Catches them, but for those that this program was started to ignore (`nohup`): so does the
    /// other one then.
    pub(crate) fn catch() -> Result<Signals> {
        let ignored = ignored();
        let all = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];
        let caught = all.into_iter().filter(|signal| ignored & 1 << (signal - 1) == 0);
        SignalsInfo::new(caught).map(Signals).context("signals")
    }

    /// Passes them on to a program, until that has ended.
    pub(crate) fn pass_to(self, child: &Child) -> Passing {
        let Signals(mut signals) = self;
        let handle = signals.handle();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let thread = std::thread::spawn(move || {
            let mut last = None;
            for info in signals.forever() {
                last = Some(info.si_signo);
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
            // The program may have ended of one that was not looked at yet.
            signals.pending().last().map(|info| info.si_signo).or(last)
        });
        Passing { handle, thread }
    }
}

/// Signals that are being passed on.
pub(crate) struct Passing {
    handle: Handle,
    thread: JoinHandle<Option<i32>>,
}

impl Passing {
    /// Ends it; says the last signal that came.
    pub(crate) fn end(self) -> Option<i32> {
        self.handle.close();
        self.thread.join().expect("passing signals on cannot panic")
    }
}

/// The signals that this process ignores, a bit each, from 1 on; none where the system does not say.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
