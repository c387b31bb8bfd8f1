//! Round-trip time and retransmission timeout (RFC 6298, with the bounds of the configuration in
//! place of its one second).

use core::time::Duration;

/// The estimate of one path.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    smoothed: Duration,
    variation: Duration,
    minimum: Option<Duration>,
    latest: Duration,
}

impl Rtt {
    /// Before any sample: section 2.1 with `initial` in place of a third of a second.
    pub(super) fn new(initial: Duration) -> Self {
        Self { smoothed: initial, variation: initial / 2, minimum: None, latest: initial }
    }

    /// Takes a sample (sections 2.2 and 2.3: alpha 1/8, beta 1/4).
    pub(super) fn sample(&mut self, sample: Duration) {
        self.latest = sample;
        let Some(minimum) = self.minimum else {
            self.minimum = Some(sample);
            self.smoothed = sample;
            self.variation = sample / 2;
            return;
        };
        self.minimum = Some(minimum.min(sample));
        let off = self.smoothed.abs_diff(sample);
        self.variation = self.variation * 3 / 4 + off / 4;
        self.smoothed = self.smoothed * 7 / 8 + sample / 8;
    }

    /// The timeout after `backoff` timeouts in a row (sections 2.3 to 2.5 and 5.5). The peer may
    /// hold an acknowledgement back for `ack_delay`.
    pub(super) fn timeout(
        &self,
        ack_delay: Duration,
        min: Duration,
        max: Duration,
        backoff: u32,
    ) -> Duration {
        let once = (self.smoothed + 4 * self.variation + ack_delay).clamp(min, max);
        once.saturating_mul(1 << backoff.min(16)).min(max)
    }

    /// How long after a later frame's acknowledgement an earlier one counts as lost: 9/8 round
    /// trips (RFC 9002, section 6.1.2).
    pub(super) fn reordering(&self) -> Duration {
        self.smoothed.max(self.latest) * 9 / 8
    }

    /// The smoothed round trip.
    pub(super) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Whether the latest round trip is so much above the smallest that queues are filling.
    pub(super) fn is_delayed(&self, allowance: Duration) -> bool {
        self.minimum.is_some_and(|min| self.latest > min * 2 + allowance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_is_taken_whole_and_later_ones_smoothed() {
        let mut rtt = Rtt::new(50 * MS);
        rtt.sample(8 * MS);
        assert_eq!(rtt.smoothed(), 8 * MS);
        assert_eq!(rtt.timeout(Duration::ZERO, MS, 1000 * MS, 0), 24 * MS);
        rtt.sample(16 * MS);
        assert_eq!(rtt.smoothed(), 9 * MS);
    }

    #[test]
    fn back_off_doubles_up_to_the_bound() {
        let mut rtt = Rtt::new(MS);
        rtt.sample(MS);
        let timeout = |backoff| rtt.timeout(MS, 5 * MS, 100 * MS, backoff);
        assert_eq!(timeout(0), 5 * MS);
        assert_eq!(timeout(3), 40 * MS);
        assert_eq!(timeout(30), 100 * MS);
    }
}
