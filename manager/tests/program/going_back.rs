//! A store whose last write before a kill is not there as it was written, and backups that are cut
//! short.

use crate::common::Manager;
use crate::store_faults::{check, left, places};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn hold(manager: &Manager, reason: &str) {
    let body = json!({ "place": format!("path:{}", &reason[3..]), "reason": reason });
    let (status, answer) = manager.request("POST", "/v1/holds", Some(&body));
    assert_eq!(status, 200, "{answer}");
}

fn reasons(manager: &Manager) -> Vec<Value> {
    let holds = manager.get("/v1/holds");
    holds["items"].as_array().unwrap().iter().map(|hold| hold["reason"].clone()).collect()
}

fn sequences(manager: &Manager) -> Vec<u64> {
    let events = manager.get("/v1/events?limit=1000");
    let events = events["items"].as_array().unwrap().iter();
    events.map(|event| event["sequence"].as_u64().unwrap()).collect()
}

/// A manager that was killed after a write, the numbers of its events, and its store's bytes.
fn killed() -> (Manager, Vec<u64>, Vec<u8>) {
    let mut manager = Manager::start();
    hold(&manager, "fan1");
    hold(&manager, "fan2");
    let events = sequences(&manager);
    manager.kill();
    let bytes = std::fs::read(manager.path("store.redb")).unwrap();
    (manager, events, bytes)
}

/// As [`killed`], with a byte of what was written last changed.
fn killed_and_changed() -> (Manager, Vec<u64>, Vec<u8>) {
    let (manager, events, mut bytes) = killed();
    for place in places(&bytes, b"fan2") {
        bytes[place + 3] = b'7';
    }
    std::fs::write(manager.path("store.redb"), &bytes).unwrap();
    (manager, events, bytes)
}

#[test]
fn a_last_write_that_is_not_there_is_told_and_nothing_is_given_out_twice() {
    let (mut manager, events, bytes) = killed_and_changed();
    for _ in 0..2 {
        let (code, text, error) = check(&manager, &[]);
        assert!(code == 8 && text.contains("its last write is not there"), "{code} {text} {error}");
        assert!(error.contains("new generation") && error.contains("--repair"), "{error}");
        assert!(std::fs::read(manager.path("store.redb")).unwrap() == bytes, "it only looked");
        assert_eq!(left(&manager), ["store.redb"]);
    }

    manager.run();
    assert_eq!(reasons(&manager), ["fan1"]);
    assert_eq!(manager.get("/v1/healthz")["generation"], 1);
    manager.wait_event("store-went-back", "store.redb.before");
    hold(&manager, "fan3");
    let last = *events.iter().max().unwrap();
    let now = sequences(&manager);
    assert!(now.iter().filter(|sequence| **sequence > last).count() >= 3, "{now:?}");
    for sequence in now {
        assert!(sequence < last || sequence > last + 1000, "{sequence} came twice after {last}");
    }
    assert!(manager.log().contains("the last write before the manager was killed is not in"));
    assert_eq!(left(&manager), ["store.redb", "store.redb.before"]);
    assert!(std::fs::read(manager.path("store.redb.before")).unwrap() == bytes, "it is kept");

    // That was that: killed again, it goes on where it was.
    manager.kill();
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 0 && text.contains("all of which read"), "{text}");
    manager.run();
    assert_eq!(reasons(&manager), ["fan1", "fan3"]);
    assert_eq!(manager.get("/v1/healthz")["generation"], 1);
}

/// Who follows events has a picture of the pool that is not so any more.
#[test]
fn who_follows_events_is_told_that_some_are_lost_when_the_store_was_restored() {
    let mut manager = Manager::start();
    hold(&manager, "fan1");
    manager.text(&["backup", "--out", "backup.redb"]);
    hold(&manager, "fan2");
    let next = manager.get("/v1/events")["next"].as_u64().unwrap();
    hold(&manager, "fan3");
    assert_eq!(manager.get(&format!("/v1/events?since={next}"))["lost"], false);
    manager.terminate();
    manager.text(&["restore", "--from", "backup.redb", "--store", "store.redb"]);
    manager.run();

    let page = manager.get(&format!("/v1/events?since={next}"));
    let first = page["items"][0]["sequence"].as_u64().unwrap();
    assert!(page["lost"] == true && first > next, "{page}");
    for since in [1, first, page["next"].as_u64().unwrap()] {
        assert_eq!(manager.get(&format!("/v1/events?since={since}"))["lost"], false, "{since}");
    }
    // Whose filter lets nothing through does not wait for what it lets through.
    let asked = Instant::now();
    let page = format!("/v1/events?since={next}&kind=slot-quarantined&wait_ms=60000");
    let page = manager.get(&page);
    assert!(page["lost"] == true && page["items"] == json!([]), "{page}");
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    // Who reads all that is kept in pages of any size has lost none of it.
    let mut since = 1;
    loop {
        let page = manager.get(&format!("/v1/events?since={since}&limit=1"));
        assert_eq!(page["lost"], false, "{since}: {page}");
        since = page["next"].as_u64().unwrap();
        if page["items"] == json!([]) {
            break;
        }
    }
    let told = manager.cli(&["events", "--since", &next.to_string()]).stderr;
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("are not there any more"), "{told}");
    let mut stream = TcpStream::connect(manager.api).unwrap();
    write!(
        stream,
        "GET /v1/events/stream HTTP/1.1\r\nhost: x\r\nlast-event-id: {}\r\n\r\n",
        next - 1
    )
    .unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let said: Vec<String> = lines.skip_while(|line| !line.starts_with("event: ")).take(2).collect();
    assert_eq!(said, ["event: lost".to_owned(), format!("data: {{\"next\":{first}}}")]);
}

