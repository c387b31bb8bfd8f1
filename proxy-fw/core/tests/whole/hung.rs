//! A device that has no room any more, though its link is well: it stops only itself.

use crate::world::*;
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::{LONGEST_HOLD, SYNTHESISED_COMPLETION};
use proxy_core::link::{ClassSet, LinkConfig};
use proxy_core::role::Role as _;
use proxy_core::switch::SwitchConfig;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const HOLD: Duration = Duration::from_millis(100);
const GIVEN_UP: &str = "host: TLPs given up for a device that takes nothing";

/// Two devices of a host that waits for neither longer than [`HOLD`].
fn pair() -> World {
    pair_with(LinkConfig::default())
}

fn pair_with(link: LinkConfig) -> World {
    let mut world = World::new();
    let switch = SwitchConfig { ports: 2, ..SwitchConfig::default() };
    let config = HostConfig { switch, link, longest_hold: HOLD, ..HostConfig::default() };
    world.host = HostRole::new(&config).unwrap();
    world.host.set_node(node(HOST));
    world.insert();
    world.introduce();
    world.bind(1);
    world.assign_buses();
    world.add_box();
    world
}

/// Hands in the same TLP for the first device again and again until there is no room for it.
fn fill(world: &mut World, tlp: &[u8]) {
    for _ in 0..100_000 {
        if world.host.handle_tlp(world.now, tlp).is_err() {
            return;
        }
        world.turn();
        world.to_root.clear();
    }
    panic!("there is room for ever");
}

#[test]
fn what_a_hung_device_does_not_take_is_given_up() {
    let read = emit(&Repr::new(mem_read(Bdf::default(), 9, FIRST_WINDOW, 1)));
    let write = emit(&Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[7; 4])));
    for (tlp, answered) in [(read, true), (write, false)] {
        let mut world = pair();
        world.device.room = ClassSet::NONE;
        fill(&mut world, &tlp);
        world.run(HOLD / 2);
        assert!(world.host.handle_tlp(world.now, &tlp).is_err(), "it may take it still");
        world.run(HOLD / 2);
        world.to_root.clear();
        // The first one waited; nobody waits for it again.
        for given_up in 1..=3 {
            assert!(world.host.handle_tlp(world.now, &tlp).is_ok());
            world.turn();
            assert_eq!(world.counter(GIVEN_UP), given_up);
            let answer = world.to_root.pop_front();
            assert_eq!(answer.is_some(), answered);
            if let Some(answer) = answer {
                let packet = Packet::new_checked(&answer[..]).unwrap();
                assert_eq!(packet.status(), CplStatus::UnsupportedRequest);
                assert_eq!((packet.tag().get(), packet.byte_count()), (9, 4));
            }
        }
        let identity = world.config_read(bdf(4, 0), 0);
        assert_eq!(identity, (CplStatus::Success, 0xd0ac_1b36), "the other one is well");
        // One that takes something again is waited for as at first.
        world.device.room = ClassSet::ALL;
        world.run(Duration::from_secs(5));
        world.to_root.clear();
        assert!(world.host.handle_tlp(world.now, &tlp).is_ok());
        world.turn();
        assert_eq!(world.counter(GIVEN_UP), 3, "it was sent");
        world.device.room = ClassSet::NONE;
        fill(&mut world, &tlp);
        assert_eq!(world.counter(GIVEN_UP), 3);
    }
}

const SECONDARY_BUS_RESET: u32 = 0x0040_0000;

/// A device is waited for once: the one that is there after it, and it itself after a reset, are
/// waited for as long.
#[test]
fn what_was_held_of_a_device_that_is_gone_is_held_against_no_other() {
    let read = emit(&Repr::new(mem_read(Bdf::default(), 9, FIRST_WINDOW, 1)));
    let of_second = emit(&Repr::new(mem_read(Bdf::default(), 9, SECOND_WINDOW, 1)));
    let mut world = pair();
    world.device.room = ClassSet::NONE;
    world.second().device.room = ClassSet::NONE;
    fill(&mut world, &read);
    world.run(HOLD / 2);
    assert!(world.ask_host(super::ends::force(1)).is_ok());
    world.run(HOLD);
    assert!(world.host.handle_tlp(world.now, &read).is_ok(), "it goes to nobody");
    world.run(HOLD);
    fill(&mut world, &of_second);
    world.run(HOLD / 2);
    assert!(world.host.handle_tlp(world.now, &of_second).is_err(), "it may take it still");
    assert_eq!(world.counter(GIVEN_UP), 0);
    world.run(HOLD / 2);
    assert!(world.host.handle_tlp(world.now, &of_second).is_ok());
    assert_eq!(world.counter(GIVEN_UP), 1);
    world.config_write(bdf(2, 1), 0x3c, SECONDARY_BUS_RESET);
    world.config_write(bdf(2, 1), 0x3c, 0);
    world.run(Duration::from_millis(10));
    fill(&mut world, &of_second);
    assert_eq!(world.counter(GIVEN_UP), 1, "it may have been cured");
}

