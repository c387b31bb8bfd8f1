//! Operations that are called back.

use super::pool::Pool;
use super::{Kind, ONE, TWO, TWO_NO_WAIT, Then, at_every_event, at_every_step};
use crate::common::fake::Script;
use manager::types::OperationKind;
use proxy_core::control::{ControlError, Request};

/// A kind of operation that may be called back and has no walk does not compile.
const _: fn(&OperationKind) -> &'static [fn()] = |kind| match kind {
    OperationKind::Allocate { .. } => {
        &[of_an_allocation_that_is_called_back, of_an_allocation_that_is_called_back_at_once]
    }
    OperationKind::Release { .. } => &[of_a_release_that_is_called_back_while_its_host_is_away],
    OperationKind::TakeBack { .. } => &[of_a_take_back_that_is_called_back],
    OperationKind::Replace { .. } => &[of_a_replacement_that_is_called_back],
    OperationKind::Drain { .. } => &[
        of_a_drain_that_is_called_back_while_its_host_is_away,
        of_a_drain_that_replaces_and_is_called_back,
        of_a_path_whose_drain_is_called_back,
    ],
    // It goes by force, and is never called back.
    OperationKind::Forget { .. } => &[],
};

/// Called back when it has come so far.
const fn when(when: fn(&Pool) -> bool) -> Option<Then> {
    Some(Then { when, what: "cancel NEXT --no-wait" })
}

/// A host that takes nothing new now.
fn busy(request: &Request, _: usize) -> Option<Script> {
    matches!(request, Request::BindPort(_)).then_some(Script::Refuse(ControlError::Busy))
}

/// It may come too early or too late; then everything is lent.
#[test]
fn of_an_allocation_that_is_called_back_at_once() {
    let begin = &[TWO_NO_WAIT, "cancel NEXT --no-wait"];
    at_every_step(Kind::new(&[], begin, &[0, 2]));
}

/// Its slots are the box's by then.
#[test]
fn of_an_allocation_that_is_called_back() {
    let all_at_box = |pool: &Pool| (1..=2).all(|slot| pool.at_box().bound(slot).is_some());
    let allocate = Kind::new(&[], &[TWO_NO_WAIT], &[0]);
    at_every_step(Kind { then: when(all_at_box), answers: Some(busy), ..allocate });
}

/// Whoever is there is asked at once, and then it is too late.
#[test]
fn of_a_release_that_is_called_back_while_its_host_is_away() {
    let release = Kind::new(&[TWO], &["release ALLOC --no-wait"], &[2]);
    at_every_event(Kind { then: when(|_| true), away: &["host1"], ..release });
}

#[test]
fn of_a_drain_that_is_called_back_while_its_host_is_away() {
    let begin = &["drain box1 --reason x --no-wait"];
    let drain = Kind::new(&[TWO], begin, &[2]);
    let over = Pool::nothing_is_held;
    at_every_event(Kind { then: when(|_| true), away: &["host1"], over, ..drain });
}

#[test]
fn of_a_take_back_that_is_called_back() {
    let begin = &["take-back host1 --grace 10m --reason x --no-wait"];
    at_every_event(Kind { then: when(|_| true), ..Kind::new(&[TWO], begin, &[2]) });
}

/// Whether the first device is lent and another one's slot is the box's.
fn another_comes(pool: &Pool) -> bool {
    pool.at_box().bound(1).is_some() && (2..=3).any(|slot| pool.at_box().bound(slot).is_some())
}

/// Whether all is as it was, with the first device.
fn the_first_stays(pool: &Pool) -> bool {
    pool.at_box().bound(1).is_some() && !another_comes(pool) && pool.nothing_is_held()
}

#[test]
fn of_a_replacement_that_is_called_back() {
    let begin = &["replace BIND --reason x --no-wait"];
    let replace = Kind::new(&[ONE], begin, &[1]);
    let over = the_first_stays;
    at_every_step(Kind { then: when(another_comes), answers: Some(busy), over, ..replace });
}

/// So is the replacement that it began.
#[test]
fn of_a_drain_that_replaces_and_is_called_back() {
    let begin = &["drain box1/1 --replace --reason x --no-wait"];
    let drain = Kind::new(&[ONE], begin, &[1]);
    let over = the_first_stays;
    at_every_step(Kind { then: when(another_comes), answers: Some(busy), over, ..drain });
}

/// What was begun to be made again by the other path is, and the first may be used again.
#[test]
fn of_a_path_whose_drain_is_called_back() {
    let begin = &["drain path:1 --reason x --no-wait"];
    let drain = Kind::new(&["allocate --host host1 --paths 1"], begin, &[1]);
    let over = Pool::nothing_is_held;
    let then = when(Pool::has_new_epochs);
    at_every_step(Kind { then, answers: Some(busy), over, ..drain });
}
