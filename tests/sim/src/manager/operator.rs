//! The operator: wants one slot for one host each, again whenever there is no such lending; takes them
//! back, replaces devices, and works on slots, boxes, hosts and paths, which are emptied for that.

use super::life::Life;
use super::{Managed, name};
use crate::schedule::Site;
use manager::operations::drain::{self, Drain};
use manager::operations::replace::Replace;
use manager::operations::take_back::{self, TakeBack};
use manager::operations::{self, ReleaseMode, ReleaseTarget, choosing, holds, lease};
use manager::planner::PlanRequest;
use manager::records::Tables;
use manager::types::{
    AllocationId, DeviceState, EventKind, OperationId, OperationKind, OperationRecord,
    OperationState, Place, SlotAddress,
};
use proxy_core::control::Request;
use proxy_core::time::Instant;
use std::time::Duration;

/// How long the operator waits before it asks again for what it did not get.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long an operating system has to let go.
const ORDERLY_MS: u32 = 2_000;

/// One slot for one host.
pub(super) struct Wish {
    host: usize,
    /// Another one, when its device was replaced.
    pub(super) slot: SlotAddress,
    /// The operator has taken it back since it was lent.
    released: bool,
    allocation: Option<AllocationId>,
    not_before: Instant,
    /// How often it was asked for: each time on other terms.
    asked: u32,
}

impl Wish {
    pub(super) fn new(host: usize, slot: SlotAddress) -> Self {
        Self { host, slot, released: false, allocation: None, not_before: Instant::ZERO, asked: 0 }
    }
}

impl Managed {
    /// What the operator does of itself.
    pub(super) fn operate(&mut self, now: Instant) {
        let Some(life) = &self.current else { return };
        let tables = life.manager.records.snapshot();
        if self.looked_at_holds + ASK_AGAIN <= now {
            self.looked_at_holds = now;
            self.put_back(&tables);
        }
        for wish in 0..self.wishes.len() {
            self.follow(wish, &tables);
            if self.wishes[wish].not_before <= now {
                self.wish(now, wish, &tables);
            }
        }
    }

    /// Its device was replaced by the one in another slot.
    fn follow(&mut self, wish: usize, tables: &Tables) {
        let wish = &mut self.wishes[wish];
        if let Some(binding) = tables.binding_at_slot(&wish.slot) {
            wish.allocation = Some(binding.allocation);
        } else if let Some(allocation) = wish.allocation.take()
            && let Some(binding) = tables.bindings_of(allocation).next()
        {
            wish.slot = binding.slot.clone();
        }
    }

    /// Asks for a slot that is not lent, or for its recovery.
    fn wish(&mut self, now: Instant, wish: usize, tables: &Tables) {
        let Some(life) = &self.current else { return };
        let wish = &mut self.wishes[wish];
        let mut functions = tables.functions(&wish.slot);
        let quarantined = functions.any(|device| device.state == DeviceState::Quarantined);
        let manager = life.manager.clone();
        if quarantined {
            wish.not_before = now + ASK_AGAIN * 10;
            if let Some(session) = manager.registry.ready(wish.slot.box_name()) {
                let (slot, bound) = (wish.slot.slot(), self.settings.unbind_bound);
                life.runtime.spawn(async move {
                    let _ = session.request(Request::Recover(slot), bound).await;
                    session.sync.notify_one();
                });
            }
        } else if tables.binding_at_slot(&wish.slot).is_none() {
            wish.not_before = now + ASK_AGAIN;
            if std::mem::take(&mut wish.released) && self.roams {
                wish.host = (wish.host + 1) % self.hosts;
            }
            let mut request = PlanRequest::for_host(name(self.hosts, wish.host));
            request.wishes.box_name = Some(wish.slot.box_name().clone());
            request.slot = Some(wish.slot.slot());
            let at_box = super::number(wish.slot.box_name());
            let (slot, asked) = (usize::from(wish.slot.slot().get()), wish.asked);
            request.link = self.terms.wished(at_box, slot, asked);
            let lease_ms = self
                .terms
                .lease(at_box, slot, asked, self.lease_ms)
                .filter(|_| now < self.leases_until);
            wish.asked += 1;
            life.runtime.spawn(async move {
                // Not every operating system here enables what it has in time.
                let terms =
                    operations::Terms { keep_unenumerated: true, lease_ms, ..Default::default() };
                let asked = manager.records.change(|txn| {
                    operations::allocate(txn, &manager.registry, &request, terms.clone(), None)
                });
                let _ = asked.await;
            });
        }
    }

    /// Takes a slot back. Whether it is lent.
    pub(crate) fn release(&mut self, at_box: usize, slot: usize, force: bool) -> bool {
        let Some(life) = &self.current else { return false };
        let slot = self.slot(at_box, slot);
        let Some(binding) = life.manager.records.snapshot().binding_at_slot(&slot).cloned() else {
            return false;
        };
        let of_slot = |wish: &&mut Wish| wish.slot == binding.slot;
        self.wishes.iter_mut().filter(of_slot).for_each(|wish| wish.released = true);
        let mode =
            if force { ReleaseMode::Force } else { ReleaseMode::Orderly { within_ms: ORDERLY_MS } };
        let manager = life.manager.clone();
        life.runtime.spawn(async move {
            let asked = manager.records.change(|txn| {
                operations::release(txn, ReleaseTarget::Binding(binding.id), mode, None)
            });
            let _ = asked.await;
        });
        true
    }

