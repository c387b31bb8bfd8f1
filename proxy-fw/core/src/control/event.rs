//! What happens by itself, and why.

use super::{PortState, SlotState};
use serde::{Deserialize, Serialize};
use tlp_codec::ids::{BindingKey, NodeId, PathId, PortId, SlotFunction, SlotId};

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
    /// Host: the operating system enumerated the device: it enabled it (Memory Space Enable, Bus
    /// Master Enable), or gave each of its memories an address and no driver enabled it within a
    /// second.
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
    /// What this proxy sends by one path of a link does not arrive; the other paths carry it.
    PathLost {
        /// To this node.
        peer: NodeId,
        /// By this path.
        path: PathId,
    },
    /// What this proxy sends by a path arrives, or does again.
    PathFound {
        /// To this node.
        peer: NodeId,
        /// By this path.
        path: PathId,
    },
    /// Host: a root complex came, or went.
    RootComplex {
        /// Whether one is there now.
        present: bool,
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
