//! Takes what a proxy's tables say into the records; pure.

use super::diff::{self, BoxDiff, HostDiff};
use crate::operations::progress;
use crate::records::{Tables, Txn};
use crate::types::{
    BindingId, BindingRecord, DeviceRecord, EventKind, EventRecord, FunctionAddress, NodeName,
    Phase, Role, SlotAddress,
};
use proxy_core::control::{InventoryEntry, MappingEntry, SlotEntry};
use std::collections::BTreeSet;
use tlp_codec::ids::Epoch;

/// Takes in what a box of this incarnation has in its slots (`inventory`) and in its table. `before`
/// are the records as they were before the table was read. What is left to be done at the box.
pub fn box_tables(
    txn: &mut Txn,
    before: &Tables,
    name: &NodeName,
    incarnation: u32,
    inventory: &[InventoryEntry],
    table: &[SlotEntry],
) -> BoxDiff {
    take_inventory(txn, name, inventory);
    learn_epochs(txn, name, table);
    fail_lost(txn, name, Role::Box, incarnation);
    let diff = diff::of_box(name, table, before, txn);
    for id in &diff.missing {
        progress::missing(txn, *id, Phase::Reserved, name.as_str());
    }
    diff
}

/// As [`box_tables`], of a host.
pub fn host_table(
    txn: &mut Txn,
    before: &Tables,
    name: &NodeName,
    incarnation: u32,
    table: &[MappingEntry],
) -> HostDiff {
    fail_lost(txn, name, Role::Host, incarnation);
    let diff = diff::of_host(name, table, before, txn);
    for id in &diff.missing {
        progress::missing(txn, *id, Phase::SlotBound, name.as_str());
    }
    for id in &diff.failed {
        progress::failed(txn, *id, "the host's port shows its link down");
    }
    for id in &diff.configured {
        progress::configured(txn, *id, incarnation);
    }
    diff
}

/// Fails what a proxy was given in an earlier life: it has lost it, and the other end may have
/// records of that life on their way.
fn fail_lost(txn: &mut Txn, name: &NodeName, role: Role, incarnation: u32) {
    let lost = |binding: &&BindingRecord| match role {
        Role::Box => binding.phase.at_box() && binding.box_incarnation != Some(incarnation),
        Role::Host => binding.phase.at_host() && binding.host_incarnation != Some(incarnation),
    };
    let lost: Vec<BindingId> =
        txn.bindings_at(name).filter(lost).map(|binding| binding.id).collect();
    for id in lost {
        progress::failed(txn, id, &format!("{name} restarted"));
    }
}

/// Enters what a box reported, and what it no longer reports.
fn take_inventory(txn: &mut Txn, name: &NodeName, inventory: &[InventoryEntry]) {
    let mut reported = BTreeSet::new();
    for entry in inventory {
        let Ok(slot) = SlotAddress::new(name.clone(), entry.slot) else {
            tracing::warn!("{name} reports a slot 0, which no box has");
            continue;
        };
        let device = DeviceRecord::from_inventory(slot, entry, txn.now());
        reported.insert(device.address.clone());
        if let Ok(highest) = Epoch::from_bits(entry.highest_epoch) {
            txn.learn_epoch(&device.address, highest);
        }
        let known = txn.devices().get(&device.address).cloned();
        if known.as_ref().is_some_and(|known| known.same_as(&device)) {
            continue;
        }
        let what = |d: &DeviceRecord| (d.model.clone(), d.pci, d.serial);
        if known.as_ref().map(&what) != Some(what(&device)) {
            let id = format!("{:04x}:{:04x}", device.pci.vendor, device.pci.device);
            let detail = format!("{}: {} {} ({id})", device.address, device.state, device.model);
            let event = EventRecord::new(EventKind::DeviceChanged, detail);
            txn.event(event.node(name).slot(&device.address.slot));
            let slot = device.address.slot.clone();
            txn.put_device(device);
            for warning in txn.contradictions(&slot) {
                let event = EventRecord::new(EventKind::InventoryContradicted, warning);
                txn.event(event.node(name).slot(&slot));
            }
            continue;
        }
        txn.put_device(device);
    }
    let gone: Vec<FunctionAddress> = txn
        .devices_of(name)
        .map(|device| device.address.clone())
        .filter(|address| !reported.contains(address))
        .collect();
    for address in gone {
        txn.remove_device(&address);
        let event = EventRecord::new(EventKind::DeviceChanged, format!("{address}: gone"));
        txn.event(event.node(name).slot(&address.slot));
    }
}

fn learn_epochs(txn: &mut Txn, name: &NodeName, table: &[SlotEntry]) {
    for entry in table {
        if let Ok(slot) = SlotAddress::new(name.clone(), entry.slot)
            && let Ok(epoch) = Epoch::from_bits(entry.epoch)
        {
            txn.learn_epoch(&FunctionAddress { slot, function: entry.function }, epoch);
        }
    }
}
