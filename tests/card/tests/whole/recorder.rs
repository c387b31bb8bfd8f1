//! A binding with a card at either end is recorded as one between daemons is: by both ends.

use crate::scene::{BOUND, Cards, Scene, firmware};
use processes::wait_for;
use serde_json::Value;

/// Starts a recording, has the host read a register so often, and ends it; what is said of it.
fn record(scene: &Scene, file: &str, format: &str, reads: u32) -> Value {
    let path = scene.path(file);
    let path = path.to_str().expect("a name");
    let ended = std::thread::scope(|scope| {
        let arguments =
            ["--json", "record", "bind-1", "--for", "20s", "--format", format, "--out", path];
        let recording = scope.spawn(move || scene.manager(&arguments));
        wait_for("the recording to run", BOUND, || {
            let list = scene.manager(&["--json", "recordings"])?;
            Ok(list.contains("\"ended\": null").then_some(()))
        })
        .unwrap();
        scene.host(&["latency", "03:00.0", "--reads", &reads.to_string()]).unwrap();
        recording.join().expect("no panic").unwrap()
    });
    serde_json::from_str(&ended).unwrap()
}

#[test]
fn a_binding_of_two_cards_is_recorded_by_both() {
    let Some(firmware) = firmware() else { return };
    let mut scene = Scene::start(&firmware, Cards::Plain).unwrap();
    scene.lend_accelerator();
    for format in ["frames", "tlps", "perfetto"] {
        let view = record(&scene, format, format, 100);
        println!("{view}");
        let bytes = std::fs::read(scene.path(format)).unwrap();
        std::fs::write(format!("/tmp/rec-{format}"), &bytes).unwrap();
    }
}
