//! Recordings and looks where a proxy has no recorder, as a card may have none.

use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{ControlError, Request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// A host and a box, of which those named have no recorder, and a binding.
fn pool(manager: &Manager, cards: &[&str]) -> (Fake, Fake) {
    let at_host = Fake::join(manager.control, host("host1", 2), "");
    let at_box = Fake::join(manager.control, boxed("box1", 3), "nvme");
    for fake in [&at_host, &at_box] {
        if cards.contains(&fake.spec.name.as_str()) {
            fake.rule(|request| match request {
                Request::SetRecorder(list) if !list.is_empty() => {
                    Some(Script::Refuse(ControlError::NoRecorder))
                }
                _ => None,
            });
        }
    }
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1"]);
    (at_host, at_box)
}

/// Records for a moment; the recording and its file.
fn record(manager: &Manager, format: &str, seen_from: &str) -> (Value, String) {
    let body = json!({"binding": "bind-1", "format": format, "seen_from": seen_from,
        "duration_ms": 100});
    let (status, begun) = manager.request("POST", "/v1/recordings", Some(&body));
    assert_eq!(status, 201, "{begun}");
    let path = format!("/v1/recordings/{}", begun["id"].as_str().unwrap());
    let view = manager.get(&format!("{path}?wait_ms=60000"));
    assert_eq!(view["ended"]["reason"], "time", "{view}");
    (view, manager.raw("GET", &format!("{path}/file"), &[], None).1)
}

/// Whether a recording is refused with these words.
fn is_refused(manager: &Manager, seen_from: &str, words: &[&str]) {
    let body = json!({"binding": "bind-1", "format": "frames", "seen_from": seen_from});
    let (status, problem) = manager.request("POST", "/v1/recordings", Some(&body));
    assert_eq!((status, &problem["code"]), (502, &json!("proxy-refused")), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(words.iter().all(|word| detail.contains(word)), "{detail}");
}

/// The requests of a trace, and the names of what is inside of them.
fn slices(trace: &str) -> (Vec<Value>, Vec<String>) {
    let trace: Value = serde_json::from_str(trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X");
    let (whole, inside): (Vec<_>, Vec<_>) = events.cloned().partition(|e| e["cat"].is_string());
    (whole, inside.iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn a_card_in_the_box_is_recorded_from_the_host() {
    let manager = Manager::start();
    let _fakes = pool(&manager, &["box1"]);
    let why = "box1 has no memory for a flight recorder";
    for format in ["frames", "tlps", "perfetto"] {
        let (view, file) = record(&manager, format, "host");
        assert_eq!(view["not_recorded"], json!({"end": "box", "detail": why}));
        assert!(view["lost_at_box"] == 0 && file.contains(why), "{view}");
        match format {
            "frames" => assert!(view["lost_at_host"].as_u64() > Some(0), "they were asked for"),
            "tlps" => {
                let said = file.matches("host.arrived=").count();
                assert!(said > 0 && file.matches("host.delivered=").count() > 0);
                assert!(!file.contains("box.received="), "nothing is known of it");
            }
            _ => {
                let (requests, inside) = slices(&file);
                assert!(!requests.is_empty());
                assert!(requests.iter().all(|r| r["dur"] == 0.54), "{requests:?}");
                assert!(inside.iter().any(|name| name == "away"), "{inside:?}");
                assert!(!inside.iter().any(|name| name == "device" || name == "network"));
            }
        }
    }
    is_refused(&manager, "box", &[why, "host1", "seen from: host"]);
    let said = manager.text(&["record", "bind-1", "--out", "t.pcapng", "--for", "50ms"]);
    assert!(said.contains(&format!("{why}: its stages are missing")), "{said}");
    let said = manager.text(&["latency", "--window", "100ms"]);
    assert!(said.contains(&format!("not split: box1/1 of host1: {why}")), "{said}");

    let look = manager.get("/v1/latency?window_ms=100&slowest=1");
    let device = &look["devices"][0];
    let split = &device["from_host"];
    assert_eq!((&split["p50_ns"], &split["host_conversion_ns"]), (&json!(540), &json!(40)));
    for unknown in ["original_ns", "network_ns", "conversion_ns", "box_conversion_ns"] {
        assert!(split[unknown].is_null(), "{look}");
    }
    assert!(device["host_requests_per_s"].as_f64() > Some(0.0), "{look}");
    assert!(device["device_requests_per_s"].is_null() && device["from_device"].is_null());
    assert_eq!(device["not_recorded"]["end"], "box");
    assert_eq!(look["missing"], json!([]));
    let stages = look["slowest"][0]["stages"].as_array().unwrap();
    let away = stages.iter().find(|stage| stage["stage"] == "away").unwrap();
    assert_eq!(away["ns"], 500, "{look}");
}

#[test]
fn a_card_in_the_host_is_recorded_from_the_box() {
    let manager = Manager::start();
    let _fakes = pool(&manager, &["host1"]);
    let why = "host1 has no memory for a flight recorder";
    let (view, file) = record(&manager, "tlps", "box");
    assert_eq!(view["not_recorded"], json!({"end": "host", "detail": why}));
    assert!(file.contains("box.received=") && file.contains("box.sent="));
    assert!(!file.contains("host.arrived="));
    // Of a request that only its receiver saw, what that one saw stands there.
    let (requests, inside) = slices(&record(&manager, "perfetto", "box").1);
    assert!(!requests.is_empty());
    for request in &requests {
        assert_eq!(
            (&request["name"], &request["cat"]),
            (&json!("MRd 0xfe000010 4 B"), &json!("from host"))
        );
        assert_eq!((&request["dur"], &request["args"]["answered"]), (&json!(0.22), &json!(true)));
    }
    assert_eq!(inside.len(), 5 * requests.len());
    assert!(inside[..5].contains(&"device".to_owned()), "{inside:?}");
    is_refused(&manager, "host", &[why, "box1", "seen from: box"]);

    let look = manager.get("/v1/latency?window_ms=100");
    let device = &look["devices"][0];
    assert!(device["host_requests_per_s"].is_null() && device["from_host"].is_null(), "{look}");
    assert!(device["device_requests_per_s"].as_f64() > Some(0.0), "{look}");
    assert_eq!(device["not_recorded"], json!({"end": "host", "detail": why}));
}

#[test]
fn without_a_recorder_at_either_end_nothing_is_recorded() {
    let manager = Manager::start();
    let _fakes = pool(&manager, &["host1", "box1"]);
    for seen_from in ["host", "box"] {
        is_refused(&manager, seen_from, &["neither host1 nor box1", "flight recorder"]);
    }
    let look = manager.get("/v1/latency?window_ms=100");
    assert_eq!(look["devices"], json!([]));
    let missing = look["missing"][0].as_str().unwrap();
    assert!(missing.contains("bind-1") && missing.contains("neither host1 nor box1"), "{look}");
}

#[test]
fn a_recording_ends_when_the_end_that_is_not_recorded_goes() {
    let manager = Manager::start();
    let (_host, at_box) = pool(&manager, &["box1"]);
    let body = json!({"binding": "bind-1", "format": "tlps", "duration_ms": 3_600_000});
    assert_eq!(manager.request("POST", "/v1/recordings", Some(&body)).0, 201);
    drop(at_box);
    let view = manager.get("/v1/recordings/rec-1?wait_ms=60000");
    let (reason, detail) = (&view["ended"]["reason"], view["ended"]["detail"].as_str().unwrap());
    assert_eq!(reason, "proxy-gone", "{view}");
    assert!(detail.contains("box1"), "{view}");
}

#[test]
fn one_that_is_ended_before_it_runs_leaves_no_file() {
    // Nobody answers: the kernel takes the connection.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let begin = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-manager"));
        command.args(["--server", &server]).args(words).args(["--out", "frames.pcapng"]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    for words in [&["record", "bind-1", "--for", "1m"][..], &["fetch", "rec-1"]] {
        let mut child = begin(words);
        let _asked = silent.accept().unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "what is to be written to");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let status = eventually("the end of the command", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(130), "{words:?}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{words:?}");
    }
}
