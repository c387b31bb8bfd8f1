use super::*;
use crate::testing::WireMac;
use proxy_core::control::Name;
use std::vec::Vec;

const WINDOWS: Windows = Windows([4, 2, 4]);

/// A memory write of one doubleword, a read, a completion; the last byte tells them apart.
fn tlp(class: Class, mark: u8) -> Vec<u8> {
    match class {
        Class::Posted => [0x40, 0, 0, 1, 0, 0, 0, 0xf, 0, 0, 0, 0, 0, 0, 0, mark].to_vec(),
        Class::NonPosted => [0, 0, 0, 1, 0, 0, mark, 0xf, 0, 0, 0, 0].to_vec(),
        Class::Completion => [0x0a, 0, 0, 0, 0, 0, 0, 4, 0, 0, mark, 0].to_vec(),
    }
}

type End = RecordPort<WireMac>;

/// A card with two slots, and the models in them; they have met.
fn ends(room: usize) -> (End, End) {
    let (a, b) = WireMac::pair(1, 2, room);
    let mut ends = (RecordPort::new(a, 1..=2, WINDOWS), RecordPort::new(b, 1..=2, WINDOWS));
    for _ in 0..8 {
        ends.0.look();
        ends.1.look();
    }
    assert!(ends.0.is_met() && ends.1.is_met());
    ends
}

const ONE: SlotWire = SlotWire(1);
const TWO: SlotWire = SlotWire(2);

#[test]
fn every_class_has_its_window_at_every_place() {
    let (mut card, mut models) = ends(64);
    for at in [ONE, TWO] {
        for (class, window) in Class::ALL.into_iter().zip(WINDOWS.0) {
            for mark in 0..window {
                assert!(card.room(at).contains(class), "{at:?} {class:?} {mark}");
                card.send(at, &tlp(class, mark));
            }
            assert!(!card.room(at).contains(class), "{at:?} {class:?}");
        }
    }
    models.look();
    models.look();
    for at in [ONE, TWO] {
        for (class, window) in Class::ALL.into_iter().zip(WINDOWS.0) {
            for mark in 0..window {
                assert_eq!(models.next(at, ClassSet::ALL), Some(&tlp(class, mark)[..]));
                models.take(at);
            }
        }
        assert_eq!(models.next(at, ClassSet::ALL), None);
    }
    models.look();
    card.look();
    assert_eq!(card.room(ONE), ClassSet::ALL, "what was taken is granted again");
    assert_eq!(models.counters()[1].1, 0);
}

#[test]
fn tlps_pass_each_other_only_as_pcie_lets_them() {
    let (mut card, mut models) = ends(64);
    use Class::{Completion, NonPosted, Posted};
    let sent = [(NonPosted, 1), (Completion, 2), (Posted, 3), (Completion, 4), (NonPosted, 5)];
    for (class, mark) in sent {
        models.send(ONE, &tlp(class, mark));
    }
    card.look();
    let without = |class| ClassSet::ALL.without(class);
    // The first completion passes the request in front of it.
    assert_eq!(card.next(ONE, without(NonPosted)), Some(&tlp(Completion, 2)[..]));
    // The write passes both.
    let posted = ClassSet::NONE.with(Posted);
    assert_eq!(card.next(ONE, posted), Some(&tlp(Posted, 3)[..]));
    // Nothing passes a write.
    assert_eq!(
        card.next(ONE, ClassSet::ALL.without(NonPosted).without(Completion)),
        Some(&tlp(Posted, 3)[..])
    );
    card.take(ONE);
    let mut got = Vec::new();
    while let Some(tlp) = card.next(ONE, ClassSet::ALL) {
        got.push(tlp.to_vec());
        card.take(ONE);
    }
    let rest = [(NonPosted, 1), (Completion, 2), (Completion, 4), (NonPosted, 5)];
    assert_eq!(got, rest.map(|(class, mark)| tlp(class, mark)));
    models.send(ONE, &tlp(Posted, 6));
    models.send(ONE, &tlp(Completion, 7));
    card.look();
    assert_eq!(card.next(ONE, without(Posted)), None, "a completion behind a write waits for it");
}

#[test]
fn a_wire_without_room_is_no_room() {
    let (mut card, mut models) = ends(3);
    while card.room(ONE).contains(Class::Posted) {
        card.send(ONE, &tlp(Class::Posted, 0));
    }
    assert_eq!(models.mac().waiting(), 3);
    assert!(!card.can_signal(ONE));
    models.look();
    assert!(card.can_signal(ONE));
    assert_eq!(card.room(ONE), ClassSet::ALL);
}

#[test]
fn what_is_not_written_is_not_sent() {
    let (mut card, mut models) = ends(3);
    let waiting = models.mac().waiting();
    for _ in 0..WINDOWS.0[0] {
        assert!(!card.send_with(ONE, |_| None));
    }
    assert_eq!(models.mac().waiting(), waiting);
    for mark in 0..3 {
        card.send(ONE, &tlp(Class::Posted, mark));
    }
    assert!(!card.send_with(ONE, |_| panic!("the wire has no room for it")));
    models.look();
    assert_eq!(models.next(ONE, ClassSet::ALL), Some(&tlp(Class::Posted, 0)[..]));
}

