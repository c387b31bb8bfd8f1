//! How many bytes may be under way on a path: slow start, additive increase, multiplicative
//! decrease on loss and on Congestion Experienced (RFC 5681, RFC 3168). A round trip that is well
//! above its smallest says that queues are filling: the window does not grow then, and shrinks by
//! as much as the round trip is too long (Kumar et al., *Swift*, SIGCOMM 2020, section 3.2).

use crate::time::Instant;

/// Where the window is never below: two frames, so that one loss can be noticed by the next.
const MIN_FRAMES: u32 = 2;
/// Where it starts (RFC 6928).
const INITIAL_FRAMES: u32 = 10;
/// Where it never needs to go above: more than any link window holds.
const MAX_FRAMES: u32 = 1024;

/// The congestion window of one path.
#[derive(Clone, Debug)]
pub(super) struct Congestion {
    frame: u32,
    window: u32,
    threshold: u32,
    /// Losses of frames sent before this are of an event that was answered already.
    recovery_start: Instant,
    /// As that, of round trips that are too long. To answer those may be to do next to nothing: a loss
    /// beside them is answered all the same.
    delay_start: Instant,
}

impl Congestion {
    /// For frames of so many bytes.
    pub(super) fn new(frame: usize) -> Self {
        let frame = frame as u32;
        Self {
            frame,
            window: INITIAL_FRAMES * frame,
            threshold: MAX_FRAMES * frame,
            recovery_start: Instant::ZERO,
            delay_start: Instant::ZERO,
        }
    }

    /// The window in bytes.
    pub(super) fn window(&self) -> u64 {
        self.window.into()
    }

    /// Whether another frame may be sent while so many bytes are under way.
    pub(super) fn allows(&self, in_flight: u64) -> bool {
        in_flight < self.window()
    }

    /// So many bytes arrived while `in_flight` (with them) were under way.
    pub(super) fn acknowledged(&mut self, bytes: u64, in_flight: u64, delayed: bool) {
        // A window that is not used is not proven.
        if delayed || in_flight * 2 < self.window() {
            return;
        }
        // No more arrives at once than the window ever is.
        let bytes = bytes as u32;
        let growth = if self.window < self.threshold {
            bytes
        } else {
            (u64::from(self.frame) * u64::from(bytes) / self.window()).max(1) as u32
        };
        self.window = (self.window + growth).min(MAX_FRAMES * self.frame);
    }

    /// A frame that was sent at `sent` was lost or marked; one decrease for each round trip.
    pub(super) fn congested(&mut self, now: Instant, sent: Instant) {
        if sent < self.recovery_start {
            return;
        }
        (self.recovery_start, self.delay_start) = (now, now);
        self.threshold = (self.window * 7 / 10).max(MIN_FRAMES * self.frame);
        self.window = self.threshold;
    }

    /// A frame that was sent at `sent` took `round_trip` nanoseconds, which is longer than `target`.
    pub(super) fn delayed(&mut self, now: Instant, sent: Instant, round_trip: u64, target: u64) {
        if sent < self.delay_start || round_trip <= target {
            return;
        }
        self.delay_start = now;
        let (trip, excess) = (u128::from(round_trip), u128::from(round_trip - target));
        // Four fifths of the excess, half of the window at most.
        let part = (u128::from(self.window) * excess * 4 / (trip * 5)) as u32;
        self.window = (self.window - part.min(self.window / 2)).max(MIN_FRAMES * self.frame);
        self.threshold = self.window;
    }

    /// Nothing came back for a whole timeout.
    pub(super) fn timed_out(&mut self, now: Instant) {
        self.congested(now, now);
        self.window = MIN_FRAMES * self.frame;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_only_when_used_and_shrinks_once_an_event() {
        let mut window = Congestion::new(1000);
        window.acknowledged(1000, 1000, false);
        assert!(!window.allows(10_000), "not used, not grown");
        window.acknowledged(5000, 10_000, false);
        assert!(window.allows(14_999));
        let (sent, now) = (Instant::from_nanos(5), Instant::from_nanos(9));
        window.congested(now, sent);
        assert!(!window.allows(10_500) && window.allows(10_499));
        window.congested(now, sent);
        assert!(window.allows(10_499), "same event");
        window.timed_out(Instant::from_nanos(20));
        assert!(!window.allows(2000) && window.allows(1999));
        window.acknowledged(5000, 2000, true);
        assert!(!window.allows(2000), "no growth while delayed");
    }

    #[test]
    fn a_loss_counts_beside_a_round_trip_that_is_hardly_too_long() {
        let mut window = Congestion::new(1000);
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        window.delayed(at(10), at(5), 4_000_100, 4_000_000);
        assert_eq!(window.window(), 10_000);
        window.congested(at(10), at(5));
        assert_eq!(window.window(), 7000);
        window.delayed(at(11), at(6), 8_000_000, 4_000_000);
        assert_eq!(window.window(), 7000, "the loss was the greater answer");
    }

    #[test]
    fn it_shrinks_by_as_much_as_the_round_trip_is_too_long() {
        let ms = |n: u64| n * 1_000_000;
        let mut window = Congestion::new(1000);
        let at = |n| Instant::from_nanos(ms(n));
        window.delayed(at(10), at(5), ms(4), ms(4));
        assert_eq!(window.window(), 10_000, "as long as it may be");
        window.delayed(at(10), at(5), ms(5), ms(4));
        assert_eq!(window.window(), 8400, "four fifths of a fifth");
        window.delayed(at(11), at(6), ms(5), ms(4));
        assert_eq!(window.window(), 8400, "once a round trip");
        window.delayed(at(30), at(20), ms(400), ms(4));
        assert_eq!(window.window(), 4200, "half at most");
        for n in 4..20 {
            window.delayed(at(10 * n), at(10 * n - 5), ms(400), ms(4));
        }
        assert_eq!(window.window(), 2000, "two frames at least");
    }
}
