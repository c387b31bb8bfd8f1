//! Recordings of bindings.

use crate::types::{BindingId, NodeName, RecordingId, Role, SlotAddress, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is made of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// pcapng of the frames that carried the binding's records, without others' records, with both
    /// ends' stage stamps of each record in comments.
    Frames,
    /// pcapng of TLPs alone, with both ends' stage stamps in comments.
    Tlps,
    /// A trace in JSON for ui.perfetto.dev: a slice for each request, with its stages inside.
    Perfetto,
}

impl Format {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Frames | Self::Tlps => "application/octet-stream",
            Self::Perfetto => "application/json",
        }
    }
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// It ran as long as it was to.
    Time,
    /// It has the size that it may have.
    Limit,
    /// Somebody stopped it.
    Stopped,
    /// The binding ended or failed.
    BindingEnded,
    /// A proxy restarted, or its connection to the manager was lost.
    ProxyGone,
    /// The manager is stopping.
    ManagerStopping,
}

/// Why a recording ended, and in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ended {
    /// Why.
    pub reason: EndReason,
    /// For a person.
    pub detail: String,
}

/// One end of a binding, of which nothing is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotRecorded {
    /// Which end: the host's proxy or the box's.
    pub end: Role,
    /// Why, for a person.
    pub detail: String,
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordingView {
    /// Its number.
    pub id: RecordingId,
    /// What is recorded.
    pub binding: BindingId,
    /// The binding's slot.
    pub slot: SlotAddress,
    /// The binding's host.
    pub host: NodeName,
    /// What is made of it.
    pub format: Format,
    /// The proxy that it is seen from.
    pub seen_from: Role,
    /// When it began.
    pub since: Timestamp,
    /// TLPs or frames so far.
    pub packets: u64,
    /// Memory that it takes, bytes.
    pub bytes: u64,
    /// Entries that the host proxy had no room for, of any binding that it records.
    pub lost_at_host: u64,
    /// As `lost_at_host`, of the box proxy.
    pub lost_at_box: u64,
    /// The end that is not recorded, whose stages are missing; nothing if both are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_recorded: Option<NotRecorded>,
    /// Why it ended; nothing while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}
