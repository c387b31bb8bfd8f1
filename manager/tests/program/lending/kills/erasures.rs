//! Erasing.

use super::pool::Pool;
use super::{Kind, ONE, TWO, Then, at_every_request, at_every_step};
use crate::common::fake::Script;
use manager::types::ErasureState;
use proxy_core::control::{EraseFailure, Erasure, Reply, Request, SlotState};

/// A state of an erasure that no walk has does not compile.
const _: fn(ErasureState) -> &'static [fn()] = |state| match state {
    ErasureState::Running | ErasureState::Done => {
        &[of_a_release_that_erases, of_a_release_that_erases_by_a_program, of_an_erasure_by_hand]
    }
    ErasureState::Failed | ErasureState::Waived => &[of_an_erasure_that_is_waived],
    ErasureState::Owed => &[of_an_erasure_that_is_owed],
};

const BY_BOX: &str = "[[erase]]\nmeans = [\"format-user\"]\n";

/// Kinds of events of an erasure.
const EVENTS: &[&str] = &["erased", "not-erased", "erasure-owed"];

fn stands(erasure: Erasure) -> Option<Script> {
    Some(Script::Answer(Box::new(Reply::Erasure(erasure.into()))))
}

/// It takes a while.
fn slowly(request: &Request, times: usize) -> Option<Script> {
    let is_erase = matches!(request, Request::Erase(_)) && times < 2;
    is_erase.then(|| stands(Erasure::Running(300 * times as u16)))?
}

/// Its devices are erased, and the release waits for that.
#[test]
fn of_a_release_that_erases() {
    let release = Kind::new(&[TWO], &["release ALLOC --no-wait"], &[0]);
    at_every_step(Kind { settings: BY_BOX, erasures: &["done"; 2], ..release });
}

#[test]
fn of_an_erasure_by_hand() {
    let erase = Kind::new(&[], &["erase box1/1 --no-wait"], &[0]);
    let answers = Some(slowly as _);
    at_every_step(Kind { erasures: &["done"], events: EVENTS, answers, points: 1, ..erase });
}

/// The box cannot, and somebody takes the device as it is.
#[test]
fn of_an_erasure_that_is_waived() {
    let answers = |r: &Request, _| match r {
        Request::Erase(_) => stands(Erasure::Failed(EraseFailure::Status(0x1c))),
        _ => None,
    };
    let when = |pool: &Pool| pool.slot(1) == "unerased";
    let then = Some(Then { when, what: "erase box1/1 --waive shredded" });
    let erase = Kind::new(&[], &["erase box1/1 --no-wait"], &[0]);
    let (answers, erasures) = (Some(answers as _), &["waived"]);
    at_every_step(Kind { then, answers, erasures, events: EVENTS, points: 1, ..erase });
}

#[test]
fn of_a_release_that_erases_by_a_program() {
    let settings = "[[erase]]\nhook = \"/bin/cat\"\n";
    let release = Kind::new(&[TWO], &["release ALLOC --no-wait"], &[0]);
    at_every_step(Kind { settings, erasures: &["done"; 2], events: EVENTS, ..release });
}

/// The device is pulled before it is erased, and comes back.
#[test]
fn of_an_erasure_that_is_owed() {
    let answers = |r: &Request, _| match r {
        Request::Erase(_) => stands(Erasure::Running(1)),
        _ => None,
    };
    let cause = |pool: &Pool| {
        let pulled = pool.caused.get();
        match pool.slot(1).as_str() {
            "erasing" if !pulled => {
                pool.caused.set(true);
                pool.at_box().set_device(1, None);
            }
            "empty" if pulled => {
                let node = pool.at_box().with(|state| state.node).unwrap();
                let serial = 0x1122_3344_0000_7700 + (u64::from(node.get()) << 16);
                pool.at_box().set_device(1, Some(serial));
                pool.be_willing();
            }
            _ => {}
        }
    };
    let release = Kind::new(&[ONE], &["release ALLOC --no-wait"], &[0]);
    let kind = Kind { settings: BY_BOX, erasures: &["done"], events: EVENTS, ..release };
    at_every_step(Kind { answers: Some(answers), cause: Some(cause), ..kind });
}

/// Nothing of it is recorded but how the slot is.
#[test]
fn of_a_slot_that_is_recovered() {
    let prepare = |pool: &Pool| {
        pool.at_box().set_state(1, SlotState::Quarantined);
        pool.manager.wait_slot("box1/1", "quarantined");
    };
    let when = |pool: &Pool| pool.slot(1) == "quarantined";
    let then = Some(Then { when, what: "recover box1/1" });
    let over = |pool: &Pool| pool.slot(1) == "free";
    let recover = Kind::new(&[], &[], &[0]);
    let kind = Kind { prepare: Some(prepare), then, over, points: 1, ..recover };
    at_every_request(&kind);
}
