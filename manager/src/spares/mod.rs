//! Spares: how many devices of a model are free, how many are needed, and how many are kept.

pub mod demand;

use crate::planner::Liveness;
use crate::records::Tables;
use crate::types::{DeviceState, SlotAddress, SlotStatus, Timestamp};
use manager_client::views::{RateSource, SparesView};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Failures that have to have been seen until the rate is taken from them.
const ENOUGH_FAILURES: u32 = 5;

/// Milliseconds since the first of them until then: 90 days. Devices that fail together, with their
/// box or their firmware, say nothing of a year.
const ENOUGH_TIME_MS: u64 = 90 * 24 * 3_600_000;

/// Unix time in milliseconds, of 2020: a clock that says less was not set when the machine was switched on.
const SET_MS: u64 = 1_577_836_800_000;

/// Milliseconds of a year of 365.25 days.
const YEAR_MS: f64 = demand::HOURS_OF_A_YEAR * 3_600_000.0;

/// Most failures a year of a thousand devices: each fails nearly three times a day.
const MAX_ANNUAL_FAILURE_PERMILLE: u32 = 1_000_000;

/// Longest mean time of a repair.
const MAX_REPAIR_HOURS: u32 = 87_660;

/// The file's `[spares]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SparesConfig {
    /// Failures a year of a thousand devices, of models of which nothing else is said.
    pub annual_failure_permille: u32,
    /// Mean time until a failed device is back or another one is there, hours.
    pub repair_hours: u32,
    /// Probability with which spares may run out, millionths.
    pub run_out_ppm: u32,
    /// What is said of single models, by name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// What is said of a model; what is not said is as for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Failures a year of a thousand devices.
    pub annual_failure_permille: Option<u32>,
    /// Mean time until a failed device is back, hours.
    pub repair_hours: Option<u32>,
    /// So many are left free by requests; only a replacement takes them.
    pub keep: u32,
}

impl Default for SparesConfig {
    fn default() -> Self {
        Self {
            annual_failure_permille: 50,
            repair_hours: 14 * 24,
            run_out_ppm: 1_000,
            models: BTreeMap::new(),
        }
    }
}

impl SparesConfig {
    /// What is wrong with it, after `spares.`.
    ///
    /// # Errors
    ///
    /// The key and why.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=999_999).contains(&self.run_out_ppm) {
            return Err(format!("spares.run_out_ppm is {}; 1 to 999999", self.run_out_ppm));
        }
        let mut names = BTreeSet::new();
        if let Some(name) = self.models.keys().find(|n| !names.insert(n.to_ascii_lowercase())) {
            return Err(format!(
                "spares.models.{name}: stands there twice, in small letters and large"
            ));
        }
        let all = [(String::new(), Some(self.annual_failure_permille), Some(self.repair_hours))];
        let models = self.models.iter().map(|(name, model)| {
            (format!("models.{name}."), model.annual_failure_permille, model.repair_hours)
        });
        for (of, rate, hours) in all.into_iter().chain(models) {
            if let Some(rate) = rate.filter(|rate| *rate > MAX_ANNUAL_FAILURE_PERMILLE) {
                let most = MAX_ANNUAL_FAILURE_PERMILLE;
                return Err(format!(
                    "spares.{of}annual_failure_permille is {rate}; at most {most}"
                ));
            }
            if let Some(hours) = hours.filter(|hours| !(1..=MAX_REPAIR_HOURS).contains(hours)) {
                return Err(format!(
                    "spares.{of}repair_hours is {hours}; 1 to {MAX_REPAIR_HOURS}, ten years"
                ));
            }
        }
        Ok(())
    }

    /// Whether spares of any model are kept.
    pub fn keeps_any(&self) -> bool {
        self.models.values().any(|model| model.keep > 0)
    }

    /// How many of a model are kept.
    pub fn keep(&self, model: &str) -> u32 {
        self.of(model).keep
    }

    fn of(&self, model: &str) -> ModelConfig {
        let known = self.models.iter().find(|(name, _)| name.eq_ignore_ascii_case(model));
        known.map(|(_, config)| config.clone()).unwrap_or_default()
    }
}

/// How many slots there are of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    total: u32,
    lent: u32,
    free: u32,
}

