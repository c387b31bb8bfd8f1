//! What proxies count, read now and then: error messages of devices, and records that their links
//! lost.
//!
//! A box counts for each slot the error messages that its device sent (PCI Express Base
//! Specification 4.0, section 2.2.8.3: ERR_COR, ERR_NONFATAL, ERR_FATAL), which a device with
//! Advanced Error Reporting sends for every error that is not masked. A link counts what it sent and
//! the losses that it found. Counters begin at 0 in each life of a proxy, and a slot's with each
//! device that is put into it.

use super::losses::Traffic;
use super::{HealthConfig, Observed, devices};
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::records::Tables;
use crate::types::{HealthDevice, NodeName, Role, SlotAddress};
use proxy_core::control::{Name, Reply, Request};
use proxy_core::limits::MAX_PATHS;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tlp_codec::ids::{NodeId, SlotId};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Proxies that are read at a time. The others wait for their turn.
const AT_ONCE: usize = 32;

/// What is taken of a proxy's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The proxy's life.
    incarnation: u32,
    /// Frames sent, on each link.
    sent: Vec<u64>,
    /// Losses that were found, on each link.
    lost: Vec<u64>,
    /// Frames sent and lost by each path to each node, since its link came up.
    paths: BTreeMap<(u16, u8), Traffic>,
    /// Error messages of each slot's device.
    errors: BTreeMap<u8, Errors>,
    /// Which device that is, as far as it is known.
    devices: BTreeMap<u8, HealthDevice>,
}

/// Error messages of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// ERR_COR.
    pub correctable: u64,
    /// ERR_NONFATAL.
    pub non_fatal: u64,
    /// ERR_FATAL.
    pub fatal: u64,
}

impl Errors {
    /// What came since an earlier reading; all of it, if the counters began anew.
    fn since(self, before: Self) -> Self {
        let since = |now: u64, then: u64| if now < then { now } else { now - then };
        Self {
            correctable: since(self.correctable, before.correctable),
            non_fatal: since(self.non_fatal, before.non_fatal),
            fatal: since(self.fatal, before.fatal),
        }
    }
}

impl Reading {
    /// From all of a proxy's counters. Those of links it gives for each of them, without a name.
    fn of(incarnation: u32, counters: &[(Name, u64)]) -> Self {
        let mut reading = Self { incarnation, ..Self::default() };
        for (name, value) in counters {
            match name.as_str() {
                "link.frames_sent" => reading.sent.push(*value),
                "link.losses_detected" => reading.lost.push(*value),
                name => {
                    if let Some((path, what)) = of_path(name) {
                        let traffic = reading.paths.entry(path).or_default();
                        match what {
                            "frames sent" => traffic.sent = *value,
                            "frames lost" => traffic.lost = *value,
                            _ => {}
                        }
                    }
                    let Some((slot, what)) = of_slot(name) else { continue };
                    let errors = reading.errors.entry(slot).or_default();
                    match what {
                        "correctable errors" => errors.correctable = *value,
                        "non-fatal errors" => errors.non_fatal = *value,
                        "fatal errors" => errors.fatal = *value,
                        _ => {}
                    }
                }
            }
        }
        reading
    }

    /// Says which device is in each slot. While that is not known it is the one that was there.
    fn tell_devices(&mut self, of: &NodeName, tables: &Tables, before: Option<&Self>) {
        let device = |slot: &u8| {
            let now = address(of, *slot).and_then(|slot| devices::now_in(tables, &slot));
            now.or_else(|| before?.devices.get(slot).copied())
        };
        let known = self.errors.keys().filter_map(|slot| Some((*slot, device(slot)?)));
        self.devices = known.collect();
    }

    /// Forgets slots that are empty: what is counted there next is another device's, from 0 on.
    fn forget_empty(&mut self, of: &NodeName, tables: &Tables) {
        let is_empty =
            |slot: u8| address(of, slot).is_some_and(|slot| tables.present(&slot).next().is_none());
        self.errors.retain(|slot, _| !is_empty(*slot));
        self.devices.retain(|slot, _| !is_empty(*slot));
    }

