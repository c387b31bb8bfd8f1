//! What a drain that replaces waits for, and what a device that is away keeps.

use super::steps;
use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use serde_json::json;

/// A host with one port more than is lent, of which the second device comes when the first has gone.
#[test]
fn a_drain_replaces_by_one_free_port_one_after_the_other() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 3), "");
    let _box1 = Fake::join(manager.control, boxed("box1", 2), "nvme");
    let _box2 = Fake::join(manager.control, boxed("box2", 2), "nvme");
    manager.wait_ready(&["host1", "box1", "box2"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--count", "2"]);
    let drained = manager.json(&["drain", "box1", "--replace", "--reason", "x"]);
    assert_eq!(drained["state"], "succeeded", "{drained}");
    assert_eq!(steps(&drained), ["replace done"; 2]);
}

#[test]
fn a_drain_replaces_by_the_bandwidth_of_one_one_after_the_other() {
    let inventory = json!({
        "models": { "gpu": { "demand": "1G" } },
        "hosts": { "host1": { "capacity": "4G" } },
    });
    for together in ["any", "box"] {
        let manager = Manager::start();
        let _host = Fake::join(manager.control, host("host1", 8), "");
        let _box1 = Fake::join(manager.control, boxed("box1", 3), "gpu");
        let _box2 = Fake::join(manager.control, boxed("box2", 3), "gpu");
        manager.wait_ready(&["host1", "box1", "box2"]);
        assert_eq!(manager.request("PUT", "/v1/inventory", Some(&inventory)).0, 200);
        let lend = ["allocate", "--host", "host1", "--count", "3", "--together", together];
        manager.text(&[&lend[..], &["--box", "box1"]].concat());
        let drained = manager.json(&["drain", "box1", "--replace", "--reason", "x"]);
        assert_eq!(drained["state"], "succeeded", "{together}: {drained}");
        assert_eq!(steps(&drained), ["replace done"; 3], "{together}");
        // What does not fit anywhere is said in the end.
        let (code, problem) = manager.failure(&["drain", "box2", "--replace", "--reason", "x"]);
        assert_eq!((code, &problem["code"]), (7, &json!("nothing-fits")), "{problem}");
    }
}

/// A box does not say what was in a slot that is empty.
#[test]
fn a_device_that_is_pulled_keeps_its_bandwidth_as_long_as_it_is_lent() {
    let mut manager = Manager::start();
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 2), "gpu");
    manager.wait_ready(&["host1", "box1"]);
    let inventory = json!({
        "models": { "gpu": { "demand": "1G" } },
        "boxes": { "box1": { "capacity": "1G" } },
    });
    assert_eq!(manager.request("PUT", "/v1/inventory", Some(&inventory)).0, 200);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    let is_full = |manager: &Manager| {
        let second = ["allocate", "--host", "host1", "--box", "box1", "--slot", "2"];
        let (code, problem) = manager.failure(&[&second[..], &["--wait-ms", "0"]].concat());
        let detail = problem["detail"].as_str().unwrap();
        assert!(code == 5 && detail.contains("has 0 of 1G bytes/s left"), "{problem}");
    };
    is_full(&manager);
    at_box.with(|s| s.slots[0].model = String::new());
    at_box.set_device(1, None);
    eventually("the box without its device", || {
        (manager.get("/v1/boxes/box1/slots/1")["model"] == "").then_some(())
    });
    is_full(&manager);
    let (host, boxed) = (at_host.leave(), at_box.leave());
    manager.kill();
    manager.run();
    let _host = Fake::insist(manager.control, host.0, host.1);
    let _box = Fake::insist(manager.control, boxed.0, boxed.1);
    manager.wait_ready(&["host1", "box1"]);
    is_full(&manager);
}
