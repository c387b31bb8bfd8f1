//! How well proxies, paths and devices are, and what follows from it.
//!
//! Every `interval` each is good or bad once (`samples`); [`machine`] makes states of that. A change
//! is a record, an event and what the policy says, in one change of the records.
//!
//! - A proxy is bad while it is not connected, or when its links lost
//!   [`HealthConfig::loss_permille`] of what they sent, in two readings in a row.
//! - A path is bad while a proxy says that what it sends there does not arrive.
//! - A device is bad while its slot is quarantined, or when it had [`HealthConfig::device_errors`]
//!   errors within [`HealthConfig::device_window_ms`]: bindings that failed because the device went away
//!   or damaged a TLP, and its error messages (`counters`); or
//!   [`HealthConfig::device_correctable`] that were correctable.

pub mod counters;
mod devices;
pub mod machine;
mod replacing;

use crate::manager::Manager;
use crate::operations::drain;
use crate::records::{Tables, Txn};
use crate::types::{
    BindingId, BindingRecord, DeviceState, EventKind, EventRecord, HealthDevice, HealthRecord,
    HealthState, HoldKind, HoldRecord, ModelRecord, NodeName, Place, SlotAddress, Subject,
};
use machine::{Machine, Thresholds};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::ids::Epoch;
use tokio::time::Instant;

/// What is done about a device or a box that has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing but an event.
    None,
    /// It gets nothing new until it is healthy again.
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
    pub device_errors: usize,
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
    /// What is wrong with it, after `health.`.
    ///
    /// # Errors
    ///
    /// The key and why.
    pub fn check(&self) -> Result<(), String> {
        let Thresholds { suspect_after, failed_after, recover_after } = self.thresholds;
        let least = [
            ("interval_ms", self.interval_ms),
            ("device_errors", self.device_errors as u64),
            ("device_correctable", self.device_correctable),
            ("device_window_ms", self.device_window_ms),
            ("counters_ms", self.counters_ms),
            ("loss_permille", self.loss_permille),
            ("loss_frames", self.loss_frames),
            ("thresholds.suspect_after", suspect_after.into()),
            ("thresholds.failed_after", failed_after.into()),
            ("thresholds.recover_after", recover_after.into()),
        ];
        match least.into_iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(format!("health.{key} is 0; it has to be at least 1")),
            None => Ok(()),
        }
    }
}

/// What went wrong with a device lately.
#[derive(Default)]
struct Errors {
    /// Which, as soon as it is known.
    device: Option<HealthDevice>,
    /// The binding that failed last because of it, with its epoch.
    failed: Option<(BindingId, Epoch)>,
    /// What counts each, no more than make it bad.
    hard: VecDeque<Instant>,
    /// Correctable errors: how many, by when they were read.
    correctable: VecDeque<(Instant, u64)>,
}

impl Errors {
    fn add(&mut self, seen: counters::Errors, config: &HealthConfig) {
        let now = Instant::now();
        let enough = config.device_errors;
        let hard = usize::try_from(seen.non_fatal).unwrap_or(enough).min(enough);
        let hard = if seen.fatal > 0 { enough } else { hard };
        self.hard.extend(std::iter::repeat_n(now, hard));
        while self.hard.len() > enough {
            self.hard.pop_front();
        }
        if seen.correctable > 0 {
            self.correctable.push_back((now, seen.correctable));
        }
    }
}

/// What was seen since the manager started. Errors are kept for slots that there are, and as long as
/// their window; paths and losses for proxies that are connected.
#[derive(Default)]
pub struct Observed {
    errors: Mutex<HashMap<SlotAddress, Errors>>,
    /// Of devices that are in no slot now.
    away: Mutex<HashMap<HealthDevice, Errors>>,
    lost: Mutex<BTreeSet<(NodeName, NodeName, u8)>>,
    losses: Mutex<HashMap<NodeName, counters::Loss>>,
}

