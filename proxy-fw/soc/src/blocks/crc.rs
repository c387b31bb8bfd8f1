//! The CRC engine (`hw/regs/card.md`, "crc"): frames and TLPs where they lie, while tables would
//! take the core several instructions a byte.

use card_regs::Bus;
use card_regs::crc::{Crc as Block, Seed, Source, Start};
use card_regs::values::CrcAlgorithm;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use tlp_codec::crc::Algorithm;
pub use tlp_codec::crc::Engine;
#[cfg(feature = "crc-engine")]
pub use tlp_codec::crc::use_engine;

/// Bytes of the longest range (`crc.start`).
const LONGEST: usize = u16::MAX as usize;

/// How often the engine is asked whether it is done: no range takes it so many cycles.
const POLLS: u32 = 100_000;

/// What of the memory the engine reaches.
pub trait Reach {
    /// Where bytes are for the engine. What the core wrote into them is in memory by then, where
    /// the core has a cache that the engine does not see, as with
    /// [`Buffers::lend`](super::Buffers::lend). `None`: it does not reach them.
    fn lend(&self, bytes: &[u8]) -> Option<u32>;
}

/// Memory that the core does not cache, and which is at the same addresses for core and engine.
#[derive(Clone, Copy, Debug)]
pub struct Uncached {
    start: u32,
    length: u32,
}

impl Uncached {
    /// `length` bytes from `start` on.
    pub const fn new(start: u32, length: u32) -> Self {
        Self { start, length }
    }

    /// Where `length` bytes from an address on are for the engine.
    fn find(self, address: usize, length: usize) -> Option<u32> {
        let address = u32::try_from(address).ok()?;
        let before = address.checked_sub(self.start)?;
        let behind = (self.length as usize).checked_sub(before as usize)?;
        (length <= behind).then_some(address)
    }
}

impl Reach for Uncached {
    fn lend(&self, bytes: &[u8]) -> Option<u32> {
        // Exposed, since the engine reads it by its number.
        self.find(bytes.as_ptr().expose_provenance(), bytes.len())
    }
}

/// The engine. It waits for each range, so that one caller has it at a time: the loop.
#[derive(Debug)]
pub struct CrcEngine<B, R> {
    block: Block<B>,
    reach: R,
    failures: AtomicU32,
}

impl<B: Bus + Copy, R: Reach> CrcEngine<B, R> {
    /// The engine of this block, for what it reaches of the memory.
    pub const fn new(block: Block<B>, reach: R) -> Self {
        Self { block, reach, failures: AtomicU32::new(0) }
    }

    /// Ranges that it was given, and whose CRC it did not say.
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The CRC of bytes behind others whose CRC is `before`.
    fn compute(&self, algorithm: CrcAlgorithm, before: u32, bytes: &[u8]) -> Option<u32> {
        let mut from = self.reach.lend(bytes)?;
        // All of the range is written before the engine begins.
        fence(Ordering::Release);
        let mut crc = Some(before);
        for piece in bytes.chunks(LONGEST) {
            let length = piece.len() as u16;
            crc = crc.and_then(|before| self.range(algorithm, before, from, length));
            from = from.wrapping_add(length.into());
        }
        // What is written there from here on comes behind the engine's last read.
        fence(Ordering::Acquire);
        if crc.is_none() {
            // One hart, and no handler asks for CRCs: nobody comes between.
            self.failures.store(self.failures().wrapping_add(1), Ordering::Relaxed);
        }
        crc
    }

    /// The CRC of one range.
    fn range(&self, algorithm: CrcAlgorithm, before: u32, from: u32, length: u16) -> Option<u32> {
        let Self { block, .. } = self;
        if block.status().read().busy() {
            // With a range that was given up.
            return None;
        }
        block.source().write(Source::RESET.with_address(from));
        let start = Start::RESET.with_length(length).with_algorithm(algorithm);
        // The CRC of nothing is 0: what continues it is a beginning.
        let continued = before != 0;
        if continued {
            block.seed().write(Seed::RESET.with_value(before));
        }
        block.start().write(start.with_continued(continued));
        let mut statuses = (0..POLLS).map(|_| block.status().read());
        let status = statuses.find(|status| !status.busy())?;
        (!status.error()).then(|| block.result().read().value())
    }
}

impl<B: Bus + Copy + Sync, R: Reach + Sync> Engine for CrcEngine<B, R> {
    fn crc(&self, algorithm: Algorithm, before: u32, bytes: &[u8]) -> Option<u32> {
        let algorithm = match algorithm {
            Algorithm::Frame => CrcAlgorithm::Crc32c,
            Algorithm::Tlp => CrcAlgorithm::Crc32,
        };
        self.compute(algorithm, before, bytes)
    }
}

#[cfg(test)]
mod tests;
