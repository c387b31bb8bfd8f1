//! Interrupts: the core's machine external interrupt is asserted while a source is both pending
//! and enabled.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::{Bus, ReadWrite, ReadWriteEffect, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x8;

/// Interrupts: the core's machine external interrupt is asserted while a source is both pending
/// and enabled.
#[derive(Clone, Copy, Debug)]
pub struct Irq<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Irq<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Sources that were raised. A source is raised by an event, not by a state: write 1 to clear
    /// it, then look at what it tells of, and no event is missed.
    ///
    /// Offset 0x00, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn pending(self) -> Register<B, Pending, ReadWriteEffect> {
        Register::at(self.bus, self.base)
    }

    /// Sources that interrupt the core.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn enable(self) -> Register<B, Enable, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }
}

/// Sources that were raised. A source is raised by an event, not by a state: write 1 to clear
/// it, then look at what it tells of, and no event is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending(u32);

impl Pending {
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

    /// The alarm's time has come.
    ///
    /// Bit 0, rw, 1 clears.
    #[inline(always)]
    pub const fn timer(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`timer`](Self::timer).
    #[inline(always)]
    #[must_use]
    pub const fn with_timer(self, timer: bool) -> Self {
        Self((self.0 & !0x1) | (timer as u32))
    }

    /// The watchdog warns.
    ///
    /// Bit 1, rw, 1 clears.
    #[inline(always)]
    pub const fn watchdog(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`watchdog`](Self::watchdog).
    #[inline(always)]
    #[must_use]
    pub const fn with_watchdog(self, watchdog: bool) -> Self {
        Self((self.0 & !0x2) | ((watchdog as u32) << 1))
    }

    /// TLPs or events of slots were received.
    ///
    /// Bit 2, rw, 1 clears.
    #[inline(always)]
    pub const fn tlp_receive(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`tlp_receive`](Self::tlp_receive).
    #[inline(always)]
    #[must_use]
    pub const fn with_tlp_receive(self, tlp_receive: bool) -> Self {
        Self((self.0 & !0x4) | ((tlp_receive as u32) << 2))
    }

    /// TLPs were sent.
    ///
    /// Bit 3, rw, 1 clears.
    #[inline(always)]
    pub const fn tlp_transmit(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// With another [`tlp_transmit`](Self::tlp_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_tlp_transmit(self, tlp_transmit: bool) -> Self {
        Self((self.0 & !0x8) | ((tlp_transmit as u32) << 3))
    }

    /// A slot's transmit grant grew for a class of which the port had taken all that it granted.
    ///
    /// Bit 4, rw, 1 clears.
    #[inline(always)]
    pub const fn tlp_grant(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// With another [`tlp_grant`](Self::tlp_grant).
    #[inline(always)]
    #[must_use]
    pub const fn with_tlp_grant(self, tlp_grant: bool) -> Self {
        Self((self.0 & !0x10) | ((tlp_grant as u32) << 4))
    }

    /// Port 0 received frames of the fabric.
    ///
    /// Bit 8, rw, 1 clears.
    #[inline(always)]
    pub const fn mac0_fabric(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// With another [`mac0_fabric`](Self::mac0_fabric).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_fabric(self, mac0_fabric: bool) -> Self {
        Self((self.0 & !0x100) | ((mac0_fabric as u32) << 8))
    }

    /// Port 0 received other frames.
    ///
    /// Bit 9, rw, 1 clears.
    #[inline(always)]
    pub const fn mac0_other(self) -> bool {
        self.0 & 0x200 != 0
    }

    /// With another [`mac0_other`](Self::mac0_other).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_other(self, mac0_other: bool) -> Self {
        Self((self.0 & !0x200) | ((mac0_other as u32) << 9))
    }

    /// Port 0 sent frames.
    ///
    /// Bit 10, rw, 1 clears.
    #[inline(always)]
    pub const fn mac0_transmit(self) -> bool {
        self.0 & 0x400 != 0
    }

