//! The tests, counted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::report::{Done, Tally};
use crate::test_output::Reader;
use crate::tools::{AS_FOR_TESTS, cargo, run as run_command, shown};

fn selection(command: &mut Command, arguments: &[String]) {
    if arguments.is_empty() {
        command.arg("--workspace");
    }
    command.args(arguments);
}

/// Builds the tests, and the programs that whole-system tests start, and the libraries that those
/// load.
pub(crate) fn build(arguments: &[String]) -> Result<Done> {
    run_command(cargo(&["build", "--bins", "--lib"]).args(AS_FOR_TESTS))?;
    let mut tests = cargo(&["test", "--no-run", "--quiet"]);
    selection(&mut tests, arguments);
    run_command(&mut tests)?;
    Ok(Done::default())
}

/// How long the cards' load is in the long set: what test programs take from there.
const LOAD: (&str, &str) = ("DXPU_CARD_LOAD_MINUTES", "60");

/// Runs the tests.
pub(crate) fn run(arguments: &[String], long: bool) -> Result<Done> {
    let mut command = cargo(&["test", "--no-fail-fast"]);
    selection(&mut command, arguments);
    // Captured output is where tests say that they skip themselves.
    command.args(["--", "--show-output"]);
    if long {
        command.arg("--include-ignored");
        if std::env::var_os(LOAD.0).is_none() {
            command.env(LOAD.0, LOAD.1);
        }
    }
    let (tests, succeeded) = read(&command)?;
    if !succeeded && tests.failed == 0 {
        bail!("`{}` failed without a failed test; see above", shown(&command));
    }
    let Tally { passed, failed, skipped } = &tests;
    let detail = format!("{passed} passed, {failed} failed, {} skipped", skipped.len());
    Ok(Done { detail, tests, skipped: None })
}

/// Runs a command whose two outputs go down one pipe, so that cargo's lines stay between those of
/// the programs that it runs, and reads it.
pub(crate) fn read(command: &Command) -> Result<(Tally, bool)> {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 2>&1"#, "sh"]).arg(command.get_program());
    shell.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::piped());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = command.get_current_dir() {
        shell.current_dir(dir);
    }
    let mut child = shell.spawn().context("the shell `sh` does not start")?;
    let mut reader = Reader::default();
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).context("reading what the tests print")? > 0 {
        let text = String::from_utf8_lossy(&line);
        if let Some(shown) = reader.line(text.trim_end_matches(['\n', '\r'])) {
            println!("{shown}");
        }
        line.clear();
    }
    let (tally, last) = reader.end();
    if let Some(shown) = last {
        println!("{shown}");
    }
    Ok((tally, child.wait().context("waiting for the tests")?.success()))
}
