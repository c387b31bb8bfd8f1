//! Whole runs.

use super::shares::{FAST_HOST, Narrow, SLOW_HOST};
use super::*;
use crate::host::driver::Task;
use crate::schedule::Act;
use proxy_core::limits::MAX_PEERS;
use std::time::Duration;

/// The profiles in the folder, each with all of its faults and with short bursts of work, within a few
/// milliseconds.
fn short_profiles() -> Vec<(String, Profile)> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles")).unwrap();
    let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let short = |path: std::path::PathBuf| {
        let name = path.to_str().expect("a name in UTF-8").to_owned();
        let mut profile = Profile::find(&name).unwrap();
        profile.time.busy_ms = profile.time.busy_ms.min(30);
        profile.work.operations = profile.work.operations.map(|most| most.min(20));
        (name, profile)
    };
    paths.into_iter().map(short).collect()
}

#[test]
fn one_seed_gives_one_run_and_another_one_another() {
    let profiles = short_profiles();
    assert!(profiles.len() >= crate::profile::BUILT_IN.len(), "{profiles:?}");
    for (name, profile) in profiles {
        let hash = |seed| {
            let outcome = Run::new(seed, &profile).go();
            assert_eq!(outcome.violation, None, "{name}: {seed}");
            outcome.hash
        };
        // What draws lots does so now and then only.
        for seed in [2, 3, 5] {
            let first = hash(seed);
            assert!((0..2).all(|_| hash(seed) == first), "{name}: {seed}");
        }
        assert_ne!(hash(3), hash(4), "{name}");
    }
}

#[test]
fn some_seeds_of_every_profile_keep_every_promise() {
    for name in crate::profile::quick() {
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
    assert!(outcome.operations > 100 && outcome.tlps > 900, "{outcome:?}");
}

#[test]
fn incast_fills_the_cable_and_not_the_queue() {
    for (boxes, cable) in INCAST.iter().flat_map(|n| CABLES.iter().map(|cable| (*n, *cable))) {
        assert!(incast(boxes, cable).marked > 0, "switches that mark do");
    }
}

/// Ethernet alone has no marks: then delay and losses say it all.
#[test]
fn incast_fills_the_cable_where_nothing_is_marked() {
    for (boxes, cable) in INCAST.iter().flat_map(|n| CABLES.iter().map(|cable| (*n, *cable))) {
        assert_eq!(incast(boxes, Narrow { mark_kb: 0, ..cable }).marked, 0);
    }
}

/// As many as fit the queue with large frames, more than do, and as many as a host may have.
const INCAST: [usize; 3] = [8, 16, MAX_PEERS];

/// Cards have not enough under way for the queue of a fast one.
const CABLES: &[Narrow] =
    if cfg!(dxpu_limits = "card") { &[SLOW_HOST] } else { &[SLOW_HOST, FAST_HOST] };

/// Boxes write into one host as fast as its cable and a good part more than its queue takes.
fn incast(boxes: usize, cable: Narrow) -> Frames {
    let Narrow { rate_mbps, mark_kb, .. } = cable;
    let is_slow = rate_mbps == SLOW_HOST.rate_mbps;
    let mut profile = Profile::find("incast").unwrap();
    cable.set(&mut profile);
    profile.fabric.boxes = boxes;
    // Some 50 ms.
    let (operations, bytes) = (rate_mbps * 8 / 5 / boxes as u64, 4096);
    let burst = |port| {
        let act = Act::Work { host: 0, port, task: Task::DmaWrites, operations };
        Entry { id: port as u32, at_us: 0, for_us: 0, act }
    };
    (profile.work.bytes, profile.time.busy_ms) = ([bytes, bytes], 1);
    let mut world = World::new(1, &profile, (0..boxes).map(burst).collect());
    let whole = operations * boxes as u64;
    let step = |world: &mut World| {
        let until = world.now() + Duration::from_micros(100);
        while world.step(until).expect("no promise is broken") {}
    };
    while world.done() == 0 {
        step(&mut world);
    }
    let began = world.now();
    let before = world.done();
    let (mut quarter, mut shares) = (None, None);
    let mut progress = vec![(0, began); boxes];
    let mut longest = Duration::ZERO;
    while world.done() < whole {
        step(&mut world);
        let done = world.done_by_port(0);
        for ((before, since), now) in progress.iter_mut().zip(&done) {
            if before != now {
                (*before, *since) = (*now, world.now());
            } else if *now < operations {
                longest = longest.max(world.now().saturating_since(*since));
            }
        }
        if world.done() > whole / 4 {
            let before = quarter.get_or_insert_with(|| done.clone());
            // Until the first one has no more to do.
            if shares.is_none() && (world.done() > whole * 3 / 4 || done.contains(&operations)) {
                shares = Some(done.iter().zip(&*before).map(|(now, then)| now - then).collect());
            }
        }
    }
    let took = world.now().saturating_since(began).as_secs_f64();
    let goodput = ((whole - before) * bytes * 8) as f64 / took / 1e6 / rate_mbps as f64;
    let mut shares: Vec<u64> = shares.expect("there was a time when all had something to do");
    shares.sort_unstable();
    let frames = world.frames();
    println!(
        "{boxes} boxes, marked above {mark_kb} KB: {goodput:.2} of {rate_mbps} Mbit/s, {frames:?}, for \
         {longest:?} nothing came of one, shares {shares:?}"
    );
    let few = boxes == INCAST[0];
    assert!(goodput > if few { 0.85 } else { 0.83 }, "{goodput:.2} of {rate_mbps} Mbit/s");
    let (least, middle, most) = (shares[0], shares[boxes / 2], shares[boxes - 1]);
    if few && mark_kb == 0 {
        assert!(least * 10 > most * 9, "shares {shares:?}");
    }
    if mark_kb > 0 || few {
        assert_eq!(frames.lost, 0, "{frames:?}");
        assert!(longest < Duration::from_millis(1), "{longest:?}");
        assert!(least * 10 > middle * if is_slow { 7 } else { 6 }, "shares {shares:?}");
    } else {
        // Without marks the queue is full before anybody hears of it, if there is as much to send.
        let fills = cfg!(not(dxpu_limits = "card"));
        assert!(!is_slow || fills == (frames.lost > 0), "{frames:?}");
        assert!(frames.lost * 20 < frames.sent, "{frames:?}");
        assert!(longest < Duration::from_millis(30), "{longest:?}");
        assert!(least * 4 > middle, "shares {shares:?}");
    }
    frames
}
