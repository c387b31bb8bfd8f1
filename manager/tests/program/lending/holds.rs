//! What is held back, emptied and replaced.

use super::{asked, is_bind_port, is_bind_slot, is_unbind_port, last_operation, pair, steps};
use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{ControlError, Event};
use serde_json::{Value, json};
use tlp_codec::ids::PortId;

fn ended(manager: &Manager, id: &str) -> Value {
    eventually("the operation's end", || {
        let operation = manager.get(&format!("/v1/operations/{id}"));
        operation["ended"].is_string().then_some(operation)
    })
}

#[test]
fn what_is_held_back_gets_nothing_new_until_it_is_put_back() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let why = ["--on", "--reason", "a new fan"];
    for place in ["box1", "box1/2", "host1"] {
        let held = manager.json(&[&["maintain", place][..], &why].concat());
        assert_eq!((&held["kind"], &held["reason"]), (&json!("maintenance"), &json!("a new fan")));
        assert!(manager.text(&["holds"]).contains("a new fan"));
        let refused = ["allocate", "--host", "host1", "--wait-ms", "0"];
        let (code, problem) = manager.failure(&refused);
        let detail = problem["detail"].as_str().unwrap();
        match place {
            "host1" => assert!(code == 4 && detail.contains("maintenance): a new fan"), "{detail}"),
            _ => assert!(code == 5 && detail.contains("box1/2 is held back"), "{detail}"),
        }
        assert!(at_box.bound(1).is_some(), "what is lent stays");
        // Twice is the same as once.
        manager.text(&[&["maintain", place][..], &why].concat());
        manager.text(&["maintain", place, "--off"]);
        assert_eq!(manager.failure(&["maintain", place, "--off"]).0, 3);
        let told = String::from_utf8(manager.cli(&["maintain", place]).stderr).unwrap();
        assert!(told.contains("--on") && told.contains("--off"), "{told}");
        manager.text(&["allocate", "--host", "host1"]);
        manager.text(&["release", "box1/2"]);
    }
    let on = |place: &str| manager.failure(&["maintain", place, "--on", "--reason", "x"]).0;
    assert_eq!((on("box9"), on("box1/9")), (3, 3));
}

#[test]
fn a_drained_box_is_empty_and_stays_so() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    let drained = manager.json(&["drain", "box1", "--reason", "a new fan"]);
    assert_eq!(drained["state"], "succeeded");
    assert_eq!(steps(&drained), ["unbind-port done", "unbind-slot done"].repeat(2));
    assert!(at_box.bound(1).is_none() && at_host.with(|s| s.ports.is_empty()));
    assert_eq!(manager.get("/v1/slots")["items"][0]["status"], "held");
    // Also for a manager that starts again.
    manager.kill();
    manager.run();
    assert_eq!(manager.get("/v1/holds")["items"][0]["kind"], "drained");
    manager.text(&["maintain", "box1", "--off"]);
    assert_eq!(manager.get("/v1/slots")["items"][0]["status"], "free");
}

#[test]
fn what_is_being_lent_in_a_drained_box_is_undone_as_a_whole() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let box2 = Fake::join(manager.control, boxed("box2", 1), "nvme");
    manager.wait_ready(&["box2"]);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["allocate", "--host", "host1", "--count", "3", "--no-wait"]);
    eventually("the boxes", || at_box.bound(1).and(at_box.bound(2)).and(box2.bound(1)));
    let drained = manager.json(&["drain", "box2", "--reason", "x"]);
    assert_eq!(drained["state"], "succeeded");
    let undone = ended(&manager, "op-1");
    assert_eq!(
        (&undone["state"], &undone["error"]["code"]),
        (&json!("failed"), &json!("superseded"))
    );
    assert!(at_box.bound(1).is_none() && box2.bound(1).is_none());
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());
}

#[test]
fn a_drained_host_gives_back_what_it_has() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    let begun = manager.json(&["drain", "host1", "--reason", "x", "--no-wait"]);
    let since = begun["started"].as_str().unwrap();
    let refusals: [(&[&str], String); 2] = [
        (&["drain", "host1", "--reason", "x"], format!("op-2 drains host1 already, since {since}")),
        (&["maintain", "host1", "--off"], format!("op-2 drains host1 since {since}")),
    ];
    for (command, says) in refusals {
        let (code, problem) = manager.failure(command);
        assert!(code == 4 && problem["detail"].to_string().contains(&says), "{problem}");
    }
    // It is waited for. Called back, everything is as before.
    assert_eq!(manager.json(&["cancel", "op-2"])["state"], "cancelled");
    assert!(manager.get("/v1/holds")["items"].as_array().unwrap().is_empty());
    let _at_host = Fake::insist(manager.control, again.0, again.1);
    manager.wait_ready(&["host1"]);
    assert!(at_box.bound(1).is_some());
    assert_eq!(manager.json(&["drain", "host1", "--reason", "x"])["state"], "succeeded");
    assert!(at_box.bound(1).is_none());
}

