//! Signals that would end this program while a card's program stands still for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGQUIT};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_default};

/// Ctrl-C, an end that is asked for, a terminal that is closed or an `ssh` that drops, and Ctrl-\.
#[cfg(unix)]
const SIGNALS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// What the handlers look at and set; there is one of each signal in a program.
#[derive(Debug)]
struct Flags {
    /// No card stands still: a signal ends the program as it always does.
    is_free: Arc<AtomicBool>,
    /// One came while a card stood still.
    came: Arc<AtomicBool>,
}

static FLAGS: OnceLock<Flags> = OnceLock::new();

/// While this lives a signal is kept, so that the card's program can be let go first.
#[derive(Debug)]
pub(super) struct Held(());

impl Held {
    pub(super) fn new() -> Self {
        FLAGS.get_or_init(Flags::install).is_free.store(false, Ordering::SeqCst);
        Self(())
    }

    /// Whether one came.
    pub(super) fn is_interrupted(&self) -> bool {
        FLAGS.get().is_some_and(|flags| flags.came.load(Ordering::SeqCst))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(flags) = FLAGS.get() {
            flags.is_free.store(true, Ordering::SeqCst);
        }
    }
}

impl Flags {
    fn install() -> Self {
        let (is_free, came) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let ignored = ignored();
        for signal in SIGNALS.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            // Where the system allows no handlers, a signal ends the program at once. A second one does
            // always: the first may wait for a probe that hangs.
            let _ = register_conditional_default(signal, Arc::clone(&is_free))
                .and_then(|_| register_conditional_default(signal, Arc::clone(&came)))
                .and_then(|_| register(signal, Arc::clone(&came)));
        }
        Self { is_free, came }
    }
}

/// The signals that whoever started this program has it ignore, as `nohup` does with SIGHUP: a bit
/// for each from 1 on, where the system tells of it (proc_pid_status(5)). They stay ignored.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
