//! Holding something back, so that it gets nothing new ([`holds`]), and emptying it.
//!
//! A drain holds its place back and ends what is lent there: each device is released, or replaced by
//! another one by an operation of its own. It has ended when nothing is left. What it holds back stays
//! so until somebody says otherwise.
//!
//! A rack or site is its boxes and hosts, as the inventory says where they stand: also those that come
//! there later. A fabric is its paths.
//!
//! A path is held back in its own way: bindings that have others go on over those, and what is bound
//! from then on does not use it. The path set of a binding is fixed with its epoch, at both ends; so a
//! drain of a path makes only those bindings again, under new epochs, whose set has no other. Where
//! there is no other between box and host, the binding is left as it is and the drain says so.

mod place;
mod todo;
mod waiting;

pub(super) use place::{check, lent};

use super::replace::Replace;
use super::request::{ClientKey, begin, release_steps, repeated, step};
use super::{choosing, holds, progress, take_back};
use crate::control::Registry;
use crate::manager::Manager;
use crate::records::{Tables, Txn};
use crate::types::{
    BindingId, BindingRecord, Desired, HoldKind, HoldRecord, OperationId, OperationKind,
    OperationRecord, OperationState, Place, Problem, ProblemCode, StepName, StepState,
};
use place::stands_in;
use proxy_core::control::PathSet;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use todo::{Todo, everything};
use waiting::Waiting;

/// How often it looks at drains that run.
const TICK: Duration = Duration::from_millis(100);

/// How something is emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Whether devices are replaced by others instead of being released.
    pub replace: bool,
    /// How long each operating system has to let go, milliseconds.
    pub within_ms: u32,
    /// Why.
    pub reason: String,
}

/// Holds something back and empties it.
///
/// # Errors
///
/// When there is no such thing, it is being drained already, or the key cannot be used.
pub fn drain(
    txn: &mut Txn,
    registry: &Registry,
    place: &Place,
    how: &Drain,
    key: Option<ClientKey>,
) -> Result<OperationRecord, Problem> {
    if let Some(there) = repeated(txn, key.as_ref())? {
        return Ok(there);
    }
    check(txn, place)?;
    if let Some(there) = holds::draining(txn, place) {
        let detail = format!("{} drains {place} already, since {}", there.id, there.started);
        return Err(Problem::new(ProblemCode::SlotBusy, detail));
    }
    let is_path = txn.paths_of(place).is_some();
    if how.replace && is_path {
        return Err(Problem::invalid("replace", "what a path carries stays where it is"));
    }
    if how.replace
        && let Place::Node(name) = place
        && txn.nodes()[name].role == crate::types::Role::Host
    {
        return Err(Problem::invalid("replace", "a host's devices are replaced on the same host"));
    }
    let bindings = lent(txn, place);
    let id = txn.new_operation_id();
    let mut steps = Vec::new();
    // What a host has that goes with the place has nowhere to be replaced to.
    let stays = |b: &&BindingRecord| how.replace && !stands_in(txn, &b.host, place);
    let released: Vec<BindingRecord> = bindings.iter().filter(|b| !stays(b)).cloned().collect();
    for binding in &bindings {
        match (is_path, stays(&binding)) {
            (true, _) => {
                let port = format!("{} port {}", binding.host, binding.port);
                steps.push(step(binding, StepName::Rebind, port));
            }
            (false, true) => {
                steps.push(step(binding, StepName::Replace, binding.slot.to_string()));
            }
            (false, false) => steps.extend(release_steps(binding)),
        }
    }
    let former = txn.holds().get(place).filter(|hold| hold.kind != HoldKind::Unhealthy);
    let former = former.map(|former| Box::new(HoldRecord::clone(former)));
    holds::hold(
        txn,
        HoldRecord {
            place: place.clone(),
            kind: HoldKind::Drained,
            reason: how.reason.clone(),
            since: txn.now(),
            operation: Some(id),
        },
    );
    let what = OperationKind::Drain {
        place: place.clone(),
        slots: bindings.iter().map(|binding| binding.slot.clone()).collect(),
        replace: how.replace,
        within_ms: how.within_ms,
        reason: how.reason.clone(),
        former,
    };
    begin(txn, id, what, None, steps, key);
    match is_path {
        true => {
            let bindings: Vec<BindingId> = bindings.iter().map(|binding| binding.id).collect();
            rebind(txn, registry, id, &bindings);
        }
        // Other devices, where they are wanted, are chosen one by one.
        false => release(txn, id, &released, how.within_ms),
    }
    progress::settle(txn, id);
    Ok(txn.operations()[&id].clone())
}

