//! The audit log and the metrics.

use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{Reply, Request};
use serde_json::{Value, json};
use std::io::{Read, Write};

const ACTOR: (&str, &str) = ("x-dxpu-actor", "ada@desk");

/// The whole log, oldest first.
fn log(manager: &Manager, filter: &str) -> Vec<Value> {
    let list = manager.get(&format!("/v1/audit{filter}"));
    list["items"].as_array().unwrap().iter().rev().cloned().collect()
}

/// The last entry, once it is there: one of a refusal is written a moment after the answer.
fn last(manager: &Manager, path: &str) -> Value {
    eventually(&format!("an entry about {path}"), || log(manager, &format!("?path={path}")).pop())
}

#[test]
fn who_changes_something_is_recorded_with_the_change() {
    let mut manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 2), "");
    let _box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    let body = json!({"host": "host1"}).to_string();
    let (status, answer) = manager.raw("POST", "/v1/allocations", &[ACTOR], Some(&body));
    assert_eq!(status, 202, "{answer}");
    // As soon as it is answered the entry is durable, as is the change.
    manager.kill();
    manager.run();
    let entries = log(&manager, "?actor=ada@desk");
    let [entry] = entries.as_slice() else { panic!("{entries:?}") };
    let operation: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(entry["operation"], operation["id"]);
    assert_eq!((&entry["method"], &entry["path"]), (&json!("POST"), &json!("/v1/allocations")));
    assert_eq!(entry.get("problem"), None);
    assert!(entry["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{entry}");
    manager.wait_log("audit: POST /v1/allocations by ada@desk");
}

