//! How bindings and the operations that wait for them get on. Each function is one thing that
//! happened; it changes binding, operation and events together, and does nothing when it comes too
//! late to matter.

use super::request::{join, release_steps};
use super::{replace, take_back};
use crate::records::Txn;
use crate::types::{
    BindingId, BindingRecord, Desired, DeviceState, EraseRule, ErasureRecord, ErasureState,
    EventKind, EventRecord, FunctionEpoch, OperationId, OperationKind, OperationRecord,
    OperationState, Phase, Problem, ProblemCode, Role, Step, StepName, StepState,
};
use proxy_core::control::PathSet;
use std::collections::BTreeSet;
use tlp_codec::ids::{Epoch, SlotFunction};

/// A binding as it was when something was asked of a proxy: what comes back is about that.
pub(crate) fn same_life<'a>(txn: &'a Txn, asked: &BindingRecord) -> Option<&'a BindingRecord> {
    txn.bindings().get(&asked.id).filter(|now| now.functions == asked.functions)
}

fn go(txn: &mut Txn, binding: &BindingRecord, phase: Phase) -> BindingRecord {
    let binding = BindingRecord { phase, trouble: None, changed: txn.now(), ..binding.clone() };
    txn.update_binding(binding.clone());
    binding
}

/// The box has the binding, in this life of its, with these of so many paths that it and the host
/// have in common. If all of those have been held back meanwhile and others are not, it is made
/// again by the others, before the host has it.
pub fn slot_bound(
    txn: &mut Txn,
    asked: &BindingRecord,
    box_incarnation: u32,
    path_set: PathSet,
    common: usize,
) {
    let Some(binding) = same_life(txn, asked).filter(|b| b.phase == Phase::Reserved).cloned()
    else {
        return;
    };
    let held = txn.held_for(&binding);
    let PathSet(now) = txn.link_use(&binding).path_set_without(common, held);
    let (box_incarnation, path_set) = (Some(box_incarnation), Some(path_set));
    let binding = BindingRecord { box_incarnation, path_set, ..binding };
    if txn.paths_of_binding(&binding) & !held == 0 && now & !held != 0 {
        txn.update_binding(binding.clone());
        return made_again(txn, binding.id, "its paths are held back by now");
    }
    let binding = go(txn, &binding, Phase::SlotBound);
    step(txn, &binding, StepName::BindSlot, StepState::Done, None);
}

/// The host has the binding, in this life of its proxy.
pub fn port_bound(txn: &mut Txn, asked: &BindingRecord, host_incarnation: u32) {
    // When the operating system was quicker than this answer, the binding is configured already.
    let Some(binding) = same_life(txn, asked).filter(|b| b.phase == Phase::SlotBound).cloned()
    else {
        return;
    };
    let binding = BindingRecord { host_incarnation: Some(host_incarnation), ..binding };
    let binding = go(txn, &binding, Phase::Bound);
    let detail = format!("{} is plugged into {} port {}", binding.slot, binding.host, binding.port);
    txn.event(EventRecord::new(EventKind::Bound, detail).binding(&binding));
    step(txn, &binding, StepName::BindPort, StepState::Done, None);
}

/// The host's operating system enabled the device.
pub fn configured(txn: &mut Txn, id: BindingId, host_incarnation: u32) {
    let Some(binding) = txn.bindings().get(&id).cloned() else { return };
    if !matches!(binding.phase, Phase::SlotBound | Phase::Bound) || binding.desired.is_release() {
        return;
    }
    let binding = BindingRecord { host_incarnation: Some(host_incarnation), ..binding };
    let binding = go(txn, &binding, Phase::Configured);
    let detail = format!("{} enabled the device of {}", binding.host, binding.slot);
    txn.event(EventRecord::new(EventKind::Configured, detail).binding(&binding));
    step(txn, &binding, StepName::BindPort, StepState::Done, None);
    step(txn, &binding, StepName::Enumerate, StepState::Done, None);
}

/// The binding is dead under its epochs. If an operation is still making it, that is undone;
/// otherwise it is made again.
pub fn failed(txn: &mut Txn, id: BindingId, why: &str) {
    let Some(binding) = txn.bindings().get(&id).cloned() else { return };
    if binding.desired.is_release() || !binding.phase.may_become(Phase::Failed) {
        return;
    }
    let mut binding = go(txn, &binding, Phase::Failed);
    binding.trouble = Some(why.to_owned());
    txn.update_binding(binding.clone());
    let detail = format!("{} at {} failed: {why}", binding.slot, binding.host);
    txn.event(EventRecord::new(EventKind::BindingFailed, detail.clone()).binding(&binding));
    if let Some(operation) = binding.operation {
        let problem = Problem::new(ProblemCode::ProxyRefused, detail);
        roll_back(txn, operation, Some(id), problem);
    }
}

