//! Which devices a request can have, by what they are.

use super::cel::{self, Expression, Level};
use super::kept::KeptModels;
use super::{Liveness, PlanRequest, Prepared};
use crate::records::Tables;
use crate::records::pool::{BoxEntry, Profile, ProfileId, SlotEntry};
use crate::types::SlotStatus;
use crate::types::selector::{Comparison, Condition, Held};
use crate::types::topology::parse_serial;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use tlp_codec::ids::{NodeId, SlotId};

/// The attributes that boxes have.
const OF_BOX: [&str; 4] = ["box", "kind", "rack", "site"];

/// The attributes that slots have.
const OF_SLOT: [&str; 2] = ["serial", "slot"];

/// What an attribute goes by.
fn level(attribute: &str) -> Level {
    if OF_BOX.contains(&attribute) {
        Level::Box
    } else if OF_SLOT.contains(&attribute) {
        Level::Slot
    } else {
        Level::Profile
    }
}

/// What a profile holds under an attribute's name.
fn of_profile<'a>(profile: &'a Profile, attribute: &str) -> Option<Held<'a>> {
    match attribute {
        "class" => Some(Held::Number(profile.class.into())),
        "device" => Some(Held::Number(profile.device.into())),
        "firmware" => profile.firmware.as_deref().map(Held::Text),
        "functions" => Some(Held::Number(profile.functions.into())),
        "memory" => profile.memory.map(|bytes| Held::Number(bytes.into())),
        "model" => Some(profile.model.as_str()).filter(|model| !model.is_empty()).map(Held::Text),
        "vendor" => Some(Held::Number(profile.vendor.into())),
        extra => profile.attributes.get(extra).map(Held::Extra),
    }
}

/// What a box holds under an attribute's name.
fn of_box<'a>(entry: &'a BoxEntry, attribute: &str) -> Option<Held<'a>> {
    match attribute {
        "box" => Some(Held::Text(entry.name.as_str())),
        "kind" => Some(Held::Text(entry.shape().kind.as_str())),
        "rack" => entry.rack.as_ref().map(|rack| Held::Text(rack.as_str())),
        _ => entry.site.as_ref().map(|site| Held::Text(site.as_str())),
    }
}

/// What a slot holds under an attribute's name.
fn of_slot(slot: &SlotEntry, attribute: &str) -> Option<Held<'static>> {
    match attribute {
        "serial" => (slot.serial != 0).then_some(Held::Number(slot.serial.into())),
        _ => Some(Held::Number(slot.slot.get().into())),
    }
}

/// What a condition is asked of.
#[derive(Clone, Copy)]
pub(super) struct Device<'a> {
    pub(super) profile: &'a Profile,
    pub(super) entry: &'a BoxEntry,
    pub(super) slot: &'a SlotEntry,
}

/// Whether a device meets a condition.
pub(super) fn meets(condition: &Condition, device: Device<'_>) -> bool {
    let name = condition.attribute.as_str();
    condition.holds(match level(name) {
        Level::Profile => of_profile(device.profile, name),
        Level::Box => of_box(device.entry, name),
        Level::Slot => of_slot(device.slot, name),
    })
}

/// A request's wishes, asked of all profiles.
pub(super) struct Filter<'a> {
    pub(super) request: &'a PlanRequest,
    pub(super) tables: &'a Tables,
    pub(super) cel: Option<Expression>,
    /// What the devices of each profile take of a proxy, if they will do by what they have in
    /// common; by the profile's number.
    fits: Vec<Option<u64>>,
    box_conditions: Vec<&'a Condition>,
    slot_conditions: Vec<&'a Condition>,
    /// The island of the slot with whose device the request is to be together, if it is in one.
    island: Option<u8>,
    /// The paths that the host has and that are wished, a bit for each.
    pub(super) paths: u8,
    /// The models of which spares are kept.
    pub(super) kept: KeptModels,
    /// What the CEL expression said when it was asked before, if that still holds.
    before: Option<&'a Verdicts>,
    /// What it said since.
    said: RefCell<HashMap<Asked, bool>>,
}

/// The devices of a profile in a box, or the one device with this serial number in one slot.
type Asked = (NodeId, ProfileId, SlotId, u64);

/// What a CEL expression said of the devices in a snapshot.
pub(super) struct Verdicts {
    of: Tables,
    said: HashMap<Asked, bool>,
}

