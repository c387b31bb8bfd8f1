//! Events: as a list that can be waited for, and as a stream.

use super::App;
use super::extract::Params;
use super::operations::wait;
use crate::manager::Manager;
use crate::records::{Topic, Watch};
use crate::types::{
    BindingId, EventKind, EventRecord, NodeName, OperationId, Problem, ProblemCode,
};
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
use tokio::sync::OwnedSemaphorePermit;
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
    /// Only of this kind.
    kind: Option<EventKind>,
    /// Only about this proxy.
    node: Option<NodeName>,
    /// Only about this binding.
    binding: Option<BindingId>,
    /// Only about this operation.
    operation: Option<OperationId>,
}

/// Which events are wanted, of all that there are.
#[derive(Clone, Debug, Default)]
struct Filter {
    kind: Option<EventKind>,
    node: Option<NodeName>,
    binding: Option<BindingId>,
    operation: Option<OperationId>,
}

impl Filter {
    fn lets(&self, event: &EventRecord) -> bool {
        self.kind.is_none_or(|kind| kind == event.kind)
            && (self.node.is_none() || self.node == event.node)
            && (self.binding.is_none() || self.binding == event.binding)
            && (self.operation.is_none() || self.operation == event.operation)
    }
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
    checked(&manager, params.since)?;
    let EventParams { mut since, kind, node, binding, operation, .. } = params;
    let filter = Filter { kind, node, binding, operation };
    let mut changes = manager.records.watch(Topic::Events);
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        changes.mark_unchanged();
        let page = page(&manager, since, limit, &filter);
        // What was looked at in vain need not be looked at again.
        since = Some(page.next);
        // Who has lost some has to look at everything anew, and not only when another one comes.
        if wait.is_zero() || !page.items.is_empty() || page.lost {
            return Ok(Json(page));
        }
        tokio::select! {
            () = changes.changed() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(Json(page)),
            () = manager.stopping() => return Ok(Json(page)),
        }
    }
}

/// A sequence number that there was, or the next one. Whoever has one above that has it from another
/// manager, and would wait for ever.
fn checked(manager: &Manager, since: Option<u64>) -> Result<Option<u64>, Problem> {
    let next = manager.records.snapshot().meta().next_event;
    match since {
        Some(since) if since > next => {
            let detail = format!("no event has come so far; the next one is number {next}");
            Err(Problem::invalid("since", detail))
        }
        since => Ok(since),
    }
}

fn page(manager: &Manager, since: Option<u64>, limit: usize, filter: &Filter) -> EventPage {
    let tables = manager.records.snapshot();
    let next = tables.meta().next_event;
    let wanted = |(_, event): &(&u64, &EventRecord)| filter.lets(event);
    let since = since.unwrap_or_else(|| {
        let last = tables.events().iter().rev().filter(wanted).take(limit).last();
        last.map_or(next, |(sequence, _)| *sequence)
    });
    let events = tables.events().range(since..).filter(wanted).take(limit);
    let items: Vec<EventRecord> = events.map(|(_, event)| event.clone()).collect();
    // Each number was an event's. So one that is not there is of one that is no longer kept, or that
    // the store lost when it was restored or went back: the numbers go on farther above then.
    let lost = (1..next).contains(&since) && !tables.events().contains_key(&since);
    // The next one that is there: who reads all that is kept page by page has lost none of it.
    let next = match items.last() {
        Some(last) if items.len() == limit => {
            let after = tables.events().range(last.sequence + 1..).next();
            after.map_or(next, |(sequence, _)| *sequence)
        }
        _ => next.max(since),
    };
    EventPage { items, next, lost }
}

/// Where to begin a stream.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamParams {
    /// Those with this sequence number and later ones. Without it, and without the header
    /// `Last-Event-ID`: only new ones.
    since: Option<u64>,
    /// Only of this kind.
    kind: Option<EventKind>,
    /// Only about this proxy.
    node: Option<NodeName>,
    /// Only about this binding.
    binding: Option<BindingId>,
    /// Only about this operation.
    operation: Option<OperationId>,
}

