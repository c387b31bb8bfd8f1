//! Operations that are called back.

use super::{asked, is_bind_port, is_bind_slot, is_unbind_port, last_operation, pair, steps};
use crate::common::fake::{Fake, Script};
use crate::common::{Manager, eventually};
use proxy_core::control::{ControlError, Removal, Request};
use serde_json::json;
use tlp_codec::ids::Epoch;

#[test]
fn an_allocation_that_is_called_back_leaves_nothing() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["allocate", "--host", "host1", "--count", "2", "--no-wait"]);
    eventually("the box", || at_box.bound(1).and(at_box.bound(2)));
    let cancelled = manager.json(&["cancel", "op-1"]);
    assert_eq!(cancelled["state"], "cancelled");
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
    assert!(at_host.with(|s| s.ports.is_empty()));
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());
    manager.wait_event("operation-cancelled", "op-1 is cancelled: box1/1, box1/2");

    // Once more is the same, also for a manager that was started again.
    assert_eq!(manager.json(&["cancel", "op-1"])["state"], "cancelled");
    manager.kill();
    manager.run();
    assert_eq!(manager.json(&["cancel", "op-1"])["state"], "cancelled");
    let (code, problem) = manager.failure(&["cancel", "op-9"]);
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-operation")));
}

#[test]
fn what_has_ended_cannot_be_called_back() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (code, problem) = manager.failure(&["cancel", "op-1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("too-late")));
    assert!(problem["detail"].as_str().unwrap().contains("op-1 has ended"), "{problem}");
    assert!(at_box.bound(1).is_some());
}

#[test]
fn a_release_that_asked_nobody_yet_can_be_called_back() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    let epoch = at_box.bound(1).unwrap().epoch;
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["release", "alloc-1", "--no-wait"]);
    let cancelled = manager.json(&["cancel", "op-2"]);
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(steps(&cancelled), ["unbind-port skipped", "unbind-slot skipped"].repeat(2));

    // The host comes back and is not asked for anything.
    let at_host = Fake::insist(manager.control, again.0, again.1);
    manager.wait_ready(&["host1"]);
    assert!(!asked(&at_host).iter().any(|what| what.starts_with("UnbindPort")));
    assert_eq!(at_box.bound(1).unwrap().epoch, epoch, "the device never went away");
    let bindings = manager.get("/v1/bindings");
    for binding in bindings["items"].as_array().unwrap() {
        assert_eq!((&binding["desired"], &binding["operation"]), (&json!("bound"), &json!(null)));
    }
    // It can be released later.
    manager.text(&["release", "alloc-1"]);
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
}

#[test]
fn a_release_that_asked_an_operating_system_cannot() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.rule(|request| {
        let asked = matches!(request, Request::UnbindPort { mode: Removal::Orderly { .. }, .. });
        asked.then_some(Script::Ignore)
    });
    let begun = manager.json(&["release", "alloc-1", "--no-wait", "--within-ms", "600000"]);
    let step = &begun["items"][0]["steps"][0];
    assert!(step["asked"].is_string(), "a host that is there is asked for certain: {begun}");
    eventually("the question", || at_host.with(|s| s.log.iter().any(is_unbind_port).then_some(())));
    let refused = |manager: &Manager| {
        let (code, problem) = manager.failure(&["cancel", "op-2"]);
        assert_eq!((code, &problem["code"]), (4, &json!("too-late")));
        let reason = problem["reasons"][0].as_str().unwrap();
        assert!(reason.contains("host1 port 0 was asked to let go at 20"), "{reason}");
    };
    refused(&manager);
    // Also after a restart: that it was asked was written before it was.
    manager.kill();
    manager.run();
    refused(&manager);
    let host_again = at_host.leave();
    host_again.1.lock().unwrap().rules.clear();
    let _at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let box_again = at_box.leave();
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    eventually("the release", || at_box.bound(1).is_none().then_some(()));
    eventually("its end", || (last_operation(&manager)["state"] == "succeeded").then_some(()));

    // Its story has the restart in it.
    let story = manager.text(&["story", "op-2"]);
    for part in [
        "op-2: take back box1/1",
        "manager-started",
        "goes on by itself",
        "released",
        "op-2: succeeded after ",
        "2 of 2 steps",
    ] {
        assert!(story.contains(part), "{part}: {story}");
    }
}

