//! The protocol, explored; and the tables of the manager's code beside what was explored.

use manager::reconcile::action::Action;
use manager::types::Phase;
use protocol_model::{Bounds, Bug, Protocol, Seen, phase_number};
use proxy_core::control::Removal;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

/// How many threads explore.
const THREADS: usize = 2;

/// Everything that is not said does not happen.
const NOTHING: Bounds = Bounds {
    allocations: 0,
    releases: 0,
    forces: 0,
    losses: 0,
    crashes: 0,
    takeovers: 0,
    box_restarts: 0,
    host_restarts: 0,
    forgets: 0,
    tlps: 0,
};

/// What is explored, all orders of each. Together a minute and a half on a
/// quiet machine.
const EXPLORED: [Bounds; 11] = [
    // What no trouble comes between.
    Bounds { allocations: 3, releases: 1, forces: 2, tlps: 1, ..NOTHING },
    Bounds { allocations: 2, releases: 1, losses: 1, ..NOTHING },
    Bounds { allocations: 1, forces: 1, losses: 1, tlps: 1, ..NOTHING },
    // The manager is killed at every step.
    Bounds { allocations: 2, releases: 1, crashes: 1, ..NOTHING },
    Bounds { allocations: 1, forces: 1, crashes: 1, tlps: 1, ..NOTHING },
    Bounds { allocations: 1, crashes: 1, box_restarts: 1, ..NOTHING },
    // The proxies are.
    Bounds { allocations: 1, releases: 1, box_restarts: 1, ..NOTHING },
    Bounds { allocations: 1, host_restarts: 1, ..NOTHING },
    // A table loses an entry.
    Bounds { allocations: 1, releases: 1, forgets: 1, ..NOTHING },
    Bounds { allocations: 1, forces: 1, forgets: 1, ..NOTHING },
    // A second manager takes over from a backup while the first one goes on.
    Bounds { allocations: 1, takeovers: 1, ..NOTHING },
];

fn explore(bounds: Bounds, bug: Option<Bug>, until: HasDiscoveries) -> impl Checker<Protocol> {
    let begun = Instant::now();
    let checker = Protocol::new(bounds, bug).checker().threads(THREADS).finish_when(until);
    let checker = checker.spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{bounds:?} {bug:?}: {states} states, {:?}", begun.elapsed());
    checker
}

/// The first promise that does not hold, and how it comes about.
fn broken(checker: &impl Checker<Protocol>) -> Option<String> {
    let broken = checker.discoveries().into_iter().find(|(name, _)| !name.starts_with("a "));
    broken.map(|(name, path)| format!("{name}: {:#?}", path.into_actions()))
}

#[test]
fn every_promise_holds_and_the_code_does_what_its_tables_say() {
    let mut seen = Seen::default();
    for bounds in EXPLORED {
        let checker = explore(bounds, None, HasDiscoveries::AnyFailures);
        assert_eq!(broken(&checker), None);
        assert!(checker.discovery("a host reaches the device").is_some(), "nothing was lent");
        let by_second = checker.discovery("a second manager lends it").is_some();
        assert_eq!(by_second, bounds.takeovers > 0, "whether a second manager lent it");
        let there = checker.model().seen.lock().unwrap();
        for (pair, count) in &there.phases {
            *seen.phases.entry(*pair).or_default() += count;
        }
        seen.actions.extend(there.actions.clone());
    }
    compare_phases(&seen);
    compare_actions(&seen);
}

/// Transitions that the table allows and nothing that is explored makes.
const NOT_MADE: [(Phase, Phase); 3] = [
    // A box that lives and does not know what it said that it bound: none does that (one that ended it
    // keeps its epoch, one that restarted is another life), and it is written again all the same.
    (Phase::SlotBound, Phase::Reserved),
    (Phase::Bound, Phase::Reserved),
    (Phase::Configured, Phase::Reserved),
];

fn compare_phases(seen: &Seen) {
    let mut wrong = Vec::new();
    for from in Phase::ALL {
        for to in Phase::ALL {
            let made = seen.phases.contains_key(&(phase_number(from), phase_number(to)));
            let expected = from.may_become(to) && !NOT_MADE.contains(&(from, to));
            if made != expected {
                wrong.push(format!("{from} to {to}: made {made}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every phase is met with everything that can be wanted of it, and every decision is made.
fn compare_actions(seen: &Seen) {
    for phase in Phase::ALL {
        for desired in 0..3 {
            let met =
                seen.actions.keys().any(|key| (key.0, key.1) == (phase_number(phase), desired));
            assert!(met, "{phase} is never met when {desired} is wanted");
        }
    }
    type Is = fn(&Action) -> bool;
    let kinds: [(&str, Is); 8] = [
        ("wait", |a| *a == Action::Wait),
        ("fail", |a| matches!(a, Action::Fail(_))),
        ("bind the slot", |a| *a == Action::BindSlot),
        ("bind the port", |a| *a == Action::BindPort),
        ("unbind the port by force", |a| *a == Action::UnbindPort(Removal::Force)),
        ("unbind the port", |a| matches!(a, Action::UnbindPort(Removal::Orderly { .. }))),
        ("skip the port", |a| *a == Action::SkipPort),
        ("unbind the slot", |a| *a == Action::UnbindSlot),
    ];
    for (name, is) in kinds {
        assert!(seen.actions.values().any(is), "nothing ever decides to {name}");
    }
}

/// A checker that finds nothing wrong is worth something only if it finds what is. A mistake may break
/// more than one promise, and which of them a thread comes upon first differs from run to run: it is
/// explored until the promise that it was planted against is broken.
#[test]
fn planted_mistakes_are_found() {
    let lend_twice = Bounds { allocations: 2, releases: 1, ..NOTHING };
    for (bug, bounds, promise) in [
        (Bug::SlotFirst, lend_twice, "no device is reset while its host uses it"),
        (Bug::EpochAgain, Bounds { tlps: 1, ..lend_twice }, "no TLP crosses"),
        (
            Bug::SameTerm,
            Bounds { allocations: 1, crashes: 1, takeovers: 1, ..NOTHING },
            "two managers",
        ),
    ] {
        let promises = Protocol::new(bounds, Some(bug)).properties();
        let promise = promises.iter().map(|p| p.name).find(|name| name.starts_with(promise));
        let promise = promise.expect("a promise of that name");
        let checker = explore(bounds, Some(bug), HasDiscoveries::AnyOf([promise].into()));
        let found = checker.discovery(promise);
        let Some(found) = found else { panic!("{bug:?} does not break \"{promise}\"") };
        println!("{bug:?}: {promise}: {:#?}", found.into_actions());
    }
}
