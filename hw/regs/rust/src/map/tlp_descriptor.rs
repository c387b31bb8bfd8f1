//! A TLP between firmware and the PCIe block, or an event of a slot. A TLP lies in memory as
//! PCIe sends it: prefixes, header, data and digest, byte 0 first; no sequence number and no
//! link CRC.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::values;
use crate::{Bits, Bus, ReadWrite, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x10;

/// A TLP between firmware and the PCIe block, or an event of a slot. A TLP lies in memory as
/// PCIe sends it: prefixes, header, data and digest, byte 0 first; no sequence number and no
/// link CRC.
#[derive(Clone, Copy, Debug)]
pub struct TlpDescriptor<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> TlpDescriptor<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Where the TLP lies.
    ///
    /// Offset 0x00, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn buffer(self) -> Register<B, Buffer, ReadWrite> {
        Register::at(self.bus, self.base)
    }

    /// How long it is.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn length(self) -> Register<B, Length, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// What it is, and whose. Firmware writes this word last; the hardware, too.
    ///
    /// Offset 0x08, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadWrite> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// When it was.
    ///
    /// Offset 0x0c, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn stamp(self) -> Register<B, Stamp, ReadWrite> {
        Register::at(self.bus, self.base + 0xc)
    }
}

/// Where the TLP lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer(u32);

impl Buffer {
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

    /// Address of its first byte, a multiple of 4.
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

impl Value for Buffer {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// How long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Length(u32);

impl Length {
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

    /// Bytes of the TLP. Receive: written by the hardware.
    ///
    /// Bits 15:0, rw.
    #[inline(always)]
    pub const fn bytes(self) -> u16 {
        self.0 as u16
    }

    /// With another [`bytes`](Self::bytes).
    #[inline(always)]
    #[must_use]
    pub const fn with_bytes(self, bytes: u16) -> Self {
        Self((self.0 & !0xffff) | (bytes as u32))
    }

    /// Receive: bytes that the buffer has room for. A TLP that is longer is malformed.
    ///
    /// Bits 31:16, rw.
    #[inline(always)]
    pub const fn room(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// With another [`room`](Self::room).
    #[inline(always)]
    #[must_use]
    pub const fn with_room(self, room: u16) -> Self {
        Self((self.0 & !0xffff0000) | ((room as u32) << 16))
    }
}

impl Value for Length {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// What it is, and whose. Firmware writes this word last; the hardware, too.
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

    /// Index of the slot, from 0. A box's slot n on the wire is index n - 1.
    ///
    /// Bits 4:0, rw.
    #[inline(always)]
    pub const fn slot(self) -> Bits<5> {
        Bits::low_of(self.0)
    }

    /// With another [`slot`](Self::slot).
    #[inline(always)]
    #[must_use]
    pub const fn with_slot(self, slot: Bits<5>) -> Self {
        Self((self.0 & !0x1f) | slot.get())
    }

    /// Receive: what happened at the slot, in the order in which it happened between the TLPs. With
    /// an event the buffer is not used.
    ///
    /// Bits 11:8, rw.
    #[inline(always)]
    pub const fn event(self) -> values::SlotEvent {
        values::SlotEvent::from_bits(self.0 >> 8)
    }

    /// With another [`event`](Self::event).
    #[inline(always)]
    #[must_use]
    pub const fn with_event(self, event: values::SlotEvent) -> Self {
        Self((self.0 & !0xf00) | (event.bits() << 8))
    }

    /// Its class, by which room is counted.
    ///
    /// Bits 17:16, rw.
    #[inline(always)]
    pub const fn class(self) -> values::TlpClass {
        values::TlpClass::from_bits(self.0 >> 16)
    }

    /// With another [`class`](Self::class).
    #[inline(always)]
    #[must_use]
    pub const fn with_class(self, class: values::TlpClass) -> Self {
        Self((self.0 & !0x30000) | (class.bits() << 16))
    }

    /// Receive: a reset or the link's end cut the TLP off. Transmit: it was not sent, since the
    /// slot's link is down or the slot is in reset.
    ///
    /// Bit 24, rw.
    #[inline(always)]
    pub const fn aborted(self) -> bool {
        self.0 & 0x1000000 != 0
    }

    /// With another [`aborted`](Self::aborted).
    #[inline(always)]
    #[must_use]
    pub const fn with_aborted(self, aborted: bool) -> Self {
        Self((self.0 & !0x1000000) | ((aborted as u32) << 24))
    }

    /// Receive: its length and header do not agree, or it is longer than the buffer; the buffer is
    /// not used. Transmit: the same, and it was not sent.
    ///
    /// Bit 25, rw.
    #[inline(always)]
    pub const fn malformed(self) -> bool {
        self.0 & 0x2000000 != 0
    }

    /// With another [`malformed`](Self::malformed).
    #[inline(always)]
    #[must_use]
    pub const fn with_malformed(self, malformed: bool) -> Self {
        Self((self.0 & !0x2000000) | ((malformed as u32) << 25))
    }

    /// Raise the queue's interrupt source when this is done. Receive: taken as set.
    ///
    /// Bit 30, rw.
    #[inline(always)]
    pub const fn interrupt(self) -> bool {
        self.0 & 0x40000000 != 0
    }

    /// With another [`interrupt`](Self::interrupt).
    #[inline(always)]
    #[must_use]
    pub const fn with_interrupt(self, interrupt: bool) -> Self {
        Self((self.0 & !0x40000000) | ((interrupt as u32) << 30))
    }

    /// It is the hardware's. Firmware sets it, the hardware clears it when it is done.
    ///
    /// Bit 31, rw.
    #[inline(always)]
    pub const fn own(self) -> bool {
        self.0 & 0x80000000 != 0
    }

    /// With another [`own`](Self::own).
    #[inline(always)]
    #[must_use]
    pub const fn with_own(self, own: bool) -> Self {
        Self((self.0 & !0x80000000) | ((own as u32) << 31))
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

/// When it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(u32);

impl Stamp {
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

    /// Written by the hardware: low half of the timer when the TLP's last byte passed between link
    /// and card.
    ///
    /// Bits 31:0, rw.
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

impl Value for Stamp {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
