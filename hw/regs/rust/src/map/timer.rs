//! Time since the reset, and an alarm. There is one timer, and it does not stop while the core
//! sleeps.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bus, ReadOnly, ReadWriteEffect, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x18;

/// Time since the reset, and an alarm. There is one timer, and it does not stop while the core
/// sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Timer<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Timer<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Low half of the nanoseconds since the reset. Reading it latches the high half, so that both
    /// belong together.
    ///
    /// Offset 0x00, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn low(self) -> Register<B, Low, ReadOnly> {
        Register::at(self.bus, self.base)
    }

    /// High half of the nanoseconds, as it was when the low half was read last.
    ///
    /// Offset 0x04, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn high(self) -> Register<B, High, ReadOnly> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// How exact the time is.
    ///
    /// Offset 0x08, read-only; after a reset of the board.
    #[inline(always)]
    pub const fn frequency(self) -> Register<B, Frequency, ReadOnly> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// Low half of the time of the alarm. Writing it disarms the alarm.
    ///
    /// Offset 0x10, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn alarm_low(self) -> Register<B, AlarmLow, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x10)
    }

    /// High half of the time of the alarm. Writing it arms the alarm: interrupt source `timer` is
    /// raised once, when the time is there, or at once when it has passed.
    ///
    /// Offset 0x14, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn alarm_high(self) -> Register<B, AlarmHigh, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x14)
    }
}

/// Low half of the nanoseconds since the reset. Reading it latches the high half, so that both
/// belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Low(u32);

impl Low {
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

    /// Nanoseconds, bits 31 to 0.
    ///
    /// Bits 31:0, r, reading has an effect.
    #[inline(always)]
    pub const fn nanoseconds(self) -> u32 {
        self.0
    }

    /// With another [`nanoseconds`](Self::nanoseconds), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_nanoseconds(self, nanoseconds: u32) -> Self {
        Self(nanoseconds)
    }
}

impl Value for Low {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// High half of the nanoseconds, as it was when the low half was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct High(u32);

impl High {
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

    /// Nanoseconds, bits 63 to 32.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn nanoseconds(self) -> u32 {
        self.0
    }

    /// With another [`nanoseconds`](Self::nanoseconds), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_nanoseconds(self, nanoseconds: u32) -> Self {
        Self(nanoseconds)
    }
}

impl Value for High {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// How exact the time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frequency(u32);

impl Frequency {
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

    /// Frequency in Hz of the clock that counts. The time grows by 10^9 divided by this, rounded so
    /// that no error adds up.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn hertz(self) -> u32 {
        self.0
    }

    /// With another [`hertz`](Self::hertz), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_hertz(self, hertz: u32) -> Self {
        Self(hertz)
    }
}

impl Value for Frequency {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Low half of the time of the alarm. Writing it disarms the alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlarmLow(u32);

impl AlarmLow {
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

    /// Nanoseconds, bits 31 to 0.
    ///
    /// Bits 31:0, rw, writing has an effect.
    #[inline(always)]
    pub const fn nanoseconds(self) -> u32 {
        self.0
    }

    /// With another [`nanoseconds`](Self::nanoseconds).
    #[inline(always)]
    #[must_use]
    pub const fn with_nanoseconds(self, nanoseconds: u32) -> Self {
        Self(nanoseconds)
    }
}

impl Value for AlarmLow {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// High half of the time of the alarm. Writing it arms the alarm: interrupt source `timer` is
/// raised once, when the time is there, or at once when it has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlarmHigh(u32);

impl AlarmHigh {
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

    /// Nanoseconds, bits 63 to 32.
    ///
    /// Bits 31:0, rw, writing has an effect.
    #[inline(always)]
    pub const fn nanoseconds(self) -> u32 {
        self.0
    }

    /// With another [`nanoseconds`](Self::nanoseconds).
    #[inline(always)]
    #[must_use]
    pub const fn with_nanoseconds(self, nanoseconds: u32) -> Self {
        Self(nanoseconds)
    }
}

impl Value for AlarmHigh {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
