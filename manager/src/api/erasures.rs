//! What was erased, what could not be, and erasing by hand.

use super::App;
use super::allocations::MAX_REASON;
use super::conditional::IfMatch;
use super::extract::{Body, Segments, check_text, parse};
use super::listing::{Listing, Paging};
use super::pool::{find_slot, shown_slot};
use crate::erasure::request;
use crate::types::{
    ErasureId, ErasureRecord, ErasureState, NodeName, Problem, ProblemCode, SlotAddress,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manager_client::bodies::{EraseBody, ProblemBody, WaiveBody};
use manager_client::views::{ErasureView, List};
use serde::Deserialize;
use std::cmp::Reverse;
use utoipa::IntoParams;

fn view(record: &ErasureRecord) -> ErasureView {
    let serial = record.functions.first().map_or(0, |function| function.serial);
    ErasureView {
        id: record.id,
        slot: record.slot.clone(),
        model: record.model.clone(),
        serial: (serial != 0).then(|| format!("{serial:016x}")),
        host: record.host.clone(),
        allocation: record.allocation,
        operation: record.operation,
        state: record.state,
        permille: record.permille,
        detail: record.detail.clone(),
        required: record.rule.required,
        since: record.since,
        ended: record.ended,
    }
}

/// Which erasures.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only those that stand so.
    state: Option<ErasureState>,
    /// Only of devices in this slot.
    slot: Option<SlotAddress>,
    /// Only of what this host had.
    host: Option<NodeName>,
}

impl Filter {
    fn lets(&self, record: &ErasureRecord) -> bool {
        self.state.is_none_or(|state| state == record.state)
            && self.slot.as_ref().is_none_or(|slot| *slot == record.slot)
            && (self.host.is_none() || self.host == record.host)
    }
}

/// The erasures that are kept, latest first.
#[utoipa::path(get, path = "/v1/erasures", tag = "erasures", params(Filter, Paging),
    responses((status = 200, description = "Latest first", body = List<ErasureView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<ErasureView>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.erasures().iter().rev().filter(|(_, record)| filter.lets(record));
    let wanted = wanted.map(|(id, record)| (Reverse(id.0), record));
    paging.page(wanted, |record| Some(view(record))).map(Json)
}

/// One erasure.
#[utoipa::path(get, path = "/v1/erasures/{id}", tag = "erasures",
    params(("id" = String, Path, description = "erase-N")),
    responses((status = 200, description = "The erasure", body = ErasureView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(manager): State<App>,
    Segments(id): Segments<String>,
) -> Result<Json<ErasureView>, Problem> {
    let id: ErasureId = parse("id", &id)?;
    let tables = manager.records.snapshot();
    match tables.erasures().get(&id) {
        Some(record) => Ok(Json(view(record))),
        None => {
            let detail = format!("there is no erasure {id}, or it is no longer kept");
            Err(Problem::new(ProblemCode::NoSuchErasure, detail))
        }
    }
}

/// Erase the device in a slot that is not lent now, by the rule that is for it, else by any of its
/// own means; or take one that could not be erased as it is.
#[utoipa::path(post, path = "/v1/boxes/{name}/slots/{slot}/erase", tag = "erasures",
    params(("name" = String, Path, description = "Name of the box"),
        ("slot" = u8, Path, description = "Number of the slot, from 1"),
        ("If-Match" = Option<String>, Header, description = "Only if the slot still has this tag; status 412 else")),
    request_body = EraseBody,
    responses((status = 202, description = "It is begun", body = ErasureView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn erase(
    State(manager): State<App>,
    Segments((name, slot)): Segments<(String, String)>,
    if_match: IfMatch,
    Body(body): Body<EraseBody>,
) -> Result<(StatusCode, Json<ErasureView>), Problem> {
    let slot = find_slot(&manager.records.snapshot(), &name, &slot)?;
    body.waive.as_ref().map_or(Ok(()), |why| check_reason("waive", why))?;
    let rules = &manager.settings.erase;
    let changed = manager.records.change(|txn| {
        if_match.check(|| shown_slot(&manager, txn, &slot))?;
        match &body.waive {
            Some(why) => request::waive(txn, &slot, why),
            None => request::erase(txn, rules, &slot),
        }
    });
    let record = changed.await?;
    Ok((StatusCode::ACCEPTED, Json(view(&record))))
}

/// Take the device of an erasure that failed or is owed as it is, wherever it is.
#[utoipa::path(post, path = "/v1/erasures/{id}/waive", tag = "erasures",
    params(("id" = String, Path, description = "erase-N")),
    request_body = WaiveBody,
    responses((status = 200, description = "It is taken as it is", body = ErasureView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn waive(
    State(manager): State<App>,
    Segments(id): Segments<String>,
    Body(body): Body<WaiveBody>,
) -> Result<Json<ErasureView>, Problem> {
    let id: ErasureId = parse("id", &id)?;
    check_reason("reason", &body.reason)?;
    let waived = manager.records.change(|txn| request::waive_one(txn, id, &body.reason));
    Ok(Json(view(&*waived.await?)))
}

fn check_reason(field: &str, reason: &str) -> Result<(), Problem> {
    if reason.is_empty() {
        return Err(Problem::invalid(field, "why it is taken as it is, in 1 to 256 bytes"));
    }
    check_text(field, reason, MAX_REASON)
}
