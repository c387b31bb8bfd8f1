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
        ("frames lost: the path is dead", 100),
        ("frames lost: the path is dead one way", 100),
        ("frames lost: the cable is dead for a while", 20),
        ("frames lost: the switch is being rebooted", 100),
        ("frames that a delay spike held up", 5),
    ];
    // A cable dies by itself in every fifth of them.
    check_in(15, "paths", &wanted);
}

#[test]
fn a_network_loses_doubles_damages_and_delays() {
    let wanted = [
        ("frames lost: on the cable", 100),
        ("frames lost: damaged, and the FCS says so", 500),
        ("frames lost: larger than the MTU", 2),
        ("frames lost: the node is cut off", 30),
        ("frames lost: the node is cut off one way", 10),
        ("frames that a pause held up", 10),
        ("frames that a delay spike held up", 20),
        ("frames that were late by themselves", 200),
        ("frames that others overtook", 100),
        ("frames that came again", 100),
        ("damaged frames that came", 500),
    ];
    check_in(20, "lossy", &wanted);
}

#[test]
fn memory_lies() {
    let wanted =
        [("TLPs that were changed in right frames", 10), ("damaged frames that came", 500)];
    check("memory", &wanted);
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "what cards have under way fills no queue so far")]
fn long_queues_mark_frames() {
    check_in(10, "incast", &[("frames that were marked", 5)]);
}

#[test]
fn nodes_die_stand_still_and_begin_anew() {
    let wanted = [
        ("hosts' proxies that died", 10),
        ("hosts' proxies that died, but for their tables", 2),
        ("boxes' proxies that died", 8),
        ("boxes' proxies that died, but for their tables", 4),
        ("entries of tables that were written again", 20),
        ("nodes that stood still", 4),
        ("frames that waited at a node that stood still", 20),
        ("control messages that waited at a node that stood still", 2),
        ("control connections that were lost", 10),
        ("hosts that began anew with PERST#", 4),
        ("devices that were held in PERST#", 3),
        ("hosts that began anew without a word", 6),
        ("devices released", 20),
        ("devices released by force", 15),
        ("bindings that a proxy gave up when it was asked to", 100),
        // Nothing else is late there.
        ("frames that others overtook", 200),
    ];
    check_in(20, "nodes", &wanted);
}

#[test]
fn devices_misbehave() {
    let wanted = [
        ("requests to devices that hung", 100),
        ("late answers of devices", 15),
        ("answers that devices gave twice", 20),
        ("wrong answers of devices", 50),
        ("answers too many of devices", 500),
        ("writes of floods that came to a root complex", 5000),
        ("writes of devices astray", 3000),
        ("TLPs of devices that may come out nowhere", 500),
        ("TLPs astray that came to a root complex", 3000),
        ("devices that were pulled", 10),
        ("devices that were put back", 10),
        ("buses that hosts reset", 15),
        ("functions that hosts began to reset", 10),
        ("functions that their hosts reset", 10),
    ];
    check_in(20, "devices", &wanted);
}

#[test]
fn devices_answer_when_nobody_waits_any_more() {
    let wanted = [
        ("late answers of devices", 30),
        ("requests to devices that hung", 50),
        ("devices released by force", 10),
        ("hosts that began anew with PERST#", 2),
        ("hosts that began anew without a word", 1),
    ];
    check_in(10, "slow", &wanted);
}

#[test]
fn hosts_reset_in_the_middle_of_work() {
    let wanted = [
        ("buses that hosts reset", 10),
        ("functions that their hosts reset", 6),
        ("hosts that began anew with PERST#", 2),
        ("hosts that began anew without a word", 1),
        ("devices that were held in PERST#", 4),
        ("frames lost: the path is dead one way", 50),
    ];
    check_in(10, "reset", &wanted);
}

#[test]
fn bindings_come_and_go_while_all_is_held_up() {
    let wanted = [
        ("devices released", 5),
        ("devices released by force", 20),
        ("bindings that a proxy gave up when it was asked to", 70),
        ("devices that were pulled", 25),
        ("devices that were put back", 25),
        ("control connections that were lost", 5),
        ("nodes that stood still", 2),
        ("frames that waited at a node that stood still", 10),
        ("frames that a pause held up", 100),
        ("frames that others overtook", 300),
        ("frames lost: on the cable", 500),
    ];
    check("release", &wanted);
}

