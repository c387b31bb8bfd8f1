//! The messages between the manager and the proxies.
//!
//! A proxy dials the manager (TCP) and says [`Hello`]; the manager answers [`Welcome`] or
//! [`Refused`]. From then on the manager sends [`Request`]s and the proxy answers each with one
//! [`Response`](FromProxy::Response), at once or when the operation has ended, and sends
//! [`Event`]s as they happen. Each message is a 4-byte little-endian length and so many bytes of
//! postcard; `docs/control.md` says it byte by byte. Every request is idempotent: the same
//! operation asked for again gives the same answer. A request with a term below the highest that
//! the proxy has seen is refused.

use crate::limits::{MAX_FUNCTIONS, MAX_PATHS, MAX_PORTS, MAX_WINDOWS};
use crate::stamps::Sampling;
use core::fmt;
use heapless::{String, Vec};
use serde::{Deserialize, Serialize};
use tlp_codec::ids::{Bdf, BindingKey, Epoch, NodeId, PathId, PortId, SlotFunction, SlotId};

/// Version of this vocabulary. Both ends must have the same.
pub const CONTROL_VERSION: u16 = 1;

/// Longest message on the wire, in bytes, without its length. A longer one is an error and ends
/// the connection.
pub const MAX_MESSAGE: usize = 16 * 1024;

/// Longest name of anything, in bytes.
pub const MAX_NAME: usize = 64;

/// Entries of a table in one answer; more are read with the cursor.
pub const PAGE: usize = 32;

/// A name given by a person's configuration.
pub type Name = String<MAX_NAME>;

/// The manager's number for one step of one operation; answers carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId(pub u64);

/// The leader's term: grows each time a manager takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term(pub u64);

/// Where a node's path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PathAddress {
    /// Raw Ethernet, EtherType 0x88B5.
    Ethernet {
        /// MAC address.
        mac: [u8; 6],
        /// 802.1Q VLAN, if tagged.
        vlan: Option<u16>,
    },
    /// The same frames in UDP over IPv4.
    Udp4 {
        /// IPv4 address.
        ip: [u8; 4],
        /// UDP port.
        port: u16,
    },
    /// The same frames in UDP over IPv6.
    Udp6 {
        /// IPv6 address.
        ip: [u8; 16],
        /// UDP port.
        port: u16,
    },
}

/// What a proxy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RoleKind {
    /// A host proxy with so many downstream ports.
    Host {
        /// Ports of its virtual switch, 1 to 32.
        ports: u8,
    },
    /// A box proxy with so many slots.
    Box {
        /// Slots, numbered from 1.
        slots: u8,
    },
}

/// The first message, from the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`CONTROL_VERSION`] of the sender.
    pub version: u16,
    /// Name from its configuration; unique in the fabric.
    pub name: Name,
    /// Host or box.
    pub role: RoleKind,
    /// Number of this life of the proxy; another after every restart.
    pub incarnation: u32,
    /// Node number from an earlier life, if it kept one.
    pub node: Option<NodeId>,
    /// Where each of its paths ends.
    pub paths: Vec<PathAddress, MAX_PATHS>,
    /// Largest frame it takes, in bytes.
    pub mtu: u16,
    /// Highest term it has obeyed.
    pub term: Term,
}

/// The manager's answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`CONTROL_VERSION`] of the manager.
    pub version: u16,
    /// The node number that the proxy has from now on.
    pub node: NodeId,
    /// The leader's term.
    pub term: Term,
}

/// The manager's "no" to [`Hello`]; the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// For a person.
    pub reason: String<256>,
}

/// From the manager to a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // messages live on the stack for one call
pub enum ToProxy {
    /// Joined.
    Welcome(Welcome),
    /// Not joined.
    Refused(Refused),
    /// Do something.
    Request {
        /// Echoed in the answer.
        id: OperationId,
        /// The leader's term.
        term: Term,
        /// What.
        body: Request,
    },
    /// Nothing; sent when nothing else was for a while.
    Ping,
}

