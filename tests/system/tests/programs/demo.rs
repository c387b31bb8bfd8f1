//! The demo, over UDP, over raw Ethernet and with emulated cards, and with files that it cannot use.

use crate::harness::{Ended, end, noise, program, run, unprivileged, wait_for};
use emulated_card::firmware::Firmware;
use processes::namespaces::why_none;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

const QUICK: [&str; 6] = ["--button-ms", "100", "--bandwidth-mib", "1", "--reads", "50"];

/// As many as QUICK says.
const READS: u64 = 50;

/// Longest that a demo with emulated cards takes on a busy machine.
const WITH_CARDS: Duration = Duration::from_secs(400);

/// Held for writing by who looks at what a killed demo left: every other demo removes that.
static DEMOS: RwLock<()> = RwLock::new(());

fn shared() -> RwLockReadGuard<'static, ()> {
    DEMOS.read().unwrap_or_else(PoisonError::into_inner)
}

fn demo(folder: &tempfile::TempDir, arguments: &[&str]) -> Ended {
    let file = folder.path().join("file");
    std::fs::write(&file, noise(1_500_001)).unwrap();
    let mut command = program("dxpu-demo");
    command.args(QUICK).args(arguments).arg(file);
    // What a machine's own proxies are told is not for the demo's.
    command.env("DXPU_BOX_CONFIG", folder.path().join("nowhere.toml"));
    command.env("DXPU_ADVERTISE", "192.0.2.1:7790");
    let _guard = shared();
    run(&mut command)
}

#[track_caller]
fn assert_passed(report: &Value, samples: RangeInclusive<u64>) {
    assert_eq!(report["passed"], true, "{report}");
    let transfer = &report["transfer"];
    assert_eq!(transfer["bytes"], 1_500_001);
    assert_eq!(transfer["sha256_sent"].as_str().map(str::len), Some(64));
    assert_eq!(transfer["sha256_sent"], transfer["sha256_read"]);
    for access in ["config_read", "memory_read"] {
        let answer = report["after_release"][access].as_str().unwrap();
        assert!(answer.contains("Unsupported Request"), "{answer}");
    }
    let found = &report["round_trip"]["split"]["samples"];
    assert!(found.as_u64().is_some_and(|found| samples.contains(&found)), "{found}");
    let reads = &report["bandwidth"]["table"][0];
    for column in ["measured", "equation1_rtt_unloaded", "equation1_rtt_loaded"] {
        let rate = reads[format!("{column}_bytes_per_second")].as_f64();
        assert!(rate.is_some_and(|rate| rate > 0.0), "{column}: {reads}");
    }
    let used = |when: &str| -> Vec<(Value, Value)> {
        let mut entries = Vec::new();
        collect_used(&report["tables"][when], &mut entries);
        entries
    };
    assert_eq!(used("before"), used("after"));
    assert!(used("before").iter().all(|(_, used)| used == false));
    assert_eq!(used("lent").iter().filter(|(_, used)| used == true).count(), 4);
}

/// Every `used` in the tables, with the port or slot that it belongs to.
fn collect_used(value: &Value, found: &mut Vec<(Value, Value)>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| collect_used(value, found)),
        Value::Object(map) => {
            if let Some(used) = map.get("used") {
                let place = map.get("port").or_else(|| map.get("slot"));
                found.push((place.cloned().unwrap_or_default(), used.clone()));
            }
            map.values().for_each(|value| collect_used(value, found));
        }
        _ => {}
    }
}

#[test]
fn the_demo_passes_over_udp() {
    let folder = tempfile::tempdir().unwrap();
    assert_passed(&demo(&folder, &["--json"]).json(), READS..=READS);
}

#[test]
fn a_bandwidth_test_without_a_size_takes_a_power_of_two() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(4096)).unwrap();
    let mut command = program("dxpu-demo");
    command.args(["--button-ms", "100", "--reads", "50", "--json"]).arg(&file);
    let _guard = shared();
    let report = run(&mut command).json();
    for row in report["bandwidth"]["table"].as_array().unwrap() {
        assert!(row["bytes"].as_u64().unwrap().is_power_of_two(), "{row}");
    }
}

#[test]
fn the_demo_ends_its_text_with_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let ended = demo(&folder, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.starts_with("demo passed"), "{last}");
}

