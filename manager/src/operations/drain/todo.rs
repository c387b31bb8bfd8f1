//! What comes next for a drain, and for an operation that waits for parts which other ones end.

use super::super::{replace, take_back};
use super::has_other_paths;
use crate::control::Registry;
use crate::records::Tables;
use crate::types::{
    BindingId, BindingRecord, OperationId, OperationKind, OperationRecord, OperationState, Phase,
    ProblemCode, Step, StepName, StepState,
};

/// Something to do about a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Todo {
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
pub(super) fn todo(tables: &Tables, registry: &Registry, operation: &OperationRecord) -> Vec<Todo> {
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
pub(super) fn everything(tables: &Tables, registry: &Registry) -> Vec<Todo> {
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
