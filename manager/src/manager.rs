//! The manager: records, connected proxies and settings in one place.

use crate::config::Settings;
use crate::control::Registry;
use crate::control::flapping::Flapping;
use crate::firmware::{Transfers, Turns};
use crate::health::Observed;
use crate::metrics::Metrics;
use crate::operations::deadlines::Deadlines;
use crate::operations::grace::Countdowns;
use crate::recorder::recordings::Recordings;
use crate::records::Records;
use crate::types::{AuditRecord, EventKind, EventRecord, Problem};
use proxy_core::control::Term;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;

/// Events that wait to be recorded. When it is full, further ones are dropped and the log says so;
/// nothing is decided by them.
const EVENT_QUEUE: usize = 4096;

/// Between two attempts to write a store that could not be written.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Everything that the parts of the server share.
pub struct Manager {
    /// The records.
    pub records: Arc<Records>,
    /// Who is connected.
    pub registry: Registry,
    /// Bounds and intervals.
    pub settings: Settings,
    /// What is recorded of bindings.
    pub recordings: Recordings,
    /// What is taken back soon from hosts that went away.
    pub countdowns: Countdowns,
    /// Whose connections come and go.
    pub flapping: Flapping,
    /// What speaks against the health of proxies, paths and devices.
    pub observed: Observed,
    /// When leases and grace times end.
    pub deadlines: Mutex<Deadlines>,
    /// How far firmware has come on its way to cards.
    pub transfers: Transfers,
    /// Which cards are restarted for their firmware.
    pub turns: Turns,
    /// Seats for streams of events.
    pub streams: Arc<Semaphore>,
    /// What is counted and timed.
    pub metrics: Arc<Metrics>,
    term: Term,
    started: Instant,
    stop: watch::Sender<bool>,
    events: mpsc::Sender<EventRecord>,
    audit: mpsc::Sender<AuditRecord>,
}

/// What waits to be recorded.
pub struct Queues {
    /// Events.
    pub events: mpsc::Receiver<EventRecord>,
    /// Entries of the audit log.
    pub audit: mpsc::Receiver<AuditRecord>,
}

impl Manager {
    /// Around records whose term has begun, and what it wants recorded.
    pub fn new(
        records: Arc<Records>,
        settings: Settings,
        metrics: Arc<Metrics>,
    ) -> (Arc<Self>, Queues) {
        let (events, event_queue) = mpsc::channel(EVENT_QUEUE);
        let (audit, audit_queue) = mpsc::channel(crate::audit::QUEUE);
        let term = Term(records.snapshot().meta().term);
        let stop = watch::Sender::new(false);
        let registry = Registry::new(settings.host_grace);
        let observed = Observed::recorded(&records.snapshot());
        let streams = usize::from(settings.connections.get()).div_ceil(4);
        let manager = Self {
            records,
            registry,
            settings,
            recordings: Recordings::default(),
            countdowns: Countdowns::default(),
            flapping: Flapping::default(),
            observed,
            deadlines: Mutex::default(),
            transfers: Transfers::default(),
            turns: Turns::default(),
            streams: Arc::new(Semaphore::new(streams)),
            metrics,
            term,
            started: Instant::now(),
            stop,
            events,
            audit,
        };
        (Arc::new(manager), Queues { events: event_queue, audit: audit_queue })
    }

    /// The term of this start.
    pub fn term(&self) -> Term {
        self.term
    }

    /// When this manager was made.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Tells every part to end.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Whether the manager is stopping.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the manager stops.
    pub async fn stopping(&self) {
        // The sender lives as long as the manager.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Records an event when there is time; several may share one write.
    pub fn event_soon(&self, event: EventRecord) {
        if let Err(error) = self.events.try_send(event) {
            tracing::error!("an event is lost: {error}");
        }
    }

    /// Writes an entry of the audit log when there is time.
    pub fn audit_soon(&self, entry: AuditRecord) {
        if let Err(error) = self.audit.try_send(entry) {
            tracing::error!("an entry of the audit log is lost: {error}");
        }
    }

    /// Records an event before going on.
    pub async fn event_now(&self, event: EventRecord) {
        let recorded = self.records.apply(|txn| {
            txn.event(event.clone());
        });
        if let Err(problem) = recorded.await {
            lost(&event, &problem);
        }
    }

    /// Tries a store again that could not be written, and says so when it can. What proxies told
    /// meanwhile is not recorded: their tables say what came of it, but for what hosts let go of, which
    /// their sessions keep.
    pub async fn mend_store(&self) {
        let mut troubles = self.records.watch_trouble();
        loop {
            let trouble = tokio::select! {
                trouble = troubles.wait_for(Option::is_some) => trouble,
                () = self.stopping() => return,
            };
            // The sender lives as long as the records.
            let Some(trouble) = trouble.ok().and_then(|trouble| trouble.clone()) else { return };
            loop {
                tokio::time::sleep(STORE_RETRY).await;
                let detail = format!(
                    "the store can be written again; it could not since {}: {}",
                    trouble.since, trouble.reason
                );
                let event = EventRecord::new(EventKind::StoreRecovered, detail);
                match self.records.apply(|txn| txn.event(event)).await {
                    Ok(()) => {
                        self.registry.all().iter().for_each(|session| session.sync.notify_one());
                        break;
                    }
                    Err(_) if self.is_stopping() => return,
                    // The records said it to the log.
                    Err(_) => {}
                }
            }
        }
    }

    /// Records what became of a proxy's connection before going on, unless that changes too often.
    pub async fn connection_event(&self, event: EventRecord) {
        if let Some(event) = self.flapping.tell(event, Instant::now()) {
            self.event_now(event).await;
        }
    }

    /// Records events that were sent with [`Manager::event_soon`], until `last` says that there come
    /// no more.
    pub async fn record_events(&self, mut queue: mpsc::Receiver<EventRecord>, last: &Notify) {
        loop {
            let events = batch(&mut queue, last).await;
            if events.is_empty() {
                return;
            }
            let recorded = self.records.apply(|txn| {
                events.iter().for_each(|event| txn.event(event.clone()));
            });
            if let Err(problem) = recorded.await {
                events.iter().for_each(|event| lost(event, &problem));
            }
        }
    }
}

/// The log has what the records do not.
fn lost(event: &EventRecord, problem: &Problem) {
    tracing::error!(kind = %event.kind, "an event is lost: {}: {problem}", event.detail);
}

/// What waits in a queue and shares one write; nothing when it is empty after `last` was told that
/// there comes no more.
pub async fn batch<T>(queue: &mut mpsc::Receiver<T>, last: &Notify) -> Vec<T> {
    const MOST: usize = 256;
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            _ = queue.recv_many(&mut batch, MOST) => return batch,
            () = last.notified() => queue.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_when_there_comes_no_more_is_taken_first() {
        let (sender, mut queue) = mpsc::channel(8);
        let last = Notify::new();
        for n in 0..3 {
            sender.try_send(n).unwrap();
        }
        last.notify_one();
        assert_eq!(batch(&mut queue, &last).await, [0, 1, 2]);
        assert!(batch(&mut queue, &last).await.is_empty());
        assert!(sender.try_send(3).is_err(), "nobody takes it any more");
    }
}
