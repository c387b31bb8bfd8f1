//! Devices of several functions: reset together, taken back one after the other.

use crate::world::*;
use proxy_core::control::{
    ControlError, OperationId, PathSet, Reply, Request, SlotState, Term, Window,
};
use proxy_core::limits::{
    DEVICE_OUTSTANDING, LONGEST_HOLD, ROOT_OUTSTANDING, SLOT_FUNCTIONS, TEN_BIT_TAGS,
};
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use std::time::Duration;
use tlp_codec::fabric::{Frame, Record};
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

pub(crate) fn key_of(function: u16, counter: u32) -> BindingKey {
    BindingKey { function: SlotFunction::new(function).unwrap(), ..key(counter) }
}

pub(crate) fn function(number: u8) -> Bdf {
    Bdf::from_bits(bdf(3, 0).bits() | u16::from(number))
}

/// A device of two functions, both bound to port 0 and visible on bus 3.
pub(crate) fn two_functions(flr: bool) -> World {
    let mut world = World::new();
    make_two_functions(&mut world, flr);
    world
}

/// The same, of a device that was made different.
pub(crate) fn make_two_functions(world: &mut World, flr: bool) {
    let capabilities_2 = world.device.capabilities_2;
    world.device = Registers::with_functions(2, flr);
    world.device.capabilities_2 = capabilities_2;
    world.device.reset();
    world.device.resets = 0;
    world.insert();
    world.introduce();
    for function in 0..2 {
        let binding = slot_binding(key_of(function, 1));
        assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    }
    let mut binding = port_binding(key(1));
    let second = key_of(1, 1);
    binding.functions.push((second.function, second.epoch)).unwrap();
    assert_eq!(world.ask_host(Request::BindPort(binding)), Ok(Reply::Done));
    world.run(Duration::from_millis(50));
    world.assign_buses();
    assert_eq!(world.config_read(function(1), 0), (CplStatus::Success, 0xd0ac_1b36));
}

/// A device of two functions, of which the first one is bound to port 0 and visible on bus 3, and the
/// second one is lent to a host that never comes.
pub(crate) fn make_shared(world: &mut World, flr: bool) {
    world.device = Registers::with_functions(2, flr);
    world.insert();
    world.introduce();
    let other = node(9);
    assert_eq!(world.ask_box(Request::SetPeer(peer(9, 1))), Ok(Reply::Done));
    let mut binding = slot_binding(key_of(1, 1));
    let window = Window::everything(other, PathSet::FIRST, binding.key.epoch);
    (binding.host, binding.windows) = (other, [window].into_iter().collect());
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
    world.bind(1);
    world.assign_buses();
}

/// A device of two functions that is being looked at, and answers when it is told to.
fn looked_at() -> World {
    let mut world = World::new();
    world.device = Registers::with_functions(2, true);
    world.device.manner = Manner::Holds;
    world.introduce();
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(Duration::from_millis(300));
    world
}

pub(crate) fn states(world: &World) -> Vec<SlotState> {
    world.boxes.inventory().filter(|e| e.slot == slot(1)).map(|e| e.state).collect()
}

/// The completion timeout of each function.
pub(crate) fn timeouts(world: &World) -> [u8; 2] {
    [world.device.config[0x68] & 0x1f, world.device.others[0][0x68] & 0x1f]
}

/// A probe's last write to a function comes after what tells that it is there: lent before that, it
/// could not be taken back, since its slot is at something else.
#[test]
fn nothing_of_a_device_is_lent_before_the_look_at_it_is_over() {
    let mut world = looked_at();
    let mut looks = 0;
    while world.device.holds() {
        for function in 0..2 {
            let asked = world.ask_box(Request::BindSlot(slot_binding(key_of(function, 1))));
            assert_eq!(asked, Err(ControlError::Busy), "after {looks} answers");
            // What is not lent is not there to be taken back, whoever asks again for that.
            let taken = world.ask_box(Request::UnbindSlot(key_of(function, 1)));
            assert_eq!(taken, Ok(Reply::Slot(SlotState::Probing)), "after {looks} answers");
        }
        assert!(states(&world).iter().all(|state| *state == SlotState::Probing));
        world.device.answer(Manner::Answers);
        world.turn();
        looks += 1;
    }
    assert!(looks > 40, "{looks} answers");
    assert_eq!(states(&world), [SlotState::Free; 2]);
    world.device.manner = Manner::Answers;
    for function in 0..2 {
        let binding = slot_binding(key_of(function, 1));
        assert_eq!(world.ask_box(Request::BindSlot(binding)), Ok(Reply::Done));
        let taken = world.ask_box(Request::UnbindSlot(key_of(function, 1)));
        assert_eq!(taken, Ok(Reply::Slot(SlotState::Free)));
    }
}