#[test]
fn a_store_without_its_last_write_is_repaired_and_restored() {
    let (mut manager, _, bytes) = killed_and_changed();
    std::fs::write(manager.path("backup.redb"), &bytes).unwrap();
    let (code, text, error) = check(&manager, &["--repair"]);
    assert!(code == 0 && text.contains("repaired"), "{text} {error}");
    assert!(std::fs::read(manager.path("store.redb.damaged-1")).unwrap() == bytes, "it is kept");
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 0 && text.contains("all of which read"), "{text}");
    manager.run();
    assert_eq!(reasons(&manager), ["fan1"]);
    assert_eq!(manager.get("/v1/healthz")["generation"], 1);
    manager.terminate();
    let text = manager.text(&["restore", "--from", "backup.redb", "--store", "store.redb"]);
    assert!(text.contains("the backup's last write is not there as it was written"), "{text}");
    assert!(text.contains("there before is store.redb.before"), "{text}");
    let json = manager.json(&["restore", "--from", "backup.redb", "--store", "other.redb"]);
    assert_eq!((&json["goes_back"], &json["kept"]), (&json!(true), &Value::Null), "{json}");
    // Of one that is whole nothing of that is said.
    let whole = ["restore", "--from", "other.redb", "--store", "third.redb"];
    assert_eq!(manager.text(&whole).trim_end(), "third.redb is restored from other.redb");
    assert_eq!(manager.json(&whole)["goes_back"], false);
    assert!(std::fs::read(manager.path("backup.redb")).unwrap() == bytes, "it was read only");
    manager.run();
    assert_eq!(reasons(&manager), ["fan1"]);
    // The repaired one, whose place it took, had given out epochs of the first.
    assert_eq!(manager.get("/v1/healthz")["generation"], 2);
}

/// The header has one slot for each of the last two writes.
#[test]
fn damage_in_the_header_of_a_killed_store_is_told() {
    const SLOTS: [usize; 2] = [64, 192];
    const ITS_NUMBER: usize = 104;
    const ITS_CHECKSUM: usize = 112;
    let (manager, _, bytes) = killed();
    let last = usize::from(bytes[9] & 1);
    for (slot, told) in [(SLOTS[last], true), (SLOTS[1 - last], false)] {
        for place in [8, 20, ITS_NUMBER, ITS_NUMBER + 1, ITS_CHECKSUM, ITS_CHECKSUM + 15] {
            for bit in [1, 2, 0x80] {
                let mut bytes = bytes.clone();
                bytes[slot + place] ^= bit;
                std::fs::write(manager.path("store.redb"), &bytes).unwrap();
                let (code, text, error) = check(&manager, &[]);
                let said = text.contains("its last write is not there");
                let at = format!("{place} of {slot}: {text} {error}");
                assert_eq!((code == 8, said), (told, told), "{at}");
            }
        }
    }
}

#[test]
fn a_backup_that_is_cut_short_is_named_and_leaves_nothing() {
    let mut manager = Manager::start();
    hold(&manager, "fan1");
    manager.terminate();
    let good = std::fs::read(manager.path("store.redb")).unwrap();
    let mut changed = good.clone();
    places(&good, b"fan1").into_iter().for_each(|place| changed[place + 3] = b'7');
    let cases = [
        ("half", &good[..good.len() / 2]),
        ("short", &good[..good.len() - 4096]),
        ("one", &good[..1]),
        ("none", &[]),
        ("changed", &changed),
    ];
    for (name, bytes) in cases {
        let backup = format!("{name}.redb");
        std::fs::write(manager.path(&backup), bytes).unwrap();
        for store in ["new.redb", "store.redb"] {
            let (code, problem) =
                manager.failure(&["restore", "--from", &backup, "--store", store]);
            let detail = problem["detail"].as_str().unwrap();
            let said = format!("the backup {backup} cannot be restored (");
            assert!(code == 8 && detail.starts_with(&said), "{name}: {problem}");
            assert!(!detail.contains("restoring"), "{name}: {problem}");
            // What it says to try does something.
            let advised = detail.contains("store check");
            assert_eq!(advised, name == "changed", "{name}: {problem}");
            if advised {
                let checked = manager.cli(&["store", "check", "--store", &backup]).stdout;
                let checked = String::from_utf8(checked).unwrap();
                assert!(checked.contains(" records"), "{name}: {checked}");
            }
        }
        assert_eq!(left(&manager), ["store.redb"], "{name}");
        assert!(!manager.path("new.redb").exists(), "{name}");
        assert!(!manager.path("new.redb.restoring").exists(), "{name}");
        assert!(std::fs::read(manager.path("store.redb")).unwrap() == good, "{name}");
    }
}
