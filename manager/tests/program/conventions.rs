//! What holds at every address of the API: pages and filters of lists, entity tags, problems.

use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use manager::types::ProblemCode;
use proxy_core::control::Request;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// A host with four ports and two boxes, of which one lends the host two devices.
fn pool(manager: &Manager) -> [Fake; 3] {
    let proxies = [
        Fake::join(manager.control, host("host1", 4), ""),
        Fake::join(manager.control, boxed("box1", 3), "nvme"),
        Fake::join(manager.control, boxed("box2", 2), "gpu"),
    ];
    manager.wait_ready(&["host1", "box1", "box2"]);
    for _ in 0..2 {
        let body = json!({"host": "host1", "box": "box1"});
        let (status, operation) = manager.request("POST", "/v1/allocations", Some(&body));
        assert_eq!(status, 202, "{operation}");
        manager.get(&format!("/v1/operations/{}?wait_ms=60000", operation["id"].as_str().unwrap()));
    }
    // The box's own word comes when its tables are read the next time; then nothing changes.
    eventually("the box's word of what is bound", || {
        let slots = manager.get("/v1/slots?host=host1");
        let mut slots = slots["items"].as_array().unwrap().iter();
        slots.all(|slot| slot["functions"][0]["state"] == "bound").then_some(())
    });
    proxies
}

/// What a list has under `path`, page by page.
fn pages(manager: &Manager, path: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let sign = if path.contains('?') { '&' } else { '?' };
        let page = manager.get(&format!("{path}{sign}limit={limit}{cursor}"));
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit, "{path}: {page}");
        all.extend(items.iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

#[test]
fn every_list_comes_in_pages_and_filtered() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    for place in ["box1/3", "box2", "path:3"] {
        let body = json!({"place": place, "reason": "a test"});
        assert_eq!(manager.request("POST", "/v1/holds", Some(&body)).0, 200);
    }
    for binding in ["bind-1", "bind-2"] {
        let body = json!({"binding": binding, "format": "tlps", "duration_ms": 1});
        let (_, begun) = manager.request("POST", "/v1/recordings", Some(&body));
        manager.get(&format!("/v1/recordings/{}?wait_ms=60000", begun["id"].as_str().unwrap()));
    }
    for (path, items) in [
        ("/v1/nodes", 3),
        ("/v1/nodes?role=box", 2),
        ("/v1/nodes?connected=false", 0),
        ("/v1/boxes", 2),
        ("/v1/hosts?connected=true", 1),
        ("/v1/slots", 5),
        ("/v1/slots?model=NVMe", 3),
        ("/v1/slots?status=free&box=box1", 0),
        ("/v1/slots?status=held&box=box1", 1),
        ("/v1/slots?host=host1", 2),
        ("/v1/devices?model=gpu", 2),
        ("/v1/allocations?host=host1", 2),
        ("/v1/allocations?host=host2", 0),
        ("/v1/bindings?box=box1", 2),
        ("/v1/bindings?allocation=alloc-2", 1),
        ("/v1/bindings?phase=failed", 0),
        ("/v1/operations?state=succeeded", 2),
        ("/v1/operations?allocation=alloc-1", 1),
        ("/v1/operations?running=true", 0),
        ("/v1/holds", 3),
        ("/v1/holds?place=box1/3", 1),
        ("/v1/holds?kind=drained", 0),
        ("/v1/spares", 2),
        ("/v1/spares?model=GPU", 1),
        ("/v1/health", 0),
        ("/v1/health?state=failed&node=box1", 0),
        ("/v1/recordings", 2),
        ("/v1/recordings?binding=bind-1&running=false", 1),
        ("/v1/recordings?host=host2", 0),
        ("/v1/firmware/images", 0),
        ("/v1/firmware/images?board=x&role=box", 0),
        ("/v1/firmware/cards?role=host", 0),
        ("/v1/problems?status=412", 1),
    ] {
        let whole = manager.get(path);
        assert_eq!(whole["items"].as_array().unwrap().len(), items, "{path}: {whole}");
        assert_eq!(whole.get("next"), None, "{path}");
        for limit in 1..=3 {
            assert_eq!(pages(&manager, path, limit), *whole["items"].as_array().unwrap(), "{path}");
        }
    }
    let cursor = manager.get("/v1/nodes?limit=1")["next"].as_str().unwrap().to_owned();
    for (path, field) in [
        ("/v1/nodes?limit=0".to_owned(), "limit"),
        ("/v1/nodes?limit=10001".to_owned(), "limit"),
        ("/v1/nodes?limit=1&limit=2".to_owned(), "limit"),
        ("/v1/nodes?cursor=xyz".to_owned(), "cursor"),
        (format!("/v1/operations?cursor={cursor}"), "cursor"),
        ("/v1/nodes?colour=red".to_owned(), "colour"),
        ("/v1/bindings?phase=lost".to_owned(), "phase"),
    ] {
        let (status, problem) = manager.request("GET", &path, None);
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{path}: {problem}");
    }
}

