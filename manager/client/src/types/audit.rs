//! Who changed what, or tried to.

use super::ids::OperationId;
use super::names::Timestamp;
use super::problem::ProblemCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One request that changes something, whatever came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Counts up by one; never used twice.
    pub sequence: u64,
    /// When it was decided.
    pub at: Timestamp,
    /// Who, in the words of the client (header `X-Dxpu-Actor`). Nobody checks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The address that the request came from.
    pub peer: String,
    /// The HTTP method.
    pub method: String,
    /// The path, with its parameters.
    pub path: String,
    /// What it asked for besides: its body, as JSON as far as it was understood; of an inventory its
    /// revision, of an image of firmware its name and board. In one line, cut after 512 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    pub what: Option<String>,
    /// The operation that it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// Why it was refused; nothing if it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemCode>,
}
