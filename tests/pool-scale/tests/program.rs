//! The program runs on a small pool and what has to hold does. Speed is not judged: a debug build
//! on a busy machine misses targets.

use serde_json::Value;
use std::process::Command;

#[test]
fn a_small_pool_is_measured_and_all_that_has_to_hold_does() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-pool-scale"));
    command.args(["--boxes", "10", "--hosts", "40", "--clients", "16"]);
    let output = command.args(["--cycles", "100", "--events", "50", "--json"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |name: &str| {
        let figures = said["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    assert!(figure("allocate–release cycles")["floor"].as_f64().unwrap() > 0.0);
    assert_eq!(figure("requests refused among them")["value"], 0.0);
    let memory = figure("memory with everything lent, after the restart");
    assert_eq!(memory["met"], true, "{memory}");
    assert_eq!(figure("table entries that had been lost")["value"], 1.0);
}
