//! The monotonic clock that the core's time is read from.

use proxy_core::time::Instant;

/// Nanoseconds since the process made it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Clock {
    /// The time now.
    pub fn now(&self) -> Instant {
        self.at(std::time::Instant::now())
    }

    /// A time of the standard library's clock by this one; zero if it was before the origin.
    pub fn at(&self, time: std::time::Instant) -> Instant {
        Instant::from_nanos(time.saturating_duration_since(self.origin).as_nanos() as u64)
    }
}

/// A number for this life of a process that no life before it had, as long as two do not start in
/// the same millisecond: milliseconds of the wall clock, never 0.
pub fn incarnation() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |d| d.as_millis() as u32);
    millis.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_the_origin_are_zero_and_later_ones_keep_their_distance() {
        let clock = Clock::default();
        let origin = clock.origin;
        assert_eq!(clock.at(origin + Duration::from_nanos(5)), Instant::from_nanos(5));
        if let Some(before) = origin.checked_sub(Duration::from_nanos(1)) {
            assert_eq!(clock.at(before), Instant::ZERO);
        }
    }
}
