//! Ends operations that take too long.

use super::{lease, overdue, take_back};
use crate::manager::Manager;
use crate::types::{OperationId, OperationKind, OperationRecord, OperationState, TakeBackStage};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often it looks.
const TICK: Duration = Duration::from_millis(100);

/// Since when an operation has been in the stage that it is in. By the monotonic clock, so that
/// a wall clock that jumps ends nothing; a manager that restarts gives everything its whole time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stage {
    state: OperationState,
    only_enumeration: bool,
    since: Instant,
}

/// Looks until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let mut stages: HashMap<OperationId, Stage> = HashMap::new();
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            () = manager.stopping() => return,
        }
        let tables = manager.records.snapshot();
        stages.retain(|id, _| tables.operations().get(id).is_some_and(|o| !o.state.is_final()));
        for operation in tables.running() {
            look(&manager, &mut stages, operation).await;
        }
    }
}

async fn look(
    manager: &Manager,
    stages: &mut HashMap<OperationId, Stage>,
    operation: &OperationRecord,
) {
    if overdue::only_erasure_is_left(operation) {
        stages.remove(&operation.id);
        return;
    }
    let only_enumeration = overdue::only_enumeration_is_left(operation);
    let now = Stage { state: operation.state, only_enumeration, since: Instant::now() };
    let stage = stages.entry(operation.id).or_insert(now);
    if (stage.state, stage.only_enumeration) != (now.state, now.only_enumeration) {
        *stage = now;
    }
    if take_back::stage(operation) == Some(TakeBackStage::Notice)
        || matches!(operation.what, OperationKind::Drain { .. })
    {
        // A grace time has an end of its own, after which this one begins. A drain ends when all of
        // its parts have ended.
        stage.since = now.since;
        return;
    }
    let settings = &manager.settings;
    let mut bound = settings.operation_bound;
    if only_enumeration {
        bound = settings.enumeration_bound;
    } else if let OperationKind::Release { .. }
    | OperationKind::TakeBack { .. }
    | OperationKind::Replace { .. } = operation.what
    {
        let tables = manager.records.snapshot();
        let own = tables.bindings_under(operation);
        let asked = own.iter().filter_map(|b| match b.desired {
            crate::types::Desired::Released { within_ms } => Some(within_ms),
            _ => None,
        });
        // What another operation asks for, a take-back waits for as long, and then takes it by force.
        let (waits, slack) = match operation.what {
            OperationKind::TakeBack { within_ms, .. } => (within_ms, lease::SLACK),
            _ => (0, Duration::ZERO),
        };
        bound += Duration::from_millis(asked.max().unwrap_or(0).max(waits).into()) + slack;
    }
    if stage.since.elapsed() < bound {
        return;
    }
    let id = operation.id;
    let ended = manager.records.apply(|txn| {
        if only_enumeration {
            overdue::not_enumerated(txn, operation, bound);
        } else {
            overdue::expire(txn, &manager.registry, operation);
        }
    });
    if let Err(problem) = ended.await {
        tracing::error!("{id} cannot be ended: {problem}");
    }
}
