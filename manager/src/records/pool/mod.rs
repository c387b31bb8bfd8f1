//! The slots as placement asks for them: kept up to date with every change of the records, so
//! that no request has to look at all of them.
//!
//! Three things make few of many. Devices that are alike in everything but their serial number
//! have one [`Profile`]; a pool has tens. Boxes that have as many free slots of each profile, in
//! the same islands, and as much bandwidth left, have one [`Shape`]; a pool has hundreds. And the
//! boxes of each shape are kept by [`Scope`]: of a rack, of a site, of the pool. A request is
//! asked of every profile, then of every shape, and then takes a box of the best.

mod entering;
mod facts;
mod lendable;

pub use facts::{DEFAULT_CAPACITY, DEFAULT_GPU_DEMAND, Facts, Profile};

use super::Tables;
use crate::types::topology::{BoxKind, PlaceName};
use crate::types::{LinkUse, NodeName, SlotAddress, SlotStatus};
use imbl::{OrdMap, OrdSet};
use std::sync::Arc;
use tlp_codec::ids::{NodeId, SlotId};

/// Number of a profile; small, and used again when no slot has the profile any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileId(pub u32);

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEntry {
    /// Its number.
    pub slot: SlotId,
    /// What can be done with it.
    pub status: SlotStatus,
    /// What is in it; nothing if it is empty.
    pub profile: Option<ProfileId>,
    /// The device's serial number; 0 if it is not known.
    pub serial: u64,
    /// Which of its box's islands it is in.
    pub island: Option<u8>,
    /// What is taken of its proxies' bandwidth for it while it is lent, bytes a second.
    pub taken: u64,
}

/// A box.
#[derive(Clone, Debug)]
pub struct BoxEntry {
    /// Its name.
    pub name: NodeName,
    /// Its node number.
    pub node: NodeId,
    /// Where it stands, if a file says so.
    pub rack: Option<PlaceName>,
    /// At which site that is.
    pub site: Option<PlaceName>,
    /// The paths that it can be reached by, a bit for each; all if no file says.
    pub paths: u8,
    /// What its proxy carries, bytes a second.
    pub capacity: u64,
    /// Its slots by number, from 1 on.
    pub slots: Vec<SlotEntry>,
    shape: Arc<Shape>,
}

/// Free slots of one profile in one island, or in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The island.
    pub island: Option<u8>,
    /// What is in them.
    pub profile: ProfileId,
    /// How many there are.
    pub free: u8,
}

/// An island of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct IslandShape {
    /// Its slots.
    pub size: u8,
    /// Those of them that are free.
    pub free: u8,
    /// How fast one device reaches another there, bytes a second; 0 if it is not said.
    pub rate: u64,
}

impl IslandShape {
    /// Whether all of it is free.
    pub fn is_whole(self) -> bool {
        self.free == self.size
    }
}

/// What a box has left.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Which kind of box it is.
    pub kind: BoxKind,
    /// Bandwidth of its proxy that is not taken, bytes a second.
    pub room: u64,
    /// Its free slots.
    pub groups: Vec<Group>,
    /// Its islands.
    pub islands: Vec<IslandShape>,
}

/// A part of the pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All of it.
    Pool,
    /// What is at a site.
    Site(PlaceName),
    /// What is in a rack.
    Rack(PlaceName),
}

/// Boxes that have something free, by what they have left.
pub type Shapes = OrdMap<Arc<Shape>, OrdSet<NodeId>>;

/// How many slots have a profile.
#[derive(Clone, Debug)]
struct Interned {
    profile: Arc<Profile>,
    slots: u32,
}

/// All of it.
#[derive(Clone, Default)]
pub struct PoolIndex {
    facts: Arc<Facts>,
    boxes: OrdMap<NodeId, Arc<BoxEntry>>,
    profiles: OrdMap<ProfileId, Interned>,
    profile_ids: OrdMap<Arc<Profile>, ProfileId>,
    /// Numbers below that of the last profile that no profile has. With those that are used they
    /// have no gap.
    unused: OrdSet<ProfileId>,
    scopes: OrdMap<Scope, Shapes>,
    serials: OrdSet<(u64, NodeId, SlotId)>,
}

