//! Ends operations that take too long.

use super::{lease, overdue, replace, take_back};
use crate::config::Settings;
use crate::manager::Manager;
use crate::records::Tables;
use crate::types::{
    Desired, OperationId, OperationKind, OperationRecord, OperationState, TakeBackStage,
};
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
    /// How long the operating systems that it waits for have. When force takes over, that time is
    /// not to be had any more, and what has been waited of it does not count against the force.
    asked: Duration,
    since: Instant,
}

impl Stage {
    fn begin(tables: &Tables, operation: &OperationRecord, since: Instant) -> Self {
        let only_enumeration = overdue::only_enumeration_is_left(operation);
        let asked = asked(tables, operation);
        Self { state: operation.state, only_enumeration, asked, since }
    }

    /// How long it may last.
    fn bound(&self, settings: &Settings) -> Duration {
        match self.only_enumeration {
            true => settings.enumeration_bound,
            false => settings.operation_bound + self.asked,
        }
    }
}

/// The longest time that an operating system has for what an operation waits for, whichever
/// operation asks it.
fn asked(tables: &Tables, operation: &OperationRecord) -> Duration {
    match &operation.what {
        // What another operation asks for, it waits for as long, and then takes it by force.
        OperationKind::TakeBack { within_ms, .. } => {
            return Duration::from_millis((*within_ms).into()) + lease::SLACK;
        }
        OperationKind::Release { .. } => {}
        OperationKind::Replace { .. } if replace::is_handed_over(operation) => {}
        _ => return Duration::ZERO,
    }
    let bindings = operation.steps.iter().filter_map(|s| tables.bindings().get(&s.binding));
    let within = bindings.filter_map(|binding| match binding.desired {
        Desired::Released { within_ms } => Some(within_ms),
        _ => None,
    });
    Duration::from_millis(within.max().unwrap_or(0).into())
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
            if let Some(stage) = over(&manager.settings, &mut stages, &tables, operation) {
                end(&manager, operation, stage).await;
            }
        }
    }
}

/// The stage that an operation is in, if it has lasted too long.
fn over(
    settings: &Settings,
    stages: &mut HashMap<OperationId, Stage>,
    tables: &Tables,
    operation: &OperationRecord,
) -> Option<Stage> {
    if overdue::only_erasure_is_left(operation) {
        stages.remove(&operation.id);
        return None;
    }
    let now = Stage::begin(tables, operation, Instant::now());
    let stage = stages.entry(operation.id).or_insert(now);
    if (Stage { since: now.since, ..*stage }) != now {
        *stage = now;
    }
    if take_back::stage(operation) == Some(TakeBackStage::Notice)
        || matches!(operation.what, OperationKind::Drain { .. })
    {
        // A grace time has an end of its own, after which this one begins. A drain ends when all of
        // its parts have ended.
        stage.since = now.since;
        return None;
    }
    (now.since.saturating_duration_since(stage.since) >= stage.bound(settings)).then_some(*stage)
}

async fn end(manager: &Manager, operation: &OperationRecord, stage: Stage) {
    let id = operation.id;
    let ended = manager.records.apply(|txn| {
        if stage.only_enumeration {
            overdue::not_enumerated(txn, operation, stage.bound(&manager.settings));
        } else {
            overdue::expire(txn, &manager.registry, operation);
        }
    });
    if let Err(problem) = ended.await {
        tracing::error!("{id} cannot be ended: {problem}");
    }
}

#[cfg(test)]
mod tests;
