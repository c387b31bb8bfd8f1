//! The drivers against a part with a real part's rules, and their exact words on the bus.

use core::time::Duration;
use std::vec;
use std::vec::Vec;

use embedded_hal::delay::DelayNs;
use embedded_hal_mock::eh1::delay::NoopDelay;
use embedded_hal_mock::eh1::spi::{Mock, Transaction};
use embedded_storage::nor_flash::{NorFlash, ReadNorFlash};
use nor_model::{CfiNor, EraseKind, Nor, Part, Shared, SpiNor, Timing};

use super::cfi::{Bus32, CfiFlash};
use super::spi::SpiFlash;
use super::*;

mod journal;

type Spi = SpiFlash<Shared<SpiNor>, Shared<SpiNor>>;

fn spi(part: Part) -> (Shared<SpiNor>, Spi) {
    let chip = Shared::new(SpiNor::new(Nor::new(part, 1)));
    let flash = SpiFlash::new(chip.clone(), chip.clone()).unwrap();
    (chip, flash)
}

/// Two devices whose blocks together have 128 KB, and that take their time.
const PARALLEL: Part = Part {
    size: 1 << 20,
    erases: &[EraseKind { size: 128 << 10, opcode: 0xd8, time: Duration::from_millis(500) }],
    timing: Timing { program: Duration::from_micros(300), ..Part::W25Q128.timing },
    ..Part::QEMU_VIRT
};

struct Wires(Shared<CfiNor>);

impl Bus32 for Wires {
    fn read(&mut self, offset: u32) -> u32 {
        self.0.lock().read(offset)
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.0.lock().write(offset, value);
    }
}

type Cfi = CfiFlash<Wires, Shared<CfiNor>, { 128 << 10 }>;

fn cfi() -> (Shared<CfiNor>, Cfi) {
    let chip = Shared::new(CfiNor::new(Nor::new(PARALLEL, 1), 2));
    let flash = CfiFlash::new(Wires(chip.clone()), chip.clone()).unwrap();
    (chip, flash)
}

