//! Parts of requests, with every error a problem that names the field.

use super::App;
use crate::audit;
use crate::operations::ClientKey;
use crate::types::text::is_formatting;
use crate::types::{Problem, ProblemCode};
use axum::body::Bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::str::FromStr;

/// What does not read, by the name of the field; `whole` is what is named if it is no field.
fn named<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>, whole: &str) -> Problem {
    let (path, why) = (error.path().to_string(), error.inner().to_string());
    // The field says where. Its line is that of the JSON that came, which may have been made of a file.
    let why = why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why).to_owned();
    // Serde passes on what the standard library says of a parameter that is no number.
    let why = match why.as_str() {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "a whole number, 0 or more".to_owned()
        }
        "number too large to fit in target type" => "a smaller number".to_owned(),
        _ => why,
    };
    let path = if path == "." { String::new() } else { path };
    // Of these, serde's derived code says the name in its text, and the path may end before it.
    let below = ["missing", "duplicate", "unknown"].iter().find_map(|kind| {
        let (name, _) = why.strip_prefix(kind)?.strip_prefix(" field `")?.split_once('`')?;
        let said = path == name || path.ends_with(&format!(".{name}"));
        (*kind != "unknown" || !said).then_some(name)
    });
    let field = match (path.as_str(), below) {
        ("", None) => whole.to_owned(),
        ("", Some(name)) => name.to_owned(),
        (path, None) => path.to_owned(),
        (path, Some(name)) => format!("{path}.{name}"),
    };
    Problem::invalid(&field, why)
}

/// Checks a text that people wrote for people: it goes to terminals and logs as it is, so nothing in it
/// moves a cursor or begins a line.
///
/// # Errors
///
/// When it is empty, longer than `most` bytes, or has characters that format ([`is_formatting`]).
pub(super) fn check_text(field: &str, text: &str, most: usize) -> Result<(), Problem> {
    let why = match text.len() {
        0 => format!("1 to {most} bytes"),
        length if length > most => format!("at most {most} bytes, not {length}"),
        _ if text.chars().any(is_formatting) => {
            "no control characters, such as ends of lines or escapes, and none that change the order \
             of others"
                .to_owned()
        }
        _ => return Ok(()),
    };
    Err(Problem::invalid(field, why))
}

/// What is said of a list, or of anything else, in the place of an object.
const OBJECT: &str = "it is an object, with its fields by their names, and no list";

/// Reads JSON.
///
/// # Errors
///
/// What is wrong; `field` names where, such as `exclude.boxes[0]`, or `body` if it is no JSON.
pub(super) fn from_json<T: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<T, Problem> {
    std::str::from_utf8(bytes).map_err(|error| Problem::invalid("body", error))?;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json);
    // What is no JSON at all is wrong as a whole, wherever reading it came to its end.
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| Problem::invalid("body", error))?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::invalid("body", OBJECT));
    }
    let read = read.map_err(|error| match error.inner().is_data() {
        true => named(&error, "body"),
        // Where a name of an enumeration should be, anything but a text is no JSON to serde_json.
        false if error.inner().to_string().starts_with("expected value") => {
            Problem::invalid(&error.path().to_string(), "it is one of a few names, a text")
        }
        // A number or a text that nothing can hold.
        false => Problem::invalid(&error.path().to_string(), error.inner()),
    })?;
    check_objects(bytes, &read)?;
    Ok(read)
}

/// Serde's derived code takes a list for an object, too, with its fields in their order, and the API
/// does not: what somebody wrote for something else would mean anything.
fn check_objects<T: Serialize>(bytes: &[u8], read: &T) -> Result<(), Problem> {
    if !bytes.contains(&b'[') {
        return Ok(());
    }
    let said: Value = serde_json::from_slice(bytes).expect("it was read just now");
    let meant = serde_json::to_value(read).expect("requests are JSON");
    let Some(path) = list_for_object(&said, &meant, String::new()) else { return Ok(()) };
    let field = if path.is_empty() { "body" } else { path.trim_start_matches('.') };
    Err(Problem::invalid(field, OBJECT))
}

/// Where a list was said and an object is meant.
fn list_for_object(said: &Value, meant: &Value, path: String) -> Option<String> {
    match (said, meant) {
        (Value::Array(_), Value::Object(_)) => Some(path),
        (Value::Array(said), Value::Array(meant)) => {
            let mut both = said.iter().zip(meant).enumerate();
            both.find_map(|(at, (s, m))| list_for_object(s, m, format!("{path}[{at}]")))
        }
        (Value::Object(said), Value::Object(meant)) => said.iter().find_map(|(name, said)| {
            list_for_object(said, meant.get(name)?, format!("{path}.{name}"))
        }),
        _ => None,
    }
}

/// Reads the parameters after the question mark.
///
/// # Errors
///
/// What is wrong; `field` names the parameter.
pub(super) fn from_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs))
        .map_err(|error| named(&error, "query"))
}

/// Whether a request says that its body is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = kind.unwrap_or_default().split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    let rest = essence.strip_prefix("application/");
    rest.is_some_and(|rest| rest == "json" || rest.ends_with("+json"))
}

/// The JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned + Serialize> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "send the body as JSON, with content-type application/json";
            return Err(Problem::new(ProblemCode::UnsupportedMediaType, detail));
        }
        let Octets(bytes) = Octets::from_request(request, app).await?;
        let body: T = from_json(&bytes).inspect_err(|_| {
            // What is refused is in the audit log as it came.
            audit::asks(&String::from_utf8_lossy(&bytes[..bytes.len().min(audit::MAX_WHAT)]));
        })?;
        audit::asks(&serde_json::to_string(&body).expect("requests are JSON"));
        Ok(Self(body))
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

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        from_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// The variable parts of the path, as text.
pub(super) struct Segments<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(value)| Self(value)).map_err(|rejection| match &rejection {
            PathRejection::FailedToDeserializePathParams(failed) => match failed.kind() {
                ErrorKind::InvalidUtf8InPathParam { key } => Problem::invalid(key, "no UTF-8"),
                _ => Problem::invalid("path", rejection.body_text()),
            },
            _ => Problem::invalid("path", rejection.body_text()),
        })
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
    let mut keys = headers.get_all(KEY_HEADER).iter();
    let Some(value) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return Err(Problem::invalid(KEY_HEADER, "a request has one"));
    }
    let key = value.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > 255 || !key.bytes().all(|b| b.is_ascii_graphic()) {
        let detail = "1 to 255 visible ASCII characters without spaces";
        return Err(Problem::invalid(KEY_HEADER, detail));
    }
    let request = serde_json::to_string(what).expect("requests are JSON");
    Ok(Some(ClientKey { key: key.to_owned(), digest: crate::records::digest(&request) }))
}
