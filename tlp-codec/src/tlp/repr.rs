//! A TLP as its meaning.

use super::{
    AddressType, Attributes, ByteEnables, Class, CplStatus, MsgCode, MsgRouting, Prefixes,
    RuleError, TlpType, TphHint,
};
use crate::ids::{Bdf, Tag};
use core::fmt;

/// What a TLP says. [`Repr::parse`] checks what the base specification tells a receiver to check;
/// [`Repr::emit`] writes the bytes back: always the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr<'a> {
    /// Prefixes, in wire order.
    pub prefixes: Prefixes,
    /// Traffic class, 0 to 7.
    pub traffic_class: u8,
    /// RO, NS, IDO.
    pub attributes: Attributes,
    /// AT. Means something in memory and atomic requests; I/O and configuration requests must
    /// have [`AddressType::Untranslated`], in others it is reserved and kept.
    pub address_type: AddressType,
    /// LN: lightweight notification, in memory requests and completions (PCIe 5.0 section 6.21;
    /// taken out of PCIe 6.0).
    pub ln: bool,
    /// EP: the data is poisoned.
    pub poisoned: bool,
    /// The digest (TD and ECRC) as it came or is to be sent.
    pub digest: Option<u32>,
    /// Reserved bits that came set. [`IgnoredBits::NONE`] in what one makes oneself.
    pub ignored: IgnoredBits,
    /// What the TLP is.
    pub kind: Kind<'a>,
}

/// Header bits that say nothing to a receiver but that whoever passes a TLP on has to pass on
/// too: reserved fields that came with another value than 0, and the wider header of an address
/// that needs only three doublewords.
///
/// PCIe 5.0 section 2.1.2 has receivers ignore reserved fields; section 2.2.4.1 leaves open what
/// a receiver does with a four-doubleword header and an address below 4 GB (Intel's PCIe block for
/// Arria 10 takes it as an Unsupported Request, user guide 683647 section 9.3; most take it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IgnoredBits(u32);

impl IgnoredBits {
    /// Nothing reserved is set.
    pub const NONE: Self = Self(0);
    /// Length, where there is no data and nothing is read.
    pub(super) const LENGTH: Self = Self(0x3ff);
    /// TH, where there are no hints.
    pub(super) const TH: Self = Self(1 << 10);
    /// The four-doubleword header of an address below 4 GB.
    pub(super) const WIDE: Self = Self(1 << 11);
    /// Header byte 7 of atomics, 10 of configuration requests, 11 of completions.
    pub(super) const BYTE: Self = Self(0xff << 16);
    /// The two lowest bits of address or register.
    pub(super) const LOW: Self = Self(3 << 24);

    /// From what [`IgnoredBits::bits`] gave. Bits that do not apply to a TLP's kind make
    /// [`Repr::emit`] fail.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits, in this library's own arrangement, for storing them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    pub(super) const fn new(field: Self, value: u32) -> Self {
        Self(value << field.0.trailing_zeros() & field.0)
    }

    pub(super) const fn get(self, field: Self) -> u32 {
        (self.0 & field.0) >> field.0.trailing_zeros()
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The part of a TLP that its type decides. Lengths are in doublewords (1 to 1024), addresses in
/// bytes with the two lowest bits 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // field names are the specification's
pub enum Kind<'a> {
    MemRead {
        requester: Bdf,
        tag: Tag,
        address: u64,
        length_dw: u16,
        enables: ByteEnables,
        hint: Option<TphHint>,
        locked: bool,
    },
    MemWrite {
        requester: Bdf,
        tag: Tag,
        address: u64,
        enables: ByteEnables,
        hint: Option<TphHint>,
        data: &'a [u8],
    },
    DeferrableMemWrite {
        requester: Bdf,
        tag: Tag,
        address: u64,
        enables: ByteEnables,
        hint: Option<TphHint>,
        data: &'a [u8],
    },
    IoRead {
        requester: Bdf,
        tag: Tag,
        address: u32,
        first_be: u8,
    },
    IoWrite {
        requester: Bdf,
        tag: Tag,
        address: u32,
        first_be: u8,
        data: &'a [u8],
    },
    ConfigRead {
        type1: bool,
        requester: Bdf,
        tag: Tag,
        destination: Bdf,
        register: u16,
        first_be: u8,
    },
    ConfigWrite {
        type1: bool,
        requester: Bdf,
        tag: Tag,
        destination: Bdf,
        register: u16,
        first_be: u8,
        data: &'a [u8],
    },
    /// `fields` are header bytes 8 to 15, whose meaning the code decides.
    Message {
        routing: MsgRouting,
        code: MsgCode,
        requester: Bdf,
        tag: Tag,
        fields: [u8; 8],
        data: &'a [u8],
    },
    /// `data` is empty for Cpl and CplLk. `byte_count` is 1 to 4096.
    Completion {
        completer: Bdf,
        requester: Bdf,
        tag: Tag,
        status: CplStatus,
        bcm: bool,
        byte_count: u16,
        lower_address: u8,
        locked: bool,
        data: &'a [u8],
    },
    /// The operand size is the data length for FetchAdd and Swap, half of it for CAS.
    Atomic {
        op: AtomicOp,
        requester: Bdf,
        tag: Tag,
        address: u64,
        hint: Option<TphHint>,
        data: &'a [u8],
    },
}

