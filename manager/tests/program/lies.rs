//! Proxies whose reports cannot be, that come and go without end, or that claim what is another's.

use crate::common::fake::{Fake, Script, boxed, fresh, host, inventory_page};
use crate::common::{Manager, eventually};
use proxy_core::control::{Event, InventoryEntry, PathSet, Reply, Request, SlotEntry, SlotState};
use std::time::Duration;
use tlp_codec::ids::{SlotFunction, SlotId};

/// The inventory that a box of these tables reports, whole.
fn inventory(of: &Fake) -> Vec<InventoryEntry> {
    of.with(|state| {
        let mut all = Vec::new();
        loop {
            let Reply::Inventory { entries, next } = inventory_page(state, all.len() as u16) else {
                unreachable!()
            };
            all.extend(entries);
            if next.is_none() {
                return all;
            }
        }
    })
}

/// Reports these entries from now on, and says that something changed.
fn report(from: &Fake, entries: Vec<InventoryEntry>) {
    from.with(|state| state.rules.clear());
    from.rule(move |request| match request {
        Request::ReadInventory { from } => {
            let rest = entries.iter().skip(usize::from(*from)).cloned();
            let page: Vec<_> = rest.take(2).collect();
            let next = usize::from(*from) + page.len();
            let next = (next < entries.len()).then_some(next as u16);
            let entries = page.into_iter().collect();
            Some(Script::Answer(Box::new(Reply::Inventory { entries, next })))
        }
        _ => None,
    });
    // A hole in the events' numbers has everything read again.
    from.lose_event();
    from.event(Event::RootComplex { present: true });
}

fn count(manager: &Manager, kind: &str) -> usize {
    let page = manager.get("/v1/events?limit=1000");
    page["items"].as_array().unwrap().iter().filter(|event| event["kind"] == kind).count()
}

#[test]
fn slots_that_are_not_there_and_functions_that_are_there_twice_are_left_out() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 2), "");
    let liar = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    let mut entries = inventory(&liar);
    let mut twice = entries[1].clone();
    twice.id = (0x10de, 0x2330);
    let mut beyond = entries[0].clone();
    beyond.slot = SlotId::new(9).unwrap();
    let mut none = entries[0].clone();
    none.slot = SlotId::HOST;
    entries.extend([twice, beyond, none]);
    report(&liar, entries);
    manager.wait_event("report-refused", "slot 2 more than once");
    manager.wait_event("report-refused", "slot 9; its slots are 1 to 2");
    manager.wait_event("report-refused", "slot 0; its slots are 1 to 2");
    let slots = manager.get("/v1/slots");
    assert_eq!(slots["items"].as_array().unwrap().len(), 2);
    assert_eq!(manager.get("/v1/devices")["items"].as_array().unwrap().len(), 2);
    let second = manager.get("/v1/boxes/box1/slots/2");
    assert_eq!(
        second["functions"][0]["pci"]["vendor"], 0x1af4,
        "the first of two counts: {second}"
    );
    // It is said once, however often it is read.
    liar.with(|state| state.log.clear());
    eventually("further readings", || {
        let read = |r: &&Request| matches!(r, Request::ReadInventory { from: 0 });
        (liar.with(|state| state.log.iter().filter(read).count()) >= 3).then_some(())
    });
    assert_eq!(count(&manager, "report-refused"), 3);
    // What is true is lent as ever.
    manager.text(&["allocate", "--host", "host1", "--count", "2"]);
}

/// A model that clears a screen and forges a line of the log.
#[test]
fn what_devices_call_themselves_commands_no_terminal() {
    let manager = Manager::start();
    let _box = Fake::join(manager.control, boxed("box1", 1), "\u{1b}[2JA\nB");
    manager.wait_ready(&["box1"]);
    let commands = [&["list"][..], &["show", "box1/1"], &["events"], &["counters", "box1"]];
    let shown = commands.map(|args| manager.text(args)).concat() + &manager.log();
    assert!(shown.contains("\u{fffd}[2JA\u{fffd}B"), "{shown}");
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains("A\nB"), "{shown}");
}

