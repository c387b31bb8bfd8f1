//! Parts of requests, with every error a problem that names the field.

use super::App;
use crate::operations::ClientKey;
use crate::types::{Problem, ProblemCode};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// The JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bound = app.settings.http_bound;
        let Ok(read) = tokio::time::timeout(bound, Json::<T>::from_request(request, app)).await
        else {
            let detail = format!("the body did not come within {bound:?}");
            return Err(Problem::new(ProblemCode::RequestTimeout, detail));
        };
        match read {
            Ok(Json(value)) => Ok(Self(value)),
            Err(JsonRejection::MissingJsonContentType(_)) => {
                let detail = "send the body as JSON, with content-type application/json";
                Err(Problem::new(ProblemCode::UnsupportedMediaType, detail))
            }
            Err(error) if error.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = format!("a body has at most {} bytes", super::MAX_BODY);
                Err(Problem::new(ProblemCode::BodyTooLarge, detail))
            }
            Err(error) => Err(Problem::invalid("body", error.body_text())),
        }
    }
}

/// The body as it is, up to the limit of its route.
pub(super) struct Octets(pub(super) Bytes);

impl FromRequest<App> for Octets {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bound = app.settings.http_bound;
        match tokio::time::timeout(bound, Bytes::from_request(request, app)).await {
            Ok(Ok(bytes)) => Ok(Self(bytes)),
            Ok(Err(error)) if error.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = "the body is larger than anything that is taken here";
                Err(Problem::new(ProblemCode::BodyTooLarge, detail))
            }
            Ok(Err(error)) => Err(Problem::invalid("body", error.body_text())),
            Err(_) => {
                let detail = format!("the body did not come within {bound:?}");
                Err(Problem::new(ProblemCode::RequestTimeout, detail))
            }
        }
    }
}

/// The parameters after the question mark.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(value)| Self(value)).map_err(|e| Problem::invalid("query", e.body_text()))
    }
}

/// The variable parts of the path, as text.
pub(super) struct Segments<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(value)| Self(value)).map_err(|e| Problem::invalid("path", e.body_text()))
    }
}

/// A checked value from a text.
pub(super) fn parse<T: FromStr<Err: std::fmt::Display>>(
    field: &str,
    text: &str,
) -> Result<T, Problem> {
    text.parse().map_err(|error| Problem::invalid(field, error))
}

/// Name of the header with the client's key.
pub(super) const KEY_HEADER: &str = "idempotency-key";

/// The client's idempotency key, if it sent one, for a request that does `what`.
pub(super) fn client_key(
    headers: &HeaderMap,
    what: &impl Serialize,
) -> Result<Option<ClientKey>, Problem> {
    let Some(value) = headers.get(KEY_HEADER) else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > 255 || !key.bytes().all(|b| b.is_ascii_graphic()) {
        let detail = "1 to 255 visible ASCII characters without spaces";
        return Err(Problem::invalid(KEY_HEADER, detail));
    }
    let request = serde_json::to_string(what).expect("requests are JSON");
    Ok(Some(ClientKey { key: key.to_owned(), request }))
}
