//! Every route, with every status that it is described to have.

use super::checker::Checker;
use crate::common::card::{Card, Label};
use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{ControlError, Erasure, Reply, Request};
use serde_json::{Value, json};

#[test]
fn every_route_answers_as_described() {
    let manager = Manager::start();
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 3), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    let mut checker = Checker::new(&manager);
    let mut check = |method: &str, template: &str, path: &str, body: Option<Value>, status: u16| {
        let (found, answer) = checker.check(method, template, path, body);
        assert_eq!(found, status, "{method} {path}: {answer}");
        answer
    };
    check("GET", "/v1/healthz", "/v1/healthz", None, 200);
    let body = json!({"host": "host1", "count": 2, "reason": "a test"});
    let operation = check("POST", "/v1/allocations", "/v1/allocations", Some(body), 202);
    let id = operation["id"].as_str().unwrap();
    let path = format!("/v1/operations/{id}?wait_ms=60000");
    let operation = check("GET", "/v1/operations/{id}", &path, None, 200);
    assert_eq!(operation["state"], "succeeded");
    // One that fails, so that errors and rolled back steps are seen too.
    at_box
        .script(|r| matches!(r, Request::BindSlot(_)), [Script::Refuse(ControlError::BadWindows)]);
    let body = json!({"host": "host1", "box": "box1", "slot": 3});
    let failed = check("POST", "/v1/allocations", "/v1/allocations", Some(body), 202);
    let path = format!("/v1/operations/{}?wait_ms=60000", failed["id"].as_str().unwrap());
    assert_eq!(check("GET", "/v1/operations/{id}", &path, None, 200)["state"], "failed");

    for (template, path) in [
        ("/v1/nodes", "/v1/nodes"),
        ("/v1/nodes/{name}", "/v1/nodes/box1"),
        ("/v1/boxes", "/v1/boxes"),
        ("/v1/boxes/{name}", "/v1/boxes/box1"),
        ("/v1/slots", "/v1/slots?status=used&model=nvme&box=box1&host=host1"),
        ("/v1/boxes/{name}/slots/{slot}", "/v1/boxes/box1/slots/1"),
        ("/v1/hosts", "/v1/hosts"),
        ("/v1/hosts/{name}", "/v1/hosts/host1"),
        ("/v1/devices", "/v1/devices"),
        ("/v1/allocations", "/v1/allocations"),
        ("/v1/allocations/{id}", "/v1/allocations/alloc-1"),
        ("/v1/bindings", "/v1/bindings"),
        ("/v1/bindings/{id}", "/v1/bindings/bind-1"),
        ("/v1/operations", "/v1/operations"),
        ("/v1/audit", "/v1/audit"),
        ("/v1/operations/{id}/events", "/v1/operations/op-1/events"),
        ("/v1/events", "/v1/events?limit=1000"),
        ("/v1/tables", "/v1/tables"),
        ("/v1/problems", "/v1/problems"),
        ("/v1/problems/{code}", "/v1/problems/slot-in-use"),
        ("/v1/hosts/{name}/table", "/v1/hosts/host1/table"),
        ("/v1/boxes/{name}/table", "/v1/boxes/box1/table"),
        ("/v1/nodes/{name}/counters", "/v1/nodes/box1/counters"),
        ("/v1/nodes/{name}/stamps", "/v1/nodes/host1/stamps"),
    ] {
        let answer = check("GET", template, path, None, 200);
        if let Some(items) = answer["items"].as_array() {
            assert!(!items.is_empty(), "{path} shows something to check");
        }
    }
    let (lease, lease_1) = ("/v1/allocations/{id}/lease", "/v1/allocations/alloc-1/lease");
    check("POST", lease, lease_1, Some(json!({"lease_ms": 0})), 400);
    let body = json!({"host": "host1", "box": "box1", "slot": 3, "lease_ms": 600_000});
    let begun = check("POST", "/v1/allocations", "/v1/allocations", Some(body), 202);
    let path = format!("/v1/operations/{}?wait_ms=60000", begun["id"].as_str().unwrap());
    check("GET", "/v1/operations/{id}", &path, None, 200);
    let leased = format!("/v1/allocations/{}", begun["allocation"].as_str().unwrap());
    check("GET", "/v1/allocations/{id}", &leased, None, 200);
    let body = json!({"lease_ms": 700_000});
    check("POST", lease, &format!("{leased}/lease"), Some(body), 200);
    let body = json!({"what": "box1/3", "reason": "a test", "grace_ms": 1});
    let begun = check("POST", "/v1/take-backs", "/v1/take-backs", Some(body), 202);
    let path = format!("/v1/operations/{}?wait_ms=60000", begun["id"].as_str().unwrap());
    assert_eq!(check("GET", "/v1/operations/{id}", &path, None, 200)["state"], "succeeded");
    let body = json!({"what": "box1/3", "reason": "a test"});
    check("POST", "/v1/take-backs", "/v1/take-backs", Some(body), 409);

    let hold = Some(json!({"place": "box1/3", "reason": "a test"}));
    check("POST", "/v1/holds", "/v1/holds", hold, 200);
    check("POST", "/v1/holds", "/v1/holds", Some(json!({"place": "", "reason": "x"})), 400);
    check("GET", "/v1/holds", "/v1/holds", None, 200);
    check("GET", "/v1/slots", "/v1/slots?status=held", None, 200);
    check("DELETE", "/v1/holds", "/v1/holds?place=box1/3", None, 200);
    check("DELETE", "/v1/holds", "/v1/holds?place=box1/3", None, 404);
    check("GET", "/v1/spares", "/v1/spares", None, 200);
    check("GET", "/v1/health", "/v1/health", None, 200);
    let mut finish = |path: &str, template: &str, body: Value, state: &str| {
        let begun = check("POST", template, path, Some(body), 202);
        let path = format!("/v1/operations/{}?wait_ms=60000", begun["id"].as_str().unwrap());
        assert_eq!(check("GET", "/v1/operations/{id}", &path, None, 200)["state"], state);
    };
    let drain = json!({"place": "box1/3", "reason": "a test", "replace": true});
    finish("/v1/drains", "/v1/drains", drain, "succeeded");
    check("DELETE", "/v1/holds", "/v1/holds?place=box1/3", None, 200);
    check("POST", "/v1/drains", "/v1/drains", Some(json!({"place": "x", "reason": "x"})), 404);
    let replace = "/v1/bindings/{id}/replace";
    let reason = || json!({"reason": "a test"});
    check("POST", replace, "/v1/bindings/bind-99/replace", Some(reason()), 404);

    let cancel = "/v1/operations/{id}/cancel";
    check("POST", cancel, "/v1/operations/op-1/cancel", None, 409);
    let busy = [0; 2].map(|_| Script::Refuse(ControlError::Busy));
    at_box.script(|r| matches!(r, Request::BindSlot(_)), busy);
    let body = json!({"host": "host1", "box": "box1", "slot": 3});
    let begun = check("POST", "/v1/allocations", "/v1/allocations", Some(body), 202);
    let path = format!("/v1/operations/{}", begun["id"].as_str().unwrap());
    check("POST", cancel, &format!("{path}/cancel"), None, 202);
    let path = format!("{path}?wait_ms=60000");
    assert_eq!(check("GET", "/v1/operations/{id}", &path, None, 200)["state"], "cancelled");
    let recover = "/v1/boxes/{name}/slots/{slot}/recover";
    check("POST", recover, "/v1/boxes/box1/slots/3/recover", None, 200);
    let erase = "/v1/boxes/{name}/slots/{slot}/erase";
    check("POST", erase, "/v1/boxes/box1/slots/1/erase", Some(json!({})), 409);
    let erased = check("POST", erase, "/v1/boxes/box1/slots/3/erase", Some(json!({})), 202);
    let path = format!("/v1/erasures/{}", erased["id"].as_str().unwrap());
    eventually("the end of the erasure", || (manager.get(&path)["state"] == "done").then_some(()));
    check("GET", "/v1/erasures/{id}", &path, None, 200);
    let waive = "/v1/erasures/{id}/waive";
    let body = json!({ "reason": "it has nothing on it" });
    check("POST", waive, "/v1/erasures/erase-99/waive", Some(body.clone()), 404);
    at_box.rule(|request| {
        let running = Box::new(Reply::Erasure(Erasure::Running(1).into()));
        matches!(request, Request::Erase(_)).then_some(Script::Answer(running))
    });
    let erased = check("POST", erase, "/v1/boxes/box1/slots/3/erase", Some(json!({})), 202);
    let path = format!("/v1/erasures/{}/waive", erased["id"].as_str().unwrap());
    assert_eq!(check("POST", waive, &path, Some(body), 200)["state"], "waived");
    check("GET", "/v1/erasures/{id}", "/v1/erasures/erase-99", None, 404);
    check("GET", "/v1/erasures", "/v1/erasures?state=done&slot=box1/3", None, 200);
    check("GET", "/v1/erasures", "/v1/erasures?state=burnt", None, 400);
    let sampling = Some(json!({"mode": "all"}));
    check("PUT", "/v1/nodes/{name}/sampling", "/v1/nodes/host1/sampling", sampling, 204);

    let level = Some(json!({"level": "debug"}));
    check("PUT", "/v1/nodes/{name}/log-level", "/v1/nodes/host1/log-level", level, 204);

    record_and_look(&mut check, &manager);

    // Problems have their own shape everywhere.
    let in_use = Some(json!({"host": "host1", "box": "box1", "slot": 1}));
    let problem = check("POST", "/v1/allocations", "/v1/allocations", in_use, 409);
    assert_eq!(problem["owner"]["host"], "host1");
    check(
        "POST",
        "/v1/allocations",
        "/v1/allocations",
        Some(json!({"host": "host1", "count": 30})),
        409,
    );
    check("POST", recover, "/v1/boxes/box1/slots/1/recover", None, 409);
    for (method, template, path) in [
        ("GET", "/v1/nodes/{name}", "/v1/nodes/x"),
        ("GET", "/v1/boxes/{name}", "/v1/boxes/x"),
        ("GET", "/v1/boxes/{name}/slots/{slot}", "/v1/boxes/box1/slots/9"),
        ("POST", "/v1/operations/{id}/cancel", "/v1/operations/op-99/cancel"),
        ("GET", "/v1/operations/{id}/events", "/v1/operations/op-99/events"),
        ("GET", "/v1/hosts/{name}", "/v1/hosts/x"),
        ("GET", "/v1/allocations/{id}", "/v1/allocations/alloc-99"),
        ("GET", "/v1/bindings/{id}", "/v1/bindings/bind-99"),
        ("DELETE", "/v1/allocations/{id}", "/v1/allocations/alloc-99"),
        ("DELETE", "/v1/bindings/{id}", "/v1/bindings/bind-99"),
        ("GET", "/v1/operations/{id}", "/v1/operations/op-99"),
        ("GET", "/v1/hosts/{name}/table", "/v1/hosts/x/table"),
        ("GET", "/v1/boxes/{name}/table", "/v1/boxes/x/table"),
        ("GET", "/v1/nodes/{name}/counters", "/v1/nodes/x/counters"),
        ("GET", "/v1/nodes/{name}/stamps", "/v1/nodes/x/stamps"),
        ("GET", "/v1/recordings/{id}", "/v1/recordings/rec-99"),
        ("DELETE", "/v1/recordings/{id}", "/v1/recordings/rec-99"),
        ("POST", "/v1/recordings/{id}/stop", "/v1/recordings/rec-99/stop"),
        ("GET", "/v1/recordings/{id}/file", "/v1/recordings/rec-99/file"),
        ("GET", "/v1/latency", "/v1/latency?node=x"),
    ] {
        check(method, template, path, None, 404);
    }
    for n in [0, 1_u64 << 31] {
        let sampling = Some(json!({"mode": "one-in", "n": n}));
        let path = "/v1/nodes/host1/sampling";
        let problem = check("PUT", "/v1/nodes/{name}/sampling", path, sampling, 400);
        assert_eq!(problem["field"], "n", "{problem}");
    }
    let level = Some(json!({"level": "loud"}));
    check("PUT", "/v1/nodes/{name}/log-level", "/v1/nodes/host1/log-level", level, 400);
    let inventory = json!({"racks": {"r1": {}}, "boxes": {"box1": {"rack": "r1"}}});
    check("PUT", "/v1/inventory", "/v1/inventory", Some(inventory), 200);
    let wrong = Some(json!({"boxes": {"box1": {"rack": "r2"}}}));
    check("PUT", "/v1/inventory", "/v1/inventory", wrong, 400);
    check("GET", "/v1/inventory", "/v1/inventory", None, 200);
    let wish = Some(json!({"host": "host1", "selector": "rack=r1", "near": true}));
    check("POST", "/v1/allocations", "/v1/allocations?dry_run=true", wish, 200);
    for list in [
        "nodes",
        "boxes",
        "hosts",
        "allocations",
        "bindings",
        "audit",
        "spares",
        "health",
        "recordings",
        "firmware/images",
        "firmware/cards",
        "problems",
    ] {
        let template = format!("/v1/{list}");
        check("GET", &template, &format!("{template}?limit=0"), None, 400);
    }
    check("GET", "/v1/slots", "/v1/slots?status=half", None, 400);
    check("GET", "/v1/devices", "/v1/devices?colour=red", None, 400);
    check("GET", "/v1/operations", "/v1/operations?running=perhaps", None, 400);
    check("GET", "/v1/events", "/v1/events?limit=0", None, 400);
    check("GET", "/v1/holds", "/v1/holds?kind=merry", None, 400);
    check("GET", "/v1/problems/{code}", "/v1/problems/none", None, 404);
    // What has no parameters refuses them all.
    for path in ["/v1/healthz", "/v1/inventory", "/v1/tables"] {
        check("GET", path, &format!("{path}?colour=red"), None, 400);
    }

    let release = "/v1/bindings/bind-1?force=true";
    let operation = check("DELETE", "/v1/bindings/{id}", release, None, 202);
    let path = format!("/v1/operations/{}?wait_ms=60000", operation["id"].as_str().unwrap());
    assert_eq!(check("GET", "/v1/operations/{id}", &path, None, 200)["state"], "succeeded");
    let path = "/v1/bindings/bind-2/replace";
    let begun = check("POST", replace, path, Some(json!({"reason": "a test"})), 202);
    let path = format!("/v1/operations/{}?wait_ms=60000", begun["id"].as_str().unwrap());
    assert_eq!(check("GET", "/v1/operations/{id}", &path, None, 200)["state"], "succeeded");
    check("DELETE", "/v1/allocations/{id}", "/v1/allocations/alloc-1?within_ms=100", None, 202);
    let gone = Fake::join(manager.control, host("gone1", 1), "");
    check("DELETE", "/v1/nodes/{name}", "/v1/nodes/gone1", None, 409);
    drop(gone);
    manager.wait_event("node-disconnected", "gone1");
    check("DELETE", "/v1/nodes/{name}", "/v1/nodes/gone1", None, 202);
    drop(at_host);
    bring_firmware(&mut checker, &manager);

    let seen = checker.seen;
    for (path, methods) in checker.description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            for status in operation["responses"].as_object().unwrap().keys() {
                // The stream, the metrics, the backup and what is waited for have tests of their own.
                let is_file = path.ends_with("/file") && status == "200";
                let parameters = operation["parameters"].as_array();
                let waits = parameters.is_some_and(|all| all.iter().any(|p| p["name"] == "Prefer"));
                if is_file
                    || (waits && status == "200")
                    || ["/v1/events/stream", "/metrics", "/v1/backup"].contains(&path.as_str())
                {
                    continue;
                }
                let was_seen = seen.iter().any(|(m, p, s)| {
                    let fits = match status.as_str() {
                        "default" => *s >= 400,
                        exact => s.to_string() == exact,
                    };
                    m == method && p == path && fits
                });
                assert!(was_seen, "{method} {path} {status} was never seen");
            }
        }
    }
    let served: Value = manager.get("/v1/openapi.json");
    assert_eq!(served, checker.description);
}