#[test]
fn models_in_small_letters_and_large_come_in_pages() {
    let manager = Manager::start();
    let _ssds = Fake::join(manager.control, boxed("box1", 1), "Samsung PM9A3");
    let _others = Fake::join(manager.control, boxed("box2", 1), "nvme");
    manager.wait_ready(&["box1", "box2"]);
    let spares = pages(&manager, "/v1/spares", 1);
    let models: Vec<_> = spares.iter().map(|spares| &spares["model"]).collect();
    assert_eq!(models, ["nvme", "Samsung PM9A3"]);
}

#[test]
fn events_are_filtered_and_a_list_goes_on_behind_them() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    let of = |filter: &str| manager.get(&format!("/v1/events?since=1&limit=1000&{filter}"));
    let kinds = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&of("kind=allocated")), ["allocated"; 2]);
    assert_eq!(kinds(&of("kind=node-added&node=box2")), ["node-added"]);
    let one = of("binding=bind-1");
    assert!(kinds(&one).contains(&"configured".to_owned()), "{one}");
    assert!(one["items"].as_array().unwrap().iter().all(|event| event["binding"] == "bind-1"));
    assert!(kinds(&of("operation=op-1")).contains(&"operation-succeeded".to_owned()));
    // All were looked at, so that the next question is about later ones only.
    let all = manager.get("/v1/events?limit=1000");
    assert_eq!(of("kind=allocated")["next"], all["next"]);
}

/// Status and entity tag of an answer.
fn tag(manager: &Manager, path: &str, header: &str) -> (u16, Option<String>) {
    let mut stream = TcpStream::connect(manager.api).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n").unwrap();
    let lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    (status, lines.iter().find_map(|line| line.strip_prefix("etag: ")).map(str::to_owned))
}

#[test]
fn what_has_not_changed_is_not_sent_and_what_has_is_not_overwritten() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    for path in [
        "/v1/nodes/box1",
        "/v1/boxes/box1",
        "/v1/boxes/box1/slots/1",
        "/v1/hosts/host1",
        "/v1/allocations/alloc-1",
        "/v1/bindings/bind-1",
        "/v1/operations/op-1",
        "/v1/slots",
    ] {
        let (status, first) = tag(&manager, path, "");
        let first = first.unwrap_or_else(|| panic!("{path} has no tag"));
        assert_eq!(status, 200);
        let same = tag(&manager, path, &format!("if-none-match: \"other\", {first}\r\n"));
        assert_eq!(same, (304, Some(first)), "{path}");
        assert_eq!(tag(&manager, path, "if-none-match: \"other\"\r\n").0, 200, "{path}");
    }
    let old = tag(&manager, "/v1/allocations/alloc-1", "").1.unwrap();
    let of_binding = tag(&manager, "/v1/bindings/bind-1", "").1.unwrap();
    let delete = |path: &str, tag: &str| -> (u16, Value) {
        let (status, text) = manager.raw("DELETE", path, &[("if-match", tag)], None);
        (status, serde_json::from_str(&text).unwrap())
    };
    for wrong in ["\"0\"", "W/\"0\"", &format!("W/{old}")] {
        let (status, problem) = delete("/v1/allocations/alloc-1", wrong);
        assert_eq!((status, &problem["code"]), (412, &json!("precondition-failed")), "{wrong}");
        assert_eq!(problem["field"], "if-match");
        // It says what it is now.
        assert!(problem["detail"].as_str().unwrap().contains(&old), "{problem}");
    }
    // Whoever looked before somebody else released it changes nothing.
    let (status, operation) = delete("/v1/bindings/bind-1?force=true", &of_binding);
    assert_eq!(status, 202, "{operation}");
    let ended = format!("/v1/operations/{}?wait_ms=60000", operation["id"].as_str().unwrap());
    assert_eq!(manager.get(&ended)["state"], "succeeded");
    let (status, problem) = delete("/v1/bindings/bind-1?force=true", &of_binding);
    assert_eq!((status, &problem["code"]), (404, &json!("no-such-binding")));
    let second = tag(&manager, "/v1/allocations/alloc-2", "").1.unwrap();
    let (status, _) = delete("/v1/allocations/alloc-2?force=true", &format!("\"0\", {second}"));
    assert_eq!(status, 202);
    // A change that would not look at it says so.
    let (status, problem) =
        manager.raw("POST", "/v1/allocations", &[("if-match", "*")], Some("{}"));
    let problem: Value = serde_json::from_str(&problem).unwrap();
    assert_eq!((status, &problem["field"]), (400, &json!("if-match")));
}

