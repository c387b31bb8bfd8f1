//! One device of a host asks another, in another box, through the switch.

use crate::world::*;
use proxy_core::control::{Removal, Reply, Request};
use proxy_core::limits::{HOST_OUTSTANDING, HOST_RESERVED};
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const TAG: u16 = 0x21;
const ACS_CONTROL: u16 = 0x154;
const REQUEST_REDIRECT: u32 = 1 << 18;
const COMPLETION_REDIRECT: u32 = 1 << 19;
const TARGET_GONE: &str = "host: TLPs between devices whose target went away";
const ASKED: &str = "host: non-posted requests between devices";

fn first() -> Bdf {
    bdf(3, 0)
}

fn force(n: u8) -> Request {
    unbind_port_of(BOX + u16::from(n), port(n), key(1).epoch, Removal::Force)
}

/// Two devices; the second's memory tells its place.
fn pair() -> World {
    let mut world = World::pair();
    for (at, byte) in world.second().device.memory.iter_mut().enumerate() {
        *byte = (at / 4) as u8;
    }
    world
}

/// The first device reads so many doublewords of the second's memory.
fn ask(world: &mut World, tag: u16, offset: u64, dwords: u16) {
    let read = mem_read(first(), tag, SECOND_WINDOW + offset, dwords);
    world.device.out.push_back(emit(&Repr::new(read)));
    world.turn();
}

/// What the first device received: tag, status, byte count, data.
fn answers(world: &World) -> Vec<(u16, CplStatus, u16, Vec<u8>)> {
    let completions =
        world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    completions
        .filter(|packet| packet.class() == Some(Class::Completion))
        .map(|p| {
            assert_eq!(p.requester(), first());
            (p.tag().get(), p.status(), p.byte_count(), p.payload().to_vec())
        })
        .collect()
}

fn refused(tag: u16, owed: u16) -> Vec<(u16, CplStatus, u16, Vec<u8>)> {
    vec![(tag, CplStatus::UnsupportedRequest, owed, Vec::new())]
}

#[test]
fn a_device_reads_another_ones_memory() {
    let mut world = pair();
    let expected = world.second().device.memory[0x40..0x60].to_vec();
    ask(&mut world, TAG, 0x40, 8);
    assert_eq!(answers(&world), [(TAG, CplStatus::Success, 32, expected)]);
    assert!(world.to_root.is_empty(), "the root complex has no part in it");
    assert_eq!(world.counter(ASKED), 1);
    // The tag can be used again at once.
    world.device.received.clear();
    ask(&mut world, TAG, 0, 1);
    assert_eq!(answers(&world), [(TAG, CplStatus::Success, 4, vec![0; 4])]);
}

#[test]
fn a_read_is_answered_in_pieces() {
    let mut world = pair();
    world.second().device.manner = Manner::Split;
    let memory = world.second().device.memory.clone();
    ask(&mut world, TAG, 0x70, 32);
    let expected = [(0x70, 0x80, 128), (0x80, 0xc0, 112), (0xc0, 0xf0, 48)];
    let expected =
        expected.map(|(from, to, owed)| (TAG, CplStatus::Success, owed, memory[from..to].to_vec()));
    assert_eq!(answers(&world), expected);
}

#[test]
fn many_reads_at_once_all_get_their_own_data() {
    let mut world = pair();
    world.second().device.manner = Manner::Split;
    let memory = world.second().device.memory.clone();
    for tag in 0..256 {
        let read = mem_read(first(), tag, SECOND_WINDOW + 4 * u64::from(tag), 32);
        world.device.out.push_back(emit(&Repr::new(read)));
    }
    // The host reads both meanwhile, and is not kept out.
    assert_eq!(world.mem_read(SECOND_WINDOW + 16, 1), (CplStatus::Success, vec![4; 4]));
    assert_eq!(world.mem_read(FIRST_WINDOW, 1).0, CplStatus::Success);
    world.run(Duration::from_millis(100));
    let mut data = vec![Vec::new(); 256];
    for (tag, status, owed, piece) in answers(&world) {
        assert_eq!(status, CplStatus::Success);
        let got = &mut data[usize::from(tag)];
        assert_eq!(usize::from(owed), 128 - got.len());
        got.extend(piece);
    }
    for (tag, got) in data.iter().enumerate() {
        assert_eq!(*got, memory[4 * tag..4 * tag + 128], "tag {tag}");
    }
    assert_eq!(world.counter(ASKED), 256);
}