/// What is owed of an answer comes under its tag, though nobody waits for it any more.
#[test]
fn a_tag_is_used_again_when_all_of_a_late_answer_has_come() {
    let mut world = two_functions(true);
    world.device.manner = Manner::Holds;
    let tag = world.tag();
    let kind = mem_read(bdf(0, 0), tag.get(), FIRST_WINDOW, 32);
    world.host.handle_tlp(world.now, &emit(&Repr::new(kind))).unwrap();
    world.turn();
    let asked = world.device.received.last().unwrap().clone();
    let asked = Packet::new_checked(&asked[..]).unwrap();
    assert_eq!((asked.tlp_type(), asked.length_dw()), (TlpType::MRd, 32));
    // The device is not reset yet.
    let take_back = Request::UnbindSlot(key_of(0, 1));
    world.boxes.handle_control(world.now, OperationId(77), Term(1), &take_back);
    for owed in [128, 64] {
        let part = Repr::new(Kind::Completion {
            completer: function(0),
            requester: asked.requester(),
            tag: asked.tag(),
            status: CplStatus::Success,
            bcm: false,
            byte_count: owed,
            lower_address: asked.address() as u8 & 0x7f ^ if owed == 64 { 64 } else { 0 },
            locked: false,
            data: &[7; 64],
        });
        world.boxes.handle_tlp(world.now, slot(1), &emit(&part)).unwrap();
    }
    assert_eq!(world.counter("box: late completions from devices"), 2);
    assert_eq!(world.counter("box: unexpected completions from devices"), 0);
}

/// Answers what the first function is asked; the other one's first question is left.
fn answer_for_the_first(world: &mut World) {
    let asks_second = |world: &World| {
        let last = Packet::new_checked(&world.device.received.last().unwrap()[..]).unwrap();
        last.destination().function().get() == 1
    };
    while !asks_second(world) {
        assert!(world.device.holds());
        world.device.answer(Manner::Answers);
        world.turn();
    }
    assert!(world.device.holds());
}

/// What a device does not answer when it is looked at is not taken for a function that is not there,
/// which nobody would look for again.
#[test]
fn a_device_of_which_a_function_does_not_answer_is_looked_at_again() {
    let mut world = looked_at();
    answer_for_the_first(&mut world);
    world.run(Duration::from_secs(1));
    assert_eq!(states(&world), [SlotState::Quarantined]);
    let refused = world.ask_box(Request::BindSlot(slot_binding(key_of(0, 1))));
    assert_eq!(refused, Err(ControlError::Quarantined(slot(1))));

    world.device.manner = Manner::Answers;
    let recovered = world.ask_box(Request::Recover(slot(1)));
    assert_eq!(recovered, Ok(Reply::Slot(SlotState::Probing)));
    world.run(Duration::from_secs(1));
    assert_eq!(states(&world), [SlotState::Free; 2]);
}

/// Answers what is asked until nothing more is: the n-th question otherwise. How many there were.
fn answer_all(world: &mut World, nth: usize, otherwise: Manner) -> usize {
    let mut looks = 0;
    while world.device.holds() {
        let manner = if looks == nth { otherwise } else { Manner::Answers };
        world.device.answer(manner);
        world.turn();
        looks += 1;
    }
    world.device.manner = Manner::Answers;
    looks
}

