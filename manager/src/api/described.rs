//! What the API's own description says of its routes, for what holds at all of them.

use crate::types::Problem;
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use utoipa::openapi::PathItem;
use utoipa::openapi::path::{Operation, ParameterIn};

/// Where the description is.
pub(super) const DESCRIPTION: &str = "/v1/openapi.json";

/// What is said of one route.
#[derive(Debug)]
pub(super) struct Route {
    /// The names of its parameters after the question mark.
    pub(super) query: BTreeSet<String>,
    /// Whether it is a change that compares `If-Match` with the tag of what it changes.
    pub(super) if_match: bool,
}

fn described(item: &PathItem, operation: &Operation) -> Route {
    let all = || [&item.parameters, &operation.parameters].into_iter().flatten().flatten();
    let query = all().filter(|parameter| parameter.parameter_in == ParameterIn::Query);
    let query = query.map(|parameter| parameter.name.clone()).collect();
    let if_match = all().any(|parameter| parameter.name == "If-Match");
    Route { query, if_match }
}

static ROUTES: LazyLock<BTreeMap<String, Route>> = LazyLock::new(|| {
    let mut routes = BTreeMap::new();
    // The description itself, which it does not describe.
    let itself = Route { query: BTreeSet::new(), if_match: false };
    routes.insert(format!("{} {DESCRIPTION}", Method::GET), itself);
    for (path, item) in super::description().paths.paths {
        for (method, operation) in [
            (Method::GET, &item.get),
            (Method::PUT, &item.put),
            (Method::POST, &item.post),
            (Method::DELETE, &item.delete),
            (Method::PATCH, &item.patch),
        ] {
            if let Some(operation) = operation {
                routes.insert(format!("{method} {path}"), described(&item, operation));
            }
        }
    }
    routes
});

/// What is said of a route; nothing if there is none.
pub(super) fn route(method: &Method, path: &str) -> Option<&'static Route> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    ROUTES.get(&format!("{method} {path}"))
}

/// Refuses parameters that a route does not have: what is misspelt would else be as if it had not
/// been said.
pub(super) async fn refuse_others(request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let known = path.and_then(|path| route(request.method(), path)).map(|route| &route.query);
    let query = request.uri().query().unwrap_or_default();
    if let Some(known) = known
        && let Some((other, _)) = form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| !known.contains(name.as_ref()))
    {
        let list = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let why = match known.is_empty() {
            true => "this address takes no parameters".to_owned(),
            false => format!("this address takes only {list}"),
        };
        return Problem::invalid(&other, why).into_response();
    }
    next.run(request).await
}
