//! What a change writes, and whom it concerns.

use crate::store::{Change, Table};
use crate::types::{BindingId, OperationId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A record that is put into bytes when it is written. Until then a later one may take its place,
/// and nobody waits meanwhile who wants to make a change.
trait Encode: Send + Sync {
    fn encode(&self) -> Vec<u8>;
}

impl<T: Serialize + Send + Sync> Encode for T {
    fn encode(&self) -> Vec<u8> {
        // Our own records have no maps with keys other than text and no failing serializers.
        serde_json::to_vec(self).expect("records are JSON")
    }
}

/// What becomes of one record.
enum Write {
    Record(Arc<dyn Encode>),
    Bytes(Vec<u8>),
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
    pub(super) fn put<T>(&mut self, table: Table, key: Vec<u8>, record: &Arc<T>)
    where
        T: Serialize + Send + Sync + 'static,
    {
        self.0.insert((table, key), Write::Record(record.clone()));
    }

    /// A record in the bytes that it has in the store.
    pub(super) fn put_bytes(&mut self, table: Table, key: Vec<u8>, bytes: Vec<u8>) {
        self.0.insert((table, key), Write::Bytes(bytes));
    }

    /// A record is no longer there.
    pub(super) fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.0.insert((table, key), Write::Removed);
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
                Write::Bytes(bytes) => Some(bytes),
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
    pub(super) events: bool,
    pub(super) rollout: bool,
}

impl Touched {
    /// What comes later concerns whom it concerns, too.
    pub(super) fn extend(&mut self, later: Self) {
        self.bindings.extend(later.bindings);
        self.operations.extend(later.operations);
        self.ended.extend(later.ended);
        self.erasures |= later.erasures;
        self.events |= later.events;
        self.rollout |= later.rollout;
    }
}
