//! Allocations and bindings.

use crate::types::{
    AllocationId, BindingId, Desired, LinkUse, NodeName, OperationId, Phase, SlotAddress,
    Timestamp, Wishes,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A function of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoundFunction {
    /// Function number.
    pub function: u16,
    /// Epoch, `generation.counter`.
    pub epoch: String,
}

/// A binding: one slot lent to one port of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BindingView {
    /// Its number.
    pub id: BindingId,
    /// Its allocation.
    pub allocation: AllocationId,
    /// The slot.
    pub slot: SlotAddress,
    /// The device's model when it was chosen, or empty.
    pub model: String,
    /// The host.
    pub host: NodeName,
    /// The host's downstream port.
    pub port: u8,
    /// The paths that it was given, at both ends; empty before the box has it.
    #[serde(default)]
    pub paths: Vec<u8>,
    /// Functions and epochs.
    pub functions: Vec<BoundFunction>,
    /// How far it has got.
    pub phase: Phase,
    /// What is wanted of it.
    pub desired: Desired,
    /// What went wrong last, if it is not right yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The operation that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// When it was recorded.
    pub since: Timestamp,
    /// When its phase last changed.
    pub changed: Timestamp,
}

/// An allocation with its bindings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllocationView {
    /// Its number.
    pub id: AllocationId,
    /// The host.
    pub host: NodeName,
    /// Why, in the words of who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For whom, in the words of who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What its devices were chosen by.
    #[serde(default, skip_serializing_if = "Wishes::is_default")]
    pub wishes: Wishes,
    /// When.
    pub since: Timestamp,
    /// How its devices use the links.
    #[serde(default, skip_serializing_if = "LinkUse::is_default")]
    pub link: LinkUse,
    /// When it ends by itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// What it lends.
    pub bindings: Vec<BindingView>,
}

/// A time for which something is lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    /// When it ends, by the manager's wall clock.
    pub until: Timestamp,
    /// In how long it ends, milliseconds.
    pub left_ms: u64,
}
