//! How well proxies, paths and devices are, and what follows from it.
//!
//! Every `interval` each is good or bad once (`samples`); [`machine`] makes states of that. A change
//! is a record, an event and what the policy says, in one change of the records.
//!
//! - A proxy is bad while it is not connected, or when its links lost
//!   [`HealthConfig::loss_permille`] of what they sent, in two readings in a row.
//! - A path is bad from when a proxy says that what it sends there does not arrive until it is shown
//!   that it does (`paths`).
//! - A device is bad while its slot is quarantined, or when it had [`HealthConfig::device_errors`]
//!   errors within [`HealthConfig::device_window_ms`]: bindings that failed because the device went away
//!   or damaged a TLP, and its error messages (`counters`); or
//!   [`HealthConfig::device_correctable`] that were correctable.

pub mod counters;
mod devices;
mod losses;
pub mod machine;
mod observed;
mod paths;
mod replacing;

pub use observed::Observed;

use crate::config::MAX_TIME_MS;
use crate::manager::Manager;
use crate::operations::holds;
use crate::records::{Tables, Txn};
use crate::spares;
use crate::types::{
    DeviceState, EventKind, EventRecord, HealthRecord, HealthState, HoldKind, ModelRecord,
    NodeName, Place, SlotAddress, Subject,
};
use machine::{Machine, Thresholds};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is done about a device or a box that has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing but an event.
    None,
    /// It gets nothing new until it is healthy again. A path gets nothing new between the two
    /// proxies, as long as they have another.
    #[default]
    Cordon,
    /// As `cordon`, and a device that is lent is replaced by another one.
    Replace,
}

/// The file's `[health]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// How often everything is looked at, milliseconds.
    pub interval_ms: u64,
    /// What follows from a failure.
    pub policy: Policy,
    /// So many errors of a device within its window make it bad.
    pub device_errors: u64,
    /// So many correctable errors of a device within its window make it bad.
    pub device_correctable: u64,
    /// The window, milliseconds.
    pub device_window_ms: u64,
    /// How often proxies are asked what they count, milliseconds.
    pub counters_ms: u64,
    /// So many of a thousand frames that a proxy sent have to be lost to make it bad.
    pub loss_permille: u64,
    /// So many frames have to be sent between two readings for their loss to say something.
    pub loss_frames: u64,
    /// When it gets worse and better.
    pub thresholds: Thresholds,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            interval_ms: 5_000,
            policy: Policy::default(),
            device_errors: 3,
            device_correctable: 1_000,
            device_window_ms: 600_000,
            counters_ms: 30_000,
            loss_permille: 10,
            loss_frames: 1_000,
            thresholds: Thresholds::default(),
        }
    }
}

impl HealthConfig {
    /// How long errors of a device count.
    fn device_window(&self) -> Duration {
        Duration::from_millis(self.device_window_ms)
    }

    /// What is wrong with it, after `health.`.
    ///
    /// # Errors
    ///
    /// The key and why.
    pub fn check(&self) -> Result<(), String> {
        let Thresholds { suspect_after, failed_after, recover_after } = self.thresholds;
        let least = [
            ("interval_ms", self.interval_ms),
            ("device_errors", self.device_errors),
            ("device_correctable", self.device_correctable),
            ("device_window_ms", self.device_window_ms),
            ("counters_ms", self.counters_ms),
            ("loss_permille", self.loss_permille),
            ("loss_frames", self.loss_frames),
            ("thresholds.suspect_after", suspect_after.into()),
            ("thresholds.failed_after", failed_after.into()),
            ("thresholds.recover_after", recover_after.into()),
        ];
        for (key, value) in least {
            // What loses all that it sends loses 1000 of 1000.
            let most = match key {
                "loss_permille" => 1_000,
                key if key.ends_with("_ms") => MAX_TIME_MS,
                _ => u64::MAX,
            };
            if value == 0 {
                return Err(format!("health.{key} is 0; it has to be at least 1"));
            }
            if value > most {
                return Err(format!("health.{key} is {value}; it has to be at most {most}"));
            }
        }
        Ok(())
    }
}