/// The binding is dead under its epochs before its host had it: it is made under others, and who waits
/// for it goes on waiting.
pub fn made_again(txn: &mut Txn, id: BindingId, why: &str) {
    let Some(binding) = txn.bindings().get(&id).cloned() else { return };
    if binding.desired.is_release() || !binding.phase.may_become(Phase::Failed) {
        return;
    }
    let binding = go(txn, &binding, Phase::Failed);
    let detail = format!("{} is bound again: {why}", binding.slot);
    txn.event(EventRecord::new(EventKind::Trouble, detail).binding(&binding));
}

/// The host's operating system let go of the device without being asked, as when a person presses
/// the slot's button there. Plugging it again, or another in its place, would be against its will: the
/// slot is taken back.
pub fn let_go(txn: &mut Txn, id: BindingId) {
    let Some(binding) = txn.bindings().get(&id).filter(|b| !b.desired.is_release()).cloned() else {
        return;
    };
    let detail = format!("{} let go of {} by itself; it is taken back", binding.host, binding.slot);
    txn.event(EventRecord::new(EventKind::HostLetGo, detail.clone()).binding(&binding));
    if let Some(operation) = binding.operation {
        roll_back(txn, operation, Some(id), Problem::new(ProblemCode::ProxyRefused, detail));
    } else {
        take_back::undo_replacing(txn, &BTreeSet::from([id]), &detail);
        txn.update_binding(BindingRecord { desired: Desired::Forced, ..binding });
    }
}

/// A table lacks a binding that it should have; it is written again.
pub fn missing(txn: &mut Txn, id: BindingId, phase: Phase, at: &str) {
    let Some(binding) = txn.bindings().get(&id).cloned() else { return };
    if binding.desired.is_release() || !binding.phase.may_become(phase) {
        return;
    }
    let binding = go(txn, &binding, phase);
    let detail = format!("the table of {at} lacks {}; it is written again", binding.slot);
    txn.event(EventRecord::new(EventKind::BindingMissing, detail).binding(&binding));
}

/// A step cannot be done now. Whoever asks sees why; if trying again cannot help and an operation
/// is making the binding, that is undone.
pub fn trouble(txn: &mut Txn, asked: &BindingRecord, problem: &Problem, lasting: bool) {
    let Some(binding) = same_life(txn, asked).cloned() else { return };
    let operation = binding.operation.filter(|_| lasting && !binding.desired.is_release());
    if binding.trouble.as_deref() != Some(problem.detail.as_str()) {
        let event = EventRecord::new(EventKind::Trouble, problem.detail.clone());
        txn.event(event.binding(&binding));
        let trouble = Some(problem.detail.clone());
        txn.update_binding(BindingRecord { trouble, ..binding });
    }
    if let Some(operation) = operation {
        roll_back(txn, operation, Some(asked.id), problem.clone());
    }
}

/// The binding is out of its host.
pub fn withdrawn(txn: &mut Txn, asked: &BindingRecord, how: &str) {
    let Some(binding) = same_life(txn, asked).cloned() else { return };
    if !binding.phase.may_become(Phase::Withdrawn) {
        return;
    }
    let binding = go(txn, &binding, Phase::Withdrawn);
    let detail = format!("{} is out of {}: {how}", binding.slot, binding.host);
    txn.event(EventRecord::new(EventKind::Withdrawn, detail).binding(&binding));
    step(txn, &binding, StepName::UnbindPort, StepState::Done, Some(how.to_owned()));
}

/// A binding ends from now on, by the operation that it names. One that was being made again, and is
/// out of its host at the moment, does not get out of it any more.
pub(super) fn ends(txn: &mut Txn, binding: BindingRecord) {
    txn.update_binding(binding.clone());
    if binding.phase == Phase::Withdrawn {
        step(txn, &binding, StepName::UnbindPort, StepState::Done, None);
    }
}

