//! Why nothing fits, constraint by constraint.

use super::{BoxView, HostView, PlanRequest, PoolView, SlotStatus, SlotView};
use crate::types::{NodeName, Problem, ProblemCode};
use std::collections::BTreeMap;

/// Slots that are named one by one; of more, only how many.
const NAMED: usize = 8;

/// A named slot has another model.
pub(super) fn wrong_model(request: &PlanRequest, slot: &SlotView) -> Problem {
    let wanted = request.model.as_deref().unwrap_or_default();
    let reason = format!("slot {} has model {:?}, not {wanted:?}", slot.address, slot.model);
    Problem::new(ProblemCode::NothingFits, reason.clone()).because(vec![reason])
}

/// There are not enough slots, not enough ports, or both.
pub(super) fn nothing_fits(request: &PlanRequest, host: &HostView, pool: &PoolView) -> Problem {
    let mut reasons = Vec::new();
    let wanted = request.count as usize;
    if host.free_ports.len() < wanted {
        reasons.push(format!(
            "host {} has {} of {} ports free, {wanted} needed",
            request.host,
            host.free_ports.len(),
            host.ports
        ));
    }
    reasons.extend(slots(request, pool));
    let detail = format!("cannot lend {wanted} to {}: {}", request.host, reasons.join("; "));
    let passing = in_scope(request, pool).any(|(_, found, slot)| {
        found.connecting || slot.has_model(request.model.as_deref()) && slot.status.is_passing()
    });
    Problem::new(ProblemCode::NothingFits, detail).because(reasons).passing(passing)
}

/// The slots that the request may be about, with their boxes.
fn in_scope<'a>(
    request: &'a PlanRequest,
    pool: &'a PoolView,
) -> impl Iterator<Item = (&'a NodeName, &'a BoxView, &'a SlotView)> {
    let boxes = pool.boxes.iter();
    boxes
        .filter(|(name, _)| request.box_name.as_ref().is_none_or(|only| only == *name))
        .flat_map(|(name, found)| found.slots.iter().map(move |slot| (name, found, slot)))
}

/// What keeps the slots from being enough; nothing if they are.
fn slots(request: &PlanRequest, pool: &PoolView) -> Vec<String> {
    let model = request.model.as_deref();
    let (mut free, mut matching, mut blocked) = (0, 0, Vec::new());
    let mut models: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, found, slot) in in_scope(request, pool) {
        if slot.status == SlotStatus::Empty {
            continue;
        }
        *models.entry(&slot.model).or_default() += 1;
        if !slot.has_model(model) {
            continue;
        }
        matching += 1;
        match (&slot.owner, slot.status) {
            _ if !found.connected => {
                blocked.push(format!("{}: box {name} is not connected", slot.address));
            }
            (None, SlotStatus::Free) => free += 1,
            (Some(owner), status) => blocked.push(format!(
                "{}: {status} by host {} ({}) since {}",
                slot.address, owner.host, owner.allocation, owner.since
            )),
            (None, status) => blocked.push(format!("{} {}", slot.address, status.explanation())),
        }
    }
    if free >= request.count as usize {
        return Vec::new();
    }
    let place = request.box_name.as_ref().map(|name| format!(" in box {name}")).unwrap_or_default();
    let of_model = model.map(|model| format!(" with model {model:?}")).unwrap_or_default();
    let mut reasons = vec![if matching == 0 {
        format!("no device{of_model}{place}")
    } else {
        format!("{free} free of {matching}{of_model}{place}, {} needed", request.count)
    }];
    if matching == 0 && model.is_some() && !models.is_empty() {
        let list = models.iter().map(|(model, count)| format!("{model:?} ({count})"));
        reasons.push(format!("models there are: {}", list.collect::<Vec<_>>().join(", ")));
    }
    let more = blocked.len().saturating_sub(NAMED);
    blocked.truncate(NAMED);
    reasons.extend(blocked);
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    reasons
}
