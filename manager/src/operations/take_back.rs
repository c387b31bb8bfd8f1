//! Taking back what nobody wanted to give back: the lender's right, and the end of a lease.
//!
//! In three stages: the borrower is told and has its grace time; then its operating system is asked,
//! as by a release; then, if a host does not answer, by force. In the first stage nothing has
//! changed: what the borrower releases itself by then is done, and the operation can be called back.

use super::request::{self, ClientKey, ReleaseTarget, begin, join, release_steps, repeated};
use super::{drain, progress, replace};
use crate::records::{Tables, Txn};
use crate::types::{
    AllocationId, BindingId, BindingRecord, Desired, EventKind, EventRecord, OperationId,
    OperationKind, OperationRecord, OperationState, Phase, Place, Problem, ProblemCode, Step,
    StepName, StepState, TakeBackStage, Timestamp,
};
use std::collections::BTreeSet;
use std::fmt;

/// How something is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeBack {
    /// How long the borrower has before its operating system is asked, milliseconds.
    pub grace_ms: u64,
    /// How long the operating system then has, milliseconds.
    pub within_ms: u32,
    /// Why, for the borrower.
    pub reason: String,
}

/// What is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lent {
    /// One allocation or binding.
    One(ReleaseTarget),
    /// What is lent in a slot, of a box or of what stands in a rack or at a site, or to a host of
    /// those.
    Place(Place),
}

impl fmt::Display for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(ReleaseTarget::Allocation(id)) => id.fmt(f),
            Self::One(ReleaseTarget::Binding(id)) => id.fmt(f),
            Self::Place(place) => place.fmt(f),
        }
    }
}

/// The bindings that are meant.
fn find(txn: &Txn, what: &Lent) -> Result<Vec<BindingRecord>, Problem> {
    match what {
        Lent::One(target) => Ok(request::find(txn, *target)?.1),
        Lent::Place(Place::Slot(slot)) if txn.binding_at_slot(slot).is_none() => {
            Err(Problem::new(ProblemCode::NotLent, format!("slot {slot} is not lent")))
        }
        Lent::Place(place) => {
            drain::check(txn, place)?;
            Ok(drain::lent(txn, place))
        }
    }
}

/// Begins it. What is being released already is left alone.
///
/// # Errors
///
/// When there is no such thing, nothing of it is lent, a part is being taken back so already, or the key cannot be used.
pub fn take_back(
    txn: &mut Txn,
    what: &Lent,
    how: &TakeBack,
    key: Option<ClientKey>,
) -> Result<OperationRecord, Problem> {
    if let Some(there) = repeated(txn, key.as_ref())? {
        return Ok(there);
    }
    let found = find(txn, what)?.into_iter();
    let bindings: Vec<BindingRecord> = found.filter(|b| !b.desired.is_release()).collect();
    if bindings.is_empty() {
        return Err(Problem::new(ProblemCode::NotLent, format!("nothing of {what} is lent")));
    }
    for binding in &bindings {
        if let Some(OperationRecord { id, started, .. }) = notice_of(txn, binding.id) {
            let slot = &binding.slot;
            let detail = format!(
                "{id} takes {slot} back already, since {started}; `dxpu-manager cancel {id}` first"
            );
            return Err(Problem::new(ProblemCode::SlotBusy, detail));
        }
    }
    Ok(begin_with(txn, &bindings, how, key))
}

/// Begins it for these bindings, whatever their borrowers have been told before.
pub fn begin_with(
    txn: &mut Txn,
    bindings: &[BindingRecord],
    how: &TakeBack,
    key: Option<ClientKey>,
) -> OperationRecord {
    let id = txn.new_operation_id();
    let due = Timestamp::from_millis(txn.now().as_millis().saturating_add(how.grace_ms));
    let what = OperationKind::TakeBack {
        slots: bindings.iter().map(|binding| binding.slot.clone()).collect(),
        due,
        grace_ms: how.grace_ms,
        within_ms: how.within_ms,
        reason: how.reason.clone(),
        stage: TakeBackStage::Notice,
    };
    let steps = bindings.iter().flat_map(release_steps).collect();
    let first = bindings[0].allocation;
    let allocation = bindings.iter().all(|b| b.allocation == first).then_some(first);
    begin(txn, id, what, allocation, steps, key);
    if how.grace_ms == 0 {
        self::due(txn, id);
    } else {
        tell(txn, id, bindings, due, &how.reason);
    }
    txn.operations()[&id].clone()
}

/// Tells each borrower.
fn tell(txn: &mut Txn, id: OperationId, bindings: &[BindingRecord], due: Timestamp, why: &str) {
    let allocations: BTreeSet<AllocationId> = bindings.iter().map(|b| b.allocation).collect();
    for allocation in allocations {
        let own: Vec<&BindingRecord> =
            bindings.iter().filter(|b| b.allocation == allocation).collect();
        let slots: Vec<_> = own.iter().map(|b| b.slot.clone()).collect();
        let host = &own[0].host;
        let detail = format!("{} of {host} will be taken back at {due}: {why}", join(&slots));
        let event = EventRecord::new(EventKind::TakeBackNotice, detail).node(host).operation(id);
        txn.event(EventRecord { allocation: Some(allocation), ..event });
    }
}

/// The operations whose borrowers have been told and still have time.
pub fn in_notice(tables: &Tables) -> impl Iterator<Item = &OperationRecord> {
    tables.running().filter(|operation| {
        let stage = stage(operation);
        operation.state == OperationState::Running && stage == Some(TakeBackStage::Notice)
    })
}

/// The one of those by which a binding is taken back.
pub fn notice_of(tables: &Tables, binding: BindingId) -> Option<&OperationRecord> {
    in_notice(tables).find(|operation| names(operation, binding))
}