/// The box has freed the functions, or not; the states are those after it. A binding that was to
/// end is gone with this, and its device is to be erased where a rule says so. One that still stands
/// gets new epochs, if its device can be lent.
pub fn freed(
    txn: &mut Txn,
    rules: &[EraseRule],
    asked: &BindingRecord,
    states: &[(SlotFunction, DeviceState)],
) {
    let Some(binding) = same_life(txn, asked).filter(|b| b.phase == Phase::Withdrawn).cloned()
    else {
        return;
    };
    let mut changed = false;
    for (address, (_, state)) in binding.addresses().zip(states) {
        changed |= txn.device_became(&address, *state);
    }
    let quarantined = states.iter().any(|(_, state)| *state == DeviceState::Quarantined);
    if quarantined {
        let detail = format!(
            "{} is quarantined: its device failed its reset or readiness test; `dxpu-manager \
             recover {}` tries again",
            binding.slot, binding.slot
        );
        // It is tried again and again as long as it is to be lent.
        if changed {
            let event = EventRecord::new(EventKind::SlotQuarantined, detail.clone());
            txn.event(event.binding(&binding));
        }
        warn(txn, &binding, detail);
    }
    if binding.desired == Desired::Bound {
        return rebind(txn, &binding, quarantined);
    }
    let detail = format!("{} is released by {}", binding.slot, binding.host);
    txn.event(EventRecord::new(EventKind::Released, detail).binding(&binding));
    if crate::erasure::begin(txn, rules, &binding.slot, &binding.functions, Some(&binding))
        .is_some()
    {
        erasing(txn, &binding);
    } else if let Some(owed) = crate::erasure::owed::of_binding(txn, &binding).cloned() {
        warn(txn, &binding, format!("{}: {}: {}", owed.id, owed.slot, owed.detail));
    }
    txn.remove_binding(binding.id);
    if txn.bindings_of(binding.allocation).next().is_none() {
        txn.remove_allocation(binding.allocation);
    }
    step(txn, &binding, StepName::UnbindSlot, StepState::Done, None);
}

/// The device of a binding that ended is to be erased: one more step for who waits.
fn erasing(txn: &mut Txn, binding: &BindingRecord) {
    let Some(id) = binding.operation else { return };
    let Some(mut operation) = txn.operations().get(&id).filter(|o| !o.state.is_final()).cloned()
    else {
        return;
    };
    operation.steps.push(Step {
        name: StepName::Erase,
        binding: binding.id,
        target: binding.slot.to_string(),
        state: StepState::Pending,
        asked: None,
        detail: None,
        changed: txn.now(),
    });
    txn.put_operation(operation);
}

/// An erasure is over.
pub fn erased(txn: &mut Txn, record: &ErasureRecord, state: ErasureState, text: String) {
    let (Some(id), Some(binding)) = (record.operation, record.binding) else { return };
    let Some(mut operation) = txn.operations().get(&id).filter(|o| !o.state.is_final()).cloned()
    else {
        return;
    };
    let now = txn.now();
    let Some(step) = operation.step_mut(binding, StepName::Erase) else { return };
    if step.state != StepState::Pending {
        return;
    }
    step.state = match state {
        ErasureState::Done => StepState::Done,
        ErasureState::Waived => StepState::Skipped,
        ErasureState::Running | ErasureState::Owed | ErasureState::Failed => StepState::Failed,
    };
    step.detail = Some(text.clone());
    step.changed = now;
    if state != ErasureState::Done {
        operation.warnings.push(text);
    }
    txn.put_operation(operation);
    settle(txn, id);
}

fn rebind(txn: &mut Txn, binding: &BindingRecord, quarantined: bool) {
    if quarantined {
        let detail = format!("slot {} is quarantined", binding.slot);
        let problem = Problem::new(ProblemCode::SlotQuarantined, detail);
        return trouble(txn, binding, &problem, true);
    }
    let mut functions = Vec::new();
    for address in binding.addresses() {
        match txn.new_epoch(&address) {
            Ok(epoch) => functions.push(FunctionEpoch { function: address.function, epoch }),
            Err(problem) => return trouble(txn, binding, &problem, true),
        }
    }
    let fresh = BindingRecord {
        functions,
        path_set: None,
        box_incarnation: txn.last_life(binding.slot.box_name()),
        host_incarnation: None,
        ..binding.clone()
    };
    let fresh = go(txn, &fresh, Phase::Reserved);
    let detail = format!("{} gets epoch {} at {}", fresh.slot, fresh.port_epoch(), fresh.host);
    txn.event(EventRecord::new(EventKind::Rebinding, detail).binding(&fresh));
}

/// The box or the host (`from`) has had an epoch that is not below ours: the binding gets one above it, by
/// way of a release, so that whatever either end still has of it goes first.
pub fn outdated(txn: &mut Txn, asked: &BindingRecord, from: Role, highest: Epoch) {
    let Some(binding) = same_life(txn, asked).cloned() else { return };
    for address in binding.addresses() {
        match from {
            Role::Box => txn.learn_epoch(&address, highest),
            Role::Host => txn.learn_epoch_of_host(&address, highest),
        }
    }
    if binding.phase.may_become(Phase::Withdrawn) && binding.phase != Phase::Failed {
        let binding = go(txn, &binding, Phase::Withdrawn);
        // Where it is being undone, nobody asks the host for it any more.
        let detail = Some("it was not there".to_owned());
        step(txn, &binding, StepName::UnbindPort, StepState::Done, detail);
    }
}

