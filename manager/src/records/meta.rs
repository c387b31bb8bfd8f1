//! Counters, term and generation.

use super::{Tables, Txn};
use crate::store::{EmbeddedStore, SCHEMA_VERSION, Store, StoreError, Table, WorkingCopy, beside};
use crate::types::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tlp_codec::ids::Epoch;

/// The last node number that can be given out (`0xffff` is reserved in the fabric).
const LAST_NODE: u32 = tlp_codec::ids::NodeId::MAX.get() as u32;

/// Node numbers that are left out when a store is restored: as many proxies as can be connected may
/// have joined after the backup was made without one of their numbers coming again. But no more than
/// half of those that are left, so that no number of restores uses them up.
const RESTORE_NODE_GAP: u32 = crate::control::MAX_PROXIES as u32;
/// As [`RESTORE_NODE_GAP`], for allocations, bindings, operations, events, the audit log and terms.
const RESTORE_NUMBER_GAP: u64 = 1_000_000;

/// Counters and terms are not above it, so that there is room for what is added to them. The terms of
/// proxies that are believed are lower.
const HIGHEST: u64 = u64::MAX / 4 * 3;

/// What the records beside the counters show that was given out.
#[derive(Debug, Default)]
pub(super) struct Shown {
    generation: u8,
    highest: BTreeMap<Table, u64>,
}

impl Shown {
    /// An epoch.
    pub(super) fn epoch(&mut self, epoch: Epoch) {
        self.generation = self.generation.max(epoch.generation());
    }

    /// The highest generation of an epoch.
    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    /// The number of a record.
    pub(super) fn number(&mut self, table: Table, number: u64) {
        let highest = self.highest.entry(table).or_default();
        *highest = number.max(*highest);
    }
}

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
    /// epochs' generation goes up too, above `shown`, the highest of an epoch that is known.
    ///
    /// # Errors
    ///
    /// When it should and cannot.
    pub(super) fn begin_term(&mut self, path: &Path, shown: u8) -> Result<(), StoreError> {
        if self.highest_term_seen > self.term {
            self.skip_what_may_be_used(path, shown)?;
        }
        self.term = self.term.max(self.highest_term_seen) + 1;
        self.highest_term_seen = self.term;
        Ok(())
    }

    /// Goes above whatever was given out since a backup was made of which this is a part, terms
    /// too: the manager that gave it out may still be there. `shown` is the highest generation of an
    /// epoch that is known.
    ///
    /// # Errors
    ///
    /// When the epochs have no generation left.
    pub(super) fn begin_generation(&mut self, path: &Path, shown: u8) -> Result<(), StoreError> {
        self.skip_what_may_be_used(path, shown)?;
        self.term = self.term.max(self.highest_term_seen) + RESTORE_NUMBER_GAP;
        self.highest_term_seen = self.term;
        Ok(())
    }

    /// As [`begin_generation`](Self::begin_generation), of a backup that takes the place of a store:
    /// also above what that one gave out (`replaced`, if it reads), and in a term that the same backup
    /// does not get a second time (`now`), wherever it is restored.
    ///
    /// # Errors
    ///
    /// When the epochs have no generation left.
    pub(super) fn begin_in_place_of(
        &mut self,
        path: &Path,
        shown: u8,
        replaced: Option<&Meta>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if let Some(replaced) = replaced {
            self.generation = self.generation.max(replaced.generation);
            let given_out = replaced.term.max(replaced.highest_term_seen);
            self.highest_term_seen = self.highest_term_seen.max(given_out);
            for ((_, _, next), own) in replaced.numbers().into_iter().zip(self.numbers_mut()) {
                *own = next.max(*own);
            }
        }
        let known = self.term.max(self.highest_term_seen);
        self.begin_generation(path, shown)?;
        // There are few of them: no gap is left above those that are known to be given out.
        self.next_node = self.next_node.max(replaced.map_or(0, |replaced| replaced.next_node));
        // The clock's terms run ahead of those that are begun one after the other: no gap is needed above
        // one of them, and it would be the same wherever the backup is restored.
        let now = now.as_millis();
        self.term = if now > known { now } else { self.term + now % RESTORE_NUMBER_GAP };
        self.highest_term_seen = self.term;
        Ok(())
    }

    /// That of a store that makes way for a backup, if it makes sense.
    fn of_replaced(record: &[u8]) -> Option<Self> {
        let meta: Self = serde_json::from_slice(record).ok()?;
        meta.has_room().is_ok().then_some(meta)
    }

    /// Whether something can be added to each.
    ///
    /// # Errors
    ///
    /// Which is too high.
    pub(super) fn has_room(&self) -> Result<(), String> {
        let terms = [("term", self.term), ("highest_term_seen", self.highest_term_seen)];
        let numbers = self.numbers().map(|(_, name, next)| (name, next));
        let mut high = terms.into_iter().chain(numbers).filter(|(_, number)| *number > HIGHEST);
        if let Some((name, number)) = high.next() {
            return Err(format!("{name} is {number}, which is too high"));
        }
        if self.next_node > LAST_NODE + 1 {
            return Err(format!("next_node is {}, which is too high", self.next_node));
        }
        Ok(())
    }

    /// Whether nothing was given out that these would give out again, once a new generation begins
    /// above all that is shown. Numbers of proxies are not looked at: a proxy's claim may be far above
    /// the next one.
    ///
    /// # Errors
    ///
    /// Which is behind.
    pub(super) fn is_ahead_of(&self, shown: &Shown) -> Result<(), String> {
        let (own, other) = (self.generation, shown.generation);
        if own < other && generation_after(own, other).is_none_or(|next| next <= other) {
            return Err(format!(
                "generation is {own}, but there is an epoch of generation {other}, so late that none \
                 begins above it"
            ));
        }
        for (table, name, next) in self.numbers() {
            if let Some(highest) = shown.highest.get(&table).filter(|highest| **highest >= next) {
                let table = table.name();
                return Err(format!("{name} is {next}, but number {highest} is in {table}"));
            }
        }
        Ok(())
    }

    /// The next numbers, with the tables that go by them.
    fn numbers(&self) -> [(Table, &'static str, u64); 6] {
        [
            (Table::Allocations, "next_allocation", self.next_allocation),
            (Table::Bindings, "next_binding", self.next_binding),
            (Table::Operations, "next_operation", self.next_operation),
            (Table::Events, "next_event", self.next_event),
            (Table::Audit, "next_audit", self.next_audit),
            (Table::Erasures, "next_erasure", self.next_erasure),
        ]
    }

    /// As [`numbers`](Self::numbers), in the same order.
    fn numbers_mut(&mut self) -> [&mut u64; 6] {
        [
            &mut self.next_allocation,
            &mut self.next_binding,
            &mut self.next_operation,
            &mut self.next_event,
            &mut self.next_audit,
            &mut self.next_erasure,
        ]
    }

    /// Boxes that come from a pool of a later generation are followed there ([`generation_after`]), and
    /// may have been given epochs since that no record knows.
    fn skip_what_may_be_used(&mut self, path: &Path, shown: u8) -> Result<(), StoreError> {
        self.generation = generation_after(self.generation, shown)
            .ok_or_else(|| StoreError::GenerationsExhausted(path.to_owned()))?;
        let left = (LAST_NODE + 1).saturating_sub(self.next_node);
        self.next_node += RESTORE_NODE_GAP.min(left / 2);
        self.numbers_mut().into_iter().for_each(|next| *next += RESTORE_NUMBER_GAP);
        Ok(())
    }
}

