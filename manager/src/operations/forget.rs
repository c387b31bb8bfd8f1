//! Forgetting a proxy that is gone for good.
//!
//! Its entry in the records goes, with its devices, holds and health; what is lent there ends. A host
//! that is forgotten is not asked, and the boxes reset and erase what it had as after any forced
//! release. Of a box that is forgotten nobody can do that: its bindings are taken out of their hosts,
//! and then are lost. Whatever waited for the box goes on.
//!
//! The proxy's node number is given to no other. The epochs of its slots are kept: a proxy of that name
//! that comes later is new, and what it may still have of before is below any epoch that it gets, and
//! is taken out of it.

use super::request::{self, ClientKey, ReleaseMode, begin, join, release_steps, repeated};
use super::{drain, holds, progress};
use crate::erasure::owed;
use crate::records::Txn;
use crate::types::{
    BindingRecord, Desired, EraseRule, EventKind, EventRecord, NodeName, NodeRecord, OperationKind,
    OperationRecord, Phase, Place, Problem, ProblemCode, SlotAddress, StepName, StepState, Subject,
};

/// Forgets a proxy. The operation ends when nothing is bound there any more.
///
/// # Errors
///
/// When there is no such proxy, it is connected, has something lent and that is not to end
/// (`force`), or the key cannot be used. `rules`: which devices are erased after they were lent.
pub fn forget(
    txn: &mut Txn,
    rules: &[EraseRule],
    name: &NodeName,
    force: bool,
    connected: bool,
    key: Option<ClientKey>,
) -> Result<OperationRecord, Problem> {
    if let Some(there) = repeated(txn, key.as_ref())? {
        return Ok(there);
    }
    let Some(node) = txn.nodes().get(name).cloned() else {
        let detail = format!("there is no proxy with the name {name}, or it was forgotten");
        return Err(Problem::new(ProblemCode::NoSuchNode, detail));
    };
    if connected {
        let detail = format!("{name} is connected; only a proxy that is gone can be forgotten");
        return Err(Problem::new(ProblemCode::StillConnected, detail));
    }
    let lent = standing(txn, name);
    if let Some(first) = lent.first().filter(|_| !force) {
        let slots: Vec<SlotAddress> = lent.iter().map(|b| b.slot.clone()).collect();
        let detail = format!("{} of {name} would end as lost; --force does that", join(&slots));
        return Err(Problem::new(ProblemCode::SlotInUse, detail).owned_by(first.owner()));
    }
    let id = txn.new_operation_id();
    let why = format!("{id} forgets {name}, which is gone for good");
    drain::undo_making(txn, &lent, &why);
    leave(txn, rules, &node);
    // What something else is ending is not asked any more either, and is waited for.
    let (ending, rest): (Vec<BindingRecord>, Vec<BindingRecord>) = txn
        .bindings_at(name)
        .cloned()
        .partition(|b| b.desired.is_release() && b.operation.is_some());
    for binding in &ending {
        txn.update_binding(BindingRecord { desired: Desired::Forced, ..binding.clone() });
    }
    let (mut steps, mut slots) = request::take_over(txn, id, rest, ReleaseMode::Force);
    steps.extend(ending.iter().flat_map(release_steps));
    slots.extend(ending.into_iter().map(|binding| binding.slot));
    let what = OperationKind::Forget { node: name.clone(), slots };
    begin(txn, id, what, None, steps, key);
    let detail = format!("{} {name} is gone for good; node {} is no other's", node.role, node.node);
    txn.event(EventRecord::new(EventKind::NodeForgotten, detail).node(name).operation(id));
    progress::settle(txn, id);
    Ok(txn.operations()[&id].clone())
}

/// What is lent at a proxy and is not ending.
fn standing(txn: &Txn, name: &NodeName) -> Vec<BindingRecord> {
    txn.bindings_at(name).filter(|b| !b.desired.is_release()).cloned().collect()
}

/// Takes out what the records have of a proxy, but for its bindings and the epochs of its slots.
fn leave(txn: &mut Txn, rules: &[EraseRule], node: &NodeRecord) {
    let name = &node.name;
    let of_node = |place: &&Place| match place {
        Place::Node(held) => held == name,
        Place::Slot(slot) => slot.box_name() == name,
        Place::Path(_) | Place::Rack(_) | Place::Site(_) | Place::Fabric(_) => false,
    };
    let held: Vec<Place> = txn.holds().keys().filter(of_node).cloned().collect();
    held.iter().for_each(|place| holds::end_hold(txn, place));
    let about = |subject: &&Subject| match subject {
        Subject::Node { node } => node == name,
        Subject::Slot { slot } => slot.box_name() == name,
        Subject::Path { from, to, .. } => from == name || to == name,
    };
    let unwell: Vec<Subject> = txn.health().keys().filter(about).cloned().collect();
    unwell.iter().for_each(|subject| txn.remove_health(subject));
    let lent = owed::lent(txn, name);
    let devices: Vec<_> = txn.devices_of(name).map(|device| device.address.clone()).collect();
    devices.iter().for_each(|address| txn.remove_device(address));
    // What its devices owe they owe wherever they come back.
    owed::left(txn, rules, lent);
    owed::follow(txn, name);
    txn.remove_node(name);
}

/// A binding that is out of its host and whose box was forgotten is over.
pub fn lost(txn: &mut Txn, asked: &BindingRecord) {
    let there = txn.bindings().get(&asked.id).filter(|now| now.functions == asked.functions);
    let Some(binding) = there.filter(|binding| is_lost(txn, binding)).cloned() else { return };
    let detail = format!(
        "{} of {} is lost with its box, which is gone for good; its device was neither reset nor \
         erased",
        binding.slot, binding.host
    );
    txn.event(EventRecord::new(EventKind::BindingLost, detail.clone()).binding(&binding));
    txn.remove_binding(binding.id);
    if txn.bindings_of(binding.allocation).next().is_none() {
        txn.remove_allocation(binding.allocation);
    }
    progress::step(txn, &binding, StepName::UnbindSlot, StepState::Done, Some(detail));
}

/// Whether a binding has nothing left to wait for: it is out of its host, and its box is forgotten.
pub fn is_lost(tables: &crate::records::Tables, binding: &BindingRecord) -> bool {
    binding.phase == Phase::Withdrawn
        && binding.desired.is_release()
        && !tables.nodes().contains_key(binding.slot.box_name())
}
