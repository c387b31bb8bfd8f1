//! The records: all of them in memory, and in the store before anybody is told.
//!
//! [`Tables`] is a snapshot: cheap to take, never changing. [`Records::change`] takes one, lets its
//! caller change a copy ([`Txn`]), writes the differences to the store in one durable batch and
//! only then shows the copy to everybody. Changes that come while a write is on its way share the
//! next one. What could not be written never was.

mod ends;
mod holds;
mod inspect;
mod kept;
mod keys;
mod line;
mod load;
mod meta;
pub mod pool;
mod retention;
mod rings;
mod sources;
mod stored;
mod tables;
mod topics;
mod txn;
mod wall;
mod writes;

#[cfg(test)]
pub(crate) mod test_device;
#[cfg(test)]
mod tests;

pub use inspect::{Damage, Inspection, inspect};
pub use kept::Kept;
pub use keys::{KEEP_KEYS_MS, KeyRecord, MAX_JOINED, MAX_KEYS, digest};
pub use line::MAX_UNWRITTEN;
pub use meta::{Meta, check, generation_after, in_place_of, next_generation};
pub use retention::{MAX_STORIES, Retention};
pub use sources::Sources;
pub use tables::Tables;
pub use topics::{Topic, Watch};
pub use txn::Txn;
pub use wall::WallClock;

use crate::store::{Store, StoreError};
use crate::types::{BindingId, Problem, ProblemCode, Timestamp};
use line::{Batch, Line, Outcome};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::{Notify, Semaphore, watch};
use topics::Topics;
use writes::Touched;

/// Events that are kept whatever they are about. The oldest go when more come, but for those of the
/// stories of operations that are kept.
pub const MAX_EVENTS: usize = 10_000;

/// Models of devices of which it is kept how often they failed. For a further one the one goes that
/// failed least.
pub const MAX_MODELS: usize = 10_000;

/// Erasures that have ended and are kept. The oldest go when more come, but none that keeps its
/// slot from being lent.
pub const MAX_ENDED_ERASURES: usize = 100_000;

/// That the store cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Since when: the first write that failed.
    pub since: Timestamp,
    /// Why the last one failed.
    pub reason: String,
}

/// All records, and the one way to change them.
pub struct Records {
    store: Arc<dyn Store>,
    path: PathBuf,
    wall: WallClock,
    line: Mutex<Line>,
    room: Semaphore,
    current: RwLock<Arc<Tables>>,
    topics: Arc<Topics>,
    trouble: watch::Sender<Option<Trouble>>,
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
        Self::open_with(store, path, Retention::default())
    }

    /// As [`Records::open`], with another clock than the computer's.
    ///
    /// # Errors
    ///
    /// As [`Records::open`].
    pub fn open_by(
        wall: WallClock,
        store: Arc<dyn Store>,
        path: &Path,
    ) -> Result<Arc<Self>, StoreError> {
        Self::open_all(store, path, Retention::default(), wall)
    }

    /// As [`Records::open`], with what is over kept so long.
    ///
    /// # Errors
    ///
    /// As [`Records::open`].
    pub fn open_with(
        store: Arc<dyn Store>,
        path: &Path,
        retention: Retention,
    ) -> Result<Arc<Self>, StoreError> {
        Self::open_all(store, path, retention, WallClock::default())
    }

    fn open_all(
        store: Arc<dyn Store>,
        path: &Path,
        retention: Retention,
        wall: WallClock,
    ) -> Result<Arc<Self>, StoreError> {
        let mut tables = load::load(store.as_ref(), path)?;
        tables.retention = retention;
        let mut txn = Txn::at(wall.now(), tables);
        txn.begin_term(path)?;
        let (tables, changes, _) = txn.finish();
        store.commit(&changes)?;
        let tables = Arc::new(tables);
        Ok(Arc::new(Self {
            store,
            path: path.to_owned(),
            wall,
            line: Mutex::new(Line::new(tables.clone())),
            room: Semaphore::new(MAX_UNWRITTEN),
            current: RwLock::new(tables),
            topics: Arc::default(),
            trouble: watch::Sender::new(None),
            touched: Mutex::default(),
            touched_signal: Notify::new(),
        }))
    }

    /// The time of day, as everything in the records has it.
    pub fn wall(&self) -> Timestamp {
        self.wall.now()
    }

    /// The records as they are now.
    pub fn snapshot(&self) -> Arc<Tables> {
        self.current.read().expect("no one panics while holding it").clone()
    }

    /// Says when something of a topic has changed.
    pub fn watch(&self, topic: Topic) -> Watch {
        self.topics.watch(topic)
    }

    /// Whether the store can be written, as the last write showed.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble.borrow().clone()
    }

    /// Says when that changes.
    pub fn watch_trouble(&self) -> watch::Receiver<Option<Trouble>> {
        self.trouble.subscribe()
    }

    /// Changes the records. `change` sees what is there and changes it; if it returns an error
    /// nothing is changed. When this returns, the change is durable, and so is what it stands on. A
    /// caller that goes away meanwhile does not stop it.
    ///
    /// # Errors
    ///
    /// What `change` returned, or a [`ProblemCode::StoreFailed`].
    pub async fn change<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Txn) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        let _room = self.room.acquire().await.expect("it is never closed");
        let (result, outcome) = self.enter(change);
        // A refusal, too, may stand on what is not durable yet.
        Unwritten(outcome).written().await?;
        result
    }

    /// As [`Records::apply`], for who goes on before the change is durable. Changes that are made
    /// after it see it and stand on it; snapshots have it when it is durable. It is for what would
    /// be done again, and find itself done, if it were lost. It takes no part of [`MAX_UNWRITTEN`]
    /// with it: a caller makes one, and waits for it before its next.
    pub async fn make<R>(self: &Arc<Self>, change: impl FnOnce(&mut Txn) -> R) -> (R, Unwritten) {
        let _room = self.room.acquire().await.expect("it is never closed");
        let (result, outcome) = self.enter(|txn| Ok(change(txn)));
        (result.expect("it refuses nothing"), Unwritten(outcome))
    }

    /// Makes a change and has it written. What has to be durable before the result may be shown.
    fn enter<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Txn) -> Result<R, Problem>,
    ) -> (Result<R, Problem>, Option<Outcome>) {
        let mut line = self.line();
        let mut txn = Txn::at(self.wall(), Tables::clone(&line.latest));
        let result = change(&mut txn);
        if result.is_ok() {
            txn.complete();
        }
        let made = txn.take_apart();
        if result.is_err() || made.writes.is_empty() {
            return (result, line.last_outcome());
        }
        line.push(made);
        let outcome = line.last_outcome();
        if line.is_writing() {
            return (result, outcome);
        }
        let (batch, tables) = line.begin_write().expect("something waits");
        drop(line);
        let turn = Turn { records: self.clone(), batch: Some((batch, tables)) };
        if self.has_one_thread() {
            turn.write_all();
        } else {
            tokio::task::spawn_blocking(|| turn.write_all());
        }
        (result, outcome)
    }

    /// Whether all is done on one thread, so that what happens depends on nothing but what is asked:
    /// where the store is in memory.
    pub(crate) fn has_one_thread(&self) -> bool {
        self.store.is_in_memory()
    }

    /// A change that panics leaves the line as it was: it had a copy.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn publish(&self, tables: Arc<Tables>, touched: Touched) {
        *self.current.write().expect("no one panics while holding it") = tables;
        for event in &touched.events {
            tracing::info!(kind = %event.kind, sequence = event.sequence, "{}", event.detail);
        }
        self.topics.tell(&touched);
        self.touch(touched.bindings);
    }

    /// A copy of all that is durable, as the bytes of a file that a store can be restored from.
    /// Others read and write meanwhile. It takes a while.
    ///
    /// # Errors
    ///
    /// When the store cannot be read or has no copies, or there is no room beside its file.
    pub fn backup(&self) -> Result<Vec<u8>, StoreError> {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".backup");
        let copy = PathBuf::from(name);
        // What a manager left that was killed.
        let _ = std::fs::remove_file(&copy);
        let made = self.store.copy(&copy).and_then(|()| {
            std::fs::read(&copy).map_err(|error| StoreError::io(&copy, "read", error))
        });
        let _ = std::fs::remove_file(&copy);
        made
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

