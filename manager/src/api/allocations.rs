//! Lending and taking back.

use super::App;
use super::extract::{Body, Params, Segments, client_key, parse};
use super::{lender, views};
use crate::manager::Manager;
use crate::operations::{self, ClientKey, ReleaseMode, ReleaseTarget};
use crate::planner::PlanRequest;
use crate::types::{AllocationId, BindingId, NodeName, OperationRecord, Problem, ProblemCode};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use manager_client::bodies::{AllocateBody, ProblemBody};
use manager_client::views::{AllocationView, BindingView, List};
use serde::{Deserialize, Serialize};
use tlp_codec::ids::SlotId;
use utoipa::IntoParams;

/// Longest reason, bytes.
pub(super) const MAX_REASON: usize = 256;

/// Longest bound that an operating system can be given to let go, milliseconds.
pub(super) const MAX_WITHIN_MS: u32 = 600_000;

/// What a request wants, checked.
fn check(body: &AllocateBody) -> Result<PlanRequest, Problem> {
    let slot = |number: u8| match SlotId::new(number) {
        Ok(slot) if slot != SlotId::HOST => Ok(slot),
        _ => Err(Problem::invalid("slot", "slots are numbered from 1")),
    };
    if body.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        return Err(Problem::invalid("reason", format!("at most {MAX_REASON} bytes")));
    }
    if let Some(lease_ms) = body.lease_ms {
        lender::check_time("lease_ms", lease_ms, 1)?;
    }
    body.link.check().map_err(|(field, why)| Problem::invalid(field, why))?;
    Ok(PlanRequest {
        host: parse::<NodeName>("host", &body.host)?,
        count: body.count,
        model: body.model.clone(),
        box_name: body.box_name.as_ref().map(|name| parse("box", name)).transpose()?,
        slot: body.slot.map(slot).transpose()?,
    })
}

/// 202 with an operation and its address.
pub(super) fn accepted(operation: OperationRecord) -> Response {
    let location = [(header::LOCATION, format!("/v1/operations/{}", operation.id))];
    (StatusCode::ACCEPTED, location, Json(operation)).into_response()
}

pub(super) fn refuse_if_stopping(manager: &Manager) -> Result<(), Problem> {
    if manager.is_stopping() {
        return Err(Problem::new(ProblemCode::Stopping, "the manager is stopping"));
    }
    Ok(())
}

/// Lend slots to a host. All or nothing.
#[utoipa::path(post, path = "/v1/allocations", tag = "allocations", request_body = AllocateBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn allocate(
    State(manager): State<App>,
    headers: HeaderMap,
    Body(body): Body<AllocateBody>,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let request = check(&body)?;
    let key = client_key(&headers, &body)?;
    let live = &manager.registry;
    let changed = manager.records.change(|txn| {
        let (reason, link) = (body.reason.clone(), body.link.clone());
        operations::allocate(txn, live, &request, reason, link, body.lease_ms, key)
    });
    changed.await.map(accepted)
}

/// All allocations.
#[utoipa::path(get, path = "/v1/allocations", tag = "allocations",
    responses((status = 200, description = "By number", body = List<AllocationView>)))]
pub(super) async fn list(State(manager): State<App>) -> Json<List<AllocationView>> {
    let tables = manager.records.snapshot();
    Json(tables.allocations().values().map(|a| views::allocation(&manager, &tables, a)).collect())
}

/// One allocation.
#[utoipa::path(get, path = "/v1/allocations/{id}", tag = "allocations",
    params(("id" = String, Path, description = "alloc-N")),
    responses((status = 200, description = "The allocation", body = AllocationView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(manager): State<App>,
    Segments(id): Segments<String>,
) -> Result<Json<AllocationView>, Problem> {
    let id: AllocationId = parse("id", &id)?;
    let tables = manager.records.snapshot();
    let allocation = tables.allocations().get(&id).ok_or_else(|| {
        let detail = format!("there is no allocation {id}, or it was released");
        Problem::new(ProblemCode::NoSuchAllocation, detail)
    })?;
    Ok(Json(views::allocation(&manager, &tables, allocation)))
}

/// How to release.
#[derive(Debug, Default, Deserialize, Serialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseParams {
    /// At once, without asking the operating system and without waiting for a host that is away.
    #[serde(default)]
    force: bool,
    /// How long the operating system has to let go before it is made to, milliseconds.
    #[param(maximum = 600_000)]
    within_ms: Option<u32>,
}

impl ReleaseParams {
    fn mode(&self, manager: &Manager) -> Result<ReleaseMode, Problem> {
        match (self.force, self.within_ms) {
            (true, Some(_)) => Err(Problem::invalid("within_ms", "force does not wait")),
            (true, None) => Ok(ReleaseMode::Force),
            (false, Some(ms)) if ms > MAX_WITHIN_MS => {
                Err(Problem::invalid("within_ms", format!("at most {MAX_WITHIN_MS}")))
            }
            (false, given) => {
                let usual = manager.settings.orderly_bound.as_millis() as u32;
                Ok(ReleaseMode::Orderly { within_ms: given.unwrap_or(usual) })
            }
        }
    }
}

async fn take_back(
    manager: &App,
    target: ReleaseTarget,
    mode: ReleaseMode,
    key: Option<ClientKey>,
) -> Result<Response, Problem> {
    refuse_if_stopping(manager)?;
    let changed = manager.records.change(|txn| operations::release(txn, target, mode, key));
    changed.await.map(accepted)
}

/// Take everything of an allocation back.
#[utoipa::path(delete, path = "/v1/allocations/{id}", tag = "allocations",
    params(("id" = String, Path, description = "alloc-N"), ReleaseParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn release(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Params(params): Params<ReleaseParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id: AllocationId = parse("id", &id)?;
    let key = client_key(&headers, &(id, &params))?;
    take_back(&manager, ReleaseTarget::Allocation(id), params.mode(&manager)?, key).await
}

/// All bindings.
#[utoipa::path(get, path = "/v1/bindings", tag = "allocations",
    responses((status = 200, description = "By number", body = List<BindingView>)))]
pub(super) async fn bindings(State(manager): State<App>) -> Json<List<BindingView>> {
    let tables = manager.records.snapshot();
    Json(tables.bindings().values().map(|b| views::binding(&tables, b)).collect())
}

/// One binding.
#[utoipa::path(get, path = "/v1/bindings/{id}", tag = "allocations",
    params(("id" = String, Path, description = "bind-N")),
    responses((status = 200, description = "The binding", body = BindingView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show_binding(
    State(manager): State<App>,
    Segments(id): Segments<String>,
) -> Result<Json<BindingView>, Problem> {
    let id: BindingId = parse("id", &id)?;
    let tables = manager.records.snapshot();
    let binding = tables.bindings().get(&id).ok_or_else(|| {
        let detail = format!("there is no binding {id}, or it was released");
        Problem::new(ProblemCode::NoSuchBinding, detail)
    })?;
    Ok(Json(views::binding(&tables, binding)))
}

/// Take one binding's slot back; the rest of its allocation stays.
#[utoipa::path(delete, path = "/v1/bindings/{id}", tag = "allocations",
    params(("id" = String, Path, description = "bind-N"), ReleaseParams,
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn release_binding(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Params(params): Params<ReleaseParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id: BindingId = parse("id", &id)?;
    let key = client_key(&headers, &(id, &params))?;
    take_back(&manager, ReleaseTarget::Binding(id), params.mode(&manager)?, key).await
}