    /// With another [`mac0_transmit`](Self::mac0_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_transmit(self, mac0_transmit: bool) -> Self {
        Self((self.0 & !0x400) | ((mac0_transmit as u32) << 10))
    }

    /// Port 0's link went up or down.
    ///
    /// Bit 11, rw, 1 clears.
    #[inline(always)]
    pub const fn mac0_link(self) -> bool {
        self.0 & 0x800 != 0
    }

    /// With another [`mac0_link`](Self::mac0_link).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_link(self, mac0_link: bool) -> Self {
        Self((self.0 & !0x800) | ((mac0_link as u32) << 11))
    }

    /// Port 1 received frames of the fabric.
    ///
    /// Bit 12, rw, 1 clears.
    #[inline(always)]
    pub const fn mac1_fabric(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// With another [`mac1_fabric`](Self::mac1_fabric).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_fabric(self, mac1_fabric: bool) -> Self {
        Self((self.0 & !0x1000) | ((mac1_fabric as u32) << 12))
    }

    /// Port 1 received other frames.
    ///
    /// Bit 13, rw, 1 clears.
    #[inline(always)]
    pub const fn mac1_other(self) -> bool {
        self.0 & 0x2000 != 0
    }

    /// With another [`mac1_other`](Self::mac1_other).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_other(self, mac1_other: bool) -> Self {
        Self((self.0 & !0x2000) | ((mac1_other as u32) << 13))
    }

    /// Port 1 sent frames.
    ///
    /// Bit 14, rw, 1 clears.
    #[inline(always)]
    pub const fn mac1_transmit(self) -> bool {
        self.0 & 0x4000 != 0
    }

    /// With another [`mac1_transmit`](Self::mac1_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_transmit(self, mac1_transmit: bool) -> Self {
        Self((self.0 & !0x4000) | ((mac1_transmit as u32) << 14))
    }

    /// Port 1's link went up or down.
    ///
    /// Bit 15, rw, 1 clears.
    #[inline(always)]
    pub const fn mac1_link(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// With another [`mac1_link`](Self::mac1_link).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_link(self, mac1_link: bool) -> Self {
        Self((self.0 & !0x8000) | ((mac1_link as u32) << 15))
    }

    /// A byte came in at the UART.
    ///
    /// Bit 16, rw, 1 clears.
    #[inline(always)]
    pub const fn uart_receive(self) -> bool {
        self.0 & 0x10000 != 0
    }

    /// With another [`uart_receive`](Self::uart_receive).
    #[inline(always)]
    #[must_use]
    pub const fn with_uart_receive(self, uart_receive: bool) -> Self {
        Self((self.0 & !0x10000) | ((uart_receive as u32) << 16))
    }

    /// The UART's transmit FIFO is empty.
    ///
    /// Bit 17, rw, 1 clears.
    #[inline(always)]
    pub const fn uart_transmit(self) -> bool {
        self.0 & 0x20000 != 0
    }

    /// With another [`uart_transmit`](Self::uart_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_uart_transmit(self, uart_transmit: bool) -> Self {
        Self((self.0 & !0x20000) | ((uart_transmit as u32) << 17))
    }

    /// A transfer on the first I2C bus ended.
    ///
    /// Bit 18, rw, 1 clears.
    #[inline(always)]
    pub const fn i2c0(self) -> bool {
        self.0 & 0x40000 != 0
    }

    /// With another [`i2c0`](Self::i2c0).
    #[inline(always)]
    #[must_use]
    pub const fn with_i2c0(self, i2c0: bool) -> Self {
        Self((self.0 & !0x40000) | ((i2c0 as u32) << 18))
    }

    /// A transfer on the second I2C bus ended.
    ///
    /// Bit 19, rw, 1 clears.
    #[inline(always)]
    pub const fn i2c1(self) -> bool {
        self.0 & 0x80000 != 0
    }

    /// With another [`i2c1`](Self::i2c1).
    #[inline(always)]
    #[must_use]
    pub const fn with_i2c1(self, i2c1: bool) -> Self {
        Self((self.0 & !0x80000) | ((i2c1 as u32) << 19))
    }

    /// A pin changed as its settings ask.
    ///
    /// Bit 20, rw, 1 clears.
    #[inline(always)]
    pub const fn gpio(self) -> bool {
        self.0 & 0x100000 != 0
    }

    /// With another [`gpio`](Self::gpio).
    #[inline(always)]
    #[must_use]
    pub const fn with_gpio(self, gpio: bool) -> Self {
        Self((self.0 & !0x100000) | ((gpio as u32) << 20))
    }

    /// A queue stopped with an error.
    ///
    /// Bit 21, rw, 1 clears.
    #[inline(always)]
    pub const fn queue_error(self) -> bool {
        self.0 & 0x200000 != 0
    }

    /// With another [`queue_error`](Self::queue_error).
    #[inline(always)]
    #[must_use]
    pub const fn with_queue_error(self, queue_error: bool) -> Self {
        Self((self.0 & !0x200000) | ((queue_error as u32) << 21))
    }
}

