//! What a proxy itself does or says.

use crate::types::{NodeName, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A proxy's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// The proxy.
    pub name: NodeName,
    /// Host or box.
    pub role: Role,
    /// Value by name.
    pub counters: BTreeMap<String, u64>,
}

/// What a stamped TLP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StampedKind {
    /// A non-posted request.
    Request,
    /// A completion.
    Completion,
    /// A posted request.
    Posted,
}

/// One sampled TLP's stage stamps at one proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StampView {
    /// The node at the other end.
    pub peer: u16,
    /// Slot of the binding.
    pub slot: u8,
    /// Function of the binding.
    pub function: u16,
    /// Epoch of the binding, `generation.counter`.
    pub epoch: String,
    /// Whether the request, posted or not, came from the host and not from the device.
    pub from_host: bool,
    /// What it is.
    pub kind: StampedKind,
    /// Index of the outstanding entry; null of posted requests.
    pub index: Option<u16>,
    /// Generation of the outstanding entry; null of posted requests.
    pub generation: Option<u16>,
    /// The link's sequence of a posted request's record; null of others, and before it is sent.
    pub sequence: Option<u32>,
    /// Nanoseconds by the proxy's own clock at the end of each stage: arrived, encoded, sent,
    /// received, decoded, delivered; null where the stage is not here.
    #[schema(min_items = 6, max_items = 6)]
    pub at: Vec<Option<u64>>,
}

/// A proxy's stage stamps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stamps {
    /// The proxy.
    pub name: NodeName,
    /// Its node number.
    pub node: u16,
    /// Host or box.
    pub role: Role,
    /// Oldest first.
    pub stamps: Vec<StampView>,
}
