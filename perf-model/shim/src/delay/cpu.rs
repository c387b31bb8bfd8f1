//! The CPU waits.

use std::time::{Duration, Instant};

use perf_core::Nanos;

use crate::session::Session;

/// Waits as long, without giving up the CPU: a sleep is not so exact, and a driver that waits for
/// a GPU does not sleep either.
pub(crate) fn wait(session: &Session, time: Nanos) {
    if let Some(advance) = session.driver.advance_clock {
        // A driver whose clock is not the real one.
        // SAFETY: the function takes a number of nanoseconds.
        unsafe { advance(time.0) };
        return;
    }
    let start = Instant::now();
    let time = Duration::from_nanos(time.0);
    while start.elapsed() < time {
        core::hint::spin_loop();
    }
}
