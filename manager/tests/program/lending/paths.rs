//! By which paths devices are reached, and paths that are drained.

use super::holds::racks;
use super::{is_bind_slot, last_operation, steps};
use crate::common::fake::{Fake, Spec, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{BindingFailure, Event, PathAddress, PathSet, Request};
use serde_json::{Value, json};
use std::sync::mpsc;
use tlp_codec::ids::PathId;

/// With so many paths.
fn with_paths(count: u8, mut spec: Spec) -> Spec {
    let number = spec.name.bytes().fold(0, u8::wrapping_add);
    let path = |path| PathAddress::Udp4 { ip: [127, 0, path, number], port: 4000 };
    spec.paths = (1..count).map(path).collect();
    spec
}

/// host1 and box1 with a slot, which have so many paths.
fn pair(manager: &Manager, paths: u8) -> (Fake, Fake) {
    let at_host = Fake::join(manager.control, with_paths(paths, host("host1", 4)), "");
    let at_box = Fake::join(manager.control, with_paths(paths, boxed("box1", 1)), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    (at_host, at_box)
}

/// The paths of the one device, which both ends, the records and the API agree on.
fn paths((at_host, at_box): &(Fake, Fake), manager: &Manager) -> Vec<u8> {
    let PathSet(set) = at_box.with(|s| s.slots[0].bound.as_ref().unwrap().path_set);
    let there = at_host.with(|s| s.ports.values().map(|(b, _)| b.path_set).collect::<Vec<_>>());
    assert_eq!(there, [PathSet(set)]);
    let paths: Vec<u8> = (0..8).filter(|path| set >> path & 1 != 0).collect();
    let shown = manager.get("/v1/bindings");
    assert_eq!(shown["items"][0]["paths"], json!(paths));
    paths
}

/// Drains a path: the steps.
fn drain(manager: &Manager, path: &str) -> Vec<String> {
    let drained = manager.json(&["drain", path, "--reason", "a new cable"]);
    assert_eq!(drained["state"], "succeeded");
    steps(&drained)
}

fn put_back(manager: &Manager, path: &str) {
    manager.text(&["maintain", path, "--off"]);
}

#[test]
fn a_drained_path_carries_nothing_that_has_another() {
    let manager = Manager::start();
    let at_host = Fake::join(manager.control, with_paths(2, host("host1", 4)), "");
    let at_box = Fake::join(manager.control, with_paths(2, boxed("box1", 3)), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["allocate", "--host", "host1", "--paths", "1"]);
    let sets = || {
        let set = |slot: usize| at_box.with(|s| s.slots[slot].bound.clone().map(|b| b.path_set));
        [set(0), set(1), set(2)]
    };
    assert_eq!(sets(), [Some(PathSet(0b11)), Some(PathSet(0b10)), None]);
    let epoch = at_box.bound(1).unwrap().epoch;
    let drained = manager.json(&["drain", "path:1", "--reason", "a new cable"]);
    assert_eq!(
        (&drained["state"], steps(&drained)),
        (&json!("succeeded"), vec!["rebind done".to_owned()])
    );
    manager.text(&["allocate", "--host", "host1"]);
    // What has both goes on as it is; what had only this one was made again by the other.
    assert_eq!(sets(), [Some(PathSet(0b11)), Some(PathSet(0b01)), Some(PathSet(0b01))]);
    assert_eq!(at_box.bound(1).unwrap().epoch, epoch);
    drop(at_host);
}

#[test]
fn a_fabric_is_its_paths() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, with_paths(2, host("host1", 4)), "");
    let at_box = Fake::join(manager.control, with_paths(2, boxed("box1", 1)), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    racks(&manager, "r2");
    manager.text(&["allocate", "--host", "host1", "--paths", "0"]);
    let set = || at_box.with(|s| s.slots[0].bound.clone().map(|b| b.path_set));
    assert_eq!(set(), Some(PathSet(0b01)));
    let drained = manager.json(&["drain", "fabric:f1", "--reason", "a new switch"]);
    assert_eq!(
        (&drained["state"], &steps(&drained)[..]),
        (&json!("succeeded"), &["rebind done".to_owned()][..])
    );
    assert_eq!(set(), Some(PathSet(0b10)));
}

#[test]
fn what_a_path_carries_is_what_was_given_and_not_what_was_wished() {
    let manager = Manager::start();
    let ends = pair(&manager, 2);
    let paths = || paths(&ends, &manager);
    manager.text(&["maintain", "path:0", "--on", "--reason", "x"]);
    manager.text(&["allocate", "--host", "host1"]);
    assert_eq!(paths(), [1]);
    put_back(&manager, "path:0");
    assert_eq!(drain(&manager, "path:1"), ["rebind done"]);
    assert_eq!(paths(), [0], "nothing was wished, and it had no other");
    put_back(&manager, "path:1");
    assert_eq!(drain(&manager, "path:0"), ["rebind done"]);
    assert_eq!(paths(), [1]);
    put_back(&manager, "path:0");
    assert_eq!(drain(&manager, "path:0"), [""; 0], "it does not carry it");
    // The other one is the last.
    let epoch = ends.1.bound(1).unwrap().epoch;
    let (code, problem) = manager.failure(&["drain", "path:1", "--reason", "x"]);
    assert_eq!((code, &problem["code"]), (7, &json!("nothing-fits")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("box1 and host1 have no path that is not held back"), "{detail}");
    assert_eq!(ends.1.bound(1).unwrap().epoch, epoch, "nothing is gained by making it again");
    assert_eq!(paths(), [1]);
}

/// Drains the path of the one device, which is 1 if there are two, while its host is away. The drain
/// at its end, and whether the device was made again.
fn drained_without_the_host(manager: &Manager, count: u8, path: &str) -> (Value, bool) {
    let (at_host, at_box) = pair(manager, count);
    let wish = (count - 1).to_string();
    manager.text(&["allocate", "--host", "host1", "--paths", &wish]);
    let epoch = at_box.bound(1).unwrap().epoch;
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["drain", path, "--reason", "x", "--no-wait"]);
    let phase = manager.get("/v1/bindings")["items"][0]["phase"].clone();
    assert_eq!(phase, "configured", "it is not known whether there is another");
    let _at_host = Fake::insist(manager.control, again.0, again.1);
    let drained = eventually("the drain's end", || {
        Some(last_operation(manager)).filter(|o| o["ended"].is_string())
    });
    (drained, at_box.bound(1).unwrap().epoch != epoch)
}

#[test]
fn what_a_host_that_is_away_has_by_its_only_path_is_left_as_it_is() {
    let manager = Manager::start();
    let (drained, rebound) = drained_without_the_host(&manager, 1, "path:0");
    assert_eq!((&drained["state"], rebound), (&json!("failed"), false));
    let detail = drained["error"]["detail"].as_str().unwrap();
    assert!(detail.contains("box1 and host1 have no path that is not held back"), "{detail}");
}

#[test]
fn what_a_host_that_is_away_can_have_by_another_path_moves_when_it_is_back() {
    let manager = Manager::start();
    let (drained, rebound) = drained_without_the_host(&manager, 2, "path:1");
    assert_eq!((&drained["state"], rebound), (&json!("succeeded"), true));
    assert_eq!(steps(&drained), ["rebind done"]);
    assert_eq!(manager.get("/v1/bindings")["items"][0]["paths"], json!([0]));
}

#[test]
fn a_wish_that_was_not_met_does_not_count() {
    let manager = Manager::start();
    let ends = pair(&manager, 2);
    let paths = || paths(&ends, &manager);
    manager.text(&["allocate", "--host", "host1", "--paths", "0"]);
    assert_eq!(drain(&manager, "path:0"), ["rebind done"]);
    assert_eq!(paths(), [1]);
    put_back(&manager, "path:0");
    assert_eq!(drain(&manager, "path:0"), [""; 0], "it is by the other one already");
    put_back(&manager, "path:0");
    assert_eq!(drain(&manager, "path:1"), ["rebind done"]);
    assert_eq!(paths(), [0]);
}

#[test]
fn paths_that_are_drained_one_after_the_other_leave_the_third() {
    let manager = Manager::start();
    let ends = pair(&manager, 3);
    let paths = || paths(&ends, &manager);
    manager.text(&["allocate", "--host", "host1", "--paths", "0,1"]);
    assert_eq!(drain(&manager, "path:0"), [""; 0]);
    assert_eq!(paths(), [0, 1], "it goes on over the other one");
    assert_eq!(drain(&manager, "path:1"), ["rebind done"]);
    assert_eq!(paths(), [2]);
}

/// The box is being told when a path is held back.
fn held_meanwhile(wish: &[&str], expected: &[u8], rebound: bool) {
    let manager = Manager::start();
    let ends = pair(&manager, 2);
    let (reached, told) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    ends.1.rule(move |request: &Request| {
        if is_bind_slot(request) && reached.send(()).is_ok() {
            // When the test has ended for another reason, nobody sends.
            let _ = goes.recv();
        }
        None
    });
    let allocate = [&["allocate", "--host", "host1", "--no-wait"][..], wish].concat();
    manager.text(&allocate);
    told.recv().unwrap();
    drop(told);
    manager.text(&["maintain", "path:1", "--on", "--reason", "x"]);
    go.send(()).unwrap();
    manager.wait_phase("configured");
    assert_eq!(paths(&ends, &manager), expected);
    assert_eq!(last_operation(&manager)["state"], "succeeded");
    assert_eq!(manager.has_event("rebinding", "box1/1"), rebound);
}

#[test]
fn both_ends_have_the_same_paths_whatever_is_held_back_between() {
    held_meanwhile(&[], &[0, 1], false);
}

#[test]
fn what_the_box_was_told_of_a_path_that_is_held_back_by_then_is_told_anew() {
    held_meanwhile(&["--paths", "1"], &[0], true);
}

#[test]
fn a_path_that_has_failed_is_not_used_between_its_ends() {
    let settings = |policy| format!("[health]\ninterval_ms = 50\npolicy = \"{policy}\"\n");
    let manager = Manager::with_settings(&settings("cordon"), &[]);
    let ends = pair(&manager, 2);
    let lost = |path| Event::PathLost { peer: ends.1.welcome.node, path };
    let second = PathId::new(1).unwrap();
    manager.text(&["allocate", "--host", "host1", "--paths", "1"]);
    assert_eq!(paths(&ends, &manager), [1]);
    ends.0.event(lost(second));
    manager.wait_event("health-changed", "host1>box1 path 1 is failed");
    assert_eq!(paths(&ends, &manager), [1], "what stands is left as it is");
    let epoch = ends.1.bound(1).unwrap().epoch;
    let reason = BindingFailure::DeviceGone;
    let key = ends.1.bound(1).unwrap();
    ends.0.event(Event::BindingFailed { peer: ends.1.welcome.node, key, reason });
    eventually("another epoch", || {
        let bound = ends.1.bound(1).filter(|key| key.epoch != epoch);
        (manager.get("/v1/bindings")["items"][0]["phase"] == "configured").then_some(bound?)
    });
    assert_eq!(paths(&ends, &manager), [0]);
}
