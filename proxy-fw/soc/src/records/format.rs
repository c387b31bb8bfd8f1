//! The bytes of a record.

use core::fmt;
use proxy_core::control::{MAX_NAME, Name};
use proxy_core::limits::TLP_BUFFER;

use crate::board::SlotWire;
use proxy_core::boxes::SlotSignal;

/// Version of the records, said in hello.
pub const VERSION: u16 = 1;

/// Bytes in front of a record's body.
pub const HEADER: usize = 4;

/// Longest record.
pub(super) const LONGEST: usize = HEADER + TLP_BUFFER;

mod kind {
    pub(super) const TLP: u8 = 0;
    pub(super) const RESET: u8 = 1;
    pub(super) const INSERTED: u8 = 4;
    pub(super) const REMOVED: u8 = 5;
    pub(super) const ROOM: u8 = 6;
    pub(super) const ROOT_COMPLEX: u8 = 7;
    pub(super) const HELLO: u8 = 16;
}

/// What happens beside TLPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Card to device: a reset, or the PERST# wire. Root complex to card: a reset; PERST# released
    /// means nothing.
    Reset(SlotSignal),
    /// A device is in the slot, of this model.
    Inserted(Name),
    /// None is any more.
    Removed,
    /// Whether a root complex is there.
    RootComplex(bool),
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A TLP: prefixes, header, data, digest.
    Tlp(&'a [u8]),
    /// What happened beside TLPs.
    Beside(Beside),
    /// So many TLPs of each class (posted, non-posted, completion) may have been sent at this
    /// place since hello, modulo 2^32.
    Room([u32; 3]),
    /// This end has begun anew: nothing was sent, nothing is granted. One that is no answer asks
    /// the other end to begin anew, too.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// Whether it answers one.
        answer: bool,
    },
}

/// A record: what, and at which place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where.
    pub at: SlotWire,
    /// What.
    pub body: Body<'a>,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Shorter than its header or its length says.
    Truncated,
    /// Longer than any record.
    TooLong,
    /// A kind that this version does not have.
    UnknownKind(u8),
    /// The body is not one of its kind.
    BadBody,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the record is cut short"),
            Self::TooLong => f.write_str("the record is longer than any"),
            Self::UnknownKind(kind) => write!(f, "records of kind {kind} are unknown"),
            Self::BadBody => f.write_str("the record's body is not one of its kind"),
        }
    }
}

impl core::error::Error for RecordError {}

/// A record's header and body.
fn split(bytes: &[u8]) -> Result<(&[u8; HEADER], &[u8]), RecordError> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(RecordError::Truncated)?;
    let length = u16::from_le_bytes([header[2], header[3]]) as usize;
    if length > LONGEST - HEADER {
        return Err(RecordError::TooLong);
    }
    Ok((header, rest.get(..length).ok_or(RecordError::Truncated)?))
}

fn header_of(kind: u8, at: SlotWire, length: usize) -> [u8; HEADER] {
    let [low, high] = (length as u16).to_le_bytes();
    [kind, at.0, low, high]
}

