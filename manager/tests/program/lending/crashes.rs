//! Who goes in the middle, and comes back.

use super::{
    Which, asked, is_bind_port, is_bind_slot, is_unbind_port, is_unbind_slot, last_operation, pair,
};
use crate::common::fake::{Fake, Script};
use crate::common::{Manager, eventually};
use proxy_core::control::SlotState;
use std::time::Duration;
use tlp_codec::ids::Epoch;

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

/// The manager is killed when the second end is asked for its part: that the first one has done its
/// own may not be on the disk then.
#[test]
fn a_manager_that_is_killed_while_it_writes_what_was_done_asks_again() {
    for (which, at_the_box, releasing) in [STEPS[1], STEPS[3]] {
        for obeyed in [false, true] {
            let mut manager = Manager::start();
            let (at_host, at_box) = pair(&manager);
            if releasing {
                manager.text(&["allocate", "--host", "host1"]);
            }
            let pid = rustix::process::Pid::from_raw(manager.pid() as i32).unwrap();
            let second = if at_the_box { &at_box } else { &at_host };
            second.rule(move |request| {
                let asked = which(request);
                if asked {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                asked.then_some(if obeyed { Script::ObeyAndVanish } else { Script::Vanish })
            });
            let change = if releasing { "release alloc-1" } else { "allocate --host host1" };
            let mut command = manager.begin(&change.split(' ').collect::<Vec<_>>());
            eventually("the step", || second.with(|s| s.log.iter().any(which).then_some(())));
            manager.kill();
            let (host_again, box_again) = (at_host.leave(), at_box.leave());
            manager.run();
            for (_, state) in [&host_again, &box_again] {
                state.lock().unwrap().rules.clear();
            }
            let at_host = Fake::insist(manager.control, host_again.0, host_again.1);
            let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
            // Who asked for it asks the next one, by the same key.
            assert!(command.wait().unwrap().success(), "{}", manager.log());
            let bindings = manager.get("/v1/bindings")["items"].as_array().unwrap().len();
            let lent = usize::from(!releasing);
            let ports = at_host.with(|s| s.ports.len());
            assert_eq!(
                (bindings, ports, usize::from(at_box.bound(1).is_some())),
                (lent, lent, lent)
            );
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

/// Its devices are ready a moment after it is connected again.
#[test]
fn a_box_that_restarts_while_something_is_lent_of_it_undoes_no_allocation() {
    let manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    // It stands still and is started again.
    at_box.script(is_bind_slot, [Script::Ignore]);
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    eventually("the slot is asked for", || asked(&at_box).contains(&"BindSlot").then_some(()));
    let at_box = at_box.restart_into(manager.control, SlotState::Probing);
    manager.wait_event("rebinding", "");
    // It is asked again while they are not ready: that is told before it is.
    eventually("the slot is asked for again", || {
        (asked(&at_box).iter().filter(|what| **what == "BindSlot").count() >= 2).then_some(())
    });
    for slot in 1..=2 {
        at_box.set_state(slot, SlotState::Free);
    }
    manager.wait_phase("configured");
    assert_eq!(last_operation(&manager)["state"], "succeeded");
    assert_eq!(at_host.with(|s| s.ports.len()), 1);
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
fn a_drain_that_replaces_waits_for_boxes_that_come_back_to_a_new_manager() {
    let mut manager = Manager::start();
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let (host, boxed) = (at_host.leave(), at_box.leave());
    assert!(manager.terminate().success());
    manager.run();
    let _host = Fake::insist(manager.control, host.0, host.1);
    manager.wait_ready(&["host1"]);
    manager.text(&["drain", "box1/1", "--replace", "--reason", "x", "--no-wait"]);
    // Long enough for who does not wait.
    std::thread::sleep(Duration::from_millis(300));
    let _box = Fake::insist(manager.control, boxed.0, boxed.1);
    eventually("the drain", || {
        let drain = manager.get("/v1/operations/op-2");
        assert_ne!(drain["state"], "failed", "{drain}");
        (drain["state"] == "succeeded").then_some(())
    });
}

#[test]
fn a_term_that_no_manager_begins_is_no_reason_to_restart_this_one() {
    let manager = Manager::start();
    let (_host, at_box) = pair(&manager);
    at_box.with(|s| s.term = u64::MAX);
    manager.text(&["allocate", "--host", "host1", "--no-wait"]);
    manager.wait_event("node-disconnected", &format!("later term {}", u64::MAX));
    let again = at_box.leave();
    let reason = Fake::connect(manager.control, again.0, again.1).err().expect("refused");
    assert!(reason.contains("restart the proxy"), "{reason}");
}
