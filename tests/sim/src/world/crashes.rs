//! The manager dies at every write of its records, one after the other: made or not by turns, and
//! another life goes on from what is there. Or another one takes over now and then, with a copy of the
//! records, and the old one goes on for a while.

use super::*;
use crate::schedule::{Act, Entry, Site};

/// What an operator and a fabric can do to a device, one after the other, milliseconds apart.
fn story() -> Vec<Entry> {
    let acts = [
        (0u64, Act::Release { at_box: 0, slot: 0, force: false }),
        (0, Act::Release { at_box: 0, slot: 1, force: true }),
        (900, Act::DevicePulled { at_box: 0, slot: 0 }),
        (1200, Act::ProxyCrash { node: 0, tables: false }),
        (1200, Act::Release { at_box: 0, slot: 0, force: true }),
        (1800, Act::ProxyCrash { node: 2, tables: false }),
        (2000, Act::TakeBack { at_box: 0, slot: 1, grace_ms: 150 }),
        (2100, Act::ClockJump { by_ms: -60_000 }),
        (2300, Act::Extend { at_box: 0, slot: 0, lease_ms: 2500 }),
        (2400, Act::Replace { at_box: 0, slot: 1, force: false }),
        (2900, Act::Drain { site: Site::Slot { at_box: 0, slot: 0 }, replace: true }),
        (3500, Act::Drain { site: Site::Host { host: 1 }, replace: false }),
        (4000, Act::Drain { site: Site::Path { path: 1 }, replace: false }),
    ];
    let entry = |(id, (at_ms, act))| {
        let lasts =
            matches!(act, Act::DevicePulled { .. } | Act::ProxyCrash { .. } | Act::Drain { .. });
        let for_us = if lasts { 200_000 } else { 0 };
        Entry { id, at_us: at_ms * 1000, for_us, act }
    };
    (0..).zip(acts).map(entry).collect()
}

/// Two hosts and a box with three devices of two functions each, of which two are lent and go from one
/// host to the other.
fn profile() -> Profile {
    let mut profile = Profile::find("operator").unwrap();
    profile.fabric.boxes = 1;
    profile.fabric.spare = 1;
    profile.fabric.roams = true;
    profile.time.busy_ms = 4500;
    profile
}

/// Runs it with a manager that dies at its n-th write after it has given all nodes their numbers: how
/// often it died, and how many of these writes there were.
fn play(dies_at: Option<(u64, bool)>) -> (u64, u64) {
    let mut world = World::new(1, &profile(), story());
    while world.lender.manager().expect("it lends").known_nodes() < world.lives.len() {
        let until = world.now() + Duration::from_millis(1);
        world.step(until).unwrap();
    }
    let manager = world.lender.manager().expect("it lends");
    let before = manager.writes();
    if let Some((write, made)) = dies_at {
        manager.dies_at(write, made);
    }
    let verdict = world.run();
    assert!(verdict.is_ok(), "dies at {dies_at:?}: {verdict:?}: {:#?}", world.trace.story(20));
    let manager = world.lender.manager().expect("it lends");
    (manager.crashes, manager.writes().saturating_sub(before))
}

#[test]
fn whichever_write_a_manager_dies_at_the_next_one_goes_on() {
    let (died, writes) = play(None);
    assert_eq!(died, 0);
    assert!(writes > 60, "so much is written when nobody dies: {writes}");
    for write in 1..=writes {
        // Not made is as dead before it; made, as dead before the next one's time.
        let made = write % 2 == 0;
        assert_eq!(play(Some((write, made))).0, 1, "at write {write}, made: {made}");
    }
}

/// When the manager writes, after everything was lent.
fn times_of_writes() -> Vec<Duration> {
    let mut world = World::new(1, &profile(), story());
    let mut times = Vec::new();
    let mut written = 0;
    let busy = Duration::from_millis(world.profile.time.busy_ms);
    while world.began.is_none_or(|began| world.now() < began + busy) {
        let until = world.now() + Duration::from_micros(500);
        while world.step(until).unwrap() {}
        let now = world.lender.manager().expect("it lends").writes();
        if let Some(began) = world.began
            && now > written
        {
            times.push(world.now().saturating_since(began));
        }
        written = now;
    }
    times
}

#[test]
fn whenever_another_manager_takes_over_it_goes_on() {
    let times = times_of_writes();
    assert!(times.len() > 40, "{times:?}");
    for after in times.into_iter().step_by(3) {
        let mut story = story();
        let at_us = after.as_micros() as u64;
        let act = Act::ManagerTakeover;
        story.push(Entry { id: 100, at_us, for_us: 400_000, act });
        story.sort_by_key(|entry| entry.at_us);
        let mut world = World::new(1, &profile(), story);
        let verdict = world.run();
        assert!(verdict.is_ok(), "after {after:?}: {verdict:?}: {:#?}", world.trace.story(20));
    }
}
