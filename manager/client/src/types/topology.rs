//! What a file says of the pool that the proxies cannot know: where boxes and hosts stand, which
//! devices reach each other how fast, how much a proxy carries, and more about devices.

use super::amount::Amount;
use super::names::{NodeName, Timestamp};
use super::text::is_formatting;
use proxy_core::limits::MAX_PATHS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use utoipa::ToSchema;

/// Most extra attributes of one device or model.
pub const MAX_ATTRIBUTES: usize = 32;

/// Longest value of an attribute, model or firmware, bytes.
pub const MAX_VALUE: usize = 128;

/// The name of a site, rack or fabric: the characters of a proxy's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "r3")]
pub struct PlaceName(pub NodeName);

impl PlaceName {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for PlaceName {
    type Err = super::names::InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The two kinds of GPU box of the paper (section 4.4).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum BoxKind {
    /// Its devices meet at a PCIe switch only.
    #[default]
    PcieSwitch,
    /// Its GPUs are joined by NVLink or NVSwitch, in islands.
    Nvlink,
}

impl BoxKind {
    /// As files, selectors and people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PcieSwitch => "pcie-switch",
            Self::Nvlink => "nvlink",
        }
    }
}

impl fmt::Display for BoxKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The value of an extra attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AttributeValue {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A room or building with racks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// For people: 1 to 128 bytes in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A rack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rack {
    /// The site where it stands; one of `sites`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<PlaceName>,
}

/// A network that joins proxies: one or more of their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// The paths that run over it, by their numbers.
    #[schema(min_items = 1)]
    pub paths: Vec<u8>,
}

/// What is the same for all devices of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Memory of one device, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Version of its firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// What one device needs of its proxies, bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<Amount>,
    /// Anything else that selectors may ask for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
}

/// Devices of a box that reach each other directly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Island {
    /// Their slots, at least two.
    #[schema(min_items = 2)]
    pub slots: Vec<u8>,
    /// How fast one device reaches another there, bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Amount>,
}

/// What is in one slot. What the box's proxy reports comes before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotFacts {
    /// The device's model, for proxies that do not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The device's memory, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// The device's serial number, 1 to 16 hexadecimal digits, for devices that do not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[0-9A-Fa-f]{1,16}$")]
    pub serial: Option<String>,
    /// Version of the device's firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Anything else that selectors may ask for; comes before what the model has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
}

/// A box.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoxFacts {
    /// Where it stands; one of `racks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<PlaceName>,
    /// Which kind of box it is.
    #[serde(default)]
    pub kind: BoxKind,
    /// The fabrics that it is on, of `fabrics`; none: it is not said, and may be all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fabrics: Vec<PlaceName>,
    /// What its proxy carries, bytes a second, the two directions each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
    /// Which of its slots' devices reach each other directly; none of it in two islands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub islands: Vec<Island>,
    /// More about its slots, by their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<u8, SlotFacts>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// Where it stands; one of `racks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<PlaceName>,
    /// The fabrics that it is on, of `fabrics`; none: it is not said, and may be all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fabrics: Vec<PlaceName>,
    /// What its proxy carries, bytes a second, the two directions each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amount>,
}

/// All that a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Inventory {
    /// Rooms or buildings.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sites: BTreeMap<PlaceName, Site>,
    /// Racks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub racks: BTreeMap<PlaceName, Rack>,
    /// Networks between the proxies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fabrics: BTreeMap<PlaceName, Fabric>,
    /// Models, by the names that proxies or `slots` use, in small letters or large.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, Model>,
    /// Boxes, whether they were ever here or not.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub boxes: BTreeMap<NodeName, BoxFacts>,
    /// Hosts, whether they were ever here or not.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<NodeName, HostFacts>,
}

/// The inventory that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InventoryRecord {
    /// Counts up with every change; 0: there was none yet.
    pub revision: u64,
    /// Since when.
    pub since: Timestamp,
    /// What it says.
    pub inventory: Inventory,
}

impl Default for InventoryRecord {
    fn default() -> Self {
        Self { revision: 0, since: Timestamp::from_millis(0), inventory: Inventory::default() }
    }
}

/// Something that an inventory says and that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which field, such as `boxes.box1.islands[0].slots[3]`.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}

/// A serial number as it is written: 1 to 16 hexadecimal digits.
pub fn parse_serial(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let hex = (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| u64::from_str_radix(digits, 16).expect("16 hexadecimal digits at most"))
}

