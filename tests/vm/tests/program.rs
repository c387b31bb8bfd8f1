//! `dxpu-vm`, as people and scripts run it.

use std::path::Path;
use std::process::{Command, Output};
use vm::{Cache, Kernel, Unavailable};

fn dxpu_vm(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-vm"));
    command.args(arguments).env("TMPDIR", folder);
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the cache is there; tells why where there can be none.
fn cached() -> bool {
    match Cache::open(&[Kernel::V6_12], &mut |_| {}) {
        Ok(_) => true,
        Err(error) if error.is::<Unavailable>() => {
            println!("SKIPPED: no virtual machines: {error:#}");
            false
        }
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn a_command_runs_in_the_guest_and_nothing_is_left() {
    if !cached() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wait = "until test -b /dev/nvme0n1; do sleep 0.1; done; \
                cat /sys/class/nvme/nvme0/model; echo done >&2; exit 7";
    let output = dxpu_vm(folder.path(), &["run", "--lend", "box-a/1", "--run", wait]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.ends_with("done\n") && said.lines().count() == 2, "{said}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_slot_that_is_not_there_is_named() {
    if !cached() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = dxpu_vm(folder.path(), &["run", "--lend", "box-z/1", "--run", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("box-z/1 was not lent") && said.contains("the logs are in"), "{said}");
}

#[test]
fn what_is_cached_needs_no_network() {
    if !cached() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_dxpu-vm"))
        .args(["fetch", "--kernel", "6.12"])
        .env("DXPU_VM_MIRROR", "http://127.0.0.1:9/debian")
        // No apt-get, nor anything else.
        .env("PATH", "/none")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("qemu-system-x86 "), "{}", text(&output.stdout));
}

#[test]
fn what_is_missing_says_what_to_do_and_leaves_nothing_half_made() {
    let folder = tempfile::tempdir().unwrap();
    let fetch = |path: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_dxpu-vm"))
            .args(["fetch", "--cache"])
            .arg(folder.path())
            .env("DXPU_VM_MIRROR", "http://127.0.0.1:9/debian")
            .env("PATH", path)
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let said = fetch("/none");
    let reasons = ["there is no apt-get", "comes from Debian", "come from Debian"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    let path = std::env::var("PATH").unwrap_or_default();
    let said = fetch(&path);
    let reasons = ["DXPU_VM_MIRROR", "debian-archive-keyring", "come from Debian"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name() == "lock"), "{left:?}");
}
