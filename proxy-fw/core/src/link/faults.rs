//! Faults that tests plant, to see that their oracle finds them. Outside tests there is none.

use super::Link;

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
}

impl Link {
    /// Whether this link makes this mistake.
    pub(super) fn faulty(&self, fault: Fault) -> bool {
        cfg!(test) && self.fault == Some(fault)
    }
}
