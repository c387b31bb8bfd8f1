//! What the card is and what it can do. Nothing here changes while it runs.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use super::values;
use crate::{Bits, Bus, ReadOnly, Register, Value};

/// Bytes from the block's beginning to behind its last register.
pub const SIZE: u32 = 0x48;
/// How many `board` there are.
pub const BOARD_COUNT: usize = 4;
/// How many `revision` there are.
pub const REVISION_COUNT: usize = 5;

/// What the card is and what it can do. Nothing here changes while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Id<B> {
    bus: B,
    base: u32,
}

impl<B: Bus + Copy> Id<B> {
    /// The block that begins `base` bytes from the bus's origin.
    #[inline(always)]
    pub const fn at(bus: B, base: u32) -> Self {
        Self { bus, base }
    }

    /// Says that this map is at this address. Read it before anything else.
    ///
    /// Offset 0x00, read-only; after a reset 0x55507844.
    #[inline(always)]
    pub const fn magic(self) -> Register<B, Magic, ReadOnly> {
        Register::at(self.bus, self.base)
    }

    /// Version of this map.
    ///
    /// Offset 0x04, read-only; after a reset 0x00010000.
    #[inline(always)]
    pub const fn version(self) -> Register<B, Version, ReadOnly> {
        Register::at(self.bus, self.base + 0x4)
    }

    /// Name of the board: ASCII, 16 bytes, the first one in the lowest byte of the first word,
    /// filled up with zeros. An image carries the name of its board and is refused by another one.
    ///
    /// Offset 0x10, read-only; after a reset of the board.
    ///
    /// None if `index` is not below [`BOARD_COUNT`].
    #[inline(always)]
    pub const fn board(self, index: usize) -> Option<Register<B, Board, ReadOnly>> {
        if index < BOARD_COUNT {
            Some(Register::at(self.bus, self.base + 0x10 + index as u32 * 0x4))
        } else {
            None
        }
    }

    /// Revision of the gateware: the git commit that it was built from, 20 bytes as git prints
    /// them, the first one in the lowest byte of the first word.
    ///
    /// Offset 0x20, read-only; after a reset of the board.
    ///
    /// None if `index` is not below [`REVISION_COUNT`].
    #[inline(always)]
    pub const fn revision(self, index: usize) -> Option<Register<B, Revision, ReadOnly>> {
        if index < REVISION_COUNT {
            Some(Register::at(self.bus, self.base + 0x20 + index as u32 * 0x4))
        } else {
            None
        }
    }

    /// What the gateware has.
    ///
    /// Offset 0x40, read-only; after a reset of the board.
    #[inline(always)]
    pub const fn capabilities(self) -> Register<B, Capabilities, ReadOnly> {
        Register::at(self.bus, self.base + 0x40)
    }

    /// Clock of the core and of the peripherals.
    ///
    /// Offset 0x44, read-only; after a reset of the board.
    #[inline(always)]
    pub const fn clock(self) -> Register<B, Clock, ReadOnly> {
        Register::at(self.bus, self.base + 0x44)
    }
}

/// Says that this map is at this address. Read it before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Magic(u32);

impl Magic {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x55507844);

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

    /// The letters DxPU, the first one in the lowest byte.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn magic(self) -> u32 {
        self.0
    }

    /// With another [`magic`](Self::magic), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_magic(self, magic: u32) -> Self {
        Self(magic)
    }
}

impl Value for Magic {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Version of this map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u32);

impl Version {
    /// What it holds after a reset.
    pub const RESET: Self = Self(0x00010000);

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

    /// Grows when something is added. Firmware runs on every minor version from the one it was made
    /// for.
    ///
    /// Bits 15:0, r.
    #[inline(always)]
    pub const fn minor(self) -> u16 {
        self.0 as u16
    }

    /// With another [`minor`](Self::minor), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_minor(self, minor: u16) -> Self {
        Self((self.0 & !0xffff) | (minor as u32))
    }

    /// Grows when something changes its meaning or goes away. Firmware refuses another major
    /// version.
    ///
    /// Bits 31:16, r.
    #[inline(always)]
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// With another [`major`](Self::major), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_major(self, major: u16) -> Self {
        Self((self.0 & !0xffff0000) | ((major as u32) << 16))
    }
}

impl Value for Version {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Name of the board: ASCII, 16 bytes, the first one in the lowest byte of the first word,
/// filled up with zeros. An image carries the name of its board and is refused by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Board(u32);

impl Board {
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

    /// Four letters of the name.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn letters(self) -> u32 {
        self.0
    }

    /// With another [`letters`](Self::letters), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_letters(self, letters: u32) -> Self {
        Self(letters)
    }
}

