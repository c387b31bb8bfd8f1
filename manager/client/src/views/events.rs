//! Events.

use crate::types::EventRecord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Events, and where the next ones are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// Oldest first.
    pub items: Vec<EventRecord>,
    /// What to give as `since` next.
    pub next: u64,
    /// Whether events between `since` and the first one here are not there any more.
    pub lost: bool,
}