/// Wherever a look at a function stops, it says nothing of the next one.
#[test]
fn a_device_that_refuses_any_one_question_harms_nobody() {
    for status in [CplStatus::UnsupportedRequest, CplStatus::CompleterAbort] {
        let mut nth = 0;
        loop {
            let mut world = looked_at();
            world.device.wide = true;
            let looks = answer_all(&mut world, nth, Manner::Refuses(status));
            world.run(Duration::from_secs(1));
            let states = states(&world);
            let is_over =
                |state: &SlotState| matches!(state, SlotState::Free | SlotState::Quarantined);
            assert!(states.iter().all(is_over), "{nth}: {states:?}");
            if nth >= looks {
                assert!(nth > 40, "{nth} questions");
                break;
            }
            nth += 1;
        }
    }
}

#[test]
fn a_serial_number_that_goes_on_beyond_configuration_space_is_none() {
    for (at, serial) in [(0xff4, 0x1122_3344_5566_7788), (0xff8, 0), (0xffc, 0)] {
        let mut world = looked_at();
        let first = &mut world.device;
        first.put(0x100, (at as u32) << 20 | 0x0001_0001);
        first.put(at, 0x0001_0003);
        for (place, half) in [(at + 4, 0x5566_7788), (at + 8, 0x1122_3344)] {
            if place < 0x1000 {
                first.put(place, half);
            }
        }
        answer_all(&mut world, usize::MAX, Manner::Answers);
        assert_eq!(states(&world), [SlotState::Free; 2], "{at:#x}");
        assert_eq!(world.boxes.inventory().next().unwrap().serial, serial, "{at:#x}");
    }
}

/// However often the look at a device fails, its slot has room for what is found in it at last.
#[test]
fn a_slot_is_as_good_as_new_after_devices_that_could_not_be_looked_at() {
    let mut world = looked_at();
    for _ in 0..=SLOT_FUNCTIONS {
        // The first function is found, and the other one says nothing.
        answer_for_the_first(&mut world);
        world.run(Duration::from_secs(1));
        assert_eq!(states(&world), [SlotState::Quarantined]);
        world.device.answer(Manner::Silent);
        let recovered = world.ask_box(Request::Recover(slot(1)));
        assert_eq!(recovered, Ok(Reply::Slot(SlotState::Probing)));
        world.run(Duration::from_millis(300));
    }
    answer_all(&mut world, usize::MAX, Manner::Answers);
    assert_eq!(states(&world), [SlotState::Free; 2]);
}

/// What goes to a function's memory or I/O space goes on its own binding, as what goes by its number does, and so
/// neither passes the other.
#[test]
fn the_memory_of_a_function_is_reached_by_its_own_binding() {
    const WINDOW: u64 = 0xe000_0000;
    const SECOND: u64 = WINDOW + 0x1_0000;
    const IO: u64 = 0xe000;
    const SECOND_IO: u64 = IO + 0x80;
    let mut world = two_functions(true);
    world.config_write(function(1), 0x10, SECOND as u32);
    world.config_write(function(1), 0x04, 0x0006);
    for address in [WINDOW, SECOND] {
        assert_eq!(world.mem_read(address, 1).0, CplStatus::Success, "{address:#x}");
    }
    // I/O space of both behind the same bridges, 4 KB at 0xe000.
    for bridge in [bdf(1, 0), bdf(2, 0)] {
        world.config_write(bridge, 0x1c, 0xe0e0);
        world.config_write(bridge, 0x04, 0x0007);
    }
    for (number, base) in [(0, IO), (1, SECOND_IO)] {
        world.config_write(function(number), 0x14, base as u32 | 1);
    }
    world.cut = true;
    for (address, io, tag) in [(WINDOW, IO, 1), (SECOND, SECOND_IO, 2)] {
        world.mem_write(address, &[tag; 4]);
        let (requester, tag) = (bdf(0, 0), Tag::new(tag.into()).unwrap());
        let io = Kind::IoRead { requester, tag, address: io as u32, first_be: 0xf };
        for read in [mem_read(requester, tag.get(), address, 1), io] {
            world.host.handle_tlp(world.now, &emit(&Repr::new(read))).unwrap();
            world.turn();
        }
    }
    let sent = world.lost.iter().flat_map(|(_, frame)| {
        let frame = Frame::new_checked(&frame[..]).unwrap();
        let tlp = |record| match record {
            Ok(Record::Tlp(record)) => {
                let packet = Packet::new_checked(record.tlp).unwrap();
                Some((record.address.function.get(), packet.address()))
            }
            _ => None,
        };
        frame.records().filter_map(tlp).collect::<Vec<_>>()
    });
    let sent: Vec<_> = sent.collect();
    let of_first = [WINDOW, WINDOW, IO].map(|address| (0, address));
    let of_second = [SECOND, SECOND, SECOND_IO].map(|address| (1, address));
    assert_eq!(sent, [of_first, of_second].concat());
}

