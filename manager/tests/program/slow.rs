//! Clients that ask and do not read, or that are too many.

use crate::common::{LONG, Manager, eventually};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A connection that says this and is kept.
fn open(manager: &Manager, says: &str) -> TcpStream {
    let mut stream = TcpStream::connect(manager.api).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(says.as_bytes()).unwrap();
    stream
}

#[test]
fn a_connection_too_many_is_told_so() {
    let manager = Manager::with_settings("connections = 3\n", &[]);
    // Each is seen to have its seat.
    let request = "GET /v1/healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut seats: Vec<_> = (0..3)
        .map(|_| {
            eventually("a seat", || {
                let stream = open(&manager, request);
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).ok()?;
                line.contains("200").then_some(stream)
            })
        })
        .collect();
    let mut answer = String::new();
    open(&manager, request).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: 1"), "{head}");
    let problem: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&problem["code"], &problem["transient"]), (&json!("limit-reached"), &json!(true)));
    assert!(problem["detail"].as_str().unwrap().contains("`connections`"), "{problem}");
    drop(seats.pop());
    eventually("a seat that is free again", || {
        (manager.raw("GET", "/v1/healthz", &[], None).0 == 200).then_some(())
    });
}

#[test]
fn who_does_not_read_loses_the_connection() {
    let manager = Manager::with_settings("connections = 2\n", &[("http_ms", 500)]);
    let mut greedy = TcpStream::connect(manager.api).unwrap();
    greedy.set_read_timeout(Some(LONG)).unwrap();
    let asks = greedy.try_clone().unwrap();
    // More than any buffer between the two holds, as long as it is served.
    std::thread::spawn(move || {
        let mut asks = asks;
        while asks.write_all(b"GET /v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n").is_ok() {}
    });
    manager.wait_log("the client has read nothing for 500ms");
    // What was sent can still be read, and then it is over.
    let mut bytes = vec![0; 1 << 16];
    while let Ok(1..) = greedy.read(&mut bytes) {}
    assert_eq!(manager.raw("GET", "/v1/healthz", &[], None).0, 200);
}

#[test]
fn streams_of_events_leave_seats_for_others() {
    let manager = Manager::with_settings("connections = 8\n", &[]);
    let request = "GET /v1/events/stream?since=0 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let stream = || {
        let mut reader = BufReader::new(open(&manager, request));
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (line, reader)
    };
    let (first, second) = (stream(), stream());
    assert!(first.0.contains("200") && second.0.contains("200"), "{first:?} {second:?}");
    let (line, mut reader) = stream();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(line.contains("503") && rest.contains("retry-after: 1"), "{line}{rest}");
    assert!(rest.contains("limit-reached") && rest.contains("wait_ms"), "{rest}");
    assert_eq!(manager.raw("GET", "/v1/healthz", &[], None).0, 200);
    drop(first);
    eventually("a seat for a stream", || stream().0.contains("200").then_some(()));
}
