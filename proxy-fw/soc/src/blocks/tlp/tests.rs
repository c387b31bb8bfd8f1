use super::*;
use crate::blocks::testing::{Hardware, Memory, Words};
use Class::{Completion, NonPosted, Posted};
use proxy_core::config_space::ResetKind;
use std::vec::Vec;

const RECEIVE: &str = "tlp.receive";
const TRANSMIT: &str = "tlp.transmit";
const WINDOWS: Windows = Windows([4, 2, 4]);
const SLOTS: usize = 2;
/// Buffers for TLPs to send.
const SENDING: u16 = 5;

const ONE: SlotWire = SlotWire(1);
const TWO: SlotWire = SlotWire(2);

/// In `slot.control`.
const PERST: u32 = 1 << 0;
const HOT: u32 = 1 << 1;
const DISABLE: u32 = 1 << 2;
const POWER: u32 = 1 << 3;

type Port<'a> = TlpPort<&'a Hardware, Words<'a>, Memory<'a>>;

fn rings(hardware: &Hardware) -> TlpRings<Words<'_>> {
    TlpRings { receive: hardware.ring(0x1000, 5), transmit: hardware.ring(0x2000, 2) }
}

fn memory(hardware: &Hardware, places: usize) -> Memory<'_> {
    let buffers = places * WINDOWS.total() + EVENT_BUFFERS;
    hardware.memory(buffers as u16 + SENDING, TLP_BUFFER as u16)
}

fn model() -> Name {
    Name::try_from("nvme").unwrap()
}

fn new_box(hardware: &Hardware) -> Port<'_> {
    let models = (0..SLOTS).map(|_| model());
    let memory = memory(hardware, SLOTS);
    TlpPort::of_box(hardware.card(), rings(hardware), memory, WINDOWS, models)
}

fn new_host(hardware: &Hardware) -> Port<'_> {
    TlpPort::of_host(hardware.card(), rings(hardware), memory(hardware, 1), WINDOWS)
}

/// A memory write of one doubleword, a read, a completion; a byte tells them apart.
fn tlp(class: Class, mark: u8) -> Vec<u8> {
    match class {
        Posted => [0x40, 0, 0, 1, 0, 0, 0, 0xf, 0, 0, 0, 0, 0, 0, 0, mark].to_vec(),
        NonPosted => [0, 0, 0, 1, 0, 0, mark, 0xf, 0, 0, 0, 0].to_vec(),
        Completion => [0x0a, 0, 0, 0, 0, 0, 0, 4, 0, 0, mark, 0].to_vec(),
    }
}

fn register(slot: usize, name: &str) -> std::string::String {
    std::format!("tlp.slot[{slot}].{name}")
}

fn count(hardware: &Hardware, slot: usize, name: &str, class: Class) -> u8 {
    (hardware.get(&register(slot, name)) >> (8 * class as u32)) as u8
}

fn count_up(hardware: &Hardware, slot: usize, name: &str, class: Class, more: u8) {
    let counts = hardware.get(&register(slot, name));
    let mut bytes = counts.to_le_bytes();
    bytes[class as usize] = bytes[class as usize].wrapping_add(more);
    hardware.set(&register(slot, name), u32::from_le_bytes(bytes));
}

/// The port of a slot has room for so many more TLPs of each class.
fn grants(hardware: &Hardware, slot: usize, more: u8) {
    Class::ALL.into_iter().for_each(|c| count_up(hardware, slot, "transmit_grant", c, more));
}

