//! A prediction as JSON.

use perf_core::{BytesPerSecond, Kind};
use serde_json::{Value, json};

use super::{Native, Prediction};
use crate::replay::Lost;
use crate::report::histogram;

impl Native {
    /// What the trace itself says.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rate = |rate: Option<BytesPerSecond>| rate.map(BytesPerSecond::get);
        json!({
            "calls": self.counts[0],
            "operations": self.counts[1],
            "devices": self.counts[2],
            "native_ns": self.length_ns,
            "steps": self.steps.map(|(count, _)| count),
            "native_step_ns": self.steps.map(|(_, mean)| mean),
            "htod_bytes_per_second": rate(self.rates[0]),
            "dtoh_bytes_per_second": rate(self.rates[1]),
            "kernels": histogram(&self.kernels),
        })
    }
}

fn lost(what: &Lost) -> Value {
    json!({ "count": what.count, "added_ns": what.added_ns, "lost_ns": what.lost_ns })
}

impl Prediction {
    /// What it says, with so many names.
    #[must_use]
    pub fn to_json(&self, native: &Native, top: usize) -> Value {
        let settings = &self.scenario.settings;
        let fabric = &settings.fabric;
        let causes: serde_json::Map<String, Value> =
            self.causes.iter().map(|(cause, it)| (cause.name().to_owned(), lost(it))).collect();
        let names: Vec<Value> = self
            .names
            .iter()
            .take(top)
            .map(|(cause, name, it)| {
                let mut value = lost(it);
                value["name"] = json!(name);
                value["cause"] = json!(cause.name());
                value
            })
            .collect();
        json!({
            "rtt_ns": fabric.rtt.0,
            "native_rtt_ns": fabric.native_rtt.0,
            "tags": fabric.tags.get(),
            "read_size": fabric.read_size.get(),
            "read_ahead": fabric.read_ahead,
            "native_htod_bytes_per_second": fabric.native_htod.get(),
            "native_dtoh_bytes_per_second": fabric.native_dtoh.get(),
            "fabric_bytes_per_second": fabric.fabric_rate.get(),
            "push_bytes_per_second": fabric.push.map(BytesPerSecond::get),
            "kernel_round_trips": f64::from(fabric.kernel_round_trips.0) / 1e3,
            "graphs": settings.graphs.name(),
            "off": settings.off.iter().map(Kind::name).collect::<Vec<_>>(),
            "proxies": settings.proxies.name(),
            "predicted_ns": self.length_ns,
            "predicted_step_ns": self.step_ns,
            "performance_percent": native.performance(self),
            "added_ns": self.added_ns(),
            "lost_ns": self.lost_ns(),
            "hidden_percent": self.hidden_percent(),
            "causes": causes,
            "top": names,
        })
    }
}
