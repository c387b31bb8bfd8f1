//! What a change adds to the records that are not kept for ever, and what goes for it.

use super::stored::Stored;
use super::txn::take;
use super::{Kept, KeyRecord, MAX_EVENTS, MAX_KEYS, Tables, Txn, keys, retention};
use crate::audit::MAX_AUDIT;
use crate::types::{AuditRecord, EventRecord, OperationId, OperationRecord};
use std::sync::Arc;

impl Txn {
    /// Adds an entry to the audit log. When too many are kept, the oldest go.
    pub fn audit(&mut self, mut entry: AuditRecord) {
        entry.sequence = self.with_meta(|meta| take(&mut meta.next_audit));
        entry.at = self.now;
        let (sequence, ring, entry) = (entry.sequence, Tables::audit_mut, Arc::new(entry));
        if let Some(oldest) = self.push(ring, MAX_AUDIT, sequence, entry) {
            self.delete::<AuditRecord>(&oldest.sequence);
        }
    }

    /// Adds an event, unless its proxy has had too many. When too many are kept, the oldest go.
    pub fn event(&mut self, event: EventRecord) {
        let sources = self.tables.sources.clone();
        for event in sources.admit(event, tokio::time::Instant::now()) {
            self.add_event(event);
        }
    }

    fn add_event(&mut self, mut event: EventRecord) {
        event.sequence = self.with_meta(|meta| take(&mut meta.next_event));
        event.at = self.now;
        let (sequence, ring, event) = (event.sequence, Tables::events_mut, Arc::new(event));
        self.touched.events.push(event.clone());
        if let Some(oldest) = self.push(ring, MAX_EVENTS, sequence, event) {
            for sequence in self.tables.leave_ring(oldest) {
                self.delete::<EventRecord>(&sequence);
            }
        }
    }

    /// Adds a record to a table of which the last so many are kept. The one that is none of them any
    /// more; it is still in the store.
    fn push<T: Stored>(
        &mut self,
        ring: fn(&mut Tables) -> &mut Kept<u64, T>,
        most: usize,
        sequence: u64,
        record: Arc<T>,
    ) -> Option<Arc<T>> {
        self.put(&record);
        let ring = ring(&mut self.tables);
        ring.insert(sequence, record);
        let (&oldest, _) = ring.first().filter(|_| ring.len() > most)?;
        ring.remove(&oldest)
    }

    /// Operations that ended go, with their stories, as the retention says.
    pub(super) fn drop_operations(&mut self) {
        let mut dropped = 0;
        while dropped < retention::SWEEP || self.tables.is_over_the_most() {
            let Some(oldest) = self.tables.surplus(self.now) else { return };
            self.drop_operation(oldest);
            dropped += 1;
        }
    }

    fn drop_operation(&mut self, id: OperationId) {
        let Some(operation) = self.tables.remove_operation(id) else { return };
        self.delete::<OperationRecord>(&id);
        for sequence in self.tables.stories.remove(id) {
            self.delete::<EventRecord>(&sequence);
        }
        for key in self.tables.keys.of(id) {
            // Each that is entered may push others out.
            let Some(there) = self.tables.keys.get(&key) else { continue };
            let there = KeyRecord::clone(there);
            self.put_key(KeyRecord { outcome: Some(keys::outcome(&operation)), ..there });
        }
    }

    /// Adds or replaces a client's idempotency key. The oldest go when they have been kept for their
    /// time, or when there are too many, in all or of one operation.
    pub fn put_key(&mut self, record: KeyRecord) {
        if self.tables.keys.get(&record.key).is_none() {
            let operation = self.operations().get(&record.operation);
            let own = operation.and_then(|operation| operation.client_key.as_deref());
            for joined in self.tables.keys.surplus(record.operation, own) {
                self.with_meta(|meta| meta.keys_dropped_early += 1);
                self.drop_key(&joined);
            }
        }
        let record = Arc::new(record);
        self.put(&record);
        self.tables.insert_key(record);
        for _ in 0..keys::SWEEP {
            let Some(oldest) = self.tables.keys.oldest().cloned() else { return };
            if !self.tables.keys.is_over(&oldest, self.now) {
                if self.tables.keys.len() <= MAX_KEYS {
                    return;
                }
                self.with_meta(|meta| meta.keys_dropped_early += 1);
            }
            self.drop_key(&oldest);
        }
    }

    fn drop_key(&mut self, key: &str) {
        self.delete::<KeyRecord>(key);
        self.tables.keys.remove(key);
    }
}
