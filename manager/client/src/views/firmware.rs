//! Firmware of cards: images, what cards run, rollouts.

use crate::types::{ImageId, ImageLabel, ImageRecord, NodeName, Role, RolloutRecord, Timestamp};
use proxy_core::control::{FirmwareState, SlotFirmware};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A firmware image that the manager has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageView {
    /// What it says of itself.
    #[serde(flatten)]
    pub label: ImageLabel,
    /// When it came.
    pub since: Timestamp,
}

impl From<&ImageRecord> for ImageView {
    fn from(image: &ImageRecord) -> Self {
        Self { label: image.label.clone(), since: image.since }
    }
}

/// What is known of a slot for firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SlotStateName {
    /// Nothing is in it.
    Empty,
    /// An image is being written.
    Writing,
    /// An image was written, and was not started yet.
    Staged,
    /// It was started, and has not joined yet.
    Trying,
    /// It has joined.
    Healthy,
    /// It is not started again.
    Failed,
}

/// One of a card's two slots for firmware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FirmwareSlotView {
    /// What is known of it.
    pub state: SlotStateName,
    /// Its image, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageId>,
    /// The image's version, where its header is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Further starts that it has, while it is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries_left: Option<u8>,
    /// Bytes that outlast a power cut, while it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
}

impl From<&SlotFirmware> for FirmwareSlotView {
    fn from(slot: &SlotFirmware) -> Self {
        let (mut tries_left, mut bytes) = (None, None);
        let state = match slot.state {
            FirmwareState::Empty => SlotStateName::Empty,
            FirmwareState::Writing { done } => {
                bytes = Some(done);
                SlotStateName::Writing
            }
            FirmwareState::Staged => SlotStateName::Staged,
            FirmwareState::Trying { left } => {
                tries_left = Some(left);
                SlotStateName::Trying
            }
            FirmwareState::Healthy => SlotStateName::Healthy,
            FirmwareState::Failed => SlotStateName::Failed,
        };
        let image = (state != SlotStateName::Empty).then(|| slot.image.into());
        let version = slot.version.map(|version| version.to_string());
        Self { state, image, version, tries_left, bytes }
    }
}

/// A card that is connected, and its firmware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CardView {
    /// Its name.
    pub name: NodeName,
    /// Host or box.
    pub role: Role,
    /// Why it does not say what is in its slots; what follows is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The board that images must be for.
    pub board: String,
    /// Bytes of the longest image.
    pub room: u32,
    /// The lowest security version that it runs.
    pub lowest_security: u32,
    /// The slot whose image runs: `a` or `b`.
    pub running: String,
    /// The slot that is started next.
    pub wanted: String,
    /// The slots `a` and `b`.
    #[schema(max_items = 2)]
    pub slots: Vec<FirmwareSlotView>,
}

impl CardView {
    /// The slot whose image runs.
    pub fn runs(&self) -> Option<&FirmwareSlotView> {
        self.slots.get(usize::from(self.running == "b"))
    }
}

/// A rollout and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutView {
    /// What is recorded of it.
    #[serde(flatten)]
    pub rollout: RolloutRecord,
    /// Bytes of the image that a card has, by the name of the card that is written now.
    pub written: BTreeMap<String, u32>,
    /// What a card waits for, by its name: the other end of a binding restarts, or is away.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, String>,
}
