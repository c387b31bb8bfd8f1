//! How long no root complex has been there.

use proxy_core::time::Instant;
use std::time::Duration;

/// One that comes back sooner was never away, as far as the manager hears: whoever connects and
/// leaves again and again fills nobody's log.
const SETTLED: Duration = Duration::from_secs(1);

/// Since when there is none.
#[derive(Debug, Default)]
pub(super) struct Absence(Option<Instant>);

impl Absence {
    /// Whether there is none, and has been none for long enough to be told. To be called in every
    /// turn.
    pub(super) fn lasts(&mut self, now: Instant, present: bool) -> bool {
        if present {
            self.0 = None;
            return false;
        }
        now.saturating_since(*self.0.get_or_insert(now)) >= SETTLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_that_lasts_counts() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut absence = Absence::default();
        for millis in (0..5000).step_by(2) {
            assert!(!absence.lasts(at(millis), millis % 900 == 0), "it flaps");
        }
        assert!(!absence.lasts(at(5000), true));
        assert!(!absence.lasts(at(5001), false));
        assert!(!absence.lasts(at(6000), false));
        assert!(absence.lasts(at(6001), false));
        assert!(absence.lasts(at(7000), false));
    }
}
