//! What each role does with the PCIe side.

use super::places;
use super::progress::{PlaceBits, bit};
use crate::board::{Happening, PcieSide, Places, SlotWire};
use crate::waiting::class_of;
use proxy_core::boxes::BoxRole;
use proxy_core::config_space::ResetKind;
use proxy_core::host::HostRole;
use proxy_core::link::ClassSet;
use proxy_core::role::{Backpressure, Role};
use proxy_core::time::Instant;
use tlp_codec::ids::SlotId;

/// TLPs that one exchange moves at a place in each direction.
const TLPS_AT_ONCE: usize = 16;

/// A role as a card plays it.
pub trait CardRole: Role {
    /// Moves TLPs, and what happened beside them, between the role and the PCIe side.
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide) -> Exchanged;

    /// What is at the card's places.
    fn places(&self) -> Places;
}

/// What came of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// TLPs that were moved, in both directions.
    pub moved: usize,
    /// Whether there may be more to do at once; otherwise what is left waits for something to
    /// happen.
    pub more: bool,
    /// Places from which TLPs were taken, or at which the role has no room for what waits there.
    pub places: PlaceBits,
}

impl CardRole for BoxRole {
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide) -> Exchanged {
        let (mut moved, mut more, mut places) = (0, false, 0);
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
            let Taken { count: from, refused } = from_device(self, now, slot, pcie);
            moved += from;
            if from > 0 || refused {
                places |= bit(SlotWire(slot.get()));
            }
            // Behind that, since some of it the proxy answers itself.
            if self.may_poll(slot) {
                drive_wires(self, slot, pcie);
                let to = to_device(self, now, slot, pcie);
                moved += to;
                more |= goes_on(from, to, SlotWire(slot.get()), pcie);
            } else {
                more |= from == TLPS_AT_ONCE;
            }
        }
        Exchanged { moved, more: more || pcie.has_more(), places }
    }

    fn places(&self) -> Places {
        places::of_box(self)
    }
}

/// Whether there may be more at once at a place, where so many TLPs went in and out: those behind
/// the last, or one for which the others made room.
fn goes_on(from: usize, to: usize, at: SlotWire, pcie: &mut impl PcieSide) -> bool {
    from == TLPS_AT_ONCE || to == TLPS_AT_ONCE || to > 0 && pcie.next(at, ClassSet::ALL).is_some()
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
    for moved in 0..TLPS_AT_ONCE {
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
    TLPS_AT_ONCE
}

/// What a role took at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    /// TLPs.
    count: usize,
    /// It has no room for what is next there.
    refused: bool,
}

/// Moves TLPs of a device.
fn from_device(role: &mut BoxRole, now: Instant, slot: SlotId, pcie: &mut impl PcieSide) -> Taken {
    let at = SlotWire(slot.get());
    let mut taken = Taken::default();
    // At most places there is none, and then nobody need ask the role.
    if pcie.next(at, ClassSet::ALL).is_none() {
        return taken;
    }
    while taken.count < TLPS_AT_ONCE {
        let (classes, sure) = role.takes(slot);
        if sure == 0 {
            taken.refused = true;
            break;
        }
        for _ in 0..sure.min(TLPS_AT_ONCE - taken.count) {
            let Some(tlp) = pcie.next(at, classes) else {
                taken.refused = classes != ClassSet::ALL;
                return taken;
            };
            // It has just said that it takes it: who says otherwise now refuses nothing, but is wrong.
            if role.handle_tlp(now, slot, tlp).is_err() {
                return taken;
            }
            pcie.take(at);
            taken.count += 1;
            if role.wants_mark() {
                role.mark(now);
            }
        }
    }
    taken
}

impl CardRole for HostRole {
    fn exchange(&mut self, now: Instant, pcie: &mut impl PcieSide) -> Exchanged {
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
        let Taken { count: from, refused } = from_root(self, now, pcie);
        let to = if self.may_poll() || self.holds_any() { to_root(self, now, pcie) } else { 0 };
        more |= goes_on(from, to, SlotWire::HOST, pcie) || pcie.has_more();
        let places = if from > 0 || refused { bit(SlotWire::HOST) } else { 0 };
        Exchanged { moved: from + to, more, places }
    }

