//! The store's file: in use, damaged, put back.

use crate::common::fake::{Fake, boxed, host};
use crate::common::{Manager, eventually};
use redb::{ReadableDatabase, ReadableTable};
use std::io::Read;
use std::path::Path;
use tlp_codec::ids::Epoch;

/// Starts a second manager on a store and gives its exit code and what it said.
fn serve_on(manager: &Manager, store: &str) -> (Option<i32>, String) {
    let addresses = ["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    let output = manager.cli(&[&["serve", "--store", store][..], &addresses].concat());
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_store_has_one_manager() {
    let manager = Manager::start();
    let (code, error) = serve_on(&manager, "store.redb");
    assert_eq!(code, Some(11), "{error}");
    assert!(error.contains("store.redb") && error.contains("in use"), "{error}");
    let output = manager.cli(&["restore", "--from", "store.redb", "--store", "store.redb"]);
    assert_eq!(output.status.code(), Some(8));
}

#[test]
fn damaged_stores_are_named_and_left_as_they_are() {
    let mut manager = Manager::start();
    manager.terminate();
    let good = std::fs::read(manager.path("store.redb")).unwrap();
    let mut header = good.clone();
    header[..64].fill(0xa5);
    let mut middle = good.clone();
    let quarter = good.len() / 4;
    middle[64..3 * quarter].fill(0xa5);
    let cases: [(&str, Vec<u8>); 5] = [
        ("empty", Vec::new()),
        ("text", b"this is no store\n".repeat(1000)),
        ("header", header),
        ("middle", middle),
        ("short", good[..good.len() / 3].to_vec()),
    ];
    for (name, bytes) in cases {
        let file = format!("{name}.redb");
        std::fs::write(manager.path(&file), &bytes).unwrap();
        let (code, error) = serve_on(&manager, &file);
        assert_eq!(code, Some(8), "{name}: {error}");
        assert!(error.contains(&file), "{name}: {error}");
        assert!(error.contains("restore") || error.contains("check that"), "{name}: {error}");
        assert!(!error.contains("panicked"), "{name}: {error}");
    }
}

#[test]
fn unreadable_places_are_named() {
    let manager = Manager::start();
    let (code, error) = serve_on(&manager, "no/such/folder/store.redb");
    assert_eq!(code, Some(11), "{error}");
    assert!(error.contains("no/such/folder") && error.contains("folder exists"), "{error}");
    std::fs::create_dir(manager.path("folder.redb")).unwrap();
    let (code, error) = serve_on(&manager, "folder.redb");
    assert_eq!(code, Some(11), "{error}");
    let output = manager.cli(&["restore", "--from", "missing.redb", "--store", "new.redb"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(8));
    assert!(error.contains("missing.redb"), "{error}");
}

const NODES: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("nodes");
const META: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("meta");

#[test]
fn a_record_that_does_not_read_is_named() {
    let mut manager = Manager::start();
    let _box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.terminate();
    let database = redb::Database::open(manager.path("store.redb")).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(NODES).unwrap().insert(&b"box1"[..], &b"{\"name\":\"box1\"}"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let (code, error) = serve_on(&manager, "store.redb");
    assert_eq!(code, Some(8));
    assert!(error.contains("table nodes, key box1"), "{error}");
}

#[test]
fn a_later_schema_is_left_alone() {
    let mut manager = Manager::start();
    manager.terminate();
    let database = redb::Database::open(manager.path("store.redb")).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(META).unwrap().insert(&b"meta"[..], &b"{\"schema\":4}"[..]).unwrap();
    write.commit().unwrap();
    drop(database);
    let (code, error) = serve_on(&manager, "store.redb");
    assert_eq!(code, Some(8));
    assert!(error.contains("schema version 4"), "{error}");
    let database = redb::Database::open(manager.path("store.redb")).unwrap();
    let read = database.begin_read().unwrap();
    let meta = read.open_table(META).unwrap();
    let (_, value) = meta.first().unwrap().unwrap();
    assert_eq!(value.value(), b"{\"schema\":4}");
}

#[test]
fn a_restored_store_gives_out_nothing_twice() {
    let mut manager = Manager::start();
    let join = |manager: &Manager| {
        let at_host = Fake::join(manager.control, host("host1", 2), "");
        let at_box = Fake::join(manager.control, boxed("box1", 2), "nvme");
        manager.wait_ready(&["host1", "box1"]);
        (at_host, at_box)
    };
    let (at_host, at_box) = join(&manager);
    assert!(manager.terminate().success());
    std::fs::copy(manager.path("store.redb"), manager.path("backup.redb")).unwrap();
    manager.run();
    // After the backup: an allocation and a new proxy.
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    let at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1"]);
    let newcomer = Fake::join(manager.control, host("host2", 1), "").welcome.node;
    let last_event = manager.get("/v1/events?limit=1")["items"][0]["sequence"].as_u64().unwrap();
    assert!(manager.terminate().success());

    let text = manager.text(&["restore", "--from", "backup.redb", "--store", "store.redb"]);
    assert!(text.contains("restored"));
    assert!(manager.path("store.redb.before").exists(), "the old one is kept");
    manager.run();
    let other = Fake::join(manager.control, host("host3", 1), "").welcome.node;
    assert!(other > newcomer, "{other} was not given out before");
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    // The proxies obeyed a later term than the backup knows: one restart takes them over.
    let taken = Fake::connect(manager.control, box_again.0.clone(), box_again.1.clone());
    if taken.is_err() {
        assert!(manager.terminate().success());
        manager.run();
    }
    drop(taken);
    let at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    manager.wait_ready(&["host1", "box1"]);
    // The allocation is not in the backup: it is taken out of the tables.
    eventually("clean tables", || {
        (at_box.bound(1).is_none() && at_host.with(|s| s.ports.is_empty())).then_some(())
    });
    manager.wait_slot("box1/1", "free");
    let lent = manager.json(&["allocate", "--host", "host1"]);
    assert_ne!(lent["id"], "alloc-1");
    assert!(at_box.bound(1).unwrap().epoch > Epoch::new(0, Epoch::MAX_COUNTER).unwrap());
    let event = manager.get("/v1/events?limit=1")["items"][0]["sequence"].as_u64().unwrap();
    assert!(event > last_event + 1000, "event numbers went on above what may have been used");

    // The same backup once more: the store that makes way knows what has been given out since.
    let (first_term, first_id) = (manager.term, lent["id"].as_str().unwrap().to_owned());
    manager.kill();
    manager.text(&["restore", "--from", "backup.redb", "--store", "store.redb"]);
    manager.run();
    assert!(manager.term > first_term);
    let (host_again, box_again) = (at_host.leave(), at_box.leave());
    let at_host = Fake::insist(manager.control, host_again.0, host_again.1);
    let at_box = Fake::insist(manager.control, box_again.0, box_again.1);
    manager.wait_ready(&["host1", "box1"]);
    eventually("clean tables", || {
        (at_box.bound(1).is_none() && at_host.with(|s| s.ports.is_empty())).then_some(())
    });
    manager.wait_slot("box1/1", "free");
    let node = Fake::join(manager.control, host("host4", 1), "").welcome.node;
    assert!(node > other, "{node} was not given out before");
    let again = manager.json(&["allocate", "--host", "host1"]);
    let number = |id: &str| id.strip_prefix("alloc-").unwrap().parse::<u64>().unwrap();
    assert!(number(again["id"].as_str().unwrap()) > number(&first_id), "{again}");
    let again = manager.get("/v1/events?limit=1")["items"][0]["sequence"].as_u64().unwrap();
    assert!(again > event + 1000, "{again}");
}

/// A store of schema version 1, made by the manager of before version 2 with a real host and box:
/// one device is lent, another was and came back.
const SCHEMA_1: &[u8] = include_bytes!("../stores/schema-1.redb.gz");

#[test]
fn a_store_of_the_first_version_is_brought_up_and_kept_as_it_was() {
    let mut manager = Manager::start();
    manager.terminate();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(SCHEMA_1).read_to_end(&mut bytes).unwrap();
    std::fs::write(manager.path("store.redb"), &bytes).unwrap();
    manager.run();
    let allocation = manager.get("/v1/allocations/alloc-1");
    assert_eq!(allocation["reason"], "training run 7");
    assert_eq!(allocation["link"]["weight"], 2);
    assert_eq!(manager.get("/v1/nodes/box-a")["node"], 1);
    assert_eq!(manager.get("/v1/operations/op-3")["state"], "succeeded");
    assert_eq!(manager.get("/v1/events?since=30&limit=1")["items"][0]["sequence"], 30);
    // Keys of requests stand for what they stood for.
    let operations = manager.get("/v1/operations")["items"].as_array().unwrap().clone();
    assert!(operations.iter().all(|operation| operation.get("client_request").is_none()));
    let keyed = operations.iter().filter(|o| o["client_key"].is_string()).count();
    let (_, metrics) = manager.raw("GET", "/metrics", &[], None);
    assert!(metrics.contains(&format!("\ndxpu_idempotency_keys {keyed}\n")), "{metrics}");
    let kept = manager.path("store.redb.schema-1");
    let database = redb::Database::open(&kept).unwrap();
    let meta = database.begin_read().unwrap().open_table(META).unwrap();
    let (_, value) = meta.first().unwrap().unwrap();
    assert!(String::from_utf8_lossy(value.value()).contains("\"schema\":1,"));
    // Once is enough.
    std::fs::remove_file(&kept).unwrap();
    manager.terminate();
    manager.run();
    assert!(!kept.exists());
}

/// The records are where there is room for them, and so is what is made of them.
#[test]
fn a_store_that_is_a_link_stays_one() {
    let mut manager = Manager::start();
    manager.terminate();
    let data = manager.path("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::rename(manager.path("store.redb"), data.join("manager.redb")).unwrap();
    for (link, to) in [("store.redb", "data/manager.redb"), ("backup.redb", "data/backup.redb")] {
        std::os::unix::fs::symlink(to, manager.path(link)).unwrap();
    }
    let is_file = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|file| file.is_file());
    let links = |manager: &Manager| {
        assert!(
            manager.path("store.redb").is_symlink() && manager.path("backup.redb").is_symlink()
        );
        let files = std::fs::read_dir(manager.folder.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.contains(".redb")).collect();
        names.sort();
        assert_eq!(names, ["backup.redb", "store.redb"]);
    };
    manager.run();
    manager.text(&["maintain", "path:1", "--on", "--reason", "cable"]);
    manager.text(&["backup", "--out", "backup.redb"]);
    links(&manager);
    manager.text(&["maintain", "path:2", "--on", "--reason", "cable"]);
    manager.terminate();
    let before = std::fs::read(data.join("manager.redb")).unwrap();
    let text = manager.text(&["restore", "--from", "backup.redb", "--store", "store.redb"]);
    assert!(text.contains("before is data/manager.redb.before"), "{text}");
    links(&manager);
    let kept = data.join("manager.redb.before");
    assert!(is_file(&kept) && std::fs::read(&kept).unwrap() == before);
    manager.text(&["store", "check", "--store", "store.redb"]);
    manager.run();
    let holds = manager.get("/v1/holds")["items"].as_array().unwrap().clone();
    assert_eq!(holds.iter().map(|hold| &hold["place"]).collect::<Vec<_>>(), ["path:1"]);
    manager.kill();

    // Nobody asks for it: the last write is not there.
    let mut bytes = std::fs::read(data.join("manager.redb")).unwrap();
    let last = if bytes[9] & 1 == 0 { 64 } else { 192 };
    bytes[last + 8] ^= 1;
    std::fs::write(data.join("manager.redb"), &bytes).unwrap();
    manager.run();
    links(&manager);
    let kept = data.join("manager.redb.before.1");
    assert!(is_file(&kept) && std::fs::read(&kept).unwrap() == bytes);
    // Nor is one that is not there yet made in the place of the link.
    manager.terminate();
    std::fs::remove_file(data.join("manager.redb")).unwrap();
    manager.text(&["restore", "--from", "backup.redb", "--store", "store.redb"]);
    links(&manager);
    assert!(is_file(&data.join("manager.redb")));
}

#[test]
fn a_backup_is_made_while_everything_goes_on_and_can_be_restored() {
    let mut manager = Manager::start();
    let at_host = Fake::join(manager.control, host("host1", 2), "");
    let at_box = Fake::join(manager.control, boxed("box1", 2), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    manager.text(&["allocate", "--host", "host1", "--reason", "before"]);
    let said = manager.json(&["backup", "--out", "pool.backup"]);
    let size = std::fs::metadata(manager.path("pool.backup")).unwrap().len();
    assert_eq!(said["bytes"], size);
    manager.text(&["allocate", "--host", "host1", "--reason", "after"]);
    // Nothing is left beside the store or the backup.
    for left in ["store.redb.backup", "pool.backup.new"] {
        assert!(!manager.path(left).exists(), "{left}");
    }
    drop((at_host, at_box));
    manager.terminate();
    manager.text(&["restore", "--from", "pool.backup", "--store", "store.redb"]);
    manager.run();
    let list = manager.get("/v1/allocations");
    let reasons: Vec<_> = list["items"].as_array().unwrap().iter().map(|a| &a["reason"]).collect();
    assert_eq!(reasons, ["before"]);
    assert_eq!(manager.get("/v1/healthz")["generation"], 1);
    let (code, problem) = manager.failure(&["backup", "--out", "nowhere/pool.backup"]);
    // It is a file of who asked, and no store.
    assert_eq!(code, 2);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("nowhere/pool.backup cannot be written: "), "{problem}");
}