    /// Error messages of a slot's device since an earlier reading of the same life, or since the life
    /// began; all that the device sent, if another one was there then.
    fn errors_since(&self, before: Option<&Self>, slot: u8) -> Errors {
        let is_same = |before: &&Self| match (self.devices.get(&slot), before.devices.get(&slot)) {
            (Some(now), Some(then)) => now == then,
            _ => true,
        };
        let then = before.filter(is_same).and_then(|before| before.errors.get(&slot));
        let now = self.errors.get(&slot).copied().unwrap_or_default();
        now.since(then.copied().unwrap_or_default())
    }

    /// What was sent and lost since an earlier reading of the same life, or since the life began.
    /// Nothing if links have come or gone since: what they had counted cannot be told from what the
    /// others did.
    fn traffic_since(&self, before: Option<&Self>) -> Option<Traffic> {
        let of_all = |values: &[u64]| values.iter().copied().fold(0, u64::saturating_add);
        let Some(before) = before else {
            return Some(Traffic { sent: of_all(&self.sent), lost: of_all(&self.lost) });
        };
        let since = |now: &[u64], then: &[u64]| {
            let pairs = || now.iter().zip(then);
            let goes_on = now.len() == then.len() && pairs().all(|(now, then)| now >= then);
            goes_on.then(|| pairs().fold(0, |sum: u64, (now, then)| sum.saturating_add(now - then)))
        };
        let (sent, lost) = (since(&self.sent, &before.sent)?, since(&self.lost, &before.lost)?);
        Some(Traffic { sent, lost })
    }

    /// What was sent and lost by each path since an earlier reading of the same life, or since its
    /// link came up, if that was later.
    fn paths_since(&self, before: Option<&Self>) -> BTreeMap<(u16, u8), Traffic> {
        let since = |(path, now): (&(u16, u8), &Traffic)| {
            let then = before.and_then(|before| before.paths.get(path)).copied();
            (*path, now.since(then.unwrap_or_default()))
        };
        self.paths.iter().map(since).collect()
    }
}

/// A counter of a path, `path 12/1: frames lost`, as the peer's node number, the path and what is
/// counted.
fn of_path(name: &str) -> Option<((u16, u8), &str)> {
    let (place, what) = name.strip_prefix("path ")?.split_once(": ")?;
    let (node, path) = place.split_once('/')?;
    let path = path.parse().ok().filter(|path| usize::from(*path) < MAX_PATHS)?;
    Some(((node.parse().ok()?, path), what))
}

/// A counter of a slot, `slot 3: fatal errors`, as its number and what is counted.
fn of_slot(name: &str) -> Option<(u8, &str)> {
    let (number, what) = name.strip_prefix("slot ")?.split_once(": ")?;
    Some((number.parse().ok()?, what))
}

/// Takes in a reading of a proxy.
pub(super) fn take(
    observed: &Observed,
    (config, tables): (&HealthConfig, &Tables),
    name: &NodeName,
    now: &Reading,
    before: Option<&Reading>,
) {
    // What came before the first reading came at a time that is not known.
    let Some(before) = before else { return };
    let before = (before.incarnation == now.incarnation).then_some(before);
    let peer = |node: u16| tables.node_by_number(NodeId::new(node).ok()?).map(|n| n.name.clone());
    let paths = now.paths_since(before).into_iter();
    let paths = paths.filter_map(|((node, path), traffic)| Some(((peer(node)?, path), traffic)));
    observed.losses(name, now.traffic_since(before), paths.collect(), config);
    for slot in now.errors.keys() {
        if let Some(address) = address(name, *slot) {
            let device = now.devices.get(slot).copied();
            observed.errors(&address, device, now.errors_since(before, *slot), config);
        }
    }
}

fn address(of: &NodeName, slot: u8) -> Option<SlotAddress> {
    SlotAddress::new(of.clone(), SlotId::new(slot).ok()?).ok()
}

