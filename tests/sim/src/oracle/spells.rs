//! When a device misbehaved. That excuses what was asked of it meanwhile, and nothing else: what
//! was over before and what begins afterwards has to be right.

use super::progress::Waits;
use proxy_core::time::Instant;
use std::time::Duration;

/// What was stored for it when it takes something again is gone, and its host's proxy knows, within
/// this time.
const DRAINS: Duration = Duration::from_millis(50);
/// Clocks go that much too fast, in parts of it.
const CLOCKS: u32 = 1000;

/// How a device fails those who ask it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It answers late or not at all.
    Silent,
    /// It answers twice, or wrongly: the answer may be for another request that is outstanding,
    /// which PCIe cannot tell, or be none for the one that it is for.
    Lies,
    /// It takes nothing: whoever asks it is waited for no longer than its host's proxy waits.
    Stuck,
}

/// One time of it.
#[derive(Clone, Copy, Debug)]
struct Spell {
    fault: Fault,
    from: Instant,
    until: Instant,
}

/// All times that one device misbehaved.
#[derive(Debug, Default)]
pub(crate) struct Spells {
    all: Vec<Spell>,
}

impl Spells {
    /// It misbehaves so from now on, or not any more.
    pub(crate) fn turn(&mut self, now: Instant, fault: Option<Fault>) {
        if let Some(last) = self.all.last_mut() {
            if fault == Some(last.fault) && last.until > now {
                // It goes on.
                return;
            }
            last.until = last.until.min(now);
        }
        if let Some(fault) = fault {
            self.all.push(Spell { fault, from: now, until: Instant::FAR_FUTURE });
        }
    }

    /// What it said wrongly is out only now: who waits at this moment may get it.
    pub(crate) fn lied(&mut self, now: Instant) {
        self.moment(now, Fault::Lies);
    }

    /// What it said late is out only now: who waits at this moment may have waited for that.
    pub(crate) fn was_late(&mut self, now: Instant) {
        self.moment(now, Fault::Silent);
    }

    fn moment(&mut self, now: Instant, fault: Fault) {
        let mut same = self.all.iter().filter(|spell| spell.fault == fault);
        if !same.any(|spell| spell.from <= now && now <= spell.until) {
            let moment = Spell { fault, from: now, until: now };
            // A spell that goes on stays the last one.
            let open = self.all.last().is_some_and(|last| last.until > now);
            self.all.insert(self.all.len() - usize::from(open), moment);
        }
    }

    /// Whether it misbehaved at all while something was outstanding.
    pub(crate) fn within(&self, since: Instant, now: Instant) -> bool {
        self.all.iter().any(|spell| spell.from <= now && since <= spell.until)
    }

    /// Whether it may have kept a request from its answer whose time is over: one that it got, by what it
    /// did since then; one that it did not get, as it took nothing or had so many that they are short of
    /// tags.
    pub(crate) fn keep(&self, waits: &Waits, now: Instant, short: impl Fn() -> bool) -> bool {
        waits.device.is_some_and(|since| {
            self.within(since, now)
                && (waits.reached || !self.stuck_for(since, now).is_zero() || short())
        })
    }

    fn stuck(&self) -> impl Iterator<Item = &Spell> {
        self.all.iter().filter(|spell| spell.fault == Fault::Stuck)
    }

    /// Whether its host's proxy, which waits so long, may give up what is for it then.
    pub(crate) fn gives_up(&self, now: Instant, hold: Duration) -> bool {
        self.gave_up(now, now, hold)
    }

    /// As [`Spells::gives_up`], at some moment from `since` until now.
    pub(crate) fn gave_up(&self, since: Instant, now: Instant, hold: Duration) -> bool {
        let hold = hold - hold / CLOCKS;
        let held = |spell: &Spell| spell.until.saturating_since(spell.from) >= hold;
        let mut held_long = self.stuck().filter(|spell| held(spell));
        held_long
            .any(|spell| spell.from + hold <= now && since.saturating_since(spell.until) <= DRAINS)
    }

    /// How long of a time until now it took nothing.
    pub(crate) fn stuck_for(&self, since: Instant, now: Instant) -> Duration {
        let all = self.stuck().map(|spell| {
            let until = if spell.until < now { spell.until + DRAINS } else { now };
            until.min(now).saturating_since(spell.from.max(since))
        });
        all.sum()
    }

