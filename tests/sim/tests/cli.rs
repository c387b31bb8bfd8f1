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
        line.expect("it is said").to_owned()
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
    // Who started it may have another way to it.
    let mut through = Command::new(PROGRAM);
    through.current_dir(&folder).env("DXPU_SIM_COMMAND", "../dx sim");
    let said = through.args(["--seeds", "3", "--profile", profile]).output().unwrap();
    assert!(command(&said).starts_with("../dx sim --seeds 3 --profile "), "{said:?}");
}

/// Two processes, and what each says of all that happened.
#[test]
fn the_same_seeds_are_the_same_runs() {
    let folder = folder("hash");
    let hash = |args: &[&str]| {
        let said = run(&folder, &[&["--profile", "calm", "--json"], args].concat());
        assert_eq!(said.status.code(), Some(0), "{said:?}");
        let line: Value = serde_json::from_str(text(&said.stdout)).unwrap();
        line["hash"].as_str().expect("a hash").to_owned()
    };
    let first = hash(&["--seeds", "0..6"]);
    assert_eq!(hash(&["--seeds", "0..6", "--jobs", "3"]), first);
    assert_ne!(hash(&["--seeds", "1..7"]), first);
}

#[test]
fn a_larger_fabric_works() {
    let folder = folder("large");
    let said = run(&folder, &["--seeds", "1", "--profile", "calm", "--nodes", "24"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let said = run(&folder, &["--seeds", "1", "--profile", "calm", "--nodes", "66"]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(text(&said.stderr).contains("of 66 nodes 33 are hosts"), "{said:?}");
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
    // It takes some of the work, and not all of that.
    assert!((1..6).contains(&schedule.len()), "{schedule:?}");
    let operations = |entry: &Value| entry["act"]["work"]["operations"].as_u64().unwrap();
    assert!(schedule.iter().all(|entry| operations(entry) < 20_000), "{schedule:?}");
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
    // The file for one thing is not the one for another.
    let twice = ["--seeds", "3", "--profile", "calm", "--trace", "same", "--pcap", "same"];
    let said = run(&folder, &twice);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(text(&said.stderr).contains("same is said twice"), "{said:?}");
}

#[test]
fn a_record_that_is_not_whole_is_no_success() {
    let folder = folder("full");
    for what in ["--trace", "--pcap"] {
        let said = run(&folder, &["--seeds", "3", "--profile", "calm", what, "/dev/full"]);
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(text(&said.stderr).contains("/dev/full cannot be written: No space"), "{said:?}");
    }
    // What was broken is said all the same, and a schedule is not lost.
    let said =
        run(&folder, &["--seeds", "3", "--profile", "too much.toml", "--trace", "/dev/full"]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(text(&said.stdout).contains("seed 3 of profile too much.toml broke"), "{said:?}");
    let args = ["--seeds", "3", "--profile", "too much.toml", "--minimise", "short.json"];
    let said = run(&folder, &[&args[..], &["--trace", "/dev/full"]].concat());
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(folder.join("short.json").metadata().unwrap().len() > 2);
}

/// What goes wrong by itself needs nothing of a schedule.
#[test]
fn a_schedule_that_breaks_nothing_is_made_empty() {
    let folder = folder("empty");
    let profile = std::fs::read_to_string(folder.join("too much.toml")).unwrap();
    let profile = format!("{profile}[always]\nloss_ppm = 1000000\n");
    std::fs::write(folder.join("all lost.toml"), profile).unwrap();
    let args = ["--seeds", "3", "--profile", "all lost.toml", "--minimise", "short.json"];
    let said = run(&folder, &args);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(text(&said.stdout).contains("0 of 6 entries are enough"), "{said:?}");
    assert_eq!(std::fs::read_to_string(folder.join("short.json")).unwrap(), "[]");
}

#[test]
fn a_benchmark_that_is_too_slow_fails() {
    let folder = folder("bench");
    let code = |args: &[&str]| run(&folder, args).status.code();
    assert_eq!(code(&["bench", "--at-least", "1"]), Some(0));
    assert_eq!(code(&["bench", "--at-least", "1000000000000"]), Some(1));
    assert_eq!(code(&["bench", "--at-least", "fast"]), Some(2));
}
