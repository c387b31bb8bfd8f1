//! Who is let in, and what becomes of connections that are no proxies'.

use crate::common::fake::{Fake, boxed, fresh, host, receive, send};
use crate::common::{LONG, Manager, eventually};
use proxy_core::control::{FromProxy, MAX_MESSAGE, Name, Request, RoleKind, ToProxy};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tlp_codec::ids::NodeId;

fn refusal(result: Result<Fake, String>) -> String {
    result.err().expect("refused")
}

#[test]
fn node_numbers_stay_with_names() {
    let mut manager = Manager::start();
    let box1 = Fake::join(manager.control, boxed("box1", 1), "nvme");
    let host1 = Fake::join(manager.control, host("host1", 1), "");
    let (first, second) = (box1.welcome.node, host1.welcome.node);
    assert_ne!(first, second);
    assert_eq!(box1.welcome.term.0, manager.term);
    let (again, _) = (box1.leave(), host1.leave());
    manager.kill();
    manager.run();
    let third = Fake::join(manager.control, host("host2", 1), "").welcome.node;
    assert!(third > first && third > second, "none is used twice");
    let box1 = Fake::insist(manager.control, again.0, again.1);
    assert_eq!(box1.welcome.node, first);
}

#[test]
fn a_proxy_that_an_earlier_store_numbered_keeps_its_number() {
    let manager = Manager::start();
    let spec = boxed("box1", 1);
    let state = fresh(&spec, "nvme");
    state.lock().unwrap().node = Some(NodeId::new(7).unwrap());
    let box1 = Fake::insist(manager.control, spec, state);
    assert_eq!(box1.welcome.node, NodeId::new(7).unwrap());
    let next = Fake::join(manager.control, host("host1", 1), "").welcome.node;
    assert!(next > box1.welcome.node, "7 is given to nobody else");
}

#[test]
fn a_forgotten_number_is_given_and_believed_to_be_no_others() {
    let mut manager = Manager::start();
    let far = NodeId::new(3).unwrap();
    // Far above what was given out, so that the numbers below it are not left out.
    let high = NodeId::new(5000).unwrap();
    let claim = |control, name: &str, node| {
        let spec = boxed(name, 1);
        let state = fresh(&spec, "nvme");
        state.lock().unwrap().node = Some(node);
        Fake::connect(control, spec, state)
    };
    for (name, node) in [("box1", far), ("box2", high)] {
        assert_eq!(claim(manager.control, name, node).unwrap().leave().0.name, name);
        manager.wait_event("node-disconnected", name);
        manager.json(&["forget", name]);
    }
    for restarted in [false, true] {
        if restarted {
            manager.kill();
            manager.run();
        }
        let reason = refusal(claim(manager.control, "box3", high));
        assert!(reason.contains("box2's, which was forgotten"), "{reason}");
    }
    let back = claim(manager.control, "box2", high).unwrap();
    assert_eq!(back.welcome.node, high);
}

#[test]
fn a_number_that_is_anothers_by_now_is_refused_with_what_to_do() {
    let manager = Manager::start();
    let first = Fake::join(manager.control, boxed("box1", 1), "nvme").welcome.node;
    for (name, claimed) in [("box2", first), ("box1", NodeId::new(9).unwrap())] {
        let mut spec = boxed(name, 1);
        spec.incarnation = 78;
        let state = fresh(&spec, "nvme");
        state.lock().unwrap().node = Some(claimed);
        let reason = refusal(Fake::connect(manager.control, spec, state));
        assert!(reason.contains(name) && reason.contains("Restart"), "{reason}");
        manager.wait_event("node-refused", name);
    }
}

#[test]
fn another_proxy_of_the_same_name_waits_until_the_first_is_gone() {
    const DOUBT: Duration = Duration::from_secs(1);
    let manager = Manager::with_timing(&[("doubt_ms", DOUBT.as_millis() as u32)]);
    let first = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["box1"]);
    let mut spec = boxed("box1", 1);
    spec.incarnation = 77;
    let state = fresh(&spec, "nvme");
    let reason = refusal(Fake::connect(manager.control, spec.clone(), state.clone()));
    assert!(reason.contains("box1") && reason.contains("--name"), "{reason}");
    manager.wait_event("node-refused", "box1");
    // The first one is asked and answers, so it stays.
    let asked = Request::ReadTable { from: u16::MAX };
    eventually("the doubt", || first.with(|s| s.log.contains(&asked)).then_some(()));
    std::thread::sleep(DOUBT + DOUBT / 2);
    assert_eq!(manager.get("/v1/nodes/box1")["connection"]["incarnation"], 1);
    first.leave();
    let second = Fake::insist(manager.control, spec, state);
    manager.wait_ready(&["box1"]);
    assert_eq!(second.welcome.node, NodeId::new(1).unwrap());
}

#[test]
fn a_silent_connection_gives_way_to_a_new_life_of_its_proxy() {
    let manager = Manager::start();
    let spec = boxed("box1", 1);
    let state = fresh(&spec, "nvme");
    let hello = spec.hello(&state.lock().unwrap());
    // As when the machine lost its power: the connection stays, and nobody answers.
    let silent = TcpStream::connect(manager.control).unwrap();
    send(&silent, &FromProxy::Hello(hello)).unwrap();
    assert!(matches!(receive(&silent, &mut Vec::new()), Some(ToProxy::Welcome(_))));
    let mut spec = spec;
    spec.incarnation = 2;
    let _alive = Fake::insist(manager.control, spec, state);
    manager.wait_ready(&["box1"]);
}

