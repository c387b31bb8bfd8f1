//! What is the proxies' own in a device's configuration space, and what a host does not see of it.

use crate::world::*;
use proxy_core::limits::{MAX_PAYLOAD_OFFERED, TEN_BIT_TAGS};
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

#[test]
fn the_host_cannot_change_what_the_proxies_own() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x68, 0x1012);
    assert_eq!(world.device.get(0x68), 0x000d);
    assert_eq!(world.counter("box: configuration writes to fields that the proxy owns"), 1);
}

/// Its box answers its requests, whatever its host's root complex knows of tags.
#[test]
fn a_device_uses_ten_bit_tags_where_its_box_lets_it() {
    const ENABLED: u32 = if TEN_BIT_TAGS { 1 << 12 } else { 0 };
    let mut world = World::bound_to(|device| device.capabilities_2 |= 1 << 17);
    assert_eq!(world.device.get(0x68), 0xd | ENABLED);
    // Its host can neither switch them on nor off.
    for value in [0, 0x1012] {
        world.config_write(bdf(3, 0), 0x68, value);
        assert_eq!(world.device.get(0x68), 0xd | ENABLED);
    }
    // They are there again after its reset.
    world.config_write(bdf(3, 0), 0x48, 0x8000);
    world.run(Duration::from_millis(200));
    assert_eq!(world.device.get(0x68), 0xd | ENABLED);
    world.device.received.clear();
    let tags = [9_u16, 0x109, 0x209, 0x309, 0x3ff];
    for tag in tags.into_iter().chain([0x209]) {
        world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), tag, 0x2000, 1))));
    }
    world.run(Duration::from_secs(3));
    let answered = world.device.received.iter().map(|tlp| {
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        assert_eq!(packet.status(), CplStatus::UnsupportedRequest);
        packet.tag().get()
    });
    let answered: Vec<_> = answered.collect();
    let those_taken = if TEN_BIT_TAGS { &tags[..] } else { &tags[..1] };
    assert_eq!(answered, those_taken);
    let refused = 1 + (tags.len() - those_taken.len()) as u64;
    assert_eq!(world.counter("box: requests with a tag that is in use"), refused);
}

/// Linux writes it back before it turns bus mastering on.
#[test]
fn what_a_host_writes_beside_what_the_proxies_own_stays_after_a_reset() {
    for ten_bit in [false, true] {
        let mut world = World::bound_to(|device| device.capabilities_2 |= u32::from(ten_bit) << 17);
        let owned = 0xd | if ten_bit && TEN_BIT_TAGS { 1 << 12 } else { 0 };
        world.config_write(bdf(3, 0), 0x48, 0x8000);
        // Among it AtomicOp Requester Enable, in the byte that has the completion timeout.
        world.config_write(bdf(3, 0), 0x68, 0x0740);
        assert_eq!(world.device.get(0x68), 0x0740 | owned);
        world.config_write(bdf(3, 0), 0x04, 0b110);
        assert_eq!(world.device.get(0x68), 0x0740 | owned);
        world.run(Duration::from_millis(200));
        assert_eq!(world.device.get(0x68), 0x0740 | owned);
    }
}

/// A device that asks to be asked again gets, when it is, what its host has written meanwhile.
#[test]
fn what_a_host_writes_while_the_proxy_asks_again_stays() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x48, 0x8000);
    world.device.manner = Manner::Refuses(CplStatus::ConfigRetry);
    let writes = |world: &World| world.device.received.len();
    let before = writes(&world);
    while writes(&world) == before {
        world.run(Duration::from_millis(1));
    }
    world.device.manner = Manner::Answers;
    world.config_write(bdf(3, 0), 0x68, 0x0740);
    world.run(Duration::from_millis(50));
    assert_eq!(world.device.get(0x68), 0x074d);
}

#[test]
fn a_host_sees_no_larger_payload_than_the_box_stores() {
    let stored = MAX_PAYLOAD_OFFERED.trailing_zeros() - 7;
    for payload in 0..=5 {
        let mut world = World::bound_to(|device| device.payload = payload);
        let (status, value) = world.config_read(bdf(3, 0), 0x44);
        assert_eq!((status, value & 0b111), (CplStatus::Success, payload.min(stored)));
        assert_eq!(value & !0b111, world.device.get(0x44) & !0b111);
    }
}

#[test]
fn a_function_that_its_host_resets_gets_the_proxys_completion_timeout_again() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x48, 0x8000);
    assert_eq!(world.device.get(0x68), 0);
    world.run(Duration::from_millis(200));
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101);
    // The same after a secondary bus reset.
    let resets = world.device.resets;
    world.config_write(bdf(2, 0), 0x3c, 0x0040_0000);
    world.config_write(bdf(2, 0), 0x3c, 0);
    world.run(Duration::from_millis(200));
    assert_eq!(world.device.resets, resets + 1);
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101);
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
}

#[test]
fn a_function_has_the_proxys_completion_timeout_when_it_may_ask_again() {
    let mut world = World::bound();
    // A function-level reset, and a secondary bus reset: hosts may know that either was short.
    for resets in 0..2 {
        if resets == 0 {
            world.config_write(bdf(3, 0), 0x48, 0x8000);
        } else {
            world.config_write(bdf(2, 0), 0x3c, 0x0040_0000);
            world.config_write(bdf(2, 0), 0x3c, 0);
        }
        world.config_write(bdf(3, 0), 0x04, 0b010);
        assert_eq!(world.device.get(0x68), 0, "it may not ask for anything yet");
        world.config_write(bdf(3, 0), 0x04, 0b110);
        assert_eq!(world.device.get(0x68) & 0x1f, 0b1101);
        // It is set once.
        world.device.put(0x68, 0);
        world.run(Duration::from_millis(200));
        assert_eq!(world.device.get(0x68), 0);
    }
}

