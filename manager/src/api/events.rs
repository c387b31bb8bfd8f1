//! Events: as a list that can be waited for, and as a stream.

use super::App;
use super::extract::Params;
use super::operations::wait;
use crate::manager::Manager;
use crate::types::{EventRecord, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use manager_client::bodies::ProblemBody;
use manager_client::views::EventPage;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use tokio::sync::watch;
use utoipa::IntoParams;

/// Most events in one answer.
const MAX_LIMIT: usize = 1000;

/// Which events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventParams {
    /// Those with this sequence number and later ones. Without it: the last `limit`.
    since: Option<u64>,
    /// At most so many, up to 1000; 100 if it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// If there are none, wait for one so many milliseconds.
    #[param(maximum = 60_000)]
    wait_ms: Option<u32>,
}

/// Events that are kept.
#[utoipa::path(get, path = "/v1/events", tag = "operations", params(EventParams),
    responses((status = 200, description = "Oldest first", body = EventPage),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(manager): State<App>,
    Params(params): Params<EventParams>,
) -> Result<Json<EventPage>, Problem> {
    let limit = params.limit.unwrap_or(100);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::invalid("limit", format!("1 to {MAX_LIMIT}")));
    }
    let wait = wait(params.wait_ms)?;
    let mut changes = manager.records.watch();
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        changes.mark_unchanged();
        let page = page(&manager, params.since, limit);
        if wait.is_zero() || !page.items.is_empty() {
            return Ok(Json(page));
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(Json(page)),
            () = manager.stopping() => return Ok(Json(page)),
        }
    }
}

fn page(manager: &Manager, since: Option<u64>, limit: usize) -> EventPage {
    let tables = manager.records.snapshot();
    let next = tables.meta().next_event;
    let since = since.unwrap_or_else(|| {
        tables
            .events()
            .keys()
            .rev()
            .nth(limit - 1)
            .or(tables.events().keys().next())
            .copied()
            .unwrap_or(next)
    });
    let items: Vec<EventRecord> =
        tables.events().range(since..).take(limit).map(|(_, event)| event.clone()).collect();
    let first = tables.events().keys().next().copied().unwrap_or(next);
    let next = items.last().map_or(next.max(since), |last| last.sequence + 1);
    EventPage { items, next, lost: since > 0 && since < first }
}

/// Where to begin a stream.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamParams {
    /// Those with this sequence number and later ones. Without it, and without the header
    /// `Last-Event-ID`: only new ones.
    since: Option<u64>,
}

/// Events as they happen, as server-sent events. Each has its sequence number as `id`, so that a
/// client that connects again goes on where it was.
#[utoipa::path(get, path = "/v1/events/stream", tag = "operations", params(StreamParams,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that the client has")),
    responses((status = 200, description = "Each event's data is one EventRecord", body = EventRecord, content_type = "text/event-stream"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn stream(
    State(manager): State<App>,
    headers: HeaderMap,
    Params(params): Params<StreamParams>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let after = match headers.get("last-event-id") {
        None => None,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.parse::<u64>().ok());
            Some(number.ok_or_else(|| Problem::invalid("last-event-id", "a sequence number"))?)
        }
    };
    let since = after.map(|last| last.saturating_add(1)).or(params.since);
    let next = since.unwrap_or_else(|| manager.records.snapshot().meta().next_event);
    let changes = manager.records.watch();
    let cursor = Cursor { manager, changes, next, ready: VecDeque::new() };
    let stream = futures_util::stream::unfold(cursor, |mut cursor| async move {
        let event = cursor.next().await?;
        let sse = Event::default()
            .id(event.sequence.to_string())
            .event(event.kind.to_string())
            .json_data(&event)
            .expect("events are JSON");
        Some((Ok(sse), cursor))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

struct Cursor {
    manager: App,
    changes: watch::Receiver<u64>,
    next: u64,
    ready: VecDeque<EventRecord>,
}

impl Cursor {
    /// The next event; none when the manager stops.
    async fn next(&mut self) -> Option<EventRecord> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            self.changes.mark_unchanged();
            let page = page(&self.manager, Some(self.next), MAX_LIMIT);
            self.next = page.next;
            self.ready = page.items.into();
            if self.ready.is_empty() {
                tokio::select! {
                    _ = self.changes.changed() => {}
                    () = self.manager.stopping() => return None,
                }
            }
        }
    }
}
