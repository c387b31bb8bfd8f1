//! Secondary Bus Reset of a downstream port (PCIe 5.0 sections 6.6.1 and 7.5.1.3.13), with requests
//! outstanding both ways and with writes of before it on a wire that loses everything meanwhile.

use crate::world::*;
use proxy_core::boxes::SlotSignal;
use proxy_core::limits::{MAX_FRAME, SYNTHESISED_COMPLETION, TLP_BUFFER};
use proxy_core::link::ClassSet;
use proxy_core::role::Role as _;
use proxy_core::switch::ResetKind;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

const BRIDGE_CONTROL: u16 = 0x3c;
const RESET: u32 = 1 << 22;
const BEFORE: [u8; 4] = [0xbb; 4];
const AFTER: [u8; 4] = [0xaa; 4];

fn write(requester: Bdf, address: u64, data: &[u8]) -> Vec<u8> {
    emit(&Repr::new(Kind::MemWrite {
        requester,
        tag: Tag::new(0).unwrap(),
        address,
        enables: ByteEnables::all((data.len() / 4) as u16),
        hint: None,
        data,
    }))
}

fn port_write(tag: u16, value: u32) -> Vec<u8> {
    emit(&Repr::new(Kind::ConfigWrite {
        type1: true,
        requester: Bdf::default(),
        tag: Tag::new(tag).unwrap(),
        destination: bdf(2, 0),
        register: BRIDGE_CONTROL,
        first_be: 0xc,
        data: &value.to_le_bytes(),
    }))
}

/// What the root complex got for a tag, in order.
fn answers(world: &World, tag: u16) -> Vec<CplStatus> {
    let packets = world.to_root.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    let of_it = |p: &Packet<&[u8]>| p.class() == Some(Class::Completion) && p.tag().get() == tag;
    packets.filter(of_it).map(|p| p.status()).collect()
}

fn has(tlp: &[u8], data: [u8; 4]) -> bool {
    let packet = Packet::new_checked(tlp).unwrap();
    packet.tlp_type() == TlpType::MWr && packet.payload() == data
}

/// What came out of the box's slot, in order.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Reset,
    Before,
    After,
    Other,
}

/// Lets time pass between the proxies, with nobody in the slot.
fn pass(world: &mut World, time: Duration) -> Vec<Out> {
    let (mut frame, mut tlp) = (vec![0; MAX_FRAME], vec![0; TLP_BUFFER]);
    let (mut seen, end) = (Vec::new(), world.now + time);
    while world.now < end {
        world.now = world.now + Duration::from_millis(1);
        let now = world.now;
        world.host.handle_timeout(now);
        world.boxes.handle_timeout(now);
        while let Some(out) = world.host.poll_transmit(now, &mut frame) {
            world.boxes.handle_frame(now, &frame[..out.len]);
        }
        loop {
            if let Some(signal) = world.boxes.poll_signal(slot(1)) {
                assert_eq!(signal, SlotSignal::HotReset);
                seen.push(Out::Reset);
                continue;
            }
            let Some(length) = world.boxes.poll_tlp(now, slot(1), ClassSet::ALL, &mut tlp) else {
                break;
            };
            seen.push(match &tlp[..length] {
                tlp if has(tlp, BEFORE) => Out::Before,
                tlp if has(tlp, AFTER) => Out::After,
                _ => Out::Other,
            });
        }
        while let Some(out) = world.boxes.poll_transmit(now, &mut frame) {
            world.host.handle_frame(now, &frame[..out.len]);
        }
    }
    seen
}