/// One without No_Soft_Reset resets itself when it leaves D3hot, and asks anew under its first tags.
#[test]
fn a_device_that_wakes_anew_has_what_the_proxies_own_and_no_answer_of_before() {
    // One that lacks D1 does not enter it.
    for (states, anew) in [(&[3][..], true), (&[3, 1], true), (&[0], false), (&[1], false)] {
        let mut world = World::bound_to(|device| device.sleeps = true);
        world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), 9, 0x2000, 1))));
        world.turn();
        let asked = world.to_root.pop_back().expect("the device's read");
        for state in states.iter().chain([&0]) {
            world.config_write(bdf(3, 0), 0x84, *state);
        }
        assert_eq!(world.device.get(0x68) & 0x1f, if anew { 0 } else { 0b1101 });
        world.config_write(bdf(3, 0), 0x04, 0b110);
        assert_eq!(world.device.get(0x68) & 0x1f, 0b1101, "it may ask now");
        world.device.received.clear();
        world.to_root.clear();
        world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), 9, 0x3000, 1))));
        world.turn();
        let asks =
            |tlp: &Vec<u8>| Packet::new_checked(&tlp[..]).unwrap().tlp_type() == TlpType::MRd;
        assert_eq!(world.to_root.iter().filter(|tlp| asks(tlp)).count(), usize::from(anew));
        let answer = answer_to(&asked, &[1; 4]);
        world.host.handle_tlp(world.now, &answer).unwrap();
        world.turn();
        assert_eq!(world.device.received.len(), usize::from(!anew), "of what was asked before");
    }
}

#[test]
fn a_device_whose_link_is_up_late_after_a_bus_reset_has_what_the_proxies_own() {
    let mut world = World::bound();
    world.config_write(bdf(2, 0), 0x3c, 0x0040_0000);
    world.config_write(bdf(2, 0), 0x3c, 0);
    world.device.manner = Manner::Silent;
    world.run(Duration::from_millis(1000));
    assert_eq!(world.device.get(0x68), 0);
    world.device.manner = Manner::Answers;
    world.run(Duration::from_millis(600));
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101);
}

#[test]
fn a_host_that_is_too_early_after_a_reset_changes_nothing_about_the_completion_timeout() {
    let refusals = [CplStatus::UnsupportedRequest, CplStatus::ConfigRetry].map(Manner::Refuses);
    for manner in refusals.into_iter().chain([Manner::Silent]) {
        let mut world = World::bound();
        world.config_write(bdf(3, 0), 0x48, 0x8000);
        world.device.manner = manner;
        let tag = Tag::new(9).unwrap();
        let tlp = emit(&config_write(tag, bdf(3, 0), 0x04, &[0b110, 0, 0, 0]));
        world.host.handle_tlp(world.now, &tlp).unwrap();
        world.run(Duration::from_millis(2));
        // The device's reset goes on over both writes, and for half of the time that it may take.
        world.device.put(0x68, 0);
        world.run(Duration::from_millis(50));
        world.device.manner = Manner::Answers;
        world.run(Duration::from_secs(1));
        assert_eq!(world.device.get(0x68) & 0x1f, 0b1101, "{manner:?}");
    }
}

/// The extended capabilities as a host finds them: IDs and where they are.
fn extended_capabilities(world: &mut World) -> Vec<(u16, u16)> {
    let (mut found, mut at) = (Vec::new(), 0x100);
    while at != 0 {
        let (status, header) = world.config_read(bdf(3, 0), at);
        assert_eq!(status, CplStatus::Success);
        found.push((header as u16, at));
        at = (header >> 20) as u16;
    }
    found
}

#[test]
fn a_host_does_not_see_precision_time_measurement() {
    let mut world = World::bound_with(Some(0x140));
    assert_eq!(extended_capabilities(&mut world), [(0x0003, 0x100), (0x0019, 0x180)]);
    for register in [0x140, 0x144, 0x148] {
        assert_eq!(world.config_read(bdf(3, 0), register), (CplStatus::Success, 0));
    }
    assert_eq!(world.config_read(bdf(3, 0), 0x104), (CplStatus::Success, 0x5566_7788));
    // Nor can it be switched on.
    let before = world.counter("box: configuration writes to fields that the proxy owns");
    assert_eq!(world.config_write(bdf(3, 0), 0x148, 3), CplStatus::Success);
    assert_eq!(world.device.get(0x148), 0);
    let after = world.counter("box: configuration writes to fields that the proxy owns");
    assert_eq!(after, before + 1);
}

/// Translation is granted to no device: whoever turned it on would wait for answers to its
/// invalidations for ever.
#[test]
fn address_translation_and_page_requests_are_not_shown_and_not_turned_on() {
    let mut world = World::bound_with(Some(0x140));
    for register in [0x150, 0x154, 0x160, 0x164] {
        assert_eq!(world.config_read(bdf(3, 0), register), (CplStatus::Success, 0));
        assert_eq!(world.config_write(bdf(3, 0), register, 1 << 31), CplStatus::Success);
    }
    assert_eq!([0x154, 0x164].map(|register| world.device.get(register)), [0; 2]);
}

#[test]
fn precision_time_measurement_at_the_head_of_the_list_becomes_a_capability_of_no_kind() {
    let mut world = World::bound_with(Some(0x100));
    assert_eq!(extended_capabilities(&mut world), [(0, 0x100), (0x0003, 0x140)]);
    assert_eq!(world.config_read(bdf(3, 0), 0x104), (CplStatus::Success, 0));
    assert_eq!(world.boxes.inventory().next().unwrap().serial, 0x1122_3344_5566_7788);
}
