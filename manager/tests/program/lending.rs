//! Lending and taking back, against proxies that pretend.

use crate::common::fake::{Fake, Script, Spec, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{
    BindingFailure, ControlError, Event, LinkDownReason, PortState, Removal, Reply, Request,
    SlotState,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use tlp_codec::ids::{Epoch, NodeId, PortId, SlotFunction, SlotId};

/// host1 with four ports, box1 with two drives.
fn pair(manager: &Manager) -> (Fake, Fake) {
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    (at_host, at_box)
}

/// What was asked of a proxy, besides reading.
fn asked(fake: &Fake) -> Vec<&'static str> {
    let name = |request: &Request| match request {
        Request::SetPeer(_) => Some("SetPeer"),
        Request::RemovePeer(_) => Some("RemovePeer"),
        Request::BindSlot(_) => Some("BindSlot"),
        Request::UnbindSlot(_) => Some("UnbindSlot"),
        Request::BindPort(_) => Some("BindPort"),
        Request::UnbindPort { mode: Removal::Force, .. } => Some("UnbindPort by force"),
        Request::UnbindPort { .. } => Some("UnbindPort"),
        _ => None,
    };
    fake.with(|state| state.log.iter().filter_map(name).collect())
}

type Which = fn(&Request) -> bool;

fn is_bind_slot(request: &Request) -> bool {
    matches!(request, Request::BindSlot(_))
}

fn is_bind_port(request: &Request) -> bool {
    matches!(request, Request::BindPort(_))
}

fn is_unbind_port(request: &Request) -> bool {
    matches!(request, Request::UnbindPort { .. })
}

fn is_unbind_slot(request: &Request) -> bool {
    matches!(request, Request::UnbindSlot(_))
}

/// Steps of an operation as `name state`.
fn steps(operation: &Value) -> Vec<String> {
    let steps = operation["steps"].as_array().unwrap().iter();
    steps
        .map(|s| format!("{} {}", s["name"].as_str().unwrap(), s["state"].as_str().unwrap()))
        .collect()
}

fn last_operation(manager: &Manager) -> Value {
    manager.get("/v1/operations")["items"][0].clone()
}

#[test]
fn a_device_is_lent_and_taken_back() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let lent = manager.json(&["allocate", "--host", "host1", "--model", "NVMe"]);
    assert_eq!(lent["id"], "alloc-1");
    assert_eq!(lent["bindings"][0]["phase"], "configured");
    assert_eq!(lent["bindings"][0]["slot"], "box1/1");

    // Both ends have the same, and know each other as they said.
    let key = at_box.bound(1).unwrap();
    assert_eq!(key.epoch, Epoch::new(0, 1).unwrap());
    let (port, state) = at_host.with(|s| s.ports[&0].clone());
    assert_eq!(port.functions[0], (SlotFunction::ZERO, key.epoch));
    assert_eq!((port.box_node, state), (at_box.welcome.node, PortState::Present));
    let window = at_box.with(|s| s.slots[0].bound.clone().unwrap().windows[0]);
    assert_eq!((window.base, window.limit, window.node), (0, u64::MAX, at_host.welcome.node));
    let peer = at_host.with(|s| s.peers[&at_box.welcome.node.get()].clone());
    assert_eq!((peer.incarnation, peer.mtu), (1, 1500), "the smaller MTU of both");

    // In order: the box first on the way in, the host first on the way out.
    assert_eq!(
        steps(&last_operation(&manager)),
        ["bind-slot done", "bind-port done", "enumerate done"]
    );
    manager.text(&["release", "alloc-1"]);
    assert_eq!(steps(&last_operation(&manager)), ["unbind-port done", "unbind-slot done"]);
    assert!(at_host.with(|s| s.ports.is_empty()) && at_box.bound(1).is_none());
    manager.wait_slot("box1/1", "free");
    eventually("the proxies to forget each other", || {
        let host = ["SetPeer", "SetPeer", "BindPort", "UnbindPort", "RemovePeer"];
        let boxed = ["SetPeer", "BindSlot", "SetPeer", "UnbindSlot", "RemovePeer"];
        (asked(&at_host) == host && asked(&at_box) == boxed).then_some(())
    });
    assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());

    // The next time the epoch is higher.
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    assert_eq!(at_box.bound(1).unwrap().epoch, Epoch::new(0, 2).unwrap());
}

