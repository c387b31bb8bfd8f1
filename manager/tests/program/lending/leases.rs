//! Leases, and what the lender takes back.

use super::{asked, is_bind_port, last_operation, pair, steps};
use crate::common::fake::{Fake, Script};
use crate::common::{Manager, eventually};
use proxy_core::control::{ControlError, Event};
use serde_json::json;
use tlp_codec::ids::PortId;

/// A warning of 0.3 s and a grace of 0.5 s.
fn manager() -> Manager {
    Manager::with_timing(&[("lease_warning_ms", 300), ("lease_grace_ms", 500)])
}

#[test]
fn a_lease_that_is_over_is_taken_back_after_a_warning() {
    let manager = Manager::with_timing(&[("lease_warning_ms", 2_000)]);
    let (at_host, at_box) = pair(&manager);
    let lent = manager.json(&["allocate", "--host", "host1", "--count", "2", "--lease", "3s"]);
    assert!(lent["lease"]["left_ms"].as_u64().unwrap() <= 3000, "{lent}");
    assert!(manager.text(&["show", "alloc-1"]).contains("lent until 20"));
    manager.wait_event("lease-ending", "the lease of alloc-1 ends at 20");
    assert!(at_box.bound(1).is_some(), "it still has its time");
    manager.wait_event("lease-over", "the lease of alloc-1 is over");
    manager.wait_slot("box1/1", "free");
    manager.wait_slot("box1/2", "free");
    assert!(at_host.with(|s| s.ports.is_empty()));
    // In an orderly way.
    assert!(!asked(&at_host).contains(&"UnbindPort by force"));
    let operation = eventually("the end", || {
        Some(last_operation(&manager)).filter(|operation| operation["state"] == "succeeded")
    });
    assert_eq!(
        (&operation["what"]["kind"], &operation["allocation"]),
        (&json!("take-back"), &json!("alloc-1"))
    );
    assert_eq!(steps(&operation), ["unbind-port done", "unbind-slot done"].repeat(2));
    assert_eq!(manager.failure(&["extend", "alloc-1", "--lease", "1h"]).0, 3);
}

#[test]
fn a_lease_is_extended_and_never_shortened() {
    let mut manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--lease", "1m"]);
    let extended = manager.json(&["extend", "alloc-1", "--lease", "1h"]);
    let left = extended["lease"]["left_ms"].as_u64().unwrap();
    assert!((3_590_000..=3_600_000).contains(&left), "{left}");
    let (code, problem) = manager.failure(&["extend", "alloc-1", "--lease", "30m"]);
    assert_eq!((code, &problem["field"]), (2, &json!("lease_ms")));
    manager.text(&["allocate", "--host", "host1"]);
    let (code, problem) = manager.failure(&["extend", "alloc-2", "--lease", "1h"]);
    assert_eq!((code, &problem["field"]), (2, &json!("lease_ms")));
    assert!(problem["detail"].as_str().unwrap().contains("without an end"), "{problem}");

    // It is in the store: a manager that starts again has it. What is over by then still has the
    // warning time.
    manager.text(&["release", "alloc-2"]);
    manager.text(&["allocate", "--host", "host1", "--lease", "400ms", "--no-wait"]);
    manager.kill();
    std::thread::sleep(std::time::Duration::from_millis(500));
    manager.run();
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    let _at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    manager.wait_event("lease-ending", "alloc-3");
    manager.wait_event("lease-over", "alloc-3");
    manager.wait_slot("box1/2", "free");
    assert!(at_box.bound(1).is_some(), "the other one stays");
    let left = manager.json(&["show", "alloc-1"])["lease"]["left_ms"].as_u64().unwrap();
    assert!((3_000_000..3_600_000).contains(&left), "{left}");
}

/// The first slot's device is taken from its host without waiting for it.
fn is_taken_by_force(manager: &Manager, at_box: &Fake) {
    manager.wait_event("take-back-forced", "host1 has not let go of box1/1 in time");
    manager.wait_slot("box1/1", "free");
    assert!(at_box.bound(1).is_none());
}

#[test]
fn a_host_that_is_away_when_its_lease_is_over_is_not_waited_for() {
    let manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--lease", "3s"]);
    let again = at_host.leave();
    is_taken_by_force(&manager, &at_box);
    let at_host = Fake::insist(manager.control, again.0, again.1);
    eventually("a clean host", || at_host.with(|s| s.ports.is_empty()).then_some(()));
}

