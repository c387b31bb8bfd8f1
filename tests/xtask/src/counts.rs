//! Instructions of the hot paths, counted by callgrind and compared with those in the tree: a
//! slowdown is seen without trusting a clock, since the count is the same each time.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::Done;
use crate::tools::{build_programs, cargo, output, root, target_dir};

/// The counts in the tree.
const FILE: &str = "tests/instruction-counts.json";
/// How often each path is done: once so often and once twice as often, so that what is done only
/// once does not count.
const TIMES: u64 = 500;
/// How much a count may be off, in thousandths, before it counts as a change.
const TOLERANCE: u64 = 20;
/// How much that of the simulator may be off, in thousandths: its crate is built as the tests build
/// it, and whether cargo builds step by step (`CARGO_INCREMENTAL`) or with line numbers moves what is
/// inlined by some 2 %.
const SIMULATOR_TOLERANCE: u64 = 40;
/// Paths that cost the same: the flight recorder that is off, after it was used, costs nothing.
const SAME: &[[&str; 2]] = &[
    [
        "roles: MRd of the host and its CplD",
        "roles: MRd of the host and its CplD, a recording over",
    ],
    [
        "roles: MWr of 128 B of the device, in a stream",
        "roles: MWr of 128 B of the device, in a stream, a recording over",
    ],
];
/// How far apart those may be, in thousandths.
const APART: u64 = 5;
/// The simulator, with its oracles, by the TLPs of a run. Of the program that the tests have: to
/// make a fast one takes minutes, and what it does more it does more often there, too.
const SIMULATOR: &str = "simulator: each TLP, as the tests have it";
/// The profile of that run: long enough that its beginning does not count.
const PROFILE: &str = "tests/instruction-counts.toml";

/// What is in the file.
struct Recorded {
    /// The compiler, without which counts say nothing of each other.
    rustc: String,
    counts: BTreeMap<String, u64>,
}

/// Counts, and compares; with `record`, writes what was counted instead.
pub(crate) fn run(record: bool) -> Result<Done> {
    if let Err(reason) = output(Command::new("valgrind").arg("--version")) {
        return Ok(Done::skipped(format!(
            "valgrind does not run ({reason:#}): install the package valgrind"
        )));
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(Done::skipped("the counts in the tree are of x86-64"));
    }
    let rustc = output(Command::new("rustc").arg("--version"))?.trim().to_owned();
    let recorded = read()?;
    if !record && recorded.rustc != rustc {
        return Ok(Done::skipped(format!(
            "the counts in {FILE} are of {}, this is {rustc}: record them anew with \
             `cargo xtask counts --record`",
            recorded.rustc
        )));
    }
    let counts = count_all()?;
    let apart = apart(&counts);
    if !apart.is_empty() {
        bail!("{}", apart.join("\n"));
    }
    if record {
        write(&Recorded { rustc, counts })?;
        return Ok(Done::with(format!("written to {FILE}")));
    }
    let changed = compare(&recorded.counts, &counts);
    if !changed.is_empty() {
        bail!("{}\nIf that is meant, record it: `cargo xtask counts --record`", changed.join("\n"));
    }
    Ok(Done::with(format!("{} hot paths", counts.len())))
}

/// Paths that must cost the same and do not, each in words.
fn apart(counts: &BTreeMap<String, u64>) -> Vec<String> {
    let differ = |[one, other]: &[&str; 2]| match (counts.get(*one), counts.get(*other)) {
        (Some(&a), Some(&b)) if a.abs_diff(b) * 1000 <= a * APART => None,
        (Some(a), Some(b)) => {
            Some(format!("{other}: {b} instructions where `{one}` takes {a}, which is the same"))
        }
        _ => Some(format!("there is no path `{one}`, or none `{other}`")),
    };
    SAME.iter().filter_map(differ).collect()
}

/// Builds the programs and counts each of their paths.
fn count_all() -> Result<BTreeMap<String, u64>> {
    let program = program()?;
    let names = output(&mut Command::new(&program))?;
    let mut counts = BTreeMap::new();
    for name in names.lines() {
        let once = instructions(&program, name, TIMES)?;
        let twice = instructions(&program, name, 2 * TIMES)?;
        counts.insert(name.to_owned(), twice.saturating_sub(once) / TIMES);
    }
    counts.insert(SIMULATOR.to_owned(), simulator()?);
    for (name, each) in &counts {
        println!("{each:>8}  {name}");
    }
    Ok(counts)
}

/// Instructions for each TLP of the simulator's.
fn simulator() -> Result<u64> {
    build_programs(&["dxpu-sim"])?;
    let program = target_dir().join("debug").join("dxpu-sim");
    let profile = root().join(PROFILE);
    let words = ["--seeds".as_ref(), "0".as_ref(), "--json".as_ref(), "--profile".as_ref()];
    let (said, instructions) =
        under_callgrind(&program, words.into_iter().chain([profile.as_os_str()]))?;
    let line = said.lines().last().context("the simulator says nothing")?;
    let run: serde_json::Value = serde_json::from_str(line).context("the simulator's result")?;
    let tlps = run["tlps"].as_u64().filter(|tlps| *tlps > 0);
    Ok(instructions / tlps.with_context(|| format!("no TLPs in {run}"))?)
}