/// A slot delivers a TLP as the block does; false: it is not granted, or there is no buffer.
fn delivers(hardware: &Hardware, slot: usize, class: Class, tlp: &[u8], status: Status) -> bool {
    let of = |name| count(hardware, slot, name, class);
    if of("delivered") == of("receive_grant") {
        return false;
    }
    let slot_bits = Bits::new(slot as u32).unwrap();
    let status = status.with_slot(slot_bits).with_class(class_bits(class));
    let done = hardware.carry_out(RECEIVE, |length, word, bytes| {
        assert_eq!(*length >> 16, TLP_BUFFER as u32);
        bytes[..tlp.len()].copy_from_slice(tlp);
        *length = *length & !0xffff | tlp.len() as u32;
        *word = status.bits();
    });
    if done {
        count_up(hardware, slot, "delivered", class, 1);
    }
    done
}

fn comes(hardware: &Hardware, slot: usize, class: Class, mark: u8) -> bool {
    delivers(hardware, slot, class, &tlp(class, mark), Status::RESET)
}

fn event(hardware: &Hardware, slot: usize, event: SlotEvent) {
    let slot = Bits::new(slot as u32).unwrap();
    let status = Status::RESET.with_slot(slot).with_event(event);
    assert!(hardware.carry_out(RECEIVE, |_, word, _| *word = status.bits()));
}

/// What went out: slot and TLP.
fn goes_out(hardware: &Hardware) -> Vec<(u32, Vec<u8>)> {
    let mut out = Vec::new();
    while hardware.carry_out(TRANSMIT, |length, status, bytes| {
        let slot = Status::from_bits(*status).slot().get();
        out.push((slot, bytes[..*length as usize].to_vec()));
    }) {}
    out
}

fn control(hardware: &Hardware, slot: usize) -> u32 {
    hardware.get(&register(slot, "control")) & (PERST | HOT | DISABLE | POWER)
}

fn time(hardware: &Hardware, milliseconds: u32) {
    hardware.set("timer.low", milliseconds * 1_000_000);
}

fn next(port: &mut Port<'_>, at: SlotWire) -> Option<Vec<u8>> {
    let tlp = port.next(at, ClassSet::ALL)?.to_vec();
    port.take(at);
    Some(tlp)
}

/// Status of a slot with a device that has power, and its link.
const LINK_DOWN: u32 = 0b00_0011;
const LINK_UP: u32 = 0b10_0011;

/// A box with a device in slot 1, whose link is up.
fn with_device(hardware: &Hardware) -> Port<'_> {
    let mut port = new_box(hardware);
    event(hardware, 0, SlotEvent::Inserted);
    assert_eq!(port.happening(), None);
    hardware.set("tlp.slot[0].status", 0b11);
    time(hardware, 100);
    assert_eq!(port.happening(), None);
    hardware.set("tlp.slot[0].status", LINK_UP);
    event(hardware, 0, SlotEvent::LinkUp);
    assert_eq!(port.happening(), Some(Happening::Inserted(ONE, model())));
    assert_eq!(port.happening(), None);
    port
}

#[test]
fn a_device_gets_power_then_its_link_and_then_it_is_told_of() {
    let hardware = Hardware::new();
    let mut port = new_box(&hardware);
    assert_eq!(control(&hardware, 0), PERST | DISABLE);
    event(&hardware, 0, SlotEvent::Inserted);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), PERST | DISABLE | POWER);
    time(&hardware, 99);
    hardware.set("tlp.slot[0].status", 0b11);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), PERST | DISABLE | POWER, "T_PVPERL is not over");
    time(&hardware, 100);
    hardware.set("tlp.slot[0].status", 0b01);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), PERST | DISABLE | POWER, "its power is not good");
    hardware.set("tlp.slot[0].status", 0b11);
    time(&hardware, 199);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), PERST | DISABLE | POWER, "it is good since 100 ms only");
    time(&hardware, 200);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), POWER);
    event(&hardware, 0, SlotEvent::LinkUp);
    assert_eq!(port.happening(), Some(Happening::Inserted(ONE, model())));
    event(&hardware, 0, SlotEvent::LinkDown);
    assert_eq!(port.happening(), Some(Happening::Removed(ONE)), "nobody told it to");
    event(&hardware, 0, SlotEvent::LinkUp);
    assert_eq!(port.happening(), Some(Happening::Inserted(ONE, model())));
    event(&hardware, 0, SlotEvent::Removed);
    assert_eq!(port.happening(), Some(Happening::Removed(ONE)));
    assert_eq!(control(&hardware, 0), PERST | DISABLE);
    assert_eq!(control(&hardware, 1), PERST | DISABLE, "the other one was never touched");
}

