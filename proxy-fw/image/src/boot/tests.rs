//! What is decided for any two slots.

use std::vec::Vec;

use super::*;
use crate::SecurityVersion;
use crate::header::ImageId;
use crate::test_card::*;
use crate::{Begun, Refusal};
use SlotId::{A, B};

/// A state of a slot with this image, and whether the image in it is right.
type Kind = (fn(ImageId) -> SlotState, bool);

const KINDS: [Kind; 11] = [
    (|_| SlotState::Empty, false),
    (|image| SlotState::Writing { image, done: 1024 }, true),
    (|image| SlotState::Failed { image }, true),
    (|image| SlotState::Staged { image }, true),
    (|image| SlotState::Staged { image }, false),
    (|image| SlotState::Trying { image, left: 1 }, true),
    (|image| SlotState::Trying { image, left: 1 }, false),
    (|image| SlotState::Trying { image, left: 0 }, true),
    (|image| SlotState::Trying { image, left: 0 }, false),
    (|image| SlotState::Healthy { image }, true),
    (|image| SlotState::Healthy { image }, false),
];

/// A card of which this is recorded, with images in its slots that are right or not.
fn card(kinds: [usize; 2], wanted: SlotId) -> Card {
    let mut card = Card::new(1);
    let images = [image(1, 600), image(2, 600)];
    for (slot, image) in SlotId::ALL.into_iter().zip(&images) {
        let start = layout().slot(slot).start;
        card.flash.0.preload(start, image);
        if !KINDS[kinds[slot.index()]].1 {
            card.flash.0.flip(start + 300, 1);
        }
    }
    let states = [0, 1].map(|n| {
        let (state, _) = KINDS[kinds[n]];
        state(Header::parse(&images[n]).unwrap().id())
    });
    let state = BootState { slots: states, wanted, lowest_security: SecurityVersion(1) };
    card.store.record(&mut card.flash, state).unwrap();
    card.reset();
    assert_eq!(*card.store.state(), state);
    card
}

/// Every pair of states, of images that are right and wrong, and either slot wanted.
#[test]
fn any_two_slots() {
    let (mut again, mut turns, mut recovered) = (0, 0, 0);
    let pairs: Vec<_> =
        (0..KINDS.len()).flat_map(|a| (0..KINDS.len()).map(move |b| [a, b])).collect();
    for (kinds, wanted) in pairs.iter().flat_map(|kinds| [(*kinds, A), (*kinds, B)]) {
        let mut card = card(kinds, wanted);
        let before = *card.store.state();
        let order = [wanted, wanted.other()];
        let is_right = |slot: &SlotId| KINDS[kinds[slot.index()]].1;
        let left = |slot: &SlotId| match before.slot(*slot) {
            SlotState::Staged { .. } => Some(crate::BOOT_TRIES),
            SlotState::Trying { left, .. } => Some(left),
            SlotState::Healthy { .. } => Some(u8::MAX),
            _ => None,
        };
        let by_tries = |slot: &SlotId| is_right(slot) && left(slot).is_some_and(|left| left > 0);
        let used_up = |slot: &SlotId| is_right(slot) && left(slot) == Some(0);
        let steps = card.flash.0.steps();
        let decision = card.decide();
        let after = *card.store.state();
        let what = std::format!("{before:?}: {decision:?}");
        let chosen = match &decision {
            Decision::Boot(boot) => Some(boot.slot),
            Decision::Recovery(_) => None,
        };
        if let Some(slot) = order.into_iter().find(by_tries) {
            assert_eq!((chosen, after.wanted), (Some(slot), slot), "{what}");
            assert_eq!(Ok(after.slot(slot)), before.slot(slot).after(SlotEvent::Try), "{what}");
            let other = slot.other();
            let given_up = slot != wanted && left(&other).is_some();
            let expected = match before.slot(other).image() {
                Some(image) if given_up => SlotState::Failed { image },
                _ => before.slot(other),
            };
            assert_eq!(after.slot(other), expected, "{what}");
            continue;
        }
        let expected = order.into_iter().find(used_up);
        assert_eq!(chosen, expected, "{what}");
        if SlotId::ALL.iter().all(used_up) {
            let Decision::Boot(boot) = &decision else { panic!("{what}") };
            assert_eq!(boot.reason, BootReason::Again(WhyNot::TriesUsedUp), "{what}");
            let turned = BootState { wanted: wanted.other(), ..before };
            assert_eq!(after, turned, "it is the other one's turn: {what}");
            assert_eq!((card.boot().slot, card.boot().slot), (wanted.other(), wanted));
            turns += 1;
            continue;
        }
        assert_eq!((after, card.flash.0.steps()), (before, steps), "nothing is recorded: {what}");
        match decision {
            Decision::Boot(boot) => {
                again += 1;
                assert!(matches!(boot.reason, BootReason::Again(_)), "{what}");
                assert_eq!(card.boot(), boot, "and so on");
            }
            Decision::Recovery(why) => {
                recovered += 1;
                assert!(!why.contains(&WhyNot::TriesUsedUp), "{what}");
            }
        }
    }
    // Beside what cannot be started, of which there are seven kinds, in either slot; and both.
    assert_eq!((again, turns, recovered), (2 * 7 * 2, 2, 7 * 7 * 2));
}

