//! Devices that are taken out of their slots before they are erased: what they owe follows them by
//! their serial numbers and kinds, to whatever slot they come back in. A device that has no number
//! cannot be told from another such; what it owes stays with its slot, and counts for any device of
//! its kind in it that has no serial number.

use super::{end, record, rule_for};
use crate::operations::progress;
use crate::records::{Tables, Txn};
use crate::types::{
    BindingRecord, DeviceRecord, DeviceState, EraseRule, ErasedFunction, ErasureId, ErasureRecord,
    ErasureState, EventKind, EventRecord, FunctionAddress, FunctionEpoch, NodeName, Problem,
    SlotAddress,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether a box knows what a function is: an empty slot's has no vendor.
pub fn is_known(device: &DeviceRecord) -> bool {
    !matches!(device.pci.vendor, 0 | 0xffff)
}

/// Whether a box is still looking at what a function is.
pub fn is_not_known_yet(device: &DeviceRecord) -> bool {
    device.state == DeviceState::Probing && !is_known(device)
}

/// The open erasure of what a binding's slot had when it was taken out.
pub fn of_binding<'a>(txn: &'a Txn, binding: &BindingRecord) -> Option<&'a Arc<ErasureRecord>> {
    // It may be in another slot by now; few are owed.
    txn.unerased().find(|erasure| erasure.binding == Some(binding.id))
}

/// The open erasures of the device that one is for.
pub(super) fn same_device(txn: &Txn, record: &ErasureRecord) -> BTreeSet<ErasureId> {
    let same = |other: &&Arc<ErasureRecord>, own: &ErasedFunction| {
        own.kind.is_none_or(|kind| other.is_of(own.serial, kind))
    };
    let numbered = record.functions.iter().filter(|own| own.serial != 0);
    let of_serials = numbered
        .flat_map(|own| txn.owed_by_serial(own.serial).filter(move |other| same(other, own)));
    let of_slot = txn.owed_at(&record.slot).filter(|other| other.serial().is_none());
    let kinds = || record.functions.iter().map(|own| own.kind);
    let of_slot = of_slot.filter(|other| {
        record.serial().is_none() && kinds().any(|kind| kind.is_none_or(|kind| other.may_be(kind)))
    });
    of_serials.chain(of_slot).map(|erasure| erasure.id).collect()
}

/// Devices that are lent, as their box reported them.
pub type Lent = Vec<(BindingRecord, Vec<DeviceRecord>)>;

/// What of a box is lent, before it is entered what the box reports now.
pub fn lent(txn: &Txn, name: &NodeName) -> Lent {
    let own = txn.bindings_at(name).filter(|binding| binding.slot.box_name() == name);
    let devices = |binding: &BindingRecord| {
        txn.functions(&binding.slot).filter(|device| is_known(device)).cloned().collect()
    };
    own.map(|binding| (binding.clone(), devices(binding))).collect()
}

/// Records what of that has left its slot since: it has its tenant's data, and its binding cannot
/// have it erased any more.
pub fn left(txn: &mut Txn, rules: &[EraseRule], lent: Lent) {
    for (binding, devices) in lent {
        let Some(first) = devices.first() else { continue };
        let now = txn.functions(&binding.slot).find(|d| d.state != DeviceState::Empty);
        let what = |d: &DeviceRecord| (d.pci.vendor, d.pci.device, d.serial);
        let functions = devices.iter().map(|d| d.address.function);
        let mut functions =
            functions.filter(|f| binding.functions.iter().any(|b| b.function == *f));
        let has_stayed = now.is_some_and(|now| what(now) == what(first));
        if has_stayed || functions.next().is_none() || is_recorded(txn, &binding, first) {
            continue;
        }
        let Some(rule) = devices.iter().find_map(|device| rule_for(rules, device)) else {
            continue;
        };
        let id =
            record(txn, &binding.slot, &binding.functions, &devices, Some(&binding), rule.clone());
        // The operation waits for the binding, not for this.
        let made = ErasureRecord { operation: None, ..ErasureRecord::clone(&txn.erasures()[&id]) };
        txn.put_erasure(made);
    }
}

