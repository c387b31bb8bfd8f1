//! One PCIe port: to a device (box role), or slot 0 to the host (host role).

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::values;
use crate::{Bits, Bus, ReadOnly, ReadWrite, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x2c;

/// One PCIe port: to a device (box role), or slot 0 to the host (host role).
#[derive(Clone, Copy, Debug)]
pub struct Slot<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Slot<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// The port as it is now. What changes here is an event in the receive queue as well, in its
    /// place between the TLPs.
    ///
    /// Offset 0x00, read-only; after a reset 0x00000004.
    #[inline(always)]
    pub const fn status(self) -> Register<B, Status, ReadOnly> {
        Register::at(self.bus, self.base)
    }

    /// What the port is told to do. It does so at once: firmware that wants TLPs to go out first
    /// waits until the transmit queue has done them.
    ///
    /// Offset 0x04, read and write; after a reset 0x00000005.
    #[inline(always)]
    pub const fn control(self) -> Register<B, Control, ReadWrite> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// TLPs that firmware takes from the port, counted for each class since the reset, modulo 256.
    /// The hardware delivers TLPs until it has delivered so many; firmware is never more than 128
    /// ahead. The rest waits in the hardware's buffers, and, when those are full, at the other end
    /// of the link, for want of flow control credits. Nothing is dropped. Events need no grant.
    ///
    /// Offset 0x08, read and write; after a reset 0x00000000.
    #[inline(always)]
    pub const fn receive_grant(self) -> Register<B, ReceiveGrant, ReadWrite> {
        Register::at(self.bus, self.base + 0x8)
    }

    /// TLPs that were delivered to firmware, counted for each class since the reset, modulo 256.
    /// Firmware counts them itself; this is for setting the receive queue up anew.
    ///
    /// Offset 0x0c, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn delivered(self) -> Register<B, Delivered, ReadOnly> {
        Register::at(self.bus, self.base + 0xc)
    }

    /// TLPs that the port takes from firmware, counted for each class since the reset, modulo 256:
    /// those that it has taken, aborted ones too, and those of the largest payload for which it has
    /// room now, never more than 128 ahead. Firmware puts no TLP into the transmit queue that this
    /// does not count, so that nothing there waits, and no slot or class stands in another's way.
    /// It need read this only when all that it knows of is used.
    ///
    /// Offset 0x10, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn transmit_grant(self) -> Register<B, TransmitGrant, ReadOnly> {
        Register::at(self.bus, self.base + 0x10)
    }

    /// TLPs that were delivered to firmware since the reset, modulo 2^32.
    ///
    /// Offset 0x14, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn received(self) -> Register<B, Received, ReadOnly> {
        Register::at(self.bus, self.base + 0x14)
    }

    /// TLPs that were sent on the link since the reset, modulo 2^32.
    ///
    /// Offset 0x18, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn sent(self) -> Register<B, Sent, ReadOnly> {
        Register::at(self.bus, self.base + 0x18)
    }

    /// TLPs of the link that were malformed since the reset, modulo 2^32.
    ///
    /// Offset 0x1c, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn malformed(self) -> Register<B, Malformed, ReadOnly> {
        Register::at(self.bus, self.base + 0x1c)
    }

    /// TLPs of the link for which its sender had no credit, and which were dropped, since the
    /// reset, modulo 2^32.
    ///
    /// Offset 0x20, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn overflow(self) -> Register<B, Overflow, ReadOnly> {
        Register::at(self.bus, self.base + 0x20)
    }

    /// TLPs that a reset or the link's end cut off or removed from the hardware's buffers, in both
    /// directions, since the reset, modulo 2^32.
    ///
    /// Offset 0x24, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn aborted(self) -> Register<B, Aborted, ReadOnly> {
        Register::at(self.bus, self.base + 0x24)
    }

    /// Link errors that the data link layer repaired (bad TLPs and DLLPs, replays) since the reset,
    /// modulo 2^32.
    ///
    /// Offset 0x28, read-only; after a reset 0x00000000.
    #[inline(always)]
    pub const fn corrected(self) -> Register<B, Corrected, ReadOnly> {
        Register::at(self.bus, self.base + 0x28)
    }
}

