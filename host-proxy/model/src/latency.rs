//! Round-trip times in a few numbers.

use serde::Serialize;
use std::time::Duration;

/// Times of one kind of access, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyReport {
    /// How many were measured.
    pub count: usize,
    /// The shortest.
    pub min_ns: u64,
    /// The middle one.
    pub median_ns: u64,
    /// 99 of 100 are not longer.
    pub p99_ns: u64,
    /// 999 of 1000 are not longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// How many ended in a second.
    pub per_second: f64,
}

impl LatencyReport {
    /// Of these times, measured within `elapsed`; `None` if there are none.
    pub fn new(mut times: Vec<Duration>, elapsed: Duration) -> Option<Self> {
        times.sort_unstable();
        let nanos = |time: Duration| time.as_nanos() as u64;
        // The nearest-rank method: the smallest value that so many are not above.
        let rank = |per_mille: usize| times[(times.len() * per_mille).div_ceil(1000).max(1) - 1];
        let (first, last) = (times.first().copied()?, times.last().copied()?);
        let sum: Duration = times.iter().sum();
        Some(Self {
            count: times.len(),
            min_ns: nanos(first),
            median_ns: nanos(rank(500)),
            p99_ns: nanos(rank(990)),
            p999_ns: nanos(rank(999)),
            max_ns: nanos(last),
            mean_ns: (sum.as_nanos() / times.len() as u128) as u64,
            per_second: times.len() as f64 / elapsed.max(Duration::from_nanos(1)).as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        assert_eq!(LatencyReport::new(Vec::new(), Duration::ZERO), None);
        let times = (1..=200).rev().map(Duration::from_nanos).collect();
        let report = LatencyReport::new(times, Duration::from_micros(10)).unwrap();
        assert_eq!((report.min_ns, report.median_ns), (1, 100));
        assert_eq!((report.p99_ns, report.p999_ns, report.max_ns), (198, 200, 200));
        assert_eq!((report.mean_ns, report.per_second), (100, 2e7));
        let one = LatencyReport::new(vec![Duration::from_nanos(7)], Duration::ZERO).unwrap();
        assert_eq!((one.median_ns, one.p99_ns), (7, 7));
    }
}
