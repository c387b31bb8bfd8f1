//! What the proxies report and what the inventory says, put together: the proxy's word first.

use super::super::Tables;
use crate::types::topology::{
    AttributeValue, BoxFacts, InventoryRecord, Model, PlaceName, SlotFacts, parse_serial,
};
use crate::types::{
    BindingRecord, DeviceRecord, DeviceState, LinkUse, NodeName, NodeRecord, Role, SlotAddress,
};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What a GPU takes of its proxies' bandwidth if neither the inventory nor the request says, bytes
/// a second. What is no GPU takes nothing then.
pub const DEFAULT_GPU_DEMAND: u64 = 1_225_000_000;

/// What a proxy carries if the inventory does not say, bytes a second. In Table 12 of the DxPU
/// paper, four GPUs under one proxy get 4.9 GB/s and do 89 % of what they do in a host; with eight
/// the proxy saturates, and it is 83 %. So four GPUs fit.
pub const DEFAULT_CAPACITY: u64 = 4 * DEFAULT_GPU_DEMAND;

/// The base class of display controllers, which GPUs are (PCI Code and ID Assignment).
const DISPLAY_CLASS: u32 = 0x03;

/// Most proxies that are named of those that are not known.
const MAX_ABSENT: usize = 16;

/// The inventory that is in force, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    record: InventoryRecord,
    /// By name in small letters.
    models: BTreeMap<String, Model>,
}

static NO_BOX: LazyLock<BoxFacts> = LazyLock::new(BoxFacts::default);
static NO_SLOT: LazyLock<SlotFacts> = LazyLock::new(SlotFacts::default);

impl Facts {
    /// From an inventory.
    pub fn new(record: InventoryRecord) -> Self {
        let models = record.inventory.models.iter();
        let models = models.map(|(name, model)| (name.to_ascii_lowercase(), model.clone()));
        Self { models: models.collect(), record }
    }

    /// The inventory.
    pub fn record(&self) -> &InventoryRecord {
        &self.record
    }

    /// What it says of a box.
    pub fn of_box(&self, name: &NodeName) -> &BoxFacts {
        self.record.inventory.boxes.get(name).unwrap_or(&NO_BOX)
    }

    /// What it says of a slot.
    pub fn of_slot(&self, address: &SlotAddress) -> &SlotFacts {
        let slots = &self.of_box(address.box_name()).slots;
        slots.get(&address.slot().get()).unwrap_or(&NO_SLOT)
    }

    fn of_model(&self, model: &str) -> Option<&Model> {
        self.models.get(&model.to_ascii_lowercase())
    }

    fn place(&self, rack: Option<&PlaceName>) -> (Option<PlaceName>, Option<PlaceName>) {
        let site = rack.and_then(|rack| self.record.inventory.racks.get(rack)?.site.clone());
        (rack.cloned(), site)
    }

    /// The rack and the site of a box.
    pub fn place_of_box(&self, name: &NodeName) -> (Option<PlaceName>, Option<PlaceName>) {
        self.place(self.of_box(name).rack.as_ref())
    }

    /// The rack and the site of a host.
    pub fn place_of_host(&self, name: &NodeName) -> (Option<PlaceName>, Option<PlaceName>) {
        self.place(self.record.inventory.hosts.get(name).and_then(|host| host.rack.as_ref()))
    }

    /// Which island of its box a slot is in.
    pub fn island_of(&self, name: &NodeName, slot: u8) -> Option<u8> {
        let mut islands = self.of_box(name).islands.iter();
        islands.position(|island| island.slots.contains(&slot)).map(|index| index as u8)
    }

    /// The paths that run over a fabric, a bit for each; none if there is no such fabric.
    pub fn fabric_paths(&self, name: &PlaceName) -> u8 {
        let fabric = self.record.inventory.fabrics.get(name);
        let paths = fabric.map(|fabric| &fabric.paths[..]).unwrap_or_default();
        paths.iter().fold(0, |set, path| set | 1_u8 << (path % 8))
    }

    fn paths(&self, fabrics: &[PlaceName]) -> u8 {
        if fabrics.is_empty() {
            return u8::MAX;
        }
        fabrics.iter().fold(0, |set, name| set | self.fabric_paths(name))
    }

    /// The paths that a box can be reached by, a bit for each; all if it is not said.
    pub fn box_paths(&self, name: &NodeName) -> u8 {
        self.paths(&self.of_box(name).fabrics)
    }

    /// The paths that a host can be reached by, a bit for each; all if it is not said.
    pub fn host_paths(&self, name: &NodeName) -> u8 {
        let host = self.record.inventory.hosts.get(name);
        host.map_or(u8::MAX, |host| self.paths(&host.fabrics))
    }

