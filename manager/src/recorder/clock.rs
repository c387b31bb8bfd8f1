//! Dates of what proxies stamp, each by a clock of its own.
//!
//! A proxy's clock drifts: by one reading of it alone, what two proxies stamped at the same time would be
//! dated further apart the longer a recording runs. And the wall's clock may be set meanwhile, so
//! that it is looked at once, when a recording begins, and the manager's monotonic clock from then on.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Of the readings of so long, the least doubtful is kept.
const SPAN: Duration = Duration::from_secs(4);

/// Readings that are kept, 32 bytes each (32 KiB): more than the longest recording has spans. Behind
/// so many, the last stands for all.
const MOST: usize = 1024;

/// What a proxy's clock said, and when that was asked.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The proxy's, nanoseconds.
    pub proxy: u64,
    /// When it was asked.
    pub asked: Instant,
    /// How long asking took.
    pub doubt: Duration,
}

/// A point in time by both clocks of the manager. What both ends of a recording stamped is dated from
/// the same one.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    at: Instant,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    wall: u64,
}

impl Anchor {
    /// Now.
    pub fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at: Instant::now(), wall: wall.as_nanos() as u64 }
    }

    fn date(&self, at: Instant) -> u64 {
        let ns = |duration: Duration| duration.as_nanos() as u64;
        let since = ns(at.saturating_duration_since(self.at));
        let until = ns(self.at.saturating_duration_since(at));
        self.wall.saturating_add(since).saturating_sub(until)
    }
}

/// A reading as dates.
#[derive(Clone, Copy, Debug)]
struct Known {
    proxy: u64,
    /// When the proxy was asked, and when it had answered: it looked at its clock between the two.
    asked: u64,
    answered: u64,
    /// Which date between them is taken.
    date: u64,
}

impl Known {
    fn doubt(&self) -> u64 {
        self.answered - self.asked
    }
}

/// One proxy's clock while a recording runs: what gives its times dates.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Nothing has a date without.
    anchor: Option<Anchor>,
    /// One of each span, in the order of both clocks.
    known: Vec<Known>,
    /// When the last span began.
    span: u64,
}

impl Clock {
    /// One of which nothing is known yet.
    pub fn new(anchor: Anchor) -> Self {
        Self { anchor: Some(anchor), ..Self::default() }
    }

    /// Takes a reading. They come in the order of time.
    pub fn take(&mut self, reading: &Reading) {
        let Some(anchor) = self.anchor else { return };
        let Reading { proxy, asked, doubt } = *reading;
        let (answered, asked) = (anchor.date(asked + doubt), anchor.date(asked));
        let new = Known { proxy, asked, answered, date: 0 };
        let Some(last) = self.known.last() else {
            self.span = asked;
            return self.put(new);
        };
        // A proxy may say anything: a clock that stands still or goes back says nothing.
        if proxy <= last.proxy || asked < last.answered {
            return;
        }
        if asked >= self.span + SPAN.as_nanos() as u64 && self.known.len() < MOST {
            self.span = asked;
            self.put(new);
        } else if new.doubt() < last.doubt() {
            self.known.pop();
            self.put(new);
        }
    }

    /// Adds a reading, and takes a date for each: as long as there is an offset of both clocks that
    /// fits one reading after the other, they have the same, and no drift is seen where none is.
    fn put(&mut self, new: Known) {
        self.known.push(new);
        let mut rest = &mut self.known[..];
        while !rest.is_empty() {
            let (mut least, mut most) = (i128::MIN, i128::MAX);
            let fits = |known: &&Known| {
                let offset = |date: u64| i128::from(date) - i128::from(known.proxy);
                let both = (least.max(offset(known.asked)), most.min(offset(known.answered)));
                let fits = both.0 <= both.1;
                if fits {
                    (least, most) = both;
                }
                fits
            };
            let count = rest.iter().take_while(fits).count();
            let offset = least + (most - least) / 2;
            let (same, behind) = rest.split_at_mut(count);
            for known in same {
                // Between when it was asked and when it had answered.
                known.date = (i128::from(known.proxy) + offset) as u64;
            }
            rest = behind;
        }
    }

