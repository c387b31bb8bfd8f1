//! What comes after a reset of a function: the end of what it was asked before, and what is the proxy's
//! in it, which is set again.
//!
//! Each function by itself, and beside whatever else the proxy does with the device: that may take long,
//! and a function that is used with its own completion timeout gives up what its host would have answered.

use super::BoxRole;
use super::config::{ANSWER_BOUND, RETRY_PAUSE, STOOD_STILL, id_of, send};
use super::probe::owned_write;
use super::slot::{Function, HostControl2, Slot, ToDevice};
use crate::control::SlotState;
use crate::outstanding::AfterExpiry;
use crate::time::{Earliest, Instant};
use tlp_codec::tlp::CplStatus;

/// How what the proxy owns in a function stands: its completion timeout, and whether it uses 10-bit tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owned {
    /// It is set.
    #[default]
    Set,
    /// It was lost with a reset, and is set when that is over.
    AfterReset,
    /// The same, and the host uses the function already, or is about to: it is set as soon as the function
    /// takes it.
    AtOnce,
    /// The function did not take it for as long as it may take to be ready. It is asked again when its
    /// host uses it.
    WhenUsed,
}

/// A function's last reset by its host or of the whole device, and what is still to come after it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renewal {
    pub(super) owned: Owned,
    /// Whether the reset may still go on, and when it is over at the latest.
    pub(super) in_reset: bool,
    over: Instant,
    /// The tag of the write of what is the proxy's that is under way.
    tag: Option<u16>,
    /// Until when that one is to be answered; or how long there is to be none.
    at: Instant,
    /// Whether the host has turned bus mastering on since that was sent.
    used_since: bool,
    /// Whether that went in front of the host's next request already.
    pub(super) in_front: bool,
}

impl Renewal {
    /// One that begins.
    pub(super) fn after(over: Instant) -> Self {
        Self { owned: Owned::AfterReset, in_reset: true, over, ..Self::default() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.owned == Owned::Set && !self.in_reset
    }

    /// Whether a write is under way.
    pub(super) fn writes(&self) -> bool {
        self.tag.is_some()
    }

    /// Until when a write that is sent now is to be answered. One that comes too early is sent again when
    /// the reset is over.
    fn answer_bound(&self, now: Instant) -> Instant {
        let bound = now + ANSWER_BOUND;
        if self.in_reset { bound.min(self.over) } else { bound }
    }

    /// The host turns bus mastering on, with the write in front of it that is under way; or without one.
    pub(super) fn note_use(&mut self, now: Instant) {
        if self.writes() {
            self.used_since = true;
        } else if self.owned == Owned::WhenUsed {
            (self.owned, self.at) = (Owned::AtOnce, now + RETRY_PAUSE);
        }
    }

    /// The next write is sent.
    fn sent(&mut self, now: Instant, tag: u16) {
        (self.tag, self.at, self.used_since) = (Some(tag), self.answer_bound(now), false);
    }
}

impl BoxRole {
    /// A lent function is being reset by its host.
    pub(super) fn function_is_reset(&mut self, now: Instant, slot: usize, function: usize) {
        let entry = &mut self.slots[slot];
        entry.forget_before_reset(function);
        entry.functions[function].begin_reset(now + self.config.reset_time);
    }

    /// A host is about to turn a function's bus mastering on: to the host its reset is over. What is the
    /// proxy's is set at once, and not when the longest reset would be over.
    pub(super) fn hurry_renewal(&mut self, now: Instant, slot: usize, function: usize) {
        let renewal = &mut self.slots[slot].functions[function].renewal;
        if renewal.owned == Owned::Set || renewal.in_front {
            return;
        }
        if !renewal.writes() {
            (renewal.owned, renewal.at) = (Owned::AtOnce, Instant::ZERO);
            self.renew(now, slot);
        }
        // Without room for it the host's request does not go, either.
        let renewal = &mut self.slots[slot].functions[function].renewal;
        renewal.in_front = renewal.writes();
    }

    /// Ends the resets that are over, and sets what is to be set.
    pub(super) fn continue_renewal(&mut self, now: Instant, slot: usize) {
        for function in 0..self.slots[slot].functions.len() {
            let renewal = &mut self.slots[slot].functions[function].renewal;
            if renewal.in_reset && renewal.over <= now {
                renewal.in_reset = false;
                self.end_reset(now, slot, function);
            }
            let Renewal { tag, at, .. } = self.slots[slot].functions[function].renewal;
            if tag.is_some() && at <= now {
                self.slots[slot].abandon_renewal(function);
                // Whether the device answers is not seen by a proxy that has stood still itself.
                self.not_renewed(now, slot, function, at + STOOD_STILL < now);
            }
        }
        self.renew(now, slot);
    }

    /// A function's reset is over: what it was asked before never comes.
    fn end_reset(&mut self, now: Instant, slot: usize, function: usize) {
        let tags = &mut self.slots[slot].tags;
        tags.release_quarantine_where(|request| request.is_void(function));
        self.end_void(now, slot, function, AfterExpiry::Free);
        self.slots[slot].forget_abandoned(function);
        self.next_release(now, slot);
    }

