//! Records and tables that differ are made to agree.

use super::{is_bind_port, is_bind_slot, last_operation, pair};
use crate::common::fake::{Fake, Script};
use crate::common::{Manager, eventually};
use proxy_core::control::{
    BindingFailure, ControlError, Event, LinkDownReason, PortState, Request, SlotState,
};
use tlp_codec::ids::{Epoch, PortId};

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
        (
            &at_host,
            Event::BindingFailed { peer: box_node, key: key(1), reason: BindingFailure::LinkDown },
        ),
        (
            &at_box,
            Event::BindingFailed { peer: host_node, key: key(2), reason: BindingFailure::LinkDown },
        ),
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

/// That a link went down may be told behind the answers to what was bound over the next one.
#[test]
fn a_link_that_was_down_before_takes_no_binding_of_the_next() {
    let manager = Manager::with_timing(&[("reconcile_ms", 3_600_000)]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (host_node, box_node) = (at_host.welcome.node, at_box.welcome.node);
    let reads = |fake: &Fake| {
        let is_table = |r: &&Request| matches!(r, Request::ReadTable { from: 0 });
        fake.with(|s| s.log.iter().filter(is_table).count())
    };
    let before = [&at_host, &at_box].map(reads);
    at_box.event(Event::LinkDown { peer: host_node, reason: LinkDownReason::PeerRestarted });
    manager.wait_event("link-down", "box1");
    eventually("both tables", || {
        let now = [&at_host, &at_box].map(reads);
        (now[0] > before[0] && now[1] > before[1]).then_some(())
    });
    assert_eq!(at_box.bound(1).unwrap().epoch, Epoch::new(0, 1).unwrap());
    manager.wait_phase("configured");
    // What did go with it is found there, if its report is lost.
    at_host.with(|s| s.ports.get_mut(&0).unwrap().1 = PortState::Failed);
    at_host.event(Event::LinkDown { peer: box_node, reason: LinkDownReason::GaveUp });
    manager.wait_event("rebinding", "epoch 0.2");
    manager.wait_phase("configured");
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

    // The box knows the epoch and has ended the binding: that one is over.
    at_box.with(|s| {
        s.slots[0].bound = None;
        s.slots[0].state = SlotState::Free;
    });
    eventually("the box's table", || at_box.bound(1));
    manager.wait_event("binding-failed", "box1/1");
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
    assert_eq!(told, 4, "each time, and not once more with the port");
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

#[test]
fn what_a_host_let_go_of_while_there_was_no_manager_is_taken_back() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let peer = at_box.welcome.node;
    let key = at_box.bound(1).unwrap();
    manager.kill();
    at_host.with(|s| {
        s.ports.get_mut(&0).unwrap().1 = PortState::Failed;
        s.first = vec![Event::BindingFailed { peer, key, reason: BindingFailure::HostLetGo }];
    });
    let (at_host, at_box) = (at_host.leave(), at_box.leave());
    manager.run();
    let at_box = Fake::insist(manager.control, at_box.0, at_box.1);
    let at_host = Fake::insist(manager.control, at_host.0, at_host.1);
    manager.wait_event("host-let-go", "box1/1");
    manager.wait_slot("box1/1", "free");
    assert!(at_host.with(|s| s.ports.is_empty()) && at_box.bound(1).is_none());
    assert!(!manager.has_event("rebinding", "box1/1"));
}
