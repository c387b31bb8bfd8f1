//! Ends of leases and of grace times, counted so that a wall clock that jumps ends nothing early.
//!
//! The records have the end as a time of the wall clock, because only that means something to people
//! and outlives the program. While the manager runs it counts by the monotonic clock:
//!
//! - How long something still has is worked out from the wall clock once: when its end was written.
//! - A wall clock that jumps changes nothing of that. The ends in the records are moved by as much,
//!   so that they keep saying when it really ends. What was written since the last look before one
//!   may have a little more.
//! - At its start the manager cannot know whether the wall clock is right. Nothing ends sooner than
//!   the warning time after a start, or its whole time if that is shorter, and nothing has longer than
//!   it was given in all.

use crate::types::{AllocationId, OperationId, Timestamp};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How far the two clocks may drift apart between two looks without the wall clock having jumped,
/// milliseconds. Clocks that are steered (NTP slews by at most 500 ppm) stay far below it.
const JUMP_MS: u64 = 1_000;

/// What has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A lease.
    Lease(AllocationId),
    /// The grace time before something is taken back.
    Grace(OperationId),
}

/// An end as the records have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of what.
    pub key: Key,
    /// When, by the wall clock.
    pub until: Timestamp,
    /// The whole time that it was given, milliseconds.
    pub whole_ms: u64,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The wall clock.
    pub wall: Timestamp,
    /// The monotonic clock.
    pub monotonic: Instant,
}

impl Now {
    /// Reads them; the wall clock says that time.
    pub fn read(wall: Timestamp) -> Self {
        Self { wall, monotonic: Instant::now() }
    }

    /// How far the wall clock jumped since then, milliseconds; 0 if it did not.
    pub fn jumped_since(self, then: Self) -> i64 {
        let passed = self.monotonic.saturating_duration_since(then.monotonic).as_millis() as i64;
        let by_wall = self.wall.as_millis() as i64 - then.wall.as_millis() as i64;
        let jump = by_wall - passed;
        if jump.unsigned_abs() > JUMP_MS { jump } else { 0 }
    }
}

/// An end that was moved because the wall clock jumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Of what.
    pub key: Key,
    /// When it was to end by the records.
    pub from: Timestamp,
    /// When it ends.
    pub to: Timestamp,
}

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How far the wall clock jumped since the last look, milliseconds; 0 if it did not.
    pub jumped_ms: i64,
    /// What the records are to say instead.
    pub moved: Vec<Moved>,
    /// How long each still has. In the order in which they were asked for.
    pub left: Vec<(Key, Duration)>,
}

#[derive(Clone, Copy)]
struct Entry {
    until: Timestamp,
    /// The end that the records have, which follow a jump when they are written next.
    recorded: Timestamp,
    at: Instant,
}

/// The ends that are counted. No larger than what the records have of them.
#[derive(Default)]
pub struct Deadlines {
    entries: HashMap<Key, Entry>,
    last: Option<Now>,
}

impl Deadlines {
    /// Looks at both clocks and at everything that has an end. `least` is what each has at least
    /// when the manager has just started, unless it was given less in all.
    pub fn look(&mut self, now: Now, least: Duration, wanted: &[Wanted]) -> Look {
        let started = self.last.is_none();
        let jumped_ms = self.last.map_or(0, |last| now.jumped_since(last));
        let mut look = Look { jumped_ms, ..Look::default() };
        // By what it still has: at a start that was not always what its end said.
        if jumped_ms != 0 {
            for entry in self.entries.values_mut() {
                let left = entry.at.saturating_duration_since(now.monotonic);
                entry.until = shifted(now.wall, left.as_millis() as i64);
            }
        }
        let before = std::mem::take(&mut self.entries);
        for want in wanted {
            let known = before.get(&want.key).copied();
            let known = known.filter(|e| [e.until, e.recorded].contains(&want.until));
            let known = known.map(|entry| Entry { recorded: want.until, ..entry });
            let entry = known.unwrap_or_else(|| {
                let whole = Duration::from_millis(want.whole_ms);
                let left = want.until.as_millis().saturating_sub(now.wall.as_millis());
                // Whether it was written before a jump or after it is not known: it has what is more.
                let unmoved = shifted(now.wall, jumped_ms.saturating_neg()).as_millis();
                let left = left.max(want.until.as_millis().saturating_sub(unmoved));
                let left = Duration::from_millis(left).min(whole);
                let left = if started { left.max(least.min(whole)) } else { left };
                let until = match jumped_ms {
                    0 => want.until,
                    _ => shifted(now.wall, left.as_millis() as i64),
                };
                Entry { until, recorded: want.until, at: now.monotonic + left }
            });
            if entry.until != want.until {
                look.moved.push(Moved { key: want.key, from: want.until, to: entry.until });
            }
            self.entries.insert(want.key, entry);
            let left = entry.at.saturating_duration_since(now.monotonic);
            look.left.push((want.key, left));
        }
        look.moved.sort_by_key(|moved| moved.key);
        self.last = Some(now);
        look
    }