#[test]
fn pages_without_end_end_the_connection() {
    let manager = Manager::start();
    let liar = Fake::join(manager.control, boxed("box1", 2), "nvme");
    let honest = Fake::join(manager.control, boxed("box2", 2), "nvme");
    manager.wait_ready(&["box1", "box2"]);
    let entry = inventory(&liar).remove(0);
    liar.rule(move |request| match request {
        Request::ReadInventory { from } => {
            let entries = [entry.clone()].into_iter().collect();
            let reply = Reply::Inventory { entries, next: Some(from + 1) };
            Some(Script::Answer(Box::new(reply)))
        }
        _ => None,
    });
    manager.wait_event("node-disconnected", "box1 is disconnected: an answer that makes no sense");
    assert!(!honest.is_over());
    assert_eq!(manager.get("/v1/boxes/box1/slots/1")["status"], "free", "what was known stays");
}

/// A page of counters after a pause, and always one more.
fn count_slowly(of: &Fake, pause: Duration) {
    of.rule(move |request| match request {
        Request::ReadCounters { from } => {
            std::thread::sleep(pause);
            let (entries, next) = (Default::default(), Some(from + 1));
            Some(Script::Answer(Box::new(Reply::Counters { entries, next })))
        }
        _ => None,
    });
}

#[test]
fn a_table_that_comes_slowly_page_by_page_ends_the_connection() {
    let manager = Manager::with_timing(&[("request_ms", 400)]);
    let slow = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["box1"]);
    count_slowly(&slow, Duration::from_millis(50));
    assert_eq!(manager.failure(&["counters", "box1"]).0, 7);
    manager.wait_event("node-disconnected", "the answers to ReadCounters did not end within 1.2s");
}

#[test]
fn counters_that_come_slowly_hold_up_no_others() {
    let settings = "[health]\ninterval_ms = 50\ncounters_ms = 50\n";
    let manager = Manager::with_settings(settings, &[("request_ms", 3_600_000)]);
    let slow = Fake::join(manager.control, boxed("box1", 2), "nvme");
    let other = Fake::join(manager.control, boxed("box2", 2), "nvme");
    manager.wait_ready(&["box1", "box2"]);
    count_slowly(&slow, Duration::from_millis(50));
    let reads = |of: &Fake, page: u16| {
        let is = |r: &&Request| matches!(r, Request::ReadCounters { from } if *from == page);
        of.with(|state| state.log.iter().filter(is).count())
    };
    // One that began before has the pages 0 and 2.
    eventually("a slow page", || (reads(&slow, 3) > 0).then_some(()));
    let (at_once, before) = (reads(&slow, 0), reads(&other, 0));
    eventually("further readings", || (reads(&other, 0) > before + 3).then_some(()));
    assert_eq!(reads(&slow, 0), at_once, "it is read once at a time");
}

#[test]
fn tables_of_what_cannot_be_are_left_out() {
    let manager = Manager::start();
    let liar = Fake::join(manager.control, boxed("box1", 2), "nvme");
    let at_host = Fake::join(manager.control, host("host1", 2), "");
    manager.wait_ready(&["box1", "host1"]);
    let beyond = SlotEntry {
        entry: 0,
        valid: true,
        used: true,
        state: SlotState::Bound,
        slot: SlotId::new(9).unwrap(),
        function: SlotFunction::ZERO,
        host_node: at_host.welcome.node.get(),
        path_set: PathSet::FIRST,
        epoch: 7,
        windows: heapless::Vec::new(),
    };
    liar.rule(move |request| {
        let entries = [beyond.clone()].into_iter().collect();
        let is_table = matches!(request, Request::ReadTable { .. });
        is_table.then(|| Script::Answer(Box::new(Reply::Slots { entries, next: None })))
    });
    liar.lose_event();
    liar.event(Event::RootComplex { present: true });
    manager.wait_event("report-refused", "slot 9; its slots are 1 to 2");
    assert!(!liar.with(|s| s.log.iter().any(|r| matches!(r, Request::UnbindSlot(_)))));
}

