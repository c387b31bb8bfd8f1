//! What requests change in the records.

use super::{drain, lease, progress, take_back};
use crate::planner::{self, Liveness, Placement, Plan, PlanRequest};
use crate::records::{KeyRecord, Tables, Txn};
use crate::types::{
    AllocationId, AllocationRecord, BindingId, BindingRecord, Desired, EventKind, EventRecord,
    FunctionAddress, FunctionEpoch, NodeName, OperationId, OperationKind, OperationRecord,
    OperationState, Phase, Problem, ProblemCode, SlotAddress, Step, StepName, StepState, Timestamp,
    Wishes,
};
use std::collections::BTreeSet;

/// A client's idempotency key and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKey {
    /// The key.
    pub key: String,
    /// [`crate::records::digest`] of the request under it.
    pub digest: String,
}

/// On what terms something is lent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// For whom, in the words of who asked.
    pub tenant: Option<String>,
    /// Why, in the words of who asked.
    pub reason: Option<String>,
    /// For how long, milliseconds; nothing: for ever.
    pub lease_ms: Option<u64>,
    /// Whether devices stay plugged that the operating system does not enumerate in time.
    pub keep_unenumerated: bool,
}

/// What is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseTarget {
    /// Everything of an allocation.
    Allocation(AllocationId),
    /// One binding.
    Binding(BindingId),
}

/// How it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseMode {
    /// The operating system is asked, and has so many milliseconds.
    Orderly {
        /// The bound.
        within_ms: u32,
    },
    /// At once; a host that cannot be reached is not waited for.
    Force,
}

impl From<ReleaseMode> for Desired {
    fn from(mode: ReleaseMode) -> Self {
        match mode {
            ReleaseMode::Orderly { within_ms } => Desired::Released { within_ms },
            ReleaseMode::Force => Desired::Forced,
        }
    }
}

/// The operation that this key already stands for.
///
/// # Errors
///
/// When it stood for another request, or what came of it is no longer known.
pub(super) fn repeated(
    txn: &Txn,
    key: Option<&ClientKey>,
) -> Result<Option<OperationRecord>, Problem> {
    let Some(key) = key else { return Ok(None) };
    let Some(there) = txn.key(&key.key, txn.now()) else { return Ok(None) };
    let id = there.operation;
    if there.digest != key.digest {
        let detail = format!("the idempotency key was used for {id}, another request");
        return Err(Problem::new(ProblemCode::IdempotencyKeyReused, detail));
    }
    let kept = txn.operations().get(&id).or(there.outcome.as_deref());
    kept.cloned().map(Some).ok_or_else(|| {
        let detail = format!("the request was {id}, of which nothing is known any more");
        Problem::new(ProblemCode::OutcomeForgotten, detail)
    })
}

/// Chooses slots and records that the host gets them.
///
/// # Errors
///
/// Why nothing fits, or why the key cannot be used.
pub fn allocate(
    txn: &mut Txn,
    live: &impl Liveness,
    request: &PlanRequest,
    terms: Terms,
    key: Option<ClientKey>,
) -> Result<OperationRecord, Problem> {
    let choose = |tables: &Tables| planner::plan(request, tables, live);
    allocate_chosen(txn, live, request, choose, terms, key)
}

/// As [`allocate`], with slots that are chosen otherwise.
///
/// # Errors
///
/// What `choose` returns, or why the key cannot be used.
pub fn allocate_chosen(
    txn: &mut Txn,
    live: &impl Liveness,
    request: &PlanRequest,
    choose: impl FnOnce(&Tables) -> Result<Plan, Problem>,
    terms: Terms,
    key: Option<ClientKey>,
) -> Result<OperationRecord, Problem> {
    if let Some(there) = repeated(txn, key.as_ref())? {
        return Ok(there);
    }
    let plan = choose(txn)?;
    let allocation = txn.new_allocation_id();
    let operation = txn.new_operation_id();
    let now = txn.now();
    let host = request.host.clone();
    let id = allocation;
    let Terms { tenant, reason, lease_ms, keep_unenumerated } = terms;
    txn.put_allocation(AllocationRecord {
        id,
        host: host.clone(),
        reason,
        since: now,
        link: request.link.clone(),
        lease: lease_ms.map(|ms| lease::from_now(now, ms)),
        tenant,
        wishes: lasting(request),
    });
    let mut steps = Vec::new();
    for place in &plan {
        let binding = reserve(txn, place, request, allocation, operation)?;
        let port = format!("{host} port {}", place.port);
        steps.push(step(&binding, StepName::BindSlot, place.slot.to_string()));
        steps.push(step(&binding, StepName::BindPort, port.clone()));
        steps.push(step(&binding, StepName::Enumerate, port));
        txn.add_binding(binding);
    }
    let slots: Vec<SlotAddress> = plan.into_iter().map(|place| place.slot).collect();
    let list = join(&slots);
    let event = EventRecord::new(EventKind::Allocated, format!("{allocation}: {list} for {host}"));
    let event = EventRecord { allocation: Some(allocation), ..event };
    txn.event(event.node(&host).operation(operation));
    let warning = live.without_root_complex(&host);
    let what = OperationKind::Allocate { host, slots, keep_unenumerated };
    let mut record = begin(txn, operation, what, Some(allocation), steps, key);
    if let Some(mut warning) = warning {
        if !keep_unenumerated {
            warning += "; nothing of it stays lent that is not enumerated in time; \
                        `--keep-unenumerated` (keep_unenumerated) keeps what is plugged";
        }
        record.warnings.push(warning);
        txn.put_operation(record.clone());
    }
    Ok(record)
}

