//! The two roles together: a device lent, used, taken back; and everything that can go wrong.

mod world;

use proxy_core::boxes::SlotSignal;
use proxy_core::control::{
    ControlError, Event, FirmwareRequest, FromProxy, LinkDownReason, LogLevel, OperationId,
    PortState, Removal, Reply, Request, SlotState, StampEntry, Term,
};
use proxy_core::limits::{
    DEVICE_OUTSTANDING, DEVICE_TAGS, MAX_PAYLOAD_OFFERED, ROOT_OUTSTANDING, TEN_BIT_TAGS,
    TLP_BUFFER,
};
use proxy_core::link::ClassSet;
use proxy_core::role::Role;
use proxy_core::stamps::{Sampling, StampedTlp};
use proxy_core::switch::ResetKind;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;
use world::*;

const WINDOW: u64 = FIRST_WINDOW;

fn force(counter: u32) -> Request {
    unbind_port(port(0), key(counter).epoch, Removal::Force)
}

#[test]
fn the_box_finds_out_what_is_in_its_slots() {
    let mut world = World::new();
    world.insert();
    let entries: Vec<_> = world.boxes.inventory().collect();
    assert_eq!(entries[0].id, (0x1b36, 0xd0ac));
    assert_eq!(entries[0].class, 0x12_0000);
    assert_eq!(entries[0].serial, 0x1122_3344_5566_7788);
    assert_eq!(entries[0].bars, [4096, 0, 0, 0, 0, 0]);
    assert_eq!(entries[0].model.as_str(), "regs");
    assert_eq!(entries[1].state, SlotState::Empty);
    // The completion timeout is the proxy's: range D.
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101);
}

#[test]
fn a_lent_device_is_configured_read_and_written_through_the_switch() {
    let mut world = World::bound();
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
    world.mem_write(WINDOW + 0x20, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let (status, data) = world.mem_read(WINDOW + 0x20, 2);
    assert_eq!((status, &data[..]), (CplStatus::Success, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
    let entry = world.host.mapping_entry(port(0));
    assert_eq!(entry.state, PortState::Present);
    assert_eq!((entry.box_node, entry.slot, entry.buses), (BOX, 1, (3, 3)));
    assert_eq!(entry.memory, Some((WINDOW, WINDOW + 0xf_ffff)));
    let slots: Vec<_> = world.boxes.slot_entries().collect();
    assert!(slots[0].valid && slots[0].used);
    assert_eq!((slots[0].host_node, slots[0].epoch), (HOST, key(1).epoch.bits()));
}

/// How often the host proxy told that the operating system has enumerated the device.
fn told(world: &World) -> usize {
    let event = Event::DeviceConfigured { port: port(0) };
    let messages = world.host_messages.iter();
    messages.filter(|m| matches!(m, FromProxy::Event { event: e, .. } if *e == event)).count()
}

#[test]
fn that_the_operating_system_enabled_the_device_is_told_once() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    assert_eq!(told(&world), 1);
}

/// A device that was just plugged: the operating system has done nothing with it yet.
fn plugged_again() -> World {
    let mut world = World::bound();
    assert!(world.ask_host(force(1)).is_ok());
    assert!(world.ask_box(Request::UnbindSlot(key(1))).is_ok());
    world.run(Duration::from_secs(1));
    world.bind(2);
    world.host_messages.clear();
    world
}

/// An operating system that has no driver for a device enumerates it, too.
#[test]
fn a_device_that_is_given_an_address_and_not_enabled_is_told_a_second_later() {
    let mut world = plugged_again();
    // Its size is asked for, and its register is as it was.
    for value in [u32::MAX, 0, 0x0c] {
        world.config_write(bdf(3, 0), 0x10, value);
    }
    world.run(Duration::from_secs(3));
    assert_eq!(told(&world), 0, "it has no address");
    world.config_write(bdf(3, 0), 0x10, 0xe000_0000);
    world.run(Duration::from_millis(900));
    assert_eq!(told(&world), 0, "its driver may still come");
    world.run(Duration::from_millis(200));
    assert_eq!(told(&world), 1);
    assert!(world.host.mapping_entry(port(0)).configured);
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.run(Duration::from_secs(3));
    assert_eq!(told(&world), 1, "once");
}

/// An operating system whose windows are too small gives addresses to some of a device's memories,
/// and enables none.
#[test]
fn a_device_that_has_room_for_only_some_of_its_memories_is_not_told() {
    let mut world = plugged_again();
    // The device's second memory: read only, as if all that can be written were address.
    world.device.config[0x14..0x18].copy_from_slice(&0xffff_0000_u32.to_le_bytes());
    for register in [0x10, 0x14, 0x18] {
        world.config_write(bdf(3, 0), register, u32::MAX);
        world.config_read(bdf(3, 0), register);
        world.config_write(bdf(3, 0), register, 0);
    }
    world.config_write(bdf(3, 0), 0x10, 0xe000_0000);
    world.run(Duration::from_secs(3));
    assert_eq!(told(&world), 0, "its second memory has no address");
    world.config_write(bdf(3, 0), 0x14, 0xe001_0000);
    world.run(Duration::from_millis(1100));
    assert_eq!(told(&world), 1);
}

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
        world.config_write(bdf(3, 0), 0x68, 0x0700);
        assert_eq!(world.device.get(0x68), 0x0700 | owned);
        let writes = world.device.received.len();
        world.config_write(bdf(3, 0), 0x04, 0b110);
        assert_eq!(world.device.received.len(), writes + 1, "there is nothing to hurry with");
        world.run(Duration::from_millis(200));
        assert_eq!(world.device.get(0x68), 0x0700 | owned);
    }
}

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

