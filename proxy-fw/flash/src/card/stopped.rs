//! Whether this program has stopped a card's program and not let it go on: who loses the card then
//! leaves it halted, and has to know.

use std::sync::atomic::{AtomicBool, Ordering};

/// What starts a card that was left halted.
pub const LEFT_HALTED: &str =
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

/// Whether the card's program may stand still when this program loses the card now.
pub fn may_stand_still() -> bool {
    STOPPED.load(Ordering::SeqCst)
}
