//! The two CRCs of the wire.
//!
//! - [`frame`] is CRC-32C (Castagnoli, RFC 3720 appendix B.4) over a whole frame. Ethernet's own
//!   frame check is the other polynomial, so that what one misses the other sees.
//! - [`tlp`] is CRC-32/ISO-HDLC (the one of Ethernet, zlib and PCIe's link layer) over one TLP,
//!   computed where the TLP enters a proxy and checked where it is taken from the frame.
//!
//! With `std` both use the processor's carry-less multiplication, detected at run time. Without,
//! they use the tables of [`tables`], which are always there and which the tests compare with the
//! fast ones; and in front of them, where a board has one and gives it (`use_engine`), an [`Engine`].

/// Table-driven CRCs: what a card's soft core uses for the little that its logic does not do for
/// it. Each has 1 KB of constants, and 4 KB of memory for the tables that take a word at a time.
pub mod tables {
    use core::sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    };
    use crc::{Algorithm, CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc, NoTable};

    // What a register that begins with zeros and ends as it is makes of bytes.
    static FRAME: Algorithm<u32> = Algorithm { init: 0, xorout: 0, ..CRC_32_ISCSI };
    static TLP: Algorithm<u32> = Algorithm { init: 0, xorout: 0, ..CRC_32_ISO_HDLC };
    static FRAME_WORDS: Words = Words::empty();
    static TLP_WORDS: Words = Words::empty();

    /// What a register begins with, and what its end is XORed with.
    pub(super) const ONES: u32 = u32::MAX;

    /// CRC-32C of a frame's bytes.
    pub fn frame(bytes: &[u8]) -> u32 {
        update_frame(ONES, bytes) ^ ONES
    }

    /// CRC-32/ISO-HDLC of a TLP's bytes.
    pub fn tlp(bytes: &[u8]) -> u32 {
        update_tlp(ONES, bytes) ^ ONES
    }

    /// A register of a frame's CRC after further bytes.
    pub(super) fn update_frame(register: u32, bytes: &[u8]) -> u32 {
        FRAME_WORDS.made_of(&FRAME).update(register, bytes)
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
        fn made_of(&self, algorithm: &'static Algorithm<u32>) -> &Self {
            if self.0[3][255].load(Acquire) == 0 {
                self.make(algorithm);
            }
            self
        }

        /// Made when they are wanted first, of nothing: a card has less room for constants than for
        /// variables. The number that tells that all are there comes last. Who comes meanwhile
        /// writes the same numbers.
        #[cold]
        fn make(&self, algorithm: &'static Algorithm<u32>) {
            let crc = Crc::<u32, NoTable>::new(algorithm);
            let [single, further @ ..] = &self.0;
            for (byte, place) in (0..=u8::MAX).zip(single) {
                place.store(crc.checksum(&[byte]), Relaxed);
            }
            for (byte, first) in single.iter().enumerate() {
                let mut register = first.load(Relaxed);
                for places in further {
                    let next = single[usize::from(register as u8)].load(Relaxed);
                    register = next ^ register >> 8;
                    places[byte].store(register, Release);
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

/// Which of the two CRCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// That of [`frame`].
    Frame,
    /// That of [`tlp`].
    Tlp,
}

/// Hardware that computes CRCs of what lies in memory.
pub trait Engine: Sync {
    /// The CRC of `bytes` behind others whose CRC is `before`, which is 0 where there are none.
    /// `None`: it did not, for whatever reason, and the tables do.
    fn crc(&self, algorithm: Algorithm, before: u32, bytes: &[u8]) -> Option<u32>;
}

/// What computes CRCs where there is no `std`.
#[cfg_attr(all(feature = "std", not(test)), allow(dead_code, reason = "std has faster ones"))]
mod chosen {
    use super::{Algorithm, tables};

    /// Bytes from which on an engine is asked. It is seven accesses to registers, each of some
    /// cycles, and what looks after them; tables take five and a half instructions a byte.
    pub(super) const WORTH: usize = 32;

    /// The board's engine, once it gave one.
    #[cfg(any(test, feature = "engine"))]
    pub(super) static ENGINE: once_cell::race::OnceRef<'static, &'static dyn super::Engine> =
        once_cell::race::OnceRef::new();

    /// A register of a CRC after further bytes.
    pub(super) fn update(algorithm: Algorithm, register: u32, bytes: &[u8]) -> u32 {
        if bytes.len() >= WORTH
            && let Some(crc) = by_engine(algorithm, register ^ tables::ONES, bytes)
        {
            return crc ^ tables::ONES;
        }
        match algorithm {
            Algorithm::Frame => tables::update_frame(register, bytes),
            Algorithm::Tlp => tables::update_tlp(register, bytes),
        }
    }

    #[cfg(any(test, feature = "engine"))]
    fn by_engine(algorithm: Algorithm, before: u32, bytes: &[u8]) -> Option<u32> {
        ENGINE.get()?.crc(algorithm, before, bytes)
    }

    #[cfg(not(any(test, feature = "engine")))]
    fn by_engine(_: Algorithm, _: u32, _: &[u8]) -> Option<u32> {
        None
    }
}

/// Has an engine compute CRCs from now on, of all ranges that are long enough to be worth it. To
/// be called once, at the start. Whether it will be asked: not where there is one already, nor with
/// `std`, where the processor is faster than any.
#[cfg(feature = "engine")]
pub fn use_engine(engine: &'static &'static dyn Engine) -> bool {
    !cfg!(feature = "std") && chosen::ENGINE.set(engine).is_ok()
}

/// CRC-32C of a frame's bytes, without the four of the CRC itself.
pub fn frame(bytes: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    {
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
    }
    #[cfg(not(feature = "std"))]
    {
        chosen::update(Algorithm::Frame, tables::ONES, bytes) ^ tables::ONES
    }
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
            self.state = chosen::update(Algorithm::Tlp, self.state, bytes);
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
    use core::cell::{Cell, RefCell};
    use proptest::prelude::*;
    use tables::ONES;

    std::thread_local! {
        /// What the engine was asked: algorithm, CRC of what is before, and bytes.
        static ASKED: RefCell<Vec<(Algorithm, u32, usize)>> = RefCell::default();
        /// It fails.
        static FAILS: Cell<bool> = const { Cell::new(false) };
    }

    /// An engine whose results nobody else would have.
    struct Strange;

    impl Engine for Strange {
        fn crc(&self, algorithm: Algorithm, before: u32, bytes: &[u8]) -> Option<u32> {
            ASKED.with_borrow_mut(|asked| asked.push((algorithm, before, bytes.len())));
            (!FAILS.get()).then_some(!before)
        }
    }

    /// The CRC of a range behind others, as it is without `std`.
    fn chosen(algorithm: Algorithm, before: u32, bytes: &[u8]) -> u32 {
        static STRANGE: &dyn Engine = &Strange;
        chosen::ENGINE.get_or_init(|| &STRANGE);
        chosen::update(algorithm, before ^ ONES, bytes) ^ ONES
    }

    #[test]
    fn an_engine_is_asked_for_what_is_long_and_tables_do_the_rest() {
        use Algorithm::{Frame, Tlp};
        let bytes: Vec<u8> = (0..=255).collect();
        let long = &bytes[..chosen::WORTH];
        let short = &bytes[1..chosen::WORTH];
        for (algorithm, of) in [(Frame, tables::frame as fn(&[u8]) -> u32), (Tlp, tables::tlp)] {
            ASKED.take();
            assert_eq!(chosen(algorithm, 0, short), of(short));
            assert_eq!(ASKED.take(), []);
            for before in [0, 0x1234_5678] {
                assert_eq!(chosen(algorithm, before, long), !before);
                assert_eq!(ASKED.take(), [(algorithm, before, long.len())]);
            }
            // One that fails is asked again the next time, and nobody notices.
            FAILS.set(true);
            let (first, second) = bytes.split_at(100);
            let both = chosen(algorithm, chosen(algorithm, 0, first), second);
            assert_eq!(both, of(&bytes));
            assert_eq!(ASKED.take(), [(algorithm, 0, 100), (algorithm, of(first), 156)]);
            FAILS.set(false);
        }
    }

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
