//! A TLP as its meaning.

use super::{
    AddressType, Attributes, ByteEnables, CplStatus, MAX_PREFIXES, MsgCode, MsgRouting, TphHint,
};
use crate::ids::{Bdf, Tag};

/// What a TLP says. `parse` checks what the base specification tells a receiver to check;
/// `emit` writes the bytes back: for everything valid, the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr<'a> {
    /// Prefixes, in wire order.
    pub prefixes: Prefixes,
    /// Traffic class, 0 to 7.
    pub traffic_class: u8,
    /// RO, NS, IDO.
    pub attributes: Attributes,
    /// AT. Only memory and atomic requests have another value than untranslated.
    pub address_type: AddressType,
    /// EP: the data is poisoned.
    pub poisoned: bool,
    /// The digest (TD and ECRC) as it came or is to be sent.
    pub digest: Option<u32>,
    /// What the TLP is.
    pub kind: Kind<'a>,
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
    /// Operand size is data length for FetchAdd and Swap, half of it for CAS.
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

/// One prefix doubleword.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(pub [u8; 4]);

/// Up to [`MAX_PREFIXES`] prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prefixes {
    list: [[u8; 4]; MAX_PREFIXES],
    count: u8,
}

/// Why a [`Repr`] cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The buffer is too small.
    BufferTooSmall {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A field does not fit its place.
    Field(&'static str),
}
