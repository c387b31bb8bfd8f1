//! A store that is full, read-only or in use, or has records that do not read.

use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use redb::{ReadableDatabase, ReadableTable, TableHandle};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use tlp_codec::ids::Epoch;

/// Lets no file of the manager's grow beyond this, as a full disk does. `None`: as much as it likes.
pub fn limit(manager: &Manager, bytes: Option<u64>) {
    limit_process(manager.pid(), bytes);
}

/// As [`limit`], of the process of this number.
pub fn limit_process(pid: u32, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    let before = prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    assert_eq!(before.maximum, None, "the test needs a machine without a limit of its own");
}

fn allocations(manager: &Manager) -> Vec<Value> {
    let list = manager.get("/v1/allocations");
    list["items"].as_array().unwrap().iter().map(|a| a["reason"].clone()).collect()
}

fn hold(manager: &Manager, reason: &str) -> (u16, Value) {
    let body = json!({ "place": "box1/2", "reason": reason });
    manager.request("POST", "/v1/holds", Some(&body))
}

/// Holds a slot back and lets it go again, with much to be written, until that is refused.
fn write_until_refused(manager: &Manager) -> Value {
    let reason = "x".repeat(200);
    for round in 0..4000 {
        let (status, answer) = match round % 2 {
            0 => hold(manager, &reason),
            _ => manager.request("DELETE", "/v1/holds?place=box1/2", None),
        };
        if status >= 500 {
            return answer;
        }
        assert!(status < 300, "{status}: {answer}");
    }
    panic!("the store never was full");
}

fn healthy(manager: &Manager) {
    eventually("a store that can be written", || {
        (manager.get("/v1/healthz")["status"] == "ok").then_some(())
    });
}

#[test]
fn a_full_disk_refuses_changes_and_is_used_again_when_it_has_room() {
    let mut manager = Manager::start();
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 4), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1", "--reason", "before"]);
    assert_eq!(manager.get("/v1/healthz").get("store_trouble"), None);

    // Nothing can be written but the first page: a write fails in its middle.
    limit(&manager, Some(4096));
    let (code, problem) = manager.failure(&["allocate", "--host", "host1", "--reason", "refused"]);
    assert_eq!((code, &problem["code"]), (8, &json!("store-failed")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("store.redb"), "{problem}");
    let health = manager.get("/v1/healthz");
    assert_eq!(health["status"], "store-failed");
    assert!(health["store_trouble"]["reason"].as_str().unwrap().contains("store.redb"), "{health}");
    // What changes nothing goes on, and proxies stay.
    assert_eq!(allocations(&manager), ["before"]);
    assert_eq!(manager.get("/v1/slots?status=free")["items"].as_array().unwrap().len(), 3);
    assert_eq!(manager.get("/v1/nodes/box1")["connection"]["ready"], true);
    limit(&manager, None);
    healthy(&manager);
    manager.wait_event("store-recovered", "since");
    assert_eq!(manager.get("/v1/healthz").get("store_trouble"), None);
    // Who asked for what was refused is told when it can be.
    let entry = eventually("the refusal's entry", || {
        let page = manager.get("/v1/audit");
        let entries = page["items"].as_array().unwrap();
        entries.iter().find(|entry| entry["problem"] == "store-failed").cloned()
    });
    assert_eq!(entry["path"], "/v1/allocations");
    assert!(entry["what"].as_str().unwrap().contains("host1"), "{entry}");
    manager.text(&["allocate", "--host", "host1", "--reason", "after"]);
    assert_eq!(allocations(&manager), ["before", "after"]);

    // It fills up: the file cannot grow.
    let size = std::fs::metadata(manager.path("store.redb")).unwrap().len();
    limit(&manager, Some(size));
    assert_eq!(write_until_refused(&manager)["code"], "store-failed");
    limit(&manager, None);
    healthy(&manager);
    manager.text(&["allocate", "--host", "host1", "--reason", "at last"]);

    // All of it is on the disk, and nothing else is.
    drop((at_host, at_box));
    manager.kill();
    manager.text(&["store", "check", "--store", "store.redb"]);
    manager.run();
    assert_eq!(allocations(&manager), ["before", "after", "at last"]);
    assert!(manager.has_event("store-recovered", "since"));
}

