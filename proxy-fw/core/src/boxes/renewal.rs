//! What comes after a reset of a function: the end of what it was asked before, and what is the proxy's
//! in it, which is set again.
//!
//! It goes beside whatever else the proxy does with the device, which may take long: a function that
//! is used with its own completion timeout gives up what its host would have answered.

use super::BoxRole;
use super::config::{ANSWER_BOUND, RETRY_PAUSE, STOOD_STILL, id_of, send};
use super::probe::owned_write;
use super::slot::{Function, HostControl2, Slot, ToDevice};
use crate::control::SlotState;
use crate::outstanding::AfterExpiry;
use crate::time::Instant;
use tlp_codec::tlp::CplStatus;

/// How what the proxy owns in a function stands: its completion timeout, and whether it uses 10-bit tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owned {
    /// It is set.
    Set,
    /// It is lost with a reset, and is set when that is over.
    AfterReset,
    /// The same, and the host uses the function already: it is set at once.
    AtOnce,
    /// The function did not take it for as long as it may take to be ready. It gets it when its host uses
    /// it.
    WhenUsed,
}

/// The write to a slot's device of what is the proxy's in one of its functions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renewal {
    /// The function that it is for, or was.
    function: usize,
    /// The write's tag and until when it is to be answered.
    waiting: Option<(u16, Instant)>,
    /// When a function that was not ready may be asked again.
    again: Instant,
}

impl Renewal {
    /// The tag of the write that is under way.
    pub(super) fn tag(&self) -> Option<u16> {
        self.waiting.map(|(tag, _)| tag)
    }

    /// Whether a write to this function is under way.
    pub(super) fn is_for(&self, function: Option<usize>) -> bool {
        self.waiting.is_some() && function == Some(self.function)
    }
}

impl BoxRole {
    /// A lent function is being reset by its host.
    pub(super) fn function_is_reset(&mut self, now: Instant, slot: usize, function: usize) {
        let entry = &mut self.slots[slot];
        entry.functions[function].begin_reset(now + self.config.reset_time);
        if entry.renewal.is_for(Some(function))
            && let Some((tag, _)) = entry.renewal.waiting.take()
        {
            entry.abandon(tag);
        }
    }

    /// A host turns a function's bus mastering on: to the host its reset is over. What is the proxy's
    /// is set at once, and not when the longest reset would be over; unless the host has written the
    /// register, as most do, and what is the proxy's with it.
    pub(super) fn hurry_renewal(&mut self, now: Instant, slot: usize, function: usize) {
        let entry = &mut self.slots[slot].functions[function];
        if entry.owned == Owned::Set || entry.control_2.is_whole() {
            return;
        }
        entry.owned = Owned::AtOnce;
        self.renew(now, slot);
    }

    /// Ends the resets that are over, and sets what is to be set.
    pub(super) fn continue_renewal(&mut self, now: Instant, slot: usize) {
        for function in 0..self.slots[slot].functions.len() {
            let entry = &mut self.slots[slot].functions[function];
            if entry.in_reset && entry.reset_over <= now {
                entry.in_reset = false;
                self.end_reset(now, slot, function);
            }
        }
        let renewal = &mut self.slots[slot].renewal;
        if let Some((tag, until)) = renewal.waiting.filter(|(_, until)| *until <= now) {
            renewal.waiting = None;
            self.slots[slot].abandon(tag);
            // Whether the device answers is not seen by a proxy that has stood still itself.
            self.not_renewed(now, slot, until + STOOD_STILL < now);
        }
        self.renew(now, slot);
    }

    /// A function's reset is over: what it was asked before never comes.
    fn end_reset(&mut self, now: Instant, slot: usize, function: usize) {
        self.end_void(now, slot, function);
        self.slots[slot].forget_abandoned(function);
        let tags = &mut self.slots[slot].tags;
        tags.release_quarantine_where(|request| request.is_for(function));
        self.next_release(now, slot);
    }

    /// Ends what a function was asked before its reset, which is over: the tags are free again, and
    /// the host is told.
    fn end_void(&mut self, now: Instant, slot: usize, function: usize) {
        let is_void = |request: &ToDevice| request.is_void(function);
        self.slots[slot].tags.release_quarantine_where(is_void);
        while let Some((_, request)) = self.slots[slot].tags.pop_where(AfterExpiry::Free, is_void) {
            self.refuse_expired(now, slot, request);
        }
    }

