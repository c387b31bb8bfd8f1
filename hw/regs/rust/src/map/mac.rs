//! One Ethernet port. Frames of the fabric and all others have a receive queue each, so that
//! neither takes the other's buffers.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::queue::Queue;
use super::values;
use crate::{Bits, Bus, ReadOnly, ReadWrite, ReadWriteEffect, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0xb0;

/// One Ethernet port. Frames of the fabric and all others have a receive queue each, so that
/// neither takes the other's buffers.
#[derive(Clone, Copy, Debug)]
pub struct Mac<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Mac<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// What the port does. Frames to its own address are always taken.
    ///
    /// Offset 0x00, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn control(self) -> Register<B, Control, ReadWrite> {
        Register::at(self.bus, self.base)
    }

    /// The port's link. Interrupt source `mac0_link` or `mac1_link` tells of changes.
    ///
    /// Offset 0x04, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn link(self) -> Register<B, Link, ReadOnly> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// First four bytes of the port's own address.
    ///
    /// Offset 0x08, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn address_low(self) -> Register<B, AddressLow, ReadWrite> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// Last two bytes of the port's own address.
    ///
    /// Offset 0x0c, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn address_high(self) -> Register<B, AddressHigh, ReadWrite> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// Longest frame that is received, from the destination address to the last byte before the
    /// frame check sequence. Longer ones are dropped and counted.
    ///
    /// Offset 0x10, read and write; after a reset 0x000005ee.
    #[inline(always)]
    pub const fn max_frame(self) -> Register<B, MaxFrame, ReadWrite> {
        Register::at(self.bus, self.base + 0x10)
    }

    /// Which frames are the fabric's.
    ///
    /// Offset 0x14, read and write; after a reset 0x000088b5.
    #[inline(always)]
    pub const fn fabric(self) -> Register<B, Fabric, ReadWrite> {
        Register::at(self.bus, self.base + 0x14)
    }

    /// Registers of the PHY. Writing begins an operation; it is over when `operation` reads as
    /// none.
    ///
    /// Offset 0x18, read and write, each write with an effect; after a reset 0x00000000.
    #[inline(always)]
    pub const fn mdio(self) -> Register<B, Mdio, ReadWriteEffect> {
        Register::at(self.bus, self.base + 0x18)
    }

    /// Received frames of the fabric.
    #[inline(always)]
    pub const fn receive_fabric(self) -> Queue<B> {
        Queue::at(self.bus, self.base + 0x20)
    }

    /// All other received frames.
    #[inline(always)]
    pub const fn receive_other(self) -> Queue<B> {
        Queue::at(self.bus, self.base + 0x40)
    }

    /// Frames to send.
    #[inline(always)]
    pub const fn transmit(self) -> Queue<B> {
        Queue::at(self.bus, self.base + 0x60)
    }

    /// Low half of the bytes of received frames. Reading it latches the high half.
    ///
    /// Offset 0x80, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn received_bytes_low(self) -> Register<B, ReceivedBytesLow, ReadOnly> {
        Register::at(self.bus, self.base + 0x80)
    }

    /// High half of the bytes of received frames, as it was when the low half was read last.
    ///
    /// Offset 0x84, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn received_bytes_high(self) -> Register<B, ReceivedBytesHigh, ReadOnly> {
        Register::at(self.bus, self.base + 0x84)
    }

    /// Low half of the bytes of sent frames. Reading it latches the high half.
    ///
    /// Offset 0x88, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn sent_bytes_low(self) -> Register<B, SentBytesLow, ReadOnly> {
        Register::at(self.bus, self.base + 0x88)
    }

    /// High half of the bytes of sent frames, as it was when the low half was read last.
    ///
    /// Offset 0x8c, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn sent_bytes_high(self) -> Register<B, SentBytesHigh, ReadOnly> {
        Register::at(self.bus, self.base + 0x8c)
    }

    /// Frames that were delivered to firmware since the reset, modulo 2^32.
    ///
    /// Offset 0x90, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn received(self) -> Register<B, Received, ReadOnly> {
        Register::at(self.bus, self.base + 0x90)
    }

    /// Frames that were sent since the reset, modulo 2^32.
    ///
    /// Offset 0x94, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn sent(self) -> Register<B, Sent, ReadOnly> {
        Register::at(self.bus, self.base + 0x94)
    }

    /// Frames that were dropped since the reset for a wrong frame check sequence or an error of the
    /// PHY, modulo 2^32.
    ///
    /// Offset 0x98, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn receive_errors(self) -> Register<B, ReceiveErrors, ReadOnly> {
        Register::at(self.bus, self.base + 0x98)
    }

    /// Frames that were dropped since the reset because they are too short or too long, modulo
    /// 2^32.
    ///
    /// Offset 0x9c, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn receive_lengths(self) -> Register<B, ReceiveLengths, ReadOnly> {
        Register::at(self.bus, self.base + 0x9c)
    }

    /// Frames of the fabric that were dropped since the reset because firmware had given no buffer,
    /// modulo 2^32.
    ///
    /// Offset 0xa0, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn dropped_fabric(self) -> Register<B, DroppedFabric, ReadOnly> {
        Register::at(self.bus, self.base + 0xa0)
    }

    /// Other frames that were dropped since the reset because firmware had given no buffer, modulo
    /// 2^32.
    ///
    /// Offset 0xa4, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn dropped_other(self) -> Register<B, DroppedOther, ReadOnly> {
        Register::at(self.bus, self.base + 0xa4)
    }

    /// Frames that came marked Congestion Experienced since the reset, modulo 2^32.
    ///
    /// Offset 0xa8, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn congestion_experienced(self) -> Register<B, CongestionExperienced, ReadOnly> {
        Register::at(self.bus, self.base + 0xa8)
    }

    /// Frames that could not be sent since the reset, modulo 2^32.
    ///
    /// Offset 0xac, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn transmit_errors(self) -> Register<B, TransmitErrors, ReadOnly> {
        Register::at(self.bus, self.base + 0xac)
    }
}