#[test]
fn two_devices_that_flood_each_other_do_not_lock_up() {
    let mut world = pair();
    for tag in 0..256_u16 {
        let there = mem_read(first(), tag, SECOND_WINDOW + 8 * u64::from(tag), 16);
        world.device.out.push_back(emit(&Repr::new(there)));
        world.device.out.push_back(emit(&Repr::new(mem_write(first(), SECOND_WINDOW, &[1; 64]))));
        let back = mem_read(bdf(4, 0), tag, FIRST_WINDOW + 8 * u64::from(tag), 16);
        let second = &mut world.second().device;
        second.out.push_back(emit(&Repr::new(back)));
        second.out.push_back(emit(&Repr::new(mem_write(bdf(4, 0), FIRST_WINDOW, &[2; 64]))));
    }
    world.run(Duration::from_millis(200));
    let fine = |tlps: &[Vec<u8>]| {
        let packets = tlps.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
        packets
            .filter(|p| p.class() == Some(Class::Completion) && p.status() == CplStatus::Success)
            .count()
    };
    assert_eq!(fine(&world.device.received), 256);
    assert_eq!(fine(&world.second().device.received.clone()), 256);
}

#[test]
fn an_atomic_operation_reaches_the_other_device() {
    let mut world = pair();
    let cases: [(AtomicOp, &[u8], [u8; 4]); 4] = [
        (AtomicOp::FetchAdd, &[5, 0, 0, 0], [7, 2, 2, 2]),
        (AtomicOp::Swap, &[9, 9, 9, 9], [9, 9, 9, 9]),
        (AtomicOp::Cas, &[2, 2, 2, 2, 8, 8, 8, 8], [8, 8, 8, 8]),
        (AtomicOp::Cas, &[1, 1, 1, 1, 8, 8, 8, 8], [2, 2, 2, 2]),
    ];
    for (op, data, after) in cases {
        world.second().device.memory[8..12].fill(2);
        world.device.received.clear();
        let request = Kind::Atomic {
            op,
            requester: first(),
            tag: Tag::new(TAG).unwrap(),
            address: SECOND_WINDOW + 8,
            hint: None,
            data,
        };
        world.device.out.push_back(emit(&Repr::new(request)));
        world.turn();
        assert_eq!(answers(&world), [(TAG, CplStatus::Success, 4, vec![2; 4])], "{op:?}");
        assert_eq!(world.second().device.memory[8..12], after, "{op:?}");
    }
}

#[test]
fn where_no_device_is_a_read_is_an_unsupported_request() {
    let mut world = pair();
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    world.forget_the_past();
    ask(&mut world, TAG, 0, 4);
    assert_eq!(answers(&world), refused(TAG, 16));
    assert_eq!(world.counter("switch.link_down"), 1);
    assert!(world.to_root.is_empty());
}

#[test]
fn a_completer_that_is_released_owes_nothing_any_more() {
    let mut world = pair();
    world.second().device.manner = Manner::Holds;
    ask(&mut world, TAG, 0, 16);
    assert_eq!(answers(&world), []);
    let before = world.now;
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    assert_eq!(answers(&world), refused(TAG, 64));
    assert!(world.now.saturating_since(before) < Duration::from_millis(100), "at once");
    assert_eq!(world.counter("host: completions synthesised"), 1);
    // What the device says now reaches nobody.
    world.device.received.clear();
    world.second().device.answer(Manner::Answers);
    world.run(Duration::from_millis(10));
    assert_eq!(answers(&world), []);
}

#[test]
fn a_completer_that_goes_between_two_pieces_leaves_the_rest_refused() {
    let mut world = pair();
    world.second().device.manner = Manner::Holds;
    ask(&mut world, TAG, 0, 32);
    world.second().device.answer(Manner::Split);
    let rest = world.second().device.out.pop_back().unwrap();
    world.turn();
    assert_eq!(answers(&world).len(), 1);
    world.device.received.clear();
    let now = world.now;
    world.second().boxes.device_removed(now, slot(1));
    world.run(Duration::from_millis(10));
    assert_eq!(answers(&world), refused(TAG, 64));
    world.second().device.out.push_back(rest);
    world.turn();
    assert_eq!(answers(&world).len(), 1);
}

#[test]
fn a_requester_that_is_released_leaves_its_tag_in_quarantine() {
    let mut world = pair();
    world.second().device.manner = Manner::Holds;
    ask(&mut world, TAG, 0, 32);
    assert_eq!(world.ask_host(force(0)), Ok(Reply::Removed { orderly: false }));
    assert_eq!(
        world.ask_box(Request::UnbindSlot(key(1))),
        Ok(Reply::Slot(proxy_core::control::SlotState::Free))
    );
    // The next tenant of the port asks, while both pieces are still to come.
    world.bind(2);
    world.config_write(bdf(3, 0), 0x10, FIRST_WINDOW as u32);
    world.config_write(bdf(3, 0), 0x04, 0x0006);
    world.forget_the_past();
    world.second().device.answer(Manner::Split);
    world.turn();
    assert_eq!(answers(&world), []);
    assert_eq!(world.counter("host: late completions from the root complex"), 2);
    let memory = world.second().device.memory.clone();
    ask(&mut world, TAG, 0x100, 4);
    world.second().device.answer(Manner::Answers);
    world.turn();
    assert_eq!(answers(&world), [(TAG, CplStatus::Success, 16, memory[0x100..0x110].to_vec())]);
}

