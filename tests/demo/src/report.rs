//! What the demo prints: a text for people as it goes, or one JSON object at the end.

use serde_json::{Map, Value};
use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

/// Collects what is found.
pub(crate) struct Report {
    json: bool,
    start: Instant,
    /// Whether the terminal's last line is for progress, to be written over.
    progress: Cell<bool>,
    found: Map<String, Value>,
}

impl Report {
    /// Nothing yet.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, start: Instant::now(), progress: Cell::new(false), found: Map::new() }
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
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
        let _ = std::io::stdout().flush();
    }

    /// How far the step has got, on a line that the next one is written over. Only a terminal
    /// shows it.
    pub(crate) fn progress(&self, how_far: &str) {
        if std::io::stderr().is_terminal() {
            self.clear();
            eprint!("    {how_far}");
            self.progress.set(true);
        }
    }

    fn clear(&self) {
        if self.progress.take() {
            // Back to the line's begin, and erase it (ECMA-48, EL).
            eprint!("\r\x1b[K");
        }
    }

    /// Text for people, indented under its step.
    pub(crate) fn text(&self, text: &str) {
        self.clear();
        if !self.json {
            for line in text.trim_end().lines() {
                println!("    {line}");
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
            println!("{}", Value::Object(self.found));
        }
        match result {
            Ok(()) if self.json => {}
            Ok(()) => println!("demo passed in {seconds:.1} s"),
            Err(error) if self.json => eprintln!("demo failed: {error:#}"),
            Err(error) => println!("demo failed: {error:#}"),
        }
        if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