#[test]
fn maintenance_that_is_asked_for_during_a_drain_stays_when_that_is_called_back() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let _again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["drain", "host1", "--reason", "x", "--no-wait"]);
    let kind = || manager.get("/v1/holds")["items"][0]["kind"].clone();
    manager.text(&["maintain", "host1", "--on", "--reason", "new memory"]);
    manager.text(&["maintain", "host1", "--on", "--reason", "the second time"]);
    assert_eq!(kind(), "drained");
    assert_eq!(manager.json(&["cancel", "op-2"])["state"], "cancelled");
    let held = &manager.get("/v1/holds")["items"][0];
    assert_eq!((&held["kind"], &held["reason"]), (&json!("maintenance"), &json!("new memory")));
    manager.text(&["maintain", "host1", "--off"]);
    assert_eq!(kind(), Value::Null);
}

#[test]
fn a_broken_device_is_replaced_by_another_on_the_same_host() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let other = Fake::join(manager.control, boxed("box2", 1), "gpu");
    manager.wait_ready(&["box2"]);
    let lent = manager.json(&["allocate", "--host", "host1", "--model", "nvme"]);
    assert_eq!(lent["bindings"][0]["slot"], "box1/1");
    let replaced = manager.json(&["replace", "bind-1", "--force", "--reason", "it is hot"]);
    assert_eq!(replaced["state"], "succeeded");
    assert_eq!(
        steps(&replaced),
        [
            "bind-slot done",
            "bind-port done",
            "enumerate done",
            "unbind-port done",
            "unbind-slot done"
        ]
    );
    assert_eq!(replaced["what"]["slots"], json!(["box1/1", "box1/2"]));
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_some() && other.bound(1).is_none());
    assert_eq!(at_host.with(|s| s.ports.keys().copied().collect::<Vec<_>>()), [1]);
    // It is the same allocation, and the old slot is held back with the reason.
    let now = manager.json(&["show", "alloc-1"]);
    assert_eq!(
        (now["bindings"].as_array().unwrap().len(), &now["bindings"][0]["slot"]),
        (1, &json!("box1/2"))
    );
    let held = &manager.get("/v1/holds")["items"][0];
    assert_eq!((&held["place"], &held["kind"]), (&json!("box1/1"), &json!("replaced")));
    assert_eq!(held["reason"], "it is hot");
    // The new one came before the old one went.
    let plugged: Vec<_> =
        asked(&at_host).into_iter().filter(|what| !what.contains("Peer")).collect();
    assert_eq!(plugged, ["BindPort", "BindPort", "UnbindPort by force"]);
    // There is no third one.
    let (code, problem) = manager.failure(&["replace", "bind-2", "--reason", "x"]);
    assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")));
    assert_eq!(manager.failure(&["replace", "bind-1", "--reason", "x"]).0, 3);
}

#[test]
fn what_replaces_a_device_that_vanished_is_of_its_model() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    let _other = Fake::join(manager.control, boxed("box2", 1), "gpu");
    manager.wait_ready(&["host1", "box1", "box2"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    at_box.with(|s| s.slots[0].model = String::new());
    at_box.set_device(1, None);
    eventually("the box without its device", || {
        (manager.get("/v1/boxes/box1/slots/1")["model"] == "").then_some(())
    });
    assert_eq!(manager.get("/v1/bindings")["items"][0]["model"], "nvme");
    let refused = |binding: &str| {
        let (code, problem) = manager.failure(&["replace", binding, "--force", "--reason", "x"]);
        assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")));
        let detail = problem["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("model \"nvme\""), "{detail}");
    };
    refused("bind-1");
    // Another one, of which only the inventory says what it is.
    let inventory = json!({ "boxes": { "box3": { "slots": { "1": { "model": "nvme" } } } } });
    assert_eq!(manager.request("PUT", "/v1/inventory", Some(&inventory)).0, 200);
    let at_box3 = Fake::join(manager.control, boxed("box3", 1), "");
    manager.wait_ready(&["box3"]);
    let replaced = manager.json(&["replace", "bind-1", "--force", "--reason", "x"]);
    assert_eq!(replaced["what"]["slots"], json!(["box1/1", "box3/1"]));
    let binding = &manager.get("/v1/bindings")["items"][0];
    assert_eq!(binding["model"], "nvme");
    refused(binding["id"].as_str().unwrap());
    drop(at_box3);
}