/// A change that is made and may not be durable yet.
#[must_use]
pub struct Unwritten(Option<Outcome>);

impl Unwritten {
    /// Waits until it is durable.
    ///
    /// # Errors
    ///
    /// A [`ProblemCode::StoreFailed`], or [`ProblemCode::Stopping`]: then it never was.
    pub async fn written(self) -> Result<(), Problem> {
        let Some(mut outcome) = self.0 else { return Ok(()) };
        let stopping = || Problem::new(ProblemCode::Stopping, "the manager is stopping");
        let ended = outcome.wait_for(Option::is_some).await.map_err(|_| stopping())?;
        ended.clone().expect("it was waited for")
    }
}

/// Whoever writes what waits, one batch after the other.
struct Turn {
    records: Arc<Records>,
    batch: Option<(Batch, Arc<Tables>)>,
}

impl Turn {
    fn write_all(mut self) {
        while let Some((batch, _)) = &mut self.batch {
            let changes = batch.take_changes();
            let written = self.records.store.commit(&changes);
            match written {
                Ok(()) => self.succeed(),
                Err(error) => {
                    tracing::error!("{error}");
                    self.records.trouble.send_modify(|trouble| {
                        let since = trouble.take().map_or_else(Timestamp::now, |t| t.since);
                        *trouble = Some(Trouble { since, reason: error.to_string() });
                    });
                    self.fail(&Problem::new(ProblemCode::StoreFailed, error.to_string()));
                }
            }
        }
    }

    fn succeed(&mut self) {
        let (mut batch, tables) = self.batch.take().expect("it was written");
        self.records.trouble.send_if_modified(|trouble| trouble.take().is_some());
        self.records.publish(tables, std::mem::take(&mut batch.touched));
        batch.end(Ok(()));
        self.batch = self.records.line().begin_write();
    }

    fn fail(&mut self, problem: &Problem) {
        let durable = self.records.snapshot();
        let later = self.records.line().fall_back(durable);
        let batch = self.batch.take().map(|(batch, _)| batch);
        for batch in batch.into_iter().chain(later) {
            batch.end(Err(problem.clone()));
        }
    }
}

/// A store that panics, and a thread that never began because the manager stops, are failures too.
impl Drop for Turn {
    fn drop(&mut self) {
        if self.batch.is_some() {
            self.fail(&Problem::new(ProblemCode::Stopping, "the store was not written"));
        }
    }
}