/// To who waits for the end of it, it makes no difference who began it.
#[test]
fn a_release_that_is_called_back_does_not_keep_a_device_from_a_drain() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["release", "alloc-1", "--no-wait"]);
    manager.text(&["drain", "box1", "--within-ms", "1000", "--reason", "x", "--no-wait"]);
    let cancelled = manager.json(&["cancel", "op-2"]);
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(cancelled["warnings"], json!(["box1/1 is taken back by op-3"]));
    let binding = &manager.get("/v1/bindings")["items"][0];
    assert_eq!(
        (&binding["desired"], &binding["operation"]),
        (&json!({ "released": { "within_ms": 1000 } }), &json!("op-3"))
    );
    let _at_host = Fake::insist(manager.control, again.0, again.1);
    eventually("the end of the drain", || {
        (manager.get("/v1/operations/op-3")["state"] == "succeeded").then_some(())
    });
    assert!(at_box.bound(1).is_none());
}

/// The operation that asked has run out of time, and the operating system may still let go.
#[test]
fn a_release_that_takes_over_what_was_asked_cannot_be_called_back() {
    let manager = Manager::with_timing(&[("operation_ms", 500)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.rule(|request| is_unbind_port(request).then_some(Script::Ignore));
    manager.text(&["release", "alloc-1", "--within-ms", "100", "--no-wait"]);
    eventually("the question", || at_host.with(|s| s.log.iter().any(is_unbind_port)).then_some(()));
    let _away = at_host.leave();
    eventually("the end of its time", || {
        (manager.get("/v1/operations/op-2")["state"] == "failed").then_some(())
    });
    manager.text(&["release", "alloc-1", "--no-wait"]);
    let (code, problem) = manager.failure(&["cancel", "op-3"]);
    assert_eq!((code, &problem["code"]), (4, &json!("too-late")), "{problem}");
    assert!(at_box.bound(1).is_some());
}

/// Nobody could ask: the host was away.
#[test]
fn a_release_that_takes_over_what_nobody_was_asked_is_called_back() {
    let manager = Manager::with_timing(&[("operation_ms", 500)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let _away = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["release", "alloc-1", "--no-wait"]);
    eventually("the end of its time", || {
        (manager.get("/v1/operations/op-2")["state"] == "failed").then_some(())
    });
    manager.text(&["release", "alloc-1", "--no-wait"]);
    assert_eq!(manager.json(&["cancel", "op-3"])["state"], "cancelled");
    assert_eq!(manager.get("/v1/bindings")["items"][0]["desired"], "bound");
    assert!(at_box.bound(1).is_some());
}

/// It took nothing itself: two others had begun all of it.
#[test]
fn a_release_by_force_that_others_go_on_with_cannot_be_called_back() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    at_host.rule(|request| is_unbind_port(request).then_some(Script::Ignore));
    for slot in ["box1/1", "box1/2"] {
        manager.text(&["release", slot, "--within-ms", "600000", "--no-wait"]);
    }
    manager.text(&["release", "alloc-1", "--force", "--no-wait"]);
    let (code, problem) = manager.failure(&["cancel", "op-4"]);
    assert_eq!((code, &problem["code"]), (4, &json!("too-late")), "{problem}");
    assert!(problem["reasons"].to_string().contains("box1/1 is taken by force"), "{problem}");
    assert!(at_box.bound(1).is_some());
}

/// The box has had a later epoch, and says so when the allocation is called back already.
#[test]
fn an_allocation_that_is_called_back_while_its_box_refuses_it_ends() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    let (arrived, arrives) = std::sync::mpsc::channel();
    let (answer, answers) = std::sync::mpsc::channel::<()>();
    at_box.rule(move |request| {
        if !is_bind_slot(request) {
            return None;
        }
        arrived.send(()).unwrap();
        answers.recv().unwrap();
        let stale = ControlError::StaleEpoch(Epoch::new(0, 9).unwrap());
        Some(Script::Refuse(stale))
    });
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    arrives.recv().unwrap();
    manager.text(&["cancel", "op-1", "--no-wait"]);
    answer.send(()).unwrap();
    let cancelled = eventually("the end", || {
        Some(manager.get("/v1/operations/op-1")).filter(|o| o["state"] == "cancelled")
    });
    assert_eq!(steps(&cancelled)[3..], ["unbind-port done", "unbind-slot done"]);
    assert_eq!(manager.get("/v1/allocations")["items"], json!([]));
}
