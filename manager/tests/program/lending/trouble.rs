//! Proxies that refuse, say nothing or say nonsense, and devices that are not well.

use super::{Which, is_bind_port, is_bind_slot, last_operation, pair, steps};
use crate::common::fake::{Fake, Script, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{ControlError, Event, Reply, Request, SlotState};
use serde_json::json;
use tlp_codec::ids::{PortId, SlotId};

#[test]
fn a_refusal_undoes_everything() {
    for (which, at_the_box) in [(is_bind_slot as Which, true), (is_bind_port as Which, false)] {
        let manager = Manager::start();
        let (at_host, at_box) = pair(&manager);
        // The first of the two goes well, so that there is something to undo.
        let refused = if at_the_box { &at_box } else { &at_host };
        let mut seen = 0;
        refused.rule(move |request| {
            seen += u32::from(which(request));
            let slot = SlotId::new(1).unwrap();
            (which(request) && seen == 2).then_some(Script::Refuse(ControlError::NotReady(slot)))
        });
        let (code, problem) = manager.failure(&["allocate", "--host", "host1", "--count", "2"]);
        assert_eq!((code, &problem["code"]), (7, &json!("proxy-refused")));
        assert!(problem["detail"].as_str().unwrap().contains("did not become ready"), "{problem}");
        assert!(at_host.with(|s| s.ports.is_empty()));
        assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
        assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());
        let operation = last_operation(&manager);
        assert_eq!(operation["state"], "failed");
        let failed = steps(&operation).into_iter().filter(|step| step.ends_with("failed"));
        let expected = if at_the_box { "bind-slot failed" } else { "bind-port failed" };
        assert_eq!(failed.collect::<Vec<_>>(), [expected]);
        manager.wait_slot("box1/1", "free");
        manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    }
}

#[test]
fn an_allocation_that_gets_nowhere_is_undone() {
    let manager = Manager::with_timing(&[("operation_ms", 2_000)]);
    let (at_host, at_box) = pair(&manager);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    let (code, problem) = manager.failure(&["allocate", "--host", "host1"]);
    assert_eq!((code, &problem["code"]), (7, &json!("operation-timeout")));
    assert!(problem["detail"].as_str().unwrap().contains("another operation"), "{problem}");
    assert!(at_box.bound(1).is_none());
}

#[test]
fn a_proxy_that_does_not_answer_is_disconnected() {
    let manager = Manager::with_timing(&[("request_ms", 300)]);
    let (at_host, at_box) = pair(&manager);
    at_box.script(is_bind_slot, [Script::Ignore]);
    let mut command = manager.begin(&["allocate", "--host", "host1"]);
    manager.wait_event("node-disconnected", "no answer to BindSlot");
    let again = at_box.leave();
    let _at_box = Fake::insist(manager.control, again.0, again.1);
    assert!(command.wait().unwrap().success());
    assert_eq!(at_host.with(|s| s.ports.len()), 1);
}

/// One that does not answer when it is to forget a box is waited for, and nobody else with it.
#[test]
fn a_host_that_does_not_answer_holds_up_no_other_host_of_its_box() {
    let manager = Manager::with_timing(&[("request_ms", 3_600_000)]);
    let (at_host, at_box) = pair(&manager);
    let other = Fake::join(manager.control, host("host2", 4), "");
    manager.wait_ready(&["host2"]);
    let is_forget = |request: &Request| matches!(request, Request::RemovePeer(_));
    at_host.script(is_forget, [Script::Ignore]);
    manager.text(&["allocate", "--host", "host1"]);
    manager.text(&["release", "alloc-1"]);
    eventually("the request", || at_host.with(|s| s.log.iter().any(is_forget).then_some(())));
    manager.text(&["allocate", "--host", "host2"]);
    assert_eq!(other.with(|s| s.ports.len()), 1);
    assert!(at_box.bound(1).is_some());
}

#[test]
fn an_answer_that_makes_no_sense_ends_the_connection() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    at_box.script(is_bind_slot, [Script::Answer(Box::new(Reply::Removed { orderly: true }))]);
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    manager.wait_event("node-disconnected", "an answer that makes no sense");
}