/// Whether it is recorded already that a binding's device has left.
fn is_recorded(txn: &Txn, binding: &BindingRecord, device: &DeviceRecord) -> bool {
    let kind = device.pci.kind();
    let mut own = txn.unerased().filter(|erasure| erasure.binding == Some(binding.id));
    own.any(|erasure| match device.serial {
        0 => erasure.serial().is_none() && erasure.may_be(kind),
        serial => erasure.is_of(serial, kind),
    })
}

/// Looks where the devices are that owe an erasure and were in this box, or are now.
pub fn follow(txn: &mut Txn, name: &NodeName) {
    if txn.unerased().next().is_none() {
        return;
    }
    let mut owed: BTreeSet<ErasureId> = txn.owed_in(name).map(|erasure| erasure.id).collect();
    for device in txn.devices_of(name).filter(|device| device.state != DeviceState::Empty) {
        owed.extend(txn.owed_of(device).map(|erasure| erasure.id));
    }
    for id in owed {
        look(txn, id);
    }
}

/// Where the device of an erasure is. If several slots say that they have it, it is where it was.
fn whereabouts(txn: &Tables, erasure: &ErasureRecord) -> Option<SlotAddress> {
    if is_it(erasure, txn.present(&erasure.slot)) {
        return Some(erasure.slot.clone());
    }
    let serial = erasure.serial()?;
    let has_it = |slot: &SlotAddress| is_it(erasure, txn.present(slot));
    let slots = txn.pool().with_serial(serial);
    let slots = slots.filter_map(|(node, slot)| Some(txn.pool().get(node)?.address(slot)));
    let mut slots = slots.filter(has_it);
    slots.next().filter(|_| slots.next().is_none())
}

/// Whether these are the functions of an erasure's device. `present` are those in a slot; if the
/// device has no serial number, in the slot of the erasure.
fn is_it<'a>(erasure: &ErasureRecord, mut present: impl Iterator<Item = &'a DeviceRecord>) -> bool {
    if erasure.serial().is_some() {
        return present.any(|device| erasure.is_of(device.serial, device.pci.kind()));
    }
    let (mut is_kind, mut is_unnumbered) = (false, true);
    for device in present {
        is_kind |= erasure.may_be(device.pci.kind());
        is_unnumbered &= device.serial == 0;
    }
    is_kind && is_unnumbered
}

/// What a slot's functions are to an erasure that is to be done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Its device, and its box is not at work on it.
    Here,
    /// Nothing can be said yet: the box is at work on what is there.
    Busy,
    /// Nothing, or another device.
    Gone,
}

/// What a box reports of the slot of an erasure, said of its device. `reported` are the functions
/// in that slot.
pub fn seen(erasure: &ErasureRecord, reported: &[DeviceRecord]) -> Seen {
    let present = || reported.iter().filter(|device| device.state != DeviceState::Empty);
    let at_work =
        |d: &DeviceRecord| !matches!(d.state, DeviceState::Free | DeviceState::Quarantined);
    match is_it(erasure, present()) {
        true if present().any(at_work) => Seen::Busy,
        true => Seen::Here,
        false if present().any(is_not_known_yet) => Seen::Busy,
        false => Seen::Gone,
    }
}

