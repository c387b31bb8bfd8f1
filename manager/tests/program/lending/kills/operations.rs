//! Operations that go on to their end.

use super::pool::Pool;
use super::{Kind, ONE, TWO, TWO_NO_WAIT, Then, at_every_event, at_every_step};
use crate::common::fake::Script;
use manager::types::OperationKind;
use proxy_core::control::{BindingFailure, ControlError, Event, Request};

/// A kind of operation that has no walk does not compile.
const _: fn(&OperationKind) -> &'static [fn()] = |kind| match kind {
    OperationKind::Allocate { .. } => &[
        of_an_allocation,
        of_an_allocation_that_is_rolled_back,
        of_an_allocation_that_is_not_enabled_in_time,
        of_an_allocation_whose_operation_takes_too_long,
    ],
    OperationKind::Release { .. } => &[of_a_release, of_a_release_by_force, of_a_host_that_is_gone],
    OperationKind::TakeBack { .. } => {
        &[of_a_take_back, of_a_take_back_of_a_rack, of_a_lease_that_is_over]
    }
    OperationKind::Replace { .. } => &[of_a_replacement, of_a_replacement_by_the_policy],
    OperationKind::Drain { .. } => {
        &[of_a_drain, of_a_drain_of_a_rack, of_a_drain_that_replaces, of_a_path_that_is_drained]
    }
    OperationKind::Forget { .. } => &[
        of_a_host_that_is_forgotten,
        of_a_box_that_is_forgotten,
        of_a_box_that_is_forgotten_while_its_host_is_away,
    ],
};

#[test]
fn of_an_allocation() {
    at_every_step(Kind::new(&[], &[TWO_NO_WAIT], &[2]));
}

#[test]
fn of_a_release() {
    at_every_step(Kind::new(&[TWO], &["release ALLOC --no-wait"], &[0]));
}

#[test]
fn of_a_release_by_force() {
    at_every_step(Kind::new(&[TWO], &["release ALLOC --force --no-wait"], &[0]));
}

