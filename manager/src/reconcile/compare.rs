//! Takes what a proxy's tables say into the records; pure.

use super::diff::{self, BoxDiff, HostDiff};
use crate::erasure::owed;
use crate::operations::progress;
use crate::records::{Tables, Txn};
use crate::types::{
    BindingId, BindingRecord, DeviceRecord, DeviceState, EraseRule, EventKind, EventRecord,
    FunctionAddress, NodeName, Phase, Role, SlotAddress,
};
use proxy_core::control::{InventoryEntry, MappingEntry, SlotEntry};
use std::collections::BTreeSet;
use tlp_codec::ids::{Epoch, NodeId, SlotId};

/// Takes in what a box of this incarnation has in its slots (`inventory`) and in its table. `before`
/// are the records as they were before the table was read, `rules` say what has to be erased of what
/// was taken out. What is left to be done at the box.
pub fn box_tables(
    txn: &mut Txn,
    before: &Tables,
    name: &NodeName,
    incarnation: u32,
    inventory: &[InventoryEntry],
    table: &[SlotEntry],
    rules: &[EraseRule],
) -> BoxDiff {
    // Of a proxy that was forgotten while its tables were on their way.
    if !txn.nodes().contains_key(name) {
        return BoxDiff::default();
    }
    // If that could not be written when it began.
    txn.learn_life(name, incarnation);
    let lent = owed::lent(txn, name);
    take_inventory(txn, name, inventory);
    owed::left(txn, rules, lent);
    owed::follow(txn, name);
    learn_epochs(txn, name, table);
    fail_lost(txn, name, Role::Box, incarnation);
    let diff = diff::of_box(name, table, before, txn);
    for id in &diff.missing {
        progress::missing(txn, *id, Phase::Reserved, name.as_str());
    }
    for id in &diff.over {
        progress::failed(txn, *id, &format!("{name} has ended it, which nobody heard"));
    }
    learn_unrecorded(txn, name, incarnation, table);
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
    learn_lent(txn, table);
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
    // What it had in an earlier life while nobody recorded that it does: an earlier manager may have
    // told the host, too.
    let forgotten = |binding: &&BindingRecord| {
        role == Role::Box
            && binding.phase == Phase::Reserved
            && binding.box_incarnation.is_some_and(|life| life != incarnation)
    };
    let forgotten: Vec<BindingId> =
        txn.bindings_at(name).filter(forgotten).map(|binding| binding.id).collect();
    for id in forgotten {
        progress::made_again(txn, id, &format!("{name} restarted"));
    }
}

/// Enters what a box reported, and what it no longer reports. A slot whose device is being looked
/// at, since it was just put in or the box has just started, says nothing of it yet: what was there
/// counts as there until the box says what is.
fn take_inventory(txn: &mut Txn, name: &NodeName, inventory: &[InventoryEntry]) {
    let (mut reported, mut looked_at) = (BTreeSet::new(), BTreeSet::new());
    for entry in inventory {
        let Ok(slot) = SlotAddress::new(name.clone(), entry.slot) else { continue };
        let mut device = DeviceRecord::from_inventory(slot, entry, txn.now());
        reported.insert(device.address.clone());
        let known = txn.devices().get(&device.address).cloned();
        if owed::is_not_known_yet(&device) {
            looked_at.insert(device.address.slot.clone());
            if let Some(known) = known.as_ref().filter(|known| owed::is_known(known)) {
                let DeviceRecord { state, since, .. } = device;
                device = DeviceRecord { state, since, ..DeviceRecord::clone(known) };
            }
        }
        if let Ok(highest) = Epoch::from_bits(entry.highest_epoch) {
            txn.learn_epoch(&device.address, highest);
        }
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
            say_contested(txn, &slot);
            continue;
        }
        let slot = device.address.slot.clone();
        let was_looked_at = known.is_some_and(|known| known.state == DeviceState::Probing);
        txn.put_device(device);
        if was_looked_at {
            say_contested(txn, &slot);
        }
    }
    let unreported = txn.devices_of(name).filter(|device| !reported.contains(&device.address));
    let unreported: Vec<DeviceRecord> = unreported.cloned().collect();
    for device in unreported {
        if looked_at.contains(&device.address.slot) {
            txn.device_became(&device.address, DeviceState::Probing);
            continue;
        }
        let address = device.address;
        txn.remove_device(&address);
        let event = EventRecord::new(EventKind::DeviceChanged, format!("{address}: gone"));
        txn.event(event.node(name).slot(&address.slot));
    }
}

