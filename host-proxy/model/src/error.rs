//! How an access of the host can end.

use crate::port::PortError;
use std::fmt;
use tlp_codec::ids::Bdf;

/// What was accessed, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Configuration space.
    Config {
        /// Whose.
        bdf: Bdf,
        /// Byte offset.
        register: u16,
        /// Whether it was a write.
        write: bool,
    },
    /// Memory space (a device's registers).
    Memory {
        /// Bus address.
        address: u64,
        /// Bytes.
        len: usize,
    },
    /// I/O space.
    Io {
        /// Port.
        port: u32,
        /// Whether it was a write.
        write: bool,
    },
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = |write| if write { "write" } else { "read" };
        match *self {
            Self::Config { bdf, register, write } => {
                write!(f, "configuration {} of {bdf} at {register:#05x}", direction(write))
            }
            Self::Memory { address, len } => write!(f, "read of {len} bytes at {address:#x}"),
            Self::Io { port, write } => write!(f, "I/O {} at port {port:#x}", direction(write)),
        }
    }
}

/// Why an access did not give what was asked for. A read's buffer then holds all ones, as a
/// processor would see them.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Completed with Unsupported Request: nobody is there.
    #[error("{0}: Unsupported Request (no device answers there)")]
    UnsupportedRequest(Access),
    /// Completed with Completer Abort.
    #[error("{0}: Completer Abort (the device refused it)")]
    CompleterAbort(Access),
    /// Still Configuration Request Retry Status when the time for it was over.
    #[error("{0}: the device still asks for a retry; it is not ready")]
    ConfigRetry(Access),
    /// No completion in time.
    #[error("{0}: no completion in time")]
    Timeout(Access),
    /// The data came poisoned.
    #[error("{0}: the data is poisoned")]
    Poisoned(Access),
    /// A completion that does not fit the request.
    #[error("{0}: the completion does not fit the request")]
    Malformed(Access),
    /// Every tag waits for a completion, or for a late one after a timeout.
    #[error("{0}: every tag is in use or waits for a late completion")]
    NoTags(Access),
    /// The caller asked for something that no request can say.
    #[error("{0}: alignment, length or range that no request can have")]
    Invalid(Access),
    /// The port below.
    #[error(transparent)]
    Port(#[from] PortError),
}

impl AccessError {
    /// Whether the request was answered with Unsupported Request.
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::UnsupportedRequest(_))
    }
}
