//! Operations and events, counted from the records when these have changed.

use super::Metrics;
use crate::manager::Manager;
use crate::records::{Tables, Topic};
use crate::types::{EventKind, OperationId, OperationRecord};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How often the records are looked at, at most.
const PAUSE: Duration = Duration::from_millis(200);

/// What tells of a difference between records and tables.
pub(super) const DIFFERENCES: [EventKind; 2] =
    [EventKind::OrphanRemoved, EventKind::BindingMissing];

/// How much longer or shorter an operation took than it was seen to run, at most: it is seen a pause after
/// it began, and after it ended, and a machine may be slow.
const UNSEEN: Duration = Duration::from_secs(1);

/// What was counted so far.
struct Counted {
    /// With when each was seen first; nothing of those that ran when the manager started.
    running: BTreeMap<OperationId, Option<Instant>>,
    next_operation: u64,
    next_event: u64,
}

impl Counted {
    /// What was there before the manager started is not counted.
    fn from_now(tables: &Tables) -> Self {
        Self {
            running: tables.running().map(|operation| (operation.id, None)).collect(),
            next_operation: tables.meta().next_operation,
            next_event: tables.meta().next_event,
        }
    }

    fn count(&mut self, tables: &Tables, metrics: &Metrics) {
        for (_, event) in tables.events().range(self.next_event..) {
            let labels = vec![("kind", event.kind.to_string())];
            metrics.events.get_or_create(&labels).inc();
            if DIFFERENCES.contains(&event.kind) {
                metrics.differences.get_or_create(&labels).inc();
            }
        }
        self.next_event = tables.meta().next_event;
        let new = tables.operations().range(OperationId(self.next_operation)..);
        let now = Instant::now();
        self.running.extend(new.map(|(id, _)| (*id, Some(now))));
        self.next_operation = tables.meta().next_operation;
        self.running.retain(|id, seen| match tables.operations().get(id) {
            Some(operation) if operation.state.is_final() => {
                ended(operation, seen.map(|seen| now - seen), metrics);
                false
            }
            // Only what has ended is ever taken out.
            found => found.is_some(),
        });
    }
}

/// How long an operation took, of which it was seen to run for so long.
fn took(operation: &OperationRecord, seen: Option<Duration>) -> Duration {
    let end = operation.ended.unwrap_or(operation.started);
    let took = end.as_millis().saturating_sub(operation.started.as_millis());
    let took = Duration::from_millis(took);
    // The wall clock may have been set meanwhile.
    seen.map_or(took, |seen| took.clamp(seen.saturating_sub(UNSEEN), seen + UNSEEN))
}

fn ended(operation: &OperationRecord, seen: Option<Duration>, metrics: &Metrics) {
    let what = serde_json::to_value(&operation.what).expect("operations are JSON");
    let kind = what["kind"].as_str().unwrap_or_default().to_owned();
    let labels = vec![("kind", kind), ("state", operation.state.to_string())];
    let took = took(operation, seen);
    metrics.operations.get_or_create(&labels).observe(took.as_secs_f64());
}

/// Counts until the manager stops.
pub async fn follow(manager: std::sync::Arc<Manager>) {
    let mut operations = manager.records.watch(Topic::Operations);
    // There are some of no operation.
    let mut events = manager.records.watch(Topic::Events);
    let mut counted = Counted::from_now(&manager.records.snapshot());
    loop {
        tokio::select! {
            () = operations.changed() => {}
            () = events.changed() => {}
            () = manager.stopping() => return,
        }
        counted.count(&manager.records.snapshot(), &manager.metrics);
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{OperationKind, OperationState, Timestamp};

    #[test]
    fn what_an_operation_took_does_not_go_by_a_wall_clock_that_is_set() {
        const DAY: i64 = 24 * 3_600_000;
        let started = Timestamp::now();
        let took = |millis: i64, seen: Option<u64>| {
            let ended = Timestamp::from_millis(started.as_millis().saturating_add_signed(millis));
            let operation = OperationRecord {
                id: OperationId(1),
                what: OperationKind::Release { slots: Vec::new(), force: false, reason: None },
                state: OperationState::Succeeded,
                allocation: None,
                steps: Vec::new(),
                warnings: Vec::new(),
                error: None,
                client_key: None,
                started,
                ended: Some(ended),
            };
            took(&operation, seen.map(Duration::from_millis)).as_millis()
        };
        assert_eq!(took(2_100, Some(2_000)), 2_100);
        assert_eq!(took(30, Some(0)), 30, "it was seen when it had ended");
        assert_eq!(took(90 * DAY, Some(2_000)), 3_000);
        assert_eq!(took(-DAY, Some(2_000)), 1_000);
        assert_eq!(took(2_100, None), 2_100, "it ran when the manager started");
    }
}
