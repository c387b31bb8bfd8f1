//! The two CRCs of the wire.
//!
//! - [`frame`] is CRC-32C (Castagnoli, RFC 3720 appendix B.4) over a whole frame. Ethernet's own
//!   frame check is the other polynomial, so that what one misses the other sees.
//! - [`tlp`] is CRC-32/ISO-HDLC (the one of Ethernet, zlib and PCIe's link layer) over one TLP,
//!   computed where the TLP enters a proxy and checked where it is taken from the frame.
//!
//! With `std` both use the processor's carry-less multiplication, detected at run time; without,
//! the tables of [`tables`], which are always there and which the tests compare with the
//! fast ones.

/// Table-driven CRCs: what a card's soft core uses for the little that its logic does not do for
/// it. Each has 1 KB of constants, and 4 KB of memory for the tables that take a word at a time.
pub mod tables {
    use core::sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    };
    use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc, Table};

    static FRAME: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISCSI);
    static TLP: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);
    static FRAME_WORDS: Words = Words::empty();
    static TLP_WORDS: Words = Words::empty();

    /// What a register begins with, and what its end is XORed with.
    pub(super) const ONES: u32 = u32::MAX;

    /// CRC-32C of a frame's bytes.
    pub fn frame(bytes: &[u8]) -> u32 {
        FRAME_WORDS.made_of(&FRAME).update(ONES, bytes) ^ ONES
    }

    /// CRC-32/ISO-HDLC of a TLP's bytes.
    pub fn tlp(bytes: &[u8]) -> u32 {
        update_tlp(ONES, bytes) ^ ONES
    }

    /// A register of a TLP's CRC after further bytes.
    pub(super) fn update_tlp(register: u32, bytes: &[u8]) -> u32 {
        TLP_WORDS.made_of(&TLP).update(register, bytes)
    }

    /// What a byte does to a register that 0 to 3 further bytes are shifted into behind it, by how
    /// many those are (slicing-by-4: Kounavis and Berry, 2008). Zeros until they are made: no
    /// number of theirs is zero but each first one.
    struct Words([[AtomicU32; 256]; 4]);

    impl Words {
        const fn empty() -> Self {
            Self([const { [const { AtomicU32::new(0) }; 256] }; 4])
        }

        #[inline]
        fn made_of(&self, crc: &Crc<u32, Table<1>>) -> &Self {
            if self.0[3][255].load(Acquire) == 0 {
                self.make(&crc.table()[0]);
            }
            self
        }

        /// The number that tells that all are there comes last. Who comes meanwhile writes the
        /// same numbers.
        #[cold]
        fn make(&self, table: &[u32; 256]) {
            for (byte, &first) in table.iter().enumerate() {
                let mut register = first;
                for place in &self.0 {
                    place[byte].store(register, Release);
                    register = table[usize::from(register as u8)] ^ register >> 8;
                }
            }
        }

        /// Both CRCs are reflected, so they differ in their tables alone. Three eighths of a card's
        /// instructions are these, so bytes come a word at a time where they lie so: five and a
        /// half instructions a byte instead of ten. The compiler would share what is the same in
        /// the four steps of a word by calls: not of a function that says in which section it is.
        #[cfg_attr(target_os = "none", unsafe(link_section = ".text.crc"))]
        #[inline(never)]
        fn update(&self, register: u32, bytes: &[u8]) -> u32 {
            let of = |behind: usize, byte: u32| self.0[behind][byte as usize & 0xff].load(Relaxed);
            let single =
                |register: u32, byte: &u8| of(0, register ^ u32::from(*byte)) ^ register >> 8;
            let word = |register: u32, word: &u32| {
                let all = register ^ u32::from_le(*word);
                of(3, all) ^ of(2, all >> 8) ^ of(1, all >> 16) ^ of(0, all >> 24)
            };
            let (before, words, behind) = bytemuck::pod_align_to::<u8, u32>(bytes);
            let register = before.iter().fold(register, single);
            let (pairs, last) = words.as_chunks::<2>();
            let register =
                pairs.iter().fold(register, |register, [a, b]| word(word(register, a), b));
            let register = last.iter().fold(register, word);
            behind.iter().fold(register, single)
        }
    }
}

/// CRC-32C of a frame's bytes, without the four of the CRC itself.
pub fn frame(bytes: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    {
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
    }
    #[cfg(not(feature = "std"))]
    tables::frame(bytes)
}

/// CRC-32/ISO-HDLC of a TLP's bytes: prefixes, header, data and digest.
pub fn tlp(bytes: &[u8]) -> u32 {
    let mut crc = TlpCrc::new();
    crc.update(bytes);
    crc.finish()
}

/// Of no bytes: made once, since making one asks what the processor can do.
#[cfg(feature = "std")]
static EMPTY: std::sync::LazyLock<crc32fast::Hasher> =
    std::sync::LazyLock::new(crc32fast::Hasher::new);

/// [`tlp`] for a TLP that lies in pieces, such as a header and data from elsewhere.
#[derive(Clone)]
pub struct TlpCrc {
    #[cfg(feature = "std")]
    state: crc32fast::Hasher,
    #[cfg(not(feature = "std"))]
    state: u32,
}

impl Default for TlpCrc {
    fn default() -> Self {
        Self::new()
    }
}

impl TlpCrc {
    /// Of no bytes yet.
    pub fn new() -> Self {
        Self {
            #[cfg(feature = "std")]
            state: EMPTY.clone(),
            #[cfg(not(feature = "std"))]
            state: tables::ONES,
        }
    }

    /// Takes the next bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        #[cfg(feature = "std")]
        self.state.update(bytes);
        #[cfg(not(feature = "std"))]
        {
            self.state = tables::update_tlp(self.state, bytes);
        }
    }

    /// The CRC of all bytes that were taken in.
    pub fn finish(self) -> u32 {
        #[cfg(feature = "std")]
        {
            self.state.finalize()
        }
        #[cfg(not(feature = "std"))]
        {
            self.state ^ tables::ONES
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_give_the_catalogue_check_values() {
        // The "check" of the CRC catalogue: the CRC of the nine ASCII digits.
        assert_eq!(frame(b"123456789"), 0xe306_9283);
        assert_eq!(tables::frame(b"123456789"), 0xe306_9283);
        assert_eq!(tlp(b"123456789"), 0xcbf4_3926);
        assert_eq!(tables::tlp(b"123456789"), 0xcbf4_3926);
    }

    proptest! {
        #[test]
        fn the_fast_and_the_table_driven_agree(
            bytes in proptest::collection::vec(any::<u8>(), 0..1200),
            start in 0usize..16,
        ) {
            let bytes = &bytes[start.min(bytes.len())..];
            prop_assert_eq!(frame(bytes), tables::frame(bytes));
            prop_assert_eq!(tlp(bytes), tables::tlp(bytes));
        }

        #[test]
        fn pieces_give_what_the_whole_gives(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            cuts in proptest::collection::vec(0usize..600, 0..4),
        ) {
            let mut crc = TlpCrc::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                crc.update(head);
                rest = tail;
            }
            crc.update(rest);
            prop_assert_eq!(crc.finish(), tlp(&bytes));
        }
    }
}
