//! What was seen of proxies, paths and devices since the manager started.

use super::losses::{Losses, Traffic};
use super::paths::LostPaths;
use super::{HealthConfig, counters, devices};
use crate::records::Tables;
use crate::types::{BindingId, BindingRecord, HealthDevice, NodeName, SlotAddress};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tlp_codec::ids::Epoch;
use tokio::time::Instant;

/// Into how many parts a window is divided: what lies closer together than one is kept as one entry,
/// with the time of the first.
const PARTS: u32 = 256;

/// How often something happened, by when. No more than about [`PARTS`] entries, however often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent(VecDeque<(Instant, u64)>);

impl Recent {
    fn add(&mut self, at: Instant, count: u64, window: Duration) {
        match self.0.back_mut() {
            _ if count == 0 => {}
            Some((first, own)) if at.saturating_duration_since(*first) < window / PARTS => {
                *own = own.saturating_add(count);
            }
            _ => self.0.push_back((at, count)),
        }
    }

    /// With what another one has.
    fn merge(&mut self, other: Self, window: Duration) {
        let mut all: Vec<_> = self.0.drain(..).chain(other.0).collect();
        all.sort_unstable();
        all.into_iter().for_each(|(at, count)| self.add(at, count, window));
    }

    fn forget(&mut self, now: Instant, window: Duration) {
        self.0.retain(|(at, _)| now.saturating_duration_since(*at) < window);
    }

    fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// What went wrong with a device lately.
#[derive(Default)]
pub(super) struct Errors {
    /// Which, as soon as it is known.
    pub(super) device: Option<HealthDevice>,
    /// The binding that failed last because of it, with its epoch.
    failed: Option<(BindingId, Epoch)>,
    /// What is not correctable.
    hard: Recent,
    /// What is.
    correctable: Recent,
}

impl Errors {
    /// A fatal error is enough: the link is not reliable.
    fn add(&mut self, seen: counters::Errors, config: &HealthConfig) {
        let (now, window) = (Instant::now(), config.device_window());
        let hard = if seen.fatal > 0 { config.device_errors } else { 0 };
        self.hard.add(now, hard.max(seen.non_fatal), window);
        self.correctable.add(now, seen.correctable, window);
    }

    /// With what is known of the same device from elsewhere.
    pub(super) fn merge(&mut self, other: Self, config: &HealthConfig) {
        let window = config.device_window();
        self.device = self.device.or(other.device);
        self.failed = self.failed.or(other.failed);
        self.hard.merge(other.hard, window);
        self.correctable.merge(other.correctable, window);
    }

    fn forget(&mut self, now: Instant, config: &HealthConfig) {
        let window = config.device_window();
        self.hard.forget(now, window);
        self.correctable.forget(now, window);
    }

    fn is_empty(&self) -> bool {
        self.hard.0.is_empty() && self.correctable.0.is_empty()
    }

    /// Why the device is bad, if it is.
    fn why(&self, config: &HealthConfig) -> Option<String> {
        let within = config.device_window().as_secs();
        let (hard, correctable) = (self.hard.total(), self.correctable.total());
        if hard >= config.device_errors {
            return Some(format!(
                "bindings of it failed because of it, or it sent error messages that are not \
                 correctable: {hard} within {within} s"
            ));
        }
        (correctable >= config.device_correctable)
            .then(|| format!("{correctable} correctable errors within {within} s"))
    }
}

/// What was seen since the manager started. Errors are kept for slots that there are, and as long as
/// their window; paths for proxies that there are, and losses for those that are connected.
#[derive(Default)]
pub struct Observed {
    pub(super) errors: Mutex<HashMap<SlotAddress, Errors>>,
    /// Of devices that are in no slot now.
    pub(super) away: Mutex<HashMap<HealthDevice, Errors>>,
    paths: Mutex<LostPaths>,
    losses: Mutex<Losses>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no one panics while holding it")
}

impl Observed {
    /// With what the records say of paths.
    pub fn recorded(tables: &Tables) -> Self {
        Self { paths: Mutex::new(LostPaths::recorded(tables)), ..Self::default() }
    }

    /// A binding failed because of its device. Both of its proxies may tell it, and a box once for
    /// each function: under its epoch it fails once.
    pub fn error(&self, tables: &Tables, binding: &BindingRecord, config: &HealthConfig) {
        let slot = &binding.slot;
        let failed = Some((binding.id, binding.port_epoch()));
        let mut errors = lock(&self.errors);
        let own = errors.entry(slot.clone()).or_default();
        // It may be gone the next time that this is looked at.
        own.device = own.device.or_else(|| devices::now_in(tables, slot));
        if own.failed != failed {
            own.failed = failed;
            own.add(counters::Errors { non_fatal: 1, ..Default::default() }, config);
        }
    }

    /// The device in a slot sent error messages. Which it is may not be known.
    pub(super) fn errors(
        &self,
        slot: &SlotAddress,
        device: Option<HealthDevice>,
        seen: counters::Errors,
        config: &HealthConfig,
    ) {
        if seen != counters::Errors::default() {
            let mut errors = lock(&self.errors);
            let own = errors.entry(slot.clone()).or_default();
            if let (Some(before), Some(_)) = (own.device, device)
                && own.device != device
            {
                // Another one came into the slot since that was looked at.
                devices::put_away(&mut lock(&self.away), before, std::mem::take(own), config);
            }
            own.device = own.device.or(device);
            own.add(seen, config);
        }
    }

