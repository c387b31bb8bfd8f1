//! The flight recorder: recordings of bindings, and a look at all devices.

use super::App;
use super::extract::{Body, Params, Segments, parse};
use super::listing::{Listing, Paging};
use super::operations::{MAX_WAIT_MS, wait};
use crate::recorder::latency::{self, Question};
use crate::recorder::recordings::{self, MAX_DURATION_MS, MAX_LIMIT, Recording, Wish};
use crate::types::{BindingId, NodeName, Problem, ProblemCode, RecordingId, Role};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use manager_client::bodies::{ProblemBody, RecordBody};
use manager_client::views::{Latency, List, RecordingView};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;

impl From<&Recording> for RecordingView {
    fn from(recording: &Recording) -> Self {
        let progress = recording.progress();
        Self {
            id: recording.id,
            binding: recording.wish.binding,
            slot: recording.slot.clone(),
            host: recording.host.clone(),
            format: recording.wish.format,
            seen_from: recording.wish.seen_from,
            since: recording.since,
            packets: progress.packets,
            bytes: progress.bytes,
            lost_at_host: progress.lost_at_host,
            lost_at_box: progress.lost_at_box,
            not_recorded: recording.not_recorded.clone(),
            ended: progress.ended,
        }
    }
}

fn find(manager: &App, id: &str) -> Result<Arc<Recording>, Problem> {
    let id: RecordingId = parse("id", id)?;
    manager.recordings.get(id).ok_or_else(|| {
        let detail = format!("there is no recording {id}; it is forgotten, or never was");
        Problem::new(ProblemCode::NoSuchRecording, detail)
    })
}

/// Record a binding while it runs.
#[utoipa::path(post, path = "/v1/recordings", tag = "recorder", request_body = RecordBody,
    responses((status = 201, description = "It runs", body = RecordingView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn start(
    State(manager): State<App>,
    Body(body): Body<RecordBody>,
) -> Result<(StatusCode, Json<RecordingView>), Problem> {
    let duration_ms = body.duration_ms.unwrap_or(10_000);
    if !(1..=MAX_DURATION_MS).contains(&duration_ms) {
        return Err(Problem::invalid("duration_ms", format!("1 to {MAX_DURATION_MS}")));
    }
    let limit = body.limit_bytes.unwrap_or(64_000_000);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::invalid("limit_bytes", format!("1 to {MAX_LIMIT}")));
    }
    let snap = body.snap.unwrap_or(u16::MAX);
    if snap == 0 {
        return Err(Problem::invalid("snap", "at least 1"));
    }
    let wish = Wish {
        binding: body.binding,
        format: body.format,
        seen_from: body.seen_from.unwrap_or(Role::Host),
        duration: Duration::from_millis(duration_ms.into()),
        limit,
        snap,
    };
    let recording = recordings::start(&manager, wish).await?;
    Ok((StatusCode::CREATED, Json(RecordingView::from(&*recording))))
}

/// Which recordings.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only of this binding.
    binding: Option<BindingId>,
    /// Only of what this host has.
    host: Option<NodeName>,
    /// Only those that run, or have ended.
    running: Option<bool>,
}

impl Filter {
    fn lets(&self, recording: &RecordingView) -> bool {
        self.binding.is_none_or(|id| id == recording.binding)
            && self.host.as_ref().is_none_or(|host| *host == recording.host)
            && self.running.is_none_or(|running| running == recording.ended.is_none())
    }
}

