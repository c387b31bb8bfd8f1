//! TLP prefixes: the doublewords in front of a header (PCIe 5.0 section 2.2.10).

use super::MAX_PREFIXES;

/// One prefix doubleword, as it is on the wire. Fmt (the three highest bits of the first byte) is
/// always 100b.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix([u8; 4]);

/// What a prefix is (PCIe 5.0 tables 2-36 and 2-37). Types that are not listed are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixKind {
    /// Multi-root I/O virtualisation, local.
    MrIov,
    /// Vendor-defined local prefix 0 or 1.
    VendorLocal(u8),
    /// Any other local prefix: its four type bits.
    UnknownLocal(u8),
    /// Extended TPH: steering tag bits 15:8 (PCIe 5.0 section 2.2.7.1).
    ExtTph,
    /// Process address space ID (PCIe 5.0 section 6.20).
    Pasid,
    /// Vendor-defined end-to-end prefix 0 or 1.
    VendorEndToEnd(u8),
    /// Any other end-to-end prefix: its four type bits.
    UnknownEndToEnd(u8),
}

/// What a PASID prefix carries (PCIe 5.0 section 6.20.2): the value in bits 19:0, Execute
/// Requested in bit 20, Privileged Mode Requested in bit 21; bits 23:22 are reserved. (Public
/// source: the PASID prefix injector of the open-source BSA PCIe exerciser gateware.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pasid {
    /// The process address space, 0 to 0xf_ffff.
    pub value: u32,
    /// The requester asks to execute what it reads.
    pub execute_requested: bool,
    /// The requester runs in privileged mode.
    pub privileged_requested: bool,
}

impl Prefix {
    /// Takes the four bytes of a prefix.
    ///
    /// `None` when Fmt is not 100b, which would make them the start of a header.
    pub const fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        if bytes[0] >> 5 == 0b100 { Some(Self(bytes)) } else { None }
    }

    /// A PASID prefix. The value's bits above 19 are not used.
    pub const fn pasid(pasid: Pasid) -> Self {
        let v = pasid.value;
        let high = (v >> 16) as u8 & 0x0f
            | (pasid.execute_requested as u8) << 4
            | (pasid.privileged_requested as u8) << 5;
        Self([0x91, high, (v >> 8) as u8, v as u8])
    }

    /// An extended TPH prefix with steering tag bits 15:8.
    pub const fn ext_tph(steering_tag_high: u8) -> Self {
        Self([0x90, steering_tag_high, 0, 0])
    }

    /// The four bytes.
    pub const fn bytes(self) -> [u8; 4] {
        self.0
    }

    /// Whether it goes end to end, and so counts into the ECRC; else it is of one link.
    pub const fn is_end_to_end(self) -> bool {
        self.0[0] & 0x10 != 0
    }

    /// Which prefix it is.
    pub const fn kind(self) -> PrefixKind {
        match self.0[0] & 0x1f {
            0x00 => PrefixKind::MrIov,
            0x0e => PrefixKind::VendorLocal(0),
            0x0f => PrefixKind::VendorLocal(1),
            0x10 => PrefixKind::ExtTph,
            0x11 => PrefixKind::Pasid,
            0x1e => PrefixKind::VendorEndToEnd(0),
            0x1f => PrefixKind::VendorEndToEnd(1),
            t if t & 0x10 == 0 => PrefixKind::UnknownLocal(t),
            t => PrefixKind::UnknownEndToEnd(t & 0x0f),
        }
    }

    /// The PASID that it carries, if it is a PASID prefix.
    pub const fn as_pasid(self) -> Option<Pasid> {
        let PrefixKind::Pasid = self.kind() else { return None };
        let [_, high, mid, low] = self.0;
        Some(Pasid {
            value: ((high & 0x0f) as u32) << 16 | (mid as u32) << 8 | low as u32,
            execute_requested: high & 0x10 != 0,
            privileged_requested: high & 0x20 != 0,
        })
    }
}

impl core::fmt::Debug for Prefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "Prefix({a:02x}{b:02x}{c:02x}{d:02x})")
    }
}

/// There is no room for another prefix: a TLP has at most [`MAX_PREFIXES`] here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPrefixes;