#[test]
fn a_completer_that_is_silent_costs_the_bound_and_no_more() {
    let mut world = pair();
    world.second().device.manner = Manner::Silent;
    ask(&mut world, TAG, 0, 2);
    let before = world.now;
    while answers(&world).is_empty() {
        world.run(Duration::from_millis(20));
        assert!(world.now.saturating_since(before) < Duration::from_millis(2100));
    }
    assert_eq!(answers(&world), refused(TAG, 8));
    world.run(Duration::from_secs(1));
    assert_eq!(answers(&world).len(), 1, "once");
    // Both ports' entries are free again.
    world.second().device.manner = Manner::Answers;
    world.device.received.clear();
    ask(&mut world, TAG, 0, 2);
    assert_eq!(answers(&world).len(), 1);
    assert_eq!(answers(&world)[0].1, CplStatus::Success);
}

#[test]
fn a_cut_cable_to_the_completer_ends_what_is_outstanding() {
    let mut world = pair();
    world.second().cut = true;
    ask(&mut world, TAG, 0, 2);
    world.run(Duration::from_secs(3));
    assert_eq!(answers(&world), refused(TAG, 8));
}

#[test]
fn a_reset_of_the_completers_port_ends_what_is_outstanding() {
    let mut world = pair();
    world.second().device.manner = Manner::Holds;
    ask(&mut world, TAG, 0, 2);
    world.config_write(bdf(2, 1), 0x3c, 0x0040_0000);
    world.config_write(bdf(2, 1), 0x3c, 0);
    assert_eq!(answers(&world), refused(TAG, 8));
}

#[test]
fn redirected_requests_go_up_and_come_down_again() {
    let mut world = pair();
    world.config_write(bdf(2, 0), ACS_CONTROL, REQUEST_REDIRECT);
    ask(&mut world, TAG, 0x40, 8);
    assert_eq!((answers(&world), world.counter(ASKED)), (vec![], 0));
    // The root complex turns it round; the answer goes from device to device.
    let request = world.to_root.pop_front().expect("the request goes to the root complex");
    world.host.handle_tlp(world.now, &request).unwrap();
    world.turn();
    let expected = world.second().device.memory[0x40..0x60].to_vec();
    assert_eq!(answers(&world), [(TAG, CplStatus::Success, 32, expected.clone())]);
    assert!(world.to_root.is_empty());
    // With completions redirected too, the root complex sees both.
    world.config_write(bdf(2, 1), ACS_CONTROL, COMPLETION_REDIRECT);
    world.device.received.clear();
    ask(&mut world, TAG, 0x40, 8);
    for _ in 0..2 {
        let tlp = world.to_root.pop_front().expect("it goes to the root complex");
        world.host.handle_tlp(world.now, &tlp).unwrap();
        world.turn();
    }
    assert_eq!(answers(&world), [(TAG, CplStatus::Success, 32, expected)]);
}

#[test]
fn a_requester_that_is_not_behind_its_port_is_refused() {
    let mut world = pair();
    for requester in [bdf(0, 0), bdf(4, 0), bdf(9, 0)] {
        world.device.received.clear();
        let read = mem_read(requester, TAG, SECOND_WINDOW, 1);
        world.device.out.push_back(emit(&Repr::new(read)));
        world.turn();
        let answer = Packet::new_checked(&world.device.received[0][..]).unwrap();
        assert_eq!((answer.status(), answer.tag().get()), (CplStatus::UnsupportedRequest, TAG));
    }
    assert!(world.to_root.is_empty());
    let name = "host: requests between devices whose requester is not behind its port";
    assert_eq!((world.counter(name), world.counter(ASKED)), (3, 0));
}

/// What waits for room at a port is not given to the port's next tenant.
#[test]
fn a_request_that_waits_for_a_device_that_leaves_is_refused() {
    let mut world = pair();
    world.second().device.manner = Manner::Silent;
    let room = HOST_OUTSTANDING - HOST_RESERVED;
    let (room, asked) = (room as u64, room as u64 + 8);
    for tag in 0..asked {
        ask(&mut world, tag as u16, 4 * tag, 1);
    }
    assert_eq!(world.counter(ASKED), room, "the rest of the entries are the host's");
    assert_eq!(world.ask_host(force(1)), Ok(Reply::Removed { orderly: false }));
    let tags: Vec<_> = answers(&world).iter().map(|a| (a.0, a.1)).collect();
    assert_eq!(tags.len() as u64, asked);
    assert!(tags.iter().all(|(_, status)| *status == CplStatus::UnsupportedRequest));
    assert_eq!(world.counter(TARGET_GONE), 1);
    assert_eq!(world.counter(ASKED), room);
}