/// The first device writes to the second, which is hung, until one write is held at the host and
/// stays: one that waits for an acknowledgement only goes on by itself.
fn hold_one(world: &mut World) {
    world.second().device.room = ClassSet::NONE;
    for _ in 0..100_000 {
        let write = emit(&Repr::new(mem_write(bdf(3, 0), SECOND_WINDOW, &[7; 4])));
        world.device.out.push_back(write);
        world.turn();
        if world.host.holds_any() {
            world.run(LONGEST_HOLD / 4);
            if world.host.holds_any() {
                return;
            }
        }
    }
    panic!("there is room for ever");
}

#[test]
fn a_device_that_writes_to_a_hung_one_goes_on() {
    let mut world = World::pair();
    hold_one(&mut world);
    let read = |tag| emit(&Repr::new(mem_read(bdf(3, 0), tag, 0x1_0000_0000, 1)));
    world.device.out.push_back(read(1));
    world.run(LONGEST_HOLD / 2);
    assert!(world.to_root.is_empty(), "a read does not pass a write");
    world.run(LONGEST_HOLD);
    assert_eq!(world.to_root.len(), 1);
    // Further ones are given up at once, in their order.
    for tag in 2..10 {
        let write = emit(&Repr::new(mem_write(bdf(3, 0), SECOND_WINDOW, &[8; 4])));
        world.device.out.extend([write, read(tag)]);
    }
    world.run(Duration::from_millis(10));
    assert_eq!((world.to_root.len(), world.counter(GIVEN_UP)), (9, 9));
    let second = world.second();
    second.device.room = ClassSet::ALL;
    world.run(Duration::from_millis(10));
    assert!(!world.host.holds_any());
    let write = emit(&Repr::new(mem_write(bdf(3, 0), SECOND_WINDOW + 64, &[9; 4])));
    world.device.out.push_back(write);
    world.turn();
    assert_eq!(world.second().device.memory[64..68], [9; 4]);
    assert_eq!(world.counter(GIVEN_UP), 9);
}

/// What was held from before a reset is not the first thing that comes after it.
#[test]
fn what_is_held_for_a_device_ends_with_its_reset() {
    let mut world = World::pair();
    hold_one(&mut world);
    world.config_write(bdf(2, 1), 0x3c, SECONDARY_BUS_RESET);
    world.second().device.room = ClassSet::ALL;
    world.second().device.received.clear();
    world.run(Duration::from_millis(10));
    world.config_write(bdf(2, 1), 0x3c, 0);
    world.run(Duration::from_millis(10));
    assert!(!world.host.holds_any());
    let received = &world.second().device.received;
    let writes = received.iter().filter(|tlp| {
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        packet.tlp_type() == TlpType::MWr
    });
    assert_eq!(writes.count(), 0);
    assert_eq!(world.counter("host: TLPs between devices whose target went away"), 1);
}

/// A card sleeps as long as this where nothing else is to do.
#[test]
fn who_looks_seldom_gives_up_all_the_same() {
    let tlp = emit(&Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[7; 4])));
    let mut world = pair();
    world.device.room = ClassSet::NONE;
    fill(&mut world, &tlp);
    let mut refused = 0;
    while world.host.handle_tlp(world.now, &tlp).is_err() {
        world.run(HOLD + HOLD / 2);
        refused += 1;
    }
    assert_eq!((refused, world.counter(GIVEN_UP)), (1, 1));
}

/// The time in which the root complex stood still is not the device's; all other time is.
#[test]
fn a_root_complex_that_stands_still_now_and_then_excuses_only_that() {
    let tlp = emit(&Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[7; 4])));
    let mut world = pair();
    world.device.room = ClassSet::NONE;
    fill(&mut world, &tlp);
    // Half of the time, in turns.
    for looks in 1..19 {
        world.run(HOLD / 10);
        if looks % 2 == 0 {
            world.host.excuse();
        }
        assert!(world.host.handle_tlp(world.now, &tlp).is_err(), "{looks}: it may take it still");
    }
    world.run(HOLD / 10);
    assert!(world.host.handle_tlp(world.now, &tlp).is_ok());
    assert_eq!(world.counter(GIVEN_UP), 1);
    // It has taken nothing since.
    world.host.excuse();
    assert!(world.host.handle_tlp(world.now, &tlp).is_ok());
    assert_eq!(world.counter(GIVEN_UP), 2);
}

/// What is refused for another reason says nothing of the device that it was for.
#[test]
fn a_device_that_speaks_under_a_wrong_name_keeps_nobody_waiting() {
    let mut world = pair();
    world.second().device.room = ClassSet::NONE;
    let read = emit(&Repr::new(mem_read(Bdf::default(), 9, SECOND_WINDOW, 1)));
    fill(&mut world, &read);
    let wrong = emit(&Repr::new(mem_read(bdf(9, 0), 1, SECOND_WINDOW, 1)));
    for _ in 0..10 {
        assert_eq!(world.counter(GIVEN_UP), 0);
        if world.host.handle_tlp(world.now, &read).is_ok() {
            break;
        }
        world.device.out.push_back(wrong.clone());
        world.run(HOLD / 5);
    }
    assert!(
        world.counter("host: requests between devices whose requester is not behind its port") > 1
    );
    assert_eq!(world.counter(GIVEN_UP), 1);
}

