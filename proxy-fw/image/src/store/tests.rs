//! The store's operations one by one, and each of them with the power cut at every step.

use embedded_storage::nor_flash::{ErrorType, ReadNorFlash};
use nor_model::Fault;

use super::*;
use crate::test_card::*;
use crate::{BOOT_TRIES, Begun, BootReason, Decision, ImageId, Refusal, SecurityVersion};
use SlotId::{A, B};

fn id(image: &[u8]) -> ImageId {
    Header::parse(image).unwrap().id()
}

#[test]
fn a_new_card_stays_in_the_boot_loader() {
    let mut card = Card::new(1);
    assert!(!card.store.is_recorded());
    assert_eq!(card.decide(), Decision::Recovery([WhyNot::Empty; 2]));
    assert!(!card.store.is_recorded(), "nothing is written for nothing");
}

#[test]
fn an_image_is_installed() {
    let mut card = Card::new(1);
    let image = image(1, 3000);
    assert_eq!(card.store.update_slot(None), A);
    assert_eq!(card.begin(A, None, &image), Ok(Begun::At(256)));
    assert_eq!(card.write(257, &[0]), Err(StoreError::OutOfOrder { expected: 256 }));
    assert_eq!(card.write(256, &[0; 3001]), Err(StoreError::TooMuch { length: 3256 }));
    card.write(256, &image[256..1000]).unwrap();
    assert_eq!(card.finish(), Err(StoreError::Incomplete { have: 1000, need: 3256 }));
    assert_eq!(card.want(A), Err(StoreError::NotBootable(A)));
    card.write(1000, &image[1000..]).unwrap();
    assert_eq!(card.finish().unwrap().version.major, 1);
    assert_eq!(card.slot(A), SlotState::Staged { image: id(&image) });
    assert_eq!(card.write(0, &[]), Err(StoreError::NothingBegun));
    assert_eq!(card.finish(), Err(StoreError::NothingBegun));
    assert_eq!(card.begin(A, None, &image), Ok(Begun::Complete));
    card.want(A).unwrap();
    let boot = card.boot();
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Trying { left: BOOT_TRIES - 1 }));
    assert_eq!(boot.header.emit()[..], image[..256]);
    card.report_healthy(A).unwrap();
    card.report_healthy(A).unwrap();
    assert_eq!(card.boot().reason, BootReason::Healthy);
    assert_eq!(card.store.state().lowest_security, SecurityVersion(1));
    assert_eq!((card.flash.0.reprogrammed(), card.flash.0.unraised()), (0, 0));
}

#[test]
fn an_image_that_never_reports_is_rolled_back() {
    let mut card = Card::running(1);
    assert_eq!(card.store.update_slot(Some(A)), B);
    card.update(B, Some(A), &image(2, 2000)).unwrap();
    for left in (0..BOOT_TRIES).rev() {
        let boot = card.boot();
        assert_eq!((boot.slot, boot.reason), (B, BootReason::Trying { left }));
    }
    let boot = card.boot();
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Instead(WhyNot::TriesUsedUp)));
    let boot = card.boot();
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Healthy));
    assert_eq!(card.slot(B), SlotState::Failed { image: id(&image(2, 2000)) });
    // The same image may be tried once more, when somebody wants so.
    card.update(B, Some(A), &image(2, 2000)).unwrap();
    assert_eq!(card.boot().slot, B);
}

