//! The vocabulary of TLP headers.

/// Which of PCIe's three flow-control and ordering classes a TLP is in (PCIe 5.0 section 2.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Memory writes and messages.
    Posted = 0,
    /// Reads, I/O, configuration, atomics, deferrable writes.
    NonPosted = 1,
    /// Completions.
    Completion = 2,
}

impl Class {
    /// All three, in wire order.
    pub const ALL: [Class; 3] = [Class::Posted, Class::NonPosted, Class::Completion];
}

/// The Fmt and Type fields, decoded (PCIe 5.0 table 2-3). Which width of header an address needs
/// is not part of it: see [`Packet::has_4dw_header`](super::Packet::has_4dw_header).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlpType {
    /// Memory read.
    MRd,
    /// Locked memory read (legacy).
    MRdLk,
    /// Memory write.
    MWr,
    /// Deferrable memory write (DMWr ECN).
    DMWr,
    /// I/O read.
    IORd,
    /// I/O write.
    IOWr,
    /// Configuration read, type 0.
    CfgRd0,
    /// Configuration write, type 0.
    CfgWr0,
    /// Configuration read, type 1.
    CfgRd1,
    /// Configuration write, type 1.
    CfgWr1,
    /// Message without data.
    Msg(MsgRouting),
    /// Message with data.
    MsgD(MsgRouting),
    /// Completion without data.
    Cpl,
    /// Completion with data.
    CplD,
    /// Locked completion without data.
    CplLk,
    /// Locked completion with data.
    CplDLk,
    /// Atomic fetch and add.
    FetchAdd,
    /// Atomic unconditional swap.
    Swap,
    /// Atomic compare and swap.
    Cas,
    /// A reserved combination, kept as it came: the first header byte.
    Unknown(u8),
}

/// How a message is routed (Type bits 2:0; PCIe 5.0 table 2-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MsgRouting {
    /// To the root complex.
    ToRootComplex = 0,
    /// By address.
    ByAddress = 1,
    /// By ID.
    ById = 2,
    /// From the root complex to everything below.
    Broadcast = 3,
    /// Ends at the receiver.
    Local = 4,
    /// Gathered and routed to the root complex.
    Gathered = 5,
    /// Reserved, treated as ending at the receiver.
    Reserved6 = 6,
    /// Reserved, treated as ending at the receiver.
    Reserved7 = 7,
}

impl MsgRouting {
    /// From the three bits.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::ToRootComplex,
            1 => Self::ByAddress,
            2 => Self::ById,
            3 => Self::Broadcast,
            4 => Self::Local,
            5 => Self::Gathered,
            6 => Self::Reserved6,
            _ => Self::Reserved7,
        }
    }
}

/// Message codes (PCIe 5.0 tables 2-18 to 2-30).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the specification's
pub enum MsgCode {
    AssertInta,
    AssertIntb,
    AssertIntc,
    AssertIntd,
    DeassertInta,
    DeassertIntb,
    DeassertIntc,
    DeassertIntd,
    PmActiveStateNak,
    PmPme,
    PmeTurnOff,
    PmeToAck,
    ErrCor,
    ErrNonFatal,
    ErrFatal,
    Unlock,
    SetSlotPowerLimit,
    Ltr,
    Obff,
    PtmRequest,
    PtmResponse,
    AttentionIndicatorOn,
    AttentionIndicatorBlink,
    AttentionIndicatorOff,
    PowerIndicatorOn,
    PowerIndicatorBlink,
    PowerIndicatorOff,
    AttentionButtonPressed,
    VendorDefined0,
    VendorDefined1,
    InvalidateRequest,
    InvalidateCompletion,
    PageRequest,
    PrgResponse,
    /// Any other code, kept.
    Unknown(u8),
}

/// Completion status (PCIe 5.0 table 2-38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CplStatus {
    /// SC, 000b.
    Success,
    /// UR, 001b.
    UnsupportedRequest,
    /// CRS (called RRS from PCIe 6.0 on), 010b.
    ConfigRetry,
    /// CA, 100b.
    CompleterAbort,
    /// A reserved status; a receiver treats it as UR (PCIe 5.0 section 2.2.9).
    Unknown(u8),
}