/// Nothing was programmed that was not erased.
fn assert_clean(nor: &Nor) {
    assert_eq!((nor.reprogrammed(), nor.unraised()), (0, 0));
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// Erases, writes and reads, and compares with the part's own cells.
fn there_and_back<F: NorFlash>(flash: &mut F, at: u32, length: usize)
where
    F::Error: PartialEq,
{
    let unit = F::ERASE_SIZE as u32;
    flash.erase(at / unit * unit, (at + length as u32).next_multiple_of(unit)).unwrap();
    let bytes = pattern(length);
    flash.write(at, &bytes).unwrap();
    let mut back = vec![0; length + 2];
    flash.read(at - 1, &mut back).unwrap();
    assert_eq!(back[1..=length], bytes);
    assert_eq!((back[0], back[length + 1]), (0xff, 0xff));
}

#[test]
fn spi_there_and_back() {
    let part = Part::W25Q128;
    let (chip, mut flash) = spi(part);
    assert_eq!(flash.capacity(), part.size as usize);
    assert_eq!((flash.part().jedec, flash.part().page), (part.jedec, 256));
    // Across pages and sectors, at the end too.
    for at in [4096 - 100, part.size - 5000] {
        there_and_back(&mut flash, at, 4321);
    }
    assert_clean(&chip.lock().nor);
}

#[test]
fn spi_erases_sector_by_sector() {
    let (chip, mut flash) = spi(Part::W25Q128);
    chip.lock().nor.preload(0, &[0; 0x4_0000]);
    flash.erase(0x7000, 0x2_9000).unwrap();
    let chip = chip.lock();
    let cells = chip.nor.cells();
    assert!(cells[0x7000..0x2_9000].iter().all(|&byte| byte == 0xff));
    assert!(cells[..0x7000].iter().chain(&cells[0x2_9000..0x4_0000]).all(|&byte| byte == 0));
    // Operations of eight steps each.
    assert_eq!(chip.nor.steps(), 0x22 * 8);
}

#[test]
fn spi_waits_for_what_goes_on_before_a_reset() {
    let chip = Shared::new(SpiNor::new(Nor::new(Part::W25Q128, 1)));
    chip.lock().nor.preload(0, &[0; 4096]);
    chip.lock().nor.erase(0, 4096).unwrap();
    SpiFlash::new(chip.clone(), chip.clone()).unwrap();
    assert!(chip.lock().nor.unstable().is_empty(), "the erase came to its end");
    assert!(chip.lock().nor.cells().iter().all(|&byte| byte == 0xff));
}

#[test]
fn spi_asleep() {
    let (chip, _) = spi(Part::W25Q128);
    let mut guard = chip.lock();
    guard.select();
    guard.exchange(0xb9);
    guard.deselect();
    drop(guard);
    assert!(SpiFlash::new(chip.clone(), chip.clone()).is_ok());
}

#[test]
fn spi_says_what_is_wrong() {
    let (chip, mut flash) = spi(Part::W25Q128);
    let size = Part::W25Q128.size;
    assert_eq!(flash.read(size - 1, &mut [0; 2]), Err(FlashError::OutOfBounds));
    assert_eq!(flash.read(u32::MAX, &mut [0; 2]), Err(FlashError::OutOfBounds));
    assert_eq!(flash.write(size, &[0]), Err(FlashError::OutOfBounds));
    assert_eq!(flash.erase(1, 4096), Err(FlashError::NotAligned));
    assert_eq!(flash.erase(0, 4097), Err(FlashError::NotAligned));
    assert_eq!(flash.erase(8192, 4096), Err(FlashError::OutOfBounds));
    assert_eq!(flash.erase(size, size + 4096), Err(FlashError::OutOfBounds));
    // Without power, on the way and from the beginning.
    chip.lock().power_off();
    assert_eq!(flash.write(4096, &[0]), Err(FlashError::NotAnswering));
    let dead = SpiFlash::new(chip.clone(), chip.clone());
    assert_eq!(dead.map(|_| ()), Err(FlashError::NotAnswering));
}

#[test]
fn spi_parts_that_cannot_be_used() {
    const COARSE: &[EraseKind] =
        &[EraseKind { size: 64 << 10, opcode: 0xd8, time: Duration::from_millis(1) }];
    let part = Part { erases: COARSE, ..Part::W25Q128 };
    let chip = Shared::new(SpiNor::new(Nor::new(part, 1)));
    let flash = SpiFlash::new(chip.clone(), chip.clone());
    let why = FlashError::Unsupported("it has no 4 KB sectors");
    assert_eq!(flash.map(|_| ()), Err(why));
    // It would have to take other addresses than the window that the core starts from gives.
    let chip = Shared::new(SpiNor::new(Nor::new(Part::W25Q256, 1)));
    let flash = SpiFlash::new(chip.clone(), chip.clone());
    assert_eq!(flash.map(|_| ()), Err(FlashError::Unsupported("it has more than 16 MB")));
}

fn words(bytes: &[u8]) -> [Transaction<u8>; 3] {
    let (start, end) = (Transaction::transaction_start(), Transaction::transaction_end());
    [start, Transaction::write_vec(bytes.to_vec()), end]
}

fn asks(bytes: &[u8], answer: &[u8]) -> [Transaction<u8>; 4] {
    let (start, end) = (Transaction::transaction_start(), Transaction::transaction_end());
    let (write, read) =
        (Transaction::write_vec(bytes.to_vec()), Transaction::read_vec(answer.to_vec()));
    [start, write, read, end]
}

/// What a part of 1 MB, in the standard's first revision, is asked and told.
fn beginning() -> Vec<Transaction<u8>> {
    let header = b"SFDP\x00\x01\x00\xff\x00\x00\x01\x09\x80\x00\x00\xff";
    let mut table = [0; 36];
    table[4..8].copy_from_slice(&((8 << 20) - 1_u32).to_le_bytes());
    table[28..32].copy_from_slice(&[12, 0x20, 16, 0xd8]);
    [
        &words(&[0xab])[..],
        &asks(&[0x05], &[0x00]),
        &asks(&[0x05], &[0x00]),
        &words(&[0x66]),
        &words(&[0x99]),
        &asks(&[0x9f], &[0xc2, 0x20, 0x14]),
        &asks(&[0x5a, 0, 0, 0, 0], header),
        &asks(&[0x5a, 0, 0, 0x80, 0], &table),
    ]
    .concat()
}

/// Drives a mock through an operation: the bus saw exactly this.
fn exactly(
    expected: &[Transaction<u8>],
    operation: impl FnOnce(&mut SpiFlash<Mock<u8>, NoopDelay>),
) {
    let mock = Mock::new(&[&beginning()[..], expected].concat());
    let mut flash = SpiFlash::new(mock, NoopDelay).unwrap();
    operation(&mut flash);
    flash.release().0.done();
}

#[test]
fn spi_reads_in_these_words() {
    let expected = asks(&[0x0b, 0x01, 0x23, 0x45, 0], &[7, 8]);
    exactly(&expected, |flash| {
        assert_eq!((flash.capacity(), flash.part().page), (1 << 20, 256));
        let mut bytes = [0; 2];
        flash.read(0x1_2345, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 8]);
    });
}