#[test]
fn the_only_image_that_never_reports() {
    let mut card = Card::new(1);
    let image = image(1, 3000);
    card.update(A, None, &image).unwrap();
    (0..BOOT_TRIES).for_each(|_| assert_eq!(card.boot().slot, A));
    let used_up = SlotState::Trying { image: id(&image), left: 0 };
    let steps = card.flash.0.steps();
    for _ in 0..3 {
        let boot = card.boot();
        assert_eq!((boot.slot, boot.reason), (A, BootReason::Again(WhyNot::Empty)));
        assert_eq!((card.slot(A), card.flash.0.steps()), (used_up, steps), "nothing is recorded");
    }
    assert_eq!(card.want(A), Err(StoreError::NotBootable(A)));
    // It joins after all, and is as good as any.
    let mut joined = card.clone();
    joined.report_healthy(A).unwrap();
    assert_eq!(joined.boot().reason, BootReason::Healthy);
    // Written anew it has its starts again.
    let mut anew = card.clone();
    assert_eq!(anew.begin(A, None, &image), Ok(Begun::At(256)));
    anew.update(A, None, &image).unwrap();
    assert_eq!(anew.boot().reason, BootReason::Trying { left: BOOT_TRIES - 1 });
    // Beside another one it is given up, and that one is started again in its turn.
    let two = crate::test_card::image(2, 2000);
    card.update(B, None, &two).unwrap();
    (0..BOOT_TRIES).for_each(|_| assert_eq!(card.boot().slot, B));
    assert_eq!(card.slot(A), used_up, "nobody has looked at it");
    let boot = card.boot();
    assert_eq!((boot.slot, boot.reason), (B, BootReason::Again(WhyNot::TriesUsedUp)));
    // That one may be no good, so they take turns.
    let boot = card.boot();
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Again(WhyNot::TriesUsedUp)));
    let mut joined = card.clone();
    joined.report_healthy(A).unwrap();
    let boot = joined.boot();
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Instead(WhyNot::TriesUsedUp)));
    assert_eq!((joined.store.state().wanted, joined.boot().reason), (A, BootReason::Healthy));
    // It may be the flash alone that is wrong.
    card.flash.0.flip(layout().slot(B).start + 300, 1);
    let boot = card.boot();
    let why = WhyNot::Refused(Refusal::BadCrc);
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Again(why)));
    card.flash.0.flip(layout().slot(B).start + 300, 1);
    assert_eq!(card.boot().slot, B);
}

/// The power goes after `finish` and before `want`: the image that the card has is started still, unless
/// it has no starts left.
#[test]
fn an_image_that_is_whole_and_not_wanted_yet() {
    for starts in [BOOT_TRIES - 1, BOOT_TRIES] {
        let mut card = Card::new(1);
        let (one, two) = (image(1, 3000), image(2, 2000));
        card.update(A, None, &one).unwrap();
        (0..starts).for_each(|_| assert_eq!(card.boot().slot, A));
        card.begin(B, None, &two).unwrap();
        card.write(256, &two[256..]).unwrap();
        card.finish().unwrap();
        let boot = card.boot();
        if starts < BOOT_TRIES {
            assert_eq!((boot.slot, boot.reason), (A, BootReason::Trying { left: 0 }));
            assert_eq!(card.slot(B), SlotState::Staged { image: id(&two) });
        } else {
            assert_eq!((boot.slot, boot.reason), (B, BootReason::Instead(WhyNot::TriesUsedUp)));
            assert_eq!(card.slot(A), SlotState::Failed { image: id(&one) });
        }
    }
}

#[test]
fn a_person_rolls_back() {
    let mut card = Card::running(1);
    assert_eq!(card.roll_back(A), Err(StoreError::NotBootable(B)));
    card.update(B, Some(A), &image(2, 2000)).unwrap();
    assert_eq!(card.boot().slot, B);
    // While it is tried: it has failed.
    let mut early = card.clone();
    early.roll_back(B).unwrap();
    assert_eq!(early.boot().slot, A);
    assert_eq!(early.slot(B), SlotState::Failed { image: id(&image(2, 2000)) });
    // After it was healthy: it stays there, and one can go forth again.
    card.report_healthy(B).unwrap();
    card.roll_back(B).unwrap();
    assert_eq!(card.boot().slot, A);
    card.want(B).unwrap();
    assert_eq!(
        (card.boot().slot, card.slot(A)),
        (B, SlotState::Healthy { image: id(&image(1, 3000)) })
    );
}

