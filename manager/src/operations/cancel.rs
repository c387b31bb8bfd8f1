//! Calling an operation back.
//!
//! What lends is undone: every slot that it has taken so far is taken back. What takes back can be
//! called back until the first operating system has been asked to let go: then everything stays
//! lent. A device that is on its way out is not stopped.

use super::request::join;
use super::{drain, progress};
use crate::records::Txn;
use crate::types::{
    BindingRecord, Desired, OperationId, OperationKind, OperationRecord, OperationState, Problem,
    ProblemCode, Step, StepName, StepState,
};

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
        (OperationKind::Drain { .. }, OperationState::Running) => {
            keep(txn, &operation)?;
            drain::leave(txn, &operation);
            let error = Some(cancelled());
            progress::end(txn, OperationRecord { error, ..operation }, OperationState::Cancelled);
        }
        (_, OperationState::Running) => {
            keep(txn, &operation)?;
            let error = Some(cancelled());
            progress::end(txn, OperationRecord { error, ..operation }, OperationState::Cancelled);
        }
    }
    Ok(txn.operations()[&id].clone())
}

/// Leaves everything lent that a release would take, if no part of it is out or has been asked for.
fn keep(txn: &mut Txn, operation: &OperationRecord) -> Result<(), Problem> {
    let id = operation.id;
    let out = |step: &Step| match (step.name, step.state, step.asked) {
        (StepName::UnbindPort, StepState::Pending, None) => None,
        (StepName::UnbindPort, StepState::Pending, Some(at)) => {
            Some(format!("{} was asked to let go at {at}", step.target))
        }
        (StepName::UnbindPort, _, _) => Some(format!("{} has let go", step.target)),
        _ => None,
    };
    let own = txn.bindings_under(operation);
    let forced = own.iter().filter(|binding| binding.desired == Desired::Forced);
    let forced = forced.map(|binding| format!("{} is taken by force", binding.slot));
    let reasons: Vec<String> = operation.steps.iter().filter_map(out).chain(forced).collect();
    if !reasons.is_empty() {
        let slots = join(operation.what.slots());
        let detail = format!("{id} cannot be called back any more: {}", reasons.join("; "));
        let detail = format!("{detail}. Allocate {slots} again when it has ended");
        return Err(Problem::new(ProblemCode::TooLate, detail).because(reasons));
    }
    for binding in own {
        txn.update_binding(BindingRecord { desired: Desired::Bound, ..binding });
    }
    Ok(())
}
