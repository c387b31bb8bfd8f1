//! How well something is, from samples, with hysteresis: it takes several bad samples in a row to get
//! worse and a time of only good ones to get better, so that what is now good and now bad does not
//! change its state each time.
//!
//! ```text
//!            bad x suspect_after         bad x failed_after
//! healthy ─────────────────────▶ suspect ─────────────────▶ failed
//!    ▲  ▲                           │                        │ good x recover_after
//!    │  └───────────────────────────┘                        ▼
//!    │            good x recover_after                    recovering
//!    └───────────────────────────────────────────────────────┘ │ bad: failed again
//!                 good x recover_after
//! ```

use crate::types::HealthState;
use serde::Deserialize;

/// How many samples in a row it takes, each at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Bad ones until something healthy is suspect.
    pub suspect_after: u32,
    /// Bad ones until something suspect has failed.
    pub failed_after: u32,
    /// Good ones until it is better by one state.
    pub recover_after: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { suspect_after: 2, failed_after: 3, recover_after: 6 }
    }
}

/// One thing's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    state: HealthState,
    /// Samples of the same kind in a row.
    row: u32,
    /// Which kind.
    good: bool,
}

impl Machine {
    /// As it was recorded.
    pub fn new(state: HealthState) -> Self {
        Self { state, row: 0, good: true }
    }

    /// How well it is.
    pub fn state(self) -> HealthState {
        self.state
    }

    /// Takes in a sample. The state that it comes to with this, if that is another.
    pub fn sample(&mut self, good: bool, thresholds: Thresholds) -> Option<HealthState> {
        use HealthState::{Failed, Healthy, Recovering, Suspect};
        self.row = if good == self.good { self.row.saturating_add(1) } else { 1 };
        self.good = good;
        let (next, after) = match (self.state, good) {
            (Healthy, true) | (Failed, false) => return None,
            (Healthy, false) => (Suspect, thresholds.suspect_after),
            (Suspect, false) => (Failed, thresholds.failed_after),
            (Suspect | Recovering, true) => (Healthy, thresholds.recover_after),
            (Failed, true) => (Recovering, thresholds.recover_after),
            (Recovering, false) => (Failed, 1),
        };
        if self.row < after.max(1) {
            return None;
        }
        *self = Self::new(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HealthState::{Failed, Healthy, Recovering, Suspect};
    use proptest::prelude::*;

    const THRESHOLDS: Thresholds =
        Thresholds { suspect_after: 2, failed_after: 3, recover_after: 4 };

    /// Each state with so many samples of one kind: where it comes to, and by which sample.
    #[test]
    fn every_state_and_kind() {
        let table = [
            (Healthy, true, None),
            (Healthy, false, Some((2, Suspect))),
            (Suspect, true, Some((4, Healthy))),
            (Suspect, false, Some((3, Failed))),
            (Failed, true, Some((4, Recovering))),
            (Failed, false, None),
            (Recovering, true, Some((4, Healthy))),
            (Recovering, false, Some((1, Failed))),
        ];
        for (state, good, expected) in table {
            let mut machine = Machine::new(state);
            let first = (1..=20).find_map(|n| Some((n, machine.sample(good, THRESHOLDS)?)));
            assert_eq!(first, expected, "{state} with {good}");
        }
    }

    #[test]
    fn one_of_the_other_kind_begins_the_row_anew() {
        let mut machine = Machine::new(Suspect);
        for good in [false, false, true, false, false, true, true, true] {
            assert_eq!(machine.sample(good, THRESHOLDS), None, "{good}");
        }
        assert_eq!(machine.sample(true, THRESHOLDS), Some(Healthy));
    }

    proptest! {
        /// Whatever the samples are, something that has come to be failed, or has left it, takes its
        /// whole row before it changes again; so it cannot change more often than this bound.
        #[test]
        fn it_cannot_flap_faster_than_its_bounds(samples in prop::collection::vec(any::<bool>(), 0..400)) {
            let mut machine = Machine::new(Healthy);
            let mut changes = Vec::new();
            for (index, good) in samples.into_iter().enumerate() {
                let before = machine.state();
                if let Some(after) = machine.sample(good, THRESHOLDS) {
                    prop_assert_ne!(before, after);
                    changes.push((index as u32, after));
                }
            }
            for pair in changes.windows(2) {
                let [(then, from), (now, to)] = pair else { unreachable!() };
                let least = match (from, to) {
                    (Suspect, Failed) => THRESHOLDS.failed_after,
                    (Recovering, Failed) => 1,
                    (_, Suspect) => THRESHOLDS.suspect_after,
                    _ => THRESHOLDS.recover_after,
                };
                prop_assert!(now - then >= least, "{from} to {to} after {} samples", now - then);
            }
            // From one failure to the next it is at least a recovery's row.
            let failures: Vec<u32> =
                changes.iter().filter(|(_, to)| *to == Failed).map(|(at, _)| *at).collect();
            for pair in failures.windows(2) {
                prop_assert!(pair[1] - pair[0] > THRESHOLDS.recover_after);
            }
        }
    }
}