#[test]
fn a_healthy_image_bars_the_way_back_to_less_security() {
    let mut card = Card::running(1);
    let secure = crate::ImageParts { security: SecurityVersion(2), ..parts(2) };
    let image = signed(secure, &[9; 500]);
    card.update(B, Some(A), &image).unwrap();
    assert_eq!(card.boot().slot, B);
    card.report_healthy(B).unwrap();
    let refused = Refusal::Downgrade { has: SecurityVersion(1), lowest: SecurityVersion(2) };
    assert_eq!(card.roll_back(B), Err(StoreError::Refused(refused)));
    let old = crate::test_card::image(3, 500);
    assert_eq!(card.begin(A, Some(B), &old), Err(StoreError::Refused(refused)));
}

#[test]
fn what_is_needed_is_not_overwritten() {
    let mut card = Card::running(1);
    let two = image(2, 2000);
    assert_eq!(card.begin(A, Some(A), &two), Err(StoreError::Running(A)));
    // In a boot loader nothing runs, and the last good image is kept all the same.
    assert_eq!(card.begin(A, None, &two), Err(StoreError::LastGood(A)));
    assert_eq!(card.store.update_slot(None), B);
    card.update(B, Some(A), &two).unwrap();
    card.boot();
    // It runs, and is not known to be good.
    assert_eq!(card.begin(A, Some(B), &image(3, 2000)), Err(StoreError::LastGood(A)));
    card.report_healthy(B).unwrap();
    card.update(A, Some(B), &image(3, 2000)).unwrap();
    assert_eq!(card.boot().slot, A);
}

#[test]
fn an_update_that_is_replaced_before_it_was_tried() {
    let mut card = Card::running(1);
    card.update(B, Some(A), &image(2, 2000)).unwrap();
    card.begin(B, Some(A), &image(3, 2000)).unwrap();
    assert_eq!(card.store.state().wanted, A);
    let boot = card.boot();
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Healthy));
}

#[test]
fn wrong_images_are_refused_before_anything_is_erased() {
    let mut card = Card::running(1);
    let before = card.flash.0.cells().to_vec();
    let unsigned = parts(2).unsigned(&[1; 100]).unwrap().emit();
    assert_eq!(card.begin(B, Some(A), &unsigned), Err(StoreError::Refused(Refusal::Unsigned)));
    let truncated =
        card.store.begin(&mut card.flash, B, Some(A), &unsigned[..99], &requirements(&card.keys));
    let refused = Refusal::Truncated { have: 99, need: 256 };
    assert_eq!(truncated, Err(StoreError::Refused(refused)));
    assert_eq!(card.flash.0.cells(), before);
}

#[test]
fn a_payload_that_is_not_the_signed_one_fails() {
    let mut card = Card::running(1);
    let mut image = image(2, 2000);
    image[999] ^= 4;
    assert_eq!(card.update(B, Some(A), &image), Err(StoreError::Refused(Refusal::BadCrc)));
    assert_eq!(card.slot(B), SlotState::Failed { image: id(&image) });
    assert_eq!(card.want(B), Err(StoreError::NotBootable(B)));
    assert_eq!(card.boot().slot, A);
}

#[test]
fn damage_in_flash_is_noticed_at_boot() {
    let mut card = Card::running(1);
    card.update(B, Some(A), &image(2, 2000)).unwrap();
    card.boot();
    card.report_healthy(B).unwrap();
    let slot = layout().slot(B);
    card.flash.0.flip_random(slot.start + 256..slot.start + 2256, 1);
    let boot = card.boot();
    let why = WhyNot::Refused(Refusal::BadCrc);
    assert_eq!((boot.slot, boot.reason), (A, BootReason::Instead(why)));
    // The last one is not given up for good: the next boot looks again.
    let slot = layout().slot(A);
    card.flash.0.flip(slot.start + 300, 1);
    card.reset();
    assert_eq!(card.decide(), Decision::Recovery([why, WhyNot::Failed]));
    card.flash.0.flip(slot.start + 300, 1);
    assert_eq!(card.boot().slot, A);
}

