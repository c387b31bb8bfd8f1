//! The bodies of the two frames that begin and end a link.

use super::{FrameError, u16_at, u32_at, u64_at};

/// The body of an open frame (`docs/wire.md`, "Opening").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Lowest version that the sender speaks.
    pub min_version: u8,
    /// Highest version that the sender speaks.
    pub max_version: u8,
    /// Largest frame that the sender takes, in bytes, with its CRC.
    pub max_frame: u16,
    /// Records beyond the cumulative acknowledgement that the sender can store.
    pub window: u16,
    /// Largest TLP that the sender can store, in bytes.
    pub max_tlp: u16,
    /// The sender's number for this link; another for every link it ever opens in this life.
    pub session: u32,
    /// If not 0: "answer this at once with an open frame that echoes it".
    pub token: u64,
    /// If not 0: the token that this answers.
    pub echo: u64,
}

impl Open {
    /// Bytes of the body.
    pub const LEN: usize = 32;

    /// Reads a body.
    ///
    /// # Errors
    ///
    /// When it has another size, or the versions are no range.
    pub fn parse(body: &[u8]) -> Result<Self, FrameError> {
        if body.len() != Self::LEN || body[0] > body[1] {
            return Err(FrameError::Body);
        }
        Ok(Self {
            min_version: body[0],
            max_version: body[1],
            max_frame: u16_at(body, 2),
            window: u16_at(body, 4),
            max_tlp: u16_at(body, 6),
            session: u32_at(body, 8),
            token: u64_at(body, 16),
            echo: u64_at(body, 24),
        })
    }

    /// The body's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut body = [0; Self::LEN];
        body[0] = self.min_version;
        body[1] = self.max_version;
        body[2..4].copy_from_slice(&self.max_frame.to_le_bytes());
        body[4..6].copy_from_slice(&self.window.to_le_bytes());
        body[6..8].copy_from_slice(&self.max_tlp.to_le_bytes());
        body[8..12].copy_from_slice(&self.session.to_le_bytes());
        body[16..24].copy_from_slice(&self.token.to_le_bytes());
        body[24..32].copy_from_slice(&self.echo.to_le_bytes());
        body
    }
}

/// Why the sender's end of a link went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Taken down on purpose.
    Removed,
    /// It gave up waiting for an acknowledgement.
    GaveUp,
    /// The other end broke the protocol.
    Protocol,
    /// No version in common.
    Version,
    /// The other end restarted.
    PeerRestarted,
    /// A reason of a later version.
    Unknown(u8),
}

impl CloseReason {
    /// From the byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Removed,
            2 => Self::GaveUp,
            3 => Self::Protocol,
            4 => Self::Version,
            5 => Self::PeerRestarted,
            other => Self::Unknown(other),
        }
    }

    /// The byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Removed => 1,
            Self::GaveUp => 2,
            Self::Protocol => 3,
            Self::Version => 4,
            Self::PeerRestarted => 5,
            Self::Unknown(byte) => byte,
        }
    }
}

/// The body of a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// Why.
    pub reason: CloseReason,
}

impl Close {
    /// Bytes of the body.
    pub const LEN: usize = 4;

    /// Reads a body.
    ///
    /// # Errors
    ///
    /// When it has another size.
    pub fn parse(body: &[u8]) -> Result<Self, FrameError> {
        if body.len() != Self::LEN {
            return Err(FrameError::Body);
        }
        Ok(Self { reason: CloseReason::from_byte(body[0]) })
    }

    /// The body's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        [self.reason.byte(), 0, 0, 0]
    }
}
