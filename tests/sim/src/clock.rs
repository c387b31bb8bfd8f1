//! Virtual time: what will happen, in the order of its time; equal times in the order in which
//! they were planned. And the clocks of proxies, each of which has its own.

use crate::random::Random;
use proxy_core::limits::SYNTHESISED_COMPLETION;
use proxy_core::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What is planned.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    now: Instant,
    planned: u64,
    heap: BinaryHeap<Reverse<Entry<E>>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Instant,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> Agenda<E> {
    /// Nothing planned. Time begins a little after the origin, so that no stamp is 0.
    pub(crate) fn new() -> Self {
        Self { now: Instant::from_nanos(1_000_000), planned: 0, heap: BinaryHeap::new() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Plans something; what is in the past happens next.
    pub(crate) fn plan(&mut self, at: Instant, event: E) {
        self.planned += 1;
        let entry = Entry { at: at.max(self.now), number: self.planned, event };
        self.heap.push(Reverse(entry));
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.0.at)
    }

    /// The next thing that happens until `until`; the clock jumps to it.
    pub(crate) fn pop(&mut self, until: Instant) -> Option<E> {
        if self.next_at()? > until {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Nothing happens until then.
    pub(crate) fn jump(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }
}

/// How much faster or slower a proxy's clock may go, in millionths. Ethernet's oscillators are within
/// 100 (IEEE 802.3); an operating system that is given the time changes its clock by 500 at most.
const MOST_PPM: u64 = 500;

/// A rate of 1.
const ONE: u64 = 1 << 32;

/// Whether a proxy may have waited for an answer for as long as it does, by its own clock.
pub(crate) fn may_have_given_up(since: Instant, now: Instant) -> bool {
    now.saturating_since(since) >= at_least(SYNTHESISED_COMPLETION)
}

/// What a proxy says is so long, by the world's clock at the least.
const fn at_least(by_a_proxy: Duration) -> Duration {
    let nanos = by_a_proxy.as_nanos() as u64;
    Duration::from_nanos(nanos.saturating_sub(nanos * MOST_PPM / (1_000_000 + MOST_PPM) + 1))
}

/// A proxy's own clock in one of its lives: it knows no other time. Each begins somewhere, and is a little
/// faster or slower than the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnClock {
    /// When it was at `origin`, by the world's clock.
    began: Instant,
    origin: u64,
    /// How fast it goes, of [`ONE`].
    rate: u64,
}

impl Default for OwnClock {
    /// The world's own.
    fn default() -> Self {
        Self { began: Instant::ZERO, origin: 0, rate: ONE }
    }
}

impl OwnClock {
    /// That of a life that begins now. Some begin with their clock, as a card does.
    pub(crate) fn draw(random: &mut Random, now: Instant) -> Self {
        /// Some hours, in nanoseconds.
        const UP: u64 = 1 << 44;
        let origin = if random.chance(250_000) { 1 } else { random.between(1, UP) };
        let most = ONE * MOST_PPM / 1_000_000;
        Self { began: now, origin, rate: random.between(ONE - most, ONE + most) }
    }

    /// What it shows.
    pub(crate) fn at(&self, now: Instant) -> Instant {
        let since = u128::from(now.as_nanos() - self.began.as_nanos());
        Instant::from_nanos(self.origin + ((since * u128::from(self.rate)) >> 32) as u64)
    }

    /// When it shows that, or more, for the first time.
    pub(crate) fn when(&self, shown: Instant) -> Instant {
        if shown == Instant::FAR_FUTURE {
            return shown;
        }
        let since = u128::from(shown.as_nanos().saturating_sub(self.origin)) << 32;
        self.began + Duration::from_nanos(since.div_ceil(self.rate.into()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Drawer;

    #[test]
    fn a_timer_of_a_clock_runs_out_when_the_clock_shows_that_and_not_before() {
        let mut random = Random::stream(1, Drawer::Clock, 0);
        let began = Instant::from_nanos(77_000_000);
        for _ in 0..1000 {
            let clock = OwnClock::draw(&mut random, began);
            for after in [0, 1, 999, 1_000_000, 2_000_000_000, 86_400_000_000_000] {
                let shown = clock.at(began) + Duration::from_nanos(after);
                let when = clock.when(shown);
                assert!(clock.at(when) >= shown, "{clock:?} {after}");
                if when > began {
                    let before = Instant::from_nanos(when.as_nanos() - 1);
                    assert!(clock.at(before) < shown, "{clock:?} {after}");
                }
                let passed = when.saturating_since(began);
                assert!(passed >= at_least(Duration::from_nanos(after)), "{clock:?} {after}");
            }
            assert_eq!(clock.when(Instant::FAR_FUTURE), Instant::FAR_FUTURE);
        }
    }

    #[test]
    fn things_happen_in_the_order_of_their_times_and_then_of_planning() {
        let at = |n: u64| Instant::from_nanos(2_000_000 + n);
        let mut agenda = Agenda::new();
        for (time, event) in [(5, 'd'), (1, 'a'), (3, 'b'), (3, 'c')] {
            agenda.plan(at(time), event);
        }
        assert_eq!(agenda.pop(at(0)), None);
        let order: String = std::iter::from_fn(|| agenda.pop(at(9))).collect();
        assert_eq!(order, "abcd");
        assert_eq!(agenda.now(), at(5));
        agenda.plan(at(0), 'e');
        assert_eq!(agenda.pop(at(9)), Some('e'));
        assert_eq!(agenda.now(), at(5), "time does not go back");
    }
}
