//! Calling an operation back.
//!
//! What lends is undone: every slot that it has taken so far is taken back. What takes back can be
//! called back until the first operating system has been asked to let go: then everything stays
//! lent, but for what another operation takes, too. A device that is on its way out is not stopped.

use super::request::join;
use super::{drain, progress, replace, take_back};
use crate::records::Txn;
use crate::types::{
    BindingId, BindingRecord, Desired, OperationId, OperationKind, OperationRecord, OperationState,
    Problem, ProblemCode, Step, StepName, StepState, TakeBackStage,
};
use std::collections::BTreeSet;

/// Calls an operation back. Doing it twice is the same as doing it once.
///
/// # Errors
///
/// When there is no such operation, it has ended otherwise, or has done what cannot be called back;
/// `reasons` then says what.
pub fn cancel(txn: &mut Txn, id: OperationId) -> Result<OperationRecord, Problem> {
    let Some(operation) = txn.operations().get(&id).cloned() else {
        let detail = format!("there is no operation {id}, or it is no longer kept");
        return Err(Problem::new(ProblemCode::NoSuchOperation, detail));
    };
    let cancelled = || Problem::new(ProblemCode::Cancelled, format!("{id} was cancelled"));
    match (&operation.what, operation.state) {
        // It is being undone already, whoever wanted it.
        (_, OperationState::Cancelled | OperationState::RollingBack) => {}
        (_, state @ (OperationState::Succeeded | OperationState::Failed)) => {
            let detail = format!("{id} has ended: it {state}");
            return Err(Problem::new(ProblemCode::TooLate, detail));
        }
        (_, OperationState::Running) if progress::can_be_undone(&operation) => {
            progress::roll_back(txn, id, None, cancelled());
        }
        // The other device is lent already; to keep the old one, too, would be one too many.
        (OperationKind::Replace { slots, .. }, OperationState::Running) => {
            let reason = format!("{} is in the place of {}", slots[1], slots[0]);
            let detail = format!("{id} cannot be called back any more: {reason}");
            return Err(Problem::new(ProblemCode::TooLate, detail).because(vec![reason]));
        }
        (what, OperationState::Running) => {
            let warnings = keep(txn, &operation)?;
            if let OperationKind::Drain { .. } = what {
                drain::leave(txn, &operation);
            }
            let warnings = [operation.warnings.clone(), warnings].concat();
            let error = Some(cancelled());
            let operation = OperationRecord { error, warnings, ..operation };
            progress::end(txn, operation, OperationState::Cancelled);
        }
    }
    Ok(txn.operations()[&id].clone())
}

/// Leaves everything lent that a release would take, if no part of it is out or has been asked for;
/// but what another operation takes, too, goes by that one. What it does, for who calls it back.
fn keep(txn: &mut Txn, operation: &OperationRecord) -> Result<Vec<String>, Problem> {
    let id = operation.id;
    let reasons = reasons(txn, operation);
    if !reasons.is_empty() {
        let slots = join(operation.what.slots());
        let detail = format!("{id} cannot be called back any more: {}", reasons.join("; "));
        let detail = format!("{detail}. Allocate {slots} again when it has ended");
        return Err(Problem::new(ProblemCode::TooLate, detail).because(reasons));
    }
    // What it only waits for was never its own to keep.
    let named: BTreeSet<BindingId> = operation.steps.iter().map(|step| step.binding).collect();
    let named = named.iter().filter_map(|id| txn.bindings().get(id));
    let by_other = |binding: &BindingRecord| {
        let other = binding.operation.filter(|other| *other != id && binding.desired.is_release());
        other.map(|other| format!("{} is released by {other}", binding.slot))
    };
    let mut warnings: Vec<String> = named.filter_map(by_other).collect();
    for binding in txn.bindings_under(operation) {
        let (desired, heir) = match heir(txn, operation, &binding) {
            Some((heir, desired)) => (desired, Some(heir)),
            None => (Desired::Bound, None),
        };
        warnings.extend(heir.map(|heir| format!("{} is taken back by {heir}", binding.slot)));
        // Of those that stay, the operation is over with its end.
        let operation = heir.or(binding.operation);
        txn.update_binding(BindingRecord { desired, operation, ..binding });
    }
    Ok(warnings)
}

/// What of an operation that takes back cannot be called back.
fn reasons(txn: &Txn, operation: &OperationRecord) -> Vec<String> {
    // Until its time is over it has done nothing: what is out, its borrower has given back.
    if take_back::stage(operation) == Some(TakeBackStage::Notice) {
        return Vec::new();
    }
    let out = |step: &Step| match (step.name, step.state, step.asked) {
        (StepName::UnbindPort, StepState::Pending, None) => None,
        (StepName::UnbindPort, StepState::Pending, Some(at)) => {
            Some(format!("{} was asked to let go at {at}", step.target))
        }
        (StepName::UnbindPort, _, _) => Some(format!("{} has let go", step.target)),
        _ => None,
    };
    // With its own parts, some have those go by force that another operation began to release.
    let all_by_force = matches!(
        operation.what,
        OperationKind::Release { force: true, .. }
            | OperationKind::Forget { .. }
            | OperationKind::TakeBack { stage: TakeBackStage::Force, .. }
    );
    let named: BTreeSet<BindingId> = operation.steps.iter().map(|step| step.binding).collect();
    let forced = named.iter().filter_map(|id| txn.bindings().get(id)).filter(|binding| {
        binding.desired == Desired::Forced
            && (all_by_force || binding.operation == Some(operation.id))
    });
    let forced = forced.map(|binding| format!("{} is taken by force", binding.slot));
    operation.steps.iter().filter_map(out).chain(forced).collect()
}

/// The other operation that waits for the end of a binding, and how that one has it end. To whoever
/// waits, it makes no difference who has begun it.
fn heir(
    txn: &Txn,
    operation: &OperationRecord,
    binding: &BindingRecord,
) -> Option<(OperationId, Desired)> {
    let waits = |other: &&OperationRecord| {
        let step = |step: &Step| {
            step.binding == binding.id
                && step.name == StepName::UnbindSlot
                && step.state == StepState::Pending
        };
        other.id != operation.id
            && other.state == OperationState::Running
            && other.steps.iter().any(step)
    };
    let taking = |other: &OperationRecord| match other.what {
        OperationKind::Drain { within_ms, .. } => Some(Desired::Released { within_ms }),
        OperationKind::TakeBack { stage, within_ms, .. } => match stage {
            TakeBackStage::Notice => None,
            TakeBackStage::Orderly => Some(Desired::Released { within_ms }),
            TakeBackStage::Force => Some(Desired::Forced),
        },
        OperationKind::Replace { within_ms, .. } if replace::is_handed_over(other) => {
            Some(within_ms.map_or(Desired::Forced, |within_ms| Desired::Released { within_ms }))
        }
        _ => None,
    };
    txn.running().filter(waits).find_map(|other| Some((other.id, taking(other)?)))
}

#[cfg(test)]
mod tests;