    /// What a box's proxy carries, bytes a second.
    pub fn box_capacity(&self, name: &NodeName) -> u64 {
        self.of_box(name).capacity.map_or(DEFAULT_CAPACITY, |amount| amount.0)
    }

    /// What a host's proxy carries, bytes a second.
    pub fn host_capacity(&self, name: &NodeName) -> u64 {
        let host = self.record.inventory.hosts.get(name);
        host.and_then(|host| host.capacity).map_or(DEFAULT_CAPACITY, |amount| amount.0)
    }
}

/// What devices are alike in, all but the serial number. Of a device with several functions the
/// first one's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Profile {
    /// Model name, or empty.
    pub model: String,
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// PCI class code, 24 bits.
    pub class: u32,
    /// How many functions it has.
    pub functions: u16,
    /// Memory, bytes.
    pub memory: Option<u64>,
    /// Version of its firmware.
    pub firmware: Option<String>,
    /// What it needs of its proxies, bytes a second, if the inventory says.
    pub wants: Option<u64>,
    /// Extra attributes.
    pub attributes: BTreeMap<String, AttributeValue>,
}

impl Profile {
    /// Whether its box knows what it is: it has not looked yet at what has no vendor.
    const fn is_known(&self) -> bool {
        !matches!(self.vendor, 0 | 0xffff)
    }

    /// Whether it is a GPU.
    pub const fn is_gpu(&self) -> bool {
        self.class >> 16 == DISPLAY_CLASS
    }

    /// What it takes of its proxies' bandwidth, bytes a second: what is guaranteed to it, else
    /// what its model needs, but no more than it is limited to.
    pub fn demand(&self, link: &LinkUse) -> u64 {
        let usual = if self.is_gpu() { DEFAULT_GPU_DEMAND } else { 0 };
        let wanted = self.wants.unwrap_or(usual).min(link.limit.unwrap_or(u64::MAX));
        link.guarantee.unwrap_or(wanted)
    }
}

/// The functions that a slot's device has, the first one first.
fn functions<'a>(
    tables: &'a Tables,
    address: &SlotAddress,
) -> impl Iterator<Item = &'a DeviceRecord> {
    tables.functions(address).filter(|d| d.state != DeviceState::Empty)
}

/// The model of a device: what its box says, else what the inventory says of the slot.
fn model_of<'a>(facts: &'a Facts, first: &'a DeviceRecord) -> &'a str {
    match (first.model.as_str(), &facts.of_slot(&first.address.slot).model) {
        ("", Some(model)) => model,
        (model, _) => model,
    }
}

/// What is in a slot; nothing if it is empty.
pub(super) fn profile_of(tables: &Tables, address: &SlotAddress) -> Option<Profile> {
    let facts = tables.pool.facts();
    let first = functions(tables, address).next()?;
    let said = facts.of_slot(address);
    let model = model_of(facts, first).to_owned();
    let of_model = facts.of_model(&model);
    let mut attributes = of_model.map(|m| m.attributes.clone()).unwrap_or_default();
    attributes.extend(said.attributes.clone());
    let firmware = said.firmware.as_ref().or(of_model.and_then(|m| m.firmware.as_ref()));
    Some(Profile {
        vendor: first.pci.vendor,
        device: first.pci.device,
        class: first.pci.class,
        functions: functions(tables, address).count() as u16,
        memory: said.memory.or(of_model.and_then(|m| m.memory)).map(|amount| amount.0),
        firmware: firmware.cloned(),
        wants: of_model.and_then(|m| m.demand).map(|amount| amount.0),
        attributes,
        model,
    })
}

/// What a binding takes of its proxies' bandwidth, with what is in its slot now. A device that was
/// pulled comes back to its binding, and until its box knows again what it is it takes what it took.
pub(super) fn taken_for(
    tables: &Tables,
    binding: &BindingRecord,
    profile: Option<&Profile>,
) -> u64 {
    let profile = profile.filter(|profile| profile.is_known() || binding.demand.is_none());
    if let (None, Some(noted)) = (profile, binding.demand) {
        return noted;
    }
    let allocation = tables.allocations.get(&binding.allocation);
    let link = allocation.map(|allocation| allocation.link.clone()).unwrap_or_default();
    match profile {
        Some(profile) => profile.demand(&link),
        // An earlier manager noted its model at most.
        None => {
            let class = tables.functions(&binding.slot).next().map_or(0, |last| last.pci.class);
            let model = tables.pool.facts().of_model(&binding.model);
            let wants = model.and_then(|model| model.demand).map(|amount| amount.0);
            Profile { class, wants, ..Profile::default() }.demand(&link)
        }
    }
}