/// The generation that begins after this one, where an epoch of that other one is shown; nothing if
/// this is the last. It is above both. But there are few generations, and one box that says nonsense
/// may not use them up: one that would leave less than half of those that are left is not followed.
pub fn generation_after(own: u8, shown: u8) -> Option<u8> {
    let left = u8::MAX - own;
    let above = shown.saturating_sub(own).saturating_add(1);
    (left > 0).then(|| own + if above <= left / 2 { above } else { 1 })
}

/// Reads all of a store's file that somebody closed, as a manager would that starts with it. What such
/// a manager would write, as where it is of an earlier version, is written to a copy.
///
/// # Errors
///
/// When it is damaged or of a later version, has a record that does not read, or there is no room
/// for a copy.
pub fn check(path: &Path) -> Result<(), StoreError> {
    let copy = WorkingCopy::of(path, beside(path, ".checking"))?;
    let read = EmbeddedStore::open_closed(copy.path())
        .and_then(|store| super::load::load(&store, copy.path()).map(drop));
    read.map_err(|error| error.said_of(path))
}

/// Moves a restored store to the next generation that is above all that it knows, and above `shown`,
/// that of an epoch which it no longer has. Gives that generation.
///
/// # Errors
///
/// When it cannot be read or written, or has no generation left.
pub fn next_generation(store: &dyn Store, path: &Path, shown: u8) -> Result<u8, StoreError> {
    let tables: Tables = super::load::load(store, path)?;
    let mut txn = Txn::new(tables);
    txn.begin_generation(path, shown)?;
    let (tables, changes, _) = txn.finish();
    store.commit(&changes)?;
    Ok(tables.meta().generation)
}

