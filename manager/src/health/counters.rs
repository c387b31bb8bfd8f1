//! What proxies count, read now and then: error messages of devices, and records that their links
//! lost.
//!
//! A box counts for each slot the error messages that its device sent (PCI Express Base
//! Specification 4.0, section 2.2.8.3: ERR_COR, ERR_NONFATAL, ERR_FATAL), which a device with
//! Advanced Error Reporting sends for every error that is not masked. A link counts what it sent and
//! the losses that it found. Counters begin at 0 in each life of a proxy, and a slot's with each
//! device that is put into it.

use super::{HealthConfig, Observed};
use crate::control::{RequestError, Session};
use crate::manager::Manager;
use crate::types::{NodeName, Role, SlotAddress};
use proxy_core::control::{Name, Reply, Request};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    /// Frames sent, on all links.
    sent: u64,
    /// Losses that were found, on all links.
    lost: u64,
    /// Error messages of each slot's device.
    errors: BTreeMap<u8, Errors>,
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
    /// From all of a proxy's counters. Those that a proxy gives for each of its links are added up.
    fn of(incarnation: u32, counters: &[(Name, u64)]) -> Self {
        let mut reading = Self { incarnation, ..Self::default() };
        for (name, value) in counters {
            match name.as_str() {
                "link.frames_sent" => reading.sent = reading.sent.saturating_add(*value),
                "link.losses_detected" => reading.lost = reading.lost.saturating_add(*value),
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
    pub(super) why: String,
}

impl Loss {
    /// Takes in what was sent and lost since the last reading. Too little says nothing.
    fn take(&mut self, name: &NodeName, sent: u64, lost: u64, config: &HealthConfig) {
        if sent < config.loss_frames {
            return;
        }
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
    now: Reading,
    before: Option<&Reading>,
) {
    // What came before the first reading came at a time that is not known.
    let Some(before) = before else { return };
    let none = Reading::default();
    let before = if before.incarnation == now.incarnation { before } else { &none };
    let since = |now: u64, then: u64| now.saturating_sub(then);
    let (sent, lost) = (since(now.sent, before.sent), since(now.lost, before.lost));
    observed.loss(name, |loss| loss.take(name, sent, lost, config));
    for (slot, errors) in &now.errors {
        let errors = errors.since(before.errors.get(slot).copied().unwrap_or_default());
        if let Ok(slot) = SlotId::new(*slot)
            && let Ok(slot) = SlotAddress::new(name.clone(), slot)
        {
            observed.errors(&slot, errors, config);
        }
    }
}

async fn read(manager: &Manager, session: &Session) -> Result<Reading, RequestError> {
    let page = |reply| match reply {
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
        let names: HashSet<NodeName> = waiting.iter().map(|s| s.name().clone()).collect();
        readings.retain(|name, _| names.contains(name));
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
                Some(Ok((session, Ok(reading)))) => {
                    let before = readings.insert(session.name().clone(), reading.clone());
                    take(&manager.observed, config, session.name(), reading, before.as_ref());
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
        assert_eq!(reading, Reading { incarnation: 7, sent: 7, lost: 2, errors });
    }

    #[test]
    fn loss_is_bad_by_its_rate_twice_in_a_row() {
        let (config, node) = (HealthConfig::default(), NodeName::new("host1").unwrap());
        let mut loss = Loss::default();
        let mut take = |sent, lost| {
            loss.take(&node, sent, lost, &config);
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
            (100_000, 10, false),
        ];
        for (sent, lost, bad) in rows {
            assert_eq!(take(sent, lost), bad, "{lost} of {sent}");
        }
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