#[test]
fn functions_that_one_host_has_are_reset_together() {
    let mut world = two_functions(true);
    let (resets, sideband) = (world.device.resets, "box: sideband records that mean nothing here");
    // Each function has a read under way that it will not answer any more.
    world.device.out.push_back(emit(&Repr::new(mem_read(function(0), 1, 0x2000, 1))));
    world.device.out.push_back(emit(&Repr::new(mem_read(function(1), 1, 0x3000, 1))));
    world.turn();
    world.config_write(bdf(2, 0), 0x3c, 0x0040_0000);
    world.config_write(bdf(2, 0), 0x3c, 0);
    world.run(Duration::from_millis(300));
    assert_eq!(world.device.resets, resets + 1);
    assert_eq!(timeouts(&world), [0b1101; 2], "the completion timeout is the proxy's");
    // Their tags are free again, and nothing of before is answered.
    world.forget_the_past();
    world.device.out.push_back(emit(&Repr::new(mem_read(function(1), 1, 0x3000, 1))));
    world.config_write(function(1), 0x04, 0x0006);
    world.turn();
    assert_eq!(world.counter("box: requests with a tag that is in use"), 0);
    assert_eq!(world.counter(sideband), 0);
    assert_eq!(world.config_read(function(1), 0), (CplStatus::Success, 0xd0ac_1b36));
}

/// With 10-bit tags the first one alone has more waiting than the root complex sees.
#[test]
fn a_function_that_asks_for_much_leaves_the_other_its_turn() {
    let mut world = World::new();
    world.device.capabilities_2 |= 1 << 17;
    make_two_functions(&mut world, true);
    let mut asks = |function_number, many: usize| {
        for n in 0..many as u16 {
            let tag = if TEN_BIT_TAGS { 0x100 + n } else { n };
            let read = mem_read(function(function_number), tag, 0x2000, 1);
            world.device.out.push_back(emit(&Repr::new(read)));
        }
        world.run(Duration::from_millis(20));
    };
    asks(0, DEVICE_OUTSTANDING);
    asks(1, 10);
    assert_eq!(world.to_root.len(), ROOT_OUTSTANDING);
    let mut answered = 0;
    while !world.to_root.iter().any(|tlp| requester_of(tlp) == function(1)) {
        let read = world.to_root.pop_front().expect("the other one's come before all are answered");
        world.host.handle_tlp(world.now, &answer_to(&read, &[1; 4])).unwrap();
        world.run(Duration::from_millis(1));
        answered += 1;
    }
    assert!(answered <= 2, "{answered} of the first one's came before");
}

/// What a card keeps of room for answers is less than one read of a page may need.
#[test]
fn a_function_whose_answers_have_too_little_room_holds_up_no_other() {
    let mut world = two_functions(true);
    world.device.out.push_back(emit(&Repr::new(mem_read(function(0), 1, 0x2000, 1024))));
    world.turn();
    world.device.out.push_back(emit(&Repr::new(mem_read(function(1), 1, 0x3000, 1))));
    world.turn();
    let requesters: Vec<Bdf> = world.to_root.iter().map(|tlp| requester_of(tlp)).collect();
    assert_eq!(requesters, [function(0), function(1)]);
}