/// The path of the built program.
fn program() -> Result<PathBuf> {
    let mut command = cargo(&["bench", "--quiet", "--no-run", "--package", "proxy-core"]);
    command.args(["--bench", "counts", "--message-format", "json"]);
    let messages = output(&mut command)?;
    let executable = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.context("cargo names no program that it built")
}

/// Instructions of the whole program when it does one path so often.
fn instructions(program: &Path, name: &str, times: u64) -> Result<u64> {
    let times = times.to_string();
    let words = [OsStr::new(name), OsStr::new(&times)];
    Ok(under_callgrind(program, words).with_context(|| name.to_owned())?.1)
}

/// What a program prints, and its instructions.
fn under_callgrind<'a>(
    program: &Path,
    words: impl IntoIterator<Item = &'a OsStr>,
) -> Result<(String, u64)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    // Nothing of the environment, whose length moves the stack.
    command.arg(program).args(words).env_clear().env("PATH", "/usr/bin:/bin");
    let ended = command.output().context("valgrind does not start")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if !ended.status.success() {
        bail!("{}", said.trim());
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let number = collected.and_then(|(_, rest)| rest.trim().parse().ok());
    let number = number.with_context(|| format!("callgrind says no count: {}", said.trim()))?;
    Ok((String::from_utf8_lossy(&ended.stdout).into_owned(), number))
}

/// How much the count of this path may be off, in thousandths.
fn tolerance(name: &str) -> u64 {
    if name == SIMULATOR { SIMULATOR_TOLERANCE } else { TOLERANCE }
}

/// What is not as it was, each in words.
fn compare(was: &BTreeMap<String, u64>, is: &BTreeMap<String, u64>) -> Vec<String> {
    let mut changed = Vec::new();
    for (name, &now) in is {
        match was.get(name) {
            None => changed.push(format!("{name}: {now} instructions, not recorded yet")),
            Some(&before) if before.abs_diff(now) * 1000 > before * tolerance(name) => {
                let word = if now > before { "more" } else { "fewer" };
                let percent = before.abs_diff(now) as f64 * 100.0 / before as f64;
                changed.push(format!(
                    "{name}: {now} instructions where {before} are recorded, {percent:.1} % {word}"
                ));
            }
            Some(_) => {}
        }
    }
    let gone = was.keys().filter(|name| !is.contains_key(*name));
    changed.extend(gone.map(|name| format!("{name}: recorded, and there is no such path")));
    changed
}

fn read() -> Result<Recorded> {
    let text = std::fs::read_to_string(root().join(FILE)).with_context(|| FILE.to_owned())?;
    let value: serde_json::Value = serde_json::from_str(&text).with_context(|| FILE.to_owned())?;
    let counts = value["counts"].as_object().with_context(|| format!("{FILE}: no counts"))?;
    let number = |(name, count): (&String, &serde_json::Value)| {
        let count = count.as_u64().with_context(|| format!("{FILE}: {name} is no count"))?;
        Ok((name.clone(), count))
    };
    Ok(Recorded {
        rustc: value["rustc"].as_str().unwrap_or_default().to_owned(),
        counts: counts.iter().map(number).collect::<Result<_>>()?,
    })
}

fn write(recorded: &Recorded) -> Result<()> {
    let value = serde_json::json!({ "rustc": recorded.rustc, "counts": recorded.counts });
    std::fs::write(root().join(FILE), format!("{value:#}\n")).with_context(|| FILE.to_owned())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn changes_beyond_the_tolerance_are_named() {
        let counts = |entries: &[(&str, u64)]| {
            entries.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let was = counts(&[("a", 1000), ("b", 1000), ("c", 1000), ("d", 5), (SIMULATOR, 1000)]);
        let is = counts(&[("a", 1020), ("b", 1021), ("c", 900), ("e", 5), (SIMULATOR, 1040)]);
        let changed = compare(&was, &is);
        assert_eq!(changed.len(), 4, "{changed:?}");
        assert!(changed[0].starts_with("b: 1021") && changed[0].contains("2.1 % more"));
        assert!(changed[1].contains("10.0 % fewer"));
        assert!(changed[2].starts_with("e:") && changed[3].starts_with("d:"));
    }

    #[test]
    fn the_file_in_the_tree_can_be_read() {
        let recorded = read().unwrap();
        assert!(recorded.rustc.starts_with("rustc ") && recorded.counts.len() >= 10);
        assert!(recorded.counts.contains_key(SIMULATOR));
        assert_eq!(apart(&recorded.counts), Vec::<String>::new());
    }

    #[test]
    fn a_recorder_that_costs_something_when_it_is_off_is_named() {
        let mut counts: BTreeMap<String, u64> =
            SAME.as_flattened().iter().map(|name| ((*name).to_owned(), 10_000)).collect();
        assert!(apart(&counts).is_empty());
        for (cost, named) in [(10_050, 0), (10_051, 1), (9_949, 1)] {
            counts.insert(SAME[0][1].to_owned(), cost);
            assert_eq!(apart(&counts).len(), named, "{cost}");
        }
        counts.remove(SAME[1][1]);
        assert!(apart(&counts)[1].contains("there is no path"), "{:?}", apart(&counts));
    }
}
