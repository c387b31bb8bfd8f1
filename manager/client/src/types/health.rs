//! How well proxies, paths and devices are.

use super::hold::Place;
use super::names::{NodeName, SlotAddress, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// Nothing speaks against it.
    Healthy,
    /// Something did, several times in a row.
    Suspect,
    /// It went on; what the policy says is done.
    Failed,
    /// It failed, and has been good for a while.
    Recovering,
}

impl HealthState {
    /// Every state.
    pub const ALL: [HealthState; 4] =
        [Self::Healthy, Self::Suspect, Self::Failed, Self::Recovering];
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Failed => "failed",
            Self::Recovering => "recovering",
        })
    }
}

/// What has a health. As text: `box1`, `box1/3`, `host1>box1 path 1` (what `host1` sends to `box1`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Subject {
    /// A proxy.
    Node {
        /// Its name.
        node: NodeName,
    },
    /// A device, by its slot.
    Slot {
        /// The slot.
        slot: SlotAddress,
    },
    /// A path by which one proxy sends to another.
    Path {
        /// Who sends.
        from: NodeName,
        /// To whom.
        to: NodeName,
        /// The path's number.
        path: u8,
    },
}

impl Subject {
    /// What is held back because of it. Nothing for a path: it is lost between two proxies only, and
    /// their other paths carry what it did.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Node { node } => Some(Place::Node(node.clone())),
            Self::Slot { slot } => Some(Place::Slot(slot.clone())),
            Self::Path { .. } => None,
        }
    }
}

impl Place {
    /// What has a health of its own.
    pub fn subject(&self) -> Option<Subject> {
        match self {
            Self::Node(node) => Some(Subject::Node { node: node.clone() }),
            Self::Slot(slot) => Some(Subject::Slot { slot: slot.clone() }),
            Self::Path(_) | Self::Rack(_) | Self::Site(_) | Self::Fabric(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node } => f.pad(node.as_str()),
            Self::Slot { slot } => f.pad(&slot.to_string()),
            Self::Path { from, to, path } => f.pad(&format!("{from}>{to} path {path}")),
        }
    }
}

/// How often devices of a model failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelRecord {
    /// The model.
    pub model: String,
    /// Failures that were seen: a device's health came to be `failed`, or its slot was quarantined. One
    /// that fails again while it recovers has not failed twice.
    pub failures: u32,
    /// Since when they are counted.
    pub since: Timestamp,
}

/// What a device is known by, wherever it is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub struct HealthDevice {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Serial number, 0 if it has none: then it is known in its slot only. 16 hexadecimal digits.
    #[serde(with = "digits")]
    #[schema(value_type = String)]
    pub serial: u64,
}

/// A serial number as text: JSON's numbers are not that exact everywhere (RFC 8259, section 6).
mod digits {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(serial: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{serial:016x}"))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
        u64::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
    }
}

/// The health of something that is, or was lately, not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthRecord {
    /// What.
    pub subject: Subject,
    /// Of a slot: the device that it is about, and goes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<HealthDevice>,
    /// How well it is.
    pub state: HealthState,
    /// Why, when it last got worse.
    pub reason: String,
    /// Since when it is so.
    pub since: Timestamp,
    /// Whether it gets nothing new because of that: the policy said so when it failed, and nobody
    /// has put it back since.
    #[serde(default)]
    pub holds: bool,
}