/// The port as it is now. What changes here is an event in the receive queue as well, in its
/// place between the TLPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u32);

impl Status {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000004);

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

    /// A device is present (box role); always set in host role.
    ///
    /// Bit 0, r.
    #[inline(always)]
    pub const fn present(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`present`](Self::present), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_present(self, present: bool) -> Self {
        Self((self.0 & !0x1) | (present as u32))
    }

    /// The slot's power is good.
    ///
    /// Bit 1, r.
    #[inline(always)]
    pub const fn power_good(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`power_good`](Self::power_good), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_power_good(self, power_good: bool) -> Self {
        Self((self.0 & !0x2) | ((power_good as u32) << 1))
    }

    /// PERST# is asserted, by whoever.
    ///
    /// Bit 2, r.
    #[inline(always)]
    pub const fn perst(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`perst`](Self::perst), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_perst(self, perst: bool) -> Self {
        Self((self.0 & !0x4) | ((perst as u32) << 2))
    }

    /// The link is in hot reset.
    ///
    /// Bit 3, r.
    #[inline(always)]
    pub const fn hot_reset(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// With another [`hot_reset`](Self::hot_reset), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_hot_reset(self, hot_reset: bool) -> Self {
        Self((self.0 & !0x8) | ((hot_reset as u32) << 3))
    }

    /// State of the link.
    ///
    /// Bits 5:4, r.
    #[inline(always)]
    pub const fn link(self) -> values::SlotLink {
        values::SlotLink::from_bits(self.0 >> 4)
    }

    /// With another [`link`](Self::link), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_link(self, link: values::SlotLink) -> Self {
        Self((self.0 & !0x30) | (link.bits() << 4))
    }

    /// Speed of the link, as Current Link Speed of Link Status.
    ///
    /// Bits 11:8, r.
    #[inline(always)]
    pub const fn speed(self) -> values::SlotSpeed {
        values::SlotSpeed::from_bits(self.0 >> 8)
    }

    /// With another [`speed`](Self::speed), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_speed(self, speed: values::SlotSpeed) -> Self {
        Self((self.0 & !0xf00) | (speed.bits() << 8))
    }

    /// Lanes of the link, as Negotiated Link Width of Link Status; 0 when it is down.
    ///
    /// Bits 17:12, r.
    #[inline(always)]
    pub const fn width(self) -> Bits<6> {
        Bits::low_of(self.0 >> 12)
    }

    /// With another [`width`](Self::width), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_width(self, width: Bits<6>) -> Self {
        Self((self.0 & !0x3f000) | (width.get() << 12))
    }

    /// The device asserts WAKE#.
    ///
    /// Bit 18, r.
    #[inline(always)]
    pub const fn wake(self) -> bool {
        self.0 & 0x40000 != 0
    }

    /// With another [`wake`](Self::wake), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_wake(self, wake: bool) -> Self {
        Self((self.0 & !0x40000) | ((wake as u32) << 18))
    }

    /// The attention button is held.
    ///
    /// Bit 19, r.
    #[inline(always)]
    pub const fn attention_button(self) -> bool {
        self.0 & 0x80000 != 0
    }

    /// With another [`attention_button`](Self::attention_button), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_attention_button(self, attention_button: bool) -> Self {
        Self((self.0 & !0x80000) | ((attention_button as u32) << 19))
    }

    /// The slot's power failed since it was switched on last.
    ///
    /// Bit 20, r.
    #[inline(always)]
    pub const fn power_fault(self) -> bool {
        self.0 & 0x100000 != 0
    }

    /// With another [`power_fault`](Self::power_fault), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_power_fault(self, power_fault: bool) -> Self {
        Self((self.0 & !0x100000) | ((power_fault as u32) << 20))
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

/// What the port is told to do. It does so at once: firmware that wants TLPs to go out first
/// waits until the transmit queue has done them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Control(u32);

