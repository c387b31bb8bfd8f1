//! Every exit code that `--help` lists, made to happen.

use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, nobody};
use proxy_core::control::{ControlError, Request};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// The codes that `--help` lists.
fn listed(manager: &Manager) -> BTreeSet<i32> {
    let help = manager.text(&["--help"]);
    let (_, table) = help.split_once("Exit codes:").unwrap();
    let (table, _) = table.trim_start_matches('\n').split_once("\n\n").unwrap();
    // Lines that go on from the one before begin farther in.
    let begin = |line: &&str| line.starts_with("  ") && !line.starts_with("    ");
    table
        .lines()
        .filter(begin)
        .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
        .collect()
}

/// Something that answers HTTP, and is no manager.
fn no_manager() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    });
    format!("http://{address}")
}

/// Whatever becomes of what is said there.
#[test]
fn nobody_has_to_read_standard_error() {
    let manager = Manager::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for (args, code) in [(&["show", "a/b/c"][..], 2), (&["show", "alloc-9"], 3)] {
        let mut command = manager.command();
        command.env("DXPU_MANAGER", format!("http://{}", manager.api)).args(args);
        command.stdin(std::process::Stdio::null()).stderr(writer.try_clone().unwrap());
        assert_eq!(command.status().unwrap().code(), Some(code), "{args:?}");
    }
}

#[test]
fn each_kind_of_error_has_its_exit_code() {
    let manager = Manager::start();
    let at_host = Fake::join(manager.control, host("host1", 4), "");
    let at_box = Fake::join(manager.control, boxed("box1", 3), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    std::fs::write(manager.path("damaged.redb"), "no store at all").unwrap();
    std::fs::write(manager.path("no-image"), "none").unwrap();
    at_box
        .script(|r| matches!(r, Request::BindSlot(_)), [Script::Refuse(ControlError::BadWindows)]);
    let (stranger, api) = (no_manager(), manager.api.to_string());
    let (_kept, free) = nobody();
    let nobody = format!("http://{free}");
    let mut seen = BTreeSet::new();
    let mut ends = |code: i32, args: &[&str], says: &str| {
        let output = manager.cli(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?} does not say {says:?}: {said}");
        seen.insert(code);
    };
    ends(1, &["--server", &stranger, "list"], "does not answer as a dxpu-manager");
    ends(2, &["allocate"], "--host");
    ends(2, &["allocate", "--host", "host1", "--cel", "this is none"], "cel");
    ends(2, &["firmware", "push", "no-image", "--all"], "image");
    ends(2, &["serve", "--config", "missing.toml"], "missing.toml");
    ends(3, &["show", "alloc-99"], "alloc-99");
    ends(3, &["show", "box9"], "box9");
    ends(3, &["counters", "nobody"], "nobody");
    ends(7, &["allocate", "--host", "host1"], "op-1 failed");
    ends(0, &["allocate", "--host", "host1", "--box", "box1", "--slot", "1"], "");
    ends(4, &["allocate", "--host", "host1", "--box", "box1", "--slot", "1"], "box1/1");
    ends(4, &["release", "box1/2"], "not lent");
    ends(4, &["cancel", "op-2"], "op-2");
    ends(5, &["allocate", "--host", "host1", "--count", "30"], "");
    ends(5, &["allocate", "--host", "host1", "--model", "gpu", "--dry-run"], "nothing fits");
    ends(6, &["--server", &nobody, "list"], &free.to_string());
    ends(8, &["store", "check", "--store", "damaged.redb"], "damaged.redb");
    ends(
        11,
        &["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--store", "store.redb"],
        "store.redb",
    );
    ends(9, &["serve", "--listen", &api, "--control", "127.0.0.1:0", "--store", "x.redb"], &api);
    at_host.with(|state| state.enumerates = false);
    ends(10, &["allocate", "--host", "host1"], "operating system");
    drop(at_host);
    manager.wait_event("node-disconnected", "host1");
    ends(6, &["counters", "host1"], "not connected");
    ends(0, &["list"], "");
    // Those of signals are made to happen in `waiting`.
    assert_eq!(&seen | &BTreeSet::from([129, 130, 143]), listed(&manager));
}

/// The codes after which systemd does not start the manager again.
fn left_alone() -> BTreeSet<i32> {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/dxpu-manager.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let codes = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    codes.unwrap().split_whitespace().map(|code| code.parse().unwrap()).collect()
}

/// A disk that is full when the manager starts has room again later, and a store that is in use is
/// let go of: then the manager is there again by itself.
#[test]
fn the_service_tries_a_store_again_that_may_be_of_use_later() {
    let mut manager = Manager::start();
    assert!(manager.terminate().success());
    std::fs::write(manager.path("damaged.redb"), "no store at all").unwrap();
    let folder = manager.folder.path().to_owned();
    let serve = |files: &str, store: &str| {
        let mut command = Command::new("/bin/sh");
        command.env_clear().current_dir(&folder);
        command.args(["-c", &format!("ulimit -f {files} && exec \"$0\" \"$@\"")]);
        command.args([env!("CARGO_BIN_EXE_dxpu-manager"), "serve", "--store", store]);
        command.args(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let left_alone = left_alone();
    // A file has room for its first page only. A store that is not there yet has to be made.
    for store in ["store.redb", "new.redb", "new.redb"] {
        let (code, said) = serve("8", store);
        assert!(said.contains(&format!("{store} cannot be")), "{said}");
        assert!(code == 11 && !left_alone.contains(&code), "{code}: {said}");
    }
    assert!(!manager.path("new.redb").exists(), "it would be taken for a damaged one");
    let (code, said) = serve("unlimited", "damaged.redb");
    assert!(code == 8 && left_alone.contains(&code), "{code}: {said}");
    manager.run();
    let (code, said) = serve("unlimited", "store.redb");
    assert!(said.contains("in use"), "{said}");
    assert!(code == 11 && !left_alone.contains(&code), "{code}: {said}");
}

#[test]
fn the_page_of_problems_is_the_programs_own() {
    let manager = Manager::start();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/problems.md");
    assert!(
        std::fs::read_to_string(page).unwrap() == manager.text(&["problems"]),
        "docs/problems.md: `cargo run -p manager -- problems > manager/docs/problems.md`"
    );
    let one = manager.text(&["problems", "slot-in-use"]);
    assert!(one.contains("exit code 4") && one.contains("Release it first"), "{one}");
    assert_eq!(manager.cli(&["problems", "none-such"]).status.code(), Some(2));
}

/// Whoever collects its log reads JSON to the end.
#[test]
fn the_line_that_says_why_it_ended_is_json_where_its_log_is() {
    let manager = Manager::start();
    let serve =
        ["serve", "--log-format", "json", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    for (code, more, says) in [
        (11, ["--store", "/nowhere/store.redb"], "/nowhere/store.redb"),
        (2, ["--log", "a=b=c"], "a=b=c"),
    ] {
        let output = manager.cli(&[&serve[..], &more].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        let lines: Vec<serde_json::Value> =
            said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let last = lines.last().unwrap();
        assert_eq!(last["level"], "ERROR");
        assert!(last["fields"]["message"].as_str().unwrap().contains(says), "{said}");
    }
}