#[test]
fn a_host_that_is_too_early_after_a_reset_changes_nothing_about_the_completion_timeout() {
    let refusals = [CplStatus::UnsupportedRequest, CplStatus::ConfigRetry].map(Manner::Refuses);
    for manner in refusals.into_iter().chain([Manner::Silent]) {
        let mut world = World::bound();
        world.config_write(bdf(3, 0), 0x48, 0x8000);
        world.device.manner = manner;
        let tlp = emit(&Repr::new(Kind::ConfigWrite {
            type1: true,
            requester: Bdf::default(),
            tag: Tag::new(9).unwrap(),
            destination: bdf(3, 0),
            register: 0x04,
            first_be: 0xf,
            data: &[0b110, 0, 0, 0],
        }));
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
    world.ask_host(force(1)).unwrap();
    world.ask_box(Request::UnbindSlot(key(1))).unwrap();
    world.bind(2);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
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
fn after_release_nothing_reaches_the_device_and_it_was_reset() {
    let mut world = World::bound();
    world.mem_write(WINDOW, &[7; 4]);
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    let resets = world.device.resets;
    let released = world.ask_box(Request::UnbindSlot(key(1)));
    assert_eq!(released, Ok(Reply::Slot(SlotState::Free)));
    assert_eq!(world.device.resets, resets + 1);
    world.device.received.clear();
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::UnsupportedRequest);
    assert!(world.device.received.is_empty());
    // Asked again, the answers are the same.
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: true }));
    assert_eq!(world.ask_box(Request::UnbindSlot(key(1))), Ok(Reply::Slot(SlotState::Free)));
    // And it can be lent again, under a later epoch alone.
    let stale = world.ask_box(Request::BindSlot(slot_binding(key(1))));
    assert_eq!(stale, Err(ControlError::StaleEpoch(key(1).epoch)));
    world.bind(2);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
}

#[test]
fn a_released_device_reaches_nobody() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.ask_box(Request::UnbindSlot(key(1))).unwrap();
    world.to_root.clear();
    world.device.received.clear();
    world.device.out.push_back(emit(&Repr::new(mem_write(bdf(3, 0), 0x1000, &[9; 4]))));
    world.device.out.push_back(emit(&Repr::new(mem_read(bdf(3, 0), 1, 0x1000, 1))));
    world.turn();
    assert!(world.to_root.is_empty());
    let answer = Packet::new_checked(&world.device.received[0][..]).unwrap();
    assert_eq!(answer.status(), CplStatus::UnsupportedRequest);
    assert_eq!(world.counter("box: posted TLPs of functions that are not lent"), 1);
    assert_eq!(world.counter("box: non-posted requests of functions that are not lent"), 1);
}

