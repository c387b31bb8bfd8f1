//! Requests that are wrong, too slow or too large.

use crate::common::Manager;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

#[test]
fn requests_that_are_wrong_say_in_which_field() {
    let manager = Manager::start();
    let post = |body: &str| manager.raw("POST", "/v1/allocations", &[], Some(body));
    let problem = |(status, text): (u16, String)| -> (u16, Value) {
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")))
    };
    for (body, field) in [
        ("{}", "host"),
        ("not json", "body"),
        ("[]", "body"),
        (r#"{"host": "h", "colour": "red"}"#, "colour"),
        (r#"{"host": 7}"#, "host"),
        (r#"{"host": "h", "host": "g"}"#, "host"),
        (r#"{"host": "h", "count": -1}"#, "count"),
        (r#"{"host": "h", "exclude": {"boxes": [1]}}"#, "exclude.boxes[0]"),
        (r#"{"host": "h", "link": {"wait": 1}}"#, "link.wait"),
        (r#"{"host": "h", "count": 0}"#, "count"),
        (r#"{"host": "h", "count": 33}"#, "count"),
        (r#"{"host": "a b"}"#, "host"),
        (r#"{"host": "h", "box": "/"}"#, "box"),
        (r#"{"host": "h", "box": "b", "slot": 0}"#, "slot"),
        (r#"{"host": "h", "slot": 1}"#, "slot"),
        (&format!(r#"{{"host": "h", "reason": "{}"}}"#, "x".repeat(300)), "reason"),
        (r#"{"host": "h", "reason": "one\u001b[31m"}"#, "reason"),
        (r#"{"host": "h", "tenant": "a\nb"}"#, "tenant"),
        (r#"{"host": "h", "tenant": ""}"#, "tenant"),
        (r#"{"host": "h", "cel": "true // \u001b[2J"}"#, "cel"),
        // Lists of what the fields of an object are.
        (r#"["h"]"#, "body"),
        (r#"{"host": "h", "exclude": [["box9"]]}"#, "exclude"),
        (r#"{"host": "h", "exclude": []}"#, "exclude"),
        (r#"{"host": "h", "link": []}"#, "link"),
        ("null", "body"),
    ] {
        let (status, problem) = problem(post(body));
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{body}: {problem}");
        assert_eq!(problem["code"], "invalid-request");
    }
    // What is said is true of what is there.
    for (body, field, why) in [
        (r#"{"host": "h", "together": 7}"#, "together", "it is one of a few names, a text"),
        (r#"{"host": "h", "lease_ms": 1e400}"#, "lease_ms", "number out of range"),
        (r#"{"host": "\ud800"}"#, "host", "hex escape"),
    ] {
        let (status, problem) = problem(post(body));
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    for (path, body) in [
        ("/v1/holds", json!({"place": "box1", "reason": "one\ntwo"})),
        ("/v1/drains", json!({"place": "box1", "reason": "\u{1b}[2J"})),
        ("/v1/take-backs", json!({"what": "alloc-1", "reason": "a\u{7f}"})),
        ("/v1/holds", json!({"place": "box1", "reason": "one\u{2028}two"})),
        ("/v1/drains", json!({"place": "box1", "reason": "one\u{202e}two"})),
        ("/v1/erasures/erase-1/waive", json!({"reason": "a\tb"})),
    ] {
        let (status, problem) = manager.request("POST", path, Some(&body));
        assert_eq!((status, &problem["field"]), (400, &json!("reason")), "{path}: {problem}");
    }
    for (body, field) in [("[]", "body"), (r#"{"racks": {"r1": [null]}}"#, "racks.r1")] {
        let (status, problem) = problem(manager.raw("PUT", "/v1/inventory", &[], Some(body)));
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{body}: {problem}");
    }
    let keys = [("idempotency-key", "one"), ("idempotency-key", "two")];
    let (status, two) =
        problem(manager.raw("POST", "/v1/allocations", &keys, Some(r#"{"host": "h"}"#)));
    assert_eq!((status, &two["field"]), (400, &json!("idempotency-key")), "{two}");
    let (status, too_large) = problem(post(&format!(r#"{{"host": "{}"}}"#, "x".repeat(70_000))));
    assert_eq!((status, &too_large["code"]), (413, &json!("body-too-large")));
    // Also where nobody reads so much: who sends it all hears why it is refused.
    let large = "x".repeat(32 << 20);
    let prefers = [("prefer", "wait=abc")];
    for (path, headers, answer, said) in [
        ("/v1/inventory", &[][..], 413, ("code", "body-too-large")),
        ("/v1/inventory?x=1", &[], 400, ("field", "x")),
        ("/v1/inventory", &prefers, 400, ("field", "prefer")),
    ] {
        let (status, problem) = problem(manager.raw("PUT", path, headers, Some(&large)));
        assert_eq!((status, &problem[said.0]), (answer, &json!(said.1)), "{path}: {problem}");
    }
    let plain = [("content-type", "text/plain")];
    let (status, media) = problem(manager.raw("POST", "/v1/allocations", &plain, Some("{}")));
    assert_eq!((status, &media["code"]), (415, &json!("unsupported-media-type")));
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/v2/nodes", 404),
        ("PATCH", "/v1/allocations", 405),
        ("GET", "/v1/nodes/%20", 400),
        ("GET", "/v1/nodes/%ff", 400),
        ("GET", "/v1/allocations/alloc-x", 400),
        ("DELETE", "/v1/allocations/alloc-1?force=true&within_ms=5", 400),
        ("DELETE", "/v1/allocations/alloc-1?within_ms=600001", 400),
        ("GET", "/v1/operations/op-1?wait_ms=60001", 400),
        ("GET", "/v1/events?since=-1", 400),
        ("GET", "/v1/boxes/b/slots/1", 404),
    ] {
        let (found, problem) = problem(manager.raw(method, path, &[], None));
        assert_eq!(found, status, "{method} {path}: {problem}");
        assert_eq!(problem["status"], status);
    }
    for (since, why) in [
        ("-1", "a whole number"),
        ("", "a whole number"),
        ("99999999999999999999", "a smaller number"),
    ] {
        let path = format!("/v1/events?since={since}");
        let (_, problem) = problem(manager.raw("GET", &path, &[], None));
        let said = (&problem["field"], problem["detail"].as_str().unwrap());
        assert!(said.0 == "since" && said.1.contains(why), "{problem}");
    }
}

/// What is answered until the connection ends, after these bytes, and then one more at a time.
fn answer_to_slow(manager: &Manager, begin: &str, then: u8) -> String {
    let mut stream = TcpStream::connect(manager.api).unwrap();
    stream.set_read_timeout(Some(crate::common::LONG)).unwrap();
    let mut slow = stream.try_clone().unwrap();
    slow.write_all(begin.as_bytes()).unwrap();
    std::thread::spawn(move || {
        // Until the other end has enough of it.
        while slow.write_all(&[then]).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let mut answer = Vec::new();
    // A connection that ends with bytes on their way is reset.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_request_that_dribbles_in_ends_and_the_others_go_on() {
    let manager = Manager::with_timing(&[("http_ms", 300)]);
    for head in ["", "GET /v1/no", "GET /v1/nodes HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        let answer = answer_to_slow(&manager, head, b'a');
        assert!(!answer.contains("200 OK"), "{head:?}: {answer}");
    }
    let body = "POST /v1/allocations HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                content-length: 60000\r\n\r\n{";
    let answer = answer_to_slow(&manager, body, b' ');
    assert!(answer.contains("408") && answer.contains("request-timeout"), "{answer}");
    assert_eq!(manager.get("/v1/nodes")["items"], json!([]));
}

/// Every change, with a body that never comes and one that is longer than any.
#[test]
fn every_body_has_a_time_and_a_largest_size() {
    let manager = Manager::with_timing(&[("http_ms", 500)]);
    let described = manager.get("/v1/openapi.json");
    let mut changes = Vec::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        let methods = item.as_object().unwrap().keys().map(|method| method.to_uppercase());
        let path = path.replace("{name}", "box1").replace("{slot}", "1").replace("{id}", "op-1");
        changes.extend(methods.filter(|m| m != "GET").map(|method| (method, path.clone())));
    }
    assert!(changes.len() > 15, "{changes:?}");
    let answers = std::thread::scope(|scope| {
        let ask = |(method, path): &(String, String), length: usize| {
            let mut stream = TcpStream::connect(manager.api).unwrap();
            stream.set_read_timeout(Some(crate::common::LONG)).unwrap();
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                 connection: close\r\ncontent-length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            (format!("{method} {path}"), String::from_utf8_lossy(&answer).into_owned())
        };
        let asked = changes.iter().flat_map(|change| [10, 1 << 30].map(|length| (change, length)));
        let asked: Vec<_> =
            asked.map(|(change, length)| scope.spawn(move || ask(change, length))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
    });
    for (change, answer) in answers {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{change}"));
        if !head.starts_with("HTTP/1.1 2") {
            assert!(head.contains("application/problem+json"), "{change}: {answer}");
            serde_json::from_str::<Value>(body).unwrap_or_else(|_| panic!("{change}: {answer}"));
        }
    }
}

#[test]
fn a_head_has_a_largest_size() {
    let manager = Manager::start();
    let mut stream = TcpStream::connect(manager.api).unwrap();
    stream.set_read_timeout(Some(crate::common::LONG)).unwrap();
    let long = format!("GET /v1/nodes HTTP/1.1\r\nx-long: {}\r\n\r\n", "a".repeat(200_000));
    let _ = stream.write_all(long.as_bytes());
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains("431"), "{line}");
}
