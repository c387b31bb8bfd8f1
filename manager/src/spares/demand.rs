//! How many devices are being repaired at once, and so how many spares are needed.
//!
//! `n` devices are kept in service, each fails at rate `λ`, and a failed one is back after a repair of
//! mean length `T`. A spare takes its place meanwhile, so that failures go on coming at the rate `nλ`.
//! By Palm's theorem the number that is being repaired is then Poisson-distributed with the mean
//! `m = nλT`, whatever the repair times' distribution is (C. Palm, "Analysis of the Erlang traffic
//! formula for busy-signal arrangements", 1938; C. C. Sherbrooke, "Optimal Inventory Modeling of
//! Systems", 2nd edition, section 2.3). With `s` spares, the pool has run out while more than `s` are
//! being repaired:
//!
//! ```text
//! P(run out) = P(X > s) = Σ (k > s)  e^-m · m^k / k!
//! ```
//!
//! It errs to the safe side once spares have run out: fewer than `n` are then in service to fail.

/// Hours of a year of 365.25 days.
pub const HOURS_OF_A_YEAR: f64 = 8_766.0;

/// Most spares that are ever looked for; beyond it something is wrong with the numbers given.
pub const MAX_SPARES: u32 = 100_000;

/// What is being repaired on average: `n` devices that fail `per_year` times a year each, for
/// `repair_hours`.
pub fn mean(devices: u32, per_year: f64, repair_hours: f64) -> f64 {
    f64::from(devices) * per_year * repair_hours / HOURS_OF_A_YEAR
}

/// The probability that more than `spares` are being repaired, 0 to 1.
///
/// # Panics
///
/// When `mean` is not a number of at least 0.
pub fn runs_out(mean: f64, spares: u32) -> f64 {
    assert!(mean >= 0.0 && mean.is_finite(), "{mean} devices are being repaired on average");
    if mean == 0.0 {
        return 0.0;
    }
    // Each term from the logarithm of the first, so that e^-m does not vanish for large m; and the
    // side that is small, so that nothing is lost by taking it from 1.
    let first = f64::from(spares) + 1.0;
    if first > mean {
        return tail(mean, first).min(1.0);
    }
    let below: f64 = (0..=spares).map(|k| (log_term(mean, f64::from(k))).exp()).sum();
    (1.0 - below).clamp(0.0, 1.0)
}

/// `P(X >= first)`, for `first` above the mean: there each term is smaller than the one before.
fn tail(mean: f64, first: f64) -> f64 {
    let mut term = log_term(mean, first).exp();
    let (mut sum, mut k) = (0.0, first);
    while term > sum * 1e-17 {
        sum += term;
        k += 1.0;
        term *= mean / k;
    }
    sum
}

/// The logarithm of `e^-m · m^k / k!`.
fn log_term(mean: f64, k: f64) -> f64 {
    k * mean.ln() - mean - log_factorial(k)
}

/// The logarithm of `k!`: summed for small `k`, else Stirling's series, whose first term that is left
/// out is below `1/(1680 k^7)`.
fn log_factorial(k: f64) -> f64 {
    if k < 32.0 {
        return (2..=k as u32).map(|i| f64::from(i).ln()).sum();
    }
    let series = 1.0 / (12.0 * k) - 1.0 / (360.0 * k.powi(3)) + 1.0 / (1260.0 * k.powi(5));
    k * k.ln() - k + 0.5 * (std::f64::consts::TAU * k).ln() + series
}

