//! How many bytes may be under way on a path: slow start, an increase that quickens, multiplicative
//! decrease on loss and on Congestion Experienced (RFC 5681, RFC 3168). A round trip that is well
//! above its smallest says that queues are filling: the window does not grow then, and shrinks by
//! as much as the round trip is too long (Kumar et al., *Swift*, SIGCOMM 2020, section 3.2).
//!
//! Links that share a cable have windows like their weights, since each grows by its own weight and all
//! shrink by the same part; none falls below what its guaranteed rate needs. Where many share one there
//! is room for a few small frames of each: frames are as small then as windows are.

use crate::time::Instant;

/// The frame that everything here is measured in, in bytes: larger ones are sent where there is room for
/// several.
const SMALL: u32 = 1500;
/// Where the window is never below: two frames, so that one loss can be noticed by the next.
const MIN_FRAMES: u32 = 2;
/// Where it starts (RFC 6928).
const INITIAL_FRAMES: u32 = 10;
/// Where it never needs to go above: more of the largest frames than any link window holds.
const MAX_FRAMES: u32 = 1024;
/// Frames that a window is for, where frames were lost or marked. A queue marks what comes while it is
/// above its mark, its own bytes not counted: who sends few large frames would seldom hear of it, and
/// take the room of those who send many small ones.
const FRAMES: u32 = 16;
/// What the window grows by in the first round trip after congestion, for each unit of weight; in each
/// later one by a part of all that it grew since, too.
const STEP: u32 = SMALL;
const QUICKENS: u32 = 8;
/// The part of the window that it grows by where that is little for its weight, at most: it shrinks by
/// about as much. The smaller the window of a unit is, the more it grows by, so that all get alike.
const MOST: u64 = 3;

/// A round trip that is longer is taken for one of so many nanoseconds, a minute or so.
const LONGEST: u64 = 1 << 36;
/// What the room for a window is thought to become more by in a round trip, as a part of it.
const WIDENS: u32 = 32;

/// The congestion window of one path.
#[derive(Clone, Debug)]
pub(super) struct Congestion {
    frame: u32,
    window: u32,
    threshold: u32,
    /// What it was when a frame was last lost or marked, which is the room that there is for it, and more
    /// with each round trip since.
    room: u32,
    /// What it grew by since it last shrank.
    grown: u32,
    /// What it grows by in a round trip at least.
    step: u32,
    /// What it never shrinks below as long as anything comes back.
    floor: u32,
    /// Nothing came back since a timeout.
    silent: bool,
    /// Losses of frames sent before this are of an event that was answered already.
    recovery_start: Instant,
    /// As that, of round trips that are too long. To answer those may be to do next to nothing: a loss
    /// beside them is answered all the same.
    delay_start: Instant,
}

impl Congestion {
    /// For frames of so many bytes.
    pub(super) fn new(frame: usize) -> Self {
        let mut fresh = Self {
            frame: frame as u32,
            window: 0,
            threshold: 0,
            room: 0,
            grown: 0,
            step: STEP,
            floor: 0,
            silent: false,
            recovery_start: Instant::ZERO,
            delay_start: Instant::ZERO,
        };
        (fresh.window, fresh.floor) = (fresh.least(INITIAL_FRAMES), fresh.least(MIN_FRAMES));
        (fresh.threshold, fresh.room) = (fresh.most(), fresh.most());
        fresh
    }

    /// The window in bytes.
    pub(super) fn window(&self) -> u64 {
        self.window.into()
    }

    /// Bytes of a frame that leave room for others in the window.
    pub(super) fn frame(&self) -> usize {
        let room = self.window.max(self.room);
        (room / FRAMES).clamp(self.least(1), self.frame) as usize
    }

    /// Whether another frame may be sent while so many bytes are under way.
    pub(super) fn allows(&self, in_flight: u64) -> bool {
        in_flight < self.window()
    }

    /// Another round trip is over. Those who sent by it have so much weight together, and need so many bytes
    /// under way for what they are guaranteed.
    pub(super) fn share(&mut self, weight: u32, guaranteed: u64) {
        if self.window >= self.threshold {
            let (step, window) = (u64::from(STEP * weight), self.window());
            self.step = (step * window / (window + MOST * step)) as u32;
        }
        self.room = (self.room + self.room / WIDENS).min(self.most());
        self.floor = self.least(MIN_FRAMES).max(guaranteed.min(self.most().into()) as u32);
        self.window = self.window.max(self.floor);
    }

    /// Where the window never needs to go above.
    fn most(&self) -> u32 {
        MAX_FRAMES * self.frame
    }

