//! A look at all lent devices for a moment.

use super::NotRecorded;
use crate::types::{BindingId, NodeName, SlotAddress};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The percentiles of round trips, and the medians of their parts, nanoseconds. What the device, the
/// network and the other proxy than the asker's took is known of those that both ends stamped; where
/// one end is not recorded, of none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Split {
    /// Round trips that the asker's proxy stamped, at the other end or not.
    pub samples: usize,
    /// Half of the round trips took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The device itself; of the device's requests, the host's memory.
    pub original_ns: Option<u64>,
    /// Between the two proxies, both ways.
    pub network_ns: Option<u64>,
    /// Inside both proxies, both ways: the median of what both took of each round trip, which is not
    /// the sum of the two medians.
    pub conversion_ns: Option<u64>,
    /// Inside the host proxy, both ways.
    pub host_conversion_ns: Option<u64>,
    /// Inside the box proxy, both ways.
    pub box_conversion_ns: Option<u64>,
}

/// One lent device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceLatency {
    /// Its binding.
    pub binding: BindingId,
    /// Its slot.
    pub slot: SlotAddress,
    /// Its host.
    pub host: NodeName,
    /// Its model, or empty.
    pub model: String,
    /// Requests of the host in a second, posted ones too, stamped or not; not known where the host
    /// proxy is not recorded.
    pub host_requests_per_s: Option<f64>,
    /// Requests of the device in a second, posted ones too, stamped or not; not known where the box
    /// proxy is not recorded.
    pub device_requests_per_s: Option<f64>,
    /// Round trips of the host's requests, if there were any and the host proxy is recorded.
    pub from_host: Option<Split>,
    /// Round trips of the device's requests, if there were any and the box proxy is recorded.
    pub from_device: Option<Split>,
    /// The end that is not recorded; nothing if both are.
    pub not_recorded: Option<NotRecorded>,
    /// Entries that its proxies had no room for, of any device: some round trips are missing.
    pub lost: u64,
}

/// One stage of a round trip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageTime {
    /// Where, and from which stamp to which.
    pub stage: String,
    /// Nanoseconds.
    pub ns: u64,
}

/// One slow request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlowRequest {
    /// The binding.
    pub binding: BindingId,
    /// The slot.
    pub slot: SlotAddress,
    /// The host.
    pub host: NodeName,
    /// `host` or `device`: whose request it is.
    pub asker: String,
    /// Its type, such as `MRd`.
    pub kind: String,
    /// The address of memory and I/O requests.
    pub address: Option<u64>,
    /// Whom a configuration request is for, and which register.
    pub target: Option<String>,
    /// Bytes that it asks for or has.
    pub bytes: Option<u32>,
    /// Completions that answered it.
    pub completions: usize,
    /// The whole round trip, nanoseconds.
    pub total_ns: u64,
    /// What it was made of, in order.
    pub stages: Vec<StageTime>,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// How long it was looked, milliseconds.
    pub window_ms: u64,
    /// One request in so many was stamped.
    pub one_in: u32,
    /// Every lent device that was looked at.
    pub devices: Vec<DeviceLatency>,
    /// The slowest round trips of all of them, slowest first.
    pub slowest: Vec<SlowRequest>,
    /// Why some devices were not looked at.
    pub missing: Vec<String>,
    /// Proxies that were looked at for less than half of the time, and why: what there is of their
    /// devices is of that time.
    #[serde(default)]
    pub cut_short: Vec<String>,
}
