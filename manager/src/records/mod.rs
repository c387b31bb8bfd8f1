//! The records: all of them in memory, and in the store before anybody is told.
//!
//! [`Tables`] is a snapshot: cheap to take, never changing. [`Records::change`] takes one, lets its
//! caller change a copy ([`Txn`]), writes the differences to the store in one durable batch and
//! only then shows the copy to everybody. What could not be written never was.

mod meta;
mod tables;
mod txn;

#[cfg(test)]
mod tests;

pub use meta::{Meta, next_generation};
pub use tables::Tables;
pub use txn::Txn;

use crate::store::{Store, StoreError};
use crate::types::{BindingId, Problem, ProblemCode};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use tokio::sync::{Notify, watch};

/// Events that are kept. The oldest go when more come.
pub const MAX_EVENTS: usize = 10_000;

/// Operations that have ended and are kept. The oldest go when more come.
pub const MAX_ENDED_OPERATIONS: usize = 1_000;

/// All records, and the one way to change them.
pub struct Records {
    store: Arc<dyn Store>,
    writer: Arc<tokio::sync::Mutex<()>>,
    current: RwLock<Arc<Tables>>,
    version: watch::Sender<u64>,
    touched: Mutex<BTreeSet<BindingId>>,
    touched_signal: Notify,
}

impl Records {
    /// Reads all records of a store and begins a new term, which is in the store when this
    /// returns. `path` is for error messages.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or written, or holds what no record looks like.
    pub fn open(store: Arc<dyn Store>, path: &Path) -> Result<Arc<Self>, StoreError> {
        let tables = tables::load(store.as_ref(), path)?;
        let mut txn = Txn::new(tables);
        txn.begin_term(path)?;
        let (tables, changes, _) = txn.finish();
        store.commit(&changes)?;
        Ok(Arc::new(Self {
            store,
            writer: Arc::default(),
            current: RwLock::new(Arc::new(tables)),
            version: watch::Sender::new(0),
            touched: Mutex::default(),
            touched_signal: Notify::new(),
        }))
    }

    /// The records as they are now.
    pub fn snapshot(&self) -> Arc<Tables> {
        self.current.read().expect("no one panics while holding it").clone()
    }

    /// Counts up whenever the records have changed.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Changes the records. `change` sees what is there and changes it; if it returns an error
    /// nothing is changed. When this returns, the change is durable. A caller that goes away
    /// meanwhile does not stop it.
    ///
    /// # Errors
    ///
    /// What `change` returned, or a [`ProblemCode::StoreFailed`].
    pub async fn change<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Txn) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        let guard = self.writer.clone().lock_owned().await;
        let mut txn = Txn::new(Tables::clone(&self.snapshot()));
        let result = change(&mut txn)?;
        let (tables, changes, touched) = txn.finish();
        if changes.is_empty() {
            return Ok(result);
        }
        let failed = |error: StoreError| {
            tracing::error!("{error}");
            Problem::new(ProblemCode::StoreFailed, error.to_string())
        };
        if self.store.is_in_memory() {
            self.store.commit(&changes).map_err(failed)?;
            self.publish(tables, touched);
            return Ok(result);
        }
        let records = self.clone();
        let commit = tokio::task::spawn_blocking(move || {
            let _guard = guard;
            records.store.commit(&changes)?;
            records.publish(tables, touched);
            Ok::<(), StoreError>(())
        });
        match commit.await {
            Ok(Ok(())) => Ok(result),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(Problem::new(ProblemCode::Stopping, "the manager is stopping")),
        }
    }

    /// As [`Records::change`], for a change that refuses nothing.
    ///
    /// # Errors
    ///
    /// A [`ProblemCode::StoreFailed`].
    pub async fn apply<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Txn) -> R,
    ) -> Result<R, Problem> {
        self.change(|txn| Ok(change(txn))).await
    }

    fn publish(&self, tables: Tables, touched: BTreeSet<BindingId>) {
        *self.current.write().expect("no one panics while holding it") = Arc::new(tables);
        self.version.send_modify(|version| *version += 1);
        self.touch(touched);
    }

    /// Says that these bindings are to be looked at.
    pub fn touch(&self, bindings: impl IntoIterator<Item = BindingId>) {
        let mut all = self.touched.lock().expect("no one panics while holding it");
        all.extend(bindings);
        if !all.is_empty() {
            self.touched_signal.notify_one();
        }
    }

    /// Waits for bindings that are to be looked at, and takes them.
    pub async fn touched(&self) -> BTreeSet<BindingId> {
        loop {
            let signal = self.touched_signal.notified();
            let taken =
                std::mem::take(&mut *self.touched.lock().expect("no one panics while holding it"));
            if !taken.is_empty() {
                return taken;
            }
            signal.await;
        }
    }
}
