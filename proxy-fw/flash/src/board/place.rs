//! Where in a file something is.

use std::fmt;

/// A file, and a line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: String,
    line: Option<usize>,
}

impl Place {
    /// A line of a file, from 1; or all of it.
    #[must_use]
    pub fn new(file: &str, line: Option<usize>) -> Self {
        Self { file: file.to_owned(), line }
    }

    /// The line.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// The line of a key, from 1, by the keys that lead to it: each is looked for after the one
/// before. Where one is missing, the line of the one before.
pub(super) fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let mut lines = text.lines().zip(1_usize..);
    let mut found = None;
    for key in path {
        let is_key = |line: &str| has_key(line, key);
        match lines.find(|(line, _)| is_key(line)) {
            Some((_, number)) => found = Some(number),
            None => break,
        }
    }
    found
}

/// Whether a line says something of a key: at its beginning, in a list or between braces.
fn has_key(line: &str, key: &str) -> bool {
    let said = line.split('#').next().unwrap_or_default();
    said.match_indices(key).any(|(at, _)| {
        let before = said[..at].trim_end();
        let after = said[at + key.len()..].trim_start();
        (before.is_empty() || before.ends_with(['-', '{', ','])) && after.starts_with(':')
    })
}
