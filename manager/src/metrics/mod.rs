//! Numbers for Prometheus: what the manager counts and times while it runs, and what the records
//! say at the moment of the scrape.

mod operations;
mod pool;
mod store;

pub use operations::follow;
pub use store::Metered;

use crate::manager::Manager;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// What is said beside a number: names and values.
pub(crate) type Labels = Vec<(&'static str, String)>;

type Timed = Family<Labels, Histogram, fn() -> Histogram>;

/// 100 µs to 13 s.
fn fast() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 18))
}

/// 10 ms to 5 minutes.
fn slow() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 16))
}

/// What is counted and timed.
pub struct Metrics {
    registry: Registry,
    pub(crate) commits: Histogram,
    pub(crate) commit_failures: Counter,
    pub(crate) operations: Timed,
    pub(crate) events: Family<Labels, Counter>,
    pub(crate) differences: Family<Labels, Counter>,
    requests: Timed,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("dxpu");
        let commits = fast();
        let commit_failures = Counter::default();
        let operations = Timed::new_with_constructor(slow);
        let events = Family::default();
        let differences = Family::<Labels, Counter>::default();
        // A rate needs the 0 before the first one, which may be all that there ever are.
        for kind in operations::DIFFERENCES {
            let _ = differences.get_or_create(&vec![("kind", kind.to_string())]);
        }
        let requests = Timed::new_with_constructor(fast);
        let seconds = Unit::Seconds;
        let help = "Writes of the store, each on the disk";
        registry.register_with_unit("store_commit", help, seconds.clone(), commits.clone());
        let help = "Writes of the store that failed";
        registry.register("store_commit_failures", help, commit_failures.clone());
        let help = "Operations that ended, by kind and how they ended";
        registry.register_with_unit("operation", help, seconds.clone(), operations.clone());
        registry.register("events", "Events, by kind", events.clone());
        let help = "Differences between records and proxies' tables that were repaired, by kind";
        registry.register("reconcile_differences", help, differences.clone());
        let help = "Requests to the REST API, by method, route and status";
        registry.register_with_unit("http_request", help, seconds, requests.clone());
        Self { registry, commits, commit_failures, operations, events, differences, requests }
    }
}

impl Metrics {
    /// A request that was answered. `route` is its path with names for what varies.
    pub fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = vec![
            ("method", method.to_owned()),
            ("route", route.to_owned()),
            ("status", status.to_string()),
        ];
        self.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// All of it, as text in the OpenMetrics format.
    pub fn text(&self, manager: &Manager) -> String {
        let mut now = Registry::with_prefix("dxpu");
        pool::register(&mut now, manager);
        let mut text = String::new();
        let whole = encode(&mut text, &self.registry).is_ok();
        // One text has one end.
        if let Some(end) = text.rfind("# EOF") {
            text.truncate(end);
        }
        let whole = whole && encode(&mut text, &now).is_ok();
        assert!(whole, "a text takes everything");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::records::Records;
    use crate::store::EmbeddedStore;
    use crate::types::{NodeName, NodeRecord, Role};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// The names of what is measured: without what Prometheus adds to them.
    fn stems(text: &str) -> BTreeSet<String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !word(c)).filter(|word| word.starts_with("dxpu_"));
        let stem = |word: &str| {
            let ends = ["_bucket", "_sum", "_count", "_total"];
            let end = ends.iter().find(|end| word.ends_with(**end)).copied().unwrap_or("");
            word.trim_end_matches(end).to_owned()
        };
        words.map(stem).collect()
    }

    #[tokio::test]
    async fn the_dashboard_shows_what_is_measured_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let store = Arc::new(EmbeddedStore::open(&path).unwrap());
        let records = Records::open(store, &path).unwrap();
        let (manager, _queues) =
            Manager::new(records, Settings::default(), Metrics::default().into());
        let added = manager.records.apply(|txn| {
            let node = txn.new_node_id().unwrap();
            let now = txn.now();
            txn.put_node(NodeRecord::new(NodeName::new("box1").unwrap(), node, Role::Box, 1, now));
        });
        added.await.unwrap();
        let text = manager.metrics.text(&manager);
        for kind in ["orphan-removed", "binding-missing"] {
            let zero = format!("dxpu_reconcile_differences_total{{kind=\"{kind}\"}} 0");
            assert!(text.contains(&zero), "{text}");
        }
        // What else is counted by names appears with its first name.
        let metrics = &manager.metrics;
        let labels = vec![("kind", "x".to_owned())];
        metrics.operations.get_or_create(&labels).observe(1.0);
        metrics.events.get_or_create(&labels).inc();
        metrics.differences.get_or_create(&labels).inc();
        metrics.request("GET", "/v1/nodes", 200, Duration::from_millis(1));
        let text = manager.metrics.text(&manager);
        assert_eq!(text.matches("# EOF").count(), 1, "{text}");
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let measured: BTreeSet<String> =
            types.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        let dashboard = include_str!("../../dashboards/dxpu-manager.json");
        let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(parsed["panels"].as_array().unwrap().len() > 5);
        assert_eq!(stems(dashboard), measured);
    }
}