impl Value for Board {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Revision of the gateware: the git commit that it was built from, 20 bytes as git prints
/// them, the first one in the lowest byte of the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision(u32);

impl Revision {
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

    /// Four bytes of the commit.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn commit(self) -> u32 {
        self.0
    }

    /// With another [`commit`](Self::commit), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_commit(self, commit: u32) -> Self {
        Self(commit)
    }
}

impl Value for Revision {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// What the gateware has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capabilities(u32);

impl Capabilities {
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

    /// It can be the host side of the fabric: slot 0 faces a host.
    ///
    /// Bit 0, r.
    #[inline(always)]
    pub const fn host_role(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// With another [`host_role`](Self::host_role), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_host_role(self, host_role: bool) -> Self {
        Self((self.0 & !0x1) | (host_role as u32))
    }

    /// It can be the box side of the fabric: slots face devices.
    ///
    /// Bit 1, r.
    #[inline(always)]
    pub const fn box_role(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// With another [`box_role`](Self::box_role), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_box_role(self, box_role: bool) -> Self {
        Self((self.0 & !0x2) | ((box_role as u32) << 1))
    }

    /// The CRC engine is there.
    ///
    /// Bit 2, r.
    #[inline(always)]
    pub const fn crc_engine(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// With another [`crc_engine`](Self::crc_engine), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_crc_engine(self, crc_engine: bool) -> Self {
        Self((self.0 & !0x4) | ((crc_engine as u32) << 2))
    }

    /// The gateware was built from a changed tree: the commit alone does not tell what it is.
    ///
    /// Bit 3, r.
    #[inline(always)]
    pub const fn modified(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// With another [`modified`](Self::modified), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_modified(self, modified: bool) -> Self {
        Self((self.0 & !0x8) | ((modified as u32) << 3))
    }

    /// Slots that are there, 1 to 16.
    ///
    /// Bits 12:8, r.
    #[inline(always)]
    pub const fn slots(self) -> Bits<5> {
        Bits::low_of(self.0 >> 8)
    }

    /// With another [`slots`](Self::slots), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_slots(self, slots: Bits<5>) -> Self {
        Self((self.0 & !0x1f00) | (slots.get() << 8))
    }

    /// Ethernet ports that are there, 1 or 2.
    ///
    /// Bits 17:16, r.
    #[inline(always)]
    pub const fn ports(self) -> Bits<2> {
        Bits::low_of(self.0 >> 16)
    }

    /// With another [`ports`](Self::ports), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_ports(self, ports: Bits<2>) -> Self {
        Self((self.0 & !0x30000) | (ports.get() << 16))
    }

    /// I2C buses that are there, 0 to 2.
    ///
    /// Bits 19:18, r.
    #[inline(always)]
    pub const fn i2c_buses(self) -> Bits<2> {
        Bits::low_of(self.0 >> 18)
    }

    /// With another [`i2c_buses`](Self::i2c_buses), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_i2c_buses(self, i2c_buses: Bits<2>) -> Self {
        Self((self.0 & !0xc0000) | (i2c_buses.get() << 18))
    }

    /// Binary logarithm of the largest queue's number of descriptors, 4 to 15.
    ///
    /// Bits 23:20, r.
    #[inline(always)]
    pub const fn queue_order(self) -> Bits<4> {
        Bits::low_of(self.0 >> 20)
    }

    /// With another [`queue_order`](Self::queue_order), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_queue_order(self, queue_order: Bits<4>) -> Self {
        Self((self.0 & !0xf00000) | (queue_order.get() << 20))
    }

    /// Largest data payload of a TLP that the slots take.
    ///
    /// Bits 26:24, r.
    #[inline(always)]
    pub const fn max_payload(self) -> values::PayloadSize {
        values::PayloadSize::from_bits(self.0 >> 24)
    }

    /// With another [`max_payload`](Self::max_payload), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_max_payload(self, max_payload: values::PayloadSize) -> Self {
        Self((self.0 & !0x7000000) | (max_payload.bits() << 24))
    }
}

impl Value for Capabilities {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}

/// Clock of the core and of the peripherals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clock(u32);

impl Clock {
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

    /// Frequency in Hz.
    ///
    /// Bits 31:0, r.
    #[inline(always)]
    pub const fn hertz(self) -> u32 {
        self.0
    }

    /// With another [`hertz`](Self::hertz), as the hardware does it.
    #[inline(always)]
    #[must_use]
    pub const fn with_hertz(self, hertz: u32) -> Self {
        Self(hertz)
    }
}

impl Value for Clock {
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0
    }
}