#[test]
fn a_device_that_does_not_come_back_from_reset_is_quarantined() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.device.manner = Manner::Silent;
    let released = world.ask_box(Request::UnbindSlot(key(1)));
    assert_eq!(released, Ok(Reply::Slot(SlotState::Quarantined)));
    let refused = world.ask_box(Request::BindSlot(slot_binding(key(2))));
    assert_eq!(refused, Err(ControlError::Quarantined(slot(1))));
    world.device.manner = Manner::Answers;
    let recovered = world.ask_box(Request::Recover(slot(1)));
    assert_eq!(recovered, Ok(Reply::Slot(SlotState::Free)));
    world.bind(2);
}

/// The proxy's own requests that a device did not answer are over when it is reset: their tags do not
/// run out afterwards, which would take them from its next host.
#[test]
fn what_a_reset_device_did_not_answer_costs_its_next_host_no_tag() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.device.manner = Manner::Silent;
    let released = world.ask_box(Request::UnbindSlot(key(1)));
    assert_eq!(released, Ok(Reply::Slot(SlotState::Quarantined)));
    world.device.manner = Manner::Answers;
    assert_eq!(world.ask_box(Request::Recover(slot(1))), Ok(Reply::Slot(SlotState::Free)));
    world.run(Duration::from_secs(5));
    assert_eq!(world.counter("box: requests that a device did not answer"), 0);

    // The same of one that does not answer when it is put in.
    let mut world = World::new();
    world.device.manner = Manner::Silent;
    world.boxes.device_inserted(world.now, slot(1), "regs".try_into().unwrap());
    world.run(Duration::from_millis(700));
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Quarantined);
    world.device.manner = Manner::Answers;
    assert_eq!(world.ask_box(Request::Recover(slot(1))), Ok(Reply::Slot(SlotState::Probing)));
    world.run(Duration::from_secs(5));
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Free);
    assert_eq!(world.counter("box: requests that a device did not answer"), 0);
}

#[test]
fn a_cut_cable_ends_everything_in_bounded_time() {
    let mut world = World::bound();
    world.cut = true;
    let before = world.now;
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::UnsupportedRequest);
    assert!(world.now.saturating_since(before) <= Duration::from_millis(2100));
    world.run(Duration::from_secs(3));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Failed);
    let down = |m: &FromProxy| {
        matches!(m, FromProxy::Event { event: Event::LinkDown { reason, .. }, .. }
            if *reason == LinkDownReason::GaveUp)
    };
    assert!(world.host_messages.iter().any(down));
    // The box takes its function back by itself.
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Free);
    // The port answers at once now, and can be bound anew when the cable is back.
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::UnsupportedRequest);
    world.cut = false;
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    world.introduce();
    world.bind(2);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::Success);
}

#[test]
fn a_device_that_is_pulled_is_a_surprise_removal_at_the_host() {
    let mut world = World::bound();
    world.boxes.device_removed(world.now, slot(1));
    world.run(Duration::from_millis(50));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Failed);
    assert_eq!(world.config_read(bdf(3, 0), 0).0, CplStatus::UnsupportedRequest);
    assert_eq!(world.boxes.inventory().next().unwrap().state, SlotState::Empty);
}

#[test]
fn wrong_requests_are_refused_with_the_reason() {
    let mut world = World::new();
    world.insert();
    let unknown = world.ask_box(Request::BindSlot(slot_binding(key(1))));
    assert_eq!(unknown, Err(ControlError::UnknownPeer(node(HOST))));
    world.introduce();
    let mut binding = slot_binding(key(1));
    binding.key.slot = slot(2);
    assert_eq!(
        world.ask_box(Request::BindSlot(binding.clone())),
        Err(ControlError::SlotEmpty(slot(2)))
    );
    binding.key.slot = slot(3);
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Err(ControlError::NoSuchSlot(slot(3))));
    let mut binding = slot_binding(key(1));
    binding.windows.clear();
    assert_eq!(world.ask_box(Request::BindSlot(binding)), Err(ControlError::BadWindows));
    assert_eq!(world.ask_box(force(1)), Err(ControlError::WrongRole));
    world.bind(1);
    let used = world.ask_box(Request::BindSlot(slot_binding(key(2))));
    assert_eq!(used, Err(ControlError::InUse(key(1).epoch)));
    let mut elsewhere = port_binding(key(2));
    assert_eq!(
        world.ask_host(Request::BindPort(elsewhere.clone())),
        Err(ControlError::InUse(key(1).epoch))
    );
    elsewhere.port = port(5);
    assert_eq!(
        world.ask_host(Request::BindPort(elsewhere)),
        Err(ControlError::NoSuchPort(port(5)))
    );
    assert_eq!(world.ask_host(Request::RemovePeer(node(BOX))), Err(ControlError::Busy));
}