/// Undoes an operation that is running. If one binding is why, its step failed.
pub(super) fn roll_back(txn: &mut Txn, id: OperationId, why: Option<BindingId>, problem: Problem) {
    let Some(mut operation) = running(txn, id) else { return };
    let pending = |step: &&mut Step| step.state == StepState::Pending;
    if let Some(step) =
        operation.steps.iter_mut().filter(pending).find(|step| Some(step.binding) == why)
    {
        step.state = StepState::Failed;
        step.detail = Some(problem.detail.clone());
        step.changed = txn.now();
    }
    for step in operation.steps.iter_mut().filter(|s| s.state == StepState::Pending) {
        step.state = StepState::Skipped;
        step.changed = txn.now();
    }
    for binding in txn.bindings_under(&operation) {
        let binding = BindingRecord { desired: Desired::Forced, ..binding };
        operation.steps.extend(release_steps(&binding));
        txn.update_binding(binding);
    }
    let detail = format!("{id} is undone: {problem}");
    txn.event(EventRecord::new(EventKind::OperationRollingBack, detail).operation(id));
    operation.state = OperationState::RollingBack;
    operation.error = Some(problem);
    txn.put_operation(operation);
    settle(txn, id);
}

/// Ends an operation whose bindings another one releases.
pub fn supersede(txn: &mut Txn, id: OperationId) {
    let Some(mut operation) = running(txn, id) else { return };
    let detail = "the slots were released before they were all bound".to_owned();
    operation.error = Some(Problem::new(ProblemCode::Superseded, detail));
    end(txn, operation, OperationState::Failed);
}

/// Whether an operation takes nothing away yet, so that what it did can be undone.
pub(super) fn can_be_undone(operation: &OperationRecord) -> bool {
    match operation.what {
        OperationKind::Allocate { .. } => true,
        OperationKind::Replace { .. } => !replace::is_handed_over(operation),
        _ => false,
    }
}

pub(super) fn running(txn: &Txn, id: OperationId) -> Option<OperationRecord> {
    txn.operations().get(&id).filter(|o| o.state == OperationState::Running).cloned()
}

/// A step of the operation that is at work on a binding is over, if it is not already.
pub(super) fn step(
    txn: &mut Txn,
    binding: &BindingRecord,
    name: StepName,
    state: StepState,
    detail: Option<String>,
) {
    let Some(id) = binding.operation else { return };
    let Some(mut operation) = txn.operations().get(&id).cloned() else { return };
    let now = txn.now();
    if let Some(step) = operation.step_mut(binding.id, name) {
        if step.state != StepState::Pending {
            return;
        }
        step.state = state;
        step.detail = detail;
        step.changed = now;
        txn.put_operation(operation);
        replace::hand_over(txn, id);
        settle(txn, id);
    }
}

fn warn(txn: &mut Txn, binding: &BindingRecord, warning: String) {
    let Some(id) = binding.operation else { return };
    if let Some(mut operation) = txn.operations().get(&id).cloned() {
        operation.warnings.push(warning);
        txn.put_operation(operation);
    }
}

/// Ends an operation that has no step left.
pub(super) fn settle(txn: &mut Txn, id: OperationId) {
    let operation = &txn.operations()[&id];
    if operation.state.is_final() || operation.steps.iter().any(|s| s.state == StepState::Pending) {
        return;
    }
    let state = match operation.state {
        OperationState::RollingBack => undone(operation),
        _ => OperationState::Succeeded,
    };
    end(txn, operation.clone(), state);
}

/// What an operation is whose rolling back is over: it failed, unless somebody wanted it undone.
pub(super) fn undone(operation: &OperationRecord) -> OperationState {
    match &operation.error {
        Some(problem) if problem.code == ProblemCode::Cancelled => OperationState::Cancelled,
        _ => OperationState::Failed,
    }
}

/// Ends an operation. What is left of its steps failed, or is not wanted any more.
pub(super) fn end(txn: &mut Txn, mut operation: OperationRecord, state: OperationState) {
    let now = txn.now();
    let id = operation.id;
    let left = match state {
        OperationState::Cancelled => StepState::Skipped,
        _ => StepState::Failed,
    };
    for step in operation.steps.iter_mut().filter(|s| s.state == StepState::Pending) {
        step.state = left;
        step.changed = now;
    }
    operation.state = state;
    operation.ended = Some(now);
    for binding in txn.bindings_under(&operation) {
        txn.update_binding(BindingRecord { operation: None, ..binding });
    }
    let slots = join(operation.what.slots());
    let (kind, detail) = match (&operation.error, state) {
        (_, OperationState::Cancelled) => {
            (EventKind::OperationCancelled, format!("{id} is cancelled: {slots}"))
        }
        (Some(problem), _) => (EventKind::OperationFailed, format!("{id} failed: {problem}")),
        (None, _) => (EventKind::OperationSucceeded, format!("{id} succeeded: {slots}")),
    };
    let allocation = operation.allocation;
    txn.event(EventRecord { allocation, ..EventRecord::new(kind, detail).operation(id) });
    txn.put_operation(operation);
}
