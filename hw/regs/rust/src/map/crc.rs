//! CRC engine: reads a range of memory and gives its CRC, 4 bytes or more each cycle. There
//! only if `id.capabilities` has it.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::values;
use crate::{Bus, ReadOnly, ReadWrite, Register, Value, WriteOnly};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x14;

/// CRC engine: reads a range of memory and gives its CRC, 4 bytes or more each cycle. There
/// only if `id.capabilities` has it.
#[derive(Clone, Copy, Debug)]
pub struct Crc<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Crc<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Where the range begins.
    ///
    /// Offset 0x00, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn source(self) -> Register<B, Source, ReadWrite> {
        Register::at(self.bus, self.base)
    }

    /// CRC of what lies before the range, where it continues something.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn seed(self) -> Register<B, Seed, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// Begins. Written only while the engine is not busy.
    ///
    /// Offset 0x08, write-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn start(self) -> Register<B, Start, WriteOnly> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// What the engine does.
    ///
    /// Offset 0x0c, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadOnly> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// The CRC of the last range.
    ///
    /// Offset 0x10, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn result(self) -> Register<B, Result, ReadOnly> {
        Register::at(self.bus, self.base + 0x10)
    }
}

/// Where the range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(u32);

impl Source {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000000);

    /// From all bits of the register.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All bits of the register.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Address, any.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn address(self) -> u32 {
        self.0
    }

    /// With another [`address`](Self::address).
    #[inline(always)]
    #[must_use]
    pub const fn with_address(self, address: u32) -> Self {
        Self(address)
    }
}

impl Value for Source {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// CRC of what lies before the range, where it continues something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u32);

impl Seed {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000000);

    /// From all bits of the register.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All bits of the register.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// That CRC as `result` gave it.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// With another [`value`](Self::value).
    #[inline(always)]
    #[must_use]
    pub const fn with_value(self, value: u32) -> Self {
        Self(value)
    }
}

impl Value for Seed {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Begins. Written only while the engine is not busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Start(u32);

impl Start {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000000);

    /// From all bits of the register.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All bits of the register.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Bytes, 0 to 65535.
    ///
    /// Bits 15:0, w.
    #[inline(always)]
    pub const fn length(self) -> u16 {
        self.0 as u16
    }

    /// With another [`length`](Self::length).
    #[inline(always)]
    #[must_use]
    pub const fn with_length(self, length: u16) -> Self {
        Self((self.0 & !0xffff) | (length as u32))
    }

    /// Which CRC.
    ///
    /// Bits 17:16, w.
    #[inline(always)]
    pub const fn algorithm(self) -> values::CrcAlgorithm {
        values::CrcAlgorithm::from_bits(self.0 >> 16)
    }

    /// With another [`algorithm`](Self::algorithm).
    #[inline(always)]
    #[must_use]
    pub const fn with_algorithm(self, algorithm: values::CrcAlgorithm) -> Self {
        Self((self.0 & !0x30000) | (algorithm.bits() << 16))
    }

    /// The range continues what `seed` is the CRC of; else it is the beginning.
    ///
    /// Bit 24, w.
    #[inline(always)]
    pub const fn continued(self) -> bool {
        self.0 & 0x1000000 != 0
    }

    /// With another [`continued`](Self::continued).
    #[inline(always)]
    #[must_use]
    pub const fn with_continued(self, continued: bool) -> Self {
        Self((self.0 & !0x1000000) | ((continued as u32) << 24))
    }
}

impl Value for Start {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// What the engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u32);

impl Status {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000000);

    /// From all bits of the register.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All bits of the register.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// It reads. When this is clear the result is there.
    ///
    /// Bit 0, r.
    #[inline(always)]
    pub const fn busy(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`busy`](Self::busy), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_busy(self, busy: bool) -> Self {
        Self((self.0 & !0x1) | (busy as u32))
    }

    /// A read of memory failed: the result means nothing.
    ///
    /// Bit 1, r.
    #[inline(always)]
    pub const fn error(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`error`](Self::error), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_error(self, error: bool) -> Self {
        Self((self.0 & !0x2) | ((error as u32) << 1))
    }
}

impl Value for Status {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// The CRC of the last range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Result(u32);

impl Result {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000000);

    /// From all bits of the register.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All bits of the register.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The CRC: of the nine letters 123456789, CRC-32C is 0xe3069283 and CRC-32 0xcbf43926.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// With another [`value`](Self::value), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_value(self, value: u32) -> Self {
        Self(value)
    }
}

impl Value for Result {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
