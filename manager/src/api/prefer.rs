//! What a client would rather have: the header `Prefer` (RFC 7240). Of its preferences `wait` is
//! heeded: a change whose work goes on after its answer is answered when the work has ended, if it
//! ends in that time, so that a client who waits anyway asks once and not twice.

use super::operations::{MAX_WAIT_MS, awaited};
use super::{App, observe};
use crate::records::Topic;
use crate::types::{OperationRecord, Problem};
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{Content, OpenApi, RefOr, Required, Response as Described};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Longest wait, seconds.
const MAX_WAIT: u64 = MAX_WAIT_MS as u64 / 1000;

/// How long the client would wait, if it says so. Other preferences are none of ours, which the RFC
/// has us pass over (section 2); of two waits the first counts.
///
/// # Errors
///
/// When that is no number of seconds, or more than [`MAX_WAIT`].
pub(super) fn wait(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let wrong = |why: &str| Problem::invalid(PREFER.as_str(), format!("wait={why}"));
    for value in headers.get_all(PREFER) {
        // What is no text is no preference that we know.
        for preference in value.to_str().unwrap_or_default().split([',', ';']) {
            let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
            if !name.trim().eq_ignore_ascii_case("wait") {
                continue;
            }
            let seconds = value.trim().trim_matches('"');
            if seconds.is_empty() || !seconds.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong("N: a number of seconds"));
            }
            return match seconds.parse() {
                Ok(seconds) if seconds <= MAX_WAIT => Ok(Some(seconds)),
                _ => Err(wrong(&format!("{seconds}: at most {MAX_WAIT} s"))),
            };
        }
    }
    Ok(None)
}

/// The answer to a change when its work has ended, or after so many seconds.
pub(super) async fn when_ended(manager: &App, answer: Response, seconds: u64) -> Response {
    let begun = observe::begun(&answer).filter(|_| answer.status() == StatusCode::ACCEPTED);
    let Some(id) = begun else { return answer };
    let is_over = |operation: &OperationRecord| operation.state.is_final();
    // One that is not kept is answered as it was when it was asked for.
    let until = (Topic::End(id), Duration::from_secs(seconds));
    let Ok(operation) = awaited(manager, id, until, is_over).await else {
        return answer;
    };
    let (mut parts, _) = answer.into_parts();
    if is_over(&operation) {
        parts.status = StatusCode::OK;
    }
    // Its length and type are those of the answer that is made now.
    let mut awaited = Json(operation).into_response();
    for (name, value) in std::mem::take(awaited.headers_mut()).iter() {
        parts.headers.insert(name, value.clone());
    }
    parts.headers.remove(axum::http::header::CONTENT_LENGTH);
    let applied = HeaderValue::from_str(&format!("wait={seconds}")).expect("a number");
    parts.headers.insert(APPLIED, applied);
    Response::from_parts(parts, awaited.into_body())
}

fn parameter() -> Parameter {
    let text = format!(
        "`wait=N`: answer when the operation has ended, with status 200, or after N seconds (at most \
         {MAX_WAIT}) with status 202. Other preferences are passed over (RFC 7240)"
    );
    ParameterBuilder::new()
        .name("Prefer")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(text))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// Says of a change that begins an operation that it can be waited for.
fn describe_one(operation: &mut Operation) {
    let of = |operation: &Operation, status: &str| match operation.responses.responses.get(status) {
        Some(RefOr::T(response)) => Some(response.clone()),
        _ => None,
    };
    let begins = |response: &Described| response.headers.contains_key("location");
    let Some(accepted) = of(operation, "202").filter(begins) else { return };
    operation.parameters.get_or_insert_default().push(parameter());
    let mut ended = accepted;
    ended.description = "The operation, which has ended: with `Prefer: wait=N`".into();
    if let Some(other) = of(operation, "200") {
        ended.description = format!("{}; with `Prefer: wait=N` the operation", other.description);
        for (kind, content) in &mut ended.content {
            let both: Vec<RefOr<Schema>> = [other.content.get(kind), Some(&*content)]
                .into_iter()
                .filter_map(|content| content.and_then(|content: &Content| content.schema.clone()))
                .collect();
            let one_of = both.into_iter().fold(OneOfBuilder::new(), OneOfBuilder::item);
            content.schema = Some(RefOr::T(Schema::OneOf(one_of.build())));
        }
        ended.headers.clear();
    }
    operation.responses.responses.insert("200".into(), RefOr::T(ended));
}

/// Says so of every change that begins an operation.
pub(super) fn describe(api: &mut OpenApi) {
    for item in api.paths.paths.values_mut() {
        for operation in [&mut item.post, &mut item.put, &mut item.delete].into_iter().flatten() {
            describe_one(operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(values: &[&'static str]) -> Result<Option<u64>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PREFER, HeaderValue::from_static(value));
        }
        wait(&headers)
    }

    #[test]
    fn only_a_wait_is_heeded_and_only_a_sound_one() {
        assert_eq!(heard(&["wait=10"]).unwrap(), Some(10));
        assert_eq!(heard(&["respond-async, Wait = \"60\" ; a=b"]).unwrap(), Some(60));
        assert_eq!(heard(&["return=minimal", "wait=0", "wait=7"]).unwrap(), Some(0));
        assert_eq!(heard(&["waiting=10", "respond-async", ""]).unwrap(), None);
        for wrong in [
            "wait",
            "wait=",
            "wait=x",
            "wait=-1",
            "wait=1.5",
            "wait=61",
            "wait=99999999999999999999",
        ] {
            let problem = heard(&[wrong]).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some("prefer"), "{wrong}");
        }
    }
}
