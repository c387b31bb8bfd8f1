//! From meaning to bytes.

use super::{
    AtomicOp, ByteEnables, CplStatus, EmitError, IgnoredBits, Kind, MAX_PAYLOAD, Repr, TphHint,
};
use crate::ids::{Bdf, Tag};

/// A header that is being put together.
struct Header {
    /// The doublewords as numbers, the first byte highest; the last one counts only where Fmt says
    /// so. Numbers stay in registers where bytes would go through memory piece by piece.
    dw: [u32; 4],
    /// What of the ignored bits this kind has a place for.
    places: IgnoredBits,
}

/// Fmt bits, in the first byte.
const WIDE: u8 = 0x20;
const DATA: u8 = 0x40;
/// Bits of the first doubleword.
const TD: u32 = 1 << 15;
const EP: u32 = 1 << 14;
const TH: u32 = 1 << 16;
const LN: u32 = 1 << 17;

#[inline(always)]
fn fits(holds: bool, what: &'static str) -> Result<(), EmitError> {
    if holds { Ok(()) } else { Err(EmitError::Field(what)) }
}

impl Repr<'_> {
    /// Bytes that [`Repr::emit`] writes.
    #[inline]
    pub fn buffer_len(&self) -> usize {
        let header = if self.has_4dw_header() { 16 } else { 12 };
        let digest = if self.digest.is_some() { 4 } else { 0 };
        4 * self.prefixes.len() + header + self.data().len() + digest
    }

    /// Whether the header has four doublewords: messages, and addresses from 4 GB on (PCIe 5.0
    /// section 2.2.4.1).
    #[inline]
    pub fn has_4dw_header(&self) -> bool {
        match self.kind {
            Kind::MemRead { address, .. }
            | Kind::MemWrite { address, .. }
            | Kind::DeferrableMemWrite { address, .. }
            | Kind::Atomic { address, .. } => {
                address >> 32 != 0 || self.ignored.get(IgnoredBits::WIDE) != 0
            }
            Kind::Message { .. } => true,
            _ => false,
        }
    }

    /// Writes the TLP to the start of `buf` and gives its length, [`Repr::buffer_len`]. The
    /// digest is written as it stands; where it is to be right, put any number there and call
    /// [`Packet::update_digest`](super::Packet::update_digest) on what was written.
    ///
    /// # Errors
    ///
    /// When the buffer is too small, a field does not fit its place, or a receiver would find a
    /// rule broken. `buf` is unchanged then.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        self.emit_inline(buf)
    }

    /// As [`Repr::emit`], always inline: for who writes many TLPs of one kind, of which the others
    /// are not looked at then.
    ///
    /// # Errors
    ///
    /// As [`Repr::emit`].
    #[inline(always)]
    pub fn emit_inline(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let (need, have) = (self.buffer_len(), buf.len());
        if need > have {
            return Err(EmitError::BufferTooSmall { need, have });
        }
        let header = self.header()?;
        self.check().map_err(EmitError::Rule)?;

        let mut at = if self.prefixes.is_empty() { 0 } else { self.prefixes.emit(buf) };
        at += header.emit(&mut buf[at..]);
        let data = self.data();
        buf[at..at + data.len()].copy_from_slice(data);
        at += data.len();
        if let Some(digest) = self.digest {
            buf[at..at + 4].copy_from_slice(&digest.to_le_bytes());
            at += 4;
        }
        Ok(at)
    }

    #[inline(always)]
    fn header(&self) -> Result<Header, EmitError> {
        let (tc, attributes) = (self.traffic_class, self.attributes.bits());
        fits(tc <= 7, "the traffic class is to be 0 to 7")?;
        let len = self.data().len();
        fits(
            len <= MAX_PAYLOAD && len.is_multiple_of(4),
            "data is whole doublewords, 4096 bytes at most",
        )?;
        let mut header = self.kind_header()?;
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        header.dw[0] |= flag(self.has_4dw_header(), u32::from(WIDE) << 24)
            | u32::from(tc) << 20
            | u32::from(attributes & 4) << 16
            | u32::from(attributes & 3) << 12
            | u32::from(self.address_type.bits()) << 10
            | flag(self.ln, LN)
            | flag(self.digest.is_some(), TD)
            | flag(self.poisoned, EP);
        header.put_ignored(self.ignored)?;
        Ok(header)
    }

    #[inline(always)]
    fn kind_header(&self) -> Result<Header, EmitError> {
        let length = (self.data().len() / 4) as u16;
        match self.kind {
            Kind::MemRead { requester, tag, address, length_dw, enables, hint, locked } => {
                fits(matches!(length_dw, 1..=1024), "a read's length is 1 to 1024 doublewords")?;
                Header::new(u8::from(locked), length_dw)
                    .request(requester, tag)
                    .enables_or_hint(enables, hint, length_dw)?
                    .address(address, hint, self.has_4dw_header())
            }
            Kind::MemWrite { requester, tag, address, enables, hint, .. } => {
                fits(length > 0, "a write has data")?;
                Header::new(DATA, length)
                    .request(requester, tag)
                    .enables(enables)?
                    .steered_write(hint, tag)?
                    .address(address, hint, self.has_4dw_header())
            }
            Kind::DeferrableMemWrite { requester, tag, address, enables, hint, .. } => {
                fits(length > 0, "a write has data")?;
                Header::new(DATA | 0x1b, length)
                    .request(requester, tag)
                    .enables_or_hint(enables, hint, length)?
                    .address(address, hint, self.has_4dw_header())
            }
            Kind::Atomic { op, requester, tag, address, hint, .. } => {
                fits(length > 0, "an atomic request has data")?;
                let op = match op {
                    AtomicOp::FetchAdd => 0x0c,
                    AtomicOp::Swap => 0x0d,
                    AtomicOp::Cas => 0x0e,
                };
                Header::new(DATA | op, length).request(requester, tag).atomic_hint(hint).address(
                    address,
                    hint,
                    self.has_4dw_header(),
                )
            }
            Kind::IoRead { requester, tag, address, first_be } => {
                Header::new(0x02, 1).request(requester, tag).one_dw(first_be)?.io(address)
            }
            Kind::IoWrite { requester, tag, address, first_be, .. } => {
                fits(length == 1, "an I/O write has one doubleword of data")?;
                Header::new(DATA | 0x02, 1).request(requester, tag).one_dw(first_be)?.io(address)
            }
            Kind::ConfigRead { type1, requester, tag, destination, register, first_be } => {
                Header::new(0x04 | u8::from(type1), 1)
                    .request(requester, tag)
                    .one_dw(first_be)?
                    .config(destination, register)
            }
            Kind::ConfigWrite {
                type1, requester, tag, destination, register, first_be, ..
            } => {
                fits(length == 1, "a configuration write has one doubleword of data")?;
                Header::new(DATA | 0x04 | u8::from(type1), 1)
                    .request(requester, tag)
                    .one_dw(first_be)?
                    .config(destination, register)
            }
            Kind::Message { routing, code, requester, tag, fields, .. } => {
                let data = if length > 0 { DATA } else { 0 };
                let mut header =
                    Header::new(data | 0x10 | routing as u8, length).request(requester, tag);
                let [a, b, c, d, e, f, g, h] = fields;
                header.dw[1] |= u32::from(code.byte());
                header.dw[2] = u32::from_be_bytes([a, b, c, d]);
                header.dw[3] = u32::from_be_bytes([e, f, g, h]);
                Ok(header.no_request(length))
            }
            Kind::Completion {
                completer,
                requester,
                tag,
                status,
                bcm,
                byte_count,
                lower_address,
                locked,
                ..
            } => {
                fits(matches!(byte_count, 1..=4096), "a byte count is 1 to 4096")?;
                fits(lower_address <= 0x7f, "a lower address is 0 to 127")?;
                let data = if length > 0 { DATA } else { 0 };
                let header = Header::new(data | 0x0a | u8::from(locked), length)
                    .completion(completer, requester, tag)
                    .progress(status, bcm, byte_count, lower_address);
                Ok(header.no_request(length))
            }
        }
    }
}