impl BoxEntry {
    /// What it has left.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// One of its slots.
    pub fn slot(&self, slot: SlotId) -> Option<&SlotEntry> {
        self.slots.get(usize::from(slot.get()).checked_sub(1)?)
    }

    /// The address of one of its slots.
    pub fn address(&self, slot: SlotId) -> SlotAddress {
        SlotAddress::new(self.name.clone(), slot).expect("slots of boxes begin with 1")
    }

    /// Whether it is in a part of the pool.
    pub fn is_in(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Pool => true,
            Scope::Site(site) => self.site.as_ref() == Some(site),
            Scope::Rack(rack) => self.rack.as_ref() == Some(rack),
        }
    }

    fn scopes(&self) -> impl Iterator<Item = Scope> {
        let site = self.site.clone().map(Scope::Site);
        let rack = self.rack.clone().map(Scope::Rack);
        [Some(Scope::Pool), site, rack].into_iter().flatten()
    }

    /// Bandwidth of its proxy that is taken, bytes a second.
    pub fn taken(&self) -> u64 {
        self.slots.iter().map(|slot| slot.taken).fold(0, u64::saturating_add)
    }

    fn make_shape(&self, facts: &Facts) -> Shape {
        let found = facts.of_box(&self.name);
        let islands = found.islands.iter().map(|island| {
            let rate = island.rate.map_or(0, |amount| amount.0);
            IslandShape { size: island.slots.len() as u8, free: 0, rate }
        });
        let mut islands: Vec<_> = islands.collect();
        let mut groups: Vec<Group> = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.status == SlotStatus::Free) {
            let Some(profile) = slot.profile else { continue };
            if let Some(island) = slot.island {
                islands[usize::from(island)].free += 1;
            }
            let same = |group: &&mut Group| group.island == slot.island && group.profile == profile;
            match groups.iter_mut().find(same) {
                Some(group) => group.free += 1,
                None => groups.push(Group { island: slot.island, profile, free: 1 }),
            }
        }
        groups.sort();
        let room = self.capacity.saturating_sub(self.taken());
        Shape { kind: found.kind, room, groups, islands }
    }
}

impl PoolIndex {
    /// What the inventory says, ready to be asked.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// All boxes by node number.
    pub fn boxes(&self) -> impl Iterator<Item = &BoxEntry> {
        self.boxes.values().map(Arc::as_ref)
    }

    /// A box by its node number.
    pub fn get(&self, node: NodeId) -> Option<&BoxEntry> {
        self.boxes.get(&node).map(Arc::as_ref)
    }

    /// The profiles that devices have.
    pub fn profiles(&self) -> impl Iterator<Item = (ProfileId, &Profile)> {
        self.profiles.iter().map(|(id, interned)| (*id, interned.profile.as_ref()))
    }

    /// A profile that a device has.
    ///
    /// # Panics
    ///
    /// When none has: numbers of profiles come out of the same snapshot.
    pub fn profile(&self, id: ProfileId) -> &Profile {
        &self.profiles[&id].profile
    }

