//! What kinds of problems there are: where `type` of a problem leads.

use super::extract::{Segments, parse};
use super::listing::{Listing, Paging};
use crate::types::{Problem, ProblemCode};
use axum::Json;
use manager_client::bodies::{ProblemBody, ProblemKind};
use manager_client::views::List;
use serde::Deserialize;
use utoipa::IntoParams;

/// Which kinds.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only those with this HTTP status.
    #[param(minimum = 400, maximum = 599)]
    status: Option<u16>,
}

/// Every kind of problem.
#[utoipa::path(get, path = "/v1/problems", tag = "manager", params(Filter, Paging),
    responses((status = 200, description = "By name", body = List<ProblemKind>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<ProblemKind>>, Problem> {
    if filter.status.is_some_and(|status| !(400..600).contains(&status)) {
        return Err(Problem::invalid("status", "400 to 599"));
    }
    let mut wanted: Vec<(String, ProblemCode)> = ProblemCode::ALL
        .iter()
        .filter(|code| filter.status.is_none_or(|status| status == code.status()))
        .map(|code| (code.to_string(), *code))
        .collect();
    wanted.sort_by(|(a, _), (b, _)| a.cmp(b));
    paging.page(wanted, |code| Some(ProblemKind::from(code))).map(Json)
}

/// One kind of problem: what it means and what to do. `type` of a problem is this address.
#[utoipa::path(get, path = "/v1/problems/{code}", tag = "manager",
    params(("code" = ProblemCode, Path, description = "Its code")),
    responses((status = 200, description = "The kind", body = ProblemKind),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(Segments(code): Segments<String>) -> Result<Json<ProblemKind>, Problem> {
    let known: Result<ProblemCode, Problem> = parse("code", &code);
    let is_spelt_as_one = code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    if known.is_err() && is_spelt_as_one {
        let detail = format!("there is no kind of problem called {code:?}");
        return Err(Problem::new(ProblemCode::NoSuchPath, detail));
    }
    Ok(Json(ProblemKind::from(known?)))
}