/// Everything that is bad now, and why.
fn bad(manager: &Manager, tables: &Tables, now: Instant) -> BTreeMap<Subject, String> {
    let config = &manager.settings.health;
    let mut bad = BTreeMap::new();
    for (node, why) in manager.observed.bad_links() {
        bad.insert(Subject::Node { node }, why);
    }
    for node in tables.nodes().keys() {
        if let Some(why) = manager.registry.absence(node) {
            bad.insert(Subject::Node { node: node.clone() }, why);
        }
    }
    for ((from, to, path), why) in manager.observed.bad_paths(tables) {
        bad.insert(Subject::Path { from, to, path }, why);
    }
    for (slot, why) in manager.observed.bad_slots(config, now) {
        bad.insert(Subject::Slot { slot }, why);
    }
    for device in tables.devices().values().filter(|d| d.state == DeviceState::Quarantined) {
        let slot = device.address.slot.clone();
        let why = "it failed its reset or readiness test".to_owned();
        bad.insert(Subject::Slot { slot }, why);
    }
    bad
}

/// The machines of what is not healthy, or not for sure. No larger than what is bad and the records of
/// it.
#[derive(Default)]
struct Machines(BTreeMap<Subject, Machine>);

impl Machines {
    /// Takes in one round of samples: everything that is bad is, everything else is good.
    fn round(
        &mut self,
        tables: &Tables,
        bad: &BTreeMap<Subject, String>,
        thresholds: Thresholds,
    ) -> Vec<(Subject, HealthState)> {
        // What was forgotten has no health, nor has it a record; a proxy of that name that comes
        // later begins anew.
        self.0.retain(|subject, machine| {
            let is_recorded = tables.health().contains_key(subject);
            is_known(tables, subject) && (is_recorded || machine.state() == HealthState::Healthy)
        });
        for record in tables.health().values() {
            let subject = record.subject.clone();
            self.0.entry(subject).or_insert_with(|| Machine::new(record.state));
        }
        for subject in bad.keys().filter(|subject| is_known(tables, subject)) {
            self.0.entry(subject.clone()).or_insert_with(|| Machine::new(HealthState::Healthy));
        }
        let mut changes = Vec::new();
        self.0.retain(|subject, machine| {
            let good = !bad.contains_key(subject);
            if let Some(state) = machine.sample(good, thresholds) {
                changes.push((subject.clone(), state));
            }
            !good || machine.state() != HealthState::Healthy
        });
        changes
    }
}

/// Whether the proxies that something is about are in the records.
fn is_known(tables: &Tables, subject: &Subject) -> bool {
    let there = |name: &NodeName| tables.nodes().contains_key(name);
    match subject {
        Subject::Node { node } => there(node),
        Subject::Slot { slot } => there(slot.box_name()),
        Subject::Path { from, to, .. } => there(from) && there(to),
    }
}

