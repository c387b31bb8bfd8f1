//! The proxies' own tables, read from them when asked.

use super::pool::RootComplexView;
use crate::types::{DeviceState, NodeName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// First and last address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Range {
    /// First.
    pub base: u64,
    /// Last.
    pub limit: u64,
}

/// A function and its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableFunction {
    /// Function number.
    pub function: u16,
    /// Epoch, `generation.counter`.
    pub epoch: String,
}

/// One entry of a host's mapping table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MappingView {
    /// The downstream port.
    pub port: u8,
    /// Whether a binding uses it.
    pub used: bool,
    /// `empty`, `placeholder`, `linking`, `present`, `removing` or `failed`.
    pub state: String,
    /// Secondary bus number.
    pub secondary_bus: u8,
    /// Subordinate bus number.
    pub subordinate_bus: u8,
    /// The device's routing ID as the host numbers it, as lspci writes it.
    pub device: String,
    /// 32-bit non-prefetchable window, if it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Range>,
    /// 64-bit prefetchable window, if it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetchable: Option<Range>,
    /// I/O window, if it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<Range>,
    /// The box's node number, 0 if unused.
    pub box_node: u16,
    /// The box's name, if it is known.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub box_name: Option<NodeName>,
    /// The box's slot, 0 if unused.
    pub slot: u8,
    /// Functions and epochs.
    pub functions: Vec<TableFunction>,
    /// The paths that may be used.
    pub paths: Vec<u8>,
    /// Whether the host's operating system has enabled the device.
    pub configured: bool,
}

/// A host's mapping table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostTable {
    /// The host.
    pub host: NodeName,
    /// Its node number.
    pub node: u16,
    /// When it was read.
    pub at: Timestamp,
    /// Whether it has a root complex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_complex: Option<RootComplexView>,
    /// By port.
    pub entries: Vec<MappingView>,
}

/// One DMA window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowView {
    /// First address as the device sees it.
    pub base: u64,
    /// Last address as the device sees it.
    pub limit: u64,
    /// Node that owns the memory.
    pub node: u16,
    /// First address there.
    pub target: u64,
    /// Epoch of that sharer.
    pub epoch: String,
    /// Whether the device may read.
    pub read: bool,
    /// Whether the device may write.
    pub write: bool,
}

/// One entry of a box's slot table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotTableEntry {
    /// Entry ID.
    pub entry: u16,
    /// Whether a device is in place.
    pub valid: bool,
    /// Whether a binding uses it.
    pub used: bool,
    /// State.
    pub state: DeviceState,
    /// Slot.
    pub slot: u8,
    /// Function.
    pub function: u16,
    /// The host's node number, 0 if unused.
    pub host_node: u16,
    /// The host's name, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// The paths that may be used.
    pub paths: Vec<u8>,
    /// Epoch of the binding, or the highest one so far, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// DMA windows.
    pub windows: Vec<WindowView>,
}

/// A box's slot table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoxTable {
    /// The box.
    #[serde(rename = "box")]
    pub box_name: NodeName,
    /// Its node number.
    pub node: u16,
    /// When it was read.
    pub at: Timestamp,
    /// By entry ID.
    pub entries: Vec<SlotTableEntry>,
}

/// Tables of all proxies that are connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllTables {
    /// Hosts' mapping tables.
    pub hosts: Vec<HostTable>,
    /// Boxes' slot tables.
    pub boxes: Vec<BoxTable>,
    /// Proxies whose table could not be read.
    pub silent: Vec<SilentProxy>,
}

/// A proxy that is connected and did not say what its table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilentProxy {
    /// The proxy.
    pub name: NodeName,
    /// Why its table is not known.
    pub reason: String,
}
