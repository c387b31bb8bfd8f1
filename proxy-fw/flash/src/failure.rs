//! What a person at a bench is told when something does not work.

use std::fmt;

/// Kinds of failures, each with an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything not named below.
    Other,
    /// The command line, or a file that it names.
    Input,
    /// The probe: there is none, or it cannot be used.
    Probe,
    /// The card: none answers, or it is another board.
    Card,
    /// The image: the card would refuse it.
    Image,
    /// The flash: it failed, or does not have what it should.
    Flash,
    /// The connection was lost on the way.
    Lost,
}

impl Kind {
    /// The exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Other => 1,
            Self::Input => 2,
            Self::Probe => 3,
            Self::Card => 4,
            Self::Image => 5,
            Self::Flash => 6,
            Self::Lost => 7,
        }
    }
}

/// Why a command did not do what it should: what is wrong, and what to check.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What kind.
    pub kind: Kind,
    /// What is wrong with what, in a line.
    pub what: String,
    /// What to check or to do, the likeliest first.
    pub check: Vec<String>,
}

/// What a command comes to.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure without advice beyond what it says itself.
    pub fn new(kind: Kind, what: impl fmt::Display) -> Self {
        Self { kind, what: what.to_string(), check: Vec::new() }
    }

    /// With one more thing to check.
    #[must_use]
    pub fn check(mut self, what: impl Into<String>) -> Self {
        self.check.push(what.into());
        self
    }

    /// With some more things to check.
    #[must_use]
    pub fn checks(mut self, what: &[&str]) -> Self {
        self.check.extend(what.iter().map(|what| (*what).to_owned()));
        self
    }

    /// As it is printed to standard error.
    #[must_use]
    pub fn text(&self, json: bool) -> String {
        if json {
            let code = self.kind.exit_code();
            let body =
                serde_json::json!({ "detail": self.what, "check": self.check, "exit": code });
            return body.to_string();
        }
        let mut text = format!("dxpu-flash: {}", self.what);
        for check in &self.check {
            text.push_str("\n  - ");
            text.push_str(check);
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}