/// The wishes of a request that hold of another device, too, in the place of one: that it is in
/// this slot is none.
fn lasting(request: &PlanRequest) -> Wishes {
    let box_name = request.wishes.box_name.clone().filter(|_| request.slot.is_none());
    Wishes { box_name, ..request.wishes.clone() }
}

pub(super) fn reserve(
    txn: &mut Txn,
    place: &Placement,
    request: &PlanRequest,
    allocation: AllocationId,
    operation: OperationId,
) -> Result<BindingRecord, Problem> {
    let mut functions = Vec::new();
    for &function in &place.functions {
        let address = FunctionAddress { slot: place.slot.clone(), function };
        functions.push(FunctionEpoch { function, epoch: txn.new_epoch(&address)? });
    }
    let found = txn.pool_box(place.slot.box_name()).and_then(|entry| entry.slot(place.slot.slot()));
    let demand = found.and_then(|slot| slot.profile).map(|id| txn.demand(id, &request.link));
    Ok(BindingRecord {
        id: txn.new_binding_id(),
        allocation,
        slot: place.slot.clone(),
        functions,
        host: request.host.clone(),
        port: place.port,
        model: txn.model_in(&place.slot).to_owned(),
        demand,
        path_set: None,
        phase: Phase::Reserved,
        desired: Desired::Bound,
        box_incarnation: txn.last_life(place.slot.box_name()),
        host_incarnation: None,
        operation: Some(operation),
        trouble: None,
        since: txn.now(),
        changed: txn.now(),
    })
}

/// Records that bindings are to end.
///
/// # Errors
///
/// When there is nothing of that number, another operation is releasing a part of it and it is not
/// to go by force, or the key cannot be used.
pub fn release(
    txn: &mut Txn,
    target: ReleaseTarget,
    mode: ReleaseMode,
    key: Option<ClientKey>,
) -> Result<OperationRecord, Problem> {
    if let Some(there) = repeated(txn, key.as_ref())? {
        return Ok(there);
    }
    let (allocation, bindings) = find(txn, target)?;
    undo_replacing(txn, &bindings);
    let (ending, standing): (Vec<_>, Vec<_>) =
        bindings.into_iter().partition(|b| b.desired.is_release() && b.operation.is_some());
    if mode == ReleaseMode::Force {
        for binding in &ending {
            txn.update_binding(BindingRecord { desired: Desired::Forced, ..binding.clone() });
        }
    }
    let of: BTreeSet<OperationId> = ending.iter().filter_map(|b| b.operation).collect();
    match of.first() {
        None => Ok(begin_release(txn, allocation, standing, Vec::new(), mode, None, key)),
        Some(id) if of.len() == 1 && standing.is_empty() => {
            // The key stands for what it joined, as if it had begun it.
            keep_key(txn, *id, key);
            Ok(txn.operations()[id].clone())
        }
        // The others go on with their parts, and this one waits for them.
        Some(_) if mode == ReleaseMode::Force => {
            Ok(begin_release(txn, allocation, standing, ending, mode, None, key))
        }
        Some(_) => {
            let slots: Vec<_> = ending.into_iter().map(|b| b.slot).collect();
            let by: Vec<String> = of
                .iter()
                .map(|id| format!("{id} since {}", txn.operations()[id].started))
                .collect();
            let detail = format!(
                "{} is being released already, by {}; wait for that, or take the rest with --force",
                join(&slots),
                by.join(", ")
            );
            Err(Problem::new(ProblemCode::SlotBusy, detail))
        }
    }
}