#[test]
fn a_manager_of_an_earlier_term_is_not_obeyed() {
    let mut world = World::new();
    world.host.handle_control(world.now, proxy_core::control::OperationId(1), Term(5), &force(1));
    let stale = world.ask_host(force(1));
    assert_eq!(stale, Err(ControlError::StaleTerm(Term(5))));
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
fn stamps_of_both_ends_join_into_round_trips() {
    let mut world = World::bound();
    world.ask_host(Request::SetSampling(Sampling::All)).unwrap();
    for _ in 0..3 {
        world.mem_read(WINDOW, 1);
    }
    let Ok(Reply::Stamps { entries: host, .. }) = world.ask_host(Request::ReadStamps { from: 0 })
    else {
        panic!()
    };
    let Ok(Reply::Stamps { entries: boxes, .. }) = world.ask_box(Request::ReadStamps { from: 0 })
    else {
        panic!()
    };
    assert_eq!((host.len(), boxes.len()), (6, 6));
    for asked in host.iter().filter(|s| matches!(s.tlp, StampedTlp::Request(_))) {
        let same = |s: &&StampEntry| (s.binding, entry_of(s)) == (asked.binding, entry_of(asked));
        assert_eq!(boxes.iter().filter(same).count(), 2);
    }
}

/// What joins the stamps of a request with those of its completions.
fn entry_of(stamp: &StampEntry) -> Option<OutstandingRef> {
    match stamp.tlp {
        StampedTlp::Request(entry) | StampedTlp::Completion(entry) => Some(entry),
        StampedTlp::Posted(_) => None,
    }
}

#[test]
fn posted_requests_are_stamped_at_both_ends_whoever_sends_them() {
    let mut world = World::bound();
    world.ask_host(Request::SetSampling(Sampling::All)).unwrap();
    world.ask_box(Request::SetSampling(Sampling::OneIn(2))).unwrap();
    world.mem_write(WINDOW + 0x20, &[7; 64]);
    for at in [0x1000, 0x2000, 0x3000, 0x4000] {
        world.device.out.push_back(emit(&Repr::new(mem_write(bdf(3, 0), at, &[9; 64]))));
    }
    let off = Kind::Message {
        routing: MsgRouting::Broadcast,
        code: MsgCode::PmeTurnOff,
        requester: Bdf::default(),
        tag: Tag::new(0).unwrap(),
        fields: [0; 8],
        data: &[],
    };
    world.host.handle_tlp(world.now, &emit(&Repr::new(off))).unwrap();
    world.run(Duration::from_millis(10));
    let stamps = |answer| match answer {
        Ok(Reply::Stamps { entries, .. }) => entries,
        other => panic!("{other:?}"),
    };
    let host = stamps(world.ask_host(Request::ReadStamps { from: 0 }));
    let boxes = stamps(world.ask_box(Request::ReadStamps { from: 0 }));
    let posted = |side: &[StampEntry], from_host: bool, stages: [bool; 6]| -> Vec<StampedTlp> {
        let wanted = side.iter().filter(|s| s.from_host == from_host);
        let posted = wanted.filter(|s| matches!(s.tlp, StampedTlp::Posted(Some(_))));
        posted
            .map(|stamp| {
                assert_eq!(stamp.at.map(|at| at.is_some()), stages, "{stamp:?}");
                stamp.tlp
            })
            .collect()
    };
    let (sent, received) =
        ([true, true, true, false, false, false], [false, false, false, true, true, true]);
    for (from_host, sender, receiver, count) in
        [(true, &host, &boxes, 2), (false, &boxes, &host, 2)]
    {
        let there = posted(sender, from_host, sent);
        assert_eq!(there, posted(receiver, from_host, received));
        assert_eq!(there.len(), count);
    }
}

/// A root complex that was reset, or is another one, hears nothing of what the last one asked.
#[test]
fn a_reset_of_the_host_resets_the_devices_and_forgets_its_requests() {
    use proxy_core::switch::ResetKind;
    let mut world = World::bound();
    world.device.manner = Manner::Holds;
    let read = Repr::new(mem_read(Bdf::default(), 9, WINDOW, 1));
    world.host.handle_tlp(world.now, &emit(&read)).unwrap();
    world.turn();
    let resets = world.device.resets;
    world.host.handle_reset(world.now, ResetKind::Hot);
    world.device.answer(Manner::Answers);
    world.device.manner = Manner::Answers;
    world.run(Duration::from_secs(3));
    assert_eq!(world.device.resets, resets + 1);
    assert!(world.to_root.is_empty());
    world.assign_buses();
    assert_eq!(world.mem_read(WINDOW, 1).0, CplStatus::Success);
    assert_eq!(world.device.get(0x68) & 0x1f, 0b1101, "the completion timeout is the proxy's");
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

#[test]
fn precision_time_measurement_at_the_head_of_the_list_becomes_a_capability_of_no_kind() {
    let mut world = World::bound_with(Some(0x100));
    assert_eq!(extended_capabilities(&mut world), [(0, 0x100), (0x0003, 0x140)]);
    assert_eq!(world.config_read(bdf(3, 0), 0x104), (CplStatus::Success, 0));
    assert_eq!(world.boxes.inventory().next().unwrap().serial, 0x1122_3344_5566_7788);
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

#[test]
fn a_proxy_that_stops_says_goodbye() {
    let mut world = World::bound();
    world.boxes.close_links(world.now);
    let before = world.now;
    world.turn();
    let (peer, reason) = (node(BOX), LinkDownReason::PeerClosed);
    let heard = |m: &FromProxy| {
        matches!(m, FromProxy::Event { event: Event::LinkDown { peer: p, reason: r }, .. }
            if (*p, *r) == (peer, reason))
    };
    assert!(world.host_messages.iter().any(heard), "{:?}", world.host_messages);
    assert_eq!(world.now, before, "nobody waited for it");
}

#[test]
fn what_another_slot_has_under_the_same_epoch_stays_in_its_port() {
    let mut world = World::bound();
    let other = unbind_port_of(BOX + 1, port(0), key(1).epoch, Removal::Force);
    assert_eq!(world.ask_host(other), Ok(Reply::Removed { orderly: true }));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Present);
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
}

#[test]
fn the_epochs_of_a_slot_outlive_its_device() {
    let mut world = World::bound();
    world.ask_host(force(1)).unwrap();
    world.boxes.device_removed(world.now, slot(1));
    world.run(Duration::from_secs(3));
    world.device = Registers::new();
    world.insert();
    world.introduce();
    assert_eq!(world.boxes.inventory().next().unwrap().highest_epoch, key(1).epoch.bits());
    let again = world.ask_box(Request::BindSlot(slot_binding(key(1))));
    assert_eq!(again, Err(ControlError::StaleEpoch(key(1).epoch)));
    assert_eq!(world.ask_box(Request::BindSlot(slot_binding(key(2)))), Ok(Reply::Done));
}

#[test]
fn what_is_counted_around_a_role_is_reported_with_its_own() {
    let mut world = World::bound();
    assert!(!world.boxes.is_asked_for_counters());
    world.boxes.set_surroundings(&[("port: frames sent", 40), ("port: frames sent", 2)]);
    let mut found = None;
    let mut next = Some(0);
    while let Some(from) = next {
        let Ok(Reply::Counters { entries, next: further }) =
            world.ask_box(Request::ReadCounters { from })
        else {
            panic!("counters")
        };
        found = found.or(entries.iter().find(|(n, _)| n == "port: frames sent").map(|e| e.1));
        next = further;
    }
    assert_eq!(found, Some(42));
}

#[test]
fn the_level_of_the_log_is_given_once() {
    let mut world = World::bound();
    assert_eq!(world.boxes.poll_log_level(), None);
    for level in [LogLevel::Debug, LogLevel::Error] {
        assert_eq!(world.ask_box(Request::SetLogLevel(level)), Ok(Reply::Done));
    }
    assert_eq!(world.boxes.poll_log_level(), Some(LogLevel::Error), "the last one counts");
    assert_eq!(world.boxes.poll_log_level(), None);
    assert_eq!(world.ask_host(Request::SetLogLevel(LogLevel::Trace)), Ok(Reply::Done));
    assert_eq!(world.host.poll_log_level(), Some(LogLevel::Trace));
}

/// A role has no flash: a card takes what is asked of its firmware before it gets here, and asks
/// the role only whether that manager is obeyed.
#[test]
fn a_role_has_no_firmware_and_knows_whose_it_would_obey() {
    let mut world = World::new();
    let status = || Request::Firmware(FirmwareRequest::Status);
    assert_eq!(world.ask_box(status()), Err(ControlError::NoFirmware));
    assert_eq!(world.ask_host(status()), Err(ControlError::NoFirmware));
    assert_eq!(world.boxes.obey(Term(7)), Ok(()));
    assert_eq!(world.boxes.obey(Term(7)), Ok(()));
    assert_eq!(world.boxes.obey(Term(6)), Err(ControlError::StaleTerm(Term(7))));
    assert_eq!(world.ask_box(status()), Err(ControlError::StaleTerm(Term(7))));
}

#[test]
fn a_function_level_reset_by_the_host_frees_the_devices_tags() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    let read = |address| emit(&Repr::new(mem_read(bdf(3, 0), 7, address, 1)));
    world.device.out.push_back(read(0x2000));
    world.turn();
    let (old, _) = to_memory(&mut world);
    // Initiate Function Level Reset (Device Control bit 15); the capability is at 40h.
    world.config_write(bdf(3, 0), 0x48, 1 << 15);
    world.run(Duration::from_secs(1));
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.device.out.push_back(read(0x3000));
    world.turn();
    let (new, address) = to_memory(&mut world);
    assert_eq!(address, 0x3000, "the tag is the device's to use again");
    assert_eq!(world.counter("box: requests with a tag that is in use"), 0);
    world.device.received.clear();
    for (tag, data) in [(old, [1; 4]), (new, [2; 4])] {
        answer_memory(&mut world, tag, &data);
    }
    let answers: Vec<_> =
        world.device.received.iter().map(|t| Packet::new_checked(&t[..]).unwrap()).collect();
    assert_eq!(answers.len(), 1, "what was asked for before the reset does not come");
    assert_eq!(answers[0].payload(), [2; 4]);
}

/// The read that came up to the root complex: its tag there, and its address.
fn to_memory(world: &mut World) -> (Tag, u64) {
    let is_read = |tlp: &Vec<u8>| Packet::new_checked(&tlp[..]).unwrap().tlp_type() == TlpType::MRd;
    let at = world.to_root.iter().position(is_read).expect("a read");
    let tlp = world.to_root.remove(at).unwrap();
    let packet = Packet::new_checked(&tlp[..]).unwrap();
    (packet.tag(), packet.address())
}

/// The root complex answers a read of the device on bus 3.
fn answer_memory(world: &mut World, tag: Tag, data: &[u8]) {
    let completion = Repr::new(Kind::Completion {
        completer: Bdf::default(),
        requester: bdf(3, 0),
        tag,
        status: CplStatus::Success,
        bcm: false,
        byte_count: data.len() as u16,
        lower_address: 0,
        locked: false,
        data,
    });
    world.host.handle_tlp(world.now, &emit(&completion)).unwrap();
    world.turn();
}

#[test]
fn a_release_leaves_the_device_the_id_that_its_completions_come_to() {
    let mut world = World::bound();
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.device.received.clear();
    world.ask_host(force(1)).unwrap();
    world.run(Duration::from_secs(3));
    let requests = world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    let ids: Vec<_> = requests
        .filter(|packet| packet.tlp_type() == TlpType::CfgWr0)
        .map(|packet| packet.destination())
        .collect();
    assert!(ids.len() >= 2 && ids.iter().all(|id| *id == bdf(3, 0)), "{ids:?}");
}

/// Found by the simulator: a device got answers to what it had asked before its reset.
#[test]
fn answers_that_a_device_has_not_taken_do_not_come_after_its_reset() {
    let mut world = World::bound();
    let unbind = Request::UnbindSlot(key(1));
    world.boxes.handle_control(world.now, OperationId(900), Term(1), &unbind);
    world.boxes.handle_timeout(world.now);
    let mut tlp = [0; TLP_BUFFER];
    let length = world.boxes.poll_tlp(world.now, slot(1), ClassSet::ALL, &mut tlp).unwrap();
    let write = Packet::new_checked(&tlp[..length]).unwrap();
    assert_eq!(write.tlp_type(), TlpType::CfgWr0, "Bus Master off");
    let refused = emit(&Repr::new(Kind::Completion {
        completer: bdf(3, 0),
        requester: write.requester(),
        tag: write.tag(),
        status: CplStatus::UnsupportedRequest,
        bcm: false,
        byte_count: 4,
        lower_address: 0,
        locked: false,
        data: &[],
    }));
    // Nobody has the device any more: its read is answered by its proxy.
    let read = emit(&Repr::new(mem_read(bdf(3, 0), 7, 0x1000, 1)));
    world.boxes.handle_tlp(world.now, slot(1), &read).unwrap();
    // It does not take the write, and so is reset by other means.
    world.boxes.handle_tlp(world.now, slot(1), &refused).unwrap();
    assert_eq!(world.boxes.poll_signal(slot(1)), Some(SlotSignal::HotReset));
    assert_eq!(world.boxes.poll_tlp(world.now, slot(1), ClassSet::ALL, &mut tlp), None);
}

/// Found by the simulator: a manager that died with this event in its hands never heard of it
/// again, and took the device for one that nobody uses.
#[test]
fn the_mapping_table_says_that_a_device_is_in_use() {
    let mut world = World::bound();
    let event = Event::DeviceConfigured { port: port(0) };
    let told = |m: &&FromProxy| matches!(m, FromProxy::Event { event: e, .. } if *e == event);
    assert_eq!(world.host_messages.iter().filter(told).count(), 1);
    assert!(world.host.mapping_entry(port(0)).configured);
    assert!(world.ask_host(force(1)).is_ok());
    assert!(!world.host.mapping_entry(port(0)).configured, "nothing is there any more");
}

#[test]
fn that_the_root_complex_went_and_came_is_told_and_stands_in_the_table() {
    let mut world = World::bound();
    let told = |world: &World| -> Vec<bool> {
        let messages = world.host_messages.iter();
        let events = messages.filter_map(|message| match message {
            FromProxy::Event { event: Event::RootComplex { present }, .. } => Some(*present),
            _ => None,
        });
        events.collect()
    };
    let table = |world: &mut World| match world.ask_host(Request::ReadTable { from: 0 }).unwrap() {
        Reply::Mapping { root_complex, .. } => root_complex,
        reply => panic!("{reply:?}"),
    };
    assert!(!world.host.has_root_complex() && !table(&mut world), "none is there at first");
    for present in [true, true, false] {
        world.host.set_root_complex(present);
        assert_eq!((world.host.has_root_complex(), table(&mut world)), (present, present));
    }
    assert_eq!(told(&world), [true, false], "only what changes is told");

    // The device stays lent, and can be taken back although nobody is there to see it go.
    world.host.handle_reset(world.now, ResetKind::Fundamental);
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Present);
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    assert_eq!(world.host.mapping_entry(port(0)).state, PortState::Empty);
}