#[test]
fn several_are_lent_together_or_not_at_all() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let (code, problem) = manager.failure(&["allocate", "--host", "host1", "--count", "3"]);
    assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")));
    assert_eq!(problem["reasons"], json!(["2 free of 2, 3 needed"]));
    assert!(asked(&at_box).is_empty() && asked(&at_host).is_empty());
    let lent = manager.json(&["allocate", "--host", "host1", "--count", "2"]);
    assert_eq!(lent["bindings"].as_array().unwrap().len(), 2);
    assert!(at_box.bound(1).is_some() && at_box.bound(2).is_some());
    assert_eq!(at_host.with(|s| s.ports.keys().copied().collect::<Vec<_>>()), [0, 1]);

    // One of them goes by its slot, the other by its number; then nothing is left.
    manager.text(&["release", "box1/1"]);
    assert!(at_box.bound(1).is_none() && at_box.bound(2).is_some());
    manager.text(&["release", "bind-2"]);
    assert_eq!(manager.failure(&["show", "alloc-1"]).0, 3);
}

#[test]
fn what_cannot_be_lent_says_why() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    let _other = Fake::join(manager.control, host("host2", 1), "");
    manager.wait_ready(&["host2"]);
    manager.text(&["allocate", "--host", "host2", "--box", "box1", "--slot", "1"]);
    let at = |host: &str, name: &str, slot: &str| {
        manager.failure(&["allocate", "--host", host, "--box", name, "--slot", slot])
    };
    let (code, problem) = at("host1", "box1", "1");
    assert_eq!((code, &problem["code"]), (4, &json!("slot-in-use")));
    assert_eq!(problem["owner"]["host"], "host2");
    assert!(problem["owner"]["since"].as_str().unwrap().starts_with("20"));
    let (code, problem) = at("host1", "box1", "3");
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-slot")));
    let (code, problem) = at("host1", "box9", "1");
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-box")));
    let (code, problem) = at("host9", "box1", "2");
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-host")));
    let (code, problem) = at("host2", "box1", "2");
    assert_eq!(
        (code, &problem["reasons"][0]),
        (5, &json!("host host2 has 0 of 1 ports free, 1 needed"))
    );

    at_box.with(|s| s.slots[1].state = SlotState::Empty);
    let function = SlotFunction::ZERO;
    let slot = SlotId::new(2).unwrap();
    at_box.event(Event::Slot { slot, function, state: SlotState::Empty });
    manager.wait_slot("box1/2", "empty");
    let (code, problem) = at("host1", "box1", "2");
    assert_eq!((code, &problem["code"]), (4, &json!("slot-empty")));
    assert_eq!(manager.failure(&["release", "box1/2"]).0, 4);
    assert_eq!(manager.failure(&["release", "alloc-99"]).0, 3);
}

#[test]
fn an_allocation_waits_for_what_passes_by_itself() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    let refused = ["allocate", "--host", "host1", "--wait-ms", "0"];
    let (code, problem) = manager.failure(&refused);
    assert_eq!(
        (code, &problem["code"], &problem["transient"]),
        (6, &json!("not-connected"), &json!(true))
    );

    let begin = || {
        let mut command = manager.begin(&["allocate", "--host", "host1", "--wait-ms", "60000"]);
        let mut said = BufReader::new(command.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        (command, said, line)
    };
    let (mut command, _said, line) = begin();
    assert!(
        line.contains("waiting up to 60s") && line.contains("host1 is not connected"),
        "{line}"
    );
    let _at_host = Fake::insist(manager.control, again.0, again.1);
    assert!(command.wait().unwrap().success());
    manager.text(&["release", "alloc-1"]);

    // The same with a device that is not ready yet.
    let event =
        |state| Event::Slot { slot: SlotId::new(1).unwrap(), function: SlotFunction::ZERO, state };
    at_box.with(|s| s.slots.truncate(1));
    at_box.with(|s| s.slots[0].state = SlotState::Probing);
    at_box.event(event(SlotState::Probing));
    manager.wait_slot("box1/1", "probing");
    let second = SlotId::new(2).unwrap();
    at_box.event(Event::Slot {
        slot: second,
        function: SlotFunction::ZERO,
        state: SlotState::Empty,
    });
    manager.wait_slot("box1/2", "empty");
    let (mut command, _said, line) = begin();
    assert!(line.contains("box1/1 has a device that is not ready yet"), "{line}");
    at_box.with(|s| s.slots[0].state = SlotState::Free);
    at_box.event(event(SlotState::Free));
    assert!(command.wait().unwrap().success());
}