/// Records that bindings of a host are to end at once, although nobody asked for it. Those that
/// are gone, or end already, are left alone; nothing if that is all of them.
pub(super) fn take_from_host(
    txn: &mut Txn,
    host: &NodeName,
    ids: &[BindingId],
    reason: &str,
) -> Option<OperationRecord> {
    let there = ids.iter().filter_map(|id| txn.bindings().get(id));
    let bindings: Vec<BindingRecord> =
        there.filter(|b| b.host == *host && !b.desired.is_release()).cloned().collect();
    let first = bindings.first()?.allocation;
    let allocation = bindings.iter().all(|b| b.allocation == first).then_some(first);
    let reason = Some(reason.to_owned());
    let mode = ReleaseMode::Force;
    undo_replacing(txn, &bindings);
    Some(begin_release(txn, allocation, bindings, Vec::new(), mode, reason, None))
}

/// That a binding ends: the operation that began that last and since when, if that is known still.
pub(super) fn ending(tables: &Tables, binding: BindingId) -> String {
    let ends = |o: &&OperationRecord| {
        let step = |s: &Step| s.binding == binding && s.name == StepName::UnbindSlot;
        o.steps.iter().any(|s| step(s) && s.state != StepState::Skipped)
    };
    let by = tables.operations().values().rev().find(ends);
    let by = by.map(|o| format!(" by {} since {}", o.id, o.started)).unwrap_or_default();
    format!("is being taken back{by}")
}

/// Undoes the making of what would stay lent in the place of what is released.
fn undo_replacing(txn: &mut Txn, released: &[BindingRecord]) {
    let ids = released.iter().map(|binding| binding.id).collect();
    take_back::undo_replacing(txn, &ids, "the device that it replaces is released");
}

/// Undoes as a whole the operations that are making some of these bindings and others, too: what is
/// being lent is lent as a whole or not at all. One that makes only these is left to who takes them.
pub(super) fn undo_making_of_parts(txn: &mut Txn, taken: &[BindingRecord], why: &str) {
    let ids: BTreeSet<BindingId> = taken.iter().map(|binding| binding.id).collect();
    let makers: BTreeSet<OperationId> = taken.iter().filter_map(|b| b.operation).collect();
    let makes_others = |id: &OperationId| {
        let maker = txn.operations().get(id);
        maker.is_some_and(|o| txn.bindings_under(o).iter().any(|b| !ids.contains(&b.id)))
    };
    let makers: BTreeSet<OperationId> = makers.into_iter().filter(makes_others).collect();
    let of_parts = |b: &&BindingRecord| b.operation.is_some_and(|id| makers.contains(&id));
    let parts: Vec<BindingRecord> = taken.iter().filter(of_parts).cloned().collect();
    drain::undo_making(txn, &parts, why);
}

/// Has an operation end bindings, whatever other one is at work on them. Its steps, and the slots.
/// Those of what is undone as a whole are left to that, and are waited for.
pub(super) fn take_over(
    txn: &mut Txn,
    operation: OperationId,
    bindings: Vec<BindingRecord>,
    mode: ReleaseMode,
) -> (Vec<Step>, Vec<SlotAddress>) {
    undo_making_of_parts(txn, &bindings, &format!("{operation} takes a part of it"));
    let undone = |txn: &Txn, id: &OperationId| {
        txn.operations().get(id).is_some_and(|o| o.state == OperationState::RollingBack)
    };
    let overtaken: BTreeSet<OperationId> = bindings.iter().filter_map(|b| b.operation).collect();
    for id in &overtaken {
        progress::supersede(txn, *id);
    }
    let mut steps = Vec::new();
    let mut slots = Vec::new();
    for binding in bindings {
        slots.push(binding.slot.clone());
        // `supersede` may have changed it.
        let binding = txn.bindings()[&binding.id].clone();
        if binding.operation.is_some_and(|id| undone(txn, &id)) {
            steps.extend(release_steps(&binding));
            continue;
        }
        // What goes by force already is not asked any more.
        let desired = match binding.desired {
            Desired::Forced => Desired::Forced,
            _ => mode.into(),
        };
        let asked = was_asked(txn, &binding);
        let binding = BindingRecord { desired, operation: Some(operation), ..binding };
        let unbind = release_steps(&binding).into_iter().map(|step| match step.name {
            StepName::UnbindPort => Step { asked, ..step },
            _ => step,
        });
        steps.extend(unbind);
        txn.update_binding(binding);
    }
    (steps, slots)
}

/// When the operating system was asked to let go of a binding that is to be released already. If
/// nobody is kept who may have asked it counts as asked: it may let go.
fn was_asked(txn: &Txn, binding: &BindingRecord) -> Option<Timestamp> {
    if !matches!(binding.desired, Desired::Released { .. }) {
        return None;
    }
    let steps = txn.operations().values().flat_map(|operation| &operation.steps);
    let mut former = steps
        .filter(|step| step.binding == binding.id && step.name == StepName::UnbindPort)
        .peekable();
    if former.peek().is_none() {
        return Some(txn.now());
    }
    former.filter_map(|step| step.asked).min()
}

