//! The audit log and the metrics.

use super::App;
use super::listing::{Listing, Paging};
use crate::types::{AuditRecord, OperationId, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use manager_client::bodies::ProblemBody;
use manager_client::views::List;
use serde::Deserialize;
use std::cmp::Reverse;
use utoipa::IntoParams;

/// Which entries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only of this actor.
    actor: Option<String>,
    /// Only with this method.
    method: Option<String>,
    /// Only with paths that begin so.
    path: Option<String>,
    /// Only what began this operation.
    operation: Option<OperationId>,
    /// Only what was refused, or was not.
    refused: Option<bool>,
}

impl Filter {
    fn lets(&self, entry: &AuditRecord) -> bool {
        (self.actor.is_none() || self.actor == entry.actor)
            && self.method.as_ref().is_none_or(|m| m.eq_ignore_ascii_case(&entry.method))
            && self.path.as_ref().is_none_or(|path| entry.path.starts_with(path))
            && (self.operation.is_none() || self.operation == entry.operation)
            && self.refused.is_none_or(|refused| refused == entry.problem.is_some())
    }
}

/// Who changed what, or tried to. The last 10,000 such requests are kept.
#[utoipa::path(get, path = "/v1/audit", tag = "manager", params(Filter, Paging),
    responses((status = 200, description = "Latest first", body = List<AuditRecord>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<AuditRecord>>, Problem> {
    let tables = manager.records.snapshot();
    let wanted = tables.audit().iter().rev().filter(|(_, entry)| filter.lets(entry));
    let wanted = wanted.map(|(sequence, entry)| (Reverse(*sequence), entry));
    paging.page(wanted, |entry| Some(entry.clone())).map(Json)
}

/// The media type of [`metrics`].
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Numbers for Prometheus, in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "manager",
    responses((status = 200, description = "All that is measured", body = String, content_type = "application/openmetrics-text"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn metrics(State(manager): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], manager.metrics.text(&manager))
}