/// The serial number of what is in a slot; 0 if it is not known.
pub(super) fn serial_of(tables: &Tables, address: &SlotAddress) -> u64 {
    let Some(first) = functions(tables, address).next() else { return 0 };
    let said = || tables.pool.facts().of_slot(address).serial.as_deref().and_then(parse_serial);
    if first.serial != 0 { first.serial } else { said().unwrap_or(0) }
}

impl Tables {
    /// The model of the device that is in a slot, or was last: what its box says, else what the
    /// inventory says of the slot. Models are told apart without regard to case.
    pub fn model_of(&self, address: &SlotAddress) -> Option<&str> {
        self.functions(address).next().map(|first| model_of(self.pool.facts(), first))
    }

    /// The other slots whose device has the vendor and serial number of the one in this slot.
    /// Nothing if that has no serial number.
    pub fn same_serial(&self, address: &SlotAddress) -> impl Iterator<Item = SlotAddress> {
        let vendor = |address: &SlotAddress| functions(self, address).next().map(|d| d.pci.vendor);
        let serial = serial_of(self, address);
        let own = (serial != 0).then(|| vendor(address)).flatten();
        let sharing = own.map(|own| {
            let slots = self.pool.with_serial(serial);
            let slots = slots.filter_map(|(node, slot)| Some(self.pool.get(node)?.address(slot)));
            slots.filter(move |other| other != address && vendor(other) == Some(own))
        });
        sharing.into_iter().flatten()
    }

    /// What the inventory says of a slot and its proxy reports otherwise, for a person. The
    /// proxy's word counts.
    pub fn contradictions(&self, address: &SlotAddress) -> Vec<String> {
        let said = self.pool.facts().of_slot(address);
        let Some(first) = functions(self, address).next() else { return Vec::new() };
        let mut found = Vec::new();
        if let Some(model) = &said.model
            && !first.model.is_empty()
            && !first.model.eq_ignore_ascii_case(model)
        {
            found.push(format!(
                "{address}: the inventory says model {model:?}, the proxy reports {:?}",
                first.model
            ));
        }
        if let Some(serial) = said.serial.as_deref().and_then(parse_serial)
            && first.serial != 0
            && first.serial != serial
        {
            found.push(format!(
                "{address}: the inventory says serial number {serial:016x}, the proxy reports \
                 {:016x}",
                first.serial
            ));
        }
        found
    }

    /// What the inventory says of slots and proxies that are not so, for a person: slots that their
    /// box does not have, boxes that are hosts and hosts that are boxes.
    pub fn misplaced(&self) -> Vec<String> {
        self.nodes().values().flat_map(|node| self.misplaced_of(node)).collect()
    }

    /// The same of one proxy.
    pub fn misplaced_of(&self, node: &NodeRecord) -> Vec<String> {
        let inventory = &self.pool.facts().record().inventory;
        let (name, last) = (&node.name, node.size);
        let of_box = inventory.boxes.get(name);
        if node.role == Role::Host {
            return of_box.map(|_| format!("boxes.{name}: {name} is a host")).into_iter().collect();
        }
        let beyond = |slot: &u8| *slot > last;
        let why = |slot: u8| format!("slot {slot}, and {name} has slots 1 to {last}");
        let mut found = Vec::new();
        for (index, island) in of_box.iter().flat_map(|said| said.islands.iter().enumerate()) {
            let slots = island.slots.iter().copied().filter(beyond);
            found.extend(slots.map(|s| format!("boxes.{name}.islands[{index}]: {}", why(s))));
        }
        let slots = of_box.iter().flat_map(|said| said.slots.keys().copied()).filter(beyond);
        found.extend(slots.map(|slot| format!("boxes.{name}.slots: {}", why(slot))));
        found.extend(inventory.hosts.get(name).map(|_| format!("hosts.{name}: {name} is a box")));
        found
    }

    /// The boxes and hosts that the inventory names and that are not known, for a person.
    pub fn never_here(&self) -> Option<String> {
        let inventory = &self.pool.facts().record().inventory;
        let named = inventory.boxes.keys().chain(inventory.hosts.keys());
        let absent: Vec<&NodeName> = named.filter(|n| !self.nodes().contains_key(*n)).collect();
        let more = absent.len().saturating_sub(MAX_ABSENT);
        let names: Vec<&str> = absent.iter().take(MAX_ABSENT).map(|name| name.as_str()).collect();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!names.is_empty())
            .then(|| format!("not here yet, or forgotten: {}{more}", names.join(", ")))
    }
}
