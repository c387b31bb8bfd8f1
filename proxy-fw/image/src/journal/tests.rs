use std::vec::Vec;

use embedded_storage::nor_flash::{ErrorType, NorFlash, ReadNorFlash};
use nor_model::{Direct, Fault, Nor, Part};

use super::*;

type Flash = Direct<4, 1024>;

const REGION: Region = Region { start: 1 << 10, len: 2 << 10 };

/// Records of each block.
const PLACES: u32 = 16;

fn flash(part: Part, seed: u64) -> Flash {
    Direct(Nor::new(part, seed))
}

fn open(flash: &mut Flash) -> (Journal<64>, Option<Vec<u8>>) {
    let mut newest = None;
    let journal = Journal::open(flash, REGION, |content| {
        newest = Some(content.to_vec());
        true
    })
    .unwrap();
    assert_eq!(journal.has_record(), newest.is_some());
    (journal, newest)
}

fn content(number: u32) -> [u8; 56] {
    core::array::from_fn(|n| (number as u8).wrapping_mul(37) ^ n as u8)
}

/// A flash with so many records.
fn filled(records: u32, seed: u64) -> Flash {
    let mut flash = flash(Part::small(4 << 10), seed);
    let (mut journal, _) = open(&mut flash);
    for number in 1..=records {
        journal.append(&mut flash, &content(number)).unwrap();
    }
    assert_eq!((flash.0.reprogrammed(), flash.0.unraised()), (0, 0));
    flash
}

fn newest(records: u32) -> Option<Vec<u8>> {
    (records > 0).then(|| content(records).to_vec())
}

#[test]
fn the_newest_record_is_found() {
    for records in 0..3 * PLACES {
        let mut flash = filled(records, 1);
        let (journal, found) = open(&mut flash);
        assert_eq!((found, journal.sequence()), (newest(records), records));
        // And the boundary around it is nobody's.
        assert!(
            flash.0.cells()[..1 << 10]
                .iter()
                .chain(&flash.0.cells()[3 << 10..])
                .all(|&b| b == 0xff)
        );
    }
}

/// At every fill level of both blocks, the move from one to the other among them, at every step
/// of adding a record, with several ways to be torn: the old record or the new one, and adding
/// goes on.
#[test]
fn a_power_cut_leaves_the_old_record_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for records in 0..2 * PLACES + 2 {
        let before = filled(records, 0);
        let mut whole = before.clone();
        let (mut journal, _) = open(&mut whole);
        journal.append(&mut whole, &content(records + 1)).unwrap();
        let steps = whole.0.steps() - before.0.steps();
        assert_eq!(steps, if records % PLACES == 0 { 64 + 8 } else { 64 }, "a move erases");
        for step in 0..steps {
            for seed in 0..3 {
                let mut flash = filled(records, seed);
                let (mut journal, _) = open(&mut flash);
                flash.0.cut_after(step);
                let cut = journal.append(&mut flash, &content(records + 1));
                assert_eq!(cut, Err(JournalError::Flash(Fault::NoPower)));
                flash.0.power_on();
                let (mut journal, found) = open(&mut flash);
                if found == newest(records) {
                    old += 1;
                } else {
                    assert_eq!(found, newest(records + 1), "{records} records, step {step}");
                    new += 1;
                }
                assert_eq!(open(&mut flash).1, found, "it stays so");
                journal.append(&mut flash, &content(99)).unwrap();
                assert_eq!(open(&mut flash).1, Some(content(99).to_vec()));
            }
        }
    }
    assert!(old > new && new > 0, "{old} {new}");
}

/// One cut after the other, with no time to recover.
#[test]
fn many_power_cuts_in_a_row() {
    for seed in 0..40 {
        let mut flash = filled(PLACES - 1, seed);
        let mut rng = seed;
        let mut last = content(PLACES - 1).to_vec();
        for number in 100..160 {
            let (mut journal, found) = open(&mut flash);
            assert_eq!(found.as_ref(), Some(&last));
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            flash.0.cut_after(rng >> 33 & 127);
            let recorded = journal.append(&mut flash, &content(number)).is_ok();
            flash.0.power_on();
            let (_, found) = open(&mut flash);
            let new = content(number).to_vec();
            assert!(found.as_ref() == Some(&new) || !recorded && found.as_ref() == Some(&last));
            last = found.unwrap();
        }
    }
}

