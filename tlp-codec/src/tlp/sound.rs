//! The rules of [`Repr::parse`], for who wants to know only whether a TLP keeps them.

use super::{Packet, Repr, RuleError};

impl<'a> Packet<&'a [u8]> {
    /// A view of a TLP that keeps every rule that [`Repr::parse`] checks. Most TLPs of a stream
    /// are seen to do so by a few comparisons.
    ///
    /// # Errors
    ///
    /// As [`Repr::from_bytes`]: the first rule that is broken.
    #[inline]
    pub fn new_sound(bytes: &'a [u8]) -> Result<Self, RuleError> {
        if is_plainly_sound(bytes) {
            return Ok(Self { bytes, header_at: 0 });
        }
        let packet = Self::new_checked(bytes)?;
        Repr::parse(&packet)?;
        Ok(packet)
    }
}

/// Whether these bytes are a memory request without prefixes and hints, for whole doublewords, or a
/// completion with data, and keep all rules. `false` says nothing.
#[inline]
fn is_plainly_sound(bytes: &[u8]) -> bool {
    let Some(head) = bytes.first_chunk::<12>() else { return false };
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let first = word(0);
    let bit = |at: u32| first >> at & 1;
    // Fmt, TD and Length (PCIe 5.0 section 2.2.1); a length of 0 means 1024.
    let (wide, has_data, has_digest) = (bit(29) as usize, bit(30) as usize, bit(15) as usize);
    let length = ((first.wrapping_sub(1) & 0x3ff) + 1) as usize;
    let data = 4 * length * has_data;
    if bytes.len() != 12 + 4 * wide + data + 4 * has_digest {
        return false;
    }
    match first >> 24 & 0x9f {
        // Memory reads and writes; with TH the byte enables are something else.
        0b0_0000 if bit(16) == 0 => {
            let whole = if length == 1 { head[7] == 0x0f } else { head[7] == 0xff };
            let Some(low) = bytes.get(10 + 4 * wide..).and_then(<[u8]>::first_chunk) else {
                return false;
            };
            let page = usize::from(u16::from_be_bytes(*low) & 0xffc);
            whole && page + 4 * length <= 4096
        }
        // Completions with data.
        0b0_1010 if wide == 0 && has_data == 1 => {
            let byte_count = ((word(4).wrapping_sub(1) & 0xfff) + 1) as usize;
            let reach = usize::from(head[11] & 3) + byte_count;
            data <= reach.next_multiple_of(4)
        }
        _ => false,
    }
}