#[test]
fn more_than_was_granted_is_counted_and_gone() {
    let (mut card, mut models) = ends(64);
    for mark in 0..WINDOWS.0[0] + 1 {
        assert!(models.say(ONE, Body::Tlp(&tlp(Class::Posted, mark))));
    }
    assert!(models.say(SlotWire(3), Body::Tlp(&tlp(Class::Posted, 0))));
    card.look();
    assert_eq!(card.counters().map(|(_, count)| count), [1, 1, 1]);
}

#[test]
fn what_happens_beside_tlps_arrives_in_order() {
    let (mut card, mut models) = ends(64);
    let model = Name::try_from("nvme").unwrap();
    models.say(ONE, Body::Beside(Beside::Inserted(model.clone())));
    models.say(TWO, Body::Beside(Beside::Inserted(model.clone())));
    models.say(TWO, Body::Beside(Beside::Removed));
    assert_eq!(card.happening(), Some(Happening::Inserted(ONE, model.clone())));
    assert_eq!(card.happening(), Some(Happening::Inserted(TWO, model)));
    assert_eq!(card.happening(), Some(Happening::Removed(TWO)));
    assert_eq!(card.happening(), None);
    models.send(ONE, &tlp(Class::Posted, 0));
    card.look();
    card.signal(ONE, SlotSignal::HotReset);
    assert_eq!(card.next(ONE, ClassSet::ALL), None, "a device that is reset says nothing");
    models.look();
    assert_eq!(models.beside(), Some((ONE, Beside::Reset(SlotSignal::HotReset))));
}

#[test]
fn what_came_before_a_reset_or_a_removal_is_gone_with_it() {
    let asserted = SlotSignal::Perst { asserted: true };
    let ends_it = [
        Beside::Reset(SlotSignal::HotReset),
        Beside::Reset(asserted),
        Beside::Removed,
        Beside::RootComplex(false),
    ];
    for what in ends_it {
        let (mut card, mut other) = ends(64);
        for class in Class::ALL {
            other.send(ONE, &tlp(class, 1));
            other.send(TWO, &tlp(class, 2));
        }
        other.say(ONE, Body::Beside(what.clone()));
        other.send(ONE, &tlp(Class::Posted, 3));
        card.look();
        assert_eq!(card.next(ONE, ClassSet::ALL), Some(&tlp(Class::Posted, 3)[..]), "{what:?}");
        card.take(ONE);
        assert_eq!(card.next(ONE, ClassSet::ALL), None, "{what:?}");
        assert_eq!(card.next(TWO, ClassSet::ALL), Some(&tlp(Class::Posted, 2)[..]), "{what:?}");
    }
    let released = SlotSignal::Perst { asserted: false };
    for what in [Beside::Reset(released), Beside::RootComplex(true)] {
        let (mut card, mut other) = ends(64);
        other.send(ONE, &tlp(Class::Posted, 1));
        other.say(ONE, Body::Beside(what.clone()));
        card.look();
        assert_eq!(card.next(ONE, ClassSet::ALL), Some(&tlp(Class::Posted, 1)[..]), "{what:?}");
    }
}

#[test]
fn an_end_that_begins_anew_has_lost_its_devices() {
    let (mut card, mut models) = ends(64);
    let model = Name::try_from("nvme").unwrap();
    models.say(TWO, Body::Beside(Beside::Inserted(model.clone())));
    models.send(TWO, &tlp(Class::Posted, 0));
    assert_eq!(card.happening(), Some(Happening::Inserted(TWO, model.clone())));
    card.send(TWO, &tlp(Class::NonPosted, 0));
    let mut models = RecordPort::new(models.mac().clone(), 1..=2, WINDOWS);
    for _ in 0..4 {
        models.look();
        card.look();
    }
    models.say(TWO, Body::Beside(Beside::Inserted(model.clone())));
    assert_eq!(card.happening(), Some(Happening::Removed(TWO)));
    assert_eq!(card.happening(), Some(Happening::Inserted(TWO, model)));
    assert_eq!(card.happening(), None);
    assert_eq!(card.next(TWO, ClassSet::ALL), None, "what it had said is gone");
    assert_eq!(card.room(TWO), ClassSet::ALL);
    assert_eq!(models.next(TWO, ClassSet::ALL), None, "what came before hello is not for it");
}

/// A removal that waits is gone with the hello behind it; that the device is gone is told all the same.
#[test]
fn what_a_hello_follows_before_it_is_asked_for_is_gone_and_told_once() {
    let (mut card, mut models) = ends(64);
    let model = Name::try_from("nvme").unwrap();
    models.say(ONE, Body::Beside(Beside::Inserted(model.clone())));
    assert_eq!(card.happening(), Some(Happening::Inserted(ONE, model.clone())));
    models.say(ONE, Body::Beside(Beside::Removed));
    // Nobody heard of this one.
    models.say(TWO, Body::Beside(Beside::Inserted(model.clone())));
    let mut models = RecordPort::new(models.mac().clone(), 1..=2, WINDOWS);
    for _ in 0..4 {
        models.look();
        card.look();
    }
    models.say(ONE, Body::Beside(Beside::Inserted(model.clone())));
    assert_eq!(card.happening(), Some(Happening::Removed(ONE)));
    assert_eq!(card.happening(), Some(Happening::Inserted(ONE, model)));
    assert_eq!(card.happening(), None);
}