impl Observed {
    /// A binding failed because of its device. Both of its proxies may tell it, and a box once for
    /// each function: under its epoch it fails once.
    pub fn error(&self, tables: &Tables, binding: &BindingRecord, config: &HealthConfig) {
        let slot = &binding.slot;
        let failed = Some((binding.id, binding.port_epoch()));
        let mut errors = self.errors.lock().expect("no one panics while holding it");
        let own = errors.entry(slot.clone()).or_default();
        // It may be gone the next time that this is looked at.
        own.device = own.device.or_else(|| devices::now_in(tables, slot));
        if own.failed != failed {
            own.failed = failed;
            own.add(counters::Errors { non_fatal: 1, ..Default::default() }, config);
        }
    }

    /// A device sent error messages. A fatal one is enough: its link is not reliable.
    pub fn errors(&self, slot: &SlotAddress, seen: counters::Errors, config: &HealthConfig) {
        if seen == counters::Errors::default() {
            return;
        }
        let mut errors = self.errors.lock().expect("no one panics while holding it");
        errors.entry(slot.clone()).or_default().add(seen, config);
    }

    /// A proxy was forgotten, and with it what was seen of its devices and by others of its paths.
    pub fn forgotten(&self, name: &NodeName) {
        self.left(name);
        let mut lost = self.lost.lock().expect("no one panics while holding it");
        lost.retain(|(_, to, _)| to != name);
        let mut errors = self.errors.lock().expect("no one panics while holding it");
        errors.retain(|slot, _| slot.box_name() != name);
    }

    fn loss(&self, name: &NodeName, change: impl FnOnce(&mut counters::Loss)) {
        let mut losses = self.losses.lock().expect("no one panics while holding it");
        change(losses.entry(name.clone()).or_default());
    }

    /// What a proxy sends to another by a path arrives, or does not.
    pub fn path(&self, from: &NodeName, to: &NodeName, path: u8, arrives: bool) {
        let mut lost = self.lost.lock().expect("no one panics while holding it");
        let key = (from.clone(), to.clone(), path);
        if arrives {
            lost.remove(&key)
        } else {
            lost.insert(key)
        };
    }

    /// A proxy has forgotten a peer: it sends nothing there, and says nothing more of its paths.
    pub fn parted(&self, from: &NodeName, to: &NodeName) {
        let mut lost = self.lost.lock().expect("no one panics while holding it");
        lost.retain(|(sender, receiver, _)| (sender, receiver) != (from, to));
    }

    /// A proxy is gone, and with it what it said of its paths.
    pub fn left(&self, name: &NodeName) {
        let mut lost = self.lost.lock().expect("no one panics while holding it");
        lost.retain(|(from, ..)| from != name);
        self.losses.lock().expect("no one panics while holding it").remove(name);
    }

    /// The slots whose device is bad, and why.
    fn bad_slots(&self, config: &HealthConfig, now: Instant) -> BTreeMap<SlotAddress, String> {
        let window = Duration::from_millis(config.device_window_ms);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < window;
        let mut errors = self.errors.lock().expect("no one panics while holding it");
        let mut bad = BTreeMap::new();
        let forget = |own: &mut Errors| {
            own.hard.retain(&is_recent);
            own.correctable.retain(|(at, _)| is_recent(at));
        };
        self.away.lock().expect("no one panics while holding it").retain(|_, own| {
            forget(own);
            !own.hard.is_empty() || !own.correctable.is_empty()
        });
        errors.retain(|slot, own| {
            forget(own);
            let correctable = own.correctable.iter().map(|(_, count)| *count);
            let correctable = correctable.fold(0, u64::saturating_add);
            if own.hard.len() >= config.device_errors {
                let why = format!(
                    "bindings of it failed because of it, or it sent error messages that are not \
                     correctable: {} within {} s",
                    own.hard.len(),
                    window.as_secs()
                );
                bad.insert(slot.clone(), why);
            } else if correctable >= config.device_correctable {
                let within = window.as_secs();
                let why = format!("{correctable} correctable errors within {within} s");
                bad.insert(slot.clone(), why);
            }
            !own.hard.is_empty() || !own.correctable.is_empty()
        });
        bad
    }

