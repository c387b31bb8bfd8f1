//! Firmware of cards: images, what cards run, rollouts.

use super::App;
use super::extract::{Body, Octets};
use super::problem::ProblemBody;
use super::views::List;
use crate::firmware::start::{self, CardStatus, MAX_WAVE, MAX_WITHIN_S, Wish};
use crate::types::{
    ImageId, ImageLabel, ImageRecord, NodeName, Problem, ProblemCode, Role, RolloutRecord,
    Timestamp,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use proxy_core::control::{FirmwareState, SlotFirmware};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Seconds that a card is given if the request does not say: longer than three trials of 300 s,
/// after which a card's boot loader has gone back to the image before.
pub const DEFAULT_WITHIN_S: u32 = 1200;

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

/// The firmware images that the manager has.
#[utoipa::path(get, path = "/v1/firmware/images", tag = "firmware",
    responses((status = 200, description = "Oldest first", body = List<ImageView>)))]
pub(super) async fn images(State(manager): State<App>) -> Json<List<ImageView>> {
    let tables = manager.records.snapshot();
    let mut items: Vec<ImageView> =
        tables.images().values().map(|image| ImageView::from(&**image)).collect();
    items.sort_by_key(|image| image.since);
    Json(List { items })
}

/// Send a firmware image, as `dxpu-flash image build` makes it. One that is there already is not
/// stored twice. When there are 16, the one that came first makes way.
#[utoipa::path(post, path = "/v1/firmware/images", tag = "firmware",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The image", body = ImageView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn add_image(
    State(manager): State<App>,
    Octets(bytes): Octets,
) -> Result<Json<ImageView>, Problem> {
    let label = ImageLabel::of(&bytes)?;
    let id = label.id;
    let stored = manager.records.apply(|txn| {
        let since = txn.now();
        txn.add_image(ImageRecord { label, since, bytes: bytes.to_vec() });
        ImageView::from(&*txn.images()[&id])
    });
    Ok(Json(stored.await?))
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
    #[schema(min_items = 2, max_items = 2)]
    pub slots: Vec<FirmwareSlotView>,
}

impl CardView {
    /// The slot whose image runs.
    pub fn runs(&self) -> Option<&FirmwareSlotView> {
        self.slots.get(usize::from(self.running == "b"))
    }
}

impl From<&CardStatus> for CardView {
    fn from((session, status): &CardStatus) -> Self {
        Self {
            name: session.name().clone(),
            role: session.identity().role,
            board: status.board.as_str().to_owned(),
            room: status.room,
            lowest_security: status.lowest_security,
            running: status.running.to_string(),
            wanted: status.wanted.to_string(),
            slots: status.slots.iter().map(FirmwareSlotView::from).collect(),
        }
    }
}

/// The cards that are connected, and what is in their slots, read from them now.
#[utoipa::path(get, path = "/v1/firmware/cards", tag = "firmware",
    responses((status = 200, description = "By name; proxies that are no cards are left out", body = List<CardView>)))]
pub(super) async fn cards(State(manager): State<App>) -> Json<List<CardView>> {
    let items = start::cards(&manager).await.iter().map(CardView::from).collect();
    Json(List { items })
}

/// What is to be brought to which cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutBody {
    /// The image; if it is not given, the cards go back to the image that they had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageId>,
    /// The cards; if it is not given, all that are connected and that the image is for. Needed to
    /// go back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    pub nodes: Option<Vec<NodeName>>,
    /// Cards at a time, at most; 1 if it is not given. Never both ends of a binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub wave_size: Option<u32>,
    /// Whether cards with bindings are restarted, too. Their devices go away from their hosts and
    /// come back when the card is back.
    #[serde(default)]
    pub interrupt: bool,
    /// Seconds that a card has at most to be connected, and then to start what it got; 1200 if it
    /// is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86400)]
    pub within_s: Option<u32>,
}

fn bounded(field: &str, value: Option<u32>, usual: u32, most: u32) -> Result<u32, Problem> {
    match value.unwrap_or(usual) {
        value if (1..=most).contains(&value) => Ok(value),
        _ => Err(Problem::invalid(field, format!("1 to {most}"))),
    }
}

impl RolloutBody {
    fn check(self) -> Result<Wish, Problem> {
        if self.nodes.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::invalid("nodes", "at least one card"));
        }
        if self.image.is_none() && self.nodes.is_none() {
            return Err(Problem::invalid("nodes", "say which cards are to go back"));
        }
        Ok(Wish {
            image: self.image,
            nodes: self.nodes,
            wave_size: bounded("wave_size", self.wave_size, 1, MAX_WAVE)?,
            interrupt: self.interrupt,
            within_s: bounded("within_s", self.within_s, DEFAULT_WITHIN_S, MAX_WITHIN_S)?,
        })
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
}

fn view(manager: &App, rollout: RolloutRecord) -> Json<RolloutView> {
    let written = |name: &NodeName| Some((name.to_string(), manager.transfers.written(name)?));
    let written = rollout.cards.iter().filter_map(|card| written(&card.node)).collect();
    Json(RolloutView { rollout, written })
}

/// Bring an image to cards, or cards back to the image before. One at a time; it ends when all have
/// it, or at the end of the first wave in which a card failed.
#[utoipa::path(post, path = "/v1/firmware/rollout", tag = "firmware", request_body = RolloutBody,
    responses((status = 202, description = "It has begun", body = RolloutView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn begin(
    State(manager): State<App>,
    Body(body): Body<RolloutBody>,
) -> Result<(StatusCode, Json<RolloutView>), Problem> {
    let rollout = start::start(&manager, body.check()?).await?;
    Ok((StatusCode::ACCEPTED, view(&manager, rollout)))
}

/// The latest rollout.
#[utoipa::path(get, path = "/v1/firmware/rollout", tag = "firmware",
    responses((status = 200, description = "Where it stands", body = RolloutView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(State(manager): State<App>) -> Result<Json<RolloutView>, Problem> {
    let rollout = manager.records.snapshot().rollout().cloned();
    let rollout = rollout.ok_or_else(|| {
        let detail = "no firmware was brought to cards yet; `firmware push` does so";
        Problem::new(ProblemCode::NoSuchRollout, detail)
    })?;
    Ok(view(&manager, RolloutRecord::clone(&rollout)))
}
