//! What is not healthy, what follows, and spares.

use super::pair;
use crate::common::fake::{Fake, Script, boxed};
use crate::common::{Manager, eventually};
use proxy_core::control::{BindingFailure, ControlError, Event, PathAddress, Request};
use serde_json::{Value, json};
use tlp_codec::ids::{PathId, SlotId};

/// Looks every 50 ms, and a device is bad after two errors.
fn manager(policy: &str) -> Manager {
    let settings = format!(
        "[health]\ninterval_ms = 50\npolicy = \"{policy}\"\ndevice_errors = 2\ndevice_window_ms = 3000\n\
         counters_ms = 50\ndevice_correctable = 100\n\
         [spares]\nrun_out_ppm = 1000\nmodels.nvme = {{ keep = 1, repair_hours = 8766, annual_failure_permille = 500 }}\n"
    );
    Manager::with_settings(&settings, &[])
}

fn state(manager: &Manager, of: &Value) -> Option<String> {
    let list = manager.get("/v1/health");
    let found = list["items"].as_array().unwrap().iter().find(|r| r["subject"] == *of)?;
    Some(found["state"].as_str().unwrap().to_owned())
}

#[test]
fn a_proxy_that_is_away_fails_and_recovers() {
    let mut manager = manager("cordon");
    let (_host, at_box) = pair(&manager);
    assert!(manager.text(&["health"]).contains("everything is healthy"));
    let again = at_box.leave();
    let of = json!({"kind": "node", "node": "box1"});
    for expected in ["suspect", "failed"] {
        manager.wait_event("health-changed", &format!("box1 is {expected}: box1 has not been"));
    }
    assert_eq!(state(&manager, &of).as_deref(), Some("failed"));
    assert!(manager.text(&["health"]).contains("box1 has not been connected since"));
    assert_eq!(manager.get("/v1/holds")["items"][0]["kind"], "unhealthy");
    // A manager that starts again knows it.
    manager.kill();
    manager.run();
    assert_eq!(state(&manager, &of).as_deref(), Some("failed"));
    let _at_box = Fake::insist(manager.control, again.0, again.1);
    manager.wait_event("health-changed", "box1 is recovering");
    manager.wait_event("health-changed", "box1 is healthy");
    assert_eq!(state(&manager, &of), None);
    let free = || {
        manager.get("/v1/holds")["items"].as_array().unwrap().iter().all(|h| h["place"] != "box1")
    };
    assert!(free(), "it can be used again");
}

#[test]
fn a_path_that_loses_frames_is_known_and_holds_no_proxy_back() {
    let manager = manager("cordon");
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.event(Event::PathLost { peer: at_box.welcome.node, path: PathId::new(1).unwrap() });
    manager.wait_event("health-changed", "host1>box1 path 1 is failed");
    assert!(manager.get("/v1/holds")["items"].as_array().unwrap().is_empty());
    at_host.event(Event::PathFound { peer: at_box.welcome.node, path: PathId::new(1).unwrap() });
    manager.wait_event("health-changed", "host1>box1 path 1 is healthy");
}

/// Has the device of a slot fail its binding twice.
fn two_errors(manager: &Manager, at_host: &Fake, at_box: &Fake) {
    for round in 1..=2 {
        let key = eventually("the device", || {
            let bindings = manager.get("/v1/bindings");
            (bindings["items"][0]["phase"] == "configured").then(|| at_box.bound(1)).flatten()
        });
        let reason = BindingFailure::DeviceGone;
        at_host.event(Event::BindingFailed { peer: at_box.welcome.node, key, reason });
        manager.wait_event("rebinding", &format!("epoch 0.{}", round + 1));
    }
}