    /// The proxies that lose too much, and why.
    fn bad_links(&self) -> BTreeMap<NodeName, String> {
        let losses = self.losses.lock().expect("no one panics while holding it");
        let bad = losses.iter().filter(|(_, loss)| loss.is_bad());
        bad.map(|(name, loss)| (name.clone(), loss.why.clone())).collect()
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
    let lost = manager.observed.lost.lock().expect("no one panics while holding it").clone();
    for (from, to, path) in lost {
        let why = format!("what {from} sends to {to} by path {path} does not arrive");
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
    let place = match subject {
        Subject::Node { node } => Some(Place::Node(node.clone())),
        Subject::Slot { slot } => Some(Place::Slot(slot.clone())),
        // It is lost between two proxies only, and their other paths carry what it did.
        Subject::Path { .. } => None,
    };
    if state == HealthState::Healthy {
        txn.remove_health(subject);
        let ours =
            |place: &Place| txn.holds().get(place).is_some_and(|h| h.kind == HoldKind::Unhealthy);
        if let Some(place) = place.filter(ours) {
            drain::end_hold(txn, &place);
        }
        return;
    }
    let reason = match txn.health().get(subject) {
        Some(record) if state == HealthState::Recovering => record.reason.clone(),
        _ => why.to_owned(),
    };
    let device = match (txn.health().get(subject), subject) {
        (Some(record), _) if record.device.is_some() => record.device,
        (_, Subject::Slot { slot }) => devices::now_in(txn, slot),
        _ => None,
    };
    let record = HealthRecord { subject: subject.clone(), device, state, reason, since: txn.now() };
    txn.put_health(record);
    if state != HealthState::Failed {
        return;
    }
    if let Subject::Slot { slot } = subject {
        count_failure(txn, slot);
    }
    let policy = manager.settings.health.policy;
    let Some(place) = place.filter(|_| policy != Policy::None) else { return };
    if !txn.holds().contains_key(&place) {
        let (kind, reason) = (HoldKind::Unhealthy, why.to_owned());
        drain::hold(txn, HoldRecord { place, kind, reason, since: txn.now(), operation: None });
    }
}

fn count_failure(txn: &mut Txn, slot: &SlotAddress) {
    let Some(model) = txn.functions(slot).next().map(|device| device.model.clone()) else { return };
    let known = txn.models().get(&model).cloned();
    let since = txn.now();
    let record = known.unwrap_or(ModelRecord { model, failures: 0, since });
    txn.put_model(ModelRecord { failures: record.failures.saturating_add(1), ..record });
}

/// Looks until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let mut machines = Machines::default();
    let mut attempts = replacing::Attempts::default();
    let mut away = devices::Away::default();
    let config = &manager.settings.health;
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

/// What is known of devices goes where they are.
async fn follow(manager: &Manager, machines: &mut Machines, away: &mut devices::Away) {
    let tables = manager.records.snapshot();
    manager.observed.follow(&tables);
    let moves = away.moves(&tables);
    if moves.is_empty() {
        return;
    }
    let holds = manager.settings.health.policy != Policy::None;
    if let Err(problem) = manager.records.apply(|txn| devices::carry(txn, &moves, holds)).await {
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
    use crate::types::{NodeRecord, Role, Timestamp};

    fn join(txn: &mut Txn, name: &NodeName) {
        let (node, now) = (txn.new_node_id().unwrap(), Timestamp::now());
        let (name, role) = (name.clone(), Role::Box);
        txn.put_node(NodeRecord {
            name,
            node,
            role,
            size: 1,
            first_seen: now,
            last_connected: now,
        });
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
                    txn.put_health(HealthRecord { subject, device: None, state, reason, since });
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
