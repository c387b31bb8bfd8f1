//! Whole runs.

use super::*;

#[test]
fn one_seed_gives_one_run_and_another_one_another() {
    for name in ["storm", "manager"] {
        let profile = Profile::find(name).unwrap();
        let hash = |seed| Run::new(seed, &profile).go().hash;
        assert_eq!(hash(3), hash(3), "{name}");
        assert_ne!(hash(3), hash(4), "{name}");
    }
}

#[test]
fn some_seeds_of_every_profile_keep_every_promise() {
    for (name, _) in crate::profile::BUILT_IN.iter().filter(|(name, _)| *name != "bench") {
        let profile = Profile::find(name).unwrap();
        for seed in 0..5 {
            let outcome = Run::new(seed, &profile).go();
            assert_eq!(outcome.violation, None, "seed {seed} of {name}: {:#?}", outcome.story);
        }
    }
}

#[test]
fn a_schedule_that_breaks_something_is_made_short_and_plays_again() {
    // More work than a millisecond is enough for, and no time to end it.
    let mut profile = Profile::calm();
    (profile.time.busy_ms, profile.time.settle_ms) = (1, 0);
    (profile.work.bursts, profile.work.operations) = ([20, 20], [200, 200]);
    let whole = schedule::make(3, &profile);
    let found = crate::minimise::shrink(3, &profile, whole, |_, _| {}).expect("it is too much");
    assert!(found.schedule.len() < found.before, "{} entries", found.schedule.len());
    assert_eq!(found.outcome.violation.as_ref().unwrap().promise, 0);
    let again = Run::of(3, &profile, found.schedule).go();
    assert_eq!((again.hash, again.violation), (found.outcome.hash, found.outcome.violation));
}

#[test]
fn a_calm_fabric_works() {
    let outcome = Run::new(1, &Profile::calm()).go();
    assert_eq!(outcome.violation, None, "{:#?}", outcome.story);
    assert!(outcome.operations > 100 && outcome.tlps > 1000, "{outcome:?}");
}
