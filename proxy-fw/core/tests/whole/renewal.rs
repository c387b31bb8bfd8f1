//! Functions of one device that are reset and used beside one another: each has what is the proxies' when
//! its host uses it, whatever the others do.

use crate::functions::{
    function, key_of, make_shared, make_two_functions, states, timeouts, two_functions,
};
use crate::world::*;
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::control::{
    ControlError, EraseFailure, EraseMethod, EraseRequest, Erasure, FromProxy, OperationId, Reply,
    Request, SlotState, Term,
};
use proxy_core::limits::{DEVICE_TAGS, HOST_OUTSTANDING};
use proxy_core::role::Role;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const SET: u8 = 0b1101;
/// As long as a box on a card waits for what a host asked.
const SOON: Duration = Duration::from_millis(30);
const NOT_READY: Manner = Manner::Refuses(CplStatus::ConfigRetry);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A host writes a register of a function, and does not wait for the answer.
fn write(world: &mut World, number: u8, register: u16, value: u32) {
    let tag = world.tag();
    let tlp = emit(&config_write(tag, function(number), register, &value.to_le_bytes()));
    world.host.handle_tlp(world.now, &tlp).unwrap();
    world.turn();
}

fn reset(world: &mut World, number: u8) {
    write(world, number, 0x48, 0x8000);
}

/// Its host turns a function's bus mastering on.
fn start_using(world: &mut World, number: u8) {
    write(world, number, 0x04, 0b110);
}

/// Both functions, reset in the same moment.
fn both_reset() -> World {
    let mut world = two_functions(true);
    (0..2).for_each(|number| reset(&mut world, number));
    assert_eq!(timeouts(&world), [0; 2]);
    world
}

/// A box that waits no longer than that for what a host asked.
fn bounded(completion_bound: Duration) -> World {
    let mut world = World::new();
    let config = BoxConfig { incarnation: 7, completion_bound, ..BoxConfig::default() };
    world.boxes = BoxRole::new(&config);
    world.boxes.set_node(node(BOX));
    world
}

/// Two functions of two hosts; the second one's never comes.
fn shared() -> World {
    shared_of(BoxConfig::default().completion_bound)
}

/// The same, with a box that waits no longer than that for what a host asked.
fn shared_of(completion_bound: Duration) -> World {
    let mut world = bounded(completion_bound);
    make_shared(&mut world, true);
    world
}

/// A manager takes a function back, and does not wait for the end of that.
fn take_back(world: &mut World, number: u16) {
    let request = Request::UnbindSlot(key_of(number, 1));
    world.boxes.handle_control(world.now, OperationId(77), Term(1), &request);
    world.turn();
}

/// The second one's turn comes while the first one answers what its proxy sets again.
#[test]
fn functions_that_their_host_uses_at_once_have_what_the_proxies_own() {
    let mut world = both_reset();
    for number in 0..2 {
        let tag = world.tag();
        let tlp = emit(&config_write(tag, function(number), 0x04, &[0b110, 0, 0, 0]));
        world.host.handle_tlp(world.now, &tlp).unwrap();
    }
    world.turn();
    assert_eq!(timeouts(&world), [SET; 2]);
}

/// The function may ask for something as soon as it may.
#[test]
fn what_is_the_proxys_is_there_before_a_function_is_used() {
    let mut world = both_reset();
    world.device.received.clear();
    start_using(&mut world, 0);
    let registers =
        world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap().register());
    assert_eq!(registers.collect::<Vec<_>>(), [0x68, 0x04]);
    // Whatever comes of the first one.
    reset(&mut world, 0);
    world.device.received.clear();
    world.device.apart = Some((0, Manner::Holds));
    start_using(&mut world, 0);
    assert_eq!(world.device.received.len(), 2, "the host does not wait for the proxy's answer");
}

#[test]
fn a_function_that_is_not_ready_delays_no_other_one() {
    for manner in [NOT_READY, Manner::Refuses(CplStatus::UnsupportedRequest), Manner::Silent] {
        // Used in the reset, and when it should be over.
        for after in [ms(1), ms(150)] {
            let mut world = both_reset();
            world.device.apart = Some((0, manner));
            start_using(&mut world, 0);
            world.run(after);
            reset(&mut world, 1);
            start_using(&mut world, 1);
            assert_eq!(timeouts(&world), [0, SET], "{manner:?}");
            // It is lent on, and what it lost is due.
            reset(&mut world, 1);
            world.run(ms(110));
            assert_eq!(timeouts(&world), [0, SET], "{manner:?}");
            world.device.apart = None;
            world.run(ms(600));
            assert_eq!(timeouts(&world), [SET; 2], "{manner:?}");
        }
    }
}

