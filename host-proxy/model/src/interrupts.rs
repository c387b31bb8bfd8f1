//! Message-signalled interrupts: which vectors are given out and which have fired.
//!
//! A vector is a pair of destination and vector number, as an x86 local APIC decodes them from
//! address bits 19:12 and data bits 7:0 of the memory write (Intel SDM volume 3, section
//! "Message Signalled Interrupts"). Nothing else of an APIC is modelled: fixed delivery, edge.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Addresses at which a memory write is an interrupt.
pub const MSI_RANGE: RangeInclusive<u64> = 0xfee0_0000..=0xfeef_ffff;

/// Vector numbers below this one are the processor's own.
const FIRST_VECTOR: u8 = 0x20;

/// The most vectors that one MSI capability can have (PCIe 5.0 section 7.7.1).
const MAX_BLOCK: u16 = 32;

/// An interrupt vector of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vector(u16);

impl Vector {
    /// The address that a device writes to.
    pub const fn address(self) -> u64 {
        *MSI_RANGE.start() | (self.0 as u64 >> 8) << 12
    }

    /// The data that it writes.
    pub const fn data(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// Which vector a write means; bits that an APIC ignores are ignored.
    pub const fn from_write(address: u64, data: u32) -> Self {
        Self(((address >> 12 & 0xff) as u16) << 8 | data as u16 & 0xff)
    }

    /// The vector `n` places further in a block.
    #[must_use]
    pub const fn nth(self, n: u16) -> Self {
        Self(self.0 + n)
    }
}

/// The vectors in use and those that have fired.
#[derive(Default)]
pub struct Interrupts {
    used: BTreeSet<Vector>,
    pending: BTreeSet<Vector>,
    spurious: u64,
    count: u64,
}

impl Interrupts {
    /// A block of `count` vectors (1 to 32), aligned to the next power of two as multiple-message
    /// MSI needs it; the first of them. `None` when there is no such block.
    pub fn allocate(&mut self, count: u16) -> Option<Vector> {
        if count == 0 || count > MAX_BLOCK {
            return None;
        }
        let step = count.next_power_of_two();
        let starts = (0..=u16::MAX / step).map(|n| Vector(n * step));
        let block = starts
            .filter(|start| start.0 & 0xff >= FIRST_VECTOR.into())
            .find(|start| (0..count).all(|n| !self.used.contains(&start.nth(n))))?;
        self.used.extend((0..count).map(|n| block.nth(n)));
        Some(block)
    }

    /// Takes vectors back; what they had pending is forgotten.
    pub fn release(&mut self, first: Vector, count: u16) {
        for vector in (0..count).map(|n| first.nth(n)) {
            self.used.remove(&vector);
            self.pending.remove(&vector);
        }
    }

    /// A device signalled. A vector that nobody has is counted and forgotten.
    pub(crate) fn signal(&mut self, vector: Vector) {
        if self.used.contains(&vector) {
            self.count += 1;
            self.pending.insert(vector);
        } else {
            self.spurious += 1;
            tracing::debug!(?vector, "interrupt that nobody waits for");
        }
    }

    /// Whether a vector fired since the last time that this was asked.
    pub fn take(&mut self, vector: Vector) -> bool {
        self.pending.remove(&vector)
    }

    /// Whether a vector fired and was not taken yet.
    pub fn is_pending(&self, vector: Vector) -> bool {
        self.pending.contains(&vector)
    }

    /// Whether any vector fired and was not taken yet.
    pub fn any_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Interrupts on vectors in use, and on others.
    pub const fn counts(&self) -> (u64, u64) {
        (self.count, self.spurious)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_what_a_device_writes() {
        let mut interrupts = Interrupts::default();
        let block = interrupts.allocate(5).unwrap();
        assert_eq!(block.data() % 8, 0, "a device changes the low bits of the data");
        let third = block.nth(2);
        assert_eq!(Vector::from_write(third.address(), third.data()), third);
        interrupts.signal(third);
        assert!(!interrupts.take(block));
        assert!(interrupts.take(third));
        assert!(!interrupts.take(third));
    }

    #[test]
    fn vectors_run_out_and_come_back() {
        let mut interrupts = Interrupts::default();
        let mut blocks = Vec::new();
        while let Some(block) = interrupts.allocate(32) {
            assert!(block.data() >= 0x20 && MSI_RANGE.contains(&block.address()));
            blocks.push(block);
        }
        assert_eq!(blocks.len(), 256 * 7);
        interrupts.signal(blocks[9]);
        interrupts.release(blocks[9], 32);
        assert_eq!(interrupts.allocate(3), Some(blocks[9]));
        assert!(!interrupts.take(blocks[9]), "an interrupt of before is not the next owner's");
    }

    #[test]
    fn what_nobody_has_is_spurious() {
        let mut interrupts = Interrupts::default();
        interrupts.signal(Vector::from_write(0xfee0_1000, 0x41));
        assert_eq!(interrupts.counts(), (0, 1));
    }
}
