//! Install and update with the power cut at every step: a card always boots a good image, and an
//! update that was stopped is gone on with and completes.

use std::vec::Vec;

use super::*;
use crate::test_card::*;
use crate::{Begun, Boot};
use SlotId::{A, B};

/// An update to version 2 with the resets that it needs, as a card and its manager do it.
fn update(card: &mut Card, image: &[u8]) -> Outcome<()> {
    card.update(B, Some(A), image)?;
    card.store = BootStore::open(&mut card.flash, layout()).map_err(StoreError::Flash)?;
    card.decide();
    card.report_healthy(B)
}

/// What boots is one of these images, whole.
fn assert_good(card: &Card, boot: &Boot, images: [&[u8]; 2]) {
    let image = images[usize::from(boot.header.version.major) - 1];
    let start = layout().slot(boot.slot).start as usize;
    assert_eq!(card.flash.0.cells()[start..start + image.len()], *image);
}

/// Goes on after a cut, to the end. Says how many of the image's bytes had to be written again.
fn go_on(card: &mut Card, images: [&[u8]; 2]) -> usize {
    let boot = card.boot();
    assert_good(card, &boot, images);
    let mut written = 0;
    if boot.slot == A {
        if let Begun::At(at) = card.begin(B, Some(A), images[1]).unwrap() {
            written = images[1].len() - at as usize;
            card.write(at, &images[1][at as usize..]).unwrap();
            card.finish().unwrap();
        }
        card.want(B).unwrap();
        let boot = card.boot();
        assert_eq!(boot.slot, B);
        assert_good(card, &boot, images);
    }
    card.report_healthy(B).unwrap();
    let boot = card.boot();
    assert_eq!((boot.slot, boot.header.version.major), (B, 2));
    assert!(matches!(card.slot(A), SlotState::Healthy { .. }));
    written
}

#[test]
fn the_power_is_cut_at_every_step_of_an_update() {
    let (one, two) = (image(1, 3000), image(2, 3300));
    let images = [&one[..], &two[..]];
    let start = Card::running(1);
    let mut whole = start.clone();
    update(&mut whole, &two).unwrap();
    assert_eq!(whole.flash.0.reprogrammed(), 0);
    let steps = whole.flash.0.steps() - start.flash.0.steps();
    assert!(steps > 3300, "{steps}");
    let mut rewritten = Vec::new();
    for step in 0..steps {
        let mut card = start.clone();
        card.flash.0.cut_after(step);
        assert!(update(&mut card, &two).is_err() || !card.flash.0.is_powered(), "step {step}");
        rewritten.push(go_on(&mut card, images));
    }
    // It goes on where it was, which is a unit of progress back at most.
    assert!(rewritten.is_sorted_by(|one, next| one >= next), "{rewritten:?}");
    let kinds: std::collections::BTreeSet<_> = rewritten.into_iter().collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [0, 484, 1508, 2532, 3300]);
}

#[test]
fn the_power_is_cut_at_every_step_of_the_first_installation() {
    let one = image(1, 1500);
    let start = Card::new(2);
    let mut whole = start.clone();
    whole.update(A, None, &one).unwrap();
    for step in 0..whole.flash.0.steps() {
        let mut card = start.clone();
        card.flash.0.cut_after(step);
        assert!(card.update(A, None, &one).is_err());
        card.reset();
        // A boot loader that has nothing else, or the image.
        card.decide();
        card.update(A, None, &one).unwrap();
        let boot = card.boot();
        assert_good(&card, &boot, [&one, &one]);
        card.report_healthy(A).unwrap();
    }
}

/// A card whose only image has used up its starts is updated by a probe: until the new image is there
/// it goes on starting the one that it has.
#[test]
fn the_power_is_cut_at_every_step_of_an_update_beside_starts_that_are_used_up() {
    let (one, two) = (image(1, 1500), image(2, 1300));
    let mut start = Card::new(3);
    start.update(A, None, &one).unwrap();
    (0..crate::BOOT_TRIES).for_each(|_| assert_eq!(start.boot().slot, A));
    let mut whole = start.clone();
    whole.update(B, None, &two).unwrap();
    let steps = whole.flash.0.steps() - start.flash.0.steps();
    let mut started = [0, 0];
    for step in 0..=steps {
        let mut card = start.clone();
        card.flash.0.cut_after(step);
        assert_eq!(card.update(B, None, &two).is_ok(), step == steps);
        let boot = card.boot();
        assert_good(&card, &boot, [&one, &two]);
        started[boot.slot.index()] += 1;
    }
    assert!(started[0] > 1300 && started[1] > 0, "{started:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    /// Power cuts whenever they like, one after the other.
    #[test]
    fn power_cuts_at_any_time(seed: u64, cuts in proptest::collection::vec(0..4000_u64, 1..12)) {
        let (one, two) = (image(1, 3000), image(2, 3300));
        let images = [&one[..], &two[..]];
        let mut card = Card::running(seed);
        for cut in cuts {
            let boot = card.boot();
            assert_good(&card, &boot, images);
            card.flash.0.cut_after(cut);
            if boot.slot == A {
                let _ = update(&mut card, &two);
            } else {
                let _ = card.report_healthy(B);
            }
        }
        card.reset();
        go_on(&mut card, images);
    }
}