#[test]
fn a_refusal_undoes_everything() {
    for (which, at_the_box) in [(is_bind_slot as Which, true), (is_bind_port as Which, false)] {
        let manager = Manager::start();
        let (at_host, at_box) = pair(&manager);
        // The first of the two goes well, so that there is something to undo.
        let refused = if at_the_box { &at_box } else { &at_host };
        let mut seen = 0;
        refused.rule(move |request| {
            seen += u32::from(which(request));
            let slot = SlotId::new(1).unwrap();
            (which(request) && seen == 2).then_some(Script::Refuse(ControlError::NotReady(slot)))
        });
        let (code, problem) = manager.failure(&["allocate", "--host", "host1", "--count", "2"]);
        assert_eq!((code, &problem["code"]), (7, &json!("proxy-refused")));
        assert!(problem["detail"].as_str().unwrap().contains("did not become ready"), "{problem}");
        assert!(at_host.with(|s| s.ports.is_empty()));
        assert!(at_box.bound(1).is_none() && at_box.bound(2).is_none());
        assert!(manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty());
        let operation = last_operation(&manager);
        assert_eq!(operation["state"], "failed");
        let failed = steps(&operation).into_iter().filter(|step| step.ends_with("failed"));
        let expected = if at_the_box { "bind-slot failed" } else { "bind-port failed" };
        assert_eq!(failed.collect::<Vec<_>>(), [expected]);
        manager.wait_slot("box1/1", "free");
        manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    }
}

/// The steps of an operation: the request, whether it is the box's, and whether it is a release's.
const STEPS: [(Which, bool, bool); 4] = [
    (is_bind_slot, true, false),
    (is_bind_port, false, false),
    (is_unbind_port, false, true),
    (is_unbind_slot, true, true),
];

/// At every step, before and after it is done, a proxy goes and comes back with its tables.
#[test]
fn a_proxy_that_vanishes_in_the_middle_is_waited_for() {
    for (which, at_the_box, releasing) in STEPS {
        for script in [Script::Vanish, Script::ObeyAndVanish] {
            let manager = Manager::start();
            let (at_host, at_box) = pair(&manager);
            let vanishing = if at_the_box { &at_box } else { &at_host };
            vanishing.script(which, [script]);
            let begin = |args: &[&str]| manager.begin(args);
            let mut command = begin(&["allocate", "--host", "host1"]);
            if releasing {
                assert!(command.wait().unwrap().success());
                command = begin(&["release", "alloc-1"]);
            }
            let name = vanishing.spec.name.clone();
            manager.wait_event("node-disconnected", &name);
            let again = if at_the_box { at_box.leave() } else { at_host.leave() };
            let _again = Fake::insist(manager.control, again.0, again.1);
            assert!(command.wait().unwrap().success(), "{}", manager.log());
            let free = manager.get("/v1/bindings")["items"].as_array().unwrap().is_empty();
            assert_eq!(free, last_operation(&manager)["what"]["kind"] == "release");
        }
    }
}

