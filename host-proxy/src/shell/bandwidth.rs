//! The bandwidth test of accelerators, beside what Equation 1 of the DxPU paper predicts.

use super::CountingPort;
use super::exec::{Outcome, about};
use super::protocol::Way;
use super::server::Reply;
use host_model::ModelHost;
use host_model::accelerator::{BandwidthReport, BandwidthTest, Direction};
use serde_json::{Value, json};
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

/// Tests both directions, or one, with so many bytes of each device, or with what takes about a
/// second.
pub(super) fn bandwidth(
    host: &mut ModelHost<impl CountingPort>,
    devices: &[Bdf],
    wish: &Wish,
    reply: &Reply,
) -> Outcome {
    let mut test = |devices: &[Bdf], direction, bytes, tags| {
        reply.is_heard()?;
        let test = BandwidthTest { direction, bytes, tags, request: wish.request };
        host.accelerators_bandwidth(devices, &test).map_err(|(bdf, e)| about(bdf, &e))
    };
    let said = |done| reply.progress(done, PARTS);
    let mut measure = |direction, done| {
        let bytes = match wish.bytes {
            Some(bytes) => bytes,
            None => {
                let mut bytes = PROBE;
                let mut probe = test(devices, direction, bytes, wish.tags)?;
                while longest(&probe) < PROBE_NS && bytes < MOST {
                    bytes *= 4;
                    probe = test(devices, direction, bytes, wish.tags)?;
                }
                size_by_time(bytes, longest(&probe))
            }
        };
        said(done);
        let reports = test(devices, direction, bytes, wish.tags)?;
        said(done + 1);
        Ok::<_, String>(reports)
    };
    let read = match wish.only {
        Some(Way::Write) => None,
        _ => Some(measure(Direction::HostToDevice, 2)?),
    };
    let write = match wish.only {
        Some(Way::Read) => None,
        _ => Some(measure(Direction::DeviceToHost, 4)?),
    };
    let unloaded = match &read {
        Some(_) => test(&devices[..1], Direction::HostToDevice, UNLOADED_BYTES, Some(1))?.pop(),
        None => None,
    };
    let mut results = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        let (mut lines, mut value) = (Vec::new(), json!({}));
        if let (Some(read), Some(unloaded)) = (&read, &unloaded) {
            lines.extend(describe_read(&read[index], unloaded, &mut value));
            value["host_to_device"] = json!(read[index]);
        }
        if let Some(write) = &write {
            let BandwidthReport { bytes, elapsed_ns, .. } = write[index];
            lines.push(format!("device to host {}", rate(bytes, elapsed_ns)));
            value["device_to_host"] = json!(write[index]);
        }
        results.push((device.to_string(), lines, value));
    }
    if let [(_, lines, value)] = &mut results[..] {
        return Ok((lines.join("\n"), value.take()));
    }
    Ok(together(results, read.as_deref(), write.as_deref()))
}

/// For people. A device's clock does not see what is over within one look at it.
fn rate(bytes: u64, elapsed_ns: u64) -> String {
    if elapsed_ns == 0 {
        return format!("too quick to be measured: say more --bytes than {bytes}");
    }
    format!("{:.1} MB/s", bytes as f64 * 1e3 / elapsed_ns as f64)
}

/// The longest time of tests that ran at the same time.
fn longest(reports: &[BandwidthReport]) -> u64 {
    reports.iter().map(|report| report.elapsed_ns).max().unwrap_or(0)
}

/// What several devices gave at the same time: each by itself, and all in the time of the slowest.
fn together(
    results: Vec<(String, Vec<String>, Value)>,
    read: Option<&[BandwidthReport]>,
    write: Option<&[BandwidthReport]>,
) -> (String, Value) {
    let (mut text, mut list) = (Vec::new(), Vec::new());
    for (device, lines, mut value) in results {
        text.extend(lines.iter().map(|line| format!("{device} {line}")));
        value["device"] = json!(device);
        list.push(value);
    }
    let mut value = json!({ "devices": list });
    for (what, key, reports) in
        [("host to devices", "host_to_device", read), ("devices to host", "device_to_host", write)]
    {
        let Some(reports) = reports else { continue };
        let (bytes, elapsed_ns) = (reports.iter().map(|r| r.bytes).sum::<u64>(), longest(reports));
        text.push(format!("{what} together {}", rate(bytes, elapsed_ns)));
        value[key] = json!({
            "bytes": bytes,
            "elapsed_ns": elapsed_ns,
            "bytes_per_second": bytes as f64 * 1e9 / elapsed_ns.max(1) as f64,
        });
    }
    (text.join("\n"), value)
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
    fn several_devices_are_told_each_and_together() {
        let report = |elapsed_ns| BandwidthReport {
            direction: Direction::DeviceToHost,
            bytes: 1000,
            elapsed_ns,
            bytes_per_second: 1e12 / elapsed_ns as f64,
            requests: 1,
            tags: 1,
            request_bytes: 256,
            peak_outstanding: 0,
            rtt_mean_ns: 0,
            rtt_min_ns: 0,
            rtt_max_ns: 0,
            crc: 0,
        };
        let results = ["03:00.0", "07:00.0"].map(|name| (name.into(), vec!["x".into()], json!({})));
        let (text, value) = together(results.into(), None, Some(&[report(1000), report(4000)]));
        assert_eq!(text, "03:00.0 x\n07:00.0 x\ndevices to host together 500.0 MB/s");
        assert_eq!(value["devices"][1]["device"], "07:00.0");
        assert_eq!(value["device_to_host"]["bytes"], 2000);
        assert_eq!(value["device_to_host"]["elapsed_ns"], 4000);
        assert_eq!(value.get("host_to_device"), None);
    }

    #[test]
    fn what_took_no_time_has_no_rate() {
        assert_eq!(rate(2_000_000, 4_000_000), "500.0 MB/s");
        assert!(rate(1000, 0).starts_with("too quick"));
    }

    #[test]
    fn a_size_is_bounded_both_ways() {
        assert_eq!(size_by_time(PROBE, 3600 * WANTED_NS), PROBE);
        assert_eq!(size_by_time(u64::MAX, 0), MOST);
        assert_eq!(size_by_time(0, 0), PROBE);
    }
}
