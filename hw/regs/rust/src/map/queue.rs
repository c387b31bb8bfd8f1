//! One direction of a port: a ring of descriptors in memory, 16 bytes each. Positions are
//! counted modulo 65536; a descriptor's index in the ring is its position modulo the ring's
//! size. Firmware gives the descriptors from the head up to the tail to the hardware, which
//! does them in order.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bits, Bus, ReadOnly, ReadWrite, ReadWriteEffect, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x20;

/// One direction of a port: a ring of descriptors in memory, 16 bytes each. Positions are
/// counted modulo 65536; a descriptor's index in the ring is its position modulo the ring's
/// size. Firmware gives the descriptors from the head up to the tail to the hardware, which
/// does them in order.
#[derive(Clone, Copy, Debug)]
pub struct Queue<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Queue<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Where the ring lies. Written only while the queue does not run.
    ///
    /// Offset 0x00, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn base(self) -> Register<B, Base, ReadWrite> {
        Register::at(self.bus, self.base)
    }

    /// How large the ring is. Written only while the queue does not run.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn size(self) -> Register<B, Size, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// Starts and stops the queue.
    ///
    /// Offset 0x08, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn control(self) -> Register<B, Control, ReadWrite> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// What the queue does.
    ///
    /// Offset 0x0c, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadOnly> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// The doorbell.
    ///
    /// Offset 0x10, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn tail(self) -> Register<B, Tail, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x10)
    }

    /// How far the hardware is. No need to read it in the main loop: each descriptor says when it
    /// is done.
    ///
    /// Offset 0x14, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn head(self) -> Register<B, Head, ReadOnly> {
        Register::at(self.bus, self.base + 0x14)
    }

    /// When the queue raises its interrupt source: after so many descriptors, or so long after the
    /// first of them, whichever is earlier.
    ///
    /// Offset 0x18, read and write; after a reset 0x00000001.
    #[inline(always)]
    pub const fn moderation(self) -> Register<B, Moderation, ReadWrite> {
        Register::at(self.bus, self.base + 0x18)
    }

    /// Why the queue stopped by itself. It has cleared its `running`; firmware sets it up anew.
    ///
    /// Offset 0x1c, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn error(self) -> Register<B, Error, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x1c)
    }
}

/// Where the ring lies. Written only while the queue does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Base(u32);

impl Base {
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

    /// Address of the first descriptor, a multiple of 16; its low four bits are ignored.
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

impl Value for Base {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// How large the ring is. Written only while the queue does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size(u32);

impl Size {
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

    /// Binary logarithm of the number of descriptors, at most `queue_order` of `id.capabilities`.
    ///
    /// Bits 3:0, rw.
    #[inline(always)]
    pub const fn order(self) -> Bits<4> {
        Bits::low_of(self.0)
    }

    /// With another [`order`](Self::order).
    #[inline(always)]
    #[must_use]
    pub const fn with_order(self, order: Bits<4>) -> Self {
        Self((self.0 & !0xf) | order.get())
    }
}

impl Value for Size {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Starts and stops the queue.
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

    /// It runs. When it is cleared the hardware ends the descriptor that it is at, and keeps its
    /// position; when it is set again both positions, head and tail, are set to 0 by the hardware:
    /// nothing is given to it until the next doorbell.
    ///
    /// Bit 0, rw.
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

/// What the queue does.
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

    /// It runs, or has not yet ended its last descriptor after it was stopped.
    ///
    /// Bit 0, r.
    #[inline(always)]
    pub const fn running(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`running`](Self::running), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_running(self, running: bool) -> Self {
        Self((self.0 & !0x1) | (running as u32))
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

/// The doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tail(u32);

impl Tail {
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

    /// Position behind the last descriptor that the hardware may use; never more than the ring's
    /// size beyond the head. All that firmware wrote to memory before is seen by the hardware. 0
    /// again when the queue is enabled.
    ///
    /// Bits 15:0, rw, writing has an effect.
    #[inline(always)]
    pub const fn position(self) -> u16 {
        self.0 as u16
    }

    /// With another [`position`](Self::position).
    #[inline(always)]
    #[must_use]
    pub const fn with_position(self, position: u16) -> Self {
        Self((self.0 & !0xffff) | (position as u32))
    }
}

impl Value for Tail {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// How far the hardware is. No need to read it in the main loop: each descriptor says when it
/// is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head(u32);

impl Head {
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

    /// Position of the first descriptor that is not done.
    ///
    /// Bits 15:0, r.
    #[inline(always)]
    pub const fn position(self) -> u16 {
        self.0 as u16
    }

    /// With another [`position`](Self::position), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_position(self, position: u16) -> Self {
        Self((self.0 & !0xffff) | (position as u32))
    }
}

impl Value for Head {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// When the queue raises its interrupt source: after so many descriptors, or so long after the
/// first of them, whichever is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moderation(u32);

impl Moderation {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000001);

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

    /// Descriptors; 0 as 1.
    ///
    /// Bits 7:0, rw.
    #[inline(always)]
    pub const fn descriptors(self) -> u8 {
        self.0 as u8
    }

    /// With another [`descriptors`](Self::descriptors).
    #[inline(always)]
    #[must_use]
    pub const fn with_descriptors(self, descriptors: u8) -> Self {
        Self((self.0 & !0xff) | (descriptors as u32))
    }

    /// Microseconds; 0 for no delay.
    ///
    /// Bits 31:16, rw.
    #[inline(always)]
    pub const fn microseconds(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// With another [`microseconds`](Self::microseconds).
    #[inline(always)]
    #[must_use]
    pub const fn with_microseconds(self, microseconds: u16) -> Self {
        Self((self.0 & !0xffff0000) | ((microseconds as u32) << 16))
    }
}

impl Value for Moderation {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Why the queue stopped by itself. It has cleared its `running`; firmware sets it up anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Error(u32);

impl Error {
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

    /// A read or write of memory failed.
    ///
    /// Bit 0, rw, 1 clears.
    #[inline(always)]
    pub const fn bus(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`bus`](Self::bus).
    #[inline(always)]
    #[must_use]
    pub const fn with_bus(self, bus: bool) -> Self {
        Self((self.0 & !0x1) | (bus as u32))
    }

    /// A descriptor between head and tail was not the hardware's, or what it says is not possible.
    ///
    /// Bit 1, rw, 1 clears.
    #[inline(always)]
    pub const fn descriptor(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`descriptor`](Self::descriptor).
    #[inline(always)]
    #[must_use]
    pub const fn with_descriptor(self, descriptor: bool) -> Self {
        Self((self.0 & !0x2) | ((descriptor as u32) << 1))
    }

    /// The tail was more than the ring's size beyond the head.
    ///
    /// Bit 2, rw, 1 clears.
    #[inline(always)]
    pub const fn tail(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`tail`](Self::tail).
    #[inline(always)]
    #[must_use]
    pub const fn with_tail(self, tail: bool) -> Self {
        Self((self.0 & !0x4) | ((tail as u32) << 2))
    }
}

impl Value for Error {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
