//! Who is bound to whom, by what the manager asked for and the proxies said yes to, and what is
//! under way on each binding.

use super::access::Access;
use super::order::{Flow, Seen};
use super::peers::Aside;
use super::progress::{Progress, Waits};
use super::spells::Spells;
use super::{Verdict, Violation};
use crate::host::{host_name, slot_name};
use proxy_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tlp_codec::tlp::Class;

/// What was sent so long ago has come or never will.
const MIXED_UP: Duration = Duration::from_secs(5);

/// One binding, for ever: its epoch is never used again.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) host: usize,
    pub(crate) at_box: usize,
    pub(crate) slot: usize,
    pub(crate) epoch: u32,
    /// From the root complex to the device, and back.
    pub(crate) down: Flow,
    pub(crate) up: Flow,
    /// The port of its host that it is behind, and what it sends the devices behind others, by port.
    pub(crate) port: Option<usize>,
    pub(super) aside: BTreeMap<usize, Aside>,
    pub(crate) standing: Standing,
    /// How often something happened that excuses a loss, or it was in use again.
    pub(super) upsets: u64,
    /// Of each time that its host reset the device, and that is not known to be over: the last TLP
    /// to the device before it.
    resets: VecDeque<u64>,
    /// The last TLP of the device before it was reset, and that of its function before that alone
    /// was.
    reset_after: u64,
    function_after: u64,
    /// When the function alone was reset last: it forgot what it had been asked.
    function_reset: Option<Instant>,
    /// The last request of the run when its device was reset: those of the device until then it
    /// has forgotten, and what answers them is dropped wherever it is.
    forgotten: u64,
    /// Its host has taken it; and before that, its box's end had been over, which nobody there knows
    /// yet.
    begun: bool,
    stillborn: bool,
    /// Its host was asked to give it back in order.
    asked_back: bool,
    /// Its host has given the function an address since.
    pub(crate) placed: bool,
    /// Requests that ended without the answer of whom they asked, with a cause.
    given_up: BTreeSet<u64>,
    /// When the last one did.
    gave_up: Option<Instant>,
    /// When a request was sent last that may be given up before it comes to the device.
    unsure: Option<Instant>,
}

/// How much a binding has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The operating system does not use the device yet or any more, or something has happened
    /// that excuses a loss. What comes has still to be right.
    Fresh,
    /// Nothing may be lost, and nobody but the device answers.
    Sound,
    /// It failed, or was taken back.
    Over,
}

/// All bindings of a run.
#[derive(Default)]
pub(crate) struct Bindings {
    all: Vec<Binding>,
    by_name: BTreeMap<(usize, usize, u32), usize>,
    /// TLPs that devices sent each other, and those of them that went by a root complex.
    pub(crate) aside: u64,
    pub(crate) by_root: u64,
    /// How far requests are.
    pub(crate) progress: Progress,
    /// Which way they have to go.
    pub(crate) access: Access,
}

impl Bindings {
    /// The binding of a box's slot under an epoch, to a host.
    pub(crate) fn find(
        &mut self,
        host: usize,
        at_box: usize,
        slot: usize,
        epoch: u32,
    ) -> Verdict<usize> {
        let next = self.all.len();
        let index = *self.by_name.entry((at_box, slot, epoch)).or_insert(next);
        if index == next {
            let (down, up) = Default::default();
            let standing = Standing::Fresh;
            self.all.push(Binding {
                host,
                at_box,
                slot,
                epoch,
                down,
                up,
                port: None,
                aside: BTreeMap::new(),
                standing,
                upsets: 0,
                resets: VecDeque::new(),
                reset_after: 0,
                function_after: 0,
                function_reset: None,
                forgotten: 0,
                begun: false,
                stillborn: false,
                asked_back: false,
                placed: false,
                given_up: BTreeSet::new(),
                gave_up: None,
                unsure: None,
            });
        }
        if self.all[index].host != host {
            let what = format!(
                "{} of box {at_box} is bound to {} and {} under one epoch",
                slot_name(slot),
                host_name(self.all[index].host),
                host_name(host)
            );
            return Err(Violation::new(4, what));
        }
        Ok(index)
    }

    pub(crate) fn get(&mut self, index: usize) -> &mut Binding {
        &mut self.all[index]
    }

    /// The last of what a binding's request is owed was taken from whom it asked, and has to come.
    pub(crate) fn answered(&mut self, now: Instant, index: usize, request: u64) {
        let binding = &self.all[index];
        if binding.is_sound() && !binding.has_given_up(request) {
            self.progress.answered(now, request, binding.upsets);
        }
    }

    /// What a request of a binding waits for that was handed over then.
    pub(crate) fn waits(&self, since: Instant, now: Instant, index: usize, request: u64) -> Waits {
        self.progress.waits(since, now, request, self.all[index].upsets)
    }

    pub(crate) fn all(&self) -> &[Binding] {
        &self.all
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Binding] {
        &mut self.all
    }

