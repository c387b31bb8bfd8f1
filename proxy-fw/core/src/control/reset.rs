//! Why a card was started anew.

use core::fmt;
use heapless::String;
use serde::{Deserialize, Serialize};

/// Longest text of a [`ResetReport`], in bytes.
pub const MAX_RESET_TEXT: usize = 160;

/// Why a card's core was reset. The first six have the numbers of the card's registers
/// (`hw/regs/card.md`, `reset_cause`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum ResetCause {
    /// Power came on.
    Power = 0,
    /// From outside, or nothing says why.
    Pin = 1,
    /// The watchdog was not fed in time.
    Watchdog = 2,
    /// The firmware wanted it: it was told to.
    Software = 3,
    /// The firmware found itself broken.
    Panic = 4,
    /// A debugger asked for it.
    Debugger = 5,
    /// The core met something that it cannot execute.
    Trap = 6,
    /// The card's clock stood still.
    Clock = 7,
}

impl ResetCause {
    /// All of them, by number.
    pub const ALL: [Self; 8] = [
        Self::Power,
        Self::Pin,
        Self::Watchdog,
        Self::Software,
        Self::Panic,
        Self::Debugger,
        Self::Trap,
        Self::Clock,
    ];

    /// The cause of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether the firmware, or what is below it, failed.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Watchdog | Self::Panic | Self::Trap | Self::Clock)
    }
}

impl fmt::Display for ResetCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Power => "power came on",
            Self::Pin => "reset from outside",
            Self::Watchdog => "watchdog",
            Self::Software => "asked for",
            Self::Panic => "panic",
            Self::Debugger => "debugger",
            Self::Trap => "trap",
            Self::Clock => "clock stood still",
        })
    }
}

/// What a card says of its last reset, once in each life, when it has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetReport {
    /// Why.
    pub cause: ResetCause,
    /// Starts since power came on, this one included.
    pub boots: u32,
    /// Milliseconds from the start of the life that ended to its end; 0 when nothing says it.
    pub lived_ms: u64,
    /// Address of the instruction where it happened; 0 when nothing says it.
    pub place: u32,
    /// What it was, for a person; empty when there is nothing to say.
    pub text: String<MAX_RESET_TEXT>,
}
