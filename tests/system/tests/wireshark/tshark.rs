//! Runs tshark with the dissector.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The dissector.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tlp-codec/wireshark/dxpu.lua")
}

/// A tshark that runs Lua; `None`, with the reason printed, where there is none.
pub(crate) fn found() -> Option<()> {
    let reason = match Command::new("tshark").arg("--version").output() {
        Err(error) => format!("tshark does not start ({error}): install the package tshark"),
        Ok(version) => {
            let said = String::from_utf8_lossy(&version.stdout).into_owned();
            if said.contains("with Lua") || said.contains("+Lua") {
                return Some(());
            }
            "this tshark was built without Lua: install your distribution's package tshark".into()
        }
    };
    println!("SKIPPED: {reason}");
    None
}

fn command(capture: &Path) -> Command {
    let mut command = Command::new("tshark");
    // Two passes, so that requests know their completions; no configuration of this user's.
    command.args(["-n", "-2", "-C", "Default", "-X"]);
    command.arg(format!("lua_script:{}", script().display()));
    command.arg("-r").arg(capture).stdin(Stdio::null());
    command.env("WIRESHARK_CONFIG_DIR", capture.with_extension("config"));
    command
}

/// Runs it and asserts that nothing failed inside.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("tshark starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{}: {err}", output.status);
    for failure in ["Lua Error", "Lua: Error", "Dissector bug", "stack traceback"] {
        for text in [&out, &err] {
            let found = text.lines().position(|line| line.contains(failure));
            let around = found.map(|at| {
                text.lines().skip(at.saturating_sub(40)).take(42).collect::<Vec<_>>().join("\n")
            });
            assert!(found.is_none(), "tshark says `{failure}`:\n{}", around.unwrap_or_default());
        }
    }
    out
}

/// A frame as the dissector shows it, or a packet that it did not take for one.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The packet's.
    pub(crate) number: u64,
    /// What is in the frame's tree, if it was taken for one.
    pub(crate) tree: Option<Value>,
}

/// What the dissector shows of each packet, and of each frame where it has several.
pub(crate) fn json(capture: &Path) -> Vec<Shown> {
    json_of_first(capture, u32::MAX)
}

/// As [`json`], of the first packets.
pub(crate) fn json_of_first(capture: &Path, most: u32) -> Vec<Shown> {
    json_by(capture, &["-c", &most.min(i32::MAX as u32).to_string()])
}

/// As [`json`], of the packets that a display filter selects.
pub(crate) fn json_matching(capture: &Path, filter: &str) -> Vec<Shown> {
    json_by(capture, &["-Y", filter])
}

fn json_by(capture: &Path, which: &[&str]) -> Vec<Shown> {
    let mut command = command(capture);
    command.args(which);
    command.args(["-T", "json", "--no-duplicate-keys", "-J", "frame dxpu"]);
    let packets: Vec<Value> = serde_json::from_str(&output(&mut command)).expect("JSON");
    let shown = packets.into_iter().flat_map(|packet| {
        let layers = &packet["_source"]["layers"];
        let number = layers["frame"]["frame.number"].as_str().expect("a number");
        let number = number.parse().expect("a number");
        let trees = match layers.get("dxpu") {
            None => vec![None],
            Some(frames) => each(Some(frames)).into_iter().cloned().map(Some).collect(),
        };
        trees.into_iter().map(move |tree| Shown { number, tree })
    });
    shown.collect()
}

/// Everything that it shows of every packet, as text.
pub(crate) fn text(capture: &Path) -> String {
    output(command(capture).arg("-V"))
}

/// The packets that a display filter selects.
pub(crate) fn matching(capture: &Path, filter: &str) -> Vec<u64> {
    let mut command = command(capture);
    command.args(["-Y", filter, "-T", "fields", "-e", "frame.number"]);
    output(&mut command).lines().map(|line| line.trim().parse().expect("a number")).collect()
}

/// The lines of the packet list.
pub(crate) fn list(capture: &Path) -> Vec<String> {
    let mut command = command(capture);
    command.args(["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"]);
    output(&mut command).lines().map(str::to_owned).collect()
}

/// One value or several under a name.
pub(crate) fn each(value: Option<&Value>) -> Vec<&Value> {
    match value {
        None => Vec::new(),
        Some(Value::Array(list)) => list.iter().collect(),
        Some(one) => vec![one],
    }
}

/// Every value that has this name, however deep, in order.
pub(crate) fn all<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    collect(value, name, &mut found);
    found
}

fn collect<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            found.extend(each(map.get(name)));
            map.values().for_each(|value| collect(value, name, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, name, found)),
        _ => {}
    }
}

/// A number, decimal or hexadecimal, or a truth value.
pub(crate) fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("no text: {value}"));
    let number = match text {
        "True" => Some(1),
        "False" => Some(0),
        _ => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
    };
    number.unwrap_or_else(|| panic!("no number: {text}"))
}

/// The numbers under a name, however deep.
pub(crate) fn numbers(value: &Value, name: &str) -> Vec<u64> {
    all(value, name).into_iter().map(number).collect()
}