    /// The date of one of the proxy's times, nanoseconds since 1970-01-01T00:00:00Z. Later times have
    /// later dates, or the same.
    pub fn date(&self, time: u64) -> u64 {
        let behind = self.known.partition_point(|known| known.proxy <= time);
        match (self.known[..behind].last(), self.known.get(behind)) {
            (None, None) => time,
            (None, Some(next)) => next.date.saturating_sub(next.proxy - time),
            (Some(last), None) => last.date.saturating_add(time - last.proxy),
            (Some(last), Some(next)) => {
                let [part, whole, dates] =
                    [time - last.proxy, next.proxy - last.proxy, next.date - last.date];
                let part = u128::from(dates) * u128::from(part) / u128::from(whole);
                last.date.saturating_add(part as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn anchor() -> Anchor {
        Anchor { at: Instant::now(), wall: 1000 * SECOND }
    }

    /// A reading at that time since the anchor, which took so long, nanoseconds each.
    fn reading(anchor: &Anchor, proxy: u64, at: u64, doubt: u64) -> Reading {
        let doubt = Duration::from_nanos(doubt);
        Reading { proxy, asked: anchor.at + Duration::from_nanos(at) - doubt / 2, doubt }
    }

    #[test]
    fn a_clock_that_was_read_once_gives_times_dates() {
        let anchor = anchor();
        let mut clock = Clock::new(anchor);
        assert_eq!(clock.date(7), 7, "nothing is known of it");
        clock.take(&reading(&anchor, 1000, SECOND, 0));
        let date = |time| clock.date(time).wrapping_sub(1001 * SECOND) as i64;
        assert_eq!([0, 1000, 1500, SECOND].map(date), [-1000, 0, 500, 999_999_000]);
    }

    #[test]
    fn an_hour_of_a_clock_that_drifts_is_dated_to_a_reading() {
        let anchor = anchor();
        let mut clock = Clock::new(anchor);
        // 100 ppm too fast, and read twice a second, in 1 to 5 ms.
        let shown = |at: u64| 77 + at + at / 10_000;
        for n in 1..2 * 3600 {
            let (at, doubt) = (n * SECOND / 2, (1 + n % 5) * 1_000_000);
            clock.take(&reading(&anchor, shown(at), at, doubt));
        }
        assert!(clock.known.len() <= 900, "{} are kept", clock.known.len());
        for at in (0..3600).map(|second| second * SECOND) {
            let off = clock.date(shown(at)).abs_diff(anchor.wall + at);
            assert!(off <= 1_000_000, "{off} ns at {at}");
        }
    }

    /// What the readings are in doubt of is no drift: differences are the proxy's own.
    #[test]
    fn dates_of_a_clock_that_does_not_drift_are_as_far_apart_as_its_times() {
        let anchor = anchor();
        let mut clock = Clock::new(anchor);
        for n in 1..100 {
            // The proxy looked at its clock anywhere in what asking took.
            let (at, doubt) = (n * SECOND, (1 + n * 7 % 11) * 1_000_000);
            clock.take(&reading(&anchor, at + doubt * (n % 5) / 4, at + doubt / 2, doubt));
        }
        let first = clock.date(0);
        assert!(first.abs_diff(anchor.wall) <= 1_000_000, "{first}");
        for time in (0..120).map(|second| second * SECOND + 12_345) {
            assert_eq!(clock.date(time) - first, time);
        }
    }

    #[test]
    fn what_a_proxy_says_of_its_clock_breaks_nothing() {
        let anchor = anchor();
        let mut clock = Clock::new(anchor);
        let said = [5, u64::MAX / 3, 4, 5, 0, u64::MAX - 1, u64::MAX, 17];
        for (at, proxy) in (1_u64..).zip(said) {
            clock.take(&reading(&anchor, proxy, at * 10 * SECOND, 1000));
        }
        let times = [0, 4, 5, 6, 1 << 40, u64::MAX / 3, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let dates = times.map(|time| clock.date(time));
        assert!(dates.is_sorted(), "{dates:?}");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let anchor = anchor();
        let mut clock = Clock::new(anchor);
        for n in 1..2 * MOST as u64 {
            clock.take(&reading(&anchor, n * 5 * SECOND, n * 5 * SECOND, 1000));
        }
        assert_eq!(clock.known.len(), MOST);
    }
}
