//! Leases: allocations that end by themselves.

use super::deadlines::{Key, Look, Now, Wanted};
use super::request;
use super::take_back::{self, TakeBack};
use crate::config::Settings;
use crate::manager::Manager;
use crate::records::{Tables, Txn};
use crate::types::{
    AllocationId, AllocationRecord, BindingRecord, Desired, EventKind, EventRecord, Lease,
    OperationId, OperationKind, Phase, Problem, ProblemCode, TakeBackStage, Timestamp,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often it looks.
const TICK: Duration = Duration::from_millis(100);

/// Longest lease and longest grace time, milliseconds: ten years.
pub const MAX_LEASE_MS: u64 = 3_653 * 24 * 3_600_000;

/// What an operating system has besides its time before a host is no longer waited for: its proxy
/// takes the device by force itself, and says so.
pub(super) const SLACK: Duration = Duration::from_secs(1);

/// A lease of so many milliseconds from now on.
pub fn from_now(now: Timestamp, lease_ms: u64) -> Lease {
    let until = Timestamp::from_millis(now.as_millis().saturating_add(lease_ms));
    Lease { until, whole_ms: lease_ms, warned: false }
}

/// How long an allocation is still lent.
///
/// # Panics
///
/// When somebody panicked who looked at deadlines.
pub fn left(manager: &Manager, id: AllocationId, lease: &Lease) -> Duration {
    let deadlines = manager.deadlines.lock().expect("no one panics while holding it");
    deadlines.left(Key::Lease(id), lease.until, manager.records.wall())
}

/// Gives an allocation so many milliseconds from now on.
///
/// # Errors
///
/// When there is no such allocation, it ends already, or has longer as it is.
pub fn extend(
    txn: &mut Txn,
    id: AllocationId,
    lease_ms: u64,
    left: impl FnOnce(&Lease) -> Duration,
) -> Result<AllocationRecord, Problem> {
    let Some(allocation) = txn.allocations().get(&id).cloned() else {
        let detail = format!("there is no allocation {id}, or it was released");
        return Err(Problem::new(ProblemCode::NoSuchAllocation, detail));
    };
    if txn.bindings_of(id).all(|binding| binding.desired.is_release()) {
        let first = txn.bindings_of(id).next();
        let ends = first.map(|first| request::ending(txn, first.id));
        let detail = format!("{id} {}", ends.as_deref().unwrap_or("has ended"));
        return Err(Problem::new(ProblemCode::TooLate, detail));
    }
    let shorter = match &allocation.lease {
        None => Some("without an end".to_owned()),
        Some(lease) if left(lease) > Duration::from_millis(lease_ms) => {
            Some(format!("until {}", lease.until))
        }
        Some(_) => None,
    };
    if let Some(now) = shorter {
        let detail = format!("{id} is lent {now}, which is longer; a lease is never shortened");
        return Err(Problem::invalid("lease_ms", detail));
    }
    let lease = from_now(txn.now(), lease_ms);
    let detail = format!("{id} is lent to {} until {}", allocation.host, lease.until);
    let event = EventRecord::new(EventKind::LeaseExtended, detail).node(&allocation.host);
    txn.event(EventRecord { allocation: Some(id), ..event });
    let allocation = AllocationRecord { lease: Some(lease), ..allocation };
    txn.put_allocation(allocation.clone());
    Ok(allocation)
}

/// Everything that has an end.
fn wanted(tables: &Tables) -> Vec<Wanted> {
    let leases = tables.leased().filter_map(|allocation| {
        let lease = allocation.lease.as_ref()?;
        let key = Key::Lease(allocation.id);
        Some(Wanted { key, until: lease.until, whole_ms: lease.whole_ms })
    });
    let graces = take_back::in_notice(tables).filter_map(|operation| match operation.what {
        OperationKind::TakeBack { due, grace_ms, .. } => {
            Some(Wanted { key: Key::Grace(operation.id), until: due, whole_ms: grace_ms })
        }
        _ => None,
    });
    leases.chain(graces).collect()
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Todo {
    /// The records' end follows the wall clock.
    Move(Key, Timestamp, Timestamp),
    /// The borrower is told that its lease ends, if that is still its end.
    Warn(AllocationId, Timestamp),
    /// The lease is over, if that is still its end.
    End(AllocationId, Timestamp),
    /// The grace time is over.
    Due(OperationId),
    /// Some of it is gone by another operation.
    Gone(OperationId),
    /// The operating systems have had their time.
    Force(OperationId),
}

/// Decides.
fn todo(
    tables: &Tables,
    look: &Look,
    warning: Duration,
    asked: &HashMap<OperationId, Instant>,
    now: Instant,
) -> Vec<Todo> {
    let moved = look.moved.iter().map(|moved| Todo::Move(moved.key, moved.from, moved.to));
    let ends = look.left.iter().filter_map(|&(key, left)| match key {
        Key::Grace(id) => left.is_zero().then_some(Todo::Due(id)),
        Key::Lease(id) => {
            let lease = tables.allocations().get(&id)?.lease.as_ref()?;
            // The records follow first.
            let moved = look.moved.iter().find(|moved| moved.key == key);
            let until = moved.map_or(lease.until, |moved| moved.to);
            let stands = || tables.bindings_of(id).any(|binding| stands(tables, binding));
            match lease.warned {
                false if left <= warning => Some(Todo::Warn(id, until)),
                true if left.is_zero() && stands() => Some(Todo::End(id, until)),
                _ => None,
            }
        }
    });
    let running = tables.running().filter_map(|operation| {
        let OperationKind::TakeBack { within_ms, stage, .. } = operation.what else { return None };
        let bound = Duration::from_millis(within_ms.into()) + SLACK;
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= bound;
        let over = stage == TakeBackStage::Orderly && asked.get(&operation.id).is_some_and(is_over);
        let is_gone = |step| take_back::is_gone(tables, operation.id, step);
        if over {
            Some(Todo::Force(operation.id))
        } else {
            operation.steps.iter().any(is_gone).then_some(Todo::Gone(operation.id))
        }
    });
    moved.chain(ends).chain(running).collect()
}

/// Whether a lease that is over has still to end a binding: also one that is being released, which
/// would wait for a host that is away.
fn stands(tables: &Tables, binding: &BindingRecord) -> bool {
    match binding.desired {
        Desired::Bound => true,
        Desired::Released { .. } => {
            binding.phase != Phase::Withdrawn && !take_back::is_taken(tables, binding.id)
        }
        Desired::Forced => false,
    }
}

fn carry_out(txn: &mut Txn, todo: &Todo, settings: &Settings) {
    match todo {
        Todo::Move(key, from, to) => follow(txn, *key, *from, *to),
        Todo::Warn(id, until) => warn(txn, *id, *until, settings.lease_warning),
        Todo::End(id, until) => lease_over(txn, *id, *until, settings),
        Todo::Due(id) => take_back::due(txn, *id),
        Todo::Gone(id) => take_back::gone(txn, *id),
        Todo::Force(id) => take_back::force(txn, *id),
    }
}

fn follow(txn: &mut Txn, key: Key, from: Timestamp, to: Timestamp) {
    match key {
        Key::Lease(id) => {
            let Some(mut allocation) = txn.allocations().get(&id).cloned() else { return };
            if let Some(lease) = allocation.lease.as_mut().filter(|lease| lease.until == from) {
                lease.until = to;
                txn.put_allocation(allocation);
            }
        }
        Key::Grace(id) => {
            let Some(mut operation) = txn.operations().get(&id).cloned() else { return };
            if let OperationKind::TakeBack { due, .. } = &mut operation.what
                && *due == from
            {
                *due = to;
                txn.put_operation(operation);
            }
        }
    }
}

fn warn(txn: &mut Txn, id: AllocationId, until: Timestamp, warning: Duration) {
    let Some(mut allocation) = txn.allocations().get(&id).cloned() else { return };
    let ends = |lease: &&mut Lease| !lease.warned && lease.until == until;
    let Some(lease) = allocation.lease.as_mut().filter(ends) else { return };
    lease.warned = true;
    // It could not be told in time, as of records that could not be written: it has that time from now.
    let whole = (warning.as_millis() as u64).min(lease.whole_ms);
    let least = txn.now().as_millis() + whole;
    if lease.until.as_millis() + (SLACK.as_millis() as u64) < least {
        lease.until = Timestamp::from_millis(least);
    }
    let detail = format!(
        "the lease of {id} ends at {}; then {} has to give it back. `dxpu-manager extend {id}` \
         extends it",
        lease.until, allocation.host
    );
    let event = EventRecord::new(EventKind::LeaseEnding, detail).node(&allocation.host);
    txn.event(EventRecord { allocation: Some(id), ..event });
    txn.put_allocation(allocation);
}

fn lease_over(txn: &mut Txn, id: AllocationId, until: Timestamp, settings: &Settings) {
    let Some(allocation) = txn.allocations().get(&id).cloned() else { return };
    // It may have been extended since it was looked at.
    if !allocation.lease.as_ref().is_some_and(|lease| lease.warned && lease.until == until) {
        return;
    }
    let how = TakeBack {
        grace_ms: 0,
        within_ms: settings.lease_grace.as_millis() as u32,
        reason: format!("the lease of {id} is over"),
    };
    // What an earlier take-back of this allocation has told the borrower of is taken now; what one of
    // more than this has told it of goes by itself.
    let told: Vec<OperationId> = take_back::in_notice(txn)
        .filter(|operation| operation.allocation == Some(id))
        .map(|operation| operation.id)
        .collect();
    for operation in &told {
        take_back::due(txn, *operation);
    }
    let standing: Vec<BindingRecord> =
        txn.bindings_of(id).filter(|binding| stands(txn, binding)).cloned().collect();
    let operation = match standing.is_empty() {
        true => told.first().copied(),
        false => Some(take_back::begin_with(txn, &standing, &how, None).id),
    };
    let Some(operation) = operation else { return };
    let event = EventRecord::new(EventKind::LeaseOver, how.reason).node(&allocation.host);
    txn.event(EventRecord { allocation: Some(id), ..event }.operation(operation));
}

/// Looks until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    // Since when the operating systems have been asked. No larger than the running operations.
    let mut asked: HashMap<OperationId, Instant> = HashMap::new();
    loop {
        let tables = manager.records.snapshot();
        let now = Now::read(manager.records.wall());
        let is_asked = |id: &OperationId| {
            let operation = tables.operations().get(id).filter(|o| !o.state.is_final());
            operation.and_then(take_back::stage) == Some(TakeBackStage::Orderly)
        };
        asked.retain(|id, _| is_asked(id));
        for operation in tables.running().filter(|operation| is_asked(&operation.id)) {
            asked.entry(operation.id).or_insert(now.monotonic);
        }
        let warning = manager.settings.lease_warning;
        let look = {
            let mut deadlines = manager.deadlines.lock().expect("no one panics while holding it");
            deadlines.look(now, warning, &wanted(&tables))
        };
        if look.jumped_ms != 0 {
            let detail = format!(
                "the wall clock jumped by {} ms; what has an end keeps its time",
                look.jumped_ms
            );
            manager.event_now(EventRecord::new(EventKind::ClockJumped, detail)).await;
        }
        let todo = todo(&tables, &look, warning, &asked, now.monotonic);
        if !todo.is_empty() {
            let done = manager.records.apply(|txn| {
                todo.iter().for_each(|todo| carry_out(txn, todo, &manager.settings));
            });
            if let Err(problem) = done.await {
                tracing::error!("what is over cannot be taken back: {problem}");
            }
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            () = manager.stopping() => return,
        }
    }
}

#[cfg(test)]
mod tests;
