//! What the records say at the moment of the scrape.

use super::Labels;
use crate::manager::Manager;
use crate::planner::PoolView;
use crate::types::Phase;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

type Gauges = Family<Labels, Gauge>;

/// Registers all of it.
pub(super) fn register(registry: &mut Registry, manager: &Manager) {
    let tables = manager.records.snapshot();
    let pool = PoolView::of(&tables, &manager.registry);

    let slots = Gauges::default();
    for view in pool.boxes.values() {
        for slot in &view.slots {
            let labels = vec![
                ("status", slot.status.to_string()),
                ("model", slot.model.clone()),
                ("connected", view.connected.to_string()),
            ];
            slots.get_or_create(&labels).inc();
        }
    }
    registry.register("slots", "Slots, by status, model and whether their box is connected", slots);

    let proxies = Gauges::default();
    for node in tables.nodes().values() {
        let state = match manager.registry.get(&node.name) {
            Some(session) if session.is_ready() => "connected",
            Some(_) => "connecting",
            None => "away",
        };
        let labels = vec![("role", node.role.to_string()), ("state", state.to_owned())];
        proxies.get_or_create(&labels).inc();
    }
    registry.register("proxies", "Proxies that were ever here, by role and state", proxies);

    let bindings = Gauges::default();
    // A phase that no binding is in is 0, not unknown.
    for phase in Phase::ALL {
        bindings.get_or_create(&vec![("phase", phase.to_string())]).set(0);
    }
    for binding in tables.bindings().values() {
        bindings.get_or_create(&vec![("phase", binding.phase.to_string())]).inc();
    }
    registry.register("bindings", "Bindings, by phase", bindings);

    let one = |value: u64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge
    };
    let count = |count: usize| one(count as u64);
    let mut add = |name: &str, help: &str, gauge: Gauge| registry.register(name, help, gauge);
    add("allocations", "Allocations", count(tables.allocations().len()));
    add("operations_running", "Operations that have not ended", count(tables.running().count()));
    add("idempotency_keys", "Idempotency keys that are kept", count(tables.key_count()));
    add("term", "The leader's term: one more after every start", one(manager.term().0));
    let generation = u64::from(tables.meta().generation);
    add("epoch_generation", "Generation of the epochs that are given out", one(generation));
    let dropped = Counter::<u64>::default();
    dropped.inc_by(tables.meta().keys_dropped_early);
    let help = "Idempotency keys that went before their time because too many came";
    registry.register("idempotency_keys_dropped_early", help, dropped);
    let suppressed = Counter::<u64>::default();
    suppressed.inc_by(tables.sources().suppressed());
    let help = "Events that were not recorded because their proxy had too many";
    registry.register("events_suppressed", help, suppressed);
    let uptime = Gauge::<f64, AtomicU64>::default();
    uptime.set(manager.started().elapsed().as_secs_f64());
    registry.register_with_unit("uptime", "Time since the start", Unit::Seconds, uptime);
    let memory = one(resident());
    let help = "Memory that the manager takes, without what was swapped out";
    registry.register_with_unit("memory", help, Unit::Bytes, memory);
}

/// Resident memory, bytes; 0 where the operating system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
