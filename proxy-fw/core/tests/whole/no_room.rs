//! Resets and messages for a device that the link has no room for when they come.

use crate::world::*;
use proxy_core::boxes::SlotSignal;
use proxy_core::control::{OperationId, Removal, Term};
use proxy_core::role::Role as _;
use proxy_core::switch::ResetKind;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

fn config_write(tag: u16, destination: Bdf, register: u16, value: u32) -> Vec<u8> {
    emit(&Repr::new(Kind::ConfigWrite {
        type1: true,
        requester: Bdf::default(),
        tag: Tag::new(tag).unwrap(),
        destination,
        register,
        first_be: 0xf,
        data: &value.to_le_bytes(),
    }))
}

/// Hands in a TLP, and lets nothing onto the wire.
fn hand_in(world: &mut World, tlp: &[u8]) -> bool {
    let taken = world.host.handle_tlp(world.now, tlp).is_ok();
    let mut buf = [0; proxy_core::limits::TLP_BUFFER];
    while world.host.poll_tlp(world.now, &mut buf).is_some() {}
    taken
}

/// Sets and clears a bit of the port twenty times; before the last time the device is written to.
fn toggle(world: &mut World, register: u16, bit: u32) {
    for turn in 0..20 {
        if turn == 19 {
            // A write of before the last reset. It may wait, and is not waited for then.
            hand_in(world, &config_write(100, bdf(3, 0), 0x04, 0x0006));
        }
        for value in [bit, 0] {
            assert!(hand_in(world, &config_write(turn, bdf(2, 0), register, value)));
        }
    }
}

#[test]
fn no_reset_is_lost_when_there_are_many() {
    for (register, bit) in [(0x3c, 0x0040_0000), (0x80, 0x10)] {
        let mut world = World::bound();
        let resets = world.device.resets;
        toggle(&mut world, register, bit);
        world.run(Duration::from_millis(300));
        assert!(world.device.resets > resets);
        assert_eq!(world.device.get(0x04) & 6, 0, "written before the last reset");
        assert_eq!(world.device.get(0x68) & 0x1f, 0b1101);
        // What comes behind the last one reaches the device after it.
        toggle(&mut world, register, bit);
        let enable = config_write(200, bdf(3, 0), 0x04, 0x0006);
        while !hand_in(&mut world, &enable) {
            world.turn();
        }
        world.run(Duration::from_millis(300));
        assert_eq!(world.device.get(0x04) & 6, 6);
        assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
    }
}

fn turn_off() -> Vec<u8> {
    emit(&Repr::new(Kind::Message {
        routing: MsgRouting::Broadcast,
        code: MsgCode::PmeTurnOff,
        requester: Bdf::default(),
        tag: Tag::new(0).unwrap(),
        fields: [0; 8],
        data: &[],
    }))
}

fn turn_offs(device: &Registers) -> usize {
    let is_one = |tlp: &&Vec<u8>| {
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        matches!(packet.tlp_type(), TlpType::Msg(_)) && packet.message_code() == MsgCode::PmeTurnOff
    };
    device.received.iter().filter(is_one).count()
}

/// Writes of the root complex until there is no room for more.
fn fill(world: &mut World) -> usize {
    let write = emit(&Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[7; 4])));
    (0..10_000).find(|_| !hand_in(world, &write)).expect("room ends")
}

fn read(tag: u16) -> Vec<u8> {
    emit(&Repr::new(mem_read(Bdf::default(), tag, FIRST_WINDOW, 1)))
}

/// A bound device that has been sent reads until there was no room for one more, which this is.
fn full_of_reads() -> (World, Vec<u8>) {
    let mut world = World::bound();
    let refused = (0..256).map(read).find(|read| !hand_in(&mut world, read)).expect("room ends");
    for _ in 0..3 {
        assert!(!hand_in(&mut world, &refused), "nothing has changed");
    }
    (world, refused)
}

#[test]
fn what_was_refused_is_taken_when_there_is_room() {
    let (mut world, refused) = full_of_reads();
    let waited = world.counter("host: TLPs that had to wait for room");
    assert_eq!(waited, 4);
    world.turn();
    world.to_root.clear();
    assert!(hand_in(&mut world, &refused));
    world.turn();
    let answers = world.to_root.iter().filter(|answer| {
        let packet = Packet::new_checked(&answer[..]).unwrap();
        packet.tag() == Packet::new_checked(&refused[..]).unwrap().tag()
    });
    assert_eq!(answers.count(), 1);
}

/// However often it is handed in (PCIe 5.0 section 2.7.2.2).
#[test]
fn what_is_poisoned_and_waits_is_reported_once() {
    let mut world = World::bound();
    fill(&mut world);
    let reported = "switch.poisoned_passed";
    let write = Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[7; 4]));
    let poisoned = emit(&Repr { poisoned: true, ..write });
    for _ in 0..3 {
        assert!(!hand_in(&mut world, &poisoned));
    }
    assert_eq!(world.counter(reported), 0);
    world.turn();
    assert!(hand_in(&mut world, &poisoned));
    assert_eq!(world.counter(reported), 1);
    // The next one is another.
    assert!(hand_in(&mut world, &poisoned));
    assert_eq!(world.counter(reported), 2);
}