/// From a proxy to the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)]
pub enum FromProxy {
    /// First message.
    Hello(Hello),
    /// The answer to one request.
    Response {
        /// The request's.
        id: OperationId,
        /// What came of it.
        result: Result<Reply, ControlError>,
    },
    /// Something happened.
    Event {
        /// Counts up by one for each event of this incarnation; a gap means that events were
        /// dropped and the tables should be read.
        sequence: u64,
        /// What.
        event: Event,
    },
    /// Nothing; the answer to a ping.
    Pong,
}

/// What the manager asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Know this peer: its node number and where its paths end. Known already with the same
    /// content: nothing happens. With other addresses: they replace the old ones.
    SetPeer(Peer),
    /// Forget this peer; refused while a binding uses it.
    RemovePeer(NodeId),
    /// Box: lend a slot's function.
    BindSlot(SlotBinding),
    /// Box: take it back: Bus Master off, drain, reset, readiness test. Answers when the function
    /// is free again, or is quarantined. A binding that is not there is success.
    UnbindSlot(BindingKey),
    /// Host: put a function of a box behind a port and plug it.
    BindPort(PortBinding),
    /// Host: take it out of the port. Answers when the operating system let go or was made to.
    UnbindPort {
        /// The port.
        port: PortId,
        /// The binding that is meant; another one there is left alone and the answer is success.
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

/// The paths a binding may use: bit n is path n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSet(pub u8);

impl PathSet {
    /// Only the first path.
    pub const FIRST: PathSet = PathSet(1);

    /// Whether a path is in the set.
    pub const fn contains(self, path: PathId) -> bool {
        self.0 >> path.get() & 1 != 0
    }
}

/// One DMA window: what of the device's address space reaches which node's memory where.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotBinding {
    /// Slot, function, epoch. The epoch must be above every earlier one of this function.
    pub key: BindingKey,
    /// The host proxy that gets it.
    pub host: NodeId,
    /// By which paths.
    pub path_set: PathSet,
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
}

/// Why a request was refused or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlError {
    /// A higher term was seen.
    StaleTerm(Term),
    /// The epoch is not above the highest that this function has had.
    StaleEpoch(Epoch),
    /// The request is for the other role.
    WrongRole,
    /// No such port.
    NoSuchPort(PortId),
    /// No such slot or function.
    NoSuchSlot(SlotId),
    /// The slot is empty.
    SlotEmpty(SlotId),
    /// The port or function is in use by this binding.
    InUse(Epoch),
    /// The slot failed its reset or its readiness test and is not lent.
    Quarantined(SlotId),
    /// The peer is not known; send [`Request::SetPeer`] first.
    UnknownPeer(NodeId),
    /// A limit of the proxy is reached, named.
    Limit(Limit),
    /// A window list that is empty, overlaps, or names an unknown node.
    BadWindows,
    /// The device's completion timeout cannot be set large enough.
    CompletionTimeout(SlotId),
    /// A request of the same kind is going on for this port or slot.
    Busy,
    /// The device did not answer configuration requests in time.
    NotReady(SlotId),
    /// The link to the peer is down; introduce the peer again with [`Request::SetPeer`].
    LinkDown(NodeId),
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Peers of a proxy.
    Peers,
    /// Bindings on one link.
    Channels,
    /// Windows of one function.
    Windows,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StaleTerm(t) => write!(f, "a manager with the later term {} was here", t.0),
            Self::StaleEpoch(e) => write!(f, "epoch is not above {e}, which was used before"),
            Self::WrongRole => f.write_str("the request is for the other kind of proxy"),
            Self::NoSuchPort(p) => write!(f, "there is no downstream port {p}"),
            Self::NoSuchSlot(s) => write!(f, "there is no slot {s}, or no such function in it"),
            Self::SlotEmpty(s) => write!(f, "slot {s} is empty"),
            Self::InUse(e) => write!(f, "in use by the binding with epoch {e}"),
            Self::Quarantined(s) => write!(f, "slot {s} is quarantined: its device failed reset"),
            Self::UnknownPeer(n) => write!(f, "node {n} is not known here"),
            Self::Limit(Limit::Peers) => f.write_str("no room for a further peer"),
            Self::Limit(Limit::Channels) => {
                f.write_str("no room for a further binding on the link")
            }
            Self::Limit(Limit::Windows) => f.write_str("too many DMA windows"),
            Self::BadWindows => {
                f.write_str("the DMA windows overlap, are empty or name no known node")
            }
            Self::CompletionTimeout(s) => {
                write!(f, "the device in slot {s} cannot wait long enough for completions")
            }
            Self::Busy => f.write_str("another operation is going on there"),
            Self::NotReady(s) => write!(f, "the device in slot {s} did not become ready"),
            Self::LinkDown(n) => write!(f, "the link to node {n} is down"),
        }
    }
}