/// The manager is killed at every step, before and after the proxy did it, and started again.
#[test]
fn a_manager_that_is_killed_goes_on_where_it_was() {
    for (which, at_the_box, releasing) in STEPS {
        for script in [Script::Ignore, Script::ObeyAndVanish] {
            let mut manager = Manager::start();
            let (at_host, at_box) = pair(&manager);
            let stuck = if at_the_box { &at_box } else { &at_host };
            if releasing {
                manager.text(&["allocate", "--host", "host1"]);
                stuck.script(which, [script]);
                manager.text(&["release", "alloc-1", "--no-wait"]);
            } else {
                stuck.script(which, [script]);
                manager.text(&["allocate", "--host", "host1", "--no-wait"]);
            }
            eventually("the step", || stuck.with(|s| s.log.iter().any(which).then_some(())));
            manager.kill();
            let (host_again, box_again) = (at_host.leave(), at_box.leave());
            let term = manager.term;
            manager.run();
            assert!(manager.term > term);
            let at_host = Fake::insist(manager.control, host_again.0, host_again.1);
            let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
            let operation = eventually("the operation's end", || {
                let operation = last_operation(&manager);
                (operation["state"] == "succeeded").then_some(operation)
            });
            let lent = operation["what"]["kind"] == "allocate";
            assert_eq!(at_box.bound(1).is_some(), lent);
            assert_eq!(at_host.with(|s| s.ports.len()), usize::from(lent));
            assert_eq!(
                manager.get("/v1/bindings")["items"].as_array().unwrap().len(),
                usize::from(lent)
            );
        }
    }
}

#[test]
fn a_restarted_host_gets_its_device_again_under_a_new_epoch() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let old = at_box.bound(1).unwrap();
    let at_host = at_host.restart(manager.control);
    manager.wait_event("rebinding", "epoch 0.2");
    manager.wait_phase("configured");
    let new = at_box.bound(1).unwrap();
    assert!(new.epoch > old.epoch);
    assert_eq!(at_host.with(|s| s.ports[&0].0.functions[0].1), new.epoch);
    assert_eq!(at_box.with(|s| s.peers[&at_host.welcome.node.get()].incarnation), 2);
}

/// Found by the simulator: the box went on waiting for the host's earlier life.
#[test]
fn a_box_is_told_of_a_host_that_restarted_between_the_two_halves() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    at_host.script(is_bind_port, [Script::Vanish]);
    let mut command = manager.begin(&["allocate", "--host", "host1"]);
    manager.wait_event("node-disconnected", "host1");
    let at_host = at_host.restart(manager.control);
    assert!(command.wait().unwrap().success(), "{}", manager.log());
    assert_eq!(at_box.with(|s| s.peers[&at_host.welcome.node.get()].incarnation), 2);
}

#[test]
fn a_restarted_box_lends_again_under_a_new_epoch() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let at_box = at_box.restart(manager.control);
    manager.wait_event("rebinding", "epoch 0.2");
    manager.wait_phase("configured");
    assert_eq!(at_box.bound(1).unwrap().epoch, Epoch::new(0, 2).unwrap());
    let (port, _) = at_host.with(|s| s.ports[&0].clone());
    assert_eq!(port.functions[0].1, Epoch::new(0, 2).unwrap());
    // The port was cleared of the dead binding before the new one came.
    let tail: Vec<_> = asked(&at_host).into_iter().filter(|what| !what.contains("Peer")).collect();
    assert_eq!(tail, ["BindPort", "UnbindPort by force", "BindPort"]);
}

