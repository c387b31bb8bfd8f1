//! Operations and events, counted from the records when these have changed.

use super::Metrics;
use crate::manager::Manager;
use crate::records::{Tables, Topic};
use crate::types::{EventKind, OperationId, OperationRecord};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often the records are looked at, at most.
const PAUSE: Duration = Duration::from_millis(200);

/// What tells of a difference between records and tables.
pub(super) const DIFFERENCES: [EventKind; 2] =
    [EventKind::OrphanRemoved, EventKind::BindingMissing];

/// What was counted so far.
struct Counted {
    running: BTreeSet<OperationId>,
    next_operation: u64,
    next_event: u64,
}

impl Counted {
    /// What was there before the manager started is not counted.
    fn from_now(tables: &Tables) -> Self {
        Self {
            running: tables.running().map(|operation| operation.id).collect(),
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
        self.running.extend(new.map(|(id, _)| *id));
        self.next_operation = tables.meta().next_operation;
        self.running.retain(|id| match tables.operations().get(id) {
            Some(operation) if operation.state.is_final() => {
                ended(operation, metrics);
                false
            }
            // Only what has ended is ever taken out.
            found => found.is_some(),
        });
    }
}

fn ended(operation: &OperationRecord, metrics: &Metrics) {
    let what = serde_json::to_value(&operation.what).expect("operations are JSON");
    let kind = what["kind"].as_str().unwrap_or_default().to_owned();
    let end = operation.ended.unwrap_or(operation.started);
    let took = end.as_millis().saturating_sub(operation.started.as_millis());
    let labels = vec![("kind", kind), ("state", operation.state.to_string())];
    metrics.operations.get_or_create(&labels).observe(took as f64 / 1000.0);
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
