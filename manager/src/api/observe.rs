//! What is kept of every request: its entry in the audit log, and how long it took.

use super::{App, prefer};
use crate::audit;
use crate::operations::choosing::joined;
use crate::types::text::is_formatting;
use crate::types::{AuditRecord, OperationId, Problem, ProblemCode, Timestamp};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// Where a request came from.
#[derive(Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// A connection's seat, which a change keeps that is still at work when its client has gone.
#[derive(Clone)]
pub(super) struct Seat(
    #[expect(dead_code, reason = "it is held")] pub(super) Arc<OwnedSemaphorePermit>,
);

/// Name of the header in which clients say who they are.
const ACTOR_HEADER: &str = "x-dxpu-actor";

/// Longest name of an actor, bytes.
const MAX_ACTOR: usize = 128;

/// Longest path in the audit log, bytes; what is longer is cut.
const MAX_PATH: usize = 1024;

/// Longest method in the audit log, bytes; clients may make up any.
const MAX_METHOD: usize = 16;

fn actor(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(ACTOR_HEADER) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
    if text.is_empty() || text.len() > MAX_ACTOR || text.chars().any(is_formatting) {
        let why = format!(
            "1 to {MAX_ACTOR} bytes of UTF-8 without control characters and such as change the order of others"
        );
        return Err(Problem::invalid(ACTOR_HEADER, why));
    }
    Ok(Some(text.to_owned()))
}

fn entry(request: &Request, actor: Option<String>) -> AuditRecord {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let peer = request.extensions().get::<Peer>();
    AuditRecord {
        sequence: 0,
        at: Timestamp::now(),
        actor,
        peer: peer.map_or_else(|| "unknown".to_owned(), |Peer(address)| address.to_string()),
        method: audit::line(request.method().as_str(), MAX_METHOD),
        path: audit::line(path, MAX_PATH),
        what: None,
        operation: None,
        problem: None,
    }
}

/// The operation that an answer says is where its work goes on.
pub(super) fn begun(answer: &Response) -> Option<OperationId> {
    let location = answer.headers().get(header::LOCATION)?.to_str().ok()?;
    location.strip_prefix("/v1/operations/")?.parse().ok()
}

/// Serves a request that changes something, or refuses it, and writes who asked for it.
async fn audited(
    manager: App,
    actor: Option<String>,
    refused: Option<Problem>,
    request: Request,
    next: Next,
) -> Response {
    let entry = entry(&request, actor);
    let served = async {
        match refused {
            Some(problem) => problem.into_response(),
            None => next.run(request).await,
        }
    };
    let (answer, audit::Served { entry: left, what }) =
        audit::on_behalf(entry.clone(), served).await;
    let problem = answer.extensions().get::<ProblemCode>().copied();
    let operation = begun(&answer);
    let status = answer.status().as_u16();
    let AuditRecord { actor, peer, method, path, .. } = &entry;
    let by = actor.as_deref().unwrap_or("somebody");
    let outcome = problem.map_or("done", ProblemCode::as_str);
    let begun = operation.map(|id| id.to_string());
    tracing::info!(
        actor,
        peer,
        method,
        path,
        what,
        status,
        outcome,
        operation = begun,
        "audit: {method} {path} by {by} from {peer}: {outcome}{}",
        what.as_ref().map(|what| format!(": {what}")).unwrap_or_default()
    );
    // Where the store failed, the entry went with the change that took it.
    let left = left.or_else(|| {
        (problem == Some(ProblemCode::StoreFailed)).then_some(AuditRecord { what, ..entry })
    });
    if let Some(left) = left {
        manager.audit_soon(AuditRecord { operation, problem, ..left });
    }
    answer
}

/// Serves a request that changes something, to its end, whether its client stays or not.
async fn changes(manager: &App, actor: Option<String>, request: Request, next: Next) -> Response {
    let seat = request.extensions().get::<Seat>().cloned();
    let (wait, refused) = match prefer::wait(request.headers()) {
        Ok(wait) => (wait, None),
        Err(problem) => (None, Some(problem)),
    };
    let work = audited(manager.clone(), actor, refused, request, next);
    let ended = tokio::spawn(async move {
        let _seat = seat;
        work.await
    });
    let answer = joined(ended).await.unwrap_or_else(Problem::into_response);
    match wait {
        Some(seconds) => prefer::when_ended(manager, answer, seconds).await,
        None => answer,
    }
}

/// A method among the names that are counted, where those have no place that clients make up.
fn counted(method: &Method) -> &str {
    const KNOWN: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
    ];
    if KNOWN.contains(method) { method.as_str() } else { "other" }
}

/// Around every request.
pub(super) async fn observe(State(manager): State<App>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let answer = match actor(request.headers()) {
        Err(problem) => problem.into_response(),
        Ok(_) if method.is_safe() => next.run(request).await,
        Ok(actor) => changes(&manager, actor, request, next).await,
    };
    let method = if route.is_some() { counted(&method) } else { "other" };
    let route = route.as_deref().unwrap_or("none");
    manager.metrics.request(method, route, answer.status().as_u16(), begun.elapsed());
    answer
}
