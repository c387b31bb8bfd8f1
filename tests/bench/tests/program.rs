//! The program runs and says what it measured in the shape that others read. Speed is not judged:
//! a debug build on a busy machine misses every target.

use serde_json::Value;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One measure at a time: daemons are pinned, and come before everything else on the machine.
static TURN: Mutex<()> = Mutex::new(());

fn is_root() -> bool {
    // SAFETY: geteuid(2) only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// What the program prints with these arguments. Daemons are looked for beside it, where a build
/// of the workspace puts them.
fn measure(arguments: &[&str]) -> Value {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-bench"));
    let output = command.args(arguments).arg("--json").output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    })
}

/// Whether nothing can be measured here, which is said then.
fn is_skipped(measure: &Value) -> bool {
    let why = measure["skipped"][0].as_str();
    why.inspect(|why| println!("SKIPPED: {why}")).is_some()
}

#[test]
fn a_quick_round_trip_has_the_shape_that_is_promised() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("report.html");
    let page_name = page.display().to_string();
    let said =
        measure(&["--quick", "--repeats", "1", "--only", "round-trip", "--report", &page_name]);
    assert!(said["machine"].as_str().is_some_and(|machine| machine.contains("Linux")), "{said}");
    let measure = &said["measures"][0];
    assert!(std::fs::read_to_string(&page).expect("a page").contains("<table>"));
    if !is_root() {
        assert!(measure["skipped"][0].as_str().is_some_and(|why| why.contains("root")), "{said}");
    }
    if is_skipped(measure) {
        return;
    }
    assert_eq!(measure["name"], "round-trip");
    assert_eq!(measure["failed"], Value::Null, "{said}");
    let figures = measure["figures"].as_array().expect("figures");
    for quantile in ["p50", "p99", "p99.9"] {
        let name = format!("4-byte MRd, {quantile}");
        let figure = figures.iter().find(|figure| figure["name"] == *name).expect(&name);
        let of = |key: &str| figure[key].as_f64().expect(key);
        assert!(of("min") > 0.0 && of("min") <= of("median") && of("median") <= of("max"));
        assert_eq!(figure["unit"], "µs");
    }
    for (what, unit) in
        [("TLPs, ", "k/s"), ("frames, ", "k/s"), ("processor time of the box", "ns")]
    {
        let is_it = |figure: &&Value| figure["name"].as_str().is_some_and(|n| n.starts_with(what));
        assert_eq!(figures.iter().find(is_it).expect(what)["unit"], unit);
    }
    let target = &measure["targets"][0];
    assert_eq!(target["aim"], "at-most");
    assert_eq!(target["met"], target["got"].as_f64() <= target["wanted"].as_f64());
}

#[test]
fn the_path_that_dies_is_the_one_that_carries_the_reads() {
    let said = measure(&["--quick", "--repeats", "1", "--only", "fail-over"]);
    let measure = &said["measures"][0];
    assert_eq!(measure["failed"], Value::Null, "{said}");
    if is_skipped(measure) {
        return;
    }
    let figures = measure["figures"].as_array().expect("figures");
    let figure = |name: &str| {
        let found = figures.iter().find(|f| f["name"].as_str().is_some_and(|n| n.contains(name)));
        found.unwrap_or_else(|| panic!("no {name} in {said}"))
    };
    // Some half of them, where a read goes by one path and its answer comes by the other.
    assert!(figure("frames of the reads")["min"].as_f64().is_some_and(|part| part > 25.0));
    // The reads stood still: a silent path is waited for at least a quarter of the smallest
    // timeout before another one is tried.
    assert!(figure("carries the reads dies")["min"].as_f64().is_some_and(|ms| ms >= 1.2), "{said}");
    let target = &measure["targets"][0];
    assert_eq!((&target["held"], &target["aim"]), (&"worst".into(), &"at-most".into()));
    assert_eq!(target["got"], figure("carries the reads dies")["max"]);
}

#[test]
fn quick_measures_say_something() {
    say_something(&["interrupts", "loss", "memory"]);
}

#[test]
#[ignore = "takes minutes in a debug build"]
fn long_measures_say_something() {
    let Some(page) = say_something(&["throughput", "transports", "hung"]) else { return };
    // Equation 1 and what was measured, in one picture.
    assert!(page.contains("<svg"));
}

/// Each of these has figures, all of its own; the page with them. Nothing where it cannot be measured.
fn say_something(names: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("report.html");
    let page_name = page.display().to_string();
    let only = names.iter().flat_map(|name| ["--only", name]);
    let said = measure(
        &["--quick", "--repeats", "1", "--report", &page_name]
            .into_iter()
            .chain(only)
            .collect::<Vec<_>>(),
    );
    let measures = said["measures"].as_array().expect("measures");
    if is_skipped(&measures[0]) {
        return None;
    }
    let mut said: Vec<_> = measures.iter().filter_map(|measure| measure["name"].as_str()).collect();
    said.sort_by_key(|name| names.iter().position(|wanted| wanted == name));
    assert_eq!(said, names);
    for measure in measures {
        let name = &measure["name"];
        assert_eq!(measure["failed"], Value::Null, "{name}: {measure}");
        let figures = measure["figures"].as_array().expect("figures");
        let median = |figure: &Value| figure["median"].as_f64().is_some_and(f64::is_finite);
        assert!(!figures.is_empty() && figures.iter().all(median), "{name}: {measure}");
        for target in measure["targets"].as_array().into_iter().flatten() {
            assert!(target["got"].is_f64() && target["met"].is_boolean(), "{name}: {target}");
        }
    }
    Some(std::fs::read_to_string(&page).expect("a page"))
}

#[test]
fn a_measure_that_does_not_exist_is_refused_with_those_that_do() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-bench"));
    let output = command.args(["--only", "nonsense"]).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("round-trip"), "{said}");
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_anything_is_measured() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-bench"));
    let output = command.args(["--report", "/nowhere/page.html"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("/nowhere/page.html"), "{said}");
    assert!(output.stdout.is_empty());
}
