//! The project's own command lines, as a person would use them.

use crate::place::Place;
use crate::report::Report;
use anyhow::{Context, Result, bail};
use processes::Said;
use serde_json::Value;
use std::process::Command;

/// `dxpu-manager` as a client, and `dxpu-host`.
pub(crate) struct Programs {
    pub(crate) place: Place,
    pub(crate) namespace: Option<String>,
    pub(crate) server: String,
    pub(crate) host_socket: String,
}

impl Programs {
    fn manager(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command("dxpu-manager", self.namespace.as_deref());
        command.args(["--server", &self.server]).args(arguments);
        command
    }

    /// What a manager command prints for programs.
    pub(crate) fn manager_json(&self, arguments: &[&str]) -> Result<Value> {
        let text = processes::output(self.manager(arguments).arg("--json"))?;
        serde_json::from_str(&text).with_context(|| format!("dxpu-manager {arguments:?}: {text}"))
    }

    /// As [`manager_json`](Self::manager_json), with what it says meanwhile under its step.
    pub(crate) fn manager_watched(&self, report: &Report, arguments: &[&str]) -> Result<Value> {
        let mut command = self.manager(arguments);
        let text = processes::watched(command.arg("--json"), &mut |line| {
            report.remark(line);
            Said::Message
        })?;
        serde_json::from_str(&text).with_context(|| format!("dxpu-manager {arguments:?}: {text}"))
    }

    /// What a manager command prints for people.
    pub(crate) fn manager_text(&self, arguments: &[&str]) -> Result<String> {
        processes::output(&mut self.manager(arguments))
    }

    fn host(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command("dxpu-host", None);
        command.args(["--socket", &self.host_socket, "--json"]).args(arguments);
        command
    }

    /// What a command of the model host results in.
    pub(crate) fn host_json(&self, arguments: &[&str]) -> Result<Value> {
        let text = processes::output(&mut self.host(arguments))?;
        serde_json::from_str(&text).with_context(|| format!("dxpu-host {arguments:?}: {text}"))
    }

    /// As [`host_json`](Self::host_json), with its progress shown.
    pub(crate) fn host_watched(&self, report: &Report, arguments: &[&str]) -> Result<Value> {
        let mut command = self.host(arguments);
        let text = processes::watched(command.arg("--progress"), &mut |line| {
            // As dxpu-host prints how far it has got.
            let percent = line.strip_suffix(" %").map(str::parse::<u8>);
            if let Some(Ok(_)) = percent {
                report.progress(line);
                return Said::Progress;
            }
            Said::Message
        })?;
        serde_json::from_str(&text).with_context(|| format!("dxpu-host {arguments:?}: {text}"))
    }

    /// What a command of the model host prints for people.
    pub(crate) fn host_text(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.place.command("dxpu-host", None);
        processes::output(command.args(["--socket", &self.host_socket]).args(arguments))
    }

    /// Why a command of the model host failed; an error if it did not.
    pub(crate) fn host_failure(&self, arguments: &[&str]) -> Result<String> {
        let output = processes::run(&mut self.host(arguments))?;
        if output.status.success() {
            bail!("dxpu-host {arguments:?} was done, and should have failed");
        }
        Ok(String::from_utf8_lossy(&output.stderr).trim().to_string())
    }
}

/// A field of an answer, with the whole answer in the error when it is not there.
pub(crate) fn field<'a>(value: &'a Value, path: &str) -> Result<&'a Value> {
    value.pointer(path).with_context(|| format!("no {path} in {value}"))
}

/// A text of an answer.
pub(crate) fn text(value: &Value, path: &str) -> Result<String> {
    let field = field(value, path)?;
    Ok(field.as_str().with_context(|| format!("{path} is no text: {field}"))?.to_string())
}

/// A number of an answer.
pub(crate) fn number(value: &Value, path: &str) -> Result<f64> {
    let field = field(value, path)?;
    field.as_f64().with_context(|| format!("{path} is no number: {field}"))
}
