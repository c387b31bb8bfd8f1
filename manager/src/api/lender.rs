//! What the lender does: how long something is lent, and taking it back.

use super::App;
use super::allocations::{MAX_REASON, MAX_WITHIN_MS, accepted, refuse_if_stopping};
use super::extract::{Body, Params, Segments, client_key, parse};
use super::views;
use crate::manager::Manager;
use crate::operations::ReleaseTarget;
use crate::operations::drain::{self, Drain};
use crate::operations::lease::{self, MAX_LEASE_MS};
use crate::operations::replace::{self, Replace};
use crate::operations::take_back::{self, Lent, TakeBack};
use crate::types::{
    AllocationId, BindingId, HealthRecord, HoldRecord, OperationRecord, Place, Problem, Timestamp,
};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use manager_client::bodies::{
    DrainBody, HoldBody, LeaseBody, ProblemBody, ReplaceBody, TakeBackBody,
};
use manager_client::views::{AllocationView, List, SparesView};
use serde::Deserialize;
use utoipa::IntoParams;

/// Checks a time.
///
/// # Errors
///
/// When it is less than `least` or more than [`MAX_LEASE_MS`].
pub(super) fn check_time(field: &str, ms: u64, least: u64) -> Result<(), Problem> {
    if (least..=MAX_LEASE_MS).contains(&ms) {
        return Ok(());
    }
    Err(Problem::invalid(field, format!("{least} to {MAX_LEASE_MS}, not {ms}")))
}

/// Checks a reason, which has to be there.
pub(super) fn check_reason(reason: &str) -> Result<(), Problem> {
    match reason.trim().len() {
        0 => Err(Problem::invalid("reason", "it is what the borrower is told; it cannot be empty")),
        _ if reason.len() > MAX_REASON => {
            Err(Problem::invalid("reason", format!("at most {MAX_REASON} bytes")))
        }
        _ => Ok(()),
    }
}

/// How long an operating system has to let go.
fn within(manager: &Manager, given: Option<u32>) -> Result<u32, Problem> {
    match given {
        Some(ms) if ms > MAX_WITHIN_MS => {
            Err(Problem::invalid("within_ms", format!("at most {MAX_WITHIN_MS}")))
        }
        Some(ms) => Ok(ms),
        None => Ok(manager.settings.orderly_bound.as_millis() as u32),
    }
}

