//! The bandwidth test of an accelerator, beside what Equation 1 of the DxPU paper predicts.

use super::exec::{Outcome, about};
use super::protocol::{Line, Way};
use crate::front::model::PlanePort;
use host_model::ModelHost;
use host_model::accelerator::{BandwidthReport, BandwidthTest, Direction};
use serde_json::{Value, json};
use std::sync::mpsc::Sender;
use tlp_codec::ids::Bdf;

/// Bytes that a round trip without load is measured with.
const UNLOADED_BYTES: u64 = 64 << 10;

/// Bytes of the first probe of a direction's speed.
const PROBE: u64 = 1 << 20;

/// A probe that is over sooner says little, and a larger one follows.
const PROBE_NS: u64 = 50_000_000;

/// How long a test is to take about, when nobody said how many bytes it is to move.
const WANTED_NS: u64 = 1_000_000_000;

/// Bytes of a test at most, when nobody said how many.
const MOST: u64 = 4 << 30;

/// Parts that progress is told in: one round trip, then a probe and a test each way.
const PARTS: u64 = 5;

/// The power of two that takes about the wanted time at the speed of this test.
fn size_by_time(bytes: u64, elapsed_ns: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(WANTED_NS) / u128::from(elapsed_ns.max(1));
    let scaled = u64::try_from(scaled).unwrap_or(MOST).clamp(PROBE, MOST);
    // The nearer one by ratio: halves the error of rounding in one direction only.
    let below = 1_u64 << scaled.ilog2();
    let nearer_above = u128::from(scaled).pow(2) > 2 * u128::from(below).pow(2);
    if nearer_above { (below * 2).min(MOST) } else { below }
}

/// What of a test was said; the rest has defaults.
pub(super) struct Wish {
    pub(super) bytes: Option<u64>,
    pub(super) only: Option<Way>,
    pub(super) tags: Option<u16>,
    pub(super) request: Option<u16>,
}

/// Tests both directions, or one, with so many bytes, or with what takes about a second.
pub(super) fn bandwidth(
    host: &mut ModelHost<PlanePort>,
    bdf: Bdf,
    wish: &Wish,
    reply: &Sender<Line>,
) -> Outcome {
    let mut test = |direction, bytes, tags| {
        let test = BandwidthTest { direction, bytes, tags, read_request: wish.request };
        host.accelerator_bandwidth(bdf, &test).map_err(|e| about(bdf, &e))
    };
    let said = |done| {
        let _ = reply.send(Line::Progress { done, total: PARTS });
    };
    let mut measure = |direction, done| {
        let bytes = match wish.bytes {
            Some(bytes) => bytes,
            None => {
                let mut probe: BandwidthReport = test(direction, PROBE, wish.tags)?;
                while probe.elapsed_ns < PROBE_NS && probe.bytes < MOST {
                    probe = test(direction, probe.bytes * 4, wish.tags)?;
                }
                size_by_time(probe.bytes, probe.elapsed_ns)
            }
        };
        said(done);
        let report = test(direction, bytes, wish.tags)?;
        said(done + 1);
        Ok::<_, String>(report)
    };
    let read = match wish.only {
        Some(Way::Write) => None,
        _ => Some(measure(Direction::HostToDevice, 2)?),
    };
    let write = match wish.only {
        Some(Way::Read) => None,
        _ => Some(measure(Direction::DeviceToHost, 4)?),
    };
    let mut lines = Vec::new();
    let mut value = json!({});
    if let Some(read) = read {
        let unloaded = test(Direction::HostToDevice, UNLOADED_BYTES, Some(1))?;
        lines.extend(describe_read(&read, &unloaded, &mut value));
        value["host_to_device"] = json!(read);
    }
    if let Some(write) = write {
        lines.push(format!("device to host {:.1} MB/s", write.bytes_per_second / 1e6));
        value["device_to_host"] = json!(write);
    }
    Ok((lines.join("\n"), value))
}

/// Reads beside what Equation 1 says: tags x read request / round trip. Writes wait for no answer.
fn describe_read(
    read: &BandwidthReport,
    unloaded: &BandwidthReport,
    value: &mut Value,
) -> [String; 2] {
    let predict =
        |rtt: u64| f64::from(read.tags) * f64::from(read.request_bytes) * 1e9 / (rtt.max(1) as f64);
    let (idle, loaded) = (predict(unloaded.rtt_mean_ns), predict(read.rtt_mean_ns));
    value["unloaded_rtt_ns"] = json!(unloaded.rtt_mean_ns);
    value["equation1_unloaded_bytes_per_second"] = json!(idle);
    value["equation1_loaded_bytes_per_second"] = json!(loaded);
    [
        format!(
            "host to device {:.1} MB/s ({} tags of {} bytes, round trip {:.1} us unloaded, \
             {:.1} us loaded)",
            read.bytes_per_second / 1e6,
            read.tags,
            read.request_bytes,
            unloaded.rtt_mean_ns as f64 / 1e3,
            read.rtt_mean_ns as f64 / 1e3,
        ),
        format!(
            "Equation 1 says {:.1} MB/s with the round trip unloaded, {:.1} MB/s with it loaded",
            idle / 1e6,
            loaded / 1e6,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_a_power_of_two_that_takes_about_a_second() {
        for (bytes, elapsed_ns) in
            [(PROBE, 50_000_000), (PROBE, 7_000_000), (1 << 24, 60_000_000), (3 << 20, 99_000_000)]
        {
            let size = size_by_time(bytes, elapsed_ns);
            assert!(size.is_power_of_two());
            let seconds = size as f64 / bytes as f64 * elapsed_ns as f64 / 1e9;
            assert!((0.7..1.42).contains(&seconds), "{size} bytes take {seconds} s");
        }
    }

    #[test]
    fn a_size_is_bounded_both_ways() {
        assert_eq!(size_by_time(PROBE, 3600 * WANTED_NS), PROBE);
        assert_eq!(size_by_time(u64::MAX, 0), MOST);
        assert_eq!(size_by_time(0, 0), PROBE);
    }
}
