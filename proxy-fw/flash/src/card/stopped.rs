//! Whether this program has stopped a card's program and not let it go on: who loses the card then
//! leaves it halted, and has to know.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// What starts a card that was left halted.
const LEFT_HALTED: &str =
    "the card's program was stopped for this and may stand still: `dxpu-flash reset` starts it";

/// There is one card in a program.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// It is stopped from here on: said before it is, since what comes between may lose the card.
pub(super) fn stops() {
    STOPPED.store(true, Ordering::SeqCst);
}

/// It runs.
pub(super) fn runs() {
    STOPPED.store(false, Ordering::SeqCst);
}

/// The failure of whoever loses the card now, with what to do where its program may stand still.
#[must_use]
pub fn or_left_halted(failure: Failure) -> Failure {
    if STOPPED.load(Ordering::SeqCst) { failure.check(LEFT_HALTED) } else { failure }
}