/// Whether a binding is taken back by an operation whose borrowers have had their time.
pub fn is_taken(tables: &Tables, binding: BindingId) -> bool {
    tables.running().any(|operation| {
        let stage = stage(operation);
        operation.state == OperationState::Running
            && matches!(stage, Some(TakeBackStage::Orderly | TakeBackStage::Force))
            && names(operation, binding)
    })
}

/// Whether an operation has a step for a binding.
pub(super) fn names(operation: &OperationRecord, binding: BindingId) -> bool {
    operation.steps.iter().any(|step| step.binding == binding)
}

/// How far an operation of this kind is; nothing of others.
pub fn stage(operation: &OperationRecord) -> Option<TakeBackStage> {
    match operation.what {
        OperationKind::TakeBack { stage, .. } => Some(stage),
        _ => None,
    }
}

fn running(txn: &Txn, id: OperationId, wanted: TakeBackStage) -> Option<OperationRecord> {
    let operation = txn.operations().get(&id)?;
    let is = operation.state == OperationState::Running && stage(operation) == Some(wanted);
    is.then(|| operation.clone())
}

fn bindings(operation: &OperationRecord) -> BTreeSet<BindingId> {
    operation.steps.iter().map(|step| step.binding).collect()
}

fn go(txn: &mut Txn, mut operation: OperationRecord, to: TakeBackStage) {
    if let OperationKind::TakeBack { stage, .. } = &mut operation.what {
        *stage = to;
    }
    txn.put_operation(operation);
}

/// The grace time is over: the operating systems are asked.
pub fn due(txn: &mut Txn, id: OperationId) {
    gone(txn, id);
    let Some(operation) = running(txn, id, TakeBackStage::Notice) else { return };
    let OperationKind::TakeBack { within_ms, .. } = operation.what else { return };
    let taken = bindings(&operation);
    let still: Vec<BindingRecord> =
        taken.iter().filter_map(|id| txn.bindings().get(id).cloned()).collect();
    go(txn, operation, TakeBackStage::Orderly);
    let why = format!("{id} takes a part of it back");
    undo_replacing(txn, &taken, &why);
    request::undo_making_of_parts(txn, &still, &why);
    let still: Vec<BindingRecord> =
        still.iter().filter_map(|b| txn.bindings().get(&b.id).cloned()).collect();
    let overtaken: BTreeSet<OperationId> =
        still.iter().filter(|b| !b.desired.is_release()).filter_map(|b| b.operation).collect();
    for other in overtaken {
        progress::supersede(txn, other);
    }
    for binding in still.iter().filter(|b| !b.desired.is_release()) {
        // `supersede` may have changed it.
        let binding = txn.bindings()[&binding.id].clone();
        let (desired, operation) = (Desired::Released { within_ms }, Some(id));
        progress::ends(txn, BindingRecord { desired, operation, ..binding });
    }
}

/// Undoes replacements of what is taken or given back by what would stay lent in its place.
pub(super) fn undo_replacing(txn: &mut Txn, taken: &BTreeSet<BindingId>, why: &str) {
    let stays = |o: &&OperationRecord| {
        let is_taken = |binding: Option<BindingId>| binding.is_some_and(|id| taken.contains(&id));
        is_taken(replace::old_binding(o))
            && !is_taken(replace::new_binding(o))
            && progress::can_be_undone(o)
    };
    let replacing: Vec<OperationId> = txn.running().filter(stays).map(|o| o.id).collect();
    for id in replacing {
        progress::roll_back(txn, id, None, Problem::new(ProblemCode::Superseded, why));
    }
}

/// The operating systems have had their time: what is not out goes by force.
pub fn force(txn: &mut Txn, id: OperationId) {
    let Some(operation) = running(txn, id, TakeBackStage::Orderly) else { return };
    let left: Vec<BindingRecord> = bindings(&operation)
        .iter()
        .filter_map(|id| txn.bindings().get(id))
        // Who has let go has done what it should; the box frees the device when it can.
        .filter(|b| matches!(b.desired, Desired::Released { .. }) && b.phase != Phase::Withdrawn)
        .cloned()
        .collect();
    go(txn, operation, TakeBackStage::Force);
    for binding in left {
        let detail = format!("{} has not let go of {} in time", binding.host, binding.slot);
        let detail = format!("{detail}; it is taken by force");
        txn.event(
            EventRecord::new(EventKind::TakeBackForced, detail).binding(&binding).operation(id),
        );
        txn.update_binding(BindingRecord { desired: Desired::Forced, ..binding });
    }
}

/// Whether another operation than this has done what a step of this one waits for.
pub(super) fn is_gone(tables: &Tables, id: OperationId, step: &Step) -> bool {
    // An erasure goes on after its binding.
    if step.state != StepState::Pending || step.name == StepName::Erase {
        return false;
    }
    let Some(binding) = tables.bindings().get(&step.binding) else { return true };
    step.name == StepName::UnbindPort
        && binding.operation != Some(id)
        && binding.phase == Phase::Withdrawn
        && binding.desired.is_release()
}

/// Counts as done what another operation has released.
pub fn gone(txn: &mut Txn, id: OperationId) {
    let Some(mut operation) = txn.operations().get(&id).filter(|o| !o.state.is_final()).cloned()
    else {
        return;
    };
    let now = txn.now();
    let mut changed = false;
    for step in operation.steps.iter_mut().filter(|step| is_gone(txn, id, step)) {
        step.state = StepState::Done;
        step.detail = Some("released by another operation".to_owned());
        step.changed = now;
        changed = true;
    }
    if changed {
        txn.put_operation(operation);
        progress::settle(txn, id);
    }
}
