//! Proxies that are gone for good.

use super::{is_unbind_port, pair, steps};
use crate::common::fake::{Fake, Script, boxed};
use crate::common::{Manager, eventually};
use proxy_core::control::ControlError;
use serde_json::{Value, json};

fn bindings(manager: &Manager) -> usize {
    manager.get("/v1/bindings")["items"].as_array().unwrap().len()
}

fn names(manager: &Manager) -> Vec<Value> {
    let nodes = manager.get("/v1/nodes");
    nodes["items"].as_array().unwrap().iter().map(|node| node["name"].clone()).collect()
}

#[test]
fn only_what_is_gone_is_forgotten_and_what_is_lent_only_by_force() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    let (code, problem) = manager.failure(&["forget", "box1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("still-connected")));
    let (code, problem) = manager.failure(&["forget", "box9"]);
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-node")));
    manager.text(&["allocate", "--host", "host1"]);
    drop(at_box);
    manager.wait_event("node-disconnected", "box1");
    let (code, problem) = manager.failure(&["forget", "box1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("slot-in-use")));
    assert!(problem["detail"].as_str().unwrap().contains("box1/1"), "{problem}");
    assert_eq!((problem["owner"]["host"].clone(), bindings(&manager)), (json!("host1"), 1));
}

#[test]
fn a_box_that_is_gone_for_good_is_waited_for_by_nobody() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let other = Fake::join(manager.control, boxed("box2", 1), "nvme");
    manager.wait_ready(&["box2"]);
    manager.text(&["maintain", "box1/2", "--on", "--reason", "x"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box2"]);
    let (node, epoch) = (at_box.welcome.node, at_box.bound(1).unwrap().epoch);
    let again = at_box.leave();
    manager.wait_event("node-disconnected", "box1");
    // A drain that waits for the box, and whose device is out of its host.
    manager.text(&["drain", "box1", "--reason", "x", "--no-wait"]);
    eventually("the device to be out", || at_host.with(|s| (s.ports.len() == 1).then_some(())));
    let forgotten = manager.json(&["forget", "box1"]);
    assert_eq!(
        (&forgotten["state"], &forgotten["what"]["kind"]),
        (&json!("succeeded"), &json!("forget"))
    );
    let drained = eventually("the drain", || {
        let operation = manager.get("/v1/operations/op-3");
        (operation["state"] == "succeeded").then_some(operation)
    });
    assert_eq!(steps(&drained), ["unbind-port done", "unbind-slot done"]);
    manager.wait_event("binding-lost", "box1/1 of host1 is lost");
    manager.wait_event("node-forgotten", "box1");
    assert_eq!((bindings(&manager), names(&manager)), (1, vec![json!("box2"), json!("host1")]));
    assert!(manager.get("/v1/holds")["items"].as_array().unwrap().is_empty());
    assert!(other.bound(1).is_some());
    let audit = manager.get("/v1/audit");
    assert!(audit.to_string().contains("/v1/nodes/box1"), "{audit}");
    // It is so for a manager that starts again, too.
    manager.kill();
    manager.run();
    assert_eq!(names(&manager), [json!("box2"), json!("host1")]);
    // Another one gets another number. The one that comes back is new: what it still has is taken
    // out, and its epochs go on above those that it had.
    let (host_again, other_again) = (at_host.leave(), other.leave());
    let _at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let _other = Fake::insist(manager.control, other_again.0, other_again.1);
    let box3 = Fake::join(manager.control, boxed("box3", 1), "nvme");
    assert!(box3.welcome.node > node);
    let back = Fake::insist(manager.control, again.0, again.1);
    manager.wait_ready(&["host1", "box1"]);
    eventually("a clean box", || back.bound(1).is_none().then_some(()));
    manager.wait_slot("box1/1", "free");
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    assert!(back.bound(1).unwrap().epoch > epoch);
}

#[test]
fn what_is_lent_of_a_box_that_is_gone_is_lost_by_force() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    drop(at_box);
    manager.wait_event("node-disconnected", "box1");
    let forgotten = manager.json(&["forget", "box1", "--force"]);
    assert_eq!(forgotten["state"], "succeeded");
    assert_eq!(forgotten["what"]["slots"], json!(["box1/1", "box1/2"]));
    assert_eq!(steps(&forgotten), ["unbind-port done", "unbind-slot done"].repeat(2));
    assert!(forgotten["steps"][1]["detail"].as_str().unwrap().contains("neither reset nor erased"));
    assert!(at_host.with(|s| s.ports.is_empty()));
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());
}

#[test]
fn what_a_host_had_that_is_gone_can_be_lent_again() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    drop(at_host);
    manager.wait_event("node-disconnected", "host1");
    assert_eq!(manager.json(&["forget", "host1", "--force"])["state"], "succeeded");
    manager.wait_slot("box1/1", "free");
    assert!(at_box.bound(1).is_none(), "the box has reset it");
    assert_eq!(names(&manager), [json!("box1")]);
    assert_eq!(manager.failure(&["allocate", "--host", "host1", "--wait-ms", "0"]).0, 3);
}

/// A release is ending it, and the host does not let go at once.
#[test]
fn a_box_is_not_forgotten_before_what_another_operation_ends_there_is_over() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    drop(at_box);
    manager.wait_event("node-disconnected", "box1");
    at_host.rule(|request| is_unbind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["release", "alloc-1", "--no-wait"]);
    let forgetting = manager.json(&["forget", "box1", "--no-wait"]);
    assert_eq!(forgetting["state"], "running");
    assert_eq!(steps(&forgetting), ["unbind-port pending", "unbind-slot pending"]);
    at_host.with(|s| s.rules.clear());
    for id in ["op-2", "op-3"] {
        eventually("the end of both", || {
            let operation = manager.get(&format!("/v1/operations/{id}"));
            (operation["state"] == "succeeded").then_some(())
        });
    }
    assert_eq!((bindings(&manager), names(&manager)), (0, vec![json!("host1")]));
}

/// The manager was killed before it wrote down that the device is out of a host that never comes back.
#[test]
fn what_no_proxy_comes_back_for_is_looked_at_after_a_start() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.script(is_unbind_port, [Script::Ignore]);
    manager.text(&["release", "alloc-1", "--force", "--no-wait"]);
    eventually("the request", || at_host.with(|s| s.log.iter().any(is_unbind_port).then_some(())));
    manager.kill();
    drop((at_host, at_box));
    manager.run();
    manager.wait_phase("withdrawn");
    assert_eq!(manager.json(&["forget", "box1"])["state"], "succeeded");
    assert_eq!(bindings(&manager), 0);
    assert_eq!(manager.get("/v1/operations/op-2")["state"], "succeeded");
}
