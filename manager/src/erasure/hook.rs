//! Erasing by a program of the operator's.
//!
//! The program must not outlive the manager: the next one would run it again beside the first. It
//! runs in a process group of its own under a guard ([`guard`]), which is this program once more.
//! The guard's standard input is a socket that the manager holds: when that ends, because the manager
//! let go of it or was killed, the guard kills the group. (`PR_SET_PDEATHSIG` would do so when the
//! thread ends that began the program, which is sooner.) When the program has ended, the guard says
//! how by the same socket, as one byte, and kills the group with all that the program left behind in
//! it, itself among it.

use crate::records::Tables;
use crate::types::{
    AllocationId, ErasureId, ErasureRecord, FunctionAddress, NodeName, PciIdentity,
};
use rustix::process::{
    Pid, Signal, getpgrp, getpid, kill_current_process_group, kill_process_group,
};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use tlp_codec::ids::SlotId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// Bytes of what the program says that are kept, of either stream.
const MAX_SAID: u64 = 4096;

/// How long the streams may go on after the program and its group have ended: a process that has left
/// the group may hold them for ever.
const STREAMS: Duration = Duration::from_secs(1);

/// Exit code of the guard when the program cannot be started, as of shells (POSIX.1-2017, Shell
/// Command Language, 2.8.2).
const CANNOT_START: u8 = 126;

/// Added to the number of the signal that ended the program, as by shells.
const BY_SIGNAL: i32 = 128;

/// This program, also when its file has been replaced since.
static OURSELVES: LazyLock<PathBuf> = LazyLock::new(|| "/proc/self/exe".into());

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

/// A guard and what it guards: killed together when this is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.id()
            && let Err(error) = kill_process_group(id, Signal::KILL)
        {
            tracing::warn!("an erasing program cannot be killed: {error}");
        }
    }
}

impl Group {
    /// Kills it all, and waits for the guard. How that ended.
    async fn end(mut self) -> Result<ExitStatus, String> {
        if let Some(id) = self.id() {
            // It may be gone, except for the guard's status.
            let _ = kill_process_group(id, Signal::KILL);
        }
        self.0.wait().await.map_err(|error| error.to_string())
    }

    /// It has a number as long as it was not waited for, and the group has the same.
    fn id(&self) -> Option<Pid> {
        self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()))
    }
}

async fn talk(hook: &Path, line: &[u8]) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("it cannot be started: {error}");
    let (ours, its) = Socket::pair().map_err(cannot)?;
    ours.set_nonblocking(true).map_err(cannot)?;
    // Held until the end: the guard ends when this does.
    let mut ours = UnixStream::from_std(ours).map_err(cannot)?;
    let child = Command::new(&*OURSELVES)
        .arg(GUARD)
        .arg(hook)
        .stdin(OwnedFd::from(its))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    let mut group = Group(child);
    let (mut said, mut complained) = (Start::default(), Start::default());
    let stdout = said.read(group.0.stdout.take().expect("it is piped"));
    let stderr = complained.read(group.0.stderr.take().expect("it is piped"));
    // The guard reads it in any case.
    ours.write_all(line).await.map_err(|error| format!("it cannot be told: {error}"))?;
    let code = {
        let mut streams = std::pin::pin!(async { tokio::join!(stdout, stderr) });
        let mut code = std::pin::pin!(ours.read_u8());
        // What the program says is read all the while, or it could not go on.
        let (code, are_over) = tokio::select! {
            biased;
            code = &mut code => (code, false),
            _ = &mut streams => (code.await, true),
        };
        if !are_over {
            let _ = tokio::time::timeout(STREAMS, streams).await;
        }
        code
    };
    let status = group.end().await?;
    // A guard that said nothing was killed itself.
    let status = code.map_or(status, |code| ExitStatus::from_raw(i32::from(code) << 8));
    let said = if said.line().is_empty() { complained.line() } else { said.line() };
    if status.success() { Ok(said) } else { Err(format!("{}: {said}", called(status))) }
}

/// How the program ended, for a person.
fn called(status: ExitStatus) -> String {
    match status.code() {
        Some(code) if code > BY_SIGNAL => ExitStatus::from_raw(code - BY_SIGNAL).to_string(),
        _ => status.to_string(),
    }
}

/// The start of a stream, as far as it was read.
#[derive(Default)]
struct Start(Vec<u8>);

impl Start {
    /// Reads everything, and keeps the start.
    async fn read(&mut self, mut stream: impl tokio::io::AsyncRead + Unpin) {
        let _ = (&mut stream).take(MAX_SAID).read_to_end(&mut self.0).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }

    fn line(&self) -> String {
        String::from_utf8_lossy(&self.0).lines().next().unwrap_or_default().trim().to_owned()
    }
}

/// The first argument that makes this program a guard. It is no command for people.
const GUARD: &str = "guard-erasing-program";

/// If the program was started as a guard: runs the program that is named, with the first line of
/// standard input as its own, and kills it with all that it began when either ends. Does not come
/// back from that; the exit code if it cannot, or if the input ends before that line does.
pub fn guard(mut args: impl Iterator<Item = OsString>) -> Option<u8> {
    let hook = args.nth(1).filter(|first| first == GUARD).and_then(|_| args.next())?;
    if getpgrp() != getpid() {
        eprintln!("{GUARD} is for the manager only: it kills its process group");
        return Some(CANNOT_START);
    }
    let mut stdin = BufReader::new(std::io::stdin());
    let mut line = Vec::new();
    let _ = stdin.read_until(b'\n', &mut line);
    if !line.ends_with(b"\n") {
        // The manager died before it had said what is to be erased: another one may be at it.
        return Some(CANNOT_START);
    }
    let code = attend(&hook, stdin, line);
    // The last that it says. The manager may be gone.
    if let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() {
        let _ = File::from(socket).write_all(&[code]);
    }
    let _ = kill_current_process_group(Signal::KILL);
    Some(code)
}

/// Runs the program until it or the standard input ends. Its exit code.
fn attend(hook: &OsString, mut stdin: BufReader<std::io::Stdin>, line: Vec<u8>) -> u8 {
    let started = std::process::Command::new(hook).stdin(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            eprintln!("it cannot be started: {error}");
            return CANNOT_START;
        }
    };
    let mut told = child.stdin.take().expect("it is piped");
    std::thread::spawn(move || {
        // Nothing more is said; the end is all that is waited for.
        let _ = std::io::copy(&mut stdin, &mut std::io::sink());
        let _ = kill_current_process_group(Signal::KILL);
    });
    // A program that does not read what it is told may still do its work, and must not hold up this.
    std::thread::spawn(move || drop(told.write_all(&line)));
    let status = match child.wait() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("it cannot be waited for: {error}");
            return CANNOT_START;
        }
    };
    let code = status.code().or(status.signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