/// The slots of an allocation.
fn slots_of(manager: &Manager, allocation: &str) -> Vec<String> {
    let shown = manager.json(&["show", allocation]);
    let bindings = shown["bindings"].as_array().unwrap().iter();
    let mut slots: Vec<_> = bindings.map(|b| b["slot"].as_str().unwrap().to_owned()).collect();
    slots.sort();
    slots
}

#[test]
fn what_was_lent_in_an_island_stays_in_one() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 6), "");
    let _nv1 = Fake::join(manager.control, boxed("nv1", 6), "gpu");
    let _nv2 = Fake::join(manager.control, boxed("nv2", 5), "gpu");
    manager.wait_ready(&["host1", "nv1", "nv2"]);
    let islands = |islands: Value| json!({ "kind": "nvlink", "islands": islands });
    let inventory = json!({ "boxes": {
        "nv1": islands(json!([{ "slots": [1, 2] }, { "slots": [3, 4, 5] }])),
        "nv2": islands(json!([{ "slots": [1, 2] }, { "slots": [3, 4, 5] }])),
    } });
    assert_eq!(manager.request("PUT", "/v1/inventory", Some(&inventory)).0, 200);
    manager.text(&["allocate", "--host", "host1", "--box", "nv2", "--slot", "1"]);
    let lend = ["allocate", "--host", "host1", "--together", "island", "--count", "2"];
    manager.text(&[&lend[..], &["--box", "nv1"]].concat());
    assert_eq!(slots_of(&manager, "alloc-2"), ["nv1/1", "nv1/2"]);
    // There are others in that box, but not in that island.
    let (code, problem) = manager.failure(&["replace", "bind-2", "--reason", "x"]);
    assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")));
    assert!(problem["detail"].as_str().unwrap().contains("in the island of nv1/2"), "{problem}");
    // All of it moves to where there is room for both, and not one by one to what is left over.
    let drained = manager.json(&["drain", "nv1", "--replace", "--reason", "x"]);
    assert_eq!(steps(&drained), ["replace done", "replace done"]);
    let now = slots_of(&manager, "alloc-2");
    assert_eq!(now, ["nv2/3", "nv2/4"]);
    // The third of that island is there for either.
    let bindings = manager.json(&["show", "alloc-2"]);
    let first = bindings["bindings"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(manager.json(&["replace", &first, "--reason", "x"])["state"], "succeeded");
    assert!(slots_of(&manager, "alloc-2").contains(&"nv2/5".to_owned()));
}

#[test]
fn a_host_that_is_held_back_gets_no_replacement_and_a_dry_run_says_so() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["maintain", "host1", "--on", "--reason", "new memory"]);
    for args in [
        &["allocate", "--host", "host1", "--dry-run"][..],
        &["allocate", "--host", "host1", "--wait-ms", "0"],
        &["replace", "bind-1", "--reason", "x"],
    ] {
        let (code, problem) = manager.failure(args);
        assert_eq!((code, &problem["code"]), (4, &json!("held")), "{args:?}");
        assert!(problem["detail"].as_str().unwrap().contains("new memory"), "{problem}");
    }
    assert!(at_box.bound(1).is_some() && at_box.bound(2).is_none());
    manager.text(&["maintain", "host1", "--off"]);
    assert_eq!(manager.json(&["replace", "bind-1", "--reason", "x"])["state"], "succeeded");
}