#[test]
fn a_device_that_was_there_before_is_found_and_one_without_power_stays_off() {
    let hardware = Hardware::new();
    hardware.set("tlp.slot[1].status", 0b11);
    let mut port = new_box(&hardware);
    assert_eq!(control(&hardware, 1), PERST | DISABLE | POWER);
    event(&hardware, 1, SlotEvent::Inserted);
    time(&hardware, 100);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 1), POWER);
    event(&hardware, 1, SlotEvent::PowerFault);
    assert_eq!(port.happening(), None, "nobody knew of it");
    time(&hardware, 1000);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 1), PERST | DISABLE);
}

#[test]
fn what_is_granted_comes_in_and_is_granted_again_when_it_is_taken() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    // Counts are modulo 256.
    for round in 0..100_u8 {
        for (class, window) in Class::ALL.into_iter().zip(WINDOWS.0) {
            for mark in 0..window {
                assert!(comes(&hardware, 0, class, round ^ mark), "round {round} {class:?}");
            }
            assert!(!comes(&hardware, 0, class, 0), "round {round} {class:?}");
        }
        assert_eq!(port.happening(), None);
        for (class, window) in Class::ALL.into_iter().zip(WINDOWS.0) {
            for mark in 0..window {
                assert_eq!(next(&mut port, ONE), Some(tlp(class, round ^ mark)));
            }
        }
        assert_eq!(next(&mut port, ONE), None);
        assert!(!comes(&hardware, 0, Posted, 0), "the block learns of it in the next turn");
        assert_eq!(port.happening(), None);
    }
    assert!(port.counters().iter().all(|(_, count)| *count == 0), "{:?}", port.counters());
}

#[test]
fn a_slot_that_is_full_keeps_nothing_from_the_others() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    while comes(&hardware, 0, Posted, 1) {}
    assert_eq!(port.happening(), None);
    // All that the other slot may say, and events of both, find buffers.
    for (class, window) in Class::ALL.into_iter().zip(WINDOWS.0) {
        assert!((0..window).all(|mark| comes(&hardware, 1, class, mark)));
    }
    (0..EVENT_BUFFERS).for_each(|_| event(&hardware, 0, SlotEvent::Wake));
    assert_eq!(port.happening(), None);
    assert_eq!(next(&mut port, TWO), Some(tlp(Posted, 0)));
    // A read is passed by a write, and nothing else.
    assert_eq!(port.next(TWO, ClassSet::NONE.with(NonPosted)), None);
}

#[test]
fn what_the_block_says_and_cannot_be_is_counted_and_survived() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    let level = hardware.level(RECEIVE);
    let good = Status::RESET;
    assert!(delivers(&hardware, 0, Posted, &tlp(Posted, 1), good.with_aborted(true)));
    assert!(delivers(&hardware, 0, Posted, &tlp(Posted, 2), good.with_malformed(true)));
    // A length beyond the buffer, no such slot, no such class, an event of a host's slot.
    assert!(delivers(&hardware, 0, Posted, &tlp(Posted, 3), good));
    let lies: [(u32, Status); 4] = [
        (TLP_BUFFER as u32 + 1, good),
        (16, good.with_slot(Bits::new(2).unwrap())),
        (16, good.with_class(TlpClass::from_bits(3))),
        (0, good.with_event(SlotEvent::PerstAsserted)),
    ];
    for (length, status) in lies {
        hardware.carry_out(RECEIVE, |lengths, word, _| {
            *lengths = *lengths & !0xffff | length;
            *word = status.bits();
        });
    }
    assert_eq!(port.happening(), None);
    assert_eq!(next(&mut port, ONE), Some(tlp(Posted, 3)));
    assert_eq!(next(&mut port, ONE), None);
    let counts: Vec<u64> = port.counters().iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(port.happening(), None);
    assert_eq!(hardware.level(RECEIVE), level, "no buffer is lost");
}