/// Records a binding of pretended proxies, and looks at it.
fn record_and_look(
    check: &mut impl FnMut(&str, &str, &str, Option<Value>, u16) -> Value,
    manager: &Manager,
) {
    let latency = check("GET", "/v1/latency", "/v1/latency?window_ms=100&slowest=3", None, 200);
    let device = &latency["devices"][0];
    // Out 20, away 500, back 20; of the time away 20 + 180 + 20 at the box.
    let split = &device["from_host"];
    let part = |name: &str| split[name].as_u64().unwrap();
    assert_eq!((part("p50_ns"), part("p99_ns")), (540, 540), "{latency}");
    assert_eq!((part("original_ns"), part("network_ns")), (180, 280));
    assert_eq!((part("host_conversion_ns"), part("box_conversion_ns")), (40, 40));
    assert_eq!(part("conversion_ns"), 80);
    assert!(device["host_requests_per_s"].as_f64().unwrap() > 0.0, "{latency}");
    assert_eq!(latency["slowest"].as_array().unwrap().len(), 3);
    assert_eq!(latency["slowest"][0]["address"], 0xfe00_0010_u64);
    let stages = latency["slowest"][0]["stages"].as_array().unwrap();
    let sum: u64 = stages.iter().map(|stage| stage["ns"].as_u64().unwrap()).sum();
    assert_eq!(sum, 540, "{stages:?}");

    let record = |format: &str, duration: u32| json!({"binding": "bind-1", "format": format, "duration_ms": duration});
    let all = "/v1/recordings";
    check("POST", all, all, Some(record("perfetto", 50)), 201);
    let ended =
        check("GET", "/v1/recordings/{id}", "/v1/recordings/rec-1?wait_ms=60000", None, 200);
    assert_eq!(ended["ended"]["reason"], "time", "{ended}");
    assert!(ended["packets"].as_u64().unwrap() >= 2, "{ended}");
    let trace = manager.get("/v1/recordings/rec-1/file");
    let slices = trace["traceEvents"].as_array().unwrap().iter();
    let named = slices.filter(|slice| slice["name"] == "MRd 0xfe000010 4 B").count();
    assert!(named > 0, "{trace}");

    check("POST", all, all, Some(record("tlps", 3_600_000)), 201);
    let file = "/v1/recordings/{id}/file";
    check("GET", file, "/v1/recordings/rec-2/file", None, 409);
    let stop = "/v1/recordings/{id}/stop";
    let stopped = check("POST", stop, "/v1/recordings/rec-2/stop", None, 200);
    assert_eq!(stopped["ended"]["reason"], "stopped", "{stopped}");
    assert_eq!(manager.raw("GET", "/v1/recordings/rec-2/file", &[], None).0, 200);
    let limited = Some(json!({"binding": "bind-1", "format": "tlps", "limit_bytes": 1}));
    check("POST", all, all, limited, 201);
    let ended =
        check("GET", "/v1/recordings/{id}", "/v1/recordings/rec-3?wait_ms=60000", None, 200);
    assert_eq!(ended["ended"]["reason"], "limit", "{ended}");
    assert_eq!(check("GET", all, all, None, 200)["items"].as_array().unwrap().len(), 3);
    // Of frames, the host says that it had no room.
    check("POST", all, all, Some(record("frames", 50)), 201);
    let ended =
        check("GET", "/v1/recordings/{id}", "/v1/recordings/rec-4?wait_ms=60000", None, 200);
    let lost = ended["lost_at_host"].as_u64().unwrap();
    assert!(lost > 0 && lost.is_multiple_of(3) && ended["lost_at_box"] == 0, "{ended}");
    check("DELETE", "/v1/recordings/{id}", "/v1/recordings/rec-1", None, 204);

    check("GET", "/v1/latency", "/v1/latency?window_ms=1", None, 400);
    check("GET", "/v1/recordings/{id}", "/v1/recordings/rec-2?wait_ms=1000000", None, 400);
    for (field, value) in [("duration_ms", 0), ("limit_bytes", 0), ("snap", 0)] {
        let mut body = record("frames", 10);
        body[field] = value.into();
        let problem = check("POST", all, all, Some(body), 400);
        assert_eq!(problem["field"], field);
    }
    let nothing = Some(json!({"binding": "bind-99", "format": "frames"}));
    check("POST", all, all, nothing, 404);
}

