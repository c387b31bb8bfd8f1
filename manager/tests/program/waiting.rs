//! Commands that wait, when the manager does not answer or has no time, and what they began.

use crate::common::fake::{Fake, boxed, host};
use crate::common::{LONG, Manager, eventually, nobody};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What is answered to one request.
enum Answer {
    /// This status and body.
    Says(u16, Value),
    /// Nothing: the connection ends.
    HangsUp,
    /// This status and body, to each request until one has this in its head.
    Until(&'static str, u16, Value),
}

/// Something that answers as a manager would, by a script.
struct Pretended {
    server: String,
    /// Heads of the requests, in small letters.
    asked: Arc<Mutex<Vec<String>>>,
}

/// Head of a request; its body is read and forgotten.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    head
}

fn say(stream: &mut TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
}

impl Pretended {
    fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (heads, script) = (asked.clone(), script.into_iter().collect::<Vec<_>>());
        std::thread::spawn(move || {
            let mut script = script.into_iter().peekable();
            while script.peek().is_some() {
                let (mut stream, _) = listener.accept().unwrap();
                let head = request(&stream);
                heads.lock().unwrap().push(head.clone());
                script.next_if(|a| matches!(a, Answer::Until(end, ..) if head.contains(end)));
                match script.peek() {
                    Some(Answer::Until(_, status, body)) => say(&mut stream, *status, body),
                    _ => match script.next() {
                        Some(Answer::Says(status, body)) => say(&mut stream, status, &body),
                        _ => drop(stream),
                    },
                }
            }
        });
        Self { server, asked }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.args(["--json", "--server", &self.server]).args(args);
        command
    }

    fn runs(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn heads(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A release in this state.
fn operation(state: &str) -> Value {
    json!({
        "id": "op-1", "state": state, "warnings": [], "started": "2026-01-01T00:00:00Z",
        "what": { "kind": "release", "slots": ["box1/1"], "force": false }, "steps": [],
    })
}

fn problem(status: u16, code: &str, transient: bool) -> Answer {
    let kind = format!("/v1/problems/{code}");
    let body = json!({
        "type": kind, "title": code, "status": status, "code": code, "detail": "it is so",
        "transient": transient,
    });
    Answer::Says(status, body)
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(bytes)))
}