fn look(txn: &mut Txn, id: ErasureId) {
    let Some(erasure) = txn.erasures().get(&id).filter(|erasure| erasure.is_open()).cloned() else {
        return;
    };
    let Some(slot) = whereabouts(txn, &erasure) else {
        // What is looked at now may be it.
        if txn.present(&erasure.slot).any(is_not_known_yet) {
            return;
        }
        return away(txn, &erasure);
    };
    let tenant = txn.binding_at_slot(&slot).map(|binding| binding.id);
    if tenant.is_some() && tenant == erasure.binding {
        let detail = "the device is back with who had it".to_owned();
        return end(txn, id, ErasureState::Waived, detail);
    }
    if tenant.is_some() {
        let waits = format!("the device is in {slot}, which is lent; it waits for its release");
        return owe(txn, &erasure, Some(slot), waits);
    }
    if slot == erasure.slot && erasure.state != ErasureState::Owed {
        return;
    }
    if let Err(problem) = here(txn, &erasure, &slot) {
        owe(txn, &erasure, Some(slot), problem.detail);
    }
}

/// The device is nowhere.
fn away(txn: &mut Txn, erasure: &ErasureRecord) {
    let what = match erasure.serial() {
        Some(serial) => {
            format!("it is owed by serial number {serial:016x}, wherever that comes back")
        }
        None => {
            "it has no serial number and is not known again elsewhere; what it owes stays with \
                 the slot"
                .into()
        }
    };
    // Only what is quarantined is there and does not say what it is.
    let why = match txn.present(&erasure.slot).any(|device| !is_known(device)) {
        true => "what is in its slot does not say what it is",
        false => "the device was taken out before it was erased",
    };
    owe(txn, erasure, None, format!("{why}; {what}"));
}

/// What was to be erased is not now. What failed has failed, wherever the device is.
fn owe(txn: &mut Txn, erasure: &ErasureRecord, slot: Option<SlotAddress>, detail: String) {
    let slot = slot.unwrap_or_else(|| erasure.slot.clone());
    if erasure.state == ErasureState::Failed {
        if slot != erasure.slot {
            txn.put_erasure(ErasureRecord { slot, ..erasure.clone() });
        }
        return;
    }
    if erasure.state == ErasureState::Owed && (&slot, &detail) == (&erasure.slot, &erasure.detail) {
        return;
    }
    let text = format!("{}: {slot}: {detail}", erasure.id);
    say(txn, erasure, &slot, text.clone());
    // Nobody waits for a device that may never come back.
    progress::erased(txn, erasure, ErasureState::Owed, text);
    let state = ErasureState::Owed;
    txn.put_erasure(ErasureRecord {
        slot,
        state,
        detail,
        permille: 0,
        program_runs: false,
        operation: None,
        ..erasure.clone()
    });
}

/// The device is in this slot: it is erased there. What failed waits for somebody to try again.
fn here(txn: &mut Txn, erasure: &ErasureRecord, slot: &SlotAddress) -> Result<(), Problem> {
    let mut functions = Vec::with_capacity(erasure.functions.len());
    for function in &erasure.functions {
        let binding = &function.binding;
        let address = FunctionAddress { slot: slot.clone(), function: binding.function };
        // A name that no erasure in this slot has had.
        let epoch = txn.new_epoch(&address)?;
        let binding = FunctionEpoch { epoch, ..*binding };
        functions.push(ErasedFunction { binding, ..*function });
    }
    let detail = format!("the device is in {slot} now");
    say(txn, erasure, slot, format!("{}: {detail}", erasure.id));
    let (state, detail) = match erasure.state {
        ErasureState::Failed => (ErasureState::Failed, erasure.detail.clone()),
        _ => (ErasureState::Running, detail),
    };
    let (slot, program_runs) = (slot.clone(), false);
    let moved = ErasureRecord { slot, functions, state, detail, program_runs, ..erasure.clone() };
    txn.put_erasure(moved);
    Ok(())
}

fn say(txn: &mut Txn, erasure: &ErasureRecord, slot: &SlotAddress, text: String) {
    let event = EventRecord::new(EventKind::ErasureOwed, text);
    let (binding, allocation) = (erasure.binding, erasure.allocation);
    let event = event.node(slot.box_name()).slot(slot);
    txn.event(EventRecord { binding, allocation, operation: erasure.operation, ..event });
}