#[test]
fn what_was_refused_is_no_obstacle_to_another() {
    let (mut world, refused) = full_of_reads();
    let write = emit(&Repr::new(mem_write(Bdf::default(), FIRST_WINDOW, &[7; 4])));
    assert!(hand_in(&mut world, &write));
    // Of another one's way its prefix says nothing.
    let prefixed = [&[0x91, 0, 0, 0], &refused[..]].concat();
    assert!(!hand_in(&mut world, &prefixed));
    assert!(hand_in(&mut world, &write));
    let nowhere = emit(&Repr::new(mem_read(Bdf::default(), 0, FIRST_WINDOW - 0x1000, 1)));
    assert!(hand_in(&mut world, &nowhere), "it is answered at once");
    assert!(!hand_in(&mut world, &refused));
}

/// Whoever could not be given a TLP need not wait for room that nobody has any use for.
#[test]
fn what_was_refused_does_not_wait_when_its_way_has_changed() {
    type Change = fn(&mut World);
    let changes: [Change; 5] = [
        |world| {
            // Its window is closed.
            assert!(hand_in(world, &config_write(9, bdf(2, 0), 0x04, 0)));
        },
        |world| {
            // Its device is being reset.
            assert!(hand_in(world, &config_write(9, bdf(2, 0), 0x3c, 0x0040_0000)));
        },
        |world| world.host.handle_reset(world.now, ResetKind::Hot),
        |world| {
            let unbind = unbind_port(port(0), key(1).epoch, Removal::Force);
            world.host.handle_control(world.now, OperationId(1 << 40), Term(1), &unbind);
        },
        |world| {
            // The link to its box ends.
            world.host.close_links(world.now);
            world.host.handle_timeout(world.now);
        },
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let (mut world, refused) = full_of_reads();
        change(&mut world);
        assert!(hand_in(&mut world, &refused), "change {index}");
    }
}

#[test]
fn a_broadcast_waits_for_room_and_passes_no_write() {
    let mut world = World::pair();
    let writes = fill(&mut world);
    assert!(hand_in(&mut world, &turn_off()));
    world.turn();
    assert_eq!((turn_offs(&world.device), turn_offs(&world.second().device)), (1, 1));
    assert_eq!(world.device.received.len(), writes + 1);
    let last = Packet::new_checked(&world.device.received[writes][..]).unwrap();
    assert_eq!(last.message_code(), MsgCode::PmeTurnOff);
    assert_eq!(world.counter("host: broadcast messages lost to a device without room"), 0);
}

#[test]
fn a_device_that_takes_nothing_loses_broadcasts_alone_and_they_are_counted() {
    let mut world = World::pair();
    fill(&mut world);
    for _ in 0..7 {
        assert!(hand_in(&mut world, &turn_off()));
    }
    world.turn();
    assert_eq!((turn_offs(&world.device), turn_offs(&world.second().device)), (4, 7));
    assert_eq!(world.counter("host: broadcast messages lost to a device without room"), 3);
}

#[test]
fn a_broadcast_leaves_by_no_port_that_blocks_its_prefixes() {
    let mut world = World::pair();
    assert!(hand_in(&mut world, &config_write(9, bdf(2, 1), 0x98, 1 << 15)));
    let mut prefixed = turn_off();
    prefixed.splice(0..0, [0x91, 0, 0, 1]);
    assert!(hand_in(&mut world, &prefixed));
    world.turn();
    assert_eq!((turn_offs(&world.device), turn_offs(&world.second().device)), (1, 0));
    let blocked = world.config_read(bdf(2, 1), 0x104).1 >> 25 & 1;
    assert_eq!(blocked, 1, "TLP Prefix Blocked Error Status");
    assert!(hand_in(&mut world, &turn_off()));
    world.turn();
    assert_eq!((turn_offs(&world.device), turn_offs(&world.second().device)), (2, 1));
}

#[test]
fn perst_of_the_host_is_perst_of_the_device() {
    let mut world = World::bound();
    world.host.handle_reset(world.now, ResetKind::Fundamental);
    world.device.signals.clear();
    world.run(Duration::from_millis(300));
    let pulse = [true, false].map(|asserted| SlotSignal::Perst { asserted });
    assert_eq!(world.device.signals, pulse);
    assert!(!world.device.perst);
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101, "the completion timeout is the proxy's");
    world.assign_buses();
    assert_eq!(world.mem_read(FIRST_WINDOW, 1).0, CplStatus::Success);
    assert_eq!(world.counter("box: sideband records that mean nothing here"), 0);
    // A hot reset is none.
    world.device.signals.clear();
    world.host.handle_reset(world.now, ResetKind::Hot);
    world.run(Duration::from_millis(300));
    assert_eq!(world.device.signals, [SlotSignal::HotReset]);
}

#[test]
fn many_persts_end_with_it_released() {
    let mut world = World::bound();
    for _ in 0..20 {
        world.host.handle_reset(world.now, ResetKind::Fundamental);
    }
    world.run(Duration::from_millis(300));
    assert!(!world.device.perst);
    world.assign_buses();
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
}
