//! Results on standard output, and progress on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Kind, Outcome};

/// How often a bar is drawn.
const TICK: Duration = Duration::from_millis(200);

/// How results are printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    /// As JSON, or as text.
    #[must_use]
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a result: all of it as JSON, or its text.
    ///
    /// # Errors
    ///
    /// When standard output cannot be written.
    pub(super) fn print<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Outcome<()> {
        if self.json {
            line(&serde_json::to_string_pretty(value).expect("views are JSON"))
        } else {
            line(text(value).trim_end())
        }
    }

    /// A bar for so many bytes. It is seen where a person looks.
    #[must_use]
    pub(super) fn bar(self, what: &'static str, bytes: u64) -> ProgressBar {
        if self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = "{msg:>10} [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
        let style = ProgressStyle::with_template(style).expect("it is one").progress_chars("=> ");
        let bar = ProgressBar::new(bytes).with_style(style).with_message(what);
        bar.enable_steady_tick(TICK);
        bar
    }

    /// A sign that something is done of which nobody knows how far it is.
    #[must_use]
    pub(super) fn spinner(self, what: &'static str) -> ProgressBar {
        if self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg:>10} {spinner} {elapsed}");
        let spinner = ProgressBar::new_spinner().with_style(style.expect("it is one"));
        spinner.set_message(what);
        spinner.enable_steady_tick(TICK);
        spinner
    }
}

/// Prints a line. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
///
/// When standard output cannot be written.
pub(super) fn line(text: &str) -> Outcome<()> {
    next_line(text).map(|_| ())
}

/// Prints one of many lines; says whether anybody still reads them.
///
/// # Errors
///
/// When standard output cannot be written.
pub(super) fn next_line(text: &str) -> Outcome<bool> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::new(Kind::Other, format!("standard output cannot be written: {error}")))
        }
        Ok(()) => Ok(true),
    }
}
