//! Placement: which slots, and which ports, a request gets. Pure: a [`PoolView`] and a
//! [`PlanRequest`] in, a [`Plan`] or a reason out.

mod explain;
mod view;

#[cfg(test)]
mod tests;

pub use crate::types::SlotStatus;
pub use view::{BoxView, HostView, Liveness, PoolView, SlotView};

use crate::types::{NodeName, Problem, ProblemCode, SlotAddress};
use proxy_core::limits::MAX_PORTS;
use std::collections::BTreeMap;
use tlp_codec::ids::{PortId, SlotFunction, SlotId};

/// Most slots that one request can ask for: no host has more ports.
pub const MAX_COUNT: u32 = MAX_PORTS as u32;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The host.
    pub host: NodeName,
    /// How many slots, 1 to [`MAX_COUNT`].
    pub count: u32,
    /// Only slots whose first function has this model, upper and lower case alike.
    pub model: Option<String>,
    /// Only slots of this box.
    pub box_name: Option<NodeName>,
    /// Only this slot; with a box, and for a count of 1.
    pub slot: Option<SlotId>,
}

/// One slot for one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The slot.
    pub slot: SlotAddress,
    /// Its functions, lowest first, never empty.
    pub functions: Vec<SlotFunction>,
    /// The host's port.
    pub port: PortId,
}

/// What a request gets: as many placements as it asked for.
pub type Plan = Vec<Placement>;

/// Chooses. All or nothing. One box for everything if one has enough, and then the one that is
/// left with the fewest; else as few boxes as can be.
///
/// # Errors
///
/// Why nothing fits: a typed problem for a host, box or slot that cannot be, else
/// [`ProblemCode::NothingFits`] with a reason for each constraint.
pub fn plan(request: &PlanRequest, pool: &PoolView) -> Result<Plan, Problem> {
    check(request)?;
    let host = find_host(request, pool)?;
    if let Some(name) = &request.box_name {
        find_box(name, pool)?;
    }
    let wanted = request.count as usize;
    let slots = match (&request.box_name, request.slot) {
        (Some(name), Some(slot)) => vec![find_slot(name, slot, request, pool)?],
        _ => choose(request, pool),
    };
    if slots.len() < wanted || host.free_ports.len() < wanted {
        return Err(explain::nothing_fits(request, host, pool));
    }
    let ports = host.free_ports.iter();
    let place = |(slot, port): (&SlotView, &PortId)| Placement {
        slot: slot.address.clone(),
        functions: slot.functions.clone(),
        port: *port,
    };
    Ok(slots.into_iter().zip(ports).map(place).take(wanted).collect())
}

fn check(request: &PlanRequest) -> Result<(), Problem> {
    if !(1..=MAX_COUNT).contains(&request.count) {
        return Err(Problem::invalid("count", format!("1 to {MAX_COUNT}, not {}", request.count)));
    }
    if request.slot.is_some() && request.box_name.is_none() {
        return Err(Problem::invalid("slot", "a slot is named together with its box"));
    }
    if request.slot.is_some() && request.count != 1 {
        return Err(Problem::invalid("count", "one named slot is one slot"));
    }
    Ok(())
}

fn find_host<'a>(request: &PlanRequest, pool: &'a PoolView) -> Result<&'a HostView, Problem> {
    let name = &request.host;
    let Some(host) = pool.hosts.get(name) else {
        if pool.boxes.contains_key(name) {
            let detail = format!("{name} is a box; slots are lent to hosts");
            return Err(Problem::new(ProblemCode::WrongRole, detail));
        }
        let detail = format!(
            "no host proxy with the name {name} was ever here; `dxpu-manager nodes` lists those \
             that were"
        );
        return Err(Problem::new(ProblemCode::NoSuchHost, detail));
    };
    if !host.connected {
        let detail = format!("host {name} is not connected");
        return Err(Problem::new(ProblemCode::NotConnected, detail).passing(true));
    }
    Ok(host)
}

fn find_box<'a>(name: &NodeName, pool: &'a PoolView) -> Result<&'a BoxView, Problem> {
    match pool.boxes.get(name) {
        Some(found) if found.connected => Ok(found),
        Some(_) => {
            let detail = format!("box {name} is not connected");
            Err(Problem::new(ProblemCode::NotConnected, detail).passing(true))
        }
        None if pool.hosts.contains_key(name) => {
            let detail = format!("{name} is a host; slots are in boxes");
            Err(Problem::new(ProblemCode::WrongRole, detail))
        }
        None => {
            let detail = format!("no box proxy with the name {name} was ever here");
            Err(Problem::new(ProblemCode::NoSuchBox, detail))
        }
    }
}

/// The one slot that was asked for, if it can be lent.
fn find_slot<'a>(
    name: &NodeName,
    slot: SlotId,
    request: &PlanRequest,
    pool: &'a PoolView,
) -> Result<&'a SlotView, Problem> {
    let found = find_box(name, pool)?;
    let Some(view) = found.slots.iter().find(|s| s.address.slot() == slot) else {
        let detail = format!("box {name} has no slot {slot}; its slots are 1 to {}", found.size);
        return Err(Problem::new(ProblemCode::NoSuchSlot, detail));
    };
    let address = &view.address;
    let problem = |code, what: &str| Problem::new(code, format!("slot {address} {what}"));
    match (view.status, &view.owner) {
        (SlotStatus::Free, _) => {}
        (SlotStatus::Empty, _) => return Err(problem(ProblemCode::SlotEmpty, "has no device")),
        (SlotStatus::Quarantined, _) => {
            let what = "is quarantined: its device failed its reset or readiness test; `dxpu-manager \
                        recover` tries again";
            return Err(problem(ProblemCode::SlotQuarantined, what));
        }
        (_, Some(owner)) => {
            let detail = format!(
                "slot {address} is in use by host {} ({}) since {}",
                owner.host, owner.allocation, owner.since
            );
            let problem = Problem::new(ProblemCode::SlotInUse, detail).owned_by(owner.clone());
            return Err(problem.passing(view.status.is_passing()));
        }
        (status, None) => {
            let problem = problem(ProblemCode::SlotBusy, status.explanation());
            return Err(problem.passing(status.is_passing()));
        }
    }
    if !view.has_model(request.model.as_deref()) {
        return Err(explain::wrong_model(request, view));
    }
    Ok(view)
}

/// Free slots for the request, best first; fewer than it asks for if there are no more.
fn choose<'a>(request: &PlanRequest, pool: &'a PoolView) -> Vec<&'a SlotView> {
    let mut by_box: BTreeMap<&NodeName, Vec<&SlotView>> = BTreeMap::new();
    for (name, found) in &pool.boxes {
        let wanted = request.box_name.as_ref().is_none_or(|only| only == name);
        if wanted && found.connected {
            let fits = |s: &&SlotView| {
                s.status == SlotStatus::Free && s.has_model(request.model.as_deref())
            };
            by_box.insert(name, found.slots.iter().filter(fits).collect());
        }
    }
    let wanted = request.count as usize;
    let enough = by_box.values().filter(|slots| slots.len() >= wanted);
    if let Some(best) = enough.min_by_key(|slots| slots.len()) {
        return best.iter().copied().take(wanted).collect();
    }
    let mut boxes: Vec<_> = by_box.into_values().collect();
    boxes.sort_by_key(|slots| std::cmp::Reverse(slots.len()));
    boxes.into_iter().flatten().take(wanted).collect()
}