    /// The parts of the pool that have something free.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.keys()
    }

    /// The boxes of a part of the pool that have something free, by what they have left.
    pub fn shapes(&self, scope: &Scope) -> Option<&Shapes> {
        self.scopes.get(scope)
    }

    /// How many slots are free whose device has one of these profiles, in boxes that are there; it
    /// asks of no more boxes when there are `enough`.
    pub fn free_of(
        &self,
        profiles: &[ProfileId],
        enough: u64,
        is_there: impl Fn(&NodeName) -> bool,
    ) -> u64 {
        let mut free = 0;
        for (shape, boxes) in self.scopes.get(&Scope::Pool).into_iter().flatten() {
            let own = shape.groups.iter().filter(|group| profiles.contains(&group.profile));
            let each = own.map(|group| u64::from(group.free)).sum::<u64>();
            // Boxes without one are not asked for.
            if each == 0 {
                continue;
            }
            for node in boxes {
                if free >= enough {
                    return free;
                }
                if is_there(&self.boxes[node].name) {
                    free += each;
                }
            }
        }
        free
    }

    /// The slots whose device has this serial number.
    pub fn with_serial(&self, serial: u64) -> impl Iterator<Item = (NodeId, SlotId)> {
        let first = (serial, NodeId::new(1).expect("nodes begin with 1"), SlotId::HOST);
        self.serials
            .range(first..)
            .take_while(move |(own, _, _)| *own == serial)
            .map(|(_, node, slot)| (*node, *slot))
    }

    fn intern(&mut self, profile: Profile) -> ProfileId {
        if let Some(&id) = self.profile_ids.get(&profile) {
            self.profiles[&id].slots += 1;
            return id;
        }
        // One that was used before if there is one, so that they stay small.
        let next = ProfileId(self.profiles.len() as u32);
        let (id, profile) = (self.unused.remove_min().unwrap_or(next), Arc::new(profile));
        self.profile_ids.insert(profile.clone(), id);
        self.profiles.insert(id, Interned { profile, slots: 1 });
        id
    }

    fn forget(&mut self, id: ProfileId) {
        let interned = &mut self.profiles[&id];
        interned.slots -= 1;
        if interned.slots == 0 {
            let profile = interned.profile.clone();
            self.profiles.remove(&id);
            self.unused.insert(id);
            self.profile_ids.remove(&profile);
        }
    }

    fn take_out(&mut self, entry: &BoxEntry) {
        if !entry.shape.groups.is_empty() {
            for scope in entry.scopes() {
                let shapes = self.scopes.get_mut(&scope).expect("it was entered");
                let boxes = shapes.get_mut(&entry.shape).expect("it was entered");
                boxes.remove(&entry.node);
                if boxes.is_empty() {
                    shapes.remove(&entry.shape);
                }
                if shapes.is_empty() {
                    self.scopes.remove(&scope);
                }
            }
        }
    }

    fn enter(&mut self, mut entry: BoxEntry) {
        entry.shape = Arc::new(entry.make_shape(&self.facts));
        if !entry.shape.groups.is_empty() {
            for scope in entry.scopes() {
                let shapes = self.scopes.entry(scope).or_default();
                shapes.entry(entry.shape.clone()).or_default().insert(entry.node);
            }
        }
        self.boxes.insert(entry.node, Arc::new(entry));
    }
}

impl Tables {
    /// The slots as placement asks for them.
    pub fn pool(&self) -> &PoolIndex {
        &self.pool
    }

    /// A box as placement sees it.
    pub fn pool_box(&self, name: &NodeName) -> Option<&BoxEntry> {
        self.pool.get(self.nodes.get(name)?.node)
    }

    /// The model of the device in a slot: what the box reports or, where it does not say, the
    /// inventory; empty if neither does or the slot is empty.
    pub fn model_in(&self, slot: &SlotAddress) -> &str {
        let entry = self.pool_box(slot.box_name()).and_then(|entry| entry.slot(slot.slot()));
        let profile = entry.and_then(|slot| slot.profile);
        profile.map_or("", |id| self.pool.profile(id).model.as_str())
    }

    /// What one more device of a profile takes of a proxy's bandwidth, bytes a second.
    pub fn demand(&self, profile: ProfileId, link: &LinkUse) -> u64 {
        self.pool.profile(profile).demand(link)
    }

    /// What a host's proxy carries and what is taken of that, bytes a second.
    pub fn host_bandwidth(&self, host: &NodeName) -> (u64, u64) {
        let taken = self.bindings_at(host).map(|binding| {
            let entry = self.pool_box(binding.slot.box_name());
            entry.and_then(|e| e.slot(binding.slot.slot())).map_or(0, |slot| slot.taken)
        });
        (self.pool.facts.host_capacity(host), taken.fold(0, u64::saturating_add))
    }
}