#[test]
fn what_proxies_report_makes_a_binding_again() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (host_node, box_node) = (at_host.welcome.node, at_box.welcome.node);
    let key = |epoch| {
        let mut key = at_box.bound(1).unwrap();
        key.epoch = Epoch::new(0, epoch).unwrap();
        key
    };
    let port = PortId::new(0).unwrap();
    let reports: [(&Fake, Event); 5] = [
        (&at_host, Event::LinkDown { peer: box_node, reason: LinkDownReason::GaveUp }),
        (&at_box, Event::LinkDown { peer: host_node, reason: LinkDownReason::PeerClosed }),
        (
            &at_host,
            Event::BindingFailed { peer: box_node, key: key(3), reason: BindingFailure::TlpCrc },
        ),
        (
            &at_box,
            Event::BindingFailed {
                peer: host_node,
                key: key(4),
                reason: BindingFailure::DeviceGone,
            },
        ),
        (&at_host, Event::Port { port, state: PortState::Failed }),
    ];
    for (round, (from, event)) in reports.into_iter().enumerate() {
        from.event(event);
        manager.wait_event("rebinding", &format!("epoch 0.{}", round + 2));
        manager.wait_phase("configured");
    }
    // A report about a binding that is no more changes nothing.
    at_box.event(Event::BindingFailed {
        peer: host_node,
        key: key(1),
        reason: BindingFailure::TlpCrc,
    });
    at_host.event(Event::LinkUp { peer: box_node });
    manager.wait_event("link-up", "host1");
    assert_eq!(at_box.bound(1).unwrap().epoch, Epoch::new(0, 6).unwrap());
}

#[test]
fn tables_that_lack_a_binding_are_written_again() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let epoch = at_box.bound(1).unwrap().epoch;
    at_host.with(|s| s.ports.clear());
    eventually("the host's table", || (!at_host.with(|s| s.ports.is_empty())).then_some(()));
    manager.wait_event("binding-missing", "host1");
    manager.wait_phase("configured");
    assert_eq!(at_box.bound(1).unwrap().epoch, epoch, "nothing failed, so the epoch stays");

    // The box knows the epoch and has lost the binding: it takes only a higher one.
    at_box.with(|s| {
        s.slots[0].bound = None;
        s.slots[0].state = SlotState::Free;
    });
    eventually("the box's table", || at_box.bound(1));
    manager.wait_event("binding-missing", "box1");
    assert!(at_box.bound(1).unwrap().epoch > epoch);
    manager.wait_phase("configured");
}

#[test]
fn bindings_that_no_record_has_are_taken_out() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    let other = Manager::start();
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    // To a manager that knows of nothing, both ends' bindings are strays.
    let at_host = Fake::insist(other.control, host_again.0, host_again.1);
    let at_box = Fake::insist(other.control, box_again.0, box_again.1);
    other.wait_ready(&["host1", "box1"]);
    eventually("empty tables", || {
        let clean = at_host.with(|s| s.ports.is_empty())
            && at_box.bound(1).is_none()
            && at_box.bound(2).is_none();
        clean.then_some(())
    });
    other.wait_event("orphan-removed", "box1");
    other.wait_slot("box1/1", "free");
    // And its epochs begin above what the box has had.
    other.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    assert_eq!(at_box.bound(1).unwrap().epoch, Epoch::new(0, 2).unwrap());
}

