//! The tables that a manager reads, entry by entry.

use super::{Name, PathSet, Window};
use crate::limits::{MAX_FUNCTIONS, MAX_RECORDED, MAX_WINDOWS, RECORDER_PIECE};
use crate::stamps::StampedTlp;
use heapless::Vec;
use serde::{Deserialize, Serialize};
use tlp_codec::ids::{Bdf, BindingKey, Epoch, NodeId, PortId, SlotFunction, SlotId};

/// State of one function of a slot, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SlotState {
    /// No device.
    Empty,
    /// A device is there and is looked at (inventory, readiness).
    Probing,
    /// Can be lent.
    Free,
    /// Is lent.
    Bound,
    /// Is being taken back.
    Releasing,
    /// Failed reset or readiness; not lent.
    Quarantined,
}

/// State of one downstream port, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PortState {
    /// Nothing bound.
    Empty,
    /// A placeholder holds room at boot.
    Placeholder,
    /// Bound; the link to the box is not up yet.
    Linking,
    /// Present; the operating system sees it.
    Present,
    /// The attention button was pressed; the operating system has not let go yet.
    Removing,
    /// Bound once, and its link went down: terminal until a new epoch is bound.
    Failed,
}

/// A bridge window as the operating system programmed it; `None` where it is closed.
pub type WindowRange = Option<(u64, u64)>;

/// One entry of the host's mapping table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingEntry {
    /// Entry ID, the port.
    pub port: PortId,
    /// Whether a binding uses it.
    pub used: bool,
    /// State.
    pub state: PortState,
    /// Secondary and subordinate bus number.
    pub buses: (u8, u8),
    /// The device's routing ID as the host numbers it.
    pub device: Bdf,
    /// 32-bit non-prefetchable window.
    pub memory: WindowRange,
    /// 64-bit prefetchable window.
    pub prefetchable: WindowRange,
    /// I/O window.
    pub io: WindowRange,
    /// The box, 0 when unused.
    pub box_node: u16,
    /// The box's slot, 0 when unused.
    pub slot: u8,
    /// Functions and epochs.
    pub functions: Vec<(SlotFunction, Epoch), MAX_FUNCTIONS>,
    /// Paths.
    pub path_set: PathSet,
    /// The operating system has enumerated the device that is there: it wrote Memory Space Enable or
    /// Bus Master Enable, or gave each of its memories an address and has no driver that enables it.
    pub configured: bool,
}

/// One entry of the box's slot table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotEntry {
    /// Entry ID.
    pub entry: u16,
    /// A device is in place.
    pub valid: bool,
    /// A binding uses it.
    pub used: bool,
    /// State.
    pub state: SlotState,
    /// Slot.
    pub slot: SlotId,
    /// Function.
    pub function: SlotFunction,
    /// The host proxy, 0 when unused.
    pub host_node: u16,
    /// Paths.
    pub path_set: PathSet,
    /// Epoch of the binding, or the highest one so far as bits (0: none yet).
    pub epoch: u32,
    /// DMA windows.
    pub windows: Vec<Window, MAX_WINDOWS>,
}

/// What is in a slot, as the box found it through configuration space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// Slot.
    pub slot: SlotId,
    /// Function.
    pub function: SlotFunction,
    /// State.
    pub state: SlotState,
    /// Model name from the box's configuration; empty if it has none.
    pub model: Name,
    /// Vendor and device ID.
    pub id: (u16, u16),
    /// Subsystem vendor and subsystem ID.
    pub subsystem: (u16, u16),
    /// Class code, 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
    /// Device serial number capability, 0 if there is none.
    pub serial: u64,
    /// Size of each BAR in bytes (0: unused; the upper half of a 64-bit BAR is 0).
    pub bars: [u64; 6],
    /// Highest epoch this function has had, as bits (0: none). The manager learns it before it
    /// binds anything.
    pub highest_epoch: u32,
}

/// One sampled TLP's stamps, nanoseconds by the proxy's own clock; `None`: stage not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampEntry {
    /// The other end's node: at the host the box, at the box the host.
    pub peer: NodeId,
    /// What joins the halves, with the nodes at both ends.
    pub binding: BindingKey,
    /// Whether the request, posted or not, came from the host.
    pub from_host: bool,
    /// Which TLP of the binding.
    pub tlp: StampedTlp,
    /// One time for each [`crate::stamps::Stage`].
    pub at: [Option<u64>; 6],
}

/// What a proxy recorded, as much as fits one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderPage {
    /// The position of the first byte: what was asked for, or where what is left begins.
    pub first: u64,
    /// The position behind everything that was recorded so far.
    pub end: u64,
    /// Entries that were lost for lack of room, in this life of the proxy.
    pub lost: u64,
    /// The time when it was asked, nanoseconds by the proxy's own clock.
    pub now: u64,
    /// Requests that this end sent of each binding that is recorded, in the order of the list,
    /// since the binding came onto it.
    pub requests: Vec<u64, MAX_RECORDED>,
    /// Whole entries: see [`Entry`](crate::recorder::Entry).
    pub bytes: Vec<u8, RECORDER_PIECE>,
}