#[test]
fn another_image_than_was_recorded() {
    let mut card = Card::running(1);
    let other = image(9, 3000);
    let slot = layout().slot(A);
    card.flash.0.preload(slot.start, &other);
    card.reset();
    let why = WhyNot::Refused(Refusal::NotAsRecorded);
    assert_eq!(card.decide(), Decision::Recovery([why, WhyNot::Empty]));
    // Who wrote it with a probe says so.
    card.store.adopt(&mut card.flash, A, &requirements(&card.keys)).unwrap();
    assert_eq!(card.boot().header.version.major, 9);
    card.flash.0.flip(slot.start + 300, 1);
    let wrong = card.store.adopt(&mut card.flash, A, &requirements(&card.keys));
    assert_eq!(wrong, Err(StoreError::Refused(Refusal::BadCrc)));
}

#[test]
fn slots_that_nothing_was_recorded_of() {
    let mut card = Card::new(1);
    card.flash.0.preload(layout().slot(A).start, &image(1, 3000));
    card.flash.0.preload(layout().slot(B).start, &image(2, 3000));
    let boot = card.boot();
    assert_eq!((boot.slot, boot.reason), (B, BootReason::Trying { left: BOOT_TRIES - 1 }));
    // The other one is there to go back to.
    for _ in 1..BOOT_TRIES {
        assert_eq!(card.boot().slot, B);
    }
    assert_eq!(card.boot().slot, A);
}

/// A flash that is read and takes nothing any more.
struct ReadOnly(Flash);

impl ErrorType for ReadOnly {
    type Error = Fault;
}