#[test]
fn what_a_full_disk_refused_is_not_there_after_a_crash() {
    let mut manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 4), "");
    let _box = Fake::join(manager.control, boxed("box1", 4), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1", "--reason", "before"]);
    limit(&manager, Some(4096));
    manager.failure(&["allocate", "--host", "host1", "--reason", "refused"]);
    manager.kill();
    manager.run();
    assert_eq!(allocations(&manager), ["before"]);
    assert_eq!(manager.get("/v1/healthz")["status"], "ok");
}

/// Another manager may have the store while the first one cannot write it; the first does not write
/// over what the other one did.
#[test]
fn a_store_that_another_manager_had_meanwhile_is_left_alone() {
    let mut manager = Manager::start();
    let _box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["box1"]);
    manager.terminate();
    let later = std::fs::read(manager.path("store.redb")).unwrap();
    manager.run();
    limit(&manager, Some(4096));
    assert_eq!(hold(&manager, "x").1["code"], "store-failed");
    // As if it had been moved away and another one put in its place.
    std::fs::write(manager.path("other.redb"), later).unwrap();
    std::fs::rename(manager.path("other.redb"), manager.path("store.redb")).unwrap();
    let before = std::fs::read(manager.path("store.redb")).unwrap();
    limit(&manager, None);
    eventually("to be refused", || {
        let health = manager.get("/v1/healthz");
        let reason = health["store_trouble"]["reason"].as_str().unwrap_or_default();
        reason.contains("another manager").then_some(())
    });
    // Nor later, when it tries again.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(manager.get("/v1/healthz")["status"], "store-failed");
    assert!(std::fs::read(manager.path("store.redb")).unwrap() == before, "it was written");
}

const NODES: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("nodes");
const ALLOCATIONS: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("allocations");
const EPOCHS: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("epochs");
const META: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("meta");

fn put(
    manager: &Manager,
    table: redb::TableDefinition<&'static [u8], &'static [u8]>,
    key: &[u8],
    value: &[u8],
) {
    let database = redb::Database::open(manager.path("store.redb")).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(table).unwrap().insert(key, value).unwrap();
    write.commit().unwrap();
}

