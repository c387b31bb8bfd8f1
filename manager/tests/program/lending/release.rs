//! Releases that meet something: hosts that are away, other operations, their time.

use super::{is_bind_port, is_unbind_port, pair};
use crate::common::fake::{Fake, Script, Spec};
use crate::common::{Manager, eventually};
use proxy_core::control::{BindingFailure, ControlError, Event, Removal, Request};
use serde_json::json;

#[test]
fn a_host_that_is_away_is_waited_for_or_forced() {
    let manager = Manager::with_timing(&[("operation_ms", 2_000)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    let away = "unbind-port host1 port 0 (host1 has not been connected since 20";
    let output = manager.cli(&["release", "alloc-1", "--within-ms", "1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("waiting for {away}")), "{said}");
    let (code, problem) = manager.failure(&["release", "alloc-1", "--within-ms", "1"]);
    assert_eq!((code, &problem["code"]), (7, &json!("operation-timeout")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(away), "{detail}");
    assert!(detail.contains("when host1 is back; --force does not wait"), "{detail}");
    assert!(at_box.bound(1).is_some(), "not before the host let go");
    manager.text(&["release", "alloc-1", "--force"]);
    assert!(at_box.bound(1).is_none());
    manager.wait_slot("box1/1", "free");
    // What the host still has is taken out when it is back.
    let at_host = Fake::insist(manager.control, again.0, again.1);
    eventually("a clean host", || at_host.with(|s| s.ports.is_empty()).then_some(()));
    manager.wait_event("orphan-removed", "host1");
}

/// Until the box is back the release is not over; the host may not use the device meanwhile.
#[test]
fn what_was_taken_by_force_from_two_that_are_away_goes_out_of_the_host_first() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (host, back) = at_host.leave();
    let box_again = at_box.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.wait_event("node-disconnected", "box1");
    manager.text(&["release", "alloc-1", "--force", "--no-wait"]);
    manager.wait_event("withdrawn", "it is not connected");
    let at_host = Fake::insist(manager.control, host, back);
    eventually("a clean host", || at_host.with(|s| s.ports.is_empty()).then_some(()));
    manager.wait_event("orphan-removed", "host1");
    assert_eq!(manager.get("/v1/operations/op-2")["state"], "running");
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    manager.wait_slot("box1/1", "free");
    assert!(at_box.bound(1).is_none());
}

#[test]
fn a_host_that_restarted_during_a_release_did_not_let_go() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (spec, state) = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["release", "alloc-1", "--no-wait"]);
    state.lock().unwrap().ports.clear();
    let later = Spec { incarnation: spec.incarnation + 1, ..spec };
    let _host = Fake::insist(manager.control, later, state);
    manager.wait_event("withdrawn", "it was not there any more, because the host proxy restarted");
    manager.wait_slot("box1/1", "free");
}

#[test]
fn a_release_that_ran_out_of_time_still_happens() {
    let manager = Manager::with_timing(&[("operation_ms", 2_000)]);
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let again = at_box.leave();
    manager.wait_event("node-disconnected", "box1");
    let output = manager.cli(&["release", "alloc-1", "--within-ms", "1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    let away = "unbind-slot box1/1 (box1 has not been connected since 20";
    let last = said.lines().last().unwrap();
    assert!(last.contains(away) && last.contains("when box1 is back; only a box"), "{last}");
    assert_eq!(manager.get("/v1/slots")["items"][0]["status"], "releasing");
    let since = manager.get("/v1/operations/op-2")["started"].as_str().unwrap().to_owned();
    let refusals: [(&[&str], &str); 2] = [
        (&["replace", "bind-1", "--reason", "x"], "box1/1 (bind-1)"),
        (&["extend", "alloc-1", "--lease", "1h"], "alloc-1"),
    ];
    for (command, what) in refusals {
        let (code, problem) = manager.failure(command);
        let says = format!("{what} is being taken back by op-2 since {since}");
        assert!(code == 4 && problem["detail"] == says, "{problem}");
    }
    let at_box = Fake::insist(manager.control, again.0, again.1);
    manager.wait_slot("box1/1", "free");
    assert!(at_box.bound(1).is_none());
}

#[test]
fn a_release_overtakes_an_allocation_that_is_not_done() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    eventually("the box", || at_box.bound(1));
    manager.text(&["release", "alloc-1"]);
    assert!(at_box.bound(1).is_none());
    let (code, problem) = manager.failure(&["show", "alloc-1"]);
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-allocation")));
    let first = manager.get("/v1/operations/op-1");
    assert_eq!(
        (&first["state"], &first["error"]["code"]),
        (&json!("failed"), &json!("superseded"))
    );
}

/// Who was told that it failed has nothing of it.
#[test]
fn what_is_being_lent_is_undone_as_a_whole_when_a_part_is_taken() {
    for taking in [&["take-back", "box1/1", "--reason", "x"][..], &["release", "bind-1"]] {
        let manager = Manager::start();
        let (at_host, at_box) = pair(&manager);
        at_host.with(|s| s.enumerates = false);
        manager.text(&["allocate", "--host", "host1", "--count", "2", "--no-wait"]);
        eventually("both", || at_host.with(|s| (s.ports.len() == 2).then_some(())));
        manager.text(taking);
        assert!(at_box.bound(1).is_none());
        let first = eventually("the end of the allocation", || {
            let first = manager.get("/v1/operations/op-1");
            (first["state"] == "failed").then_some(first)
        });
        assert_eq!(first["error"]["code"], "superseded");
        assert!(first["error"]["detail"].as_str().unwrap().contains("op-2"), "{first}");
        assert!(at_box.bound(2).is_none() && at_host.with(|s| s.ports.is_empty()));
        assert_eq!(manager.get("/v1/allocations")["items"], json!([]));
        let second = manager.get("/v1/operations/op-2");
        assert_eq!(second["what"]["slots"], json!(["box1/1"]), "{second}");
        assert_eq!(second["state"], "succeeded");
    }
}

/// Who gives a device back has no other one instead.
#[test]
fn what_replaces_a_device_that_is_given_back_does_not_stay() {
    for lets_go in [false, true] {
        let manager = Manager::start();
        let (at_host, at_box) = pair(&manager);
        manager.text(&["allocate", "--host", "host1"]);
        at_host.with(|s| s.enumerates = false);
        manager.text(&["replace", "bind-1", "--reason", "x", "--no-wait"]);
        eventually("the new one", || at_host.with(|s| (s.ports.len() == 2).then_some(())));
        if lets_go {
            let (peer, key) = (at_box.welcome.node, at_box.bound(1).unwrap());
            at_host.event(Event::BindingFailed { peer, key, reason: BindingFailure::HostLetGo });
            manager.wait_slot("box1/1", "free");
        } else {
            manager.text(&["release", "bind-1"]);
        }
        let undone = eventually("the end of the replacement", || {
            Some(manager.get("/v1/operations/op-2")).filter(|o| o["ended"].is_string())
        });
        assert_eq!(
            (&undone["state"], &undone["error"]["code"]),
            (&json!("failed"), &json!("superseded")),
            "{undone}"
        );
        assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
        assert_eq!(manager.get("/v1/allocations")["items"], json!([]));
    }
}

#[test]
fn a_second_release_joins_the_first_and_may_force_it() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    // The operating system has its time, and does not let go.
    at_host.rule(|request| {
        let asked = matches!(request, Request::UnbindPort { mode: Removal::Orderly { .. }, .. });
        asked.then_some(Script::Ignore)
    });
    let first = manager.json(&["release", "alloc-1", "--no-wait", "--within-ms", "600000"]);
    eventually("the question", || at_host.with(|s| s.log.iter().any(is_unbind_port).then_some(())));
    let second = manager.json(&["release", "alloc-1", "bind-1", "box1/1", "--no-wait"]);
    assert_eq!(second["items"].as_array().unwrap().len(), 1, "named thrice, told once: {second}");
    assert_eq!(first["items"][0]["id"], second["items"][0]["id"]);
    let third = manager.json(&["release", "alloc-1", "--force"]);
    assert_eq!(first["items"][0]["id"], third["items"][0]["id"]);
    assert_eq!(third["items"][0]["state"], "succeeded");
}

#[test]
fn what_is_named_by_several_names_is_released_once() {
    let manager = Manager::start();
    let _pair = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    // At once: the first of them has ended before the next is asked for.
    let names = ["bind-2", "alloc-1", "bind-1", "box1/1", "alloc-1", "bind-2"];
    let released = manager.json(&[&["release"][..], &names].concat());
    assert_eq!(released["items"].as_array().unwrap().len(), 1, "{released}");
    manager.text(&["allocate", "--host", "host1", "--slot", "1", "--box", "box1"]);
    let released = manager.json(&["release", "box1/1", "bind-3", "box1/1"]);
    assert_eq!(released["items"].as_array().unwrap().len(), 1, "{released}");
}

#[test]
fn what_goes_by_force_is_not_asked_by_a_later_release() {
    let manager = Manager::with_timing(&[("operation_ms", 2_000)]);
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.rule(|request| is_unbind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    assert_eq!(manager.failure(&["release", "alloc-1", "--force"]).0, 7);
    assert_eq!(manager.failure(&["release", "alloc-1", "--within-ms", "1"]).0, 7);
    at_host.with(|s| s.rules.clear());
    manager.wait_slot("box1/1", "free");
    assert!(!super::asked(&at_host).contains(&"UnbindPort"), "nobody was asked");
}

#[test]
fn what_is_partly_being_released_can_all_be_taken_by_force() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    at_host.rule(|request| is_unbind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["release", "bind-1", "--no-wait"]);
    let since = manager.get("/v1/operations/op-2")["started"].as_str().unwrap().to_owned();
    let (code, problem) = manager.failure(&["release", "alloc-1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("slot-busy")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("already, by op-2 since {since}; wait")), "{problem}");
    assert!(detail.contains("--force"), "{problem}");
    let forced = manager.json(&["release", "alloc-1", "--force", "--no-wait"]);
    assert_eq!(forced["items"][0]["id"], "op-3", "{forced}");
    at_host.with(|s| s.rules.clear());
    for id in ["op-2", "op-3"] {
        eventually("the end of both", || {
            let operation = manager.get(&format!("/v1/operations/{id}"));
            (operation["state"] == "succeeded").then_some(())
        });
    }
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());
}