/// A block that keeps a bit is got round; when there are too many of them it is said.
#[test]
fn worn_flash() {
    let worn = |endurance| {
        let mut flash = flash(Part { endurance, ..Part::small(4 << 10) }, 5);
        let (mut journal, _) = open(&mut flash);
        let mut last = None;
        for number in 0..4000 {
            match journal.append(&mut flash, &content(number)) {
                Ok(()) => last = Some(content(number).to_vec()),
                Err(error) => {
                    assert_eq!(error, JournalError::Worn);
                    break;
                }
            }
            assert_eq!(open(&mut flash).1, last);
        }
        assert_eq!(open(&mut flash).1, last);
        last
    };
    assert_eq!(worn(1000), Some(content(3999).to_vec()));
    assert!(worn(1).is_some_and(|last| last != content(3999)));
}

#[test]
fn a_failed_record_is_not_mended_by_the_next_number() {
    let mut flash = filled(3, 1);
    let (mut journal, _) = open(&mut flash);
    flash.0.cut_after(10);
    assert!(journal.append(&mut flash, &content(4)).is_err());
    flash.0.power_on();
    // The same journal goes on, as firmware does where a write failed without a reset.
    journal.append(&mut flash, &content(5)).unwrap();
    assert_eq!(open(&mut flash).1, Some(content(5).to_vec()));
    assert_eq!(flash.0.reprogrammed(), 0);
}

#[test]
fn damage_falls_back_to_the_record_before() {
    let mut flash = filled(5, 1);
    flash.0.flip((1 << 10) + 4 * 64 + 20, 3);
    assert_eq!(open(&mut flash).1, newest(4));
}

proptest::proptest! {
    /// Whatever is in the flash, what is found is a whole record, and adding one works.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2048)) {
        let mut flash = flash(Part::small(4 << 10), 1);
        flash.0.preload(1 << 10, &bytes);
        let (mut journal, found) = open(&mut flash);
        proptest::prop_assert_eq!(found, None, "the CRC of random bytes");
        journal.append(&mut flash, &content(1)).unwrap();
        proptest::prop_assert_eq!(open(&mut flash).1, newest(1));
    }

    /// Records of any numbers, in any order.
    #[test]
    fn any_records(sequences in proptest::collection::vec(proptest::prelude::any::<u32>(), 1..32)) {
        let mut flash = flash(Part::small(4 << 10), 1);
        for (place, &sequence) in sequences.iter().enumerate() {
            let record = Journal::<64>::record(sequence, &content(sequence));
            flash.0.preload((1 << 10) + 64 * place as u32, &record);
        }
        let (mut journal, found) = open(&mut flash);
        let highest = sequences.into_iter().max().filter(|&highest| highest > 0);
        proptest::prop_assert_eq!(&found, &highest.map(|highest| content(highest).to_vec()));
        match journal.append(&mut flash, &content(9)) {
            Ok(()) => proptest::prop_assert_eq!(open(&mut flash).1, Some(content(9).to_vec())),
            Err(error) => {
                proptest::prop_assert_eq!(error, JournalError::Exhausted);
                proptest::prop_assert_eq!(highest, Some(u32::MAX));
                proptest::prop_assert_eq!(open(&mut flash).1, found);
            }
        }
    }
}

#[test]
fn a_record_that_means_nothing_keeps_no_other_from_being_kept() {
    let mut flash = flash(Part::small(4 << 10), 1);
    let (mut journal, _) = open(&mut flash);
    journal.append(&mut flash, &content(1)).unwrap();
    // A newer one, of a kind that is not understood, in the other block.
    let strange = Journal::<64>::record(u32::MAX, &content(2));
    flash.0.preload(REGION.start + REGION.len / 2, &strange);
    let again = |flash: &mut Flash| {
        let mut newest = None;
        let journal = Journal::<64>::open(flash, REGION, |found| {
            let known = found == content(1);
            newest = newest.take().or(known.then(|| found.to_vec()));
            known
        });
        (journal.unwrap(), newest)
    };
    for _ in 0..100 {
        let (mut journal, newest) = again(&mut flash);
        assert_eq!(newest, Some(content(1).to_vec()));
        journal.append(&mut flash, &content(1)).unwrap();
    }
}

/// A flash on a bus that turns over a bit of one read, and tells nobody.
struct Noisy {
    flash: Flash,
    /// Reads until then.
    left: u32,
    /// The flash does not answer that one, since a bit of what it was asked came wrong.
    silent: bool,
}

impl ErrorType for Noisy {
    type Error = Fault;
}

impl ReadNorFlash for Noisy {
    const READ_SIZE: usize = 1;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        self.flash.read(at, bytes)?;
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            bytes[7] ^= 1 << 3;
            if self.silent {
                bytes.fill(0xff);
            }
        }
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.flash.capacity()
    }
}