/// Lend something for so long from now on. A lease is never shortened.
#[utoipa::path(post, path = "/v1/allocations/{id}/lease", tag = "allocations",
    params(("id" = String, Path, description = "alloc-N")), request_body = LeaseBody,
    responses((status = 200, description = "The allocation", body = AllocationView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn extend(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Body(body): Body<LeaseBody>,
) -> Result<Json<AllocationView>, Problem> {
    refuse_if_stopping(&manager)?;
    let id: AllocationId = parse("id", &id)?;
    check_time("lease_ms", body.lease_ms, 1)?;
    let extended = manager.records.change(|txn| {
        lease::extend(txn, id, body.lease_ms, |lease| views::lease_left(&manager, id, lease))
    });
    let extended = extended.await?;
    let tables = manager.records.snapshot();
    Ok(Json(views::allocation(&manager, &tables, &extended)))
}

/// What is to be taken back.
fn lent(what: &str) -> Result<Lent, Problem> {
    if let Ok(id) = what.parse() {
        return Ok(Lent::One(ReleaseTarget::Allocation(id)));
    }
    if let Ok(id) = what.parse() {
        return Ok(Lent::One(ReleaseTarget::Binding(id)));
    }
    if let Ok(slot) = what.parse() {
        return Ok(Lent::Slot(slot));
    }
    let wrong = || format!("{what:?} is none of alloc-N, bind-N, BOX/SLOT or a proxy's name");
    what.parse().map(Lent::Node).map_err(|_| Problem::invalid("what", wrong()))
}

/// Take back what was lent, after a time in which the borrower can do it itself.
#[utoipa::path(post, path = "/v1/take-backs", tag = "allocations", request_body = TakeBackBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn take_back(
    State(manager): State<App>,
    headers: HeaderMap,
    Body(body): Body<TakeBackBody>,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let what = lent(&body.what)?;
    check_time("grace_ms", body.grace_ms, 0)?;
    check_reason(&body.reason)?;
    let within_ms = within(&manager, body.within_ms)?;
    let key = client_key(&headers, &body)?;
    let how = TakeBack { grace_ms: body.grace_ms, within_ms, reason: body.reason };
    let changed = manager.records.change(|txn| take_back::take_back(txn, &what, &how, key));
    changed.await.map(accepted)
}

/// Put another device of the same kind in the place of a lent one, on the same host. All or nothing.
#[utoipa::path(post, path = "/v1/bindings/{id}/replace", tag = "allocations",
    params(("id" = String, Path, description = "bind-N"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    request_body = ReplaceBody,
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn replace(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    headers: HeaderMap,
    Body(body): Body<ReplaceBody>,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let id: BindingId = parse("id", &id)?;
    check_reason(&body.reason)?;
    if body.force && body.within_ms.is_some() {
        return Err(Problem::invalid("within_ms", "force does not wait"));
    }
    let within_ms = within(&manager, body.within_ms)?;
    let within_ms = (!body.force).then_some(within_ms);
    let key = client_key(&headers, &(id, &body))?;
    let how = Replace { within_ms, reason: body.reason, parent: None };
    let live = &manager.registry;
    let changed = manager.records.change(|txn| replace::replace(txn, live, id, &how, key));
    changed.await.map(accepted)
}

/// Empty something: it gets nothing new, and what is lent of it is released or replaced.
#[utoipa::path(post, path = "/v1/drains", tag = "pool", request_body = DrainBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn drain(
    State(manager): State<App>,
    headers: HeaderMap,
    Body(body): Body<DrainBody>,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let place: Place = parse("place", &body.place)?;
    check_reason(&body.reason)?;
    let within_ms = within(&manager, body.within_ms)?;
    let key = client_key(&headers, &body)?;
    let how = Drain { replace: body.replace, within_ms, reason: body.reason };
    let changed = manager.records.change(|txn| drain::drain(txn, &place, &how, key));
    changed.await.map(accepted)
}

/// What is held back: it gets nothing new.
#[utoipa::path(get, path = "/v1/holds", tag = "pool",
    responses((status = 200, description = "By place", body = List<HoldRecord>)))]
pub(super) async fn holds(State(manager): State<App>) -> Json<List<HoldRecord>> {
    Json(manager.records.snapshot().holds().values().cloned().collect())
}

/// Hold something back, because somebody works on it. What is lent there stays.
#[utoipa::path(post, path = "/v1/holds", tag = "pool", request_body = HoldBody,
    responses((status = 200, description = "What is held back", body = HoldRecord),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn hold(
    State(manager): State<App>,
    Body(body): Body<HoldBody>,
) -> Result<Json<HoldRecord>, Problem> {
    refuse_if_stopping(&manager)?;
    let place: Place = parse("place", &body.place)?;
    check_reason(&body.reason)?;
    let held = manager.records.change(|txn| drain::maintain(txn, &place, &body.reason));
    held.await.map(Json)
}

/// Which place.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceParams {
    /// BOX/SLOT, the name of a host or box, rack:NAME, site:NAME, fabric:NAME or path:N.
    place: String,
}

/// Do not hold something back any more.
#[utoipa::path(delete, path = "/v1/holds", tag = "pool", params(PlaceParams),
    responses((status = 200, description = "What was held back", body = HoldRecord),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn put_back(
    State(manager): State<App>,
    Params(params): Params<PlaceParams>,
) -> Result<Json<HoldRecord>, Problem> {
    refuse_if_stopping(&manager)?;
    let place: Place = parse("place", &params.place)?;
    manager.records.change(|txn| drain::put_back(txn, &place)).await.map(Json)
}

/// The spares of each model, and how many it needs.
#[utoipa::path(get, path = "/v1/spares", tag = "pool",
    responses((status = 200, description = "By model", body = List<SparesView>)))]
pub(super) async fn spares(State(manager): State<App>) -> Json<List<SparesView>> {
    let tables = manager.records.snapshot();
    let config = &manager.settings.spares;
    Json(crate::spares::all(&tables, config, Timestamp::now()).into_iter().collect())
}

/// What is not healthy, or was not lately.
#[utoipa::path(get, path = "/v1/health", tag = "pool",
    responses((status = 200, description = "By what it is about", body = List<HealthRecord>)))]
pub(super) async fn health(State(manager): State<App>) -> Json<List<HealthRecord>> {
    Json(manager.records.snapshot().health().values().cloned().collect())
}
