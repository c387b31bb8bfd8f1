//! Up to 32 pins, a bit for each. What each is for is the board's.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bus, ReadOnly, ReadWrite, ReadWriteEffect, Register, Value, WriteOnly};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x20;

/// Up to 32 pins, a bit for each. What each is for is the board's.
#[derive(Clone, Copy, Debug)]
pub struct Gpio<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Gpio<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// The pins' levels, synchronised to the clock.
    ///
    /// Offset 0x00, read-only; after a reset of the board.
    #[inline(always)]
    pub const fn input(self) -> Register<B, Input, ReadOnly> {
        Register::at(self.bus, self.base)
    }

    /// Levels of the pins that are outputs.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn output(self) -> Register<B, Output, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// Sets bits of `output`.
    ///
    /// Offset 0x08, write-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn output_set(self) -> Register<B, OutputSet, WriteOnly> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// Clears bits of `output`.
    ///
    /// Offset 0x0c, write-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn output_clear(self) -> Register<B, OutputClear, WriteOnly> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// Which pins are outputs.
    ///
    /// Offset 0x10, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn direction(self) -> Register<B, Direction, ReadWrite> {
        Register::at(self.bus, self.base + 0x10)
    }

    /// Pins whose rising raises their event.
    ///
    /// Offset 0x14, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn rising(self) -> Register<B, Rising, ReadWrite> {
        Register::at(self.bus, self.base + 0x14)
    }

    /// Pins whose falling raises their event.
    ///
    /// Offset 0x18, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn falling(self) -> Register<B, Falling, ReadWrite> {
        Register::at(self.bus, self.base + 0x18)
    }

    /// Pins that changed as `rising` and `falling` ask. Interrupt source `gpio` is raised with
    /// each.
    ///
    /// Offset 0x1c, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn event(self) -> Register<B, Event, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x1c)
    }
}

/// The pins' levels, synchronised to the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Input(u32);

impl Input {
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

    /// A set bit for a high pin.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for Input {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Levels of the pins that are outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Output(u32);

impl Output {
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

    /// A set bit for a high pin.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for Output {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Sets bits of `output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputSet(u32);

impl OutputSet {
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

    /// A set bit for a pin that becomes high; the others stay.
    ///
    /// Bits 31:0, w, writing has an effect.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for OutputSet {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Clears bits of `output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputClear(u32);

impl OutputClear {
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

    /// A set bit for a pin that becomes low; the others stay.
    ///
    /// Bits 31:0, w, writing has an effect.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for OutputClear {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Which pins are outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direction(u32);

impl Direction {
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

    /// A set bit for an output.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for Direction {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Pins whose rising raises their event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rising(u32);

impl Rising {
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

    /// A set bit for a pin that is watched.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for Rising {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Pins whose falling raises their event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Falling(u32);

impl Falling {
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

    /// A set bit for a pin that is watched.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for Falling {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Pins that changed as `rising` and `falling` ask. Interrupt source `gpio` is raised with
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(u32);

impl Event {
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

    /// Write 1 to clear.
    ///
    /// Bits 31:0, rw, 1 clears.
    #[inline(always)]
    pub const fn pins(self) -> u32 {
        self.0
    }

    /// With another [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub const fn with_pins(self, pins: u32) -> Self {
        Self(pins)
    }
}

impl Value for Event {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
