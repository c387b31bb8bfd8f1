//! Records: what data frames carry.

use super::{
    CREDIT_RECORD, Full, MIN_TLP, NOP_RECORD, RECORD_HEADER, RecordError, SPLIT_DATA, SPLIT_HEADER,
    Sideband, TLP_OVERHEAD, u16_at, u32_at,
};
use crate::crc;
use crate::ids::{BindingKey, Epoch, OutstandingRef, SlotFunction, SlotId};
use crate::tlp::Class;

/// Record kinds, the first byte (`docs/wire.md`, "Records").
mod kind {
    pub(super) const NOP: u8 = 0;
    pub(super) const TLP: u8 = 1;
    pub(super) const SPLIT_HEADER: u8 = 2;
    pub(super) const SPLIT_DATA: u8 = 3;
    pub(super) const SIDEBAND: u8 = 4;
    pub(super) const CREDITS: u8 = 5;
    pub(super) const UNBIND: u8 = 6;
}

const CLASS: u8 = 0b11;
const RELAXED: u8 = 1 << 2;
const HAS_OUTSTANDING: u8 = 1 << 3;
const SAMPLED: u8 = 1 << 4;
const ANNOUNCE: u8 = 1 << 5;

/// Which binding a record belongs to and which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordAddress {
    /// The sender's slot, [`SlotId::HOST`] from a host.
    pub source: SlotId,
    /// The receiver's slot, [`SlotId::HOST`] to a host. Not 0 when `source` is.
    pub destination: SlotId,
    /// The function in the box's slot.
    pub function: SlotFunction,
    /// The binding's epoch.
    pub epoch: Epoch,
}

impl RecordAddress {
    /// Of a record of the binding `key` that a host sends.
    #[inline]
    pub const fn from_host(key: &BindingKey) -> Self {
        let BindingKey { slot, function, epoch } = *key;
        Self { source: SlotId::HOST, destination: slot, function, epoch }
    }

    /// Of a record of the binding `key` that a box sends.
    #[inline]
    pub const fn from_box(key: &BindingKey) -> Self {
        let BindingKey { slot, function, epoch } = *key;
        Self { source: slot, destination: SlotId::HOST, function, epoch }
    }

    /// The binding, as both ends name it, of a record that came from a host or from a box.
    #[inline]
    pub const fn binding(&self, came_from_host: bool) -> BindingKey {
        let slot = if came_from_host { self.destination } else { self.source };
        BindingKey { slot, function: self.function, epoch: self.epoch }
    }

    #[inline]
    fn parse(b: &[u8]) -> Result<Self, RecordError> {
        let (source, destination) = (b[4], b[5]);
        if source == 0 && destination == 0 {
            return Err(RecordError::Slots);
        }
        let (function, epoch) = (u16_at(b, 6), u32_at(b, 8));
        let slot = |n| SlotId::new(n).map_err(|_| RecordError::Slots);
        Ok(Self {
            source: slot(source)?,
            destination: slot(destination)?,
            function: SlotFunction::new(function).map_err(|_| RecordError::Function(function))?,
            epoch: Epoch::from_bits(epoch).map_err(|_| RecordError::Epoch(epoch))?,
        })
    }

    #[inline(always)]
    fn put(&self, head: &mut Head) {
        head.put(4, self.source.get());
        head.put(5, self.destination.get());
        head.put(6, self.function.get());
        head.put(8, self.epoch.bits());
    }
}

/// What the link must know of a TLP without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpTraits {
    /// Ordering and flow-control class.
    pub class: Class,
    /// Relaxed ordering: a completion may pass posted TLPs.
    pub relaxed: bool,
    /// Both ends stamp its stages.
    pub sampled: bool,
    /// The request's entry, of non-posted requests and completions.
    pub outstanding: Option<OutstandingRef>,
}

impl TlpTraits {
    #[inline]
    fn parse(b: &[u8]) -> Result<Self, RecordError> {
        let flags = b[1];
        let class = match flags & CLASS {
            0 => Class::Posted,
            1 => Class::NonPosted,
            2 => Class::Completion,
            other => return Err(RecordError::Class(other)),
        };
        Ok(Self {
            class,
            relaxed: flags & RELAXED != 0,
            sampled: flags & SAMPLED != 0,
            outstanding: (flags & HAS_OUTSTANDING != 0)
                .then(|| OutstandingRef { index: u16_at(b, 12), generation: u16_at(b, 14) }),
        })
    }

