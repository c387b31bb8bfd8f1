//! What each role does with the PCIe side.

use crate::board::{Happening, PcieSide, SlotWire};
use proxy_core::boxes::BoxRole;
use proxy_core::config_space::ResetKind;
use proxy_core::host::HostRole;
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use proxy_core::time::Instant;
use tlp_codec::ids::SlotId;

/// TLPs that one turn moves at a place in each direction.
const TLPS_A_TURN: usize = 16;

/// A role as a card plays it.
pub trait CardRole: Role {
    /// Moves TLPs, and what happened beside them, between the role and the PCIe side. Whether there
    /// may be more to do at once; otherwise what is left waits for something to happen.
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide) -> bool;
}

impl CardRole for BoxRole {
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide) -> bool {
        let mut more = false;
        while let Some(happening) = pcie.happening() {
            more = true;
            match happening {
                Happening::Inserted(at, model) => {
                    if let Some(slot) = slot_of(self, at) {
                        self.device_inserted(now, slot, model);
                    }
                }
                Happening::Removed(at) => {
                    if let Some(slot) = slot_of(self, at) {
                        self.device_removed(now, slot);
                    }
                }
                // A host's.
                Happening::Reset(_) | Happening::RootComplex(_) => {}
            }
        }
        for slot in self.slots() {
            let from = from_device(self, now, slot, pcie);
            // Behind that, since some of it the proxy answers itself.
            if self.may_poll(slot) {
                drive_wires(self, slot, pcie);
                let to = to_device(self, now, slot, pcie);
                more |= goes_on(from, to, SlotWire(slot.get()), pcie);
            } else {
                more |= from == TLPS_A_TURN;
            }
        }
        more || pcie.has_more()
    }
}

/// Whether there may be more at once at a place, where so many TLPs went in and out: those behind
/// the last, or one for which the others made room.
fn goes_on(from: usize, to: usize, at: SlotWire, pcie: &mut impl PcieSide) -> bool {
    from == TLPS_A_TURN || to == TLPS_A_TURN || to > 0 && pcie.next(at, ClassSet::ALL).is_some()
}

fn slot_of(role: &BoxRole, at: SlotWire) -> Option<SlotId> {
    role.slots().find(|slot| slot.get() == at.0)
}

fn drive_wires(role: &mut BoxRole, slot: SlotId, pcie: &mut impl PcieSide) {
    let at = SlotWire(slot.get());
    while pcie.can_signal(at) {
        let Some(signal) = role.poll_signal(slot) else { break };
        pcie.signal(at, signal);
    }
}

/// Moves TLPs to a device; how many.
fn to_device(role: &mut BoxRole, now: Instant, slot: SlotId, pcie: &mut impl PcieSide) -> usize {
    let at = SlotWire(slot.get());
    for moved in 0..TLPS_A_TURN {
        let room = pcie.room(at);
        if room == ClassSet::NONE {
            return moved;
        }
        if !pcie.send_with(at, |tlp| role.poll_tlp(now, slot, room, tlp)) {
            return moved;
        }
        if role.wants_mark() {
            role.mark(now);
        }
    }
    TLPS_A_TURN
}

/// Moves TLPs of a device; how many.
fn from_device(role: &mut BoxRole, now: Instant, slot: SlotId, pcie: &mut impl PcieSide) -> usize {
    let at = SlotWire(slot.get());
    for moved in 0..TLPS_A_TURN {
        // At most places there is none, and then nobody need ask the role.
        if pcie.next(at, ClassSet::ALL).is_none() {
            return moved;
        }
        let Some(tlp) = pcie.next(at, role.can_take(slot)) else { return moved };
        if role.handle_tlp(now, slot, tlp).is_err() {
            return moved;
        }
        pcie.take(at);
        if role.wants_mark() {
            role.mark(now);
        }
    }
    TLPS_A_TURN
}

impl CardRole for HostRole {
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide) -> bool {
        let mut more = false;
        while let Some(happening) = pcie.happening() {
            more = true;
            match happening {
                Happening::Reset(kind) => self.handle_reset(now, kind),
                Happening::RootComplex(present) => {
                    if !present {
                        self.handle_reset(now, ResetKind::Fundamental);
                    }
                    self.set_root_complex(present);
                }
                // A box's.
                Happening::Inserted(..) | Happening::Removed(_) => {}
            }
        }
        let from = from_root(self, now, pcie);
        let to = if self.may_poll() || self.holds_any() { to_root(self, now, pcie) } else { 0 };
        more | goes_on(from, to, SlotWire::HOST, pcie) || pcie.has_more()
    }
}

/// Moves TLPs of the root complex; how many.
fn from_root(role: &mut HostRole, now: Instant, pcie: &mut impl PcieSide) -> usize {
    for moved in 0..TLPS_A_TURN {
        let Some(tlp) = pcie.next(SlotWire::HOST, ClassSet::ALL) else { return moved };
        if role.handle_tlp(now, tlp).is_err() {
            return moved;
        }
        pcie.take(SlotWire::HOST);
        if role.wants_mark() {
            role.mark(now);
        }
    }
    TLPS_A_TURN
}

/// Moves TLPs to the root complex; how many. The role says what it has only by giving it, so it is
/// asked when everything finds room.
fn to_root(role: &mut HostRole, now: Instant, pcie: &mut impl PcieSide) -> usize {
    for moved in 0..TLPS_A_TURN {
        if pcie.room(SlotWire::HOST) != ClassSet::ALL {
            return moved;
        }
        if !pcie.send_with(SlotWire::HOST, |tlp| role.poll_tlp(now, tlp)) {
            return moved;
        }
        if role.wants_mark() {
            role.mark(now);
        }
    }
    TLPS_A_TURN
}
