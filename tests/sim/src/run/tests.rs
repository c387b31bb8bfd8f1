//! Whole runs.

use super::*;

#[test]
fn one_seed_gives_one_run_and_another_one_another() {
    let profile = Profile::find("storm").unwrap();
    let hash = |seed| Run::new(seed, &profile).go().hash;
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}

#[test]
fn a_calm_fabric_works() {
    let outcome = Run::new(1, &Profile::calm()).go();
    assert_eq!(outcome.violation, None, "{:#?}", outcome.story);
    assert!(outcome.operations > 100 && outcome.tlps > 1000, "{outcome:?}");
}
