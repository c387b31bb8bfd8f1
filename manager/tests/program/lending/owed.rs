//! Devices that are taken out of their slots before they are erased, and come back somewhere.

use super::pair;
use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually};
use proxy_core::control::{BindingFailure, Erasure, Event, Reply, Request, SlotState};
use serde_json::{Value, json};
use std::time::Duration;

const RULES: &str = "[[erase]]\nmodel = \"nvme\"\nmeans = [\"format-user\"]\n";
const SERIAL: u64 = 0x77;

fn erasure(manager: &Manager, id: &str) -> Value {
    manager.get(&format!("/v1/erasures/{id}"))
}

fn wait_erasure(manager: &Manager, id: &str, state: &str) -> Value {
    eventually(&format!("{id} {state}"), || {
        let list = manager.get("/v1/erasures");
        let erasure = list["items"].as_array().unwrap().iter().find(|e| e["id"] == id)?.clone();
        (erasure["state"] == state).then_some(erasure)
    })
}

/// Erasing takes for ever, as long as the fake lives.
fn never_done(at_box: &Fake) {
    at_box.rule(|request| {
        let running = Box::new(Reply::Erasure(Erasure::Running(1).into()));
        matches!(request, Request::Erase(_)).then_some(Script::Answer(running))
    });
}

fn may(at_box: &Fake) {
    at_box.with(|state| state.rules.clear());
}

fn lend(slot: u8, name: &str) -> Vec<String> {
    let words = ["allocate", "--host", "host1", "--wait-ms", "0", "--box", name, "--slot"];
    words.iter().map(|word| (*word).to_owned()).chain([slot.to_string()]).collect()
}

fn refused(manager: &Manager, slot: u8, name: &str) -> Value {
    let words = lend(slot, name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code, problem) = manager.failure(&words);
    assert_eq!(code, 4, "{problem}");
    problem
}

