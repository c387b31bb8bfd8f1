//! The host's memory: one flat region that devices reach by DMA, with an allocator of pages.

use std::collections::BTreeMap;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// One flat region of memory and what of it is free.
pub struct HostMemory {
    base: u64,
    bytes: Box<[u8]>,
    /// Free runs: first byte's offset and length, no two of them adjacent.
    free: BTreeMap<usize, usize>,
}

/// Why there is no such memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No run of free pages is long enough.
    #[error("no {0} contiguous bytes of host memory are free")]
    Full(usize),
    /// The region cannot be.
    #[error("host memory of {size} bytes at {base:#x} is not whole pages below 2^64")]
    Region {
        /// First address.
        base: u64,
        /// Bytes.
        size: usize,
    },
}

impl HostMemory {
    /// Memory of `size` bytes from bus address `base` on, zeroed.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Region`] when either is not a multiple of [`PAGE`], or it does not fit.
    pub fn new(base: u64, size: usize) -> Result<Self, MemoryError> {
        let whole = base.is_multiple_of(PAGE as u64) && size.is_multiple_of(PAGE) && size > 0;
        if !whole || base.checked_add(size as u64).is_none() {
            return Err(MemoryError::Region { base, size });
        }
        let free = BTreeMap::from([(0, size)]);
        Ok(Self { base, bytes: vec![0; size].into_boxed_slice(), free })
    }

    /// First bus address.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Bytes.
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that are not allocated.
    pub fn free_bytes(&self) -> usize {
        self.free.values().sum()
    }

    /// Zeroed pages for at least `bytes` bytes (at least one page): bus address and length.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Full`].
    pub fn allocate(&mut self, bytes: usize) -> Result<(u64, usize), MemoryError> {
        let full = MemoryError::Full(bytes);
        let len = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(full)?;
        let (&at, &run) = self.free.iter().find(|(_, run)| **run >= len).ok_or(full)?;
        self.free.remove(&at);
        if run > len {
            self.free.insert(at + len, run - len);
        }
        self.bytes[at..at + len].fill(0);
        Ok((self.base + at as u64, len))
    }

    /// Takes pages back.
    ///
    /// # Panics
    ///
    /// When they are not what [`HostMemory::allocate`] gave, or were given back before.
    pub fn release(&mut self, address: u64, len: usize) {
        let at = self.offset(address, len).expect("freed memory is in the region");
        assert!(
            at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0,
            "whole pages are freed"
        );
        let (mut start, mut end) = (at, at + len);
        if let Some((&before, &run)) = self.free.range(..=at).next_back() {
            assert!(before + run <= at, "pages at {address:#x} are freed twice");
            if before + run == at {
                start = before;
            }
        }
        if let Some((&after, &run)) = self.free.range(at..).next() {
            assert!(after >= end, "pages at {address:#x} are freed twice");
            if after == end {
                self.free.remove(&after);
                end += run;
            }
        }
        self.free.insert(start, end - start);
    }

    fn offset(&self, address: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        (at.checked_add(len)? <= self.bytes.len()).then_some(at)
    }

    /// The bytes at a bus address, or `None` where there is no memory.
    pub fn get(&self, address: u64, len: usize) -> Option<&[u8]> {
        let at = self.offset(address, len)?;
        Some(&self.bytes[at..at + len])
    }

    /// The bytes at a bus address, to be changed, or `None` where there is no memory.
    pub fn get_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        let at = self.offset(address, len)?;
        Some(&mut self.bytes[at..at + len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_region_is_memory() {
        let mut memory = HostMemory::new(0x1000, 2 * PAGE).unwrap();
        assert!(memory.get(0xfff, 1).is_none());
        assert!(memory.get(0x1000, 2 * PAGE).is_some());
        assert!(memory.get_mut(0x2fff, 2).is_none());
        assert!(memory.get(u64::MAX, 8).is_none());
        assert!(HostMemory::new(u64::MAX - 4095, 2 * PAGE).is_err());
        assert!(HostMemory::new(1, PAGE).is_err());
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_panics() {
        let mut memory = HostMemory::new(0, 4 * PAGE).unwrap();
        let (address, len) = memory.allocate(1).unwrap();
        memory.release(address, len);
        memory.release(address, len);
    }

    proptest! {
        #[test]
        fn pages_are_never_given_twice_and_all_come_back(
            sizes in proptest::collection::vec((1_usize..5 * PAGE, any::<bool>()), 1..60),
        ) {
            let mut memory = HostMemory::new(1 << 32, 64 * PAGE).unwrap();
            let mut held: Vec<(u64, usize)> = Vec::new();
            for (size, free_one) in sizes {
                if let Ok((address, len)) = memory.allocate(size) {
                    prop_assert!(len >= size && len - size < PAGE);
                    for (other, other_len) in &held {
                        let apart = address + len as u64 <= *other
                            || other + *other_len as u64 <= address;
                        prop_assert!(apart);
                    }
                    held.push((address, len));
                }
                if free_one && !held.is_empty() {
                    let (address, len) = held.swap_remove(held.len() / 2);
                    memory.release(address, len);
                }
            }
            for (address, len) in held {
                memory.release(address, len);
            }
            prop_assert_eq!(memory.free.len(), 1);
            prop_assert_eq!(memory.free_bytes(), 64 * PAGE);
        }
    }
}