async fn read(manager: &Manager, session: &Session) -> Result<Reading, RequestError> {
    let page = |reply: Box<Reply>| match *reply {
        Reply::Counters { entries, next } => Some((entries.into_iter().collect(), next)),
        _ => None,
    };
    let ask = |from| Request::ReadCounters { from };
    let counters: Vec<(Name, u64)> =
        session.read_all(ask, page, manager.settings.request_bound).await?;
    let identity = session.identity();
    let mut reading = Reading::of(identity.incarnation, &counters);
    // Slots that a box does not have are nobody's.
    let size = if identity.role == Role::Box { identity.size } else { 0 };
    reading.errors.retain(|slot, _| (1..=size).contains(slot));
    Ok(reading)
}

/// Reads all proxies again and again until the manager stops. One that is still being read when the
/// others' turn comes again is left out then.
pub async fn run(manager: Arc<Manager>) {
    let config = &manager.settings.health;
    let mut readings: HashMap<NodeName, Reading> = HashMap::new();
    let mut waiting: Vec<Arc<Session>> = Vec::new();
    let mut reading: HashSet<NodeName> = HashSet::new();
    let mut tasks = JoinSet::new();
    let between = Duration::from_millis(config.counters_ms);
    let mut next_round = Instant::now() + between;
    loop {
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => {
                let (session, read): (Arc<Session>, Result<Reading, RequestError>) = match ended {
                    Ok(ended) => ended,
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                };
                reading.remove(session.name());
                // Why one is not read the next round says, or its connection's end.
                if let Ok(now) = read {
                    take_in(&manager, &mut readings, session.name(), now);
                }
            }
            () = tokio::time::sleep_until(next_round), if waiting.is_empty() => {
                waiting = manager.registry.all();
                waiting.retain(|session| session.is_ready() && !reading.contains(session.name()));
                // One that is away for a while goes on counting.
                let tables = manager.records.snapshot();
                readings.retain(|name, _| tables.nodes().contains_key(name));
            }
            () = manager.stopping() => return,
        }
        while tasks.len() < AT_ONCE
            && let Some(session) = waiting.pop()
        {
            let manager = manager.clone();
            reading.insert(session.name().clone());
            tasks.spawn(async move { (session.clone(), read(&manager, &session).await) });
        }
        // The next round is so long after all of this one have had their turn.
        if waiting.is_empty() && next_round <= Instant::now() {
            next_round = Instant::now() + between;
        }
    }
}