/// `store check`: exit code, standard output, standard error.
pub fn check(manager: &Manager, options: &[&str]) -> (i32, String, String) {
    let output = manager.cli(&[&["store", "check", "--store", "store.redb"], options].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

pub fn left(manager: &Manager) -> Vec<String> {
    let files = std::fs::read_dir(manager.folder.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("store.redb")).collect();
    names.sort();
    names
}

#[test]
fn a_check_names_every_record_that_does_not_read_and_takes_them_out() {
    let mut manager = Manager::start();
    let (code, _, error) = check(&manager, &["--repair"]);
    assert!(code == 8 && error.contains("in use"), "{code}: {error}");
    let at_host = Fake::join(manager.control, host("host1", 2), "");
    let at_box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1", "--reason", "lost"]);
    manager.terminate();
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 0 && text.contains("all of which read"), "{text}");

    put(&manager, NODES, b"box9", b"{\"name\":\"box9\"}");
    put(&manager, ALLOCATIONS, &1_u64.to_be_bytes(), b"\xff\xfe");
    let before = std::fs::read(manager.path("store.redb")).unwrap();
    let (code, text, error) = check(&manager, &[]);
    assert_eq!(code, 8, "{text}");
    for named in
        ["table nodes, key box9: ", "table allocations, key 1: ", "table bindings, key 1: "]
    {
        assert!(text.contains(named), "{named}: {text}");
    }
    assert!(error.contains("--repair"), "{error}");
    assert!(std::fs::read(manager.path("store.redb")).unwrap() == before, "it only looked");
    assert_eq!(left(&manager), ["store.redb"]);

    let (code, text, error) = check(&manager, &["--repair"]);
    assert_eq!(code, 0, "{text}{error}");
    let kept = ["store.redb", "store.redb.damaged-1", "store.redb.damaged-1.json"];
    assert_eq!(left(&manager), kept);
    assert!(std::fs::read(manager.path("store.redb.damaged-1")).unwrap() == before, "it is kept");
    let taken = std::fs::read(manager.path("store.redb.damaged-1.json")).unwrap();
    let taken: Value = serde_json::from_slice(&taken).unwrap();
    assert_eq!(taken.as_array().unwrap().len(), 3);
    assert_eq!(taken[0]["text"], "{\"name\":\"box9\"}");
    assert_eq!(taken[1]["value_hex"], "fffe");
    let (code, text, _) = check(&manager, &["--repair"]);
    assert!(code == 0 && text.contains("all of which read"), "{text}");
    assert_eq!(left(&manager), kept, "there was nothing to repair");

    // The manager runs on it, and takes back what no record knows any more.
    let bound = at_box.bound(1).unwrap().epoch;
    manager.run();
    assert_eq!(manager.get("/v1/healthz")["generation"], 1, "epochs that were lost are left out");
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    let _at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    manager.wait_ready(&["host1", "box1"]);
    eventually("a clean table", || at_box.bound(1).is_none().then_some(()));
    manager.wait_slot("box1/1", "free");
    manager.text(&["allocate", "--host", "host1"]);
    assert!(at_box.bound(1).unwrap().epoch > bound);
}

#[test]
fn counters_are_never_taken_out() {
    let mut manager = Manager::start();
    manager.terminate();
    put(&manager, META, b"meta", b"{\"schema\":2}");
    put(&manager, NODES, b"box9", b"nonsense");
    let before = std::fs::read(manager.path("store.redb")).unwrap();
    let (code, text, error) = check(&manager, &["--repair"]);
    assert_eq!(code, 8, "{text}");
    assert!(text.contains("table meta, key meta: missing field"), "{text}");
    assert!(error.contains("cannot be repaired") && error.contains("restore"), "{error}");
    assert!(std::fs::read(manager.path("store.redb")).unwrap() == before);
    assert_eq!(left(&manager), ["store.redb"]);
    // And none of a later version is judged.
    put(&manager, META, b"meta", b"{\"schema\":4}");
    let (code, _, error) = check(&manager, &["--repair"]);
    assert!(code == 8 && error.contains("schema version 4"), "{error}");
}

/// All records, by table and key.
type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// The tables and the records that a store's bytes have.
fn contents(bytes: &[u8]) -> (Vec<String>, Contents) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let read = redb::Database::open(file.path()).unwrap().begin_read().unwrap();
    let tables: Vec<_> = read.list_tables().unwrap().map(|t| t.name().to_owned()).collect();
    let mut records = Contents::new();
    for name in &tables {
        let table = redb::TableDefinition::<&[u8], &[u8]>::new(name);
        for entry in read.open_table(table).unwrap().iter().unwrap() {
            let (key, value) = entry.unwrap();
            records.insert((name.clone(), key.value().to_vec()), value.value().to_vec());
        }
    }
    (tables, records)
}

/// The store was repaired: each record is as it was, or it, or its table, is named; none is there
/// that was not; and no counter went back.
fn nothing_is_lost_in_silence(manager: &Manager, good: &Contents, what: &str) {
    let taken = std::fs::read(manager.path("store.redb.damaged-1.json")).unwrap();
    let taken: Vec<Value> = serde_json::from_slice(&taken).unwrap();
    let now = contents(&std::fs::read(manager.path("store.redb")).unwrap()).1;
    let counters = |of: &Contents| -> Value {
        serde_json::from_slice(&of[&("meta".to_owned(), b"meta".to_vec())]).unwrap()
    };
    let (before, after) = (counters(good), counters(&now));
    for (name, count) in before.as_object().unwrap() {
        assert!(after[name].as_u64() >= count.as_u64(), "{what}: {name} {before} {after}");
    }
    assert_eq!(after["generation"], 1, "{what}");
    let is_named = |table: &str, key: &[u8]| {
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        taken.iter().any(|named| {
            named["table"] == *table && (named["key"].is_null() || named["key_hex"] == *key)
        })
    };
    for ((table, key), value) in good.iter().filter(|((table, _), _)| table != "meta") {
        let same = now.get(&(table.clone(), key.clone())) == Some(value);
        let key_text = String::from_utf8_lossy(key);
        assert!(same || is_named(table, key), "{what}: {table} {key_text}: {taken:?}");
    }
    for record in now.keys() {
        assert!(good.contains_key(record), "{what}: {record:?}");
    }
}

