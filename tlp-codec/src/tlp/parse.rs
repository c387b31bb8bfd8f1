//! From bytes to meaning.

use super::check::check;
use super::{
    AddressType, AtomicOp, Attributes, ByteEnables, CplStatus, IgnoredBits, Kind, MsgCode,
    MsgRouting, Packet, Prefixes, Repr, Rule, RuleError, TlpType, TphHint,
};
use crate::ids::{Bdf, Tag};

impl<'a> Repr<'a> {
    /// [`Packet::new_checked`] and [`Repr::parse`] in one.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    #[inline]
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, RuleError> {
        Self::parse(&Packet::new_checked(bytes)?)
    }

    /// What a TLP says, once every rule is checked that does not depend on how the receiver is
    /// configured. The digest is taken as it is: see [`Packet::digest_is_good`].
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with what a receiver does about it
    /// ([`RuleError::handling`]).
    #[inline]
    pub fn parse<T: AsRef<[u8]> + ?Sized>(packet: &Packet<&'a T>) -> Result<Self, RuleError> {
        let bytes: &'a [u8] = packet.bytes.as_ref();
        let header = HeaderWords::of(bytes.get(packet.header_at.into()..).unwrap_or_default());
        let data_at = usize::from(packet.header_at) + if header.is_wide() { 16 } else { 12 };
        let data_end =
            data_at + if header.has_data() { header.length_dw() as usize * 4 } else { 0 };
        let digest_len = if header.has_digest() { 4 } else { 0 };
        if bytes.len() != data_end + digest_len {
            return Err(Rule::LengthMismatch.broken_by(bytes.len() as u64));
        }
        let (data, digest) = bytes[data_at..].split_at(data_end - data_at);
        let mut reader = Reader { header, data, ignored: IgnoredBits::NONE };
        let kind = reader.kind(packet.tlp_type())?;
        let prefixes = Prefixes::from_wire(packet.prefix_bytes());
        let traffic_class = header.field(0, 20, 3) as u8;
        let attributes = header.field(0, 18, 1) << 2 | header.field(0, 12, 2);
        let attributes = Attributes::from_bits(attributes as u8);
        let address_type = AddressType::from_bits(header.field(0, 10, 2) as u8);
        // Before it is put together: what is moved behind a check is moved through memory.
        check(&prefixes, &kind, traffic_class, attributes, address_type)?;
        Ok(Repr {
            prefixes,
            traffic_class,
            attributes,
            address_type,
            ln: header.field(0, 17, 1) != 0,
            poisoned: header.field(0, 14, 1) != 0,
            digest: digest.first_chunk().map(|digest| u32::from_le_bytes(*digest)),
            ignored: reader.ignored,
            kind,
        })
    }
}

/// A header's doublewords as numbers, the first byte highest: fields come out of registers.
#[derive(Clone, Copy)]
struct HeaderWords([u32; 4]);

impl HeaderWords {
    /// Of the header that `bytes` begin with; the last word means something only in a wide one.
    #[inline(always)]
    fn of(bytes: &[u8]) -> Self {
        let dw = |n: usize| match bytes.get(4 * n..).and_then(<[u8]>::first_chunk) {
            Some(dw) => u32::from_be_bytes(*dw),
            None => 0,
        };
        Self([dw(0), dw(1), dw(2), dw(3)])
    }

    /// The `width` bits from bit `low` on of a doubleword.
    #[inline(always)]
    fn field(self, dw: usize, low: u32, width: u32) -> u32 {
        self.0[dw] >> low & ((1 << width) - 1)
    }

    #[inline(always)]
    fn is_wide(self) -> bool {
        self.field(0, 29, 1) != 0
    }

    #[inline(always)]
    fn has_data(self) -> bool {
        self.field(0, 30, 1) != 0
    }

    #[inline(always)]
    fn has_digest(self) -> bool {
        self.field(0, 15, 1) != 0
    }

    #[inline(always)]
    fn length_dw(self) -> u16 {
        match self.field(0, 0, 10) {
            0 => 1024,
            n => n as u16,
        }
    }

    /// The ID in a doubleword's upper half.
    #[inline(always)]
    fn id(self, dw: usize) -> Bdf {
        Bdf::from_bits((self.0[dw] >> 16) as u16)
    }