/// Records a change and does what the policy says.
fn change(txn: &mut Txn, manager: &Manager, subject: &Subject, state: HealthState, why: &str) {
    if !is_known(txn, subject) {
        // It was forgotten meanwhile.
        return;
    }
    let detail = match state {
        HealthState::Healthy | HealthState::Recovering => format!("{subject} is {state}"),
        _ => format!("{subject} is {state}: {why}"),
    };
    let event = EventRecord::new(EventKind::HealthChanged, detail);
    txn.event(match subject {
        Subject::Node { node } => event.node(node),
        Subject::Slot { slot } => event.node(slot.box_name()).slot(slot),
        Subject::Path { from, .. } => event.node(from),
    });
    let (place, policy) = (subject.place(), manager.settings.health.policy);
    if state == HealthState::Healthy {
        txn.remove_health(subject);
        let ours =
            |place: &Place| txn.holds().get(place).is_some_and(|h| h.kind == HoldKind::Unhealthy);
        if let Some(place) = place.filter(ours) {
            holds::end_hold(txn, &place);
        }
        return;
    }
    let reason = match txn.health().get(subject) {
        Some(record) if state == HealthState::Recovering => record.reason.clone(),
        _ => why.to_owned(),
    };
    let before = txn.health().get(subject);
    let device = match (before, subject) {
        (Some(record), _) if record.device.is_some() => record.device,
        (_, Subject::Slot { slot }) => devices::now_in(txn, slot),
        _ => None,
    };
    let holds = match state {
        HealthState::Failed => policy != Policy::None,
        _ => before.is_some_and(|record| record.holds),
    };
    let relapses = before.is_some_and(|record| record.state == HealthState::Recovering);
    let subject = subject.clone();
    let failed = (state == HealthState::Failed).then(|| subject.clone());
    txn.put_health(HealthRecord { subject, device, state, reason, since: txn.now(), holds });
    let Some(failed) = failed else { return };
    // Nobody repaired what fails again while it recovers: it is the same failure.
    if let Subject::Slot { slot } = &failed
        && !relapses
    {
        count_failure(txn, slot);
    }
    if let Some(place) = place {
        holds::hold_unwell(txn, &place);
    }
}

fn count_failure(txn: &mut Txn, slot: &SlotAddress) {
    let Some(model) = txn.model_of(slot).map(str::to_owned) else { return };
    let known = txn.models().values().filter(|known| known.model.eq_ignore_ascii_case(&model));
    let mut records: Vec<ModelRecord> = known.cloned().collect();
    let since = txn.now();
    if records.is_empty() {
        records.push(ModelRecord { model, failures: 0, since });
    }
    // What was counted while the clock was not set is in no time. Earlier versions made a record for
    // each case of a name; all of them count, from the earliest on.
    for record in records.iter_mut().filter(|record| !spares::is_set(record.since)) {
        (record.failures, record.since) = (0, since);
    }
    records[0].failures = records[0].failures.saturating_add(1);
    for record in records {
        txn.put_model(record);
    }
}

/// Looks until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let mut machines = Machines::default();
    let mut attempts = replacing::Attempts::default();
    let mut away = devices::Away::default();
    let config = &manager.settings.health;
    if let Err(problem) = manager.records.apply(adopt).await {
        tracing::error!("what is held back for its health cannot be recorded: {problem}");
    }
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(config.interval_ms)) => {}
            () = manager.stopping() => return,
        }
        follow(&manager, &mut machines, &mut away).await;
        let tables = manager.records.snapshot();
        let bad = bad(&manager, &tables, Instant::now());
        let changes = machines.round(&tables, &bad, config.thresholds);
        if !changes.is_empty() && !record(&manager, &changes, &bad).await {
            // The records say how it was; it is sampled again from there.
            machines = Machines::default();
        }
        if config.policy == Policy::Replace {
            attempts.round(&manager, &manager.records.snapshot(), Instant::now()).await;
        }
    }
}

/// Earlier managers did not record of what is not well that it holds its place back, but held it.
fn adopt(txn: &mut Txn) {
    let held = txn.holds().values().filter(|hold| hold.kind == HoldKind::Unhealthy);
    let subjects: Vec<Subject> = held.filter_map(|hold| hold.place.subject()).collect();
    for subject in subjects {
        let record = txn.health().get(&subject).filter(|record| !record.holds).cloned();
        if let Some(record) = record {
            txn.put_health(HealthRecord { holds: true, ..HealthRecord::clone(&record) });
        }
    }
}

/// What is known of devices goes where they are.
async fn follow(manager: &Manager, machines: &mut Machines, away: &mut devices::Away) {
    let tables = manager.records.snapshot();
    manager.observed.follow(&tables, &manager.settings.health);
    let moves = away.moves(&tables);
    if moves.is_empty() {
        return;
    }
    if let Err(problem) = manager.records.apply(|txn| devices::carry(txn, &moves)).await {
        tracing::error!("where devices are that are not healthy cannot be recorded: {problem}");
        return;
    }
    for (record, to) in &moves {
        machines.0.remove(&record.subject);
        if let Some(slot) = to {
            machines.0.remove(&Subject::Slot { slot: slot.clone() });
        }
    }
    away.moved(moves);
}

