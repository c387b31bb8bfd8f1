//! Group commit: changes that come while a write is on its way share the next write.
//!
//! A change stands on every change before it, also on those that are not durable yet. So a write
//! that fails takes with it what came after it: the records go back to what is durable.

use super::Tables;
use super::txn::Made;
use super::writes::{Touched, Writes};
use crate::store::Change;
use crate::types::Problem;
use std::sync::Arc;
use tokio::sync::watch;

/// Changes that are made and wait for their write, or for the one before. Whoever comes with a
/// further one waits.
pub const MAX_UNWRITTEN: usize = 1024;

/// What came of a write, when it is over.
pub(super) type Outcome = watch::Receiver<Option<Result<(), Problem>>>;

/// Changes that are written together.
#[derive(Default)]
pub(super) struct Batch {
    writes: Writes,
    pub(super) touched: Touched,
    outcome: watch::Sender<Option<Result<(), Problem>>>,
}

impl Batch {
    fn add(&mut self, writes: Writes, touched: Touched) {
        self.writes.extend(writes);
        self.touched.extend(touched);
    }

    /// What is to be written. Nobody who makes a change waits while it is put into bytes.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.writes).encode()
    }

    /// Tells everybody who waits for it.
    pub(super) fn end(self, outcome: Result<(), Problem>) {
        self.outcome.send_replace(Some(outcome));
    }
}

/// The changes that are not durable yet, in their order.
pub(super) struct Line {
    /// The records with all of these changes.
    pub(super) latest: Arc<Tables>,
    /// Those that wait for the write that is on its way.
    waiting: Option<Batch>,
    /// That write.
    writing: Option<Outcome>,
}

impl Line {
    /// Nothing waits, and this is durable.
    pub(super) fn new(durable: Arc<Tables>) -> Self {
        Self { latest: durable, waiting: None, writing: None }
    }

    /// The end of all that is made so far; nothing if it is all durable.
    pub(super) fn last_outcome(&self) -> Option<Outcome> {
        let waiting = self.waiting.as_ref().map(|batch| batch.outcome.subscribe());
        waiting.or(self.writing.clone())
    }

    /// Adds a change.
    pub(super) fn push(&mut self, made: Made) {
        self.latest = Arc::new(made.tables);
        self.waiting.get_or_insert_default().add(made.writes, made.touched);
    }

    /// Whether a write is on its way.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// What is written next, and the tables that it leads to. Nothing when nothing waits; then no
    /// write is on its way any more.
    pub(super) fn begin_write(&mut self) -> Option<(Batch, Arc<Tables>)> {
        let batch = self.waiting.take();
        self.writing = batch.as_ref().map(|batch| batch.outcome.subscribe());
        Some((batch?, self.latest.clone()))
    }

    /// Goes back to what is durable, since a write failed. Gives what stood on it.
    pub(super) fn fall_back(&mut self, durable: Arc<Tables>) -> Option<Batch> {
        self.latest = durable;
        self.writing = None;
        self.waiting.take()
    }
}

#[cfg(test)]
mod tests;