/// Of an answer in many completions some find no room, and are given up. The tag of what was asked is
/// used again when the rest has come.
#[test]
fn of_an_answer_that_is_given_up_in_part_no_tag_is_left() {
    let mut world = pair_with(LinkConfig { shared_send: 0, ..LinkConfig::default() });
    let read = emit(&Repr::new(mem_read(bdf(3, 0), 5, 0x1_0000_0000, 1024)));
    world.device.out.push_back(read);
    world.turn();
    let asked = world.to_root.pop_front().unwrap();
    world.device.room = ClassSet::NONE;
    let pieces: Vec<_> = (0..64).map(|piece| piece_of(&asked, 4096, 64 * piece)).collect();
    let mut waits = 0;
    for piece in &pieces {
        let started = world.now;
        while world.host.handle_tlp(world.now, piece).is_err() {
            assert!(world.now < started + 2 * HOLD, "it waits for ever");
            world.run(HOLD / 10);
            waits += 1;
        }
        world.turn();
    }
    assert!(waits > 0 && world.counter(GIVEN_UP) > 0, "it fits into what there is");
    let hand = world.host.in_hand();
    assert_eq!((hand.from_devices, hand.set_aside), (0, 0));
    assert_eq!(world.counter("host: unexpected completions from the root complex"), 0);
}

/// What a device had asked before its reset holds up nothing that it asks afterwards, though the answer
/// to that needed more room than there is.
#[test]
fn after_its_reset_a_device_waits_for_no_answer_of_before() {
    let mut world = pair_with(LinkConfig { shared_send: 0, ..LinkConfig::default() });
    let read = |tag| emit(&Repr::new(mem_read(bdf(3, 0), tag, 0x1_0000_0000, 1024)));
    world.device.out.extend([read(5), read(6)]);
    world.turn();
    let before = world.to_root.pop_front().unwrap();
    world.run(HOLD);
    assert!(world.to_root.is_empty(), "the second one waits for the first one's answer");
    world.config_write(bdf(2, 0), 0x3c, SECONDARY_BUS_RESET);
    world.run(Duration::from_millis(10));
    world.config_write(bdf(2, 0), 0x3c, 0);
    world.run(Duration::from_millis(200));
    world.config_read(bdf(3, 0), 0);
    world.device.out.push_back(read(7));
    world.run(Duration::from_millis(10));
    assert_eq!(world.to_root.len(), 1);
    assert_eq!(world.host.in_hand().set_aside, 1);
    // The answer of before comes all the same, and is for nobody.
    world.device.received.clear();
    for piece in 0..64 {
        let piece = piece_of(&before, 4096, 64 * piece);
        assert!(world.host.handle_tlp(world.now, &piece).is_ok());
    }
    world.run(Duration::from_millis(10));
    assert_eq!((world.device.received.len(), world.host.in_hand().set_aside), (0, 0));
}

/// A completion of 64 bytes, of an answer to `asked` of which so much was there before.
fn piece_of(asked: &[u8], total: u16, before: u16) -> Vec<u8> {
    let asked = Packet::new_checked(asked).unwrap();
    emit(&Repr::new(Kind::Completion {
        completer: Bdf::default(),
        requester: asked.requester(),
        tag: asked.tag(),
        status: CplStatus::Success,
        bcm: false,
        byte_count: total - before,
        lower_address: 0,
        locked: false,
        data: &[0; 64],
    }))
}

/// A root complex answers who asked after that one's bus went behind another port: nobody gets it, and
/// the tag is used again.
#[test]
fn what_is_answered_to_a_bus_that_moved_sets_no_tag_aside() {
    let mut world = World::pair();
    let read = emit(&Repr::new(mem_read(bdf(3, 0), 9, 0x1_0000_0000, 1)));
    world.device.out.push_back(read);
    world.turn();
    let asked = world.to_root.pop_front().expect("it comes");
    // The lower port's buses are 5, and the other one's 3 and 4.
    world.config_write(bdf(2, 0), 0x18, 0x0005_0502);
    world.config_write(bdf(2, 1), 0x18, 0x0004_0302);
    let answer = answer_to(&asked, &[1, 2, 3, 4]);
    world.second().device.received.clear();
    world.host.handle_tlp(world.now, &answer).expect("there is room");
    world.turn();
    assert!(world.second().device.received.is_empty(), "it never asked");
    world.run(2 * SYNTHESISED_COMPLETION);
    let hand = world.host.in_hand();
    assert_eq!((hand.from_devices, hand.set_aside), (0, 0));
}