/// Brings firmware to a pretended card.
fn bring_firmware(checker: &mut Checker<'_>, manager: &Manager) {
    let (images, rollout) = ("/v1/firmware/images", "/v1/firmware/rollout");
    assert_eq!(checker.check("GET", rollout, rollout, None).0, 404);
    let _card = Card::start(manager.control, boxed("card1", 1));
    manager.wait_ready(&["card1"]);
    for (bytes, expected) in [(b"none".to_vec(), 400), (Label::version(2).image(), 200)] {
        let (status, answer) = manager.post_file(images, &bytes);
        checker.judge("POST", images, images, status, &answer);
        assert_eq!(status, expected, "{answer}");
    }
    let (_, listed) = checker.check("GET", images, images, None);
    let image = &listed["items"][0]["id"];
    let cards = "/v1/firmware/cards";
    assert_eq!(checker.check("GET", cards, cards, None).1["items"][0]["name"], "card1");
    let body = json!({ "image": image, "nodes": ["card1"], "wave_size": 2, "within_s": 60 });
    let (status, begun) = checker.check("POST", rollout, rollout, Some(body.clone()));
    assert_eq!((status, &begun["cards"][0]["node"]), (202, &json!("card1")), "{begun}");
    eventually("the end of the rollout", || {
        let (_, now) = checker.check("GET", rollout, rollout, None);
        (now["state"] == "succeeded").then_some(())
    });
    for (field, value) in
        [("nodes", json!([])), ("wave_size", json!(0)), ("within_s", json!(1 << 20))]
    {
        let mut body = body.clone();
        body[field] = value;
        let (status, problem) = checker.check("POST", rollout, rollout, Some(body));
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
    }
}
