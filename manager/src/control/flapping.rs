//! Connections that come and go without end: what is told of each.
//!
//! The first [`BURST`] events of a proxy's connection in a [`WINDOW`] are told as they happen. Then
//! it is said that it flaps, and the further ones are only counted, until a window has at most
//! [`CALM`]. So a proxy that flaps, or somebody who claims names, does not push everything else out
//! of the events that are kept.

use crate::manager::Manager;
use crate::types::{EventKind, EventRecord, NodeName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Over which time events are counted.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Events in a window that are told one by one.
pub const BURST: u32 = 20;

/// Events in a window after which the next ones are told one by one again.
pub const CALM: u32 = 4;

/// Whose events: refused claims of a name do not hide what becomes of who has it. Names that the
/// records do not know are one.
type Key = (bool, Option<NodeName>);

#[derive(Debug)]
struct Window {
    begun: Instant,
    seen: u32,
    untold: u32,
    muted: bool,
    last: String,
}

/// What is told of connections now. There are no more entries than proxies in the records.
#[derive(Debug, Default)]
pub struct Flapping(Mutex<BTreeMap<Key, Window>>);

fn called(key: &Key) -> String {
    match key {
        (true, Some(name)) => format!("claims of the name {name}"),
        (true, None) => "claims of names that nobody has".to_owned(),
        (false, Some(name)) => format!("the connection of {name}"),
        (false, None) => "connections".to_owned(),
    }
}

fn summary((refused, name): &Key, detail: String) -> EventRecord {
    let event = EventRecord::new(EventKind::NodeFlapping, detail);
    match name {
        Some(name) if !refused => event.node(name),
        _ => event,
    }
}

impl Flapping {
    /// What is told when this happens to a connection; nothing if it is only counted.
    pub fn tell(&self, event: EventRecord, now: Instant) -> Option<EventRecord> {
        let key = (event.kind == EventKind::NodeRefused, event.node.clone());
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(key.clone()).or_insert_with(|| Window {
            begun: now,
            seen: 0,
            untold: 0,
            muted: false,
            last: String::new(),
        });
        window.seen = window.seen.saturating_add(1);
        if !window.muted && window.seen <= BURST {
            return Some(event);
        }
        window.untold = window.untold.saturating_add(1);
        window.last = event.detail;
        if window.muted {
            return None;
        }
        window.muted = true;
        let detail = format!(
            "{}: {BURST} events within {} s; further ones are counted and told once in {} s: {}",
            called(&key),
            now.duration_since(window.begun).as_secs(),
            WINDOW.as_secs(),
            window.last
        );
        Some(summary(&key, detail))
    }

    /// What is told at the end of windows.
    pub fn due(&self, now: Instant) -> Vec<EventRecord> {
        let mut told = Vec::new();
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|key, window| {
            if now.duration_since(window.begun) < WINDOW {
                return true;
            }
            let calm = window.seen <= CALM;
            if window.untold > 0 {
                let what = match calm {
                    true => "it is calm now",
                    false => "it goes on",
                };
                let detail = format!(
                    "{}: {} more events in the last {} s, {what}; the last: {}",
                    called(key),
                    window.untold,
                    WINDOW.as_secs(),
                    window.last
                );
                told.push(summary(key, detail));
            }
            (window.begun, window.seen, window.untold) = (now, 0, 0);
            window.muted && !calm
        });
        told
    }
}

/// Tells what is due, until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = manager.stopping() => return,
        }
        let flapping = manager.flapping.due(Instant::now());
        let suppressed = manager.records.snapshot().sources().due(Instant::now());
        for event in flapping.into_iter().chain(suppressed) {
            manager.event_soon(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, name: &str, number: u32) -> EventRecord {
        EventRecord::new(kind, format!("number {number}")).node(&NodeName::new(name).unwrap())
    }

    #[test]
    fn what_flaps_is_told_once_a_window_until_it_is_calm() {
        let (flapping, begun) = (Flapping::default(), Instant::now());
        let tell =
            |number, at| flapping.tell(event(EventKind::NodeConnected, "box1", number), begun + at);
        let second = Duration::from_secs(1);
        for number in 0..BURST {
            assert_eq!(tell(number, second).unwrap().kind, EventKind::NodeConnected);
        }
        let muted = tell(BURST, second).unwrap();
        assert_eq!(muted.kind, EventKind::NodeFlapping);
        assert!(muted.detail.contains("box1") && muted.detail.contains("20"), "{}", muted.detail);
        for number in 0..1000 {
            assert!(tell(number, 2 * second).is_none());
        }
        // Another one's, and claims of its name, are not hidden by that.
        assert!(flapping.tell(event(EventKind::NodeConnected, "box2", 1), begun).is_some());
        assert!(flapping.tell(event(EventKind::NodeRefused, "box1", 1), begun).is_some());
        assert!(flapping.due(begun + WINDOW).is_empty(), "box1's window began later");
        let told = flapping.due(begun + WINDOW + second);
        assert_eq!(told.len(), 1);
        assert!(told[0].detail.contains("1001 more"), "{}", told[0].detail);
        assert!(told[0].detail.contains("number 999"), "{}", told[0].detail);
        // It goes on in the next, more slowly, and is then told as it happens again.
        let later = WINDOW + 2 * second;
        assert!(tell(7, later).is_none());
        let told = flapping.due(begun + 2 * WINDOW + second);
        assert!(told[0].detail.contains("1 more") && told[0].detail.contains("calm"), "{told:?}");
        assert!(tell(8, 2 * WINDOW + 2 * second).is_some());
    }

    #[test]
    fn what_is_calm_leaves_nothing() {
        let (flapping, begun) = (Flapping::default(), Instant::now());
        flapping.tell(event(EventKind::NodeConnected, "box1", 1), begun);
        assert!(flapping.due(begun + WINDOW).is_empty());
        assert!(flapping.0.lock().unwrap().is_empty());
    }
}
