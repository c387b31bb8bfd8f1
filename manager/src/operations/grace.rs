//! Takes devices back from hosts that went away: whose proxy is there, and no root complex.
//!
//! The countdown of a binding begins when its host was found without a root complex or when it was
//! recorded, whichever is later, and is gone when one comes. It is counted by the monotonic clock
//! and in memory only: a manager that restarts, or to which the host's proxy connects anew, gives
//! everything its whole time.

use super::request;
use crate::control::session::RootComplex;
use crate::manager::Manager;
use crate::records::Tables;
use crate::types::{BindingId, BindingRecord, EventKind, EventRecord, NodeName};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How often it looks.
const TICK: Duration = Duration::from_millis(100);

/// Since when the bindings of hosts without a root complex are counted down. No larger than the
/// records' list of bindings.
#[derive(Default)]
pub struct Countdowns {
    begun: Mutex<HashMap<BindingId, Instant>>,
}

impl Countdowns {
    /// Counts down what the hosts that are away have, and nothing else. Gives the bindings whose
    /// time is over, host by host.
    fn look(
        &self,
        now: Instant,
        grace: Duration,
        tables: &Tables,
        away: &[(NodeName, Instant)],
    ) -> Vec<(NodeName, Vec<BindingId>)> {
        let mut begun = self.begun.lock().expect("no one panics while holding it");
        let before = std::mem::take(&mut *begun);
        let mut over = Vec::new();
        for (host, since) in away {
            let mut ids = Vec::new();
            for id in lent(tables, host).map(|binding| binding.id) {
                let begin = before.get(&id).copied().unwrap_or(now).max(*since);
                begun.insert(id, begin);
                if now.saturating_duration_since(begin) >= grace {
                    ids.push(id);
                }
            }
            if !ids.is_empty() {
                over.push((host.clone(), ids));
            }
        }
        over
    }

    /// In how long the first device of a host is taken back that has been away since then; nothing
    /// if it has none.
    pub fn left(
        &self,
        host: &NodeName,
        since: Instant,
        grace: Duration,
        tables: &Tables,
    ) -> Option<Duration> {
        let (now, begun) =
            (Instant::now(), self.begun.lock().expect("no one panics while holding it"));
        let left = |binding: &BindingRecord| {
            let begin = begun.get(&binding.id).copied().unwrap_or(now).max(since);
            grace.saturating_sub(now.saturating_duration_since(begin))
        };
        lent(tables, host).map(left).min()
    }
}

/// What a host has and is to keep.
fn lent<'a>(
    tables: &'a Tables,
    host: &'a NodeName,
) -> impl Iterator<Item = &'a BindingRecord> + 'a {
    tables.bindings_at(host).filter(move |b| b.host == *host && !b.desired.is_release())
}

/// Looks until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            () = manager.stopping() => return,
        }
        let Some(grace) = manager.settings.host_grace else { continue };
        let tables = manager.records.snapshot();
        let away = manager.registry.hosts_without_root_complex();
        let over = manager.countdowns.look(Instant::now(), grace, &tables, &away);
        for (host, ids) in over {
            take_back(&manager, grace, &host, &ids).await;
        }
    }
}

async fn take_back(manager: &Manager, grace: Duration, host: &NodeName, ids: &[BindingId]) {
    let begun = manager.records.apply(|txn| {
        // One may have come just now.
        if !matches!(manager.registry.root_complex(host), Some(RootComplex::Away { .. })) {
            return;
        }
        let reason = format!("{host} has had no root complex for {} s", grace.as_secs());
        let Some(operation) = request::take_from_host(txn, host, ids, &reason) else { return };
        let slots = operation.what.slots();
        let verb = if slots.len() == 1 { "is" } else { "are" };
        let detail = format!("{reason}: {} {verb} taken back", request::join(slots));
        let event = EventRecord::new(EventKind::HostGraceOver, detail);
        let event = EventRecord { allocation: operation.allocation, ..event };
        txn.event(event.node(host).operation(operation.id));
    });
    if let Err(problem) = begun.await {
        tracing::error!("what {host} has cannot be taken back: {problem}");
    }
}

#[cfg(test)]
mod tests;
