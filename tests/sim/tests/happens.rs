//! What a profile is for happens in it, within a few seeds; a watch that is never needed says
//! nothing.

use sim::profile::Profile;
use sim::run::Run;
use std::collections::BTreeMap;

/// What happened in so many seeds of a profile, which keep every promise.
fn happened(name: &str, seeds: u64) -> BTreeMap<&'static str, u64> {
    let profile = Profile::find(name).expect("it is built in");
    let mut sums = BTreeMap::new();
    for seed in 0..seeds {
        let outcome = Run::new(seed, &profile).go();
        assert_eq!(outcome.violation, None, "seed {seed} of {name}: {:#?}", outcome.story);
        for (what, count) in outcome.happened {
            *sums.entry(what).or_default() += count;
        }
    }
    sums
}

fn check(name: &str, wanted: &[(&str, u64)]) {
    check_in(5, name, wanted);
}

fn check_in(seeds: u64, name: &str, wanted: &[(&str, u64)]) {
    let sums = happened(name, seeds);
    println!("{name}: {sums:#?}");
    for (what, least) in wanted {
        let count = sums.get(what).copied().unwrap_or_default();
        assert!(count >= *least, "{name}: {count} {what}, and not {least}");
    }
}

#[test]
fn bindings_reach_their_limits() {
    check("shares", &[("limits reached", 1000)]);
}

#[test]
fn bindings_choose_among_paths_of_which_there_are_more_and_fewer() {
    let wanted = [
        ("TLPs with a choice of paths", 5000),
        ("TLPs beside their paths", 100),
        ("changes of the number of paths", 20),
        ("frames lost where the other direction went on", 100),
    ];
    check("paths", &wanted);
}

#[test]
fn devices_ask_each_other() {
    let wanted = [
        ("TLPs between devices", 10_000),
        ("TLPs between devices by a root complex", 1000),
        ("transfers between devices that were right", 1000),
    ];
    check("peers", &wanted);
}

#[test]
fn further_functions_do_work() {
    check("functions", &[("operations of further functions", 500)]);
}

#[test]
fn settings_change_in_the_middle_of_work() {
    let wanted = [
        ("functions without bus master", 5),
        ("functions without memory space", 5),
        ("functions in D3hot", 5),
        ("functions whose registers were moved", 5),
        ("ports without bus master", 5),
        ("ports without memory space", 5),
        ("ports in D3hot", 5),
        ("requests to devices behind closed windows", 100),
        ("requests to functions that do not decode", 100),
        ("reads and atomics of devices that their port refused", 20),
        ("transfers that were lost", 20),
    ];
    check("configuration", &wanted);
}

#[test]
fn root_complexes_do_not_take_everything() {
    check("calm", &[("TLPs past what a root complex did not take", 100)]);
}

#[test]
fn devices_take_nothing_for_too_long() {
    check("hung", &[("TLPs given up for devices that take nothing", 50)]);
}

#[test]
fn the_managers_own_code_lends_on_terms() {
    let wanted = [
        ("limits reached", 50),
        ("TLPs with a choice of paths", 2000),
        ("operations of further functions", 30),
    ];
    check("lending", &wanted);
}

#[test]
fn the_operator_gets_what_it_asks_for() {
    let wanted = [
        ("devices replaced", 3),
        ("places emptied", 3),
        ("operations called back", 1),
        ("devices taken back", 3),
        ("leases over", 3),
        ("leases extended", 1),
    ];
    // It calls something back now and then only.
    check_in(20, "operator", &wanted);
}

#[test]
fn tlps_are_of_every_kind() {
    let wanted = [
        ("TLPs of a traffic class above 0", 2000),
        ("TLPs with no snoop", 1000),
        ("TLPs with steering hints", 1000),
        ("TLPs with prefixes", 2000),
        ("TLPs with a digest", 2000),
        ("TLPs with a wrong digest", 500),
        ("poisoned TLPs", 1000),
        ("messages", 500),
        ("turns of wires", 20),
        ("reads of no bytes", 200),
        ("writes and reads of many bytes of devices", 200),
        ("swaps of devices", 200),
    ];
    check("kinds", &wanted);
}

#[test]
fn root_complexes_answer_late_and_lie() {
    let wanted = [("late answers of root complexes", 40), ("lies of root complexes", 200)];
    check("roots", &wanted);
}