/// By the models' names in small letters, with the names as they are written.
fn count(tables: &Tables, live: &impl Liveness) -> BTreeMap<String, (String, Count)> {
    let mut counts: BTreeMap<String, (String, Count)> = BTreeMap::new();
    let mut seen: Option<SlotAddress> = None;
    for device in tables.devices().values().filter(|d| d.state != DeviceState::Empty) {
        // The first function says what a slot has.
        if seen.as_ref() == Some(&device.address.slot) {
            continue;
        }
        let slot = device.address.slot.clone();
        let model = tables.model_of(&slot).unwrap_or_default();
        let new = || (model.to_owned(), Count::default());
        let (_, count) = counts.entry(model.to_ascii_lowercase()).or_insert_with(new);
        count.total += 1;
        if tables.binding_at_slot(&slot).is_some() {
            count.lent += 1;
        } else if tables.slot_status(&slot) == SlotStatus::Free && live.is_ready(slot.box_name()) {
            count.free += 1;
        }
        seen = Some(slot);
    }
    counts
}

/// Each model's spares, and how many it needs. What is in boxes that are away is no spare.
pub fn all(
    tables: &Tables,
    live: &impl Liveness,
    config: &SparesConfig,
    now: Timestamp,
) -> Vec<SparesView> {
    count(tables, live)
        .into_values()
        .map(|(model, count)| one(tables, config, now, model, count))
        .collect()
}

/// How often devices of a model failed, and since when that is counted.
fn history(tables: &Tables, model: &str) -> Option<(u32, Timestamp)> {
    let own = tables.models().values().filter(|known| known.model.eq_ignore_ascii_case(model));
    own.map(|known| (known.failures, known.since))
        .reduce(|(one, since), (other, then)| (one.saturating_add(other), since.min(then)))
}

/// Whether that is by a clock that was set. Since another time nothing can be counted.
pub fn is_set(since: Timestamp) -> bool {
    since.as_millis() >= SET_MS
}

/// The rate of so many failures, a year and device, when they have been enough for long enough. The
/// time counts from the first failure on, so that one is none of that time.
fn seen(failures: u32, since: Timestamp, now: Timestamp, devices: u32) -> Option<f64> {
    let time = now.as_millis().saturating_sub(since.as_millis());
    let enough = failures >= ENOUGH_FAILURES && time >= ENOUGH_TIME_MS && is_set(since);
    let years = f64::from(devices.max(1)) * time as f64 / YEAR_MS;
    enough.then(|| f64::from(failures - 1) / years)
}

fn one(
    tables: &Tables,
    config: &SparesConfig,
    now: Timestamp,
    model: String,
    count: Count,
) -> SparesView {
    let own = config.of(&model);
    let history = history(tables, &model);
    let failures = history.map_or(0, |(failures, _)| failures);
    let given = own.annual_failure_permille.unwrap_or(config.annual_failure_permille);
    let seen = history.and_then(|(failures, since)| seen(failures, since, now, count.total));
    // What is said of the model itself goes before what was seen of it.
    let (per_year, source) = match (own.annual_failure_permille, seen) {
        (None, Some(rate)) => (rate, RateSource::Seen),
        _ => (f64::from(given) / 1000.0, RateSource::Given),
    };
    let repair_hours = own.repair_hours.unwrap_or(config.repair_hours);
    let mean = demand::mean(count.total, per_year, f64::from(repair_hours));
    let wanted = f64::from(config.run_out_ppm) / 1e6;
    let needed = demand::needed(mean, wanted);
    let runs_out = demand::runs_out(mean, count.free);
    let calculation = format!(
        "{} devices x {:.4} failures a year x {repair_hours} h / {} h a year = {mean:.4} being \
         repaired on average (m); P(run out) = P(Poisson(m) > spares): {runs_out:.3e} with {} \
         spares, at most {wanted:.3e} with {}",
        count.total,
        per_year,
        demand::HOURS_OF_A_YEAR,
        count.free,
        needed.map_or_else(|| "more than can be computed".to_owned(), |needed| needed.to_string()),
    );
    SparesView {
        model,
        total: count.total,
        lent: count.lent,
        free: count.free,
        kept: own.keep,
        failures,
        failures_per_year: per_year,
        rate_source: source,
        repair_hours,
        in_repair: mean,
        runs_out,
        wanted,
        needed,
        calculation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_seen_only_after_a_time() {
        let first = Timestamp::from_millis(1_800_000_000_000);
        let after = |ms: u64| Timestamp::from_millis(first.as_millis() + ms);
        let year = YEAR_MS as u64;
        // A box full of them that fails at once would be a hundred failures a device and year.
        assert_eq!(seen(8, first, after(3_600_000), 1_000), None);
        assert_eq!(seen(4, first, after(year), 1_000), None);
        assert_eq!(seen(41, Timestamp::from_millis(year), first, 1_000), None, "not since 1971");
        let rate = seen(41, first, after(year), 1_000).unwrap();
        assert!((rate - 0.04).abs() < 1e-9, "{rate}");
    }
}
