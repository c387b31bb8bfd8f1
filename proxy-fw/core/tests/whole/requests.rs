//! What devices and hosts ask of each other, answered, in vain, twice or wrongly.

use crate::world::*;
use proxy_core::control::{Reply, Request, SlotState};
use proxy_core::limits::{DEVICE_OUTSTANDING, DEVICE_TAGS, ROOT_OUTSTANDING, TEN_BIT_TAGS};
use proxy_core::link::ClassSet;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const WINDOW: u64 = FIRST_WINDOW;

#[test]
fn a_device_has_more_requests_outstanding_than_the_root_complex_sees() {
    let mut world = World::bound_to(|device| device.capabilities_2 |= 1 << 17);
    let first = if TEN_BIT_TAGS { 0x100 } else { 0 };
    for tag in 0..DEVICE_OUTSTANDING as u16 + 1 {
        let read = mem_read(bdf(3, 0), (first + tag) % 0x400, 0x2000, 1);
        world.device.out.push_back(emit(&Repr::new(read)));
    }
    world.run(Duration::from_millis(100));
    assert_eq!(world.to_root.len(), ROOT_OUTSTANDING);
    assert_eq!(world.device.out.len(), 1, "what is more than the box keeps waits in the device");
    // All come to the root complex as it answers.
    let mut answers = 0;
    while let Some(read) = world.to_root.pop_front() {
        let tag = Packet::new_checked(&read[..]).unwrap().tag().get();
        assert!(usize::from(tag) < ROOT_OUTSTANDING);
        world.host.handle_tlp(world.now, &answer_to(&read, &[1; 4])).unwrap();
        world.run(Duration::from_millis(5));
        answers += 1;
    }
    assert_eq!(answers, DEVICE_OUTSTANDING + 1);
}

#[test]
fn a_device_reads_and_writes_the_hosts_memory() {
    let mut world = World::bound();
    let requester = bdf(3, 0);
    world.device.out.push_back(emit(&Repr::new(mem_write(requester, 0x1000, &[9; 64]))));
    world.device.out.push_back(emit(&Repr::new(mem_read(requester, 200, 0x2000, 16))));
    world.turn();
    let write = world.to_root.pop_front().unwrap();
    assert_eq!(Packet::new_checked(&write[..]).unwrap().payload(), [9; 64]);
    let read = world.to_root.pop_front().unwrap();
    let read = Packet::new_checked(&read[..]).unwrap();
    assert_eq!((read.requester(), read.address()), (requester, 0x2000));
    // Two completions, split at 32 bytes.
    for (count, lower) in [(64_u16, 0_u8), (32, 32)] {
        let tlp = emit(&Repr::new(Kind::Completion {
            completer: Bdf::default(),
            requester,
            tag: read.tag(),
            status: CplStatus::Success,
            bcm: false,
            byte_count: count,
            lower_address: lower,
            locked: false,
            data: &[count as u8; 32],
        }));
        world.host.handle_tlp(world.now, &tlp).unwrap();
    }
    world.turn();
    let got: Vec<_> = world.device.received.iter().rev().take(2).rev().cloned().collect();
    let first = Packet::new_checked(&got[0][..]).unwrap();
    assert_eq!((first.tag().get(), first.payload()), (200, &[64; 32][..]));
    assert_eq!(Packet::new_checked(&got[1][..]).unwrap().payload(), [32; 32]);
}

#[test]
fn a_device_that_asks_in_vain_is_answered_in_bounded_time() {
    let mut world = World::bound();
    world.device.received.clear();
    world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), 7, 0x2000, 1))));
    world.run(Duration::from_secs(3));
    let answer = Packet::new_checked(&world.device.received[0][..]).unwrap();
    assert_eq!((answer.status(), answer.tag().get()), (CplStatus::UnsupportedRequest, 7));
    // What the root complex says too late goes nowhere.
    let read = world.to_root.pop_back().unwrap();
    world.host.handle_tlp(world.now, &answer_to(&read, &[1; 4])).unwrap();
    world.turn();
    assert_eq!(world.device.received.len(), 1);
    assert_eq!(world.counter("host: late completions from the root complex"), 1);
}

#[test]
fn a_silent_device_costs_its_host_unsupported_requests_and_no_more() {
    let mut world = World::bound();
    world.device.manner = Manner::Silent;
    let before = world.now;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert!(world.now.saturating_since(before) <= Duration::from_millis(2100));
    assert_eq!(world.counter("box: requests that a device did not answer"), 1);
    world.device.manner = Manner::Answers;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
}

/// Tags of requests that were never answered stay out of use until the device was reset. With all
/// of them gone nothing waits: it would wait for ever, and all that comes behind it.
#[test]
fn a_device_that_was_silent_for_all_its_tags_is_asked_nothing_until_it_was_reset() {
    let mut world = World::bound();
    world.device.manner = Manner::Silent;
    // One stays for the proxy's own requests.
    for _ in 1..DEVICE_TAGS {
        assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    }
    world.device.manner = Manner::Answers;
    world.device.received.clear();
    let before = world.now;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert!(world.now.saturating_since(before) <= Duration::from_millis(100));
    assert!(world.device.received.is_empty());
    assert_eq!(world.counter("box: requests refused: a silent device has all tags"), 1);
    world.ask_host(super::ends::force(1)).unwrap();
    world.ask_box(Request::UnbindSlot(key(1))).unwrap();
    world.bind(2);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
}

/// It is what gives the tags back: it is not refused for want of one.
#[test]
fn a_function_level_reset_reaches_a_device_that_was_silent_for_all_its_tags() {
    let mut world = World::bound_to(|device| device.flr = true);
    world.device.manner = Manner::Silent;
    for _ in 1..DEVICE_TAGS {
        assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    }
    world.device.manner = Manner::Answers;
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.config_write(bdf(3, 0), 0x48, 0x8000), CplStatus::Success);
    world.run(Duration::from_millis(300));
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
}