#[test]
fn the_same_life_that_connects_again_takes_over() {
    let manager = Manager::start();
    let spec = boxed("box1", 1);
    let state = fresh(&spec, "nvme");
    let _first = Fake::connect(manager.control, spec.clone(), state.clone()).unwrap();
    let _second = Fake::connect(manager.control, spec, state).unwrap();
    manager.wait_event("node-disconnected", "the same proxy connected again");
    manager.wait_ready(&["box1"]);
}

#[test]
fn hellos_that_cannot_be_are_refused_with_a_reason() {
    let manager = Manager::start();
    let _box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    let try_with = |change: &dyn Fn(&mut crate::common::fake::Spec), expected: &str| {
        let mut spec = host("host1", 1);
        change(&mut spec);
        let state = fresh(&spec, "");
        let reason = refusal(Fake::connect(manager.control, spec, state));
        assert!(reason.contains(expected), "{reason}");
    };
    try_with(&|spec| spec.version = 99, "version 99");
    try_with(&|spec| spec.name = "no name".into(), "no name");
    try_with(&|spec| spec.name = String::new(), "1 to 64");
    try_with(&|spec| spec.role = RoleKind::Host { ports: 0 }, "ports");
    try_with(&|spec| spec.role = RoleKind::Host { ports: 33 }, "33");
    try_with(&|spec| spec.role = RoleKind::Box { slots: 0 }, "no slots");
    try_with(&|spec| spec.mtu = 100, "512");
    // A name that was a box's is no host's later.
    let first = manager.get("/v1/nodes")["items"].as_array().unwrap().len();
    assert_eq!(first, 1, "none of those is a node now");
    let spec = host("box1", 1);
    drop(_box);
    manager.wait_event("node-disconnected", "box1");
    let state = fresh(&spec, "");
    assert!(refusal(Fake::connect(manager.control, spec, state)).contains("known as a box"));
}

/// Whatever was sent, the manager ends that connection and serves the others.
fn ends(manager: &Manager, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(manager.control).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // The manager may be done with it before all is written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn garbage_ends_only_its_own_connection() {
    let manager = Manager::with_timing(&[("hello_ms", 300)]);
    let _box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["box1"]);
    let reason = |answer: Vec<u8>| match receive_from(&answer) {
        Some(ToProxy::Refused(refused)) => refused.reason.as_str().to_owned(),
        other => panic!("{other:?}"),
    };
    assert!(reason(ends(&manager, b"GET / HTTP/1.1\r\n\r\n")).contains("are allowed"));
    assert!(reason(ends(&manager, &[4, 0, 0, 0, 255, 255, 255, 255])).contains("does not decode"));
    let long = (MAX_MESSAGE as u32 + 1).to_le_bytes();
    assert!(reason(ends(&manager, &long)).contains("are allowed"));
    let mut pong = vec![0; 64];
    let pong = proxy_core::control::encode(&FromProxy::Pong, &mut pong).unwrap().to_vec();
    assert!(reason(ends(&manager, &pong)).contains("Hello"));
    // Nothing at all, and a message that never ends: after a while they are gone.
    assert!(ends(&manager, &[]).is_empty());
    assert!(ends(&manager, &[100, 0, 0, 0, 1, 2, 3]).is_empty());
    assert_eq!(manager.get("/v1/nodes")["items"].as_array().unwrap().len(), 1);
    assert_eq!(manager.get("/v1/nodes/box1")["connection"]["ready"], true);
}

fn receive_from(mut bytes: &[u8]) -> Option<ToProxy> {
    let mut all = Vec::new();
    bytes.read_to_end(&mut all).unwrap();
    match proxy_core::control::decode(&all).unwrap() {
        proxy_core::control::Decoded::Message(message, _) => Some(message),
        proxy_core::control::Decoded::Incomplete => None,
    }
}

/// A proxy that was let in and then breaks the protocol is as gone as one that closed.
#[test]
fn garbage_after_the_hello_ends_the_connection() {
    let manager = Manager::with_timing(&[("silence_ms", 1000)]);
    for (bytes, reason) in [
        (&[4, 0, 0, 0, 255, 255, 255, 255][..], "does not decode"),
        (&[255; 16][..], "are allowed"),
        (&[40, 0, 0, 0, 1, 1][..], "nothing whole came"),
    ] {
        let spec = boxed("box1", 1);
        let state = fresh(&spec, "nvme");
        let hello = spec.hello(&state.lock().unwrap());
        let stream = eventually("to be let in", || {
            let stream = TcpStream::connect(manager.control).unwrap();
            send(&stream, &FromProxy::Hello(hello.clone())).unwrap();
            let welcome = receive(&stream, &mut Vec::new());
            matches!(welcome, Some(ToProxy::Welcome(_))).then_some(stream)
        });
        (&stream).write_all(bytes).unwrap();
        manager.wait_event("node-disconnected", reason);
    }
}

/// Slow connections use up the room for strangers, and then make room again.
#[test]
fn many_strangers_do_not_keep_a_proxy_out() {
    let manager = Manager::with_timing(&[("hello_ms", 500)]);
    let strangers: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(manager.control).unwrap()).collect();
    for (index, mut stranger) in strangers.iter().enumerate() {
        let _ = stranger.write_all(&[100, 0, index as u8][..index % 4 % 3]);
    }
    let _box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["box1"]);
    drop(strangers);
}

#[test]
fn names_are_as_long_as_the_protocol_has_them() {
    let manager = Manager::start();
    let longest = "x".repeat(64);
    assert!(Name::try_from(longest.as_str()).is_ok());
    let _host = Fake::join(manager.control, host(&longest, 1), "");
    manager.wait_ready(&[&longest]);
}
