//! How long a port without room holds up the frames of the others.

use proxy_core::time::Instant;
use std::time::Duration;

/// So long frames wait for a port that sends nothing. Then its frame is lost, and the link sees to it.
const LONGEST: Duration = Duration::from_millis(1);

/// What is known of a port that had no room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    /// Since when it has sent nothing, and what it had sent until then.
    since: Option<(Instant, u64)>,
}

impl Hold {
    /// The port has no room now, and has sent so many frames since it was opened. Whether its frame is
    /// lost, rather than kept to be sent again.
    ///
    /// A port that is stuck holds up the others once, and not with each of its frames. That it takes
    /// one now and then does not mean that it sends: a queue that throws away what it is given has
    /// room for another one when its port gives one up. Where there are no others, each frame waits.
    pub(crate) fn is_over(&mut self, now: Instant, sent: u64, others: bool) -> bool {
        let since = match self.since {
            Some((since, before)) if before == sent => since,
            _ => now,
        };
        let is_over = now.saturating_since(since) >= LONGEST;
        self.since = (others || !is_over).then_some((since, sent));
        is_over
    }
}