/// Its host is not the only one that has functions of the device.
#[test]
fn a_function_that_is_reset_again_and_again_puts_nothing_off() {
    let mut world = both_reset();
    for _ in 0..5 {
        world.run(ms(25));
        reset(&mut world, 0);
    }
    assert_eq!(timeouts(&world), [0, SET]);
    world.run(ms(110));
    assert_eq!(timeouts(&world), [SET; 2]);
}

#[test]
fn a_function_that_is_taken_back_delays_no_other_one() {
    for manner in [NOT_READY, Manner::Silent] {
        let mut world = shared();
        world.device.apart = Some((1, manner));
        take_back(&mut world, 1);
        reset(&mut world, 0);
        start_using(&mut world, 0);
        assert_eq!(timeouts(&world)[0], SET, "{manner:?}");
        reset(&mut world, 0);
        world.run(ms(110));
        assert_eq!(timeouts(&world)[0], SET, "{manner:?}");
        assert_eq!(states(&world), [SlotState::Bound, SlotState::Releasing]);
    }
}

/// A function may leave unanswered what it is asked in its reset, and is not broken for that.
#[test]
fn a_function_that_its_host_has_just_reset_is_taken_back_when_that_is_over() {
    let mut world = shared();
    reset(&mut world, 0);
    world.device.apart = Some((0, Manner::Silent));
    let signals = world.device.signals.len();
    take_back(&mut world, 0);
    world.run(ms(90));
    world.device.apart = None;
    world.run(ms(150));
    assert_eq!(states(&world), [SlotState::Free, SlotState::Bound]);
    assert_eq!(world.device.signals.len(), signals);
}

/// A write of the proxy's is out when the host begins, and is lost; it is the last one for which the
/// function has time.
#[test]
fn a_use_while_the_proxys_write_is_out_is_not_forgotten() {
    let mut world = both_reset();
    world.device.apart = Some((0, Manner::Silent));
    world.run(ms(1450));
    world.device.apart = None;
    start_using(&mut world, 0);
    assert_eq!(timeouts(&world), [0, SET], "it is waited for still");
    world.run(ms(500));
    assert_eq!(timeouts(&world), [SET; 2]);
}

/// The function is reset, and what it was sent before that is not waited for.
#[test]
fn a_function_that_is_taken_back_while_the_proxys_write_is_out_is_free() {
    let mut world = shared();
    reset(&mut world, 0);
    world.device.apart = Some((0, Manner::Silent));
    world.run(ms(1250));
    world.device.apart = None;
    take_back(&mut world, 0);
    world.run(ms(1000));
    assert_eq!(states(&world), [SlotState::Free, SlotState::Bound]);
    let lent = world.ask_box(Request::BindSlot(slot_binding(key_of(0, 2))));
    assert_eq!(lent, Ok(Reply::Done));
}

/// A host may go on with that, and who asked for the release is not kept waiting.
#[test]
fn a_release_that_a_host_puts_off_by_resets_is_answered() {
    let mut world = World::new();
    world.device = Registers::with_functions(2, true);
    world.insert();
    world.introduce();
    // The host has it all, and this one in no port.
    let lent = world.ask_box(Request::BindSlot(slot_binding(key_of(1, 1))));
    assert_eq!(lent, Ok(Reply::Done));
    world.bind(1);
    world.assign_buses();
    let bus_reset = |world: &mut World| {
        for value in [0x0040_0000_u32, 0] {
            let tag = world.tag();
            let tlp = emit(&config_write(tag, bdf(2, 0), 0x3c, &value.to_le_bytes()));
            world.host.handle_tlp(world.now, &tlp).unwrap();
            world.turn();
        }
    };
    bus_reset(&mut world);
    take_back(&mut world, 1);
    let answered = |world: &World| {
        let is_answer = |message: &FromProxy| match message {
            FromProxy::Response { id, result } => {
                *id == OperationId(77) && *result == Ok(Reply::Slot(SlotState::Releasing))
            }
            _ => false,
        };
        world.box_messages.iter().any(is_answer)
    };
    assert!(!answered(&world));
    bus_reset(&mut world);
    assert!(answered(&world));
}

