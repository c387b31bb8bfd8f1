//! SPI to the NOR flash: bytes in and out for commands, and a window in memory for reading.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::values;
use crate::{Bits, Bus, ReadOnly, ReadWrite, ReadWriteEffect, Register, Value, WriteOnly};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x24;

/// SPI to the NOR flash: bytes in and out for commands, and a window in memory for reading.
#[derive(Clone, Copy, Debug)]
pub struct Spi<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Spi<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// The bus. Chip select changes only while no byte is under way.
    ///
    /// Offset 0x00, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn control(self) -> Register<B, Control, ReadWrite> {
        Register::at(self.bus, self.base)
    }

    /// Bit rate.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000008.
    #[inline(always)]
    pub const fn divider(self) -> Register<B, Divider, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// Sends a byte, highest bit first. Every byte that is sent gives one that is received. Lost
    /// when the transmit FIFO is full.
    ///
    /// Offset 0x08, write-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn transmit(self) -> Register<B, Transmit, WriteOnly> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// Takes a byte from the receive FIFO.
    ///
    /// Offset 0x0c, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn receive(self) -> Register<B, Receive, ReadOnly> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// The FIFOs.
    ///
    /// Offset 0x10, read-only; after a reset 0x00000010.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadOnly> {
        Register::at(self.bus, self.base + 0x10)
    }

    /// What went wrong.
    ///
    /// Offset 0x14, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn error(self) -> Register<B, Error, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x14)
    }

    /// Window in memory through which the flash is read. While it is enabled `control`, `transmit`
    /// and `receive` do nothing.
    ///
    /// Offset 0x18, read and write; after a reset 0x00000301.
    #[inline(always)]
    pub const fn window(self) -> Register<B, Window, ReadWrite> {
        Register::at(self.bus, self.base + 0x18)
    }

    /// Where the window is.
    ///
    /// Offset 0x1c, read-only; after a reset of the board.
    #[inline(always)]
    pub const fn window_base(self) -> Register<B, WindowBase, ReadOnly> {
        Register::at(self.bus, self.base + 0x1c)
    }

    /// How large the window is.
    ///
    /// Offset 0x20, read-only; after a reset of the board.
    #[inline(always)]
    pub const fn window_size(self) -> Register<B, WindowSize, ReadOnly> {
        Register::at(self.bus, self.base + 0x20)
    }
}

/// The bus. Chip select changes only while no byte is under way.
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

    /// Bytes are sent. While it is clear both FIFOs are empty.
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

    /// Clock polarity (CPOL).
    ///
    /// Bit 1, rw.
    #[inline(always)]
    pub const fn polarity(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`polarity`](Self::polarity).
    #[inline(always)]
    #[must_use]
    pub const fn with_polarity(self, polarity: bool) -> Self {
        Self((self.0 & !0x2) | ((polarity as u32) << 1))
    }

    /// Clock phase (CPHA).
    ///
    /// Bit 2, rw.
    #[inline(always)]
    pub const fn phase(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`phase`](Self::phase).
    #[inline(always)]
    #[must_use]
    pub const fn with_phase(self, phase: bool) -> Self {
        Self((self.0 & !0x4) | ((phase as u32) << 2))
    }

    /// Chip selects that are asserted, a bit for each. The flash is bit 0.
    ///
    /// Bits 15:8, rw.
    #[inline(always)]
    pub const fn chip_select(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With another [`chip_select`](Self::chip_select).
    #[inline(always)]
    #[must_use]
    pub const fn with_chip_select(self, chip_select: u8) -> Self {
        Self((self.0 & !0xff00) | ((chip_select as u32) << 8))
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

/// Bit rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Divider(u32);

impl Divider {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000008);

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

    /// The peripherals' clock divided by the bit rate, an even number from 2 on.
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

/// Sends a byte, highest bit first. Every byte that is sent gives one that is received. Lost
/// when the transmit FIFO is full.
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

    /// A byte is under way.
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

    /// A received byte was lost since the receive FIFO was full.
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

/// Window in memory through which the flash is read. While it is enabled `control`, `transmit`
/// and `receive` do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window(u32);

impl Window {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000301);

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

    /// The window is open. It is, after a reset: the core's first instruction is read through it.
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

    /// Bytes of an address.
    ///
    /// Bit 1, rw.
    #[inline(always)]
    pub const fn address(self) -> values::SpiAddress {
        values::SpiAddress::from_bits(self.0 >> 1)
    }

    /// With another [`address`](Self::address).
    #[inline(always)]
    #[must_use]
    pub const fn with_address(self, address: values::SpiAddress) -> Self {
        Self((self.0 & !0x2) | (address.bits() << 1))
    }

    /// Clock cycles between address and data.
    ///
    /// Bits 7:4, rw.
    #[inline(always)]
    pub const fn dummy_cycles(self) -> Bits<4> {
        Bits::low_of(self.0 >> 4)
    }

    /// With another [`dummy_cycles`](Self::dummy_cycles).
    #[inline(always)]
    #[must_use]
    pub const fn with_dummy_cycles(self, dummy_cycles: Bits<4>) -> Self {
        Self((self.0 & !0xf0) | (dummy_cycles.get() << 4))
    }

    /// Operation code of the read.
    ///
    /// Bits 15:8, rw.
    #[inline(always)]
    pub const fn opcode(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With another [`opcode`](Self::opcode).
    #[inline(always)]
    #[must_use]
    pub const fn with_opcode(self, opcode: u8) -> Self {
        Self((self.0 & !0xff00) | ((opcode as u32) << 8))
    }
}

impl Value for Window {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Where the window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowBase(u32);

impl WindowBase {
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

    /// Address of the flash's first byte.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn address(self) -> u32 {
        self.0
    }

    /// With another [`address`](Self::address), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_address(self, address: u32) -> Self {
        Self(address)
    }
}

impl Value for WindowBase {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// How large the window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowSize(u32);

impl WindowSize {
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

    /// Bytes.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// With another [`bytes`](Self::bytes), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_bytes(self, bytes: u32) -> Self {
        Self(bytes)
    }
}

impl Value for WindowSize {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