#[test]
fn drives_meet_everything() {
    let wanted = [
        ("requests to devices that hung", 2),
        ("devices that were pulled", 10),
        ("devices released", 15),
        ("devices released by force", 10),
        ("buses that hosts reset", 4),
        ("functions that their hosts reset", 2),
        ("hosts' proxies that died", 4),
        ("hosts' proxies that died, but for their tables", 4),
        ("boxes' proxies that died", 4),
        ("boxes' proxies that died, but for their tables", 4),
        ("hosts that began anew with PERST#", 2),
        ("hosts that began anew without a word", 1),
        ("nodes that stood still", 3),
        ("control connections that were lost", 4),
        ("frames lost: the node is cut off", 300),
        ("frames lost: the path is dead", 20),
        ("frames lost: the path is dead one way", 100),
        ("frames lost: larger than the MTU", 50),
        ("frames that a pause held up", 20),
        ("frames that others overtook", 50),
    ];
    check_in(20, "nvme", &wanted);
}

#[test]
fn everything_happens_at_once() {
    let wanted = [
        ("frames lost: on the cable", 100),
        ("frames lost: damaged, and the FCS says so", 1000),
        ("frames lost: larger than the MTU", 20),
        ("frames lost: the node is cut off", 300),
        ("frames lost: the node is cut off one way", 300),
        ("frames lost: the path is dead", 50),
        ("frames lost: the path is dead one way", 30),
        ("frames lost: the switch is being rebooted", 200),
        ("frames that a pause held up", 10),
        ("frames that a delay spike held up", 5),
        ("frames that others overtook", 200),
        ("frames that came again", 100),
        ("damaged frames that came", 500),
        ("hosts' proxies that died", 4),
        ("hosts' proxies that died, but for their tables", 3),
        ("boxes' proxies that died", 4),
        ("boxes' proxies that died, but for their tables", 2),
        ("nodes that stood still", 3),
        ("hosts that began anew with PERST#", 2),
        ("hosts that began anew without a word", 1),
        ("control connections that were lost", 4),
        ("devices released", 10),
        ("devices released by force", 10),
        ("devices that were pulled", 4),
        ("devices that took nothing, and then did again", 3),
        ("requests to devices that hung", 20),
        ("late answers of devices", 2),
        ("wrong answers of devices", 5),
        ("writes of floods that came to a root complex", 1000),
        ("writes of devices astray", 300),
        ("buses that hosts reset", 2),
        ("functions that their hosts reset", 2),
    ];
    check_in(30, "storm", &wanted);
}

#[test]
fn the_manager_dies_is_slow_and_is_taken_over() {
    let wanted = [
        ("deaths of managers", 10),
        ("managers that were taken over", 3),
        ("control messages that a slow manager held up", 30),
        ("control messages that were lost with their connection", 20),
        ("control messages that waited at a node that stood still", 8),
        ("control connections that were lost", 5),
        ("nodes that stood still", 8),
        ("hosts' proxies that died", 3),
        ("hosts' proxies that died, but for their tables", 3),
        ("boxes' proxies that died", 5),
        ("boxes' proxies that died, but for their tables", 4),
        ("entries of tables that were written again", 20),
        ("devices released", 8),
        ("devices released by force", 15),
        ("hosts that began anew with PERST#", 3),
        ("hosts that began anew without a word", 4),
        ("frames lost: the node is cut off", 100),
        ("devices that were pulled", 10),
        ("devices that took nothing, and then did again", 3),
        ("requests to devices that hung", 20),
        ("answers that devices gave twice", 5),
        ("wrong answers of devices", 30),
        ("writes of floods that came to a root complex", 1000),
        ("writes of devices astray", 1000),
        ("buses that hosts reset", 2),
        ("functions that their hosts reset", 1),
    ];
    check_in(20, "manager", &wanted);
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
    let wanted = [
        ("TLPs given up for devices that take nothing", 50),
        ("devices that took nothing, and then did again", 3),
    ];
    check("hung", &wanted);
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
        ("jumps of wall clocks", 10),
        ("deaths of managers", 5),
        ("managers that were taken over", 3),
        ("requests of a manager that is in charge no more", 2),
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