/// It is reset with the whole device, and is nobody's.
#[test]
fn a_quarantined_function_keeps_no_other_one_from_being_erased() {
    let mut world = shared();
    world.device.apart = Some((1, Manner::Silent));
    take_back(&mut world, 1);
    take_back(&mut world, 0);
    world.run(ms(5000));
    assert_eq!(states(&world), [SlotState::Free, SlotState::Quarantined]);
    let serial = world.boxes.inventory().next().unwrap().serial;
    let methods = [EraseMethod::SanitizeBlock].into_iter().collect();
    let request = EraseRequest { key: key_of(0, 2), serial, methods, within_s: 60 };
    let erased = world.ask_box(Request::Erase(request));
    // It has nothing that could be erased.
    assert_eq!(erased, Ok(Reply::Erasure(Erasure::Failed(EraseFailure::NoMeans).into())));
}

#[test]
fn a_device_that_is_ready_later_than_a_proxy_waits_has_what_the_proxies_own_when_it_is_used() {
    for manner in [NOT_READY, Manner::Silent] {
        let mut world = both_reset();
        world.device.apart = Some((0, manner));
        world.run(ms(3000));
        let asked = world.device.received.len();
        world.run(ms(3000));
        assert_eq!(world.device.received.len(), asked, "it is asked no more");
        world.device.apart = None;
        world.run(ms(1000));
        assert_eq!(timeouts(&world), [0, SET]);
        start_using(&mut world, 0);
        assert_eq!(timeouts(&world), [SET; 2]);
    }
}

/// It refuses the proxy's write, and takes the host's behind it.
#[test]
fn a_device_that_becomes_ready_just_when_it_is_used_has_what_the_proxies_own() {
    for waited in [ms(10), ms(3000)] {
        let mut world = both_reset();
        world.device.apart = Some((0, NOT_READY));
        world.run(waited);
        world.device.apart = Some((0, Manner::Holds));
        start_using(&mut world, 0);
        world.device.apart = None;
        world.device.answer(NOT_READY);
        // One that answers so has done it in this model of a device.
        world.device.put(0x68, 0);
        world.device.answer(Manner::Answers);
        world.turn();
        assert_eq!(timeouts(&world)[0], 0);
        world.run(ms(6));
        assert_eq!(timeouts(&world)[0], SET);
    }
}

/// It was sent when the reset was not over yet, and the device answers it all the same: nothing else has
/// its tag.
#[test]
fn a_write_that_was_too_early_is_answered_late_under_its_tag() {
    for bound in [SOON, ms(2000)] {
        let mut world = shared_of(bound);
        reset(&mut world, 0);
        world.device.apart = Some((0, Manner::Holds));
        start_using(&mut world, 0);
        world.run(ms(1000));
        while world.device.holds() {
            world.device.answer(Manner::Answers);
            world.turn();
            assert_eq!(world.counter("box: unexpected completions from devices"), 0);
        }
        assert_eq!(timeouts(&world), [SET; 2]);
    }
}

/// Its host asked it after the reset, and its box gave up on the answer; the reset, or what was left of the
/// time that it may take, ends later.
#[test]
fn what_a_function_was_asked_after_its_reset_is_answered_late_under_its_tag() {
    let mut world = shared_of(SOON);
    reset(&mut world, 0);
    start_using(&mut world, 0);
    world.run(ms(10));
    world.device.apart = Some((0, Manner::Holds));
    let tag = world.tag();
    let read = Repr::new(Kind::ConfigRead {
        type1: true,
        requester: Bdf::default(),
        tag,
        destination: function(0),
        register: 0,
        first_be: 0xf,
    });
    world.host.handle_tlp(world.now, &emit(&read)).unwrap();
    world.run(ms(200));
    world.device.answer(Manner::Answers);
    world.turn();
    assert_eq!(world.counter("box: unexpected completions from devices"), 0);
    assert_eq!(world.counter("box: late completions from devices"), 1);
}

/// The other one is free, and is given what is the proxy's.
#[test]
fn a_function_that_comes_back_leaves_what_another_one_is_asked() {
    for bound in [SOON, ms(2000)] {
        let mut world = shared_of(bound);
        take_back(&mut world, 1);
        world.run(ms(500));
        // The host has all that is lent of the device.
        world.device.apart = Some((1, Manner::Holds));
        world.config_write(bdf(2, 0), 0x3c, 0x0040_0000);
        world.config_write(bdf(2, 0), 0x3c, 0);
        world.run(ms(110));
        assert!(world.device.holds());
        take_back(&mut world, 0);
        world.run(ms(300));
        assert_eq!(states(&world), [SlotState::Free; 2]);
        let lend = || Request::BindSlot(slot_binding(key_of(1, 2)));
        assert_eq!(world.ask_box(lend()), Err(ControlError::Busy));
        world.device.apart = None;
        world.device.answer(Manner::Answers);
        world.turn();
        assert_eq!(world.counter("box: unexpected completions from devices"), 0);
        assert_eq!(timeouts(&world), [SET; 2]);
        assert_eq!(world.ask_box(lend()), Ok(Reply::Done), "what is the proxy's is there");
    }
}

