//! What is held back, and why. A place has one hold: where several would, one that somebody made goes
//! before the one for its health, and that comes when the other ends.

use super::drain::check;
use crate::records::{Tables, Txn};
use crate::types::{
    EventKind, EventRecord, HealthRecord, HoldKind, HoldRecord, OperationKind, OperationRecord,
    Place, Problem, ProblemCode,
};

/// Holds something back and says so.
pub fn hold(txn: &mut Txn, record: HoldRecord) {
    let detail = format!("{} gets nothing new ({}): {}", record.place, record.kind, record.reason);
    let mut event = EventRecord::new(EventKind::Held, detail);
    event.operation = record.operation;
    txn.event(about(event, &record.place));
    txn.put_hold(record);
}

fn about(event: EventRecord, place: &Place) -> EventRecord {
    match place {
        Place::Slot(slot) => event.node(slot.box_name()).slot(slot),
        Place::Node(name) => event.node(name),
        Place::Path(_) | Place::Rack(_) | Place::Site(_) | Place::Fabric(_) => event,
    }
}

/// The operation that drains a place.
pub(super) fn draining<'a>(tables: &'a Tables, place: &Place) -> Option<&'a OperationRecord> {
    tables.running().find(
        |o| matches!(&o.what, OperationKind::Drain { place: drained, .. } if drained == place),
    )
}

/// Holds something back because somebody works on it. Doing it twice is the same as doing it once.
/// What is being drained is held back as it is, and for this if the drain is called back.
///
/// # Errors
///
/// When there is no such thing.
pub fn maintain(txn: &mut Txn, place: &Place, reason: &str) -> Result<HoldRecord, Problem> {
    check(txn, place)?;
    let there = txn.holds().get(place).filter(|hold| hold.kind != HoldKind::Unhealthy).cloned();
    let drain = draining(txn, place).cloned();
    let record = HoldRecord {
        place: place.clone(),
        kind: HoldKind::Maintenance,
        reason: reason.to_owned(),
        since: txn.now(),
        operation: None,
    };
    if let Some(there) = there {
        if let Some(mut drain) = drain.filter(|drain| there.operation == Some(drain.id))
            && let OperationKind::Drain { former: former @ None, .. } = &mut drain.what
        {
            *former = Some(Box::new(record));
            txn.put_operation(drain);
        }
        return Ok(there);
    }
    hold(txn, record.clone());
    Ok(record)
}

/// Does not hold something back any more, whatever it was held back for. What is not well stays held
/// back for that; put back once more, it is used as it is until it fails again.
///
/// # Errors
///
/// When it is not held back, or is being drained.
pub fn put_back(txn: &mut Txn, place: &Place) -> Result<HoldRecord, Problem> {
    let Some(record) = txn.holds().get(place).cloned() else {
        return Err(Problem::new(ProblemCode::NotHeld, format!("{place} is not held back")));
    };
    if let Some(OperationRecord { id, started, .. }) = draining(txn, place) {
        let detail =
            format!("{id} drains {place} since {started}; `dxpu-manager cancel {id}` first");
        return Err(Problem::new(ProblemCode::SlotBusy, detail));
    }
    if record.kind == HoldKind::Unhealthy {
        // Whoever puts it back does so although it is not well.
        if let Some(record) = unwell(txn, place) {
            txn.put_health(HealthRecord { holds: false, ..record });
        }
        end_hold(txn, place);
    } else {
        end_other_hold(txn, place);
    }
    Ok(record)
}

/// The health of a place that gets nothing new because of it.
fn unwell(tables: &Tables, place: &Place) -> Option<HealthRecord> {
    let record = tables.health().get(&place.subject()?)?;
    record.holds.then(|| HealthRecord::clone(record))
}

/// Holds something back that is to be for its health, if nothing holds it back yet.
pub fn hold_unwell(txn: &mut Txn, place: &Place) {
    if !txn.holds().contains_key(place)
        && let Some(HealthRecord { reason, .. }) = unwell(txn, place)
    {
        let (place, kind) = (place.clone(), HoldKind::Unhealthy);
        hold(txn, HoldRecord { place, kind, reason, since: txn.now(), operation: None });
    }
}

/// Does not hold something back any more for another reason than its health, which may be one to
/// hold it back still.
pub(super) fn end_other_hold(txn: &mut Txn, place: &Place) {
    if unwell(txn, place).is_none() {
        return end_hold(txn, place);
    }
    txn.remove_hold(place);
    hold_unwell(txn, place);
}

/// Does not hold something back any more, and says so.
pub fn end_hold(txn: &mut Txn, place: &Place) {
    if txn.remove_hold(place).is_some() {
        let event = EventRecord::new(EventKind::HoldEnded, format!("{place} can be used again"));
        txn.event(about(event, place));
    }
}