    /// Sends the next write, if there is one to send, and room and a tag for it.
    fn renew(&mut self, now: Instant, slot: usize) {
        let entry = &mut self.slots[slot];
        while let Some((function, at)) = entry.next_renewal()
            && at <= now
        {
            let target = &mut entry.functions[function];
            let number = target.number.get() as u8;
            let least = self.config.completion_timeout;
            let Some(want) = owned_write(&target.facts, least, number, target.control_2) else {
                target.owned = Owned::Set;
                continue;
            };
            let (id, until) = (id_of(number, target.id), target.answer_bound(now));
            let request = ToDevice::Own(Some(function));
            let Some(tag) = entry.tags.insert(now + self.config.completion_bound, request) else {
                return;
            };
            send(want, tag.index, id, &mut entry.asks);
            entry.renewal.function = function;
            entry.renewal.waiting = Some((tag.index, until));
        }
    }

    /// The write under way was answered.
    pub(super) fn renewal_answered(&mut self, now: Instant, slot: usize, status: CplStatus) {
        let renewal = &mut self.slots[slot].renewal;
        let function = renewal.function;
        renewal.waiting = None;
        if status == CplStatus::Success {
            self.slots[slot].functions[function].owned = Owned::Set;
            // It answers again, and has forgotten what it was asked before.
            self.end_void(now, slot, function);
        } else {
            self.not_renewed(now, slot, false);
        }
        self.renew(now, slot);
    }

    /// The function did not take it: it may not be ready yet.
    fn not_renewed(&mut self, now: Instant, slot: usize, stood_still: bool) {
        let entry = &mut self.slots[slot];
        let function = entry.renewal.function;
        let target = &mut entry.functions[function];
        target.owned = Owned::AfterReset;
        if target.in_reset {
            // Its host was too early with it, and so was this.
        } else if stood_still || now < target.reset_over + self.config.readiness_bound {
            entry.renewal.again = now + RETRY_PAUSE;
        } else if target.state == SlotState::Free {
            // What nobody has is not lent so.
            self.set_state(slot, function, SlotState::Quarantined);
        } else {
            // Its host will find it broken, too.
            target.owned = Owned::WhenUsed;
        }
    }
}

impl Slot {
    /// The next function that is to be given what is the proxy's, and when. Those that their hosts use go
    /// first, each kind in turn.
    fn next_renewal(&self) -> Option<(usize, Instant)> {
        if self.renewal.waiting.is_some() || self.perst || !self.has_room_for_own() {
            return None;
        }
        let count = self.functions.len();
        let in_turn = || (1..=count).map(|step| (self.renewal.function + step) % count);
        let wants = |f: usize, owned| {
            let function = &self.functions[f];
            let lendable = matches!(function.state, SlotState::Free | SlotState::Bound);
            lendable && function.owned == owned
        };
        let used = in_turn().find(|f| wants(*f, Owned::AtOnce)).map(|f| (f, Instant::ZERO));
        used.or_else(|| {
            let is_due = |f: &usize| wants(*f, Owned::AfterReset) && !self.functions[*f].in_reset;
            in_turn().find(is_due).map(|f| (f, self.renewal.again))
        })
    }

    /// When something of this is to be done.
    pub(super) fn renewal_deadline(&self) -> Option<Instant> {
        let ends = self.functions.iter().filter(|f| f.in_reset).map(|f| f.reset_over).min();
        let write = match self.renewal.waiting {
            Some((_, until)) => Some(until),
            None if !self.tags.has_room() => None,
            None => self.next_renewal().map(|(_, at)| at),
        };
        ends.into_iter().chain(write).min()
    }

    /// Whether a reset goes on or something waits to be set after one.
    pub(super) fn is_renewed(&self) -> bool {
        self.functions.iter().any(|f| f.in_reset || f.owned != Owned::Set)
    }
}

impl Function {
    /// It is being reset: what it knew is gone.
    pub(super) fn begin_reset(&mut self, over: Instant) {
        (self.in_reset, self.reset_over) = (true, over);
        (self.owned, self.asleep) = (Owned::AfterReset, false);
        self.control_2 = HostControl2::default();
    }

    /// Until when a write that is sent now is to be answered. One that comes too early is asked again
    /// as soon as the reset is over.
    fn answer_bound(&self, now: Instant) -> Instant {
        let bound = now + ANSWER_BOUND;
        if self.in_reset { bound.min(self.reset_over) } else { bound }
    }
}
