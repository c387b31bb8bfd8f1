//! Holding back and emptying.

use super::App;
use super::allocations::{accepted, refuse_if_stopping};
use super::conditional::{IfMatch, shown};
use super::extract::{Body, Params, client_key, parse};
use super::lender::{check_reason, within};
use super::listing::{Listing, Paging};
use crate::operations::drain::{self, Drain};
use crate::operations::holds;
use crate::records::Tables;
use crate::types::{HoldKind, HoldRecord, OperationRecord, Place, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use manager_client::bodies::{DrainBody, HoldBody, ProblemBody};
use manager_client::views::List;
use serde::Deserialize;
use utoipa::IntoParams;

/// Empty something: it gets nothing new, and what is lent of it is released or replaced.
#[utoipa::path(post, path = "/v1/drains", tag = "pool", request_body = DrainBody,
    params(("If-Match" = Option<String>, Header, description = "Only if the list of holds with this place still has this tag; status 412 else"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn drain(
    State(manager): State<App>,
    headers: HeaderMap,
    if_match: IfMatch,
    Body(body): Body<DrainBody>,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let place: Place = parse("place", &body.place)?;
    check_reason(&body.reason)?;
    let within_ms = within(&manager, body.within_ms)?;
    let key = client_key(&headers, &body)?;
    let how = Drain { replace: body.replace, within_ms, reason: body.reason };
    let changed = manager.records.change(|txn| {
        if_match.check_unless_repeated(txn, key.as_ref(), || shown_at(txn, &place))?;
        drain::drain(txn, &manager.registry, &place, &how, key)
    });
    changed.await.map(accepted)
}

/// What is held back.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only this: BOX/SLOT, the name of a host or box, rack:NAME, site:NAME, fabric:NAME or path:N.
    place: Option<Place>,
    /// Only for this.
    kind: Option<HoldKind>,
}

impl Filter {
    fn lets(&self, hold: &HoldRecord) -> bool {
        self.place.as_ref().is_none_or(|place| *place == hold.place)
            && self.kind.is_none_or(|kind| kind == hold.kind)
    }
}

/// What is held back: it gets nothing new.
#[utoipa::path(get, path = "/v1/holds", tag = "pool", params(Filter, Paging),
    responses((status = 200, description = "By place", body = List<HoldRecord>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn holds(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<HoldRecord>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.holds().iter().filter(|(_, hold)| filter.lets(hold));
    let wanted = wanted.map(|(place, hold)| (place.clone(), hold));
    paging.page(wanted, |hold| Some(hold.clone())).map(Json)
}

/// What `/v1/holds?place=` says of a place, whether it is held back or not.
fn shown_at(tables: &Tables, place: &Place) -> Option<Vec<u8>> {
    let there: List<HoldRecord> = tables.holds().get(place).cloned().into_iter().collect();
    Some(shown(&there))
}

/// Hold something back, because somebody works on it. What is lent there stays.
#[utoipa::path(post, path = "/v1/holds", tag = "pool", request_body = HoldBody,
    params(("If-Match" = Option<String>, Header, description = "Only if the list of holds with this place still has this tag; status 412 else")),
    responses((status = 200, description = "What is held back", body = HoldRecord),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn hold(
    State(manager): State<App>,
    if_match: IfMatch,
    Body(body): Body<HoldBody>,
) -> Result<Json<HoldRecord>, Problem> {
    refuse_if_stopping(&manager)?;
    let place: Place = parse("place", &body.place)?;
    check_reason(&body.reason)?;
    let held = manager.records.change(|txn| {
        if_match.check(|| shown_at(txn, &place))?;
        holds::maintain(txn, &place, &body.reason)
    });
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
#[utoipa::path(delete, path = "/v1/holds", tag = "pool",
    params(PlaceParams, ("If-Match" = Option<String>, Header, description = "Only if the list of holds with this place still has this tag; status 412 else")),
    responses((status = 200, description = "What was held back", body = HoldRecord),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn put_back(
    State(manager): State<App>,
    Params(params): Params<PlaceParams>,
    if_match: IfMatch,
) -> Result<Json<HoldRecord>, Problem> {
    refuse_if_stopping(&manager)?;
    let place: Place = parse("place", &params.place)?;
    let ended = manager.records.change(|txn| {
        if_match.check(|| shown_at(txn, &place))?;
        holds::put_back(txn, &place)
    });
    ended.await.map(Json)
}
