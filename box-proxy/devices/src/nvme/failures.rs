//! Failures that a host can bring about as often as it likes, and the log, which is the box's.

use std::fmt::Display;

/// Failures of one thing: ever fewer of them are told.
#[derive(Debug, Default)]
pub(super) struct Failures(u64);

impl Failures {
    /// One more: `what` failed.
    pub(super) fn add(&mut self, what: impl Display, error: impl Display) {
        self.0 += 1;
        if self.0.is_power_of_two() {
            tracing::warn!("NVMe {what} failed ({} so far): {error}", self.0);
        }
    }
}
