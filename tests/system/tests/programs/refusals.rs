//! What the manager refuses, with real proxies behind it.

use crate::harness::{ACCELERATOR, NVME, Pool, wait_for};

#[test]
fn what_cannot_be_lent_is_refused_with_a_reason() {
    let pool = Pool::new();
    let _box = pool.boxed("box-a", &["1=accelerator".into(), "3=accelerator".into()]);
    let _hosts = [pool.host("host-1"), pool.host("host-2")];
    pool.wait_ready(3);
    let lent = pool.allocate("host-1", "box-a/1");
    let allocate = |host: &str, name: &str, slot: &str| {
        pool.manager(&["allocate", "--host", host, "--box", name, "--slot", slot])
    };
    allocate("host-2", "box-a", "1").fails(4, &["box-a/1", "host-1"]);
    allocate("host-2", "box-a", "2").fails(4, &["box-a/2", "no device"]);
    allocate("host-2", "box-a", "9").fails(3, &["box-a", "slot 9"]);
    allocate("host-2", "box-z", "1").fails(3, &["box-z"]);
    allocate("host-9", "box-a", "3").fails(3, &["host-9"]);
    pool.manager(&["allocate", "--host", "host-2", "--count", "2"]).fails(5, &["1"]);
    pool.manager(&["release", "alloc-999"]).fails(3, &["alloc-999"]);
    pool.manager(&["release", "box-a/3"]).fails(4, &["box-a/3"]);

    // Nothing was lost by asking.
    pool.find("host-1", ACCELERATOR, 1);
    assert_eq!(pool.slot("box-a/3")["status"], "free");
    pool.manager_json(&["release", &lent]);
    assert_eq!(pool.slot("box-a/1")["status"], "free");
}

#[test]
fn a_second_proxy_of_a_name_is_told_why_it_is_not_let_in() {
    let pool = Pool::new();
    let _first = pool.host("host-1");
    pool.wait_ready(1);
    // In its own folder's place: only the name is the same.
    let mut command = crate::harness::program("host-proxy");
    command.args(["--name", "host-1", "--manager", &pool.control]);
    command.args(["--fabric", "udp:127.0.0.1:0", "--model-host"]).arg(pool.path("second.sock"));
    let mut second = crate::harness::Daemon::start(&mut command, &pool.path("second.log"));
    wait_for("the reason in its log", || {
        assert!(second.runs(), "{}", second.log());
        second.log().contains("refuses this proxy").then_some(())
    });
    let log = second.log();
    assert!(log.contains("the name host-1 is taken") && log.contains("--name"), "{log}");
    assert!(!log.contains("no manager"), "{log}");
}

#[test]
fn more_than_a_drive_holds_is_refused_before_anything_is_written() {
    let pool = Pool::new();
    let _box = pool.boxed("box-a", &[pool.drive(1, "drive.img")]);
    let host = pool.host("host-1");
    pool.wait_ready(2);
    pool.allocate("host-1", "box-a/1");
    let drive = pool.find("host-1", NVME, 1).remove(0);
    let (target, large) = (pool.argument("target"), pool.argument("large"));
    std::fs::write(&target, "mine").unwrap();
    std::fs::File::create(&large).unwrap().set_len((16 << 20) + 1).unwrap();
    let held = (16 << 20).to_string();
    for command in [
        &["nvme-read", &drive, &target, "--bytes", "16777217"][..],
        &["nvme-read", &drive, &target, "--bytes", "18446744073709551615"],
        &["nvme-write", &drive, &large],
    ] {
        let ended = pool.host_run("host-1", command);
        ended.fails(1, &[&held, &drive]);
        assert_eq!(ended.stderr.matches(&drive).count(), 1, "{ended:?}");
    }
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
    let image = std::fs::read(pool.path("drive.img")).unwrap();
    assert!(image.iter().all(|byte| *byte == 0), "something was written");
    let nowhere = pool.host_run("host-1", &["nvme-identify", "1f:00.0"]);
    nowhere.fails(1, &["1f:00.0"]);
    assert_eq!(nowhere.stderr.matches("1f:00.0").count(), 1, "{nowhere:?}");

    // What happened is in the log once, in words.
    let log = host.log();
    assert_eq!(log.matches(&format!("{drive} was added")).count(), 1, "{log}");
    assert!(!log.contains("DeviceAdded"), "{log}");
}