/// A card has no place for it where the device takes nothing.
#[test]
fn a_function_level_reset_is_not_handed_to_a_device_without_room_for_it() {
    let mut world = World::bound_to(|device| device.flr = true);
    world.device.manner = Manner::Silent;
    for _ in 1..DEVICE_TAGS {
        assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    }
    world.device.manner = Manner::Answers;
    world.device.room = ClassSet::ALL.without(Class::NonPosted);
    world.device.received.clear();
    let (tag, data) = (world.tag(), 0x8000_u32.to_le_bytes());
    let reset = config_write(tag, bdf(3, 0), 0x48, &data);
    world.host.handle_tlp(world.now, &emit(&reset)).unwrap();
    world.run(Duration::from_millis(5));
    assert!(world.to_root.is_empty() && world.device.received.is_empty(), "it waits");
    world.device.room = ClassSet::ALL;
    world.run(Duration::from_millis(300));
    let answer = world.to_root.pop_front().expect("it is answered");
    assert_eq!(Packet::new_checked(&answer[..]).unwrap().status(), CplStatus::Success);
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
}

/// Its host turns bus mastering on before the longest reset would be over.
#[test]
fn a_function_that_is_used_soon_after_its_reset_has_its_tags_back() {
    let mut world = World::bound_to(|device| device.flr = true);
    let silent = |world: &mut World, reads: usize| {
        world.device.manner = Manner::Silent;
        for _ in 0..reads {
            assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
        }
        world.device.manner = Manner::Answers;
    };
    silent(&mut world, DEVICE_TAGS - 3);
    assert_eq!(world.config_write(bdf(3, 0), 0x48, 0x8000), CplStatus::Success);
    assert_eq!(world.config_write(bdf(3, 0), 0x04, 0b110), CplStatus::Success);
    world.run(Duration::from_millis(300));
    silent(&mut world, 2);
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
}

/// What was outstanding ends when the reset is over, and takes no tag with it.
#[test]
fn resets_of_a_function_that_is_asked_something_cost_no_tags() {
    let mut world = World::bound_to(|device| device.flr = true);
    for _ in 0..DEVICE_TAGS {
        world.device.manner = Manner::Silent;
        let tag = world.tag();
        let read = emit(&Repr::new(mem_read(Bdf::default(), tag.get(), WINDOW, 1)));
        world.host.handle_tlp(world.now, &read).unwrap();
        world.turn();
        world.device.manner = Manner::Answers;
        assert_eq!(world.config_write(bdf(3, 0), 0x48, 0x8000), CplStatus::Success);
        world.run(Duration::from_millis(300));
        let ended = world.to_root.drain(..).any(|tlp| {
            let packet = Packet::new_checked(&tlp[..]).unwrap();
            packet.tag() == tag && packet.status() == CplStatus::UnsupportedRequest
        });
        assert!(ended, "its host waits for nothing");
    }
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
    assert_eq!(world.counter("box: requests refused: a silent device has all tags"), 0);
}

/// What it says of itself is not to be used, so nobody knows what it is.
#[test]
fn a_device_whose_answers_are_poisoned_is_not_found() {
    let mut world = World::new();
    world.device.manner = Manner::Poisons;
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(Duration::from_secs(3));
    let answer = world.ask_box(Request::ReadInventory { from: 0 }).unwrap();
    let Reply::Inventory { entries, .. } = answer else { panic!("{answer:?}") };
    assert!(entries.iter().all(|entry| entry.state != SlotState::Free), "{entries:?}");
}

#[test]
fn a_device_that_answers_twice_or_under_a_wrong_tag_or_id_is_counted() {
    let mut world = World::bound();
    world.device.manner = Manner::Twice;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
    world.turn();
    assert!(world.to_root.is_empty());
    assert_eq!(world.counter("box: unexpected completions from devices"), 1);
    world.device.manner = Manner::WrongTag;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.counter("box: unexpected completions from devices"), 2);
    world.device.manner = Manner::WrongRequester;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.counter("box: unexpected completions from devices"), 3);
}

#[test]
fn a_read_where_no_window_is_gets_unsupported_request() {
    let mut world = World::bound();
    assert_eq!(world.mem_read(0x9000_0000, 1).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.config_read(bdf(9, 0), 0).0, CplStatus::UnsupportedRequest);
}

#[test]
fn malformed_tlps_are_counted_and_harmless() {
    let mut world = World::bound();
    for bytes in [&[][..], &[0x00; 8], &[0x4a; 12], &[0xff; 40]] {
        world.host.handle_tlp(world.now, bytes).unwrap();
        world.boxes.handle_tlp(world.now, slot(1), bytes).unwrap();
    }
    assert_eq!(world.counter("host: malformed TLPs from the root complex"), 4);
    assert_eq!(world.counter("box: malformed TLPs from devices"), 4);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
}

#[test]
fn a_wrong_digest_stays_wrong_on_its_way() {
    let mut world = World::bound();
    for broken in [false, true] {
        let mut repr = Repr::new(mem_read(bdf(3, 0), 9 + u16::from(broken), 0x2000, 1));
        repr.digest = Some(0);
        let mut tlp = emit(&repr);
        Packet::new_checked(&mut tlp[..]).unwrap().update_digest();
        tlp[11] ^= u8::from(broken) << 2;
        world.device.out.push_back(tlp);
        world.turn();
        let read = world.to_root.pop_back().unwrap();
        let read = Packet::new_checked(&read[..]).unwrap();
        assert_eq!(read.digest_is_good(), Some(!broken));
    }
}