#[test]
fn spi_writes_in_these_words() {
    let program = |at: [u8; 3], data: &[u8]| {
        let (start, end) = (Transaction::transaction_start(), Transaction::transaction_end());
        let header = [0x02, at[0], at[1], at[2]];
        vec![
            start,
            Transaction::write_vec(header.to_vec()),
            Transaction::write_vec(data.to_vec()),
            end,
        ]
    };
    let expected = [
        &words(&[0x06])[..],
        &asks(&[0x05], &[0x02]),
        &program([0, 1, 0xfe], &[1, 2]),
        &asks(&[0x05], &[0x03]),
        &asks(&[0x05], &[0x00]),
        // The rest is on the next page.
        &words(&[0x06]),
        &asks(&[0x05], &[0x02]),
        &program([0, 2, 0], &[3]),
        &asks(&[0x05], &[0x00]),
    ]
    .concat();
    exactly(&expected, |flash| flash.write(0x1fe, &[1, 2, 3]).unwrap());
}

#[test]
fn spi_gives_up_in_these_words() {
    // The latch does not set.
    let refused = [&words(&[0x06])[..], &asks(&[0x05], &[0x80])].concat();
    exactly(&refused, |flash| {
        assert_eq!(flash.write(0, &[1]), Err(FlashError::Protected { at: 0 }));
    });
    // It is never ready: so often it is asked.
    let (sector, busy) = (words(&[0x20, 0, 0x10, 0]), asks(&[0x05], &[0x03]));
    let mut stuck = [&words(&[0x06])[..], &asks(&[0x05], &[0x02]), &sector].concat();
    (0..2500).for_each(|_| stuck.extend_from_slice(&busy));
    // Whoever tries another place is told at once.
    stuck.extend([&words(&[0x06])[..], &busy, &words(&[0x06]), &busy].concat());
    // Who reads waits until it has ended: before, the part says nothing.
    stuck.extend([&busy[..], &asks(&[0x05], &[0]), &asks(&[0x0b, 0, 0, 0, 0], &[0x17])].concat());
    stuck.extend(asks(&[0x0b, 0, 0, 0, 0], &[0x17]));
    exactly(&stuck, |flash| {
        assert_eq!(flash.erase(4096, 8192), Err(FlashError::Timeout { at: 4096 }));
        assert_eq!(flash.erase(8192, 12288), Err(FlashError::Timeout { at: 8192 }));
        assert_eq!(flash.write(0, &[1]), Err(FlashError::Timeout { at: 0 }));
        for _ in 0..2 {
            let mut byte = [0];
            flash.read(0, &mut byte).unwrap();
            assert_eq!(byte, [0x17]);
        }
    });
}

#[test]
fn cfi_there_and_back() {
    let (chip, mut flash) = cfi();
    assert_eq!(flash.capacity(), 1 << 20);
    for at in [(128 << 10) - 2000, 4096 - 8, (1 << 20) - 9004] {
        there_and_back(&mut flash, at, 9000);
    }
    // Any bytes are read.
    for at in 0..5 {
        let mut bytes = [0; 7];
        flash.read(4000 + at, &mut bytes).unwrap();
        assert_eq!(bytes, chip.lock().nor.cells()[4000 + at as usize..][..7]);
    }
    assert_clean(&chip.lock().nor);
}

#[test]
fn cfi_says_what_is_wrong() {
    let (chip, mut flash) = cfi();
    assert_eq!(flash.write(2, &[0; 4]), Err(FlashError::NotAligned));
    assert_eq!(flash.write(0, &[0; 5]), Err(FlashError::NotAligned));
    assert_eq!(flash.write(1 << 20, &[0; 4]), Err(FlashError::OutOfBounds));
    assert_eq!(flash.erase(4096, 128 << 10), Err(FlashError::NotAligned));
    chip.lock().lock(128 << 10);
    let at = 128 << 10;
    assert_eq!(flash.write(at, &[0; 4]), Err(FlashError::Protected { at }));
    assert_eq!(flash.erase(at, 2 * at), Err(FlashError::Protected { at }));
    assert_eq!(flash.unlock(1 << 20), Err(FlashError::OutOfBounds));
    flash.unlock(at + 12).unwrap();
    flash.write(at, &[0; 4]).unwrap();
    chip.lock().power_off();
    let dead = Cfi::new(Wires(chip.clone()), chip.clone());
    assert_eq!(dead.map(|_| ()), Err(FlashError::NotAnswering));
}

