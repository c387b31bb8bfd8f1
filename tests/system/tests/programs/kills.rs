//! Programs that are killed while they are needed.

use crate::harness::{
    ACCELERATOR, Daemon, NVME, Pool, end, items, noise, text, wait_event, wait_for,
};
use serde_json::Value;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Longer than any bound after which a host gives a dead device up.
const GIVES_UP: Duration = Duration::from_secs(60);

/// Releases everything, by force, and waits until all slots are free.
fn free_all(pool: &Pool) {
    wait_for("all slots to be free", || {
        for slot in items(&pool.manager_json(&["list", "--used"])) {
            let slot = slot["slot"].as_str().expect("a name");
            pool.manager(&["release", "--force", slot]);
        }
        let list = pool.manager_json(&["list"]);
        items(&list).iter().all(|slot| slot["status"] == "free").then_some(())
    });
}

fn two_boxes(pool: &Pool) -> [Daemon; 2] {
    let drive = pool.drive(1, "drive.img");
    [pool.boxed("box-a", &[drive]), pool.boxed("box-b", &["1=accelerator".into()])]
}

const WRITTEN: usize = 15 << 20;

/// A long write from host-1 that is under way for certain: the image has its first bytes.
fn begin_write(pool: &Pool, drive: &str) -> Child {
    std::fs::write(pool.path("file"), noise(WRITTEN)).unwrap();
    let file = pool.argument("file");
    let mut write = pool.host_command("host-1", &["nvme-write", drive, &file, "--depth", "1"]);
    let write = write.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the first bytes on the drive", || {
        use std::io::Read;
        let mut first = [0; 512];
        let mut image = std::fs::File::open(pool.path("drive.img")).unwrap();
        image.read_exact(&mut first).unwrap();
        (first != [0; 512]).then_some(())
    });
    write
}

#[test]
fn a_box_killed_in_a_transfer_takes_nothing_else_with_it() {
    let pool = Pool::new();
    let [box_a, _box_b] = two_boxes(&pool);
    let _host = pool.host("host-1");
    pool.wait_ready(3);
    pool.allocate("host-1", "box-a/1");
    pool.allocate("host-1", "box-b/1");
    let drive = pool.find("host-1", NVME, 1).remove(0);
    let accelerator = pool.find("host-1", ACCELERATOR, 1).remove(0);

    let write = begin_write(&pool, &drive);
    box_a.kill();
    let ended = end(write, GIVES_UP);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(!ended.stderr.is_empty());

    // The other box's device works on, and the manager knows.
    pool.host_json("host-1", &["bandwidth", &accelerator, "--bytes", "65536"]);
    wait_event(&pool, "disconnected", "box-a");
    assert_eq!(pool.slot("box-a/1")["connected"], false);
    wait_for("the host to drop the drive", || {
        let ended = pool.host_run("host-1", &["config-read", &drive, "0"]);
        (ended.code == Some(1)).then_some(())
    });

    let _box_a = pool.boxed("box-a", &[pool.drive(1, "drive.img")]);
    pool.wait_ready(3);
    free_all(&pool);
    pool.allocate("host-1", "box-a/1");
    let drive = pool.find("host-1", NVME, 1).remove(0);
    pool.round_trip("host-1", &drive, 1 << 20);
}

#[test]
fn a_host_killed_in_a_transfer_loses_no_device_for_the_pool() {
    let pool = Pool::new();
    let _boxes = two_boxes(&pool);
    let host = pool.host("host-1");
    pool.wait_ready(3);
    pool.allocate("host-1", "box-a/1");
    pool.allocate("host-1", "box-b/1");
    let drive = pool.find("host-1", NVME, 1).remove(0);
    let write = begin_write(&pool, &drive);
    host.kill();
    let ended = end(write, GIVES_UP);
    assert!(ended.code != Some(0) && !ended.stderr.is_empty(), "{ended:?}");
    wait_event(&pool, "disconnected", "host-1");

    let _host = pool.host("host-1");
    pool.wait_ready(3);
    // What is lent is lent still, and works without a hand's turn.
    let drive = pool.find("host-1", NVME, 1).remove(0);
    pool.round_trip("host-1", &drive, 1 << 20);
    let accelerator = pool.find("host-1", ACCELERATOR, 1).remove(0);
    pool.host_json("host-1", &["bandwidth", &accelerator, "--bytes", "65536"]);

    let released = pool.manager(&["release", "box-a/1", "box-b/1"]);
    assert_eq!(released.code, Some(0), "{released:?}");
    assert_eq!(items(&pool.manager_json(&["list", "--free"])).len(), 2);
    pool.allocate("host-1", "box-a/1");
}