impl NorFlash for Noisy {
    const WRITE_SIZE: usize = Flash::WRITE_SIZE;
    const ERASE_SIZE: usize = Flash::ERASE_SIZE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Fault> {
        self.flash.erase(from, to)
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.flash.write(at, bytes)
    }
}

/// Neither what was recorded last is overlooked, nor is a place taken for used.
#[test]
fn a_bit_that_comes_wrong_once_is_no_record_lost() {
    let records = [1, 2, PLACES, PLACES + 3, 2 * PLACES];
    for (records, silent) in records.iter().flat_map(|n| [(*n, false), (*n, true)]) {
        // What is blank is read twice, once in each block.
        for read in 1..=2 * PLACES + 2 {
            let mut noisy = Noisy { flash: filled(records, 1), left: read, silent };
            let mut found = None;
            let journal = Journal::<64>::open(&mut noisy, REGION, |content| {
                found = Some(content.to_vec());
                true
            });
            assert_eq!((found, journal.unwrap().sequence()), (newest(records), records), "{read}");
            let (whole, _) = open(&mut noisy.flash);
            assert_eq!(whole.sequence(), records);
        }
    }
}

/// Of two with the same number, which a reader that overlooked the first one leaves, the second counts.
#[test]
fn of_two_records_of_the_same_number_the_later_one_is_the_newest() {
    let mut flash = filled(3, 1);
    let again = Journal::<64>::record(3, &content(77));
    flash.write(REGION.start + 3 * 64, &again).unwrap();
    let (mut journal, found) = open(&mut flash);
    assert_eq!(found, Some(content(77).to_vec()));
    journal.append(&mut flash, &content(4)).unwrap();
    assert_eq!(open(&mut flash).1, newest(4));
}

/// A flash with a block that does not let itself be erased, or that keeps nothing and does not say so.
struct Stuck {
    flash: Flash,
    at: u32,
    says_so: bool,
    /// Erases that it refused.
    refused: u32,
}

impl Stuck {
    fn new(flash: Flash, at: u32, says_so: bool) -> Self {
        Self { flash, at, says_so, refused: 0 }
    }
}

impl ErrorType for Stuck {
    type Error = Fault;
}

impl ReadNorFlash for Stuck {
    const READ_SIZE: usize = 1;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        self.flash.read(at, bytes)
    }

    fn capacity(&self) -> usize {
        self.flash.capacity()
    }
}

impl NorFlash for Stuck {
    const WRITE_SIZE: usize = Flash::WRITE_SIZE;
    const ERASE_SIZE: usize = Flash::ERASE_SIZE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Fault> {
        if from == self.at && self.says_so {
            self.refused += 1;
            return Err(Fault::Busy);
        }
        self.flash.erase(from, to)
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        if !self.says_so && (self.at..self.at + REGION.len / 2).contains(&at) {
            return self.flash.write(at, &std::vec![0; bytes.len()]);
        }
        self.flash.write(at, bytes)
    }
}

/// Whoever opens it begins with the same block each time.
#[test]
fn the_first_record_finds_the_block_that_keeps_it() {
    for at in [REGION.start, REGION.start + REGION.len / 2] {
        let flash = flash(Part::small(4 << 10), 1);
        let mut stuck = Stuck::new(flash, at, false);
        let mut journal = Journal::<64>::open(&mut stuck, REGION, |_| true).unwrap();
        journal.append(&mut stuck, &content(1)).unwrap();
        assert_eq!(open(&mut stuck.flash).1, newest(1));
    }
}

/// Whichever of the two it is.
#[test]
fn the_first_record_finds_the_block_that_can_be_erased() {
    for at in [REGION.start, REGION.start + REGION.len / 2] {
        let flash = flash(Part::small(4 << 10), 1);
        let mut stuck = Stuck::new(flash, at, true);
        let mut journal = Journal::<64>::open(&mut stuck, REGION, |_| true).unwrap();
        for number in 1..=PLACES {
            journal.append(&mut stuck, &content(number)).unwrap();
        }
        assert_eq!(open(&mut stuck.flash).1, newest(PLACES));
        // Now there is a record, and nowhere to go: that may take seconds each time, and is tried twice.
        stuck.refused = 0;
        let refused = journal.append(&mut stuck, &content(0));
        assert_eq!(refused, Err(JournalError::Flash(Fault::Busy)));
        assert_eq!(stuck.refused, 2);
        assert_eq!(open(&mut stuck.flash).1, newest(PLACES));
    }
}