impl<'a> Record<'a> {
    /// Reads a record from the front of bytes; what is behind it is padding.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let (header, body) = split(bytes)?;
        let body = match (header[0], body) {
            (kind::TLP, tlp) => Body::Tlp(tlp),
            (kind::RESET, [0]) => Body::Beside(Beside::Reset(SlotSignal::HotReset)),
            (kind::RESET, [1]) => Body::Beside(Beside::Reset(SlotSignal::Perst { asserted: true })),
            (kind::RESET, [2]) => {
                Body::Beside(Beside::Reset(SlotSignal::Perst { asserted: false }))
            }
            (kind::INSERTED, name) if name.len() <= MAX_NAME => {
                let name = core::str::from_utf8(name).map_err(|_| RecordError::BadBody)?;
                let name = Name::try_from(name).map_err(|_| RecordError::BadBody)?;
                Body::Beside(Beside::Inserted(name))
            }
            (kind::REMOVED, []) => Body::Beside(Beside::Removed),
            (kind::ROOM, limits) if limits.len() == 12 => {
                let of = |class: usize| {
                    let bytes = limits[4 * class..].first_chunk().expect("there are twelve");
                    u32::from_le_bytes(*bytes)
                };
                Body::Room([of(0), of(1), of(2)])
            }
            (kind::ROOT_COMPLEX, [present @ (0 | 1)]) => {
                Body::Beside(Beside::RootComplex(*present == 1))
            }
            (kind::HELLO, [low, high, answer @ (0 | 1)]) => {
                let version = u16::from_le_bytes([*low, *high]);
                Body::Hello { version, answer: *answer == 1 }
            }
            (
                kind::RESET
                | kind::INSERTED
                | kind::REMOVED
                | kind::ROOM
                | kind::ROOT_COMPLEX
                | kind::HELLO,
                _,
            ) => return Err(RecordError::BadBody),
            (other, _) => return Err(RecordError::UnknownKind(other)),
        };
        Ok(Self { at: SlotWire(header[1]), body })
    }

    /// Where a record at the front of bytes is, and its TLP, if it carries one as nearly all do:
    /// what it could be else is not made, nor moved.
    pub(super) fn parse_tlp(bytes: &'a [u8]) -> Option<(SlotWire, &'a [u8])> {
        let (header, body) = split(bytes).ok()?;
        (header[0] == kind::TLP).then_some((SlotWire(header[1]), body))
    }

    /// Writes what stands before a TLP of so many bytes.
    pub(super) fn emit_tlp_header(at: SlotWire, length: usize, out: &mut [u8; HEADER]) {
        *out = header_of(kind::TLP, at, length);
    }

    /// Writes the record; its length.
    ///
    /// # Panics
    ///
    /// When `out` is too short, or a TLP is longer than any.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut small = [0; 12];
        let (kind, body): (u8, &[u8]) = match &self.body {
            Body::Tlp(tlp) => {
                assert!(tlp.len() <= TLP_BUFFER, "longer than any TLP");
                (kind::TLP, tlp)
            }
            Body::Beside(Beside::Reset(signal)) => {
                small[0] = match signal {
                    SlotSignal::HotReset => 0,
                    SlotSignal::Perst { asserted: true } => 1,
                    SlotSignal::Perst { asserted: false } => 2,
                };
                (kind::RESET, &small[..1])
            }
            Body::Beside(Beside::Inserted(name)) => (kind::INSERTED, name.as_bytes()),
            Body::Beside(Beside::Removed) => (kind::REMOVED, &[]),
            Body::Room(limits) => {
                for (bytes, limit) in small.chunks_exact_mut(4).zip(limits) {
                    bytes.copy_from_slice(&limit.to_le_bytes());
                }
                (kind::ROOM, &small)
            }
            Body::Beside(Beside::RootComplex(present)) => {
                small[0] = u8::from(*present);
                (kind::ROOT_COMPLEX, &small[..1])
            }
            Body::Hello { version, answer } => {
                small[..2].copy_from_slice(&version.to_le_bytes());
                small[2] = u8::from(*answer);
                (kind::HELLO, &small[..3])
            }
        };
        out[..HEADER].copy_from_slice(&header_of(kind, self.at, body.len()));
        out[HEADER..HEADER + body.len()].copy_from_slice(body);
        HEADER + body.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bodies() -> [Body<'static>; 10] {
        [
            Body::Tlp(&[0x4a, 0, 0, 1]),
            Body::Tlp(&[0; TLP_BUFFER]),
            Body::Beside(Beside::Reset(SlotSignal::HotReset)),
            Body::Beside(Beside::Reset(SlotSignal::Perst { asserted: true })),
            Body::Beside(Beside::Inserted(Name::try_from("nvme").unwrap())),
            Body::Beside(Beside::Removed),
            Body::Room([1, u32::MAX, 3]),
            Body::Beside(Beside::RootComplex(true)),
            Body::Hello { version: VERSION, answer: false },
            Body::Hello { version: VERSION, answer: true },
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for body in bodies() {
            let record = Record { at: SlotWire(9), body };
            let mut bytes = [0xee; LONGEST + 8];
            let length = record.emit(&mut bytes);
            assert_eq!(Record::parse(&bytes[..length]).as_ref(), Ok(&record));
            assert_eq!(Record::parse(&bytes).as_ref(), Ok(&record), "with padding");
            for cut in 0..length {
                assert_eq!(Record::parse(&bytes[..cut]), Err(RecordError::Truncated));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            if let Ok(record) = Record::parse(&bytes) {
                let mut again = [0; LONGEST];
                let length = record.emit(&mut again);
                prop_assert_eq!(&again[..length], &bytes[..length]);
            }
        }
    }
}
