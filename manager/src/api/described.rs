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

/// The names of the parameters after the question mark that each route has.
type Routes = BTreeMap<(Method, String), BTreeSet<String>>;

fn names(item: &PathItem, operation: &Operation) -> BTreeSet<String> {
    let all = [&item.parameters, &operation.parameters].into_iter().flatten().flatten();
    let after = all.filter(|parameter| parameter.parameter_in == ParameterIn::Query);
    after.map(|parameter| parameter.name.clone()).collect()
}

static ROUTES: LazyLock<Routes> = LazyLock::new(|| {
    let mut routes = Routes::new();
    for (path, item) in super::description().paths.paths {
        for (method, operation) in [
            (Method::GET, &item.get),
            (Method::PUT, &item.put),
            (Method::POST, &item.post),
            (Method::DELETE, &item.delete),
            (Method::PATCH, &item.patch),
        ] {
            if let Some(operation) = operation {
                routes.insert((method, path.clone()), names(&item, operation));
            }
        }
    }
    routes
});

/// The names of the parameters that a route takes after the question mark; nothing if there is no
/// such route.
pub(super) fn parameters(method: &Method, path: &str) -> Option<&'static BTreeSet<String>> {
    let method = if method == Method::HEAD { Method::GET } else { method.clone() };
    ROUTES.get(&(method, path.to_owned()))
}

/// Refuses parameters that a route does not have: what is misspelt would else be as if it had not
/// been said.
pub(super) async fn refuse_others(request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let known = path.and_then(|path| parameters(request.method(), path));
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
