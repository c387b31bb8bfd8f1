//! Entering anew what changed: a slot, a box, or all of what a place is.

use super::{BoxEntry, Facts, PoolIndex, SlotEntry, facts};
use crate::records::Tables;
use crate::types::{NodeName, NodeRecord, Place, Role, SlotAddress};
use std::sync::Arc;
use tlp_codec::ids::{NodeId, SlotId};

impl Tables {
    /// Enters a slot anew: something of it changed. Others change with it that have its serial
    /// number, or had.
    pub(in crate::records) fn refresh_slot(&mut self, address: &SlotAddress) {
        let Some((before, after)) = self.reenter_slot(address) else { return };
        if (before.serial, before.profile) != (after.serial, after.profile) {
            self.reenter_sharing([before.serial, after.serial]);
        }
    }

    /// Enters the slots anew whose device has one of these serial numbers.
    pub(in crate::records) fn reenter_sharing(&mut self, serials: impl IntoIterator<Item = u64>) {
        for serial in serials.into_iter().filter(|serial| *serial != 0) {
            let sharing: Vec<_> = self.pool.with_serial(serial).collect();
            for (node, slot) in sharing {
                let address = self.pool.boxes[&node].address(slot);
                self.reenter_slot(&address);
            }
        }
    }

    /// Enters a slot anew. What it was before and is now, if it is one of a box that is known.
    fn reenter_slot(&mut self, address: &SlotAddress) -> Option<(SlotEntry, SlotEntry)> {
        let node = self.nodes.get(address.box_name()).map(|node| node.node)?;
        let old = self.pool.boxes.get(&node).cloned()?;
        let before = old.slot(address.slot()).copied()?;
        let entry = self.slot_entry(address, before.island);
        if entry == before {
            if let Some(profile) = entry.profile {
                self.pool.forget(profile);
            }
            return Some((before, entry));
        }
        self.pool.take_out(&old);
        self.swap_slot(node, &before, &entry);
        let mut new = BoxEntry::clone(&old);
        new.slots[usize::from(address.slot().get()) - 1] = entry;
        self.pool.enter(new);
        Some((before, entry))
    }

    /// Enters a box anew: its size, place, or all of its slots changed.
    pub(in crate::records) fn refresh_box(&mut self, name: &NodeName) {
        let Some(record) = self.nodes.get(name).cloned() else { return };
        let mut serials = self.take_out_box(record.node);
        if record.role == Role::Box {
            self.enter_box(name, &record, &mut serials);
        }
        serials.sort_unstable();
        serials.dedup();
        self.reenter_sharing(serials);
    }

    /// Takes a box out that the records are about to lose.
    pub(in crate::records) fn leave_box(&mut self, name: &NodeName) {
        let Some(node) = self.nodes.get(name).map(|record| record.node) else { return };
        let serials = self.take_out_box(node);
        self.reenter_sharing(serials);
    }

    /// Takes a box out. The serial numbers that it had.
    fn take_out_box(&mut self, node: NodeId) -> Vec<u64> {
        let mut serials = Vec::new();
        if let Some(old) = self.pool.boxes.remove(&node) {
            self.pool.take_out(&old);
            for slot in &old.slots {
                serials.push(slot.serial);
                self.pool.serials.remove(&(slot.serial, node, slot.slot));
                if let Some(profile) = slot.profile {
                    self.pool.forget(profile);
                }
            }
        }
        serials
    }

    /// Enters a box that is not there, and adds the serial numbers that it has.
    fn enter_box(&mut self, name: &NodeName, record: &NodeRecord, serials: &mut Vec<u64>) {
        let facts = self.pool.facts.clone();
        let (rack, site) = facts.place_of_box(name);
        let mut slots = Vec::with_capacity(record.size.into());
        for number in 1..=record.size {
            let slot = SlotId::new(number).expect("every byte is a slot number");
            let address = SlotAddress::new(name.clone(), slot).expect("they begin with 1");
            let island = facts.island_of(name, number);
            let entry = self.slot_entry(&address, island);
            if entry.serial != 0 {
                self.pool.serials.insert((entry.serial, record.node, slot));
                serials.push(entry.serial);
            }
            slots.push(entry);
        }
        self.pool.enter(BoxEntry {
            name: name.clone(),
            node: record.node,
            rack,
            site,
            paths: facts.box_paths(name),
            capacity: facts.box_capacity(name),
            slots,
            shape: Arc::default(),
        });
    }

    /// Enters a place anew that is held back, or no longer is.
    pub(in crate::records) fn refresh_place(&mut self, place: &Place) {
        match place {
            Place::Slot(slot) => self.refresh_slot(slot),
            Place::Node(name) => self.refresh_box(name),
            Place::Rack(_) | Place::Site(_) => {
                let stands = |name: &&NodeName| {
                    let (rack, site) = self.stand(name);
                    rack.map(Place::Rack).as_ref() == Some(place)
                        || site.map(Place::Site).as_ref() == Some(place)
                };
                let names: Vec<NodeName> = self.nodes.keys().filter(stands).cloned().collect();
                names.iter().for_each(|name| self.refresh_box(name));
            }
            // Bindings find their own way around a path.
            Place::Path(_) | Place::Fabric(_) => {}
        }
    }

    /// Enters everything anew.
    pub(in crate::records) fn refresh_pool(&mut self, facts: Arc<Facts>) {
        self.pool = PoolIndex { facts, ..PoolIndex::default() };
        let names: Vec<NodeName> = self.nodes.keys().cloned().collect();
        for name in names {
            self.refresh_box(&name);
        }
    }

    /// Enters everything anew.
    pub(in crate::records) fn reenter_pool(&mut self) {
        self.refresh_pool(self.pool.facts.clone());
    }

    /// Has the serial number and the profile of what was in a slot no more, and of what is.
    fn swap_slot(&mut self, node: NodeId, before: &SlotEntry, entry: &SlotEntry) {
        if before.serial != entry.serial {
            self.pool.serials.remove(&(before.serial, node, before.slot));
            if entry.serial != 0 {
                self.pool.serials.insert((entry.serial, node, entry.slot));
            }
        }
        if let Some(profile) = before.profile {
            self.pool.forget(profile);
        }
    }

    /// A slot as it is; its profile is counted once more.
    fn slot_entry(&mut self, address: &SlotAddress, island: Option<u8>) -> SlotEntry {
        let status = self.slot_status(address);
        let profile = facts::profile_of(self, address);
        let binding = self.binding_at_slot(address);
        let taken = binding.map_or(0, |b| facts::taken_for(self, b, profile.as_ref()));
        let serial = facts::serial_of(self, address);
        let profile = profile.map(|profile| self.pool.intern(profile));
        SlotEntry { slot: address.slot(), status, profile, serial, island, taken }
    }
}
