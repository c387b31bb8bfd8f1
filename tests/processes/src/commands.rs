//! Programs that say something and end.

use crate::signals::not_interrupted;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

/// Keeps from a command what the environment says to the project's programs: a machine may have proxies
/// of its own, with devices and images that are none of this program's.
pub fn without_settings(command: &mut Command) -> &mut Command {
    without(command, std::env::vars_os().map(|(variable, _)| variable))
}

fn without(command: &mut Command, variables: impl Iterator<Item = OsString>) -> &mut Command {
    for variable in variables.filter(|name| name.to_string_lossy().starts_with("DXPU_")) {
        command.env_remove(variable);
    }
    command
}

/// Runs a command to its end; its standard output.
///
/// # Errors
///
/// When it fails, with what it said.
pub fn output(command: &mut Command) -> Result<String> {
    watched(command, &mut |_| Said::Message)
}

/// What a line of a command's standard error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// How far it has got: nothing to repeat when it fails.
    Progress,
    /// Something else.
    Message,
}

/// As [`output`]; each line of its standard error is told when it comes.
///
/// # Errors
///
/// As [`output`].
pub fn watched(command: &mut Command, tell: &mut dyn FnMut(&str) -> Said) -> Result<String> {
    let Output { status, stdout, stderr } = run_watched(command, tell)?;
    if !status.success() {
        bail!("{command:?} ended with {status}: {}", String::from_utf8_lossy(&stderr).trim());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Runs a command to its end, whatever its end is.
///
/// # Errors
///
/// When it cannot be run, or this program is to end.
///
/// # Panics
///
/// Never.
pub fn run(command: &mut Command) -> Result<Output> {
    run_watched(command, &mut |_| Said::Message)
}

fn run_watched(command: &mut Command, tell: &mut dyn FnMut(&str) -> Said) -> Result<Output> {
    not_interrupted()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{command:?} could not be run"))?;
    let mut out = child.stdout.take().context("it was piped")?;
    let err = child.stderr.take().context("it was piped")?;
    // Both are read at once: a program that finds one of its pipes full waits.
    let reading = std::thread::spawn(move || {
        let mut stdout = Vec::new();
        out.read_to_end(&mut stdout).map(|_| stdout)
    });
    let mut stderr = Vec::new();
    for line in BufReader::new(err).split(b'\n') {
        let line = line?;
        if tell(&String::from_utf8_lossy(&line)) == Said::Message {
            stderr.extend_from_slice(&line);
            stderr.push(b'\n');
        }
    }
    let stdout = reading.join().expect("reading does not panic")?;
    Ok(Output { status: child.wait()?, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_projects_programs_are_not_passed_on() {
        let mut command = Command::new("box-proxy");
        let variables = ["PATH", "DXPU_ADVERTISE", "MY_DXPU_MTU", "DXPU_BOX_CONFIG"];
        without(&mut command, variables.into_iter().map(OsString::from));
        let changed: Vec<_> = command.get_envs().collect();
        assert_eq!(
            changed,
            [("DXPU_ADVERTISE".as_ref(), None), ("DXPU_BOX_CONFIG".as_ref(), None)]
        );
    }

    #[test]
    fn progress_is_no_part_of_why_a_command_failed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 7 % >&2; echo the drive is gone >&2; exit 3"]);
        let mut told = Vec::new();
        let failed = watched(&mut command, &mut |line| {
            told.push(line.to_owned());
            if line.ends_with('%') { Said::Progress } else { Said::Message }
        });
        let error = failed.unwrap_err().to_string();
        assert!(error.ends_with("exit status: 3: the drive is gone"), "{error}");
        assert_eq!(told, ["7 %", "the drive is gone"]);
    }
}
