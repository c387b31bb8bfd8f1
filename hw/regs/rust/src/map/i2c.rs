//! An I2C bus (NXP UM10204), of which this is the only controller. Bus 0 has the board's
//! sensors and the vital product data, bus 1 the modules.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bus, ReadOnly, ReadWrite, Register, Value, WriteOnly};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x10;

/// An I2C bus (NXP UM10204), of which this is the only controller. Bus 0 has the board's
/// sensors and the vital product data, bus 1 the modules.
#[derive(Clone, Copy, Debug)]
pub struct I2c<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> I2c<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// The bus. Both lines can be pulled low by hand, to free a bus that a target holds.
    ///
    /// Offset 0x00, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn control(self) -> Register<B, Control, ReadWrite> {
        Register::at(self.bus, self.base)
    }

    /// Bit rate, and how long a target may hold SCL.
    ///
    /// Offset 0x04, read and write; after a reset 0x00190400.
    #[inline(always)]
    pub const fn timing(self) -> Register<B, Timing, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// One byte on the bus. Written only while the bus is not busy. Its parts are carried out in
    /// the order in which they are listed here; interrupt source `i2c0` or `i2c1` is raised at the
    /// end.
    ///
    /// Offset 0x08, write-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn command(self) -> Register<B, Command, WriteOnly> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// How the last command ended, and the lines.
    ///
    /// Offset 0x0c, read-only; after a reset 0x00030000.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadOnly> {
        Register::at(self.bus, self.base + 0xc)
    }
}

/// The bus. Both lines can be pulled low by hand, to free a bus that a target holds.
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

    /// Commands are carried out.
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

    /// Pull SCL low.
    ///
    /// Bit 1, rw.
    #[inline(always)]
    pub const fn scl_low(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`scl_low`](Self::scl_low).
    #[inline(always)]
    #[must_use]
    pub const fn with_scl_low(self, scl_low: bool) -> Self {
        Self((self.0 & !0x2) | ((scl_low as u32) << 1))
    }

    /// Pull SDA low.
    ///
    /// Bit 2, rw.
    #[inline(always)]
    pub const fn sda_low(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`sda_low`](Self::sda_low).
    #[inline(always)]
    #[must_use]
    pub const fn with_sda_low(self, sda_low: bool) -> Self {
        Self((self.0 & !0x4) | ((sda_low as u32) << 2))
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

/// Bit rate, and how long a target may hold SCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing(u32);

impl Timing {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00190400);

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

    /// The peripherals' clock divided by the bit rate, 16 or more.
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

    /// Milliseconds that SCL may be held low; after them the command ends with `timeout`.
    ///
    /// Bits 23:16, rw.
    #[inline(always)]
    pub const fn stretch(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// With another [`stretch`](Self::stretch).
    #[inline(always)]
    #[must_use]
    pub const fn with_stretch(self, stretch: u8) -> Self {
        Self((self.0 & !0xff0000) | ((stretch as u32) << 16))
    }
}

impl Value for Timing {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// One byte on the bus. Written only while the bus is not busy. Its parts are carried out in
/// the order in which they are listed here; interrupt source `i2c0` or `i2c1` is raised at the
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command(u32);

impl Command {
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

    /// The byte to send.
    ///
    /// Bits 7:0, w.
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

    /// A start condition, or a repeated one.
    ///
    /// Bit 8, w.
    #[inline(always)]
    pub const fn start(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// With another [`start`](Self::start).
    #[inline(always)]
    #[must_use]
    pub const fn with_start(self, start: bool) -> Self {
        Self((self.0 & !0x100) | ((start as u32) << 8))
    }

    /// Send the byte in `data`.
    ///
    /// Bit 9, w.
    #[inline(always)]
    pub const fn write(self) -> bool {
        self.0 & 0x200 != 0
    }

    /// With another [`write`](Self::write).
    #[inline(always)]
    #[must_use]
    pub const fn with_write(self, write: bool) -> Self {
        Self((self.0 & !0x200) | ((write as u32) << 9))
    }

    /// Receive a byte.
    ///
    /// Bit 10, w.
    #[inline(always)]
    pub const fn read(self) -> bool {
        self.0 & 0x400 != 0
    }

    /// With another [`read`](Self::read).
    #[inline(always)]
    #[must_use]
    pub const fn with_read(self, read: bool) -> Self {
        Self((self.0 & !0x400) | ((read as u32) << 10))
    }

    /// Do not acknowledge the byte that is received: it is the last one.
    ///
    /// Bit 11, w.
    #[inline(always)]
    pub const fn nack(self) -> bool {
        self.0 & 0x800 != 0
    }

    /// With another [`nack`](Self::nack).
    #[inline(always)]
    #[must_use]
    pub const fn with_nack(self, nack: bool) -> Self {
        Self((self.0 & !0x800) | ((nack as u32) << 11))
    }

    /// A stop condition. It is sent also when the byte was not acknowledged.
    ///
    /// Bit 12, w.
    #[inline(always)]
    pub const fn stop(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// With another [`stop`](Self::stop).
    #[inline(always)]
    #[must_use]
    pub const fn with_stop(self, stop: bool) -> Self {
        Self((self.0 & !0x1000) | ((stop as u32) << 12))
    }
}

impl Value for Command {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// How the last command ended, and the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u32);

impl Status {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00030000);

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

    /// The byte that was received.
    ///
    /// Bits 7:0, r.
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

    /// A command is under way. When this is clear the rest holds.
    ///
    /// Bit 8, r.
    #[inline(always)]
    pub const fn busy(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// With another [`busy`](Self::busy), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_busy(self, busy: bool) -> Self {
        Self((self.0 & !0x100) | ((busy as u32) << 8))
    }

    /// No target acknowledged the byte.
    ///
    /// Bit 9, r.
    #[inline(always)]
    pub const fn nack(self) -> bool {
        self.0 & 0x200 != 0
    }

    /// With another [`nack`](Self::nack), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_nack(self, nack: bool) -> Self {
        Self((self.0 & !0x200) | ((nack as u32) << 9))
    }

    /// SDA was not what was sent: something else drives the bus. It was let go.
    ///
    /// Bit 10, r.
    #[inline(always)]
    pub const fn arbitration_lost(self) -> bool {
        self.0 & 0x400 != 0
    }

    /// With another [`arbitration_lost`](Self::arbitration_lost), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_arbitration_lost(self, arbitration_lost: bool) -> Self {
        Self((self.0 & !0x400) | ((arbitration_lost as u32) << 10))
    }

    /// SCL was held low for too long. The bus was let go.
    ///
    /// Bit 11, r.
    #[inline(always)]
    pub const fn timeout(self) -> bool {
        self.0 & 0x800 != 0
    }

    /// With another [`timeout`](Self::timeout), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_timeout(self, timeout: bool) -> Self {
        Self((self.0 & !0x800) | ((timeout as u32) << 11))
    }

    /// SCL is high.
    ///
    /// Bit 16, r.
    #[inline(always)]
    pub const fn scl(self) -> bool {
        self.0 & 0x10000 != 0
    }

    /// With another [`scl`](Self::scl), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_scl(self, scl: bool) -> Self {
        Self((self.0 & !0x10000) | ((scl as u32) << 16))
    }

    /// SDA is high.
    ///
    /// Bit 17, r.
    #[inline(always)]
    pub const fn sda(self) -> bool {
        self.0 & 0x20000 != 0
    }

    /// With another [`sda`](Self::sda), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_sda(self, sda: bool) -> Self {
        Self((self.0 & !0x20000) | ((sda as u32) << 17))
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
