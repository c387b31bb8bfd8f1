//! The program runs on a small pool and what has to hold does. Speed is not judged: a debug build
//! on a busy machine misses targets.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// Two clients share three hosts unevenly; each host has one port.
#[test]
fn clients_that_do_not_divide_the_hosts_do_not_meet_at_one() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-pool-scale"));
    command.args(["--boxes", "3", "--slots", "1", "--hosts", "3", "--clients", "2"]);
    let output = command.args(["--cycles", "200", "--events", "10"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_say_instead() {
    for (options, code, why) in [
        (&["--cycles", "0"][..], 2, "0 is not in 1..=4294967295"),
        (&["--hosts", "3", "--clients", "4"], 1, "say --clients 3 or fewer"),
        (&["--boxes", "1", "--slots", "2", "--clients", "3"], 1, "say --clients 2 or fewer"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-pool-scale"));
        let output = command.args(options).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pool_joins_a_manager_that_runs_and_leaves_when_its_input_ends() {
    let program = Path::new(env!("CARGO_BIN_EXE_dxpu-pool-scale"));
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program.with_file_name("dxpu-manager"));
    command.args(["serve", "--store", "store.redb", "--ready-file", "ready.json"]);
    command.args(["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--log", "warn"]);
    let _manager = Running(command.current_dir(folder.path()).spawn().unwrap());
    let begun = Instant::now();
    let ready: Value = loop {
        if let Ok(text) = std::fs::read_to_string(folder.path().join("ready.json")) {
            break serde_json::from_str(&text).unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the manager does not start");
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut command = Command::new(program);
    command.args(["--join", ready["control"].as_str().unwrap()]);
    command.args(["--api", ready["listen"].as_str().unwrap()]);
    command.args(["--boxes", "2", "--slots", "2", "--hosts", "2", "--lent", "3"]);
    let mut pool = Running(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(pool.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "4 proxies, 3 devices lent\n");
    drop(pool.0.stdin.take());
    let mut complaints = String::new();
    pool.0.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert!(pool.0.wait().unwrap().success() && complaints.is_empty(), "{complaints}");
}