    /// The tag whose low byte is in doubleword `dw`.
    #[inline(always)]
    fn tag(self, dw: usize) -> Tag {
        let high = self.field(0, 23, 1) << 9 | self.field(0, 19, 1) << 8;
        Tag::new((high | self.field(dw, 8, 8)) as u16).unwrap_or(Tag::MAX)
    }

    #[inline(always)]
    fn byte_enables(self) -> ByteEnables {
        ByteEnables { first: self.field(1, 0, 4) as u8, last: self.field(1, 4, 4) as u8 }
    }
}

/// Reads the part of a header that the type decides and collects the reserved bits that are set.
struct Reader<'a> {
    header: HeaderWords,
    data: &'a [u8],
    ignored: IgnoredBits,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    fn kind(&mut self, tlp_type: TlpType) -> Result<Kind<'a>, RuleError> {
        match tlp_type {
            TlpType::MRd => Ok(self.memory_read(false)),
            TlpType::MRdLk => Ok(self.memory_read(true)),
            TlpType::MWr => Ok(self.memory_write()),
            TlpType::DMWr => Ok(self.deferrable_write()),
            TlpType::IORd | TlpType::IOWr => self.io(),
            TlpType::CfgRd0 | TlpType::CfgWr0 => self.config(false),
            TlpType::CfgRd1 | TlpType::CfgWr1 => self.config(true),
            TlpType::Msg(_) | TlpType::MsgD(_) => Ok(self.message()),
            TlpType::Cpl | TlpType::CplD => Ok(self.completion(false)),
            TlpType::CplLk | TlpType::CplDLk => Ok(self.completion(true)),
            TlpType::FetchAdd => Ok(self.atomic(AtomicOp::FetchAdd)),
            TlpType::Swap => Ok(self.atomic(AtomicOp::Swap)),
            TlpType::Cas => Ok(self.atomic(AtomicOp::Cas)),
            TlpType::Unknown(byte) => Err(Rule::ReservedType.broken_by(byte.into())),
        }
    }

    #[inline(always)]
    fn keep(&mut self, field: IgnoredBits, value: impl Into<u32>) {
        self.ignored = self.ignored.with(IgnoredBits::new(field, value.into()));
    }

    #[inline(always)]
    fn keep_hints_bit(&mut self) {
        self.keep(IgnoredBits::TH, self.header.field(0, 16, 1));
    }

    /// The address and, with TH, the hint, whose steering tag is from bit `tag_at` of the second
    /// doubleword on.
    #[inline(always)]
    fn address(&mut self, tag_at: u32) -> (u64, Option<TphHint>) {
        let HeaderWords([_, _, third, fourth]) = self.header;
        let wide = self.header.is_wide();
        let (high, low) = if wide { (third, fourth) } else { (0, third) };
        if wide && high == 0 {
            self.keep(IgnoredBits::WIDE, 1_u8);
        }
        let address = u64::from(high) << 32 | u64::from(low & !3);
        if self.header.field(0, 16, 1) != 0 {
            let steering_tag = self.header.field(1, tag_at, 8) as u8;
            return (address, Some(TphHint { processing_hint: low as u8 & 3, steering_tag }));
        }
        self.keep(IgnoredBits::LOW, low & 3);
        (address, None)
    }

    /// The byte enables, which are implied where their place has a steering tag.
    #[inline(always)]
    fn enables(&self, hint: Option<TphHint>) -> ByteEnables {
        match hint {
            Some(_) => ByteEnables::all(self.header.length_dw()),
            None => self.header.byte_enables(),
        }
    }

    #[inline(always)]
    fn memory_read(&mut self, locked: bool) -> Kind<'a> {
        let (address, hint) = self.address(0);
        Kind::MemRead {
            requester: self.header.id(1),
            tag: self.header.tag(1),
            address,
            length_dw: self.header.length_dw(),
            enables: self.enables(hint),
            hint,
            locked,
        }
    }

    #[inline(always)]
    fn memory_write(&mut self) -> Kind<'a> {
        let (address, hint) = self.address(8);
        let tag = self.header.tag(1);
        Kind::MemWrite {
            requester: self.header.id(1),
            tag: if hint.is_some() { tag.without_low_byte() } else { tag },
            address,
            enables: self.header.byte_enables(),
            hint,
            data: self.data,
        }
    }

    #[inline(always)]
    fn deferrable_write(&mut self) -> Kind<'a> {
        let (address, hint) = self.address(0);
        Kind::DeferrableMemWrite {
            requester: self.header.id(1),
            tag: self.header.tag(1),
            address,
            enables: self.enables(hint),
            hint,
            data: self.data,
        }
    }

    #[inline(always)]
    fn atomic(&mut self, op: AtomicOp) -> Kind<'a> {
        let (address, hint) = self.address(0);
        if hint.is_none() {
            self.keep(IgnoredBits::BYTE, self.header.field(1, 0, 8));
        }
        Kind::Atomic {
            op,
            requester: self.header.id(1),
            tag: self.header.tag(1),
            address,
            hint,
            data: self.data,
        }
    }

    /// What I/O and configuration requests share: one doubleword, no hints. Gives the first byte
    /// enables.
    #[inline(always)]
    fn one_dw(&mut self) -> Result<u8, RuleError> {
        let (length, enables) = (self.header.length_dw(), self.header.byte_enables());
        if length != 1 {
            return Err(Rule::RequestLengthNotOne.broken_by(length.into()));
        }
        if enables.last != 0 {
            return Err(Rule::LastEnablesOfOneDw.broken_by(enables.last.into()));
        }
        self.keep_hints_bit();
        self.keep(IgnoredBits::LOW, self.header.field(2, 0, 2));
        Ok(enables.first)
    }

    #[inline(always)]
    fn io(&mut self) -> Result<Kind<'a>, RuleError> {
        let first_be = self.one_dw()?;
        let (requester, tag) = (self.header.id(1), self.header.tag(1));
        let (address, data) = (self.header.0[2] & !3, self.data);
        Ok(if data.is_empty() {
            Kind::IoRead { requester, tag, address, first_be }
        } else {
            Kind::IoWrite { requester, tag, address, first_be, data }
        })
    }

    #[inline(always)]
    fn config(&mut self, type1: bool) -> Result<Kind<'a>, RuleError> {
        let first_be = self.one_dw()?;
        self.keep(IgnoredBits::BYTE, self.header.field(2, 12, 4));
        let (requester, tag) = (self.header.id(1), self.header.tag(1));
        let (destination, register) = (self.header.id(2), (self.header.0[2] & 0xffc) as u16);
        let data = self.data;
        Ok(if data.is_empty() {
            Kind::ConfigRead { type1, requester, tag, destination, register, first_be }
        } else {
            Kind::ConfigWrite { type1, requester, tag, destination, register, first_be, data }
        })
    }

    /// What messages and completions share: no hints, and a length only where there is data.
    #[inline(always)]
    fn no_request(&mut self) {
        self.keep_hints_bit();
        if self.data.is_empty() {
            self.keep(IgnoredBits::LENGTH, self.header.field(0, 0, 10));
        }
    }

    #[inline(always)]
    fn message(&mut self) -> Kind<'a> {
        self.no_request();
        let HeaderWords([_, _, third, fourth]) = self.header;
        let fields = (u64::from(third) << 32 | u64::from(fourth)).to_be_bytes();
        Kind::Message {
            routing: MsgRouting::from_bits(self.header.field(0, 24, 8) as u8),
            code: MsgCode::from_byte(self.header.field(1, 0, 8) as u8),
            requester: self.header.id(1),
            tag: self.header.tag(1),
            fields,
            data: self.data,
        }
    }

    #[inline(always)]
    fn completion(&mut self, locked: bool) -> Kind<'a> {
        self.no_request();
        self.keep(IgnoredBits::BYTE, self.header.field(2, 7, 1));
        Kind::Completion {
            completer: self.header.id(1),
            requester: self.header.id(2),
            tag: self.header.tag(2),
            status: CplStatus::from_bits(self.header.field(1, 13, 3) as u8),
            bcm: self.header.field(1, 12, 1) != 0,
            byte_count: match self.header.field(1, 0, 12) {
                0 => 4096,
                n => n as u16,
            },
            lower_address: self.header.field(2, 0, 7) as u8,
            locked,
            data: self.data,
        }
    }
}
