//! A look at all lent devices for a moment.

use crate::types::{BindingId, NodeName, SlotAddress};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The medians of the parts of a round trip, and its percentiles, nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Split {
    /// Round trips that were stamped at both ends.
    pub samples: usize,
    /// Half of the round trips took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// The device itself; of the device's requests, the host's memory.
    pub original_ns: u64,
    /// Between the two proxies, both ways.
    pub network_ns: u64,
    /// Inside the host proxy, both ways.
    pub host_conversion_ns: u64,
    /// Inside the box proxy, both ways.
    pub box_conversion_ns: u64,
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
    /// Requests of the host in a second, posted ones too, stamped or not.
    pub host_requests_per_s: f64,
    /// Requests of the device in a second, posted ones too, stamped or not.
    pub device_requests_per_s: f64,
    /// Round trips of the host's requests, if there were any.
    pub from_host: Option<Split>,
    /// Round trips of the device's requests, if there were any.
    pub from_device: Option<Split>,
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
}