#[test]
fn a_manager_killed_in_a_transfer_leaves_devices_working_and_comes_back_to_them() {
    let mut pool = Pool::new();
    let _boxes = two_boxes(&pool);
    let _host = pool.host("host-1");
    pool.wait_ready(3);
    let lent = pool.allocate("host-1", "box-a/1");
    let drive = pool.find("host-1", NVME, 1).remove(0);
    let before = pool.manager_json(&["list"]);

    let write = begin_write(&pool, &drive);
    pool.manager.take().expect("it runs").kill();
    let ended = end(write, GIVES_UP);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let image = std::fs::read(pool.path("drive.img")).unwrap();
    assert!(image[..WRITTEN] == std::fs::read(pool.path("file")).unwrap(), "all of it is there");
    pool.round_trip("host-1", &drive, 1 << 20);
    let refused = pool.manager(&["list"]);
    refused.fails(6, &["127.0.0.1"]);

    pool.start_manager();
    pool.wait_ready(3);
    assert_eq!(pool.manager_json(&["list"]), before);
    pool.round_trip("host-1", &drive, 1 << 20);
    pool.manager_json(&["release", &lent]);
    assert_eq!(items(&pool.manager_json(&["list", "--free"])).len(), 2);
    let gone = pool.host_run("host-1", &["config-read", &drive, "0"]);
    gone.fails(1, &["Unsupported Request"]);
    pool.allocate("host-1", "box-b/1");
}

#[test]
fn a_box_that_freezes_longer_than_the_link_waits_comes_back_under_a_new_epoch() {
    let pool = Pool::new();
    let frozen = pool.boxed("box-b", &["1=accelerator".into()]);
    let _host = pool.host("host-1");
    pool.wait_ready(2);
    pool.allocate("host-1", "box-b/1");
    let accelerator = pool.find("host-1", ACCELERATOR, 1).remove(0);
    pool.host_json("host-1", &["bandwidth", &accelerator, "--bytes", "65536"]);

    frozen.freeze();
    wait_event(&pool, "link-down", "host-1");
    frozen.thaw();
    wait_event(&pool, "rebinding", "box-b/1");
    let accelerator = pool.find("host-1", ACCELERATOR, 1).remove(0);
    pool.host_json("host-1", &["bandwidth", &accelerator, "--bytes", "65536"]);
    let released = pool.manager(&["release", "box-b/1"]);
    assert_eq!(released.code, Some(0), "{released:?}");
}

/// The host's mapping table entry of a port.
#[track_caller]
fn port(pool: &Pool, host: &str, port: u64) -> Value {
    let table = pool.manager_json(&["tables", "--host", host]);
    let entries = table["entries"].as_array().expect("entries");
    entries.iter().find(|entry| entry["port"] == port).expect("the port").clone()
}

#[test]
fn a_box_that_was_killed_comes_back_under_a_new_epoch_with_its_data() {
    let pool = Pool::new();
    let drive = pool.drive(1, "drive.img");
    let box_a = pool.boxed("box-a", std::slice::from_ref(&drive));
    let _host = pool.host("host-1");
    pool.wait_ready(2);
    let lent = pool.allocate("host-1", "box-a/1");
    let epoch = || {
        let table = pool.manager_json(&["tables", "--box", "box-a"]);
        text(&table, "/entries/0/epoch")
    };
    let function = pool.find("host-1", NVME, 1).remove(0);
    pool.round_trip("host-1", &function, 1 << 20);
    assert_eq!(port(&pool, "host-1", 0)["state"], "present");
    let before = epoch();

    box_a.kill();
    wait_event(&pool, "port-changed", "port 0 is failed");
    // The manager takes what failed out; the slot stays lent.
    wait_for("the port to be empty", || {
        (port(&pool, "host-1", 0)["state"] == "empty").then_some(())
    });
    assert_eq!(pool.slot("box-a/1")["status"], "used");
    pool.host_run("host-1", &["config-read", &function, "0"]).fails(1, &["Unsupported Request"]);

    let _box_a = pool.boxed("box-a", &[drive]);
    // Nobody asks for it: what is lent is bound again.
    wait_for("the port to be present again", || {
        (port(&pool, "host-1", 0)["state"] == "present").then_some(())
    });
    let function = pool.find("host-1", NVME, 1).remove(0);
    assert_ne!(epoch(), before);
    let bytes = (1 << 20).to_string();
    let after = pool.argument("after");
    pool.host_json("host-1", &["nvme-read", &function, &after, "--bytes", &bytes]);
    let same = std::fs::read(pool.path("sent")).unwrap() == std::fs::read(after).unwrap();
    assert!(same, "the drive has not what was written before its box was killed");
    pool.round_trip("host-1", &function, 1 << 20);
    pool.manager_json(&["release", &lent]);
    assert_eq!(port(&pool, "host-1", 0)["state"], "empty");
}
