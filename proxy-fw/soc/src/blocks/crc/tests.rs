use super::*;
use proptest::prelude::*;
use std::sync::{Mutex, MutexGuard};
use std::vec::Vec;
use tlp_codec::crc::tables;

/// Where memory is for the engine; it begins at an odd address.
const ORIGIN: u32 = 0x9000_0001;

/// Offsets of the registers.
const SOURCE: u32 = 0x00;
const SEED: u32 = 0x04;
const START: u32 = 0x08;
const STATUS: u32 = 0x0c;
const RESULT: u32 = 0x10;

/// In the status.
const BUSY: u32 = 1;
const ERROR: u32 = 2;

#[derive(Default)]
struct State {
    /// Memory as the engine sees it: what was lent.
    memory: Vec<u8>,
    source: u32,
    seed: u32,
    result: u32,
    /// Times that it still says that it is busy, and how often it does after each start.
    busy: u32,
    takes: u32,
    /// Reads of memory fail.
    fails: bool,
    /// Lengths of the ranges, and whether they continued something.
    ranges: Vec<(u32, bool)>,
}

/// The block, and the memory that it reaches.
#[derive(Default)]
struct Model(Mutex<State>);

/// What is shifted into a reflected CRC's register, a bit at a time.
fn shifted(polynomial: u32, register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |register, byte| {
        (0..8).fold(register ^ u32::from(*byte), |register, _| {
            register >> 1 ^ if register & 1 != 0 { polynomial } else { 0 }
        })
    })
}

impl Model {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn engine(&self) -> CrcEngine<&Self, &Self> {
        CrcEngine::new(Block::at(self, 0), self)
    }
}

impl State {
    fn start(&mut self, value: u32) {
        assert_eq!(self.busy, 0, "written only while the engine is not busy");
        let (length, continued) = (value & 0xffff, value >> 24 & 1 != 0);
        self.ranges.push((length, continued));
        let polynomial = match value >> 16 & 3 {
            0 => 0x82f6_3b78,
            1 => 0xedb8_8320,
            other => panic!("algorithm {other}"),
        };
        let from = (self.source - ORIGIN) as usize;
        let register = if continued { !self.seed } else { u32::MAX };
        let bytes = &self.memory[from..from + length as usize];
        self.result = if self.fails { 7 } else { !shifted(polynomial, register, bytes) };
        self.busy = self.takes;
    }
}

impl Bus for &Model {
    fn read32(&self, offset: u32) -> u32 {
        let mut state = self.state();
        match offset {
            STATUS => {
                let busy = state.busy > 0;
                state.busy = state.busy.saturating_sub(1);
                // An error is told of when it is over.
                if busy {
                    BUSY
                } else if state.fails {
                    ERROR
                } else {
                    0
                }
            }
            RESULT => {
                assert_eq!(state.busy, 0, "it is there when it is not busy any more");
                state.result
            }
            _ => panic!("read of {offset:#x}"),
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        let mut state = self.state();
        match offset {
            SOURCE => state.source = value,
            SEED => state.seed = value,
            START => state.start(value),
            _ => panic!("write of {offset:#x}"),
        }
    }
}

impl Reach for &Model {
    /// A core with a cache: what was not lent is not in memory.
    fn lend(&self, bytes: &[u8]) -> Option<u32> {
        self.state().memory = bytes.to_vec();
        Some(ORIGIN)
    }
}

#[test]
fn both_algorithms_give_the_check_values_of_the_catalogue() {
    let model = Model::default();
    model.state().takes = 5;
    let engine = model.engine();
    assert_eq!(engine.crc(Algorithm::Frame, 0, b"123456789"), Some(0xe306_9283));
    assert_eq!(engine.crc(Algorithm::Tlp, 0, b"123456789"), Some(0xcbf4_3926));
    assert_eq!(engine.crc(Algorithm::Tlp, 0, &[]), Some(0));
    assert_eq!((engine.failures(), &model.state().ranges[..]), (0, &[(9, false); 2][..]));
}

#[test]
fn what_is_longer_than_a_range_is_several() {
    let model = Model::default();
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n ^ n >> 7) as u8).collect();
    let engine = model.engine();
    assert_eq!(engine.crc(Algorithm::Frame, 0, &bytes), Some(tables::frame(&bytes)));
    let ranges = core::mem::take(&mut model.state().ranges);
    assert_eq!(ranges, [(65535, false), (65535, true), (65535, true), (3395, true)]);
    let (first, second) = bytes.split_at(65535);
    let crc = engine.crc(Algorithm::Tlp, tables::tlp(first), second);
    assert_eq!(crc, Some(tables::tlp(&bytes)));
    assert_eq!(model.state().ranges, [(65535, true), (65535, true), (3395, true)]);
}

