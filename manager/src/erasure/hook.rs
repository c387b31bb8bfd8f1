//! Erasing by a program of the operator's.

use crate::records::Tables;
use crate::types::{
    AllocationId, ErasureId, ErasureRecord, FunctionAddress, NodeName, PciIdentity,
};
use serde::Serialize;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tlp_codec::ids::SlotId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Bytes of what the program says that are kept, of either stream.
const MAX_SAID: u64 = 4096;

/// What the program gets on its standard input, as one line of JSON.
#[derive(Serialize)]
struct Input<'a> {
    erasure: ErasureId,
    #[serde(rename = "box")]
    box_name: &'a NodeName,
    slot: SlotId,
    model: &'a str,
    /// 16 hexadecimal digits.
    serial: String,
    pci: Option<PciIdentity>,
    host: Option<&'a NodeName>,
    allocation: Option<AllocationId>,
}

/// Runs it. What it said, if it ended with status 0.
///
/// # Errors
///
/// Why it did not, for a person.
pub(super) async fn run(
    hook: &Path,
    record: &ErasureRecord,
    tables: &Tables,
) -> Result<String, String> {
    let first = record.functions.first().expect("an erasure has a function");
    let address = FunctionAddress { slot: record.slot.clone(), function: first.binding.function };
    let input = Input {
        erasure: record.id,
        box_name: record.slot.box_name(),
        slot: record.slot.slot(),
        model: &record.model,
        serial: format!("{:016x}", first.serial),
        pci: tables.devices().get(&address).map(|device| device.pci),
        host: record.host.as_ref(),
        allocation: record.allocation,
    };
    let mut line = serde_json::to_vec(&input).expect("it is JSON");
    line.push(b'\n');
    let name = hook.display();
    let bound = Duration::from_secs(record.rule.within_s.into());
    match tokio::time::timeout(bound, talk(hook, &line)).await {
        Ok(said) => said.map_err(|why| format!("{name}: {why}")),
        Err(_) => Err(format!("{name} did not end within {bound:?} and was killed")),
    }
}

async fn talk(hook: &Path, line: &[u8]) -> Result<String, String> {
    let mut child = Command::new(hook)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let write = async move {
        // A program that does not read what it is told may still do its work.
        let _ = stdin.write_all(line).await;
    };
    let (said, complained, (), status) =
        tokio::join!(first_line(stdout), first_line(stderr), write, child.wait());
    let status = status.map_err(|error| error.to_string())?;
    let said = if said.is_empty() { complained } else { said };
    if status.success() { Ok(said) } else { Err(format!("{status}: {said}")) }
}

/// The first line of a stream, of which everything is read.
async fn first_line(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut start = Vec::new();
    let _ = (&mut stream).take(MAX_SAID).read_to_end(&mut start).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&start).lines().next().unwrap_or_default().trim().to_owned()
}
