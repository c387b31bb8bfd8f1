//! What the lender does: how long something is lent, and taking it back.

use super::App;
use super::allocations::{MAX_REASON, MAX_WITHIN_MS, accepted, refuse_if_stopping, shown_target};
use super::conditional::IfMatch;
use super::extract::{Body, Segments, check_text, client_key, parse};
use super::listing::{Listing, Paging};
use super::pool::shown_slot;
use super::views;
use crate::manager::Manager;
use crate::operations::lease::{self, MAX_LEASE_MS};
use crate::operations::replace::Replace;
use crate::operations::take_back::{self, Lent, TakeBack};
use crate::operations::{ReleaseTarget, choosing};
use crate::types::{
    AllocationId, BindingId, HealthRecord, HealthState, NodeName, OperationRecord, Place, Problem,
    Subject, Timestamp,
};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use manager_client::bodies::{LeaseBody, ProblemBody, ReplaceBody, TakeBackBody};
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
    if reason.trim().is_empty() {
        let why = "it is what the borrower is told; it cannot be empty";
        return Err(Problem::invalid("reason", why));
    }
    check_text("reason", reason, MAX_REASON)
}

/// How long an operating system has to let go.
pub(super) fn within(manager: &Manager, given: Option<u32>) -> Result<u32, Problem> {
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
    params(("id" = String, Path, description = "alloc-N"),
        ("If-Match" = Option<String>, Header, description = "Only if the allocation still has this tag; status 412 else")),
    request_body = LeaseBody,
    responses((status = 200, description = "The allocation", body = AllocationView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn extend(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    if_match: IfMatch,
    Body(body): Body<LeaseBody>,
) -> Result<Json<AllocationView>, Problem> {
    refuse_if_stopping(&manager)?;
    let id: AllocationId = parse("id", &id)?;
    check_time("lease_ms", body.lease_ms, 1)?;
    let extended = manager.records.change(|txn| {
        let what = ReleaseTarget::Allocation(id);
        if_match.check(|| shown_target(&manager, txn, what))?;
        lease::extend(txn, id, body.lease_ms, |lease| lease::left(&manager, id, lease))
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
    match what.parse() {
        // A path or fabric carries what is lent and is not lent itself: it can be drained.
        Ok(Place::Path(_) | Place::Fabric(_)) | Err(_) => {
            let why = format!(
                "{what:?} is none of alloc-N, bind-N, BOX/SLOT, a proxy's name, rack:NAME or \
                 site:NAME"
            );
            Err(Problem::invalid("what", why))
        }
        Ok(place) => Ok(Lent::Place(place)),
    }
}

/// Take back what was lent, after a time in which the borrower can do it itself.
#[utoipa::path(post, path = "/v1/take-backs", tag = "allocations", request_body = TakeBackBody,
    params(("If-Match" = Option<String>, Header, description = "Only if the allocation, binding or slot still has this tag; status 412 else"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn take_back(
    State(manager): State<App>,
    headers: HeaderMap,
    if_match: IfMatch,
    Body(body): Body<TakeBackBody>,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let what = lent(&body.what)?;
    check_time("grace_ms", body.grace_ms, 0)?;
    check_reason(&body.reason)?;
    let within_ms = within(&manager, body.within_ms)?;
    let key = client_key(&headers, &body)?;
    let how = TakeBack { grace_ms: body.grace_ms, within_ms, reason: body.reason };
    let one = matches!(what, Lent::One(_) | Lent::Place(Place::Slot(_)));
    if if_match.is_given() && !one {
        let why = "a proxy, rack or site has no tag of all that is lent there; name an allocation, \
                   binding or slot";
        return Err(Problem::invalid("if-match", why));
    }
    let changed = manager.records.change(|txn| {
        if_match.check_unless_repeated(txn, key.as_ref(), || match &what {
            Lent::One(target) => shown_target(&manager, txn, *target),
            Lent::Place(Place::Slot(slot)) => shown_slot(&manager, txn, slot),
            Lent::Place(_) => None,
        })?;
        take_back::take_back(txn, &what, &how, key)
    });
    changed.await.map(accepted)
}

/// Put another device of the same kind in the place of a lent one, on the same host. All or nothing.
#[utoipa::path(post, path = "/v1/bindings/{id}/replace", tag = "allocations",
    params(("id" = String, Path, description = "bind-N"),
        ("If-Match" = Option<String>, Header, description = "Only if the binding still has this tag; status 412 else"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    request_body = ReplaceBody,
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn replace(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    headers: HeaderMap,
    if_match: IfMatch,
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
    let begun = choosing::replace(&manager, id, &how, key.as_ref(), |txn| {
        let what = ReleaseTarget::Binding(id);
        if_match.check_unless_repeated(txn, key.as_ref(), || shown_target(&manager, txn, what))
    });
    begun.await.map(accepted)
}

/// Which models.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SparesFilter {
    /// Only this model, upper and lower case alike.
    model: Option<String>,
}

/// The spares of each model, and how many it needs.
#[utoipa::path(get, path = "/v1/spares", tag = "pool", params(SparesFilter, Paging),
    responses((status = 200, description = "By model", body = List<SparesView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn spares(
    State(manager): State<App>,
    Listing(filter, paging): Listing<SparesFilter>,
) -> Result<Json<List<SparesView>>, Problem> {
    let tables = manager.records.snapshot();
    let all =
        crate::spares::all(&tables, &manager.registry, &manager.settings.spares, Timestamp::now());
    let wanted = all.into_iter().filter(|spares| {
        filter.model.as_ref().is_none_or(|model| model.eq_ignore_ascii_case(&spares.model))
    });
    // In this order they come.
    let wanted = wanted.map(|spares| (spares.model.to_ascii_lowercase(), spares));
    paging.page(wanted, Some).map(Json)
}

/// What has a health.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HealthFilter {
    /// Only what is so.
    state: Option<HealthState>,
    /// Only this proxy, its slots, and the paths from it and to it.
    node: Option<NodeName>,
}

impl HealthFilter {
    fn lets(&self, record: &HealthRecord) -> bool {
        let about = |name: &NodeName| match &record.subject {
            Subject::Node { node } => node == name,
            Subject::Slot { slot } => slot.box_name() == name,
            Subject::Path { from, to, .. } => from == name || to == name,
        };
        self.state.is_none_or(|state| state == record.state) && self.node.as_ref().is_none_or(about)
    }
}

/// What is not healthy, or was not lately.
#[utoipa::path(get, path = "/v1/health", tag = "pool", params(HealthFilter, Paging),
    responses((status = 200, description = "By what it is about", body = List<HealthRecord>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn health(
    State(manager): State<App>,
    Listing(filter, paging): Listing<HealthFilter>,
) -> Result<Json<List<HealthRecord>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.health().iter().filter(|(_, record)| filter.lets(record));
    let wanted = wanted.map(|(subject, record)| (subject.clone(), record));
    paging.page(wanted, |record| Some(record.clone())).map(Json)
}
