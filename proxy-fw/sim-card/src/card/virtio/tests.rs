//! An interface against a driver's end of its queues.

use super::super::virt::RAM_BASE;
use super::*;

const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Descriptors of each queue, and where its parts and buffers are in memory, from its beginning.
const SIZE: u16 = 4;
const AVAILABLE: usize = 0x100;
const USED_RING: usize = 0x200;
const BUFFER: usize = 0x400;
const APART: usize = 0x1000;
const ROOM: u32 = 64;

/// An interface, memory, and what a driver knows of either queue: chains that it made available.
struct Bench {
    interface: Interface,
    ram: Vec<u8>,
    offered: [u16; 2],
}

impl Bench {
    /// One that is set up as virtio 1.2, section 3.1.1, has it.
    fn new(features: u64) -> Self {
        let interface = Interface::new(ADDRESS);
        let mut bench = Self { interface, ram: vec![0; 4 * APART], offered: [0; 2] };
        bench.put(0x70, 0);
        bench.put(0x70, 3);
        for part in 0..2 {
            bench.put(0x24, part);
            bench.put(0x20, (features >> (32 * part)) as u32);
        }
        bench.put(0x70, 11);
        for queue in 0..2 {
            let at = RAM_BASE + (queue * APART) as u32;
            bench.put(0x30, queue as u32);
            assert!(bench.get(0x34) >= SIZE.into());
            bench.put(0x38, SIZE.into());
            for (register, part) in [(0x80, 0), (0x90, AVAILABLE), (0xa0, USED_RING)] {
                bench.put(register, at + part as u32);
                bench.put(register + 4, 0);
            }
            bench.put(0x44, 1);
            assert_eq!(bench.get(0x44), 1);
        }
        bench.put(0x70, 15);
        bench
    }

    fn put(&mut self, register: u32, value: u32) {
        self.interface.write(register, value, &mut self.ram, 77);
    }

    fn get(&self, register: u32) -> u32 {
        self.interface.read(register, Width::Word).unwrap()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.ram[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.ram[at..at + 2].try_into().unwrap())
    }

    /// Makes a descriptor available, with a buffer of its own, and gives the buffer's place.
    fn offer(&mut self, queue: usize, descriptor: u16, length: u32, flags: u16) -> usize {
        let from = queue * APART;
        let buffer = from + BUFFER + usize::from(descriptor) * ROOM as usize;
        let at = u64::from(RAM_BASE) + buffer as u64;
        let fields = [&at.to_le_bytes()[..], &length.to_le_bytes(), &flags.to_le_bytes(), &[0, 0]];
        self.write(from + 16 * usize::from(descriptor), &fields.concat());
        let slot = usize::from(self.offered[queue] % SIZE);
        self.write(from + AVAILABLE + 4 + 2 * slot, &descriptor.to_le_bytes());
        self.offered[queue] = self.offered[queue].wrapping_add(1);
        let offered = self.offered[queue].to_le_bytes();
        self.write(from + AVAILABLE + 2, &offered);
        self.put(0x50, queue as u32);
        buffer
    }

    /// Chains that came back, and the last one's number and length.
    fn used(&self, queue: usize) -> (u16, u32, u32) {
        let from = queue * APART + USED_RING;
        let count = self.half(from + 2);
        let at = from + 4 + 8 * usize::from(count.wrapping_sub(1) % SIZE);
        let word = |at: usize| u32::from_le_bytes(self.ram[at..at + 4].try_into().unwrap());
        (count, word(at), word(at + 4))
    }

    /// Offers a frame to be sent, behind a header.
    fn send(&mut self, descriptor: u16, frame: &[u8]) {
        let length = (HEADER + frame.len()) as u32;
        let buffer = APART + BUFFER + usize::from(descriptor) * ROOM as usize;
        self.write(buffer + HEADER, frame);
        self.offer(FROM_DRIVER, descriptor, length, 0);
    }

    fn acknowledge(&mut self) -> u32 {
        let status = self.get(0x60);
        self.put(0x64, status);
        assert!(!self.interface.interrupt());
        status
    }
}

#[test]
fn it_says_what_it_is() {
    let bench = Bench::new(FEATURES);
    assert_eq!([0x0, 0x4, 0x8].map(|register| bench.get(register)), [0x7472_6976, 2, 1]);
    let bytes = (0x100..0x108).map(|at| bench.interface.read(at, Width::Byte).unwrap() as u8);
    assert_eq!(bytes.collect::<Vec<u8>>(), [2, 0, 0, 0, 0, 7, 1, 0]);
    let mut bench = Bench::new(0);
    for (part, features) in [(0, FEATURES as u32), (1, 1), (2, 0)] {
        bench.put(0x14, part);
        assert_eq!(bench.get(0x10), features);
    }
    bench.put(0x30, 2);
    assert_eq!([0x34, 0x44].map(|register| bench.get(register)), [0, 0], "there are two queues");
}

