//! Why a request gets the slots that it gets, or none.

use super::names::{NodeName, SlotAddress};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One slot that would be lent, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedSlot {
    /// The slot.
    pub slot: SlotAddress,
    /// Its device's model, or empty.
    pub model: String,
    /// The host's port.
    pub port: u8,
    /// The rack of its box, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Which of its box's islands it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub island: Option<u8>,
}

/// What one constraint does to the devices of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConstraintView {
    /// What has to be so.
    pub constraint: String,
    /// How many devices it alone would leave out.
    pub removes: usize,
    /// How many are left by it and all before it.
    pub left: usize,
}

/// A box that has devices that meet every constraint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// The box.
    #[serde(rename = "box")]
    pub box_name: NodeName,
    /// How many it has.
    pub devices: usize,
    /// How many of them its bandwidth is enough for.
    pub usable: usize,
    /// Bandwidth of its proxy that is not taken, bytes a second.
    pub bandwidth_left: u64,
}

/// Why a request gets the slots that it gets, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The host.
    pub host: NodeName,
    /// How many slots are wanted.
    pub wanted: u32,
    /// The slots that it would get; none if nothing fits.
    pub slots: Vec<PlannedSlot>,
    /// Devices in the pool, lent or not.
    pub devices: usize,
    /// The constraints, in the order in which they are asked.
    pub constraints: Vec<ConstraintView>,
    /// The boxes with most devices that meet all of them, at most 16.
    pub candidates: Vec<Candidate>,
    /// How many such boxes there are.
    pub candidate_boxes: usize,
    /// The host's ports that are free.
    pub free_ports: usize,
    /// Bandwidth of the host's proxy that is not taken, bytes a second.
    pub host_bandwidth_left: u64,
    /// Why these, or what stood in the way, for a person.
    pub reasons: Vec<String>,
}
