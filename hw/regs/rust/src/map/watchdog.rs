//! Resets the core unless it is fed. A debugger that halts the core stops the watchdog, too.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bus, ReadOnly, ReadWrite, ReadWriteEffect, Register, Value, WriteOnly};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x14;

/// Resets the core unless it is fed. A debugger that halts the core stops the watchdog, too.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Watchdog<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// How long it waits for food. Cannot be written once the watchdog is locked.
    ///
    /// Offset 0x00, read and write; after a reset 0x00989680.
    #[inline(always)]
    pub const fn period(self) -> Register<B, Period, ReadWrite> {
        Register::at(self.bus, self.base)
    }

    /// How long before the reset interrupt source `watchdog` is raised, so that firmware can keep
    /// what it was doing. Cannot be written once the watchdog is locked.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn warning(self) -> Register<B, Warning, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// Starts it. Only a reset takes a bit back.
    ///
    /// Offset 0x08, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn control(self) -> Register<B, Control, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// Feeds it: the period begins anew. Anything but the key resets the core at once when the
    /// watchdog counts.
    ///
    /// Offset 0x0c, write-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn feed(self) -> Register<B, Feed, WriteOnly> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// What is left.
    ///
    /// Offset 0x10, read-only; after a reset 0x00989680.
    #[inline(always)]
    pub const fn remaining(self) -> Register<B, Remaining, ReadOnly> {
        Register::at(self.bus, self.base + 0x10)
    }
}

/// How long it waits for food. Cannot be written once the watchdog is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period(u32);

impl Period {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00989680);

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

    /// Microseconds, 1 or more.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn microseconds(self) -> u32 {
        self.0
    }

    /// With another [`microseconds`](Self::microseconds).
    #[inline(always)]
    #[must_use]
    pub const fn with_microseconds(self, microseconds: u32) -> Self {
        Self(microseconds)
    }
}

impl Value for Period {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// How long before the reset interrupt source `watchdog` is raised, so that firmware can keep
/// what it was doing. Cannot be written once the watchdog is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Warning(u32);

impl Warning {
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

    /// Microseconds, less than the period; 0 for no warning.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn microseconds(self) -> u32 {
        self.0
    }

    /// With another [`microseconds`](Self::microseconds).
    #[inline(always)]
    #[must_use]
    pub const fn with_microseconds(self, microseconds: u32) -> Self {
        Self(microseconds)
    }
}

impl Value for Warning {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Starts it. Only a reset takes a bit back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Control(u32);

impl Control {
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

    /// It counts.
    ///
    /// Bit 0, rw, 1 sets.
    #[inline(always)]
    pub const fn enable(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`enable`](Self::enable).
    #[inline(always)]
    #[must_use]
    pub const fn with_enable(self, enable: bool) -> Self {
        Self((self.0 & !0x1) | (enable as u32))
    }

    /// Period and warning stay as they are.
    ///
    /// Bit 1, rw, 1 sets.
    #[inline(always)]
    pub const fn lock(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`lock`](Self::lock).
    #[inline(always)]
    #[must_use]
    pub const fn with_lock(self, lock: bool) -> Self {
        Self((self.0 & !0x2) | ((lock as u32) << 1))
    }
}

impl Value for Control {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Feeds it: the period begins anew. Anything but the key resets the core at once when the
/// watchdog counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Feed(u32);

impl Feed {
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

    /// 0xFEEDD09D.
    ///
    /// Bits 31:0, w, writing has an effect.
    #[inline(always)]
    pub const fn key(self) -> u32 {
        self.0
    }

    /// With another [`key`](Self::key).
    #[inline(always)]
    #[must_use]
    pub const fn with_key(self, key: u32) -> Self {
        Self(key)
    }
}

impl Value for Feed {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remaining(u32);

impl Remaining {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00989680);

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

    /// Microseconds until the reset; the period while it does not count.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn microseconds(self) -> u32 {
        self.0
    }

    /// With another [`microseconds`](Self::microseconds), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_microseconds(self, microseconds: u32) -> Self {
        Self(microseconds)
    }
}

impl Value for Remaining {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