    /// Ends what a function was asked before its reset: the host is told.
    fn end_void(&mut self, now: Instant, slot: usize, function: usize, tags: AfterExpiry) {
        let is_void = |request: &ToDevice| request.is_void(function);
        while let Some((_, request)) = self.slots[slot].tags.pop_where(tags, is_void) {
            self.refuse_expired(now, slot, request);
        }
    }

    /// Sends the writes that are due, as far as there is room.
    pub(super) fn renew(&mut self, now: Instant, slot: usize) {
        let least = self.config.completion_timeout;
        let entry = &mut self.slots[slot];
        entry.renewal_waits = false;
        for function in 0..entry.functions.len() {
            if entry.next_renewal(function).is_none_or(|at| at > now) {
                continue;
            }
            let target = &entry.functions[function];
            let number = target.number.get() as u8;
            let Some(want) = owned_write(&target.facts, least, number, target.control_2) else {
                entry.functions[function].renewal.owned = Owned::Set;
                continue;
            };
            let id = id_of(number, target.id);
            let deadline = now + ANSWER_BOUND + self.config.completion_bound;
            entry.renewal_waits = !entry.has_room_for_renewal();
            if entry.renewal_waits {
                return;
            }
            if let Some(tag) = entry.tags.insert(deadline, ToDevice::Own(Some(function))) {
                send(want, tag.index, id, &mut entry.asks);
                entry.functions[function].renewal.sent(now, tag.index);
            }
        }
    }

    /// The device answered what the proxy asked a function under a tag: the write that is under way, if
    /// it has that.
    pub(super) fn renewal_answered(
        &mut self,
        now: Instant,
        slot: usize,
        function: usize,
        tag: u16,
        status: CplStatus,
    ) {
        let known = self.slots[slot].functions.get_mut(function).map(|found| &mut found.renewal);
        let Some(renewal) = known.filter(|renewal| renewal.tag == Some(tag)) else { return };
        renewal.tag = None;
        if status == CplStatus::Success {
            renewal.owned = Owned::Set;
            // It answers again, and has forgotten what it was asked before. What it said of that may
            // still be on its way.
            self.end_void(now, slot, function, AfterExpiry::Quarantine);
        } else {
            self.not_renewed(now, slot, function, false);
        }
        self.renew(now, slot);
    }

    /// The function did not take it: it may not be ready yet.
    fn not_renewed(&mut self, now: Instant, slot: usize, function: usize, stood_still: bool) {
        let target = &mut self.slots[slot].functions[function];
        let renewal = &mut target.renewal;
        let may_be_ready = stood_still || now < renewal.over + self.config.readiness_bound;
        renewal.at = now + RETRY_PAUSE;
        if core::mem::take(&mut renewal.used_since) {
            renewal.owned = Owned::AtOnce;
        } else if may_be_ready {
            // Its host was too early with it, or it takes its time.
        } else if target.state == SlotState::Free {
            // What nobody has is not lent so.
            self.set_state(slot, function, SlotState::Quarantined);
        } else {
            renewal.owned = Owned::WhenUsed;
        }
    }
}

impl Slot {
    /// When a function is to be given what is the proxy's next.
    fn next_renewal(&self, function: usize) -> Option<Instant> {
        let Function { renewal, state, .. } = &self.functions[function];
        if renewal.writes() || self.perst || !matches!(state, SlotState::Free | SlotState::Bound) {
            return None;
        }
        match renewal.owned {
            Owned::AtOnce => Some(renewal.at),
            Owned::AfterReset if !renewal.in_reset => Some(renewal.at),
            _ => None,
        }
    }

    /// Whether a write has room. The last tag is for what takes a function back, from its host or for
    /// it: a device that does not answer keeps those that it has.
    fn has_room_for_renewal(&self) -> bool {
        self.asks.room() > 0 && self.tags.room() > 1
    }

    /// When something of this is to be done.
    pub(super) fn renewal_deadline(&self, first: &mut Earliest) {
        for (function, Function { renewal, .. }) in self.functions.iter().enumerate() {
            if renewal.is_over() {
                continue;
            }
            if renewal.in_reset {
                first.or(Some(renewal.over));
            }
            if renewal.writes() {
                first.or(Some(renewal.at));
            } else if self.has_room_for_renewal() {
                first.or(self.next_renewal(function));
            }
        }
    }

    /// Nobody waits for the write to a function any more.
    pub(super) fn abandon_renewal(&mut self, function: usize) {
        if let Some(tag) = self.functions[function].renewal.tag.take() {
            self.abandon(tag);
        }
    }
}

impl Function {
    /// It is being reset: what it knew is gone.
    pub(super) fn begin_reset(&mut self, over: Instant) {
        (self.renewal, self.asleep) = (Renewal::after(over), false);
        self.control_2 = HostControl2::default();
    }
}
