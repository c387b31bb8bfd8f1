//! Operations and events, counted from the records when these have changed.

use super::Metrics;
use crate::manager::Manager;
use crate::operations::deadlines::Now;
use crate::records::{Tables, Topic};
use crate::types::{EventKind, OperationId, OperationRecord};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the records are looked at, at most.
const PAUSE: Duration = Duration::from_millis(200);

/// What tells of a difference between records and tables.
pub(super) const DIFFERENCES: [EventKind; 2] =
    [EventKind::OrphanRemoved, EventKind::BindingMissing];

/// What was counted so far.
struct Counted {
    /// With when each was seen first.
    running: BTreeMap<OperationId, Now>,
    next_operation: u64,
    next_event: u64,
}

impl Counted {
    /// What was there before the manager started is not counted.
    fn from_now(tables: &Tables, now: Now) -> Self {
        Self {
            running: tables.running().map(|operation| (operation.id, now)).collect(),
            next_operation: tables.meta().next_operation,
            next_event: tables.meta().next_event,
        }
    }

    fn count(&mut self, tables: &Tables, metrics: &Metrics, now: Now) {
        for (_, event) in tables.events().range(self.next_event..) {
            let labels = vec![("kind", event.kind.to_string())];
            metrics.events.get_or_create(&labels).inc();
            if DIFFERENCES.contains(&event.kind) {
                metrics.differences.get_or_create(&labels).inc();
            }
        }
        self.next_event = tables.meta().next_event;
        let new = tables.operations().range(OperationId(self.next_operation)..);
        self.running.extend(new.map(|(id, _)| (*id, now)));
        self.next_operation = tables.meta().next_operation;
        self.running.retain(|id, seen| match tables.operations().get(id) {
            Some(operation) if operation.state.is_final() => {
                ended(operation, *seen, now, metrics);
                false
            }
            // Only what has ended is ever taken out.
            found => found.is_some(),
        });
    }
}

/// How long an operation took that was seen to run from then until now. It is seen when it is on the
/// disk, which may be long after it began, and after it ended: so it goes by the records, which say when
/// that was, except that the wall clock may have been set meanwhile.
fn took(operation: &OperationRecord, seen: Now, now: Now) -> Duration {
    let end = operation.ended.unwrap_or(operation.started);
    let recorded = (end.as_millis() as i64).saturating_sub(operation.started.as_millis() as i64);
    // Also before it began or after it ended: what was seen tells which it was.
    let ran = now.monotonic.saturating_duration_since(seen.monotonic).as_millis() as i64;
    let either = [recorded, recorded.saturating_sub(now.jumped_since(seen))];
    let took = either.into_iter().min_by_key(|took| took.abs_diff(ran)).unwrap_or(recorded);
    Duration::from_millis(took.max(0).unsigned_abs())
}

fn ended(operation: &OperationRecord, seen: Now, now: Now, metrics: &Metrics) {
    let what = serde_json::to_value(&operation.what).expect("operations are JSON");
    let kind = what["kind"].as_str().unwrap_or_default().to_owned();
    let labels = vec![("kind", kind), ("state", operation.state.to_string())];
    let took = took(operation, seen, now);
    metrics.operations.get_or_create(&labels).observe(took.as_secs_f64());
}

/// Counts until the manager stops.
pub async fn follow(manager: std::sync::Arc<Manager>) {
    let mut operations = manager.records.watch(Topic::Operations);
    // There are some of no operation.
    let mut events = manager.records.watch(Topic::Events);
    let now = || Now::read(manager.records.wall());
    let mut counted = Counted::from_now(&manager.records.snapshot(), now());
    loop {
        tokio::select! {
            () = operations.changed() => {}
            () = events.changed() => {}
            () = manager.stopping() => return,
        }
        counted.count(&manager.records.snapshot(), &manager.metrics, now());
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
        let at = |millis: i64| {
            Timestamp::from_millis(1_800_000_000_000_u64.saturating_add_signed(millis))
        };
        let seen = Now::read(at(0));
        // When it began and ended by the wall clock, for how long it was seen, and how far the clock
        // was set meanwhile, all in milliseconds.
        let took = |started: i64, ended: i64, ran: u64, set: i64| {
            let operation = OperationRecord {
                id: OperationId(1),
                what: OperationKind::Release { slots: Vec::new(), force: false, reason: None },
                state: OperationState::Succeeded,
                allocation: None,
                steps: Vec::new(),
                warnings: Vec::new(),
                error: None,
                client_key: None,
                started: at(started),
                ended: Some(at(ended)),
            };
            let monotonic = seen.monotonic + Duration::from_millis(ran);
            let now = Now { wall: at(ran as i64 + set), monotonic };
            took(&operation, seen, now).as_millis()
        };
        assert_eq!(took(-100, 2_000, 2_100, 0), 2_100);
        assert_eq!(took(-30, 0, 0, 0), 30, "it was seen when it had ended");
        assert_eq!(took(-100, 2_000 + 90 * DAY, 2_100, 90 * DAY), 2_100);
        assert_eq!(took(-100, 2_000 - DAY, 2_100, -DAY), 2_100);
        assert_eq!(took(-100, 2_000, 2_200, -DAY), 2_100, "the clock was set when it had ended");
        // The disk stalled when it began, or when it ended.
        assert_eq!(took(-8_000, 100, 200, 0), 8_100);
        assert_eq!(took(-100, 100, 8_000, 0), 200);
        assert_eq!(took(-8_000, 100 + DAY, 200, DAY), 8_100);
        // It ran when the manager started, whose clock was behind. That was so when it began, or not.
        assert_eq!(took(-60_000, 2_000 + 90 * DAY, 2_100, 90 * DAY), 62_000);
        assert_eq!(took(90 * DAY - 60_000, 90 * DAY + 2_000, 2_100, 90 * DAY), 62_000);
    }
}
