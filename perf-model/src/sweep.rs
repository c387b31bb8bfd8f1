//! Performance against round trip, with confidence (DxPU, Figure 4).

use perf_core::Nanos;

/// Whether a larger metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Samples a second, tokens a second.
    Higher,
    /// Seconds.
    Lower,
}

/// One round trip and what was measured at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The round trip.
    pub rtt: Nanos,
    /// The metric, once for each repetition; at least one.
    pub values: Vec<f64>,
}

/// Performance at a round trip, as part of that without a fabric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Performance {
    /// The round trip.
    pub rtt: Nanos,
    /// 1 is native.
    pub mean: f64,
    /// The ends of its 95 % confidence interval; none where every step ran once.
    pub interval: Option<(f64, f64)>,
}

/// The round trips from `from` to `to`, `steps` of them, evenly, both ends among them.
pub fn round_trips(from: Nanos, to: Nanos, steps: u32) -> Vec<Nanos> {
    let span = u128::from(to.0.saturating_sub(from.0));
    let last = u128::from(steps.saturating_sub(1).max(1));
    (0..steps)
        .map(|step| Nanos(from.0 + u64::try_from(span * u128::from(step) / last).unwrap_or(0)))
        .collect()
}

/// The performance at each step, beside `native`.
pub fn performances(native: &[f64], steps: &[Step], better: Better) -> Vec<Performance> {
    let base = Sample::of(native);
    steps
        .iter()
        .map(|step| {
            let sample = Sample::of(&step.values);
            let (above, below) = match better {
                Better::Higher => (sample, base),
                Better::Lower => (base, sample),
            };
            let (mean, interval) = above.over(&below);
            Performance { rtt: step.rtt, mean, interval }
        })
        .collect()
}

/// Where performance falls below `level`, by lines between the steps; none where it does not.
///
/// The curve begins at 1 at the native round trip.
pub fn falls_below(curve: &[Performance], native: Nanos, level: f64) -> Option<Nanos> {
    let mut last = (native.0 as f64, 1.0);
    for point in curve {
        let here = (point.rtt.0 as f64, point.mean);
        if here.1 < level {
            let part = (last.1 - level) / (last.1 - here.1);
            return Some(Nanos((last.0 + part * (here.0 - last.0)).round() as u64));
        }
        last = here;
    }
    None
}

/// Mean and the square of its standard error.
#[derive(Clone, Copy)]
struct Sample {
    count: usize,
    mean: f64,
    /// Variance of the mean.
    error: f64,
}

impl Sample {
    fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = if count < 2 { 0.0 } else { squares / (count - 1) as f64 / count as f64 };
        Self { count, mean, error }
    }

    /// The ratio of two means and its 95 % interval: relative errors add as squares, Student's t
    /// with the degrees of freedom of Welch and Satterthwaite.
    fn over(&self, below: &Self) -> (f64, Option<(f64, f64)>) {
        let ratio = self.mean / below.mean;
        if self.count < 2 || below.count < 2 {
            return (ratio, None);
        }
        let relative = |sample: &Self| sample.error / sample.mean.powi(2);
        let (a, b) = (relative(self), relative(below));
        let sum = a + b;
        if sum <= 0.0 {
            return (ratio, Some((ratio, ratio)));
        }
        let parts = a.powi(2) / (self.count - 1) as f64 + b.powi(2) / (below.count - 1) as f64;
        let half = student_t(sum.powi(2) / parts) * sum.sqrt() * ratio.abs();
        (ratio, Some((ratio - half, ratio + half)))
    }
}

/// The value that Student's t of so many degrees of freedom exceeds in 2.5 % of cases.
///
/// Hill's expansion (G. W. Hill, *Algorithm 396: Student's t-quantiles*, CACM 13, 1970) is within
/// 1 % from 3 on; below, the table's values.
fn student_t(freedom: f64) -> f64 {
    if freedom < 1.5 {
        return 12.706;
    }
    if freedom < 2.5 {
        return 4.303;
    }
    let z = 1.959_964_f64;
    let one = (z.powi(3) + z) / 4.0;
    let two = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let three = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + one / freedom + two / freedom.powi(2) + three / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rtt: u64, values: &[f64]) -> Step {
        Step { rtt: Nanos(rtt), values: values.to_vec() }
    }

    #[test]
    fn the_round_trips_have_both_ends() {
        let steps = round_trips(Nanos(2_000), Nanos(20_000), 4);
        assert_eq!(steps, [2_000, 8_000, 14_000, 20_000].map(Nanos));
        assert_eq!(round_trips(Nanos(5), Nanos(9), 1), [Nanos(5)]);
    }

    #[test]
    fn performance_is_the_ratio_either_way_round() {
        let steps = [step(8_000, &[90.0])];
        let higher = performances(&[100.0], &steps, Better::Higher);
        assert!((higher[0].mean - 0.9).abs() < 1e-12 && higher[0].interval.is_none());
        let lower = performances(&[9.0], &[step(8_000, &[10.0])], Better::Lower);
        assert!((lower[0].mean - 0.9).abs() < 1e-12);
    }

    #[test]
    fn the_interval_grows_with_the_scatter_and_holds_the_mean() {
        let native = [100.0, 101.0, 99.0];
        let quiet = performances(&native, &[step(1, &[90.0, 90.5, 89.5])], Better::Higher)[0];
        let noisy = performances(&native, &[step(1, &[90.0, 99.0, 81.0])], Better::Higher)[0];
        let width = |performance: Performance| {
            let (low, high) = performance.interval.unwrap();
            assert!(low < performance.mean && performance.mean < high);
            high - low
        };
        assert!(width(quiet) < width(noisy) && width(quiet) < 0.1);
        let same = performances(&[1.0, 1.0], &[step(1, &[1.0, 1.0])], Better::Higher)[0];
        assert_eq!(same.interval, Some((1.0, 1.0)));
    }

    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, table) in
            [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (4.0, 2.776), (10.0, 2.228), (100.0, 1.984)]
        {
            let t = student_t(freedom);
            assert!((t / table - 1.0).abs() < 0.01, "{freedom}: {t} instead of {table}");
        }
    }

    #[test]
    fn the_round_trip_at_which_it_falls_below_lies_between_the_steps() {
        let native = Nanos(1_200);
        let steps = [step(6_000, &[95.0]), step(10_000, &[85.0]), step(20_000, &[99.0])];
        let curve = performances(&[100.0], &steps, Better::Higher);
        assert_eq!(falls_below(&curve, native, 0.9), Some(Nanos(8_000)));
        assert_eq!(falls_below(&curve, native, 0.5), None);
        assert_eq!(falls_below(&curve, native, 0.96), Some(Nanos(5_040)));
    }
}
