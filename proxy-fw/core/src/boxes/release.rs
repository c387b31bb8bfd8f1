//! Taking a function back: Bus Master off, drain, reset, readiness test; quarantine if any fails.

use super::config::{ANSWER_BOUND, Access, Got, Want, id_of};
use super::probe::owned_write;
use super::renewal::Renewal;
use super::slot::{Function, HostControl2, Pending, ToDevice, Work};
use super::{BoxRole, SlotSignal};
use crate::answers::Answer;
use crate::canaries::{Canary, planted};
use crate::control::{OperationId, SlotState};
use crate::outstanding::AfterExpiry;
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::tlp::CplStatus;

/// How often Transactions Pending is looked at, and how many times, before reset goes on anyway.
const DRAIN_PAUSE: Duration = Duration::from_millis(2);
const DRAIN_LOOKS: u8 = 50;

/// Where a release has got to. Each state names what is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    BusMasterOff,
    Draining(u8),
    DrainPause(u8),
    FunctionReset,
    /// The reset of the whole device, until no other function is lent.
    SlotReset,
    ResetPause,
    Ready,
    CommandClear,
    TimeoutSet,
}

/// A release that is going on in a slot.
#[derive(Debug)]
pub(super) struct Release {
    function: usize,
    state: State,
}

impl BoxRole {
    /// The function's channel is closed and what was outstanding ends: nothing of the binding
    /// reaches anybody from here on.
    pub(super) fn unlink(&mut self, now: Instant, slot: usize, function: usize) {
        let Some(target) = self.slots[slot].target(function) else { return };
        self.node.link(target.peer).close_channel(target.channel);
        let entry = &mut self.slots[slot].functions[function];
        entry.binding = None;
        entry.requests.expire_where(now, |_| true);
        // Nobody is left who would end it. What is left to see is whether the function is ready.
        if self.slots[slot].bound_functions() == 0 && self.release_perst(now, slot) {
            self.slots[slot].functions[function].release = Pending::Readiness;
        }
        self.expire(now, slot);
    }

    /// Wants a function taken through reset; begins when the slot has nothing else to do.
    pub(super) fn start_release(
        &mut self,
        now: Instant,
        slot: usize,
        function: usize,
        operation: Option<OperationId>,
    ) {
        let entry = &mut self.slots[slot].functions[function];
        if entry.release != Pending::Readiness {
            entry.release = Pending::Turn;
        }
        if operation.is_some() {
            entry.release_operation = operation;
        }
        self.next_release(now, slot);
    }

    pub(super) fn next_release(&mut self, now: Instant, slot: usize) {
        let entry = &mut self.slots[slot];
        if !matches!(entry.work, Work::Idle) {
            return;
        }
        if entry.perst {
            // The device is in reset until its host ends that.
            return self.say_all_releasing(slot);
        }
        // One that its host resets may not answer before that is over.
        let due = |f: &Function| {
            matches!(f.release, Pending::Turn | Pending::Readiness) && !f.renewal.in_reset
        };
        let Some(function) = entry.functions.iter().position(due) else { return };
        let number = entry.functions[function].number.get() as u8;
        let (state, want) =
            match core::mem::replace(&mut entry.functions[function].release, Pending::Nothing) {
                Pending::Readiness => (State::ResetPause, Want::Pause(Duration::ZERO)),
                _ => {
                    let (register, enables) = (0x04, 0b0011);
                    let want = Want::Write { function: number, register, value: 0, enables };
                    (State::BusMasterOff, want)
                }
            };
        entry.work = Work::Release(Release { function, state });
        entry.access.begin(now, want, now + self.config.readiness_bound);
    }

