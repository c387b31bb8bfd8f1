//! Faults that tests and the simulator plant, to see that their oracles find them. Outside of
//! those there is none.

use super::Link;
use crate::canaries::{self, Canary};

/// A mistake that an implementation could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum Fault {
    /// Non-posted TLPs and completions pass posted ones.
    IgnoreOrder,
    /// Records of another epoch are taken for the binding that is open.
    IgnoreEpoch,
    /// Records are taken again when they come again.
    IgnoreDuplicates,
    /// Records are acknowledged that were not stored.
    AcknowledgeEarly,
    /// A drained TLP's credit does not come back.
    ForgetCredit,
    /// A lost record is not sent again.
    ForgetLoss,
    /// A TLP's own CRC is not looked at.
    IgnoreTlpCrc,
    /// A record of a closed binding becomes nothing.
    NothingForClosed,
}

impl Fault {
    /// The same mistake, as the simulator plants it.
    const fn canary(self) -> Canary {
        match self {
            Self::IgnoreOrder => Canary::IgnoreOrder,
            Self::IgnoreEpoch => Canary::IgnoreEpoch,
            Self::IgnoreDuplicates => Canary::IgnoreDuplicates,
            Self::AcknowledgeEarly => Canary::AcknowledgeEarly,
            Self::ForgetCredit => Canary::ForgetCredit,
            Self::ForgetLoss => Canary::ForgetLoss,
            Self::IgnoreTlpCrc => Canary::IgnoreTlpCrc,
            Self::NothingForClosed => Canary::NothingForClosed,
        }
    }
}

impl Link {
    /// Whether this link makes this mistake.
    pub(super) fn faulty(&self, fault: Fault) -> bool {
        cfg!(test) && self.fault == Some(fault) || canaries::planted(fault.canary())
    }
}