#[test]
fn a_device_with_errors_is_replaced_by_the_policy() {
    let manager = manager("replace");
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    two_errors(&manager, &at_host, &at_box);
    manager.wait_event("health-changed", "box1/1 is failed: bindings of it failed because of it");
    manager.wait_event("replaced", "host1 has box1/2 in the place of box1/1");
    eventually("the old one to go", || at_box.bound(1).is_none().then_some(()));
    assert!(at_box.bound(2).is_some());
    let held = manager.get("/v1/holds")["items"][0].clone();
    assert_eq!(held["place"], "box1/1");
    // The box is a moment ahead of the records.
    let spares = eventually("the end of the old binding", || {
        let spares = manager.get("/v1/spares")["items"][0].clone();
        (spares["lent"] == 1).then_some(spares)
    });
    assert_eq!(
        (&spares["failures"], &spares["total"], &spares["free"]),
        (&json!(1), &json!(2), &json!(0))
    );
}

#[test]
fn a_device_that_fails_again_while_it_recovers_has_failed_once() {
    let settings = "[health]\ninterval_ms = 50\ndevice_errors = 2\ndevice_window_ms = 1000\n\
                    counters_ms = 50\nthresholds.recover_after = 60\n";
    let manager = Manager::with_settings(settings, &[]);
    let (_host, at_box) = pair(&manager);
    read_again(&at_box);
    at_box.count("slot 1: fatal errors", 1);
    let of = json!({"kind": "slot", "slot": "box1/1"});
    let wait = |wanted: &str| {
        eventually(wanted, || (state(&manager, &of).as_deref() == Some(wanted)).then_some(()))
    };
    wait("failed");
    wait("recovering");
    at_box.count("slot 1: fatal errors", 1);
    wait("failed");
    assert_eq!(manager.get("/v1/spares")["items"][0]["failures"], 1);
}