#[test]
fn error_messages_of_a_device_are_counted_for_its_slot() {
    let mut world = World::bound();
    let counted = |world: &mut World| {
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let asked = world.ask_box(Request::ReadCounters { from });
            let Ok(Reply::Counters { entries, next: further }) = asked else { panic!("counters") };
            let of_slots = entries.iter().filter(|(name, _)| name.starts_with("slot "));
            found.extend(of_slots.map(|(name, count)| format!("{name}: {count}")));
            next = further;
        }
        found
    };
    assert_eq!(counted(&mut world), [""; 0]);
    let codes = [MsgCode::ErrCor, MsgCode::ErrFatal, MsgCode::ErrCor, MsgCode::AssertInta];
    for code in codes {
        let (fields, tag) = ([0; 8], Tag::new(0).unwrap());
        let routing = match code {
            MsgCode::AssertInta => MsgRouting::Local,
            _ => MsgRouting::ToRootComplex,
        };
        let kind = Kind::Message { routing, code, requester: bdf(3, 0), tag, fields, data: &[] };
        world.boxes.handle_tlp(world.now, slot(1), &emit(&Repr::new(kind))).unwrap();
    }
    let expected = ["slot 1: correctable errors: 2", "slot 1: fatal errors: 1"];
    assert_eq!(counted(&mut world), expected);
    // Another device begins anew.
    world.boxes.device_removed(world.now, slot(1));
    world.run(Duration::from_secs(3));
    assert_eq!(counted(&mut world), [""; 0]);
}