impl Control {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00000005);

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

    /// Assert PERST# to the device (box role).
    ///
    /// Bit 0, rw.
    #[inline(always)]
    pub const fn perst(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`perst`](Self::perst).
    #[inline(always)]
    #[must_use]
    pub const fn with_perst(self, perst: bool) -> Self {
        Self((self.0 & !0x1) | (perst as u32))
    }

    /// Hold the link in hot reset (box role): while set, TS1 ordered sets with the Hot Reset bit
    /// are sent.
    ///
    /// Bit 1, rw.
    #[inline(always)]
    pub const fn hot_reset(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`hot_reset`](Self::hot_reset).
    #[inline(always)]
    #[must_use]
    pub const fn with_hot_reset(self, hot_reset: bool) -> Self {
        Self((self.0 & !0x2) | ((hot_reset as u32) << 1))
    }

    /// Disable the link.
    ///
    /// Bit 2, rw.
    #[inline(always)]
    pub const fn link_disable(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`link_disable`](Self::link_disable).
    #[inline(always)]
    #[must_use]
    pub const fn with_link_disable(self, link_disable: bool) -> Self {
        Self((self.0 & !0x4) | ((link_disable as u32) << 2))
    }

    /// Give the slot power (box role).
    ///
    /// Bit 3, rw.
    #[inline(always)]
    pub const fn power(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// With another [`power`](Self::power).
    #[inline(always)]
    #[must_use]
    pub const fn with_power(self, power: bool) -> Self {
        Self((self.0 & !0x8) | ((power as u32) << 3))
    }

    /// Attention indicator.
    ///
    /// Bits 5:4, rw.
    #[inline(always)]
    pub const fn attention_indicator(self) -> values::Indicator {
        values::Indicator::from_bits(self.0 >> 4)
    }

    /// With another [`attention_indicator`](Self::attention_indicator).
    #[inline(always)]
    #[must_use]
    pub const fn with_attention_indicator(self, attention_indicator: values::Indicator) -> Self {
        Self((self.0 & !0x30) | (attention_indicator.bits() << 4))
    }

    /// Power indicator.
    ///
    /// Bits 7:6, rw.
    #[inline(always)]
    pub const fn power_indicator(self) -> values::Indicator {
        values::Indicator::from_bits(self.0 >> 6)
    }

    /// With another [`power_indicator`](Self::power_indicator).
    #[inline(always)]
    #[must_use]
    pub const fn with_power_indicator(self, power_indicator: values::Indicator) -> Self {
        Self((self.0 & !0xc0) | (power_indicator.bits() << 6))
    }

    /// Largest data payload that is received. A TLP with more is malformed.
    ///
    /// Bits 10:8, rw.
    #[inline(always)]
    pub const fn max_payload(self) -> values::PayloadSize {
        values::PayloadSize::from_bits(self.0 >> 8)
    }

    /// With another [`max_payload`](Self::max_payload).
    #[inline(always)]
    #[must_use]
    pub const fn with_max_payload(self, max_payload: values::PayloadSize) -> Self {
        Self((self.0 & !0x700) | (max_payload.bits() << 8))
    }

    /// Assert WAKE# to the host (host role).
    ///
    /// Bit 11, rw.
    #[inline(always)]
    pub const fn wake(self) -> bool {
        self.0 & 0x800 != 0
    }

    /// With another [`wake`](Self::wake).
    #[inline(always)]
    #[must_use]
    pub const fn with_wake(self, wake: bool) -> Self {
        Self((self.0 & !0x800) | ((wake as u32) << 11))
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

/// TLPs that firmware takes from the port, counted for each class since the reset, modulo 256.
/// The hardware delivers TLPs until it has delivered so many; firmware is never more than 128
/// ahead. The rest waits in the hardware's buffers, and, when those are full, at the other end
/// of the link, for want of flow control credits. Nothing is dropped. Events need no grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiveGrant(u32);

impl ReceiveGrant {
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

    /// Posted requests.
    ///
    /// Bits 7:0, rw.
    #[inline(always)]
    pub const fn posted(self) -> u8 {
        self.0 as u8
    }

    /// With another [`posted`](Self::posted).
    #[inline(always)]
    #[must_use]
    pub const fn with_posted(self, posted: u8) -> Self {
        Self((self.0 & !0xff) | (posted as u32))
    }

    /// Non-posted requests.
    ///
    /// Bits 15:8, rw.
    #[inline(always)]
    pub const fn non_posted(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With another [`non_posted`](Self::non_posted).
    #[inline(always)]
    #[must_use]
    pub const fn with_non_posted(self, non_posted: u8) -> Self {
        Self((self.0 & !0xff00) | ((non_posted as u32) << 8))
    }

    /// Completions.
    ///
    /// Bits 23:16, rw.
    #[inline(always)]
    pub const fn completion(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// With another [`completion`](Self::completion).
    #[inline(always)]
    #[must_use]
    pub const fn with_completion(self, completion: u8) -> Self {
        Self((self.0 & !0xff0000) | ((completion as u32) << 16))
    }
}

impl Value for ReceiveGrant {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// TLPs that were delivered to firmware, counted for each class since the reset, modulo 256.
/// Firmware counts them itself; this is for setting the receive queue up anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delivered(u32);

impl Delivered {
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

    /// Posted requests.
    ///
    /// Bits 7:0, r.
    #[inline(always)]
    pub const fn posted(self) -> u8 {
        self.0 as u8
    }

    /// With another [`posted`](Self::posted), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_posted(self, posted: u8) -> Self {
        Self((self.0 & !0xff) | (posted as u32))
    }

    /// Non-posted requests.
    ///
    /// Bits 15:8, r.
    #[inline(always)]
    pub const fn non_posted(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With another [`non_posted`](Self::non_posted), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_non_posted(self, non_posted: u8) -> Self {
        Self((self.0 & !0xff00) | ((non_posted as u32) << 8))
    }

    /// Completions.
    ///
    /// Bits 23:16, r.
    #[inline(always)]
    pub const fn completion(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// With another [`completion`](Self::completion), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_completion(self, completion: u8) -> Self {
        Self((self.0 & !0xff0000) | ((completion as u32) << 16))
    }
}

impl Value for Delivered {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// TLPs that the port takes from firmware, counted for each class since the reset, modulo 256:
/// those that it has taken, aborted ones too, and those of the largest payload for which it has
/// room now, never more than 128 ahead. Firmware puts no TLP into the transmit queue that this
/// does not count, so that nothing there waits, and no slot or class stands in another's way.
/// It need read this only when all that it knows of is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransmitGrant(u32);

impl TransmitGrant {
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

    /// Posted requests.
    ///
    /// Bits 7:0, r.
    #[inline(always)]
    pub const fn posted(self) -> u8 {
        self.0 as u8
    }

    /// With another [`posted`](Self::posted), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_posted(self, posted: u8) -> Self {
        Self((self.0 & !0xff) | (posted as u32))
    }

    /// Non-posted requests.
    ///
    /// Bits 15:8, r.
    #[inline(always)]
    pub const fn non_posted(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With another [`non_posted`](Self::non_posted), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_non_posted(self, non_posted: u8) -> Self {
        Self((self.0 & !0xff00) | ((non_posted as u32) << 8))
    }

    /// Completions.
    ///
    /// Bits 23:16, r.
    #[inline(always)]
    pub const fn completion(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// With another [`completion`](Self::completion), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_completion(self, completion: u8) -> Self {
        Self((self.0 & !0xff0000) | ((completion as u32) << 16))
    }
}

impl Value for TransmitGrant {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// TLPs that were delivered to firmware since the reset, modulo 2^32.
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

    /// TLPs.
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

/// TLPs that were sent on the link since the reset, modulo 2^32.
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

    /// TLPs.
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

/// TLPs of the link that were malformed since the reset, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Malformed(u32);

impl Malformed {
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

    /// TLPs.
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

impl Value for Malformed {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// TLPs of the link for which its sender had no credit, and which were dropped, since the
/// reset, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overflow(u32);

impl Overflow {
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

    /// TLPs.
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

impl Value for Overflow {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// TLPs that a reset or the link's end cut off or removed from the hardware's buffers, in both
/// directions, since the reset, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aborted(u32);

impl Aborted {
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

    /// TLPs.
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

impl Value for Aborted {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Link errors that the data link layer repaired (bad TLPs and DLLPs, replays) since the reset,
/// modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Corrected(u32);

impl Corrected {
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

    /// Errors.
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

impl Value for Corrected {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