    /// Goes on with whatever the slot is doing.
    pub(super) fn continue_work(&mut self, now: Instant, slot: usize) {
        loop {
            self.send_access(now, slot);
            let entry = &mut self.slots[slot];
            let tag = entry.access.tag();
            let got = entry.access.poll(now);
            // It was not answered in its time: whatever comes of it now is not for what is asked next.
            if let Some(tag) = tag.filter(|_| entry.access.tag().is_none()) {
                entry.abandon(tag);
            }
            let Some(got) = got else { return };
            match core::mem::replace(&mut self.slots[slot].work, Work::Idle) {
                Work::Idle => return,
                Work::Probe(probe) => self.continue_probe(now, slot, probe, got),
                Work::Release(release) => self.continue_release(now, slot, release, got),
                Work::Erase(erase) => self.continue_erase(now, slot, erase, got),
            }
        }
    }

    /// Gives the proxy's own request a tag and sends it, if one waits and there is room.
    fn send_access(&mut self, now: Instant, slot: usize) {
        let slot = &mut self.slots[slot];
        if !slot.access.wants_tag(now) || !slot.has_room_for_own() {
            return;
        }
        if slot.access.send_posted(&mut slot.egress) {
            return;
        }
        let deadline = now + ANSWER_BOUND + self.config.completion_bound;
        // A function takes its bus and device number from each write (PCIe 5.0 section 2.2.9), and
        // knows completions by them: under other numbers than its host's it would not know those
        // of what it has outstanding.
        let number = slot.access.function().unwrap_or_default();
        let index = match &slot.work {
            // It asks for memory, too.
            Work::Erase(erase) => Some(erase.function),
            _ => slot.function_index(number.into()),
        };
        let id = id_of(number, index.and_then(|index| slot.functions[index].id));
        if let Some(tag) = slot.tags.insert(deadline, ToDevice::Own(index)) {
            slot.access.send(now, tag.index, id, &mut slot.asks);
        }
    }

    fn continue_release(&mut self, now: Instant, slot: usize, mut release: Release, got: Got) {
        let function = release.function;
        let number = self.slots[slot].functions[function].number.get() as u8;
        let facts = self.slots[slot].functions[function].facts.clone();
        let read = |register| Some(Want::Read { function: number, register });
        let want = match (release.state, got) {
            (State::BusMasterOff, Got::Written) | (State::DrainPause(_), Got::Paused)
                if facts.pcie_capability != 0 =>
            {
                let looks = if let State::DrainPause(looks) = release.state { looks } else { 0 };
                release.state = State::Draining(looks);
                read(facts.pcie_capability + 0x08)
            }
            (State::Draining(looks), Got::Value(status))
                if status >> 21 & 1 != 0 && looks < DRAIN_LOOKS =>
            {
                release.state = State::DrainPause(looks + 1);
                Some(Want::Pause(DRAIN_PAUSE))
            }
            (State::BusMasterOff | State::Draining(_), Got::Written | Got::Value(_)) => {
                self.reset_function(now, slot, &mut release)
            }
            // A device that does not take a write or answer a read may still come back by reset.
            (State::BusMasterOff | State::Draining(_) | State::DrainPause(_), _) => {
                self.hot_reset(now, slot, &mut release)
            }
            (State::FunctionReset, got) if got == Got::Written || planted(Canary::SkipReset) => {
                release.state = State::ResetPause;
                Some(Want::Pause(self.config.reset_time))
            }
            (State::FunctionReset, _) => self.hot_reset(now, slot, &mut release),
            (State::ResetPause, Got::Paused) => {
                self.slots[slot].abandon_renewal(function);
                self.slots[slot].forget_abandoned(function);
                release.state = State::Ready;
                read(0x00)
            }
            (State::Ready, Got::Value(id)) if (id as u16, (id >> 16) as u16) == facts.id => {
                release.state = State::CommandClear;
                read(0x04)
            }
            (State::CommandClear, Got::Value(command)) if command & 0b111 == 0 => {
                release.state = State::TimeoutSet;
                let none = HostControl2::default();
                let entry = &mut self.slots[slot].functions[function];
                (entry.control_2, entry.asleep) = (none, false);
                match owned_write(&facts, self.config.completion_timeout, number, none) {
                    Some(want) => Some(want),
                    None => return self.end_release(now, slot, function, SlotState::Free),
                }
            }
            (State::TimeoutSet, Got::Written) => {
                return self.end_release(now, slot, function, SlotState::Free);
            }
            _ => None,
        };
        match want {
            Some(want) => {
                let entry = &mut self.slots[slot];
                entry.access.begin(now, want, now + self.config.readiness_bound);
                if release.state == State::Ready {
                    entry.access.after_reset();
                }
                entry.work = Work::Release(release);
            }
            None if release.state == State::SlotReset => self.await_reset(now, slot, function),
            None if planted(Canary::TrustSilent) => {
                self.end_release(now, slot, function, SlotState::Free);
            }
            None => self.end_release(now, slot, function, SlotState::Quarantined),
        }
    }

