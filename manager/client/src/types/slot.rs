//! What can be done with slots.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What can be done with a slot.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SlotStatus {
    /// It can be lent.
    Free,
    /// It is lent.
    Used,
    /// It is being taken back.
    Releasing,
    /// Its device is looked at.
    Probing,
    /// Its box has it bound although no record says so; it is taken back.
    Stray,
    /// Its device failed its reset or readiness test.
    Quarantined,
    /// It is held back: under maintenance, being drained, replaced or not healthy.
    Held,
    /// The device in another slot has the same vendor and serial number: one of them is not what
    /// its box says.
    Contested,
    /// Its device has had all its epochs of this generation.
    Exhausted,
    /// Its device is erased after the tenant before.
    Erasing,
    /// Its device could not be erased, or not yet, and is kept from being lent.
    Unerased,
    /// It has no device.
    Empty,
}

impl SlotStatus {
    /// Why it is not free, after the words "slot X".
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Free => "is free",
            Self::Used => "is in use",
            Self::Releasing => "is being taken back; try again in a moment",
            Self::Probing => "has a device that is not ready yet; try again in a moment",
            Self::Stray => "is bound at its box without a record; it is taken back now",
            Self::Quarantined => "is quarantined",
            Self::Held => "is held back; `dxpu-manager holds` says why",
            Self::Contested => {
                "has a device whose serial number the device in another slot has, too; \
                 `dxpu-manager events` names both, and one of them has to go"
            }
            Self::Exhausted => {
                "has a device that has had all its epochs; move it to another slot, or restore a \
                 backup, which begins a new generation of them"
            }
            Self::Erasing => "has a device that is being erased",
            Self::Unerased => {
                "has a device that could not be erased; `dxpu-manager erasures` says why, and \
                 `dxpu-manager erase` tries again, or takes it as it is"
            }
            Self::Empty => "has no device",
        }
    }
}

impl SlotStatus {
    /// Whether it becomes another one by itself in a moment.
    pub const fn is_passing(self) -> bool {
        match self {
            Self::Releasing | Self::Probing | Self::Stray | Self::Erasing => true,
            Self::Free
            | Self::Used
            | Self::Quarantined
            | Self::Held
            | Self::Contested
            | Self::Exhausted
            | Self::Unerased
            | Self::Empty => false,
        }
    }
}

impl fmt::Display for SlotStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Free => "free",
            Self::Used => "used",
            Self::Releasing => "releasing",
            Self::Probing => "probing",
            Self::Stray => "stray",
            Self::Quarantined => "quarantined",
            Self::Held => "held",
            Self::Contested => "contested",
            Self::Exhausted => "exhausted",
            Self::Erasing => "erasing",
            Self::Unerased => "unerased",
            Self::Empty => "empty",
        })
    }
}
