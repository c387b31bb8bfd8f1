//! Hosts whose proxy is there and whose root complex is not.

use super::{asked, last_operation, pair, steps};
use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use serde_json::{Value, json};

/// With so many seconds of grace.
fn manager(seconds: u32) -> Manager {
    Manager::with_settings(&format!("host_grace_s = {seconds}\n"), &[])
}

fn node(manager: &Manager) -> Value {
    manager.get("/v1/nodes/host1")["root_complex"].clone()
}

/// A host whose root complex is not there from the beginning, and a box.
fn pair_without(manager: &Manager) -> (Fake, Fake) {
    let (at_host, at_box) = (host("host1", 4), boxed("box1", 2));
    let state = crate::common::fake::fresh(&at_host, "");
    state.lock().unwrap().root_complex = false;
    state.lock().unwrap().enumerates = false;
    let at_host = Fake::insist(manager.control, at_host, state);
    let at_box = Fake::join(manager.control, at_box, "nvme");
    manager.wait_ready(&["host1", "box1"]);
    (at_host, at_box)
}

#[test]
fn the_devices_of_a_host_that_went_away_come_back() {
    let manager = manager(1);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    assert_eq!(node(&manager), json!({"present": true}));
    at_host.set_root_complex(false);
    manager.wait_slot("box1/1", "free");
    manager.wait_slot("box1/2", "free");
    assert!(at_host.with(|s| s.ports.is_empty()));
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
    manager.wait_event("root-complex-lost", "taken back if none comes within 1 s");
    let why = "host1 has had no root complex for 1 s";
    manager.wait_event("host-grace-over", &format!("{why}: box1/1, box1/2 are taken back"));

    // One operation, which says why, and did not ask anybody.
    let operation = eventually("the operation's end", || {
        let operation = last_operation(&manager);
        (operation["state"] == "succeeded").then_some(operation)
    });
    assert_eq!(operation["id"], "op-2");
    assert_eq!(operation["what"]["reason"], why);
    assert_eq!(operation["allocation"], "alloc-1");
    let both = ["unbind-port done", "unbind-slot done"];
    assert_eq!(steps(&operation), [both, both].concat());
    assert!(!asked(&at_host).contains(&"UnbindPort"));
    assert!(manager.text(&["show", "op-2"]).contains(&format!("because {why}")));
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());

    // They can be lent again, also to the same host when it is back.
    at_host.set_root_complex(true);
    manager.wait_event("root-complex-found", "host1");
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
}

#[test]
fn a_root_complex_that_comes_back_in_time_keeps_its_devices() {
    let manager = manager(3600);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let epoch = at_box.bound(1).unwrap().epoch;
    at_host.set_root_complex(false);
    manager.wait_event("root-complex-lost", "host1");
    let away = node(&manager);
    let left = away["taken_back_in_ms"].as_u64().unwrap();
    assert!(away["present"] == false && away["away_ms"].is_u64() && left <= 3_600_000, "{away}");
    for args in [&["nodes"][..], &["show", "host1"], &["tables"]] {
        let text = manager.text(args);
        assert!(text.contains(", no root complex for "), "{args:?}: {text}");
        assert!(text.contains(" s, devices are taken back in 3"), "{args:?}: {text}");
    }
    at_host.set_root_complex(true);
    manager.wait_event("root-complex-found", "host1");
    assert_eq!(node(&manager), json!({"present": true}));
    for args in [&["nodes"][..], &["show", "host1"], &["tables"]] {
        assert!(!manager.text(args).contains("root complex"), "{args:?}");
    }
    assert_eq!(at_box.bound(1).unwrap().epoch, epoch);
}

#[test]
fn a_device_can_be_lent_to_a_host_that_is_not_up_yet() {
    let manager = manager(3600);
    let (at_host, at_box) = pair_without(&manager);
    let away = node(&manager);
    assert!(away["present"] == false && away["taken_back_in_ms"].is_null(), "{away}");
    let lend = ["allocate", "--host", "host1", "--no-wait", "--keep-unenumerated"];
    let output = manager.cli(&lend);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("warning: host1 has had no root"), "{said}");
    assert!(said.contains("what it gets is taken back if none comes within 3600 s"), "{said}");
    manager.wait_phase("bound");
    assert!(node(&manager)["taken_back_in_ms"].is_u64());
    assert!(manager.text(&["show", "host1"]).contains("devices are taken back in 3"));
    // It comes up and finds the device.
    at_host.with(|s| s.enumerates = true);
    at_host.set_root_complex(true);
    manager.wait_phase("configured");
    assert_eq!(node(&manager), json!({"present": true}));
    assert!(at_box.bound(1).is_some());
}

#[test]
fn what_a_host_gets_that_does_not_come_up_is_taken_back() {
    let manager = manager(1);
    let (at_host, at_box) = pair_without(&manager);
    manager.text(&["allocate", "--host", "host1", "--no-wait", "--keep-unenumerated"]);
    eventually("the device to be lent", || at_box.bound(1));
    manager.wait_slot("box1/1", "free");
    manager.wait_event("host-grace-over", "box1/1 is taken back");
    assert!(at_host.with(|s| s.ports.is_empty()) && at_box.bound(1).is_none());
}

#[test]
fn the_table_says_what_an_event_would_have() {
    let manager = manager(1);
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    // Its event is lost; the table is read now and then.
    at_host.with(|s| s.root_complex = false);
    manager.wait_slot("box1/1", "free");
    at_host.with(|s| s.root_complex = true);
    manager.wait_event("root-complex-found", "host1");
}

#[test]
fn without_a_grace_time_a_host_keeps_what_it_has() {
    let manager = manager(0);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.set_root_complex(false);
    manager.wait_event("root-complex-lost", "host1 has no root complex");
    let away = node(&manager);
    assert!(away["present"] == false && away["taken_back_in_ms"].is_null(), "{away}");
    let output = manager.json(&["allocate", "--host", "host1", "--no-wait"]);
    let warning = output["warnings"][0].as_str().unwrap();
    assert!(warning.contains("what it gets waits there"), "{warning}");
    assert!(at_box.bound(1).is_some());
}
