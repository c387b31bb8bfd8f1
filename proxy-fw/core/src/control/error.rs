//! Why a proxy does not do what it is asked for.

use super::{FirmwareError, Term};
use core::fmt;
use serde::{Deserialize, Serialize};
use tlp_codec::ids::{Epoch, NodeId, PortId, SlotId};

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
    /// The peer is not known; send [`Request::SetPeer`](super::Request::SetPeer) first.
    UnknownPeer(NodeId),
    /// A limit of the proxy is reached, named.
    Limit(Limit),
    /// A window list that is empty, overlaps, or names an unknown node.
    BadWindows,
    /// The device's completion timeout cannot be set large enough.
    CompletionTimeout(SlotId),
    /// A request of the same kind is going on for this port or slot, or the slot is being looked at.
    Busy,
    /// The device did not answer configuration requests in time. These proxies do not say it: such a slot
    /// is [`Quarantined`](Self::Quarantined).
    NotReady(SlotId),
    /// The link to the peer is down; introduce the peer again with
    /// [`Request::SetPeer`](super::Request::SetPeer).
    LinkDown(NodeId),
    /// The proxy has no memory for a flight recorder.
    NoRecorder,
    /// The proxy is no card that a boot loader started from a slot.
    NoFirmware,
    /// A card does not do that with its firmware.
    Firmware(FirmwareError),
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
            Self::BadWindows => f.write_str(
                "the DMA windows overlap, are empty, are no whole pages or name no known node",
            ),
            Self::CompletionTimeout(s) => {
                write!(f, "the device in slot {s} cannot wait long enough for completions")
            }
            Self::Busy => f.write_str("another operation is going on there"),
            Self::NotReady(s) => write!(f, "the device in slot {s} did not become ready"),
            Self::LinkDown(n) => write!(f, "the link to node {n} is down"),
            Self::NoRecorder => f.write_str("it has no memory for a flight recorder"),
            Self::NoFirmware => f.write_str("it is no card with firmware in slots"),
            Self::Firmware(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ControlError {}