#[test]
fn of_a_drain() {
    let begin = &["drain box1 --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

#[test]
fn of_a_drain_of_a_rack() {
    let begin = &["drain rack:r1 --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

/// The host comes back when it is forgotten, and is a new one.
#[test]
fn of_a_host_that_is_forgotten() {
    let forget = Kind::new(&[TWO], &["forget host1 --force --no-wait"], &[0]);
    at_every_step(Kind { away: &["host1"], ..forget });
}

/// So does the box, and what it still has is taken out of it.
#[test]
fn of_a_box_that_is_forgotten() {
    let forget = Kind::new(&[TWO], &["forget box1 --force --no-wait"], &[0]);
    at_every_step(Kind { away: &["box1"], ..forget });
}

/// Nobody is asked anything.
#[test]
fn of_a_box_that_is_forgotten_while_its_host_is_away() {
    let forget = Kind::new(&[TWO], &["forget box1 --force --no-wait"], &[0]);
    at_every_event(Kind { away: &["host1", "box1"], ..forget });
}

fn the_first_is_free(pool: &Pool) -> bool {
    pool.at_box().bound(1).is_none()
}

#[test]
fn of_a_replacement() {
    let begin = &["replace BIND --reason x --no-wait"];
    at_every_step(Kind { over: the_first_is_free, ..Kind::new(&[ONE], begin, &[1]) });
}

#[test]
fn of_a_drain_that_replaces() {
    let begin = &["drain box1/1 --replace --reason x --no-wait"];
    at_every_step(Kind { over: the_first_is_free, ..Kind::new(&[ONE], begin, &[1]) });
}

#[test]
fn of_a_take_back() {
    let begin = &["take-back host1 --grace 50ms --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

#[test]
fn of_a_take_back_of_a_rack() {
    let begin = &["take-back rack:r1 --reason x --no-wait"];
    at_every_step(Kind::new(&[TWO], begin, &[0]));
}

#[test]
fn of_a_lease_that_is_over() {
    let begin = &["allocate --host host1 --lease 200ms --no-wait"];
    at_every_step(Kind::new(&[], begin, &[0]));
}

/// The box does not take one of two slots, and the other one is given back.
#[test]
fn of_an_allocation_that_is_rolled_back() {
    let answers = |r: &Request, _| {
        let is_second = matches!(r, Request::BindSlot(b) if b.key.slot.get() == 2);
        is_second.then_some(Script::Refuse(ControlError::BadWindows))
    };
    let allocate = Kind::new(&[], &[TWO_NO_WAIT], &[0]);
    at_every_step(Kind { answers: Some(answers), ..allocate });
}

/// What was wished to use this path only is made again by the other.
#[test]
fn of_a_path_that_is_drained() {
    let before = &["allocate --host host1 --paths 1"];
    let drain = Kind::new(before, &["drain path:1 --reason x --no-wait"], &[1]);
    let over = |pool: &Pool| {
        let left = |b: &proxy_core::control::SlotBinding| b.path_set.0 & 2 == 0;
        pool.at_box().with(|s| s.slots.iter().filter_map(|slot| slot.bound.as_ref()).all(left))
    };
    at_every_step(Kind { over, ..drain });
}

/// A host has no root complex for longer than its grace.
#[test]
fn of_a_host_that_is_gone() {
    let cause = |pool: &Pool| {
        if pool.at_host().with(|s| s.root_complex) {
            pool.at_host().set_root_complex(false);
        }
    };
    let gone = Kind::new(&[TWO], &[], &[0]);
    at_every_step(Kind { settings: "host_grace_s = 1\n", cause: Some(cause), ..gone });
}

/// A device sends error messages, and the policy has it replaced.
#[test]
fn of_a_replacement_by_the_policy() {
    let settings = "[health]\ninterval_ms = 20\ncounters_ms = 20\npolicy = \"replace\"\n\
                    device_window_ms = 300\n\
                    thresholds = { suspect_after = 1, failed_after = 1, recover_after = 2 }\n";
    let cause = |pool: &Pool| {
        if pool.at_box().bound(1).is_some() {
            pool.at_box().count("slot 1: fatal errors", 1);
        }
    };
    let replace = Kind::new(&[ONE], &[], &[1]);
    at_every_step(Kind { settings, cause: Some(cause), over: the_first_is_free, ..replace });
}

/// The operating system never enables it.
#[test]
fn of_an_allocation_that_is_not_enabled_in_time() {
    let prepare = |pool: &Pool| pool.at_host().with(|state| state.enumerates = false);
    let allocate = Kind::new(&[], &[TWO_NO_WAIT], &[0]);
    let timing = &[("enumeration_ms", 300)];
    at_every_step(Kind { prepare: Some(prepare), timing, ..allocate });
}

/// The host never takes it.
#[test]
fn of_an_allocation_whose_operation_takes_too_long() {
    let answers = |r: &Request, _| {
        matches!(r, Request::BindPort(_)).then_some(Script::Refuse(ControlError::Busy))
    };
    let allocate = Kind::new(&[], &[TWO_NO_WAIT], &[0]);
    let timing = &[("operation_ms", 300)];
    at_every_step(Kind { answers: Some(answers), timing, ..allocate });
}

/// Kinds of events of a binding.
const OF_A_BINDING: &[&str] =
    &["binding-failed", "rebinding", "bound", "configured", "host-let-go", "withdrawn", "released"];

/// The host says that the binding of the first slot failed.
fn fails(pool: &Pool, reason: BindingFailure) {
    if let Some(key) = pool.at_box().bound(1) {
        let peer = pool.at_box().welcome.node;
        pool.at_host().event(Event::BindingFailed { peer, key, reason });
    }
}

/// What is dead is made again under new epochs, by no operation.
#[test]
fn of_a_binding_that_is_made_again() {
    let cause = |pool: &Pool| {
        if !pool.has_new_epochs() {
            fails(pool, BindingFailure::TlpCrc);
        }
    };
    let (cause, events, over) = (Some(cause as _), OF_A_BINDING, Pool::has_new_epochs);
    at_every_step(Kind { cause, events, over, ..Kind::new(&[ONE], &[], &[1]) });
}

/// Its operating system was not asked.
#[test]
fn of_a_device_that_a_host_lets_go() {
    let cause = |pool: &Pool| fails(pool, BindingFailure::HostLetGo);
    let (cause, events) = (Some(cause as _), OF_A_BINDING);
    at_every_step(Kind { cause, events, ..Kind::new(&[ONE], &[], &[0]) });
}

/// In two changes of the records: somebody works on a slot, and has done.
#[test]
fn of_a_hold() {
    let begin = &["maintain box1/1 --on --reason x"];
    let when = |pool: &Pool| pool.slot(1) == "held";
    let then = Some(Then { when, what: "maintain box1/1 --off" });
    let over = |pool: &Pool| pool.slot(1) == "free";
    let events = &["held", "hold-ended"];
    at_every_event(Kind { then, events, over, ..Kind::new(&[], begin, &[0]) });
}
