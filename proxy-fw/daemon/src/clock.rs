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
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}

/// A number for this life of a process that no life before it had, as long as two do not start in
/// the same millisecond: milliseconds of the wall clock, never 0.
pub fn incarnation() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |d| d.as_millis() as u32);
    millis.max(1)
}
