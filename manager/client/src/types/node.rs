//! Proxies: hosts and boxes.

use super::names::{NodeName, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use tlp_codec::ids::NodeId;
use utoipa::ToSchema;

/// What a proxy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It has downstream ports, behind which devices appear to a host.
    Host,
    /// It has slots, in which devices are.
    Box,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Role::Host => "host",
            Role::Box => "box",
        })
    }
}

/// A proxy that was here at least once. Its node number is its own for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Name from its configuration.
    pub name: NodeName,
    /// Node number in the fabric.
    pub node: NodeId,
    /// Host or box.
    pub role: Role,
    /// Downstream ports or slots, as it said last.
    pub size: u8,
    /// When it was here first.
    pub first_seen: Timestamp,
    /// When it last connected.
    pub last_connected: Timestamp,
    /// Its life then; a record of an earlier version does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u32>,
}

impl NodeRecord {
    /// Of a proxy that is here for the first time.
    pub fn new(name: NodeName, node: NodeId, role: Role, size: u8, now: Timestamp) -> Self {
        let (first_seen, last_connected) = (now, now);
        Self { name, node, role, size, first_seen, last_connected, incarnation: None }
    }
}
