//! The REST API against its own description, and what it says to requests that are wrong.

use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually};
use checker::{Checker, description};
use proxy_core::control::{ControlError, Request};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

mod checker;
mod prefer;
mod routes;
mod wrong;

#[test]
fn the_description_is_the_programs_own() {
    let own: Value = serde_json::to_value(manager::api::description()).unwrap();
    assert!(
        description() == own,
        "openapi.json differs from the server: `cargo run -p manager -- openapi > \
         manager/openapi.json`"
    );
}

/// What docs/api.md says of lists, and which one it excepts.
#[test]
fn lists_come_in_pages() {
    let description = description();
    let mut lists = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        let get = &methods["get"];
        let body = &get["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
        if !body.as_str().is_some_and(|body| body.contains("/List_")) {
            continue;
        }
        lists += 1;
        let parameters = get["parameters"].as_array().unwrap();
        let has = |name| parameters.iter().any(|parameter| parameter["name"] == name);
        let pages = path != "/v1/operations/{id}/events";
        assert_eq!([has("limit"), has("cursor")], [pages; 2], "{path}");
    }
    assert!(lists > 10, "{lists}");
}

#[test]
fn events_stream_and_go_on_where_a_client_was() {
    let manager = Manager::start();
    let open = |header: &str| {
        let mut stream = TcpStream::connect(manager.api).unwrap();
        write!(stream, "GET /v1/events/stream HTTP/1.1\r\nhost: x\r\n{header}\r\n").unwrap();
        BufReader::new(stream)
    };
    let mut stream = open("last-event-id: 0\r\n");
    let mut next = |wanted: &str| loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended before {wanted}");
        if line.trim_end().starts_with(wanted) {
            return line.trim_end().to_owned();
        }
    };
    next("HTTP/1.1 200");
    next("content-type: text/event-stream");
    next("id: 1");
    let data = next("data: ");
    let event: Value = serde_json::from_str(data.trim_start_matches("data: ")).unwrap();
    let checker = Checker::new(&manager);
    let schema = &checker.description["paths"]["/v1/events/stream"]["get"]["responses"]["200"]["content"]
        ["text/event-stream"]["schema"];
    checker.validate(schema, &event, "an event of the stream");
    let _box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    next("event: node-connected");
    let mut wrong = open("last-event-id: yesterday\r\nconnection: close\r\n");
    let mut text = String::new();
    wrong.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}

/// A host and a box. What is lent gets as far as the box: the host has no time for it.
fn pair_that_stays_half_way(manager: &Manager) -> (Fake, Fake) {
    let at_host = Fake::join(manager.control, host("host1", 1), "");
    let at_box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    at_host
        .rule(|r| matches!(r, Request::BindPort(_)).then_some(Script::Refuse(ControlError::Busy)));
    (at_host, at_box)
}

#[test]
fn waiting_for_an_operation_ends_when_a_step_is_done() {
    let manager = Manager::start();
    let _pair = pair_that_stays_half_way(&manager);
    let (_, operation) =
        manager.request("POST", "/v1/allocations", Some(&json!({"host": "host1"})));
    let id = operation["id"].as_str().unwrap();
    let path = format!("/v1/operations/{id}?wait_ms=60000&beyond_steps=0");
    let operation = manager.get(&path);
    assert_eq!(operation["steps"][0]["state"], "done");
    assert_eq!(operation["state"], "running");
    let trouble = eventually("the trouble", || {
        let binding = manager.get("/v1/bindings/bind-1");
        binding["trouble"].as_str().map(str::to_owned)
    });
    assert!(trouble.contains("another operation"), "{trouble}");
}