    #[inline(always)]
    fn put(&self, head: &mut Head) {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let flags = self.class as u8
            | flag(self.relaxed, RELAXED)
            | flag(self.sampled, SAMPLED)
            | flag(self.outstanding.is_some(), HAS_OUTSTANDING);
        head.put(1, flags);
        if let Some(OutstandingRef { index, generation }) = self.outstanding {
            head.put(12, index);
            head.put(14, generation);
        }
    }
}

/// A whole TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpRecord<'a> {
    /// Binding and direction.
    pub address: RecordAddress,
    /// What the link must know of it.
    pub traits: TlpTraits,
    /// The TLP's bytes: at least 12 and a multiple of 4.
    pub tlp: &'a [u8],
    /// Its CRC ([`crate::crc::tlp`]) as the sender computed it.
    pub crc: u32,
}

impl<'a> TlpRecord<'a> {
    /// Whether the bytes are what the CRC was computed over.
    #[inline]
    pub fn crc_matches(&self) -> bool {
        crc::tlp(self.tlp) == self.crc
    }

    /// `b` is the record as its length says, which may be wrong.
    #[inline(always)]
    fn parse(b: &'a [u8]) -> Result<Self, RecordError> {
        if b.len() < TLP_OVERHEAD + MIN_TLP || !b.len().is_multiple_of(4) {
            return Err(RecordError::Length(b.len() as u16));
        }
        let (address, traits) = (RecordAddress::parse(b)?, TlpTraits::parse(b)?);
        let (tlp, crc) = b[RECORD_HEADER..].split_at(b.len() - TLP_OVERHEAD);
        Ok(Self { address, traits, tlp, crc: u32_at(crc, 0) })
    }

    /// As [`Record::emit`].
    #[inline(always)]
    pub(super) fn emit(&self, out: &mut [u8]) -> Result<usize, Full> {
        let length = TLP_OVERHEAD + self.tlp.len();
        let out = out.get_mut(..length).ok_or(Full)?;
        if let Some((head, rest)) = out.split_first_chunk_mut() {
            let mut words = Head::new(kind::TLP, length);
            self.address.put(&mut words);
            self.traits.put(&mut words);
            words.write(head);
            let (tlp, crc) = rest.split_at_mut(self.tlp.len());
            tlp.copy_from_slice(self.tlp);
            crc.copy_from_slice(&self.crc.to_le_bytes());
        }
        Ok(length)
    }
}

/// The first bytes of a TLP that is larger than a frame. The data records follow it in the link
/// sequence, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitHeader<'a> {
    /// Binding and direction.
    pub address: RecordAddress,
    /// What the link must know of the TLP.
    pub traits: TlpTraits,
    /// Bytes of the whole TLP.
    pub total: u16,
    /// How many data records follow; at least 1.
    pub parts: u16,
    /// CRC of the whole TLP.
    pub crc: u32,
    /// The TLP's first bytes: a multiple of 4, prefixes and header at least.
    pub bytes: &'a [u8],
}

/// Further bytes of a TLP that is larger than a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitData<'a> {
    /// Binding and direction.
    pub address: RecordAddress,
    /// The class of the TLP.
    pub class: Class,
    /// Which of the data records this is, from 1: its link sequence minus the header record's.
    pub part: u16,
    /// Where the bytes belong in the TLP: a multiple of 4.
    pub offset: u16,
    /// The bytes: at least one and a multiple of 4.
    pub bytes: &'a [u8],
}

