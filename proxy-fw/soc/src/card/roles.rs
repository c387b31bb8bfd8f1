//! What each role does with the PCIe side.

use crate::board::{Happening, PcieSide, SlotWire};
use proxy_core::boxes::BoxRole;
use proxy_core::config_space::ResetKind;
use proxy_core::host::HostRole;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use proxy_core::time::Instant;
use tlp_codec::ids::SlotId;

/// TLPs that one turn moves at a place in each direction.
const TLPS_A_TURN: usize = 16;

/// Room for the longest TLP.
pub type Buffer = [u8; TLP_BUFFER];

/// A role as a card plays it.
pub trait CardRole: Role {
    /// Moves TLPs, and what happened beside them, between the role and the PCIe side. Whether
    /// there was anything.
    /// `buffer` is for one TLP on its way.
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide, buffer: &mut Buffer) -> bool;
}

impl CardRole for BoxRole {
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide, buffer: &mut Buffer) -> bool {
        let mut busy = false;
        while let Some(happening) = pcie.happening() {
            busy = true;
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
            busy |= drive_wires(self, slot, pcie);
            busy |= to_device(self, now, slot, pcie, buffer);
            busy |= from_device(self, now, slot, pcie);
        }
        busy
    }
}

fn slot_of(role: &BoxRole, at: SlotWire) -> Option<SlotId> {
    role.slots().find(|slot| slot.get() == at.0)
}

fn drive_wires(role: &mut BoxRole, slot: SlotId, pcie: &mut impl PcieSide) -> bool {
    let at = SlotWire(slot.get());
    let mut busy = false;
    while pcie.can_signal(at) {
        let Some(signal) = role.poll_signal(slot) else { break };
        pcie.signal(at, signal);
        busy = true;
    }
    busy
}

fn to_device(
    role: &mut BoxRole,
    now: Instant,
    slot: SlotId,
    pcie: &mut impl PcieSide,
    buffer: &mut Buffer,
) -> bool {
    let at = SlotWire(slot.get());
    for moved in 0..TLPS_A_TURN {
        let room = pcie.room(at);
        if room == ClassSet::NONE {
            return moved > 0;
        }
        let Some(length) = role.poll_tlp(now, slot, room, buffer) else { return moved > 0 };
        pcie.send(at, &buffer[..length]);
        if role.wants_mark() {
            role.mark(now);
        }
    }
    true
}

fn from_device(role: &mut BoxRole, now: Instant, slot: SlotId, pcie: &mut impl PcieSide) -> bool {
    let at = SlotWire(slot.get());
    for moved in 0..TLPS_A_TURN {
        let Some(tlp) = pcie.next(at, role.can_take(slot)) else { return moved > 0 };
        if role.handle_tlp(now, slot, tlp).is_err() {
            return moved > 0;
        }
        pcie.take(at);
        if role.wants_mark() {
            role.mark(now);
        }
    }
    true
}

impl CardRole for HostRole {
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide, buffer: &mut Buffer) -> bool {
        let mut busy = false;
        while let Some(happening) = pcie.happening() {
            busy = true;
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
        busy | from_root(self, now, pcie) | to_root(self, now, pcie, buffer)
    }
}

fn from_root(role: &mut HostRole, now: Instant, pcie: &mut impl PcieSide) -> bool {
    for moved in 0..TLPS_A_TURN {
        let Some(tlp) = pcie.next(SlotWire::HOST, ClassSet::ALL) else { return moved > 0 };
        if role.handle_tlp(now, tlp).is_err() {
            return moved > 0;
        }
        pcie.take(SlotWire::HOST);
        if role.wants_mark() {
            role.mark(now);
        }
    }
    true
}

/// The role says what it has only by giving it, so it is asked when everything finds room.
fn to_root(
    role: &mut HostRole,
    now: Instant,
    pcie: &mut impl PcieSide,
    buffer: &mut Buffer,
) -> bool {
    for moved in 0..TLPS_A_TURN {
        if pcie.room(SlotWire::HOST) != ClassSet::ALL {
            return moved > 0;
        }
        let Some(length) = role.poll_tlp(now, buffer) else { return moved > 0 };
        pcie.send(SlotWire::HOST, &buffer[..length]);
        if role.wants_mark() {
            role.mark(now);
        }
    }
    true
}