/// What the port does. Frames to its own address are always taken.
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

    /// Frames are received.
    ///
    /// Bit 0, rw.
    #[inline(always)]
    pub const fn receive(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`receive`](Self::receive).
    #[inline(always)]
    #[must_use]
    pub const fn with_receive(self, receive: bool) -> Self {
        Self((self.0 & !0x1) | (receive as u32))
    }

    /// Frames are sent.
    ///
    /// Bit 1, rw.
    #[inline(always)]
    pub const fn transmit(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`transmit`](Self::transmit).
    #[inline(always)]
    #[must_use]
    pub const fn with_transmit(self, transmit: bool) -> Self {
        Self((self.0 & !0x2) | ((transmit as u32) << 1))
    }

    /// Frames to all (ff:ff:ff:ff:ff:ff) are taken.
    ///
    /// Bit 2, rw.
    #[inline(always)]
    pub const fn broadcast(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`broadcast`](Self::broadcast).
    #[inline(always)]
    #[must_use]
    pub const fn with_broadcast(self, broadcast: bool) -> Self {
        Self((self.0 & !0x4) | ((broadcast as u32) << 2))
    }

    /// Frames to groups are taken.
    ///
    /// Bit 3, rw.
    #[inline(always)]
    pub const fn multicast(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// With another [`multicast`](Self::multicast).
    #[inline(always)]
    #[must_use]
    pub const fn with_multicast(self, multicast: bool) -> Self {
        Self((self.0 & !0x8) | ((multicast as u32) << 3))
    }

    /// Frames to others are taken.
    ///
    /// Bit 4, rw.
    #[inline(always)]
    pub const fn promiscuous(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// With another [`promiscuous`](Self::promiscuous).
    #[inline(always)]
    #[must_use]
    pub const fn with_promiscuous(self, promiscuous: bool) -> Self {
        Self((self.0 & !0x10) | ((promiscuous as u32) << 4))
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

/// The port's link. Interrupt source `mac0_link` or `mac1_link` tells of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link(u32);

impl Link {
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

    /// It is up.
    ///
    /// Bit 0, r.
    #[inline(always)]
    pub const fn up(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`up`](Self::up), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_up(self, up: bool) -> Self {
        Self((self.0 & !0x1) | (up as u32))
    }

    /// It has both directions at a time.
    ///
    /// Bit 1, r.
    #[inline(always)]
    pub const fn full_duplex(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`full_duplex`](Self::full_duplex), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_full_duplex(self, full_duplex: bool) -> Self {
        Self((self.0 & !0x2) | ((full_duplex as u32) << 1))
    }

    /// Its speed.
    ///
    /// Bits 7:4, r.
    #[inline(always)]
    pub const fn speed(self) -> values::EthernetSpeed {
        values::EthernetSpeed::from_bits(self.0 >> 4)
    }

    /// With another [`speed`](Self::speed), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_speed(self, speed: values::EthernetSpeed) -> Self {
        Self((self.0 & !0xf0) | (speed.bits() << 4))
    }
}

impl Value for Link {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// First four bytes of the port's own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressLow(u32);

impl AddressLow {
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

    /// The first byte lowest.
    ///
    /// Bits 31:0, rw.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// With another [`bytes`](Self::bytes).
    #[inline(always)]
    #[must_use]
    pub const fn with_bytes(self, bytes: u32) -> Self {
        Self(bytes)
    }
}

impl Value for AddressLow {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Last two bytes of the port's own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressHigh(u32);

impl AddressHigh {
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

    /// The fifth byte lowest.
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
}

impl Value for AddressHigh {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Longest frame that is received, from the destination address to the last byte before the
/// frame check sequence. Longer ones are dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxFrame(u32);

impl MaxFrame {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x000005ee);

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

    /// Bytes, 64 to 9216.
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
}

impl Value for MaxFrame {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Which frames are the fabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fabric(u32);

impl Fabric {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x000088b5);

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

    /// Those of this EtherType, with or without one IEEE 802.1Q tag.
    ///
    /// Bits 15:0, rw.
    #[inline(always)]
    pub const fn ethertype(self) -> u16 {
        self.0 as u16
    }

    /// With another [`ethertype`](Self::ethertype).
    #[inline(always)]
    #[must_use]
    pub const fn with_ethertype(self, ethertype: u16) -> Self {
        Self((self.0 & !0xffff) | (ethertype as u32))
    }

    /// Those to this UDP port, over IPv4 without options or IPv6 without extension headers, not
    /// fragmented; 0 for none.
    ///
    /// Bits 31:16, rw.
    #[inline(always)]
    pub const fn udp_port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// With another [`udp_port`](Self::udp_port).
    #[inline(always)]
    #[must_use]
    pub const fn with_udp_port(self, udp_port: u16) -> Self {
        Self((self.0 & !0xffff0000) | ((udp_port as u32) << 16))
    }
}

impl Value for Fabric {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Registers of the PHY. Writing begins an operation; it is over when `operation` reads as
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mdio(u32);

impl Mdio {
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

    /// The data that is written or was read.
    ///
    /// Bits 15:0, rw.
    #[inline(always)]
    pub const fn data(self) -> u16 {
        self.0 as u16
    }

    /// With another [`data`](Self::data).
    #[inline(always)]
    #[must_use]
    pub const fn with_data(self, data: u16) -> Self {
        Self((self.0 & !0xffff) | (data as u32))
    }

    /// Register of the PHY.
    ///
    /// Bits 20:16, rw.
    #[inline(always)]
    pub const fn register(self) -> Bits<5> {
        Bits::low_of(self.0 >> 16)
    }

    /// With another [`register`](Self::register).
    #[inline(always)]
    #[must_use]
    pub const fn with_register(self, register: Bits<5>) -> Self {
        Self((self.0 & !0x1f0000) | (register.get() << 16))
    }

    /// Address of the PHY.
    ///
    /// Bits 25:21, rw.
    #[inline(always)]
    pub const fn phy(self) -> Bits<5> {
        Bits::low_of(self.0 >> 21)
    }

    /// With another [`phy`](Self::phy).
    #[inline(always)]
    #[must_use]
    pub const fn with_phy(self, phy: Bits<5>) -> Self {
        Self((self.0 & !0x3e00000) | (phy.get() << 21))
    }

    /// What to do.
    ///
    /// Bits 27:26, rw, writing has an effect.
    #[inline(always)]
    pub const fn operation(self) -> values::MdioOperation {
        values::MdioOperation::from_bits(self.0 >> 26)
    }

    /// With another [`operation`](Self::operation).
    #[inline(always)]
    #[must_use]
    pub const fn with_operation(self, operation: values::MdioOperation) -> Self {
        Self((self.0 & !0xc000000) | (operation.bits() << 26))
    }
}

impl Value for Mdio {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Low half of the bytes of received frames. Reading it latches the high half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceivedBytesLow(u32);

impl ReceivedBytesLow {
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

    /// Bytes, bits 31 to 0.
    ///
    /// Bits 31:0, r, reading has an effect.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for ReceivedBytesLow {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// High half of the bytes of received frames, as it was when the low half was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceivedBytesHigh(u32);

impl ReceivedBytesHigh {
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

    /// Bytes, bits 63 to 32.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for ReceivedBytesHigh {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Low half of the bytes of sent frames. Reading it latches the high half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SentBytesLow(u32);

impl SentBytesLow {
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

    /// Bytes, bits 31 to 0.
    ///
    /// Bits 31:0, r, reading has an effect.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for SentBytesLow {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// High half of the bytes of sent frames, as it was when the low half was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SentBytesHigh(u32);

impl SentBytesHigh {
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

    /// Bytes, bits 63 to 32.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for SentBytesHigh {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Frames that were delivered to firmware since the reset, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received(u32);

impl Received {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for Received {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Frames that were sent since the reset, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sent(u32);

impl Sent {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for Sent {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Frames that were dropped since the reset for a wrong frame check sequence or an error of the
/// PHY, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiveErrors(u32);

impl ReceiveErrors {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for ReceiveErrors {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Frames that were dropped since the reset because they are too short or too long, modulo
/// 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiveLengths(u32);

impl ReceiveLengths {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for ReceiveLengths {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Frames of the fabric that were dropped since the reset because firmware had given no buffer,
/// modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DroppedFabric(u32);

impl DroppedFabric {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for DroppedFabric {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Other frames that were dropped since the reset because firmware had given no buffer, modulo
/// 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DroppedOther(u32);

impl DroppedOther {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for DroppedOther {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Frames that came marked Congestion Experienced since the reset, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CongestionExperienced(u32);

impl CongestionExperienced {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for CongestionExperienced {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Frames that could not be sent since the reset, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransmitErrors(u32);

impl TransmitErrors {
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

    /// Frames.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// With another [`count`](Self::count), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_count(self, count: u32) -> Self {
        Self(count)
    }
}

impl Value for TransmitErrors {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