#[test]
fn more_than_was_granted_is_counted_and_gone() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    for _ in 0..6 {
        // A block that counts nothing.
        assert!(hardware.carry_out(RECEIVE, |length, status, _| {
            *length |= 16;
            *status = 0;
        }));
    }
    assert_eq!(port.happening(), None);
    assert_eq!(core::iter::from_fn(|| next(&mut port, ONE)).count(), 4);
    assert_eq!(port.counters()[0].1, 2);
}

#[test]
fn tlps_go_out_as_the_slot_has_room() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    assert_eq!(port.room(ONE), ClassSet::NONE);
    count_up(&hardware, 0, "transmit_grant", NonPosted, 1);
    assert_eq!(port.room(ONE), ClassSet::NONE.with(NonPosted));
    assert_eq!(port.room(TWO), ClassSet::NONE);
    port.send(ONE, &tlp(NonPosted, 1));
    assert_eq!(port.room(ONE), ClassSet::NONE);
    assert_eq!(goes_out(&hardware), [(0, tlp(NonPosted, 1))]);
    // Counts are modulo 256, and a ring of 4 wraps often.
    for round in 0..200 {
        grants(&hardware, 1, 2);
        for mark in 0..2 {
            assert!(port.room(TWO).contains(Completion), "round {round}");
            port.send(TWO, &tlp(Completion, mark));
        }
        assert!(!port.room(TWO).contains(Completion), "round {round}");
        assert_eq!(goes_out(&hardware), [(1, tlp(Completion, 0)), (1, tlp(Completion, 1))]);
        count_up(&hardware, 1, "transmit_grant", Posted, 254);
        count_up(&hardware, 1, "transmit_grant", NonPosted, 254);
    }
    grants(&hardware, 0, 100);
    for mark in 0..4 {
        assert_eq!(port.room(ONE), ClassSet::ALL);
        port.send(ONE, &tlp(Posted, mark));
    }
    assert_eq!(port.room(ONE), ClassSet::NONE, "the ring is full");
    assert_eq!(port.room(SlotWire(3)), ClassSet::NONE, "there is none");
}

#[test]
#[should_panic(expected = "room for its class")]
fn a_tlp_without_room_is_an_error_of_the_caller() {
    let hardware = Hardware::new();
    with_device(&hardware).send(ONE, &tlp(Posted, 0));
}