    /// A proxy was forgotten, and with it what was seen of its devices and by others of its paths.
    pub fn forgotten(&self, name: &NodeName) {
        self.left(name);
        lock(&self.paths).forgotten(name);
        lock(&self.losses).forgotten(name);
        lock(&self.errors).retain(|slot, _| slot.box_name() != name);
    }

    /// What a proxy sent and lost since its counters were read last ([`Losses::take`]).
    pub(super) fn losses(
        &self,
        from: &NodeName,
        all: Option<Traffic>,
        paths: BTreeMap<(NodeName, u8), Traffic>,
        config: &HealthConfig,
    ) {
        lock(&self.losses).take(from, all, paths, config);
    }

    /// What a proxy sends to another by a path arrives, or does not.
    /// Whether that is news.
    pub fn path(&self, from: &NodeName, to: &NodeName, path: u8, arrives: bool) -> bool {
        lock(&self.paths).seen(from, to, path, arrives)
    }

    /// A proxy's link to another has come up. It has so many paths.
    pub fn link_up(&self, from: &NodeName, to: &NodeName, paths: usize) {
        lock(&self.paths).link_up(from, to, paths);
    }

    /// A proxy has forgotten a peer: it sends nothing there, and says nothing more of its paths.
    pub fn parted(&self, from: &NodeName, to: &NodeName) {
        lock(&self.losses).parted(from, to);
        lock(&self.paths).parted(from, to);
    }

    /// A proxy is gone. What it said of its paths stands.
    pub fn left(&self, name: &NodeName) {
        lock(&self.losses).left(name);
    }

    /// The slots whose device is bad, and why.
    pub(super) fn bad_slots(
        &self,
        config: &HealthConfig,
        now: Instant,
    ) -> BTreeMap<SlotAddress, String> {
        let mut bad = BTreeMap::new();
        lock(&self.away).retain(|_, own| {
            own.forget(now, config);
            !own.is_empty()
        });
        lock(&self.errors).retain(|slot, own| {
            own.forget(now, config);
            bad.extend(own.why(config).map(|why| (slot.clone(), why)));
            !own.is_empty()
        });
        bad
    }

    /// The paths between proxies that a binding joins that are bad, and why.
    pub(super) fn bad_paths(&self, tables: &Tables) -> Vec<((NodeName, NodeName, u8), String)> {
        let mut bad: Vec<_> = lock(&self.losses).bad_paths().collect();
        // What does not arrive at all says more than what did not before.
        bad.extend(lock(&self.paths).bad().map(|(from, to, path)| {
            let why = format!("what {from} sends to {to} by path {path} does not arrive");
            ((from, to, path), why)
        }));
        bad.retain(|((from, to, _), _)| {
            tables.bindings_at(from).any(|b| b.host == *to || b.slot.box_name() == to)
        });
        bad
    }

    /// The proxies that lose too much, and why.
    pub(super) fn bad_links(&self) -> BTreeMap<NodeName, String> {
        lock(&self.losses).bad_proxies().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fatal_error_is_enough_whatever_the_bound_is() {
        let mut config = HealthConfig { device_errors: u64::MAX, ..HealthConfig::default() };
        let fatal = counters::Errors { fatal: 1, ..Default::default() };
        let mut errors = Errors::default();
        for _ in 0..3 {
            errors.add(fatal, &config);
        }
        assert!(errors.why(&config).is_some());
        assert!(errors.hard.0.len() <= 3);
        config.device_errors = 2;
        let mut errors = Errors::default();
        errors.add(counters::Errors { non_fatal: 1, ..Default::default() }, &config);
        assert_eq!(errors.why(&config), None);
        errors.add(counters::Errors { non_fatal: 1, ..Default::default() }, &config);
        assert!(errors.why(&config).unwrap().contains("2 within 600 s"));
    }

    #[test]
    fn a_path_that_loses_too_much_is_not_bad_while_nothing_is_bound() {
        let [host, boxed, other] = ["host1", "box1", "box2"].map(|n| NodeName::new(n).unwrap());
        let (observed, config) = (Observed::default(), HealthConfig::default());
        let lossy = Traffic { sent: config.loss_frames, lost: config.loss_frames };
        for _ in 0..2 {
            let paths = [&boxed, &other].map(|to| ((to.clone(), 1), lossy)).into();
            observed.losses(&host, None, paths, &config);
        }
        assert_eq!(observed.bad_paths(&Tables::default()), []);
        let bad = || lock(&observed.losses).bad_paths().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(bad().len(), 2);
        observed.parted(&host, &other);
        assert_eq!(bad(), [(host.clone(), boxed.clone(), 1)]);
    }

    #[test]
    fn errors_are_counted_for_their_window_and_take_bounded_room() {
        let (start, window) = (Instant::now(), Duration::from_secs(256));
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut recent = Recent::default();
        // Ten a second.
        for ms in (0..512_000).step_by(100) {
            recent.forget(at(ms), window);
            recent.add(at(ms), 1, window);
            assert!(recent.0.len() <= 257, "{}", recent.0.len());
        }
        assert!((2_550..=2_560).contains(&recent.total()), "{}", recent.total());
        // What comes together is in the order of its times, and is as much.
        let mut other = Recent::default();
        other.add(at(1_000_000), 5, window);
        recent.forget(at(512_000), window);
        let total = recent.total();
        other.merge(recent, window);
        assert_eq!(other.total(), total + 5);
        assert!(other.0.iter().is_sorted());
        other.forget(at(1_000_000), window);
        assert_eq!(other.total(), 5);
    }
}