#[test]
fn a_host_that_is_away_is_waited_for_or_forced() {
    let manager = Manager::with_timing(&[("operation_ms", 500)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    let output = manager.cli(&["--json", "release", "alloc-1", "--within-ms", "1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let away = "unbind-port host1 port 0 (host1 has not been connected since 20";
    assert!(said.contains(&format!("waiting for {away}")), "{said}");
    let problem: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((output.status.code(), &problem["code"]), (Some(7), &json!("operation-timeout")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(away), "{detail}");
    assert!(detail.contains("when host1 is back; --force does not wait"), "{detail}");
    assert!(at_box.bound(1).is_some(), "not before the host let go");
    manager.text(&["release", "alloc-1", "--force"]);
    assert!(at_box.bound(1).is_none());
    manager.wait_slot("box1/1", "free");
    // What the host still has is taken out when it is back.
    let at_host = Fake::insist(manager.control, again.0, again.1);
    eventually("a clean host", || at_host.with(|s| s.ports.is_empty()).then_some(()));
    manager.wait_event("orphan-removed", "host1");
}

#[test]
fn a_host_that_restarted_during_a_release_did_not_let_go() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (spec, state) = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    manager.text(&["release", "alloc-1", "--no-wait"]);
    state.lock().unwrap().ports.clear();
    let later = Spec { incarnation: spec.incarnation + 1, ..spec };
    let _host = Fake::insist(manager.control, later, state);
    manager.wait_event("withdrawn", "it was not there any more, because the host proxy restarted");
    manager.wait_slot("box1/1", "free");
}

#[test]
fn a_release_that_ran_out_of_time_still_happens() {
    let manager = Manager::with_timing(&[("operation_ms", 500)]);
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let again = at_box.leave();
    manager.wait_event("node-disconnected", "box1");
    let output = manager.cli(&["release", "alloc-1", "--within-ms", "1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    let away = "unbind-slot box1/1 (box1 has not been connected since 20";
    let last = said.lines().last().unwrap();
    assert!(last.contains(away) && last.contains("when box1 is back; only a box"), "{last}");
    assert_eq!(manager.get("/v1/slots")["items"][0]["status"], "releasing");
    let at_box = Fake::insist(manager.control, again.0, again.1);
    manager.wait_slot("box1/1", "free");
    assert!(at_box.bound(1).is_none());
}

#[test]
fn an_allocation_that_gets_nowhere_is_undone() {
    let manager = Manager::with_timing(&[("operation_ms", 500)]);
    let (at_host, at_box) = pair(&manager);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    let (code, problem) = manager.failure(&["allocate", "--host", "host1"]);
    assert_eq!((code, &problem["code"]), (7, &json!("operation-timeout")));
    assert!(problem["detail"].as_str().unwrap().contains("another operation"), "{problem}");
    assert!(at_box.bound(1).is_none());
}

#[test]
fn a_proxy_that_does_not_answer_is_disconnected() {
    let manager = Manager::with_timing(&[("request_ms", 300)]);
    let (at_host, at_box) = pair(&manager);
    at_box.script(is_bind_slot, [Script::Ignore]);
    let mut command = manager.begin(&["allocate", "--host", "host1"]);
    manager.wait_event("node-disconnected", "no answer to BindSlot");
    let again = at_box.leave();
    let _at_box = Fake::insist(manager.control, again.0, again.1);
    assert!(command.wait().unwrap().success());
    assert_eq!(at_host.with(|s| s.ports.len()), 1);
}

#[test]
fn an_answer_that_makes_no_sense_ends_the_connection() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    at_box.script(is_bind_slot, [Script::Answer(Box::new(Reply::Removed { orderly: true }))]);
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    manager.wait_event("node-disconnected", "an answer that makes no sense");
}

#[test]
fn pages_without_an_end_end_the_connection() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    at_box.rule(|request| {
        let counters = matches!(request, Request::ReadCounters { .. });
        let entries = Default::default();
        counters.then(|| Script::Answer(Box::new(Reply::Counters { entries, next: Some(0) })))
    });
    assert_eq!(manager.failure(&["counters", "box1"]).0, 6);
}

#[test]
fn a_quarantined_slot_is_shown_and_recovered() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    at_box.with(|s| s.slots[0].fails_reset = true);
    let output = manager.cli(&["release", "alloc-1"]);
    assert!(output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("warning: box1/1 is quarantined"), "{error}");
    manager.wait_slot("box1/1", "quarantined");
    let (code, problem) =
        manager.failure(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    assert_eq!((code, &problem["code"]), (4, &json!("slot-quarantined")));
    manager.text(&["recover", "box1/1"]);
    manager.wait_slot("box1/1", "free");
}

#[test]
fn an_operating_system_that_does_not_look_is_a_warning() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    at_host.with(|s| s.enumerates = false);
    let output = manager.cli(&["allocate", "--host", "host1"]);
    assert!(output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("not enabled by the operating system"), "{error}");
    assert_eq!(manager.wait_phase("bound")["host"], "host1");
    at_host.event(Event::DeviceConfigured { port: PortId::new(0).unwrap() });
    manager.wait_phase("configured");
}

#[test]
fn proxies_that_forgot_or_know_more_are_told() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    let high = Epoch::new(0, 40).unwrap();
    let node = at_host.welcome.node;
    at_box.script(
        is_bind_slot,
        [
            Script::Refuse(ControlError::UnknownPeer(node)),
            Script::Refuse(ControlError::LinkDown(node)),
            Script::Refuse(ControlError::StaleEpoch(high)),
        ],
    );
    manager.text(&["allocate", "--host", "host1"]);
    assert_eq!(at_box.bound(1).unwrap().epoch, Epoch::new(0, 41).unwrap());
    let told = at_box.with(|s| s.log.iter().filter(|r| matches!(r, Request::SetPeer(_))).count());
    assert_eq!(told, 5, "each time, and once more with the port");
}

#[test]
fn lost_events_make_the_tables_be_read() {
    let manager = Manager::with_timing(&[("reconcile_ms", 3_600_000)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.with(|s| s.ports.get_mut(&0).unwrap().1 = PortState::Failed);
    at_host.event(Event::LinkUp { peer: at_box.welcome.node });
    manager.wait_event("link-up", "host1");
    at_host.lose_event();
    at_host.event(Event::LinkUp { peer: at_box.welcome.node });
    manager.wait_event("rebinding", "epoch 0.2");
    manager.wait_phase("configured");
    assert_eq!(at_host.with(|s| s.ports[&0].1), PortState::Present);
}

#[test]
fn a_later_manager_fences_this_one_until_it_is_restarted() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    // Another manager was here, with term 50.
    at_box.with(|s| s.term = 50);
    manager.wait_event("node-disconnected", "later term 50");
    let again = at_box.leave();
    let refusal = Fake::connect(manager.control, again.0.clone(), again.1.clone());
    let reason = refusal.err().expect("refused");
    assert!(reason.contains("later term 50") && reason.contains("restart"), "{reason}");
    assert!(manager.terminate().success());
    manager.run();
    assert_eq!(manager.term, 51);
    let at_box = Fake::insist(manager.control, again.0, again.1);
    let host_again = at_host.leave();
    let _host = Fake::insist(manager.control, host_again.0, host_again.1);
    manager.wait_ready(&["host1", "box1"]);
    // What that other manager gave out is not known: the next epoch is of a new generation.
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "2"]);
    assert_eq!(at_box.bound(2).unwrap().epoch, Epoch::new(1, 1).unwrap());
}

#[test]
fn the_same_key_gives_the_same_operation() {
    let manager = Manager::start();
    let (_host, _box) = pair(&manager);
    let allocate = |key: &str, host: &str| {
        let body = json!({ "host": host }).to_string();
        manager.raw("POST", "/v1/allocations", &[("idempotency-key", key)], Some(&body))
    };
    let (status, first) = allocate("k1", "host1");
    assert_eq!(status, 202);
    let (status, second) = allocate("k1", "host1");
    let id = |text: &str| serde_json::from_str::<Value>(text).unwrap()["id"].clone();
    assert_eq!((status, id(&second)), (202, id(&first)));
    let (status, other) = allocate("k1", "host2");
    assert_eq!(status, 422, "{other}");
    assert_eq!(allocate("", "host1").0, 400);
    assert_eq!(manager.get("/v1/allocations")["items"].as_array().unwrap().len(), 1);
    let delete =
        || manager.raw("DELETE", "/v1/allocations/alloc-1", &[("idempotency-key", "k2")], None);
    let (status, first) = delete();
    assert_eq!(status, 202);
    eventually("the release", || {
        manager.get("/v1/allocations")["items"].as_array().unwrap().is_empty().then_some(())
    });
    assert_eq!(id(&delete().1), id(&first), "also when it is long done");
}

#[test]
fn a_release_overtakes_an_allocation_that_is_not_done() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    at_host.rule(|request| is_bind_port(request).then_some(Script::Refuse(ControlError::Busy)));
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    eventually("the box", || at_box.bound(1));
    manager.text(&["release", "alloc-1"]);
    assert!(at_box.bound(1).is_none());
    let (code, problem) = manager.failure(&["show", "alloc-1"]);
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-allocation")));
    let first = manager.get("/v1/operations/op-1");
    assert_eq!(
        (&first["state"], &first["error"]["code"]),
        (&json!("failed"), &json!("superseded"))
    );
}

#[test]
fn a_second_release_joins_the_first_and_may_force_it() {
    let manager = Manager::start();
    let (at_host, _box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    // The operating system has its time, and does not let go.
    at_host.rule(|request| {
        let asked = matches!(request, Request::UnbindPort { mode: Removal::Orderly { .. }, .. });
        asked.then_some(Script::Ignore)
    });
    let first = manager.json(&["release", "alloc-1", "--no-wait", "--within-ms", "600000"]);
    eventually("the question", || at_host.with(|s| s.log.iter().any(is_unbind_port).then_some(())));
    let second = manager.json(&["release", "alloc-1", "--no-wait"]);
    assert_eq!(first["items"][0]["id"], second["items"][0]["id"]);
    let third = manager.json(&["release", "alloc-1", "--force"]);
    assert_eq!(first["items"][0]["id"], third["items"][0]["id"]);
    assert_eq!(third["items"][0]["state"], "succeeded");
}

#[test]
fn two_boxes_with_the_same_keys_are_told_apart() {
    let manager = Manager::start();
    let (at_host, _box1) = pair(&manager);
    let box2 = Fake::join(manager.control, boxed("box2", 1), "gpu");
    manager.wait_ready(&["box2"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    manager.text(&["allocate", "--host", "host1", "--model", "gpu"]);
    let key = box2.bound(1).unwrap();
    let peer: NodeId = box2.welcome.node;
    at_host.event(Event::BindingFailed { peer, key, reason: BindingFailure::TlpCrc });
    manager.wait_event("rebinding", "box2/1 gets epoch 0.2");
    assert!(!manager.has_event("binding-failed", "box1/1"));
}

#[test]
fn what_a_host_lets_go_by_itself_is_taken_back() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let peer = at_box.welcome.node;
    let key = at_box.bound(1).unwrap();
    at_host.with(|s| s.ports.get_mut(&0).unwrap().1 = PortState::Failed);
    at_host.event(Event::BindingFailed { peer, key, reason: BindingFailure::HostLetGo });
    at_host.event(Event::Port { port: PortId::new(0).unwrap(), state: PortState::Failed });
    manager.wait_event("host-let-go", "box1/1");
    manager.wait_slot("box1/1", "free");
    assert!(at_host.with(|s| s.ports.is_empty()) && at_box.bound(1).is_none());
    assert!(!manager.has_event("rebinding", "box1/1"));
}

/// A real host proxy keeps a dead binding at its port and says so when it is asked for it again.
#[test]
fn a_port_with_a_dead_binding_gets_a_new_one() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    at_host.script(is_bind_port, [Script::ObeyAndVanish]);
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    manager.wait_event("node-disconnected", "host1");
    let (spec, state) = at_host.leave();
    state.lock().unwrap().ports.get_mut(&0).unwrap().1 = PortState::Failed;
    let at_host = Fake::insist(manager.control, spec, state);
    let epoch = Epoch::new(0, 1).unwrap();
    at_host.script(is_bind_port, [Script::Refuse(ControlError::InUse(epoch))]);
    eventually("the operation's end", || {
        (last_operation(&manager)["state"] == "failed").then_some(())
    });
    assert!(at_host.with(|s| s.ports.is_empty()) && at_box.bound(1).is_none());
}

/// What is lent right after it was taken back is not cut off by the proxies' parting.
#[test]
fn lending_and_taking_back_in_a_row() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    for round in 1..=20 {
        let lent = manager.json(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
        let (host_node, box_node) = (at_host.welcome.node.get(), at_box.welcome.node.get());
        assert!(at_host.with(|s| s.peers.contains_key(&box_node)), "round {round}");
        assert!(at_box.with(|s| s.peers.contains_key(&host_node)), "round {round}");
        manager.text(&["release", lent["id"].as_str().unwrap(), "--force"]);
    }
    assert!(!manager.has_event("trouble", ""), "nothing went wrong on the way");
}
