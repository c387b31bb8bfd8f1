//! A store whose writes are timed.

use super::Metrics;
use crate::store::{Change, Record, Store, StoreError, Table};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Another store, with its writes timed.
pub struct Metered<S> {
    store: S,
    metrics: Arc<Metrics>,
}

impl<S: Store> Metered<S> {
    /// Around a store.
    pub fn new(store: S, metrics: Arc<Metrics>) -> Self {
        Self { store, metrics }
    }
}

impl<S: Store> Store for Metered<S> {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        self.store.read(table)
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        let begun = Instant::now();
        let result = self.store.commit(changes);
        match result {
            Ok(()) => self.metrics.commits.observe(begun.elapsed().as_secs_f64()),
            Err(_) => drop(self.metrics.commit_failures.inc()),
        }
        result
    }

    fn is_in_memory(&self) -> bool {
        self.store.is_in_memory()
    }

    fn copy(&self, to: &Path) -> Result<(), StoreError> {
        self.store.copy(to)
    }
}
