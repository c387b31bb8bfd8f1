//! Operations.

use super::App;
use super::conditional::{IfMatch, shown};
use super::extract::{Params, Segments, parse};
use super::listing::{Listing, Paging};
use crate::operations::obstacle;
use crate::records::Topic;
use crate::types::{
    AllocationId, EventRecord, OperationId, OperationRecord, OperationState, Problem, ProblemCode,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manager_client::bodies::ProblemBody;
use manager_client::views::List;
use serde::Deserialize;
use std::cmp::Reverse;
use std::time::Duration;
use utoipa::IntoParams;

/// Longest that an answer waits for something to change, milliseconds.
pub(super) const MAX_WAIT_MS: u32 = 60_000;

/// Which operations.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only those that have not ended.
    #[serde(default)]
    running: bool,
    /// Only those that stand here.
    state: Option<OperationState>,
    /// Only those about this allocation.
    allocation: Option<AllocationId>,
}

impl Filter {
    fn lets(&self, operation: &OperationRecord) -> bool {
        !(self.running && operation.state.is_final())
            && self.state.is_none_or(|state| state == operation.state)
            && self.allocation.is_none_or(|id| Some(id) == operation.allocation)
    }
}

/// The operations that are kept, latest first.
#[utoipa::path(get, path = "/v1/operations", tag = "operations", params(Filter, Paging),
    responses((status = 200, description = "Latest first", body = List<OperationRecord>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<OperationRecord>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.operations().iter().rev().filter(|(_, o)| filter.lets(o));
    let wanted = wanted.map(|(id, operation)| (Reverse(*id), operation));
    let view =
        |o: &OperationRecord| Some(obstacle::explained(o.clone(), &tables, &manager.registry));
    paging.page(wanted, view).map(Json)
}

/// How long an answer is to wait for something to change.
///
/// # Errors
///
/// When that is longer than [`MAX_WAIT_MS`].
pub(super) fn wait(wait_ms: Option<u32>) -> Result<Duration, Problem> {
    let wait_ms = wait_ms.unwrap_or(0);
    if wait_ms > MAX_WAIT_MS {
        return Err(Problem::invalid("wait_ms", format!("at most {MAX_WAIT_MS}")));
    }
    Ok(Duration::from_millis(wait_ms.into()))
}

fn missing(id: OperationId) -> Problem {
    let detail = format!("there is no operation {id}, or it is no longer kept");
    Problem::new(ProblemCode::NoSuchOperation, detail)
}

/// How to wait for an operation.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitParams {
    /// Answer when it has ended, or after so many milliseconds.
    #[param(maximum = 60_000)]
    wait_ms: Option<u32>,
    /// With `wait_ms`: answer also when more steps than so many have left the state `pending`.
    beyond_steps: Option<usize>,
}

/// One operation, now or when it has changed.
#[utoipa::path(get, path = "/v1/operations/{id}", tag = "operations",
    params(("id" = String, Path, description = "op-N"), WaitParams),
    responses((status = 200, description = "The operation", body = OperationRecord),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Params(params): Params<WaitParams>,
) -> Result<Json<OperationRecord>, Problem> {
    let id: OperationId = parse("id", &id)?;
    let wait = wait(params.wait_ms)?;
    let enough = |operation: &OperationRecord| {
        let past = operation.steps.iter().filter(|s| s.state != crate::types::StepState::Pending);
        operation.state.is_final()
            || params.beyond_steps.is_some_and(|beyond| past.count() > beyond)
    };
    // Who waits for the end alone is not woken by each step.
    let topic = params.beyond_steps.map_or(Topic::End(id), |_| Topic::Operation(id));
    awaited(&manager, id, (topic, wait), enough).await.map(Json)
}

/// An operation, when something of a topic has changed and that is enough, or when the wait is over or
/// the manager stops.
///
/// # Errors
///
/// When there is no such operation, or it is no longer kept.
pub(super) async fn awaited(
    manager: &App,
    id: OperationId,
    (topic, wait): (Topic, Duration),
    enough: impl Fn(&OperationRecord) -> bool,
) -> Result<OperationRecord, Problem> {
    let mut changes = manager.records.watch(topic);
    let deadline = tokio::time::Instant::now() + wait;
    let mut goes_on = true;
    loop {
        changes.mark_unchanged();
        let tables = manager.records.snapshot();
        let operation = tables.operations().get(&id).ok_or_else(|| missing(id))?;
        if !goes_on || enough(operation) {
            return Ok(obstacle::explained(operation.clone(), &tables, &manager.registry));
        }
        // Nobody keeps a snapshot while they wait.
        drop(tables);
        tokio::select! {
            () = changes.changed() => {}
            () = tokio::time::sleep_until(deadline) => goes_on = false,
            () = manager.stopping() => goes_on = false,
        }
    }
}

/// Call an operation back: what it lends is undone, what it takes back stays lent if no operating
/// system was asked yet.
#[utoipa::path(post, path = "/v1/operations/{id}/cancel", tag = "operations",
    params(("id" = String, Path, description = "op-N"),
        ("If-Match" = Option<String>, Header, description = "Only if it still has this tag; status 412 else")),
    responses((status = 202, description = "The operation, which may still be being undone", body = OperationRecord),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn cancel(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    if_match: IfMatch,
) -> Result<(StatusCode, Json<OperationRecord>), Problem> {
    let id: OperationId = parse("id", &id)?;
    let changed = manager.records.change(|txn| {
        if_match.check(|| {
            let operation = txn.operations().get(&id)?.clone();
            Some(shown(&obstacle::explained(operation, txn, &manager.registry)))
        })?;
        crate::operations::cancel(txn, id)
    });
    let operation = changed.await?;
    Ok((StatusCode::ACCEPTED, Json(operation)))
}

/// What happened in an operation: its events that are kept, in order.
#[utoipa::path(get, path = "/v1/operations/{id}/events", tag = "operations",
    params(("id" = String, Path, description = "op-N")),
    responses((status = 200, description = "In order", body = List<EventRecord>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn story(
    State(manager): State<App>,
    Segments(id): Segments<String>,
) -> Result<Json<List<EventRecord>>, Problem> {
    let id: OperationId = parse("id", &id)?;
    let tables = manager.records.snapshot();
    if !tables.operations().contains_key(&id) {
        return Err(missing(id));
    }
    Ok(Json(tables.story(id).into_iter().cloned().collect()))
}
