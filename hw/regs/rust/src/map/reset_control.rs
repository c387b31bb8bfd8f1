//! Resets of the core and its peripherals: why the last one came, and how to ask for one.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::values;
use crate::{Bus, ReadOnly, ReadWrite, Register, Value, WriteOnly};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x80;
/// How many `scratch` there are.
pub const SCRATCH_COUNT: usize = 16;

/// Resets of the core and its peripherals: why the last one came, and how to ask for one.
#[derive(Clone, Copy, Debug)]
pub struct ResetControl<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> ResetControl<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Why the core was reset last.
    ///
    /// Offset 0x00, read-only; after a reset of the board.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadOnly> {
        Register::at(self.bus, self.base)
    }

    /// Asks for a reset. It comes within a microsecond; what is written with another key is
    /// ignored.
    ///
    /// Offset 0x04, write-only; after a reset 0x00000003.
    #[inline(always)]
    pub const fn request(self) -> Register<B, Request, WriteOnly> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// Words that every reset but that of power keeps, for what firmware or boot loader tell the
    /// next ones. After power came on they are 0.
    ///
    /// Offset 0x40, read and write; after a reset 0x00000000.
    ///
    /// None if `index` is not below [`SCRATCH_COUNT`].
    #[inline(always)]
    pub const fn scratch(self, index: usize) -> Option<Register<B, Scratch, ReadWrite>> {
        if index < SCRATCH_COUNT {
            Some(Register::at(self.bus, self.base + 0x40 + index as u32 * 0x4))
        } else {
            None
        }
    }
}

/// Why the core was reset last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u32);

impl Status {
    /// What it holds after a reset. Bits of the board's are 0 here.
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

    /// The cause.
    ///
    /// Bits 2:0, r.
    #[inline(always)]
    pub const fn cause(self) -> values::ResetCause {
        values::ResetCause::from_bits(self.0)
    }

    /// With another [`cause`](Self::cause), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_cause(self, cause: values::ResetCause) -> Self {
        Self((self.0 & !0x7) | cause.bits())
    }

    /// Resets since power came on; stays at 255.
    ///
    /// Bits 15:8, r.
    #[inline(always)]
    pub const fn count(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u8) -> Self {
        Self((self.0 & !0xff00) | ((count as u32) << 8))
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

/// Asks for a reset. It comes within a microsecond; what is written with another key is
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request(u32);

impl Request {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000003);

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

    /// What the cause will be: software or panic. Others are ignored.
    ///
    /// Bits 2:0, w.
    #[inline(always)]
    pub const fn cause(self) -> values::ResetCause {
        values::ResetCause::from_bits(self.0)
    }

    /// With another [`cause`](Self::cause).
    #[inline(always)]
    #[must_use]
    pub const fn with_cause(self, cause: values::ResetCause) -> Self {
        Self((self.0 & !0x7) | cause.bits())
    }

    /// 0xD0FF.
    ///
    /// Bits 31:16, w.
    #[inline(always)]
    pub const fn key(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// With another [`key`](Self::key).
    #[inline(always)]
    #[must_use]
    pub const fn with_key(self, key: u16) -> Self {
        Self((self.0 & !0xffff0000) | ((key as u32) << 16))
    }
}

impl Value for Request {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Words that every reset but that of power keeps, for what firmware or boot loader tell the
/// next ones. After power came on they are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scratch(u32);

impl Scratch {
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

    /// The word.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// With another [`word`](Self::word).
    #[inline(always)]
    #[must_use]
    pub const fn with_word(self, word: u32) -> Self {
        Self(word)
    }
}

impl Value for Scratch {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
