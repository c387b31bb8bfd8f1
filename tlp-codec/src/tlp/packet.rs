//! A TLP as a view over its bytes.

use super::{
    AddressType, Attributes, ByteEnables, Class, CplStatus, MsgCode, MsgRouting, Rule, RuleError,
    TlpType,
};
use crate::ids::{Bdf, Tag};
use core::fmt;

/// Why bytes cannot be looked at as a TLP at all. (What is a TLP but breaks a rule is told by
/// [`Repr::parse`](super::Repr::parse).)
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MalformedTlp {
    /// Fewer bytes than the prefixes and the header need.
    HeaderCutShort {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// More prefixes than [`MAX_PREFIXES`](super::MAX_PREFIXES).
    Prefixes,
    /// Bytes in all are not what Fmt, Length and TD say (PCIe 5.0 section 2.2.2).
    LengthMismatch {
        /// Bytes that the header says.
        need: usize,
        /// Bytes there.
        have: usize,
    },
}

impl fmt::Display for MalformedTlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderCutShort { need, have } => {
                write!(f, "header cut short: {need} bytes needed, {have} there")
            }
            Self::Prefixes => write!(f, "more than {} TLP prefixes", super::MAX_PREFIXES),
            Self::LengthMismatch { need, have } => write!(
                f,
                "Fmt, Length and TD say {need} bytes, {have} are there (PCIe 5.0 section 2.2.2)"
            ),
        }
    }
}

crate::debug_as_display!(MalformedTlp);

impl core::error::Error for MalformedTlp {}

impl From<MalformedTlp> for RuleError {
    fn from(error: MalformedTlp) -> Self {
        match error {
            MalformedTlp::HeaderCutShort { have, .. } => {
                Rule::HeaderCutShort.broken_by(have as u64)
            }
            MalformedTlp::Prefixes => {
                Rule::TooManyPrefixes.broken_by(super::MAX_PREFIXES as u64 + 1)
            }
            MalformedTlp::LengthMismatch { have, .. } => {
                Rule::LengthMismatch.broken_by(have as u64)
            }
        }
    }
}

/// A TLP over `T`'s bytes, prefixes first. Field names and bit positions are those of PCIe 5.0
/// section 2.2; every accessor is one or two loads.
///
/// After [`Packet::new_checked`] no accessor panics, whatever the bytes are; an accessor that does
/// not apply to the packet's type reads the same bits all the same and means nothing.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    pub(super) bytes: T,
    pub(super) header_at: u8,
}

/// Where the header of a TLP begins that is all there, with nothing behind it. Whatever holds the
/// bytes: what checks them is there once.
#[inline]
fn checked(bytes: &[u8]) -> Result<u8, MalformedTlp> {
    let header_at = header_checked(bytes)?;
    let (need, have) = (Packet { bytes, header_at }.total_len(), bytes.len());
    if need != have {
        return Err(MalformedTlp::LengthMismatch { need, have });
    }
    Ok(header_at)
}

