//! The messages between the manager and the proxies.
//!
//! A proxy dials the manager (TCP) and says [`Hello`]; the manager answers [`Welcome`] or
//! [`Refused`]. From then on the manager sends [`Request`]s and the proxy answers each with one
//! [`Response`](FromProxy::Response), at once or when the operation has ended, and sends
//! [`Event`]s as they happen. Each message is a 4-byte little-endian length and so many bytes of
//! postcard; `docs/control.md` says it byte by byte. Every request is idempotent: the same
//! operation asked for again gives the same answer. A request with a term below the highest that
//! the proxy has seen is refused.

mod erase;
mod error;
mod event;
mod firmware;
mod framing;
mod log;
mod request;
mod reset;
mod table;

pub use erase::{
    EraseFailure, EraseMethod, EraseMethods, EraseRequest, Erasure, ErasureCode, MAX_ERASE_METHODS,
    UnknownErasure,
};
pub use error::{ControlError, Limit};
pub use event::{BindingFailure, Event, LinkDownReason};
pub use firmware::{
    FIRMWARE_HEADER, FIRMWARE_PIECE, FirmwareError, FirmwareId, FirmwareRequest, FirmwareSlot,
    FirmwareState, FirmwareStatus, FirmwareVersion, MAX_BOARD, SlotFirmware,
};
pub use framing::{DecodeError, Decoded, decode, encode};
pub use log::LogLevel;
pub use request::{
    PathSet, Peer, PortBinding, Removal, Reply, Request, Share, SlotBinding, Window,
};
pub use reset::{MAX_RESET_TEXT, ResetCause, ResetReport};
pub use table::{
    InventoryEntry, MappingEntry, PortState, RecorderPage, SlotEntry, SlotState, StampEntry,
    WindowRange,
};

use crate::limits::{MAX_ANSWER, MAX_PATHS, PAGE};
use core::time::Duration;
use heapless::{String, Vec};
use serde::{Deserialize, Serialize};
use tlp_codec::ids::NodeId;

/// Version of this vocabulary. Both ends must have the same.
pub const CONTROL_VERSION: u16 = 1;

/// Longest message on the wire, in bytes, without its length. A longer one is an error and ends
/// the connection.
pub const MAX_MESSAGE: usize = 16 * 1024;

const _: () = assert!(MAX_ANSWER <= MAX_MESSAGE);

/// How long a proxy hears nothing whole of its manager before it takes it for gone and dials again:
/// three of the manager's pings, which come every 5 s unless its settings say otherwise. A machine
/// that lost its power, or whose cable was cut, ends no connection.
pub const SILENCE_BOUND: Duration = Duration::from_secs(15);

/// Longest name of anything, in bytes.
pub const MAX_NAME: usize = 64;

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
pub type FromProxy = FromProxyWith<Reply>;

/// From a proxy to the manager, with the answers of requests held as `R`: a [`Reply`], or a pointer to
/// one where there is memory to allocate. A reply has room for the longest list, ten thousand bytes and
/// more, and is that long wherever it is moved to. On the wire all are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)]
pub enum FromProxyWith<R> {
    /// First message.
    Hello(Hello),
    /// The answer to one request.
    Response {
        /// The request's.
        id: OperationId,
        /// What came of it.
        result: Result<R, ControlError>,
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
    /// From a card, when it has joined for the first time in its life: why this life began.
    Reset(ResetReport),
}
