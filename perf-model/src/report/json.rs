//! A report as JSON.

use perf_core::{Histogram, Kind, Place, SHORT};
use serde_json::{Value, json};

use super::{Process, Report, advise};

impl Report {
    /// The report as one JSON object.
    pub fn to_json(&self) -> Value {
        let settings = &self.settings;
        let kernels = self.kernels();
        let kinds: serde_json::Map<String, Value> = Kind::ALL
            .into_iter()
            .map(|kind| {
                let row = self.row(kind);
                let value = json!({
                    "calls": row.calls,
                    "operations": row.operations,
                    "bytes": row.bytes,
                    "delays": row.delays,
                    "added_ns": row.added,
                });
                (kind.name().to_owned(), value)
            })
            .collect();
        json!({
            "command": self.command,
            "profile": self.profile,
            "rtt_ns": settings.fabric.rtt.0,
            "native_rtt_ns": settings.fabric.native_rtt.0,
            "place": if settings.place == Place::Gpu { "gpu" } else { "cpu" },
            "graphs": settings.graphs.name(),
            "proxies": settings.proxies.name(),
            "off": settings.off.iter().map(Kind::name).collect::<Vec<_>>(),
            "wall_ns": self.wall.0,
            "counted_ns": self.counted().0,
            "ended": self.ended,
            "added_ns": self.added().0,
            "putting_ns": self.putting().0,
            "lost": self.lost,
            "kinds": kinds,
            "kernels": histogram(&kernels),
            "processes": self.processes.iter().map(process).collect::<Vec<_>>(),
            "advice": advise(self).iter().map(|advice| json!({
                "saves_ns": advice.saves.0,
                "what": advice.what,
                "because": advice.because,
            })).collect::<Vec<_>>(),
        })
    }
}

/// Durations by number and by time.
pub(crate) fn histogram(histogram: &Histogram) -> Value {
    let (number, time) = histogram.short();
    json!({
        "count": histogram.count(),
        "mean_ns": histogram.mean(),
        "short_ns": SHORT.0,
        "short_by_number": number,
        "short_by_time": time,
        "bins": histogram.bins().map(|(bin, count, nanos)| json!({
            "from_ns": bin.start(),
            "count": count,
            "total_ns": nanos,
        })).collect::<Vec<_>>(),
    })
}

fn process(process: &Process) -> Value {
    json!({
        "pid": process.pid,
        "program": process.program,
        "device": process.device,
        "active_ns": process.active.0,
        "calls": process.calls,
        "delays_gpu": process.delays.gpu,
        "delays_cpu": process.delays.cpu,
        "delays_lost": process.delays.lost,
        "putting_ns": process.delays.putting.0,
        "kernels_unmeasured": process.unmeasured,
        "pushed_bytes": process.pushed.bytes,
        "pageable_bytes": process.pageable,
        "notes": process.notes,
    })
}