#[test]
fn the_demo_passes_over_raw_ethernet() {
    if let Some(reason) = why_none() {
        println!("SKIPPED: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = demo(&folder, &["--json", "--l2"]).json();
    assert_passed(&report, READS..=READS);
    let fabric = report["fabric"].as_str().unwrap();
    assert!(!fabric.contains("UDP"), "{fabric}");
}

/// Firmware and emulator; `None` where there is one of them not, with the reason printed.
fn firmware() -> Option<Firmware> {
    Firmware::find().inspect_err(|reason| println!("SKIPPED: {reason:#}")).ok()
}

/// A demo with emulated cards, whose own folder is made in another one.
fn card_demo(firmware: &Firmware, file: &Path, folder: &Path) -> Command {
    let mut command = program("dxpu-demo");
    command.args(QUICK).args(["--card", "--json"]).arg(file);
    // Not what the environment says it is: it is not passed on.
    command.env("DXPU_FIRMWARE", firmware.folder()).env("TMPDIR", folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_demo_passes_with_firmware_in_emulated_cards() {
    let Some(firmware) = firmware() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(1_500_001)).unwrap();
    let _guard = shared();
    let child = card_demo(&firmware, &file, folder.path()).spawn().unwrap();
    let report = end(child, WITH_CARDS).json();
    // A card keeps the last 32 stamps, two of each round trip, and some are of other requests.
    assert_passed(&report, 8..=16);
    let part = |name: &str| report["round_trip"]["split"][name].as_u64().unwrap();
    let conversion = part("host_conversion_ns") + part("box_conversion_ns");
    assert!(part("network_ns") > 0 && conversion < part("total_ns"), "{report}");
    let images = &report["cards"]["images"];
    for (image, firmware) in ["fw-host ", "fw-box "].into_iter().enumerate() {
        assert!(images[image].as_str().is_some_and(|name| name.starts_with(firmware)), "{images}");
    }
    let nodes = report["nodes"]["items"].as_array().unwrap();
    let is_card = |node: &&Value| node.to_string().contains("02:00:00:00:00:0");
    assert_eq!(nodes.iter().filter(is_card).count(), 3, "{nodes:?}");
}

/// How many processes were started with a folder in their arguments.
fn processes_in(folder: &Path) -> usize {
    let name = folder.display().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    arguments.filter(|bytes| String::from_utf8_lossy(bytes).contains(&name)).count()
}

#[test]
fn an_interrupted_demo_with_cards_leaves_nothing() {
    let Some(firmware) = firmware() else { return };
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("demo");
    std::fs::create_dir(&own).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(4096)).unwrap();
    let _guard = shared();
    // As from a terminal: the signal goes to all of the demo's processes.
    let child = card_demo(&firmware, &file, &own).process_group(0).spawn().unwrap();
    // Three cards and their network, the root complex, two boxes of devices, the manager.
    wait_for("everything to be started", || (processes_in(&own) >= 8).then_some(()));
    let group = -(child.id() as libc::pid_t);
    // SAFETY: kill(2) has no memory effects; the child is not reaped yet.
    assert_eq!(unsafe { libc::kill(group, libc::SIGINT) }, 0);
    let ended = end(child, WITH_CARDS);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("demo failed: interrupted"), "{ended:?}");
    assert_eq!(processes_in(&own), 0);
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0, "its folder is gone");
}

#[test]
fn what_emulated_cards_lack_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(1000)).unwrap();
    let missing = folder.path().join("nowhere");
    let mut command = program("dxpu-demo");
    command.args(["--card"]).arg(&file).env("DXPU_FIRMWARE", &missing);
    let _guard = shared();
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let says = ended.stdout.lines().last().unwrap_or_default();
    assert!(says.contains("nowhere") && says.contains("cargo xtask firmware"), "{ended:?}");

    std::fs::create_dir(&missing).unwrap();
    for name in ["boot.bin", "fw-box.img", "fw-host.img"] {
        std::fs::write(missing.join(name), "").unwrap();
    }
    let ended = run(command.env("PATH", &missing));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("install the package qemu-system-misc"), "{ended:?}");
}

/// Names of the network namespaces of a demo's process.
fn namespaces_of(id: u32) -> Vec<String> {
    let list = Command::new("ip").args(["netns", "list"]).output().expect("ip is there");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let own = format!("dxpu-demo-{id}-");
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with(&own)).map(str::to_string).collect()
}

#[test]
fn what_a_killed_demo_leaves_goes_at_the_next_start() {
    if let Some(reason) = why_none() {
        println!("SKIPPED: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(4096)).unwrap();
    let _guard = DEMOS.write().unwrap_or_else(PoisonError::into_inner);
    // Long enough in its release that it is not over before it is killed.
    let mut command = program("dxpu-demo");
    command.args(["--l2", "--button-ms", "60000", "--json"]).arg(&file);
    // Its own folder stays, too: with the test's.
    command.env("TMPDIR", folder.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = child.id();
    let in_space = |space: &str| {
        let pids = Command::new("ip").args(["netns", "pids", space]).output().unwrap().stdout;
        String::from_utf8_lossy(&pids).split_whitespace().count()
    };
    let spaces = wait_for("the demo's daemons", || {
        let spaces = namespaces_of(id);
        (spaces.len() == 2 && spaces.iter().all(|space| in_space(space) >= 2)).then_some(spaces)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    // Its daemons end with it, however it ended.
    wait_for("the daemons to end", || {
        spaces.iter().all(|space| in_space(space) == 0).then_some(())
    });
    assert_eq!(namespaces_of(id), spaces);

    let said = run(program("dxpu-demo").arg(folder.path().join("missing"))).stdout;
    assert!(
        spaces.iter().all(|space| said.contains(&format!("removed network namespace {space}")))
    );
    assert!(namespaces_of(id).is_empty());
}

#[test]
fn raw_ethernet_without_root_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(1000)).unwrap();
    let mut command = unprivileged("dxpu-demo", folder.path());
    command.arg("--l2").arg(&file);
    let _guard = shared();
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("sudo ./dx demo --l2"), "{ended:?}");
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (name, reason) in
        [("missing", "give one that is there"), ("folder", "is not a file"), ("empty", "is empty")]
    {
        let file = folder.path().join(name).display().to_string();
        let _guard = shared();
        let ended = run(program("dxpu-demo").arg(&file));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let last = ended.stdout.lines().last().unwrap_or_default();
        assert!(last.starts_with("demo failed"), "{ended:?}");
        assert!(last.contains(&file) && last.contains(reason), "{ended:?}");
    }
}

#[test]
fn a_file_without_permission_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, noise(1000)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = unprivileged("dxpu-demo", folder.path());
    let _guard = shared();
    let ended = run(command.arg(&file));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for says in ["secret", "Permission denied", "you may read"] {
        assert!(ended.stdout.contains(says), "{ended:?}");
    }
}
