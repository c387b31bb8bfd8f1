//! Transaction layer packets of PCIe 5.0's non-flit mode.
//!
//! A TLP is its bytes: optional prefixes, a 3 or 4 doubleword header, data, and an optional
//! digest, header first, as PCIe puts them on the link (the first header byte holds Fmt and Type;
//! data bytes are in the order of their addresses). [`Packet`] reads and rewrites fields in place;
//! [`Repr`] is the meaning, with `parse` (which checks what a receiver must check) and `emit`.
//!
//! The split is smoltcp's: the view for the hot path, the representation for everything else.

mod check;
mod codes;
mod ecrc;
mod emit;
mod messages;
mod packet;
mod parse;
mod prefix;
mod repr;
mod rules;
mod sound;
mod types;

pub use ecrc::ecrc;
pub use messages::MessageForm;
pub use packet::{MalformedTlp, Packet};
pub use prefix::{Pasid, Prefix, PrefixKind, Prefixes, TooManyPrefixes};
pub use repr::{AtomicOp, EmitError, IgnoredBits, Kind, Repr};
pub use rules::{Handling, Rule, RuleError};
pub use types::*;

/// The largest data payload of a TLP, in bytes (PCIe 5.0 section 2.2.2).
pub const MAX_PAYLOAD: usize = 4096;

/// The most prefix doublewords that this implementation carries in front of a header: one local
/// and, as PCIe allows (section 2.2.10.2), four end-to-end ones.
pub const MAX_PREFIXES: usize = 5;

/// The longest TLP in bytes: prefixes, four doublewords of header, data, digest.
pub const MAX_TLP: usize = 4 * MAX_PREFIXES + 16 + MAX_PAYLOAD + 4;
