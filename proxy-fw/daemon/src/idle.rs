//! How long a loop that finds nothing to do looks for more before it sleeps.

use proxy_core::time::Instant;
use std::time::Duration;

/// How long to look, by what came last. A wake takes longer than the round trip that it is for, and
/// a loop that looks takes a processor from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// After anything.
    pub usual: Duration,
    /// After a processor's read of a register, if that is longer. The processor stands still until it
    /// has the answer, and drivers seldom read only one.
    pub after_read: Duration,
}

/// How long a loop looks before it lets others have the processor between looks, who may be the ones
/// that it waits for. An answer by the network comes sooner, and a yield would make it late.
const ALONE: Duration = Duration::from_micros(10);

impl Default for Spin {
    fn default() -> Self {
        Self { usual: Duration::from_micros(50), after_read: Duration::from_micros(200) }
    }
}

impl Spin {
    /// Always so long.
    pub const fn always(usual: Duration) -> Self {
        Self { usual, after_read: Duration::ZERO }
    }
}

/// What a loop remembers between its turns.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    spin: Spin,
    /// Since when there is nothing to do.
    pub(crate) since: Option<Instant>,
    read: Option<Instant>,
}

impl Idle {
    /// For a loop that was just begun.
    pub const fn new(spin: Spin) -> Self {
        Self { spin, since: None, read: None }
    }

    /// There was something to do.
    pub fn end(&mut self) {
        self.since = None;
    }

    /// A processor reads a register.
    pub fn note_read(&mut self, now: Instant) {
        self.read = Some(now);
    }

    /// There is nothing to do. Whether to look for more, and not to sleep yet.
    pub fn looks(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.saturating_since(since) < self.spin.usual {
            return true;
        }
        let after_read = |read| now.saturating_since(read) < self.spin.after_read;
        self.read = self.read.filter(|read| after_read(*read));
        self.read.is_some()
    }

    /// To be called before a look: whoever waits for the processor gets it, if this loop has looked
    /// in vain for a while.
    pub fn let_others(&self, now: Instant) {
        if self.is_long(now) {
            std::thread::yield_now();
        }
    }

    fn is_long(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_since(since) >= ALONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    #[test]
    fn others_are_let_when_it_takes_longer_than_an_answer() {
        let mut idle = Idle::new(Spin::default());
        assert!(!idle.is_long(at(1000)));
        assert!(idle.looks(at(1000)) && !idle.is_long(at(1009)) && idle.is_long(at(1010)));
        idle.end();
        assert!(!idle.is_long(at(1020)));
    }

    #[test]
    fn it_is_looked_for_longer_after_a_read() {
        let mut idle = Idle::new(Spin::default());
        assert!(idle.looks(at(1000)) && idle.looks(at(1049)));
        assert!(!idle.looks(at(1050)) && !idle.looks(at(1060)), "until there is something again");
        idle.end();
        assert!(idle.looks(at(1070)) && !idle.looks(at(1120)));
        idle.end();
        idle.note_read(at(2000));
        assert!(idle.looks(at(2020)) && idle.looks(at(2199)) && !idle.looks(at(2200)));
        // What is no read does not begin it anew.
        idle.end();
        assert!(idle.looks(at(2201)) && !idle.looks(at(2251)));
        let mut never = Idle::new(Spin::always(Duration::ZERO));
        never.note_read(at(1));
        assert!(!never.looks(at(1)));
    }
}