/// Records changes. Whether it could.
async fn record(
    manager: &Manager,
    changes: &[(Subject, HealthState)],
    bad: &BTreeMap<Subject, String>,
) -> bool {
    let changed = manager.records.apply(|txn| {
        for (subject, state) in changes {
            let why = bad.get(subject).map_or("", String::as_str);
            change(txn, manager, subject, *state, why);
        }
    });
    if let Err(problem) = changed.await {
        tracing::error!("health cannot be recorded: {problem}");
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::test_device::gpu;
    use crate::types::{DeviceRecord, NodeRecord, Role, Timestamp};
    use tlp_codec::ids::SlotFunction;

    fn join(txn: &mut Txn, name: &NodeName) {
        let (node, now) = (txn.new_node_id().unwrap(), Timestamp::now());
        let (name, role) = (name.clone(), Role::Box);
        txn.put_node(NodeRecord::new(name, node, role, 1, now));
    }

    #[test]
    fn failures_of_before_the_clock_was_set_are_counted_anew() {
        let mut txn = Txn::new(Tables::default());
        let slot: SlotAddress = "box1/1".parse().unwrap();
        let device = gpu(&slot, SlotFunction::ZERO, 7, txn.now());
        txn.put_device(DeviceRecord { model: "GPU".into(), ..device });
        let count = |txn: &Txn| {
            let all: Vec<_> = txn.models().values().cloned().collect();
            let [one] = &all[..] else { panic!("one model: {all:?}") };
            (one.failures, one.since)
        };
        let (unset, now) = (Timestamp::from_millis(60_000), txn.now());
        txn.put_model(ModelRecord { model: "GpU".into(), failures: 4, since: unset });
        count_failure(&mut txn, &slot);
        assert_eq!(count(&txn), (1, now));
        count_failure(&mut txn, &slot);
        assert_eq!(count(&txn), (2, now));

        // Another one, of another case, was made by an earlier version.
        txn.put_model(ModelRecord { model: "gpu".into(), failures: 4, since: unset });
        count_failure(&mut txn, &slot);
        let all = || txn.models().values();
        assert_eq!(all().map(|record| record.failures).sum::<u32>(), 3);
        assert!(all().all(|record| record.since == now));
    }

    #[test]
    fn a_proxy_of_a_forgotten_name_begins_anew() {
        let name = NodeName::new("box1").unwrap();
        let subject = Subject::Node { node: name.clone() };
        let mut txn = Txn::new(Tables::default());
        join(&mut txn, &name);
        let bad = BTreeMap::from([(subject.clone(), "it is away".to_owned())]);
        let good = BTreeMap::new();
        let thresholds = Thresholds { suspect_after: 1, failed_after: 1, recover_after: 1 };
        let fail = |machines: &mut Machines, txn: &mut Txn| {
            for _ in 0..4 {
                for (subject, state) in machines.round(txn, &bad, thresholds) {
                    let (reason, since) = (String::new(), txn.now());
                    let (device, holds) = (None, false);
                    txn.put_health(HealthRecord { subject, device, state, reason, since, holds });
                }
            }
            assert_eq!(txn.health()[&subject].state, HealthState::Failed);
        };
        // Another one of that name comes after a round, or before the next one.
        for rounds_between in [1, 0] {
            let mut machines = Machines::default();
            fail(&mut machines, &mut txn);
            txn.remove_health(&subject);
            txn.remove_node(&name);
            for _ in 0..rounds_between {
                assert_eq!(machines.round(&txn, &good, thresholds), []);
            }
            join(&mut txn, &name);
            assert_eq!(machines.round(&txn, &good, thresholds), []);
        }
    }
}
