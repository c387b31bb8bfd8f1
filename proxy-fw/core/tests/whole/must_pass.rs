//! What has to pass what stands still, or two ends may wait for each other for ever: posted TLPs and
//! completions pass non-posted ones, and posted ones completions (PCIe 5.0 section 2.4.1, table 2-40, rows A
//! and D; wire.md section 9). One end takes nothing of a class, until all that is on the way there is
//! full of it; what may pass still comes, at once, and all of the rest when it takes that class again.

use crate::world::*;
use proxy_core::link::ClassSet;
use std::collections::VecDeque;
use std::time::Duration;
use tlp_codec::ids::*;
use tlp_codec::tlp::*;

/// More than the way has room for, of any class.
const MANY: u16 = 700;

/// Less than that: all that is said here of a class has room.
const FEW: u16 = 8;

/// All requests that a device may have outstanding: more of them there cannot be on the way.
const TAGS: u16 = 256;

/// What still comes has to come within this, which is no timer's time.
const SOON: Duration = Duration::from_millis(1);

/// Where devices' reads and writes go: no device's memory.
const MEMORY: u64 = 0x1_0000_0000;

const NO_REQUESTS: ClassSet = ClassSet::ALL.without(Class::NonPosted);
const NO_COMPLETIONS: ClassSet = ClassSet::ALL.without(Class::Completion);
const ONLY_POSTED: ClassSet = NO_REQUESTS.without(Class::Completion);

/// What the root complex has to send.
type Out = VecDeque<Vec<u8>>;

fn class_of(tlp: &[u8]) -> Class {
    Packet::new_checked(tlp).unwrap().class().unwrap()
}

fn tag_of(tlp: &[u8]) -> u16 {
    Packet::new_checked(tlp).unwrap().tag().get()
}

/// How many of them are of a class.
fn count<'a>(tlps: impl IntoIterator<Item = &'a Vec<u8>>, class: Class) -> usize {
    tlps.into_iter().filter(|tlp| class_of(tlp) == class).count()
}

/// The root complex sends what it may: nothing passes a posted TLP, and what waits of another class is passed
/// by the others.
fn offer(world: &mut World, out: &mut Out) {
    let (mut at, mut room) = (0, ClassSet::ALL);
    while at < out.len() {
        let class = class_of(&out[at]);
        if room.contains(class) && world.host.handle_tlp(world.now, &out[at]).is_ok() {
            out.remove(at);
            continue;
        }
        room = if class == Class::Posted { ClassSet::NONE } else { room.without(class) };
        at += 1;
    }
}

/// Everything goes as far as it can, without a timer.
fn settle(world: &mut World, out: &mut Out) {
    let end = world.now + SOON;
    while world.now < end {
        // A card's queues are short: what is offered goes on in many little turns.
        offer(world, out);
        world.run(SOON / 64);
    }
}

fn write(requester: Bdf, address: u64, number: u16) -> Vec<u8> {
    emit(&Repr::new(mem_write(requester, address, &u32::from(number).to_le_bytes())))
}

fn read(requester: Bdf, tag: u16, address: u64) -> Vec<u8> {
    emit(&Repr::new(mem_read(requester, tag, address, 1)))
}

/// The device reads memory, and the root complex gets that; what it answers.
fn answers(world: &mut World, reads: u16) -> Vec<Vec<u8>> {
    world.forget_the_past();
    let reads = (0..reads).map(|tag| read(bdf(3, 0), tag, MEMORY));
    world.device.out.extend(reads);
    world.turn();
    let reads: Vec<_> = world.to_root.drain(..).collect();
    reads.iter().map(|read| answer_to(read, &[1, 2, 3, 4])).collect()
}

