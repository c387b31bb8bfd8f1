//! The constraints of a request, one by one, for who asks why it gets what it gets. A choice asks them
//! of many devices at once ([`super::filter`]).

use super::Liveness;
use super::choose::Chooser;
use super::filter::{self, Device};
use crate::records::pool::SlotEntry;
use crate::types::{Amount, SlotStatus, Together};
use std::collections::HashMap;
use tlp_codec::ids::NodeId;

/// The constraint that spares are kept.
pub(super) const KEPT: &str = "not kept as spares";

/// The constraint that the host can carry one.
pub(super) const HOST_CARRIES: &str = "host's bandwidth is enough for one";

/// The constraint that a device is in an island.
pub(super) const IN_ISLAND: &str = "in an island";

/// The constraint that a device reaches the others in its island so fast, bytes a second.
pub(super) fn at_rate(rate: u64) -> String {
    format!("at {} in its island", Amount(rate))
}

/// Whether a slot is free, but nothing of its model may be taken.
pub(super) fn is_kept_back<L: Liveness>(chooser: &Chooser<'_, L>, slot: &SlotEntry) -> bool {
    let kept = &chooser.filter.kept;
    slot.status == SlotStatus::Free && slot.profile.is_some_and(|id| kept.keeps_back(id))
}

/// What a constraint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// What a device is and where.
    What,
    /// Whether it can be had now.
    Now,
}

/// A constraint, and what it says of one device.
pub(super) struct Constraint<'a> {
    pub(super) text: String,
    pub(super) about: About,
    pub(super) holds: Box<dyn Fn(Device<'_>) -> bool + 'a>,
}

fn constraint<'a>(
    about: About,
    text: impl Into<String>,
    holds: impl Fn(Device<'_>) -> bool + 'a,
) -> Constraint<'a> {
    Constraint { text: text.into(), about, holds: Box::new(holds) }
}

/// All constraints of a request, in the order in which they are asked.
pub(super) fn constraints<'a, L: Liveness>(
    chooser: &'a Chooser<'_, L>,
    connected: &'a HashMap<NodeId, bool>,
) -> Vec<Constraint<'a>> {
    use About::{Now, What};
    let filter = chooser.filter;
    let request = filter.request;
    let wishes = &request.wishes;
    let mut all = Vec::new();
    if let Some(model) = &wishes.model {
        let holds = |device: Device<'_>| filter.has_model(&device.profile.model);
        all.push(constraint(What, format!("model {model:?}"), holds));
    }
    for condition in wishes.selector.conditions() {
        let holds = |device: Device<'_>| filter::meets(condition, device);
        all.push(constraint(What, condition.to_string(), holds));
    }
    if let Some(text) = &wishes.cel {
        let holds = |device: Device<'_>| {
            device.slot.profile.is_none_or(|id| filter.cel_fits(device.entry, device.slot, id))
        };
        all.push(constraint(What, format!("cel {text}"), holds));
    }
    if let Some(name) = &wishes.box_name {
        all.push(constraint(What, format!("box {name}"), |d| d.entry.name == *name));
    }
    if let Some(slot) = request.slot {
        all.push(constraint(What, format!("slot {slot}"), move |d| d.slot.slot == slot));
    }
    if !wishes.exclude.is_empty() {
        let holds = |device: Device<'_>| {
            filter.is_included(device.entry) && !filter.is_slot_excluded(device.entry, device.slot)
        };
        all.push(constraint(What, "not excluded", holds));
    }
    if filter.paths != u8::MAX {
        let holds = |device: Device<'_>| filter.path_fits(device.entry);
        all.push(constraint(What, "reached by a path that is wished and the host has", holds));
    }
    if wishes.together == Together::Island {
        all.push(constraint(What, IN_ISLAND, |device| device.slot.island.is_some()));
        if let Some(of) = &request.island_of {
            let own = |device: Device<'_>| device.slot.island.is_some_and(|i| filter.is_meant(i));
            let gone = if filter.has_island() { "" } else { ", which is in none by the inventory" };
            all.push(constraint(What, format!("in the island of {of}{gone}"), own));
        }
        if let Some(rate) = wishes.island_rate {
            let reached = move |device: Device<'_>| {
                let islands = &device.entry.shape().islands;
                let own = device.slot.island.and_then(|island| islands.get(usize::from(island)));
                own.is_some_and(|island| island.rate >= rate)
            };
            all.push(constraint(What, at_rate(rate), reached));
        }
    }
    let is_connected = |device: Device<'_>| connected[&device.entry.node];
    all.push(constraint(Now, "box is connected", is_connected));
    all.push(constraint(Now, "free", |device| device.slot.status == SlotStatus::Free));
    let demand = |device: Device<'_>| device.profile.demand(&request.link);
    let fits = move |device: Device<'_>| demand(device) <= device.entry.shape().room;
    all.push(constraint(Now, "box's bandwidth is enough for one", fits));
    let room = chooser.room;
    all.push(constraint(Now, HOST_CARRIES, move |d| demand(d) <= room));
    if filter.kept.scarce().next().is_some() {
        all.push(constraint(Now, KEPT, |d| !is_kept_back(chooser, d.slot)));
    }
    all
}