impl core::error::Error for ControlError {}

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
    /// Index of the outstanding entry.
    pub index: u16,
    /// Generation of the outstanding entry.
    pub generation: u16,
    /// Whether the host asked.
    pub from_host: bool,
    /// Whether this is the completion.
    pub completion: bool,
    /// One time for each [`crate::stamps::Stage`].
    pub at: [Option<u64>; 6],
}

/// What happens by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A link came up.
    LinkUp {
        /// With this node.
        peer: NodeId,
    },
    /// A link went down; the bindings on it are dead.
    LinkDown {
        /// With this node.
        peer: NodeId,
        /// Why.
        reason: LinkDownReason,
    },
    /// A binding failed at this proxy.
    BindingFailed {
        /// The other end's node. A host may have bindings with the same key in two boxes.
        peer: NodeId,
        /// Which.
        key: BindingKey,
        /// Why.
        reason: BindingFailure,
    },
    /// Host: a port's state changed.
    Port {
        /// Which.
        port: PortId,
        /// To what.
        state: PortState,
    },
    /// Host: the operating system enumerated the device and enabled it (Memory Space Enable).
    DeviceConfigured {
        /// Behind this port.
        port: PortId,
    },
    /// Box: a slot's state changed.
    Slot {
        /// Which slot.
        slot: SlotId,
        /// Which function.
        function: SlotFunction,
        /// To what.
        state: SlotState,
    },
}

/// Why a link went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LinkDownReason {
    /// The oldest record was not acknowledged within its bound.
    GaveUp,
    /// The peer has another incarnation than it had.
    PeerRestarted,
    /// The peer said that its end went down.
    PeerClosed,
    /// The manager removed the peer.
    Removed,
    /// The peer broke the protocol.
    Protocol,
}

/// Why one binding failed while its link stays up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BindingFailure {
    /// A record's TLP CRC was wrong in a frame whose CRC was right.
    TlpCrc,
    /// The other end does not have this binding.
    PeerUnbound,
    /// The device was pulled or failed.
    DeviceGone,
    /// The link went down.
    LinkDown,
    /// The host's operating system let go of the device without being asked.
    HostLetGo,
}

const _: () = assert!(MAX_PORTS <= PAGE);

/// Writes a message with its length in front.
///
/// # Errors
///
/// When `out` is too small.
pub fn encode<'a, M: Serialize>(
    message: &M,
    out: &'a mut [u8],
) -> Result<&'a [u8], postcard::Error> {
    let (length, body) = out.split_at_mut_checked(4).ok_or(postcard::Error::SerializeBufferFull)?;
    let used = postcard::to_slice(message, body)?.len();
    length.copy_from_slice(&(used as u32).to_le_bytes());
    Ok(&out[..4 + used])
}

/// What [`decode`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<M> {
    /// A whole message, and how many bytes it took with its length.
    Message(M, usize),
    /// More bytes are needed.
    Incomplete,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The length is above [`MAX_MESSAGE`].
    TooLong(u32),
    /// The bytes do not decode, or some are left over.
    Malformed,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(n) => {
                write!(f, "message of {n} bytes; at most {MAX_MESSAGE} are allowed")
            }
            Self::Malformed => f.write_str("message does not decode"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads one message from the front of a stream's bytes.
///
/// # Errors
///
/// When the length is too large or the bytes are no message; the stream cannot go on.
pub fn decode<M: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<Decoded<M>, DecodeError> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(Decoded::Incomplete);
    };
    let length = u32::from_le_bytes(*length);
    if length as usize > MAX_MESSAGE {
        return Err(DecodeError::TooLong(length));
    }
    let Some(body) = rest.get(..length as usize) else {
        return Ok(Decoded::Incomplete);
    };
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(Decoded::Message(message, 4 + body.len())),
        _ => Err(DecodeError::Malformed),
    }
}