#[test]
fn what_is_outstanding_ends_at_once_and_the_device_is_reset() {
    let mut world = World::bound();
    world.device.manner = Manner::Silent;
    let resets = world.device.resets;
    let read = emit(&Repr::new(mem_read(Bdf::default(), 77, FIRST_WINDOW, 1)));
    world.host.handle_tlp(world.now, &read).unwrap();
    let own = emit(&Repr::new(mem_read(bdf(3, 0), 9, 0x1000, 1)));
    world.device.out.push_back(own);
    world.turn();
    let asks = |tlp: &Vec<u8>| Packet::new_checked(&tlp[..]).unwrap().tlp_type() == TlpType::MRd;
    let asked = world.to_root.iter().find(|tlp| asks(tlp)).expect("the device's read").clone();
    assert_eq!((answers(&world, 77), world.device.resets), (vec![], resets));

    world.device.manner = Manner::Answers;
    let began = world.now;
    world.host.handle_tlp(world.now, &port_write(1, RESET)).unwrap();
    world.turn();
    assert_eq!(answers(&world, 77), [CplStatus::UnsupportedRequest], "without waiting");
    assert_eq!(world.device.resets, resets + 1);
    world.host.handle_tlp(world.now, &port_write(2, 0)).unwrap();
    world.turn();
    // The device that asked is gone: what the root complex answers to it goes nowhere.
    let answer = answer_to(&asked, &BEFORE);
    world.device.received.clear();
    world.host.handle_tlp(world.now, &answer).unwrap();
    world.run(SYNTHESISED_COMPLETION + Duration::from_millis(500));
    assert!(world.now > began + SYNTHESISED_COMPLETION);
    let completion =
        |tlp: &Vec<u8>| Packet::new_checked(&tlp[..]).unwrap().class() == Some(Class::Completion);
    assert!(!world.device.received.iter().any(completion), "it asked for nothing in this life");
    assert_eq!(answers(&world, 77).len(), 1, "once");
    assert_eq!(world.device.resets, resets + 1);
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
}

#[test]
fn what_was_written_to_the_device_before_never_comes_after_the_reset() {
    let mut world = World::bound();
    let now = world.now;
    let mut frame = vec![0; MAX_FRAME];
    world.host.handle_tlp(now, &write(Bdf::default(), FIRST_WINDOW, &BEFORE)).unwrap();
    // Nothing of it arrives before the host has reset the bus.
    while world.host.poll_transmit(now, &mut frame).is_some() {}
    for (tag, value) in [(1, RESET), (2, 0)] {
        world.host.handle_tlp(now, &port_write(tag, value)).unwrap();
    }
    world.host.handle_tlp(now, &write(Bdf::default(), FIRST_WINDOW, &AFTER)).unwrap();
    while world.host.poll_transmit(now, &mut frame).is_some() {}
    let mut seen = pass(&mut world, Duration::from_millis(500));
    seen.retain(|out| *out != Out::Other);
    let reset = seen.iter().position(|out| *out == Out::Reset).expect("the device is reset");
    assert!(!seen[reset..].contains(&Out::Before), "{seen:?}");
    assert_eq!(seen[reset..].iter().filter(|out| **out == Out::After).count(), 1, "{seen:?}");
}

#[test]
fn what_the_device_wrote_before_does_not_come_after_it_was_found_again() {
    let mut world = World::bound();
    world.cut = true;
    let old = write(bdf(3, 0), 0x1000, &BEFORE);
    world.device.out.push_back(old);
    world.turn();
    assert!(!world.to_root.iter().any(|tlp| has(tlp, BEFORE)), "it is on its way");
    for (tag, value) in [(1, RESET), (2, 0)] {
        world.host.handle_tlp(world.now, &port_write(tag, value)).unwrap();
    }
    world.turn();
    world.cut = false;
    let resets = world.device.resets;
    while world.config_read(bdf(3, 0), 0).0 != CplStatus::Success {
        world.run(Duration::from_millis(1));
    }
    assert_eq!(world.device.resets, resets + 1);
    world.to_root.clear();
    world.run(Duration::from_millis(500));
    assert!(!world.to_root.iter().any(|tlp| has(tlp, BEFORE)));
    world.config_write(bdf(3, 0), 0x04, 6);
    world.device.out.push_back(write(bdf(3, 0), 0x1000, &AFTER));
    world.turn();
    assert!(world.to_root.iter().any(|tlp| has(tlp, AFTER)), "what comes now does");
}

