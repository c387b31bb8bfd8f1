//! Streams that record what is put into them in a graph, instead of doing it.
//!
//! While any stream is captured some questions to the driver end every capture in the process
//! (CUDA Driver API, cuStreamBeginCapture, mode global). The shim asks none then.

use core::sync::atomic::Ordering;

use crate::driver::{Result32, SUCCESS, Stream};
use crate::session::Session;

/// A capture began, or not.
pub(crate) fn begun(session: &Session, result: Result32) {
    if result == SUCCESS {
        session.captures.fetch_add(1, Ordering::AcqRel);
    }
}

/// A capture ended. One that was spoilt ends too, with an error.
pub(crate) fn ended(session: &Session) {
    let less = |captures: usize| captures.checked_sub(1);
    // One that the shim did not see begin does not count.
    let _ = session.captures.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
}

/// Whether any stream of the process is captured.
pub(crate) fn any(session: &Session) -> bool {
    session.captures.load(Ordering::Acquire) > 0
}

/// Whether this stream is.
pub(crate) fn is_captured(session: &Session, stream: Stream) -> bool {
    any(session) && session.driver.is_capturing(stream)
}
