//! Whose turn it is to restart: of a binding never both ends at once, also where the binding came
//! after the wave was made.

use crate::manager::Manager;
use crate::records::Tables;
use crate::types::{BindingRecord, CardState, NodeName};
use std::collections::HashSet;
use std::sync::Mutex;

/// Cards that are told to restart, until they have come to their ends. Not recorded: after a manager
/// has restarted, cards that are away or in another life are taken for such.
#[derive(Default)]
pub struct Turns {
    told: Mutex<HashSet<NodeName>>,
}

/// A card's turn; over when this is dropped.
pub(super) struct Turn<'a> {
    manager: &'a Manager,
    node: &'a NodeName,
}

impl<'a> Turn<'a> {
    /// Of a card that has not been told yet.
    pub(super) fn of(manager: &'a Manager, node: &'a NodeName) -> Self {
        Self { manager, node }
    }

    /// Whether the card may be told to restart: takes its turn, if none of those that it has a binding
    /// with has its own.
    pub(super) fn take(&self, tables: &Tables) -> bool {
        let Self { manager, node } = self;
        // Who looks at the others and who takes a turn is one at a time.
        let mut told = manager.turns.told.lock().expect("no one panics while holding it");
        if told.contains(*node) {
            return true;
        }
        let mut others = tables.bindings_at(node).map(|binding| other_end(binding, node));
        let free = !others.any(|other| told.contains(other) || is_away(manager, tables, other));
        if free {
            told.insert((*node).clone());
        }
        free
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.manager.turns.told.lock().expect("no one panics while holding it").remove(self.node);
    }
}

/// The node at the other end of a binding.
pub(super) fn other_end<'a>(binding: &'a BindingRecord, node: &NodeName) -> &'a NodeName {
    if binding.host == *node { binding.slot.box_name() } else { &binding.host }
}

/// Whether a card of the rollout has gone for its restart and has not come to its end.
fn is_away(manager: &Manager, tables: &Tables, node: &NodeName) -> bool {
    let state = tables.rollout().and_then(|rollout| rollout.card(node)).map(|card| &card.state);
    let Some(CardState::Restarting { incarnation, .. }) = state else { return false };
    let card = manager.registry.ready(node);
    card.is_none_or(|card| card.identity().incarnation != *incarnation)
}