/// Which atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Fetch and add.
    FetchAdd,
    /// Unconditional swap.
    Swap,
    /// Compare and swap.
    Cas,
}

/// Why a [`Repr`] cannot be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EmitError {
    /// The buffer is too small.
    BufferTooSmall {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A field does not fit its place; which, and what it has to be.
    Field(&'static str),
    /// A receiver would find this rule broken.
    Rule(RuleError),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(error) => fmt::Display::fmt(error, f),
            Self::BufferTooSmall { .. } | Self::Field(_) => fmt::Debug::fmt(self, f),
        }
    }
}

/// As [`Display`](fmt::Display), but short of a broken rule, as [`RuleError`] is.
impl fmt::Debug for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooSmall { need, have } => {
                write!(f, "the TLP needs {need} bytes, the buffer has {have}")
            }
            Self::Field(what) => f.write_str(what),
            Self::Rule(error) => fmt::Debug::fmt(error, f),
        }
    }
}

impl core::error::Error for EmitError {}

impl<'a> Repr<'a> {
    /// A TLP of that kind with traffic class 0, no attributes, no prefixes and no digest.
    #[inline]
    pub const fn new(kind: Kind<'a>) -> Self {
        Self {
            prefixes: Prefixes::none(),
            traffic_class: 0,
            attributes: Attributes {
                relaxed_ordering: false,
                no_snoop: false,
                id_based_ordering: false,
            },
            address_type: AddressType::Untranslated,
            ln: false,
            poisoned: false,
            digest: None,
            ignored: IgnoredBits::NONE,
            kind,
        }
    }

    /// Fmt and Type, but for the header's width.
    pub const fn tlp_type(&self) -> TlpType {
        let with_data = !self.data().is_empty();
        match self.kind {
            Kind::MemRead { locked: false, .. } => TlpType::MRd,
            Kind::MemRead { locked: true, .. } => TlpType::MRdLk,
            Kind::MemWrite { .. } => TlpType::MWr,
            Kind::DeferrableMemWrite { .. } => TlpType::DMWr,
            Kind::IoRead { .. } => TlpType::IORd,
            Kind::IoWrite { .. } => TlpType::IOWr,
            Kind::ConfigRead { type1: false, .. } => TlpType::CfgRd0,
            Kind::ConfigRead { type1: true, .. } => TlpType::CfgRd1,
            Kind::ConfigWrite { type1: false, .. } => TlpType::CfgWr0,
            Kind::ConfigWrite { type1: true, .. } => TlpType::CfgWr1,
            Kind::Message { routing, .. } if with_data => TlpType::MsgD(routing),
            Kind::Message { routing, .. } => TlpType::Msg(routing),
            Kind::Completion { locked: false, .. } if with_data => TlpType::CplD,
            Kind::Completion { locked: false, .. } => TlpType::Cpl,
            Kind::Completion { locked: true, .. } if with_data => TlpType::CplDLk,
            Kind::Completion { locked: true, .. } => TlpType::CplLk,
            Kind::Atomic { op: AtomicOp::FetchAdd, .. } => TlpType::FetchAdd,
            Kind::Atomic { op: AtomicOp::Swap, .. } => TlpType::Swap,
            Kind::Atomic { op: AtomicOp::Cas, .. } => TlpType::Cas,
        }
    }

    /// The ordering and flow-control class.
    pub const fn class(&self) -> Class {
        match self.kind {
            Kind::MemWrite { .. } | Kind::Message { .. } => Class::Posted,
            Kind::Completion { .. } => Class::Completion,
            _ => Class::NonPosted,
        }
    }

    /// The requester's ID and the tag: what a completion is matched by.
    pub const fn transaction_id(&self) -> (Bdf, Tag) {
        match self.kind {
            Kind::MemRead { requester, tag, .. }
            | Kind::MemWrite { requester, tag, .. }
            | Kind::DeferrableMemWrite { requester, tag, .. }
            | Kind::IoRead { requester, tag, .. }
            | Kind::IoWrite { requester, tag, .. }
            | Kind::ConfigRead { requester, tag, .. }
            | Kind::ConfigWrite { requester, tag, .. }
            | Kind::Message { requester, tag, .. }
            | Kind::Completion { requester, tag, .. }
            | Kind::Atomic { requester, tag, .. } => (requester, tag),
        }
    }

    /// The data; empty where the kind has none.
    pub const fn data(&self) -> &'a [u8] {
        match self.kind {
            Kind::MemWrite { data, .. }
            | Kind::DeferrableMemWrite { data, .. }
            | Kind::IoWrite { data, .. }
            | Kind::ConfigWrite { data, .. }
            | Kind::Message { data, .. }
            | Kind::Completion { data, .. }
            | Kind::Atomic { data, .. } => data,
            Kind::MemRead { .. } | Kind::IoRead { .. } | Kind::ConfigRead { .. } => &[],
        }
    }

    /// Length in doublewords: of the data, or of what a read asks for; 0 where there is neither.
    pub const fn length_dw(&self) -> u16 {
        match self.kind {
            Kind::MemRead { length_dw, .. } => length_dw,
            Kind::IoRead { .. } | Kind::ConfigRead { .. } => 1,
            _ => (self.data().len() / 4) as u16,
        }
    }
}