impl ReadNorFlash for ReadOnly {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Fault> {
        self.0.read(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl NorFlash for ReadOnly {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 1024;

    fn erase(&mut self, _: u32, _: u32) -> Result<(), Fault> {
        Err(Fault::Busy)
    }

    fn write(&mut self, _: u32, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::Busy)
    }
}

/// It boots what is good, and nothing that may be bad.
#[test]
fn flash_that_cannot_be_written() {
    let boot = |card: &Card| {
        let mut flash = ReadOnly(card.flash.clone());
        let mut store = BootStore::open(&mut flash, layout()).unwrap();
        store.decide(&mut flash, &requirements(&card.keys))
    };
    let mut card = Card::running(1);
    let Decision::Boot(healthy) = boot(&card) else { panic!() };
    assert_eq!((healthy.slot, healthy.reason), (A, BootReason::Healthy));
    card.update(B, Some(A), &image(2, 2000)).unwrap();
    let Decision::Boot(instead) = boot(&card) else { panic!() };
    let why = WhyNot::NotRecorded;
    assert_eq!((instead.slot, instead.reason), (A, BootReason::Instead(why)));
    let mut card = Card::new(1);
    card.update(A, None, &image(1, 2000)).unwrap();
    assert_eq!(boot(&card), Decision::Recovery([why, WhyNot::Empty]));
    // One that has no tries to lose needs no record.
    (0..BOOT_TRIES).for_each(|_| assert_eq!(card.boot().slot, A));
    card.update(B, None, &image(2, 2000)).unwrap();
    let Decision::Boot(again) = boot(&card) else { panic!() };
    assert_eq!((again.slot, again.reason), (A, BootReason::Again(why)));
    // Where it is not recorded whose turn it is, it is the same one's.
    (0..BOOT_TRIES).for_each(|_| assert_eq!(card.boot().slot, B));
    for _ in 0..2 {
        let Decision::Boot(again) = boot(&card) else { panic!() };
        assert_eq!((again.slot, again.reason), (B, BootReason::Again(WhyNot::TriesUsedUp)));
    }
}

/// Bytes of one byte each make the same image as one large piece.
#[test]
fn pieces_of_any_size() {
    let image = image(1, 3000);
    for size in [1, 255, 256, 257, 1024, 4096] {
        let mut card = Card::new(1);
        let Begun::At(mut at) = card.begin(A, None, &image).unwrap() else { panic!() };
        for piece in image[at as usize..].chunks(size) {
            card.write(at, piece).unwrap();
            at += piece.len() as u32;
        }
        card.finish().unwrap();
        let start = layout().slot(A).start as usize;
        assert_eq!(card.flash.0.cells()[start..start + image.len()], image);
        assert_eq!(card.flash.0.reprogrammed(), 0);
    }
}

/// Every state of both slots, at places of the journal that are in the middle of a block, at its
/// end, and at the end of the other one, and every event: cut at every step of recording it, the
/// state is the old one or the new one.
#[test]
fn every_transition_survives_a_power_cut() {
    let image = ImageId([1; 16]);
    let states = [
        SlotState::Empty,
        SlotState::Writing { image, done: 1024 },
        SlotState::Staged { image },
        SlotState::Trying { image, left: 1 },
        SlotState::Healthy { image },
        SlotState::Failed { image },
    ];
    let events = [
        SlotEvent::Begin(ImageId([2; 16])),
        SlotEvent::Progress(2048),
        SlotEvent::Written,
        SlotEvent::Adopt(ImageId([3; 16])),
        SlotEvent::Try,
        SlotEvent::Healthy,
        SlotEvent::Fail,
    ];
    let (mut old, mut new) = (0, 0);
    for (a, b) in states.iter().flat_map(|a| states.iter().map(move |b| (*a, *b))) {
        for records in [5, 16, 32] {
            let mut start = Card::new(u64::from(records));
            let state = BootState { slots: [a, b], ..BootState::NEW };
            for n in 0..records {
                let lowest_security = SecurityVersion(records - n - 1);
                start
                    .store
                    .record(&mut start.flash, BootState { lowest_security, ..state })
                    .unwrap();
            }
            for event in events {
                let Ok(after) = state.after(A, event) else { continue };
                let (olds, news) = cut_everywhere(&start, state, after);
                old += olds;
                new += news;
            }
        }
    }
    assert!(old > 1000 && new > 0, "{old} {new}");
}

fn cut_everywhere(start: &Card, state: BootState, after: BootState) -> (u32, u32) {
    let mut whole = start.clone();
    whole.store.record(&mut whole.flash, after).unwrap();
    if after == state {
        return (0, 0);
    }
    let steps = whole.flash.0.steps() - start.flash.0.steps();
    assert!(steps >= 64);
    let (mut old, mut new) = (0, 0);
    for step in 0..=steps {
        let mut card = start.clone();
        card.flash.0.cut_after(step);
        assert_eq!(card.store.record(&mut card.flash, after).is_ok(), step == steps);
        card.reset();
        let found = *card.store.state();
        old += u32::from(found == state);
        new += u32::from(found == after);
        assert!(step < steps || found == after);
        assert!(found == state || found == after, "step {step}: {found:?}");
    }
    (old, new)
}

/// A part says over a bus that may err how large it is.
#[test]
fn a_flash_that_says_that_it_is_smaller_is_an_error_and_no_panic() {
    let open = |size| {
        let mut flash: Flash =
            nor_model::Direct(nor_model::Nor::new(nor_model::Part::small(size), 1));
        BootStore::open(&mut flash, layout()).map(|store| store.header(&mut flash, SlotId::B))
    };
    assert!(matches!(open(16 << 10), Ok(Ok(Err(_)))), "it has a slot b, with no header");
    // What is there of it is read.
    assert_eq!(open(8 << 10).unwrap(), Err(nor_model::Fault::OutOfBounds));
    assert_eq!(open(2 << 10).unwrap_err(), nor_model::Fault::OutOfBounds);
}
