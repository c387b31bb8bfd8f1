//! What the demo prints: a text for people as it goes, or one JSON object at the end.

use serde_json::{Map, Value};
use std::cell::{Cell, OnceCell};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

/// Collects what is found.
pub(crate) struct Report {
    json: bool,
    start: Instant,
    /// Whether the terminal's last line is for progress, to be written over.
    progress: Cell<bool>,
    /// Why standard output could not be written.
    lost: OnceCell<io::Error>,
    found: Map<String, Value>,
}

impl Report {
    /// Nothing yet.
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            start: Instant::now(),
            progress: Cell::new(false),
            lost: OnceCell::new(),
            found: Map::new(),
        }
    }

    /// What is being done now. Goes to standard error when standard output is for JSON.
    pub(crate) fn step(&self, what: &str) {
        self.say(&format!("[{:6.2} s] {what}", self.start.elapsed().as_secs_f64()));
    }

    /// What is said about the step meanwhile.
    pub(crate) fn remark(&self, what: &str) {
        self.say(&format!("    {what}"));
    }

    fn say(&self, line: &str) {
        self.clear();
        if self.json {
            err(format_args!("{line}\n"));
        } else {
            self.out(line);
        }
    }

    /// A line on standard output. When nobody takes it any more, the demo ends at its next step.
    fn out(&self, line: &str) {
        if self.lost.get().is_none()
            && let Err(error) = writeln!(io::stdout(), "{line}")
        {
            let _ = self.lost.set(error);
            processes::interrupt();
        }
    }

    /// How far the step has got, on a line that the next one is written over. Only a terminal
    /// shows it.
    pub(crate) fn progress(&self, how_far: &str) {
        if io::stderr().is_terminal() {
            self.clear();
            err(format_args!("    {how_far}"));
            self.progress.set(true);
        }
    }

    fn clear(&self) {
        if self.progress.take() {
            // Back to the line's begin, and erase it (ECMA-48, EL).
            err(format_args!("\r\x1b[K"));
        }
    }

    /// Text for people, indented under its step.
    pub(crate) fn text(&self, text: &str) {
        self.clear();
        if !self.json {
            for line in text.trim_end().lines() {
                self.out(&format!("    {line}"));
            }
        }
    }

    /// A result for programs.
    pub(crate) fn record(&mut self, name: &str, value: Value) {
        self.found.insert(name.into(), value);
    }

    /// The last line, and the exit status that goes with it.
    pub(crate) fn finish(mut self, result: anyhow::Result<()>) -> ExitCode {
        let seconds = self.start.elapsed().as_secs_f64();
        let passed = result.is_ok();
        self.clear();
        if self.json {
            self.record("passed", passed.into());
            self.record("seconds", seconds.into());
            if let Err(error) = &result {
                self.record("error", format!("{error:#}").into());
            }
            let found = std::mem::take(&mut self.found);
            self.out(&Value::Object(found).to_string());
        }
        match result {
            Ok(()) if self.json => {}
            Ok(()) => self.out(&format!("demo passed in {seconds:.1} s")),
            Err(error) if self.json => err(format_args!("demo failed: {error:#}\n")),
            Err(error) => {
                let error = format!("{error:#}");
                let (what, why) = error.split_once('\n').unwrap_or((&error, ""));
                if !why.is_empty() {
                    self.out(why);
                }
                self.out(&format!("demo failed after {seconds:.1} s: {what}"));
            }
        }
        match self.lost.get() {
            // Whoever reads has seen enough (`| head`): no error.
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Some(error) => {
                err(format_args!("dxpu-demo: standard output cannot be written: {error}\n"));
                return ExitCode::FAILURE;
            }
            None => {}
        }
        if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Text on standard error. There is nowhere to say that it cannot be written.
fn err(text: std::fmt::Arguments) {
    let _ = io::stderr().write_fmt(text);
}