/// A host reads memory of the device, and does not wait for the answers.
fn read_much(world: &mut World, many: usize) {
    for _ in 0..many {
        let tag = world.tag();
        let tlp = emit(&Repr::new(mem_read(bdf(0, 0), tag.get(), FIRST_WINDOW, 1)));
        world.host.handle_tlp(world.now, &tlp).unwrap();
        world.turn();
    }
}

/// A device leaves unanswered what it is asked, under all tags but so many.
fn use_up_tags(world: &mut World, but: usize) {
    world.device.manner = Manner::Silent;
    for read in 0..DEVICE_TAGS - but {
        if read % (HOST_OUTSTANDING / 2) == 0 {
            world.run(SOON + ms(1));
        }
        read_much(world, 1);
    }
    world.run(SOON + ms(1));
    world.device.manner = Manner::Answers;
    world.forget_the_past();
}

/// Registers of a function that it was asked to write, by anybody.
fn written(world: &World, number: u8) -> Vec<u16> {
    let packets = world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    let to = packets.filter(|packet| packet.tlp_type() == TlpType::CfgWr0);
    let to = to.filter(|packet| packet.destination().function().get() == number);
    to.map(|packet| packet.register()).collect()
}

/// The host has more waiting than there are tags.
#[test]
fn a_function_that_waits_for_a_tag_gets_the_next_one() {
    let mut world = shared_of(SOON);
    take_back(&mut world, 1);
    world.run(ms(500));
    for value in [0x0040_0000, 0] {
        world.config_write(bdf(2, 0), 0x3c, value);
    }
    world.config_write(bdf(3, 0), 0x10, FIRST_WINDOW as u32);
    world.config_write(bdf(3, 0), 0x04, 0b110);
    world.device.apart = Some((1, NOT_READY));
    use_up_tags(&mut world, 4);
    world.device.manner = Manner::Holds;
    read_much(&mut world, 6);
    world.device.apart = None;
    world.device.received.clear();
    world.run(ms(10));
    assert_eq!(world.device.received.len(), 0, "the last tag is for something else");
    world.device.answer(Manner::Answers);
    world.turn();
    assert_eq!(written(&world, 1), [0x68]);
    assert_eq!(world.device.received.len(), 1, "the host's next one waits on");
}

/// Its device has let all tags but two run out of use.
#[test]
fn a_function_that_is_not_ready_leaves_its_hosts_requests_a_tag() {
    let mut world = bounded(SOON);
    make_two_functions(&mut world, true);
    use_up_tags(&mut world, 2);
    reset(&mut world, 0);
    world.device.received.clear();
    world.device.apart = Some((0, NOT_READY));
    start_using(&mut world, 0);
    world.run(ms(3));
    assert_eq!(written(&world, 0), [0x68, 0x04]);
    assert_eq!(world.config_read(function(1), 0), (CplStatus::Success, 0xd0ac_1b36));
}

/// It was looked at, and left the last question unanswered for too long.
#[test]
fn a_device_that_answers_after_the_look_at_it_harms_nobody() {
    let mut world = World::new();
    world.device = Registers::with_functions(2, true);
    world.device.manner = Manner::Holds;
    world.introduce();
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(ms(110));
    while world.device.holds() && written(&world, 1).last() != Some(&0x68) {
        world.device.answer(Manner::Answers);
        world.turn();
    }
    assert_eq!(states(&world), [SlotState::Probing; 2]);
    world.run(ms(510));
    assert_eq!(states(&world), [SlotState::Quarantined]);
    world.device.answer(Manner::Answers);
    world.turn();
    assert_eq!(states(&world), [SlotState::Quarantined]);
    world.device.manner = Manner::Answers;
    assert_eq!(world.ask_box(Request::Recover(slot(1))), Ok(Reply::Slot(SlotState::Probing)));
    world.run(ms(500));
    assert_eq!(states(&world), [SlotState::Free; 2]);
}
