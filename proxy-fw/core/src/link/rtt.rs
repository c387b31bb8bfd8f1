//! Round-trip time and retransmission timeout (RFC 6298, with the times of the configuration in
//! place of its one second).

use super::types::LinkConfig;
use crate::time::Instant;
use core::time::Duration;

/// Longer times are taken for this one, some 18 minutes in nanoseconds: no sum of a few overflows.
const LONGEST: u64 = 1 << 40;

/// The times that estimates are held to, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The round trip that is assumed before one was measured.
    pub(super) initial: u64,
    /// Shortest and longest retransmission timeout.
    pub(super) min: u64,
    max: u64,
    /// How long the peer may hold an acknowledgement back.
    ack_delay: u64,
}

impl Times {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let bound = |time| nanos(time).min(LONGEST);
        Self {
            initial: bound(config.initial_rtt),
            min: bound(config.min_rto),
            max: bound(config.max_rto),
            ack_delay: bound(config.ack_delay),
        }
    }
}

/// The estimate of one path, in nanoseconds: arithmetic with `Duration` is a good part of what an
/// acknowledgement costs.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    smoothed: u64,
    variation: u64,
    /// The smallest of this epoch and the last one: what was once and is no more is forgotten,
    /// since a path may become longer. [`NONE`] before any sample.
    minimum: u64,
    /// The smallest of this epoch, and its end.
    epoch: u64,
    epoch_end: Instant,
    latest: u64,
}

/// Nanoseconds of a duration; more than 584 years are as many.
#[cfg_attr(target_arch = "riscv32", inline(never))] // short code counts
pub(super) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

/// No sample is as long.
const NONE: u64 = 2 * LONGEST;

/// How long the smallest round trip is remembered, once or twice.
const MEMORY: Duration = Duration::from_secs(10);

impl Rtt {
    /// Before any sample: section 2.1 with `initial` in place of a third of a second.
    pub(super) fn new(initial: Duration) -> Self {
        let initial = nanos(initial).min(LONGEST);
        let variation = initial / 2;
        let (minimum, epoch, epoch_end) = (NONE, NONE, Instant::ZERO);
        Self { smoothed: initial, variation, minimum, epoch, epoch_end, latest: initial }
    }

    /// Takes a sample, in nanoseconds (sections 2.2 and 2.3: alpha 1/8, beta 1/4).
    pub(super) fn sample(&mut self, now: Instant, sample: u64) {
        let sample = sample.min(LONGEST);
        self.latest = sample;
        if self.minimum == NONE {
            (self.minimum, self.epoch, self.epoch_end) = (sample, sample, now + MEMORY);
            (self.smoothed, self.variation) = (sample, sample / 2);
            return;
        }
        self.epoch = self.epoch.min(sample);
        if self.epoch_end <= now {
            self.minimum = self.epoch;
            (self.epoch, self.epoch_end) = (sample, now + MEMORY);
        }
        self.minimum = self.minimum.min(sample);
        let off = self.smoothed.abs_diff(sample);
        self.variation = (self.variation * 3 + off) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
    }

    /// The timeout after `backoff` timeouts in a row (sections 2.3 to 2.5 and 5.5), in nanoseconds.
    pub(super) fn timeout(&self, times: &Times, backoff: u32) -> u64 {
        let Times { min, max, ack_delay, .. } = *times;
        let once = self.variation * 4 + self.smoothed + ack_delay;
        (once.clamp(min, max) << backoff.min(16)).min(max)
    }

    /// How long after a later frame's acknowledgement an earlier one counts as lost: 9/8 round
    /// trips (RFC 9002, section 6.1.2). Nanoseconds.
    pub(super) fn reordering(&self) -> u64 {
        let longest = self.smoothed.max(self.latest);
        longest + longest / 8
    }

    /// The smoothed round trip, in nanoseconds.
    pub(super) fn smoothed(&self) -> u64 {
        self.smoothed
    }

    /// The latest round trip, in nanoseconds.
    pub(super) fn latest(&self) -> u64 {
        self.latest
    }

    /// The longest round trip at which queues are not filling, in nanoseconds.
    pub(super) fn target(&self, times: &Times) -> u64 {
        self.minimum * 2 + times.initial
    }

    /// Whether the latest round trip is so much above the smallest that queues are filling.
    pub(super) fn is_delayed(&self, times: &Times) -> bool {
        self.latest > self.target(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TIMES: Times = Times { initial: MS, min: 5 * MS, max: 100 * MS, ack_delay: MS };

    #[test]
    fn the_first_sample_is_taken_whole_and_later_ones_smoothed() {
        let mut rtt = Rtt::new(Duration::from_nanos(50 * MS));
        rtt.sample(Instant::ZERO, 8 * MS);
        assert_eq!(rtt.smoothed(), 8 * MS);
        assert_eq!(rtt.timeout(&TIMES, 0), 25 * MS);
        rtt.sample(Instant::ZERO, 16 * MS);
        assert_eq!(rtt.smoothed(), 9 * MS);
    }

    #[test]
    fn back_off_doubles_up_to_the_bound() {
        let mut rtt = Rtt::new(Duration::from_nanos(MS));
        rtt.sample(Instant::ZERO, MS);
        let timeout = |backoff| rtt.timeout(&TIMES, backoff);
        assert_eq!(timeout(0), 5 * MS);
        assert_eq!(timeout(3), 40 * MS);
        assert_eq!(timeout(30), 100 * MS);
    }

    #[test]
    fn a_path_that_became_longer_is_not_delayed_for_ever() {
        let mut rtt = Rtt::new(Duration::from_nanos(MS));
        rtt.sample(Instant::ZERO, MS);
        for second in 0..30 {
            rtt.sample(Instant::ZERO + Duration::from_secs(second), 10 * MS);
            assert_eq!(rtt.is_delayed(&TIMES), second < 20, "after {second} s");
        }
    }
}