fn requester_of(tlp: &[u8]) -> Bdf {
    Packet::new_checked(tlp).unwrap().requester()
}

#[test]
fn link_disable_resets_every_function() {
    let mut world = two_functions(true);
    let resets = world.device.resets;
    world.config_write(bdf(2, 0), 0x80, 0x10);
    world.turn();
    world.config_write(bdf(2, 0), 0x80, 0);
    world.run(Duration::from_millis(300));
    assert_eq!(world.device.resets, resets + 1);
    assert_eq!(timeouts(&world), [0b1101; 2]);
    assert_eq!(world.config_read(function(0), 0), (CplStatus::Success, 0xd0ac_1b36));
}

/// What a function did not answer cannot come any more when it was reset, whoever has the others: under
/// what it was asked they are asked.
#[test]
fn a_function_that_is_taken_back_leaves_no_tag_in_use() {
    let mut world = two_functions(true);
    world.device.manner = Manner::Holds;
    for tag in 0..8 {
        let read = emit(&Repr::new(mem_read(bdf(0, 0), tag, FIRST_WINDOW, 1)));
        world.host.handle_tlp(world.now, &read).unwrap();
    }
    world.turn();
    assert_eq!(world.boxes.in_hand().to_devices, 8);
    // Memory alone is silent.
    world.device.manner = Manner::Answers;
    let taken = world.ask_box(Request::UnbindSlot(key_of(0, 1)));
    assert_eq!(taken, Ok(Reply::Slot(SlotState::Free)));
    assert_eq!(world.boxes.in_hand().to_devices, 0);
}

/// The host does not answer for its own bindings any more; its link is not given up on yet.
fn lose_host(world: &mut World) {
    world.cut = true;
}

#[test]
fn functions_without_a_reset_of_their_own_are_reset_when_the_last_one_is_back() {
    for order in [[0, 1], [1, 0]] {
        let mut world = two_functions(false);
        lose_host(&mut world);
        let resets = world.device.resets;
        let first = world.ask_box(Request::UnbindSlot(key_of(order[0], 1)));
        assert_eq!(first, Ok(Reply::Slot(SlotState::Releasing)));
        assert_eq!(world.device.resets, resets, "the other one is lent");
        let asked_again = world.ask_box(Request::UnbindSlot(key_of(order[0], 1)));
        assert_eq!(asked_again, Ok(Reply::Slot(SlotState::Releasing)));
        let again = slot_binding(key_of(order[0], 2));
        assert_eq!(world.ask_box(Request::BindSlot(again)), Err(ControlError::Busy));
        let last = world.ask_box(Request::UnbindSlot(key_of(order[1], 1)));
        assert_eq!(last, Ok(Reply::Slot(SlotState::Free)));
        world.run(Duration::from_millis(300));
        assert_eq!(world.device.resets, resets + 1);
        assert_eq!(states(&world), [SlotState::Free; 2]);
        assert_eq!(timeouts(&world), [0b1101; 2]);
        assert_eq!(world.counter("box: functions quarantined"), 0);
    }
}

/// What is lent while another function of its device is taken back would put off the reset of the
/// whole device that the other one may come to need.
#[test]
fn nothing_of_a_device_is_lent_while_another_function_is_taken_back() {
    let mut world = two_functions(true);
    lose_host(&mut world);
    let released = world.ask_box(Request::UnbindSlot(key_of(1, 1)));
    assert_eq!(released, Ok(Reply::Slot(SlotState::Free)));
    world.device.manner = Manner::Holds;
    let release = Request::UnbindSlot(key_of(0, 1));
    world.boxes.handle_control(world.now, OperationId(u64::MAX), Term(1), &release);
    world.turn();
    assert_eq!(states(&world), [SlotState::Releasing, SlotState::Free]);
    let again = Request::BindSlot(slot_binding(key_of(1, 2)));
    assert_eq!(world.ask_box(again.clone()), Err(ControlError::Busy));
    world.device.manner = Manner::Answers;
    while world.device.holds() {
        world.device.answer(Manner::Answers);
        world.turn();
    }
    world.run(Duration::from_millis(300));
    assert_eq!(states(&world), [SlotState::Free; 2]);
    assert_eq!(world.ask_box(again), Ok(Reply::Done));
}