    /// TLPs that came, over all bindings.
    pub(crate) fn delivered(&self) -> u64 {
        let aside = |b: &Binding| b.aside.values().map(Aside::delivered).sum::<u64>();
        self.all.iter().map(|b| b.up.delivered + b.down.delivered + aside(b)).sum()
    }
}

impl Binding {
    pub(crate) fn is_sound(&self) -> bool {
        self.standing == Standing::Sound
    }

    /// It failed or was taken back, or its link was down.
    pub(crate) fn is_over(&self) -> bool {
        self.standing == Standing::Over
    }

    /// Its host takes it. What became of its box's end before that was nobody's loss: nothing has
    /// been sent under its epoch.
    pub(crate) fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) && self.is_over() {
            self.standing = Standing::Fresh;
            self.stillborn = true;
        }
    }

    /// Whether its box's end may have been over when its host took it.
    pub(crate) fn may_be_stillborn(&self) -> bool {
        self.stillborn
    }

    /// Its host is asked to give it back in order.
    pub(crate) fn ask_back(&mut self) {
        self.asked_back = true;
    }

    pub(crate) fn is_asked_back(&self) -> bool {
        self.asked_back
    }

    /// The operating system uses the device from now on.
    pub(crate) fn settle(&mut self) {
        if self.standing == Standing::Fresh {
            self.standing = Standing::Sound;
            // Another state: what was sent meanwhile is not owed now, either.
            self.upsets += 1;
            self.gave_up = None;
            // What the device sent before its reset came before it was found again, or never comes;
            // nor does what was sent to it before its host asked for that.
            self.up.drop_before(self.reset_after, &Class::ALL);
            // Of a function that was reset alone only what is posted is in order with the answer that
            // it was found by.
            self.up.drop_before(self.function_after, &[Class::Posted]);
            if let Some(last) = self.resets.drain(..).next_back() {
                self.down.drop_before(last, &Class::ALL);
            }
        }
    }

    /// Something happened that excuses a loss.
    pub(crate) fn unsettle(&mut self) {
        if self.standing == Standing::Sound {
            self.standing = Standing::Fresh;
        }
        self.relax();
    }

    fn relax(&mut self) {
        self.upsets += 1;
        self.down.relax();
        self.up.relax();
        self.aside.values_mut().for_each(Aside::relax);
    }

    /// Its host resets the device: the bus that it is on, or everything below the root complex.
    pub(crate) fn reset_begins(&mut self) {
        self.unsettle();
        self.resets.push_back(self.down.sent());
    }

    /// The device forgets everything, requests up to this one, too; what was sent to it before its
    /// host asked for that never comes. Of several resets that it asked for, this may be the first.
    pub(crate) fn device_was_reset(&mut self, last_request: u64) {
        self.unsettle();
        self.forgotten = last_request;
        if let Some(last) = self.resets.pop_front() {
            self.down.drop_before(last, &Class::ALL);
        }
        self.reset_after = self.up.sent();
    }

    /// As [`Binding::device_was_reset`], of the function alone: it has forgotten what it had asked, and
    /// what it had been asked and did not answer. No record flushes what is under way.
    pub(crate) fn function_was_reset(&mut self, now: Instant, last_request: u64) {
        self.unsettle();
        self.forgotten = last_request;
        self.function_after = self.up.sent();
        self.function_reset = Some(now);
    }

    /// Whether the function was reset alone since something was asked of it: its proxy says so when the
    /// reset is over, however short the wait was.
    pub(crate) fn forgot(&self, since: Instant) -> bool {
        self.function_reset.is_some_and(|at| since <= at)
    }

    /// It failed, or is taken back.
    pub(crate) fn end(&mut self) {
        self.standing = Standing::Over;
        self.relax();
    }

    /// It is over for good: nothing of it may come any more.
    pub(crate) fn close(&mut self) {
        self.close_down();
        self.up.close();
    }

    /// It is over, but its host may still take what the device had sent before.
    pub(crate) fn close_down(&mut self) {
        self.end();
        self.down.close();
    }

    /// A request ended with a cause, but without its answer: it and what answers it may come or
    /// not. Everything else still has to.
    pub(crate) fn give_up(&mut self, now: Instant, request: u64) {
        self.given_up.insert(request);
        self.gave_up = Some(now);
        self.down.relax_request(request);
        self.up.relax_request(request);
        self.aside.values_mut().for_each(|aside| aside.relax_request(request));
    }

    /// Whether a request ended so.
    pub(super) fn has_given_up(&self, request: u64) -> bool {
        self.given_up.contains(&request)
    }

    /// Whether the device asked for it before it was reset.
    pub(super) fn has_forgotten(&self, request: u64) -> bool {
        (1..=self.forgotten).contains(&request)
    }

    /// Whether a driver may say that something failed that it began then: a request of that time
    /// ended without its answer, or the device misbehaved meanwhile. What was before is no excuse.
    pub(crate) fn excuses_failure(&self, since: Instant, now: Instant, spells: &Spells) -> bool {
        let gave_up = self.gave_up.is_some_and(|at| since <= at);
        !self.is_sound() || gave_up || spells.within(since, now)
    }

    /// A TLP of the root complex was taken in; its device may have taken nothing for so long that it is
    /// given up.
    pub(crate) fn sent_down(&mut self, now: Instant, seen: Seen, request: u64, given_up: bool) {
        let forgotten = seen.class == Class::Completion && self.has_forgotten(request);
        let lost = given_up || self.given_up.contains(&request) || forgotten;
        let optional = !self.is_sound() || lost;
        if given_up {
            self.unsure = Some(now);
        }
        self.down.send(now, seen, request, optional);
    }

    /// Whether of two requests that are alike one may have been lost, so that what the device answered
    /// to one counts as its answer to the other.
    pub(crate) fn may_mix_up(&self, now: Instant) -> bool {
        !self.is_sound() || self.unsure.is_some_and(|at| now.saturating_since(at) < MIXED_UP)
    }

    /// A TLP of the device was taken in.
    pub(crate) fn sent_up(&mut self, now: Instant, seen: Seen, request: u64, optional: bool) {
        let optional = optional || !self.is_sound() || self.given_up.contains(&request);
        self.up.send(now, seen, request, optional);
    }
}

