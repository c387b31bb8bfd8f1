//! A device whose link stands still while the root complex answers what it has read: it holds up
//! nobody else.

use crate::world::*;
use proxy_core::control::{PortBinding, Removal, Reply, Request};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::MAX_FRAME;
use proxy_core::link::LinkConfig;
use proxy_core::role::{InHand, Role as _};
use proxy_core::switch::{ResetKind, SwitchConfig};
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

/// Reads of a device, and how many doublewords each is for.
const READS: u16 = 200;
const DWORDS: u16 = 1024;

/// Where a read's data comes from: no device's memory.
const MEMORY: u64 = 0x1_0000_0000;

const HELD: &str = "link.buffers_in_use";

/// What is at an address.
fn content(address: u64) -> u8 {
    (address / 4) as u8
}

/// A device's reads, as far as they are let through to the root complex.
fn ask(world: &mut World) -> Vec<Vec<u8>> {
    for tag in 0..READS {
        let read = mem_read(bdf(3, 0), tag, MEMORY + u64::from(tag) * 0x1000, DWORDS);
        world.device.out.push_back(emit(&Repr::new(read)));
    }
    world.turn();
    world.to_root.drain(..).collect()
}

/// The completions of a root complex for a read, each as small as it may be.
fn pieces(read: &[u8]) -> Vec<Vec<u8>> {
    let packet = Packet::new_checked(read).unwrap();
    let length = packet.length_dw() * 4;
    let piece = |at: u16| {
        let address = packet.address() + u64::from(at);
        let data: Vec<u8> = (address..address + 64).map(content).collect();
        emit(&Repr::new(Kind::Completion {
            completer: Bdf::default(),
            requester: packet.requester(),
            tag: packet.tag(),
            status: CplStatus::Success,
            bcm: false,
            byte_count: length - at,
            lower_address: address as u8 & 0x7f,
            locked: false,
            data: &data,
        }))
    };
    (0..length).step_by(64).map(piece).collect()
}

/// The root complex answers reads; how many completions found no room.
fn answer(world: &mut World, reads: &[Vec<u8>]) -> usize {
    let all = reads.iter().flat_map(|read| pieces(read));
    all.filter(|piece| world.host.handle_tlp(world.now, piece).is_err()).count()
}

/// Bytes that the first device was given, each of which is right.
fn given(world: &World) -> usize {
    let mut next = vec![0; READS.into()];
    for tlp in &world.device.received {
        let packet = Packet::new_checked(&tlp[..]).unwrap();
        assert_eq!(packet.status(), CplStatus::Success);
        let at: &mut u64 = &mut next[usize::from(packet.tag().get())];
        let begin = MEMORY + u64::from(packet.tag().get()) * 0x1000 + *at;
        let expected: Vec<u8> = (begin..begin + 64).map(content).collect();
        assert_eq!(packet.payload(), expected);
        *at += 64;
    }
    next.iter().sum::<u64>() as usize
}

#[test]
fn completions_for_a_stalled_device_all_have_room() {
    let mut world = World::pair();
    let mut first_time = None;
    for _ in 0..3 {
        world.forget_the_past();
        let mut reads = ask(&mut world);
        let at_once = *first_time.get_or_insert(reads.len());
        assert!((1..usize::from(READS)).contains(&at_once), "{at_once} reads");
        assert_eq!(reads.len(), at_once, "no room is lost");
        // From here on nothing comes through to the first box.
        world.cut = true;
        assert_eq!(answer(&mut world, &reads), 0, "completions that found no room");
        world.turn();
        // The other device reads, and is answered at once.
        let read = emit(&Repr::new(mem_read(bdf(4, 0), 7, MEMORY, 1)));
        world.second().device.out.push_back(read);
        world.turn();
        let read = world.to_root.pop_front().expect("it is let through");
        let answer_to_second = answer_to(&read, &[1, 2, 3, 4]);
        world.host.handle_tlp(world.now, &answer_to_second).expect("there is room");
        world.turn();
        assert_eq!(world.second().device.received.len(), 1);
        // What the first one asked for comes when its cable is whole again.
        world.run(Duration::from_millis(100));
        world.cut = false;
        for _ in 0..1000 {
            world.run(Duration::from_millis(1));
            reads = world.to_root.drain(..).collect();
            assert_eq!(answer(&mut world, &reads), 0, "completions that found no room");
            if given(&world) == usize::from(READS) * usize::from(DWORDS) * 4 {
                break;
            }
        }
        assert_eq!(given(&world), usize::from(READS) * usize::from(DWORDS) * 4);
        world.run(Duration::from_millis(10));
        assert_eq!(world.counter(HELD), 0);
    }
}

