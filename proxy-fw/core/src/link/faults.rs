//! Faults that tests and the simulator plant, to see that their oracles find them. Outside of
//! those there is none.

use super::Link;
pub(super) use crate::canaries::Canary as Fault;
use crate::canaries::planted;

impl Link {
    /// Whether this link makes this mistake.
    pub(super) fn faulty(&self, fault: Fault) -> bool {
        cfg!(test) && self.fault == Some(fault) || planted(fault)
    }
}