#[cfg(test)]
mod tests {
    use super::super::spells::Fault;
    use super::*;
    use tlp_codec::ids::{Bdf, Tag};
    use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, Repr};

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_was_over_before_it_began_excuses_no_failure() {
        let mut bindings = Bindings::default();
        let index = bindings.find(0, 0, 0, 1).unwrap();
        let binding = bindings.get(index);
        let mut spells = Spells::default();
        assert!(binding.excuses_failure(at(1), at(2), &spells), "nobody uses it yet");
        binding.settle();
        assert!(!binding.excuses_failure(at(1), at(2), &spells));
        binding.give_up(at(10), 1);
        assert!(binding.excuses_failure(at(9), at(20), &spells));
        assert!(!binding.excuses_failure(at(11), at(20), &spells));
        spells.turn(at(30), Some(Fault::Silent));
        spells.turn(at(40), None);
        assert!(binding.excuses_failure(at(39), at(50), &spells));
        assert!(!binding.excuses_failure(at(41), at(50), &spells));
    }

    fn seen(kind: Kind<'_>) -> Seen {
        let mut bytes = [0; 32];
        let length = Repr::new(kind).emit(&mut bytes).unwrap();
        Seen::of(&bytes[..length]).unwrap()
    }

    #[test]
    fn a_device_need_not_get_answers_to_what_it_asked_before_a_reset() {
        let (requester, tag) = (Bdf::from_bits(9), Tag::new(1).unwrap());
        let enables = ByteEnables::all(1);
        let (address, hint, locked) = (0, None, false);
        let read =
            seen(Kind::MemRead { requester, tag, address, length_dw: 1, enables, hint, locked });
        let answer = seen(Kind::Completion {
            completer: Bdf::from_bits(8),
            requester,
            tag,
            status: CplStatus::Success,
            bcm: false,
            byte_count: 4,
            lower_address: 0,
            locked,
            data: &[0; 4],
        });
        let mut bindings = Bindings::default();
        let index = bindings.find(0, 0, 0, 1).unwrap();
        let binding = bindings.get(index);
        binding.settle();
        binding.sent_up(at(1), read, 7, false);
        binding.reset_begins();
        binding.device_was_reset(7);
        binding.settle();
        binding.sent_up(at(2), read, 8, false);
        binding.sent_down(at(3), answer, 7, false);
        assert_eq!(binding.down.owed().0, 0);
        binding.sent_down(at(3), answer, 8, false);
        assert_eq!(binding.down.owed().0, 1);
    }

    fn write(address: u64) -> Seen {
        let (requester, tag) = (Bdf::from_bits(9), Tag::new(1).unwrap());
        let (enables, hint, data) = (ByteEnables::all(1), None, &[0; 4]);
        seen(Kind::MemWrite { requester, tag, address, enables, hint, data })
    }

    #[test]
    fn a_device_gets_nothing_of_before_its_reset() {
        let mut bindings = Bindings::default();
        let index = bindings.find(0, 0, 0, 1).unwrap();
        let binding = bindings.get(index);
        // Two resets: what was sent between them may come until the second one.
        for n in 0..5 {
            binding.sent_down(at(1), write(n * 4), 0, false);
            if n == 1 || n == 3 {
                binding.reset_begins();
            }
        }
        assert!(binding.down.deliver(write(0), None).is_ok(), "it is not reset yet");
        binding.device_was_reset(0);
        assert!(binding.down.deliver(write(4), None).is_err());
        assert!(binding.down.deliver(write(8), None).is_ok());
        // Two that became one: with the second it is found again.
        binding.settle();
        assert!(binding.down.deliver(write(12), None).is_err());
        assert!(binding.down.deliver(write(16), None).is_ok());
    }
}
