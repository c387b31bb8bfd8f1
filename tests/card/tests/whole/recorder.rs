//! A binding with a card at either end is recorded as one between daemons is: by both ends.

use crate::scene::{BOUND, Cards, Scene, firmware};
use processes::wait_for;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;

/// Reads of the device while it is recorded: what a card keeps of them it has room for, also where the
/// manager takes nothing of it meanwhile.
const READS: usize = 35;

/// Records a binding while there is work, and ends it as Ctrl-C does; the file, and what is said of it.
fn record(scene: &Scene, binding: &str, format: &str, work: impl FnOnce()) -> (Vec<u8>, Value) {
    let path = scene.path(format);
    let mut command = scene.manager_command(&["--json", "record", binding, "--for", "10m"]);
    command.args(["--format", format, "--out"]).arg(&path).stdout(Stdio::piped());
    let recording = command.spawn().unwrap();
    wait_for("the recording to run", BOUND, || {
        let list: Value = serde_json::from_str(&scene.manager(&["--json", "recordings"])?)?;
        let running = |recording: &Value| recording["ended"].is_null();
        Ok(list["items"].as_array().is_some_and(|all| all.iter().any(running)).then_some(()))
    })
    .unwrap();
    work();
    // SAFETY: kill(2) has no memory effects; the child is not reaped yet.
    unsafe { libc::kill(recording.id() as libc::pid_t, libc::SIGINT) };
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let view: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(view["ended"]["reason"], "stopped", "{view}");
    assert_eq!(view.get("not_recorded").unwrap_or(&Value::Null), &Value::Null, "{view}");
    (std::fs::read(path).unwrap(), view)
}

/// How often a word stands there.
fn count(bytes: &[u8], word: &str) -> usize {
    bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
}

#[test]
fn a_binding_of_two_cards_is_recorded_by_both() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::Plain).unwrap();
    scene.lend("accelerator");

    let recorded = |format: &str| {
        let (bytes, view) = record(&scene, "bind-1", format, || {
            scene.host(&["latency", "03:00.0", "--reads", &READS.to_string()]).unwrap();
        });
        let lost = (&view["lost_at_host"], &view["lost_at_box"]);
        assert_eq!(lost, (&json!(0), &json!(0)), "{view}");
        (bytes, view)
    };
    let (bytes, view) = recorded("tlps");
    assert_eq!(view["packets"], 2 * READS, "each read and its completion: {view}");
    for stage in ["host.arrived=", "host.sent=", "host.received=", "host.delivered="] {
        assert_eq!(count(&bytes, stage), READS, "{stage}");
    }
    // What was long under way is not joined with what the other end has of it.
    for stage in ["box.received=", "box.delivered=", "box.arrived=", "box.sent="] {
        assert!(count(&bytes, stage) >= READS / 2, "{stage}: {} of {READS}", count(&bytes, stage));
    }

    let (bytes, view) = recorded("frames");
    assert!(view["packets"].as_u64().unwrap() >= 2 * READS as u64, "{view}");
    assert!(count(&bytes, "box.delivered=") >= READS / 2);
    assert!(count(&bytes, "host.delivered=") >= READS);

    let (bytes, _) = recorded("perfetto");
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.len() > READS, "{} events", events.len());

    // A look, and what comes of the requests in it.
    let look = scene.manager(&["--json", "latency"]).unwrap();
    assert!(!look.contains("no memory"), "{look}");
}

#[test]
fn a_stream_overtakes_the_recorders_of_cards_and_nothing_else_comes_of_it() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::Plain).unwrap();
    scene.lend("nvme");
    let (sent, read) = (scene.path("sent"), scene.path("read"));
    std::fs::write(&sent, crate::content(1 << 20, 3)).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    let (bytes, view) = record(&scene, "bind-1", "frames", || {
        scene.host(&["nvme-write", "03:00.0", &name(&sent)]).unwrap();
        scene.host(&["nvme-read", "03:00.0", &name(&read), "--bytes", "1048576"]).unwrap();
    });
    assert!(std::fs::read(&sent).unwrap() == std::fs::read(&read).unwrap(), "the file came back");
    let number = |key: &str| view[key].as_u64().unwrap();
    let frames = number("packets");
    // A megabyte each way, of which a card keeps sixteen kilobytes at a time.
    assert!(frames > 10 && number("lost_at_host") + number("lost_at_box") > 0, "{view}");
    assert!(bytes.len() as u64 > frames * 52, "{} B: {view}", bytes.len());
    // Who is recorded no more is as before.
    scene.host(&["nvme-write", "03:00.0", &name(&sent)]).unwrap();
    scene.manager(&["release", "alloc-1"]).unwrap();
}