/// Begins the operation by which bindings end, and that waits for others that end already by other
/// operations.
fn begin_release(
    txn: &mut Txn,
    allocation: Option<AllocationId>,
    bindings: Vec<BindingRecord>,
    others: Vec<BindingRecord>,
    mode: ReleaseMode,
    reason: Option<String>,
    key: Option<ClientKey>,
) -> OperationRecord {
    let operation = txn.new_operation_id();
    let (mut steps, mut slots) = take_over(txn, operation, bindings, mode);
    steps.extend(others.iter().flat_map(release_steps));
    slots.extend(others.into_iter().map(|binding| binding.slot));
    let what = OperationKind::Release { slots, force: mode == ReleaseMode::Force, reason };
    begin(txn, operation, what, allocation, steps, key)
}

pub(super) fn find(
    txn: &Txn,
    target: ReleaseTarget,
) -> Result<(Option<AllocationId>, Vec<BindingRecord>), Problem> {
    match target {
        ReleaseTarget::Allocation(id) => {
            if !txn.allocations().contains_key(&id) {
                let detail = format!("there is no allocation {id}, or it was released");
                return Err(Problem::new(ProblemCode::NoSuchAllocation, detail));
            }
            Ok((Some(id), txn.bindings_of(id).cloned().collect()))
        }
        ReleaseTarget::Binding(id) => match txn.bindings().get(&id) {
            Some(binding) => Ok((Some(binding.allocation), vec![binding.clone()])),
            None => {
                let detail = format!("there is no binding {id}, or it was released");
                Err(Problem::new(ProblemCode::NoSuchBinding, detail))
            }
        },
    }
}

/// The two steps by which a binding ends, as it stands. One that is out of its host and still wanted is
/// being made again, and may be back in it before it ends: see [`progress::ends`].
pub(super) fn release_steps(binding: &BindingRecord) -> [Step; 2] {
    let port = format!("{} port {}", binding.host, binding.port);
    let mut unbind_port = step(binding, StepName::UnbindPort, port);
    if binding.phase == Phase::Withdrawn && binding.desired.is_release() {
        unbind_port.state = StepState::Done;
    }
    [unbind_port, step(binding, StepName::UnbindSlot, binding.slot.to_string())]
}

pub(super) fn step(binding: &BindingRecord, name: StepName, target: String) -> Step {
    Step {
        name,
        binding: binding.id,
        target,
        state: StepState::Pending,
        detail: None,
        asked: None,
        changed: crate::types::Timestamp::now(),
    }
}

pub(super) fn begin(
    txn: &mut Txn,
    id: OperationId,
    what: OperationKind,
    allocation: Option<AllocationId>,
    steps: Vec<Step>,
    key: Option<ClientKey>,
) -> OperationRecord {
    let client_key = key.as_ref().map(|key| key.key.clone());
    let detail = match &what {
        OperationKind::Allocate { host, slots, .. } => {
            format!("{id}: lend {} to {host}", join(slots))
        }
        OperationKind::Release { slots, .. } => format!("{id}: take back {}", join(slots)),
        OperationKind::Replace { host, slots, .. } => {
            format!("{id}: {} gets {} in the place of {}", host, slots[1], slots[0])
        }
        OperationKind::Drain { place, slots, .. } if slots.is_empty() => {
            format!("{id}: drain {place}, of which nothing is lent")
        }
        OperationKind::Drain { place, slots, .. } => {
            format!("{id}: drain {place}: {}", join(slots))
        }
        OperationKind::TakeBack { slots, due, .. } => {
            format!("{id}: take back {} at {due}", join(slots))
        }
        OperationKind::Forget { node, .. } => format!("{id}: forget {node}"),
    };
    let record = OperationRecord {
        id,
        what,
        state: OperationState::Running,
        allocation,
        steps,
        warnings: Vec::new(),
        error: None,
        client_key,
        started: txn.now(),
        ended: None,
    };
    txn.put_operation(record.clone());
    keep_key(txn, id, key);
    txn.event(EventRecord {
        allocation,
        ..EventRecord::new(EventKind::OperationStarted, detail).operation(id)
    });
    record
}

/// Remembers what a key stands for.
fn keep_key(txn: &mut Txn, operation: OperationId, key: Option<ClientKey>) {
    if let Some(ClientKey { key, digest }) = key {
        txn.put_key(KeyRecord { key, operation, digest, since: txn.now(), outcome: None });
    }
}

/// A list for a person.
pub(super) fn join(slots: &[SlotAddress]) -> String {
    slots.iter().map(SlotAddress::to_string).collect::<Vec<_>>().join(", ")
}
