//! The end-to-end CRC of the TLP digest (PCIe 5.0 section 2.7.1).
//!
//! It is the CRC-32 of Ethernet over the end-to-end prefixes, the header and the data, byte by
//! byte in the order of the link, with the bits that a switch may change (Type bit 0, which a
//! configuration request changes from type 1 to type 0, and EP) taken as 1. Local prefixes are of
//! one link and not covered. The four bytes of the digest are the CRC's, least significant first.

use super::Packet;
use crate::crc::TlpCrc;

/// The ECRC of a TLP: `tlp` is prefixes, header and data **without** the digest. TD is to be set
/// in the header already, since the ECRC covers it.
///
/// Anything that is cut short or not a TLP has a CRC too: that of the bytes that are there.
pub fn ecrc(tlp: &[u8]) -> u32 {
    let (mut local, mut header_at) = (0, 0);
    while let Some(first) = tlp.get(header_at).filter(|first| **first >> 5 == 0b100) {
        header_at += 4;
        if first & 0x10 == 0 {
            local = header_at;
        }
    }
    let mut digest = TlpCrc::new();
    digest.update(tlp.get(local..header_at).unwrap_or_default());
    let Some((start, rest)) = tlp.get(header_at..).and_then(|h| h.split_first_chunk::<4>()) else {
        return digest.finish();
    };
    digest.update(&[start[0] | 1, start[1], start[2] | 0x40, start[3]]);
    digest.update(rest);
    digest.finish()
}

impl<T: AsRef<[u8]>> Packet<T> {
    fn digest_at(&self) -> usize {
        self.header_len() + self.payload_len()
    }

    /// The digest (ECRC) as its four bytes make a little-endian number, if there is one.
    pub fn digest(&self) -> Option<u32> {
        let at = self.digest_at();
        let digest = self.as_bytes().get(at..at + 4)?;
        let digest: [u8; 4] = digest.try_into().ok()?;
        self.has_digest().then(|| u32::from_le_bytes(digest))
    }

    /// Whether the digest is the ECRC of what the TLP says; `None` when it has none.
    ///
    /// A receiver that has ECRC checking enabled reports a wrong one as an ECRC error and drops
    /// the TLP (PCIe 5.0 sections 2.7.1 and 6.2.3.2); one that has not, carries it on.
    pub fn digest_is_good(&self) -> Option<bool> {
        let digest = self.digest()?;
        Some(ecrc(&self.as_bytes()[..self.digest_at()]) == digest)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Computes the digest anew over what the TLP now says, if it has one. Whoever changes a
    /// field that the ECRC covers does this.
    pub fn update_digest(&mut self) {
        let at = self.digest_at();
        if !self.has_digest() || self.as_bytes().len() < at + 4 {
            return;
        }
        let crc = ecrc(&self.as_bytes()[..at]);
        self.bytes_mut()[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}
