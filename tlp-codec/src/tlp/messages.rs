//! What each message code goes with (PCIe 5.0 section 2.2.8 and its tables).

use super::{MsgCode, MsgRouting};

/// How a message of one code has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageForm {
    /// A bit for each routing, bit 0 for [`MsgRouting::ToRootComplex`].
    pub routings: u8,
    /// Whether it comes without data.
    pub plain: bool,
    /// Bytes of data that it may have: the fewest and the most; both 0 where it has none.
    pub data: (u16, u16),
    /// Whether a receiver checks that the traffic class is 0.
    pub traffic_class_0: bool,
}

impl MessageForm {
    /// Whether it may be routed that way.
    pub const fn allows_routing(&self, routing: MsgRouting) -> bool {
        self.routings >> routing as u8 & 1 != 0
    }

    /// Whether it may have that many bytes of data.
    pub const fn allows_data(&self, len: usize) -> bool {
        if len == 0 {
            return self.plain;
        }
        self.data.0 as usize <= len && len <= self.data.1 as usize
    }
}

const fn only(routing: MsgRouting) -> MessageForm {
    MessageForm { routings: 1 << routing as u8, plain: true, data: (0, 0), traffic_class_0: true }
}

const fn with_data(form: MessageForm, bytes: u16) -> MessageForm {
    MessageForm { data: (bytes, bytes), plain: false, ..form }
}

const fn any_class(form: MessageForm) -> MessageForm {
    MessageForm { traffic_class_0: false, ..form }
}

impl MsgCode {
    /// How a message of this code has to look, or `None` for an unknown code, which a receiver
    /// handles as an Unsupported Request (PCIe 5.0 section 2.3.1) without looking further.
    pub const fn form(self) -> Option<MessageForm> {
        use MsgRouting::{Broadcast, ById, Gathered, Local, ToRootComplex};
        Some(match self {
            Self::AssertInta
            | Self::AssertIntb
            | Self::AssertIntc
            | Self::AssertIntd
            | Self::DeassertInta
            | Self::DeassertIntb
            | Self::DeassertIntc
            | Self::DeassertIntd
            | Self::PmActiveStateNak
            | Self::Ltr
            | Self::Obff
            | Self::PtmRequest => only(Local),
            Self::PmPme | Self::ErrCor | Self::ErrNonFatal | Self::ErrFatal => only(ToRootComplex),
            Self::PmeTurnOff | Self::Unlock => only(Broadcast),
            Self::PmeToAck => only(Gathered),
            Self::SetSlotPowerLimit => with_data(only(Local), 4),
            // PTM Response without data, PTM ResponseD with the propagation delay.
            Self::PtmResponse => MessageForm { plain: true, ..with_data(only(Local), 4) },
            Self::AttentionIndicatorOn
            | Self::AttentionIndicatorBlink
            | Self::AttentionIndicatorOff
            | Self::PowerIndicatorOn
            | Self::PowerIndicatorBlink
            | Self::PowerIndicatorOff
            | Self::AttentionButtonPressed => any_class(only(Local)),
            Self::VendorDefined0 | Self::VendorDefined1 => MessageForm {
                routings: 1 << ToRootComplex as u8
                    | 1 << ById as u8
                    | 1 << Broadcast as u8
                    | 1 << Local as u8,
                plain: true,
                data: (4, 4096),
                traffic_class_0: false,
            },
            Self::InvalidateRequest => any_class(with_data(only(ById), 8)),
            Self::InvalidateCompletion | Self::PrgResponse => any_class(only(ById)),
            Self::PageRequest => any_class(only(ToRootComplex)),
            Self::Unknown(_) => return None,
        })
    }
}