#[test]
fn the_lender_takes_back_after_a_time_that_the_borrower_is_told() {
    let mut manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["allocate", "--host", "host1"]);
    let args = ["take-back", "host1", "--reason", "the lab closes"];
    let begun = manager.json(&[&args[..], &["--grace", "1s", "--no-wait"]].concat());
    assert_eq!(begun["what"]["stage"], "notice");
    manager.wait_event("take-back-notice", "box1/1 of host1 will be taken back at 20");
    manager.wait_event("take-back-notice", "box1/2 of host1 will be taken back at 20");
    let (code, problem) = manager.failure(&args);
    assert_eq!((code, &problem["code"]), (4, &json!("slot-busy")));
    let since = format!("already, since {}", begun["started"].as_str().unwrap());
    assert!(problem["detail"].as_str().unwrap().contains(&since), "{problem}");
    // One of them is given back in time; the manager is killed meanwhile.
    manager.text(&["release", "alloc-1"]);
    manager.kill();
    manager.run();
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    let _at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    let operation = eventually("the end", || {
        Some(manager.get("/v1/operations/op-3")).filter(|o| o["state"] == "succeeded")
    });
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
    assert_eq!(steps(&operation), ["unbind-port done", "unbind-slot done"].repeat(2));
    assert_eq!(operation["steps"][0]["detail"], "released by another operation");
    assert_eq!(manager.failure(&args).0, 4, "nothing of it is lent");
}

#[test]
fn a_take_back_can_be_called_back_while_the_borrower_has_time() {
    let manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let args = ["take-back", "alloc-1", "--reason", "x", "--grace", "1h", "--no-wait"];
    manager.text(&args);
    assert_eq!(manager.json(&["cancel", "op-2"])["state"], "cancelled");
    assert!(at_box.bound(1).is_some());
    assert!(!asked(&at_host).contains(&"UnbindPort"));
    // The next one is not kept from it.
    manager.text(&["take-back", "bind-1", "--reason", "x"]);
    assert!(at_box.bound(1).is_none());
    assert_eq!(manager.failure(&["take-back", "box1/1", "--reason", "x"]).0, 4);
    assert_eq!(manager.failure(&["take-back", "nobody", "--reason", "x"]).0, 3);
    assert_eq!(manager.failure(&["take-back", "a b", "--reason", "x"]).0, 2);
    assert_eq!(manager.failure(&["take-back", "host1", "--reason", " "]).0, 2);
}

#[test]
fn what_will_be_taken_back_is_not_replaced() {
    let manager = manager();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["take-back", "alloc-1", "--grace", "1h", "--reason", "x", "--no-wait"]);
    let (code, problem) = manager.failure(&["replace", "bind-1", "--reason", "x"]);
    assert_eq!((code, &problem["code"]), (4, &json!("slot-busy")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("op-2 takes box1/1 back since 20"), "{detail}");
    // A drain waits for the end of it, either way.
    manager.text(&["drain", "box1/1", "--replace", "--reason", "x", "--no-wait"]);
    manager.text(&["cancel", "op-2"]);
    let drained = eventually("the end", || {
        Some(manager.get("/v1/operations/op-3")).filter(|o| o["state"] != "running")
    });
    assert_eq!(
        (&drained["state"], steps(&drained)),
        (&json!("succeeded"), vec!["replace done".to_owned()])
    );
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_some());
}

#[test]
fn what_replaces_a_device_that_is_taken_back_does_not_stay() {
    let manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["replace", "bind-1", "--reason", "x", "--no-wait"]);
    eventually("the new one", || at_box.bound(2));
    let taken = manager.json(&["take-back", "box1/1", "--reason", "x"]);
    assert_eq!(taken["state"], "succeeded");
    let undone = eventually("the end", || {
        Some(manager.get("/v1/operations/op-2")).filter(|o| o["ended"].is_string())
    });
    assert_eq!(
        (&undone["state"], &undone["error"]["code"]),
        (&json!("failed"), &json!("superseded"))
    );
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
    assert_eq!(manager.get("/v1/allocations")["items"], json!([]));
}

#[test]
fn what_is_enabled_during_the_notice_does_not_replace_what_is_taken_back() {
    let manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.with(|s| s.enumerates = false);
    manager.text(&["replace", "bind-1", "--reason", "x", "--no-wait"]);
    eventually("the new one", || at_host.with(|s| s.ports.contains_key(&1).then_some(())));
    let args = ["take-back", "box1/1", "--grace", "1h", "--reason", "x", "--no-wait"];
    assert_eq!(manager.json(&args)["what"]["stage"], "notice");
    at_host.event(Event::DeviceConfigured { port: PortId::new(1).unwrap() });
    let undone = eventually("the end of the replacement", || {
        Some(manager.get("/v1/operations/op-2")).filter(|o| o["ended"].is_string())
    });
    assert_eq!(
        (&undone["state"], &undone["error"]["code"]),
        (&json!("failed"), &json!("superseded"))
    );
    assert!(undone["error"]["detail"].as_str().unwrap().contains("op-3 takes box1/1 back"));
    assert!(at_box.bound(2).is_none());
    // The borrower has its time, and all of it if the lender thinks better of it.
    assert_eq!(manager.json(&["cancel", "op-3"])["state"], "cancelled");
    assert!(at_box.bound(1).is_some());
    assert_eq!(manager.get("/v1/bindings")["items"].as_array().unwrap().len(), 1);
}

