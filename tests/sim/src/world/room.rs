//! What a device or a root complex takes: now and then no non-posted requests for a while, or no
//! posted ones and so nothing that may not pass them. It always takes completions. A root complex may
//! also take no non-posted requests before one of its own is answered: who does not let completions
//! pass what waits stands still then. And now and then a root complex answers nothing for a while.

use crate::oracle::{Verdict, Violation};
use crate::profile::Work;
use crate::random::{Drawer, Random};
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::tlp::Class;

/// One stall of so many is long, and a long one so many times as long.
const LONG: u64 = 16;
const LONGER: u64 = 100;
/// Longer than any of its own requests takes to be answered, or to run out.
const ANSWERED: Duration = Duration::from_secs(5);

/// It does not take everything.
#[derive(Clone, Copy)]
struct Stall {
    room: ClassSet,
    until: Instant,
    /// Or until it takes a completion.
    answer: bool,
}

/// For how long something takes no TLPs at most, but for what waits for an answer; now and then one
/// such time follows another.
pub(super) fn longest_stall(work: &Work) -> Duration {
    Duration::from_micros(work.stall_us * LONGER)
}

/// A TLP came to who had said that it takes none of its class: on a card it would be lost.
pub(super) fn no_room<T>(class: Class) -> Verdict<T> {
    Err(Violation::new(1, format!("a {class:?} TLP was handed to who has no room for it")))
}

/// The room of a taker.
pub(crate) struct Room {
    stalled: Option<Stall>,
    random: Random,
    /// TLPs that it took while it took none of another class.
    pub(super) passed: u64,
}

impl Room {
    pub(super) fn new(seed: u64, drawer: Drawer, index: u64) -> Self {
        Self { stalled: None, random: Random::stream(seed, drawer, index), passed: 0 }
    }

    /// The classes that it takes now; whether requests of its own wait for their answers.
    pub(super) fn of(&mut self, now: Instant, work: &Work, asks: bool) -> ClassSet {
        if let Some(stall) = self.stalled.filter(|stall| now < stall.until) {
            return stall.room;
        }
        self.stalled = self.draw(now, work, asks);
        self.stalled.map_or(ClassSet::ALL, |stall| stall.room)
    }

    fn draw(&mut self, now: Instant, work: &Work, asks: bool) -> Option<Stall> {
        let requests = ClassSet::ALL.without(Class::NonPosted);
        if asks && work.waits_ppm > 0 && self.random.chance(work.waits_ppm) {
            return Some(Stall { room: requests, until: now + ANSWERED, answer: true });
        }
        if !self.random.chance(work.stalls_ppm) {
            return None;
        }
        let posted = self.random.chance(500_000);
        let room = if posted { ClassSet::ALL.without(Class::Posted) } else { requests };
        let long = self.random.below(LONG) == 0;
        let longest = work.stall_us * if long { LONGER } else { 1 };
        let until = now + Duration::from_micros(self.random.between(1, longest));
        Some(Stall { room, until, answer: false })
    }

    /// Whether it does not do everything at once now.
    pub(super) fn stalls(&mut self, now: Instant, work: &Work) -> bool {
        self.of(now, work, false) != ClassSet::ALL
    }

    /// It took a TLP.
    pub(super) fn took(&mut self, class: Class) {
        self.passed += u64::from(self.stalled.is_some());
        if class == Class::Completion {
            self.stalled = self.stalled.filter(|stall| !stall.answer);
        }
    }

    /// It begins anew.
    pub(super) fn forget(&mut self) {
        self.stalled = None;
    }

    /// When it takes all of them again.
    pub(super) fn until(&self) -> Option<Instant> {
        self.stalled.map(|stall| stall.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn it_takes_completions_always_and_everything_in_the_end() {
        let work = Work { stalls_ppm: 1_000_000, stall_us: 30, ..Profile::calm().work };
        let mut room = Room::new(1, Drawer::Stall, 0);
        let (mut now, mut longest, mut without) = (Instant::ZERO, Duration::ZERO, [0; 3]);
        for _ in 0..1000 {
            let taken = room.of(now, &work, false);
            for class in Class::ALL {
                without[class as usize] += u32::from(!taken.contains(class));
            }
            room.took(Class::Posted);
            let until = room.until().expect("a stall each time");
            assert_eq!(room.of(now, &work, false), taken, "it lasts");
            longest = longest.max(until.saturating_since(now));
            now = until;
        }
        assert_eq!(without[Class::Completion as usize], 0);
        assert!(without[Class::Posted as usize] > 400 && without[Class::NonPosted as usize] > 400);
        assert!(longest > Duration::from_millis(2), "{longest:?}");
        assert_eq!(room.passed, 1000);
        let none = Work { stalls_ppm: 0, ..work };
        assert_eq!(room.of(now, &none, false), ClassSet::ALL);
        assert_eq!(room.until(), None);
    }

    #[test]
    fn who_begins_anew_waits_for_nothing() {
        let work = Work { stalls_ppm: 0, waits_ppm: 1_000_000, ..Profile::calm().work };
        let mut room = Room::new(1, Drawer::RootStall, 0);
        assert_ne!(room.of(Instant::ZERO, &work, true), ClassSet::ALL);
        room.forget();
        assert_eq!(room.of(Instant::ZERO, &work, false), ClassSet::ALL);
    }

    #[test]
    fn who_waits_for_an_answer_takes_everything_after_it() {
        let calm = Profile::calm().work;
        let work = Work { stalls_ppm: 0, waits_ppm: 1_000_000, ..calm };
        let mut room = Room::new(1, Drawer::RootStall, 0);
        let now = Instant::ZERO;
        assert_eq!(room.of(now, &work, false), ClassSet::ALL, "it asked for nothing");
        assert_eq!(room.of(now, &work, true), ClassSet::ALL.without(Class::NonPosted));
        room.took(Class::Posted);
        assert!(room.until().is_some());
        room.took(Class::Completion);
        assert_eq!((room.of(now, &work, false), room.passed), (ClassSet::ALL, 2));
    }
}