/// A message of the stream.
enum Message {
    Event(Box<EventRecord>),
    /// Events before this one are not there any more, and were not sent.
    Lost {
        next: u64,
    },
}

impl Message {
    fn into_sse(self) -> Event {
        match self {
            Self::Event(event) => Event::default()
                .id(event.sequence.to_string())
                .event(event.kind.to_string())
                .json_data(&event)
                .expect("events are JSON"),
            Self::Lost { next } => Event::default()
                .event("lost")
                .json_data(serde_json::json!({ "next": next }))
                .expect("it is JSON"),
        }
    }
}

/// Events as they happen, as server-sent events. Each has its sequence number as `id`, so that a
/// client that connects again goes on where it was. If events are not there any more that should come
/// next, a message of type `lost` says so, without an `id`; its data has the sequence number of the
/// first one after them as `next`. A comment comes every 15 s if nothing else does.
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
    let Ok(seat) = manager.streams.clone().try_acquire_owned() else {
        let detail = "a quarter of all connections are streams of events already; ask again later, \
                      or for `/v1/events?wait_ms=`";
        return Err(Problem::new(ProblemCode::LimitReached, detail).passing(true));
    };
    let since = after.map(|last| last.saturating_add(1)).or(checked(&manager, params.since)?);
    let coming = manager.records.snapshot().meta().next_event;
    let mut next = since.unwrap_or(coming);
    let mut ready = VecDeque::new();
    if next > coming {
        // It was another manager that this client followed; browsers send what they have.
        ready.push_back(Message::Lost { next: coming });
        next = coming;
    }
    let changes = manager.records.watch(Topic::Events);
    let StreamParams { kind, node, binding, operation, .. } = params;
    let filter = Filter { kind, node, binding, operation };
    let cursor = Cursor { manager, changes, next, filter, ready, _seat: seat };
    let stream = futures_util::stream::unfold(cursor, |mut cursor| async move {
        let message = cursor.next().await?;
        Some((Ok(message.into_sse()), cursor))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

struct Cursor {
    manager: App,
    changes: Watch,
    next: u64,
    filter: Filter,
    ready: VecDeque<Message>,
    /// Given back when the client is gone.
    _seat: OwnedSemaphorePermit,
}

impl Cursor {
    /// The next event; none when the manager stops.
    async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            self.changes.mark_unchanged();
            let page = page(&self.manager, Some(self.next), MAX_LIMIT, &self.filter);
            let since = std::mem::replace(&mut self.next, page.next);
            if page.lost {
                let tables = self.manager.records.snapshot();
                let kept = tables.events().range(since..).next();
                let next = kept.map_or(page.next, |(first, _)| *first);
                self.ready.push_back(Message::Lost { next });
            }
            self.ready.extend(page.items.into_iter().map(|e| Message::Event(Box::new(e))));
            if self.ready.is_empty() {
                tokio::select! {
                    () = self.changes.changed() => {}
                    () = self.manager.stopping() => return None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::records::{MAX_EVENTS, Records};
    use crate::store::EmbeddedStore;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_stream_says_what_is_lost_and_goes_on_with_what_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let store = Arc::new(EmbeddedStore::open(&path).unwrap());
        let records = Records::open(store, &path).unwrap();
        let changed = records.apply(|txn| {
            for _ in 0..MAX_EVENTS + 5 {
                txn.event(EventRecord::new(EventKind::Trouble, "none"));
            }
        });
        changed.await.unwrap();
        let (manager, _queue) = Manager::new(records, Settings::default(), Arc::default());
        let changes = manager.records.watch(Topic::Events);
        let (filter, ready) = (Filter::default(), VecDeque::new());
        let seat = manager.streams.clone().try_acquire_owned().unwrap();
        let mut cursor = Cursor { manager, changes, next: 2, filter, ready, _seat: seat };
        let first = cursor.next().await.unwrap();
        assert!(matches!(first, Message::Lost { next: 6 }));
        for sequence in 6..=MAX_EVENTS as u64 + 5 {
            let Message::Event(event) = cursor.next().await.unwrap() else { panic!("lost twice") };
            assert_eq!(event.sequence, sequence);
        }
    }
}
