//! A timer that is due already is moved a little, since nothing stands still. A role whose timer
//! is always due and which never does anything would only be slow, and nobody would see it.

use crate::oracle::{Verdict, Violation};
use proxy_core::time::Instant;
use std::time::Duration;

/// By so much.
const STEP: Duration = Duration::from_nanos(100);
/// Timers in a row that lead to nothing.
const BOUND: u32 = 1000;

/// How often a node's timer was due at once, since it did something or had something to wait for.
#[derive(Default)]
pub(super) struct Spin {
    in_a_row: u32,
}

impl Spin {
    /// A frame, a TLP or a control message came to it or from it.
    pub(super) fn moved(&mut self) {
        self.in_a_row = 0;
    }

    /// When a timer that is wanted at that time runs out.
    pub(super) fn plan(&mut self, now: Instant, at: Instant) -> Verdict<Instant> {
        let soonest = now + STEP;
        self.in_a_row = if at <= soonest { self.in_a_row + 1 } else { 0 };
        if self.in_a_row > BOUND {
            let what = format!("{BOUND} timers in a row were due at once and led to nothing");
            return Err(Violation::new(0, what));
        }
        Ok(at.max(soonest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000);

    #[test]
    fn a_timer_that_is_always_due_is_noticed() {
        let mut spin = Spin::default();
        for _ in 0..BOUND {
            assert_eq!(spin.plan(NOW, Instant::ZERO), Ok(NOW + STEP));
        }
        assert_eq!(spin.plan(NOW, NOW + STEP / 2).unwrap_err().promise, 0);
    }

    #[test]
    fn who_does_something_or_waits_does_not_spin() {
        let mut spin = Spin::default();
        for round in 0..2 * BOUND {
            assert!(spin.plan(NOW, NOW).is_ok());
            if round % 2 == 0 {
                spin.moved();
            } else {
                assert_eq!(spin.plan(NOW, NOW + STEP * 2), Ok(NOW + STEP * 2));
            }
        }
    }
}
