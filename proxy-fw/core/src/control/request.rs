//! What the manager asks for, and the answers.

use super::{
    EraseRequest, ErasureCode, FirmwareRequest, FirmwareStatus, InventoryEntry, LogLevel,
    MappingEntry, Name, PAGE, PathAddress, RecorderPage, SlotEntry, SlotState, StampEntry,
};
use crate::limits::{MAX_FUNCTIONS, MAX_PATHS, MAX_RECORDED, MAX_WINDOWS};
use crate::recorder::Recorded;
use crate::stamps::Sampling;
use heapless::Vec;
use serde::{Deserialize, Serialize};
use tlp_codec::ids::{BindingKey, Epoch, NodeId, PathId, PortId, SlotFunction, SlotId};

/// What the manager asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // messages live on the stack for one call
pub enum Request {
    /// Know this peer: its node number and where its paths end. Known already with the same
    /// content: nothing happens. With other addresses: they replace the old ones.
    SetPeer(Peer),
    /// Forget this peer; refused while a binding uses it.
    RemovePeer(NodeId),
    /// Box: lend a slot's function.
    BindSlot(SlotBinding),
    /// Box: take it back: Bus Master off, drain, reset, readiness test. Answers when the function
    /// is free again, or is quarantined; or at once, with [`SlotState::Releasing`], when it waits
    /// for a reset of the device that cannot be while another function of it is lent. A binding
    /// that is not there is success.
    UnbindSlot(BindingKey),
    /// Host: put a function of a box behind a port and plug it.
    BindPort(PortBinding),
    /// Host: take it out of the port. Answers when the operating system let go or was made to.
    UnbindPort {
        /// The port.
        port: PortId,
        /// The binding that is meant, by box, slot and the epoch of any of its functions; another
        /// one there is left alone and the answer is success.
        box_node: NodeId,
        /// See `box_node`.
        slot: SlotId,
        /// See `box_node`.
        epoch: Epoch,
        /// How.
        mode: Removal,
    },
    /// Box: try again to make a quarantined slot usable (reset and readiness test).
    Recover(SlotId),
    /// Read the host's mapping table or the box's slot table from this entry on.
    ReadTable {
        /// First entry.
        from: u16,
    },
    /// Box: read what is in the slots from this entry on.
    ReadInventory {
        /// First entry.
        from: u16,
    },
    /// Read all counters from this entry on.
    ReadCounters {
        /// First entry.
        from: u16,
    },
    /// Set how many TLPs are stamped, and forget the stamps so far.
    SetSampling(Sampling),
    /// Read stage stamps from this one on.
    ReadStamps {
        /// First entry.
        from: u16,
    },
    /// Record these bindings and no others, as long as this conversation lasts. None: stop.
    SetRecorder(Vec<Recorded, MAX_RECORDED>),
    /// Read what was recorded from this position on, and forget what is before it.
    ReadRecorder {
        /// A position: 0, or where a page ended.
        from: u64,
    },
    /// Log from this level on, as long as this life lasts.
    SetLogLevel(LogLevel),
    /// A card: see to its firmware.
    Firmware(FirmwareRequest),
    /// Box: have a device that is not lent erase itself, and reset it. Answers at once how that
    /// stands; it is asked for again until it has ended. What failed after it began is quarantined.
    Erase(EraseRequest),
}

/// How a device is taken from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// Attention button; if the operating system has not let go after so many milliseconds, by
    /// force.
    Orderly {
        /// The bound, milliseconds.
        within_ms: u32,
    },
    /// At once, as a surprise removal.
    Force,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its number.
    pub node: NodeId,
    /// Its current life, as it told the manager. Frames of another life take the link down.
    pub incarnation: u32,
    /// Where its paths end; the index is the [`PathId`].
    pub paths: Vec<PathAddress, MAX_PATHS>,
    /// Largest frame between the two, in bytes.
    pub mtu: u16,
}

/// What a device's TLPs, those of all its functions, may take of a link beside those of other devices,
/// in the direction in which the proxy that gets this sends. Rates are of records: a TLP and 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// How much it gets of what all want: 2 is twice as much as 1. 0 is taken like 1.
    pub weight: u8,
    /// Bytes a second that it is not to exceed; 0: none.
    pub limit: u64,
    /// Bytes a second that it has before all others; 0: none.
    pub guarantee: u64,
}

impl Share {
    /// As much as each of the others, no more said.
    pub const EVEN: Share = Share { weight: 1, limit: 0, guarantee: 0 };
}