#[test]
fn a_reset_is_behind_what_was_sent_and_ends_what_came() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    grants(&hardware, 0, 8);
    port.send(ONE, &tlp(Posted, 1));
    // One was looked at, one not.
    assert!(comes(&hardware, 0, Posted, 2));
    assert_eq!(port.happening(), None);
    assert!(comes(&hardware, 0, Posted, 3));
    assert!(port.can_signal(ONE));
    port.signal(ONE, SlotSignal::HotReset);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), POWER, "a TLP is on its way");
    assert!(!port.can_signal(ONE) && port.can_signal(TWO), "one waits");
    assert_eq!(port.room(ONE), ClassSet::NONE, "and no TLP passes it");
    assert_eq!(goes_out(&hardware).len(), 1);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), POWER | HOT);
    assert!(port.has_more(), "who sleeps ends it too late");
    assert_eq!(port.room(ONE), ClassSet::NONE, "until its link is up again");
    // Another is cut off in the middle, and then the link goes down.
    let aborted = Status::RESET.with_aborted(true);
    assert!(delivers(&hardware, 0, NonPosted, &tlp(NonPosted, 4), aborted));
    event(&hardware, 0, SlotEvent::LinkDown);
    time(&hardware, 101);
    assert_eq!(port.happening(), None, "it was told to");
    assert_eq!(control(&hardware, 0), POWER | HOT, "held for 2 ms");
    assert_eq!(next(&mut port, ONE), None, "a device that is reset says nothing");
    time(&hardware, 102);
    assert_eq!(port.happening(), None);
    assert_eq!((control(&hardware, 0), port.has_more()), (POWER, false));
    assert_eq!(port.room(ONE), ClassSet::NONE, "its link trains");
    event(&hardware, 0, SlotEvent::LinkUp);
    assert!(comes(&hardware, 0, Posted, 5));
    assert_eq!(port.happening(), None, "the device is the same");
    assert_eq!(port.room(ONE), ClassSet::ALL);
    assert_eq!(next(&mut port, ONE), Some(tlp(Posted, 5)));
    let counts = port.counters().map(|(_, count)| count);
    assert_eq!(counts, [0, 0, 1, 2, 0, 0, 0]);
    assert_eq!(port.happening(), None);
    for (class, window) in Class::ALL.into_iter().zip(WINDOWS.0) {
        assert!((0..window).all(|mark| comes(&hardware, 0, class, mark)), "no grant is lost");
    }
}

/// As a release resets the device just after its host did.
#[test]
fn a_second_reset_while_the_link_trains_takes_no_device_away() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    port.signal(ONE, SlotSignal::HotReset);
    event(&hardware, 0, SlotEvent::LinkDown);
    assert_eq!(port.happening(), None);
    time(&hardware, 500);
    assert_eq!(port.happening(), None);
    port.signal(ONE, SlotSignal::HotReset);
    event(&hardware, 0, SlotEvent::LinkUp);
    event(&hardware, 0, SlotEvent::LinkDown);
    assert_eq!(port.happening(), None, "it was told to");
    time(&hardware, 900);
    assert_eq!(port.happening(), None);
    event(&hardware, 0, SlotEvent::LinkUp);
    assert_eq!(port.happening(), None, "the device is the same");
    grants(&hardware, 0, 1);
    assert_eq!(port.room(ONE), ClassSet::ALL);
}

#[test]
fn perst_stays_until_it_is_ended() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    // What the block has when a link goes down comes back unsent.
    grants(&hardware, 0, 2);
    port.send(ONE, &tlp(Posted, 0));
    assert!(hardware.carry_out(TRANSMIT, |_, status, _| {
        *status = Status::from_bits(*status).with_aborted(true).bits();
    }));
    port.signal(ONE, SlotSignal::Perst { asserted: true });
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), POWER | PERST);
    event(&hardware, 0, SlotEvent::LinkDown);
    time(&hardware, 500);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), POWER | PERST);
    assert_eq!(port.room(ONE), ClassSet::NONE, "nothing is sent to a device in reset");
    assert!(port.can_signal(ONE));
    port.signal(ONE, SlotSignal::Perst { asserted: false });
    assert_eq!(port.counters()[5].1, 1);
    assert_eq!(control(&hardware, 0), POWER);
    event(&hardware, 0, SlotEvent::LinkUp);
    assert_eq!(port.happening(), None);
    assert_eq!(port.room(ONE), ClassSet::ALL);
}

#[test]
fn perst_is_asserted_for_its_time_however_soon_it_is_ended() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    port.signal(ONE, SlotSignal::Perst { asserted: true });
    port.signal(ONE, SlotSignal::Perst { asserted: false });
    assert_eq!(control(&hardware, 0), POWER | PERST);
    assert!(!port.can_signal(ONE) && port.has_more(), "it is looked at again at once");
    assert_eq!(port.room(ONE), ClassSet::NONE, "nothing is sent to a device in reset");
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), POWER | PERST);
    time(&hardware, 500);
    assert_eq!(port.happening(), None);
    assert_eq!(control(&hardware, 0), POWER);
    assert!(port.can_signal(ONE) && !port.has_more());
}

