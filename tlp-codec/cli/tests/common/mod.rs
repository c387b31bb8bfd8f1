//! Runs the `tlp` command.

use std::io::Write;
use std::process::{Command, Stdio};

/// What a run left behind.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `tlp` with these arguments and this input.
pub(crate) fn tlp(args: &[&str], input: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tlp"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tlp runs");
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