/// The paths a binding may use: bit n is path n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSet(pub u8);

impl PathSet {
    /// Only the first path.
    pub const FIRST: PathSet = PathSet(1);
    /// The first so many.
    pub const fn first(count: usize) -> Self {
        Self(if count >= 8 { u8::MAX } else { (1 << count) - 1 })
    }

    /// All that there are.
    pub const ALL: PathSet = PathSet(u8::MAX);

    /// Whether a path is in the set.
    pub const fn contains(self, path: PathId) -> bool {
        self.0 >> path.get() & 1 != 0
    }
}

/// One DMA window: what of the device's address space reaches which node's memory where. Its bounds
/// and its target are those of whole pages of 4 KB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First address as the device sees it.
    pub base: u64,
    /// Last address as the device sees it.
    pub limit: u64,
    /// Who owns the memory.
    pub node: NodeId,
    /// By which paths.
    pub path_set: PathSet,
    /// The epoch of that sharer.
    pub epoch: Epoch,
    /// First address there.
    pub target: u64,
    /// Whether the device may read.
    pub read: bool,
    /// Whether the device may write.
    pub write: bool,
}

impl Window {
    /// The one window of a device that is lent whole: everything, as it is, to one host.
    pub const fn everything(node: NodeId, path_set: PathSet, epoch: Epoch) -> Self {
        Self { base: 0, limit: u64::MAX, node, path_set, epoch, target: 0, read: true, write: true }
    }
}

/// A binding as the box needs it.
///
/// Functions of one device that are bound to several hosts are kept apart by what each is, in
/// configuration space, and by its windows, in DMA. They are not by address: a host's memory
/// requests reach whichever function of the device claims the address. Hosts that share a device so
/// have to trust each other; the manager lends whole devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotBinding {
    /// Slot, function, epoch. The epoch must be above every earlier one of this function.
    pub key: BindingKey,
    /// The host proxy that gets it.
    pub host: NodeId,
    /// By which paths.
    pub path_set: PathSet,
    /// What the device's TLPs may take of the link.
    pub share: Share,
    /// What the device's DMA reaches.
    pub windows: Vec<Window, MAX_WINDOWS>,
}

/// A binding as the host needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortBinding {
    /// The downstream port.
    pub port: PortId,
    /// The box's node number.
    pub box_node: NodeId,
    /// The box's slot.
    pub slot: SlotId,
    /// The functions of it that are lent, with their epochs.
    pub functions: Vec<(SlotFunction, Epoch), MAX_FUNCTIONS>,
    /// By which paths.
    pub path_set: PathSet,
    /// What the TLPs for the device may take of the link.
    pub share: Share,
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)]
pub enum Reply {
    /// Done, or it was so already.
    Done,
    /// Of [`Request::UnbindSlot`] and [`Request::Recover`]: the slot's state afterwards.
    Slot(SlotState),
    /// Of [`Request::UnbindPort`]: how it went.
    Removed {
        /// Whether the operating system let go by itself.
        orderly: bool,
    },
    /// A page of the host's mapping table.
    Mapping {
        /// Whether a root complex is there now.
        root_complex: bool,
        /// Entries of this page.
        entries: Vec<MappingEntry, PAGE>,
        /// Where the next page starts, if there is one.
        next: Option<u16>,
    },
    /// A page of the box's slot table.
    Slots {
        /// Entries of this page.
        entries: Vec<SlotEntry, PAGE>,
        /// Where the next page starts, if there is one.
        next: Option<u16>,
    },
    /// A page of the box's inventory.
    Inventory {
        /// Entries of this page.
        entries: Vec<InventoryEntry, PAGE>,
        /// Where the next page starts, if there is one.
        next: Option<u16>,
    },
    /// A page of counters.
    Counters {
        /// Name and value.
        entries: Vec<(Name, u64), PAGE>,
        /// Where the next page starts, if there is one.
        next: Option<u16>,
    },
    /// A page of stage stamps.
    Stamps {
        /// Entries of this page.
        entries: Vec<StampEntry, PAGE>,
        /// Where the next page starts, if there is one.
        next: Option<u16>,
    },
    /// What was recorded.
    Recorder(RecorderPage),
    /// Of [`FirmwareRequest::Status`].
    Firmware(FirmwareStatus),
    /// Of [`FirmwareRequest::Begin`] and [`FirmwareRequest::Piece`]: the offset of the byte of the
    /// image that is wanted next, its length when all of it is there.
    FirmwareNext(u32),
    /// Of [`Request::Erase`].
    Erasure(ErasureCode),
}
