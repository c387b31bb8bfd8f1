//! From bytes to meaning.

use super::{
    AtomicOp, ByteEnables, IgnoredBits, Kind, Packet, Prefixes, Repr, Rule, RuleError, TlpType,
    TphHint,
};

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
        let header = Packet { bytes: header_bytes(bytes, packet.header_at), header_at: 0 };
        let data_at = packet.header_at as usize + header.header_len();
        let data_end = data_at + header.payload_len();
        let digest_len = if header.has_digest() { 4 } else { 0 };
        if bytes.len() != data_end + digest_len {
            return Err(Rule::LengthMismatch.broken_by(bytes.len() as u64));
        }
        let (data, digest) = bytes[data_at..].split_at(data_end - data_at);
        let mut reader = Reader { packet: header, data, ignored: IgnoredBits::NONE };
        let kind = reader.kind()?;
        let repr = Repr {
            prefixes: Prefixes::from_wire(packet.prefix_bytes()),
            traffic_class: reader.packet.traffic_class(),
            attributes: reader.packet.attributes(),
            address_type: reader.packet.address_type(),
            ln: reader.packet.has_ln(),
            poisoned: reader.packet.is_poisoned(),
            digest: digest.first_chunk().map(|digest| u32::from_le_bytes(*digest)),
            ignored: reader.ignored,
            kind,
        };
        repr.check()?;
        Ok(repr)
    }
}

/// The header in an array, so that reading its fields needs no check of its length; behind one of
/// three doublewords there are zeros.
#[inline]
fn header_bytes(bytes: &[u8], at: u8) -> [u8; 16] {
    let rest = bytes.get(usize::from(at)..).unwrap_or_default();
    if let Some(header) = rest.first_chunk::<16>() {
        return *header;
    }
    let mut header = [0; 16];
    for (to, from) in header.iter_mut().zip(rest) {
        *to = *from;
    }
    header
}

/// Reads the part of a header that the type decides and collects the reserved bits that are set.
struct Reader<'a> {
    packet: Packet<[u8; 16]>,
    data: &'a [u8],
    ignored: IgnoredBits,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    fn kind(&mut self) -> Result<Kind<'a>, RuleError> {
        match self.packet.tlp_type() {
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
    fn byte(&self, at: usize) -> u8 {
        self.packet.h()[at]
    }

    #[inline(always)]
    fn keep(&mut self, field: IgnoredBits, value: impl Into<u32>) {
        self.ignored = self.ignored.with(IgnoredBits::new(field, value.into()));
    }

    /// The address and, with TH, the hint with the steering tag from header byte `tag_at`.
    #[inline(always)]
    fn address(&mut self, tag_at: usize) -> (u64, Option<TphHint>) {
        let wide = self.packet.has_4dw_header();
        let address = self.packet.address();
        let low = self.byte(if wide { 15 } else { 11 }) & 3;
        if wide && address >> 32 == 0 {
            self.keep(IgnoredBits::WIDE, 1_u8);
        }
        if self.packet.has_hints() {
            let steering_tag = self.byte(tag_at);
            return (address, Some(TphHint { processing_hint: low, steering_tag }));
        }
        self.keep(IgnoredBits::LOW, low);
        (address, None)
    }

    /// The byte enables, which are implied where their place has a steering tag.
    #[inline(always)]
    fn enables(&self, hint: Option<TphHint>) -> ByteEnables {
        match hint {
            Some(_) => ByteEnables::all(self.packet.length_dw()),
            None => self.packet.byte_enables(),
        }
    }

    #[inline(always)]
    fn memory_read(&mut self, locked: bool) -> Kind<'a> {
        let (address, hint) = self.address(7);
        Kind::MemRead {
            requester: self.packet.requester(),
            tag: self.packet.tag(),
            address,
            length_dw: self.packet.length_dw(),
            enables: self.enables(hint),
            hint,
            locked,
        }
    }

    #[inline(always)]
    fn memory_write(&mut self) -> Kind<'a> {
        let (address, hint) = self.address(6);
        let tag = self.packet.tag();
        Kind::MemWrite {
            requester: self.packet.requester(),
            tag: if hint.is_some() { tag.without_low_byte() } else { tag },
            address,
            enables: self.packet.byte_enables(),
            hint,
            data: self.data,
        }
    }

    #[inline(always)]
    fn deferrable_write(&mut self) -> Kind<'a> {
        let (address, hint) = self.address(7);
        Kind::DeferrableMemWrite {
            requester: self.packet.requester(),
            tag: self.packet.tag(),
            address,
            enables: self.enables(hint),
            hint,
            data: self.data,
        }
    }

    #[inline(always)]
    fn atomic(&mut self, op: AtomicOp) -> Kind<'a> {
        let (address, hint) = self.address(7);
        if hint.is_none() {
            self.keep(IgnoredBits::BYTE, self.byte(7));
        }
        Kind::Atomic {
            op,
            requester: self.packet.requester(),
            tag: self.packet.tag(),
            address,
            hint,
            data: self.data,
        }
    }

    /// What I/O and configuration requests share: one doubleword, no hints. Gives the first byte
    /// enables.
    #[inline(always)]
    fn one_dw(&mut self) -> Result<u8, RuleError> {
        let (length, enables) = (self.packet.length_dw(), self.packet.byte_enables());
        if length != 1 {
            return Err(Rule::RequestLengthNotOne.broken_by(length.into()));
        }
        if enables.last != 0 {
            return Err(Rule::LastEnablesOfOneDw.broken_by(enables.last.into()));
        }
        self.keep(IgnoredBits::TH, self.packet.has_hints());
        self.keep(IgnoredBits::LOW, self.byte(11) & 3);
        Ok(enables.first)
    }

    #[inline(always)]
    fn io(&mut self) -> Result<Kind<'a>, RuleError> {
        let first_be = self.one_dw()?;
        let (requester, tag) = (self.packet.requester(), self.packet.tag());
        let (address, data) = (self.packet.address() as u32, self.data);
        Ok(if data.is_empty() {
            Kind::IoRead { requester, tag, address, first_be }
        } else {
            Kind::IoWrite { requester, tag, address, first_be, data }
        })
    }

    #[inline(always)]
    fn config(&mut self, type1: bool) -> Result<Kind<'a>, RuleError> {
        let first_be = self.one_dw()?;
        self.keep(IgnoredBits::BYTE, self.byte(10) >> 4);
        let (requester, tag) = (self.packet.requester(), self.packet.tag());
        let (destination, register) = (self.packet.destination(), self.packet.register());
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
        self.keep(IgnoredBits::TH, self.packet.has_hints());
        if self.data.is_empty() {
            self.keep(IgnoredBits::LENGTH, self.packet.length_dw() & 0x3ff);
        }
    }

    #[inline(always)]
    fn message(&mut self) -> Kind<'a> {
        self.no_request();
        Kind::Message {
            routing: self.packet.message_routing(),
            code: self.packet.message_code(),
            requester: self.packet.requester(),
            tag: self.packet.tag(),
            fields: self.packet.message_fields(),
            data: self.data,
        }
    }

    #[inline(always)]
    fn completion(&mut self, locked: bool) -> Kind<'a> {
        self.no_request();
        self.keep(IgnoredBits::BYTE, self.byte(11) >> 7);
        Kind::Completion {
            completer: self.packet.completer(),
            requester: self.packet.requester(),
            tag: self.packet.tag(),
            status: self.packet.status(),
            bcm: self.packet.has_bcm(),
            byte_count: self.packet.byte_count(),
            lower_address: self.packet.lower_address(),
            locked,
            data: self.data,
        }
    }
}