#[test]
fn wires_of_an_empty_slot_stay_as_they_are() {
    let hardware = Hardware::new();
    let mut port = new_box(&hardware);
    for signal in [SlotSignal::HotReset, SlotSignal::Perst { asserted: false }] {
        assert!(port.can_signal(TWO));
        port.signal(TWO, signal);
        assert_eq!(control(&hardware, 1), PERST | DISABLE);
    }
}

#[test]
fn a_host_resets_comes_and_goes() {
    let hardware = Hardware::new();
    let mut port = new_host(&hardware);
    assert_eq!(control(&hardware, 0), 0, "the link may train");
    let at = SlotWire::HOST;
    event(&hardware, 0, SlotEvent::PerstReleased);
    event(&hardware, 0, SlotEvent::LinkUp);
    assert!(comes(&hardware, 0, NonPosted, 1));
    assert_eq!(port.happening(), Some(Happening::RootComplex(true)));
    assert_eq!(port.happening(), None);
    event(&hardware, 0, SlotEvent::HotReset);
    assert!(comes(&hardware, 0, Posted, 2));
    event(&hardware, 0, SlotEvent::LinkDown);
    event(&hardware, 0, SlotEvent::LinkUp);
    assert!(comes(&hardware, 0, NonPosted, 3));
    assert_eq!(port.happening(), Some(Happening::Reset(ResetKind::Hot)));
    assert_eq!(port.happening(), None);
    assert_eq!(next(&mut port, at), Some(tlp(NonPosted, 3)), "what is from before is gone");
    assert_eq!(next(&mut port, at), None);
    event(&hardware, 0, SlotEvent::PerstAsserted);
    event(&hardware, 0, SlotEvent::LinkDown);
    assert_eq!(port.happening(), Some(Happening::Reset(ResetKind::Fundamental)));
    assert_eq!(port.happening(), None);
    event(&hardware, 0, SlotEvent::LinkUp);
    event(&hardware, 0, SlotEvent::LinkDown);
    assert_eq!(port.happening(), Some(Happening::RootComplex(false)), "nobody reset it");
    event(&hardware, 0, SlotEvent::LinkUp);
    assert_eq!(port.happening(), Some(Happening::RootComplex(true)));
}

#[test]
fn happenings_that_are_not_taken_hold_up_what_is_behind_them() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    let mut told = Vec::new();
    // A block that says nothing else, and a card that takes one at a time.
    let mut said = 0;
    while said < 200 {
        let link = if said % 2 == 0 { SlotEvent::LinkDown } else { SlotEvent::LinkUp };
        let status = Status::RESET.with_event(link).bits();
        if hardware.carry_out(RECEIVE, |_, word, _| *word = status) {
            said += 1;
        } else {
            told.extend(port.happening());
        }
    }
    while let Some(happening) = port.happening() {
        told.push(happening);
    }
    assert_eq!(told.len(), 200);
    let (gone, come): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|told| *told == Happening::Removed(ONE));
    assert_eq!((gone.len(), come.len()), (100, 100));
}