#[test]
fn cfi_parts_that_cannot_be_used() {
    let chip = Shared::new(CfiNor::new(Nor::new(PARALLEL, 1), 2));
    let other = CfiFlash::<_, _, 4096>::new(Wires(chip.clone()), chip.clone());
    let why = FlashError::Unsupported("its blocks are not those of the board");
    assert_eq!(other.map(|_| ()), Err(why));
    // One device on half of the bus.
    let half = Shared::new(CfiNor::new(Nor::new(PARALLEL, 1), 1));
    let half = Cfi::new(Wires(half.clone()), half.clone());
    assert_eq!(half.map(|_| ()), Err(FlashError::NotAnswering));
}

/// A bus on which nothing ever becomes ready.
struct Stuck(CfiNor);

impl Bus32 for Stuck {
    fn read(&mut self, offset: u32) -> u32 {
        let word = self.0.read(offset);
        if word == 0x0080_0080 { 0x0080_0000 } else { word }
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.0.write(offset, value);
    }
}

/// Counts the microseconds that are waited.
#[derive(Default)]
struct Waited(u64);

impl DelayNs for Waited {
    fn delay_ns(&mut self, nanos: u32) {
        self.0 += u64::from(nanos) / 1000;
    }
}

/// Whoever tries another place is told at once.
#[test]
fn cfi_gives_up_once() {
    type Flash = CfiFlash<Stuck, Waited, { 256 << 10 }>;
    let write = |flash: &mut Flash| flash.write(4, &[0; 4]);
    let erase = |flash: &mut Flash| flash.erase(0, 256 << 10);
    let operations: [fn(&mut Flash) -> Result<(), _>; 2] = [write, erase];
    for first in operations {
        let chip = CfiNor::new(Nor::new(Part { size: 1 << 20, ..Part::QEMU_VIRT }, 1), 2);
        let mut flash = Flash::new(Stuck(chip), Waited::default()).unwrap();
        assert!(matches!(first(&mut flash), Err(FlashError::Timeout { .. })));
        assert_eq!(write(&mut flash), Err(FlashError::Timeout { at: 4 }));
        assert_eq!(erase(&mut flash), Err(FlashError::Timeout { at: 0 }));
        let (_, waited) = flash.release();
        assert_eq!(waited.0, 4_000_000);
    }
}

/// The words on the bus for one write: two 16-bit devices, each given the same command.
#[test]
fn cfi_writes_in_these_words() {
    struct Recorder(CfiNor, Vec<(u32, u32)>);
    impl Bus32 for Recorder {
        fn read(&mut self, offset: u32) -> u32 {
            self.0.read(offset)
        }
        fn write(&mut self, offset: u32, value: u32) {
            self.1.push((offset, value));
            self.0.write(offset, value);
        }
    }
    let chip = CfiNor::new(Nor::new(Part { size: 1 << 20, ..Part::QEMU_VIRT }, 1), 2);
    let bus = Recorder(chip, Vec::new());
    let mut flash = CfiFlash::<_, _, { 256 << 10 }>::new(bus, NoopDelay).unwrap();
    flash.write(8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    flash.erase(0, 256 << 10).unwrap();
    let (bus, _) = flash.release();
    let expected = [
        (0, 0x00ff_00ff),
        (0x154, 0x0098_0098),
        (0, 0x00ff_00ff),
        (8, 0x0050_0050),
        (8, 0x00e8_00e8),
        (8, 0x0001_0001),
        (8, 0x0403_0201),
        (12, 0x0807_0605),
        (8, 0x00d0_00d0),
        (8, 0x0050_0050),
        (8, 0x00ff_00ff),
        (0, 0x0050_0050),
        (0, 0x0020_0020),
        (0, 0x00d0_00d0),
        (0, 0x0050_0050),
        (0, 0x00ff_00ff),
    ];
    assert_eq!(bus.1, expected);
}
