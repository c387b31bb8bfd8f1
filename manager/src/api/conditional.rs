//! Entity tags: what has not changed is not sent again (`If-None-Match`), and what has changed is
//! not overwritten (`If-Match`). RFC 9110, sections 8.8.3 and 13.
//!
//! A tag is made of what the API shows, so that two tags of one resource are the same exactly if
//! the client sees the same. A change compares inside the same transaction that makes it.

use super::described;
use crate::operations::ClientKey;
use crate::records::Txn;
use crate::types::{Problem, ProblemCode};
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Answers that have a tag have at most so many bytes: others are files, or lists that nobody
/// keeps.
const MAX_TAGGED: usize = 1 << 20;

/// Times that run by themselves: a resource that is older by a second is no other one.
const RUNNING: [&str; 3] = ["left_ms", "away_ms", "taken_back_in_ms"];

/// The tag of a resource's bytes: 128 bits of the SHA-256, in quotes, of all but [`RUNNING`].
fn tag(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let runs = RUNNING.iter().any(|name| text.contains(name));
    let still = runs.then(|| serde_json::from_str(text).ok()).flatten().map(|mut value| {
        stop(&mut value);
        value.to_string()
    });
    let digest = Sha256::digest(still.as_ref().map_or(bytes, String::as_bytes));
    let digits: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

/// Takes [`RUNNING`] times out.
fn stop(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.retain(|name, _| !RUNNING.contains(&name.as_str()));
            fields.values_mut().for_each(stop);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(stop),
        _ => {}
    }
}

/// The tags of a header, or `*` for any.
fn names(value: &HeaderValue, own: &str) -> bool {
    let Ok(text) = value.to_str() else { return false };
    text.split(',')
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == own)
}

/// What the client wants the resource to be before it is changed.
pub(super) struct IfMatch(Vec<HeaderValue>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.headers.get_all(header::IF_MATCH).iter().cloned().collect()))
    }
}

impl IfMatch {
    /// Whether the client said anything.
    pub(super) fn is_given(&self) -> bool {
        !self.0.is_empty()
    }

    /// As [`IfMatch::check`], unless the same request with the same key was done already: it is no
    /// other change of what it changed itself.
    ///
    /// # Errors
    ///
    /// When the resource has another tag than the client said.
    pub(super) fn check_unless_repeated(
        &self,
        txn: &Txn,
        key: Option<&ClientKey>,
        resource: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Result<(), Problem> {
        match key.is_some_and(|key| txn.key(&key.key, txn.now()).is_some()) {
            true => Ok(()),
            false => self.check(resource),
        }
    }

    /// Compares with the resource as it is, inside the change.
    ///
    /// # Errors
    ///
    /// When it has another tag than the client said. A weak tag never matches.
    pub(super) fn check(&self, resource: impl FnOnce() -> Option<Vec<u8>>) -> Result<(), Problem> {
        if self.0.is_empty() {
            return Ok(());
        }
        // A resource that is not there has its own problem, which says more.
        let Some(bytes) = resource() else { return Ok(()) };
        let own = tag(&bytes);
        let strong = |value: &HeaderValue| {
            let text = value.to_str().unwrap_or_default();
            text.split(',').map(str::trim).any(|one| one == "*" || one == own)
        };
        if self.0.iter().any(strong) {
            return Ok(());
        }
        let detail = format!(
            "if-match: it has changed and has the tag {own} now; look at it again and decide anew"
        );
        let mut problem = Problem::new(ProblemCode::PreconditionFailed, detail);
        problem.field = Some("if-match".into());
        Err(problem)
    }
}

/// A view as the API sends it.
pub(super) fn shown(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).expect("views are JSON")
}

/// Gives answers their tags, and answers what has not changed with 304.
pub(super) async fn tags(request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if !request.method().is_safe() {
        // A change that would not compare it refuses the header; what is not there says so itself.
        let refuses = path
            .and_then(|path| described::route(request.method(), path))
            .is_some_and(|route| !route.if_match);
        if request.headers().contains_key(header::IF_MATCH) && refuses {
            let why = "this change does not compare it; leave it out";
            return Problem::invalid("if-match", why).into_response();
        }
        return next.run(request).await;
    }
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let known: Vec<HeaderValue> =
        request.headers().get_all(header::IF_NONE_MATCH).iter().cloned().collect();
    let answer = next.run(request).await;
    let json = answer.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == "application/json");
    let size = axum::body::HttpBody::size_hint(answer.body()).exact();
    let small = size.is_some_and(|size| size <= MAX_TAGGED as u64);
    if !get || answer.status() != StatusCode::OK || !json || !small {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_TAGGED).await else {
        return Problem::new(ProblemCode::Internal, "an answer has no end").into_response();
    };
    let tag = tag(&bytes);
    let value = HeaderValue::from_str(&tag).expect("digits in quotes");
    parts.headers.insert(header::ETAG, value);
    if known.iter().any(|value| names(value, &tag)) {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(header::CONTENT_TYPE);
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::empty());
    }
    Response::from_parts(parts, Body::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_runs_changes_no_tag() {
        let at = |left: u64, host: &str| {
            let lease = serde_json::json!({ "until": "noon", "left_ms": left });
            shown(&serde_json::json!({ "items": [{ "host": host, "lease": lease }] }))
        };
        assert_eq!(tag(&at(5, "a")), tag(&at(4, "a")));
        assert_ne!(tag(&at(5, "a")), tag(&at(5, "b")));
    }
}
