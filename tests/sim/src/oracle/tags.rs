//! The tags under which a device is asked. One whose answer does not come in time is not used again
//! until the device is reset; when no other is left, the device's proxy refuses at once what comes.

use crate::clock::may_have_given_up;
use proxy_core::limits::DEVICE_TAGS;
use proxy_core::time::Instant;

/// So many that hang leave none for a host: one is for the proxy's own requests.
pub(crate) const ENOUGH: usize = DEVICE_TAGS - 1;

/// With fewer in use none has to wait; some are free before those who wait are asked.
const SHORT: usize = ENOUGH / 2;

/// The tags under which one function of a slot was asked.
#[derive(Debug)]
pub(crate) struct Tags {
    /// Since when a request under it waits for a right answer.
    taken: Vec<Option<Instant>>,
    /// Until when there was none left, before the last reset.
    none_until: Option<Instant>,
}

impl Tags {
    pub(crate) fn new() -> Self {
        Self { taken: vec![None; DEVICE_TAGS], none_until: None }
    }

    /// The device was asked something, for which the host's proxy waits since then.
    pub(crate) fn asked(&mut self, tag: u16, since: Instant) {
        if let Some(taken) = self.taken.get_mut(usize::from(tag)) {
            *taken = Some(since);
        }
    }

    /// The device answered rightly. What comes when the time is over frees no tag. (What a wrong
    /// answer does is its proxy's to say: the tag may hang.)
    pub(crate) fn answered(&mut self, now: Instant, tag: u16) {
        if let Some(taken) = self.taken.get_mut(usize::from(tag)) {
            *taken = taken.filter(|since| is_over(*since, now));
        }
    }

    /// The device was reset, or is another one.
    pub(crate) fn reset(&mut self, now: Instant) {
        if self.hanging(now) >= ENOUGH {
            self.none_until = Some(now);
        }
        self.taken.fill(None);
    }

    /// Tags that wait for longer than an answer may take.
    fn hanging(&self, now: Instant) -> usize {
        self.taken.iter().flatten().filter(|since| is_over(**since, now)).count()
    }

    /// Whether so many of the tags of one slot's functions are in use that what is asked may have to wait
    /// for one.
    pub(crate) fn may_be_short<'a>(of_slot: impl Iterator<Item = &'a Self>) -> bool {
        of_slot.map(|tags| tags.taken.iter().flatten().count()).sum::<usize>() >= SHORT
    }

    /// Whether at some moment from `since` until now no tag may have been left for the functions of
    /// one slot.
    pub(crate) fn may_all_have_been_gone<'a>(
        of_slot: impl Iterator<Item = &'a Self>,
        since: Instant,
        now: Instant,
    ) -> bool {
        let (mut gone, mut hanging) = (false, 0);
        for tags in of_slot {
            gone |= tags.none_until.is_some_and(|until| since <= until);
            hanging += tags.hanging(now);
        }
        gone || hanging >= ENOUGH
    }

    #[cfg(test)]
    fn may_have_been_gone(&self, since: Instant, now: Instant) -> bool {
        Self::may_all_have_been_gone(std::iter::once(self), since, now)
    }
}

fn is_over(since: Instant, now: Instant) -> bool {
    may_have_given_up(since, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_core::limits::SYNTHESISED_COMPLETION;
    use std::time::Duration;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// After the time of what was asked at 0.
    fn later(ms: u64) -> Instant {
        at(ms) + SYNTHESISED_COMPLETION
    }

    #[test]
    fn only_tags_that_hang_all_at_once_leave_none() {
        let mut tags = Tags::new();
        (0..ENOUGH as u16).for_each(|tag| tags.asked(tag, at(0)));
        assert!(!tags.may_have_been_gone(at(0), at(1)), "their time is not over");
        assert!(tags.may_have_been_gone(at(1), later(0)));
        tags.answered(later(1), 3);
        assert!(tags.may_have_been_gone(at(1), later(1)), "a late answer frees no tag");
        tags.reset(later(2));
        assert!(tags.may_have_been_gone(later(1), later(9)), "it may have been refused before");
        assert!(!tags.may_have_been_gone(later(3), later(9)));

        (0..ENOUGH as u16).for_each(|tag| tags.asked(tag, later(10)));
        tags.answered(later(11), 3);
        assert!(
            !tags.may_have_been_gone(later(10), at(11) + SYNTHESISED_COMPLETION * 3),
            "one is left"
        );
    }
}