/// What somebody sees with a probe is what is started then.
#[test]
fn what_is_to_be_started() {
    for (a, b) in (0..KINDS.len()).flat_map(|a| (0..KINDS.len()).map(move |b| (a, b))) {
        for wanted in SlotId::ALL {
            let mut card = card([a, b], wanted);
            let (state, steps) = (*card.store.state(), card.flash.0.steps());
            let look = card.look();
            assert_eq!((*card.store.state(), card.flash.0.steps()), (state, steps));
            let wrong = [a, b].map(|kind| (kind > 2 && !KINDS[kind].1).then_some(Refusal::BadCrc));
            assert_eq!(look.wrong, wrong, "{state:?}");
            let started = match card.decide() {
                Decision::Boot(boot) => Some(boot.slot),
                Decision::Recovery(_) => None,
            };
            assert_eq!(look.next, started, "{state:?}");
        }
    }
}

/// The only image that is started has used up its starts, and the one that was healthy is damaged: that
/// one is overwritten, and a cut meanwhile leaves the other one.
#[test]
fn what_is_wrong_is_overwritten() {
    let healthy = KINDS.len() - 1;
    let used_up = 7;
    let mut card = card([used_up, healthy], B);
    let look = card.look();
    assert_eq!((look.wrong, look.next), ([None, Some(Refusal::BadCrc)], Some(A)));
    // The image that it was, and another one.
    for image in [image(2, 600), image(3, 700)] {
        let mut card = card.clone();
        let begun = card.begin(B, None, &image);
        assert_ne!(begun, Ok(Begun::At(256)), "it was not looked at: {begun:?}");
        card.store.give_up(&mut card.flash, B).unwrap();
        assert_eq!(card.begin(B, None, &image), Ok(Begun::At(256)));
        let mut cut = card.clone();
        let boot = cut.boot();
        assert_eq!((boot.slot, boot.reason), (A, BootReason::Again(WhyNot::Unfinished)));
        card.update(B, None, &image).unwrap();
        assert_eq!(card.boot().slot, B);
    }
}

/// What the boot loader does not start is none to go back to: the image beside it is the only good one.
#[test]
fn the_only_good_image_is_kept_whatever_was_recorded() {
    let (right, wrong) = (KINDS.len() - 2, KINDS.len() - 1);
    let [there, new] = [2, 3].map(|major| Header::parse(&image(major, 600)).unwrap().id());
    for (a, takes) in [(right, true), (wrong, false), (3, false)] {
        let mut card = card([a, right], B);
        let look = card.look();
        assert_eq!(card.store.may_take(&look, B, new), takes, "{a}");
        assert!(card.store.may_take(&look, B, there), "nothing is written");
        assert!(card.store.may_take(&look, A, new));
    }
}

/// Images that somebody wrote without recording it: another one is written beside the newer one, and a
/// cut meanwhile leaves that.
#[test]
fn what_was_not_recorded_is_kept() {
    let with = |images: [Option<u16>; 2]| {
        let mut card = Card::new(5);
        for (slot, major) in SlotId::ALL.into_iter().zip(images) {
            let bytes = major.map_or(Vec::new(), |major| image(major, 600));
            card.flash.0.preload(layout().slot(slot).start, &bytes);
        }
        card.store.record_found(&mut card.flash, &requirements(&card.keys)).unwrap();
        card
    };
    for (images, kept) in [([Some(1), None], A), ([None, Some(1)], B), ([Some(2), Some(1)], A)] {
        let mut card = with(images);
        assert_eq!(card.look().next, Some(kept));
        assert_eq!(card.begin(kept.other(), None, &image(3, 700)), Ok(Begun::At(256)));
        let mut cut = card.clone();
        assert_eq!(cut.boot().slot, kept, "a cut");
        card.update(kept.other(), None, &image(3, 700)).unwrap();
        assert_eq!(card.boot().slot, kept.other());
    }
    // Of a card that has none nothing is recorded, nor of one whose state is known.
    let mut card = with([None; 2]);
    assert!(!card.store.is_recorded());
    card.update(A, None, &image(1, 600)).unwrap();
    card.flash.0.preload(layout().slot(B).start, &image(9, 600));
    let before = *card.store.state();
    card.store.record_found(&mut card.flash, &requirements(&card.keys)).unwrap();
    assert_eq!(*card.store.state(), before);
}

#[test]
fn a_key_that_is_not_given_may_be_the_boot_loaders() {
    let card = card([9, 10], A);
    let look = |flash: &mut _| card.store.look(flash, &requirements(&[])).unwrap();
    let seen = look(&mut card.flash.clone());
    assert_eq!((seen.wrong, seen.next), ([None, Some(Refusal::BadCrc)], Some(A)));
    // Another image than was recorded is another one whoever has signed it.
    let mut flash = card.flash.clone();
    flash.0.preload(layout().slot(A).start, &image(3, 600));
    let seen = look(&mut flash);
    assert_eq!((seen.wrong[0], seen.next), (Some(Refusal::NotAsRecorded), None));
    let security = SecurityVersion(0);
    let old = signed(crate::ImageParts { security, ..parts(1) }, &[1; 600]);
    flash.0.preload(layout().slot(A).start, &old);
    assert!(matches!(look(&mut flash).wrong[0], Some(Refusal::Downgrade { .. })));
}
