//! What is held back: since when, why, and what ends it.

use crate::records::Tables;
use crate::types::{
    HealthState, HoldKind, HoldRecord, NodeName, Place, Problem, ProblemCode, SlotAddress,
};

/// That a host gets nothing new.
///
/// # Errors
///
/// When it is held back.
pub(super) fn refuse_held_host(tables: &Tables, host: &NodeName) -> Result<(), Problem> {
    let Some(hold) = tables.hold_of_node(host) else { return Ok(()) };
    let (held, end) = (held(&Place::Node(host.clone()), hold), end(tables, hold));
    Err(Problem::new(ProblemCode::Held, format!("host {host} {held}; {end}")))
}

/// That a slot is held back, itself or with what it is a part of: since when and why.
pub(super) fn held_slot(slot: &SlotAddress, hold: &HoldRecord) -> String {
    format!("slot {slot} {}", held(&Place::Slot(slot.clone()), hold))
}

fn held(place: &Place, hold: &HoldRecord) -> String {
    let HoldRecord { place: with, kind, since, reason, .. } = hold;
    let with = if with == place { String::new() } else { format!(" with {with}") };
    format!("is held back{with} since {since} ({kind}): {reason}")
}

/// What ends it.
pub(super) fn end(tables: &Tables, hold: &HoldRecord) -> String {
    let place = &hold.place;
    let off = format!("`dxpu-manager maintain {place} --off`");
    // While a place is drained it cannot be put back.
    if let Some(drain) = tables.running().find(|o| hold.operation == Some(o.id)) {
        let id = drain.id;
        return format!("{id} empties it, and then {off} lets it be used again");
    }
    if hold.kind != HoldKind::Unhealthy {
        return format!("{off} lets {place} be used again");
    }
    let health = place.subject().and_then(|subject| tables.health().get(&subject));
    let recovers = health.is_some_and(|health| health.state == HealthState::Recovering);
    let recovers = if recovers { "is recovering, and " } else { "" };
    format!("{place} {recovers}is used again when it is healthy; {off} lets it be used at once")
}
