//! What a client's records mean, without the socket that they came by.

use proxy_core::host::HostRole;
use proxy_core::limits::{MAX_PAYLOAD_OFFERED, TLP_BUFFER};
use proxy_core::switch::{LINK_SPEED, LINK_WIDTH, ResetKind};
use proxy_core::time::Instant;

/// Version of the records.
const VERSION: u16 = 1;

/// Bytes in front of a record's body.
pub const HEADER: usize = 4;

/// Longest record.
pub const MAX_RECORD: usize = HEADER + TLP_BUFFER;

/// Types of records.
pub(super) mod kind {
    pub(in super::super) const TLP: u8 = 0;
    pub(super) const RESET: u8 = 1;
    pub(super) const LINK: u8 = 2;
    pub(super) const POWER: u8 = 3;
    pub(super) const HELLO: u8 = 16;
    pub(in super::super) const ERROR: u8 = 17;
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The role has no room for the TLP: the record is to be offered again.
    NoRoom,
    /// It is done with.
    Done,
    /// It is a TLP, and the role has it.
    Tlp,
    /// It is a hello, to be answered with [`Session::greeting`].
    Hello,
}

/// One connection, from its first record on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    greeted: bool,
    unknown: u64,
}

impl Session {
    /// Whether the client has said hello.
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Records of unknown types so far.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// The answer to a hello: the proxy's own, and what the link is.
    pub fn greeting(role: &HostRole) -> [Vec<u8>; 2] {
        let [payload_low, payload_high] = (MAX_PAYLOAD_OFFERED as u16).to_le_bytes();
        let [low, high] = VERSION.to_le_bytes();
        let hello = [low, high, payload_low, payload_high, role.port_count()];
        [record(kind::HELLO, &hello), record(kind::LINK, &[1, LINK_SPEED, LINK_WIDTH])]
    }

    /// Does what a record says.
    ///
    /// # Errors
    ///
    /// Why the connection is to be closed.
    pub fn take(
        &mut self,
        role: &mut HostRole,
        now: Instant,
        record: &[u8],
    ) -> Result<Taken, &'static str> {
        if record.len() > MAX_RECORD {
            return Err("the record is too long");
        }
        let (header, body) =
            record.split_first_chunk::<HEADER>().ok_or("the record is cut short")?;
        match header[0] {
            kind::HELLO => {
                let (version, _) = body.split_first_chunk::<2>().ok_or("the hello is cut short")?;
                if u16::from_le_bytes(*version) != VERSION {
                    return Err("the version is not 1");
                }
                self.greeted = true;
                role.set_root_complex(true);
                Ok(Taken::Hello)
            }
            _ if !self.greeted => Err("the first record must be a hello"),
            kind::TLP => {
                let taken = role.handle_tlp(now, body).is_ok();
                Ok(if taken { Taken::Tlp } else { Taken::NoRoom })
            }
            kind::RESET => {
                let kind = match body.first() {
                    Some(0) => ResetKind::Hot,
                    Some(1) => ResetKind::Fundamental,
                    // The switch was reset when it was asserted, and has not waited since.
                    Some(2) => return Ok(Taken::Done),
                    _ => return Err("the reset is none of 0, 1, 2"),
                };
                role.handle_reset(now, kind);
                Ok(Taken::Done)
            }
            kind::POWER if body.is_empty() => Err("the power record is cut short"),
            // Devices keep their power whatever the host does.
            kind::POWER => Ok(Taken::Done),
            _ => {
                self.unknown += 1;
                Ok(Taken::Done)
            }
        }
    }
}

/// A record's bytes.
pub(super) fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut record = vec![kind, 0, 0, 0];
    record.extend_from_slice(body);
    record
}