/// Wherever the damage is, it is named or does no harm; nothing panics, and the store is not
/// touched.
#[test]
fn damaged_pages_are_noticed() {
    let mut manager = Manager::start();
    let _box = Fake::join(manager.control, boxed("box1", 4), "nvme");
    manager.wait_ready(&["box1"]);
    manager.terminate();
    let good = std::fs::read(manager.path("store.redb")).unwrap();
    let records = contents(&good).1;
    let mut found = 0;
    for page in 0..good.len() / 4096 {
        let mut bytes = good.clone();
        if bytes[page * 4096..][..4096].iter().all(|byte| *byte == 0) {
            continue;
        }
        bytes[page * 4096 + 40..][..200].fill(0xa5);
        std::fs::write(manager.path("store.redb"), &bytes).unwrap();
        let (code, text, error) = check(&manager, &[]);
        assert!(matches!(code, 0 | 8), "page {page}: {code} {text} {error}");
        found += usize::from(code == 8);
        if code == 0 {
            assert!(contents(&bytes).1 == records, "page {page} was of use");
        }
        assert!(std::fs::read(manager.path("store.redb")).unwrap() == bytes, "page {page}");
        assert_eq!(left(&manager), ["store.redb"], "page {page}");
    }
    assert!(found > 0);
}

/// What `serve` says of the store that it does not start with.
fn refused(manager: &Manager) -> String {
    let serve = ["serve", "--store", "store.redb", "--listen", "127.0.0.1:0"];
    let output = manager.cli(&[&serve[..], &["--control", "127.0.0.1:0"]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(8), "{error}");
    error
}

/// A manager that was stopped with a device lent, and its store's bytes.
fn lent_and_stopped() -> (Manager, Vec<u8>) {
    let mut manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 2), "");
    let _box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1", "--reason", "training"]);
    assert!(manager.terminate().success());
    let bytes = std::fs::read(manager.path("store.redb")).unwrap();
    (manager, bytes)
}

pub fn places(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let all = bytes.windows(what.len()).enumerate();
    all.filter(|(_, window)| *window == what).map(|(place, _)| place).collect()
}

/// A byte that changed in a record that still reads is not served as what was written.
#[test]
fn records_whose_bytes_changed_are_not_served() {
    let (mut manager, mut bytes) = lent_and_stopped();
    let changed = places(&bytes, br#""host":"host1""#);
    assert!(changed.len() > 1);
    for place in changed {
        bytes[place + 12] = b'7';
    }
    std::fs::write(manager.path("store.redb"), &bytes).unwrap();
    // It stays so, whoever looks.
    for _ in 0..2 {
        let error = refused(&manager);
        for said in ["store.redb", "not as they were written", "restore", "store check --repair"] {
            assert!(error.contains(said), "{said}: {error}");
        }
        let (code, text, error) = check(&manager, &[]);
        assert!(code == 8 && text.contains("not as they were written"), "{code} {text}");
        assert!(error.contains("restore") && error.contains("--repair"), "{error}");
    }
    let (code, problem) =
        manager.failure(&["restore", "--from", "store.redb", "--store", "new.redb"]);
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        code == 8 && detail.contains("the backup store.redb cannot be restored (its pages"),
        "{problem}"
    );
    assert!(!manager.path("new.redb").exists() && !manager.path("new.redb.restoring").exists());
    assert!(std::fs::read(manager.path("store.redb")).unwrap() == bytes, "nobody wrote it");
    assert_eq!(left(&manager), ["store.redb"]);

    let (code, text, error) = check(&manager, &["--repair"]);
    assert!(code == 0 && text.contains("may have changed"), "{code} {text} {error}");
    assert!(std::fs::read(manager.path("store.redb.damaged-1")).unwrap() == bytes, "it is kept");
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 0 && text.contains("all of which read"), "{text}");
    manager.run();
    assert_eq!(allocations(&manager), ["training"], "what reads is there");
    assert_eq!(manager.get("/v1/healthz")["generation"], 1);
}

