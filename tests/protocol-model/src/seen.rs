//! What an exploration has seen the manager's code do.

use manager::reconcile::action::Action;
use manager::types::{Desired, Phase};
use std::collections::BTreeMap;

/// How an end of a binding was when it was asked what is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndsSeen {
    /// Not connected, or its tables are not read yet.
    Away,
    /// In the life in which it got the binding, or it has not got it yet.
    Same,
    /// In a later life.
    Later,
}

/// Transitions and decisions.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// From which phase to which, and how often.
    pub phases: BTreeMap<(u8, u8), u64>,
    /// In which phase, wanting what, with which ends: the decision.
    pub actions: BTreeMap<(u8, u8, EndsSeen, EndsSeen), Action>,
}

/// The number of a phase in [`Phase::ALL`].
pub fn phase_number(phase: Phase) -> u8 {
    Phase::ALL.iter().position(|other| *other == phase).expect("it is one of all") as u8
}

/// 0: bound, 1: released, 2: forced.
pub fn desired_number(desired: Desired) -> u8 {
    match desired {
        Desired::Bound => 0,
        Desired::Released { .. } => 1,
        Desired::Forced => 2,
    }
}

impl Seen {
    pub(crate) fn phases(&mut self, from: Phase, to: Phase) {
        *self.phases.entry((phase_number(from), phase_number(to))).or_default() += 1;
    }
}
