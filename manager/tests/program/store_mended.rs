//! What proxies tell while the store cannot be written is made up for when it can.

use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use crate::store_faults::{limit, limit_process};
use proxy_core::control::{BindingFailure, Event, PortState, Request};
use serde_json::json;
use tlp_codec::ids::PortId;

/// A manager that reads no table because of the time, with a host and a box.
fn pool() -> (Manager, Fake, Fake) {
    let never = 3_600_000;
    let manager = Manager::with_timing(&[("reconcile_ms", never), ("enumeration_ms", never)]);
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    (manager, at_host, at_box)
}

#[test]
fn what_a_host_lets_go_while_nothing_can_be_written_is_taken_back() {
    let (manager, at_host, at_box) = pool();
    manager.text(&["allocate", "--host", "host1"]);
    let (peer, key) = (at_box.welcome.node, at_box.bound(1).unwrap());
    limit(&manager, Some(4096));
    at_host.with(|s| s.ports.get_mut(&0).unwrap().1 = PortState::Failed);
    at_host.event(Event::BindingFailed { peer, key, reason: BindingFailure::HostLetGo });
    at_host.event(Event::Port { port: PortId::new(0).unwrap(), state: PortState::Failed });
    manager.wait_log("that a host let go cannot be recorded");
    manager.wait_log("a failed binding cannot be recorded");
    limit(&manager, None);
    manager.wait_event("host-let-go", "box1/1");
    manager.wait_slot("box1/1", "free");
    assert!(at_host.with(|s| s.ports.is_empty()) && at_box.bound(1).is_none());
    assert!(!manager.has_event("rebinding", "box1/1"));
}

#[test]
fn the_log_says_that_it_can_be_written_when_it_can() {
    const SAYS: &str = "the store can be written again; it could not since";
    const HELD: &str = "box1/2 gets nothing new";
    let (manager, _host, _box) = pool();
    limit(&manager, Some(4096));
    let body = json!({"place": "box1/2", "reason": "not written"});
    assert_eq!(manager.request("POST", "/v1/holds", Some(&body)).0, 503);
    // It is tried each second.
    eventually("a few tries", || {
        (manager.log().matches("ERROR manager::records").count() > 5).then_some(())
    });
    let log = manager.log();
    assert!(!log.contains(SAYS) && !log.contains(HELD), "{log}");
    limit(&manager, None);
    manager.wait_log(SAYS);
    manager.wait_event("store-recovered", "since");
    assert_eq!(manager.log().matches(SAYS).count(), 1);
    assert!(!manager.log().contains(HELD));
    assert!(manager.request("POST", "/v1/holds", Some(&body)).0 < 300);
    manager.wait_log(HELD);
}

#[test]
fn a_device_that_is_enabled_while_nothing_can_be_written_counts_as_enabled() {
    let (manager, at_host, _box) = pool();
    at_host.with(|s| s.enumerates = false);
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    manager.wait_phase("bound");
    limit(&manager, Some(4096));
    at_host.with(|s| s.enumerates = true);
    at_host.event(Event::DeviceConfigured { port: PortId::new(0).unwrap() });
    manager.wait_log("a configured device cannot be recorded");
    limit(&manager, None);
    manager.wait_phase("configured");
    assert_eq!(manager.get("/v1/operations/op-1")["state"], "succeeded");
}

/// What is in its slots may be another device than the records have.
#[test]
fn a_box_is_given_nothing_before_what_it_has_could_be_written() {
    let (manager, _host, at_box) = pool();
    let again = at_box.leave();
    manager.wait_event("node-disconnected", "box1");
    let (process, mut limited) = (manager.pid(), false);
    let first = move |request: &Request| {
        if matches!(request, Request::ReadInventory { .. })
            && !std::mem::replace(&mut limited, true)
        {
            limit_process(process, Some(4096));
        }
        None
    };
    {
        let mut state = again.1.lock().unwrap();
        state.rules.push(Box::new(first));
        state.slots[0].model = "another".into();
    }
    let _box = Fake::insist(manager.control, again.0, again.1);
    manager.wait_log("ERROR manager::records");
    let is_ready = |manager: &Manager| {
        manager.request("GET", "/v1/nodes/box1", None).1["connection"]["ready"] == true
    };
    assert!(!is_ready(&manager));
    limit(&manager, None);
    eventually("the box", || is_ready(&manager).then_some(()));
}
