//! Counters, term and generation.

use super::{Tables, Txn};
use crate::store::{EmbeddedStore, SCHEMA_VERSION, Store, StoreError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The last node number that can be given out (`0xffff` is reserved in the fabric).
const LAST_NODE: u32 = tlp_codec::ids::NodeId::MAX.get() as u32;

/// Node numbers that are left out when a store is restored: as many proxies as can be connected may
/// have joined after the backup was made without one of their numbers coming again. But no more than
/// half of those that are left, so that no number of restores uses them up.
const RESTORE_NODE_GAP: u32 = crate::control::MAX_PROXIES as u32;
/// As [`RESTORE_NODE_GAP`], for allocations, bindings, operations, events, the audit log and terms.
const RESTORE_NUMBER_GAP: u64 = 1_000_000;

/// What there is once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA_VERSION`] of who wrote it.
    pub schema: u64,
    /// The leader's term; another after every start.
    pub term: u64,
    /// The highest term that a proxy said it had obeyed. The next start begins above it.
    pub highest_term_seen: u64,
    /// Generation of the epochs that are given out; goes up when the store was restored.
    pub generation: u8,
    /// The next node number; above the last one when all are used up.
    pub next_node: u32,
    /// The next allocation.
    pub next_allocation: u64,
    /// The next binding.
    pub next_binding: u64,
    /// The next operation.
    pub next_operation: u64,
    /// The next event.
    pub next_event: u64,
    /// The next entry of the audit log.
    #[serde(default = "first")]
    pub next_audit: u64,
    /// The next erasure.
    #[serde(default = "first")]
    pub next_erasure: u64,
    /// Idempotency keys that went before they had been kept for their time, because too many came.
    #[serde(default)]
    pub keys_dropped_early: u64,
}

/// Numbers begin with it, also those of a kind that an earlier version had not.
const fn first() -> u64 {
    1
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            schema: SCHEMA_VERSION,
            term: 0,
            highest_term_seen: 0,
            generation: 0,
            next_node: 1,
            next_allocation: 1,
            next_binding: 1,
            next_operation: 1,
            next_event: 1,
            next_audit: first(),
            next_erasure: first(),
            keys_dropped_early: 0,
        }
    }
}

impl Meta {
    /// Begins the next term. A proxy that has obeyed a later term than ours shows that this store
    /// is older than what happened (it was put back, or another manager was here): then the
    /// epochs' generation goes up too.
    ///
    /// # Errors
    ///
    /// When it should and cannot.
    pub(super) fn begin_term(&mut self, path: &Path) -> Result<(), StoreError> {
        if self.highest_term_seen > self.term {
            self.skip_what_may_be_used(path)?;
        }
        self.term = self.term.max(self.highest_term_seen) + 1;
        self.highest_term_seen = self.term;
        Ok(())
    }

    /// Goes above whatever was given out since a backup was made of which this is a part, terms
    /// too: the manager that gave it out may still be there.
    ///
    /// # Errors
    ///
    /// When the epochs have no generation left.
    pub(super) fn begin_generation(&mut self, path: &Path) -> Result<(), StoreError> {
        self.skip_what_may_be_used(path)?;
        self.term = self.term.max(self.highest_term_seen) + RESTORE_NUMBER_GAP;
        self.highest_term_seen = self.term;
        Ok(())
    }

    fn skip_what_may_be_used(&mut self, path: &Path) -> Result<(), StoreError> {
        self.generation = self
            .generation
            .checked_add(1)
            .ok_or_else(|| StoreError::GenerationsExhausted(path.to_owned()))?;
        let left = (LAST_NODE + 1).saturating_sub(self.next_node);
        self.next_node += RESTORE_NODE_GAP.min(left / 2);
        for next in [
            &mut self.next_allocation,
            &mut self.next_binding,
            &mut self.next_operation,
            &mut self.next_event,
            &mut self.next_audit,
            &mut self.next_erasure,
        ] {
            *next += RESTORE_NUMBER_GAP;
        }
        Ok(())
    }
}

/// Reads all of a store's file, as a manager would that starts with it.
///
/// # Errors
///
/// When it is damaged, in use, or of a later version, or has a record that does not read.
pub fn check(path: &Path) -> Result<(), StoreError> {
    super::load::load(&EmbeddedStore::open(path)?, path).map(drop)
}

/// Moves a restored store one generation on.
///
/// # Errors
///
/// When it cannot be read or written, or has no generation left.
pub fn next_generation(store: &dyn Store, path: &Path) -> Result<(), StoreError> {
    let tables: Tables = super::load::load(store, path)?;
    let mut txn = Txn::new(tables);
    txn.begin_generation(path)?;
    let (_, changes, _) = txn.finish();
    store.commit(&changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restores_leave_out_as_many_node_numbers_as_there_can_be_proxies_and_never_all() {
        let mut meta = Meta { next_node: 5_001, ..Meta::default() };
        for _ in 0..6 {
            let before = meta.next_node;
            meta.skip_what_may_be_used(Path::new("memory")).unwrap();
            assert_eq!(meta.next_node - before, RESTORE_NODE_GAP);
        }
        for _ in 6..u8::MAX {
            meta.skip_what_may_be_used(Path::new("memory")).unwrap();
        }
        assert_eq!(meta.next_node, LAST_NODE, "one is left");
        // They can be used up all the same.
        meta.next_node = LAST_NODE + 1;
        meta.generation = 0;
        meta.skip_what_may_be_used(Path::new("memory")).unwrap();
        assert_eq!(meta.next_node, LAST_NODE + 1);
    }
}