/// Makes bindings again, under new epochs and by other paths, where it is known that there are any.
fn rebind(txn: &mut Txn, registry: &Registry, id: OperationId, bindings: &[BindingId]) {
    let Some(mut operation) = txn.operations().get(&id).filter(|o| !o.state.is_final()).cloned()
    else {
        return;
    };
    let OperationKind::Drain { reason, .. } = &operation.what else { return };
    let why = format!("its path is drained: {reason}");
    let can = |binding: &&BindingRecord| has_other_paths(txn, registry, binding) == Some(true);
    let there = bindings.iter().filter_map(|id| txn.bindings().get(id));
    let moved: Vec<BindingId> = there.filter(can).map(|binding| binding.id).collect();
    for step in operation.steps.iter_mut().filter(|step| moved.contains(&step.binding)) {
        step.asked = Some(txn.now());
    }
    txn.put_operation(operation);
    for binding in moved {
        progress::failed(txn, binding, &why);
    }
}

/// Whether a binding can have paths that are not held back. While a proxy is away it is not known.
fn has_other_paths(tables: &Tables, registry: &Registry, binding: &BindingRecord) -> Option<bool> {
    let (at_box, at_host) =
        (registry.ready(binding.slot.box_name()), registry.ready(&binding.host));
    let common = at_box?.common_paths(at_host?.as_ref());
    let held = tables.held_for(binding);
    let PathSet(set) = tables.link_use(binding).path_set_without(common, held);
    Some(set & !held != 0)
}

/// Undoes the operations as a whole that are making some of these bindings.
pub(super) fn undo_making(txn: &mut Txn, bindings: &[BindingRecord], why: &str) {
    let making: BTreeSet<OperationId> = bindings
        .iter()
        .filter(|b| !b.desired.is_release())
        .filter_map(|b| b.operation)
        .filter(|other| txn.operations().get(other).is_some_and(progress::can_be_undone))
        .collect();
    for other in making {
        progress::roll_back(txn, other, None, Problem::new(ProblemCode::Superseded, why));
    }
}

/// Ends bindings. What an operation is still making is undone as a whole.
fn release(txn: &mut Txn, id: OperationId, bindings: &[BindingRecord], within_ms: u32) {
    undo_making(txn, bindings, &format!("{id} drains where its devices are"));
    for binding in bindings {
        let Some(binding) = txn.bindings().get(&binding.id).cloned() else { continue };
        if binding.desired.is_release() {
            continue;
        }
        let (desired, operation) = (Desired::Released { within_ms }, Some(id));
        progress::ends(txn, BindingRecord { desired, operation, ..binding });
    }
    take_back::gone(txn, id);
}

/// A drain is called back: what it holds back can be used again, unless it was held back before or is
/// not well, and the replacements that it began and that can be undone are.
pub fn leave(txn: &mut Txn, operation: &OperationRecord) {
    let OperationKind::Drain { place, former, .. } = &operation.what else { return };
    for child in children(txn, operation.id) {
        // One that has handed over goes on to its end.
        let _ = super::cancel(txn, child);
    }
    // A replacement that has handed over holds its slot back for itself.
    if txn.holds().get(place).is_none_or(|own| own.operation != Some(operation.id)) {
        return;
    }
    match former {
        Some(former) => holds::hold(txn, HoldRecord::clone(former)),
        None => holds::end_other_hold(txn, place),
    }
}

/// The replacements that a drain began and that run.
fn children(tables: &Tables, id: OperationId) -> Vec<OperationId> {
    let own = |o: &&OperationRecord| matches!(o.what, OperationKind::Replace { parent, .. } if parent == Some(id));
    tables.running().filter(own).map(|o| o.id).collect()
}

