//! Lending and taking back, against proxies that pretend.

mod cancel;
mod crashes;
mod draining;
mod erasing;
mod forget;
mod grace;
mod health;
mod holds;
mod kills;
mod leases;
mod owed;
mod paths;
mod release;
mod repair;
mod trouble;

use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{BindingFailure, Event, PortState, Removal, Request, SlotState};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::time::Duration;
use tlp_codec::ids::{Epoch, NodeId, SlotFunction, SlotId};

/// host1 with four ports, box1 with two drives.
fn pair(manager: &Manager) -> (Fake, Fake) {
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    (at_host, at_box)
}

/// What was asked of a proxy, besides reading.
fn asked(fake: &Fake) -> Vec<&'static str> {
    let name = |request: &Request| match request {
        Request::SetPeer(_) => Some("SetPeer"),
        Request::RemovePeer(_) => Some("RemovePeer"),
        Request::BindSlot(_) => Some("BindSlot"),
        Request::UnbindSlot(_) => Some("UnbindSlot"),
        Request::BindPort(_) => Some("BindPort"),
        Request::UnbindPort { mode: Removal::Force, .. } => Some("UnbindPort by force"),
        Request::UnbindPort { .. } => Some("UnbindPort"),
        _ => None,
    };
    fake.with(|state| state.log.iter().filter_map(name).collect())
}

type Which = fn(&Request) -> bool;

fn is_bind_slot(request: &Request) -> bool {
    matches!(request, Request::BindSlot(_))
}

fn is_bind_port(request: &Request) -> bool {
    matches!(request, Request::BindPort(_))
}

fn is_unbind_port(request: &Request) -> bool {
    matches!(request, Request::UnbindPort { .. })
}

fn is_unbind_slot(request: &Request) -> bool {
    matches!(request, Request::UnbindSlot(_))
}

/// Steps of an operation as `name state`.
fn steps(operation: &Value) -> Vec<String> {
    let steps = operation["steps"].as_array().unwrap().iter();
    steps
        .map(|s| format!("{} {}", s["name"].as_str().unwrap(), s["state"].as_str().unwrap()))
        .collect()
}

fn last_operation(manager: &Manager) -> Value {
    manager.get("/v1/operations")["items"][0].clone()
}

#[test]
fn a_device_is_lent_and_taken_back() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let lent = manager.json(&["allocate", "--host", "host1", "--model", "NVMe"]);
    assert_eq!(lent["id"], "alloc-1");
    assert_eq!(lent["bindings"][0]["phase"], "configured");
    assert_eq!(lent["bindings"][0]["slot"], "box1/1");

    // Both ends have the same, and know each other as they said.
    let key = at_box.bound(1).unwrap();
    assert_eq!(key.epoch, Epoch::new(0, 1).unwrap());
    let (port, state) = at_host.with(|s| s.ports[&0].clone());
    assert_eq!(port.functions[0], (SlotFunction::ZERO, key.epoch));
    assert_eq!((port.box_node, state), (at_box.welcome.node, PortState::Present));
    let window = at_box.with(|s| s.slots[0].bound.clone().unwrap().windows[0]);
    assert_eq!((window.base, window.limit, window.node), (0, u64::MAX, at_host.welcome.node));
    let peer = at_host.with(|s| s.peers[&at_box.welcome.node.get()].clone());
    assert_eq!((peer.incarnation, peer.mtu), (1, 1500), "the smaller MTU of both");

    // In order: the box first on the way in, the host first on the way out.
    assert_eq!(
        steps(&last_operation(&manager)),
        ["bind-slot done", "bind-port done", "enumerate done"]
    );
    manager.text(&["release", "alloc-1"]);
    assert_eq!(steps(&last_operation(&manager)), ["unbind-port done", "unbind-slot done"]);
    assert!(at_host.with(|s| s.ports.is_empty()) && at_box.bound(1).is_none());
    manager.wait_slot("box1/1", "free");
    eventually("the proxies to forget each other", || {
        let host = ["SetPeer", "BindPort", "UnbindPort", "RemovePeer"];
        let boxed = ["SetPeer", "BindSlot", "UnbindSlot", "RemovePeer"];
        (asked(&at_host) == host && asked(&at_box) == boxed).then_some(())
    });
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());

    // The next time the epoch is higher.
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    assert_eq!(at_box.bound(1).unwrap().epoch, Epoch::new(0, 2).unwrap());
}

