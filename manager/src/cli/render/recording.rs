//! What was recorded and measured of TLPs on their way, and the counters.

use super::{or_dash, table, text_or_dash};
use manager_client::views::{
    Counters, Latency, List, NotRecorded, RecordingView, SlowRequest, Split, StampedKind, Stamps,
};

/// A proxy's counters.
pub(in crate::cli) fn counters(counters: &Counters) -> String {
    let rows = counters.counters.iter().map(|(name, value)| [name.clone(), value.to_string()]);
    table(["COUNTER", "VALUE"], rows)
}

/// A proxy's stage stamps.
pub(in crate::cli) fn stamps(stamps: &Stamps) -> String {
    if stamps.stamps.is_empty() {
        return format!("no stamps: sample TLPs with `stamps {} --sampling all`", stamps.name);
    }
    let heading = [
        "PEER",
        "SLOT",
        "FUNCTION",
        "EPOCH",
        "ENTRY",
        "SEQUENCE",
        "ASKED BY",
        "KIND",
        "ARRIVED (NS)",
        "ENCODED (NS)",
        "SENT (NS)",
        "RECEIVED (NS)",
        "DECODED (NS)",
        "DELIVERED (NS)",
    ];
    table(
        heading,
        stamps.stamps.iter().map(|stamp| {
            let at = |stage: usize| or_dash(stamp.at.get(stage).copied().flatten());
            [
                stamp.peer.to_string(),
                stamp.slot.to_string(),
                stamp.function.to_string(),
                stamp.epoch.clone(),
                match (stamp.index, stamp.generation) {
                    (Some(index), Some(generation)) => format!("{index}.{generation}"),
                    _ => "-".to_owned(),
                },
                or_dash(stamp.sequence),
                if stamp.from_host { "host" } else { "device" }.to_owned(),
                match stamp.kind {
                    StampedKind::Request => "request",
                    StampedKind::Completion => "completion",
                    StampedKind::Posted => "posted",
                }
                .to_owned(),
                at(0),
                at(1),
                at(2),
                at(3),
                at(4),
                at(5),
            ]
        }),
    )
}

/// Recordings.
pub(in crate::cli) fn recordings(list: &List<RecordingView>) -> String {
    let heading = ["RECORDING", "BINDING", "SLOT", "HOST", "SINCE", "PACKETS", "BYTES", "ENDED"];
    let rows = list.items.iter().map(|recording| {
        [
            recording.id.to_string(),
            recording.binding.to_string(),
            recording.slot.to_string(),
            recording.host.to_string(),
            recording.since.to_string(),
            recording.packets.to_string(),
            recording.bytes.to_string(),
            or_dash(recording.ended.as_ref().map(|ended| &ended.detail)),
        ]
    });
    table(heading, rows)
}

/// A look at the round trips of all lent devices.
pub(in crate::cli) fn latency(latency: &Latency) -> String {
    let heading = [
        "BINDING",
        "SLOT",
        "HOST",
        "MODEL",
        "ASKED BY",
        "REQUESTS/S",
        "SAMPLES",
        "P50 (US)",
        "P99 (US)",
        "ORIGINAL",
        "NETWORK",
        "HOST PROXY",
        "BOX PROXY",
    ];
    let rows = latency.devices.iter().flat_map(|device| {
        let ends = [
            ("host", device.host_requests_per_s, &device.from_host),
            ("device", device.device_requests_per_s, &device.from_device),
        ];
        ends.map(|(asker, per_s, split)| {
            let us =
                |of: fn(&Split) -> Option<u64>| or_dash(split.as_ref().and_then(of).map(micros));
            [
                device.binding.to_string(),
                device.slot.to_string(),
                device.host.to_string(),
                text_or_dash(&device.model),
                asker.to_owned(),
                or_dash(per_s.map(|per_s| format!("{per_s:.0}"))),
                split.as_ref().map_or(0, |s| s.samples).to_string(),
                us(|s| Some(s.p50_ns)),
                us(|s| Some(s.p99_ns)),
                us(|s| s.original_ns),
                us(|s| s.network_ns),
                us(|s| s.host_conversion_ns),
                us(|s| s.box_conversion_ns),
            ]
        })
    });
    let mut text = table(heading, rows.collect::<Vec<_>>());
    for slow in &latency.slowest {
        let stages = slow.stages.iter().map(|s| format!("    {:>10} {}", micros(s.ns), s.stage));
        text.push_str(&format!(
            "\n{} us  {} of {}, asked by the {}: {}\n{}\n",
            micros(slow.total_ns),
            slow.slot,
            slow.host,
            slow.asker,
            slow_request(slow),
            stages.collect::<Vec<_>>().join("\n")
        ));
    }
    // A proxy does not know of which device: each of them says the same.
    let lost = latency.devices.iter().map(|device| device.lost).max().unwrap_or(0);
    if lost > 0 {
        text.push_str(&format!(
            "\n{lost} entries or more were lost: give --one-in a larger number"
        ));
    }
    for device in &latency.devices {
        if let Some(NotRecorded { detail, .. }) = &device.not_recorded {
            text.push_str(&format!("\nnot split: {} of {}: {detail}", device.slot, device.host));
        }
    }
    for cut_short in &latency.cut_short {
        text.push_str(&format!("\ncut short: {cut_short}"));
    }
    for missing in &latency.missing {
        text.push_str(&format!("\nnot looked at: {missing}"));
    }
    text
}

fn slow_request(slow: &SlowRequest) -> String {
    let address = slow.address.map(|address| format!(" {address:#x}"));
    let target = slow.target.as_ref().map(|target| format!(" {target}"));
    let bytes = slow.bytes.map(|bytes| format!(" {bytes} B"));
    [Some(slow.kind.clone()), address, target, bytes].into_iter().flatten().collect()
}

/// Nanoseconds as microseconds.
fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_look_says_what_it_lacks() {
        let device = |lost: u64| {
            json!({ "binding": "bind-1", "slot": "box-a/1", "host": "host-a", "model": "",
                "host_requests_per_s": 5.0, "device_requests_per_s": 0.0, "from_host": null,
                "from_device": null, "not_recorded": null, "lost": lost })
        };
        let look = |lost: [u64; 2], cut_short: &[&str]| {
            let look = json!({ "window_ms": 1000, "one_in": 1, "devices": lost.map(device),
                "slowest": [], "missing": ["bind-9: away"], "cut_short": cut_short });
            latency(&serde_json::from_value(look).unwrap())
        };
        let said = look([3, 7], &["box-a: looked at for 3ms only"]);
        for line in [
            "7 entries or more were lost: give --one-in a larger number",
            "cut short: box-a: looked at for 3ms only",
            "not looked at: bind-9: away",
        ] {
            assert!(said.lines().any(|there| there == line), "{line} is not in {said}");
        }
        let said = look([0, 0], &[]);
        assert!(!said.contains("lost") && !said.contains("cut short"), "{said}");
    }
}