    /// Has a device replaced by another one.
    pub(crate) fn replace(&mut self, at_box: usize, slot: usize, force: bool) {
        let Some(life) = &self.current else { return };
        let slot = self.slot(at_box, slot);
        let Some(binding) = life.manager.records.snapshot().binding_at_slot(&slot).cloned() else {
            return;
        };
        let within_ms = (!force).then_some(ORDERLY_MS);
        let manager = life.manager.clone();
        life.runtime.spawn(async move {
            let how = Replace { within_ms, reason: "it is old".into(), parent: None };
            let _ = choosing::replace(&manager, binding.id, &how, None, |_| Ok(())).await;
        });
    }

    /// Empties something to work on it, by taking back what is lent there or by replacing that.
    pub(crate) fn begin_work(&mut self, at: Site, replace: bool) {
        let place = self.place(at);
        self.at_work.push(place.clone());
        let Some(life) = &self.current else { return };
        let manager = life.manager.clone();
        let how = Drain { replace, within_ms: ORDERLY_MS, reason: "work".into() };
        life.runtime.spawn(async move {
            let begun = manager
                .records
                .change(|txn| drain::drain(txn, &manager.registry, &place, &how, None));
            let _ = begun.await;
        });
    }

    /// The work is done.
    pub(crate) fn end_work(&mut self, at: Site) {
        let place = self.place(at);
        if let Some(found) = self.at_work.iter().position(|at_work| *at_work == place) {
            self.at_work.remove(found);
        }
    }

    /// The operator thinks better of what it asked for last.
    pub(crate) fn call_back(&mut self) {
        let Some(life) = &self.current else { return };
        if let Some(last) = life.manager.records.snapshot().running().map(|o| o.id).max() {
            cancel(life, last);
        }
    }

    /// Takes a device back, with a notice.
    pub(crate) fn take_back(&mut self, at_box: usize, slot: usize, grace_ms: u64) {
        let Some(life) = &self.current else { return };
        let what = take_back::Lent::Place(Place::Slot(self.slot(at_box, slot)));
        let manager = life.manager.clone();
        life.runtime.spawn(async move {
            let how = TakeBack { grace_ms, within_ms: ORDERLY_MS, reason: "it is ours".into() };
            let begun = manager.records.change(|txn| take_back::take_back(txn, &what, &how, None));
            let _ = begun.await;
        });
    }

    /// Lends what is lent with an end for so long from now on.
    pub(crate) fn extend(&mut self, at_box: usize, slot: usize, lease_ms: u64) {
        let Some(life) = &self.current else { return };
        let slot = self.slot(at_box, slot);
        let manager = life.manager.clone();
        life.runtime.spawn(async move {
            let tables = manager.records.snapshot();
            let Some(binding) = tables.binding_at_slot(&slot) else { return };
            let id = binding.allocation;
            let extended = manager.records.change(|txn| {
                lease::extend(txn, id, lease_ms, |lease| lease::left(&manager, id, lease))
            });
            let _ = extended.await;
        });
    }

    /// How often it did for the operator what that asked for: devices replaced, places emptied, what
    /// was called back, devices taken back, leases over and extended.
    pub(crate) fn served(&self) -> [u64; 6] {
        let Some(life) = &self.current else { return [0; 6] };
        let tables = life.manager.records.snapshot();
        let count = |is: &dyn Fn(&OperationRecord) -> bool| {
            tables.operations().values().filter(|operation| is(operation)).count() as u64
        };
        let told =
            |kind| tables.events().values().filter(|event| event.kind == kind).count() as u64;
        let is_done = |o: &OperationRecord| o.state == OperationState::Succeeded;
        [
            count(&|o| is_done(o) && matches!(o.what, OperationKind::Replace { .. })),
            count(&|o| is_done(o) && matches!(o.what, OperationKind::Drain { .. })),
            count(&|o| o.state == OperationState::Cancelled),
            count(&|o| is_done(o) && matches!(o.what, OperationKind::TakeBack { .. })),
            told(EventKind::LeaseOver),
            told(EventKind::LeaseExtended),
        ]
    }

    /// Nothing is held back where nobody works any more: a drain that still runs is called back, or
    /// ends if it is too late for that.
    fn put_back(&self, tables: &Tables) {
        let Some(life) = &self.current else { return };
        for operation in tables.running() {
            if let OperationKind::Drain { place, .. } = &operation.what
                && !self.at_work.contains(place)
            {
                cancel(life, operation.id);
            }
        }
        for place in tables.holds().keys().filter(|place| !self.at_work.contains(place)) {
            let (manager, place) = (life.manager.clone(), place.clone());
            life.runtime.spawn(async move {
                let _ = manager.records.change(|txn| holds::put_back(txn, &place)).await;
            });
        }
    }

    fn slot(&self, at_box: usize, slot: usize) -> SlotAddress {
        let slot = crate::director::slot_id(slot);
        SlotAddress::new(name(self.hosts, self.hosts + at_box), slot).expect("a box's name")
    }

    fn place(&self, at: Site) -> Place {
        match at {
            Site::Slot { at_box, slot } => Place::Slot(self.slot(at_box, slot)),
            Site::Box { at_box } => Place::Node(name(self.hosts, self.hosts + at_box)),
            Site::Host { host } => Place::Node(name(self.hosts, host)),
            Site::Path { path } => Place::Path(path),
        }
    }
}

fn cancel(life: &Life, id: OperationId) {
    let manager = life.manager.clone();
    life.runtime.spawn(async move {
        let _ = manager.records.change(|txn| operations::cancel(txn, id)).await;
    });
}