    fn places(&self) -> Places {
        places::of_host(self)
    }
}

/// Moves TLPs of the root complex.
fn from_root(role: &mut HostRole, now: Instant, pcie: &mut impl PcieSide) -> Taken {
    hand_over(pcie, SlotWire::HOST, |tlp| {
        let taken = role.handle_tlp(now, tlp);
        if taken.is_ok() && role.wants_mark() {
            role.mark(now);
        }
        taken
    })
}

/// Hands over what came in at a place, as much as one exchange moves. A TLP for which there is no room is
/// passed by those that may.
fn hand_over(
    pcie: &mut impl PcieSide,
    at: SlotWire,
    mut take: impl FnMut(&[u8]) -> Result<(), Backpressure>,
) -> Taken {
    let mut classes = ClassSet::ALL;
    let mut taken = Taken::default();
    while taken.count < TLPS_AT_ONCE
        && let Some(tlp) = pcie.next(at, classes)
    {
        match take(tlp) {
            Ok(()) => {
                pcie.take(at);
                taken.count += 1;
            }
            Err(Backpressure) => {
                taken.refused = true;
                let others = classes.without(class_of(tlp));
                if others == classes {
                    // The PCIe side takes it for one of another class, and would give it again.
                    break;
                }
                classes = others;
            }
        }
    }
    taken
}

