//! Runs the `tlp` command.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// What a run left behind.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Starts `tlp` with these arguments, with pipes.
fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tlp"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tlp runs")
}

/// The first line that `tlp` prints while its input goes on, or nothing in a while.
#[allow(dead_code, reason = "not every test program asks")]
pub(crate) fn first_line(args: &[&str], input: &[u8]) -> Option<String> {
    let mut child = start(args);
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(input).expect("tlp reads");
    let mut out = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let (said, line) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        out.read_line(&mut line).expect("output is text");
        let _ = said.send(line);
    });
    let line = line.recv_timeout(Duration::from_secs(60)).ok();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    reader.join().expect("the reader does not panic");
    line
}

/// Runs `tlp` with these arguments and this input.
pub(crate) fn tlp(args: &[&str], input: &[u8]) -> Ran {
    let mut child = start(args);
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A run that ends early does not read everything.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("tlp ends");
    writer.join().expect("the writer does not panic");
    Ran {
        code: output.status.code().expect("tlp is not killed"),
        out: String::from_utf8(output.stdout).expect("output is text"),
        err: String::from_utf8(output.stderr).expect("errors are text"),
    }
}
