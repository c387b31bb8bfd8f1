//! Requests to the manager's API, through its router without a socket. Nothing panics, nothing is
//! the manager's own fault, and whoever is refused is told why.

use crate::pool;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use std::time::Duration;
use tower::ServiceExt;

/// Requests of one input.
const REQUESTS: usize = 16;

/// Longest answer, bytes: more than all that so small a pool can show.
const MAX_ANSWER: usize = 16 << 20;

/// Longest wait, by the clock of the manager: more than any that can be asked for.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Takes requests with a zero byte between them, each as HTTP writes it: method and path, headers,
/// an empty line, the body.
pub fn run(data: &[u8]) {
    let requests: Vec<_> =
        data.split(|byte| *byte == 0).take(REQUESTS).filter_map(request).collect();
    if requests.is_empty() {
        return;
    }
    pool::run(async {
        let (manager, _queues) = pool::manager().await;
        let router = manager::api::router(manager);
        for request in requests {
            let what = format!("{} {}", request.method(), request.uri());
            let answered = tokio::time::timeout(MAX_WAIT, answer(&router, request, &what)).await;
            assert!(answered.is_ok(), "{what} is not answered");
        }
    });
}

/// A request, if the bytes are one that a server would hand on.
fn request(bytes: &[u8]) -> Option<Request<Body>> {
    let (head, body) = match bytes.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    let mut request = Request::builder().method(&first[..space]).uri(&first[space + 1..]);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    let request = request.body(Body::from(body.to_vec())).ok()?;
    request.uri().path().starts_with('/').then_some(request)
}

async fn answer(router: &Router, request: Request<Body>, what: &str) {
    let is_head = request.method() == Method::HEAD;
    let answer = match router.clone().oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let status = answer.status();
    let own_fault = status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE;
    let kind = answer.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec());
    let kind = kind.unwrap_or_default();
    if kind.starts_with(b"text/event-stream") {
        // It has no end.
        return;
    }
    let body = to_bytes(answer.into_body(), MAX_ANSWER).await.expect("answers have an end");
    let text = String::from_utf8_lossy(&body);
    assert!(!own_fault, "{what}: {status} {text}");
    if is_head {
        return;
    }
    if status.is_client_error() || status.is_server_error() {
        assert_eq!(kind, b"application/problem+json", "{what}: {status} {text}");
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("it is JSON");
        assert!(problem["code"].is_string() && problem["detail"].is_string(), "{what}: {problem}");
        assert_eq!(problem["status"], status.as_u16(), "{what}: {problem}");
    } else if kind == b"application/json" {
        serde_json::from_slice::<serde_json::Value>(&body).expect("it is JSON");
    }
}