/// One step of a drain has ended.
fn over(
    txn: &mut Txn,
    id: OperationId,
    binding: BindingId,
    name: StepName,
    how: Result<Option<String>, String>,
) {
    let Some(mut operation) = txn.operations().get(&id).filter(|o| !o.state.is_final()).cloned()
    else {
        return;
    };
    let now = txn.now();
    let Some(step) = operation.step_mut(binding, name) else { return };
    step.changed = now;
    (step.state, step.detail) = match how {
        Ok(detail) => (StepState::Done, detail),
        Err(why) => (StepState::Failed, Some(why)),
    };
    let failed: Vec<String> = operation
        .steps
        .iter()
        .filter(|step| step.state == StepState::Failed)
        .map(|step| format!("{}: {}", step.target, step.detail.as_deref().unwrap_or_default()))
        .collect();
    let over = operation.steps.iter().all(|step| step.state != StepState::Pending);
    if over && !failed.is_empty() {
        let detail = format!("not empty: {}", failed.join("; "));
        let problem = Problem::new(ProblemCode::NothingFits, detail).because(failed);
        let operation = OperationRecord { error: Some(problem), ..operation };
        return progress::end(txn, operation, OperationState::Failed);
    }
    txn.put_operation(operation);
    progress::settle(txn, id);
}

/// Does it, each in a change of its own.
///
/// # Errors
///
/// When the records cannot be changed.
async fn carry_out(
    manager: &Arc<Manager>,
    waiting: &mut Waiting,
    todo: Todo,
) -> Result<(), Problem> {
    match todo {
        Todo::Rebind(id, binding) => {
            manager.records.apply(|txn| rebind(txn, &manager.registry, id, &[binding])).await
        }
        Todo::Gone(id) => manager.records.apply(|txn| take_back::gone(txn, id)).await,
        Todo::Over(id, binding, name, how) => {
            manager.records.apply(|txn| over(txn, id, binding, name, how)).await
        }
        Todo::Replace(id, binding) => begin_replacing(manager, waiting, id, binding).await,
    }
}

/// Begins to replace a device, or records why it cannot be. Where nothing fits while other
/// replacements of the drain run on the same host, it is tried again when one of them has ended.
async fn begin_replacing(
    manager: &Arc<Manager>,
    waiting: &mut Waiting,
    id: OperationId,
    binding: BindingId,
) -> Result<(), Problem> {
    let running =
        |tables: &Tables| tables.operations().get(&id).filter(|o| !o.state.is_final()).cloned();
    let before = manager.records.snapshot();
    let what = running(&before).map(|operation| operation.what);
    let Some(OperationKind::Drain { within_ms, reason, .. }) = what else { return Ok(()) };
    if waiting.waits(&before, id, binding) {
        return Ok(());
    }
    let how = Replace { within_ms: Some(within_ms), reason, parent: Some(id) };
    let begun = choosing::replace(manager, binding, &how, None, |txn| match running(txn) {
        Some(_) => Ok(()),
        None => Err(Problem::new(ProblemCode::TooLate, format!("{id} has ended"))),
    });
    match begun.await {
        Ok(_) => Ok(()),
        Err(problem) if problem.transient => Ok(()),
        Err(problem)
            if problem.code == ProblemCode::NothingFits && waiting.note(&before, id, binding) =>
        {
            Ok(())
        }
        Err(problem) if choosing::is_the_managers(&problem) => Err(problem),
        Err(Problem { detail, .. }) => {
            let how = Err(detail);
            let ended = manager.records.apply(|txn| {
                // Released meanwhile, it is not in the way: its end is waited for.
                let stands = txn.bindings().get(&binding).is_some_and(|b| !b.desired.is_release());
                if stands {
                    over(txn, id, binding, StepName::Replace, how);
                }
            });
            ended.await
        }
    }
}

/// Looks until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let mut waiting = Waiting::default();
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            () = manager.stopping() => return,
        }
        let tables = manager.records.snapshot();
        waiting.tidy(&tables);
        for todo in everything(&tables, &manager.registry) {
            if let Err(problem) = carry_out(&manager, &mut waiting, todo).await {
                tracing::error!("a drain cannot go on: {problem}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
