//! What to do next about one binding.

use crate::types::{BindingRecord, Desired, Phase};
use proxy_core::control::Removal;

/// What is known of the two proxies of a binding: the life of each that is connected and has had
/// its tables read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The box's incarnation.
    pub at_box: Option<u32>,
    /// The host proxy's incarnation.
    pub at_host: Option<u32>,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing now; something will change first.
    Wait,
    /// A proxy has restarted since it got the binding, and lost it.
    Fail(&'static str),
    /// Write the box's table.
    BindSlot,
    /// Write the host's table.
    BindPort,
    /// Take it out of the host.
    UnbindPort(Removal),
    /// Count it as out of a host that cannot be asked.
    SkipPort,
    /// Let the box free the functions.
    UnbindSlot,
}

/// Decides. Bound box first, then host; released host first, then box.
pub fn next(binding: &BindingRecord, ends: Ends) -> Action {
    match binding.desired {
        Desired::Bound => towards_bound(binding, ends),
        Desired::Released { within_ms } => match (binding.phase, ends.at_host) {
            (Phase::Withdrawn, _) => unbind_slot(ends),
            (_, Some(_)) => Action::UnbindPort(Removal::Orderly { within_ms }),
            (_, None) => Action::Wait,
        },
        Desired::Forced => match (binding.phase, ends.at_host) {
            (Phase::Withdrawn, _) => unbind_slot(ends),
            (_, Some(_)) => Action::UnbindPort(Removal::Force),
            (_, None) => Action::SkipPort,
        },
    }
}

fn unbind_slot(ends: Ends) -> Action {
    if ends.at_box.is_some() { Action::UnbindSlot } else { Action::Wait }
}

fn towards_bound(binding: &BindingRecord, ends: Ends) -> Action {
    let lost =
        |had: Option<u32>, has: Option<u32>| matches!((had, has), (Some(a), Some(b)) if a != b);
    if binding.phase.at_box() && lost(binding.box_incarnation, ends.at_box) {
        return Action::Fail("the box proxy restarted");
    }
    if binding.phase.at_host() && lost(binding.host_incarnation, ends.at_host) {
        return Action::Fail("the host proxy restarted");
    }
    match binding.phase {
        Phase::Reserved if ends.at_box.is_some() && ends.at_host.is_some() => Action::BindSlot,
        Phase::SlotBound if ends.at_box.is_some() && ends.at_host.is_some() => Action::BindPort,
        Phase::Failed if ends.at_host.is_some() => Action::UnbindPort(Removal::Force),
        Phase::Withdrawn => unbind_slot(ends),
        _ => Action::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{AllocationId, BindingId, FunctionEpoch, NodeName, Timestamp};
    use tlp_codec::ids::{Epoch, PortId, SlotFunction};

    fn binding(phase: Phase, desired: Desired) -> BindingRecord {
        BindingRecord {
            id: BindingId(1),
            allocation: AllocationId(1),
            slot: "box1/1".parse().unwrap(),
            functions: vec![FunctionEpoch {
                function: SlotFunction::ZERO,
                epoch: Epoch::new(0, 1).unwrap(),
            }],
            host: NodeName::new("host1").unwrap(),
            port: PortId::new(0).unwrap(),
            model: String::new(),
            demand: None,
            path_set: None,
            phase,
            desired,
            box_incarnation: phase.at_box().then_some(7),
            host_incarnation: phase.at_host().then_some(8),
            operation: None,
            trouble: None,
            since: Timestamp::now(),
            changed: Timestamp::now(),
        }
    }

    const BOTH: Ends = Ends { at_box: Some(7), at_host: Some(8) };
    const NO_HOST: Ends = Ends { at_box: Some(7), at_host: None };
    const NO_BOX: Ends = Ends { at_box: None, at_host: Some(8) };
    const ORDERLY: Desired = Desired::Released { within_ms: 5 };

    #[test]
    fn every_phase_with_both_ends() {
        use Action::*;
        let force = UnbindPort(Removal::Force);
        let orderly = UnbindPort(Removal::Orderly { within_ms: 5 });
        let table = [
            (Phase::Reserved, BindSlot, orderly, force),
            (Phase::SlotBound, BindPort, orderly, force),
            (Phase::Bound, Wait, orderly, force),
            (Phase::Configured, Wait, orderly, force),
            (Phase::Failed, force, orderly, force),
            (Phase::Withdrawn, UnbindSlot, UnbindSlot, UnbindSlot),
        ];
        for (phase, bound, released, forced) in table {
            assert_eq!(next(&binding(phase, Desired::Bound), BOTH), bound, "{phase}");
            assert_eq!(next(&binding(phase, ORDERLY), BOTH), released, "{phase}");
            assert_eq!(next(&binding(phase, Desired::Forced), BOTH), forced, "{phase}");
        }
    }

    #[test]
    fn an_end_that_is_away_is_waited_for_unless_forced() {
        for phase in Phase::ALL {
            let bound = binding(phase, Desired::Bound);
            let expected =
                if phase == Phase::Withdrawn { Action::UnbindSlot } else { Action::Wait };
            assert_eq!(next(&bound, NO_HOST), expected, "{phase}");
            assert_eq!(next(&bound, Ends::default()), Action::Wait, "{phase}");
        }
        assert_eq!(next(&binding(Phase::Bound, ORDERLY), NO_HOST), Action::Wait);
        assert_eq!(next(&binding(Phase::Bound, Desired::Forced), NO_HOST), Action::SkipPort);
        assert_eq!(next(&binding(Phase::Withdrawn, Desired::Forced), NO_BOX), Action::Wait);
        assert_eq!(next(&binding(Phase::Reserved, Desired::Bound), NO_BOX), Action::Wait);
    }

    #[test]
    fn a_restarted_end_has_lost_the_binding() {
        let other_box = Ends { at_box: Some(9), ..BOTH };
        let other_host = Ends { at_host: Some(9), ..BOTH };
        for phase in Phase::ALL {
            let bound = binding(phase, Desired::Bound);
            let fails = |ends| matches!(next(&bound, ends), Action::Fail(_));
            assert_eq!(fails(other_box), phase.at_box(), "{phase}");
            assert_eq!(fails(other_host), phase.at_host(), "{phase}");
        }
    }
}
