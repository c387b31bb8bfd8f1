//! The command line and the server's own manners.

use crate::common::fake::{Fake, Script, boxed, host};
use crate::common::{Manager, eventually, nobody};
use proxy_core::control::{ControlError, Request};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn pool(manager: &Manager) -> (Fake, Fake) {
    let at_host = Fake::join(manager.control, host("host1", 2), "");
    let at_box = Fake::join(manager.control, boxed("box1", 3), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    (at_host, at_box)
}

/// Columns of a line, as a person sees them.
fn columns(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn the_pool_is_listed_for_people_and_programs() {
    let manager = Manager::start();
    let (_host, at_box) = pool(&manager);
    manager.text(&["allocate", "--host", "host1", "--reason", "training run 7"]);
    let text = manager.text(&["list"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        columns(lines[0]),
        ["SLOT", "MODEL", "PCI ID", "STATUS", "HOST", "ALLOCATION", "SINCE"]
    );
    assert_eq!(columns(lines[1])[..6], ["box1/1", "nvme", "1af4:1000", "used", "host1", "alloc-1"]);
    assert_eq!(columns(lines[2]), ["box1/2", "nvme", "1af4:1000", "free", "-", "-", "-"]);
    let slots = |args: &[&str]| -> Vec<String> {
        let list = manager.json(&[&["list"], args].concat());
        let items = list["items"].as_array().unwrap().iter();
        items.map(|slot| slot["slot"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(slots(&["--free"]), ["box1/2", "box1/3"]);
    assert_eq!(slots(&["--used"]), ["box1/1"]);
    assert_eq!(slots(&["--host", "host1"]), ["box1/1"]);
    assert_eq!(slots(&["--model", "NVMe", "--box", "box1"]).len(), 3);
    assert!(slots(&["--model", "a b&c=%"]).is_empty());
    let text = manager.text(&["show", "alloc-1"]);
    assert!(text.contains("alloc-1 for host host1") && text.contains("training run 7"), "{text}");
    for (what, expected) in [
        ("box1", "box box1, node"),
        ("host1", "free ports: 1"),
        ("box1/1", "16K 1M"),
        ("bind-1", "configured"),
        ("op-1", "lend box1/1 to host1: succeeded"),
    ] {
        let text = manager.text(&["show", what]);
        assert!(text.contains(expected), "{what}: {text}");
    }
    assert!(manager.text(&["nodes"]).contains("udp 127.0.0."));
    assert!(manager.text(&["allocations"]).contains("box1/1"));
    assert!(manager.text(&["operations"]).contains("op-1"));
    assert_eq!(manager.json(&["operations", "--running"])["items"], json!([]));
    drop(at_box);
    manager.wait_event("node-disconnected", "box1");
    assert!(slots(&["--free"]).is_empty(), "what is in a box that is away cannot be lent");
    assert!(manager.text(&["list"]).contains("free (box away)"));
}

#[test]
fn tables_counters_and_stamps_come_from_the_proxies() {
    let manager = Manager::start();
    let (at_host, _box) = pool(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let text = manager.text(&["tables"]);
    assert!(text.contains("mapping table of host host1"), "{text}");
    assert!(text.contains("slot table of box box1"), "{text}");
    let host_table = manager.json(&["tables", "--host", "host1"]);
    assert_eq!(host_table["entries"][0]["box"], "box1");
    assert_eq!(
        host_table["entries"][0]["memory"],
        json!({"base": 0xe000_0000_u32, "limit": 0xe00f_ffff_u32})
    );
    assert_eq!(host_table["entries"][1]["used"], false);
    let box_table = manager.json(&["tables", "--box", "box1"]);
    assert_eq!(box_table["entries"][0]["host"], "host1");
    assert_eq!(box_table["entries"][0]["epoch"], "0.1");
    assert_eq!(box_table["entries"].as_array().unwrap().len(), 3, "all pages");
    let counters = manager.json(&["counters", "host1"]);
    assert_eq!(counters["counters"]["tlps.sent"], 7, "the second page too");
    assert!(manager.text(&["counters", "box1"]).contains("frames.sent"));
    assert_eq!(manager.text(&["log-level", "host1", "warn"]).trim(), "host1: log level set");
    let level = proxy_core::control::Request::SetLogLevel(proxy_core::control::LogLevel::Warn);
    assert!(at_host.with(|s| s.log.contains(&level)));
    let told = manager.text(&["log-level", "host1", "trace"]);
    assert!(told.contains("where it is a card, to debug"), "{told}");
    manager.text(&["stamps", "host1", "--sampling", "16"]);
    let sampling =
        proxy_core::control::Request::SetSampling(proxy_core::stamps::Sampling::OneIn(16));
    assert!(at_host.with(|s| s.log.contains(&sampling)));
    let stamps = manager.json(&["stamps", "host1"]);
    let (asked, posted) = (&stamps["stamps"][0], &stamps["stamps"][1]);
    assert_eq!(asked["at"], json!([1, 2, 3, null, null, null]));
    assert_eq!((&asked["kind"], &asked["index"]), (&json!("request"), &json!(5)));
    assert_eq!((&posted["kind"], &posted["index"]), (&json!("posted"), &json!(null)));
    assert_eq!((&posted["sequence"], &asked["sequence"]), (&json!(77), &json!(null)));
    let shown = manager.text(&["stamps", "host1"]);
    assert!(shown.contains("5.6") && shown.contains("77") && shown.contains("posted"), "{shown}");
    assert_eq!(manager.failure(&["stamps", "host1", "--sampling", "some"]).0, 2);
    assert_eq!(manager.failure(&["stamps", "host1", "--sampling", "0"]).0, 2);
    assert_eq!(manager.failure(&["tables", "--host", "box1"]).0, 2);
    assert_eq!(manager.failure(&["counters", "nobody"]).0, 3);
    drop(at_host);
    manager.wait_event("node-disconnected", "host1");
    assert_eq!(manager.failure(&["counters", "host1"]).0, 6);
}

#[test]
fn events_are_followed_across_a_restart() {
    let mut manager = Manager::start();
    let at_box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    manager.wait_ready(&["box1"]);
    let text = manager.text(&["events"]);
    assert!(text.contains("manager-started") && text.contains("node-added"), "{text}");
    assert_eq!(manager.text(&["events", "--limit", "1"]).lines().count(), 1);
    let mut follow = manager.begin(&["--json", "events", "--follow", "--since", "0"]);
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut sequence = 0;
    let mut next = |kind: &str| loop {
        let line = lines.next().expect("it goes on").unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["sequence"], sequence + 1, "no gap, no repetition");
        sequence += 1;
        if event["kind"] == kind {
            return;
        }
    };
    next("node-connected");
    at_box.leave();
    next("node-disconnected");
    assert!(manager.terminate().success());
    manager.run();
    next("manager-started");
    follow.kill().unwrap();
    follow.wait().unwrap();
}

/// As in `events --follow | head -1`.
#[test]
fn events_that_nobody_reads_any_more_are_not_followed() {
    let manager = Manager::start();
    let mut follow = manager.begin(&["events", "--follow", "--since", "0"]);
    let mut line = String::new();
    BufReader::new(follow.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("manager-started"), "{line}");
    let _box = Fake::join(manager.control, boxed("box1", 1), "nvme");
    let status = eventually("the end", || follow.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_card_says_why_it_was_reset() {
    use proxy_core::control::{FromProxy, ResetCause, ResetReport};
    let manager = Manager::start();
    let card = Fake::join(manager.control, boxed("card1", 1), "nvme");
    card.say(&FromProxy::Reset(ResetReport {
        cause: ResetCause::Panic,
        boots: 3,
        lived_ms: 61_500,
        place: 0x8000_1234,
        text: "src/x.rs:7: no".try_into().unwrap(),
    }));
    let detail = "card1 was reset: panic, 1m 1s 500ms after its start, at 0x80001234: \
                  src/x.rs:7: no (start 3 since power came on)";
    manager.wait_event("card-reset", detail);
    card.say(&FromProxy::Reset(ResetReport {
        cause: ResetCause::Power,
        boots: 1,
        lived_ms: 0,
        place: 0,
        text: Default::default(),
    }));
    manager.wait_event("card-reset", "card1 was reset: power came on (start 1 since");
}

#[test]
fn sigterm_stops_it_cleanly() {
    let mut manager = Manager::start();
    let (at_host, _box) = pool(&manager);
    // Somebody waits for events, somebody for an operation that gets nowhere.
    let mut follow = manager.begin(&["events", "--follow"]);
    drop(at_host);
    manager.wait_event("node-disconnected", "host1");
    let status = manager.terminate();
    assert!(status.success(), "{status}");
    assert!(!manager.path("ready.json").exists(), "the ready file goes with it");
    assert!(manager.log().contains("SIGTERM"));
    follow.kill().unwrap();
    follow.wait().unwrap();
    manager.run();
    assert_eq!(manager.get("/v1/nodes")["items"].as_array().unwrap().len(), 2);
}

#[test]
fn addresses_in_use_are_named() {
    let manager = Manager::start();
    let api = manager.api.to_string();
    let control = manager.control.to_string();
    for (flags, named) in [
        (["--listen", &api, "--control", "127.0.0.1:0"], &api),
        (["--listen", "127.0.0.1:0", "--control", &control], &control),
    ] {
        let args = [&["serve", "--store", "other.redb"][..], &flags].concat();
        let output = manager.cli(&args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(9), "{error}");
        assert!(
            error.contains(named.as_str())
                && error.contains(flags[0].trim_start_matches("--").split('.').next().unwrap()),
            "{error}"
        );
        assert!(!manager.path("other.redb").exists(), "the store is not touched");
    }
    let output = manager.cli(&["serve", "--listen", "192.0.2.1:1", "--store", "other.redb"]);
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn a_manager_that_is_not_there_is_named() {
    let manager = Manager::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-manager"));
    let (_kept, free) = nobody();
    let output = command.args(["--server", &format!("http://{free}"), "list"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert!(error.contains(&free.to_string()) && error.contains("--server"), "{error}");
    // What is there is no manager: the control port hangs up or says something else.
    let server = format!("http://{}", manager.control);
    let output = manager.command().args(["--server", &server, "list"]).output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 6)));
}

#[test]
fn the_command_line_is_checked() {
    let manager = Manager::start();
    for args in [
        &["allocate"][..],
        &["allocate", "--host", "a b"],
        &["allocate", "--host", "h", "--slot", "1"],
        &["allocate", "--host", "h", "--box", "b", "--slot", "0"],
        &["release"],
        &["release", "a-1", "--force", "--within-ms", "1"],
        &["show", "a/b/c"],
        &["release", "nonsense"],
        &["serve", "--config", "missing.toml"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--log", "=,=,="],
        &["serve", "--log", "warn,inof"],
    ] {
        let output = manager.cli(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(!error.is_empty());
    }
    let help = manager.text(&["--help"]);
    for part in ["Exit codes", "DXPU_MANAGER", "allocate", "7  the operation failed"] {
        assert!(help.contains(part), "{help}");
    }
    let help = manager.text(&["serve", "--help"]);
    for part in ["127.0.0.1:7780", "0.0.0.0:7781", "DXPU_MANAGER_STORE", "reconcile_ms"] {
        assert!(help.contains(part), "{help}");
    }
    // What only clients have a use for.
    for part in ["--server", "--json"] {
        assert!(!help.contains(part), "{help}");
        assert!(manager.text(&["list", "--help"]).contains(part));
    }
    for global in [&["--json"][..], &["--server", "http://127.0.0.1:1"]] {
        // It is taken nevertheless, so that scripts may give it to every command.
        let output = manager.cli(&[global, &["serve", "--config", "missing.toml"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("missing.toml"), "{error}");
    }
}

#[test]
fn environment_and_file_configure_the_server() {
    let manager = Manager::start();
    std::fs::write(manager.path("own.toml"), "listen = \"127.0.0.1:0\"\nstore = \"own.redb\"\n")
        .unwrap();
    let mut server = manager
        .command()
        .args(["serve", "--config", "own.toml", "--ready-file", "own.json"])
        .env("DXPU_MANAGER_CONTROL", "127.0.0.1:0")
        .env("DXPU_MANAGER_LOG", "off")
        .spawn()
        .unwrap();
    eventually("the ready file", || std::fs::metadata(manager.path("own.json")).ok());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(manager.path("own.redb").exists());
}

#[test]
fn a_closed_pipe_is_no_error() {
    let manager = Manager::start();
    let mut child = manager.begin(&["openapi"]);
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_recording_that_nobody_fetched_is_fetched() {
    let manager = Manager::start();
    let _pool = pool(&manager);
    manager.text(&["allocate", "--host", "host1"]);
    let body = json!({"binding": "bind-1", "format": "perfetto", "duration_ms": 20});
    assert_eq!(manager.request("POST", "/v1/recordings", Some(&body)).0, 201);
    let view = manager.json(&["fetch", "rec-1", "--out", "trace.json"]);
    assert_eq!((&view["id"], &view["ended"]["reason"]), (&json!("rec-1"), &json!("time")));
    let text = std::fs::read_to_string(manager.path("trace.json")).unwrap();
    assert!(text.contains("traceEvents"), "{text}");
    assert_eq!(manager.json(&["recordings"])["items"], json!([]));
    let (code, problem) = manager.failure(&["fetch", "rec-1", "--out", "again.json"]);
    assert_eq!((code, &problem["code"]), (3, &json!("no-such-recording")));
    assert!(!manager.path("again.json").exists());
}

#[test]
fn a_value_out_of_its_range_is_named_by_its_option() {
    let manager = Manager::start();
    let record = ["record", "bind-1", "--out", "none.pcapng"];
    let latency = ["latency"];
    for (command, option, value, range) in [
        (&record[..], "--for", "2h", "1ms to 1h"),
        (&record[..], "--for", "1us", "1ms to 1h"),
        (&record[..], "--limit", "1GB", "1 to 268435456 bytes"),
        (&latency[..], "--window", "1ms", "10ms to 10s"),
        (&latency[..], "--slowest", "101", "0..=100"),
    ] {
        let output = manager.cli(&[command, &[option, value]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(option) && said.contains(range), "{said}");
    }
}

#[test]
fn results_are_tables_json_or_yaml() {
    let manager = Manager::start();
    let _pool = pool(&manager);
    let json = manager.text(&["--output", "json", "list"]);
    assert_eq!(json, manager.text(&["list", "--json"]));
    let yaml = manager.text(&["list", "-o", "yaml"]);
    assert!(yaml.starts_with("items:\n"), "{yaml}");
    assert!(yaml.contains("slot: box1/1\n") && yaml.contains("status: free\n"), "{yaml}");
    assert_eq!(manager.text(&["list", "-o", "table"]), manager.text(&["list"]));
    let events = manager.text(&["events", "-o", "yaml"]);
    assert!(events.starts_with("---\n") && events.matches("---\n").count() > 2, "{events}");
    let both = manager.cli(&["list", "--json", "--output", "yaml"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn what_is_watched_is_shown_again_when_it_changes() {
    let manager = Manager::start();
    let _pool = pool(&manager);
    let mut child = manager.begin(&["allocations", "--watch", "-o", "json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|l| l.unwrap());
    let mut wait = |wanted: &str| {
        let found = lines.find(|line| line.contains(wanted));
        assert!(found.is_some(), "{wanted} never came");
    };
    wait("items");
    manager.text(&["allocate", "--host", "host1"]);
    wait("alloc-1");
    manager.text(&["release", "alloc-1", "--force"]);
    wait("\"items\": []");
    // Nobody reads on: it ends when there is something to show.
    drop(lines);
    manager.text(&["allocate", "--host", "host1"]);
    let ended = eventually("its end", || child.try_wait().unwrap());
    assert!(ended.success());
}

#[test]
fn shells_and_man_get_what_they_read() {
    let manager = Manager::start();
    let bash = manager.text(&["completions", "bash"]);
    assert!(bash.contains("dxpu-manager") && bash.contains("allocate"), "{bash}");
    manager.text(&["man", "--out", "man"]);
    let page = std::fs::read_to_string(manager.path("man/dxpu-manager-allocate.1")).unwrap();
    assert!(page.starts_with(".") && page.contains("host"), "{page}");
    let root = std::fs::read_to_string(manager.path("man/dxpu-manager.1")).unwrap();
    assert!(root.contains("Exit codes"), "{root}");
}

#[test]
fn the_audit_log_says_who_used_the_command_line() {
    let manager = Manager::start();
    let _pool = pool(&manager);
    let mut command = manager.command();
    command.env("DXPU_MANAGER", format!("http://{}", manager.api)).env("USER", "ada");
    assert!(command.args(["allocate", "--host", "host1"]).output().unwrap().status.success());
    let text = manager.text(&["audit"]);
    let row = columns(text.lines().nth(1).unwrap());
    assert!(row[1].starts_with("ada@"), "{text}");
    let what = r#"{"host":"host1","count":1}"#;
    assert_eq!(row[3..], ["POST /v1/allocations", "op-1", "done", what], "{text}");
}

/// What a command shows on a terminal, until it ends. `look` sees all that came so far.
fn on_a_terminal(manager: &Manager, args: &[&str], mut look: impl FnMut(&str)) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read;
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let end = std::fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut command = manager.command();
    command.env("DXPU_MANAGER", format!("http://{}", manager.api)).env("TERM", "xterm");
    let mut child = command.args(args).stderr(end).stdout(Stdio::null()).spawn().unwrap();
    // The terminal has no other end left when the command has ended.
    drop(command);
    let mut shown = Vec::new();
    let mut terminal = std::fs::File::from(terminal);
    let mut bytes = [0; 4096];
    // Linux says EIO then.
    while let Ok(count @ 1..) = terminal.read(&mut bytes) {
        shown.extend_from_slice(&bytes[..count]);
        look(&String::from_utf8_lossy(&shown));
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap()
}

#[test]
fn what_takes_time_is_a_bar_on_a_terminal_and_nothing_for_programs() {
    let manager = Manager::start();
    let (_host, at_box) = pool(&manager);
    let (go, wait) = (Arc::new(AtomicBool::new(false)), "] 0/3 ");
    let may = go.clone();
    at_box.rule(move |r| {
        let held = matches!(r, Request::BindSlot(_)) && !may.load(Ordering::Relaxed);
        held.then_some(Script::Refuse(ControlError::Busy))
    });
    let look = |shown: &str| go.store(shown.contains(wait), Ordering::Relaxed);
    let shown = on_a_terminal(&manager, &["allocate", "--host", "host1"], look);
    assert!(shown.contains("op-1 [") && shown.contains(wait), "{shown:?}");
    assert!(shown.contains("waiting for bind-slot box1/1"), "{shown:?}");
    let shown = on_a_terminal(&manager, &["-o", "json", "allocate", "--host", "host1"], |_| ());
    assert_eq!(shown, "");
    let output = manager.cli(&["release", "alloc-1", "--force"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("op-3: unbind-slot box1/1: done\n") && !said.contains('\u{1b}'),
        "{said}"
    );
}