impl Value for Pending {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Sources that interrupt the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Enable(u32);

impl Enable {
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

    /// The alarm's time has come.
    ///
    /// Bit 0, rw.
    #[inline(always)]
    pub const fn timer(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`timer`](Self::timer).
    #[inline(always)]
    #[must_use]
    pub const fn with_timer(self, timer: bool) -> Self {
        Self((self.0 & !0x1) | (timer as u32))
    }

    /// The watchdog warns.
    ///
    /// Bit 1, rw.
    #[inline(always)]
    pub const fn watchdog(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`watchdog`](Self::watchdog).
    #[inline(always)]
    #[must_use]
    pub const fn with_watchdog(self, watchdog: bool) -> Self {
        Self((self.0 & !0x2) | ((watchdog as u32) << 1))
    }

    /// TLPs or events of slots were received.
    ///
    /// Bit 2, rw.
    #[inline(always)]
    pub const fn tlp_receive(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`tlp_receive`](Self::tlp_receive).
    #[inline(always)]
    #[must_use]
    pub const fn with_tlp_receive(self, tlp_receive: bool) -> Self {
        Self((self.0 & !0x4) | ((tlp_receive as u32) << 2))
    }

    /// TLPs were sent.
    ///
    /// Bit 3, rw.
    #[inline(always)]
    pub const fn tlp_transmit(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// With another [`tlp_transmit`](Self::tlp_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_tlp_transmit(self, tlp_transmit: bool) -> Self {
        Self((self.0 & !0x8) | ((tlp_transmit as u32) << 3))
    }

    /// A slot's transmit grant grew for a class of which the port had taken all that it granted.
    ///
    /// Bit 4, rw.
    #[inline(always)]
    pub const fn tlp_grant(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// With another [`tlp_grant`](Self::tlp_grant).
    #[inline(always)]
    #[must_use]
    pub const fn with_tlp_grant(self, tlp_grant: bool) -> Self {
        Self((self.0 & !0x10) | ((tlp_grant as u32) << 4))
    }

    /// Port 0 received frames of the fabric.
    ///
    /// Bit 8, rw.
    #[inline(always)]
    pub const fn mac0_fabric(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// With another [`mac0_fabric`](Self::mac0_fabric).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_fabric(self, mac0_fabric: bool) -> Self {
        Self((self.0 & !0x100) | ((mac0_fabric as u32) << 8))
    }

    /// Port 0 received other frames.
    ///
    /// Bit 9, rw.
    #[inline(always)]
    pub const fn mac0_other(self) -> bool {
        self.0 & 0x200 != 0
    }

    /// With another [`mac0_other`](Self::mac0_other).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_other(self, mac0_other: bool) -> Self {
        Self((self.0 & !0x200) | ((mac0_other as u32) << 9))
    }

    /// Port 0 sent frames.
    ///
    /// Bit 10, rw.
    #[inline(always)]
    pub const fn mac0_transmit(self) -> bool {
        self.0 & 0x400 != 0
    }

    /// With another [`mac0_transmit`](Self::mac0_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_transmit(self, mac0_transmit: bool) -> Self {
        Self((self.0 & !0x400) | ((mac0_transmit as u32) << 10))
    }

    /// Port 0's link went up or down.
    ///
    /// Bit 11, rw.
    #[inline(always)]
    pub const fn mac0_link(self) -> bool {
        self.0 & 0x800 != 0
    }