/// Where the header of a TLP begins of which prefixes and header are there.
#[inline]
fn header_checked(b: &[u8]) -> Result<u8, MalformedTlp> {
    let mut at = 0;
    loop {
        let Some(&first) = b.get(at) else {
            return Err(MalformedTlp::HeaderCutShort { need: at + 12, have: b.len() });
        };
        if first >> 5 != 0b100 {
            break;
        }
        at += 4;
        if at > 4 * super::MAX_PREFIXES {
            return Err(MalformedTlp::Prefixes);
        }
    }
    let need = at + if b[at] & 0x20 == 0 { 12 } else { 16 };
    if b.len() < need {
        return Err(MalformedTlp::HeaderCutShort { need, have: b.len() });
    }
    Ok(at as u8)
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that prefixes, header, data and digest are all there and nothing else is.
    ///
    /// # Errors
    ///
    /// [`MalformedTlp`] says what does not fit.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, MalformedTlp> {
        let header_at = checked(bytes.as_ref())?;
        Ok(Self { bytes, header_at })
    }

    /// Of bytes that were checked before, or just made.
    ///
    /// # Panics
    ///
    /// When they do not fit.
    #[inline]
    pub fn known(bytes: T) -> Self {
        let Ok(header_at) = checked(bytes.as_ref()) else {
            panic!("a TLP that was checked before fits")
        };
        Self { bytes, header_at }
    }

    /// Checks that prefixes and header are there; data may be cut short or followed by more.
    /// For TLPs of which a capture kept only the first bytes: [`Packet::payload`] gives what is
    /// there of the data.
    ///
    /// # Errors
    ///
    /// [`MalformedTlp`] says what is missing.
    #[inline]
    pub fn new_header_checked(bytes: T) -> Result<Self, MalformedTlp> {
        let header_at = header_checked(bytes.as_ref())?;
        Ok(Self { bytes, header_at })
    }

    /// The bytes that this is a view of.
    #[inline]
    pub fn into_inner(self) -> T {
        self.bytes
    }

    /// The same view of bytes that are only looked at: what is written for this one is there once.
    #[inline(always)]
    pub fn borrowed(&self) -> Packet<&[u8]> {
        Packet { bytes: self.bytes.as_ref(), header_at: self.header_at }
    }

    /// The whole TLP.
    #[inline(always)]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// From the header on.
    #[inline(always)]
    pub(super) fn h(&self) -> &[u8] {
        &self.bytes.as_ref()[self.header_at as usize..]
    }

    #[inline(always)]
    fn be16(&self, at: usize) -> u16 {
        let h = self.h();
        u16::from_be_bytes([h[at], h[at + 1]])
    }

    #[inline(always)]
    fn be32(&self, at: usize) -> u32 {
        let h = self.h();
        u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])
    }

    /// The prefixes' bytes, four to each.
    #[inline(always)]
    pub fn prefix_bytes(&self) -> &[u8] {
        &self.bytes.as_ref()[..self.header_at as usize]
    }

    /// Fmt bit 0: whether the header has four doublewords.
    #[inline(always)]
    pub fn has_4dw_header(&self) -> bool {
        self.h()[0] & 0x20 != 0
    }

    /// Fmt bit 1: whether data follows.
    #[inline(always)]
    pub fn has_data(&self) -> bool {
        self.h()[0] & 0x40 != 0
    }

    /// Fmt and Type.
    #[inline(always)]
    pub fn tlp_type(&self) -> TlpType {
        TYPES[self.h()[0] as usize]
    }

    /// The ordering and flow-control class, or `None` for an unknown type.
    #[inline(always)]
    pub fn class(&self) -> Option<Class> {
        self.tlp_type().class()
    }

    /// Traffic class, 0 to 7.
    #[inline(always)]
    pub fn traffic_class(&self) -> u8 {
        self.h()[1] >> 4 & 7
    }

    /// RO, NS and IDO.
    #[inline(always)]
    pub fn attributes(&self) -> Attributes {
        let h = self.h();
        Attributes {
            relaxed_ordering: h[2] & 0x20 != 0,
            no_snoop: h[2] & 0x10 != 0,
            id_based_ordering: h[1] & 0x04 != 0,
        }
    }

    /// LN: lightweight notification.
    #[inline(always)]
    pub fn has_ln(&self) -> bool {
        self.h()[1] & 0x02 != 0
    }

    /// TH: whether processing hints are present.
    #[inline(always)]
    pub fn has_hints(&self) -> bool {
        self.h()[1] & 0x01 != 0
    }

    /// TD: whether a digest follows the data.
    #[inline(always)]
    pub fn has_digest(&self) -> bool {
        self.h()[2] & 0x80 != 0
    }

    /// EP: whether the data is poisoned.
    #[inline(always)]
    pub fn is_poisoned(&self) -> bool {
        self.h()[2] & 0x40 != 0
    }

    /// AT.
    #[inline(always)]
    pub fn address_type(&self) -> AddressType {
        AddressType::from_bits(self.h()[2] >> 2)
    }

    /// Length in doublewords, 1 to 1024 (the field's 0 means 1024).
    #[inline(always)]
    pub fn length_dw(&self) -> u16 {
        match self.be16(2) & 0x3ff {
            0 => 1024,
            n => n,
        }
    }

    /// Bytes of prefixes and header.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        self.header_at as usize + if self.has_4dw_header() { 16 } else { 12 }
    }

    /// Bytes of data that the header says, a multiple of 4.
    #[inline(always)]
    pub fn payload_len(&self) -> usize {
        if self.has_data() { self.length_dw() as usize * 4 } else { 0 }
    }

    /// Bytes in all that the header says.
    #[inline(always)]
    pub fn total_len(&self) -> usize {
        self.header_len() + self.payload_len() + if self.has_digest() { 4 } else { 0 }
    }

    /// Data, whole doublewords. After [`Packet::new_header_checked`]: as much of it as is there.
    #[inline(always)]
    pub fn payload(&self) -> &[u8] {
        let rest = &self.bytes.as_ref()[self.header_len()..];
        &rest[..rest.len().min(self.payload_len())]
    }

    /// Requester ID, of requests and of completions.
    #[inline(always)]
    pub fn requester(&self) -> Bdf {
        let at = if self.is_completion() { 8 } else { 4 };
        Bdf::from_bits(self.be16(at))
    }

    /// Tag, all ten bits (T9 and T8 are in the first doubleword), of requests and completions.
    #[inline(always)]
    pub fn tag(&self) -> Tag {
        let h = self.h();
        let low = if self.is_completion() { h[10] } else { h[6] };
        let t9 = u16::from(h[1] & 0x80 != 0);
        let t8 = u16::from(h[1] & 0x08 != 0);
        Tag::new(t9 << 9 | t8 << 8 | u16::from(low)).unwrap_or(Tag::MAX)
    }

    /// First and last byte enables of a request. Not meaningful with hints in a read.
    #[inline(always)]
    pub fn byte_enables(&self) -> ByteEnables {
        let b = self.h()[7];
        ByteEnables { first: b & 0xf, last: b >> 4 }
    }

    /// Address of a memory, I/O or atomic request, its two lowest bits 0.
    #[inline(always)]
    pub fn address(&self) -> u64 {
        if self.has_4dw_header() {
            u64::from(self.be32(8)) << 32 | u64::from(self.be32(12) & !3)
        } else {
            u64::from(self.be32(8) & !3)
        }
    }

    /// Destination of a configuration request or of a message that is routed by ID.
    #[inline(always)]
    pub fn destination(&self) -> Bdf {
        Bdf::from_bits(self.be16(8))
    }

    /// Register of a configuration request: byte offset, 0 to 4092, a multiple of 4.
    #[inline(always)]
    pub fn register(&self) -> u16 {
        self.be16(10) & 0x0ffc
    }

    /// Routing of a message.
    #[inline(always)]
    pub fn message_routing(&self) -> MsgRouting {
        MsgRouting::from_bits(self.h()[0])
    }

    /// Bytes 8 to 15 of a message's header, whose meaning the code decides. (Of a header of three
    /// doublewords: the last one, then zeros.)
    #[inline(always)]
    pub fn message_fields(&self) -> [u8; 8] {
        let mut fields = [0; 8];
        let len = if self.has_4dw_header() { 8 } else { 4 };
        fields[..len].copy_from_slice(&self.h()[8..8 + len]);
        fields
    }

    /// Message code.
    #[inline(always)]
    pub fn message_code(&self) -> MsgCode {
        MsgCode::from_byte(self.h()[7])
    }

    /// Completer ID of a completion.
    #[inline(always)]
    pub fn completer(&self) -> Bdf {
        Bdf::from_bits(self.be16(4))
    }

    /// Completion status.
    #[inline(always)]
    pub fn status(&self) -> CplStatus {
        CplStatus::from_bits(self.h()[6] >> 5)
    }

    /// BCM of a completion: a PCI-X bridge's byte count is of this completion only.
    #[inline(always)]
    pub fn has_bcm(&self) -> bool {
        self.h()[6] & 0x10 != 0
    }

    /// Byte count of a completion, 1 to 4096 (the field's 0 means 4096).
    #[inline(always)]
    pub fn byte_count(&self) -> u16 {
        match self.be16(6) & 0xfff {
            0 => 4096,
            n => n,
        }
    }

    /// Lower address of a completion, 0 to 127.
    #[inline(always)]
    pub fn lower_address(&self) -> u8 {
        self.h()[11] & 0x7f
    }

    #[inline(always)]
    fn is_completion(&self) -> bool {
        self.h()[0] & 0x9e == 0x0a
    }
}