#[test]
fn an_operation_that_waits_is_no_other_one_a_second_later() {
    let manager = Manager::with_timing(&[("enumeration_ms", 3_600_000)]);
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let _box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    at_host.with(|s| s.enumerates = false);
    at_host.set_root_complex(false);
    manager.wait_event("root-complex-lost", "host1");
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    manager.wait_phase("bound");
    let seen = tag(&manager, "/v1/operations/op-1", "").1.unwrap();
    let text = manager.get("/v1/operations/op-1").to_string();
    assert!(text.contains("host1 has had no root complex since 20"), "{text}");
    std::thread::sleep(Duration::from_millis(1100));
    let again = tag(&manager, "/v1/operations/op-1", &format!("if-none-match: {seen}\r\n"));
    assert_eq!(again, (304, Some(seen.clone())));
    let cancel = ("POST", "/v1/operations/op-1/cancel");
    let (status, answer) = change(&manager, cancel, &seen, None);
    assert_eq!(status, 202, "{answer}");
}

#[test]
fn a_stream_is_filtered() {
    let manager = Manager::start();
    let stream = |manager: &Manager, query: &str| {
        let mut stream = TcpStream::connect(manager.api).unwrap();
        stream.set_read_timeout(Some(crate::common::LONG)).unwrap();
        write!(stream, "GET /v1/events/stream{query} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        BufReader::new(stream)
    };
    let next = |stream: &mut BufReader<TcpStream>, wanted: &str| loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended before {wanted}");
        if let Some(rest) = line.trim_end().strip_prefix(wanted) {
            return rest.to_owned();
        }
    };
    let mut only = stream(&manager, "?since=1&kind=node-added&node=box2");
    let _proxies = pool(&manager);
    let event: Value = serde_json::from_str(&next(&mut only, "data: ")).unwrap();
    assert_eq!((&event["kind"], &event["node"]), (&json!("node-added"), &json!("box2")));
}

/// Sends a change with `If-Match`: status and answer.
fn change(
    manager: &Manager,
    (method, path): (&str, &str),
    tag: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let text = body.map(Value::to_string);
    let (status, text) = manager.raw(method, path, &[("if-match", tag)], text.as_deref());
    (status, serde_json::from_str(&text).unwrap())
}

