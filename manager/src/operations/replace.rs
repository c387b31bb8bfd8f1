//! Another device in the place of one, on the same host.
//!
//! The other one is plugged first, into another port, and the operating system has to enable it. Until
//! then everything can be undone and the old one stays. Then the old one goes, and its slot is held
//! back; nothing of that is undone.

use super::request::{self, ClientKey, begin, release_steps, repeated, step};
use super::{progress, take_back};
use crate::planner::{Plan, PlanRequest};
use crate::records::{Tables, Txn};
use crate::types::{
    BindingId, BindingRecord, Desired, EventKind, EventRecord, HoldKind, HoldRecord, OperationId,
    OperationKind, OperationRecord, OperationState, Place, Problem, ProblemCode, SlotAddress,
    StepName, StepState, Together,
};

/// How a device is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replace {
    /// How long the operating system has to let go of the old one, milliseconds; nothing: it is not
    /// asked, because the device is broken.
    pub within_ms: Option<u32>,
    /// Why.
    pub reason: String,
    /// The operation that this is a part of.
    pub parent: Option<OperationId>,
}

/// Has another device chosen by the wishes of the allocation and records that it comes.
///
/// # Errors
///
/// When there is no such binding, something else is being done with it, or the key cannot be used;
/// or what `choose` returns.
pub fn replace(
    txn: &mut Txn,
    id: BindingId,
    how: &Replace,
    choose: impl FnOnce(&PlanRequest, &Tables) -> Result<Plan, Problem>,
    key: Option<ClientKey>,
) -> Result<OperationRecord, Problem> {
    if let Some(there) = repeated(txn, key.as_ref())? {
        return Ok(there);
    }
    let Some(old) = txn.bindings().get(&id).cloned() else {
        let detail = format!("there is no binding {id}, or it was released");
        return Err(Problem::new(ProblemCode::NoSuchBinding, detail));
    };
    let under_way = txn.running().find(|o| old_binding(o) == Some(id)).map(|o| o.id);
    if let Some(operation) = old.operation.or(under_way) {
        let since = txn.operations().get(&operation).map(|o| format!(" since {}", o.started));
        let since = since.unwrap_or_default();
        let detail = format!("{operation} is at work on {} ({id}){since}; wait for it", old.slot);
        return Err(Problem::new(ProblemCode::SlotBusy, detail).passing(true));
    }
    if old.desired.is_release() {
        let detail = format!("{} ({id}) {}", old.slot, request::ending(txn, id));
        return Err(Problem::new(ProblemCode::SlotBusy, detail));
    }
    // What the borrower was told would be taken would stay lent in the form of the other one.
    if let Some(OperationRecord { id: operation, started, .. }) = take_back::notice_of(txn, id) {
        let slot = &old.slot;
        let detail = format!(
            "{operation} takes {slot} back since {started}; `dxpu-manager cancel {operation}` first"
        );
        return Err(Problem::new(ProblemCode::SlotBusy, detail).passing(true));
    }
    let request = wishes(txn, &old, how);
    let place = choose(&request, txn)?.remove(0);
    let operation = txn.new_operation_id();
    let new = request::reserve(txn, &place, &request, old.allocation, operation)?;
    let port = format!("{} port {}", new.host, new.port);
    let mut steps = vec![
        step(&new, StepName::BindSlot, new.slot.to_string()),
        step(&new, StepName::BindPort, port.clone()),
        step(&new, StepName::Enumerate, port),
    ];
    steps.extend(release_steps(&old));
    let what = OperationKind::Replace {
        host: old.host.clone(),
        slots: vec![old.slot.clone(), new.slot.clone()],
        within_ms: how.within_ms,
        reason: how.reason.clone(),
        parent: how.parent,
    };
    txn.add_binding(new);
    Ok(begin(txn, operation, what, Some(old.allocation), steps, key))
}

