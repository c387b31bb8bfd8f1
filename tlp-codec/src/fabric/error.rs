//! What can be wrong with bytes from the wire.

use core::fmt;

/// Why bytes are not a frame that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameError {
    /// Fewer bytes than the header or than its length field says.
    CutShort {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// Another version of the layout.
    Version(u8),
    /// The length field is smaller than what the header needs.
    Length(u16),
    /// The frame CRC does not match.
    Crc {
        /// As the frame says.
        carried: u32,
        /// Over the bytes that came.
        computed: u32,
    },
    /// Authenticated under a key, which version 1 does not do.
    Key(u16),
    /// An unknown kind.
    Kind(u8),
    /// Source or destination is no node number.
    Node(u16),
    /// No such path.
    Path(u8),
    /// Selective acknowledgement ranges that are too many, empty, or not in order.
    Sacks,
    /// The body of an open or close frame has the wrong size or content.
    Body,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort { need, have } => {
                write!(f, "frame cut short: {need} bytes needed, {have} there")
            }
            Self::Version(v) => {
                write!(f, "frame version {v}; this end speaks version {}", super::VERSION)
            }
            Self::Length(n) => write!(f, "frame length field {n} is too small for a frame"),
            Self::Crc { carried, computed } => {
                write!(f, "frame CRC is {carried:08x}, its bytes give {computed:08x}")
            }
            Self::Key(id) => write!(f, "frame is authenticated (key {id}), which is not supported"),
            Self::Kind(k) => write!(f, "unknown frame kind {k}"),
            Self::Node(n) => write!(f, "{n:#06x} is no node number"),
            Self::Path(p) => write!(f, "{p} is no path number"),
            Self::Sacks => f.write_str("selective acknowledgement ranges are out of order"),
            Self::Body => f.write_str("body of an open or close frame does not parse"),
        }
    }
}

crate::debug_as_display!(FrameError);

impl core::error::Error for FrameError {}

/// Why bytes inside a right frame are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordError {
    /// Fewer bytes than the record's length field or its kind needs.
    CutShort {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The length field is not what the kind has, or no multiple of four.
    Length(u16),
    /// An unknown kind.
    Kind(u8),
    /// A class that is none of the three.
    Class(u8),
    /// A slot's function above 255.
    Function(u16),
    /// An epoch whose counter is 0.
    Epoch(u32),
    /// Both slots are 0: neither end of the binding is a device.
    Slots,
    /// A split record whose parts do not fit together.
    Split,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort { need, have } => {
                write!(f, "record cut short: {need} bytes needed, {have} there")
            }
            Self::Length(n) => write!(f, "record length field {n} does not fit the record's kind"),
            Self::Kind(k) => write!(f, "unknown record kind {k}"),
            Self::Class(c) => write!(f, "record class {c} is not one of the three"),
            Self::Function(n) => write!(f, "{n} is no slot function"),
            Self::Epoch(e) => write!(f, "{e:#010x} is no epoch"),
            Self::Slots => f.write_str("source and destination slot are both 0"),
            Self::Split => f.write_str("parts of a split TLP do not fit together"),
        }
    }
}

crate::debug_as_display!(RecordError);

impl core::error::Error for RecordError {}

/// There is no room left in the frame, or the buffer is too small for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room left in the frame")
    }
}

impl core::error::Error for Full {}