#[test]
fn nothing_of_a_device_is_lent_while_another_function_waits_for_its_reset() {
    let mut world = World::new();
    world.device = Registers::with_functions(3, false);
    world.insert();
    world.introduce();
    let bind = |function, counter| Request::BindSlot(slot_binding(key_of(function, counter)));
    for function in 0..2 {
        assert_eq!(world.ask_box(bind(function, 1)), Ok(Reply::Done));
    }
    let first = world.ask_box(Request::UnbindSlot(key_of(0, 1)));
    assert_eq!(first, Ok(Reply::Slot(SlotState::Releasing)));
    assert_eq!(world.ask_box(bind(2, 1)), Err(ControlError::Busy), "it would wait for that, too");
    assert_eq!(world.ask_box(bind(1, 1)), Ok(Reply::Done), "what is so already is so");
    let last = world.ask_box(Request::UnbindSlot(key_of(1, 1)));
    assert_eq!(last, Ok(Reply::Slot(SlotState::Free)));
    world.run(Duration::from_millis(300));
    assert_eq!(states(&world), [SlotState::Free; 3]);
    assert_eq!(world.ask_box(bind(2, 1)), Ok(Reply::Done));
}

#[test]
fn functions_with_a_reset_of_their_own_come_back_one_by_one() {
    let mut world = two_functions(true);
    lose_host(&mut world);
    for function in [0, 1] {
        let released = world.ask_box(Request::UnbindSlot(key_of(function, 1)));
        assert_eq!(released, Ok(Reply::Slot(SlotState::Free)));
    }
    assert_eq!(world.counter("box: functions quarantined"), 0);
}

#[test]
fn a_lost_link_resets_a_device_without_a_function_level_reset_once() {
    let mut world = two_functions(false);
    let resets = world.device.resets;
    world.cut = true;
    world.mem_read(FIRST_WINDOW, 1);
    world.run(Duration::from_secs(4));
    assert_eq!(states(&world), [SlotState::Free; 2]);
    assert_eq!(world.device.resets, resets + 1);
}

#[test]
fn a_function_that_does_not_come_back_from_the_common_reset_is_quarantined() {
    let mut world = two_functions(false);
    lose_host(&mut world);
    world.ask_box(Request::UnbindSlot(key_of(0, 1))).unwrap();
    world.device.manner = Manner::Silent;
    let last = world.ask_box(Request::UnbindSlot(key_of(1, 1)));
    assert_eq!(last, Ok(Reply::Slot(SlotState::Quarantined)));
    world.run(Duration::from_secs(4));
    assert_eq!(states(&world), [SlotState::Quarantined; 2]);
}

#[test]
fn all_functions_of_a_quarantined_slot_are_tried_again() {
    let mut world = two_functions(false);
    lose_host(&mut world);
    world.ask_box(Request::UnbindSlot(key_of(0, 1))).unwrap();
    world.device.manner = Manner::Silent;
    world.ask_box(Request::UnbindSlot(key_of(1, 1))).unwrap();
    world.run(Duration::from_secs(4));
    let again = world.ask_box(Request::Recover(slot(1)));
    assert_eq!(again, Ok(Reply::Slot(SlotState::Quarantined)));
    assert_eq!(states(&world), [SlotState::Quarantined; 2]);
    world.device.manner = Manner::Answers;
    assert_eq!(world.ask_box(Request::Recover(slot(1))), Ok(Reply::Slot(SlotState::Free)));
    assert_eq!(states(&world), [SlotState::Free; 2]);
}

/// Only who looks knows whether a device answers: a proxy that stood still asks once more.
#[test]
fn a_device_is_not_blamed_for_a_box_that_stands_still() {
    for answers_late in [false, true] {
        let mut world = looked_at();
        assert!(world.device.holds());
        world.now = world.now + Duration::from_secs(10);
        if answers_late {
            world.device.answer(Manner::Answers);
        }
        world.device.manner = Manner::Answers;
        world.run(Duration::from_millis(100));
        assert_eq!(states(&world), [SlotState::Free; 2], "answers late: {answers_late}");
    }
    let mut world = looked_at();
    world.run(Duration::from_secs(10));
    assert_eq!(states(&world), [SlotState::Quarantined], "it did look");
}