    /// So many small frames.
    fn least(&self, frames: u32) -> u32 {
        frames * self.frame.min(SMALL)
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
            let whole = self.step + self.grown / QUICKENS;
            let growth = (u64::from(whole) * u64::from(bytes) / self.window()).max(1) as u32;
            self.grown = (self.grown + growth).min(self.window);
            growth
        };
        self.window = (self.window + growth).min(self.most());
    }

    /// A frame that was sent at `sent` was lost or marked; one decrease for each round trip.
    pub(super) fn congested(&mut self, now: Instant, sent: Instant) {
        if sent < self.recovery_start {
            return;
        }
        (self.recovery_start, self.delay_start) = (now, now);
        self.threshold = (self.window * 7 / 10).max(self.floor);
        (self.window, self.room, self.grown) = (self.threshold, self.threshold, 0);
    }

    /// A frame that was sent at `sent` took `round_trip` nanoseconds, which is longer than `target`.
    pub(super) fn delayed(&mut self, now: Instant, sent: Instant, round_trip: u64, target: u64) {
        if sent < self.delay_start || round_trip <= target {
            return;
        }
        self.delay_start = now;
        // In units in which a window times a time fits its type.
        let units = |nanos: u64| nanos.min(LONGEST) >> 10;
        let (trip, excess) = (units(round_trip).max(1), units(round_trip - target));
        // Four fifths of the excess, half of the window at most.
        let part = self.window() * excess * 4 / (trip * 5);
        let part = part.min(self.window() / 2) as u32;
        self.window = (self.window - part).max(self.floor);
        self.grown = self.grown.saturating_sub(part);
        self.threshold = self.window;
    }

    /// Nothing came back for a whole timeout. The next ones say nothing new of what there is room for
    /// (RFC 5681, section 3.1).
    pub(super) fn timed_out(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.silent, true) {
            self.congested(now, now);
        }
        self.window = self.least(MIN_FRAMES);
        // It was for a larger one.
        self.step = self.step.min(self.window / MOST as u32);
    }

    /// Something comes back after timeouts. All that left until now had its answer by them.
    pub(super) fn heard_again(&mut self, now: Instant) {
        self.delay_start = now;
        if core::mem::take(&mut self.silent) {
            self.recovery_start = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many round trips in which all of the window arrives.
    fn grows(window: &mut Congestion, round_trips: u32) {
        for _ in 0..round_trips {
            let whole = window.window();
            window.acknowledged(whole, whole, false);
        }
    }

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
    fn it_grows_by_its_weight_and_the_quicker_the_longer_nothing_is_lost() {
        let after = |weight, round_trips| {
            let mut window = Congestion::new(9000);
            window.share(1, 60_000);
            window.congested(Instant::from_nanos(9), Instant::from_nanos(5));
            window.share(weight, 0);
            grows(&mut window, round_trips);
            window.window() - 60_000
        };
        assert_eq!(after(1, 1), 1500 * 60_000 / 64_500);
        assert_eq!(after(8, 1), 12_000 * 60_000 / 96_000);
        assert!((15_000..20_000).contains(&after(100, 1)), "a third at most");
        assert_eq!(after(1, 2), 2 * after(1, 1) + after(1, 1) / 8);
        assert!(after(1, 30) > 200_000, "{}", after(1, 30));
        let mut window = Congestion::new(9000);
        grows(&mut window, 30);
        window.congested(Instant::from_nanos(9), Instant::from_nanos(5));
        grows(&mut window, 200);
        assert_eq!(window.window(), 1024 * 9000, "and not for ever");
        window.congested(Instant::from_nanos(90), Instant::from_nanos(50));
        let before = window.window();
        grows(&mut window, 1);
        assert!((1400..=1500).contains(&(window.window() - before)), "it begins anew");
    }

    #[test]
    fn frames_are_small_where_the_window_has_no_room_for_large_ones() {
        let mut window = Congestion::new(9000);
        assert_eq!((window.window(), window.frame()), (15_000, 9000), "nothing is known yet");
        let at = |n: u64| Instant::from_nanos(n * 1000);
        window.share(1, 60_000);
        window.congested(at(2), at(1));
        assert_eq!((window.window(), window.frame()), (60_000, 3750));
        window.share(1, 0);
        (2..20).for_each(|n| window.congested(at(2 * n), at(2 * n - 1)));
        assert_eq!((window.window(), window.frame()), (3000, 1500));
        window.share(1, 200_000);
        assert_eq!((window.window(), window.frame()), (200_000, 9000));
        window.share(1, 0);
        window.timed_out(at(90));
        assert_eq!((window.window(), window.frame()), (3000, 8750));
        (0..10).for_each(|_| window.share(1, 0));
        assert_eq!((window.window(), window.frame()), (3000, 9000), "nothing was lost since");
        assert_eq!(Congestion::new(1200).frame(), 1200);
    }

    #[test]
    fn timeouts_in_a_row_are_one_event() {
        let at = |n: u64| Instant::from_nanos(n * 1000);
        let mut window = Congestion::new(9000);
        window.share(1, 100_000);
        window.share(1, 0);
        (1..4).for_each(|n| window.timed_out(at(n)));
        assert_eq!((window.window(), window.threshold, window.room), (3000, 70_000, 70_000));
        window.heard_again(at(5));
        window.delayed(at(5), at(4), 9000, 1000);
        window.congested(at(5), at(4));
        assert_eq!(window.threshold, 70_000, "it left before something came back");
        grows(&mut window, 5);
        assert!(window.window() > 70_000, "{}", window.window());
        let before = window.window;
        window.timed_out(at(6));
        assert_eq!(window.threshold, before * 7 / 10, "another event");
    }

    #[test]
    fn what_is_guaranteed_has_room_whatever_is_lost() {
        let mut window = Congestion::new(9000);
        window.share(1, 40_000);
        let at = |n: u64| Instant::from_nanos(n * 1000);
        (1..20).for_each(|n| window.congested(at(2 * n), at(2 * n - 1)));
        assert_eq!(window.window(), 40_000);
        window.delayed(at(100), at(99), 900_000, 1000);
        assert_eq!(window.window(), 40_000);
        window.timed_out(at(200));
        assert_eq!(window.window(), 3000, "nothing comes back");
        window.share(1, 0);
        grows(&mut window, 1);
        assert!(window.window() < 40_000);
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
        assert_eq!(window.window() / 10, 840, "four fifths of a fifth");
        window.delayed(at(11), at(6), ms(5), ms(4));
        assert_eq!(window.window() / 10, 840, "once a round trip");
        window.delayed(at(30), at(20), ms(400), ms(4));
        assert_eq!(window.window() / 10, 420, "half at most");
        for n in 4..20 {
            window.delayed(at(10 * n), at(10 * n - 5), ms(400), ms(4));
        }
        assert_eq!(window.window(), 2000, "two frames at least");
    }
}
