//! What fields of a few bits say.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use crate::Bits;

/// What `id.capabilities.max_payload` or `slot.control.max_payload` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadSize {
    /// 128 bytes.
    Bytes128,
    /// 256 bytes.
    Bytes256,
    /// 512 bytes.
    Bytes512,
    /// 1024 bytes.
    Bytes1024,
    /// 2048 bytes.
    Bytes2048,
    /// 4096 bytes.
    Bytes4096,
    /// No meaning is known.
    Unknown(Bits<3>),
}

impl PayloadSize {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x7 {
            0 => Self::Bytes128,
            1 => Self::Bytes256,
            2 => Self::Bytes512,
            3 => Self::Bytes1024,
            4 => Self::Bytes2048,
            5 => Self::Bytes4096,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bytes128 => 0,
            Self::Bytes256 => 1,
            Self::Bytes512 => 2,
            Self::Bytes1024 => 3,
            Self::Bytes2048 => 4,
            Self::Bytes4096 => 5,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `reset_control.status.cause` or `reset_control.request.cause` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResetCause {
    /// Power came on, or the gateware was loaded.
    Power,
    /// The board's reset button or its supervisor.
    Pin,
    /// The watchdog was not fed in time.
    Watchdog,
    /// Firmware asked for it.
    Software,
    /// Firmware asked for it after a panic; the scratch words may say more.
    Panic,
    /// A debugger asked for it (ndmreset of the RISC-V debug module).
    Debug,
    /// No meaning is known.
    Unknown(Bits<3>),
}

impl ResetCause {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x7 {
            0 => Self::Power,
            1 => Self::Pin,
            2 => Self::Watchdog,
            3 => Self::Software,
            4 => Self::Panic,
            5 => Self::Debug,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Power => 0,
            Self::Pin => 1,
            Self::Watchdog => 2,
            Self::Software => 3,
            Self::Panic => 4,
            Self::Debug => 5,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `crc.start.algorithm` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrcAlgorithm {
    /// CRC-32/ISCSI (Castagnoli, RFC 3720 appendix B.4): the CRC of the fabric's frames.
    Crc32c,
    /// CRC-32/ISO-HDLC: the CRC of a TLP in its record, and PCIe's link CRC over sequence number
    /// and TLP.
    Crc32,
    /// CRC-32/ISO-HDLC with bit 0 of the header's Type and its EP bit taken as 1, for a TLP without
    /// prefixes: PCIe's end-to-end CRC. Only at the beginning of a TLP; what follows continues with
    /// `crc_32`.
    Ecrc,
    /// No meaning is known.
    Unknown(Bits<2>),
}

impl CrcAlgorithm {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x3 {
            0 => Self::Crc32c,
            1 => Self::Crc32,
            2 => Self::Ecrc,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Crc32c => 0,
            Self::Crc32 => 1,
            Self::Ecrc => 2,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `spi.window.address` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpiAddress {
    /// 3 bytes.
    Bytes3,
    /// 4 bytes.
    Bytes4,
}

impl SpiAddress {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x1 {
            0 => Self::Bytes3,
            _ => Self::Bytes4,
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bytes3 => 0,
            Self::Bytes4 => 1,
        }
    }
}

/// What `mac.link.speed` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EthernetSpeed {
    /// The link is down.
    None,
    /// 10 Mbit/s.
    Mbit10,
    /// 100 Mbit/s.
    Mbit100,
    /// 1 Gbit/s.
    Gbit1,
    /// 2.5 Gbit/s.
    Gbit2_5,
    /// 10 Gbit/s.
    Gbit10,
    /// 25 Gbit/s.
    Gbit25,
    /// 40 Gbit/s.
    Gbit40,
    /// 100 Gbit/s.
    Gbit100,
    /// No meaning is known.
    Unknown(Bits<4>),
}

impl EthernetSpeed {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0xf {
            0 => Self::None,
            1 => Self::Mbit10,
            2 => Self::Mbit100,
            3 => Self::Gbit1,
            4 => Self::Gbit2_5,
            5 => Self::Gbit10,
            6 => Self::Gbit25,
            7 => Self::Gbit40,
            8 => Self::Gbit100,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Mbit10 => 1,
            Self::Mbit100 => 2,
            Self::Gbit1 => 3,
            Self::Gbit2_5 => 4,
            Self::Gbit10 => 5,
            Self::Gbit25 => 6,
            Self::Gbit40 => 7,
            Self::Gbit100 => 8,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `mac.mdio.operation` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MdioOperation {
    /// Nothing.
    None,
    /// Write the data (IEEE 802.3 clause 22).
    Write,
    /// Read the data (IEEE 802.3 clause 22).
    Read,
    /// No meaning is known.
    Unknown(Bits<2>),
}

impl MdioOperation {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x3 {
            0 => Self::None,
            1 => Self::Write,
            2 => Self::Read,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Write => 1,
            Self::Read => 2,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `slot.status.link` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotLink {
    /// No link partner is detected, or the link is disabled or in reset.
    Down,
    /// The link trains, or initialises its flow control.
    Training,
    /// TLPs can pass (DL_Active).
    Up,
    /// No meaning is known.
    Unknown(Bits<2>),
}

impl SlotLink {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x3 {
            0 => Self::Down,
            1 => Self::Training,
            2 => Self::Up,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Down => 0,
            Self::Training => 1,
            Self::Up => 2,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `slot.status.speed` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotSpeed {
    /// The link is down.
    None,
    /// 2.5 GT/s.
    Gt2_5,
    /// 5 GT/s.
    Gt5,
    /// 8 GT/s.
    Gt8,
    /// 16 GT/s.
    Gt16,
    /// 32 GT/s.
    Gt32,
    /// 64 GT/s.
    Gt64,
    /// No meaning is known.
    Unknown(Bits<4>),
}

impl SlotSpeed {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0xf {
            0 => Self::None,
            1 => Self::Gt2_5,
            2 => Self::Gt5,
            3 => Self::Gt8,
            4 => Self::Gt16,
            5 => Self::Gt32,
            6 => Self::Gt64,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Gt2_5 => 1,
            Self::Gt5 => 2,
            Self::Gt8 => 3,
            Self::Gt16 => 4,
            Self::Gt32 => 5,
            Self::Gt64 => 6,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `slot.control.attention_indicator` or `slot.control.power_indicator` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Indicator {
    /// Off.
    Off,
    /// On.
    On,
    /// Blinking at 1 to 2 Hz (PCI Express Base Specification 6.0, section 6.7.1.1).
    Blink,
    /// No meaning is known.
    Unknown(Bits<2>),
}

impl Indicator {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x3 {
            0 => Self::Off,
            1 => Self::On,
            2 => Self::Blink,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::On => 1,
            Self::Blink => 2,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `tlp_descriptor.status.event` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotEvent {
    /// No event: the descriptor carries a TLP.
    None,
    /// The data link layer is up; speed and width are in the slot's status.
    LinkUp,
    /// The data link layer went down.
    LinkDown,
    /// PERST# was asserted from outside (by the host).
    PerstAsserted,
    /// PERST# was released from outside (by the host).
    PerstReleased,
    /// A hot reset came over the link from the host.
    HotReset,
    /// A device is present.
    Inserted,
    /// The device is not present any more.
    Removed,
    /// The slot's power failed; it was switched off.
    PowerFault,
    /// The device asserted WAKE#.
    Wake,
    /// The slot's attention button was pressed.
    AttentionButton,
    /// No meaning is known.
    Unknown(Bits<4>),
}

impl SlotEvent {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0xf {
            0 => Self::None,
            1 => Self::LinkUp,
            2 => Self::LinkDown,
            3 => Self::PerstAsserted,
            4 => Self::PerstReleased,
            5 => Self::HotReset,
            6 => Self::Inserted,
            7 => Self::Removed,
            8 => Self::PowerFault,
            9 => Self::Wake,
            10 => Self::AttentionButton,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::LinkUp => 1,
            Self::LinkDown => 2,
            Self::PerstAsserted => 3,
            Self::PerstReleased => 4,
            Self::HotReset => 5,
            Self::Inserted => 6,
            Self::Removed => 7,
            Self::PowerFault => 8,
            Self::Wake => 9,
            Self::AttentionButton => 10,
            Self::Unknown(bits) => bits.get(),
        }
    }
}

/// What `tlp_descriptor.status.class` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlpClass {
    /// Memory writes and messages.
    Posted,
    /// Reads, configuration, I/O and atomic requests, and deferrable memory writes.
    NonPosted,
    /// Completions.
    Completion,
    /// No meaning is known.
    Unknown(Bits<2>),
}

impl TlpClass {
    /// From a field's bits; higher ones are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 0x3 {
            0 => Self::Posted,
            1 => Self::NonPosted,
            2 => Self::Completion,
            other => Self::Unknown(Bits::low_of(other)),
        }
    }

    /// As a field holds it.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Posted => 0,
            Self::NonPosted => 1,
            Self::Completion => 2,
            Self::Unknown(bits) => bits.get(),
        }
    }
}