#[test]
fn queues_that_stopped_begin_anew_without_a_grant_lost() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    grants(&hardware, 0, 3);
    for mark in 0..3 {
        port.send(ONE, &tlp(Posted, mark));
    }
    assert!(comes(&hardware, 0, Posted, 1));
    // One more was delivered, as the block counts, and did not get into memory.
    count_up(&hardware, 0, "delivered", Posted, 1);
    hardware.fail(RECEIVE);
    hardware.fail(TRANSMIT);
    port.recover();
    assert_eq!(port.happening(), None);
    let sent: Vec<_> = goes_out(&hardware).into_iter().map(|(_, tlp)| tlp[15]).collect();
    assert_eq!(sent, [1, 2], "the one that it was at is lost");
    assert!(port.can_signal(ONE));
    assert!(port.room(ONE).contains(Posted), "and was not taken");
    assert_eq!(next(&mut port, ONE), Some(tlp(Posted, 1)));
    assert_eq!(port.counters().map(|(_, count)| count), [0, 0, 0, 0, 2, 0, 2]);
    assert_eq!(port.happening(), None);
    for (class, window) in Class::ALL.into_iter().zip(WINDOWS.0) {
        assert!((0..window).all(|mark| comes(&hardware, 0, class, mark)), "{class:?}");
        assert!(!comes(&hardware, 0, class, 0), "{class:?}");
    }
    let level = hardware.level(RECEIVE);
    assert_eq!(usize::from(level), WINDOWS.total() + EVENT_BUFFERS, "no buffer is lost");
}

/// The block had written it when the queue stopped, and it did not get into memory.
#[test]
fn an_event_that_a_queue_lost_when_it_stopped_is_read_from_the_slot() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    let stops = |port: &mut Port<'_>, status: u32| {
        hardware.set("tlp.slot[0].status", status);
        hardware.fail(RECEIVE);
        port.recover();
        let told: Vec<_> = std::iter::from_fn(|| port.happening()).collect();
        // What it waited with comes once more, perhaps.
        if status == LINK_UP {
            event(&hardware, 0, SlotEvent::LinkUp);
        }
        assert_eq!(port.happening(), None);
        told
    };
    assert_eq!(stops(&mut port, LINK_UP), [], "nothing was lost");
    assert_eq!(stops(&mut port, LINK_DOWN), [Happening::Removed(ONE)]);
    assert_eq!(stops(&mut port, LINK_UP), [Happening::Inserted(ONE, model())]);
    // Of a link that a reset took down it came up again.
    port.signal(ONE, SlotSignal::HotReset);
    event(&hardware, 0, SlotEvent::LinkDown);
    assert_eq!(port.happening(), None);
    grants(&hardware, 0, 3);
    assert_eq!(port.room(ONE), ClassSet::NONE);
    assert_eq!(stops(&mut port, LINK_UP), []);
    time(&hardware, 200);
    assert_eq!(port.happening(), None);
    assert!(port.room(ONE).contains(Posted));
    assert_eq!(stops(&mut port, 0), [Happening::Removed(ONE)], "it was taken out");
    assert_eq!(control(&hardware, 0), PERST | DISABLE, "and has no power");
    assert_eq!(stops(&mut port, 0), []);
    assert_eq!(port.counters()[0].1, 0, "nothing that cannot be");
}

#[test]
fn a_queue_that_keeps_what_was_granted_stands_still_and_one_without_a_grant_does_not() {
    let hardware = Hardware::new();
    let mut port = with_device(&hardware);
    // A device without room: nothing goes into the queue, however long that is.
    for _ in 0..20 {
        assert_eq!(port.room(ONE), ClassSet::NONE);
        assert!(!port.stands_still());
    }
    grants(&hardware, 0, 2);
    assert_eq!(port.room(ONE), ClassSet::ALL);
    port.send(ONE, &tlp(Posted, 1));
    assert!(port.stands_still(), "the block has it, and has sent nothing");
    assert!(port.stands_still());
    assert_eq!(goes_out(&hardware).len(), 1);
    assert!(!port.stands_still());
    // One that goes out for each that comes.
    port.send(ONE, &tlp(Posted, 2));
    goes_out(&hardware);
    port.send(ONE, &tlp(NonPosted, 3));
    assert!(!port.stands_still(), "there was progress");
    goes_out(&hardware);
    // A queue that stopped, until it runs again.
    hardware.fail(RECEIVE);
    assert!(port.stands_still());
    port.recover();
    assert_eq!(port.happening(), None);
    assert!(!port.stands_still());
}
