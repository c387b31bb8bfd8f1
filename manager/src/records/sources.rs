//! How many events each proxy may cause, so that a noisy one does not push everybody else's out of
//! those that are kept.
//!
//! A token bucket for each: [`BURST`] events at once, then one in [`REFILL`]. What comes beyond is
//! counted, and told when the bucket has a token again. Events of operations are not counted: an
//! operation has an end. Nor is what people and the manager decide: it is not the proxy's noise, and who
//! borrows has to hear of it. What belongs to no proxy has no bucket.

use crate::types::{EventKind, EventRecord, NodeName};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Events of a proxy that are recorded whatever the time between them.
const BURST: u32 = 256;

/// In which time one more may follow.
const REFILL: Duration = Duration::from_secs(1);

/// Bound on the buckets: as many proxies have had an event lately. What is over it has none and is
/// recorded.
const MAX_BUCKETS: usize = 65_536;

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    refilled: Instant,
    suppressed: u64,
    last: String,
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let tokens = u32::try_from(passed.as_millis() / REFILL.as_millis()).unwrap_or(u32::MAX);
        self.refilled += REFILL * tokens;
        self.tokens = self.tokens.saturating_add(tokens).min(BURST);
    }

    fn tell(&mut self, name: &NodeName) -> EventRecord {
        let (count, last) = (std::mem::take(&mut self.suppressed), std::mem::take(&mut self.last));
        let detail =
            format!("{count} events of {name} were too many and are left out; the last: {last}");
        EventRecord::new(EventKind::EventsSuppressed, detail).node(name)
    }
}

#[derive(Debug, Default)]
struct Inner {
    buckets: BTreeMap<NodeName, Bucket>,
    suppressed: u64,
}

/// The buckets. They are not records: a manager that starts again has full ones.
#[derive(Debug, Default)]
pub struct Sources(Mutex<Inner>);

/// Whether events of this kind say what was decided about a proxy or what it has, and not what it did.
/// No proxy can have many of them: each takes a lease, a request, a rollout, or all the time that a
/// threshold gives. What a host let go of by itself it had been lent by an operation.
fn is_decided(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::EventsSuppressed
            | EventKind::LeaseEnding
            | EventKind::LeaseExtended
            | EventKind::LeaseOver
            | EventKind::TakeBackNotice
            | EventKind::TakeBackForced
            | EventKind::HostGraceOver
            | EventKind::HostLetGo
            | EventKind::Held
            | EventKind::HoldEnded
            | EventKind::Replaced
            | EventKind::NodeForgotten
            | EventKind::BindingLost
            | EventKind::FirmwareUpdated
            | EventKind::FirmwareFailed
    )
}

/// Whose event it is, if it counts.
fn source(event: &EventRecord) -> Option<&NodeName> {
    if event.operation.is_some() || is_decided(event.kind) {
        return None;
    }
    event.node.as_ref().or_else(|| event.slot.as_ref().map(|slot| slot.box_name()))
}

impl Sources {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is recorded for an event: it, or nothing; before it, how many were left out since.
    pub(super) fn admit(&self, event: EventRecord, now: Instant) -> Vec<EventRecord> {
        let mut inner = self.lock();
        let room = inner.buckets.len() < MAX_BUCKETS;
        let Some(name) = source(&event).filter(|name| room || inner.buckets.contains_key(name))
        else {
            return vec![event];
        };
        let name = name.clone();
        let full = || Bucket { tokens: BURST, refilled: now, suppressed: 0, last: String::new() };
        let bucket = inner.buckets.entry(name.clone()).or_insert_with(full);
        bucket.refill(now);
        if bucket.tokens == 0 {
            bucket.suppressed += 1;
            bucket.last = event.detail;
            inner.suppressed += 1;
            return Vec::new();
        }
        bucket.tokens -= 1;
        let told = (bucket.suppressed > 0).then(|| bucket.tell(&name));
        told.into_iter().chain([event]).collect()
    }

    /// What is told of proxies that are silent since. Buckets that are full again go.
    pub fn due(&self, now: Instant) -> Vec<EventRecord> {
        let mut told = Vec::new();
        self.lock().buckets.retain(|name, bucket| {
            bucket.refill(now);
            if bucket.suppressed > 0 && bucket.tokens > 0 {
                bucket.tokens -= 1;
                told.push(bucket.tell(name));
            }
            bucket.tokens < BURST
        });
        told
    }

    /// How many events were left out since the manager started.
    pub fn suppressed(&self) -> u64 {
        self.lock().suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, number: u32) -> EventRecord {
        let name = NodeName::new(name).unwrap();
        EventRecord::new(EventKind::PortChanged, format!("number {number}")).node(&name)
    }

    #[test]
    fn who_is_noisy_is_bounded_and_told_and_nobody_else_is() {
        let (sources, begun) = (Sources::default(), Instant::now());
        for number in 0..BURST {
            assert_eq!(sources.admit(event("box1", number), begun).len(), 1);
        }
        for number in 0..100 {
            assert!(sources.admit(event("box1", number), begun).is_empty());
        }
        assert_eq!(sources.admit(event("box2", 1), begun).len(), 1);
        // Events of operations are never left out.
        let of_operation = event("box1", 1).operation(crate::types::OperationId(1));
        assert_eq!(sources.admit(of_operation, begun).len(), 1);
        let told = sources.admit(event("box1", 7), begun + REFILL);
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].kind, EventKind::EventsSuppressed);
        assert!(told[0].detail.starts_with("100 events of box1"), "{}", told[0].detail);
        assert!(told[0].detail.ends_with("number 99") && told[1].detail == "number 7");
        assert!(sources.admit(event("box1", 8), begun + REFILL).is_empty(), "one in a time");
        assert_eq!(sources.suppressed(), 101);
    }

    #[test]
    fn what_is_decided_about_a_noisy_one_is_always_told() {
        let (sources, now) = (Sources::default(), Instant::now());
        for number in 0..BURST + 1 {
            sources.admit(event("host1", number), now);
        }
        for kind in [EventKind::LeaseEnding, EventKind::HostLetGo, EventKind::Held] {
            let event = EventRecord { kind, ..event("host1", 1) };
            assert_eq!(sources.admit(event, now).len(), 1, "{kind}");
        }
        assert_eq!(sources.suppressed(), 1);
    }

    #[test]
    fn what_was_left_out_is_told_also_when_nothing_follows() {
        let (sources, begun) = (Sources::default(), Instant::now());
        for number in 0..BURST + 3 {
            sources.admit(event("box1", number), begun);
        }
        assert!(sources.due(begun).is_empty());
        let told = sources.due(begun + REFILL);
        assert!(told[0].detail.starts_with("3 events of box1"), "{told:?}");
        assert!(sources.due(begun + 2 * REFILL).is_empty());
        sources.due(begun + REFILL * (BURST + 1));
        assert!(sources.lock().buckets.is_empty(), "what is calm leaves nothing");
    }
}