#[test]
fn pages_without_an_end_end_the_connection() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    at_box.rule(|request| {
        let counters = matches!(request, Request::ReadCounters { .. });
        let entries = Default::default();
        counters.then(|| Script::Answer(Box::new(Reply::Counters { entries, next: Some(0) })))
    });
    assert_eq!(manager.failure(&["counters", "box1"]).0, 6);
}

#[test]
fn a_quarantined_slot_is_shown_and_recovered() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    at_box.with(|s| s.slots[0].fails_reset = true);
    let output = manager.cli(&["release", "alloc-1"]);
    assert!(output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("warning: box1/1 is quarantined"), "{error}");
    manager.wait_slot("box1/1", "quarantined");
    let (code, problem) =
        manager.failure(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("slot-quarantined")));
    manager.text(&["recover", "box1/1"]);
    manager.wait_slot("box1/1", "free");
}

/// It said so when it was plugged before: the table says it still.
#[test]
fn a_device_in_use_of_which_nothing_is_told_is_found_in_the_table() {
    let manager = Manager::with_timing(&[("reconcile_ms", 3_600_000)]);
    let (at_host, _box) = pair(&manager);
    at_host.with(|s| s.tells = false);
    manager.text(&["allocate", "--host", "host1"]);
    assert_eq!(manager.wait_phase("configured")["host"], "host1");
}

#[test]
fn an_operating_system_that_does_not_look_is_a_failure_and_nothing_stays_lent() {
    let manager = Manager::with_timing(&[("enumeration_ms", 3_000)]);
    let (at_host, at_box) = pair(&manager);
    at_host.with(|s| s.enumerates = false);
    manager.text(&["allocate", "--host", "host1", "--count", "2", "--no-wait"]);
    eventually("both to be plugged", || at_host.with(|s| (s.ports.len() == 2).then_some(())));
    // One of them is enabled: it is all or nothing.
    at_host.event(Event::DeviceConfigured { port: PortId::new(0).unwrap() });
    let failed = eventually("the end", || {
        let operation = manager.get("/v1/operations/op-1");
        (operation["state"] == "failed").then_some(operation)
    });
    assert_eq!(failed["error"]["code"], "not-enumerated");
    let reasons = failed["error"]["reasons"].as_array().unwrap();
    assert_eq!(reasons.len(), 1, "{failed}");
    assert!(
        reasons[0].as_str().unwrap().starts_with("box1/2 at host1 port 1: plugged"),
        "{failed}"
    );
    assert!(failed["error"]["detail"].as_str().unwrap().contains("nothing of it stays lent"));
    assert!(at_host.with(|s| s.ports.is_empty()));
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());
    let (code, problem) = manager.failure(&["allocate", "--host", "host1"]);
    assert_eq!((code, &problem["code"]), (10, &json!("not-enumerated")));
}

#[test]
fn what_is_not_enabled_stays_plugged_where_that_was_asked_for() {
    let manager = Manager::with_timing(&[("enumeration_ms", 300)]);
    let (at_host, _box) = pair(&manager);
    at_host.with(|s| s.enumerates = false);
    let output = manager.cli(&["allocate", "--host", "host1", "--keep-unenumerated"]);
    assert!(output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("not enumerated by the operating system"), "{error}");
    assert_eq!(manager.wait_phase("bound")["host"], "host1");
    at_host.event(Event::DeviceConfigured { port: PortId::new(0).unwrap() });
    manager.wait_phase("configured");
}

/// One of several functions may have come back, and another not: each is told by the table.
#[test]
fn a_slot_that_is_tried_again_is_what_its_table_says() {
    let manager = Manager::start();
    let (_at_host, at_box) = pair(&manager);
    at_box.set_state(1, SlotState::Quarantined);
    manager.wait_slot("box1/1", "quarantined");
    let last_is_free = Script::Answer(Box::new(Reply::Slot(SlotState::Free)));
    at_box.script(|request| matches!(request, Request::Recover(_)), [last_is_free]);
    assert_eq!(manager.json(&["recover", "box1/1"])["status"], "quarantined");
    assert_eq!(manager.json(&["recover", "box1/1"])["status"], "free");
}
