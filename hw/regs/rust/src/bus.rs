//! What carries out the accesses.

use core::ptr::{read_volatile, with_exposed_provenance_mut, write_volatile};

/// Carries out accesses to the registers of one map, or to words of memory that hardware shares.
///
/// Every access is of 32 bits, is carried out once, and in the order of the calls. Offsets are in
/// bytes from the map's beginning and multiples of 4.
pub trait Bus {
    /// Reads the word at `offset`.
    fn read32(&self, offset: u32) -> u32;

    /// Writes the word at `offset`.
    fn write32(&self, offset: u32, value: u32);
}

impl<T: Bus + ?Sized> Bus for &T {
    fn read32(&self, offset: u32) -> u32 {
        (**self).read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        (**self).write32(offset, value);
    }
}

/// `SIZE` bytes of the address space, accessed as they are: a card's registers (`Mmio<{
/// card_regs::card::SIZE }>`), or a ring of descriptors.
///
/// Accesses are volatile, so they keep their order among each other. Ordinary ones, such as those
/// to a TLP in its buffer, need a fence (`core::sync::atomic::fence`) before a descriptor is given
/// to the hardware, and one after it was found to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmio<const SIZE: u32> {
    /// An address and no pointer, so that interrupt handlers and the main loop can share it.
    base: usize,
}

impl<const SIZE: u32> Mmio<SIZE> {
    /// What lies at the address `base`.
    ///
    /// # Safety
    ///
    /// For as long as the value or a copy of it lives:
    ///
    /// - the `SIZE` bytes from `base` on are registers or memory that can be read and written in
    ///   words, and no Rust reference exists to any of them;
    /// - what the hardware does when they are written, to memory above all, breaks no rule of
    ///   Rust's: who writes a queue's descriptors and doorbell lends the memory that they name.
    ///
    /// # Panics
    ///
    /// If `base` is not a multiple of 4.
    pub const unsafe fn new(base: usize) -> Self {
        assert!(base.is_multiple_of(4), "registers lie at multiples of 4");
        Self { base }
    }

    /// The address of a word.
    ///
    /// # Panics
    ///
    /// If it does not lie in the range. For an offset that is known when compiling nothing of
    /// this is left.
    #[inline(always)]
    fn word(self, offset: u32) -> *mut u32 {
        assert!(offset.is_multiple_of(4) && offset < SIZE, "no register is there");
        with_exposed_provenance_mut(self.base + offset as usize)
    }
}

impl<const SIZE: u32> Bus for Mmio<SIZE> {
    #[inline(always)]
    fn read32(&self, offset: u32) -> u32 {
        // SAFETY: `word` gives an aligned address in the range, which whoever called `new`
        // promised to be readable.
        unsafe { read_volatile(self.word(offset)) }
    }

    #[inline(always)]
    fn write32(&self, offset: u32, value: u32) {
        // SAFETY: `word` gives an aligned address in the range, which whoever called `new`
        // promised to be writable, and no reference is to it.
        unsafe { write_volatile(self.word(offset), value) }
    }
}
