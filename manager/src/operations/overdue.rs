//! Operations that have had their time, and what was still to be done of them.

use super::progress::{can_be_undone, end, roll_back, settle, undone};
use super::{obstacle, replace};
use crate::control::Registry;
use crate::records::Txn;
use crate::types::{
    OperationKind, OperationRecord, OperationState, Problem, ProblemCode, Step, StepName, StepState,
};
use std::time::Duration;

/// Ends an operation that has had its time, unless it has got on since it was looked at.
pub fn expire(txn: &mut Txn, registry: &Registry, seen: &OperationRecord) {
    let id = seen.id;
    if txn.operations().get(&id) != Some(seen) {
        return;
    }
    let mut operation = seen.clone();
    let open = pending(txn, registry, &operation);
    match (&operation.what, operation.state) {
        (_, OperationState::Running) if can_be_undone(&operation) => {
            let detail = format!("not bound in time: {open}");
            let problem = Problem::new(ProblemCode::OperationTimeout, detail);
            roll_back(txn, id, None, problem);
        }
        (_, OperationState::RollingBack) => {
            operation.warnings.push(format!("still being taken back: {open}"));
            let state = undone(&operation);
            end(txn, operation, state);
        }
        _ => {
            let advice = obstacle::advice(txn, registry, &operation);
            let detail = format!("not released in time: {open}. {advice}");
            operation.error = Some(Problem::new(ProblemCode::OperationTimeout, detail));
            end(txn, operation, OperationState::Failed);
        }
    }
}

/// Ends an operation whose devices are all plugged but not all enabled by the operating system
/// within the bound. It failed and is undone as a whole; but an allocation that was to keep such
/// devices succeeded, with a warning for each.
///
/// Nothing becomes of one that has got on since it was looked at.
pub fn not_enumerated(txn: &mut Txn, seen: &OperationRecord, bound: Duration) {
    let id = seen.id;
    if txn.operations().get(&id) != Some(seen) {
        return;
    }
    let mut operation = seen.clone();
    let (keep, left) = match operation.what {
        OperationKind::Allocate { keep_unenumerated: true, .. } => (true, ""),
        OperationKind::Replace { .. } => (false, "the old device stays"),
        _ => (
            false,
            "nothing of it stays lent; `--keep-unenumerated` (keep_unenumerated) keeps what is plugged",
        ),
    };
    let (now, mut missing) = (txn.now(), Vec::new());
    let waits = |s: &&mut Step| s.name == StepName::Enumerate && s.state == StepState::Pending;
    for step in operation.steps.iter_mut().filter(waits) {
        let slot = txn.bindings().get(&step.binding).map(|b| b.slot.to_string());
        let (slot, port) = (slot.unwrap_or_default(), &step.target);
        missing
            .push(format!("{slot} at {port}: plugged, but not enumerated by the operating system"));
        step.state = if keep { StepState::Skipped } else { StepState::Failed };
        step.detail = Some("not seen within its bound".into());
        step.changed = now;
    }
    if keep {
        operation.warnings.extend(missing);
        txn.put_operation(operation);
        return settle(txn, id);
    }
    txn.put_operation(operation);
    let detail = format!("not enumerated within {bound:?}: {}; {left}", missing.join("; "));
    roll_back(txn, id, None, Problem::new(ProblemCode::NotEnumerated, detail).because(missing));
}

/// Whether nothing is left of an operation but erasing, which has a bound of its own.
pub fn only_erasure_is_left(operation: &OperationRecord) -> bool {
    let mut pending = operation.steps.iter().filter(|s| s.state == StepState::Pending).peekable();
    pending.peek().is_some() && pending.all(|s| s.name == StepName::Erase)
}

/// Whether nothing is left of an allocation but that the operating system enables its devices.
pub fn only_enumeration_is_left(operation: &OperationRecord) -> bool {
    let of_new = |step: &&Step| match replace::old_binding(operation) {
        // What comes after the new device is in place is not begun before.
        Some(old) => step.binding != old,
        None => true,
    };
    let pending = operation.steps.iter().filter(|s| s.state == StepState::Pending);
    let mut pending = pending.filter(of_new).peekable();
    operation.state == OperationState::Running
        && pending.peek().is_some()
        && pending.all(|s| s.name == StepName::Enumerate)
}

/// What is still to be done, for a person.
fn pending(txn: &Txn, registry: &Registry, operation: &OperationRecord) -> String {
    let mut list = Vec::new();
    for step in operation.steps.iter().filter(|s| s.state == StepState::Pending) {
        let trouble = || txn.bindings().get(&step.binding).and_then(|b| b.trouble.clone());
        let mut text = format!("{} {}", step.name, step.target);
        // Who is away cannot have the trouble that it had before.
        if let Some(why) = obstacle::of_step(txn, registry, step).or_else(trouble) {
            text = format!("{text} ({why})");
        }
        list.push(text);
    }
    list.join("; ")
}

#[cfg(test)]
mod tests;
