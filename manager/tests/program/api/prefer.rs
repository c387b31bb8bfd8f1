//! Changes that are answered when they are done (`Prefer: wait=N`).

use super::checker::Checker;
use super::pair_that_stays_half_way;
use crate::common::Manager;
use crate::common::fake::{Fake, boxed, host};
use serde_json::{Value, json};

/// Asks and says how long it would wait.
fn ask(
    checker: &mut Checker<'_>,
    manager: &Manager,
    (method, template, path): (&str, &str, &str),
    body: Option<Value>,
    prefer: &str,
) -> (u16, Value) {
    let body = body.map(|body| body.to_string());
    let (status, text) = manager.raw(method, path, &[("prefer", prefer)], body.as_deref());
    let answer = serde_json::from_str(&text).unwrap();
    checker.judge(method, template, path, status, &answer);
    (status, answer)
}

#[test]
fn each_change_that_takes_time_can_be_answered_when_it_is_done() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 4), "");
    let _box = Fake::join(manager.control, boxed("box1", 4), "nvme");
    let gone = Fake::join(manager.control, host("gone1", 1), "");
    manager.wait_ready(&["host1", "box1", "gone1"]);
    drop(gone);
    manager.wait_event("node-disconnected", "gone1");
    let mut checker = Checker::new(&manager);
    let mut done = |method: &str, template: &str, path: &str, body: Option<Value>| {
        let (status, ended) =
            ask(&mut checker, &manager, (method, template, path), body, "respond-async, wait=60");
        assert_eq!(
            (status, &ended["state"]),
            (200, &json!("succeeded")),
            "{method} {path}: {ended}"
        );
        ended
    };
    let reason = || Some(json!({"reason": "a test"}));
    let place = |name: &str, place: &str| Some(json!({name: place, "reason": "a test"}));
    let lend = |count: u32| Some(json!({"host": "host1", "count": count}));
    let lent = done("POST", "/v1/allocations", "/v1/allocations", lend(2));
    assert_eq!(lent["what"]["slots"], json!(["box1/1", "box1/2"]));
    done("POST", "/v1/bindings/{id}/replace", "/v1/bindings/bind-1/replace", reason());
    done("DELETE", "/v1/bindings/{id}", "/v1/bindings/bind-2", None);
    done("DELETE", "/v1/allocations/{id}", "/v1/allocations/alloc-1", None);
    done("POST", "/v1/allocations", "/v1/allocations", lend(3));
    done("POST", "/v1/take-backs", "/v1/take-backs", place("what", "box1/2"));
    done("POST", "/v1/drains", "/v1/drains", place("place", "box1"));
    done("DELETE", "/v1/nodes/{name}", "/v1/nodes/gone1", None);

    // The description says it of these and of no others.
    for (path, methods) in checker.description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array();
            let says = parameters.is_some_and(|all| all.iter().any(|p| p["name"] == "Prefer"));
            let was_seen =
                checker.seen.iter().any(|(m, p, s)| m == method && p == path && *s == 200);
            assert_eq!(says, was_seen, "{method} {path}");
        }
    }
}

#[test]
fn a_change_is_not_waited_for_longer_than_the_client_would() {
    let manager = Manager::start();
    let _pair = pair_that_stays_half_way(&manager);
    let mut checker = Checker::new(&manager);
    let lend = || Some(json!({"host": "host1"}));
    let to = ("POST", "/v1/allocations", "/v1/allocations");
    let (status, problem) = ask(&mut checker, &manager, to, lend(), "wait=61");
    assert_eq!((status, &problem["field"]), (400, &json!("prefer")), "{problem}");
    let (status, begun) = ask(&mut checker, &manager, to, lend(), "wait=1");
    assert_eq!((status, &begun["state"]), (202, &json!("running")), "{begun}");
    assert_eq!(begun["steps"][0]["state"], "done", "it is as it was then: {begun}");
    // What is refused is refused at once, and a question is no change.
    let (status, _) = ask(&mut checker, &manager, to, lend(), "wait=60");
    assert_eq!(status, 409);
    let (status, _) = manager.raw("GET", "/v1/allocations", &[("prefer", "wait=99")], None);
    assert_eq!(status, 200);
}
