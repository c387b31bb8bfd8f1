//! Brings firmware to cards, one wave after the other, and cards back to what they had before.
//!
//! A rollout is a record: which cards, in which order, and where each stands. [`start`] makes one,
//! this loop takes its cards in waves, and `card` does what one card needs. Everything that is
//! asked of a card can be asked again, and what a card has got is asked from the card, so a manager
//! that restarts goes on where it was.

mod card;
pub mod start;
mod turns;

pub use turns::Turns;

use crate::manager::Manager;
use crate::records::{Tables, Topic};
use crate::types::{
    CardState, EventKind, EventRecord, NodeName, RolloutCard, RolloutKind, RolloutRecord,
    RolloutState,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// How far images have come on their way to cards: for people, not recorded.
#[derive(Default)]
pub struct Transfers {
    /// Bytes that the card has. No larger than a wave.
    written: Mutex<HashMap<NodeName, u32>>,
    /// What a card waits for before it restarts. No larger than a wave.
    waiting: Mutex<HashMap<NodeName, String>>,
}

impl Transfers {
    /// Bytes of the image that a card has, while it is written.
    pub fn written(&self, node: &NodeName) -> Option<u32> {
        self.written.lock().expect("no one panics while holding it").get(node).copied()
    }

    /// What a card waits for before it restarts, for a person.
    pub fn waits_for(&self, node: &NodeName) -> Option<String> {
        self.waiting.lock().expect("no one panics while holding it").get(node).cloned()
    }

    fn set(&self, node: &NodeName, bytes: Option<u32>) {
        put(&self.written, node, bytes);
    }

    fn waits(&self, node: &NodeName, why: Option<String>) {
        put(&self.waiting, node, why);
    }
}

fn put<T>(map: &Mutex<HashMap<NodeName, T>>, node: &NodeName, value: Option<T>) {
    let mut map = map.lock().expect("no one panics while holding it");
    match value {
        Some(value) => _ = map.insert(node.clone(), value),
        None => _ = map.remove(node),
    }
}

/// Does what is recorded until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let mut changes = manager.records.watch(Topic::Rollout);
    loop {
        // Whatever changes after this is seen below.
        changes.mark_unchanged();
        let running = manager.records.snapshot().rollout().cloned();
        let running = running.filter(|rollout| rollout.state == RolloutState::Running);
        let wait = async {
            if let Some(rollout) = &running {
                step(&manager, rollout).await;
            } else {
                changes.changed().await;
            }
        };
        tokio::select! {
            biased;
            () = manager.stopping() => return,
            () = wait => {}
        }
    }
}

/// The next wave of a rollout, the rest of one that was begun, or its end.
async fn step(manager: &Arc<Manager>, rollout: &RolloutRecord) {
    let in_flight = rollout.cards.iter().filter(|card| card.state.is_in_flight());
    let in_flight: Vec<NodeName> = in_flight.map(|card| card.node.clone()).collect();
    if !in_flight.is_empty() {
        let mut wave = JoinSet::new();
        for node in in_flight {
            wave.spawn(card::bring(manager.clone(), node));
        }
        while let Some(ended) = wave.join_next().await {
            if let Err(error) = ended {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        return;
    }
    let failed = rollout.cards.iter().any(|card| matches!(card.state, CardState::Failed { .. }));
    let wave = match failed {
        true => Vec::new(),
        false => next_wave(rollout, &manager.records.snapshot()),
    };
    let changed = manager.records.apply(|txn| {
        let mut record = rollout.clone();
        if wave.is_empty() {
            end(&mut record, failed);
            record.ended = Some(txn.now());
            txn.event(EventRecord::new(EventKind::FirmwareRolloutEnded, summary(&record)));
        } else {
            begin_wave(&mut record, &wave);
        }
        txn.put_rollout(record);
    });
    if let Err(problem) = changed.await {
        tracing::error!("{} cannot go on: {problem}", rollout.id);
        // The disk may have room later.
        tokio::time::sleep(manager.settings.reconcile_interval).await;
    }
}

fn begin_wave(record: &mut RolloutRecord, wave: &[NodeName]) {
    let number = record.cards.iter().filter_map(|card| card.wave).max().unwrap_or(0) + 1;
    let goes_back = record.what == RolloutKind::RollBack;
    for card in record.cards.iter_mut().filter(|card| wave.contains(&card.node)) {
        (card.state, card.wave) = (CardState::Writing, Some(number));
        if goes_back {
            // It may have restarted while it waited: what it goes back from is asked when it begins.
            (card.before, card.before_image) = (None, None);
        }
    }
}

fn end(record: &mut RolloutRecord, failed: bool) {
    record.state = if failed { RolloutState::Failed } else { RolloutState::Succeeded };
    for card in record.cards.iter_mut().filter(|card| card.state == CardState::Waiting) {
        card.state = CardState::LeftAlone;
    }
}

fn summary(record: &RolloutRecord) -> String {
    let count = |is: fn(&CardState) -> bool| record.cards.iter().filter(|c| is(&c.state)).count();
    let updated = count(|state| *state == CardState::Updated);
    let failed = count(|state| matches!(state, CardState::Failed { .. }));
    let alone = count(|state| *state == CardState::LeftAlone);
    let id = record.id;
    match failed {
        0 => format!("{id}: all {updated} cards run what they should"),
        _ => {
            format!("{id} is stopped: {updated} cards updated, {failed} failed, {alone} left alone")
        }
    }
}

/// The cards that are next: as many as may be at a time, in order, and of a binding never both
/// ends, so that a device and its host are not away at once. A binding that comes later has [`turns`].
fn next_wave(rollout: &RolloutRecord, tables: &Tables) -> Vec<NodeName> {
    let mut wave: Vec<NodeName> = Vec::new();
    let waiting = |card: &&RolloutCard| card.state == CardState::Waiting;
    for card in rollout.cards.iter().filter(waiting) {
        if wave.len() >= rollout.wave_size as usize {
            break;
        }
        let mut others =
            tables.bindings_at(&card.node).map(|binding| turns::other_end(binding, &card.node));
        if !others.any(|other| wave.contains(other)) {
            wave.push(card.node.clone());
        }
    }
    wave
}