#[test]
fn several_are_lent_together_or_not_at_all() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let (code, problem) = manager.failure(&["allocate", "--host", "host1", "--count", "3"]);
    assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")));
    assert_eq!(problem["reasons"], json!(["2 of 2 can be lent now, 3 needed"]));
    assert!(asked(&at_box).is_empty() && asked(&at_host).is_empty());
    let lent = manager.json(&["allocate", "--host", "host1", "--count", "2"]);
    assert_eq!(lent["bindings"].as_array().unwrap().len(), 2);
    assert!(at_box.bound(1).is_some() && at_box.bound(2).is_some());
    assert_eq!(at_host.with(|s| s.ports.keys().copied().collect::<Vec<_>>()), [0, 1]);

    // One of them goes by its slot, the other by its number; then nothing is left.
    manager.text(&["release", "box1/1"]);
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_some());
    manager.text(&["release", "bind-2"]);
    assert_eq!(manager.failure(&["show", "alloc-1"]).0, 3);
}

#[test]
fn what_cannot_be_lent_says_why() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    let _other = Fake::join(manager.control, host("host2", 1), "");
    manager.wait_ready(&["host2"]);
    manager.text(&["allocate", "--host", "host2", "--box", "box1", "--slot", "1"]);
    let at = |host: &str, name: &str, slot: &str| {
        manager.failure(&["allocate", "--host", host, "--box", name, "--slot", slot])
    };
    let (code, problem) = at("host1", "box1", "1");
    assert_eq!((code, &problem["code"]), (4, &json!("slot-in-use")));
    assert_eq!(problem["owner"]["host"], "host2");
    assert!(problem["owner"]["since"].as_str().unwrap().starts_with("20"));
    let (code, problem) = at("host1", "box1", "3");
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-slot")));
    let (code, problem) = at("host1", "box9", "1");
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-box")));
    let (code, problem) = at("host9", "box1", "2");
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-host")));
    let (code, problem) = at("host2", "box1", "2");
    assert_eq!(
        (code, &problem["reasons"][0]),
        (5, &json!("host host2 has 0 of 1 ports free, 1 needed"))
    );

    at_box.with(|s| s.slots[1].state = SlotState::Empty);
    let function = SlotFunction::ZERO;
    let slot = SlotId::new(2).unwrap();
    at_box.event(Event::Slot { slot, function, state: SlotState::Empty });
    manager.wait_slot("box1/2", "empty");
    let (code, problem) = at("host1", "box1", "2");
    assert_eq!((code, &problem["code"]), (4, &json!("slot-empty")));
    assert_eq!(manager.failure(&["release", "box1/2"]).0, 4);
    assert_eq!(manager.failure(&["release", "alloc-99"]).0, 3);
}

#[test]
fn an_allocation_waits_for_what_passes_by_itself() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    let refused = ["allocate", "--host", "host1", "--wait-ms", "0"];
    let (code, problem) = manager.failure(&refused);
    assert_eq!(
        (code, &problem["code"], &problem["transient"]),
        (6, &json!("not-connected"), &json!(true))
    );

    let begin = || {
        let mut command = manager.begin(&["allocate", "--host", "host1", "--wait-ms", "60000"]);
        let mut said = BufReader::new(command.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        (command, said, line)
    };
    let (mut command, _said, line) = begin();
    assert!(
        line.contains("waiting up to 60s") && line.contains("host1 is not connected"),
        "{line}"
    );
    let _at_host = Fake::insist(manager.control, again.0, again.1);
    assert!(command.wait().unwrap().success());
    manager.text(&["release", "alloc-1"]);

    // The same with a device that is not ready yet.
    let event =
        |state| Event::Slot { slot: SlotId::new(1).unwrap(), function: SlotFunction::ZERO, state };
    at_box.with(|s| s.slots.truncate(1));
    at_box.with(|s| s.slots[0].state = SlotState::Probing);
    at_box.event(event(SlotState::Probing));
    manager.wait_slot("box1/1", "probing");
    let second = SlotId::new(2).unwrap();
    at_box.event(Event::Slot {
        slot: second,
        function: SlotFunction::ZERO,
        state: SlotState::Empty,
    });
    manager.wait_slot("box1/2", "empty");
    let (mut command, _said, line) = begin();
    assert!(line.contains("box1/1 has a device that is not ready yet"), "{line}");
    at_box.with(|s| s.slots[0].state = SlotState::Free);
    at_box.event(event(SlotState::Free));
    assert!(command.wait().unwrap().success());
}

#[test]
fn the_same_key_gives_the_same_operation() {
    let manager = Manager::start();
    let (_host, _box) = pair(&manager);
    let allocate = |key: &str, host: &str| {
        let body = json!({ "host": host }).to_string();
        manager.raw("POST", "/v1/allocations", &[("idempotency-key", key)], Some(&body))
    };
    let (status, first) = allocate("k1", "host1");
    assert_eq!(status, 202);
    let (status, second) = allocate("k1", "host1");
    let id = |text: &str| serde_json::from_str::<Value>(text).unwrap()["id"].clone();
    assert_eq!((status, id(&second)), (202, id(&first)));
    let (status, other) = allocate("k1", "host2");
    assert_eq!(status, 422, "{other}");
    assert_eq!(allocate("", "host1").0, 400);
    assert_eq!(manager.get("/v1/allocations")["items"].as_array().unwrap().len(), 1);
    let delete =
        || manager.raw("DELETE", "/v1/allocations/alloc-1", &[("idempotency-key", "k2")], None);
    let (status, first) = delete();
    assert_eq!(status, 202);
    eventually("the release", || {
        manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty().then_some(())
    });
    assert_eq!(id(&delete().1), id(&first), "also when it is long done");
}

