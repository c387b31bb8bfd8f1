//! One slot that is named: it is lent, or it is said why not.

use super::choose::{Chooser, Place};
use super::{Liveness, PlanRequest, SlotView, find_box, held, view};
use crate::records::Tables;
use crate::records::pool::BoxEntry;
use crate::types::{Amount, NodeName, Problem, ProblemCode, SlotStatus, Together};
use tlp_codec::ids::SlotId;

/// The one slot that was asked for; nothing if it is free and will not do.
pub(super) fn named_slot<L: Liveness>(
    name: &NodeName,
    slot: SlotId,
    chooser: &Chooser<'_, L>,
) -> Result<Option<Vec<Place>>, Problem> {
    let tables = chooser.filter.tables;
    let size = find_box(name, tables, chooser.live)?;
    let entry = tables.pool_box(name).expect("boxes that were here are there");
    if entry.slot(slot).is_none() {
        let detail = format!("box {name} has no slot {slot}; its slots are 1 to {size}");
        return Err(Problem::new(ProblemCode::NoSuchSlot, detail));
    }
    let view = SlotView::of(tables, entry.address(slot));
    if view.status != SlotStatus::Free {
        return Err(taken(tables, &view));
    }
    if !chooser.filter.has_model(&view.model) {
        return Err(wrong_model(chooser.filter.request, &view));
    }
    if let Some(problem) = wrong_island(chooser.filter.request, entry, &view) {
        return Err(problem);
    }
    Ok(chooser.slot(entry, slot))
}

/// That a slot cannot be lent, and why.
fn taken(tables: &Tables, view: &SlotView) -> Problem {
    let (address, status) = (&view.address, view.status);
    if let Some(owner) = &view.owner {
        let detail = format!("slot {address} is in use by host {owner}");
        let problem = Problem::new(ProblemCode::SlotInUse, detail).owned_by(owner.clone());
        return problem.passing(status.is_passing());
    }
    let detail = view::not_free(tables, address, status);
    match status {
        SlotStatus::Empty => Problem::new(ProblemCode::SlotEmpty, detail),
        SlotStatus::Quarantined => {
            let what = "its device failed its reset or readiness test; `dxpu-manager recover` \
                        tries again";
            Problem::new(ProblemCode::SlotQuarantined, format!("{detail}: {what}"))
        }
        SlotStatus::Held => {
            let end = tables.hold_of(address).map(|hold| format!("; {}", held::end(tables, hold)));
            Problem::new(ProblemCode::Held, detail + &end.unwrap_or_default())
        }
        SlotStatus::Exhausted => Problem::new(ProblemCode::EpochsExhausted, detail),
        _ => Problem::new(ProblemCode::SlotBusy, detail).passing(status.is_passing()),
    }
}

/// A named slot has another model.
fn wrong_model(request: &PlanRequest, slot: &SlotView) -> Problem {
    let wanted = request.wishes.model.as_deref().unwrap_or_default();
    let reason = format!("slot {} has model {:?}, not {wanted:?}", slot.address, slot.model);
    Problem::new(ProblemCode::NothingFits, reason.clone()).because(vec![reason])
}

/// A named slot is in no island although the request wants one, or in one that is too slow. Nothing if
/// it will do.
fn wrong_island(request: &PlanRequest, entry: &BoxEntry, slot: &SlotView) -> Option<Problem> {
    if request.wishes.together != Together::Island {
        return None;
    }
    let own = entry.slot(slot.address.slot())?.island;
    let own = own.and_then(|island| entry.shape().islands.get(usize::from(island)));
    let reason = match (own, request.wishes.island_rate) {
        (Some(island), Some(_)) if island.rate == 0 => format!(
            "slot {} is in an island of which no inventory says how fast it is; wish for no rate, or \
             name no slot",
            slot.address
        ),
        (Some(island), Some(rate)) if island.rate < rate => format!(
            "slot {} is in an island at {}, not at {}; wish for less, or name no slot",
            slot.address,
            Amount(island.rate),
            Amount(rate)
        ),
        (Some(_), _) => return None,
        (None, _) => format!(
            "slot {} is in no island, so what is lent there is together with nothing; leave \
             `together` out, or name no slot",
            slot.address
        ),
    };
    Some(Problem::new(ProblemCode::NothingFits, reason.clone()).because(vec![reason]))
}
