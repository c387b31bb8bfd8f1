//! Spares of models.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a failure rate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RateSource {
    /// From the configuration.
    Given,
    /// From the failures that were seen.
    Seen,
}

/// The spares of a model, and how many it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SparesView {
    /// The model.
    pub model: String,
    /// Devices that there are.
    pub total: u32,
    /// Those that are lent.
    pub lent: u32,
    /// Those that can be lent: the spares.
    pub free: u32,
    /// So many are left free by requests.
    pub kept: u32,
    /// Failures that were seen.
    pub failures: u32,
    /// Failures a year of one device that are counted with.
    pub failures_per_year: f64,
    /// Where that comes from.
    pub rate_source: RateSource,
    /// Mean time until a failed device is back, hours.
    pub repair_hours: u32,
    /// How many are being repaired on average.
    pub in_repair: f64,
    /// The probability of running out with the spares that there are, 0 to 1.
    pub runs_out: f64,
    /// The probability that is wanted.
    pub wanted: f64,
    /// The fewest spares with which it is not above that; nothing if too many to compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<u32>,
    /// How it was calculated, for a person.
    pub calculation: String,
}
