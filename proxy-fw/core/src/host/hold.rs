//! Devices that take nothing any more: what is for them does not keep what is for others for ever.

use crate::canaries::{Canary, planted};
use crate::link::ClassSet;
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::tlp::Class;

/// Longer than a card sleeps where nothing but a TLP without room is left to do.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How long a device has had no room for what is next for it, of each class. One that hangs is
/// waited for once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold {
    since: [Option<Instant>; 3],
    /// When something was refused last. What is held is handed in again and again: if nothing was for
    /// long, it is held no longer.
    last: Instant,
    /// Whether the time since that is not the device's.
    excused: bool,
    /// Classes of which the device took nothing for too long, and has taken nothing since.
    stuck: ClassSet,
}

impl Hold {
    /// The device took a TLP.
    #[inline]
    pub(super) fn taken(&mut self, class: Class) {
        self.since[class as usize] = None;
        if !planted(Canary::KeepStuck) {
            self.stuck = self.stuck.without(class);
        }
    }

    /// The device has no room. Whether its TLP is to be given up, after `longest`.
    pub(super) fn gives_up(&mut self, now: Instant, class: Class, longest: Duration) -> bool {
        let pause = now.saturating_since(self.last);
        if pause > longest.max(LONGEST_PAUSE) {
            self.since = [None; 3];
        } else if self.excused {
            self.since.iter_mut().flatten().for_each(|since| *since = *since + pause);
        }
        (self.last, self.excused) = (now, false);
        let since = *self.since[class as usize].get_or_insert(now);
        if now.saturating_since(since) >= longest {
            self.stuck = self.stuck.with(class);
        }
        self.stuck.contains(class)
    }

    /// The device is not to blame for how long anything has waited since something was refused last.
    /// What was held against it before stays: whoever stands still now and then excuses only that.
    pub(super) const fn excuse(&mut self) {
        self.excused = true;
    }
}
