//! Proxies, boxes, slots, hosts, devices.

use super::lending::BindingView;
use crate::types::topology::{AttributeValue, BoxKind};
use crate::types::{
    BindingId, DeviceState, NodeName, Owner, PciIdentity, Role, SlotAddress, SlotStatus, Timestamp,
};
use crate::types::{Inventory, PlaceName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// Its items.
    pub items: Vec<T>,
    /// If a page was asked for and there are more: what to give as `cursor` to get them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self { items: items.into_iter().collect(), next: None }
    }
}

/// The manager's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` if requests can be served; `store-failed` if the store cannot be written: then only
    /// those are that change nothing.
    pub status: String,
    /// That the store cannot be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_trouble: Option<StoreTrouble>,
    /// Version of the program.
    pub version: String,
    /// The leader's term.
    pub term: u64,
    /// Generation of the epochs that are given out.
    pub generation: u8,
    /// Proxies that are connected.
    pub connected: usize,
    /// Operations that have not ended.
    pub running_operations: usize,
}

/// That the store cannot be written. It is tried again every second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreTrouble {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}

/// What is known of a proxy's connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    /// Where it comes from.
    pub remote: String,
    /// Since when.
    pub since: Timestamp,
    /// Number of the proxy's life.
    pub incarnation: u32,
    /// Largest frame it takes, bytes.
    pub mtu: u16,
    /// Where its paths end.
    pub paths: Vec<String>,
    /// Whether its tables have been read, so that it is given work.
    pub ready: bool,
}

/// Whether a host has a root complex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RootComplexView {
    /// Whether one is there.
    pub present: bool,
    /// For how long there has been none, as far as this manager knows, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_ms: Option<u64>,
    /// In how long the first device of the host is taken back unless one comes, milliseconds;
    /// nothing if the host has none, or is to keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back_in_ms: Option<u64>,
}

/// A proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Its node number in the fabric.
    pub node: u16,
    /// Host or box.
    pub role: Role,
    /// Its downstream ports or slots.
    pub size: u8,
    /// Its connection, if it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// Whether it has a root complex, if it is a host that is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_complex: Option<RootComplexView>,
    /// When it was here first.
    pub first_seen: Timestamp,
    /// When it last connected.
    pub last_connected: Timestamp,
}

/// A function of a device in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionView {
    /// Function number.
    pub function: u16,
    /// State as the box said last.
    pub state: DeviceState,
    /// Model name from the box's configuration, or empty.
    pub model: String,
    /// IDs.
    pub pci: PciIdentity,
    /// Device serial number, 16 hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Size of each BAR, bytes.
    pub bars: Vec<u64>,
    /// Highest epoch it has had, `generation.counter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_epoch: Option<String>,
}

/// What is known of a device and its place besides what the box reports of its functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FactsView {
    /// Memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Version of its firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Serial number, 16 hexadecimal digits, from the device or the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The kind of its box.
    pub kind: BoxKind,
    /// The rack of its box.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<PlaceName>,
    /// The site of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<PlaceName>,
    /// Which of its box's islands it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub island: Option<u8>,
    /// What the inventory adds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
    /// What the inventory says and the proxy reports otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl FactsView {
    /// Whether nothing is known.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The inventory that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InventoryView {
    /// Counts up with every change; 0: there was none yet.
    pub revision: u64,
    /// Since when.
    pub since: Timestamp,
    /// What it says.
    pub inventory: Inventory,
    /// What it says and is not so: what the proxies report otherwise, slots that their box does not
    /// have, names of proxies that have the other role, and those of none that are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A slot of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotView {
    /// Where it is.
    pub slot: SlotAddress,
    /// What can be done with it.
    pub status: SlotStatus,
    /// Whether its box is connected.
    pub connected: bool,
    /// The first function's model, or empty.
    pub model: String,
    /// What else is known of it.
    #[serde(default, skip_serializing_if = "FactsView::is_default")]
    pub facts: FactsView,
    /// What is in it.
    pub functions: Vec<FunctionView>,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The binding by which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingId>,
}

/// A box with its slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoxView {
    /// The proxy.
    #[serde(flatten)]
    pub node: NodeView,
    /// Its slots by number.
    pub slots: Vec<SlotView>,
}

/// A host with what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// The proxy.
    #[serde(flatten)]
    pub node: NodeView,
    /// Its ports that nothing uses.
    pub free_ports: Vec<u8>,
    /// What is lent to it.
    pub bindings: Vec<BindingView>,
}

/// A device: one function in a slot, and who has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceView {
    /// Where it is.
    pub slot: SlotAddress,
    /// What can be done with its slot.
    pub status: SlotStatus,
    /// Whether its box is connected.
    pub connected: bool,
    /// What it is.
    #[serde(flatten)]
    pub function: FunctionView,
    /// What else is known of it.
    #[serde(default, skip_serializing_if = "FactsView::is_default")]
    pub facts: FactsView,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}
