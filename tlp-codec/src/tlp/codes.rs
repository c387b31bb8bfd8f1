//! Bits and enums, both ways.

use super::{AddressType, Attributes, Class, CplStatus, MsgCode, TlpType};

impl TlpType {
    /// The ordering and flow-control class, or `None` for an unknown type.
    pub const fn class(self) -> Option<Class> {
        match self {
            Self::MWr | Self::Msg(_) | Self::MsgD(_) => Some(Class::Posted),
            Self::Cpl | Self::CplD | Self::CplLk | Self::CplDLk => Some(Class::Completion),
            Self::Unknown(_) => None,
            _ => Some(Class::NonPosted),
        }
    }
}

impl Attributes {
    /// Attr[2:0]: IDO, RO, NS.
    pub const fn bits(self) -> u8 {
        (self.id_based_ordering as u8) << 2
            | (self.relaxed_ordering as u8) << 1
            | self.no_snoop as u8
    }

    /// From Attr[2:0].
    pub const fn from_bits(bits: u8) -> Self {
        Self {
            id_based_ordering: bits & 4 != 0,
            relaxed_ordering: bits & 2 != 0,
            no_snoop: bits & 1 != 0,
        }
    }
}

impl AddressType {
    /// From the two bits.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Untranslated,
            1 => Self::TranslationRequest,
            2 => Self::Translated,
            _ => Self::Reserved,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

impl CplStatus {
    /// From the three bits.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::Success,
            1 => Self::UnsupportedRequest,
            2 => Self::ConfigRetry,
            4 => Self::CompleterAbort,
            other => Self::Unknown(other),
        }
    }

    /// The three bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::UnsupportedRequest => 1,
            Self::ConfigRetry => 2,
            Self::CompleterAbort => 4,
            Self::Unknown(bits) => bits & 7,
        }
    }
}

macro_rules! message_codes {
    ($($name:ident = $byte:literal,)*) => {
        impl MsgCode {
            /// From the byte.
            pub const fn from_byte(byte: u8) -> Self {
                match byte {
                    $($byte => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }

            /// The byte.
            pub const fn byte(self) -> u8 {
                match self {
                    $(Self::$name => $byte,)*
                    Self::Unknown(byte) => byte,
                }
            }
        }
    };
}

message_codes! {
    InvalidateRequest = 0x01,
    InvalidateCompletion = 0x02,
    PageRequest = 0x04,
    PrgResponse = 0x05,
    Ltr = 0x10,
    Obff = 0x12,
    PmActiveStateNak = 0x14,
    PmPme = 0x18,
    PmeTurnOff = 0x19,
    PmeToAck = 0x1b,
    AssertInta = 0x20,
    AssertIntb = 0x21,
    AssertIntc = 0x22,
    AssertIntd = 0x23,
    DeassertInta = 0x24,
    DeassertIntb = 0x25,
    DeassertIntc = 0x26,
    DeassertIntd = 0x27,
    ErrCor = 0x30,
    ErrNonFatal = 0x31,
    ErrFatal = 0x33,
    AttentionIndicatorOff = 0x40,
    AttentionIndicatorOn = 0x41,
    AttentionIndicatorBlink = 0x43,
    PowerIndicatorOff = 0x44,
    PowerIndicatorOn = 0x45,
    PowerIndicatorBlink = 0x47,
    AttentionButtonPressed = 0x48,
    SetSlotPowerLimit = 0x50,
    PtmRequest = 0x52,
    PtmResponse = 0x53,
    Unlock = 0x00,
    VendorDefined0 = 0x7e,
    VendorDefined1 = 0x7f,
}
