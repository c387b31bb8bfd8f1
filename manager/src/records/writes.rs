//! What a change writes, and whom it concerns.

use super::stored::{Key, Stored};
use crate::store::{Change, Table};
use crate::types::{BindingId, EventRecord, OperationId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A record that is put into bytes when it is written. Until then a later one may take its place,
/// and nobody waits meanwhile who wants to make a change.
trait Encode: Send + Sync {
    fn encode(&self) -> Vec<u8>;
}

impl<T: Stored> Encode for T {
    fn encode(&self) -> Vec<u8> {
        Stored::encode(self)
    }
}

/// What becomes of one record.
enum Write {
    Record(Arc<dyn Encode>),
    Removed,
}

/// What is to be written: of several changes of one record, the last.
#[derive(Default)]
pub(super) struct Writes(BTreeMap<(Table, Vec<u8>), Write>);

impl Writes {
    /// Whether nothing is.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A record.
    pub(super) fn put<T: Stored>(&mut self, record: &Arc<T>) {
        self.0.insert((T::TABLE, record.id().key()), Write::Record(record.clone()));
    }

    /// A record is no longer there.
    pub(super) fn remove<T: Stored>(&mut self, id: &T::Id) {
        self.0.insert((T::TABLE, id.key()), Write::Removed);
    }

    /// What comes later.
    pub(super) fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// For the store, by table and key.
    pub(super) fn encode(self) -> Vec<Change> {
        let change = |((table, key), write)| {
            let value = match write {
                Write::Record(record) => Some(record.encode()),
                Write::Removed => None,
            };
            Change { table, key, value }
        };
        self.0.into_iter().map(change).collect()
    }
}

/// Whom a change concerns.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) bindings: BTreeSet<BindingId>,
    pub(super) operations: BTreeSet<OperationId>,
    /// Those of them that have ended.
    pub(super) ended: BTreeSet<OperationId>,
    pub(super) erasures: bool,
    /// What happened, told to the log when it is written.
    pub(super) events: Vec<Arc<EventRecord>>,
    pub(super) rollout: bool,
}

impl Touched {
    /// What comes later concerns whom it concerns, too.
    pub(super) fn extend(&mut self, later: Self) {
        self.bindings.extend(later.bindings);
        self.operations.extend(later.operations);
        self.ended.extend(later.ended);
        self.erasures |= later.erasures;
        self.events.extend(later.events);
        self.rollout |= later.rollout;
    }
}