    /// Function-level reset where the function has it and no other one waits for more, else hot
    /// reset.
    fn reset_function(&mut self, now: Instant, slot: usize, release: &mut Release) -> Option<Want> {
        let awaited = self.slots[slot].functions.iter().any(|f| f.release == Pending::Reset);
        let last = self.slots[slot].bound_functions() == 0;
        let entry = &self.slots[slot].functions[release.function];
        if !entry.facts.function_level_reset || awaited && last {
            return self.hot_reset(now, slot, release);
        }
        release.state = State::FunctionReset;
        if planted(Canary::SkipReset) {
            return Some(Want::Read { function: entry.number.get() as u8, register: 0 });
        }
        Some(Want::Write {
            function: entry.number.get() as u8,
            register: entry.facts.pcie_capability + 0x08,
            value: 1 << 15,
            enables: 0b0011,
        })
    }

    /// Hot reset, where no other function of the slot is bound. `None`: it is waited for.
    fn hot_reset(&mut self, now: Instant, slot: usize, release: &mut Release) -> Option<Want> {
        if self.slots[slot].bound_functions() > 0 {
            release.state = State::SlotReset;
            return None;
        }
        self.slots[slot].signal(SlotSignal::HotReset);
        self.slot_is_reset(now, slot);
        release.state = State::ResetPause;
        Some(Want::Pause(self.config.reset_time))
    }

    /// The function stays as it is until the device is reset: when the last function that is lent
    /// comes back, or by its host.
    fn await_reset(&mut self, now: Instant, slot: usize, function: usize) {
        self.slots[slot].functions[function].release = Pending::Reset;
        self.say_releasing(slot, function);
        self.next_release(now, slot);
    }

    /// A release waits for what a host does: who asked for it is not kept waiting, and hears of its
    /// end as of any change of a slot.
    fn say_releasing(&mut self, slot: usize, function: usize) {
        if let Some(id) = self.slots[slot].functions[function].release_operation.take() {
            self.node.answer(id, Ok(Answer::Slot(SlotState::Releasing)));
        }
    }

    fn say_all_releasing(&mut self, slot: usize) {
        (0..self.slots[slot].functions.len()).for_each(|f| self.say_releasing(slot, f));
    }

    /// The whole device is being reset: for a release, or by the host that has all of what is lent
    /// of it. What waited for that goes on, and what is the proxy's is set again in the others.
    pub(super) fn slot_is_reset(&mut self, now: Instant, slot: usize) {
        let entry = &mut self.slots[slot];
        for function in &mut entry.functions {
            function.begin_reset(now + self.config.reset_time);
            if function.release != Pending::Nothing {
                function.release = Pending::Readiness;
            }
        }
    }

    /// Ends PERST#, if it is held.
    pub(super) fn release_perst(&mut self, now: Instant, slot: usize) -> bool {
        let entry = &mut self.slots[slot];
        let held = core::mem::take(&mut entry.perst);
        if held {
            entry.signal(SlotSignal::Perst { asserted: false });
            self.slot_is_reset(now, slot);
        }
        held
    }