/// What one kind needs of a header, a step each.
impl Header {
    #[inline(always)]
    fn new(fmt_type: u8, length_dw: u16) -> Self {
        let first = u32::from(fmt_type) << 24 | u32::from(length_dw & 0x3ff);
        Self { dw: [first, 0, 0, 0], places: IgnoredBits::NONE }
    }

    /// Writes the header to the start of `buf`, which has room for it; how many bytes it has.
    #[inline(always)]
    fn emit(&self, buf: &mut [u8]) -> usize {
        let [a, b, c, d] = self.dw.map(u64::from);
        buf[..8].copy_from_slice(&(a << 32 | b).to_be_bytes());
        if self.is_wide() {
            buf[8..16].copy_from_slice(&(c << 32 | d).to_be_bytes());
            return 16;
        }
        buf[8..12].copy_from_slice(&self.dw[2].to_be_bytes());
        12
    }

    #[inline(always)]
    fn is_wide(&self) -> bool {
        self.dw[0] & u32::from(WIDE) << 24 != 0
    }

    /// An ID and a tag in doubleword `at`; the tag's two highest bits are in the first one.
    #[inline(always)]
    fn put_id_and_tag(&mut self, at: usize, id: Bdf, tag: Tag) {
        let tag = u32::from(tag.get());
        self.dw[at] |= u32::from(id.bits()) << 16 | (tag & 0xff) << 8;
        self.dw[0] |= tag >> 9 << 23 | (tag >> 8 & 1) << 19;
    }

    #[inline(always)]
    fn request(mut self, requester: Bdf, tag: Tag) -> Self {
        self.put_id_and_tag(1, requester, tag);
        self
    }

    #[inline(always)]
    fn enables(mut self, enables: ByteEnables) -> Result<Self, EmitError> {
        let ByteEnables { first, last } = enables;
        fits(first <= 0xf && last <= 0xf, "byte enables are four bits each")?;
        self.dw[1] |= u32::from(last << 4 | first);
        Ok(self)
    }