#[test]
fn a_quarantined_device_is_unhealthy_until_it_is_recovered() {
    let manager = manager("cordon");
    let (_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_box.with(|s| s.slots[0].fails_reset = true);
    manager.text(&["release", "alloc-1"]);
    manager.wait_event("health-changed", "box1/1 is failed: it failed its reset");
    at_box.with(|s| s.slots[0].fails_reset = false);
    manager.text(&["recover", "box1/1"]);
    manager.wait_event("health-changed", "box1/1 is healthy");
    manager.wait_slot("box1/1", "free");
}

#[test]
fn kept_spares_are_left_for_replacements() {
    let manager = manager("none");
    let (_host, _box) = pair(&manager);
    // Two devices that fail every other year and take a year: one is being repaired on average.
    let spares = manager.get("/v1/spares")["items"][0].clone();
    assert_eq!((&spares["in_repair"], &spares["needed"]), (&json!(1.0), &json!(5)));
    let runs_out = spares["runs_out"].as_f64().unwrap();
    assert!((runs_out - 0.080_301_4).abs() < 1e-6, "{runs_out}");
    let text = manager.text(&["spares"]);
    assert!(text.contains("8.030 %") && text.contains("= 1.0000 being repaired"), "{text}");
    manager.text(&["allocate", "--host", "host1"]);
    let (code, problem) = manager.failure(&["allocate", "--host", "host1"]);
    assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")));
    assert!(problem["detail"].as_str().unwrap().contains("are kept as spares"), "{problem}");
    // A dry run says the same.
    let tried = manager.cli(&["allocate", "--host", "host1", "--dry-run", "--output", "json"]);
    let why: Value = serde_json::from_slice(&tried.stdout).unwrap();
    assert_eq!((tried.status.code(), &why["slots"]), (Some(5), &json!([])));
    assert!(why["reasons"][0].as_str().unwrap().contains("are kept as spares"), "{why}");
    manager.text(&["replace", "bind-1", "--reason", "x"]);
}

#[test]
fn one_failure_of_a_policy_s_replacement_is_said() {
    let manager = manager("replace");
    let (at_host, at_box) = pair(&manager);
    let second = SlotId::new(2).unwrap();
    at_box.rule(move |request| {
        let second = matches!(request, Request::BindSlot(b) if b.key.slot == second);
        second.then_some(Script::Refuse(ControlError::BadWindows))
    });
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    two_errors(&manager, &at_host, &at_box);
    manager.wait_event("operation-failed", "failed");
    assert!(at_box.bound(1).is_some(), "the old one stays");
    drop(Fake::join(manager.control, boxed("box9", 1), ""));
}

/// Waits until the manager has read the counters of a proxy once more.
fn read_again(fake: &Fake) {
    let reads = |fake: &Fake| {
        let is_last = |r: &&Request| matches!(r, Request::ReadCounters { from } if *from > 0);
        fake.with(|s| s.log.iter().filter(is_last).count())
    };
    let before = reads(fake);
    // One may have begun before this.
    eventually("another reading", || (reads(fake) >= before + 2).then_some(()));
}

/// Puts a device into a slot of box1, and waits until the manager knows it, if it can be told from others.
fn set_known_device(manager: &Manager, at_box: &Fake, slot: u8, serial: u64) {
    at_box.set_device(slot, Some(serial));
    let path = format!("/v1/boxes/box1/slots/{slot}");
    eventually("the device", || {
        let known = manager.get(&path)["functions"][0]["serial"] == format!("{serial:016x}");
        (serial == 0 || known).then_some(())
    });
}

#[test]
fn error_messages_of_a_device_make_it_fail_and_hold_it_back() {
    let manager = manager("cordon");
    // What was counted before has no time.
    let spec = boxed("box1", 2);
    let counted = crate::common::fake::fresh(&spec, "nvme");
    counted.lock().unwrap().counters.insert("slot 1: fatal errors".into(), 7);
    let at_box = Fake::insist(manager.control, spec, counted);
    manager.wait_ready(&["box1"]);
    read_again(&at_box);
    assert!(!manager.has_event("health-changed", "box1/1"));
    at_box.count("slot 1: correctable errors", 99);
    read_again(&at_box);
    assert!(!manager.has_event("health-changed", "box1/1"), "99 of 100");
    // They go on, so that a machine that is slow sees enough of them within the window.
    let fails = |name: &str, more: u64, said: &str| {
        eventually(said, || {
            at_box.count(name, more);
            read_again(&at_box);
            manager.has_event("health-changed", said).then_some(())
        });
    };
    fails("slot 2: correctable errors", 100, "box1/2 is failed: ");
    assert!(manager.has_event("health-changed", "correctable errors within 3 s"));
    fails("slot 1: fatal errors", 1, "box1/1 is failed: bindings of it failed because of it");
    manager.wait_slot("box1/1", "held");
    // When they are long ago it is healthy again.
    manager.wait_event("health-changed", "box1/1 is healthy");
    manager.wait_slot("box1/1", "free");
}

#[test]
fn a_proxy_whose_links_lose_too_much_fails_by_the_rate() {
    let manager = manager("cordon");
    let (at_host, _box) = pair(&manager);
    let send = |lost: u64| {
        at_host.with(|s| {
            for (name, more) in [("link.frames_sent", 100_000), ("link.losses_detected", lost)] {
                *s.counters.entry(name.to_owned()).or_default() += more;
            }
        });
        read_again(&at_host);
    };
    send(0);
    for _ in 0..3 {
        send(900);
    }
    assert!(!manager.has_event("health-changed", "host1 is"), "0.9 %");
    let of = json!({"kind": "node", "node": "host1"});
    eventually("its failure", || {
        send(1000);
        (state(&manager, &of).as_deref() == Some("failed")).then_some(())
    });
    manager.wait_event("health-changed", "host1 is failed: host1 lost");
    assert_eq!(manager.get("/v1/holds")["items"][0]["place"], "host1");
    eventually("its recovery", || {
        send(0);
        state(&manager, &of).is_none().then_some(())
    });
    assert!(manager.get("/v1/holds")["items"].as_array().unwrap().is_empty());
}

#[test]
fn a_path_that_loses_frames_fails_and_not_the_proxy_that_has_others() {
    let manager = manager("cordon");
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let node = at_box.welcome.node;
    let send = |lost: u64| {
        at_host.with(|s| {
            for (path, lost) in [(0, 3), (1, lost)] {
                for (what, more) in [("sent", 100_000), ("lost", lost)] {
                    let name = format!("path {node}/{path}: frames {what}");
                    *s.counters.entry(name).or_default() += more;
                }
            }
        });
        read_again(&at_host);
    };
    send(0);
    let of = json!({"kind": "path", "from": "host1", "to": "box1", "path": 1});
    eventually("its failure", || {
        send(20_000);
        (state(&manager, &of).as_deref() == Some("failed")).then_some(())
    });
    manager.wait_event("health-changed", "host1>box1 path 1 is failed: host1 lost 20000 of 100000");
    assert!(!manager.has_event("health-changed", "host1 is"), "path 0 is good");
    assert!(!manager.has_event("health-changed", "host1>box1 path 0"));
    eventually("its recovery", || {
        send(0);
        state(&manager, &of).is_none().then_some(())
    });
}

#[test]
fn a_lost_path_between_proxies_that_parted_is_forgotten() {
    let manager = manager("cordon");
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    at_host.event(Event::PathLost { peer: at_box.welcome.node, path: PathId::new(1).unwrap() });
    manager.wait_event("health-changed", "host1>box1 path 1 is failed");
    manager.text(&["release", "alloc-1"]);
    manager.wait_event("health-changed", "host1>box1 path 1 is healthy");
    assert!(manager.get("/v1/health")["items"].as_array().unwrap().is_empty());
}

#[test]
fn a_replacement_is_tried_again_until_there_is_a_device_for_it() {
    let manager = manager("replace");
    let at_host = Fake::join(manager.control, crate::common::fake::host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    // Spares are kept for replacements, not from them.
    let keep = boxed("box2", 1);
    let first = Fake::join(manager.control, keep.clone(), "nvme");
    manager.wait_ready(&["box2"]);
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    let away = first.leave();
    manager.wait_event("node-disconnected", "box2");
    let fatal = || at_box.count("slot 1: fatal errors", 1);
    read_again(&at_box);
    fatal();
    manager.wait_event("trouble", "box1/1 has failed and is not replaced");
    let _box2 = Fake::insist(manager.control, away.0, away.1);
    // Its errors go on.
    eventually("the replacement", || {
        fatal();
        manager.has_event("replaced", "host1 has box2/1 in the place of box1/1").then_some(())
    });
    drop(at_host);
}

#[test]
fn a_device_s_health_goes_with_it() {
    const BAD: u64 = 0x77;
    let settings = "[health]\ninterval_ms = 50\ndevice_errors = 2\ncounters_ms = 50\n";
    let manager = Manager::with_settings(settings, &[]);
    let (_host, at_box) = pair(&manager);
    set_known_device(&manager, &at_box, 1, BAD);
    // Not before counters have been read once.
    at_box.count("slot 1: fatal errors", 0);
    read_again(&at_box);
    at_box.count("slot 1: fatal errors", 1);
    manager.wait_slot("box1/1", "held");
    // Another one in its slot is well, while the bad one is nowhere.
    at_box.set_device(1, None);
    manager.wait_slot("box1/1", "empty");
    at_box.set_device(1, Some(0x88));
    manager.wait_slot("box1/1", "free");
    assert_eq!(manager.get("/v1/health")["items"], json!([]));
    // It is as bad wherever it comes back.
    at_box.set_device(2, Some(BAD));
    manager.wait_slot("box1/2", "held");
    let of = json!({"kind": "slot", "slot": "box1/2"});
    assert_eq!(state(&manager, &of).as_deref(), Some("failed"));
    let device = &manager.get("/v1/health")["items"][0]["device"];
    assert_eq!(device["serial"], "0000000000000077");
    manager.wait_slot("box1/1", "free");
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
}

#[test]
fn a_slot_that_is_looked_at_has_no_other_device() {
    let settings = "[health]\ninterval_ms = 50\ndevice_errors = 2\ncounters_ms = 50\n";
    let manager = Manager::with_settings(settings, &[]);
    let (_host, at_box) = pair(&manager);
    // One that can be told from others, and one that is known in its slot only.
    let serials = [(1, 0x77), (2, 0)];
    for (slot, serial) in serials {
        set_known_device(&manager, &at_box, slot, serial);
    }
    at_box.count("slot 1: fatal errors", 0);
    at_box.count("slot 2: fatal errors", 0);
    read_again(&at_box);
    for (slot, _) in serials {
        at_box.count(&format!("slot {slot}: fatal errors"), 1);
    }
    manager.wait_slot("box1/1", "held");
    manager.wait_slot("box1/2", "held");
    for (slot, serial) in serials {
        at_box.probe(slot);
        let path = format!("/v1/boxes/box1/slots/{slot}");
        eventually("that it is looked at", || {
            (manager.get(&path)["functions"][0]["state"] == "probing").then_some(())
        });
        // Health is looked at meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(300));
        at_box.set_device(slot, Some(serial));
        eventually("that it was looked at", || {
            (manager.get(&path)["functions"][0]["state"] == "free").then_some(())
        });
        let of = json!({"kind": "slot", "slot": format!("box1/{slot}")});
        assert_eq!(state(&manager, &of).as_deref(), Some("failed"));
    }
    assert!(!manager.has_event("hold-ended", ""), "they were held all the time");
}

#[test]
fn one_failure_of_a_device_counts_once_however_often_it_is_told() {
    let manager = Manager::with_settings("[health]\ninterval_ms = 50\ndevice_errors = 2\n", &[]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let fail = |round: u8| {
        let key = eventually("the device", || {
            let bindings = manager.get("/v1/bindings");
            (bindings["items"][0]["phase"] == "configured").then(|| at_box.bound(1)).flatten()
        });
        let reason = BindingFailure::DeviceGone;
        // The box says it, and so does the host, which the box told.
        let (host, node) = (at_host.welcome.node, at_box.welcome.node);
        at_box.event(Event::BindingFailed { peer: host, key, reason });
        at_box.event(Event::BindingFailed { peer: host, key, reason });
        at_host.event(Event::BindingFailed { peer: node, key, reason });
        manager.wait_event("rebinding", &format!("epoch 0.{}", round + 1));
    };
    fail(1);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!manager.has_event("health-changed", "box1/1"), "one of two that make it bad");
    fail(2);
    manager.wait_event("health-changed", "box1/1 is failed: bindings of it failed because of it");
}

#[test]
fn a_path_stays_lost_until_it_is_shown_to_carry_frames() {
    let mut manager = manager("cordon");
    let two = |mut spec: crate::common::fake::Spec| {
        spec.paths = vec![PathAddress::Udp4 { ip: [127, 0, 1, 1], port: 4000 }];
        spec
    };
    let at_host = Fake::join(manager.control, two(crate::common::fake::host("host1", 1)), "");
    let at_box = Fake::join(manager.control, two(boxed("box1", 2)), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1"]);
    let (peer, path) = (at_box.welcome.node, |path| PathId::new(path).unwrap());
    at_host.event(Event::PathLost { peer, path: path(1) });
    manager.wait_event("health-changed", "host1>box1 path 1 is failed");
    let of = json!({"kind": "path", "from": "host1", "to": "box1", "path": 1});
    let stays = |manager: &Manager, after: &str| {
        // Of a path that is good, more than enough.
        std::thread::sleep(std::time::Duration::from_millis(1000));
        assert_eq!(state(manager, &of).as_deref(), Some("failed"), "after {after}");
    };
    // The same life comes back, and tells of all its paths, whose link came up meanwhile.
    at_host.event(Event::LinkUp { peer });
    manager.wait_event("link-up", "host1: link to box1");
    let again = at_host.leave();
    manager.wait_event("node-disconnected", "host1");
    let at_host = Fake::insist(manager.control, again.0, again.1);
    at_host.event(Event::PathFound { peer, path: path(0) });
    at_host.event(Event::PathLost { peer, path: path(1) });
    manager.wait_ready(&["host1"]);
    stays(&manager, "a connection that ended");
    let lost = || {
        let events = manager.get("/v1/events?limit=1000");
        let events = events["items"].as_array().unwrap().iter();
        events.filter(|event| event["kind"] == "path-lost").count()
    };
    assert_eq!(lost(), 1, "what is told again is no event");
    manager.kill();
    manager.run();
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    let at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let _at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    manager.wait_ready(&["host1", "box1"]);
    stays(&manager, "another start of the manager");
    // It may be as bad in a link that is made anew.
    at_host.event(Event::LinkUp { peer });
    stays(&manager, "another link");
    // That came up by the other one, or by it.
    at_host.event(Event::PathFound { peer, path: path(0) });
    stays(&manager, "the other path was found");
    at_host.event(Event::PathFound { peer, path: path(1) });
    manager.wait_event("health-changed", "host1>box1 path 1 is healthy");
}

#[test]
fn what_a_device_does_while_its_box_is_away_counts() {
    let settings = "[health]\ninterval_ms = 50\ndevice_errors = 2\ncounters_ms = 50\n";
    let manager = Manager::with_settings(settings, &[]);
    let at_box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["box1"]);
    read_again(&at_box);
    let again = at_box.leave();
    manager.wait_event("health-changed", "box1 is suspect");
    again.1.lock().unwrap().counters.insert("slot 2: fatal errors".into(), 1);
    let _at_box = Fake::insist(manager.control, again.0, again.1);
    manager.wait_event("health-changed", "box1/2 is failed");
}

/// The kind of hold of a place.
fn held_for(manager: &Manager, place: &str) -> Option<String> {
    let holds = manager.get("/v1/holds");
    let hold = holds["items"].as_array().unwrap().iter().find(|hold| hold["place"] == place)?;
    Some(hold["kind"].as_str().unwrap().to_owned())
}

#[test]
fn what_is_not_well_stays_held_back_when_another_hold_ends() {
    let settings = "[health]\ninterval_ms = 50\ndevice_errors = 2\ncounters_ms = 50\n";
    let manager = Manager::with_settings(settings, &[]);
    let (_host, at_box) = pair(&manager);
    let on = |place: &str| manager.text(&["maintain", place, "--on", "--reason", "a new fan"]);
    let off = |place: &str| manager.text(&["maintain", place, "--off"]);
    read_again(&at_box);
    at_box.count("slot 1: fatal errors", 1);
    manager.wait_slot("box1/1", "held");
    assert_eq!(held_for(&manager, "box1/1").as_deref(), Some("unhealthy"));
    on("box1/1");
    assert_eq!(held_for(&manager, "box1/1").as_deref(), Some("maintenance"));
    let said = off("box1/1");
    assert!(said.contains("no longer held back (maintenance); it still is (unhealthy)"), "{said}");
    assert_eq!(held_for(&manager, "box1/1").as_deref(), Some("unhealthy"));
    // One that fails while somebody works on it.
    on("box1/2");
    at_box.count("slot 2: fatal errors", 1);
    manager.wait_event("health-changed", "box1/2 is failed");
    assert_eq!(held_for(&manager, "box1/2").as_deref(), Some("maintenance"));
    off("box1/2");
    assert_eq!(held_for(&manager, "box1/2").as_deref(), Some("unhealthy"));
    // Whoever ends that, too, wants it as it is.
    assert!(off("box1/2").contains("can be used again"));
    assert_eq!(held_for(&manager, "box1/2"), None);
    on("box1/2");
    assert!(off("box1/2").contains("can be used again"));
    let of = json!({"kind": "slot", "slot": "box1/2"});
    assert_eq!(state(&manager, &of).as_deref(), Some("failed"));
}

#[test]
fn a_drain_that_is_called_back_leaves_what_held_back_before_it() {
    let settings = "[health]\ninterval_ms = 50\ndevice_errors = 2\ncounters_ms = 50\n";
    let manager = Manager::with_settings(settings, &[]);
    let (at_host, at_box) = pair(&manager);
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
    read_again(&at_box);
    // The host does not come, so that the drains wait.
    let _again = at_host.leave();
    manager.wait_event("health-changed", "host1 is failed");
    let drained_and_back = |place: &str, meanwhile: &dyn Fn()| {
        let drain = ["drain", place, "--reason", "x", "--no-wait", "--output", "json"];
        let operation: Value = serde_json::from_slice(&manager.cli(&drain).stdout).unwrap();
        assert_eq!(held_for(&manager, place).as_deref(), Some("drained"));
        meanwhile();
        let id = operation["id"].as_str().unwrap();
        assert_eq!(manager.json(&["cancel", id])["state"], "cancelled");
        held_for(&manager, place)
    };
    assert_eq!(drained_and_back("box1", &|| {}), None);
    manager.text(&["maintain", "box1", "--on", "--reason", "a new fan"]);
    assert_eq!(drained_and_back("box1", &|| {}).as_deref(), Some("maintenance"));
    assert!(manager.text(&["holds"]).contains("a new fan"));
    // A device that fails while its slot is drained, and one that had before.
    let fails = || {
        at_box.count("slot 1: fatal errors", 1);
        manager.wait_event("health-changed", "box1/1 is failed");
    };
    assert_eq!(drained_and_back("box1/1", &fails).as_deref(), Some("unhealthy"));
    assert_eq!(drained_and_back("box1/1", &|| {}).as_deref(), Some("unhealthy"));
}

#[test]
fn spares_are_of_the_model_that_placement_keeps() {
    let settings = "[health]\ninterval_ms = 50\ncounters_ms = 50\n\
         [spares]\nmodels.A100 = { keep = 2 }\n";
    let manager = Manager::with_settings(settings, &[]);
    let _host = Fake::join(manager.control, crate::common::fake::host("host1", 4), "");
    // Of one box the inventory says the model; the other ones say it, each in its own way.
    let silent = Fake::join(manager.control, boxed("box1", 1), "");
    let _box2 = Fake::join(manager.control, boxed("box2", 1), "a100");
    let _box3 = Fake::join(manager.control, boxed("box3", 1), "A100");
    manager.wait_ready(&["host1", "box1", "box2", "box3"]);
    let inventory = json!({ "boxes": { "box1": { "slots": { "1": { "model": "A100" } } } } });
    let json = [("content-type", "application/json")];
    let (status, text) = manager.raw("PUT", "/v1/inventory", &json, Some(&inventory.to_string()));
    assert_eq!(status, 200, "{text}");
    read_again(&silent);
    silent.count("slot 1: fatal errors", 1);
    manager.wait_event("health-changed", "box1/1 is failed");
    let spares = || {
        let spares = manager.get("/v1/spares");
        let spares = spares["items"].as_array().unwrap();
        assert_eq!(spares.len(), 1, "{spares:?}");
        let of = |key: &str| spares[0][key].clone();
        ["model", "total", "free", "kept", "failures"].map(of)
    };
    // The one that failed is held back.
    assert_eq!(spares(), [json!("A100"), json!(3), json!(2), json!(2), json!(1)]);
    let (code, problem) = manager.failure(&["allocate", "--host", "host1"]);
    assert_eq!((code, &problem["code"]), (5, &json!("nothing-fits")), "{problem}");
    manager.text(&["maintain", "box1/1", "--off"]);
    assert_eq!(spares()[2], 3);
    manager.text(&["allocate", "--host", "host1"]);
    assert_eq!(manager.failure(&["allocate", "--host", "host1"]).0, 5);
}