/// What the path does not say is there too, also of what is refused.
#[test]
fn what_was_done_to_what_is_recorded() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 2), "");
    let _box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    let inventory = r#"{"models": {"nvme": {"demand": "1G"}}}"#;
    let hold = r#"{"place": "box1/2", "reason": "fan"}"#;
    let requests = [
        ("POST", "/v1/holds", hold, r#"{"place":"box1/2","reason":"fan"}"#),
        (
            "POST",
            "/v1/allocations",
            r#"{"host": "host1", "model": "tpu"}"#,
            r#"{"host":"host1","count":1,"model":"tpu"}"#,
        ),
        (
            "POST",
            "/v1/take-backs",
            r#"{"what": "box1/1", "reason": "ours"}"#,
            r#"{"what":"box1/1","grace_ms":0,"reason":"ours"}"#,
        ),
        ("POST", "/v1/drains", "{\"place\": \"x\",\n\"why\": 1}", r#"{"place": "x", "why": 1}"#),
        ("PUT", "/v1/nodes/host1/log-level", r#"{"level": "warn"}"#, r#"{"level":"warn"}"#),
        ("PUT", "/v1/inventory", inventory, "the inventory has revision 1"),
        ("PUT", "/v1/inventory", inventory, "the inventory of revision 1 again"),
        ("PUT", "/v1/inventory", "{}}", "an inventory of 3 bytes"),
        ("POST", "/v1/firmware/images", "{}", "an image of 2 bytes"),
        ("POST", "/v1/allocations/alloc-9/lease", r#"{"lease_ms": 7}"#, r#"{"lease_ms":7}"#),
        ("POST", "/v1/erasures/erase-9/waive", r#"{"reason": "old"}"#, r#"{"reason":"old"}"#),
    ];
    for (method, path, body, what) in requests {
        manager.raw(method, path, &[ACTOR], Some(body));
        eventually(&format!("an entry of {method} {path} with {what}"), || {
            log(&manager, &format!("?path={path}")).pop().filter(|entry| entry["what"] == what)
        });
        manager.wait_log(what);
    }
    // What is not said to be JSON is not read.
    let plain = [ACTOR, ("content-type", "text/plain")];
    let (status, _) = manager.raw("POST", "/v1/allocations", &plain, Some("host1"));
    assert_eq!(status, 415);
    eventually("an entry without what was asked for", || {
        let entry = log(&manager, "?path=/v1/allocations").pop().unwrap();
        (entry["problem"] == "unsupported-media-type").then(|| assert!(entry["what"].is_null()))
    });
    manager.raw("DELETE", "/v1/holds?place=box1/2", &[ACTOR], None);
    assert_eq!(last(&manager, "/v1/holds?")["what"], Value::Null, "the path says it");
}

#[test]
fn what_was_refused_is_recorded_with_the_reason() {
    let manager = Manager::start();
    let (status, _) = manager.raw("DELETE", "/v1/allocations/alloc-7?force=true", &[ACTOR], None);
    assert_eq!(status, 404);
    let entry = last(&manager, "/v1/allocations/alloc-7");
    assert_eq!(entry["problem"], "no-such-allocation");
    assert_eq!(entry["path"], "/v1/allocations/alloc-7?force=true");
    // Looking changes nothing and is not recorded.
    let before = log(&manager, "").len();
    manager.raw("GET", "/v1/nodes", &[ACTOR], None);
    manager.raw("DELETE", "/v1/bindings/bind-1", &[], None);
    assert_eq!(last(&manager, "/v1/bindings")["actor"], Value::Null);
    assert_eq!(log(&manager, "").len(), before + 1);
    assert_eq!(log(&manager, "?refused=false"), Vec::<Value>::new());
    for actor in ["", "a\tb", "a\u{202e}b", &"x".repeat(129)] {
        let headers = [("x-dxpu-actor", actor)];
        let (status, problem) = manager.raw("DELETE", "/v1/bindings/bind-2", &headers, None);
        assert_eq!(status, 400, "{actor:?}: {problem}");
        assert!(problem.contains("x-dxpu-actor"), "{problem}");
        let (status, problem) = manager.raw("GET", "/v1/slots", &headers, None);
        assert!(status == 400 && problem.contains("x-dxpu-actor"), "{actor:?}: {problem}");
    }
}

/// Nor is it shown in another order, or a command to a terminal, what a client makes up.
#[test]
fn what_clients_make_up_is_bounded_and_plain() {
    let manager = Manager::start();
    let ask = |line: &str| {
        let mut stream = std::net::TcpStream::connect(manager.api).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for n in 0..20 {
        let answer = ask(&format!("M{n}{} /v1/nodes", "X".repeat(1000)));
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    }
    let other = r#"dxpu_http_request_seconds_count{method="other",route="/v1/nodes",status="405"}"#;
    assert_eq!(metric(&manager, other), Some(20.0));
    let (_, text) = manager.raw("GET", "/metrics", &[], None);
    assert!(!text.contains("XXX"), "{text}");
    assert_eq!(last(&manager, "/v1/nodes")["method"].as_str().unwrap().len(), 16);
    ask("DELETE /v1/nodes/\u{9b}31m\u{202e}abc");
    assert_eq!(last(&manager, "/v1/nodes/")["path"], "/v1/nodes/ 31m abc");
    // A wish that cannot be is refused as anything else is.
    let headers = [ACTOR, ("prefer", "wait=61")];
    assert_eq!(manager.raw("POST", "/v1/drains", &headers, Some("{}")).0, 400);
    let entry = last(&manager, "/v1/drains");
    assert_eq!((&entry["actor"], &entry["problem"]), (&json!(ACTOR.1), &json!("invalid-request")));
}

/// What was begun is done, and written.
#[test]
fn a_client_that_hangs_up_leaves_its_name() {
    let manager = Manager::start();
    let at_box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["box1"]);
    let (asked, heard) = std::sync::mpsc::channel();
    let (go, goes) = std::sync::mpsc::channel();
    at_box.rule(move |request| {
        matches!(request, Request::SetLogLevel(_)).then(|| {
            asked.send(()).unwrap();
            goes.recv().unwrap();
            Script::Answer(Box::new(Reply::Done))
        })
    });
    let body = r#"{"level": "debug"}"#;
    let mut stream = std::net::TcpStream::connect(manager.api).unwrap();
    let head = format!(
        "PUT /v1/nodes/box1/log-level HTTP/1.1\r\nhost: x\r\nx-dxpu-actor: gone\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    heard.recv().unwrap();
    drop(stream);
    std::thread::sleep(std::time::Duration::from_millis(200));
    go.send(()).unwrap();
    let entry = last(&manager, "/v1/nodes/box1/log-level");
    assert_eq!((&entry["actor"], entry.get("problem")), (&json!("gone"), None));
}

/// The value of a metric.
fn metric(manager: &Manager, line: &str) -> Option<f64> {
    let (status, text) = manager.raw("GET", "/metrics", &[], None);
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"), "{text}");
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

/// Also where no operation has anything to do with it.
#[test]
fn events_are_counted_as_they_come() {
    let manager = Manager::start();
    let at_box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["box1"]);
    drop(at_box);
    let left = r#"dxpu_events_total{kind="node-disconnected"}"#;
    eventually("the event to be counted", || metric(&manager, left).filter(|n| *n == 1.0));
}

#[test]
fn metrics_follow_what_happens() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 2), "");
    let _box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    let free = r#"dxpu_slots{status="free",model="nvme",connected="true"}"#;
    assert_eq!(metric(&manager, free), Some(2.0));
    manager.text(&["allocate", "--host", "host1"]);
    assert_eq!(metric(&manager, free), Some(1.0));
    assert_eq!(metric(&manager, "dxpu_allocations "), Some(1.0));
    let ended = r#"dxpu_operation_seconds_count{kind="allocate",state="succeeded"}"#;
    eventually("the operation to be counted", || metric(&manager, ended).filter(|n| *n == 1.0));
    let asked =
        r#"dxpu_http_request_seconds_count{method="POST",route="/v1/allocations",status="202"}"#;
    assert_eq!(metric(&manager, asked), Some(1.0));
    let joined = r#"dxpu_proxies{role="box",state="connected"}"#;
    assert_eq!(metric(&manager, joined), Some(1.0));
    assert!(metric(&manager, "dxpu_store_commit_seconds_count ").unwrap() > 3.0);
    assert!(metric(&manager, "dxpu_memory_bytes ").unwrap() > 1e6);
    // Paths that clients make up are one name.
    manager.raw("GET", "/v1/nothing/1", &[], None);
    manager.raw("GET", "/v1/nothing/2", &[], None);
    let none = r#"dxpu_http_request_seconds_count{method="other",route="none",status="404"}"#;
    assert_eq!(metric(&manager, none), Some(2.0));
}

/// Every command that changes something says who uses it, also when it is refused.
#[test]
fn no_command_that_changes_something_is_anonymous() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 2), "");
    let _box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    std::fs::write(manager.path("i.json"), "{}").unwrap();
    std::fs::write(manager.path("image"), "none").unwrap();
    let reason = "--reason";
    let commands: [&[&str]; 21] = [
        &["allocate", "--host", "host1"],
        &["extend", "alloc-1", "--lease", "1h"],
        &["record", "bind-1", "--out", "r.json", "--for", "1ms"],
        &["replace", "bind-9", reason, "old"],
        &["release", "alloc-1"],
        &["release", "bind-9"],
        &["take-back", "alloc-9", reason, "ours"],
        &["cancel", "op-9"],
        &["maintain", "box1", "--on", reason, "dust"],
        &["maintain", "box1", "--off"],
        &["drain", "box1/1", reason, "dust"],
        &["forget", "host1"],
        &["log-level", "host1", "warn"],
        &["stamps", "host1", "--sampling", "16"],
        &["inventory", "apply", "i.json"],
        &["firmware", "push", "image", "--all"],
        &["firmware", "rollback", "host1"],
        &["erase", "box1/2"],
        &["erase", "box1/2", "--waive", "old"],
        &["erase", "erase-9", "--waive", "old"],
        &["recover", "box1/2"],
    ];
    for command in commands {
        let before = log(&manager, "").len();
        let mut said = manager.command();
        said.env("DXPU_MANAGER", format!("http://{}", manager.api)).env("USER", "ada");
        let said = said.args(command).output().unwrap();
        eventually(&format!("an entry of {command:?}: {said:?}"), || {
            (log(&manager, "").len() > before).then_some(())
        });
    }
    let all = log(&manager, "");
    for entry in &all {
        let actor = entry["actor"].as_str().unwrap_or_default();
        assert!(actor.starts_with("ada@"), "{entry}");
    }
    let methods: std::collections::BTreeSet<_> =
        all.iter().map(|entry| entry["method"].as_str().unwrap()).collect();
    assert_eq!(methods.into_iter().collect::<Vec<_>>(), ["DELETE", "POST", "PUT"]);
}
