//! Waiting for what may stand still, which holds up nobody: a UART or a timer that has no clock.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use proxy_core::time::Instant;

/// How often a UART is asked for room for one byte. A byte takes less than a millisecond at any bit rate in
/// use.
const POLLS: u32 = 1_000_000;

/// How long a UART is waited for. One that stands still is waited for once, whoever has something to say,
/// and then only looked at, until it goes on.
#[derive(Debug, Default)]
pub struct Patience {
    is_over: AtomicBool,
}

impl Patience {
    /// It goes, as far as is known.
    pub const fn new() -> Self {
        Self { is_over: AtomicBool::new(false) }
    }

    /// Whether there comes to be room, which is asked.
    pub fn has_room(&self, asked: impl Fn() -> bool) -> bool {
        let polls = if self.is_over.load(Ordering::Relaxed) { 1 } else { POLLS };
        let has_room = (0..polls).any(|_| asked());
        self.is_over.store(!has_room, Ordering::Relaxed);
        has_room
    }
}

/// Waits for so many nanoseconds at least by this clock. To read one takes a nanosecond at least: after as
/// many readings the time is over, or the clock stands still.
pub fn wait_by(now: impl Fn() -> Instant, nanoseconds: u32) {
    let until = now() + Duration::from_nanos(nanoseconds.into());
    let _ = (0..nanoseconds).any(|_| now() >= until);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn what_stands_still_is_waited_for_once() {
        let (patience, asked, goes) = (Patience::new(), Cell::new(0), Cell::new(false));
        let ask = || {
            asked.set(asked.get() + 1);
            goes.get()
        };
        assert!(!patience.has_room(ask));
        assert_eq!(asked.take(), POLLS);
        assert!(!patience.has_room(ask) && !patience.has_room(ask));
        assert_eq!(asked.take(), 2);
        goes.set(true);
        assert!(patience.has_room(ask));
        goes.set(false);
        assert!(!patience.has_room(ask));
        assert_eq!(asked.take(), 1 + POLLS, "it went on in between");
    }

    #[test]
    fn a_clock_is_waited_for_as_long_as_it_goes() {
        // A reading takes 7 ns, and it ticks every 100.
        let read = Cell::new(0);
        let now = || {
            read.set(read.get() + 7);
            Instant::from_nanos(read.get() / 100 * 100)
        };
        wait_by(now, 10_000);
        assert!((10_000..10_200).contains(&read.get()), "{}", read.get());
        let stands = Cell::new(0);
        let now = || {
            stands.set(stands.get() + 1);
            Instant::from_nanos(5)
        };
        wait_by(now, 1_000_000);
        assert_eq!(stands.get(), 1_000_001);
    }
}
