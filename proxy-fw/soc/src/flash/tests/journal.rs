//! The boot state's journal over the drivers as cards have them.

use super::*;
use card_image::{Journal, JournalError, Region};
use core::cell::Cell;
use core::fmt::Debug;
use embedded_hal::spi::{ErrorType, Operation, SpiDevice};
use std::rc::Rc;

const N: usize = 64;

fn content(number: u32) -> [u8; N - 8] {
    core::array::from_fn(|n| (number as u8).wrapping_mul(37) ^ n as u8)
}

fn two_blocks<F: NorFlash>() -> Region {
    Region { start: 0, len: 2 * F::ERASE_SIZE as u32 }
}

fn open<F: NorFlash<Error: Debug>>(flash: &mut F) -> (Journal<N>, Vec<u8>) {
    let mut newest = Vec::new();
    let journal = Journal::open(flash, two_blocks::<F>(), |content| {
        newest = content.to_vec();
        true
    });
    (journal.unwrap(), newest)
}

/// Goes round both blocks, of a part in which each erase leaves a bit that stays 0: none of the
/// records is lost, though some places do not keep theirs.
fn goes_round_places_that_do_not_keep<F: NorFlash<Error: Debug>>(flash: &mut F) {
    let (mut journal, _) = open(flash);
    let appended = 5 * (F::ERASE_SIZE / N) as u32;
    for number in 1..=appended {
        journal.append(flash, &content(number)).unwrap();
    }
    assert!(journal.sequence() > appended, "places were passed over");
    assert_eq!(open(flash).1, content(appended));
}

#[test]
fn spi_places_that_do_not_keep_records_are_got_round() {
    let (_, mut flash) = spi(Part { endurance: 0, ..Part::W25Q128 });
    goes_round_places_that_do_not_keep(&mut flash);
}

#[test]
fn cfi_places_that_do_not_keep_records_are_got_round() {
    let chip = Shared::new(CfiNor::new(Nor::new(Part { endurance: 0, ..PARALLEL }, 1), 2));
    let mut flash = Cfi::new(Wires(chip.clone()), chip).unwrap();
    goes_round_places_that_do_not_keep(&mut flash);
}

#[test]
fn spi_that_is_protected_is_given_up() {
    let (chip, mut flash) = spi(Part::W25Q128);
    let (mut journal, _) = open(&mut flash);
    journal.append(&mut flash, &content(1)).unwrap();
    let mut guard = chip.lock();
    let protect: [&[u8]; 2] = [&[0x06], &[0x01, 0b111 << 2]];
    for command in protect {
        guard.select();
        for &byte in command {
            guard.exchange(byte);
        }
        guard.deselect();
    }
    guard.nor.finish();
    drop(guard);
    assert_eq!(journal.append(&mut flash, &content(2)), Err(JournalError::Worn));
    assert_eq!(open(&mut flash).1, content(1));
}

#[test]
fn cfi_that_is_locked_is_given_up() {
    let (chip, mut flash) = cfi();
    let (mut journal, _) = open(&mut flash);
    journal.append(&mut flash, &content(1)).unwrap();
    chip.lock().lock(0);
    let failed = journal.append(&mut flash, &content(2));
    assert!(matches!(failed, Err(JournalError::Flash(FlashError::Protected { .. }))), "{failed:?}");
    assert_eq!(open(&mut flash).1, content(1));
}

/// A bus that once gives a bit of data wrong, when it is told to.
struct Errs<T>(T, Rc<Cell<bool>>);

impl ErrorType for Errs<Shared<SpiNor>> {
    type Error = core::convert::Infallible;
}

impl SpiDevice for Errs<Shared<SpiNor>> {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), Self::Error> {
        self.0.transaction(operations)?;
        if let [Operation::Write([0x0b, ..]), Operation::Read(bytes)] = operations {
            bytes[0] ^= u8::from(self.1.take());
        }
        Ok(())
    }
}

impl Bus32 for Errs<Wires> {
    fn read(&mut self, offset: u32) -> u32 {
        let word = self.0.read(offset);
        // The status is no data, and what it is while the part is busy.
        if matches!(word, 0 | 0x0080_0080) { word } else { word ^ u32::from(self.1.take()) }
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.0.write(offset, value);
    }
}

/// Neither where a record is read back, nor behind an erase.
fn one_read_error_loses_no_record<F: NorFlash<Error: Debug>>(flash: &mut F, errs: &Cell<bool>) {
    let (mut journal, _) = open(flash);
    let places = (F::ERASE_SIZE / N) as u32;
    for number in 1..=places + 1 {
        errs.set(number == 1 || number == 3 || number + 2 >= places);
        journal.append(flash, &content(number)).unwrap();
        assert!(!errs.get(), "something was read");
    }
    assert!(journal.sequence() > places + 1);
    assert_eq!(open(flash).1, content(places + 1));
}

#[test]
fn a_read_error_loses_no_record() {
    let errs = Rc::new(Cell::new(false));
    let chip = Shared::new(SpiNor::new(Nor::new(Part::W25Q128, 1)));
    let mut flash = SpiFlash::new(Errs(chip.clone(), errs.clone()), chip).unwrap();
    one_read_error_loses_no_record(&mut flash, &errs);
    let chip = Shared::new(CfiNor::new(Nor::new(PARALLEL, 1), 2));
    let bus = Errs(Wires(chip.clone()), errs.clone());
    let mut flash = CfiFlash::<_, _, { 128 << 10 }>::new(bus, chip).unwrap();
    one_read_error_loses_no_record(&mut flash, &errs);
}
