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

use super::replace::{self, Replace};
use super::request::{ClientKey, begin, release_steps, repeated, step};
use super::{choosing, holds, progress, take_back};
use crate::control::Registry;
use crate::manager::Manager;
use crate::records::{Tables, Txn};
use crate::types::{
    BindingId, BindingRecord, Desired, HoldKind, HoldRecord, NodeName, OperationId, OperationKind,
    OperationRecord, OperationState, Phase, Place, Problem, ProblemCode, Step, StepName, StepState,
};
use proxy_core::control::PathSet;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

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

/// Checks that there is such a place.
pub(super) fn check(txn: &Txn, place: &Place) -> Result<(), Problem> {
    let inventory = &txn.pool().facts().record().inventory;
    let known = |is: bool| match is {
        true => Ok(()),
        false => {
            let detail = format!("the inventory has no {place}");
            Err(Problem::new(ProblemCode::NoSuchPlace, detail))
        }
    };
    let name = match place {
        Place::Path(_) => return Ok(()),
        Place::Rack(name) => return known(inventory.racks.contains_key(name)),
        Place::Site(name) => return known(inventory.sites.contains_key(name)),
        Place::Fabric(name) => return known(inventory.fabrics.contains_key(name)),
        Place::Node(name) => name,
        Place::Slot(slot) => slot.box_name(),
    };
    let Some(node) = txn.nodes().get(name) else {
        let detail = format!("there is no proxy with the name {name}, or it was forgotten");
        return Err(Problem::new(ProblemCode::NoSuchNode, detail));
    };
    match place {
        Place::Slot(slot) if slot.slot().get() > node.size => {
            let detail = format!("{name} has no slot {}; it has {}", slot.slot(), node.size);
            Err(Problem::new(ProblemCode::NoSuchSlot, detail))
        }
        _ => Ok(()),
    }
}

/// What is lent there. Of a path: what uses it and no path that is not held back.
pub(super) fn lent(tables: &Tables, place: &Place) -> Vec<BindingRecord> {
    match place {
        Place::Slot(slot) => tables.binding_at_slot(slot).cloned().into_iter().collect(),
        Place::Node(name) => tables.bindings_at(name).cloned().collect(),
        Place::Rack(_) | Place::Site(_) => {
            let there = |b: &&BindingRecord| {
                stands_in(tables, b.slot.box_name(), place) || stands_in(tables, &b.host, place)
            };
            tables.bindings().values().filter(there).cloned().collect()
        }
        Place::Path(_) | Place::Fabric(_) => {
            let paths = tables.paths_of(place).unwrap_or_default();
            // What the box does not have gets its paths when it does.
            let only = |b: &&BindingRecord| {
                let (set, held) = (tables.paths_of_binding(b), tables.held_for(b) | paths);
                b.phase.at_box() && set & paths != 0 && set & !held == 0
            };
            tables.bindings().values().filter(only).cloned().collect()
        }
    }
}

/// Whether a box or host is this place, or stands there.
fn stands_in(tables: &Tables, name: &NodeName, place: &Place) -> bool {
    let (rack, site) = tables.stand(name);
    match place {
        Place::Node(node) => node == name,
        Place::Rack(place) => rack.as_ref() == Some(place),
        Place::Site(place) => site.as_ref() == Some(place),
        Place::Slot(_) | Place::Path(_) | Place::Fabric(_) => false,
    }
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
        txn.update_binding(BindingRecord { desired, operation, ..binding });
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

/// Something to do about a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Todo {
    /// Make a binding again by other paths.
    Rebind(OperationId, BindingId),
    /// Begin to replace a device.
    Replace(OperationId, BindingId),
    /// A step has ended, well or with a reason.
    Over(OperationId, BindingId, StepName, Result<Option<String>, String>),
    /// Some of it is gone by another operation.
    Gone(OperationId),
}

