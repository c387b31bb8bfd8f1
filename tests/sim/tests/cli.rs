//! The command, as a person or a script meets it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_dxpu-sim");

/// A folder of a test's own, with a profile that no seed keeps: its work takes longer than there
/// is time.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let profile = "about = \"too much\"\n[fabric]\nhosts = 1\nboxes = 1\nslots = 1\n[fabric.cable]\n\
                   rate_mbps = 10000\nqueue_kb = 256\n[work]\nbursts = [6, 6]\n\
                   operations = [20000, 20000]\nregisters = 1\n[time]\nbusy_ms = 1\nsettle_ms = 1\n";
    std::fs::write(folder.join("too much.toml"), profile).unwrap();
    folder
}

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(PROGRAM).current_dir(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_command_that_is_printed_plays_it_again() {
    let folder = folder("it's played");
    let profile = folder.join("too much.toml");
    let profile = profile.to_str().unwrap();
    let shrunk = run(&folder, &["--seeds", "3", "--profile", profile, "--minimise", "short.json"]);
    assert_eq!(shrunk.status.code(), Some(1), "{shrunk:?}");
    let command = |said: &Output| {
        let line = text(&said.stdout).lines().find_map(|l| l.strip_prefix("to see all of it: "));
        line.expect("it is said").replacen("./dx sim", PROGRAM, 1)
    };
    let before = command(&shrunk);
    assert!(before.contains("--schedule short.json"), "{before}");
    let again = Command::new("sh").current_dir(&folder).args(["-c", &before]).output().unwrap();
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert_eq!(command(&again), before, "and so does the one that it prints");
    let told = |said: &Output| text(&said.stdout).lines().next().map(str::to_owned);
    assert_eq!(told(&again), told(&shrunk));
    for name in ["too much-3.txt", "too much-3.pcap"] {
        assert!(folder.join(name).metadata().unwrap().len() > 0, "{name}");
    }
}

#[test]
fn what_is_made_short_is_recorded_and_said_as_json() {
    let folder = folder("short");
    let args = ["--seeds", "3", "--profile", "too much.toml", "--json", "--minimise", "short.json"];
    let said = run(&folder, &[&args[..], &["--trace", "t.txt", "--pcap", "p.pcap"]].concat());
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let lines: Vec<Value> =
        text(&said.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let schedule: Vec<Value> =
        serde_json::from_slice(&std::fs::read(folder.join("short.json")).unwrap()).unwrap();
    assert_eq!(lines[0]["entries"], schedule.len());
    for name in ["t.txt", "p.pcap"] {
        assert!(folder.join(name).metadata().unwrap().len() > 0, "{name}");
    }
    // Of a seed that keeps every promise, too.
    let args = ["--seeds", "3", "--profile", "calm", "--json", "--minimise", "none.json"];
    let said = run(&folder, &[&args[..], &["--trace", "calm.txt"]].concat());
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let line: Value = serde_json::from_str(text(&said.stdout)).unwrap();
    assert_eq!((&line["seed"], &line["broken"]), (&3.into(), &0.into()));
    assert!(folder.join("calm.txt").metadata().unwrap().len() > 0);
    assert!(!folder.join("none.json").exists(), "there is nothing to write");
}

#[test]
fn what_cannot_be_written_is_found_out_before_anything_runs() {
    let folder = folder("unwritable");
    let args = ["--seeds", "3", "--profile", "too much.toml", "--minimise"];
    for more in [&["gone/short.json"][..], &["short.json", "--pcap", "gone/p.pcap"]] {
        let said = run(&folder, &[&args[..], more].concat());
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        let error = text(&said.stderr);
        assert!(error.starts_with("dxpu-sim: gone/") && error.lines().count() == 1, "{error}");
        assert!(!folder.join("short.json").exists(), "nothing was written to it");
    }
}

#[test]
fn a_benchmark_that_is_too_slow_fails() {
    let folder = folder("bench");
    let code = |args: &[&str]| run(&folder, args).status.code();
    assert_eq!(code(&["bench", "--at-least", "1"]), Some(0));
    assert_eq!(code(&["bench", "--at-least", "1000000000000"]), Some(1));
    assert_eq!(code(&["bench", "--at-least", "fast"]), Some(2));
}