#[test]
fn frames_go_out_at_once_and_come_back_used() {
    let mut bench = Bench::new(1 << 32);
    for round in 0..3_u8 {
        for descriptor in [2, 0] {
            let frame = [round, descriptor as u8, 9];
            bench.send(descriptor, &frame);
            assert_eq!(bench.interface.take_sent(), [(77, frame.to_vec())]);
            assert_eq!(bench.acknowledge(), USED);
            let (count, chain, _) = bench.used(FROM_DRIVER);
            assert_eq!((count, chain), (bench.offered[1], descriptor.into()));
        }
    }
    // A driver that wants no interrupts.
    bench.write(APART + AVAILABLE, &[1, 0]);
    bench.send(1, &[1]);
    assert_eq!((bench.interface.take_sent().len(), bench.get(0x60)), (1, 0));
}

#[test]
fn frames_wait_until_the_driver_has_room() {
    let mut bench = Bench::new(1 << 32);
    for frame in [[1, 2, 3], [4, 5, 6]] {
        bench.interface.deliver(frame.to_vec(), &mut bench.ram);
    }
    assert!(!bench.interface.interrupt());
    for frame in [[1, 2, 3], [4, 5, 6]] {
        let buffer = bench.offer(TO_DRIVER, 3, ROOM, 2);
        assert_eq!(bench.used(TO_DRIVER), (bench.offered[0], 3, 15));
        let header = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(bench.ram[buffer..buffer + 15], [&header[..], &frame].concat());
        assert_eq!(bench.acknowledge(), USED);
    }
    // One that does not fit is lost, and its chain comes back empty.
    bench.offer(TO_DRIVER, 1, 14, 2);
    bench.interface.deliver(vec![7; 3], &mut bench.ram);
    assert_eq!((bench.used(TO_DRIVER), bench.interface.lost()), ((3, 1, 0), 1));
    // So are those for which there is no room to wait.
    for _ in 0..WAITING + 5 {
        bench.interface.deliver(vec![7; 3], &mut bench.ram);
    }
    assert_eq!(bench.interface.lost(), 6);
}

#[test]
fn a_chain_is_gathered_from_its_buffers() {
    let mut bench = Bench::new(1 << 32);
    // Descriptor 1 goes on at descriptor 0, which is no chain of its own.
    let first = bench.offer(FROM_DRIVER, 0, 2, 0);
    assert_eq!(bench.interface.take_sent(), [], "it is a part of a header");
    bench.write(first, &[8, 9]);
    let second = APART + BUFFER + ROOM as usize;
    bench.write(second + HEADER, &[7]);
    bench.offer(FROM_DRIVER, 1, HEADER as u32 + 1, NEXT_AT_0);
    assert_eq!(bench.interface.take_sent(), [(77, vec![7, 8, 9])]);
}

/// Another descriptor is behind this one: the first, as the field of the bench's descriptors says.
const NEXT_AT_0: u16 = 1;

#[test]
fn by_index_the_driver_hears_of_what_it_wants_to_hear_of() {
    let mut bench = Bench::new(FEATURES);
    let wants = |bench: &mut Bench, index: u16| {
        bench.write(APART + AVAILABLE + 4 + 2 * usize::from(SIZE), &index.to_le_bytes());
    };
    wants(&mut bench, 2);
    for (number, interrupt) in [0, 0, USED, 0].into_iter().enumerate() {
        bench.send(number as u16, &[1]);
        assert_eq!(bench.acknowledge(), interrupt, "frame {number}");
        // And it is told of the next one.
        let asked = bench.half(APART + USED_RING + 4 + 8 * usize::from(SIZE));
        assert_eq!(asked, bench.offered[1]);
    }
}

#[test]
fn a_queue_that_makes_no_sense_needs_a_reset() {
    type Spoil = fn(&mut Bench);
    let spoilers: [Spoil; 3] = [
        // A descriptor that is not there, a chain without an end, and a buffer that is not in memory.
        |bench| _ = bench.offer(FROM_DRIVER, SIZE, 20, 0),
        |bench| _ = bench.offer(FROM_DRIVER, 0, 20, NEXT_AT_0),
        |bench| _ = bench.offer(FROM_DRIVER, 0, 1 << 20, 0),
    ];
    for spoil in spoilers {
        let mut bench = Bench::new(1 << 32);
        spoil(&mut bench);
        assert_eq!(bench.get(0x70), 15 | NEEDS_RESET);
        bench.put(0x70, 15);
        bench.interface.deliver(vec![1], &mut bench.ram);
        bench.offer(TO_DRIVER, 0, ROOM, 2);
        assert_eq!(bench.used(TO_DRIVER).0, 0, "nothing is done any more");
        bench.put(0x70, 0);
        assert_eq!([0x70, 0x44].map(|register| bench.get(register)), [0, 0]);
    }
    // Nor is a queue ready whose parts are nowhere, or that has no size.
    let mut bench = Bench::new(1 << 32);
    let settings = [(0x84, 1, 0), (0x84, 0, 1), (0x38, 3, 0), (0x38, 0, 0), (0x38, 4, 1)];
    for (register, value, ready) in settings {
        bench.put(register, value);
        bench.put(0x44, 1);
        assert_eq!(bench.get(0x44), ready, "{register:#x} is {value}");
    }
}