#[test]
fn a_wait_goes_on_while_the_manager_has_no_time() {
    let manager = Pretended::new([
        Answer::Says(202, operation("running")),
        problem(503, "limit-reached", true),
        Answer::HangsUp,
        problem(503, "stopping", false),
        Answer::Says(200, operation("succeeded")),
    ]);
    let output = manager.runs(&["release", "alloc-1"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(parsed(&output.stdout)["items"][0]["state"], "succeeded");
    assert_eq!(manager.heads().len(), 5);
}

/// A recording, which runs or has ended.
fn recording(ended: bool) -> Value {
    let mut view = json!({
        "id": "rec-1", "binding": "bind-1", "slot": "box1/1", "host": "host1", "format": "tlps",
        "seen_from": "host", "since": "2026-01-01T00:00:00Z", "packets": 3, "bytes": 90,
        "lost_at_host": 0, "lost_at_box": 0,
    });
    if ended {
        view["ended"] = json!({ "reason": "time", "detail": "it ran as long as it was to" });
    }
    view
}

/// The signals that end a recording, and their numbers.
const SIGNALS: [(&str, u32); 3] = [("-INT", 2), ("-TERM", 15), ("-HUP", 1)];

/// Sends a program a signal when it takes this one.
fn send(child: &Child, signal: &str, number: u32) {
    eventually("that it takes the signal", || (bits(child, "SigCgt:", number)).then_some(()));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

/// Whether a program has the bit of a signal in a set that Linux shows.
fn bits(child: &Child, set: &str, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let bits = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
    u64::from_str_radix(bits.trim(), 16).unwrap() & 1 << (number - 1) != 0
}

/// The program, with signals as usual: whoever runs the tests may have had some ignored, as nohup does.
fn program() -> Command {
    let mut command = Command::new("env");
    command.env_clear().args(["--default-signal", env!("CARGO_BIN_EXE_dxpu-manager")]);
    command
}

fn started(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_recording_is_stopped_and_fetched_while_the_manager_has_no_time() {
    for (signal, number) in SIGNALS {
        is_stopped_and_fetched(signal, number);
    }
}

fn is_stopped_and_fetched(signal: &str, number: u32) {
    let manager = Pretended::new([
        Answer::Says(200, recording(false)),
        Answer::Until("/stop", 200, recording(false)),
        problem(503, "limit-reached", true),
        Answer::HangsUp,
        Answer::Says(200, recording(true)),
        Answer::Says(200, json!("the bytes")),
        Answer::Says(204, json!(null)),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.pcapng");
    let mut command = manager.command(&["fetch", "rec-1", "--out", file.to_str().unwrap()]);
    let child = started(&mut command);
    // Before it knows that the recording runs there would be nothing to stop.
    eventually("that it waits for the end", || (manager.heads().len() >= 2).then_some(()));
    send(&child, signal, number);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{signal}: {output:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "\"the bytes\"");
    let heads = manager.heads();
    let stops = heads.iter().filter(|head| head.starts_with("post /v1/recordings/rec-1/stop"));
    assert_eq!(stops.count(), 3);
}

#[test]
fn a_signal_before_a_recording_runs_ends_the_command_and_leaves_no_file() {
    // It takes what it is asked and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    for (signal, number) in SIGNALS {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it.pcapng");
        let mut command = program();
        command.args(["--json", "--server", &server, "fetch", "rec-1", "--out"]);
        let mut child = started(command.arg(&file));
        let partial = || (folder.path().read_dir().unwrap().count() == 1).then_some(());
        eventually("that there is a file for what comes", partial);
        send(&child, signal, number);
        assert_eq!(child.wait().unwrap().code(), Some(128 + number as i32), "{signal}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{signal}");
    }
}

#[test]
fn a_hangup_that_the_command_was_started_to_ignore_is_ignored() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.env_clear().args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    command.args([env!("CARGO_BIN_EXE_dxpu-manager"), "--server", &server, "fetch", "rec-1"]);
    let mut child = started(command.arg("--out").arg(folder.path().join("it.pcapng")));
    eventually("that it takes Ctrl-C", || bits(&child, "SigCgt:", 2).then_some(()));
    eventually("that it takes SIGTERM", || bits(&child, "SigCgt:", 15).then_some(()));
    assert!(bits(&child, "SigIgn:", 1));
    send(&child, "-TERM", 15);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_name_that_leads_to_a_file_elsewhere_goes_on_leading_there() {
    let manager = Pretended::new([
        Answer::Says(200, recording(true)),
        Answer::Says(200, json!("the bytes")),
        Answer::Says(204, json!(null)),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let [file, link] = ["there", "link"].map(|name| folder.path().join(name));
    std::fs::write(&file, "the old one").unwrap();
    std::os::unix::fs::symlink("there", &link).unwrap();
    let output = manager.runs(&["fetch", "rec-1", "--out", link.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "\"the bytes\"");
    assert!(link.is_symlink());
}

#[test]
fn a_name_that_leads_to_no_file_yet_leads_to_one_then() {
    let manager = Pretended::new([
        Answer::Says(200, recording(true)),
        Answer::Says(200, json!("the bytes")),
        Answer::Says(204, json!(null)),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let [link, next, file] = ["link", "next", "to/there"].map(|name| folder.path().join(name));
    std::fs::create_dir(folder.path().join("to")).unwrap();
    std::os::unix::fs::symlink("next", &link).unwrap();
    std::os::unix::fs::symlink(&file, &next).unwrap();
    let output = manager.runs(&["fetch", "rec-1", "--out", link.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "\"the bytes\"");
    assert!(link.is_symlink() && next.is_symlink());
}

#[test]
fn a_name_that_leads_in_a_circle_is_an_error() {
    let manager = Pretended::new([]);
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("link", &link).unwrap();
    let output = manager.runs(&["fetch", "rec-1", "--out", link.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("link cannot be written"), "{said}");
    assert!(link.is_symlink());
}

#[test]
fn a_recording_is_waited_for_and_fetched_while_the_manager_has_no_time() {
    let busy = || problem(503, "limit-reached", true);
    let manager = Pretended::new([
        Answer::Says(200, recording(false)),
        busy(),
        Answer::HangsUp,
        Answer::Says(200, recording(true)),
        busy(),
        Answer::Says(200, json!("the bytes")),
        Answer::Says(204, json!(null)),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it.pcapng");
    let output = manager.runs(&["fetch", "rec-1", "--out", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(parsed(&output.stdout)["ended"]["reason"], "time");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "\"the bytes\"");
    assert_eq!(manager.heads().len(), 7);
}

#[test]
fn a_wait_that_ends_names_its_operation() {
    let manager = Pretended::new([
        Answer::Says(202, operation("running")),
        problem(404, "no-such-operation", false),
    ]);
    let output = manager.runs(&["release", "alloc-1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = parsed(&output.stderr);
    assert_eq!((&said["operation"], &said["code"]), (&json!("op-1"), &json!("no-such-operation")));
}

#[test]
fn a_manager_that_goes_away_after_the_end_is_asked_again_for_what_was_made() {
    let mut ended = operation("succeeded");
    ended["allocation"] = json!("alloc-7");
    let manager = Pretended::new([
        Answer::Says(202, operation("running")),
        Answer::Says(200, ended),
        problem(503, "limit-reached", true),
        Answer::HangsUp,
        problem(404, "no-such-allocation", false),
    ]);
    let output = manager.runs(&["allocate", "--host", "host1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = parsed(&output.stderr);
    assert_eq!((&said["operation"], &said["code"]), (&json!("op-1"), &json!("no-such-allocation")));
    let last = manager.heads().pop().unwrap();
    assert!(last.starts_with("get /v1/allocations/alloc-7 "), "{last}");
}

#[test]
fn the_end_of_a_hold_is_told_when_what_is_left_cannot_be_asked() {
    let held = json!({
        "place": "box1", "kind": "maintenance", "reason": "fans", "since": "2026-01-01T00:00:00Z",
    });
    let manager = Pretended::new([Answer::Says(200, held), Answer::HangsUp]);
    let output = manager.runs(&["maintain", "box1", "--off"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(parsed(&output.stdout)["reason"], "fans");
    assert_eq!(manager.heads().len(), 2);
}

#[test]
fn what_was_not_answered_is_asked_again_under_the_same_key() {
    let manager = Pretended::new([
        Answer::HangsUp,
        problem(503, "limit-reached", true),
        Answer::HangsUp,
        Answer::Says(202, operation("running")),
    ]);
    let output = manager.runs(&["allocate", "--host", "host1", "--no-wait"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(parsed(&output.stdout)["id"], "op-1");
    let keys: Vec<String> =
        manager.heads().iter().map(|head| header(head, "idempotency-key")).collect();
    assert!(keys.len() == 4 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

/// The value of a header in a head.
fn header(head: &str, name: &str) -> String {
    let mut values = head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.next().unwrap_or_else(|| panic!("{name}: {head}")).trim().to_owned()
}

#[test]
fn a_manager_that_was_never_there_is_not_waited_for() {
    let (_kept, free) = nobody();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-manager"));
    let server = format!("http://{free}");
    let begun = Instant::now();
    let output =
        command.args(["--server", &server, "allocate", "--host", "host1"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(6) && !said.contains("--key"), "{said}");
    assert!(begun.elapsed() < LONG / 2, "it was waited for");
}

#[test]
fn what_is_watched_goes_on_while_the_manager_has_no_time() {
    let page = |next: u64| Answer::Says(200, json!({ "items": [], "next": next, "lost": false }));
    let list = || Answer::Says(200, json!({ "items": [] }));
    let watched = [page(1), list(), problem(503, "limit-reached", true), page(2), list()];
    let followed = [page(1), problem(503, "limit-reached", true), page(1)];
    for (args, script) in [
        (&["allocations", "--watch"][..], watched.into_iter().collect::<Vec<_>>()),
        (&["events", "--follow"], followed.into_iter().collect()),
    ] {
        let count = script.len();
        let manager = Pretended::new(script);
        let mut command = manager.command(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("all of it to be asked", || (manager.heads().len() == count).then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn one_refused_release_does_not_hide_the_others() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 4), "");
    let _box = Fake::join(manager.control, boxed("box1", 3), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    for _ in 0..2 {
        manager.text(&["allocate", "--host", "host1"]);
    }
    // What is not lent is found before anything is begun.
    assert_eq!(manager.failure(&["release", "alloc-1", "box1/3"]).0, 4);
    assert_eq!(manager.get("/v1/allocations")["items"].as_array().unwrap().len(), 2);
    let output = manager.cli(&["--json", "release", "alloc-1", "alloc-99", "alloc-2", "alloc-98"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let printed = parsed(&output.stdout);
    let ended: Vec<_> = printed["items"].as_array().unwrap().iter().map(|o| &o["state"]).collect();
    assert_eq!(ended, ["succeeded", "succeeded"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("alloc-99") && said.contains("alloc-98"), "{said}");
    assert_eq!(manager.get("/v1/allocations")["items"], json!([]));
}
