//! What is in the slots.

use super::names::{SlotAddress, Timestamp};
use super::text::plain;
use proxy_core::control::{InventoryEntry, SlotState};
use serde::{Deserialize, Serialize};
use std::fmt;
use tlp_codec::ids::SlotFunction;
use utoipa::ToSchema;

/// A function of a device in a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionAddress {
    /// Where the device is.
    pub slot: SlotAddress,
    /// Which of its functions.
    pub function: SlotFunction,
}

impl fmt::Display for FunctionAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.function)
    }
}

/// State of a slot's function as its box said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// No device.
    Empty,
    /// Looked at; not ready yet.
    Probing,
    /// Can be lent.
    Free,
    /// Is lent.
    Bound,
    /// Is being taken back.
    Releasing,
    /// Failed its reset or its readiness test.
    Quarantined,
}

impl From<SlotState> for DeviceState {
    fn from(state: SlotState) -> Self {
        match state {
            SlotState::Empty => Self::Empty,
            SlotState::Probing => Self::Probing,
            SlotState::Free => Self::Free,
            SlotState::Bound => Self::Bound,
            SlotState::Releasing => Self::Releasing,
            SlotState::Quarantined => Self::Quarantined,
        }
    }
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Empty => "empty",
            Self::Probing => "probing",
            Self::Free => "free",
            Self::Bound => "bound",
            Self::Releasing => "releasing",
            Self::Quarantined => "quarantined",
        })
    }
}

/// What configuration space says that a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PciIdentity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// Revision ID.
    pub revision: u8,
}

/// What a function is, of all that [`PciIdentity`] says: no firmware and no setting of a board
/// changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PciKind {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
}

impl PciIdentity {
    /// What the function is.
    pub const fn kind(self) -> PciKind {
        PciKind { vendor: self.vendor, device: self.device, class: self.class }
    }
}

/// A function as its box reported it last; kept while the box is away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Where it is.
    pub address: FunctionAddress,
    /// State as the box said last. Whether it is lent is the binding's to say.
    pub state: DeviceState,
    /// Model name from the box's configuration, or empty.
    pub model: String,
    /// IDs.
    pub pci: PciIdentity,
    /// Device serial number capability, 0 if there is none.
    pub serial: u64,
    /// Size of each BAR, bytes.
    pub bars: [u64; 6],
    /// When it was first seen so, or last changed.
    pub since: Timestamp,
}

impl DeviceRecord {
    /// From a box's report.
    pub fn from_inventory(slot: SlotAddress, entry: &InventoryEntry, now: Timestamp) -> Self {
        Self {
            address: FunctionAddress { slot, function: entry.function },
            state: entry.state.into(),
            model: plain(entry.model.as_str()),
            pci: PciIdentity {
                vendor: entry.id.0,
                device: entry.id.1,
                subsystem_vendor: entry.subsystem.0,
                subsystem: entry.subsystem.1,
                class: entry.class,
                revision: entry.revision,
            },
            serial: entry.serial,
            bars: entry.bars,
            since: now,
        }
    }

    /// Whether both say the same, whenever they were made.
    pub fn same_as(&self, other: &Self) -> bool {
        *self == Self { since: self.since, ..other.clone() }
    }
}