#[test]
fn a_command_that_waits_goes_on_when_the_manager_was_away() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    let command = manager.begin(&["release", "alloc-1", "--output", "json"]);
    manager.wait_event("operation-started", "op-2");
    manager.kill();
    std::thread::sleep(Duration::from_secs(1));
    manager.run();
    let _host = Fake::insist(manager.control, host_again.0, host_again.1);
    let _box = Fake::insist(manager.control, box_again.0, box_again.1);
    let output = command.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ended = &printed["items"][0];
    assert_eq!((&ended["id"], &ended["state"]), (&json!("op-2"), &json!("succeeded")));
}

#[test]
fn a_key_stands_for_the_release_that_its_request_joined() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    // The release has to last until another one has joined it.
    let again = at_host.leave();
    let delete = |key: &str, query: &str| {
        let path = format!("/v1/allocations/alloc-1{query}");
        manager.raw("DELETE", &path, &[("idempotency-key", key)], None)
    };
    let id = |text: &str| serde_json::from_str::<Value>(text).unwrap()["id"].clone();
    let (_, first) = delete("k1", "");
    let (status, joined) = delete("k2", "");
    assert_eq!((status, id(&joined)), (202, id(&first)));
    let _host = Fake::insist(manager.control, again.0, again.1);
    eventually("the release", || {
        manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty().then_some(())
    });
    let (status, again) = delete("k2", "");
    assert_eq!((status, id(&again)), (202, id(&first)));
    assert_eq!(delete("k2", "?force=true").0, 422);
}

#[test]
fn a_retry_that_comes_late_is_told_what_its_request_did_and_does_nothing() {
    let manager =
        Manager::with_settings("[keep]\noperations_least = 0\noperations_most = 1\n", &[]);
    let (_host, _box) = pair(&manager);
    let allocate = |key: &str, count: u32| {
        let body = json!({ "host": "host1", "count": count }).to_string();
        manager.raw("POST", "/v1/allocations", &[("idempotency-key", key)], Some(&body))
    };
    assert_eq!(allocate("k1", 1).0, 202);
    manager.wait_event("operation-succeeded", "op-1");
    // Another operation ends, and the first is not kept any more.
    manager.text(&["release", "alloc-1"]);
    manager.text(&["allocate", "--host", "host1"]);
    assert_eq!(manager.raw("GET", "/v1/operations/op-1", &[], None).0, 404);
    let (status, late) = allocate("k1", 1);
    let late: Value = serde_json::from_str(&late).unwrap();
    assert_eq!((status, &late["id"], &late["state"]), (202, &json!("op-1"), &json!("succeeded")));
    assert_eq!(late["allocation"], "alloc-1");
    assert!(late["warnings"][0].as_str().unwrap().contains("no longer kept"), "{late}");
    assert_eq!(allocate("k1", 2).0, 422);
    assert_eq!(manager.get("/v1/allocations")["items"].as_array().unwrap().len(), 1);
}

#[test]
fn two_boxes_with_the_same_keys_are_told_apart() {
    let manager = Manager::start();
    let (at_host, _box1) = pair(&manager);
    let box2 = Fake::join(manager.control, boxed("box2", 1), "gpu");
    manager.wait_ready(&["box2"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    manager.text(&["allocate", "--host", "host1", "--model", "gpu"]);
    let key = box2.bound(1).unwrap();
    let peer: NodeId = box2.welcome.node;
    at_host.event(Event::BindingFailed { peer, key, reason: BindingFailure::TlpCrc });
    manager.wait_event("rebinding", "box2/1 gets epoch 0.2");
    assert!(!manager.has_event("binding-failed", "box1/1"));
}

/// What is lent right after it was taken back is not cut off by the proxies' parting.
#[test]
fn lending_and_taking_back_in_a_row() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    for round in 1..=20 {
        let lent = manager.json(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
        let (host_node, box_node) = (at_host.welcome.node.get(), at_box.welcome.node.get());
        assert!(at_host.with(|s| s.peers.contains_key(&box_node)), "round {round}");
        assert!(at_box.with(|s| s.peers.contains_key(&host_node)), "round {round}");
        manager.text(&["release", lent["id"].as_str().unwrap(), "--force"]);
    }
    assert!(!manager.has_event("trouble", ""), "nothing went wrong on the way");
}
