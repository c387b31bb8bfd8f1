//! Leases are kept: nothing is lent for longer than it was asked for, and while one manager lives and
//! its wall clock jumps as it likes, nothing is taken for being over before it is.

use super::Managed;
use manager::records::Tables;
use manager::types::{AllocationId, AllocationRecord, Desired, EventKind, EventRecord};
use proxy_core::time::Instant;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// By when what is over is being released: after some looks of the manager.
const SOON: Duration = Duration::from_millis(500);

/// What is looked at happened so long ago at most.
const LOOK: Duration = Duration::from_millis(5);

/// What a life of the manager has been seen to lend for a time.
pub(super) struct Watched {
    /// When the life began.
    since: Instant,
    /// The last event that was looked at.
    seen: u64,
    /// The last allocation of the life before. What was lent before is not known to have all of its
    /// time: the clock may have jumped in between.
    before: Option<AllocationId>,
    /// Since when an allocation has so many milliseconds.
    given: BTreeMap<AllocationId, (Instant, u64)>,
    /// Since when one is over and lent all the same.
    over: BTreeMap<AllocationId, Instant>,
}

impl Watched {
    /// Of a life that begins with these records.
    pub(super) fn new(now: Instant, tables: &Tables) -> Self {
        let seen = tables.events().keys().next_back().copied().unwrap_or_default();
        let before = tables.allocations().keys().next_back().copied();
        Self { since: now, seen, before, given: BTreeMap::new(), over: BTreeMap::new() }
    }

    /// Looks at what the manager has done since the last look; what is wrong with it.
    fn look(&mut self, now: Instant, tables: &Tables) -> Option<String> {
        for allocation in tables.leased().filter(|a| Some(a.id) > self.before) {
            let whole_ms = allocation.lease.as_ref().map_or(0, |lease| lease.whole_ms);
            self.given.entry(allocation.id).or_insert((now, whole_ms));
        }
        let from = (Bound::Excluded(self.seen), Bound::Unbounded);
        for (number, event) in tables.events().range(from) {
            self.seen = *number;
            if let Some(early) = self.hear(now, tables, event) {
                return Some(early);
            }
        }
        None
    }

    fn hear(&mut self, now: Instant, tables: &Tables, event: &EventRecord) -> Option<String> {
        let id = event.allocation?;
        match event.kind {
            EventKind::LeaseExtended => {
                let lease = tables.allocations().get(&id)?.lease.as_ref()?;
                self.given.insert(id, (now, lease.whole_ms));
                None
            }
            EventKind::LeaseOver => {
                // It may be over again, where the operation that takes it was called back.
                let (since, whole_ms) = self.given.insert(id, (now, 0))?;
                let had = now.saturating_since(since);
                let least = Duration::from_millis(whole_ms).saturating_sub(LOOK);
                (had < least).then(|| format!("{id} was lent for {whole_ms} ms and had {had:?}"))
            }
            _ => None,
        }
    }

    /// Something that has been over for some time and is not being released.
    fn overdue(&mut self, now: Instant, wall_ms: u64, tables: &Tables) -> Option<String> {
        // Nothing ends sooner after a start than its borrower is warned.
        if now.saturating_since(self.since) < super::LEASE_WARNING {
            return None;
        }
        let is_over = |allocation: &&AllocationRecord| {
            let ends = allocation.lease.as_ref().map(|lease| lease.until.as_millis());
            let mut bindings = tables.bindings_of(allocation.id);
            ends.is_some_and(|at| at <= wall_ms) && bindings.any(|b| b.desired == Desired::Bound)
        };
        let before = std::mem::take(&mut self.over);
        for AllocationRecord { id, .. } in tables.leased().filter(is_over) {
            self.over.insert(*id, before.get(id).copied().unwrap_or(now));
        }
        let late = |(id, since): (&AllocationId, &Instant)| {
            let late = now.saturating_since(*since);
            (late > SOON).then(|| format!("{id} is lent {late:?} beyond its end"))
        };
        self.over.iter().find_map(late)
    }
}

impl Managed {
    /// A lease that is not kept.
    pub(crate) fn wrong_lease(&mut self, now: Instant) -> Option<String> {
        let life = self.current.as_ref()?;
        let tables = life.manager.records.snapshot();
        if let Some(early) = self.watched.look(now, &tables) {
            return Some(early);
        }
        // After a jump the records say another end until they were looked at.
        if now.saturating_since(self.jumped_at) < SOON {
            return None;
        }
        self.watched.overdue(now, self.wall_ms(now), &tables)
    }
}