    /// How long something still has that ends at `until` by the records. Before it has been looked at,
    /// the wall clock says so, which is at that time.
    pub fn left(&self, key: Key, until: Timestamp, wall: Timestamp) -> Duration {
        match self.entries.get(&key).filter(|entry| entry.until == until) {
            Some(entry) => entry.at.saturating_duration_since(Instant::now()),
            None => Duration::from_millis(until.as_millis().saturating_sub(wall.as_millis())),
        }
    }
}

fn shifted(time: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_millis(time.as_millis().saturating_add_signed(by_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Key = Key::Lease(AllocationId(1));
    const HOUR: u64 = 3_600_000;
    const LEAST: Duration = Duration::from_secs(60);

    /// Clocks that a test moves.
    struct Clocks {
        wall: u64,
        monotonic: Instant,
    }

    impl Clocks {
        fn new() -> Self {
            Self { wall: 1_800_000_000_000, monotonic: Instant::now() }
        }

        fn pass(&mut self, ms: u64) {
            self.wall += ms;
            self.monotonic += Duration::from_millis(ms);
        }

        fn now(&self) -> Now {
            Now { wall: Timestamp::from_millis(self.wall), monotonic: self.monotonic }
        }
    }

    fn wanted(until: u64, whole_ms: u64) -> [Wanted; 1] {
        [Wanted { key: LEASE, until: Timestamp::from_millis(until), whole_ms }]
    }

    fn left(look: &Look) -> u64 {
        look.left[0].1.as_millis() as u64
    }

    #[test]
    fn a_lease_ends_when_its_time_is_over() {
        let (mut clocks, mut deadlines) = (Clocks::new(), Deadlines::default());
        deadlines.look(clocks.now(), LEAST, &[]);
        let lease = wanted(clocks.wall + HOUR, HOUR);
        assert_eq!(left(&deadlines.look(clocks.now(), LEAST, &lease)), HOUR);
        clocks.pass(HOUR - 1);
        assert_eq!(left(&deadlines.look(clocks.now(), LEAST, &lease)), 1);
        clocks.pass(1);
        assert_eq!(left(&deadlines.look(clocks.now(), LEAST, &lease)), 0);
        // It is extended.
        let lease = wanted(clocks.wall + 2 * HOUR, 2 * HOUR);
        assert_eq!(left(&deadlines.look(clocks.now(), LEAST, &lease)), 2 * HOUR);
    }

    #[test]
    fn a_wall_clock_that_jumps_ends_nothing_and_the_records_follow_it() {
        for jump in [24 * HOUR as i64, -24 * HOUR as i64] {
            let (mut clocks, mut deadlines) = (Clocks::new(), Deadlines::default());
            deadlines.look(clocks.now(), LEAST, &[]);
            let until = clocks.wall + HOUR;
            deadlines.look(clocks.now(), LEAST, &wanted(until, HOUR));
            clocks.pass(HOUR / 2);
            clocks.wall = clocks.wall.saturating_add_signed(jump);
            let look = deadlines.look(clocks.now(), LEAST, &wanted(until, HOUR));
            assert_eq!((look.jumped_ms, left(&look)), (jump, HOUR / 2));
            let to = Timestamp::from_millis(until.saturating_add_signed(jump));
            let from = Timestamp::from_millis(until);
            assert_eq!(look.moved, [Moved { key: LEASE, from, to }]);
            // They could not be written: it is tried again, and its time goes on.
            clocks.pass(1000);
            let look = deadlines.look(clocks.now(), LEAST, &wanted(until, HOUR));
            assert_eq!((look.jumped_ms, left(&look)), (0, HOUR / 2 - 1000));
            assert_eq!(look.moved, [Moved { key: LEASE, from, to }]);
            clocks.pass(HOUR / 4 - 1000);
            // The records say so from now on, and nothing moves again.
            let look = deadlines.look(clocks.now(), LEAST, &wanted(to.as_millis(), HOUR));
            assert_eq!((look.jumped_ms, left(&look), look.moved.len()), (0, HOUR / 4, 0));
        }
    }

    #[test]
    fn what_was_given_for_less_than_the_warning_time_has_no_more_of_it_after_a_start() {
        let (clocks, mut deadlines) = (Clocks::new(), Deadlines::default());
        let look = deadlines.look(clocks.now(), LEAST, &wanted(clocks.wall, 10_000));
        assert_eq!(left(&look), 10_000);
    }

    /// As of a machine without a clock that runs while it is off.
    #[test]
    fn a_wall_clock_that_is_set_right_after_a_start_gives_nothing_a_wrong_end() {
        for wrong in [24 * HOUR as i64, -24 * HOUR as i64] {
            let (mut clocks, mut deadlines) = (Clocks::new(), Deadlines::default());
            let until = clocks.wall + HOUR / 2;
            clocks.wall = clocks.wall.saturating_add_signed(wrong);
            let has = left(&deadlines.look(clocks.now(), LEAST, &wanted(until, HOUR)));
            assert_eq!(has, if wrong < 0 { HOUR } else { LEAST.as_millis() as u64 });
            clocks.pass(1000);
            clocks.wall = clocks.wall.saturating_add_signed(-wrong);
            let look = deadlines.look(clocks.now(), LEAST, &wanted(until, HOUR));
            assert_eq!(left(&look), has - 1000);
            assert_eq!(look.moved[0].to.as_millis(), clocks.wall + has - 1000);
        }
    }

    /// Whether it was written before the jump or after it, nobody can tell.
    #[test]
    fn what_was_written_since_the_last_look_is_not_ended_by_a_jump() {
        for (jump, before_it, expected) in [
            (24 * HOUR as i64, true, HOUR - 100),
            (24 * HOUR as i64, false, HOUR),
            (-24 * HOUR as i64, true, HOUR),
            (-24 * HOUR as i64, false, HOUR),
        ] {
            let (mut clocks, mut deadlines) = (Clocks::new(), Deadlines::default());
            deadlines.look(clocks.now(), LEAST, &[]);
            let early = clocks.wall + HOUR;
            clocks.pass(100);
            clocks.wall = clocks.wall.saturating_add_signed(jump);
            let until = if before_it { early } else { clocks.wall + HOUR };
            let look = deadlines.look(clocks.now(), LEAST, &wanted(until, HOUR));
            assert_eq!((look.jumped_ms, left(&look)), (jump, expected), "{before_it}");
            // The records say when it really ends.
            let moved: Vec<u64> = look.moved.iter().map(|moved| moved.to.as_millis()).collect();
            let ends = clocks.wall + expected;
            assert_eq!(moved, if ends == until { vec![] } else { vec![ends] });
            let look = deadlines.look(clocks.now(), LEAST, &wanted(ends, HOUR));
            assert_eq!((left(&look), look.moved.len()), (expected, 0));
        }
    }

    #[test]
    fn after_a_start_everything_has_the_warning_time_and_no_more_than_it_was_given() {
        let clocks = Clocks::new();
        for (until, expected) in [
            // Over while the manager was away, or by a clock that is wrong.
            (clocks.wall - 24 * HOUR, LEAST.as_millis() as u64),
            (clocks.wall + 1, LEAST.as_millis() as u64),
            (clocks.wall + HOUR / 2, HOUR / 2),
            // The clock went back while the manager was away.
            (clocks.wall + 24 * HOUR, HOUR),
        ] {
            let mut deadlines = Deadlines::default();
            let look = deadlines.look(clocks.now(), LEAST, &wanted(until, HOUR));
            assert_eq!((look.jumped_ms, left(&look)), (0, expected));
        }
    }

    #[test]
    fn a_clock_that_is_steered_has_not_jumped() {
        let (mut clocks, mut deadlines) = (Clocks::new(), Deadlines::default());
        let lease = wanted(clocks.wall + HOUR, HOUR);
        for _ in 0..100 {
            clocks.pass(250);
            // A thousand times more than what clocks are steered by.
            clocks.wall += 125;
            let look = deadlines.look(clocks.now(), LEAST, &lease);
            assert_eq!((look.jumped_ms, look.moved.len()), (0, 0));
        }
        assert_eq!(left(&deadlines.look(clocks.now(), LEAST, &lease)), HOUR - 375 - 99 * 250);
    }
}
