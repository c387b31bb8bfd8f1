//! Devices that are carried about: what went wrong is the device's, not its slot's. A device is known
//! by its IDs and serial number, wherever it is; one that has no number only in its slot. What is
//! not well and in no slot is remembered until this manager ends.

use super::observed::{Errors, lock};
use super::{HealthConfig, Observed};
use crate::operations::holds;
use crate::records::{Tables, Txn};
use crate::types::{HealthDevice, HealthRecord, HoldKind, Place, SlotAddress, Subject};
use std::collections::{HashMap, VecDeque};

/// Devices in no slot that are remembered: of more that are not well, the latest; of more that only
/// had errors, the first.
const MAX_AWAY: usize = 1024;

/// The device in a slot. Nothing also while it is not known which: of one that it has not looked at
/// yet, or that does not answer, a box says no IDs.
pub(super) fn now_in(tables: &Tables, slot: &SlotAddress) -> Option<HealthDevice> {
    let first = tables.present(slot).next()?;
    let (vendor, device) = (first.pci.vendor, first.pci.device);
    // No vendor has either number; the second is what a read of nothing gives (PCI Code and ID
    // Assignment; PCI Express Base Specification 4.0, section 2.3.2).
    let is_known = !matches!(vendor, 0 | 0xffff);
    is_known.then_some(HealthDevice { vendor, device, serial: first.serial })
}

/// Where a device is. Nothing if it has no serial number, or several slots say that they have it.
fn found(tables: &Tables, device: HealthDevice) -> Option<SlotAddress> {
    let pool = tables.pool();
    let slots = (device.serial != 0).then(|| pool.with_serial(device.serial));
    let slots = slots.into_iter().flatten();
    let slots = slots.filter_map(|(node, slot)| Some(pool.get(node)?.address(slot)));
    let mut slots = slots.filter(|slot| now_in(tables, slot) == Some(device));
    slots.next().filter(|_| slots.next().is_none())
}

/// Where the device is now that was in a slot.
enum Whereabouts {
    /// There, or nobody is known to have taken its place.
    Here,
    /// In another slot.
    In(SlotAddress),
    /// Nowhere; another one is in its place.
    Away,
}

fn look(tables: &Tables, slot: &SlotAddress, device: HealthDevice) -> Whereabouts {
    let now = now_in(tables, slot);
    match found(tables, device) {
        _ if now == Some(device) => Whereabouts::Here,
        Some(other) => Whereabouts::In(other),
        None if now.is_none() => Whereabouts::Here,
        None => Whereabouts::Away,
    }
}

impl Observed {
    /// Errors go with the devices that had them.
    pub(super) fn follow(&self, tables: &Tables, config: &HealthConfig) {
        let mut errors = lock(&self.errors);
        let mut away = lock(&self.away);
        let mut moved: Vec<(SlotAddress, Errors)> = Vec::new();
        errors.retain(|slot, own| {
            own.device = own.device.or_else(|| now_in(tables, slot));
            let Some(device) = own.device else { return true };
            match look(tables, slot, device) {
                Whereabouts::Here => return true,
                Whereabouts::In(other) => moved.push((other, std::mem::take(own))),
                Whereabouts::Away => put_away(&mut away, device, std::mem::take(own), config),
            }
            false
        });
        let come: HashMap<_, _> =
            away.keys().filter_map(|device| Some((*device, found(tables, *device)?))).collect();
        for (device, slot) in come {
            moved.extend(away.remove(&device).map(|own| (slot, own)));
        }
        // Some may have been seen there already.
        for (slot, own) in moved {
            errors.entry(slot).or_default().merge(own, config);
        }
    }
}

/// What was seen of a device that is in no slot now goes with it, if it can be known again and there is
/// room.
pub(super) fn put_away(
    away: &mut HashMap<HealthDevice, Errors>,
    device: HealthDevice,
    own: Errors,
    config: &HealthConfig,
) {
    if device.serial != 0 && (away.contains_key(&device) || away.len() < MAX_AWAY) {
        away.entry(device).or_default().merge(own, config);
    }
}

/// What is not well and in no slot, longest away first.
#[derive(Default)]
pub(super) struct Away(VecDeque<HealthRecord>);

/// Records to move: as they were, and where to.
type Moves = Vec<(HealthRecord, Option<SlotAddress>)>;

impl Away {
    /// Which records are not where their devices are.
    pub(super) fn moves(&self, tables: &Tables) -> Moves {
        let recorded = tables.health().values().filter_map(|record| {
            let Subject::Slot { slot } = &record.subject else { return None };
            match look(tables, slot, record.device?) {
                Whereabouts::Here => None,
                Whereabouts::In(other) => Some((HealthRecord::clone(record), Some(other))),
                Whereabouts::Away => Some((HealthRecord::clone(record), None)),
            }
        });
        let come = self
            .0
            .iter()
            .filter_map(|record| Some((record.clone(), Some(found(tables, record.device?)?))));
        recorded.chain(come).collect()
    }

    /// They are recorded where they are now.
    pub(super) fn moved(&mut self, moves: Moves) {
        for (record, to) in moves {
            self.0.retain(|own| own.device != record.device);
            if to.is_none() && record.device.is_some_and(|device| device.serial != 0) {
                self.0.push_back(record);
            }
        }
        let over = self.0.len().saturating_sub(MAX_AWAY);
        self.0.drain(..over);
    }
}

/// Records where they are.
pub(super) fn carry(txn: &mut Txn, moves: &Moves) {
    for (record, _) in moves {
        let Subject::Slot { slot } = &record.subject else { continue };
        // One that was away has nothing there any more; another device may.
        if txn.health().get(&record.subject).is_none_or(|own| own.device != record.device) {
            continue;
        }
        txn.remove_health(&record.subject);
        let place = Place::Slot(slot.clone());
        if txn.holds().get(&place).is_some_and(|hold| hold.kind == HoldKind::Unhealthy) {
            holds::end_hold(txn, &place);
        }
    }
    for (record, to) in moves {
        let Some(slot) = to else { continue };
        txn.put_health(HealthRecord {
            subject: Subject::Slot { slot: slot.clone() },
            ..record.clone()
        });
        holds::hold_unwell(txn, &Place::Slot(slot.clone()));
    }
}
