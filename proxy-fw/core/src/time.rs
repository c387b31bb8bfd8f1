//! Time as an argument.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on the caller's monotonic clock, in nanoseconds from an origin that the caller chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// Never: later than every other point.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// From nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was, or nothing if it is in the future.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// So many nanoseconds later, or never.
    pub(crate) const fn after_nanos(self, nanos: u64) -> Instant {
        Self(self.0.saturating_add(nanos))
    }

    /// As [`saturating_since`](Self::saturating_since), in nanoseconds: numbers are quicker than
    /// a `Duration` where there is one for each record.
    pub(crate) const fn nanos_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// When something is due, or that nothing waits. Half of what an `Option<Instant>` takes, of which a
/// path has five, and quicker to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer(Instant);

impl Timer {
    /// Nothing waits.
    pub(crate) const STOPPED: Self = Self(Instant::FAR_FUTURE);

    /// Due then, whatever it was before.
    pub(crate) const fn start(&mut self, at: Instant) {
        self.0 = at;
    }

    /// Due then, if nothing waits for it yet.
    pub(crate) fn start_if_stopped(&mut self, at: Instant) {
        if !self.runs() {
            self.start(at);
        }
    }

    /// Due then at the latest.
    pub(crate) fn no_later(&mut self, at: Instant) {
        self.start(self.0.min(at));
    }

    /// Nothing waits any more.
    pub(crate) const fn stop(&mut self) {
        *self = Self::STOPPED;
    }

    /// Whether it was due; it is stopped then.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let due = self.is_due(now);
        if due {
            self.stop();
        }
        due
    }

    /// Whether it is due.
    pub(crate) fn is_due(self, now: Instant) -> bool {
        self.0 <= now && self.runs()
    }

    /// Whether anything waits.
    pub(crate) fn runs(self) -> bool {
        self != Self::STOPPED
    }

    /// When it is due; [`Instant::FAR_FUTURE`] where nothing waits.
    pub(crate) const fn at(self) -> Instant {
        self.0
    }
}

/// The first of some points. A chain of `Option`s does the same, at many times the instructions on
/// a small core, and this is asked at every turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Earliest(Instant);

impl Earliest {
    /// Of none.
    pub(crate) const NONE: Self = Self(Instant::FAR_FUTURE);

    /// One more, if it is one.
    pub(crate) fn or(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.0 = self.0.min(at);
        }
    }

    /// A timer's, if it runs.
    pub(crate) fn timer(&mut self, timer: Timer) {
        self.0 = self.0.min(timer.at());
    }

    /// The first of all; `None` where that is never.
    pub(crate) fn get(self) -> Option<Instant> {
        (self.0 != Instant::FAR_FUTURE).then_some(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(rhs.as_nanos() as u64))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, rhs: Instant) -> Duration {
        self.saturating_since(rhs)
    }
}