/// All recordings that are kept.
#[utoipa::path(get, path = "/v1/recordings", tag = "recorder", params(Filter, Paging),
    responses((status = 200, description = "Oldest first", body = List<RecordingView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<RecordingView>>, Problem> {
    let all = manager.recordings.all();
    let views = all.iter().map(|recording| RecordingView::from(&**recording));
    let wanted = views.filter(|view| filter.lets(view)).map(|view| (view.id, view));
    paging.page(wanted, Some).map(Json)
}

/// How long to wait.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    /// If it runs, wait for its end so many milliseconds.
    #[param(maximum = 60_000)]
    wait_ms: Option<u32>,
}

/// One recording.
#[utoipa::path(get, path = "/v1/recordings/{id}", tag = "recorder",
    params(("id" = String, Path, description = "Number of the recording, rec-N"), WaitParams),
    responses((status = 200, description = "The recording", body = RecordingView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Params(params): Params<WaitParams>,
) -> Result<Json<RecordingView>, Problem> {
    let recording = find(&manager, &id)?;
    let wait = wait(params.wait_ms)?;
    if !wait.is_zero() {
        recording.ended(wait).await;
    }
    Ok(Json(RecordingView::from(&*recording)))
}

/// End a recording; what it has is kept.
#[utoipa::path(post, path = "/v1/recordings/{id}/stop", tag = "recorder",
    params(("id" = String, Path, description = "Number of the recording, rec-N")),
    responses((status = 200, description = "The recording, once it has ended", body = RecordingView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn stop(
    State(manager): State<App>,
    Segments(id): Segments<String>,
) -> Result<Json<RecordingView>, Problem> {
    let recording = find(&manager, &id)?;
    recording.stop();
    recording.ended(Duration::from_millis(MAX_WAIT_MS.into())).await;
    Ok(Json(RecordingView::from(&*recording)))
}

/// Forget a recording; one that runs ends.
#[utoipa::path(delete, path = "/v1/recordings/{id}", tag = "recorder",
    params(("id" = String, Path, description = "Number of the recording, rec-N")),
    responses((status = 204, description = "Forgotten"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn forget(
    State(manager): State<App>,
    Segments(id): Segments<String>,
) -> Result<StatusCode, Problem> {
    let recording = find(&manager, &id)?;
    manager.recordings.forget(recording.id);
    Ok(StatusCode::NO_CONTENT)
}

/// What was recorded, as a file: pcapng, or a trace in JSON.
#[utoipa::path(get, path = "/v1/recordings/{id}/file", tag = "recorder",
    params(("id" = String, Path, description = "Number of the recording, rec-N")),
    responses((status = 200, description = "The file of a recording that has ended; of a trace, application/json",
            content((Vec<u8> = "application/octet-stream"), (serde_json::Value = "application/json"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn file(
    State(manager): State<App>,
    Segments(id): Segments<String>,
) -> Result<Response, Problem> {
    let recording = find(&manager, &id)?;
    let (id, media) = (recording.id, recording.wish.format.media_type());
    let runs = || {
        let detail = format!("{id} runs; its file is there when it has ended");
        Problem::new(ProblemCode::RecordingRuns, detail)
    };
    if recording.progress().ended.is_none() {
        return Err(runs());
    }
    // It may be long, and others want to be served meanwhile.
    let made = manager.recordings.make(move || recording.file()).await;
    let made = made.map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
    let file = made.ok_or_else(runs)?;
    Ok(([(header::CONTENT_TYPE, media)], file).into_response())
}

/// How it is looked.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LatencyParams {
    /// How long, milliseconds; 1000 if it is not given.
    #[param(minimum = 10, maximum = 10_000)]
    window_ms: Option<u32>,
    /// Stamp one request in so many; 1 if it is not given.
    #[param(minimum = 1)]
    one_in: Option<u32>,
    /// How many slow requests; 5 if it is not given.
    #[param(maximum = 100)]
    slowest: Option<usize>,
    /// Only this host's or this box's devices.
    node: Option<NodeName>,
}

/// Look at round trips of all lent devices for a moment.
#[utoipa::path(get, path = "/v1/latency", tag = "recorder", params(LatencyParams),
    responses((status = 200, description = "What was seen", body = Latency),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn latency(
    State(manager): State<App>,
    Params(params): Params<LatencyParams>,
) -> Result<Json<Latency>, Problem> {
    let window_ms = params.window_ms.unwrap_or(1000);
    let bounds = latency::MIN_WINDOW_MS..=latency::MAX_WINDOW_MS;
    if !bounds.contains(&window_ms) {
        let bounds = format!("{} to {}", bounds.start(), bounds.end());
        return Err(Problem::invalid("window_ms", bounds));
    }
    let one_in = params.one_in.unwrap_or(1);
    // What the description says of the number: 32 bits with a sign.
    if !(1..=i32::MAX.unsigned_abs()).contains(&one_in) {
        return Err(Problem::invalid("one_in", format!("1 to {}", i32::MAX)));
    }
    let slowest = params.slowest.unwrap_or(5);
    if slowest > latency::MAX_SLOWEST {
        return Err(Problem::invalid("slowest", format!("at most {}", latency::MAX_SLOWEST)));
    }
    let node = params.node;
    node.as_ref().map(|name| super::proxies::there(&manager, name)).transpose()?;
    let window = Duration::from_millis(window_ms.into());
    Ok(Json(latency::look(&manager, &Question { window, one_in, slowest, node }).await))
}
