//! Frames and records: the wire between two proxies. `docs/wire.md` is normative; this module is
//! that document in code, and a test reads the document's examples with it.
//!
//! - [`Frame`] is the view over a received frame's bytes; [`Header`] its meaning;
//!   [`FrameWriter`] writes one.
//! - [`Record`] is what frames carry: a TLP or a piece of one, a [`Sideband`] record, credit
//!   limits.
//! - [`Open`] and [`Close`] are the bodies of the two frames that begin and end a link.
//!
//! All numbers are little-endian, as every processor that reads them is; TLPs inside keep PCIe's
//! own byte order.

mod error;
mod frame;
mod handshake;
mod record;
mod sideband;
#[cfg(test)]
mod tests;

pub use error::{FrameError, Full, RecordError};
pub use frame::{Ack, Frame, FrameKind, FrameWriter, Header, SackRange, Sacks};
pub use handshake::{Close, CloseReason, Open};
pub use record::{
    Credits, Record, RecordAddress, Records, SplitData, SplitHeader, TlpRecord, TlpTraits,
};
pub use sideband::{DeviceState, Sideband};

/// EtherType of raw frames: the first one for local experiments (IEEE Std 802-2014,
/// clause 9.2).
pub const ETHERTYPE: u16 = 0x88b5;

/// The version of the layout in this module.
pub const VERSION: u8 = 1;

/// Bytes of a frame's fixed header.
pub const HEADER: usize = 48;
/// Bytes of the CRC at a frame's end.
pub const FRAME_CRC: usize = 4;
/// The most selective acknowledgement ranges in one frame.
pub const MAX_SACKS: usize = 8;
/// Bytes of one selective acknowledgement range.
pub const SACK: usize = 4;
/// The most bytes that are not records in a data frame.
pub const MAX_OVERHEAD: usize = HEADER + MAX_SACKS * SACK + FRAME_CRC;
/// Bytes in front of a TLP in its record, and of a whole sideband or unbind record.
pub const RECORD_HEADER: usize = 16;
/// Bytes of the CRC behind a TLP in its record.
pub const TLP_CRC: usize = 4;
/// Bytes of a TLP record besides its TLP.
pub const TLP_OVERHEAD: usize = RECORD_HEADER + TLP_CRC;
/// Bytes of a split header record besides the TLP's bytes in it.
pub const SPLIT_HEADER: usize = RECORD_HEADER + 8;
/// Bytes of a split data record besides the TLP's bytes in it.
pub const SPLIT_DATA: usize = RECORD_HEADER;
/// Bytes of a credit record.
pub const CREDIT_RECORD: usize = 32;
/// Bytes of a record that says nothing.
pub const NOP_RECORD: usize = 4;
/// The shortest TLP: three doublewords of header.
pub const MIN_TLP: usize = 12;

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