/// Of a page with damage the records that do not read are named, and the others are kept.
#[test]
fn records_in_damaged_pages_are_named_and_taken_out() {
    let (mut manager, mut bytes) = lent_and_stopped();
    for place in places(&bytes, br#"{"name":"box1""#) {
        bytes[place..][..64].iter_mut().for_each(|byte| *byte = !*byte);
    }
    std::fs::write(manager.path("store.redb"), &bytes).unwrap();
    assert!(refused(&manager).contains("store check --repair"));
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 8 && text.contains("table nodes, key box1: "), "{code} {text}");
    assert!(!text.contains("key host1: "), "{text}");
    assert_eq!(left(&manager), ["store.redb"]);
    let (code, text, error) = check(&manager, &["--repair"]);
    assert_eq!(code, 0, "{text} {error}");
    let taken = std::fs::read(manager.path("store.redb.damaged-1.json")).unwrap();
    let taken: Value = serde_json::from_slice(&taken).unwrap();
    assert_eq!((&taken[0]["table"], &taken[0]["key"]), (&json!("nodes"), &json!("box1")));
    manager.run();
    let nodes = manager.get("/v1/nodes")["items"].as_array().unwrap().clone();
    assert_eq!(nodes.iter().map(|node| &node["name"]).collect::<Vec<_>>(), ["host1"]);
    assert_eq!(allocations(&manager), ["training"]);
}