/// However reads end, the room that was kept for their completions is there for others.
#[test]
fn room_that_was_kept_is_given_back() {
    type End = fn(&mut World, &[Vec<u8>]);
    let ends: [(&str, End); 5] = [
        ("answered by half and aborted", |world, reads| {
            for read in reads {
                for piece in &pieces(read)[..20] {
                    world.host.handle_tlp(world.now, piece).unwrap();
                }
                let rest = Packet::new_checked(&pieces(read)[20][..]).unwrap().byte_count();
                world.host.handle_tlp(world.now, &aborted(read, rest)).unwrap();
            }
        }),
        ("answered at once", |world, reads| {
            for read in reads {
                let packet = Packet::new_checked(&read[..]).unwrap();
                let begin = packet.address();
                let data: Vec<u8> = (begin..begin + 4096).map(content).collect();
                world.host.handle_tlp(world.now, &answer_to(read, &data)).unwrap();
            }
        }),
        ("never answered", |world, _| world.run(Duration::from_secs(3))),
        ("forgotten by a root complex that was reset", |world, _| {
            world.host.handle_reset(world.now, ResetKind::Hot);
        }),
        ("of a binding that is over", |world, _| {
            let unbind = unbind_port(port(0), key(1).epoch, Removal::Force);
            world.ask_host(unbind).unwrap();
        }),
    ];
    for (name, end) in ends {
        let mut world = World::bound();
        // As many as there is room for; the others are no more.
        let reads = ask(&mut world);
        world.device.out.clear();
        assert!(world.counter(HELD) >= reads.len() as u64 * 60, "{name}: room is kept");
        end(&mut world, &reads);
        while world.to_root.pop_front().is_some() {}
        // Those that waited are let through now; nobody answers them, and they run out of time.
        for _ in 0..100 {
            world.run(Duration::from_secs(1));
            world.to_root.clear();
        }
        assert_eq!(world.counter(HELD), 0, "{name}");
    }
}

/// A completion that ends a read with so many bytes to come.
fn aborted(read: &[u8], rest: u16) -> Vec<u8> {
    let packet = Packet::new_checked(read).unwrap();
    emit(&Repr::new(Kind::Completion {
        completer: Bdf::default(),
        requester: packet.requester(),
        tag: packet.tag(),
        status: CplStatus::CompleterAbort,
        bcm: false,
        byte_count: rest,
        lower_address: 0,
        locked: false,
        data: &[],
    }))
}