/// Cumulative credit limits of one binding: how many records of each class the sender of this
/// record has taken or can take since the binding opened, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    /// Binding and direction.
    pub address: RecordAddress,
    /// The sender has just opened the binding and wants to be told the other end's limits.
    pub announce: bool,
    /// By [`Class`]: posted, non-posted, completion.
    pub tlps: [u32; 3],
    /// For sideband records.
    pub sideband: u32,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Nothing: keeps a link's sequence going.
    Nop,
    /// A TLP.
    Tlp(TlpRecord<'a>),
    /// The start of a split TLP.
    SplitHeader(SplitHeader<'a>),
    /// More of a split TLP.
    SplitData(SplitData<'a>),
    /// Something beside the TLPs.
    Sideband(RecordAddress, Sideband),
    /// Credit limits.
    Credits(Credits),
    /// The sender has closed the binding.
    Unbind(RecordAddress),
}

impl<'a> Record<'a> {
    /// Reads the record at the front of `bytes` and says how many bytes it takes.
    ///
    /// # Errors
    ///
    /// [`RecordError`] says what is wrong.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), RecordError> {
        let b = Self::whole(bytes)?;
        // Made where it is to be: what comes out of a function is moved.
        if b[0] == kind::TLP {
            return match TlpRecord::parse(b) {
                Ok(record) => Ok((Self::Tlp(record), b.len())),
                Err(error) => Err(error),
            };
        }
        Ok((Self::parse_rare(b)?, b.len()))
    }

    /// The bytes of the record at the front, which are not none.
    #[inline(always)]
    fn whole(bytes: &'a [u8]) -> Result<&'a [u8], RecordError> {
        let have = bytes.len();
        let Some(start) = bytes.first_chunk::<NOP_RECORD>() else {
            return Err(RecordError::CutShort { need: NOP_RECORD, have });
        };
        let need = usize::from(u16_at(start, 2));
        let b = bytes.get(..need).ok_or(RecordError::CutShort { need, have })?;
        if b.is_empty() { Err(RecordError::Length(0)) } else { Ok(b) }
    }

    /// Any other kind. `b` is the record as its length says, which may be wrong for its kind.
    fn parse_rare(b: &'a [u8]) -> Result<Self, RecordError> {
        let wrong_length = RecordError::Length(b.len() as u16);
        let kind = b[0];
        let smallest = match kind {
            kind::NOP => NOP_RECORD,
            kind::SPLIT_HEADER => SPLIT_HEADER + MIN_TLP,
            kind::SPLIT_DATA => SPLIT_DATA + 4,
            kind::SIDEBAND | kind::UNBIND => RECORD_HEADER,
            kind::CREDITS => CREDIT_RECORD,
            other => return Err(RecordError::Kind(other)),
        };
        let fixed_size = !matches!(kind, kind::SPLIT_HEADER | kind::SPLIT_DATA);
        if b.len() < smallest || !b.len().is_multiple_of(4) || fixed_size && b.len() != smallest {
            return Err(wrong_length);
        }
        if kind == kind::NOP {
            return Ok(Self::Nop);
        }
        let address = RecordAddress::parse(b)?;
        Ok(match kind {
            kind::SPLIT_HEADER => Self::SplitHeader(SplitHeader::parse(address, b)?),
            kind::SPLIT_DATA => Self::SplitData(SplitData::parse(address, b)?),
            kind::SIDEBAND => Self::Sideband(address, Sideband::from_code(b[12], u16_at(b, 14))),
            kind::CREDITS => Self::Credits(Credits {
                address,
                announce: b[1] & ANNOUNCE != 0,
                tlps: [u32_at(b, 16), u32_at(b, 20), u32_at(b, 24)],
                sideband: u32_at(b, 28),
            }),
            _ => Self::Unbind(address),
        })
    }

    /// Bytes that [`Record::emit`] writes.
    #[inline]
    pub fn emitted_len(&self) -> usize {
        match self {
            Self::Nop => NOP_RECORD,
            Self::Tlp(r) => TLP_OVERHEAD + r.tlp.len(),
            Self::SplitHeader(r) => SPLIT_HEADER + r.bytes.len(),
            Self::SplitData(r) => SPLIT_DATA + r.bytes.len(),
            Self::Sideband(..) | Self::Unbind(_) => RECORD_HEADER,
            Self::Credits(_) => CREDIT_RECORD,
        }
    }

    /// Writes the record at the front of `out` and says how many bytes it took.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Full> {
        if let Self::Tlp(record) = self {
            return record.emit(out);
        }
        let length = self.emitted_len();
        self.emit_rare(out.get_mut(..length).ok_or(Full)?);
        Ok(length)
    }

    /// Everything but TLPs, into `out`, which has the record's length.
    fn emit_rare(&self, out: &mut [u8]) {
        let begin = |kind| Head::new(kind, out.len());
        let head = match self {
            Self::Nop => {
                out.copy_from_slice(&begin(kind::NOP).0[0].to_le_bytes()[..NOP_RECORD]);
                return;
            }
            Self::Tlp(_) => unreachable!("written by `emit`"),
            Self::SplitHeader(r) => r.emit(begin(kind::SPLIT_HEADER), out),
            Self::SplitData(r) => r.emit(begin(kind::SPLIT_DATA), out),
            Self::Sideband(address, sideband) => {
                let mut head = begin(kind::SIDEBAND);
                address.put(&mut head);
                let (code, argument) = sideband.code();
                head.put(12, code);
                head.put(14, argument);
                head
            }
            Self::Credits(r) => {
                let mut head = begin(kind::CREDITS);
                head.put(1, if r.announce { ANNOUNCE } else { 0 });
                r.address.put(&mut head);
                let limits = [r.tlps[0], r.tlps[1], r.tlps[2], r.sideband];
                for (place, limit) in out[RECORD_HEADER..].chunks_exact_mut(4).zip(limits) {
                    place.copy_from_slice(&limit.to_le_bytes());
                }
                head
            }
            Self::Unbind(address) => {
                let mut head = begin(kind::UNBIND);
                address.put(&mut head);
                head
            }
        };
        if let Some(place) = out.first_chunk_mut() {
            head.write(place);
        }
    }
}

/// What every record begins with, in words of eight bytes: the frame's CRC comes next over these
/// bytes and would wait for smaller stores to be through.
struct Head([u64; RECORD_HEADER / 8]);

impl Head {
    #[inline(always)]
    fn new(kind: u8, length: usize) -> Self {
        let mut head = Self([kind.into(), 0]);
        head.put(2, length as u16);
        head
    }

    /// Puts a field that was not put yet at its byte.
    #[inline(always)]
    fn put(&mut self, at: usize, value: impl Into<u64>) {
        self.0[at / 8] |= value.into() << (at % 8 * 8);
    }

    #[inline(always)]
    fn write(&self, out: &mut [u8; RECORD_HEADER]) {
        out[..8].copy_from_slice(&self.0[0].to_le_bytes());
        out[8..].copy_from_slice(&self.0[1].to_le_bytes());
    }
}

impl<'a> SplitHeader<'a> {
    #[inline]
    fn parse(address: RecordAddress, b: &'a [u8]) -> Result<Self, RecordError> {
        let (total, parts) = (u16_at(b, 16), u16_at(b, 18));
        let bytes = &b[SPLIT_HEADER..];
        if parts == 0 || total % 4 != 0 || bytes.len() >= total as usize {
            return Err(RecordError::Split);
        }
        let traits = TlpTraits::parse(b)?;
        Ok(Self { address, traits, total, parts, crc: u32_at(b, 20), bytes })
    }

    #[inline]
    fn emit(&self, mut head: Head, out: &mut [u8]) -> Head {
        self.address.put(&mut head);
        self.traits.put(&mut head);
        out[16..18].copy_from_slice(&self.total.to_le_bytes());
        out[18..20].copy_from_slice(&self.parts.to_le_bytes());
        out[20..24].copy_from_slice(&self.crc.to_le_bytes());
        out[SPLIT_HEADER..].copy_from_slice(self.bytes);
        head
    }
}

impl<'a> SplitData<'a> {
    #[inline]
    fn parse(address: RecordAddress, b: &'a [u8]) -> Result<Self, RecordError> {
        let (part, offset) = (u16_at(b, 12), u16_at(b, 14));
        let bytes = &b[SPLIT_DATA..];
        if part == 0 || offset % 4 != 0 || offset as usize + bytes.len() > u16::MAX as usize {
            return Err(RecordError::Split);
        }
        let class = TlpTraits::parse(b)?.class;
        Ok(Self { address, class, part, offset, bytes })
    }

    #[inline]
    fn emit(&self, mut head: Head, out: &mut [u8]) -> Head {
        head.put(1, self.class as u8);
        self.address.put(&mut head);
        head.put(12, self.part);
        head.put(14, self.offset);
        out[SPLIT_DATA..].copy_from_slice(self.bytes);
        head
    }
}

/// The records of a data frame, one after the other. After an error it ends.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    #[inline]
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match Record::parse(self.rest) {
            Ok((record, length)) => {
                self.rest = &self.rest[length..];
                Some(Ok(record))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}