/// Moves a backup that is restored to the next generation, as [`next_generation`] does, above all that
/// the store gave out whose place it takes. `replaced` is that one's record of it, if it can be read.
///
/// # Errors
///
/// When it cannot be read or written, or has no generation left.
pub fn in_place_of(
    store: &dyn Store,
    path: &Path,
    replaced: Option<&[u8]>,
) -> Result<(), StoreError> {
    let mut txn = Txn::new(super::load::load(store, path)?);
    let replaced = replaced.and_then(Meta::of_replaced);
    txn.begin_in_place_of(path, replaced.as_ref())?;
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
            meta.skip_what_may_be_used(Path::new("memory"), 0).unwrap();
            assert_eq!(meta.next_node - before, RESTORE_NODE_GAP);
        }
        for _ in 6..u8::MAX {
            meta.skip_what_may_be_used(Path::new("memory"), 0).unwrap();
        }
        assert_eq!(meta.next_node, LAST_NODE, "one is left");
        // They can be used up all the same.
        meta.next_node = LAST_NODE + 1;
        meta.generation = 0;
        meta.skip_what_may_be_used(Path::new("memory"), 0).unwrap();
        assert_eq!(meta.next_node, LAST_NODE + 1);
    }

    #[test]
    fn a_new_generation_is_above_what_is_shown_and_nonsense_does_not_use_them_up() {
        let mut meta = Meta { generation: 3, ..Meta::default() };
        meta.skip_what_may_be_used(Path::new("memory"), 5).unwrap();
        assert_eq!(meta.generation, 6);
        for _ in 0..8 {
            meta.skip_what_may_be_used(Path::new("memory"), 254).unwrap();
        }
        assert!(meta.generation < u8::MAX, "some are left");
        meta.generation = u8::MAX;
        assert!(meta.skip_what_may_be_used(Path::new("memory"), 0).is_err());
    }

    #[test]
    fn a_backup_goes_on_above_what_the_store_gave_out_whose_place_it_takes() {
        let backup = Meta { next_node: 5, ..Meta::default() };
        let restored = |replaced: Option<&Meta>, now| {
            let mut meta = backup.clone();
            let path = Path::new("memory");
            meta.begin_in_place_of(path, 0, replaced, Timestamp::from_millis(now)).unwrap();
            meta
        };
        let first = restored(None, 0);
        let mut ran = Meta { next_node: first.next_node + 3, ..first.clone() };
        ran.begin_term(Path::new("memory"), 0).unwrap();
        ran.numbers_mut().into_iter().for_each(|next| *next += 2 * RESTORE_NUMBER_GAP);
        let again = restored(Some(&ran), 0);
        assert!(again.term > ran.term && again.highest_term_seen >= again.term);
        assert_eq!((ran.generation, again.generation), (1, 2));
        assert_eq!(again.next_node, ran.next_node, "none of those few is left out");
        for ((_, name, then), (_, _, now)) in ran.numbers().into_iter().zip(again.numbers()) {
            assert!(now > then, "{name}");
        }
        // A proxy showed it a later term.
        let seen = Meta { highest_term_seen: 1 << 50, ..ran.clone() };
        assert!(restored(Some(&seen), 0).term > 1 << 50);
        // On another machine nothing is known of it.
        let (one, other) = (restored(None, 1 << 45), restored(None, (1 << 45) + 1));
        assert!(first.term < one.term && one.term < other.term);
        // Nor if it was restored before, a moment ago or by a clock that was ahead.
        let backup = Meta { term: 1 << 45, highest_term_seen: 1 << 45, ..Meta::default() };
        let restored = |now| {
            let mut meta = backup.clone();
            let now = Timestamp::from_millis((backup.term as i64 + now) as u64);
            meta.begin_in_place_of(Path::new("memory"), 0, None, now).unwrap();
            assert_eq!(meta.highest_term_seen, meta.term);
            meta.term
        };
        let mut terms: Vec<u64> = [-120_000, -60_000, 60_000, 120_000].map(restored).into();
        assert!(terms.iter().all(|term| *term > backup.term), "{terms:?}");
        terms.dedup();
        assert_eq!(terms.len(), 4, "{terms:?}");
    }

    #[test]
    fn of_a_store_that_makes_way_only_what_makes_sense_is_believed() {
        let bytes = |meta: &Meta| serde_json::to_vec(meta).unwrap();
        let meta = Meta { term: 7, ..Meta::default() };
        assert_eq!(Meta::of_replaced(&bytes(&meta)), Some(meta.clone()));
        for nonsense in [
            Meta { term: u64::MAX, ..meta.clone() },
            Meta { next_event: u64::MAX, ..meta.clone() },
            Meta { next_node: u32::MAX, ..meta.clone() },
        ] {
            assert_eq!(Meta::of_replaced(&bytes(&nonsense)), None);
        }
        assert_eq!(Meta::of_replaced(b"no record"), None);
    }
}
