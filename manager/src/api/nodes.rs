//! Proxies and the manager itself.

use super::App;
use super::allocations::{accepted, refuse_if_stopping};
use super::conditional::{IfMatch, shown};
use super::extract::{Params, Segments, client_key, parse};
use super::listing::{Listing, Paging};
use super::views;
use crate::operations::forget;
use crate::records::Trouble;
use crate::types::{NodeName, OperationRecord, Problem, ProblemCode, Role};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use manager_client::bodies::ProblemBody;
use manager_client::views::{Health, List, NodeView, StoreTrouble};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// Whether the manager can serve requests.
#[utoipa::path(get, path = "/v1/healthz", tag = "manager",
    responses((status = 200, description = "It can, or says what it cannot", body = Health),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn healthz(State(manager): State<App>) -> Json<Health> {
    let tables = manager.records.snapshot();
    let trouble = manager.records.trouble();
    Json(Health {
        status: if trouble.is_some() { "store-failed" } else { "ok" }.into(),
        store_trouble: trouble.map(|Trouble { since, reason }| StoreTrouble { since, reason }),
        version: env!("CARGO_PKG_VERSION").into(),
        term: manager.term().0,
        generation: tables.meta().generation,
        connected: manager.registry.count(),
        running_operations: tables.running().count(),
    })
}

/// Which proxies.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only of this role.
    role: Option<Role>,
    /// Only those that are connected, or are not.
    connected: Option<bool>,
}

impl Filter {
    fn lets(&self, role: Role, connected: impl FnOnce() -> bool) -> bool {
        self.role.is_none_or(|wanted| wanted == role)
            && self.connected.is_none_or(|wanted| wanted == connected())
    }
}

/// All proxies that were ever here.
#[utoipa::path(get, path = "/v1/nodes", tag = "pool", params(Filter, Paging),
    responses((status = 200, description = "By name", body = List<NodeView>),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(manager): State<App>,
    Listing(filter, paging): Listing<Filter>,
) -> Result<Json<List<NodeView>>, Problem> {
    let tables = manager.records.snapshot();
    let nodes = tables
        .nodes()
        .iter()
        .filter(|(name, record)| filter.lets(record.role, || manager.registry.get(name).is_some()));
    let nodes = nodes.map(|(name, record)| (name.clone(), record));
    paging.page(nodes, |record| Some(views::node(&manager, &tables, record))).map(Json)
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
        let detail = format!("there is no proxy with the name {name}, or it was forgotten");
        Problem::new(ProblemCode::NoSuchNode, detail)
    })?;
    Ok(Json(views::node(&manager, &tables, record)))
}

/// How to forget a proxy.
#[derive(Debug, Default, Deserialize, Serialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ForgetParams {
    /// Also when something is lent there, which ends as lost.
    #[serde(default)]
    force: bool,
}

/// Forget a proxy that is gone for good. It must not be connected.
#[utoipa::path(delete, path = "/v1/nodes/{name}", tag = "pool",
    params(("name" = String, Path, description = "Name of the proxy"), ForgetParams,
        ("If-Match" = Option<String>, Header, description = "Only if the proxy still has this tag; status 412 else"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same request gives the same operation")),
    responses((status = 202, description = "The operation that does it", body = OperationRecord,
            headers(("location" = String, description = "Where the operation is"))),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn forget(
    State(manager): State<App>,
    Segments(name): Segments<String>,
    Params(params): Params<ForgetParams>,
    headers: HeaderMap,
    if_match: IfMatch,
) -> Result<Response, Problem> {
    refuse_if_stopping(&manager)?;
    let name: NodeName = parse("name", &name)?;
    let key = client_key(&headers, &(&name, &params))?;
    let forgotten = manager.records.change(|txn| {
        if_match.check_unless_repeated(txn, key.as_ref(), || {
            txn.nodes().get(&name).map(|record| shown(&views::node(&manager, txn, record)))
        })?;
        let connected = manager.registry.get(&name).is_some();
        let rules = &manager.settings.erase;
        forget::forget(txn, rules, &name, params.force, connected, key)
    });
    let operation = forgotten.await?;
    // What the records forget is forgotten here too: the request is served to its end, whether its
    // client stays or not. The same request may come again when a proxy of that name is there.
    if !manager.records.snapshot().nodes().contains_key(&name) {
        manager.registry.forget(&name);
        manager.observed.forgotten(&name);
    }
    Ok(accepted(operation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit;
    use crate::config::Settings;
    use crate::manager::Manager;
    use crate::records::Records;
    use crate::store::EmbeddedStore;
    use crate::types::{AuditRecord, NodeRecord, Timestamp};
    use axum::extract::FromRequestParts;
    use axum::http::Request;
    use std::sync::Arc;

    #[tokio::test]
    async fn what_forgets_a_proxy_takes_the_entry_of_the_audit_log_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let records = Records::open(Arc::new(EmbeddedStore::open(&path).unwrap()), &path).unwrap();
        let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
        let put = manager.records.apply(|txn| {
            let (node, now) = (txn.new_node_id().unwrap(), txn.now());
            let name = NodeName::new("box1").unwrap();
            let role = Role::Box;
            txn.put_node(NodeRecord::new(name, node, role, 1, now));
        });
        put.await.unwrap();
        let entry = AuditRecord {
            sequence: 0,
            at: Timestamp::now(),
            actor: Some("ada@desk".into()),
            peer: "127.0.0.1:1".into(),
            method: "DELETE".into(),
            path: "/v1/nodes/box1".into(),
            what: None,
            operation: None,
            problem: None,
        };
        let mut parts = Request::new(()).into_parts().0;
        let if_match = IfMatch::from_request_parts(&mut parts, &()).await.unwrap();
        let asked = forget(
            State(manager.clone()),
            Segments("box1".to_owned()),
            Params(ForgetParams::default()),
            HeaderMap::new(),
            if_match,
        );
        let (answer, served) = audit::on_behalf(entry, asked).await;
        answer.unwrap();
        assert!(served.entry.is_none(), "the change took it");
        let tables = manager.records.snapshot();
        assert!(tables.nodes().is_empty());
        let entry = tables.audit().values().next().unwrap();
        assert!(entry.operation.is_some(), "{entry:?}");
    }
}