/// Decides, for one drain, or an operation that waits for parts that other ones end.
fn todo(tables: &Tables, registry: &Registry, operation: &OperationRecord) -> Vec<Todo> {
    let id = operation.id;
    let mut todo = Vec::new();
    let waits = |s: &&Step| s.state == StepState::Pending && s.name != StepName::Erase;
    for step in operation.steps.iter().filter(waits) {
        let binding = tables.bindings().get(&step.binding);
        let over = |how| Todo::Over(id, step.binding, step.name, how);
        match (step.name, binding) {
            (StepName::Rebind | StepName::Replace, None) => todo.push(over(Ok(None))),
            (StepName::Rebind, Some(binding)) => {
                // What is being released is waited for until it is gone.
                let stands = matches!(binding.phase, Phase::Bound | Phase::Configured);
                if stands && !binding.desired.is_release() {
                    todo.extend(rebinding(tables, registry, id, step, binding));
                }
            }
            (StepName::Replace, Some(binding)) => {
                let of_this = |o: &&OperationRecord| replace::old_binding(o) == Some(binding.id);
                let last =
                    tables.operations().values().rev().take_while(|o| o.id > id).find(of_this);
                // What another operation stood in the way of is begun again when that is over.
                match last.filter(|child| !was_superseded(child)) {
                    Some(child) if !child.state.is_final() => {}
                    Some(child) if child.state == OperationState::Succeeded => {
                        todo.push(over(Ok(Some(child.id.to_string()))));
                    }
                    // What another operation is at work on, or takes back, is waited for.
                    _ if binding.desired.is_release() => {}
                    Some(child) => {
                        let why = child.error.as_ref().map_or("", |problem| &problem.detail);
                        todo.push(over(Err(format!("{}: {why}", child.id))));
                    }
                    None if binding.operation.is_some() => {}
                    None if take_back::notice_of(tables, binding.id).is_some() => {}
                    None => todo.push(Todo::Replace(id, binding.id)),
                }
            }
            _ if take_back::is_gone(tables, id, step) => todo.push(Todo::Gone(id)),
            _ => {}
        }
    }
    todo.dedup();
    todo
}

/// Whether an operation failed because another one undid it.
fn was_superseded(operation: &OperationRecord) -> bool {
    let code = operation.error.as_ref().map(|problem| problem.code);
    operation.state == OperationState::Failed && code == Some(ProblemCode::Superseded)
}

/// Decides, for a binding that stands and is to have other paths.
fn rebinding(
    tables: &Tables,
    registry: &Registry,
    id: OperationId,
    step: &Step,
    binding: &BindingRecord,
) -> Option<Todo> {
    let over = |how| Some(Todo::Over(id, binding.id, StepName::Rebind, how));
    if tables.paths_of_binding(binding) & !tables.held_for(binding) != 0 {
        return over(Ok(None));
    }
    match has_other_paths(tables, registry, binding) {
        None => None,
        // It was made again once, and got none of them.
        Some(true) if step.asked.is_none() => Some(Todo::Rebind(id, binding.id)),
        Some(_) => {
            let (one, other) = (binding.slot.box_name(), &binding.host);
            over(Err(format!("{one} and {other} have no path that is not held back")))
        }
    }
}