fn lent(manager: &Manager, slot: u8, name: &str) {
    let words = lend(slot, name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    manager.text(&words);
}

/// Puts a device into a slot of box1, and waits until the manager knows it.
fn put(manager: &Manager, at_box: &Fake, slot: u8, serial: u64) {
    at_box.set_device(slot, Some(serial));
    let (shown, before) = (format!("{serial:016x}"), "11223344");
    eventually("the device", || {
        let device = manager.get(&format!("/v1/boxes/box1/slots/{slot}"));
        let text = device.to_string();
        let is_there = if serial == 0 { !text.contains(before) } else { text.contains(&shown) };
        (is_there && device["status"] == "free").then_some(())
    });
}

/// host1, box1 whose first slot's device had a tenant and has been taken out before it was erased.
fn taken_out(manager: &Manager, serial: u64) -> (Fake, Fake) {
    let (at_host, at_box) = pair(manager);
    put(manager, &at_box, 1, serial);
    lent(manager, 1, "box1");
    never_done(&at_box);
    manager.text(&["release", "alloc-1", "--no-wait"]);
    manager.wait_slot("box1/1", "erasing");
    at_box.set_device(1, None);
    wait_erasure(manager, "erase-1", "owed");
    (at_host, at_box)
}

#[test]
fn a_device_that_was_pulled_is_erased_where_it_comes_back() {
    let manager = Manager::with_settings(RULES, &[]);
    let (_host, at_box) = taken_out(&manager, SERIAL);
    let box2 = Fake::join(manager.control, boxed("box2", 2), "nvme");
    never_done(&box2);
    manager.wait_ready(&["box2"]);
    // The release does not wait for what may never come back, and says so.
    let operation = eventually("the end of the release", || {
        let operation = manager.get("/v1/operations/op-2");
        (operation["state"] == "succeeded").then_some(operation)
    });
    let warning = operation["warnings"][0].as_str().unwrap();
    assert!(warning.contains("owed by serial number 0000000000000077"), "{warning}");
    manager.wait_event("erasure-owed", "erase-1: box1/1: the device was taken out");
    // Another device in its slot owes nothing.
    put(&manager, &at_box, 1, 0x88);
    // The manager forgets nothing of it, and it is not lent where it is now.
    box2.set_device(2, Some(SERIAL));
    manager.wait_slot("box2/2", "erasing");
    let problem = refused(&manager, 2, "box2");
    assert!(problem["detail"].as_str().unwrap().contains("is being erased"), "{problem}");
    assert_eq!(erasure(&manager, "erase-1")["slot"], "box2/2");
    may(&box2);
    wait_erasure(&manager, "erase-1", "done");
    manager.wait_slot("box2/2", "free");
    lent(&manager, 2, "box2");
    lent(&manager, 1, "box1");
}

#[test]
fn what_is_owed_outlives_the_manager_and_can_be_waived() {
    let mut manager = Manager::with_settings(RULES, &[]);
    let (at_host, at_box) = taken_out(&manager, SERIAL);
    manager.kill();
    let (box_again, host_again) = (at_box.leave(), at_host.leave());
    manager.run();
    assert_eq!(erasure(&manager, "erase-1")["state"], "owed");
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    let _host = Fake::insist(manager.control, host_again.0, host_again.1);
    manager.wait_ready(&["host1", "box1"]);
    at_box.set_device(2, Some(SERIAL));
    manager.wait_slot("box1/2", "erasing");
    at_box.set_device(2, None);
    wait_erasure(&manager, "erase-1", "owed");
    let waive = "/v1/erasures/erase-1/waive";
    let (status, said) = manager.raw("POST", waive, &[], Some("{\"reason\":\"\"}"));
    assert!(status == 400 && said.contains("reason"), "{status} {said}");
    assert_eq!(manager.cli(&["erase", "erase-1"]).status.code(), Some(2));
    let waived = manager.json(&["erase", "erase-1", "--waive", "shredded"]);
    assert_eq!((&waived["state"], &waived["detail"]), (&json!("waived"), &json!("shredded")));
    assert_eq!(manager.failure(&["erase", "erase-1", "--waive", "again"]).0, 4);
    assert_eq!(manager.failure(&["erase", "erase-9", "--waive", "again"]).0, 3);
    let audit = manager.get("/v1/audit").to_string();
    assert!(audit.contains("/v1/erasures/erase-1/waive"), "{audit}");
    manager.wait_event("not-erased", "taken as it is: shredded");
    at_box.set_device(2, Some(SERIAL));
    manager.wait_slot("box1/2", "free");
}

#[test]
fn what_is_pulled_while_it_is_lent_is_owed_too() {
    let manager = Manager::with_settings(RULES, &[]);
    let (_host, at_box) = pair(&manager);
    put(&manager, &at_box, 1, SERIAL);
    lent(&manager, 1, "box1");
    let pull = || {
        let key = at_box.bound(1).unwrap();
        at_box.set_device(1, None);
        let (peer, reason) = (_host.welcome.node, BindingFailure::DeviceGone);
        at_box.event(Event::BindingFailed { peer, key, reason });
    };
    pull();
    let owed = wait_erasure(&manager, "erase-1", "owed");
    assert_eq!((&owed["host"], &owed["allocation"]), (&json!("host1"), &json!("alloc-1")));
    // Back in its slot, its tenant has it again.
    at_box.set_device(1, Some(SERIAL));
    wait_erasure(&manager, "erase-1", "waived");
    eventually("the binding", || at_box.bound(1));
    pull();
    wait_erasure(&manager, "erase-2", "owed");
    // Anywhere else it is erased.
    at_box.set_device(2, Some(SERIAL));
    wait_erasure(&manager, "erase-2", "done");
    manager.wait_slot("box1/2", "free");
    let released = manager.cli(&["release", "alloc-1", "--force"]);
    assert!(released.status.success(), "{released:?}");
    let items = manager.get("/v1/erasures")["items"].as_array().unwrap().len();
    assert_eq!(items, 2, "the empty slot has nothing to erase");
}

#[test]
fn a_device_without_a_serial_number_owes_by_its_slot() {
    let manager = Manager::with_settings(RULES, &[]);
    let (_host, at_box) = taken_out(&manager, 0);
    let owed = erasure(&manager, "erase-1");
    assert!(owed["detail"].as_str().unwrap().contains("no serial number"), "{owed}");
    // One that has a number is another one.
    put(&manager, &at_box, 1, SERIAL);
    at_box.set_device(1, Some(0));
    manager.wait_slot("box1/1", "erasing");
    may(&at_box);
    wait_erasure(&manager, "erase-1", "done");
    manager.wait_slot("box1/1", "free");
}

#[test]
fn a_lent_slot_into_which_an_unerased_device_is_put_does_not_give_it_to_its_tenant() {
    let manager = Manager::with_settings(RULES, &[]);
    let (at_host, at_box) = taken_out(&manager, SERIAL);
    lent(&manager, 2, "box1");
    let first = at_box.bound(2).unwrap();
    at_box.set_device(2, Some(SERIAL));
    let (peer, reason) = (at_host.welcome.node, BindingFailure::DeviceGone);
    at_box.event(Event::BindingFailed { peer, key: first, reason });
    manager.wait_event("trouble", "slot box1/2 has a device now that another tenant had");
    assert!(at_box.bound(2).is_none());
    assert_eq!(erasure(&manager, "erase-1")["state"], "owed");
    may(&at_box);
    manager.text(&["release", "alloc-2", "--force"]);
    manager.wait_slot("box1/2", "free");
}

/// Between the box's word that something is in the slot and its tables, which say what.
#[test]
fn a_binding_that_is_made_again_waits_until_it_is_known_what_is_in_the_slot() {
    let manager = Manager::with_settings(RULES, &[]);
    let (at_host, at_box) = taken_out(&manager, SERIAL);
    lent(&manager, 2, "box1");
    let (peer, first) = (at_host.welcome.node, at_box.bound(2).unwrap());
    let asked = |what: fn(&Request) -> bool| {
        at_box.with(|s| s.log.iter().filter(|request| what(request)).count())
    };
    let readings = || asked(|r| matches!(r, Request::ReadTable { .. }));
    let bindings = || asked(|r| matches!(r, Request::BindSlot(_)));
    // Its tables are being read when the device is put in, and that takes its time.
    at_box.rule(|r| matches!(r, Request::ReadTable { .. }).then_some(Script::Ignore));
    let (read, bound) = (readings(), bindings());
    at_box.lose_event();
    at_box.event(Event::LinkUp { peer });
    eventually("a reading", || (readings() > read).then_some(()));
    at_box.set_device(2, Some(SERIAL));
    let reason = BindingFailure::DeviceGone;
    at_box.event(Event::BindingFailed { peer, key: first, reason });
    manager.wait_event("rebinding", "box1/2 gets epoch 0.2");
    // Long enough for who does not wait.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(bindings(), bound, "nobody knows yet that it is the other tenant's");
}

/// Makes what is put into a slot from now on a device of another kind.
fn another_kind(at_box: &Fake, slot: usize) {
    at_box.with(|s| {
        let slot = &mut s.slots[slot - 1];
        (slot.device, slot.model) = (0xd0ac, "accelerator".to_owned());
    });
}

#[test]
fn another_kind_of_device_with_the_same_serial_number_does_not_settle_it() {
    let manager = Manager::with_settings(RULES, &[]);
    let (_host, at_box) = taken_out(&manager, SERIAL);
    let impostor = Fake::join(manager.control, boxed("box2", 2), "nvme");
    another_kind(&impostor, 2);
    manager.wait_ready(&["box2"]);
    impostor.set_device(2, Some(SERIAL));
    eventually("the impostor", || {
        let slot = manager.get("/v1/boxes/box2/slots/2");
        let has_it = slot.to_string().contains(&format!("{SERIAL:016x}"));
        (has_it && slot["status"] == "free").then_some(())
    });
    let asked = impostor.with(|s| s.log.iter().any(|r| matches!(r, Request::Erase(_))));
    assert!(!asked, "it has nothing of the tenant's");
    let owed = erasure(&manager, "erase-1");
    assert_eq!((&owed["state"], &owed["slot"]), (&json!("owed"), &json!("box1/1")));
    // Nor does one in the slot itself.
    impostor.set_device(2, None);
    manager.wait_slot("box2/2", "empty");
    another_kind(&at_box, 1);
    put(&manager, &at_box, 1, SERIAL);
    assert_eq!(erasure(&manager, "erase-1")["state"], "owed");
    at_box.set_device(1, None);
    // The device itself still does.
    at_box.set_device(2, Some(SERIAL));
    manager.wait_slot("box1/2", "erasing");
    may(&at_box);
    wait_erasure(&manager, "erase-1", "done");
    manager.wait_slot("box1/2", "free");
}

#[test]
fn a_device_that_does_not_say_its_number_any_more_is_not_lent() {
    let manager = Manager::with_settings(RULES, &[]);
    let (_host, at_box) = taken_out(&manager, SERIAL);
    at_box.set_device(1, Some(0));
    manager.wait_slot("box1/1", "unerased");
    let problem = refused(&manager, 1, "box1");
    assert!(problem["detail"].as_str().unwrap().contains("eras"), "{problem}");
    assert_eq!(erasure(&manager, "erase-1")["state"], "owed");
    // With its number it is known again.
    at_box.set_device(1, Some(SERIAL));
    manager.wait_slot("box1/1", "erasing");
    may(&at_box);
    wait_erasure(&manager, "erase-1", "done");
    manager.wait_slot("box1/1", "free");
}

/// A box that has just started looks at its devices before it knows them.
#[test]
fn what_a_box_is_looking_at_is_not_taken_out() {
    let manager = Manager::with_settings(RULES, &[]);
    let (_host, at_box) = pair(&manager);
    put(&manager, &at_box, 1, SERIAL);
    lent(&manager, 1, "box1");
    lent(&manager, 2, "box1");
    never_done(&at_box);
    manager.text(&["release", "alloc-1", "--no-wait"]);
    manager.wait_slot("box1/1", "erasing");
    let at_box = at_box.restart_into(manager.control, SlotState::Probing);
    manager.wait_ready(&["box1"]);
    let all = manager.get("/v1/erasures");
    let states: Vec<_> = all["items"].as_array().unwrap().iter().map(|e| &e["state"]).collect();
    assert_eq!(states, ["running"], "{all}");
    assert_eq!(manager.get("/v1/operations/op-3")["state"], "running");
    may(&at_box);
    at_box.set_state(1, SlotState::Free);
    at_box.set_state(2, SlotState::Free);
    wait_erasure(&manager, "erase-1", "done");
    let operation = eventually("the end of the release", || {
        let operation = manager.get("/v1/operations/op-3");
        (operation["state"] == "succeeded").then_some(operation)
    });
    assert_eq!(operation["warnings"].as_array().map_or(0, Vec::len), 0, "{operation}");
    manager.wait_slot("box1/1", "free");
    eventually("the tenant of the other one", || at_box.bound(2));
    assert!(!manager.has_event("erasure-owed", ""));
    assert_eq!(manager.get("/v1/erasures")["items"].as_array().unwrap().len(), 1);
}

#[test]
fn what_was_swapped_while_its_box_was_off_is_found_when_the_box_has_looked() {
    let manager = Manager::with_settings(RULES, &[]);
    let (_host, at_box) = pair(&manager);
    put(&manager, &at_box, 1, SERIAL);
    lent(&manager, 1, "box1");
    let at_box = at_box.restart_into(manager.control, SlotState::Probing);
    manager.wait_ready(&["box1"]);
    assert_eq!(manager.get("/v1/erasures")["items"], json!([]));
    // What does not say what it is may be another one.
    at_box.with(|s| s.slots[0].serial = Some(0x88));
    at_box.set_state(1, SlotState::Free);
    let owed = wait_erasure(&manager, "erase-1", "owed");
    assert_eq!((&owed["serial"], &owed["host"]), (&json!("0000000000000077"), &json!("host1")));
    at_box.set_device(2, Some(SERIAL));
    wait_erasure(&manager, "erase-1", "done");
}

/// By the records of the backup it is still who had it then.
#[test]
fn what_another_one_has_had_since_the_backup_is_not_given_to_who_had_it_then() {
    let mut manager = Manager::with_settings(RULES, &[]);
    let (at_host, at_box) = pair(&manager);
    let other = Fake::join(manager.control, host("host2", 1), "");
    manager.wait_ready(&["host2"]);
    lent(&manager, 1, "box1");
    manager.json(&["backup", "--out", "pool.backup"]);
    manager.text(&["release", "alloc-1"]);
    manager.wait_slot("box1/1", "free");
    manager.text(&["allocate", "--host", "host2", "--box", "box1", "--slot", "1"]);
    assert!(at_box.bound(1).is_some());
    never_done(&at_box);
    let [host_again, other_again, box_again] = [at_host, other, at_box].map(Fake::leave);
    manager.terminate();
    manager.text(&["restore", "--from", "pool.backup", "--store", "store.redb"]);
    manager.run();
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    let _host = Fake::insist(manager.control, host_again.0, host_again.1);
    let other = Fake::insist(manager.control, other_again.0, other_again.1);
    manager.wait_event("trouble", "slot box1/1 has a device now that another tenant had");
    assert!(at_box.bound(1).is_none());
    eventually("a clean host", || other.with(|s| s.ports.is_empty()).then_some(()));
    let list = manager.get("/v1/erasures");
    let first = list["items"][0].clone();
    assert!(["running", "owed"].iter().any(|state| first["state"] == *state), "{list}");
    // It is erased when it is released, once.
    manager.text(&["release", "alloc-1", "--no-wait"]);
    manager.wait_slot("box1/1", "erasing");
    wait_erasure(&manager, first["id"].as_str().unwrap(), "waived");
    may(&at_box);
    manager.wait_slot("box1/1", "free");
}