/// Moves TLPs to the root complex; how many.
fn to_root(role: &mut HostRole, now: Instant, pcie: &mut impl PcieSide) -> usize {
    for moved in 0..TLPS_AT_ONCE {
        let room = pcie.room(SlotWire::HOST);
        if room == ClassSet::NONE {
            return moved;
        }
        if !pcie.send_with(SlotWire::HOST, |tlp| role.poll_tlp_of(now, room, tlp)) {
            return moved;
        }
        if role.wants_mark() {
            role.mark(now);
        }
    }
    TLPS_AT_ONCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{RecordPort, Windows};
    use crate::testing::WireMac;
    use proxy_core::boxes::SlotSignal;
    use std::vec;
    use std::vec::Vec;
    use tlp_codec::tlp::{Class, Packet};

    /// TLPs of a class without anything special, told apart by their tags.
    fn tlp(class: Class, tag: u8) -> [u8; 16] {
        let mut tlp = [0; 16];
        match class {
            Class::Posted => tlp[..8].copy_from_slice(&[0x40, 0, 0, 1, 0, 0, tag, 0x0f]),
            Class::NonPosted => tlp[..8].copy_from_slice(&[0x20, 0, 0, 1, 0, 0, tag, 0x0f]),
            Class::Completion => {
                tlp.copy_from_slice(&[0x4a, 0, 0, 1, 0, 0, 0, 4, 0, 0, tag, 0, 0, 0, 0, 0]);
            }
        }
        tlp
    }

    #[test]
    fn one_without_room_is_passed_by_those_that_may() {
        use Class::{Completion, NonPosted, Posted};
        let order = [NonPosted, Posted, NonPosted, Completion, Posted];
        let cases: [(&[Class], &[u8]); 5] = [
            (&[], &[0, 1, 2, 3, 4]),
            (&[NonPosted], &[1, 3, 4]),
            // Posted ones pass whatever is no posted one.
            (&[NonPosted, Completion], &[1, 4]),
            (&[Completion], &[0, 1, 2, 4]),
            // Nothing passes a posted one.
            (&[Posted], &[0]),
        ];
        for (full, wanted) in cases {
            let (near, far) = WireMac::pair(1, 2, 64);
            let windows = Windows([4; 3]);
            let mut root = RecordPort::new(near, 0..=0, windows);
            let mut card = RecordPort::new(far, 0..=0, windows);
            for _ in 0..4 {
                root.look();
                card.look();
            }
            for (tag, class) in (0..).zip(order) {
                root.send(SlotWire::HOST, &tlp(class, tag));
            }
            card.look();
            let mut seen = Vec::new();
            let taken = hand_over(&mut card, SlotWire::HOST, |tlp| {
                let packet = Packet::new_checked(tlp).unwrap();
                if full.contains(&packet.class().unwrap()) {
                    return Err(Backpressure);
                }
                seen.push(packet.tag().get() as u8);
                Ok(())
            });
            let refused = !full.is_empty();
            assert_eq!(taken, Taken { count: wanted.len(), refused }, "without room for {full:?}");
            assert_eq!(seen, wanted, "without room for {full:?}");
        }
    }

    /// A PCIe side that gives a write as a non-posted TLP.
    struct Wrong([u8; 16]);

    impl PcieSide for Wrong {
        fn happening(&mut self) -> Option<Happening> {
            None
        }

        fn has_more(&self) -> bool {
            false
        }

        fn next(&mut self, _at: SlotWire, of: ClassSet) -> Option<&[u8]> {
            of.contains(Class::NonPosted).then_some(&self.0)
        }

        fn take(&mut self, _at: SlotWire) {}

        fn room(&mut self, _at: SlotWire) -> ClassSet {
            ClassSet::NONE
        }

        fn send_with(
            &mut self,
            _at: SlotWire,
            _write: impl FnOnce(&mut [u8]) -> Option<usize>,
        ) -> bool {
            false
        }

        fn can_signal(&mut self, _at: SlotWire) -> bool {
            false
        }

        fn signal(&mut self, _at: SlotWire, _signal: SlotSignal) {}

        fn stands_still(&mut self) -> bool {
            false
        }
    }

    /// A root complex that has room for these classes, and what it got.
    struct Root(ClassSet, Vec<Vec<u8>>);

    impl PcieSide for Root {
        fn happening(&mut self) -> Option<Happening> {
            None
        }

        fn has_more(&self) -> bool {
            false
        }

        fn next(&mut self, _at: SlotWire, _of: ClassSet) -> Option<&[u8]> {
            None
        }

        fn take(&mut self, _at: SlotWire) {}

        fn room(&mut self, _at: SlotWire) -> ClassSet {
            self.0
        }

        fn send_with(
            &mut self,
            _at: SlotWire,
            write: impl FnOnce(&mut [u8]) -> Option<usize>,
        ) -> bool {
            assert_ne!(self.0, ClassSet::NONE, "there is room for something");
            let mut tlp = vec![0; proxy_core::limits::TLP_BUFFER];
            let Some(length) = write(&mut tlp) else { return false };
            tlp.truncate(length);
            self.1.push(tlp);
            true
        }

        fn can_signal(&mut self, _at: SlotWire) -> bool {
            false
        }

        fn signal(&mut self, _at: SlotWire, _signal: SlotSignal) {}

        fn stands_still(&mut self) -> bool {
            false
        }
    }

    #[test]
    fn a_root_complex_without_room_for_requests_gets_the_rest() {
        let now = Instant::from_nanos(1);
        let no_requests = ClassSet::ALL.without(Class::NonPosted);
        let only_requests = ClassSet::NONE.with(Class::NonPosted);
        for (room, comes) in [
            (ClassSet::ALL, 1),
            (no_requests, 1),
            // The switch answers with a completion.
            (only_requests, 0),
            (ClassSet::NONE, 0),
        ] {
            let mut role = HostRole::new(&proxy_core::host::HostConfig::default()).unwrap();
            // A read of the switch's own first configuration register.
            let mut read = [0; 12];
            read[..8].copy_from_slice(&[0x04, 0, 0, 1, 0, 0, 9, 0x0f]);
            role.handle_tlp(now, &read).unwrap();
            let mut root = Root(room, Vec::new());
            assert_eq!(to_root(&mut role, now, &mut root), comes, "{room:?}");
            assert_eq!(root.1.len(), comes);
            assert!(root.1.iter().all(|tlp| class_of(tlp) == Class::Completion));
        }
    }

    #[test]
    fn a_side_that_has_another_class_in_mind_does_not_hold_the_turn_up() {
        let mut wrong = Wrong(tlp(Class::Posted, 1));
        let taken = hand_over(&mut wrong, SlotWire::HOST, |_| Err(Backpressure));
        assert_eq!(taken, Taken { count: 0, refused: true });
    }
}
