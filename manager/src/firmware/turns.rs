//! Whose turn it is to restart: of a binding never both ends at once, also where the binding came
//! after the wave was made, and where the other end is away for something else than this rollout.

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

/// Why a card waits for the other end of a binding, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// It restarts in this rollout, and comes to its end.
    Restarts(String),
    /// It is away, or its tables have not been read: nobody knows until when.
    Away(String),
}

impl<'a> Turn<'a> {
    /// Of a card that has not been told yet.
    pub(super) fn of(manager: &'a Manager, node: &'a NodeName) -> Self {
        Self { manager, node }
    }

    /// Whether the card may be told to restart: takes its turn, if all that it has a binding with are
    /// there and none of them has its own.
    ///
    /// # Errors
    ///
    /// For whom it waits. One that is told once is told again whoever is away by now: it may have gone
    /// already.
    pub(super) fn take(&self, tables: &Tables) -> Result<(), Blocked> {
        let Self { manager, node } = self;
        // Who looks at the others and who takes a turn is one at a time.
        let mut told = manager.turns.told.lock().expect("no one panics while holding it");
        if !told.contains(*node) {
            blocked(manager, tables, &told, node)?;
            told.insert((*node).clone());
        }
        Ok(())
    }

    /// Whether everybody that the card has a binding with is there, or comes to the end of its turn.
    ///
    /// # Errors
    ///
    /// Who is not, for a person.
    pub(super) fn others_are_there(&self, tables: &Tables) -> Result<(), Blocked> {
        let told = self.manager.turns.told.lock().expect("no one panics while holding it");
        match blocked(self.manager, tables, &told, self.node) {
            Err(Blocked::Restarts(_)) => Ok(()),
            other => other,
        }
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

/// What stands in the way of a card's restart: first one that nobody knows the end of.
fn blocked(
    manager: &Manager,
    tables: &Tables,
    told: &HashSet<NodeName>,
    node: &NodeName,
) -> Result<(), Blocked> {
    let mut restarts = None;
    for binding in tables.bindings_at(node) {
        let (other, slot, host) = (other_end(binding, node), &binding.slot, &binding.host);
        let lent = format!("{slot} is lent to {host}");
        if told.contains(other) || is_away(manager, tables, other) {
            restarts = Some(Blocked::Restarts(format!("{other} restarts, and {lent}")));
        } else if manager.registry.ready(other).is_none() {
            let why = manager.registry.absence(other);
            let why = why.unwrap_or_else(|| {
                format!("{other} has connected, and its tables are not read yet")
            });
            return Err(Blocked::Away(format!("{why}, and {lent}")));
        }
    }
    restarts.map_or(Ok(()), Err)
}

/// Whether a card of the rollout has gone for its restart and has not come to its end.
fn is_away(manager: &Manager, tables: &Tables, node: &NodeName) -> bool {
    let state = tables.rollout().and_then(|rollout| rollout.card(node)).map(|card| &card.state);
    let Some(CardState::Restarting { incarnation, .. }) = state else { return false };
    let card = manager.registry.ready(node);
    card.is_none_or(|card| card.identity().incarnation != *incarnation)
}
