//! Signals that end this program early, and waiting that they end.

use anyhow::{Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP end this program at its next step, with everything
/// cleaned up.
///
/// # Errors
///
/// When they cannot be caught.
pub fn catch_signals() -> Result<()> {
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

/// Ends this program at its next step, as a signal does.
pub fn interrupt() {
    INTERRUPTED.get_or_init(Arc::default).store(true, Ordering::Relaxed);
}

/// Whether this program is to end early.
pub fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// For the beginning of a step.
///
/// # Errors
///
/// When this program is to end early.
pub fn not_interrupted() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

/// Asks again until there is an answer.
///
/// # Errors
///
/// When the time is over, with `what` was waited for; when this program is to end early; and those
/// of `ask`.
pub fn wait_for<T>(
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
