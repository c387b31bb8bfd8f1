use super::*;
use crate::blocks::testing::{Hardware, Memory, Words};

const QUEUE: &str = "mac[0].transmit";
const ORDER: u32 = 2;

type TestQueue<'a> = Queue<&'a Hardware, Words<'a>>;

fn queue(hardware: &Hardware) -> (TestQueue<'_>, Pool<Memory<'_>>) {
    let block = hardware.card().mac(0).unwrap().transmit();
    let queue = Queue::new(block, hardware.ring(0x1000, ORDER));
    (queue, Pool::new(hardware.memory(8, 64)))
}

fn give(queue: &mut TestQueue<'_>, pool: &mut Pool<Memory<'_>>, mark: u8) {
    let buffer = pool.take().unwrap();
    pool.bytes(&buffer)[0] = mark;
    queue.give(pool, buffer, 1, 0);
}

fn first_byte(hardware: &Hardware) -> Option<u8> {
    let mut byte = 0;
    hardware.carry_out(QUEUE, |_, _, bytes| byte = bytes[0]).then_some(byte)
}

#[test]
fn descriptors_come_back_in_their_order_round_and_round() {
    let hardware = Hardware::new();
    let (mut queue, mut pool) = queue(&hardware);
    // Positions wrap at 65536, which a ring of 4 does 16384 times before.
    for round in 0..70_000_u32 {
        give(&mut queue, &mut pool, round as u8);
        queue.ring();
        assert!(queue.done(&mut pool).is_none(), "the hardware has it");
        assert_eq!(first_byte(&hardware), Some(round as u8));
        let done = queue.done(&mut pool).expect("the hardware is done");
        assert_eq!(pool.bytes(&done.buffer)[0], round as u8);
        pool.put(done.buffer);
    }
    assert_eq!(queue.level(), 0);
}

#[test]
fn a_full_ring_is_said_and_one_doorbell_is_for_many() {
    let hardware = Hardware::new();
    let (mut queue, mut pool) = queue(&hardware);
    for mark in 0..4 {
        assert!(!queue.is_full());
        give(&mut queue, &mut pool, mark);
    }
    assert!(queue.is_full());
    assert_eq!(hardware.level(QUEUE), 0, "it was told of nothing");
    queue.ring();
    queue.ring();
    assert_eq!((hardware.level(QUEUE), hardware.doorbells.get()), (4, 1));
    assert_eq!(first_byte(&hardware), Some(0));
    assert!(queue.is_full(), "that it is done was not looked at");
    let done = queue.done(&mut pool).unwrap();
    pool.put(done.buffer);
    assert!(!queue.is_full());
}

#[test]
fn a_queue_that_stopped_goes_on_with_what_it_had() {
    let hardware = Hardware::new();
    let (mut queue, mut pool) = queue(&hardware);
    for mark in 0..3 {
        give(&mut queue, &mut pool, mark);
    }
    queue.ring();
    assert_eq!(first_byte(&hardware), Some(0));
    let done = queue.done(&mut pool).unwrap();
    pool.put(done.buffer);
    for mark in 3..5 {
        give(&mut queue, &mut pool, mark);
    }
    queue.ring();
    assert!(!queue.has_failed());
    hardware.fail(QUEUE);
    assert_eq!(first_byte(&hardware), None);
    assert!(queue.has_failed() && queue.stop());
    let (buffer, _) = queue.withdraw(&mut pool).unwrap();
    assert_eq!(pool.bytes(&buffer)[0], 1);
    pool.put(buffer);
    queue.restart(&mut pool);
    assert!(!queue.has_failed());
    let rest: std::vec::Vec<_> = core::iter::from_fn(|| first_byte(&hardware)).collect();
    assert_eq!(rest, [2, 3, 4]);
    let mut done = 0;
    while let Some(ended) = queue.done(&mut pool) {
        pool.put(ended.buffer);
        done += 1;
    }
    assert_eq!((done, queue.level()), (3, 0));
}

#[test]
fn a_queue_of_an_earlier_life_is_stopped_first() {
    let hardware = Hardware::new();
    hardware.set("mac[0].transmit.control", 1);
    hardware.set("mac[0].transmit.head", 77);
    let (mut queue, mut pool) = queue(&hardware);
    give(&mut queue, &mut pool, 9);
    queue.ring();
    assert_eq!(first_byte(&hardware), Some(9), "positions begin at 0");
}
