//! Proxies and the manager itself.

use super::App;
use super::extract::{Segments, parse};
use super::views;
use crate::types::{NodeName, Problem, ProblemCode};
use axum::Json;
use axum::extract::State;
use manager_client::bodies::ProblemBody;
use manager_client::views::{Health, List, NodeView};

/// Whether the manager can serve requests.
#[utoipa::path(get, path = "/v1/healthz", tag = "manager",
    responses((status = 200, description = "It can", body = Health)))]
pub(super) async fn healthz(State(manager): State<App>) -> Json<Health> {
    let tables = manager.records.snapshot();
    Json(Health {
        status: "ok".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        term: manager.term().0,
        generation: tables.meta().generation,
        connected: manager.registry.count(),
        running_operations: tables.running().count(),
    })
}

/// All proxies that were ever here.
#[utoipa::path(get, path = "/v1/nodes", tag = "pool",
    responses((status = 200, description = "By name", body = List<NodeView>)))]
pub(super) async fn list(State(manager): State<App>) -> Json<List<NodeView>> {
    let tables = manager.records.snapshot();
    let view = |record| views::node(&manager, &tables, record);
    Json(tables.nodes().values().map(view).collect())
}

/// One proxy.
#[utoipa::path(get, path = "/v1/nodes/{name}", tag = "pool",
    params(("name" = String, Path, description = "Name of the proxy")),
    responses((status = 200, description = "The proxy", body = NodeView),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn show(
    State(manager): State<App>,
    Segments(name): Segments<String>,
) -> Result<Json<NodeView>, Problem> {
    let name: NodeName = parse("name", &name)?;
    let tables = manager.records.snapshot();
    let record = tables.nodes().get(&name).ok_or_else(|| {
        let detail = format!("no proxy with the name {name} was ever here");
        Problem::new(ProblemCode::NoSuchNode, detail)
    })?;
    Ok(Json(views::node(&manager, &tables, record)))
}