/// The other one, free for long, was reset with it and is not what it was.
#[test]
fn a_free_function_that_does_not_come_back_from_a_reset_is_quarantined() {
    let mut world = two_functions(true);
    lose_host(&mut world);
    assert_eq!(world.ask_box(Request::UnbindSlot(key_of(0, 1))), Ok(Reply::Slot(SlotState::Free)));
    // The last one takes no write any more until the whole device is reset.
    world.device.manner = Manner::Silent;
    let release = Request::UnbindSlot(key_of(1, 1));
    world.boxes.handle_control(world.now, OperationId(u64::MAX), Term(1), &release);
    let resets = world.device.resets;
    while world.device.resets == resets {
        world.run(Duration::from_millis(1));
    }
    let again = Request::BindSlot(slot_binding(key_of(0, 2)));
    assert_eq!(world.ask_box(again), Err(ControlError::Busy), "it is not what it was yet");
    world.run(Duration::from_secs(10));
    assert_eq!(states(&world), [SlotState::Quarantined; 2]);
}

#[test]
fn a_device_that_two_hosts_share_is_reset_by_none_of_them() {
    let mut world = World::new();
    make_shared(&mut world, false);
    let resets = world.device.resets;
    // What the function asks is answered all the same.
    world.device.received.clear();
    world.device.out.push_back(emit(&Repr::new(mem_read(function(0), 1, 0x2000, 1))));
    world.turn();
    world.config_write(bdf(2, 0), 0x3c, 0x0040_0000);
    world.config_write(bdf(2, 0), 0x3c, 0);
    let answer = Packet::new_checked(&world.device.received[0][..]).unwrap();
    assert_eq!((answer.status(), answer.tag().get()), (CplStatus::UnsupportedRequest, 1));
    assert_eq!(world.device.resets, resets);
    assert_eq!(world.counter("box: resets of a device that several hosts share"), 1);
    // The one that is taken back waits for the other one, whose host never came.
    let first = world.ask_box(Request::UnbindSlot(key_of(0, 1)));
    assert_eq!(first, Ok(Reply::Slot(SlotState::Releasing)));
    let last = world.ask_box(Request::UnbindSlot(key_of(1, 1)));
    assert_eq!(last, Ok(Reply::Slot(SlotState::Free)));
    world.run(Duration::from_millis(300));
    assert_eq!(states(&world), [SlotState::Free; 2]);
    assert_eq!(world.device.resets, resets + 1);
}

/// What another device writes to a further function of a hung one is given up like what it writes to the
/// first one.
#[test]
fn a_device_that_writes_to_a_further_function_of_a_hung_one_goes_on() {
    const SECOND: u64 = FIRST_WINDOW + 0x1_0000;
    let mut world = two_functions(true);
    world.config_write(function(0), 0x10, FIRST_WINDOW as u32);
    world.config_write(function(1), 0x10, SECOND as u32);
    world.config_write(function(1), 0x04, 0x0006);
    world.add_box();
    world.device.room = ClassSet::NONE;
    let mut written = 0;
    while !world.host.holds_any() {
        assert!(written < 100_000, "there is room for ever");
        let write = emit(&Repr::new(mem_write(bdf(4, 0), SECOND, &[7; 4])));
        world.second().device.out.push_back(write);
        world.run(Duration::from_millis(1));
        written += 1;
    }
    let read = emit(&Repr::new(mem_read(bdf(4, 0), 1, 0x1_0000_0000, 1)));
    world.second().device.out.push_back(read);
    world.run(LONGEST_HOLD / 2);
    assert!(world.to_root.is_empty(), "a read does not pass a write");
    world.run(LONGEST_HOLD);
    assert_eq!((world.to_root.len(), world.host.holds_any()), (1, false));
}
