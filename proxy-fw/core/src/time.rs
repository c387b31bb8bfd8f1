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