fn take_in(
    manager: &Manager,
    readings: &mut HashMap<NodeName, Reading>,
    name: &NodeName,
    mut now: Reading,
) {
    let (config, tables) = (&manager.settings.health, manager.records.snapshot());
    let before = readings.get(name);
    now.tell_devices(name, &tables, before);
    take(&manager.observed, (config, &tables), name, &now, before);
    now.forget_empty(name, &tables);
    readings.insert(name.clone(), now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        Name::try_from(text).unwrap()
    }

    #[test]
    fn counters_are_read_by_name_and_others_are_left() {
        let counters = [
            (name("link.frames_sent"), 3),
            (name("link.frames_sent"), 4),
            (name("link.losses_detected"), 2),
            (name("slot 12: correctable errors"), 9),
            (name("slot 12: fatal errors"), 1),
            (name("slot x: fatal errors"), 1),
            (name("slot 3"), 1),
            (name("path 12/1: frames sent"), 90),
            (name("path 12/1: frames lost"), 4),
            (name("path 12: frames lost"), 1),
            (name("path 12/300: frames lost"), 1),
            (name("path 12/8: frames lost"), 1),
            (name("box: malformed TLPs from devices"), 1),
        ];
        let reading = Reading::of(7, &counters);
        let errors = Errors { correctable: 9, non_fatal: 0, fatal: 1 };
        let errors = BTreeMap::from([(12, errors)]);
        let (sent, lost, devices) = (vec![3, 4], vec![2], BTreeMap::new());
        let paths = BTreeMap::from([((12, 1), Traffic { sent: 90, lost: 4 })]);
        assert_eq!(reading, Reading { incarnation: 7, sent, lost, paths, errors, devices });
    }

    /// The device was put in anew between two readings, and nothing tells it from the one before.
    #[test]
    fn what_a_reading_does_not_list_is_counted_from_0() {
        let fatal = Reading::of(7, &[(name("slot 2: fatal errors"), 1)]);
        let none = Reading::of(7, &[]);
        assert_eq!(fatal.errors_since(Some(&none), 2).fatal, 1);
    }

    #[test]
    fn errors_are_counted_from_0_for_another_device() {
        let reading = |fatal: u64, device: Option<u64>| {
            let device = device.map(|serial| HealthDevice { vendor: 1, device: 2, serial });
            let errors = BTreeMap::from([(1, Errors { fatal, ..Errors::default() })]);
            let devices = device.map(|device| (1, device)).into_iter().collect();
            Reading { errors, devices, ..Reading::default() }
        };
        let rows = [
            ((5, Some(1)), (7, Some(1)), 2),
            // Whatever it counts, another one was not there before.
            ((5, Some(1)), (7, Some(2)), 7),
            ((5, Some(1)), (3, Some(1)), 3),
            // Which one it is was not known, or is not now.
            ((5, None), (7, Some(1)), 2),
            ((5, Some(1)), (7, None), 2),
        ];
        for ((count, device), (now, is), expected) in rows {
            let before = reading(count, device);
            let found = reading(now, is).errors_since(Some(&before), 1);
            assert_eq!(found.fatal, expected, "{count} of {device:?}, {now} of {is:?}");
        }
        assert_eq!(reading(7, Some(1)).errors_since(None, 1).fatal, 7);
    }

    #[test]
    fn links_that_come_and_go_make_no_loss() {
        let reading = |sent: &[u64], lost: &[u64]| Reading {
            sent: sent.to_vec(),
            lost: lost.to_vec(),
            ..Reading::default()
        };
        type Row = (&'static [u64], &'static [u64], Option<Traffic>);
        let is = |sent, lost| Some(Traffic { sent, lost });
        let before = reading(&[100_000, 5_000], &[0, 50]);
        let rows: [Row; 5] = [
            (&[102_000, 5_500], &[1, 52], is(2_500, 3)),
            // The first has gone; the second sent much, and lost little of it.
            (&[110_000], &[60], None),
            (&[102_000, 5_500, 7], &[1, 52, 0], None),
            // It has gone, and another has come.
            (&[5_500, 7], &[52, 0], None),
            (&[102_000, 5_500], &[0, 49], None),
        ];
        for (sent, lost, expected) in rows {
            assert_eq!(reading(sent, lost).traffic_since(Some(&before)), expected, "{sent:?}");
        }
        assert_eq!(before.traffic_since(None), is(105_000, 50));
    }

    #[test]
    fn a_path_whose_link_was_made_anew_counts_from_then_on() {
        let path = |sent, lost| Reading {
            paths: [((2, 0), Traffic { sent, lost })].into(),
            ..Reading::default()
        };
        let before = path(5_000, 10);
        let rows = [((7_000, 12), (2_000, 2)), ((300, 1), (300, 1)), ((6_000, 4), (6_000, 4))];
        for ((sent, lost), (more, losses)) in rows {
            let found = path(sent, lost).paths_since(Some(&before))[&(2, 0)];
            assert_eq!(found, Traffic { sent: more, lost: losses }, "{sent}");
        }
        assert_eq!(before.paths_since(None), before.paths);
        assert!(Reading::default().paths_since(Some(&before)).is_empty(), "they have parted");
    }

    proptest! {
        /// Whatever proxies count, in whatever order, nothing overflows or is counted twice.
        #[test]
        fn deltas_add_up(values in prop::collection::vec(any::<u64>(), 1..20)) {
            let mut before = Errors::default();
            let mut sum = 0_u128;
            let mut sorted = values;
            sorted.sort_unstable();
            for value in &sorted {
                let now = Errors { correctable: *value, ..Errors::default() };
                sum += u128::from(now.since(before).correctable);
                before = now;
            }
            prop_assert_eq!(sum, u128::from(*sorted.last().unwrap()));
        }
    }
}