#[test]
fn every_change_of_what_was_looked_at_takes_its_tag() {
    let manager = Manager::start();
    let _proxies = pool(&manager);
    let reason = json!({"reason": "a test"});
    let at = |place: &str| json!({"place": place, "reason": "a test"});
    let take = |what: &str| json!({"what": what, "reason": "a test"});
    let fixed = |path: &str| path.replace("{id}", "alloc-1").replace("{name}", "box1");
    // What is changed, where it is looked at, and how it is changed.
    let (image, lease) = (json!({"nodes": ["box1"]}), json!({"lease_ms": 1000}));
    let changes = [
        ("/v1/allocations/alloc-1", "POST", "/v1/allocations/{id}/lease", Some(lease)),
        ("/v1/allocations/alloc-1", "POST", "/v1/take-backs", Some(take("alloc-1"))),
        ("/v1/bindings/bind-1", "POST", "/v1/take-backs", Some(take("bind-1"))),
        ("/v1/boxes/box1/slots/1", "POST", "/v1/take-backs", Some(take("box1/1"))),
        ("/v1/bindings/bind-2", "POST", "/v1/bindings/bind-2/replace", Some(reason)),
        ("/v1/holds?place=box1/3", "POST", "/v1/holds", Some(at("box1/3"))),
        ("/v1/holds?place=box1/3", "DELETE", "/v1/holds?place=box1/3", None),
        ("/v1/holds?place=box2", "POST", "/v1/drains", Some(at("box2"))),
        ("/v1/boxes/box1/slots/3", "POST", "/v1/boxes/{name}/slots/3/erase", Some(json!({}))),
        ("/v1/boxes/box1/slots/3", "POST", "/v1/boxes/{name}/slots/3/recover", None),
        ("/v1/allocations/alloc-2", "DELETE", "/v1/allocations/alloc-2", None),
        ("/v1/nodes/box2", "DELETE", "/v1/nodes/box2", None),
        ("/v1/inventory", "PUT", "/v1/inventory", Some(json!({"sites": {"s": {}}}))),
    ];
    // Nothing is changed for who saw something else.
    for (seen, method, path, body) in &changes {
        let (status, problem) = change(&manager, (method, &fixed(path)), "\"0\"", body.as_ref());
        assert_eq!((status, &problem["code"]), (412, &json!("precondition-failed")), "{path}");
        let tag = tag(&manager, seen, "").1.unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(&tag), "{path} is not compared with {seen}: {detail}");
    }
    let none = change(&manager, ("POST", "/v1/firmware/rollout"), "\"0\"", Some(&image));
    assert_eq!(none.1["code"], "not-a-card", "the tag is no fault: {none:?}");
    let all = take("host1");
    let (status, problem) = change(&manager, ("POST", "/v1/take-backs"), "*", Some(&all));
    assert_eq!((status, &problem["field"]), (400, &json!("if-match")));
    // Two who saw the same: the second sees that it has changed.
    let seen = tag(&manager, "/v1/holds?place=box1/3", "").1.unwrap();
    let hold = at("box1/3");
    let (status, _) = change(&manager, ("POST", "/v1/holds"), &seen, Some(&hold));
    assert_eq!(status, 200);
    let drain = change(&manager, ("POST", "/v1/drains"), &seen, Some(&hold));
    assert_eq!(drain.0, 412);
    let seen = tag(&manager, "/v1/holds?place=box1/3", "").1.unwrap();
    let off = ("DELETE", "/v1/holds?place=box1/3");
    assert_eq!(change(&manager, off, &seen, None).0, 200);
    assert_eq!(change(&manager, off, &seen, None).0, 412);
    let allocation = "/v1/allocations/alloc-1";
    let seen = tag(&manager, allocation, "").1.unwrap();
    let path = format!("{allocation}/lease");
    // It is lent without an end, which is the next thing that is in the way.
    let long = json!({"lease_ms": 600_000});
    assert_eq!(change(&manager, ("POST", &path), &seen, Some(&long)).0, 400);
    // A proxy that was there when it was looked at is not forgotten as one that is gone.
    let node = "/v1/nodes/gone1";
    let gone = Fake::join(manager.control, host("gone1", 1), "");
    manager.wait_ready(&["gone1"]);
    let seen = tag(&manager, node, "").1.unwrap();
    drop(gone);
    manager.wait_event("node-disconnected", "gone1");
    assert_eq!(change(&manager, ("DELETE", node), &seen, None).0, 412);
    let seen = tag(&manager, node, "").1.unwrap();
    assert_eq!(change(&manager, ("DELETE", node), &seen, None).0, 202);
}

#[test]
fn proxies_are_asked_for_their_tables_all_at_once() {
    let manager = Manager::with_timing(&[("reconcile_ms", 600_000)]);
    let boxes =
        [1, 2, 3].map(|n| Fake::join(manager.control, boxed(&format!("box{n}"), 1), "nvme"));
    manager.wait_ready(&["box1", "box2", "box3"]);
    // None answers until all are asked.
    let all = Arc::new(Barrier::new(3));
    for proxy in &boxes {
        let all = all.clone();
        let mut first = true;
        proxy.rule(move |request| {
            if first && matches!(request, Request::ReadTable { .. }) {
                first = false;
                all.wait();
            }
            None
        });
    }
    let tables = manager.get("/v1/tables");
    assert_eq!(tables["silent"], json!([]), "{tables}");
    let names: Vec<_> = tables["boxes"].as_array().unwrap().iter().map(|t| &t["box"]).collect();
    assert_eq!(names, ["box1", "box2", "box3"]);
}

#[test]
fn the_type_of_a_problem_leads_to_what_it_means() {
    let manager = Manager::start();
    let (_, problem) = manager.request("GET", "/v1/allocations/alloc-9", None);
    let kind = manager.get(problem["type"].as_str().unwrap());
    for field in ["type", "code", "title", "status"] {
        assert_eq!(kind[field], problem[field], "{kind}");
    }
    assert!(kind["advice"].as_str().unwrap().contains("dxpu-manager allocations"), "{kind}");
    let all = manager.get("/v1/problems");
    for kind in all["items"].as_array().unwrap() {
        assert_eq!(manager.get(kind["type"].as_str().unwrap()), *kind);
    }
    assert_eq!(all["items"].as_array().unwrap().len(), ProblemCode::ALL.len());
}
