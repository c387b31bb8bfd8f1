//! What was erased, what could not be, and erasing by hand.

use super::App;
use super::extract::{Body, Segments, parse};
use super::pool::find_slot;
use crate::erasure::request;
use crate::types::{ErasureId, ErasureRecord, Problem, ProblemCode};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manager_client::bodies::{EraseBody, ProblemBody};
use manager_client::views::{ErasureView, List};

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

/// The erasures that are kept, latest first.
#[utoipa::path(get, path = "/v1/erasures", tag = "erasures",
    responses((status = 200, description = "Latest first", body = List<ErasureView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(State(manager): State<App>) -> Json<List<ErasureView>> {
    let tables = manager.records.snapshot();
    Json(tables.erasures().values().rev().map(|record| view(record)).collect())
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
        ("slot" = u8, Path, description = "Number of the slot, from 1")),
    request_body = EraseBody,
    responses((status = 202, description = "It is begun", body = ErasureView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn erase(
    State(manager): State<App>,
    Segments((name, slot)): Segments<(String, String)>,
    Body(body): Body<EraseBody>,
) -> Result<(StatusCode, Json<ErasureView>), Problem> {
    let slot = find_slot(&manager.records.snapshot(), &name, &slot)?;
    if body.waive.as_ref().is_some_and(|why| why.is_empty() || why.len() > 256) {
        return Err(Problem::invalid("waive", "why it is taken as it is, in 1 to 256 bytes"));
    }
    let rules = &manager.settings.erase;
    let changed = manager.records.change(|txn| match &body.waive {
        Some(why) => request::waive(txn, &slot, why),
        None => request::erase(txn, rules, &slot),
    });
    let record = changed.await?;
    Ok((StatusCode::ACCEPTED, Json(view(&record))))
}
