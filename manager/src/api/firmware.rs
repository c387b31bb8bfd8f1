//! Firmware of cards: images, what cards run, rollouts.

use super::App;
use super::extract::{Body, Octets};
use crate::firmware::start::{self, CardStatus, MAX_WAVE, MAX_WITHIN_S, Wish};
use crate::types::{ImageLabel, ImageRecord, NodeName, Problem, ProblemCode, RolloutRecord};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manager_client::bodies::{DEFAULT_WITHIN_S, ProblemBody, RolloutBody};
use manager_client::views::{CardView, FirmwareSlotView, ImageView, List, RolloutView};

/// The firmware images that the manager has.
#[utoipa::path(get, path = "/v1/firmware/images", tag = "firmware",
    responses((status = 200, description = "Oldest first", body = List<ImageView>)))]
pub(super) async fn images(State(manager): State<App>) -> Json<List<ImageView>> {
    let tables = manager.records.snapshot();
    let mut items: Vec<ImageView> =
        tables.images().values().map(|image| ImageView::from(&**image)).collect();
    items.sort_by_key(|image| image.since);
    Json(items.into_iter().collect())
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

fn card((session, status): &CardStatus) -> CardView {
    CardView {
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

/// The cards that are connected, and what is in their slots, read from them now.
#[utoipa::path(get, path = "/v1/firmware/cards", tag = "firmware",
    responses((status = 200, description = "By name; proxies that are no cards are left out", body = List<CardView>)))]
pub(super) async fn cards(State(manager): State<App>) -> Json<List<CardView>> {
    Json(start::cards(&manager).await.iter().map(card).collect())
}

fn bounded(field: &str, value: Option<u32>, usual: u32, most: u32) -> Result<u32, Problem> {
    match value.unwrap_or(usual) {
        value if (1..=most).contains(&value) => Ok(value),
        _ => Err(Problem::invalid(field, format!("1 to {most}"))),
    }
}

/// What a request wants, checked.
fn check(body: RolloutBody) -> Result<Wish, Problem> {
    if body.nodes.as_ref().is_some_and(Vec::is_empty) {
        return Err(Problem::invalid("nodes", "at least one card"));
    }
    if body.image.is_none() && body.nodes.is_none() {
        return Err(Problem::invalid("nodes", "say which cards are to go back"));
    }
    Ok(Wish {
        image: body.image,
        nodes: body.nodes,
        wave_size: bounded("wave_size", body.wave_size, 1, MAX_WAVE)?,
        interrupt: body.interrupt,
        within_s: bounded("within_s", body.within_s, DEFAULT_WITHIN_S, MAX_WITHIN_S)?,
    })
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
    let rollout = start::start(&manager, check(body)?).await?;
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