/// What the root complex has to send to a device that takes no requests, or no completions either.
fn to_a_device_that_takes(room: ClassSet) {
    let mut world = World::bound();
    let answers = answers(&mut world, 100);
    let asked = answers.len();
    assert!(asked > 8, "{asked} reads");
    world.forget_the_past();
    world.device.room = room;
    // The way is full of requests.
    let requests = (0..MANY).map(|tag| read(Bdf::default(), tag, FIRST_WINDOW));
    let mut out: Out = requests.collect();
    settle(&mut world, &mut out);
    let waiting = count(&out, Class::NonPosted);
    assert!((1..usize::from(MANY)).contains(&waiting), "{waiting} found no room");
    assert!(world.device.received.is_empty(), "it takes no request");
    // Then come completions, and then writes, more of which than anybody stores.
    out.extend(answers);
    let writes = (0..MANY).map(|number| write(Bdf::default(), FIRST_WINDOW, number));
    out.extend(writes);
    let began = world.now;
    settle(&mut world, &mut out);
    assert!(world.now <= began + 2 * SOON);
    let received = &world.device.received;
    assert_eq!(count(received, Class::Posted), usize::from(MANY), "{room:?}");
    let completions = if room.contains(Class::Completion) { asked } else { 0 };
    assert_eq!(count(received, Class::Completion), completions, "{room:?}");
    assert_eq!(count(received, Class::NonPosted), 0, "{room:?}");
    assert_eq!(count(&out, Class::NonPosted), waiting);
    // All of the rest comes, once.
    world.device.room = ClassSet::ALL;
    for _ in 0..100 {
        settle(&mut world, &mut out);
    }
    assert!(out.is_empty(), "{} found no room", out.len());
    assert_eq!(count(&world.device.received, Class::Completion), asked);
    all_once(world.to_root.iter().filter(|tlp| class_of(tlp) == Class::Completion), MANY);
}

/// That these have each of the first tags once.
fn all_once<'a>(tlps: impl Iterator<Item = &'a Vec<u8>>, tags: u16) {
    let mut seen: Vec<u16> = tlps.map(|tlp| tag_of(tlp)).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..tags), "each of {tags} comes once");
}

#[test]
fn a_device_that_takes_no_requests_gets_completions_and_writes() {
    to_a_device_that_takes(NO_REQUESTS);
}

#[test]
fn a_device_that_takes_neither_requests_nor_completions_gets_writes() {
    to_a_device_that_takes(ONLY_POSTED);
}

/// What waits of completions is nothing that requests and writes wait for.
#[test]
fn a_device_that_takes_no_completions_gets_requests_and_writes() {
    let mut world = World::bound();
    let mut out: Out = answers(&mut world, 200).into();
    let all = out.len();
    world.device.room = NO_COMPLETIONS;
    settle(&mut world, &mut out);
    out.extend((0..MANY).map(|number| write(Bdf::default(), FIRST_WINDOW, number)));
    out.extend((0..FEW).map(|tag| read(Bdf::default(), tag, FIRST_WINDOW)));
    settle(&mut world, &mut out);
    let received = &world.device.received;
    assert_eq!(count(received, Class::Completion), 0);
    assert_eq!(count(received, Class::Posted), usize::from(MANY));
    all_once(world.to_root.iter().filter(|tlp| class_of(tlp) == Class::Completion), FEW);
    world.device.room = ClassSet::ALL;
    for _ in 0..10 {
        settle(&mut world, &mut out);
    }
    assert!(out.is_empty());
    assert_eq!(count(&world.device.received, Class::Completion), all);
}

/// The proxy's own request, which restores what a reset took from a function, is no exception.
#[test]
fn a_device_that_takes_no_request_of_the_proxy_gets_completions_and_writes() {
    let mut world = World::bound();
    assert_eq!(world.config_write(bdf(3, 0), 0x48, 0x8000), CplStatus::Success);
    world.device.room = NO_REQUESTS;
    world.run(Duration::from_millis(150));
    world.device.received.clear();
    // It has been sent for, and waits.
    let mut answers = answers(&mut world, 50);
    let asked = answers.len();
    assert!(asked > 8, "{asked} reads");
    answers.extend((0..50).map(|number| write(Bdf::default(), FIRST_WINDOW, number)));
    let mut out: Out = answers.into();
    settle(&mut world, &mut out);
    let received = &world.device.received;
    assert_eq!(count(received, Class::Completion), asked);
    assert_eq!(count(received, Class::Posted), 50);
    assert_eq!(count(received, Class::NonPosted), 0);
    world.device.room = ClassSet::ALL;
    world.turn();
    let of_proxy =
        |tlp: &&Vec<u8>| Packet::new_checked(&tlp[..]).unwrap().tlp_type() == TlpType::CfgWr0;
    assert_eq!(world.device.received.iter().filter(of_proxy).count(), 1, "it was in the way");
}