impl Verdicts {
    /// Whether the numbers of boxes and profiles stand for the same there.
    fn hold_in(&self, tables: &Tables) -> bool {
        let (then, now) = (self.of.pool(), tables.pool());
        std::ptr::eq(then.facts(), now.facts()) && then.profiles().eq(now.profiles())
    }
}

impl<'a> Filter<'a> {
    /// Asks every profile.
    pub(super) fn new(prepared: &'a Prepared, tables: &'a Tables, live: &impl Liveness) -> Self {
        let request = &prepared.request;
        let conditions = request.wishes.selector.conditions();
        let at = |wanted| conditions.iter().filter(move |c| level(&c.attribute) == wanted);
        let facts = tables.pool().facts();
        let wished = request.link.paths.iter().fold(0, |set, path| set | 1_u8 << (path % 8));
        let wished = if wished == 0 { u8::MAX } else { wished };
        let mut filter = Self {
            request,
            tables,
            cel: prepared.cel.clone().map(Expression::new),
            fits: Vec::new(),
            box_conditions: at(Level::Box).collect(),
            slot_conditions: at(Level::Slot).collect(),
            island: request
                .island_of
                .as_ref()
                .and_then(|slot| tables.pool_box(slot.box_name())?.slot(slot.slot())?.island),
            paths: facts.host_paths(&request.host) & wished,
            kept: KeptModels::of(&prepared.spares, request.count, tables, live),
            before: prepared.verdicts.as_ref().filter(|verdicts| verdicts.hold_in(tables)),
            said: RefCell::default(),
        };
        for (id, profile) in tables.pool().profiles() {
            let index = id.0 as usize;
            filter.fits.resize(filter.fits.len().max(index + 1), None);
            if !filter.kept.keeps_back(id) && filter.profile_fits(profile) {
                filter.fits[index] = Some(profile.demand(&request.link));
            }
        }
        filter
    }

    /// What the CEL expression said of devices of these tables, to be used again.
    pub(super) fn into_verdicts(self) -> Verdicts {
        Verdicts { of: self.tables.clone(), said: self.said.into_inner() }
    }

