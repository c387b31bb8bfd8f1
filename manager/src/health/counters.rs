//! What proxies count, read now and then: error messages of devices, and records that their links
//! lost.
//!
//! A box counts for each slot the error messages that its device sent (PCI Express Base
//! Specification 4.0, section 2.2.8.3: ERR_COR, ERR_NONFATAL, ERR_FATAL), which a device with
//! Advanced Error Reporting sends for every error that is not masked. A link counts what it sent and
//! the losses that it found. Counters begin at 0 in each life of a proxy, and a slot's with each
//! device that is put into it.

use super::{HealthConfig, Observed, devices};
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::records::Tables;
use crate::types::{HealthDevice, NodeName, Role, SlotAddress};
use proxy_core::control::{Name, Reply, Request};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tlp_codec::ids::SlotId;
use tokio::task::JoinSet;

/// Proxies that are read at a time. The others wait for their turn.
const AT_ONCE: usize = 32;

/// Readings in a row that are over the bound until a proxy is bad: one alone may be a cable that was
/// moved.
const LOSSY_READINGS: u32 = 2;

/// What is taken of a proxy's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The proxy's life.
    incarnation: u32,
    /// Frames sent, on each link.
    sent: Vec<u64>,
    /// Losses that were found, on each link.
    lost: Vec<u64>,
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
    fn traffic_since(&self, before: Option<&Self>) -> Option<(u64, u64)> {
        let of_all = |values: &[u64]| values.iter().copied().fold(0, u64::saturating_add);
        let Some(before) = before else { return Some((of_all(&self.sent), of_all(&self.lost))) };
        let since = |now: &[u64], then: &[u64]| {
            let pairs = || now.iter().zip(then);
            let goes_on = now.len() == then.len() && pairs().all(|(now, then)| now >= then);
            goes_on.then(|| pairs().fold(0, |sum: u64, (now, then)| sum.saturating_add(now - then)))
        };
        Some((since(&self.sent, &before.sent)?, since(&self.lost, &before.lost)?))
    }
}

/// A counter of a slot, `slot 3: fatal errors`, as its number and what is counted.
fn of_slot(name: &str) -> Option<(u8, &str)> {
    let (number, what) = name.strip_prefix("slot ")?.split_once(": ")?;
    Some((number.parse().ok()?, what))
}

/// How many readings in a row a proxy lost too much.
#[derive(Clone, Debug, Default)]
pub(super) struct Loss {
    row: u32,
    /// Readings in a row since that said nothing.
    silent: u32,
    pub(super) why: String,
}

impl Loss {
    /// Takes in what was sent and lost since the last reading, if it is known. Too little says
    /// nothing; but a proxy that gets nothing new because of its loss sends little, and would never
    /// be good again if that did not count in the end.
    fn take(&mut self, name: &NodeName, traffic: Option<(u64, u64)>, config: &HealthConfig) {
        let Some((sent, lost)) = traffic.filter(|(sent, _)| *sent >= config.loss_frames) else {
            self.silent += 1;
            if self.silent >= LOSSY_READINGS {
                *self = Self::default();
            }
            return;
        };
        self.silent = 0;
        let permille = u128::from(lost) * 1000 / u128::from(sent.max(1));
        if permille < u128::from(config.loss_permille) {
            *self = Self::default();
            return;
        }
        self.row = self.row.saturating_add(1);
        let percent = permille as f64 / 10.0;
        self.why = format!("{name} lost {lost} of {sent} frames that it sent ({percent:.1} %)");
    }

    pub(super) const fn is_bad(&self) -> bool {
        self.row >= LOSSY_READINGS
    }
}

/// Takes in a reading of a proxy.
pub(super) fn take(
    observed: &Observed,
    config: &HealthConfig,
    name: &NodeName,
    now: &Reading,
    before: Option<&Reading>,
) {
    // What came before the first reading came at a time that is not known.
    let Some(before) = before else { return };
    let before = (before.incarnation == now.incarnation).then_some(before);
    let traffic = now.traffic_since(before);
    observed.loss(name, |loss| loss.take(name, traffic, config));
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

/// Reads all proxies again and again until the manager stops.
pub async fn run(manager: Arc<Manager>) {
    let config = &manager.settings.health;
    let mut readings: HashMap<NodeName, Reading> = HashMap::new();
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(config.counters_ms)) => {}
            () = manager.stopping() => return,
        }
        let mut waiting = manager.registry.all();
        waiting.retain(|session| session.is_ready());
        // One that is away for a while goes on counting.
        let tables = manager.records.snapshot();
        readings.retain(|name, _| tables.nodes().contains_key(name));
        let mut tasks = JoinSet::new();
        loop {
            while tasks.len() < AT_ONCE
                && let Some(session) = waiting.pop()
            {
                let manager = manager.clone();
                tasks.spawn(async move { (session.clone(), read(&manager, &session).await) });
            }
            match tasks.join_next().await {
                None => break,
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                // The next round says it, or its connection's end.
                Some(Ok((_, Err(_)))) => {}
                Some(Ok((session, Ok(mut reading)))) => {
                    let (name, tables) = (session.name(), manager.records.snapshot());
                    let before = readings.get(name);
                    reading.tell_devices(name, &tables, before);
                    take(&manager.observed, config, name, &reading, before);
                    reading.forget_empty(name, &tables);
                    readings.insert(name.clone(), reading);
                }
            }
        }
    }
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
            (name("box: malformed TLPs from devices"), 1),
        ];
        let reading = Reading::of(7, &counters);
        let errors = Errors { correctable: 9, non_fatal: 0, fatal: 1 };
        let errors = BTreeMap::from([(12, errors)]);
        let (sent, lost, devices) = (vec![3, 4], vec![2], BTreeMap::new());
        assert_eq!(reading, Reading { incarnation: 7, sent, lost, errors, devices });
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
    fn loss_is_bad_by_its_rate_twice_in_a_row() {
        let (config, node) = (HealthConfig::default(), NodeName::new("host1").unwrap());
        let mut loss = Loss::default();
        let mut take = |sent, lost| {
            loss.take(&node, Some((sent, lost)), &config);
            loss.is_bad()
        };
        // Sent, lost, whether it is bad then: ten of a thousand are, and a few frames say nothing.
        let rows = [
            (1000, 10, false),
            (1000, 9, false),
            (1000, 10, false),
            (10, 0, false),
            (2000, 2000, true),
            (10, 0, true),
            (1000, 10, true),
            (10, 10, true),
            // Two in a row that say nothing are a recovery.
            (10, 10, false),
            (1000, 10, false),
            (1000, 10, true),
            (100_000, 10, false),
        ];
        for (sent, lost, bad) in rows {
            assert_eq!(take(sent, lost), bad, "{lost} of {sent}");
        }
    }

    #[test]
    fn links_that_come_and_go_make_no_loss() {
        let reading = |sent: &[u64], lost: &[u64]| Reading {
            sent: sent.to_vec(),
            lost: lost.to_vec(),
            ..Reading::default()
        };
        type Row = (&'static [u64], &'static [u64], Option<(u64, u64)>);
        let before = reading(&[100_000, 5_000], &[0, 50]);
        let rows: [Row; 5] = [
            (&[102_000, 5_500], &[1, 52], Some((2_500, 3))),
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
        assert_eq!(before.traffic_since(None), Some((105_000, 50)));
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