impl Inventory {
    /// Everything that cannot be; nothing if it is in order.
    pub fn faults(&self) -> Vec<Fault> {
        let mut check = Check { inventory: self, faults: Vec::new() };
        for (name, site) in &self.sites {
            check.text(&format!("sites.{name}.description"), site.description.as_ref());
        }
        for (name, rack) in &self.racks {
            check.known(&format!("racks.{name}.site"), "site", rack.site.as_ref(), &self.sites);
        }
        for (name, fabric) in &self.fabrics {
            check.paths(&format!("fabrics.{name}.paths"), &fabric.paths);
        }
        let mut models = BTreeSet::new();
        for (name, model) in &self.models {
            let path = format!("models.{name}");
            check.text(&path, Some(name));
            if !models.insert(name.to_ascii_lowercase()) {
                check.fault(path.clone(), "stands there twice, in small letters and large".into());
            }
            check.text(&format!("{path}.firmware"), model.firmware.as_ref());
            check.positive(&format!("{path}.memory"), model.memory);
            check.attributes(&path, &model.attributes);
        }
        for (name, found) in &self.boxes {
            check.one_box(&format!("boxes.{name}"), found);
        }
        for (name, host) in &self.hosts {
            let path = format!("hosts.{name}");
            check.known(&format!("{path}.rack"), "rack", host.rack.as_ref(), &self.racks);
            check.fabrics(&path, &host.fabrics);
            check.positive(&format!("{path}.capacity"), host.capacity);
            if self.boxes.contains_key(name) {
                check.fault(path, format!("{name} is among the boxes, too"));
            }
        }
        check.faults
    }
}

/// Looks for faults.
struct Check<'a> {
    inventory: &'a Inventory,
    faults: Vec<Fault>,
}

impl Check<'_> {
    fn fault(&mut self, path: String, why: String) {
        self.faults.push(Fault { path, why });
    }

    fn known<T>(
        &mut self,
        path: &str,
        what: &str,
        name: Option<&PlaceName>,
        all: &BTreeMap<PlaceName, T>,
    ) {
        if let Some(name) = name.filter(|name| !all.contains_key(name)) {
            self.fault(path.into(), format!("there is no {what} {name} in {what}s"));
        }
    }

    fn positive(&mut self, path: &str, amount: Option<Amount>) {
        if amount == Some(Amount(0)) {
            self.fault(path.into(), "is 0; leave it out if it is not known".into());
        }
    }

    fn text(&mut self, path: &str, text: Option<&String>) {
        let Some(text) = text else { return };
        if text.is_empty() || text.len() > MAX_VALUE || text.chars().any(is_formatting) {
            self.fault(path.into(), format!("is a text of 1 to {MAX_VALUE} bytes in one line"));
        }
    }

    fn paths(&mut self, path: &str, paths: &[u8]) {
        if paths.is_empty() {
            self.fault(path.into(), "names no path".into());
        }
        for (index, number) in paths.iter().enumerate() {
            if usize::from(*number) >= MAX_PATHS {
                let why = format!("{number}: paths are numbered 0 to {}", MAX_PATHS - 1);
                self.fault(format!("{path}[{index}]"), why);
            }
        }
    }

    fn fabrics(&mut self, path: &str, fabrics: &[PlaceName]) {
        for (index, name) in fabrics.iter().enumerate() {
            let path = format!("{path}.fabrics[{index}]");
            self.known(&path, "fabric", Some(name), &self.inventory.fabrics);
        }
    }

    fn attributes(&mut self, path: &str, attributes: &BTreeMap<String, AttributeValue>) {
        if attributes.len() > MAX_ATTRIBUTES {
            let why = format!("has {}; at most {MAX_ATTRIBUTES}", attributes.len());
            self.fault(format!("{path}.attributes"), why);
        }
        for (name, value) in attributes {
            let path = format!("{path}.attributes.{name}");
            if super::selector::is_built_in(name) {
                self.fault(path.clone(), "is an attribute that every device has".into());
            }
            if !super::selector::is_name(name) {
                let why = "an attribute's name has small letters, digits, _ and -, a letter first, \
                           and at most 64 of them";
                self.fault(path.clone(), why.into());
            }
            if let AttributeValue::Text(text) = value {
                self.text(&path, Some(text));
            }
        }
    }

    fn one_box(&mut self, path: &str, found: &BoxFacts) {
        self.known(&format!("{path}.rack"), "rack", found.rack.as_ref(), &self.inventory.racks);
        self.fabrics(path, &found.fabrics);
        self.positive(&format!("{path}.capacity"), found.capacity);
        let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
        for (index, island) in found.islands.iter().enumerate() {
            let path = format!("{path}.islands[{index}]");
            if island.slots.len() < 2 {
                self.fault(format!("{path}.slots"), "an island has at least two slots".into());
            }
            self.positive(&format!("{path}.rate"), island.rate);
            for (place, slot) in island.slots.iter().enumerate() {
                let path = format!("{path}.slots[{place}]");
                if *slot == 0 {
                    self.fault(path.clone(), "slots are numbered from 1".into());
                }
                if let Some(other) = seen.insert(*slot, index) {
                    self.fault(path, format!("slot {slot} is in island {other} already"));
                }
            }
        }
        for (slot, facts) in &found.slots {
            let path = format!("{path}.slots.{slot}");
            if *slot == 0 {
                self.fault(path.clone(), "slots are numbered from 1".into());
            }
            self.text(&format!("{path}.model"), facts.model.as_ref());
            self.text(&format!("{path}.firmware"), facts.firmware.as_ref());
            self.positive(&format!("{path}.memory"), facts.memory);
            if facts.serial.as_ref().is_some_and(|serial| parse_serial(serial).is_none()) {
                let why = "a serial number is 1 to 16 hexadecimal digits";
                self.fault(format!("{path}.serial"), why.into());
            }
            self.attributes(&path, &facts.attributes);
        }
    }
}

#[cfg(test)]
mod tests;