    /// With another [`mac0_link`](Self::mac0_link).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac0_link(self, mac0_link: bool) -> Self {
        Self((self.0 & !0x800) | ((mac0_link as u32) << 11))
    }

    /// Port 1 received frames of the fabric.
    ///
    /// Bit 12, rw.
    #[inline(always)]
    pub const fn mac1_fabric(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// With another [`mac1_fabric`](Self::mac1_fabric).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_fabric(self, mac1_fabric: bool) -> Self {
        Self((self.0 & !0x1000) | ((mac1_fabric as u32) << 12))
    }

    /// Port 1 received other frames.
    ///
    /// Bit 13, rw.
    #[inline(always)]
    pub const fn mac1_other(self) -> bool {
        self.0 & 0x2000 != 0
    }

    /// With another [`mac1_other`](Self::mac1_other).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_other(self, mac1_other: bool) -> Self {
        Self((self.0 & !0x2000) | ((mac1_other as u32) << 13))
    }

    /// Port 1 sent frames.
    ///
    /// Bit 14, rw.
    #[inline(always)]
    pub const fn mac1_transmit(self) -> bool {
        self.0 & 0x4000 != 0
    }

    /// With another [`mac1_transmit`](Self::mac1_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_transmit(self, mac1_transmit: bool) -> Self {
        Self((self.0 & !0x4000) | ((mac1_transmit as u32) << 14))
    }

    /// Port 1's link went up or down.
    ///
    /// Bit 15, rw.
    #[inline(always)]
    pub const fn mac1_link(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// With another [`mac1_link`](Self::mac1_link).
    #[inline(always)]
    #[must_use]
    pub const fn with_mac1_link(self, mac1_link: bool) -> Self {
        Self((self.0 & !0x8000) | ((mac1_link as u32) << 15))
    }

    /// A byte came in at the UART.
    ///
    /// Bit 16, rw.
    #[inline(always)]
    pub const fn uart_receive(self) -> bool {
        self.0 & 0x10000 != 0
    }

    /// With another [`uart_receive`](Self::uart_receive).
    #[inline(always)]
    #[must_use]
    pub const fn with_uart_receive(self, uart_receive: bool) -> Self {
        Self((self.0 & !0x10000) | ((uart_receive as u32) << 16))
    }

    /// The UART's transmit FIFO is empty.
    ///
    /// Bit 17, rw.
    #[inline(always)]
    pub const fn uart_transmit(self) -> bool {
        self.0 & 0x20000 != 0
    }

    /// With another [`uart_transmit`](Self::uart_transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_uart_transmit(self, uart_transmit: bool) -> Self {
        Self((self.0 & !0x20000) | ((uart_transmit as u32) << 17))
    }

    /// A transfer on the first I2C bus ended.
    ///
    /// Bit 18, rw.
    #[inline(always)]
    pub const fn i2c0(self) -> bool {
        self.0 & 0x40000 != 0
    }

    /// With another [`i2c0`](Self::i2c0).
    #[inline(always)]
    #[must_use]
    pub const fn with_i2c0(self, i2c0: bool) -> Self {
        Self((self.0 & !0x40000) | ((i2c0 as u32) << 18))
    }

    /// A transfer on the second I2C bus ended.
    ///
    /// Bit 19, rw.
    #[inline(always)]
    pub const fn i2c1(self) -> bool {
        self.0 & 0x80000 != 0
    }

    /// With another [`i2c1`](Self::i2c1).
    #[inline(always)]
    #[must_use]
    pub const fn with_i2c1(self, i2c1: bool) -> Self {
        Self((self.0 & !0x80000) | ((i2c1 as u32) << 19))
    }

    /// A pin changed as its settings ask.
    ///
    /// Bit 20, rw.
    #[inline(always)]
    pub const fn gpio(self) -> bool {
        self.0 & 0x100000 != 0
    }

    /// With another [`gpio`](Self::gpio).
    #[inline(always)]
    #[must_use]
    pub const fn with_gpio(self, gpio: bool) -> Self {
        Self((self.0 & !0x100000) | ((gpio as u32) << 20))
    }

    /// A queue stopped with an error.
    ///
    /// Bit 21, rw.
    #[inline(always)]
    pub const fn queue_error(self) -> bool {
        self.0 & 0x200000 != 0
    }

    /// With another [`queue_error`](Self::queue_error).
    #[inline(always)]
    #[must_use]
    pub const fn with_queue_error(self, queue_error: bool) -> Self {
        Self((self.0 & !0x200000) | ((queue_error as u32) << 21))
    }
}

impl Value for Enable {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