/// What each first byte of a header says (PCIe 5.0 table 2-3).
static TYPES: [TlpType; 256] = {
    let mut types = [TlpType::Unknown(0); 256];
    let mut byte = 0;
    while byte < 256 {
        types[byte] = type_of(byte as u8);
        byte += 1;
    }
    types
};

const fn type_of(byte: u8) -> TlpType {
    use TlpType::*;
    let (data, wide) = (byte & 0x40 != 0, byte & 0x20 != 0);
    let routing = MsgRouting::from_bits(byte);
    match (byte & 0x9f, data, wide) {
        (0b0_0000, false, _) => MRd,
        (0b0_0000, true, _) => MWr,
        (0b0_0001, false, _) => MRdLk,
        (0b1_1011, true, _) => DMWr,
        (0b0_0010, false, false) => IORd,
        (0b0_0010, true, false) => IOWr,
        (0b0_0100, false, false) => CfgRd0,
        (0b0_0100, true, false) => CfgWr0,
        (0b0_0101, false, false) => CfgRd1,
        (0b0_0101, true, false) => CfgWr1,
        (0b0_1010, false, false) => Cpl,
        (0b0_1010, true, false) => CplD,
        (0b0_1011, false, false) => CplLk,
        (0b0_1011, true, false) => CplDLk,
        (0b0_1100, true, _) => FetchAdd,
        (0b0_1101, true, _) => Swap,
        (0b0_1110, true, _) => Cas,
        (0b1_0000..=0b1_0111, false, true) => Msg(routing),
        (0b1_0000..=0b1_0111, true, true) => MsgD(routing),
        _ => Unknown(byte),
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    #[inline(always)]
    fn h_mut(&mut self) -> &mut [u8] {
        let at = self.header_at as usize;
        &mut self.bytes.as_mut()[at..]
    }

    /// Writes the requester ID.
    #[inline]
    pub fn set_requester(&mut self, id: Bdf) {
        let at = if self.is_completion() { 8 } else { 4 };
        self.h_mut()[at..at + 2].copy_from_slice(&id.bits().to_be_bytes());
    }

    /// Writes the completer ID of a completion.
    #[inline]
    pub fn set_completer(&mut self, id: Bdf) {
        self.h_mut()[4..6].copy_from_slice(&id.bits().to_be_bytes());
    }

    /// Writes the tag, all ten bits.
    #[inline]
    pub fn set_tag(&mut self, tag: Tag) {
        let at = if self.is_completion() { 10 } else { 6 };
        let tag = tag.get();
        let h = self.h_mut();
        h[at] = tag as u8;
        h[1] = h[1] & 0x77 | ((tag >> 9) as u8) << 7 | ((tag >> 8 & 1) as u8) << 3;
    }

    /// Writes the destination of a configuration request or a message that is routed by ID.
    #[inline]
    pub fn set_destination(&mut self, id: Bdf) {
        self.h_mut()[8..10].copy_from_slice(&id.bits().to_be_bytes());
    }

    /// Writes the address of a memory, I/O or atomic request, leaving the processing hint.
    /// The header's width stays: an address above 4 GB needs four doublewords.
    #[inline]
    pub fn set_address(&mut self, address: u64) {
        let wide = self.has_4dw_header();
        let h = self.h_mut();
        let low = if wide {
            h[8..12].copy_from_slice(&((address >> 32) as u32).to_be_bytes());
            12
        } else {
            8
        };
        let hint = h[low + 3] & 3;
        h[low..low + 4].copy_from_slice(&(address as u32 & !3).to_be_bytes());
        h[low + 3] |= hint;
    }

    /// Turns a type 1 configuration request into type 0, as the last bridge does.
    #[inline]
    pub fn convert_config_to_type0(&mut self) {
        self.h_mut()[0] &= !1;
    }

    /// Sets or clears EP.
    #[inline]
    pub fn set_poisoned(&mut self, poisoned: bool) {
        let h = self.h_mut();
        h[2] = h[2] & !0x40 | u8::from(poisoned) << 6;
    }

    /// Data, to be changed in place: as much as [`Packet::payload`].
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (at, len) = (self.header_len(), self.payload_len());
        let rest = &mut self.bytes.as_mut()[at..];
        let len = len.min(rest.len());
        &mut rest[..len]
    }

    #[inline(always)]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }
}
