//! Lending and taking back.

use super::App;
use super::conditional::{IfMatch, shown};
use super::extract::{Body, Params, Segments, check_text, client_key, parse};
use super::listing::{Listing, Paging};
use super::{lender, views};
use crate::manager::Manager;
use crate::operations::{self, ClientKey, ReleaseMode, ReleaseTarget, Terms, asking, choosing};
use crate::planner::{self, PlanRequest, Prepared};
use crate::records::Tables;
use crate::types::wishes::MAX_TENANT;
use crate::types::{
    AllocationId, AllocationRecord, BindingId, BindingRecord, Explanation, NodeName,
    OperationRecord, Phase, Problem, ProblemCode, Wishes,
};
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
pub(crate) const MAX_WITHIN_MS: u32 = 600_000;

/// What a request wants, checked.
fn check(body: &AllocateBody) -> Result<PlanRequest, Problem> {
    let slot = |number: u8| match SlotId::new(number) {
        Ok(slot) if slot != SlotId::HOST => Ok(slot),
        _ => Err(Problem::invalid("slot", "slots are numbered from 1")),
    };
    // An empty reason is none.
    if let Some(reason) = body.reason.as_ref().filter(|reason| !reason.is_empty()) {
        check_text("reason", reason, MAX_REASON)?;
    }
    if let Some(lease_ms) = body.lease_ms {
        lender::check_time("lease_ms", lease_ms, 1)?;
    }
    if let Some(tenant) = &body.tenant {
        check_text("tenant", tenant, MAX_TENANT)?;
    }
    body.link.check().map_err(|(field, why)| Problem::invalid(&format!("link.{field}"), why))?;
    let wishes = Wishes {
        model: body.model.clone(),
        box_name: body.box_name.as_ref().map(|name| parse("box", name)).transpose()?,
        selector: body.selector.clone(),
        cel: body.cel.clone(),
        together: body.together,
        island_rate: body.island_rate,
        near: body.near,
        exclude: body.exclude.clone(),
    };
    wishes.check().map_err(|(field, why)| Problem::invalid(field, why))?;
    Ok(PlanRequest {
        host: parse::<NodeName>("host", &body.host)?,
        count: body.count,
        slot: body.slot.map(slot).transpose()?,
        island_of: None,
        beside: 0,
        wishes,
        link: body.link.clone(),
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

/// How to ask for slots.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AllocateParams {
    /// Only say what would be lent, or what stands in the way.
    #[serde(default)]
    dry_run: bool,
}

/// Lend slots to a host. All or nothing.
#[utoipa::path(post, path = "/v1/allocations", tag = "allocations", request_body = AllocateBody,
    params(AllocateParams, ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 200, description = "What would be lent, and why", body = Explanation),
        (status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn allocate(
    State(manager): State<App>,
    Params(params): Params<AllocateParams>,
    headers: HeaderMap,
    Body(body): Body<AllocateBody>,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let request = check(&body)?;
    let key = client_key(&headers, &body)?;
    if params.dry_run {
        let asked = manager.clone();
        let why = choosing::aside(&manager, move || {
            let tables = asked.records.snapshot();
            planner::check_excluded(&request, &tables)?;
            let prepared = Prepared::read(request)?.keeping(&asked.settings.spares);
            planner::explain(&prepared, &tables, &asked.registry)
        });
        return Ok(Json(why.await?).into_response());
    }
    let terms = Terms {
        tenant: body.tenant,
        reason: body.reason,
        lease_ms: body.lease_ms,
        keep_unenumerated: body.keep_unenumerated,
    };
    choosing::allocate(&manager, &request, &terms, key.as_ref()).await.map(accepted)
}

/// Which allocations.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only to this host.
    host: Option<NodeName>,
    /// Only for this tenant.
    tenant: Option<String>,
    /// Only for this reason.
    reason: Option<String>,
}

impl Filter {
    fn lets(&self, allocation: &AllocationRecord) -> bool {
        let (tenant, reason) = (&self.tenant, &self.reason);
        self.host.as_ref().is_none_or(|host| *host == allocation.host)
            && (tenant.is_none() || *tenant == allocation.tenant)
            && (reason.is_none() || *reason == allocation.reason)
    }
}

/// All allocations.
#[utoipa::path(get, path = "/v1/allocations", tag = "allocations", params(Filter, Paging),
    responses((status = 200, description = "By number", body = List<AllocationView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<AllocationView>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.allocations().iter().filter(|(_, allocation)| filter.lets(allocation));
    let wanted = wanted.map(|(id, allocation)| (*id, allocation));
    paging
        .page(wanted, |allocation| Some(views::allocation(&manager, &tables, allocation)))
        .map(Json)
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
    (key, if_match): (Option<ClientKey>, IfMatch),
) -> Result<Response, Problem> {
    refuse_if_stopping(manager)?;
    let changed = manager.records.change(|txn| {
        if_match.check_unless_repeated(txn, key.as_ref(), || shown_target(manager, txn, target))?;
        let begun = operations::release(txn, target, mode, key)?;
        Ok(asking::begin_at_once(txn, &manager.registry, begun))
    });
    changed.await.map(accepted)
}

/// What is to be released as the API shows it, if it is there.
pub(super) fn shown_target(
    manager: &Manager,
    tables: &Tables,
    target: ReleaseTarget,
) -> Option<Vec<u8>> {
    match target {
        ReleaseTarget::Allocation(id) => {
            tables.allocations().get(&id).map(|a| shown(&views::allocation(manager, tables, a)))
        }
        ReleaseTarget::Binding(id) => {
            tables.bindings().get(&id).map(|b| shown(&views::binding(tables, b)))
        }
    }
}

/// Take everything of an allocation back.
#[utoipa::path(delete, path = "/v1/allocations/{id}", tag = "allocations",
    params(("id" = String, Path, description = "alloc-N"), ReleaseParams,
        ("If-Match" = Option<String>, Header, description = "Only if it still has this tag; status 412 else"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn release(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Params(params): Params<ReleaseParams>,
    headers: HeaderMap,
    if_match: IfMatch,
) -> Result<Response, Problem> {
    let id: AllocationId = parse("id", &id)?;
    let key = client_key(&headers, &(id, &params))?;
    take_back(&manager, ReleaseTarget::Allocation(id), params.mode(&manager)?, (key, if_match))
        .await
}

/// Which bindings.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct BindingFilter {
    /// Only to this host.
    host: Option<NodeName>,
    /// Only of this box.
    #[serde(rename = "box")]
    in_box: Option<NodeName>,
    /// Only of this allocation.
    allocation: Option<AllocationId>,
    /// Only in this phase.
    phase: Option<Phase>,
}

impl BindingFilter {
    fn lets(&self, binding: &BindingRecord) -> bool {
        self.host.as_ref().is_none_or(|host| *host == binding.host)
            && self.in_box.as_ref().is_none_or(|name| name == binding.slot.box_name())
            && self.allocation.is_none_or(|id| id == binding.allocation)
            && self.phase.is_none_or(|phase| phase == binding.phase)
    }
}

/// All bindings.
#[utoipa::path(get, path = "/v1/bindings", tag = "allocations", params(BindingFilter, Paging),
    responses((status = 200, description = "By number", body = List<BindingView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn bindings(
    State(manager): State<App>,
    Listing(filter, paging): Listing<BindingFilter>,
) -> Result<Json<List<BindingView>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.bindings().iter().filter(|(_, binding)| filter.lets(binding));
    let wanted = wanted.map(|(id, binding)| (*id, binding));
    paging.page(wanted, |binding| Some(views::binding(&tables, binding))).map(Json)
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
        ("If-Match" = Option<String>, Header, description = "Only if it still has this tag; status 412 else"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn release_binding(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Params(params): Params<ReleaseParams>,
    headers: HeaderMap,
    if_match: IfMatch,
) -> Result<Response, Problem> {
    let id: BindingId = parse("id", &id)?;
    let key = client_key(&headers, &(id, &params))?;
    take_back(&manager, ReleaseTarget::Binding(id), params.mode(&manager)?, (key, if_match)).await
}