#[test]
fn a_serial_number_that_two_devices_have_lends_neither() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 8), "");
    let honest = Fake::join(manager.control, boxed("box1", 2), "nvme");
    let liar = Fake::join(manager.control, boxed("box2", 2), "nvme");
    manager.wait_ready(&["host1", "box1", "box2"]);
    let true_word = inventory(&liar);
    let mut claims = true_word.clone();
    claims[1].serial = inventory(&honest)[0].serial;
    report(&liar, claims.clone());
    manager.wait_event("serial-contested", "box2/2 and box1/1");
    for (slot, of, number) in [("box1/1", "box1", "1"), ("box2/2", "box2", "2")] {
        manager.wait_slot(slot, "contested");
        let one = ["allocate", "--host", "host1", "--box", of, "--slot", number];
        let (code, problem) = manager.failure(&one);
        assert_eq!(code, 4, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("serial number"), "{problem}");
    }
    let devices = manager.get("/v1/devices");
    assert_eq!(devices["items"].as_array().unwrap().len(), 4, "both are shown");
    let (code, _) = manager.failure(&["allocate", "--host", "host1", "--count", "3"]);
    assert_eq!(code, 5);
    // Another vendor's number is another number.
    claims[1].id.0 = 0x10de;
    report(&liar, claims.clone());
    manager.wait_slot("box1/1", "free");
    manager.wait_slot("box2/2", "free");
    claims[1].id.0 = 0x1af4;
    report(&liar, claims);
    manager.wait_slot("box1/1", "contested");
    // One of them is gone.
    report(&liar, true_word[..1].to_vec());
    manager.wait_slot("box1/1", "free");
    manager.text(&["allocate", "--host", "host1", "--box", "box1", "--slot", "1"]);
    // What is lent stays lent, whatever is claimed then.
    let mut claims = true_word.clone();
    claims[1].serial = inventory(&honest)[0].serial;
    report(&liar, claims);
    manager.wait_slot("box2/2", "contested");
    assert_eq!(manager.get("/v1/boxes/box1/slots/1")["status"], "used");
    manager.text(&["release", "alloc-1"]);
    manager.wait_slot("box1/1", "contested");
}

#[test]
fn a_proxy_that_comes_and_goes_does_not_fill_the_events() {
    let manager = Manager::start();
    let spec = boxed("box1", 1);
    let state = fresh(&spec, "nvme");
    let _steady = Fake::join(manager.control, boxed("box2", 1), "nvme");
    for _ in 0..40 {
        let flapping = Fake::insist(manager.control, spec.clone(), state.clone());
        manager.wait_ready(&["box1"]);
        flapping.leave();
    }
    // Somebody who claims its name while it is there, and names that nobody has.
    let there = Fake::insist(manager.control, spec.clone(), state);
    let mut claim = spec;
    claim.incarnation = 77;
    let mut nobody = boxed("nobody", 1);
    nobody.mtu = 1;
    for _ in 0..40 {
        let state = fresh(&claim, "nvme");
        assert!(Fake::connect(manager.control, claim.clone(), state).is_err());
        let state = fresh(&nobody, "nvme");
        assert!(Fake::connect(manager.control, nobody.clone(), state).is_err());
    }
    manager.wait_event("node-flapping", "the connection of box1: 20 events");
    manager.wait_event("node-flapping", "claims of the name box1: 20 events");
    manager.wait_event("node-flapping", "claims of names that nobody has: 20 events");
    let told = count(&manager, "node-connected") + count(&manager, "node-disconnected");
    assert!(told <= 21, "{told} events");
    assert!(count(&manager, "node-refused") <= 40);
    assert!(!there.is_over(), "who was there stays");
    assert!(manager.has_event("node-connected", "box2"));
}

/// The record is gone, and says so each time; the entry in its table is not.
#[test]
fn a_box_that_keeps_what_it_says_that_it_took_out_is_not_asked_without_a_pause() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 2), "");
    let liar = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1"]);
    let unbinds = |request: &Request| matches!(request, Request::UnbindSlot(_));
    liar.rule(move |request| unbinds(request).then(|| Script::Answer(Box::new(Reply::Done))));
    manager.text(&["release", "alloc-1"]);
    let asked = || liar.with(|state| state.log.iter().filter(|r| unbinds(r)).count());
    eventually("it is asked again", || (asked() >= 4).then_some(()));
    let (before, since) = (asked(), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_secs(1));
    // Every 100 ms at first, then at intervals; the events of it are no more.
    let most = before + 10 * (since.elapsed().as_secs() as usize + 1);
    assert!(asked() <= most, "{} times, then {}", before, asked());
    assert!(count(&manager, "orphan-removed") <= asked() + 1);
}
