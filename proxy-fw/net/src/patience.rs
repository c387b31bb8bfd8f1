//! How long a frame waits that the kernel throws away instead of sending it.

use std::time::{Duration, Instant};

/// So long a queue that is full has to take a frame again: even one of 100 Mbit/s has sent one of
/// [`MAX_FRAME`](crate::MAX_FRAME) by then.
const LONGEST: Duration = Duration::from_millis(1);

/// A network interface's queue or driver that drops a packet socket's frame says ENOBUFS: it may be
/// full, and then the frame is better sent again than lost. Or it never takes this frame (longer than a
/// shaper's burst, or than what the other end of a virtual cable takes), and all others would wait
/// behind it for ever.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// When the frame that is next was thrown away first.
    since: Option<Instant>,
}

impl Patience {
    /// Another frame is next: that one was sent, or is lost. A queue that stays full costs one frame in
    /// so long a time, and not all that wait.
    pub(crate) fn renew(&mut self) {
        self.since = None;
    }

    /// A frame was thrown away. Whether it has been tried for long enough.
    pub(crate) fn is_over(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() >= LONGEST
    }
}