/// The fewest spares that run out with a probability of at most `wanted`; nothing if more than
/// [`MAX_SPARES`] would be needed.
///
/// # Panics
///
/// As [`runs_out`].
pub fn needed(mean: f64, wanted: f64) -> Option<u32> {
    // It only falls with more spares, so that the range can be halved.
    if runs_out(mean, MAX_SPARES) > wanted {
        return None;
    }
    let (mut low, mut high) = (0, MAX_SPARES);
    while low < high {
        let middle = low + (high - low) / 2;
        if runs_out(mean, middle) <= wanted {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// By hand: e^-1 = 0.36787944, and the terms m^k/k! of 1, 1, 1/2, 1/6, 1/24, 1/120; and
    /// e^-0.5 = 0.60653066 with 1, 1/2, 1/8, 1/48.
    #[test]
    fn as_computed_by_hand() {
        let cases = [
            (1.0, 0, 0.632_120_56),
            (1.0, 1, 0.264_241_12),
            (1.0, 2, 0.080_301_40),
            (1.0, 3, 0.018_988_16),
            (1.0, 4, 0.003_659_85),
            (1.0, 5, 0.000_594_18),
            (0.5, 0, 0.393_469_34),
            (0.5, 1, 0.090_204_01),
            (0.5, 2, 0.014_387_68),
            (0.5, 3, 0.001_751_62),
        ];
        for (mean, spares, expected) in cases {
            let found = runs_out(mean, spares);
            assert!((found - expected).abs() < 5e-9, "{mean} {spares}: {found}");
        }
        assert_eq!(needed(1.0, 0.001), Some(5));
        assert_eq!(needed(1.0, 0.02), Some(3));
        assert_eq!(needed(0.5, 0.001), Some(4));
        assert_eq!(needed(0.0, 0.001), Some(0));
        // 1,000 devices, 5 % of which fail a year, 2 weeks of repair: 1000 · 0.05 · 336 / 8766.
        let mean = mean(1_000, 0.05, 336.0);
        assert!((mean - 1.916_495).abs() < 1e-6, "{mean}");
    }

    #[test]
    fn large_and_small_means_stay_between_0_and_1_and_fall() {
        for mean in [1e-9, 0.01, 3.0, 50.0, 1_000.0, 30_000.0] {
            let mut before = 1.0;
            for spares in (0..60_000).step_by(997) {
                let found = runs_out(mean, spares);
                assert!((0.0..=before + 1e-9).contains(&found), "{mean} {spares}: {found}");
                before = found;
            }
            let spares = needed(mean, 0.001).unwrap();
            assert!(runs_out(mean, spares) <= 0.001);
            assert!(spares == 0 || runs_out(mean, spares - 1) > 0.001, "{mean}: not the fewest");
        }
        assert_eq!(needed(1e6, 0.001), None);
    }

    /// A generator of numbers (xorshift64*), the same for every run.
    struct Numbers(u64);

    impl Numbers {
        /// Between 0 and 1, never 0.
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
            (bits as f64 + 1.0) / (1_u64 << 53) as f64
        }
    }

    /// Devices fail and are repaired for a hundred thousand failures; the share of the time in which
    /// more than so many are being repaired is what the formula says, for repair times of two
    /// distributions: all the same, and exponential.
    #[test]
    fn a_simulation_finds_the_same() {
        for exponential in [false, true] {
            let (devices, per_hour, repair) = (200_u32, 1e-4, 100.0);
            let mut numbers = Numbers(0x1234_5678_9abc_def1);
            let mut back: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
            let mut in_state = [0.0; 32];
            let (mut now, mut failures) = (0.0_f64, 0);
            let mut next_failure = 0.0_f64;
            while failures < 100_000 {
                // Times as whole millionths of an hour, so that they can be ordered.
                let next_back = back.peek().map_or(f64::INFINITY, |t| t.0 as f64 / 1e6);
                let next = next_failure.min(next_back);
                in_state[back.len().min(31)] += next - now;
                now = next;
                if next_back <= next_failure {
                    back.pop();
                    continue;
                }
                failures += 1;
                let length = if exponential { -numbers.next().ln() * repair } else { repair };
                back.push(Reverse(((now + length) * 1e6) as u64));
                next_failure = now - numbers.next().ln() / (f64::from(devices) * per_hour);
            }
            let per_year = per_hour * HOURS_OF_A_YEAR;
            let mean = mean(devices, per_year, repair);
            assert!((mean - 2.0).abs() < 1e-9);
            for spares in 0..6 {
                let above: f64 = in_state[spares as usize + 1..].iter().sum();
                let (found, expected) = (above / now, runs_out(mean, spares));
                assert!((found - expected).abs() < 0.01, "{spares}: {found}, not {expected}");
            }
        }
    }
}