#[test]
fn an_engine_that_cannot_read_says_nothing() {
    let model = Model::default();
    let engine = model.engine();
    model.state().fails = true;
    assert_eq!(engine.crc(Algorithm::Frame, 0, &[0; 100_000]), None);
    assert_eq!(model.state().ranges.len(), 1, "nothing follows what failed");
    assert_eq!(engine.failures(), 1);
    model.state().fails = false;
    assert_eq!(engine.crc(Algorithm::Frame, 0, b"123456789"), Some(0xe306_9283));
    assert_eq!(engine.failures(), 1);
}

#[test]
fn an_engine_that_hangs_is_given_up_and_left_alone_until_it_is_done() {
    let model = Model::default();
    let engine = model.engine();
    model.state().takes = POLLS + 3;
    for failures in 1..4 {
        assert_eq!(engine.crc(Algorithm::Tlp, 0, &[1; 64]), None);
        assert_eq!(engine.failures(), failures);
    }
    assert_eq!(model.state().ranges.len(), 1, "it was not told to begin meanwhile");
    model.state().takes = 0;
    model.state().busy = 0;
    assert_eq!(engine.crc(Algorithm::Tlp, 0, &[1; 64]), Some(tables::tlp(&[1; 64])));
}

#[test]
fn what_it_does_not_reach_is_for_the_tables() {
    let memory = Uncached::new(0x9000_0000, 0x1000);
    for (address, length, found) in [
        (0x9000_0000, 0x1000, true),
        (0x9000_0fff, 1, true),
        (0x9000_0003, 5, true),
        (0x9000_1000, 0, true),
        (0x9000_0fff, 2, false),
        (0x9000_0000, 0x1001, false),
        (0x8fff_ffff, 2, false),
        (0x9000_1001, 0, false),
        (0x4000_0000, 4, false),
        (usize::MAX, 1, false),
    ] {
        let expected = found.then_some(address as u32);
        assert_eq!(memory.find(address, length), expected, "{length} bytes at {address:#x}");
    }
    let model = Model::default();
    let engine = CrcEngine::new(Block::at(&model, 0), memory);
    assert_eq!(engine.crc(Algorithm::Tlp, 0, &std::vec![1; 64]), None);
    assert_eq!((engine.failures(), model.state().ranges.len()), (0, 0), "it was not asked");
}

proptest! {
    #[test]
    fn engine_and_tables_agree(
        bytes in prop::collection::vec(any::<u8>(), 0..1500),
        cut in 0_usize..1500,
        takes in 0_u32..4,
    ) {
        let model = Model::default();
        model.state().takes = takes;
        let engine = model.engine();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        for (algorithm, of) in [
            (Algorithm::Frame, tables::frame as fn(&[u8]) -> u32),
            (Algorithm::Tlp, tables::tlp),
        ] {
            let before = engine.crc(algorithm, 0, first).unwrap();
            prop_assert_eq!(before, of(first));
            prop_assert_eq!(engine.crc(algorithm, before, second), Some(of(&bytes)));
        }
    }
}