impl core::fmt::Display for TooManyPrefixes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "more than {MAX_PREFIXES} TLP prefixes")
    }
}

impl core::error::Error for TooManyPrefixes {}

/// Up to [`MAX_PREFIXES`] prefixes, in wire order: local ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prefixes {
    // Whole words throughout: mixed with bytes, every copy stalls the processor's store queue.
    list: [u32; MAX_PREFIXES],
    count: u32,
}

impl Prefixes {
    /// None.
    pub const fn none() -> Self {
        Self { list: [0; MAX_PREFIXES], count: 0 }
    }

    /// From the bytes in front of a header, which [`Packet`](super::Packet) has counted.
    #[inline(always)]
    pub(super) fn from_wire(bytes: &[u8]) -> Self {
        if bytes.is_empty() { Self::none() } else { Self::some_from_wire(bytes) }
    }

    #[cold]
    fn some_from_wire(bytes: &[u8]) -> Self {
        let mut prefixes = Self::none();
        for (place, bytes) in prefixes.list.iter_mut().zip(bytes.chunks_exact(4)) {
            *place = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            prefixes.count += 1;
        }
        prefixes
    }

    /// Adds one behind those that are there.
    ///
    /// # Errors
    ///
    /// When there are [`MAX_PREFIXES`] already.
    pub const fn push(&mut self, prefix: Prefix) -> Result<(), TooManyPrefixes> {
        if self.count as usize == MAX_PREFIXES {
            return Err(TooManyPrefixes);
        }
        self.list[self.count as usize] = u32::from_be_bytes(prefix.0);
        self.count += 1;
        Ok(())
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// They, in wire order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Prefix> + '_ {
        self.list[..self.len()].iter().map(|bytes| Prefix(bytes.to_be_bytes()))
    }

    /// Writes them to the start of `buf`, which has room for them, and gives their length.
    #[inline]
    pub(super) fn emit(&self, buf: &mut [u8]) -> usize {
        for (place, prefix) in buf.chunks_exact_mut(4).zip(self.iter()) {
            place.copy_from_slice(&prefix.bytes());
        }
        4 * self.len()
    }

    /// The PASID, if one of them carries it.
    pub fn pasid(&self) -> Option<Pasid> {
        self.iter().find_map(Prefix::as_pasid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasid_prefix_is_laid_out_as_the_specification_draws_it() {
        let pasid = Pasid { value: 0xabcde, execute_requested: false, privileged_requested: true };
        let prefix = Prefix::pasid(pasid);
        assert_eq!(prefix.bytes(), [0x91, 0x2a, 0xbc, 0xde]);
        assert_eq!(prefix.as_pasid(), Some(pasid));
        assert_eq!(Prefix::ext_tph(3).as_pasid(), None);
    }

    #[test]
    fn only_fmt_100_is_a_prefix() {
        assert_eq!(Prefix::from_bytes([0x60, 0, 0, 0]), None);
        assert_eq!(Prefix::from_bytes([0xa0, 0, 0, 0]), None);
        let unknown = Prefix::from_bytes([0x85, 0, 0, 0]).unwrap();
        assert_eq!(unknown.kind(), PrefixKind::UnknownLocal(5));
        let unknown = Prefix::from_bytes([0x95, 0, 0, 0]).unwrap();
        assert_eq!(unknown.kind(), PrefixKind::UnknownEndToEnd(5));
    }

    #[test]
    fn they_are_counted_and_bounded() {
        let mut prefixes = Prefixes::none();
        assert!(prefixes.is_empty());
        for i in 0..MAX_PREFIXES {
            prefixes.push(Prefix::ext_tph(i as u8)).unwrap();
        }
        assert_eq!(prefixes.push(Prefix::ext_tph(0)), Err(TooManyPrefixes));
        assert_eq!(prefixes.iter().len(), MAX_PREFIXES);
        let mut bytes = [0; 4 * MAX_PREFIXES];
        assert_eq!(prefixes.emit(&mut bytes), bytes.len());
        assert_eq!(bytes[4..8], [0x90, 1, 0, 0]);
        assert_eq!(Prefixes::from_wire(&bytes), prefixes);
    }
}
