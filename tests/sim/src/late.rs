//! Answers that are said later, of devices and root complexes with bad manners.

use proxy_core::time::Instant;
use std::collections::VecDeque;

/// How late a second answer may come, microseconds.
pub(crate) const DOUBLES_US: u64 = 20_000;

/// Answers that are held back, in the order of time, and what is remembered of each.
#[derive(Debug)]
pub(crate) struct Late<M>(VecDeque<(Instant, Vec<u8>, M)>);

impl<M> Late<M> {
    pub(crate) fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Holds one back, behind those of the same time.
    pub(crate) fn hold(&mut self, at: Instant, bytes: Vec<u8>, mark: M) {
        let place = self.0.partition_point(|other| other.0 <= at);
        self.0.insert(place, (at, bytes, mark));
    }

    /// The next one that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Vec<u8>, M)> {
        self.next_at().filter(|at| *at <= now)?;
        let (_, bytes, mark) = self.0.pop_front()?;
        Some((bytes, mark))
    }

    /// When the next one is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.0.front().map(|first| first.0)
    }

    /// When the last one is due.
    pub(crate) fn last_at(&self) -> Option<Instant> {
        self.0.back().map(|last| last.0)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