    /// Whether a model, if one is wished, is this one.
    pub(super) fn has_model(&self, model: &str) -> bool {
        let wanted = self.request.wishes.model.as_ref();
        wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(model))
    }

    fn profile_fits(&self, profile: &Profile) -> bool {
        let conditions = self.request.wishes.selector.conditions().iter();
        let mut asked = conditions.filter(|c| level(&c.attribute) == Level::Profile);
        self.has_model(&profile.model)
            && asked.all(|c| c.holds(of_profile(profile, &c.attribute)))
            && self.cel.as_ref().is_none_or(|cel| {
                cel.level() != Level::Profile || cel.holds(|name| profile_variable(profile, name))
            })
    }

    /// What a device of a profile takes of a proxy, if it will do by its profile.
    pub(super) fn demand(&self, profile: ProfileId) -> Option<u64> {
        self.fits[profile.0 as usize]
    }

    /// Whether the device with which what is lent is to be together is in an island.
    pub(super) fn has_island(&self) -> bool {
        self.island.is_some()
    }

    /// Whether an island of its box will do: where what is lent is to be together with a device it is
    /// that one's, and none if that is in none, since an inventory drew the islands anew.
    pub(super) fn is_meant(&self, island: u8) -> bool {
        self.request.island_of.is_none() || self.island == Some(island)
    }

    /// Whether a box's free slots that will do are known without looking at each.
    pub(super) fn goes_by_shape(&self) -> bool {
        self.slot_conditions.is_empty()
            && self.request.wishes.exclude.slots.is_empty()
            && self.cel.as_ref().is_none_or(|cel| cel.level() == Level::Profile)
    }

    /// Whether the paths will do that a box is on.
    pub(super) fn path_fits(&self, entry: &BoxEntry) -> bool {
        entry.paths & self.paths != 0
    }

    /// Whether a box is not excluded.
    pub(super) fn is_included(&self, entry: &BoxEntry) -> bool {
        let exclude = &self.request.wishes.exclude;
        !exclude.boxes.contains(&entry.name)
            && !entry.rack.as_ref().is_some_and(|rack| exclude.racks.contains(rack))
    }

    /// Whether a box will do by what it is.
    pub(super) fn box_fits(&self, entry: &BoxEntry) -> bool {
        let wanted = self.request.wishes.box_name.as_ref();
        wanted.is_none_or(|wanted| *wanted == entry.name)
            && self.is_included(entry)
            && self.path_fits(entry)
            && self.box_conditions.iter().all(|c| c.holds(of_box(entry, &c.attribute)))
    }

    /// Whether a slot is free and will do by what is in it, in a box that will do: what it takes
    /// of a proxy.
    pub(super) fn slot_fits(&self, entry: &BoxEntry, slot: &SlotEntry) -> Option<u64> {
        if slot.status != SlotStatus::Free {
            return None;
        }
        let profile = slot.profile?;
        let demand = self.demand(profile)?;
        let conditions = self.slot_conditions.iter();
        let fits = conditions.clone().all(|c| c.holds(of_slot(slot, &c.attribute)))
            && !self.is_slot_excluded(entry, slot)
            && self.cel_fits(entry, slot, profile);
        fits.then_some(demand)
    }

    /// Whether the request names this slot as one that it does not want.
    pub(super) fn is_slot_excluded(&self, entry: &BoxEntry, slot: &SlotEntry) -> bool {
        let mut excluded = self.request.wishes.exclude.slots.iter();
        excluded.any(|a| a.slot() == slot.slot && *a.box_name() == entry.name)
    }

    /// Whether the CEL expression, if there is one, says true of a device.
    pub(super) fn cel_fits(&self, entry: &BoxEntry, slot: &SlotEntry, id: ProfileId) -> bool {
        let Some(cel) = &self.cel else { return true };
        // What does not go by the slot is asked once for all slots.
        let of = match cel.level() {
            Level::Slot => (entry.node, id, slot.slot, slot.serial),
            Level::Profile | Level::Box => (entry.node, id, SlotId::HOST, 0),
        };
        if let Some(said) = self.before.and_then(|before| before.said.get(&of)) {
            return *said;
        }
        *self.said.borrow_mut().entry(of).or_insert_with(|| {
            let profile = self.tables.pool().profile(id);
            cel.holds(|name| variable(Device { profile, entry, slot }, name))
        })
    }

    /// The one value that an attribute must have, if the request says so.
    pub(super) fn only(&self, attribute: &str) -> Option<&str> {
        let conditions = self.request.wishes.selector.conditions();
        conditions
            .iter()
            .find(|c| c.attribute == attribute && c.is == Comparison::Is && c.values.len() == 1)
            .map(|c| c.values[0].as_str())
    }

    /// The boxes that the request can be about, if it names slots by their serial numbers.
    pub(super) fn by_serial(&self) -> Option<BTreeSet<NodeId>> {
        let mut conditions = self.slot_conditions.iter();
        let named = conditions.find(|c| c.attribute == "serial" && c.is == Comparison::Is)?;
        let serials = named.values.iter().filter_map(|value| parse_serial(value));
        let pool = self.tables.pool();
        let found = serials.flat_map(|serial| pool.with_serial(serial));
        Some(found.map(|(node, _): (NodeId, SlotId)| node).collect())
    }
}

fn text(text: Option<&str>) -> ::cel::Value {
    text.map_or(::cel::Value::Null, |text| ::cel::Value::String(text.to_owned().into()))
}

fn profile_variable(profile: &Profile, name: &str) -> ::cel::Value {
    use ::cel::Value::{Int, Null};
    match name {
        "attributes" => cel::attributes(&profile.attributes),
        "class" => Int(profile.class.into()),
        "device" => Int(profile.device.into()),
        "firmware" => text(profile.firmware.as_deref()),
        "functions" => Int(profile.functions.into()),
        "memory" => profile.memory.map_or(Null, |bytes| Int(bytes.min(i64::MAX as u64) as i64)),
        "model" => text(Some(&profile.model)),
        "vendor" => Int(profile.vendor.into()),
        _ => Null,
    }
}

/// What a CEL expression sees of a device under a name.
pub(super) fn variable(device: Device<'_>, name: &str) -> ::cel::Value {
    let Device { profile, entry, slot } = device;
    match name {
        "box" => text(Some(entry.name.as_str())),
        "kind" => text(Some(entry.shape().kind.as_str())),
        "rack" => text(entry.rack.as_ref().map(|rack| rack.as_str())),
        "site" => text(entry.site.as_ref().map(|site| site.as_str())),
        "serial" => text(
            Some(&format!("{:016x}", slot.serial)).filter(|_| slot.serial != 0).map(String::as_str),
        ),
        "slot" => ::cel::Value::Int(slot.slot.get().into()),
        profile_s => profile_variable(profile, profile_s),
    }
}