/// A record that stands under the key of another would come back whenever it is taken out.
#[test]
fn a_record_under_a_key_that_is_not_its_own_is_taken_out() {
    let mut manager = Manager::start();
    for place in ["path:1", "path:2"] {
        let body = json!({ "place": place, "reason": "cable" });
        assert!(manager.request("POST", "/v1/holds", Some(&body)).0 < 300);
    }
    assert!(manager.terminate().success());
    let mut bytes = std::fs::read(manager.path("store.redb")).unwrap();
    let keys = places(&bytes, br#"path:1path:2{"place":"path:1""#);
    assert!(!keys.is_empty());
    for key in keys {
        bytes[key + 11] = b'5';
    }
    std::fs::write(manager.path("store.redb"), &bytes).unwrap();
    let named = "table holds, key path:5: what stands there is of the key path:2";
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 8 && text.contains(named), "{code} {text}");
    let (code, text, error) = check(&manager, &["--repair"]);
    assert!(code == 0 && text.contains(named), "{code} {text} {error}");
    manager.run();
    let held = || {
        let holds = manager.get("/v1/holds")["items"].as_array().unwrap().clone();
        holds.iter().map(|hold| hold["place"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(held(), ["path:1"]);
    assert!(manager.request("DELETE", "/v1/holds?place=path:1", None).0 < 300);
    manager.kill();
    manager.run();
    let holds = manager.get("/v1/holds");
    assert_eq!(holds["items"], json!([]), "what was let go stays so");
}

/// A table that is lost in the list of tables is not taken for one in which nothing is.
#[test]
fn a_table_that_is_lost_is_named() {
    let (mut manager, _) = lent_and_stopped();
    manager.run();
    assert!(hold(&manager, "cable").0 < 300);
    assert!(manager.terminate().success());
    let good = std::fs::read(manager.path("store.redb")).unwrap();
    let (tables, records) = contents(&good);
    assert!(tables.contains(&"holds".to_owned()) && tables.is_sorted(), "{tables:?}");
    let lists = places(&good, tables.concat().as_bytes());
    assert!(!lists.is_empty());
    let mut end = 0;
    for table in &tables {
        end += table.len();
        let mut bytes = good.clone();
        for list in &lists {
            bytes[list + end - 1] = b'z';
        }
        std::fs::write(manager.path("store.redb"), &bytes).unwrap();
        let (code, text, error) = check(&manager, &["--repair"]);
        let named = format!("table {table}: ");
        assert!(text.contains(&named) && text.contains("z\" is wrong"), "{table}: {text}{error}");
        if table == "meta" {
            assert!(code == 8 && error.contains("cannot be repaired"), "{code} {text} {error}");
        } else {
            assert_eq!(code, 0, "{table}: {text} {error}");
            nothing_is_lost_in_silence(&manager, &records, table);
        }
        for file in left(&manager) {
            std::fs::remove_file(manager.path(&file)).unwrap();
        }
    }
}

/// A box that was in a pool of a later generation is no reason to refuse a repair: what is repaired
/// begins above that one.
#[test]
fn a_box_from_a_pool_of_a_later_generation_does_not_stand_in_the_way_of_a_repair() {
    let (mut manager, _) = lent_and_stopped();
    let highest = serde_json::to_value(Epoch::new(7, 5).unwrap()).unwrap();
    let record = json!({ "address": { "slot": "box2/1", "function": 0 }, "highest": highest });
    put(&manager, EPOCHS, b"box2/1.0", record.to_string().as_bytes());
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 0 && !text.contains("generation"), "it is whole: {code} {text}");
    let mut bytes = std::fs::read(manager.path("store.redb")).unwrap();
    for place in places(&bytes, br#"{"name":"box1""#) {
        bytes[place..][..64].iter_mut().for_each(|byte| *byte = !*byte);
    }
    std::fs::write(manager.path("store.redb"), &bytes).unwrap();
    let (code, text, error) = check(&manager, &[]);
    let said = "its generation is 0, but there is an epoch of generation 7";
    assert!(code == 8 && text.contains(said), "{code} {text} {error}");
    assert!(text.contains("a repair begins generation 8"), "{text}");
    let (code, text, error) = check(&manager, &["--repair"]);
    assert!(code == 0 && text.contains("it begins generation 8"), "{code} {text} {error}");
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 0 && text.contains("all of which read"), "{text}");
    manager.run();
    assert_eq!(manager.get("/v1/healthz")["generation"], 8);
}

/// Counters that read, and would give out again what was given out, are not repaired.
#[test]
fn counters_that_went_back_are_not_believed() {
    let (manager, mut bytes) = lent_and_stopped();
    let changed = places(&bytes, br#""next_operation":2"#);
    assert!(!changed.is_empty());
    for place in changed {
        bytes[place + 17] = b'1';
    }
    std::fs::write(manager.path("store.redb"), &bytes).unwrap();
    let (code, text, error) = check(&manager, &["--repair"]);
    let named = "table meta, key meta: next_operation is 1, but number 1 is in operations";
    assert!(code == 8 && text.contains(named), "{code} {text}");
    assert!(error.contains("cannot be repaired") && error.contains("restore"), "{error}");
    assert!(std::fs::read(manager.path("store.redb")).unwrap() == bytes);
    assert_eq!(left(&manager), ["store.redb"]);
}

/// Wherever 64 bytes are damaged: what is said of it leads to a store that is whole, or to a backup,
/// and what is lost is named.
#[test]
fn what_is_said_of_damage_works() {
    let (manager, good) = lent_and_stopped();
    let records = contents(&good).1;
    let mut repaired = 0;
    for page in 0..good.len() / 4096 {
        let mut bytes = good.clone();
        if bytes[page * 4096..][..4096].iter().all(|byte| *byte == 0) {
            continue;
        }
        // Where its records begin and end: what they hold is not lost, and not found.
        bytes[page * 4096 + 8..][..64].iter_mut().for_each(|byte| *byte = !*byte);
        std::fs::write(manager.path("store.redb"), &bytes).unwrap();
        let (code, text, error) = check(&manager, &["--repair"]);
        if code == 0 && !text.contains("repaired") {
            assert!(contents(&bytes).1 == records, "page {page} was of use");
            continue;
        }
        assert!(code == 0 || code == 8 && error.contains("restore"), "page {page}: {error}");
        if code == 0 {
            repaired += 1;
            nothing_is_lost_in_silence(&manager, &records, &format!("page {page}"));
            let (code, text, error) = check(&manager, &[]);
            assert_eq!(code, 0, "page {page}: {text} {error}");
        }
        for file in left(&manager) {
            std::fs::remove_file(manager.path(&file)).unwrap();
        }
    }
    assert!(repaired > 0);
}

/// An ordinary user; the superuser may write any file.
const NOBODY: u32 = 65534;

#[test]
fn a_read_only_store_is_named() {
    let mut manager = Manager::start();
    manager.terminate();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&manager.path("store.redb"), 0o444);
    let mut command = manager.command();
    if rustix::process::geteuid().is_root() {
        mode(manager.folder.path(), 0o777);
        command.uid(NOBODY).gid(NOBODY);
    }
    command.args(["serve", "--store", "store.redb", "--listen", "127.0.0.1:0"]);
    let output = match command.args(["--control", "127.0.0.1:0"]).output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return eprintln!("SKIPPED: an ordinary user cannot start the program: {error}");
        }
        output => output.unwrap(),
    };
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(11), "{error}");
    assert!(
        error.contains("store.redb") && error.contains("read and written by this user"),
        "{error}"
    );
    // To look at it, it need not be written.
    let (code, text, _) = check(&manager, &[]);
    assert!(code == 0 && text.contains("all of which read"), "{text}");
    let database = redb::Database::open(manager.path("store.redb"));
    let read = database.unwrap().begin_read().unwrap();
    assert!(read.open_table(META).unwrap().first().unwrap().is_some());
}