/// Says that the device in a slot has others' serial number.
fn say_contested(txn: &mut Txn, slot: &SlotAddress) {
    // Of what is being looked at it is not known whether it is still there.
    let looked_at = |slot: &SlotAddress| txn.present(slot).any(|d| d.state == DeviceState::Probing);
    let others = txn.same_serial(slot).filter(|other| !looked_at(other));
    let others: Vec<String> = others.map(|other| other.to_string()).collect();
    if others.is_empty() || looked_at(slot) {
        return;
    }
    let serial = txn.functions(slot).next().map_or(0, |device| device.serial);
    let detail = format!(
        "{slot} and {} have devices with the same serial number {serial:016x}; none of them is lent \
         until the others are gone",
        others.join(", ")
    );
    let event = EventRecord::new(EventKind::SerialContested, detail);
    txn.event(event.node(slot.box_name()).slot(slot));
}

/// Forgets what boxes that have long been away had in their slots, if this box has it now: it was
/// carried from one to the other. What is lent there stays. `is_gone` says which are.
pub fn take_moved(txn: &mut Txn, name: &NodeName, is_gone: impl Fn(&NodeName) -> bool) {
    let slots: BTreeSet<SlotAddress> =
        txn.devices_of(name).map(|device| device.address.slot.clone()).collect();
    for slot in slots {
        let moved: Vec<SlotAddress> = txn
            .same_serial(&slot)
            .filter(|other| other.box_name() != name && is_gone(other.box_name()))
            .filter(|other| txn.binding_at_slot(other).is_none())
            .collect();
        for from in moved {
            let functions: Vec<_> = txn.functions(&from).map(|d| d.address.clone()).collect();
            for address in functions {
                txn.remove_device(&address);
            }
            owed::follow(txn, name);
            let detail = format!("{from}: gone; its device is in {slot} now");
            let event = EventRecord::new(EventKind::DeviceChanged, detail);
            txn.event(event.node(from.box_name()).slot(&from));
        }
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

/// Learns what another manager has lent while this one did not know of it. The box that would say so
/// may have restarted and have forgotten; the host still has it, or has only just been told to let it
/// go, and must not get the same once more.
fn learn_lent(txn: &mut Txn, table: &[MappingEntry]) {
    for entry in table.iter().filter(|entry| entry.used) {
        let node = NodeId::new(entry.box_node).ok();
        let known = node.and_then(|node| txn.node_by_number(node));
        let at = known.filter(|node| node.role == Role::Box && entry.slot <= node.size);
        let (Some(node), Ok(slot)) = (at, SlotId::new(entry.slot)) else { continue };
        let Ok(slot) = SlotAddress::new(node.name.clone(), slot) else { continue };
        for (function, epoch) in &entry.functions {
            let address = FunctionAddress { slot: slot.clone(), function: *function };
            txn.learn_epoch_of_host(&address, *epoch);
        }
    }
}

/// Learns by which paths bindings stand that an earlier manager recorded without saying so, or that
/// the box has in this life while nobody has recorded yet that it does: asked again, it is asked for
/// the same.
fn learn_unrecorded(txn: &mut Txn, name: &NodeName, incarnation: u32, table: &[SlotEntry]) {
    for entry in table.iter().filter(|entry| entry.used) {
        let Ok(slot) = SlotAddress::new(name.clone(), entry.slot) else { continue };
        let own = |b: &&BindingRecord| {
            let mut functions = b.functions.iter();
            b.path_set.is_none()
                && (b.phase.at_box() || b.phase == Phase::Reserved)
                && functions.any(|f| (f.function, f.epoch.bits()) == (entry.function, entry.epoch))
        };
        if let Some(binding) = txn.binding_at_slot(&slot).filter(own).cloned() {
            let (path_set, box_incarnation) = (Some(entry.path_set), Some(incarnation));
            txn.update_binding(BindingRecord { path_set, box_incarnation, ..binding });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::test_device::gpu;
    use crate::types::{NodeRecord, SlotStatus};
    use proxy_core::control::{PathSet, SlotState};
    use tlp_codec::ids::SlotFunction;

    fn put(txn: &mut Txn, slot: &str, serial: u64) -> SlotAddress {
        let slot: SlotAddress = slot.parse().unwrap();
        let name = slot.box_name().clone();
        if !txn.nodes().contains_key(&name) {
            let (node, now) = (txn.new_node_id().unwrap(), txn.now());
            let role = Role::Box;
            txn.put_node(NodeRecord::new(name, node, role, 4, now));
        }
        txn.put_device(gpu(&slot, SlotFunction::ZERO, serial, txn.now()));
        slot
    }

    #[test]
    fn a_device_that_was_carried_to_another_box_is_there_only() {
        let mut txn = Txn::new(Tables::default());
        let [old, other, new] =
            [("old/1", 7), ("old/2", 8), ("new/3", 7)].map(|(slot, n)| put(&mut txn, slot, n));
        let status = |txn: &Txn| [&old, &other, &new].map(|slot| txn.slot_status(slot));
        use SlotStatus::{Contested, Empty, Free};
        assert_eq!(status(&txn), [Contested, Free, Contested]);
        take_moved(&mut txn, new.box_name(), |_| false);
        assert_eq!(status(&txn), [Contested, Free, Contested], "the other box is there");
        take_moved(&mut txn, new.box_name(), |name| name == old.box_name());
        assert_eq!(status(&txn), [Empty, Free, Free]);
        // The index says the same as the records.
        let entry =
            |slot: &SlotAddress| *txn.pool_box(slot.box_name()).unwrap().slot(slot.slot()).unwrap();
        assert_eq!([&old, &other, &new].map(|slot| entry(slot).status), [Empty, Free, Free]);
    }

    /// What a box reports of a function in its first slot.
    fn entry(function: u16, state: SlotState, device: u16) -> InventoryEntry {
        let known = u16::from(device != 0);
        InventoryEntry {
            slot: tlp_codec::ids::SlotId::new(1).unwrap(),
            function: SlotFunction::new(function).unwrap(),
            state,
            model: proxy_core::control::Name::try_from("gpu").unwrap(),
            id: (0x10de * known, device),
            subsystem: (0, 0),
            class: 0x03_0200 * u32::from(known),
            revision: 0,
            serial: device.into(),
            bars: [0; 6],
            highest_epoch: 0,
        }
    }

    #[test]
    fn what_is_looked_at_counts_as_what_was_there_before() {
        let mut txn = Txn::new(Tables::default());
        let slot = put(&mut txn, "a/1", 0);
        let mut reports = |entries: &[InventoryEntry]| {
            let before = Tables::clone(&txn);
            box_tables(&mut txn, &before, slot.box_name(), 1, entries, &[], &[]);
            let devices = txn.functions(&slot);
            devices.map(|d| (d.pci.device, d.serial, d.state)).collect::<Vec<_>>()
        };
        use DeviceState::{Free, Probing};
        let [f0, f1] = [0, 1].map(|function| entry(function, SlotState::Free, 7));
        assert_eq!(reports(&[f0, f1]), [(7, 7, Free), (7, 7, Free)]);
        let looks = entry(0, SlotState::Probing, 0);
        assert_eq!(reports(std::slice::from_ref(&looks)), [(7, 7, Probing), (7, 7, Probing)]);
        assert_eq!(reports(&[entry(0, SlotState::Free, 8)]), [(8, 8, Free)]);
        // A slot that was empty has nothing that was there before.
        reports(&[entry(0, SlotState::Empty, 0)]);
        assert_eq!(reports(&[looks]), [(0, 0, Probing)]);
    }

    #[test]
    fn three_of_one_number_and_a_box_that_goes_keep_the_index_right() {
        let mut txn = Txn::new(Tables::default());
        let slots: Vec<_> = ["a/1", "b/1", "b/2"].map(|slot| put(&mut txn, slot, 7)).into();
        let agree = |txn: &Txn, expected: SlotStatus| {
            for slot in &slots {
                let entry = txn.pool_box(slot.box_name()).unwrap().slot(slot.slot()).unwrap();
                assert_eq!((entry.status, txn.slot_status(slot)), (expected, expected), "{slot}");
            }
        };
        agree(&txn, SlotStatus::Contested);
        let function = |slot: &SlotAddress| FunctionAddress {
            slot: slot.clone(),
            function: SlotFunction::ZERO,
        };
        // A box that shrinks is entered anew; what is beyond it is no slot any more.
        let b = txn.nodes()[slots[1].box_name()].clone();
        txn.put_node(NodeRecord { size: 2, ..b });
        agree(&txn, SlotStatus::Contested);
        txn.remove_device(&function(&slots[0]));
        txn.remove_device(&function(&slots[1]));
        put(&mut txn, "a/1", 1);
        put(&mut txn, "b/1", 2);
        agree(&txn, SlotStatus::Free);
    }

    #[test]
    fn what_a_host_has_of_a_box_was_lent() {
        use super::super::diff::tests::mapping;
        use proxy_core::control::PortState;
        let mut txn = Txn::new(Tables::default());
        let slot = put(&mut txn, "box1/1", 1);
        let box_node = txn.nodes()[slot.box_name()].node.get();
        let entry = |slot: u8, counter| MappingEntry {
            slot,
            ..mapping(0, box_node, counter, PortState::Present)
        };
        let host = NodeName::new("host1").unwrap();
        let before = Tables::clone(&txn);
        // A slot that the box does not have is nobody's.
        host_table(&mut txn, &before, &host, 1, &[entry(1, 7), entry(5, 9)]);
        let address = |slot| FunctionAddress { slot, function: SlotFunction::ZERO };
        assert_eq!(txn.highest_epoch(&address("box1/5".parse().unwrap())), None);
        let next = txn.new_epoch(&address(slot)).unwrap();
        assert_eq!(next, Epoch::new(0, 8).unwrap(), "another manager has lent up to 7");
        // A host that lies does not use up the epochs of a device that is not its own.
        host_table(&mut txn, &before, &host, 1, &[entry(1, Epoch::MAX_COUNTER)]);
        let functions = [(SlotFunction::ZERO, Epoch::new(255, 1).unwrap())].into_iter().collect();
        host_table(&mut txn, &before, &host, 1, &[MappingEntry { functions, ..entry(1, 1) }]);
        assert_eq!(
            txn.new_epoch(&address("box1/1".parse().unwrap())).unwrap(),
            next.next().unwrap()
        );
    }

    #[test]
    fn a_device_without_an_epoch_that_is_left_is_not_lent() {
        let exhausted = || {
            let mut txn = Txn::new(Tables::default());
            let slot = put(&mut txn, "box1/1", 1);
            let said = InventoryEntry {
                highest_epoch: Epoch::new(0, Epoch::MAX_COUNTER).unwrap().bits(),
                serial: 1,
                ..entry(0, SlotState::Free, 1)
            };
            let before = Tables::clone(&txn);
            box_tables(&mut txn, &before, slot.box_name(), 1, &[said], &[], &[]);
            (txn, slot)
        };
        // Placement goes by what is entered.
        let both = |txn: &Txn, slot: &SlotAddress| {
            let entered = txn.pool_box(slot.box_name()).unwrap().slot(slot.slot()).unwrap().status;
            [entered, txn.slot_status(slot)]
        };
        let (mut txn, slot) = exhausted();
        assert_eq!(both(&txn, &slot), [SlotStatus::Exhausted; 2]);
        txn.begin_generation(std::path::Path::new("a store"), 0).unwrap();
        assert_eq!(both(&txn, &slot), [SlotStatus::Free; 2]);
        // The box was in a pool of a later generation meanwhile.
        let (mut txn, slot) = exhausted();
        let address = FunctionAddress { slot: slot.clone(), function: SlotFunction::ZERO };
        txn.learn_epoch(&address, Epoch::new(1, 7).unwrap());
        assert_eq!(both(&txn, &slot), [SlotStatus::Free; 2]);
    }

    /// The records of an earlier manager do not say by which paths, nor do those of one that was
    /// killed before it could write what the box had done; the box does.
    #[test]
    fn paths_are_learnt_from_the_box() {
        for phase in ["reserved", "bound"] {
            paths_are_learnt_in(phase);
        }
    }

    fn paths_are_learnt_in(phase: &str) {
        let (mut txn, binding, entry) = recorded(phase);
        let (slot, epoch) = (&binding.slot, binding.functions[0].epoch);
        let learnt = |txn: &Txn| txn.bindings()[&binding.id].path_set;
        let other = SlotEntry { epoch: Epoch::new(0, 1).unwrap().bits(), ..entry.clone() };
        learn_unrecorded(&mut txn, slot.box_name(), 1, &[other]);
        assert_eq!(learnt(&txn), None, "of an earlier binding");
        for set in [2, 1] {
            let path_set = PathSet(set);
            let entry = SlotEntry { epoch: epoch.bits(), path_set, ..entry.clone() };
            learn_unrecorded(&mut txn, slot.box_name(), 1, &[entry]);
            assert_eq!(learnt(&txn), Some(PathSet(2)), "what is known is not learnt");
        }
    }

    /// A binding in this phase of a device in a box, and what the box says that has it.
    fn recorded(phase: &str) -> (Txn, BindingRecord, SlotEntry) {
        let mut txn = Txn::new(Tables::default());
        let slot = put(&mut txn, "box1/1", 1);
        let epoch = Epoch::new(0, 2).unwrap();
        let binding: BindingRecord = serde_json::from_value(serde_json::json!({
            "id": "bind-1", "allocation": "alloc-1", "slot": slot, "host": "host1",
            "functions": [{ "function": 0, "epoch": epoch }], "port": 0, "phase": phase,
            "desired": "bound", "since": txn.now(), "changed": txn.now(),
        }))
        .unwrap();
        txn.add_binding(binding.clone());
        let entry = SlotEntry {
            entry: 0,
            valid: true,
            used: true,
            state: proxy_core::control::SlotState::Bound,
            slot: slot.slot(),
            function: SlotFunction::ZERO,
            host_node: 1,
            path_set: PathSet(1),
            epoch: epoch.bits(),
            windows: heapless::Vec::new(),
        };
        (txn, binding, entry)
    }

    /// An earlier manager may have lent the device under these epochs after this one's records were
    /// copied; the box has forgotten it, and says so by another life alone.
    #[test]
    fn what_a_box_had_in_an_earlier_life_and_nobody_recorded_is_made_under_new_epochs() {
        let (mut txn, binding, bound) = recorded("reserved");
        let name = binding.slot.box_name();
        let said = InventoryEntry { serial: 1, ..entry(0, SlotState::Bound, 1) };
        let mut reads = |incarnation, table: &[SlotEntry]| {
            let before = Tables::clone(&txn);
            let inventory = std::slice::from_ref(&said);
            box_tables(&mut txn, &before, name, incarnation, inventory, table, &[]);
            txn.bindings()[&binding.id].phase
        };
        let free = SlotEntry { used: false, epoch: 0, ..bound.clone() };
        assert_eq!(reads(1, std::slice::from_ref(&free)), Phase::Reserved);
        assert_eq!(reads(2, std::slice::from_ref(&free)), Phase::Reserved, "it never had it");
        assert_eq!(reads(2, std::slice::from_ref(&bound)), Phase::Reserved);
        assert_eq!(reads(2, &[bound]), Phase::Reserved);
        assert_eq!(reads(3, &[free]), Phase::Failed);
    }

    /// As above, and the box had written it down: it has the epochs in its next life, too.
    #[test]
    fn what_a_box_brings_from_a_life_before_its_epochs_were_recorded_is_made_under_new_epochs() {
        for (last, has, phase) in [(1, 1, Phase::Reserved), (1, 2, Phase::Failed)] {
            let (mut txn, binding, bound) = recorded("reserved");
            let name = binding.slot.box_name();
            txn.learn_life(name, last);
            let box_incarnation = txn.last_life(name);
            txn.update_binding(BindingRecord { box_incarnation, ..binding.clone() });
            let said = [InventoryEntry { serial: 1, ..entry(0, SlotState::Bound, 1) }];
            let before = Tables::clone(&txn);
            box_tables(&mut txn, &before, name, has, &said, &[bound], &[]);
            assert_eq!(txn.bindings()[&binding.id].phase, phase, "{last} and {has}");
        }
    }

    /// It could not be written when the box came.
    #[test]
    fn the_life_of_a_box_is_known_when_its_tables_are() {
        let (mut txn, binding, bound) = recorded("reserved");
        let (name, before) = (binding.slot.box_name(), Tables::clone(&txn));
        assert_eq!(txn.last_life(name), None);
        box_tables(&mut txn, &before, name, 5, &[], &[bound], &[]);
        assert_eq!(txn.last_life(name), Some(5));
    }

    #[test]
    fn epochs_are_given_for_the_life_in_which_the_box_is() {
        let (mut txn, binding, _) = recorded("withdrawn");
        txn.learn_life(binding.slot.box_name(), 7);
        let states = [(SlotFunction::ZERO, DeviceState::Free)];
        progress::freed(&mut txn, &[], &binding, &states);
        let again = &txn.bindings()[&binding.id];
        assert_eq!((again.phase, again.box_incarnation), (Phase::Reserved, Some(7)));
    }
}
