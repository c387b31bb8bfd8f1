//! What can be emptied, and what is lent there.

use crate::records::{Tables, Txn};
use crate::types::{BindingRecord, NodeName, Place, Problem, ProblemCode};

/// Checks that there is such a place.
pub(in crate::operations) fn check(txn: &Txn, place: &Place) -> Result<(), Problem> {
    let inventory = &txn.pool().facts().record().inventory;
    let known = |is: bool| match is {
        true => Ok(()),
        false => {
            let detail = format!("the inventory has no {place}");
            Err(Problem::new(ProblemCode::NoSuchPlace, detail))
        }
    };
    let name = match place {
        Place::Path(_) => return Ok(()),
        Place::Rack(name) => return known(inventory.racks.contains_key(name)),
        Place::Site(name) => return known(inventory.sites.contains_key(name)),
        Place::Fabric(name) => return known(inventory.fabrics.contains_key(name)),
        Place::Node(name) => name,
        Place::Slot(slot) => slot.box_name(),
    };
    let Some(node) = txn.nodes().get(name) else {
        let detail = format!("there is no proxy with the name {name}, or it was forgotten");
        return Err(Problem::new(ProblemCode::NoSuchNode, detail));
    };
    match place {
        Place::Slot(slot) if slot.slot().get() > node.size => {
            let detail = format!("{name} has no slot {}; it has {}", slot.slot(), node.size);
            Err(Problem::new(ProblemCode::NoSuchSlot, detail))
        }
        _ => Ok(()),
    }
}

/// What is lent there. Of a path: what uses it and no path that is not held back.
pub(in crate::operations) fn lent(tables: &Tables, place: &Place) -> Vec<BindingRecord> {
    match place {
        Place::Slot(slot) => tables.binding_at_slot(slot).cloned().into_iter().collect(),
        Place::Node(name) => tables.bindings_at(name).cloned().collect(),
        Place::Rack(_) | Place::Site(_) => {
            let there = |b: &&BindingRecord| {
                stands_in(tables, b.slot.box_name(), place) || stands_in(tables, &b.host, place)
            };
            tables.bindings().values().filter(there).cloned().collect()
        }
        Place::Path(_) | Place::Fabric(_) => {
            let paths = tables.paths_of(place).unwrap_or_default();
            // What the box does not have gets its paths when it does.
            let only = |b: &&BindingRecord| {
                let (set, held) = (tables.paths_of_binding(b), tables.held_for(b) | paths);
                b.phase.at_box() && set & paths != 0 && set & !held == 0
            };
            tables.bindings().values().filter(only).cloned().collect()
        }
    }
}

/// Whether a box or host is this place, or stands there.
pub(super) fn stands_in(tables: &Tables, name: &NodeName, place: &Place) -> bool {
    let (rack, site) = tables.stand(name);
    match place {
        Place::Node(node) => node == name,
        Place::Rack(place) => rack.as_ref() == Some(place),
        Place::Site(place) => site.as_ref() == Some(place),
        Place::Slot(_) | Place::Path(_) | Place::Fabric(_) => false,
    }
}
