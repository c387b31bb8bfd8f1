//! Bits and enums, both ways, and the specification's names.

use super::{AddressType, Attributes, Class, CplStatus, MsgCode, MsgRouting, TlpType};
use core::fmt;

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
    /// The three bits: IDO, RO, NS, highest first.
    pub const fn bits(self) -> u8 {
        (self.id_based_ordering as u8) << 2
            | (self.relaxed_ordering as u8) << 1
            | self.no_snoop as u8
    }

    /// From the three bits.
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
    ($($name:ident = $byte:literal, $text:literal;)*) => {
        impl MsgCode {
            /// Every known code.
            pub const KNOWN: &[MsgCode] = &[$(Self::$name,)*];

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

            /// The specification's name; `None` for an unknown code.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    Self::Unknown(_) => None,
                }
            }
        }
    };
}

// Values as in Linux's drivers/pci/pci.h (INTx, PME_Turn_Off) and cocotbext-pcie's `MsgType`;
// they agree but for PME_TO_Ack, which is 1Ah in the latter and 1Bh in the other public sources.
// The hot-plug messages of the specification's first revision (40h to 48h) are in neither.
message_codes! {
    Unlock = 0x00, "Unlock";
    InvalidateRequest = 0x01, "Invalidate_Request";
    InvalidateCompletion = 0x02, "Invalidate_Completion";
    PageRequest = 0x04, "Page_Request";
    PrgResponse = 0x05, "PRG_Response";
    Ltr = 0x10, "LTR";
    Obff = 0x12, "OBFF";
    PmActiveStateNak = 0x14, "PM_Active_State_Nak";
    PmPme = 0x18, "PM_PME";
    PmeTurnOff = 0x19, "PME_Turn_Off";
    PmeToAck = 0x1b, "PME_TO_Ack";
    AssertInta = 0x20, "Assert_INTA";
    AssertIntb = 0x21, "Assert_INTB";
    AssertIntc = 0x22, "Assert_INTC";
    AssertIntd = 0x23, "Assert_INTD";
    DeassertInta = 0x24, "Deassert_INTA";
    DeassertIntb = 0x25, "Deassert_INTB";
    DeassertIntc = 0x26, "Deassert_INTC";
    DeassertIntd = 0x27, "Deassert_INTD";
    ErrCor = 0x30, "ERR_COR";
    ErrNonFatal = 0x31, "ERR_NONFATAL";
    ErrFatal = 0x33, "ERR_FATAL";
    AttentionIndicatorOff = 0x40, "Attention_Indicator_Off";
    AttentionIndicatorOn = 0x41, "Attention_Indicator_On";
    AttentionIndicatorBlink = 0x43, "Attention_Indicator_Blink";
    PowerIndicatorOff = 0x44, "Power_Indicator_Off";
    PowerIndicatorOn = 0x45, "Power_Indicator_On";
    PowerIndicatorBlink = 0x47, "Power_Indicator_Blink";
    AttentionButtonPressed = 0x48, "Attention_Button_Pressed";
    SetSlotPowerLimit = 0x50, "Set_Slot_Power_Limit";
    PtmRequest = 0x52, "PTM_Request";
    PtmResponse = 0x53, "PTM_Response";
    VendorDefined0 = 0x7e, "Vendor_Defined_Type_0";
    VendorDefined1 = 0x7f, "Vendor_Defined_Type_1";
}

impl TlpType {
    /// The specification's abbreviation, as its table 2-3 has it. Messages are "Msg" and "MsgD"
    /// whatever their routing; an unknown type is "reserved".
    pub const fn name(self) -> &'static str {
        match self {
            Self::MRd => "MRd",
            Self::MRdLk => "MRdLk",
            Self::MWr => "MWr",
            Self::DMWr => "DMWr",
            Self::IORd => "IORd",
            Self::IOWr => "IOWr",
            Self::CfgRd0 => "CfgRd0",
            Self::CfgWr0 => "CfgWr0",
            Self::CfgRd1 => "CfgRd1",
            Self::CfgWr1 => "CfgWr1",
            Self::Msg(_) => "Msg",
            Self::MsgD(_) => "MsgD",
            Self::Cpl => "Cpl",
            Self::CplD => "CplD",
            Self::CplLk => "CplLk",
            Self::CplDLk => "CplDLk",
            Self::FetchAdd => "FetchAdd",
            Self::Swap => "Swap",
            Self::Cas => "CAS",
            Self::Unknown(_) => "reserved",
        }
    }
}

impl MsgRouting {
    /// All eight, in the order of their values.
    pub const ALL: [MsgRouting; 8] = [
        Self::ToRootComplex,
        Self::ByAddress,
        Self::ById,
        Self::Broadcast,
        Self::Local,
        Self::Gathered,
        Self::Reserved6,
        Self::Reserved7,
    ];

    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToRootComplex => "to-root",
            Self::ByAddress => "by-address",
            Self::ById => "by-id",
            Self::Broadcast => "broadcast",
            Self::Local => "local",
            Self::Gathered => "gathered",
            Self::Reserved6 => "reserved6",
            Self::Reserved7 => "reserved7",
        }
    }
}

impl fmt::Display for TlpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(byte) => write!(f, "reserved type {byte:#04x}"),
            known => f.pad(known.name()),
        }
    }
}

impl fmt::Display for MsgCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "{:#04x}", self.byte()),
        }
    }
}

impl fmt::Display for MsgRouting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for CplStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Success => "SC",
            Self::UnsupportedRequest => "UR",
            Self::ConfigRetry => "CRS",
            Self::CompleterAbort => "CA",
            Self::Unknown(bits) => return write!(f, "{bits}"),
        })
    }
}
