//! What the API shows of the records. Lists come as `{"items": […]}`, so that something can be
//! added beside them.

pub use super::events::EventPage;
pub use super::proxies::{Counters, StampedKind, Stamps};
pub use super::tables::{AllTables, BoxTable, HostTable, Range};

use crate::control::Session;
use crate::control::session::RootComplex;
use crate::manager::Manager;
use crate::planner::SlotStatus;
use crate::records::Tables;
use crate::types::{
    AllocationId, AllocationRecord, BindingId, BindingRecord, Desired, DeviceRecord, DeviceState,
    LinkUse, NodeName, NodeRecord, OperationId, Owner, PciIdentity, Phase, Role, SlotAddress,
    Timestamp,
};
use proxy_core::control::PathAddress;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use utoipa::ToSchema;

/// A list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// Its items.
    pub items: Vec<T>,
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self { items: items.into_iter().collect() }
    }
}

/// The manager's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` if requests can be served.
    pub status: String,
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

impl RootComplexView {
    /// Of a connected proxy; nothing of a box, or of a host that has not said so yet.
    pub fn of(manager: &Manager, tables: &Tables, session: &Session) -> Option<Self> {
        let RootComplex::Away { since } = session.root_complex()? else {
            return Some(Self { present: true, away_ms: None, taken_back_in_ms: None });
        };
        let left = manager
            .settings
            .host_grace
            .and_then(|grace| manager.countdowns.left(session.name(), since, grace, tables));
        let ms = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        let away_ms = Some(ms(since.elapsed()));
        Some(Self { present: false, away_ms, taken_back_in_ms: left.map(ms) })
    }
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

/// A path's end as a person writes it.
pub fn path_text(path: &PathAddress) -> String {
    match path {
        PathAddress::Ethernet { mac, vlan } => {
            let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            let vlan = vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
            format!("ethernet {}{vlan}", mac.join(":"))
        }
        PathAddress::Udp4 { ip, port } => format!("udp {}:{port}", Ipv4Addr::from(*ip)),
        PathAddress::Udp6 { ip, port } => format!("udp [{}]:{port}", Ipv6Addr::from(*ip)),
    }
}

impl NodeView {
    /// From the records and the connection.
    pub fn new(manager: &Manager, tables: &Tables, record: &NodeRecord) -> Self {
        let session = manager.registry.get(&record.name);
        let root_complex = session.as_ref().and_then(|s| RootComplexView::of(manager, tables, s));
        let connection = session.map(|session| {
            let identity = session.identity();
            Connection {
                remote: identity.remote.to_string(),
                since: identity.since,
                incarnation: identity.incarnation,
                mtu: identity.mtu,
                paths: identity.paths.iter().map(path_text).collect(),
                ready: session.is_ready(),
            }
        });
        Self {
            name: record.name.clone(),
            node: record.node.get(),
            role: record.role,
            size: record.size,
            connection,
            root_complex,
            first_seen: record.first_seen,
            last_connected: record.last_connected,
        }
    }
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

impl FunctionView {
    fn new(tables: &Tables, device: &DeviceRecord) -> Self {
        Self {
            function: device.address.function.get(),
            state: device.state,
            model: device.model.clone(),
            pci: device.pci,
            serial: (device.serial != 0).then(|| format!("{:016x}", device.serial)),
            bars: device.bars.to_vec(),
            highest_epoch: tables.highest_epoch(&device.address).map(|epoch| epoch.to_string()),
        }
    }
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
    /// What is in it.
    pub functions: Vec<FunctionView>,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The binding by which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingId>,
}

impl SlotView {
    /// From the planner's view of it and the records.
    pub fn new(tables: &Tables, view: &crate::planner::SlotView, connected: bool) -> Self {
        let functions = tables.functions(&view.address);
        Self {
            slot: view.address.clone(),
            status: view.status,
            connected,
            model: view.model.clone(),
            functions: functions.map(|device| FunctionView::new(tables, device)).collect(),
            owner: view.owner.clone(),
            binding: tables.binding_at_slot(&view.address).map(|binding| binding.id),
        }
    }
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
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// A function of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoundFunction {
    /// Function number.
    pub function: u16,
    /// Epoch, `generation.counter`.
    pub epoch: String,
}

/// A binding: one slot lent to one port of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BindingView {
    /// Its number.
    pub id: BindingId,
    /// Its allocation.
    pub allocation: AllocationId,
    /// The slot.
    pub slot: SlotAddress,
    /// The first function's model, or empty.
    pub model: String,
    /// The host.
    pub host: NodeName,
    /// The host's downstream port.
    pub port: u8,
    /// Functions and epochs.
    pub functions: Vec<BoundFunction>,
    /// How far it has got.
    pub phase: Phase,
    /// What is wanted of it.
    pub desired: Desired,
    /// What went wrong last, if it is not right yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The operation that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// When it was recorded.
    pub since: Timestamp,
    /// When its phase last changed.
    pub changed: Timestamp,
}

impl BindingView {
    /// From the records.
    pub fn new(tables: &Tables, binding: &BindingRecord) -> Self {
        let functions = binding
            .functions
            .iter()
            .map(|f| BoundFunction { function: f.function.get(), epoch: f.epoch.to_string() });
        let first = tables.functions(&binding.slot).next();
        Self {
            id: binding.id,
            allocation: binding.allocation,
            slot: binding.slot.clone(),
            model: first.map(|device| device.model.clone()).unwrap_or_default(),
            host: binding.host.clone(),
            port: binding.port.get(),
            functions: functions.collect(),
            phase: binding.phase,
            desired: binding.desired,
            trouble: binding.trouble.clone(),
            operation: binding.operation,
            since: binding.since,
            changed: binding.changed,
        }
    }
}

/// An allocation with its bindings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationView {
    /// Its number.
    pub id: AllocationId,
    /// The host.
    pub host: NodeName,
    /// Why, in the words of who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    pub since: Timestamp,
    /// How its devices use the links.
    #[serde(default, skip_serializing_if = "LinkUse::is_default")]
    pub link: LinkUse,
    /// What it lends.
    pub bindings: Vec<BindingView>,
}

impl AllocationView {
    /// From the records.
    pub fn new(tables: &Tables, allocation: &AllocationRecord) -> Self {
        let bindings = tables.bindings_of(allocation.id);
        Self {
            id: allocation.id,
            host: allocation.host.clone(),
            reason: allocation.reason.clone(),
            since: allocation.since,
            link: allocation.link.clone(),
            bindings: bindings.map(|binding| BindingView::new(tables, binding)).collect(),
        }
    }
}