/// Attributes: relaxed ordering, no snoop, ID-based ordering (PCIe 5.0 section 2.2.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Attributes {
    /// RO.
    pub relaxed_ordering: bool,
    /// NS.
    pub no_snoop: bool,
    /// IDO.
    pub id_based_ordering: bool,
}

/// The AT field (PCIe 5.0 table 10-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum AddressType {
    /// Untranslated, 00b.
    #[default]
    Untranslated = 0,
    /// Translation request, 01b.
    TranslationRequest = 1,
    /// Translated, 10b.
    Translated = 2,
    /// Reserved, 11b.
    Reserved = 3,
}

/// First and last doubleword byte enables (PCIe 5.0 section 2.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteEnables {
    /// For the first doubleword, bit 0 is the lowest address. 0 to 15.
    pub first: u8,
    /// For the last doubleword; 0 in a TLP of one doubleword. 0 to 15.
    pub last: u8,
}

impl ByteEnables {
    /// Every byte of a transfer of `dwords` doublewords.
    pub const fn all(dwords: u16) -> Self {
        Self { first: 0xf, last: if dwords > 1 { 0xf } else { 0 } }
    }

    /// The enables and the length in doublewords of a contiguous transfer that starts at
    /// `address` and has `bytes` bytes (0 to 4096, not crossing a 4 KB boundary). One of no bytes
    /// is one doubleword with nothing enabled (PCIe 5.0 section 2.2.5).
    pub const fn for_range(address: u64, bytes: usize) -> (Self, u16) {
        if bytes == 0 {
            return (Self { first: 0, last: 0 }, 1);
        }
        let offset = (address & 3) as usize;
        let dwords = (offset + bytes).div_ceil(4);
        let tail = (offset + bytes) & 3;
        let first = 0xf_u8 << offset & 0xf;
        let last = if tail == 0 { 0xf } else { (1_u8 << tail) - 1 };
        let enables =
            if dwords == 1 { Self { first: first & last, last: 0 } } else { Self { first, last } };
        (enables, dwords as u16)
    }

    /// Bytes from the first to the last enabled one, 1 to 4096: what the first completion of a
    /// read of `length_dw` doublewords has as its byte count (PCIe 5.0 section 2.2.9, the table
    /// "Calculating Byte Count from Length and Byte Enables"). A read that enables nothing counts
    /// as one byte.
    pub const fn byte_count(self, length_dw: u16) -> u16 {
        let skipped = self.first_offset() as u16;
        if length_dw <= 1 {
            let used = 8 - (self.first & 0xf).leading_zeros() as u16;
            return if used == 0 { 1 } else { used - skipped };
        }
        let unused = (self.last & 0xf).leading_zeros() as u16 - 4;
        length_dw.saturating_mul(4).saturating_sub(skipped + unused)
    }

    /// Offset of the first enabled byte in its doubleword, 0 to 3; 0 where nothing is enabled.
    pub const fn first_offset(self) -> u8 {
        match self.first & 0xf {
            0 => 0,
            first => first.trailing_zeros() as u8,
        }
    }

    /// The lower address of the first completion of a read from `address` (PCIe 5.0 section
    /// 2.2.9): the seven lowest address bits of the first enabled byte.
    pub const fn lower_address(self, address: u64) -> u8 {
        (address & 0x7c) as u8 | self.first_offset()
    }
}

/// TH and its hints: processing hint and steering tag (PCIe 5.0 section 2.2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TphHint {
    /// PH, the two lowest address bits' place. 0 to 3.
    pub processing_hint: u8,
    /// Steering tag, bits 7:0: in the tag's place of a posted write, else (reads, deferrable
    /// writes, atomics) in the byte enables' place, where it implies that all bytes are enabled.
    /// An extended TPH prefix has bits 15:8.
    pub steering_tag: u8,
}