#[test]
fn what_a_take_back_undid_of_a_drain_is_begun_again_when_that_is_called_back() {
    let manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["drain", "box1/1", "--replace", "--reason", "x", "--no-wait"]);
    eventually("the new one", || at_box.bound(2));
    // While its host is away it is not asked, so that this can be called back.
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["take-back", "box1/1", "--reason", "x", "--no-wait"]);
    let operation = |id: &str| manager.get(&format!("/v1/operations/{id}"));
    let ended =
        |id: &str| eventually("the end", || Some(operation(id)).filter(|o| o["ended"].is_string()));
    assert_eq!(ended("op-3")["error"]["code"], "superseded");
    assert_eq!(manager.json(&["cancel", "op-4"])["state"], "cancelled");
    again.1.lock().unwrap().rules.clear();
    let _at_host = Fake::insist(manager.control, again.0, again.1);
    let drained = ended("op-2");
    assert_eq!(
        (&drained["state"], steps(&drained)),
        (&json!("succeeded"), vec!["replace done".to_owned()])
    );
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_some());
}

#[test]
fn what_is_lent_in_a_rack_or_at_a_site_is_taken_back_together() {
    let manager = manager();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    let why = ["--reason", "new power"];
    let take = |what: &str| manager.failure(&[&["take-back", what], &why[..]].concat());
    assert_eq!((take("rack:r1").0, take("site:s1").0), (3, 3), "the inventory has none");
    let inventory = json!({
        "sites": { "s1": {} },
        "racks": { "r1": { "site": "s1" }, "r2": { "site": "s1" }, "r3": {} },
        "boxes": { "box1": { "rack": "r1" } },
        "hosts": { "host1": { "rack": "r2" } },
    });
    let (status, answer) = manager.request("PUT", "/v1/inventory", Some(&inventory));
    assert_eq!(status, 200, "{answer}");
    let (code, problem) = take("rack:r3");
    assert_eq!((code, &problem["code"]), (4, &json!("not-lent")));
    assert_eq!((take("path:0").0, take("fabric:f1").0), (2, 2));
    // By the rack of the box, by that of the host, and by the site of both, once.
    for (what, count) in [("rack:r1", 2), ("rack:r2", 1), ("site:s1", 1)] {
        let ended = manager.json(&[&["take-back", what], &why[..]].concat());
        assert_eq!(ended["what"]["slots"].as_array().unwrap().len(), count, "{ended}");
        assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
        manager.text(&["allocate", "--host", "host1"]);
    }
}

#[test]
fn a_lease_ends_although_all_of_its_host_will_be_taken_back_later() {
    let manager = manager();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--lease", "2s"]);
    manager.text(&["allocate", "--host", "host1"]);
    let all = ["take-back", "host1", "--grace", "1h", "--reason", "moving", "--no-wait"];
    manager.text(&all);
    manager.wait_event("lease-over", "the lease of alloc-1 is over");
    manager.wait_slot("box1/1", "free");
    assert!(at_box.bound(2).is_some(), "the other one has its hour");
    let told = eventually("its part of the take-back to be over", || {
        let operation = manager.get("/v1/operations/op-3");
        steps(&operation)[..2].iter().all(|step| step.ends_with(" done")).then_some(operation)
    });
    assert_eq!(told["state"], "running");
    let pending = ["unbind-port pending", "unbind-slot pending"];
    assert_eq!(steps(&told)[2..], pending);
}

#[test]
fn a_release_that_waits_for_a_host_that_is_away_does_not_keep_a_lease_from_ending() {
    let manager = manager();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--lease", "3s"]);
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["release", "alloc-1", "--within-ms", "600000", "--no-wait"]);
    is_taken_by_force(&manager, &at_box);
    let at_host = Fake::insist(manager.control, again.0, again.1);
    eventually("a clean host", || at_host.with(|s| s.ports.is_empty()).then_some(()));
}

/// It has its whole time for what another operation asks for, too.
#[test]
fn a_release_that_waits_for_a_host_that_is_away_does_not_keep_a_take_back_from_its_force() {
    let manager = Manager::with_timing(&[("operation_ms", 2_000)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let _again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    let take = ["take-back", "alloc-1", "--grace", "1s", "--within-ms", "1500", "--reason", "x"];
    manager.text(&[&take[..], &["--no-wait"]].concat());
    manager.text(&["release", "alloc-1", "--no-wait"]);
    is_taken_by_force(&manager, &at_box);
}

/// Its borrower has given that part back; the operation has done nothing yet.
#[test]
fn a_take_back_of_which_a_part_was_given_back_can_be_called_back() {
    let manager = manager();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["take-back", "host1", "--grace", "1h", "--reason", "x", "--no-wait"]);
    manager.text(&["release", "alloc-1"]);
    eventually("its part of the take-back to be over", || {
        let operation = manager.get("/v1/operations/op-3");
        steps(&operation)[..2].iter().all(|step| step.ends_with(" done")).then_some(())
    });
    assert_eq!(manager.json(&["cancel", "op-3"])["state"], "cancelled");
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_some());
}
