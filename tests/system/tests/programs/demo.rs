//! The demo, over UDP and over raw Ethernet, and with files that it cannot use.

use crate::harness::{Ended, noise, program, run};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;

const QUICK: [&str; 6] = ["--button-ms", "100", "--bandwidth-mib", "1", "--reads", "50"];

fn demo(folder: &tempfile::TempDir, arguments: &[&str]) -> Ended {
    let file = folder.path().join("file");
    std::fs::write(&file, noise(1_500_001)).unwrap();
    run(program("dxpu-demo").args(QUICK).args(arguments).arg(file))
}

#[track_caller]
fn assert_passed(report: &Value) {
    assert_eq!(report["passed"], true, "{report}");
    let transfer = &report["transfer"];
    assert_eq!(transfer["bytes"], 1_500_001);
    assert_eq!(transfer["sha256_sent"].as_str().map(str::len), Some(64));
    assert_eq!(transfer["sha256_sent"], transfer["sha256_read"]);
    for access in ["config_read", "memory_read"] {
        let answer = report["after_release"][access].as_str().unwrap();
        assert!(answer.contains("Unsupported Request"), "{answer}");
    }
    assert_eq!(report["round_trip"]["split"]["samples"], 50);
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
    assert_passed(&demo(&folder, &["--json"]).json());
}

#[test]
fn the_demo_ends_its_text_with_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let ended = demo(&folder, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.starts_with("demo passed"), "{last}");
}

fn is_root() -> bool {
    // SAFETY: geteuid(2) only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// Why network namespaces cannot be made here, if so.
fn no_namespaces() -> Option<String> {
    if !is_root() {
        return Some("needs root".into());
    }
    let name = format!("dxpu-try-{}", std::process::id());
    let ip = |verb| Command::new("ip").args(["netns", verb, &name]).output();
    match ip("add") {
        Err(error) => Some(format!("ip: {error}")),
        Ok(output) if !output.status.success() => {
            Some(String::from_utf8_lossy(&output.stderr).trim().to_string())
        }
        Ok(_) => {
            ip("del").expect("ip was there before");
            None
        }
    }
}

#[test]
fn the_demo_passes_over_raw_ethernet() {
    if let Some(reason) = no_namespaces() {
        println!("SKIPPED: no network namespaces: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = demo(&folder, &["--json", "--l2"]).json();
    assert_passed(&report);
    let fabric = report["fabric"].as_str().unwrap();
    assert!(!fabric.contains("UDP"), "{fabric}");
}

#[test]
fn raw_ethernet_without_root_says_what_to_do() {
    // Another user may not be able to run a program in this user's folders; a copy can be run.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("dxpu-demo");
    let original = program("dxpu-demo");
    std::fs::copy(original.get_program(), &copy).unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(1000)).unwrap();
    let mut command = Command::new(&copy);
    command.current_dir("/").arg("--l2").arg(&file).env("TMPDIR", "/tmp");
    if is_root() {
        const NOBODY: u32 = 65534;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
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
        [("missing", "No such file"), ("folder", "is not a file"), ("empty", "is empty")]
    {
        let file = folder.path().join(name).display().to_string();
        let ended = run(program("dxpu-demo").arg(&file));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let last = ended.stdout.lines().last().unwrap_or_default();
        assert!(last.starts_with("demo failed"), "{ended:?}");
        assert!(last.contains(&file) && last.contains(reason), "{ended:?}");
    }
}