/// A root complex that takes no requests gets what its devices answer and write.
#[test]
fn a_root_complex_that_takes_no_requests_gets_completions_and_writes() {
    let mut world = World::bound();
    world.forget_the_past();
    world.device.manner = Manner::Holds;
    for tag in 0..FEW {
        world.host.handle_tlp(world.now, &read(Bdf::default(), tag, FIRST_WINDOW)).unwrap();
    }
    world.turn();
    world.root_room = NO_REQUESTS;
    world.device.out.extend((0..TAGS).map(|tag| read(bdf(3, 0), tag, MEMORY)));
    world.turn();
    assert!(world.to_root.is_empty());
    while world.device.holds() {
        world.device.answer(Manner::Answers);
    }
    world.device.out.extend((0..MANY).map(|number| write(bdf(3, 0), MEMORY, number)));
    let began = world.now;
    world.run(SOON);
    assert!(world.now <= began + SOON);
    all_once(world.to_root.iter().filter(|tlp| class_of(tlp) == Class::Completion), FEW);
    assert_eq!(count(&world.to_root, Class::Posted), usize::from(MANY));
    assert_eq!(count(&world.to_root, Class::NonPosted), 0);
    // The rest comes, as far as it is answered.
    world.root_room = ClassSet::ALL;
    world.device.received.clear();
    for _ in 0..100 {
        world.run(SOON);
        for read in world.to_root.drain(..).filter(|tlp| class_of(tlp) == Class::NonPosted) {
            world.host.handle_tlp(world.now, &answer_to(&read, &[1, 2, 3, 4])).unwrap();
        }
    }
    let received = &world.device.received;
    all_once(received.iter().filter(|tlp| class_of(tlp) == Class::Completion), TAGS);
}

/// What a device writes to another one, to the root complex, and answers that one, passes what it asks the
/// other, which takes no requests.
#[test]
fn a_peer_that_takes_no_requests_gets_writes_and_holds_up_nothing_else() {
    let mut world = World::pair();
    world.device.manner = Manner::Holds;
    for tag in 0..FEW {
        world.host.handle_tlp(world.now, &read(Bdf::default(), tag, FIRST_WINDOW)).unwrap();
    }
    world.turn();
    world.second().device.room = NO_REQUESTS;
    world.device.out.extend((0..TAGS).map(|tag| read(bdf(3, 0), tag, SECOND_WINDOW)));
    world.run(SOON);
    while world.device.holds() {
        world.device.answer(Manner::Answers);
    }
    world.device.manner = Manner::Answers;
    for number in 0..MANY {
        world.device.out.push_back(write(bdf(3, 0), SECOND_WINDOW, number));
        world.device.out.push_back(write(bdf(3, 0), MEMORY, number));
    }
    let mut out: Out = (0..100).map(|n| write(Bdf::default(), SECOND_WINDOW, n)).collect();
    settle(&mut world, &mut out);
    all_once(world.to_root.iter().filter(|tlp| class_of(tlp) == Class::Completion), FEW);
    assert_eq!(count(&world.to_root, Class::Posted), usize::from(MANY));
    let received = &world.second().device.received;
    assert_eq!(count(received, Class::Posted), usize::from(MANY) + 100);
    assert_eq!(count(received, Class::NonPosted), 0);
    world.second().device.room = ClassSet::ALL;
    world.device.received.clear();
    world.run(100 * SOON);
    let received = &world.device.received;
    all_once(received.iter().filter(|tlp| class_of(tlp) == Class::Completion), TAGS);
}
