//! Why something gets nothing new: it is held back, or what it is a part of.

use super::Tables;
use crate::types::topology::PlaceName;
use crate::types::{
    BindingRecord, HoldRecord, LinkUse, NodeName, Place, Role, SlotAddress, Subject,
};
use proxy_core::control::PathSet;
use proxy_core::limits::MAX_PATHS;

impl Tables {
    /// Why nothing new is placed in a slot: it is held back itself, or its box is, or where that
    /// stands.
    pub fn hold_of(&self, slot: &SlotAddress) -> Option<&HoldRecord> {
        // Most of the time there is none, and nothing is made to look for it.
        if self.holds.is_empty() {
            return None;
        }
        let own = self.holds.get(&Place::Slot(slot.clone()));
        own.or_else(|| self.hold_of_node(slot.box_name()))
    }

    /// Why nothing new is lent to a host, or of a box: it is held back, or where it stands.
    pub fn hold_of_node(&self, name: &NodeName) -> Option<&HoldRecord> {
        if self.holds.is_empty() {
            return None;
        }
        let own = self.holds.get(&Place::Node(name.clone()));
        own.or_else(|| {
            let (rack, site) = self.stand(name);
            let rack = rack.and_then(|rack| self.holds.get(&Place::Rack(rack)));
            rack.or_else(|| self.holds.get(&Place::Site(site?)))
        })
    }

    /// The rack and the site where a box or host stands, as far as the inventory says.
    pub fn stand(&self, name: &NodeName) -> (Option<PlaceName>, Option<PlaceName>) {
        let facts = self.pool.facts();
        match self.nodes.get(name).map(|node| node.role) {
            Some(Role::Box) => facts.place_of_box(name),
            Some(Role::Host) => facts.place_of_host(name),
            None => (None, None),
        }
    }

    /// The paths that are held back, also with their fabrics, a bit for each.
    pub fn held_paths(&self) -> u8 {
        let first = Place::Path(0);
        let held = self.holds.range(first..).map(|(place, _)| self.paths_of(place));
        held.flatten().fold(0, |set, paths| set | paths)
    }

    /// The paths that a binding is not given as long as there are others, a bit for each: those that
    /// are held back, and those by which one of its ends does not reach the other, if the policy says
    /// so.
    pub fn held_for(&self, binding: &BindingRecord) -> u8 {
        let ends = [binding.slot.box_name(), &binding.host];
        let failed = self.health.values().filter(|record| record.holds).filter_map(|record| {
            let Subject::Path { from, to, path } = &record.subject else { return None };
            let joins = ends == [from, to] || ends == [to, from];
            joins.then_some(1_u8 << (path % 8))
        });
        failed.fold(self.held_paths(), |set, path| set | path)
    }

    /// The paths that a place stands for, a bit for each; nothing if it is no path or fabric.
    pub fn paths_of(&self, place: &Place) -> Option<u8> {
        match place {
            Place::Path(path) => Some(1_u8 << (path % 8)),
            Place::Fabric(name) => Some(self.pool.facts().fabric_paths(name)),
            Place::Slot(_) | Place::Node(_) | Place::Rack(_) | Place::Site(_) => None,
        }
    }

    /// What is wished of the links for a binding.
    pub fn link_use(&self, binding: &BindingRecord) -> LinkUse {
        self.allocations.get(&binding.allocation).map(|a| a.link.clone()).unwrap_or_default()
    }

    /// The paths that a binding has, a bit for each. Where neither this manager nor the box has
    /// said it yet, those that are wished.
    pub fn paths_of_binding(&self, binding: &BindingRecord) -> u8 {
        let PathSet(set) =
            binding.path_set.unwrap_or_else(|| self.link_use(binding).path_set(MAX_PATHS));
        set
    }
}
