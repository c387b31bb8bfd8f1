//! An Ethernet frame, from the destination address to the last byte before the frame check
//! sequence. The hardware adds and checks that sequence, and pads short frames.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bus, ReadWrite, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x10;

/// An Ethernet frame, from the destination address to the last byte before the frame check
/// sequence. The hardware adds and checks that sequence, and pads short frames.
#[derive(Clone, Copy, Debug)]
pub struct FrameDescriptor<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> FrameDescriptor<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Where the frame lies.
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

    /// What became of it. Firmware writes this word last; the hardware, too.
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

/// Where the frame lies.
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

    /// Address of its first byte. Its low two bits may be 2, which aligns what is behind the
    /// Ethernet header; 1 and 3 are not possible.
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

    /// Bytes of the frame. Receive: written by the hardware.
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

    /// Receive: bytes that the buffer has room for. A longer frame is dropped and counted.
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

/// What became of it. Firmware writes this word last; the hardware, too.
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

    /// Receive, fabric's frames: bytes before the fabric's frame header, which are those of
    /// Ethernet, and of IP and UDP.
    ///
    /// Bits 7:0, rw.
    #[inline(always)]
    pub const fn offset(self) -> u8 {
        self.0 as u8
    }

    /// With another [`offset`](Self::offset).
    #[inline(always)]
    #[must_use]
    pub const fn with_offset(self, offset: u8) -> Self {
        Self((self.0 & !0xff) | (offset as u32))
    }

    /// Receive: it is the fabric's, by EtherType or UDP port.
    ///
    /// Bit 8, rw.
    #[inline(always)]
    pub const fn fabric(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// With another [`fabric`](Self::fabric).
    #[inline(always)]
    #[must_use]
    pub const fn with_fabric(self, fabric: bool) -> Self {
        Self((self.0 & !0x100) | ((fabric as u32) << 8))
    }

    /// Receive: it is an IP packet that was marked Congestion Experienced on its way (RFC 3168).
    ///
    /// Bit 9, rw.
    #[inline(always)]
    pub const fn congestion_experienced(self) -> bool {
        self.0 & 0x200 != 0
    }

    /// With another [`congestion_experienced`](Self::congestion_experienced).
    #[inline(always)]
    #[must_use]
    pub const fn with_congestion_experienced(self, congestion_experienced: bool) -> Self {
        Self((self.0 & !0x200) | ((congestion_experienced as u32) << 9))
    }

    /// Receive: it was sent to all, or to a group.
    ///
    /// Bit 10, rw.
    #[inline(always)]
    pub const fn group(self) -> bool {
        self.0 & 0x400 != 0
    }

    /// With another [`group`](Self::group).
    #[inline(always)]
    #[must_use]
    pub const fn with_group(self, group: bool) -> Self {
        Self((self.0 & !0x400) | ((group as u32) << 10))
    }

    /// Transmit: it was not sent, since the link is down or memory did not follow.
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

    /// Written by the hardware: low half of the timer when the frame's last byte passed between
    /// wire and card.
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