#[test]
fn what_the_device_asks_between_the_record_and_its_reset_is_of_before() {
    let mut world = World::bound();
    for (tag, value) in [(1, RESET), (2, 0)] {
        world.host.handle_tlp(world.now, &port_write(tag, value)).unwrap();
    }
    let (now, mut frame) = (world.now, vec![0; MAX_FRAME]);
    while let Some(out) = world.host.poll_transmit(now, &mut frame) {
        world.boxes.handle_frame(now, &frame[..out.len]);
    }
    // As a card does: it takes what its device has said before it drives the wire.
    let read = emit(&Repr::new(mem_read(bdf(3, 0), 5, COUNTER, 1)));
    world.boxes.handle_tlp(now, slot(1), &read).unwrap();
    assert_eq!(world.counter("box: TLPs from devices that are to be reset"), 1);
    world.turn();
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
    world.config_write(bdf(3, 0), 0x04, 6);
    // It has the tag to itself.
    world.device.out.push_back(read);
    world.turn();
    let packets = world.to_root.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    assert_eq!(packets.filter(|packet| packet.tlp_type() == TlpType::MRd).count(), 1);
    world.run(SYNTHESISED_COMPLETION - Duration::from_millis(100));
    assert!(
        world.device.received.iter().all(|tlp| {
            Packet::new_checked(&tlp[..]).unwrap().class() != Some(Class::Completion)
        })
    );
}

/// Memory of the host that the device adds to.
const COUNTER: u64 = 0x2000;

fn add(tag: u16) -> Vec<u8> {
    emit(&Repr::new(Kind::Atomic {
        op: AtomicOp::FetchAdd,
        requester: bdf(3, 0),
        tag: Tag::new(tag).unwrap(),
        address: COUNTER,
        hint: None,
        data: &[1, 0, 0, 0],
    }))
}

fn additions(world: &World) -> usize {
    let packets = world.to_root.iter().map(|tlp| Packet::new_checked(&tlp[..]).unwrap());
    packets.filter(|packet| packet.tlp_type() == TlpType::FetchAdd).count()
}

/// What the device asked before a reset, of a root complex that takes no requests, while completions
/// pass it: the operating system finds the device again, and uses its memory anew.
fn nothing_asked_before_comes_after(reset: impl FnOnce(&mut World)) {
    let mut world = World::bound();
    world.root_room = ClassSet::ALL.without(Class::NonPosted);
    // More than the host's end stores: some of them are on their way, and some wait at the box.
    world.device.out.extend((0..200).map(add));
    world.turn();
    assert_eq!(additions(&world), 0);
    reset(&mut world);
    world.assign_buses();
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
    world.config_write(bdf(3, 0), 0x04, 6);
    assert!(world.counter("host: TLPs from devices from before their reset") > 0);
    world.device.out.push_back(add(7));
    world.root_room = ClassSet::ALL;
    world.run(Duration::from_millis(500));
    assert_eq!(additions(&world), 1, "that of after the reset");
    // The room that the others had is free again. Nobody answers, so there are no more than a card
    // lets a device have outstanding.
    world.device.out.extend((8..23).map(add));
    world.run(Duration::from_millis(500));
    assert_eq!(additions(&world), 16);
}

#[test]
fn what_the_device_asked_before_never_comes_after_a_bus_reset() {
    nothing_asked_before_comes_after(|world| {
        for (tag, value) in [(1, RESET), (2, 0)] {
            world.host.handle_tlp(world.now, &port_write(tag, value)).unwrap();
        }
        world.turn();
    });
}

#[test]
fn what_the_device_asked_before_never_comes_to_the_next_operating_system() {
    nothing_asked_before_comes_after(|world| {
        world.host.handle_reset(world.now, ResetKind::Fundamental);
        world.turn();
    });
}
