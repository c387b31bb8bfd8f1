//! What was erased, and what could not be.

use crate::types::{
    AllocationId, ErasureId, ErasureState, NodeName, OperationId, SlotAddress, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One erasure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErasureView {
    /// Its number.
    pub id: ErasureId,
    /// Where the device is, or was when it was seen last.
    pub slot: SlotAddress,
    /// Its model.
    pub model: String,
    /// Serial number, 16 hexadecimal digits; nothing if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Who had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeName>,
    /// By this allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    /// The operation that it is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// Where it stands.
    pub state: ErasureState,
    /// How far it is, in thousandths, as far as the device says.
    pub permille: u16,
    /// How it was done, why it could not be, or what it waits for.
    pub detail: String,
    /// Whether the slot is kept from being lent while it is not erased.
    pub required: bool,
    /// When it began.
    pub since: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}