#[test]
fn a_replacement_is_chosen_by_the_expression_that_the_devices_were_asked() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 4), "");
    let _box = Fake::join(manager.control, boxed("box1", 5), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    // It has to be asked of each device.
    let odd = ["allocate", "--host", "host1", "--cel", "slot % 2 == 1"];
    assert_eq!(manager.json(&odd)["bindings"][0]["slot"], "box1/1");
    let replace = |id: &str| ["replace".to_owned(), id.to_owned(), "--reason=x".to_owned()];
    let replaced = |id: &str| {
        let arguments = replace(id);
        manager.json(&arguments.each_ref().map(String::as_str))
    };
    for (id, slots) in [("bind-1", ["box1/1", "box1/3"]), ("bind-2", ["box1/3", "box1/5"])] {
        let ended = replaced(id);
        assert_eq!(ended["what"]["slots"], json!(slots), "{ended}");
    }
    // The even ones are free, and what stands in the way is said.
    let arguments = replace("bind-3");
    let (code, problem) = manager.failure(&arguments.each_ref().map(String::as_str));
    assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")));
    let reasons = problem["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|why| why.as_str().unwrap().contains("slot % 2 == 1")), "{problem}");
    // A key stands for the replacement also when the old device is gone.
    let path = "/v1/bindings/bind-3/replace";
    let again = || {
        let (status, text) =
            manager.raw("POST", path, &[("idempotency-key", "k1")], Some(r#"{"reason": "x"}"#));
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    manager.text(&["maintain", "box1/1", "--off"]);
    let (status, first) = again();
    assert_eq!(status, 202, "{first}");
    assert_eq!(ended(&manager, first["id"].as_str().unwrap())["state"], "succeeded");
    let (status, second) = again();
    assert_eq!((status, &second["id"]), (202, &first["id"]));
}

#[test]
fn a_replacement_that_fails_leaves_the_old_device() {
    let manager = Manager::with_timing(&[("enumeration_ms", 3_000)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let epoch = at_box.bound(1).unwrap().epoch;
    // The box refuses the new one.
    at_box.script(is_bind_slot, [Script::Refuse(ControlError::BadWindows)]);
    assert_eq!(manager.failure(&["replace", "bind-1", "--reason", "x"]).0, 7);
    // The operating system does not enable it.
    at_host.with(|s| s.enumerates = false);
    let (code, problem) = manager.failure(&["replace", "bind-1", "--reason", "x"]);
    assert_eq!((code, &problem["code"]), (10, &json!("not-enumerated")));
    // Somebody calls it back.
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["replace", "bind-1", "--reason", "x", "--no-wait"]);
    eventually("the new one", || at_box.bound(2));
    let since = manager.get("/v1/operations/op-4")["started"].as_str().unwrap().to_owned();
    let detail = manager.failure(&["replace", "bind-1", "--reason", "x"]).1["detail"].to_string();
    assert!(
        detail.contains(&format!("op-4 is at work on box1/1 (bind-1) since {since}")),
        "{detail}"
    );
    assert_eq!(manager.json(&["cancel", "op-4"])["state"], "cancelled");
    let operation = last_operation(&manager);
    assert_eq!(&steps(&operation)[3..5], ["unbind-port skipped", "unbind-slot skipped"]);

    assert_eq!(at_box.bound(1).unwrap().epoch, epoch, "it never went away");
    assert!(at_box.bound(2).is_none());
    assert_eq!(at_host.with(|s| s.ports.keys().copied().collect::<Vec<_>>()), [0]);
    assert!(manager.get("/v1/holds")["items"].as_array().unwrap().is_empty());
}

#[test]
fn a_drain_replaces_what_it_can_and_names_what_it_cannot() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let box2 = Fake::join(manager.control, boxed("box2", 1), "nvme");
    manager.wait_ready(&["box2"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--count", "2"]);
    let (code, problem) = manager.failure(&["drain", "box1", "--replace", "--reason", "a new fan"]);
    assert_eq!((code, &problem["code"]), (7, &json!("nothing-fits")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("not empty: box1/"), "{detail}");
    assert!(box2.bound(1).is_some());
    // With another one it goes on.
    let _box3 = Fake::join(manager.control, boxed("box3", 1), "nvme");
    manager.wait_ready(&["box3"]);
    let drained = manager.json(&["drain", "box1", "--replace", "--reason", "a new fan"]);
    assert_eq!(steps(&drained), ["replace done"]);
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
    assert_eq!(at_host.with(|s| s.ports.len()), 2);
}

/// An inventory of two racks at a site, as a file.
pub(super) fn racks(manager: &Manager, box2: &str) {
    let inventory = json!({
        "sites": { "s1": {} },
        "racks": { "r1": { "site": "s1" }, "r2": { "site": "s1" } },
        "boxes": { "box1": { "rack": "r1" }, "box2": { "rack": box2 }, "box3": { "rack": "r1" } },
        "hosts": { "host2": { "rack": "r2" } },
        "fabrics": { "f1": { "paths": [0] } },
    });
    let json = [("content-type", "application/json")];
    let body = inventory.to_string();
    let (status, text) = manager.raw("PUT", "/v1/inventory", &json, Some(&body));
    assert_eq!(status, 200, "{text}");
}

fn status(manager: &Manager, slot: &str) -> Value {
    let slots = manager.get("/v1/slots");
    let slots = slots["items"].as_array().unwrap();
    slots.iter().find(|s| s["slot"] == slot).map_or(Value::Null, |s| s["status"].clone())
}

#[test]
fn a_drained_rack_is_emptied_and_what_comes_into_it_gets_nothing() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    let box2 = Fake::join(manager.control, boxed("box2", 1), "nvme");
    manager.wait_ready(&["box2"]);
    racks(&manager, "r2");
    manager.text(&["allocate", "--host", "host1", "--box", "box1"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box2"]);
    let drained = manager.json(&["drain", "rack:r1", "--reason", "new power"]);
    assert_eq!(
        (&drained["state"], &drained["what"]["slots"]),
        (&json!("succeeded"), &json!(["box1/1"]))
    );
    assert!(at_box.bound(1).is_none() && box2.bound(1).is_some());
    assert_eq!(status(&manager, "box1/1"), "held");
    // One that comes later.
    let _box3 = Fake::join(manager.control, boxed("box3", 1), "nvme");
    manager.wait_ready(&["box3"]);
    assert_eq!(status(&manager, "box3/1"), "held");
    // One that is moved there, and back.
    manager.text(&["release", "alloc-2"]);
    racks(&manager, "r1");
    assert_eq!(status(&manager, "box2/1"), "held");
    racks(&manager, "r2");
    assert_eq!(status(&manager, "box2/1"), "free");
    // A site is all of its racks, and holds hosts back too.
    manager.text(&["maintain", "rack:r1", "--off"]);
    assert_eq!(status(&manager, "box1/1"), "free");
    manager.text(&["maintain", "site:s1", "--on", "--reason", "moving"]);
    assert_eq!(
        (status(&manager, "box1/1"), status(&manager, "box2/1")),
        (json!("held"), json!("held"))
    );
    let _host2 = Fake::join(manager.control, host("host2", 1), "");
    manager.wait_ready(&["host2"]);
    let (code, problem) = manager.failure(&["allocate", "--host", "host2", "--wait-ms", "0"]);
    let detail = problem["detail"].as_str().unwrap();
    assert!(code == 4 && detail.contains("held back with site:s1"), "{detail}");
    manager.text(&["maintain", "site:s1", "--off"]);
    for place in ["rack:r9", "site:s9", "fabric:f9"] {
        let (code, problem) = manager.failure(&["drain", place, "--reason", "x"]);
        assert_eq!((code, &problem["code"]), (3, &json!("no-such-place")), "{place}");
    }
}

#[test]
fn a_rack_is_emptied_by_replacing_what_hosts_elsewhere_have() {
    let manager = Manager::start();
    let (_host1, at_box) = pair(&manager);
    let box2 = Fake::join(manager.control, boxed("box2", 2), "nvme");
    let _host2 = Fake::join(manager.control, host("host2", 2), "");
    manager.wait_ready(&["box2", "host2"]);
    racks(&manager, "r2");
    manager.text(&["allocate", "--host", "host1", "--box", "box2"]);
    manager.text(&["allocate", "--host", "host2", "--box", "box2"]);
    let drained = manager.json(&["drain", "rack:r2", "--replace", "--reason", "new power"]);
    assert_eq!(drained["state"], "succeeded");
    assert_eq!(steps(&drained), ["replace done", "unbind-port done", "unbind-slot done"]);
    assert!(box2.bound(1).is_none() && box2.bound(2).is_none());
    assert!(at_box.bound(1).is_some(), "host1 has another one");
    assert_eq!(manager.get("/v1/bindings")["items"].as_array().unwrap().len(), 1);
}

/// Its host goes away before it has let go of the old one.
#[test]
fn a_replacement_whose_new_device_is_in_place_goes_on_to_its_end() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.with(|s| s.enumerates = false);
    manager.text(&["replace", "bind-1", "--reason", "x", "--no-wait"]);
    eventually("the new one", || at_host.with(|s| s.ports.contains_key(&1).then_some(())));
    at_host.rule(|request| is_unbind_port(request).then_some(Script::Vanish));
    at_host.event(Event::DeviceConfigured { port: PortId::new(1).unwrap() });
    let again = at_host.leave();
    manager.wait_event("replaced", "host1 has box1/2 in the place of box1/1");
    let (code, problem) = manager.failure(&["cancel", "op-2"]);
    assert_eq!((code, &problem["code"]), (4, &json!("too-late")), "{problem}");
    again.1.lock().unwrap().rules.clear();
    let _at_host = Fake::insist(manager.control, again.0, again.1);
    assert_eq!(ended(&manager, "op-2")["state"], "succeeded");
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_some());
}
