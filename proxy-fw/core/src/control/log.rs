//! How much a proxy logs.

use core::fmt;
use serde::{Deserialize, Serialize};

/// The least that is logged.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[repr(u8)]
pub enum LogLevel {
    /// Everything.
    Trace = 0,
    /// What helps to find a mistake in the proxy.
    Debug = 1,
    /// What goes on.
    #[default]
    Info = 2,
    /// What should not be, and can be lived with.
    Warn = 3,
    /// What failed.
    Error = 4,
}

impl LogLevel {
    /// All of them, by number.
    pub const ALL: [Self; 5] = [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// The level of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
