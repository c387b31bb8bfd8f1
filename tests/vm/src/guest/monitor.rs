//! QEMU's monitor, QMP: one JSON object a line (QEMU, docs/interop/qmp-spec.rst).

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long QEMU may take for an answer.
const BOUND: Duration = Duration::from_secs(60);

/// Runs one command, and gives what it returns.
///
/// # Errors
///
/// When QEMU is gone, does not answer, or says that it cannot.
pub(crate) fn execute(path: &Path, command: &str, arguments: &Value) -> Result<Value> {
    let stream = UnixStream::connect(path).context("QEMU's monitor is not there")?;
    stream.set_read_timeout(Some(BOUND))?;
    stream.set_write_timeout(Some(BOUND))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let greeting = object(&mut lines)?;
    if greeting.get("QMP").is_none() {
        bail!("QEMU's monitor says {greeting}");
    }
    ask(&stream, &mut lines, "qmp_capabilities", &json!({}))?;
    ask(&stream, &mut lines, command, arguments)
}

fn ask(
    mut stream: &UnixStream,
    lines: &mut impl BufRead,
    command: &str,
    arguments: &Value,
) -> Result<Value> {
    let mut text = json!({ "execute": command, "arguments": arguments }).to_string();
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    loop {
        let mut said = object(lines)?;
        if let Some(error) = said.get("error") {
            bail!("QEMU refuses {command}: {error}");
        }
        // Everything else is an event.
        if let Some(value) = said.get_mut("return") {
            return Ok(value.take());
        }
    }
}

fn object(lines: &mut impl BufRead) -> Result<Value> {
    let mut line = String::new();
    if lines.read_line(&mut line).context("QEMU's monitor does not answer")? == 0 {
        bail!("QEMU has closed its monitor");
    }
    serde_json::from_str(&line).with_context(|| format!("QEMU's monitor says {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn events_are_passed_over_and_errors_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor");
        let listener = UnixListener::bind(&path).unwrap();
        let answers =
            ["{\"event\": \"RESET\"}\n{\"return\": 7}\n", "{\"error\": {\"class\": \"X\"}}\n"];
        let qemu = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                stream.write_all(b"{\"QMP\": {}}\n").unwrap();
                assert!(lines.next().unwrap().unwrap().contains("qmp_capabilities"));
                stream.write_all(b"{\"return\": {}}\n").unwrap();
                assert!(lines.next().unwrap().unwrap().contains("query-status"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(execute(&path, "query-status", &json!({})).unwrap(), 7);
        let error = execute(&path, "query-status", &json!({})).unwrap_err();
        assert!(error.to_string().contains("refuses query-status"), "{error}");
        qemu.join().unwrap();
        assert!(execute(&path, "query-status", &json!({})).is_err());
    }
}