    /// A host resets the device while the proxy is at something of its own: that begins anew when
    /// the reset is over.
    pub(super) fn begin_work_anew(&mut self, now: Instant, slot: usize) {
        if let Work::Release(Release { function, .. }) = self.slots[slot].work {
            self.slots[slot].functions[function].release = Pending::Readiness;
        }
        // It may do so again and again, and releases wait for the end of that.
        self.say_all_releasing(slot);
        let entry = &mut self.slots[slot];
        if matches!(entry.work, Work::Release(_)) {
            entry.work = Work::Idle;
            entry.access = Access::default();
        }
        self.next_release(now, slot);
    }

    fn end_release(&mut self, now: Instant, slot: usize, function: usize, state: SlotState) {
        let half_erased = self.is_half_erased(slot, function);
        let state = if half_erased { SlotState::Quarantined } else { state };
        if state == SlotState::Free {
            self.forget_outstanding(now, slot);
            let entry = &mut self.slots[slot];
            let waits = entry.functions.iter().any(|f| f.release != Pending::Nothing);
            if entry.bound_functions() == 0 && !waits {
                entry.free_tags(false);
            }
            // The others may still answer late under theirs.
            let of_function = |request: &ToDevice| request.is_of(function);
            while entry.tags.pop_where(AfterExpiry::Free, of_function).is_some() {}
            entry.tags.release_quarantine_where(|request| request.is_for(function));
            let entry = &mut entry.functions[function];
            // The release has set what is the proxy's.
            entry.renewal = Renewal::default();
            entry.forget_tags();
            entry.requests.release_quarantine();
        }
        self.set_state(slot, function, state);
        if let Some(id) = self.slots[slot].functions[function].release_operation.take() {
            self.node.answer(id, Ok(Answer::Slot(state)));
        }
        self.next_release(now, slot);
    }

    /// The slot's work stops where it is; who waits for it learns that the slot is empty.
    pub(super) fn abandon_work(&mut self, slot: usize) {
        self.slots[slot].work = Work::Idle;
        for function in 0..self.slots[slot].functions.len() {
            if let Some(id) = self.slots[slot].functions[function].release_operation.take() {
                self.node.answer(id, Ok(Answer::Slot(SlotState::Empty)));
            }
        }
    }

    /// The device of a bound function was reset: its own requests are forgotten, and requests of
    /// the host that it will not answer any more end (the host's end has flushed its own).
    pub(super) fn flush_function(&mut self, now: Instant, slot: usize, function: usize) {
        let entry = &mut self.slots[slot];
        entry.functions[function].forget_requests();
        let of_function = |request: &ToDevice| request.is_of(function);
        while entry.tags.pop_where(AfterExpiry::Free, of_function).is_some() {}
        self.expire(now, slot);
    }

    /// Nobody waits for anything of unbound functions.
    pub(super) fn forget_outstanding(&mut self, now: Instant, slot: usize) {
        self.slots[slot].forget_unbound();
        self.expire(now, slot);
    }

    /// Ends requests whose time is over: the device's with Unsupported Request towards it, the
    /// host's with Unsupported Request over the link, under tags that stay quarantined.
    pub(super) fn expire(&mut self, now: Instant, slot: usize) {
        let entry = &mut self.slots[slot];
        for function in &mut entry.functions {
            while entry.egress.room() > 1 {
                let Some((_, request)) = function.requests.pop_expired(now, AfterExpiry::Free)
                else {
                    break;
                };
                let (port, status) = (super::from_device::PORT, CplStatus::UnsupportedRequest);
                let refusal = request.info.completion(port, status);
                function.set_tag(request.info.tag.get(), false);
                let pushed = entry.egress.push(&refusal);
                assert!(pushed, "room was checked");
                self.counters.synthesised_for_device += 1;
            }
        }
        self.expire_host_requests(now, slot);
    }
}
