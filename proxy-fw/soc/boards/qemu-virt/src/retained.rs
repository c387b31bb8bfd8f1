//! Memory that a reset leaves as it is.

use crate::layout::RETAINED;

/// Gives it to somebody for a moment.
pub(crate) fn with<R>(user: impl FnOnce(&mut [u8; soc::reset::RETAINED]) -> R) -> R {
    let kept = RETAINED as usize as *mut [u8; soc::reset::RETAINED];
    // SAFETY: the machine has memory there in which nothing else is (memory.x, boot.x), bytes have
    // no wrong values, and nobody else has it: users do not call this again, and the one handler
    // of interrupts that uses it comes between and does not return.
    user(unsafe { &mut *kept })
}