/// Decides, for every operation that is followed here.
fn everything(tables: &Tables, registry: &Registry) -> Vec<Todo> {
    let follows = |o: &&OperationRecord| {
        o.state == OperationState::Running
            && match o.what {
                OperationKind::Drain { .. }
                | OperationKind::Release { .. }
                | OperationKind::Forget { .. } => true,
                // Another operation may release the old device.
                OperationKind::Replace { .. } => replace::is_handed_over(o),
                _ => false,
            }
    };
    let followed = tables.running().filter(follows);
    followed.flat_map(|operation| todo(tables, registry, operation)).collect()
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
async fn carry_out(manager: &Arc<Manager>, todo: Todo) -> Result<(), Problem> {
    match todo {
        Todo::Rebind(id, binding) => {
            manager.records.apply(|txn| rebind(txn, &manager.registry, id, &[binding])).await
        }
        Todo::Gone(id) => manager.records.apply(|txn| take_back::gone(txn, id)).await,
        Todo::Over(id, binding, name, how) => {
            manager.records.apply(|txn| over(txn, id, binding, name, how)).await
        }
        Todo::Replace(id, binding) => begin_replacing(manager, id, binding).await,
    }
}

/// Begins to replace a device, or records why it cannot be.
async fn begin_replacing(
    manager: &Arc<Manager>,
    id: OperationId,
    binding: BindingId,
) -> Result<(), Problem> {
    let running =
        |tables: &Tables| tables.operations().get(&id).filter(|o| !o.state.is_final()).cloned();
    let what = running(&manager.records.snapshot()).map(|operation| operation.what);
    let Some(OperationKind::Drain { within_ms, reason, .. }) = what else { return Ok(()) };
    let how = Replace { within_ms: Some(within_ms), reason, parent: Some(id) };
    let begun = choosing::replace(manager, binding, &how, None, |txn| match running(txn) {
        Some(_) => Ok(()),
        None => Err(Problem::new(ProblemCode::TooLate, format!("{id} has ended"))),
    });
    match begun.await {
        Ok(_) => Ok(()),
        Err(problem) if problem.transient => Ok(()),
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
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            () = manager.stopping() => return,
        }
        let tables = manager.records.snapshot();
        for todo in everything(&tables, &manager.registry) {
            if let Err(problem) = carry_out(&manager, todo).await {
                tracing::error!("a drain cannot go on: {problem}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The wall clock may go back between the drain and the binding that is made again.
    #[test]
    fn a_binding_that_was_made_again_ends_its_step_whatever_the_clock_says() {
        let (early, late) = ("2026-01-01T00:00:00.000Z", "2026-01-01T01:00:00.000Z");
        let step = json!({
            "name": "rebind", "binding": "bind-1", "target": "host1 port 0", "state": "pending",
            "asked": late, "changed": late,
        });
        let epoch = tlp_codec::ids::Epoch::new(0, 2).unwrap();
        let operation: OperationRecord = serde_json::from_value(json!({
            "id": "op-2", "state": "running", "steps": [step], "started": late,
            "warnings": [], "what": { "kind": "release", "slots": ["box1/1"], "force": false },
        }))
        .unwrap();
        for (phase, desired, ends) in [
            ("failed", json!("bound"), false),
            ("reserved", json!("bound"), false),
            ("bound", json!("bound"), true),
            ("bound", json!("forced"), false),
        ] {
            let binding: BindingRecord = serde_json::from_value(json!({
                "id": "bind-1", "allocation": "alloc-1", "slot": "box1/1", "host": "host1",
                "functions": [{ "function": 0, "epoch": epoch }], "port": 0, "phase": phase,
                "desired": desired, "since": early, "changed": early,
            }))
            .unwrap();
            let mut txn = Txn::new(Tables::default());
            txn.add_binding(binding);
            let over = Todo::Over(operation.id, BindingId(1), StepName::Rebind, Ok(None));
            let expected = if ends { vec![over] } else { Vec::new() };
            assert_eq!(todo(&txn, &Registry::default(), &operation), expected, "{phase} {desired}");
        }
    }

    /// The old device goes by a release that began before the new one was in place.
    #[test]
    fn a_replacement_ends_when_another_operation_has_released_the_old_device() {
        let now = "2026-01-01T00:00:00.000Z";
        let step = |name: &str, binding: &str, state: &str| {
            json!({
                "name": name, "binding": binding, "target": "x", "state": state, "changed": now,
            })
        };
        let operation = |enumerated: &str| -> OperationRecord {
            let steps = [
                step("bind-slot", "bind-2", "done"),
                step("bind-port", "bind-2", "done"),
                step("enumerate", "bind-2", enumerated),
                step("unbind-port", "bind-1", "pending"),
                step("unbind-slot", "bind-1", "pending"),
            ];
            serde_json::from_value(json!({
                "id": "op-2", "state": "running", "steps": steps, "started": now, "warnings": [],
                "what": {
                    "kind": "replace", "host": "host1", "slots": ["box1/1", "box1/2"],
                    "within_ms": 1000, "reason": "x",
                },
            }))
            .unwrap()
        };
        let old: BindingRecord = serde_json::from_value(json!({
            "id": "bind-1", "allocation": "alloc-1", "slot": "box1/1", "host": "host1",
            "functions": [{ "function": 0, "epoch": tlp_codec::ids::Epoch::new(0, 2).unwrap() }],
            "port": 0, "phase": "configured", "desired": "forced", "operation": "op-3",
            "since": now, "changed": now,
        }))
        .unwrap();
        let mut txn = Txn::new(Tables::default());
        let registry = Registry::default();
        txn.add_binding(old.clone());
        txn.put_operation(operation("pending"));
        assert_eq!(
            everything(&txn, &registry),
            [],
            "until it has handed over, it makes the new one"
        );
        txn.put_operation(operation("done"));
        let id = operation("done").id;
        let states = |txn: &Txn| {
            let steps = txn.operations()[&id].steps[3..].iter();
            (txn.operations()[&id].state, steps.map(|step| step.state).collect::<Vec<_>>())
        };
        use StepState::{Done, Pending};
        assert_eq!(everything(&txn, &registry), [], "it is still being asked to let go");
        let out = BindingRecord { phase: Phase::Withdrawn, ..old.clone() };
        txn.update_binding(out);
        assert_eq!(everything(&txn, &registry), [Todo::Gone(id)]);
        take_back::gone(&mut txn, id);
        assert_eq!(states(&txn), (OperationState::Running, vec![Done, Pending]));
        assert_eq!(everything(&txn, &registry), [], "nothing is written while its box resets it");
        txn.remove_binding(old.id);
        assert_eq!(everything(&txn, &registry), [Todo::Gone(id)]);
        take_back::gone(&mut txn, id);
        assert_eq!(states(&txn), (OperationState::Succeeded, vec![Done, Done]));
        assert_eq!(everything(&txn, &registry), []);
    }
}