#[test]
fn a_peer_that_answers_a_stalled_device_finds_room() {
    let mut world = World::pair();
    world.second().device.manner = Manner::Split;
    for tag in 0..32 {
        let read = mem_read(bdf(3, 0), tag, SECOND_WINDOW, DWORDS);
        world.device.out.push_back(emit(&Repr::new(read)));
    }
    // The reads come to the host, and its link to the reader stands still before the answers do.
    let mut frame = vec![0; MAX_FRAME];
    let now = world.now;
    let mut asked = 0;
    while let Some(tlp) = world.device.out.pop_front()
        && world.boxes.handle_tlp(now, slot(1), &tlp).is_ok()
    {
        asked += 1;
    }
    world.device.out.clear();
    assert!(asked > 8, "{asked}");
    while let Some(out) = world.boxes.poll_transmit(now, &mut frame) {
        world.host.handle_frame(now, &frame[..out.len]);
    }
    world.cut = true;
    world.turn();
    // The second device can be asked, and answers, as if nothing were.
    assert_eq!(world.config_read(bdf(4, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
    assert!(!world.host.holds_any(), "no completion waits");
    assert!(world.now < now + Duration::from_millis(100), "nor was it for a link to give up");
    world.cut = false;
    world.run(Duration::from_millis(200));
    let all = world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    let bytes: usize =
        all.filter(|p| p.class() == Some(Class::Completion)).map(|p| p.payload().len()).sum();
    assert_eq!(bytes, asked * 4096);
}

/// Two functions of one device, each at a port of its own: one link carries both. A sender with
/// few buffers to share.
fn neighbours() -> World {
    let mut world = World::new();
    let switch = SwitchConfig { ports: 2, ..SwitchConfig::default() };
    let link = LinkConfig { shared_send: 40, ..LinkConfig::default() };
    world.host = HostRole::new(&HostConfig { switch, link, ..HostConfig::default() }).unwrap();
    world.host.set_node(node(HOST));
    world.device = Registers::with_functions(2, true);
    world.device.reset();
    world.insert();
    world.introduce();
    for number in 0..2 {
        let function = SlotFunction::new(number).unwrap();
        let key = BindingKey { function, ..key(1) };
        assert_eq!(world.ask_box(Request::BindSlot(slot_binding(key))), Ok(Reply::Done));
        let binding = PortBinding { port: port(number as u8), ..port_binding(key) };
        assert_eq!(world.ask_host(Request::BindPort(binding)), Ok(Reply::Done));
    }
    world.run(Duration::from_millis(50));
    world.assign_buses();
    world.config_write(bdf(2, 1), 0x18, 0x0004_0402);
    world.config_write(bdf(2, 1), 0x20, 0xe010_e010);
    world.config_write(bdf(1, 0), 0x20, 0xe010_e000);
    world.config_write(bdf(2, 1), 0x04, 0x0006);
    world.forget_the_past();
    world
}

#[test]
fn a_neighbour_is_asked_when_what_both_share_is_used_up() {
    let mut world = neighbours();
    world.device.manner = Manner::Split;
    let now = world.now;
    let read = emit(&Repr::new(mem_read(bdf(3, 0), 9, SECOND_WINDOW, DWORDS)));
    world.boxes.handle_tlp(now, slot(1), &read).unwrap();
    let mut frame = vec![0; MAX_FRAME];
    while let Some(out) = world.boxes.poll_transmit(now, &mut frame) {
        world.host.handle_frame(now, &frame[..out.len]);
    }
    // It is at the host, and not looked at yet. Meanwhile the link's queues are filled, but for one
    // more request.
    world.cut = true;
    for window in [FIRST_WINDOW, SECOND_WINDOW] {
        let write = emit(&Repr::new(mem_write(Bdf::default(), window, &[7; 4])));
        while world.host.handle_tlp(now, &write).is_ok() {}
    }
    for tag in 0..19 {
        let read = emit(&Repr::new(mem_read(Bdf::default(), tag, SECOND_WINDOW, 1)));
        let _ = world.host.handle_tlp(now, &read);
    }
    world.turn();
    world.cut = false;
    world.run(Duration::from_millis(500));
    let answers = world.device.received.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    let mine = answers.filter(|p| p.class() == Some(Class::Completion) && p.tag().get() == 9);
    assert_eq!(mine.map(|p| p.payload().len()).sum::<usize>(), 4096);
    world.run(Duration::from_secs(3));
    assert_eq!(world.counter(HELD), 0);
}

/// More completions are owed than find room at once, of a root complex that has the device's next reads
/// before it is through with them: none keeps the room that those before it wait for.
#[test]
fn reads_that_want_more_room_than_there_is_are_answered_one_after_the_other() {
    let mut world = World::new();
    let link = LinkConfig { shared_send: 0, ..LinkConfig::default() };
    world.host = HostRole::new(&HostConfig { link, ..HostConfig::default() }).unwrap();
    world.host.set_node(node(HOST));
    world.insert();
    world.introduce();
    world.bind(1);
    world.assign_buses();
    world.forget_the_past();
    let began = world.now;
    let mut owed = VecDeque::from_iter(ask(&mut world).iter().flat_map(|read| pieces(read)));
    let all = usize::from(READS) * usize::from(DWORDS) * 4;
    while given(&world) < all {
        assert!(world.now < began + Duration::from_secs(1), "{} of {all} bytes", given(&world));
        // One at a time, in their order, when the proxy takes it.
        if owed.front().is_some_and(|piece| world.host.handle_tlp(world.now, piece).is_ok()) {
            owed.pop_front();
        }
        world.run(Duration::from_micros(10));
        let reads: Vec<_> = world.to_root.drain(..).collect();
        owed.extend(reads.iter().flat_map(|read| pieces(read)));
    }
    assert!(owed.is_empty());
    world.run(Duration::from_millis(10));
    assert_eq!(world.host.in_hand(), InHand::default());
}
