//! Firmware of cards: images, what cards run, rollouts.

use super::App;
use super::conditional::{IfMatch, shown};
use super::extract::{Body, Octets, Params, parse};
use super::listing::{Listing, Paging};
use crate::audit;
use crate::firmware::start::{self, AskedCard, MAX_WAVE, MAX_WITHIN_S, Wish};
use crate::records::Tables;
use crate::types::{ImageLabel, ImageRecord, NodeName, Problem, ProblemCode, Role, RolloutRecord};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manager_client::bodies::{DEFAULT_WITHIN_S, ProblemBody, RolloutBody};
use manager_client::views::{CardView, FirmwareSlotView, ImageView, List, RolloutView};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which images.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageFilter {
    /// Only for this board.
    board: Option<String>,
    /// Only those that play this role, or any.
    role: Option<Role>,
}

impl ImageFilter {
    fn lets(&self, label: &ImageLabel) -> bool {
        self.board.as_ref().is_none_or(|board| *board == label.board)
            && self.role.is_none_or(|role| label.role.is_none_or(|own| own == role))
    }
}

/// The firmware images that the manager has.
#[utoipa::path(get, path = "/v1/firmware/images", tag = "firmware", params(ImageFilter, Paging),
    responses((status = 200, description = "Oldest first", body = List<ImageView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn images(
    State(manager): State<App>,
    Listing(filter, paging): Listing<ImageFilter>,
) -> Result<Json<List<ImageView>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.images().values().filter(|image| filter.lets(&image.label));
    let mut wanted: Vec<_> =
        wanted.map(|image| ((image.since, image.label.id), &**image)).collect();
    wanted.sort_by_key(|(key, _)| *key);
    paging.page(wanted, |image| Some(ImageView::from(image))).map(Json)
}

/// For which cards an image is sent.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageFor {
    /// Keep it only if a rollout would bring it to these cards: names with commas between them, or `*`
    /// for all that it is for, of which there is to be one. Without this it is kept for any.
    #[param(example = "box1,box2")]
    cards: Option<String>,
}

impl ImageFor {
    /// Whether the cards take it.
    async fn check(&self, manager: &App, label: &ImageLabel) -> Result<(), Problem> {
        let Some(cards) = &self.cards else { return Ok(()) };
        let nodes: Option<Vec<NodeName>> = match cards.as_str() {
            "*" => None,
            names => {
                Some(names.split(',').map(|name| parse("cards", name)).collect::<Result<_, _>>()?)
            }
        };
        start::takes(manager, label, nodes.as_deref()).await
    }
}

/// Send a firmware image, as `dxpu-flash image build` makes it. One that is there already is not
/// stored twice. When there are 16, the one that came first makes way.
#[utoipa::path(post, path = "/v1/firmware/images", tag = "firmware", params(ImageFor),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The image", body = ImageView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn add_image(
    State(manager): State<App>,
    Params(meant): Params<ImageFor>,
    Octets(bytes): Octets,
) -> Result<Json<ImageView>, Problem> {
    audit::asks(&format_args!("an image of {} bytes", bytes.len()));
    let label = ImageLabel::of(&bytes)?;
    let id = label.id;
    audit::asks(&format_args!("image {id} for {}", label.board));
    meant.check(&manager, &label).await?;
    let stored = manager.records.apply(|txn| {
        let since = txn.now();
        txn.add_image(ImageRecord { label, since, bytes: bytes.to_vec() });
        ImageView::from(&*txn.images()[&id])
    });
    Ok(Json(stored.await?))
}

fn card((session, status): &AskedCard) -> CardView {
    let empty = CardView {
        name: session.name().clone(),
        role: session.identity().role,
        problem: None,
        board: String::new(),
        room: 0,
        lowest_security: 0,
        running: String::new(),
        wanted: String::new(),
        slots: Vec::new(),
    };
    match status {
        Ok(status) => CardView {
            board: status.board.as_str().to_owned(),
            room: status.room,
            lowest_security: status.lowest_security,
            running: status.running.to_string(),
            wanted: status.wanted.to_string(),
            slots: status.slots.iter().map(FirmwareSlotView::from).collect(),
            ..empty
        },
        Err(error) => CardView { problem: Some(error.to_string()), ..empty },
    }
}

/// Which cards.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CardFilter {
    /// Only of this board.
    board: Option<String>,
    /// Only of this role.
    role: Option<Role>,
}

impl CardFilter {
    fn lets(&self, card: &CardView) -> bool {
        // A card that does not say its board may be of any.
        let may_be = |board: &String| *board == card.board || card.problem.is_some();
        self.board.as_ref().is_none_or(may_be) && self.role.is_none_or(|role| role == card.role)
    }
}

/// The cards that are connected, and what is in their slots, read from them now.
#[utoipa::path(get, path = "/v1/firmware/cards", tag = "firmware", params(CardFilter, Paging),
    responses((status = 200, description = "By name; proxies that are no cards are left out", body = List<CardView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn cards(
    State(manager): State<App>,
    Listing(filter, paging): Listing<CardFilter>,
) -> Result<Json<List<CardView>>, Problem> {
    let cards = start::cards(&manager).await;
    let wanted = cards.iter().map(card).filter(|card| filter.lets(card));
    paging.page(wanted.map(|card| (card.name.clone(), card)), Some).map(Json)
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
    let waits = |name: &NodeName| Some((name.to_string(), manager.transfers.waits_for(name)?));
    let written = rollout.cards.iter().filter_map(|card| written(&card.node)).collect();
    let waits = rollout.cards.iter().filter_map(|card| waits(&card.node)).collect();
    Json(RolloutView { rollout, written, waits })
}

/// Bring an image to cards, or cards back to the image before. One at a time; it ends when all have
/// it, or at the end of the first wave in which a card failed.
#[utoipa::path(post, path = "/v1/firmware/rollout", tag = "firmware", request_body = RolloutBody,
    params(("If-Match" = Option<String>, Header, description = "Only if the latest rollout still has this tag; status 412 else")),
    responses((status = 202, description = "It has begun", body = RolloutView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn begin(
    State(manager): State<App>,
    if_match: IfMatch,
    Body(body): Body<RolloutBody>,
) -> Result<(StatusCode, Json<RolloutView>), Problem> {
    let as_seen = |tables: &Tables| {
        let latest = || Some(shown(&*view(&manager, tables.rollout()?.as_ref().clone())));
        if_match.check(latest)
    };
    let rollout = start::start(&manager, check(body)?, as_seen).await?;
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
