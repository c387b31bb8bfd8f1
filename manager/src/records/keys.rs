//! Clients' idempotency keys: what each stands for, for as long as it may come again.
//!
//! A key is written in the same change as the operation that it stands for, and outlives it: when
//! the operation is no longer kept, what came of it is kept with the key. So a retry that comes
//! late is told what its request did, and never does it again.

use super::Tables;
use super::ends::Ends;
use crate::types::{OperationId, OperationRecord, Timestamp};
use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a key is kept at least, milliseconds by the wall clock, and by the monotonic clock as far as
/// the manager has run: a day from the end of its operation, so that a retry just after it finds it,
/// however long it ran. While it runs it is kept in any case.
pub const KEEP_KEYS_MS: u64 = 24 * 3_600_000;

/// Keys that are kept. When more come the oldest go, but none whose operation runs.
pub const MAX_KEYS: usize = 100_000;

/// Keys of requests that joined an operation that are kept beside its own. When more come the oldest
/// of these go, so that nobody fills the table by asking for the same thing again and again.
pub const MAX_JOINED: usize = 32;

/// Keys that go with each new one at most, so that no change is large.
pub(super) const SWEEP: usize = 8;

/// What a client's idempotency key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The key.
    pub key: String,
    /// The operation that the request began.
    pub operation: OperationId,
    /// [`digest`] of the request.
    pub digest: String,
    /// When it came first.
    pub since: Timestamp,
    /// The operation as it ended, without its steps, when it is no longer kept itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Box<OperationRecord>>,
}

/// SHA-256 of a request, in a form that is the same for the same request, as hexadecimal digits.
pub fn digest(request: &str) -> String {
    Sha256::digest(request).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An operation that is no longer kept, as its key remembers it.
pub(super) fn outcome(operation: &OperationRecord) -> Box<OperationRecord> {
    let mut warnings = operation.warnings.clone();
    warnings.push("its steps and its story are no longer kept".to_owned());
    Box::new(OperationRecord { steps: Vec::new(), warnings, ..operation.clone() })
}

/// How far ahead of the monotonic clock the wall clock may be without having jumped: both are read in
/// whole milliseconds, one after the other.
const AHEAD: Duration = Duration::from_secs(1);

/// When these keys were read, by both clocks.
#[derive(Clone, Copy)]
struct Begun {
    wall: Timestamp,
    monotonic: Instant,
}

impl Default for Begun {
    fn default() -> Self {
        Self { wall: Timestamp::now(), monotonic: Instant::now() }
    }
}

/// When a key's operation ended.
#[derive(Clone, Copy)]
struct Over {
    at: Timestamp,
    /// When that was entered here, by the monotonic clock.
    entered: Instant,
}

/// All keys, and the order in which they go.
#[derive(Clone, Default)]
pub(super) struct Keys {
    begun: Begun,
    all: OrdMap<String, Arc<KeyRecord>>,
    /// Those whose operation has ended.
    ended: Ends<String>,
    /// When that was.
    over: OrdMap<String, Over>,
    /// By their operations.
    of: OrdSet<(OperationId, String)>,
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<KeyRecord>> {
        self.all.get(key)
    }

    /// Enters one, with when its operation ended, if it has.
    pub(super) fn insert(&mut self, record: Arc<KeyRecord>, ended: Option<Timestamp>) {
        let (key, operation) = (record.key.clone(), record.operation);
        // With the outcome of the same operation it keeps its place.
        if self.all.get(&key).is_some_and(|old| old.operation != operation || ended.is_none()) {
            self.remove(&key);
        }
        self.of.insert((operation, key.clone()));
        self.all.insert(key.clone(), record);
        if let Some(at) = ended {
            self.end_key(key, at);
        }
    }

    fn end_key(&mut self, key: String, at: Timestamp) {
        self.ended.insert(key.clone());
        let entered = self.over.get(&key).map_or_else(Instant::now, |over| over.entered);
        self.over.insert(key, Over { at, entered });
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some(old) = self.all.remove(key) {
            self.of.remove(&(old.operation, old.key.clone()));
            self.ended.remove(&old.key);
            self.over.remove(key);
        }
    }

    /// The keys of an operation: its own, and those of requests that joined it.
    pub(super) fn of(&self, operation: OperationId) -> Vec<String> {
        let from = self.of.range((operation, String::new())..);
        from.take_while(|(own, _)| *own == operation).map(|(_, key)| key.clone()).collect()
    }

    /// Of the keys of requests that joined an operation, those that go for one more, oldest first;
    /// `own` is the operation's own key, which stays.
    pub(super) fn surplus(&self, operation: OperationId, own: Option<&str>) -> Vec<String> {
        let mut joined = self.of(operation);
        joined.retain(|key| Some(key.as_str()) != own);
        let over = (joined.len() + 1).saturating_sub(MAX_JOINED);
        if over > 0 {
            joined.sort_by_key(|key| self.all[key].since);
        }
        joined.truncate(over.min(SWEEP));
        joined
    }

    /// An operation has ended.
    pub(super) fn end(&mut self, operation: OperationId, at: Timestamp) {
        for key in self.of(operation) {
            self.end_key(key, at);
        }
    }

    /// Whether a key's operation ended so long ago that it may be used for something else now: by the
    /// wall clock, and by the monotonic one. A wall clock that is set forward would have a retry do again
    /// what its request did. One that is set back only keeps keys longer.
    pub(super) fn is_over(&self, key: &str, wall: Timestamp) -> bool {
        let Some(over) = self.over.get(key) else { return false };
        let by =
            |now: Timestamp| now.as_millis().saturating_sub(over.at.as_millis()) >= KEEP_KEYS_MS;
        // One that ended before these were read may be over earlier; but the wall clock may have been
        // behind then, and then no time after that would be late enough.
        let here = over.entered.elapsed().as_millis() as u64 >= KEEP_KEYS_MS;
        by(wall) && (here || by(self.latest()))
    }

    /// The latest time that the monotonic clock allows.
    fn latest(&self) -> Timestamp {
        let passed = (self.begun.monotonic.elapsed() + AHEAD).as_millis() as u64;
        Timestamp::from_millis(self.begun.wall.as_millis().saturating_add(passed))
    }

    /// As if they had been read, and their operations had ended, so long before.
    #[cfg(test)]
    pub(super) fn age(&mut self, ms: u64) {
        let earlier = |then: Instant| then - Duration::from_millis(ms);
        self.begun.monotonic = earlier(self.begun.monotonic);
        let over = self.over.iter();
        let over =
            over.map(|(key, over)| (key.clone(), Over { entered: earlier(over.entered), ..*over }));
        self.over = over.collect();
    }

    /// As if the wall clock had said that when they were read.
    #[cfg(test)]
    pub(super) fn begin_at(&mut self, wall: Timestamp) {
        self.begun.wall = wall;
    }

    /// The one whose operation ended first.
    pub(super) fn oldest(&self) -> Option<&String> {
        self.ended.first()
    }
}

impl Tables {
    /// What a client's idempotency key stands for at this time.
    pub fn key(&self, key: &str, now: Timestamp) -> Option<&Arc<KeyRecord>> {
        self.keys.get(key).filter(|_| !self.keys.is_over(key, now))
    }

    /// How many keys are kept.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }
}