    /// Byte enables, or the steering tag in their place, which implies them.
    #[inline(always)]
    fn enables_or_hint(
        mut self,
        enables: ByteEnables,
        hint: Option<TphHint>,
        length_dw: u16,
    ) -> Result<Self, EmitError> {
        let Some(hint) = hint else { return self.enables(enables) };
        let implied = enables == ByteEnables::all(length_dw);
        fits(implied, "a steering tag in the byte enables' place implies that all are set")?;
        self.dw[1] |= u32::from(hint.steering_tag);
        Ok(self)
    }

    /// The steering tag of a posted write, in the tag's place.
    #[inline(always)]
    fn steered_write(mut self, hint: Option<TphHint>, tag: Tag) -> Result<Self, EmitError> {
        if let Some(hint) = hint {
            let free = tag.get() & 0xff == 0;
            fits(free, "a posted write's steering tag stands in its tag's place: tag is to be 0")?;
            self.dw[1] |= u32::from(hint.steering_tag) << 8;
        }
        Ok(self)
    }

    /// The steering tag of an atomic, where requests have byte enables.
    #[inline(always)]
    fn atomic_hint(mut self, hint: Option<TphHint>) -> Self {
        match hint {
            Some(hint) => self.dw[1] |= u32::from(hint.steering_tag),
            None => self.places = self.places.with(IgnoredBits::BYTE),
        }
        self
    }

    #[inline(always)]
    fn address(
        mut self,
        address: u64,
        hint: Option<TphHint>,
        wide: bool,
    ) -> Result<Self, EmitError> {
        fits(address & 3 == 0, "an address is a multiple of 4; byte enables say the rest")?;
        let mut low = address as u32;
        if let Some(hint) = hint {
            fits(hint.processing_hint <= 3, "a processing hint is 0 to 3")?;
            low |= u32::from(hint.processing_hint);
            self.dw[0] |= TH;
        } else {
            self.places = self.places.with(IgnoredBits::LOW);
        }
        if address >> 32 == 0 {
            self.places = self.places.with(IgnoredBits::WIDE);
        }
        if wide {
            self.dw[2] = (address >> 32) as u32;
            self.dw[3] = low;
        } else {
            self.dw[2] = low;
        }
        Ok(self)
    }

    #[inline(always)]
    fn one_dw(mut self, first_be: u8) -> Result<Self, EmitError> {
        self.places = self.places.with(IgnoredBits::TH).with(IgnoredBits::LOW);
        self.enables(ByteEnables { first: first_be, last: 0 })
    }

    #[inline(always)]
    fn io(mut self, address: u32) -> Result<Self, EmitError> {
        fits(address & 3 == 0, "an address is a multiple of 4; byte enables say the rest")?;
        self.dw[2] = address;
        Ok(self)
    }

    #[inline(always)]
    fn config(mut self, destination: Bdf, register: u16) -> Result<Self, EmitError> {
        let fitting = register <= 0xffc && register & 3 == 0;
        fits(fitting, "a register is a multiple of 4 and 4092 at most")?;
        self.dw[2] = u32::from(destination.bits()) << 16 | u32::from(register);
        self.places = self.places.with(IgnoredBits::new(IgnoredBits::BYTE, 0x0f));
        Ok(self)
    }

    #[inline(always)]
    fn completion(mut self, completer: Bdf, requester: Bdf, tag: Tag) -> Self {
        self.dw[1] |= u32::from(completer.bits()) << 16;
        self.put_id_and_tag(2, requester, tag);
        self
    }

    #[inline(always)]
    fn progress(mut self, status: CplStatus, bcm: bool, byte_count: u16, lower: u8) -> Self {
        self.dw[1] |=
            u32::from(status.bits()) << 13 | u32::from(bcm) << 12 | u32::from(byte_count & 0xfff);
        self.dw[2] |= u32::from(lower);
        self.places = self.places.with(IgnoredBits::new(IgnoredBits::BYTE, 1));
        self
    }

    #[inline(always)]
    fn no_request(mut self, length_dw: u16) -> Self {
        self.places = self.places.with(IgnoredBits::TH);
        if length_dw == 0 {
            self.places = self.places.with(IgnoredBits::LENGTH);
        }
        self
    }

    /// Puts back the reserved bits that came set.
    #[inline(always)]
    fn put_ignored(&mut self, ignored: IgnoredBits) -> Result<(), EmitError> {
        if ignored == IgnoredBits::NONE {
            return Ok(());
        }
        fits(self.places.with(ignored) == self.places, "ignored bits that this kind has not")?;
        let byte = ignored.get(IgnoredBits::BYTE);
        let low_in = if self.is_wide() { 3 } else { 2 };
        let dw = &mut self.dw;
        dw[0] |= ignored.get(IgnoredBits::TH) << 16 | ignored.get(IgnoredBits::LENGTH);
        dw[low_in] |= ignored.get(IgnoredBits::LOW);
        match dw[0] >> 24 & 0x1f {
            0x0a | 0x0b => dw[2] |= byte << 7,
            0x04 | 0x05 => dw[2] |= byte << 12,
            _ => dw[1] |= byte,
        }
        Ok(())
    }
}