    /// When it misbehaved last.
    pub(crate) fn last(&self, now: Instant) -> Option<Instant> {
        self.all.iter().map(|spell| spell.until.min(now)).max()
    }

    /// Whether it gave wrong answers within a time.
    pub(crate) fn lied_within(&self, time: Duration, now: Instant) -> bool {
        let mut lies = self.all.iter().filter(|spell| spell.fault == Fault::Lies);
        lies.any(|spell| now.saturating_since(spell.until) <= time)
    }

    /// Whether it may have given a wrong answer to what was outstanding.
    pub(crate) fn lies(&self, since: Instant, now: Instant) -> bool {
        let lies = self.all.iter().filter(|spell| spell.fault == Fault::Lies);
        lies.into_iter().any(|spell| spell.from <= now && since <= spell.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn only_what_was_outstanding_meanwhile_is_excused() {
        let mut spells = Spells::default();
        spells.turn(at(10), Some(Fault::Silent));
        assert!(spells.within(at(5), at(12)) && spells.within(at(15), at(16)));
        spells.turn(at(20), None);
        assert!(!spells.within(at(5), at(9)), "it was over before");
        assert!(spells.within(at(19), at(2019)), "it was lost meanwhile");
        assert!(!spells.within(at(21), at(2021)), "it began afterwards");
        assert!(!spells.lies(at(19), at(22)), "silence is no lie");
        spells.turn(at(30), None);
        assert!(!spells.within(at(21), at(40)), "nothing goes on");
    }

    #[test]
    fn a_device_keeps_from_its_answer_what_it_has_or_cannot_take() {
        let (since, now) = (at(100), at(2100));
        let waits = Waits { since, network: since, device: Some(since), reached: false };
        let mut spells = Spells::default();
        spells.turn(at(0), Some(Fault::Silent));
        assert!(!spells.keep(&waits, now, || false), "it would have taken it");
        assert!(spells.keep(&waits, now, || true), "there was no tag for it");
        assert!(spells.keep(&Waits { reached: true, ..waits }, now, || false));
        assert!(!spells.keep(&Waits { device: None, ..waits }, now, || true), "it has answered");
        spells.turn(at(200), Some(Fault::Stuck));
        assert!(spells.keep(&waits, now, || false), "it took nothing");
    }

    #[test]
    fn what_is_for_one_that_takes_nothing_is_given_up_after_a_while() {
        let mut spells = Spells::default();
        let hold = Duration::from_millis(100);
        spells.turn(at(1000), Some(Fault::Stuck));
        assert!(!spells.gives_up(at(1099), hold) && spells.gives_up(at(1100), hold));
        assert_eq!(spells.stuck_for(at(500), at(1500)), Duration::from_millis(500));
        spells.turn(at(1500), None);
        assert!(spells.gives_up(at(1550), hold) && !spells.gives_up(at(1551), hold));
        assert!(spells.gave_up(at(0), at(1100), hold) && !spells.gave_up(at(0), at(1099), hold));
        assert!(spells.gave_up(at(1550), at(9000), hold));
        assert!(!spells.gave_up(at(1551), at(9000), hold), "it was asked later");
        assert_eq!(spells.stuck_for(at(1200), at(1600)), Duration::from_millis(350));
        assert_eq!(spells.stuck_for(at(1551), at(1600)), Duration::ZERO);
        // It goes on, whoever asks for that.
        spells.turn(at(3000), Some(Fault::Stuck));
        spells.turn(at(3090), Some(Fault::Stuck));
        assert!(spells.gives_up(at(3100), hold));
        spells.turn(at(3200), None);
        // Not for long enough.
        spells.turn(at(4000), Some(Fault::Stuck));
        spells.turn(at(4090), None);
        assert!(!spells.gives_up(at(4110), hold));
    }

    #[test]
    fn a_lie_that_is_out_late_is_for_those_who_wait_then() {
        let mut spells = Spells::default();
        spells.turn(at(10), Some(Fault::Lies));
        spells.turn(at(20), None);
        assert!(!spells.lies(at(25), at(35)));
        spells.lied(at(30));
        assert!(spells.lies(at(25), at(35)) && !spells.lies(at(31), at(35)));
        spells.turn(at(40), Some(Fault::Silent));
        spells.lied(at(45));
        spells.turn(at(50), None);
        assert!(!spells.within(at(51), at(60)), "the spell that went on has ended");
    }
}