/// What the other device is chosen by: the wishes of the allocation, and the same model as that of
/// the one. A box that was named is not wished again: it may be the one that is emptied. But what
/// lies in one box, in one island or apart goes on to do so: with what stays of the allocation or, if
/// all of it leaves with a drain, where there is room for all.
pub fn wishes(tables: &Tables, old: &BindingRecord, how: &Replace) -> PlanRequest {
    let mut request = match tables.allocations().get(&old.allocation) {
        Some(allocation) => PlanRequest::like(allocation),
        None => PlanRequest::for_host(old.host.clone()),
    };
    // The device may be gone; an earlier manager did not note what it was.
    let model =
        [old.model.as_str(), tables.model_in(&old.slot)].into_iter().find(|m| !m.is_empty());
    let wishes = &mut request.wishes;
    wishes.model = model.map(str::to_owned).or(wishes.model.take());
    wishes.box_name = None;
    let others = tables.bindings_of(old.allocation).filter(|other| other.id != old.id);
    match wishes.together {
        Together::Box | Together::Island => {
            let drain = how.parent.and_then(|id| tables.operations().get(&id));
            let leaving = drain.map(|drain| drain.what.slots()).unwrap_or_default();
            let others: Vec<&SlotAddress> =
                others.filter(|b| !b.desired.is_release()).map(|b| &b.slot).collect();
            match others.iter().find(|slot| !leaving.contains(slot)) {
                Some(stays) => {
                    wishes.box_name = Some(stays.box_name().clone());
                    let is_island = wishes.together == Together::Island;
                    request.island_of = is_island.then(|| (*stays).clone());
                }
                None => request.beside = others.len() as u32,
            }
        }
        Together::Spread => {
            wishes.exclude.boxes.extend(others.map(|other| other.slot.box_name().clone()));
        }
        Together::Any => {}
    }
    request
}

/// The binding that goes, of an operation that replaces it.
pub fn old_binding(operation: &OperationRecord) -> Option<BindingId> {
    let OperationKind::Replace { .. } = operation.what else { return None };
    operation.steps.iter().find(|s| s.name == StepName::UnbindPort).map(|step| step.binding)
}

/// The binding that comes, of an operation that replaces one.
pub(super) fn new_binding(operation: &OperationRecord) -> Option<BindingId> {
    let OperationKind::Replace { .. } = operation.what else { return None };
    operation.steps.iter().find(|s| s.name == StepName::BindSlot).map(|step| step.binding)
}

/// Whether the new device is in place and the old one goes.
pub fn is_handed_over(operation: &OperationRecord) -> bool {
    let new = new_binding(operation);
    operation.steps.iter().all(|s| Some(s.binding) != new || s.state == StepState::Done)
}

/// When the new device is enabled, lets the old one go; but if that is to be taken back by now, the
/// replacement is undone.
pub fn hand_over(txn: &mut Txn, id: OperationId) {
    let Some(operation) = txn.operations().get(&id).cloned() else { return };
    let OperationKind::Replace { host, slots, within_ms, reason, .. } = &operation.what else {
        return;
    };
    if operation.state != OperationState::Running || !is_handed_over(&operation) {
        return;
    }
    let new = new_binding(&operation).and_then(|new| txn.bindings().get(&new).cloned());
    let Some(new) = new.filter(|new| new.operation == Some(id)) else { return };
    // The borrower was told that it is taken, and would have the other one instead.
    let notice = old_binding(&operation).and_then(|old| take_back::notice_of(txn, old));
    if let Some(notice) = notice.filter(|notice| !take_back::names(notice, new.id)) {
        let detail = format!("{} takes {} back", notice.id, slots[0]);
        let problem = Problem::new(ProblemCode::Superseded, detail);
        return progress::roll_back(txn, id, None, problem);
    }
    let detail = format!("{host} has {} in the place of {}: {reason}", slots[1], slots[0]);
    txn.event(EventRecord::new(EventKind::Replaced, detail).binding(&new));
    // From here on it is like any other.
    txn.update_binding(BindingRecord { operation: None, ..new });
    let (place, kind) = (Place::Slot(slots[0].clone()), HoldKind::Replaced);
    super::holds::hold(
        txn,
        HoldRecord { place, kind, reason: reason.clone(), since: txn.now(), operation: Some(id) },
    );
    let old = old_binding(&operation).and_then(|old| txn.bindings().get(&old).cloned());
    let Some(old) = old.filter(|old| !old.desired.is_release()) else {
        // Another operation released it, or does.
        return take_back::gone(txn, id);
    };
    if let Some(other) = old.operation {
        progress::supersede(txn, other);
    }
    let desired = match within_ms {
        Some(within_ms) => Desired::Released { within_ms: *within_ms },
        None => Desired::Forced,
    };
    let old = txn.bindings()[&old.id].clone();
    progress::ends(txn, BindingRecord { desired, operation: Some(id), ..old });
}
