//! The console: 8 data bits, no parity, 1 stop bit.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bus, ReadOnly, ReadWrite, ReadWriteEffect, Register, Value, WriteOnly};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x14;

/// The console: 8 data bits, no parity, 1 stop bit.
#[derive(Clone, Copy, Debug)]
pub struct Uart<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Uart<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Sends a byte. Lost when the transmit FIFO is full.
    ///
    /// Offset 0x00, write-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn transmit(self) -> Register<B, Transmit, WriteOnly> {
        Register::at(self.bus, self.base)
    }

    /// Takes a byte from the receive FIFO.
    ///
    /// Offset 0x04, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn receive(self) -> Register<B, Receive, ReadOnly> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// The FIFOs.
    ///
    /// Offset 0x08, read-only; after a reset 0x00000010.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadOnly> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// What went wrong.
    ///
    /// Offset 0x0c, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn error(self) -> Register<B, Error, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// Bit rate. After a reset it is that of 115200 bit/s, so that the boot loader can speak before
    /// it knows anything.
    ///
    /// Offset 0x10, read and write; after a reset of the board.
    #[inline(always)]
    pub const fn divider(self) -> Register<B, Divider, ReadWrite> {
        Register::at(self.bus, self.base + 0x10)
    }
}

/// Sends a byte. Lost when the transmit FIFO is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmit(u32);

impl Transmit {
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

    /// The byte.
    ///
    /// Bits 7:0, w, writing has an effect.
    #[inline(always)]
    pub const fn data(self) -> u8 {
        self.0 as u8
    }

    /// With another [`data`](Self::data).
    #[inline(always)]
    #[must_use]
    pub const fn with_data(self, data: u8) -> Self {
        Self((self.0 & !0xff) | (data as u32))
    }
}

impl Value for Transmit {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Takes a byte from the receive FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receive(u32);

impl Receive {
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

    /// The byte, where there is one.
    ///
    /// Bits 7:0, r, reading has an effect.
    #[inline(always)]
    pub const fn data(self) -> u8 {
        self.0 as u8
    }

    /// With another [`data`](Self::data), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_data(self, data: u8) -> Self {
        Self((self.0 & !0xff) | (data as u32))
    }

    /// There was one.
    ///
    /// Bit 8, r.
    #[inline(always)]
    pub const fn valid(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// With another [`valid`](Self::valid), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_valid(self, valid: bool) -> Self {
        Self((self.0 & !0x100) | ((valid as u32) << 8))
    }
}

impl Value for Receive {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// The FIFOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u32);

impl Status {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000010);

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

    /// Bytes that the transmit FIFO has room for; 255 for that or more.
    ///
    /// Bits 7:0, r.
    #[inline(always)]
    pub const fn transmit_room(self) -> u8 {
        self.0 as u8
    }

    /// With another [`transmit_room`](Self::transmit_room), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_transmit_room(self, transmit_room: u8) -> Self {
        Self((self.0 & !0xff) | (transmit_room as u32))
    }

    /// Bytes in the receive FIFO; 255 for that or more.
    ///
    /// Bits 15:8, r.
    #[inline(always)]
    pub const fn receive_level(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With another [`receive_level`](Self::receive_level), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_receive_level(self, receive_level: u8) -> Self {
        Self((self.0 & !0xff00) | ((receive_level as u32) << 8))
    }

    /// Something is being sent, or waits to be.
    ///
    /// Bit 16, r.
    #[inline(always)]
    pub const fn busy(self) -> bool {
        self.0 & 0x10000 != 0
    }

    /// With another [`busy`](Self::busy), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_busy(self, busy: bool) -> Self {
        Self((self.0 & !0x10000) | ((busy as u32) << 16))
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

/// What went wrong.
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

    /// A byte was lost since the receive FIFO was full.
    ///
    /// Bit 0, rw, 1 clears.
    #[inline(always)]
    pub const fn overrun(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`overrun`](Self::overrun).
    #[inline(always)]
    #[must_use]
    pub const fn with_overrun(self, overrun: bool) -> Self {
        Self((self.0 & !0x1) | (overrun as u32))
    }

    /// A byte had no stop bit; it was dropped.
    ///
    /// Bit 1, rw, 1 clears.
    #[inline(always)]
    pub const fn framing(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`framing`](Self::framing).
    #[inline(always)]
    #[must_use]
    pub const fn with_framing(self, framing: bool) -> Self {
        Self((self.0 & !0x2) | ((framing as u32) << 1))
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

/// Bit rate. After a reset it is that of 115200 bit/s, so that the boot loader can speak before
/// it knows anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Divider(u32);

impl Divider {
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

    /// The peripherals' clock divided by the bit rate, 8 or more.
    ///
    /// Bits 15:0, rw.
    #[inline(always)]
    pub const fn ratio(self) -> u16 {
        self.0 as u16
    }

    /// With another [`ratio`](Self::ratio).
    #[inline(always)]
    #[must_use]
    pub const fn with_ratio(self, ratio: u16) -> Self {
        Self((self.0 & !0xffff) | (ratio as u32))
    }
}

impl Value for Divider {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
