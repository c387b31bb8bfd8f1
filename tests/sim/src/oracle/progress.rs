//! How far requests are: when whom they ask got them, and when that one had answered. It says which time
//! counts for what may keep a request from its answer.

use proxy_core::limits::SYNTHESISED_COMPLETION;
use proxy_core::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Who asked has heard something after this time, or is gone.
const LONGEST: Duration = SYNTHESISED_COMPLETION.saturating_mul(10);
/// An answer comes within this time, unless the network is silent: a fair part of the time of a request.
pub(crate) const CROSSES: Duration = SYNTHESISED_COMPLETION.checked_div(4).expect("not zero");

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// When whom it asks got it.
    reached: Instant,
    /// When the last of its answer was taken from there, and how often something had happened to its
    /// binding that excuses a loss.
    answered: Option<(Instant, u64)>,
}

/// Since when what may keep a request from its answer does so, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// It was handed over then.
    pub(crate) since: Instant,
    /// The network counts since then: before, it had brought everything in time.
    pub(crate) network: Instant,
    /// Whom it asks counts since then; nothing, if that one has answered in time.
    pub(crate) device: Option<Instant>,
    /// It has come to whom it asks.
    pub(crate) reached: bool,
}

/// All requests that got somewhere, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    all: BTreeMap<u64, Step>,
}

impl Progress {
    /// It came to whom it asks.
    pub(crate) fn reached(&mut self, now: Instant, request: u64) {
        self.all.insert(request, Step { reached: now, answered: None });
    }

    /// The last of its answer was taken, which has to come as long as nothing more happens to its binding.
    pub(super) fn answered(&mut self, now: Instant, request: u64, upsets: u64) {
        if let Some(step) = self.all.get_mut(&request) {
            step.answered = Some((now, upsets));
        }
    }

    /// What a request waits for that was handed over then.
    pub(super) fn waits(&self, since: Instant, now: Instant, request: u64, upsets: u64) -> Waits {
        let step = self.all.get(&request);
        let owed = step.and_then(|step| step.answered).filter(|answered| answered.1 == upsets);
        let in_time = owed.map(|owed| owed.0).filter(|at| now.saturating_since(*at) >= CROSSES);
        Waits {
            since,
            network: in_time.unwrap_or(since),
            device: in_time.is_none().then_some(step.map_or(since, |step| step.reached)),
            reached: step.is_some(),
        }
    }

    /// Who asked has its answer.
    pub(crate) fn ended(&mut self, request: u64) {
        self.all.remove(&request);
    }

    /// Those are forgotten that nobody waits for any more. Numbers rise with time, nearly.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        while let Some(first) = self.all.first_entry()
            && now.saturating_since(first.get().reached) > LONGEST
        {
            first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn what_was_over_when_an_answer_was_taken_in_time_keeps_it_from_nobody() {
        let mut progress = Progress::default();
        let (since, late) = (at(0), at(2000));
        let waits = progress.waits(since, late, 7, 0);
        assert_eq!((waits.network, waits.device, waits.reached), (since, Some(since), false));
        progress.reached(at(100), 7);
        let waits = progress.waits(since, late, 7, 0);
        assert_eq!((waits.network, waits.device, waits.reached), (since, Some(at(100)), true));
        progress.answered(at(1500), 7, 3);
        let waits = progress.waits(since, late, 7, 3);
        assert_eq!((waits.network, waits.device), (at(1500), None));
        assert_eq!(progress.waits(since, at(1999), 7, 3).network, since, "hardly in time");
        assert_eq!(progress.waits(since, late, 7, 4).device, Some(at(100)), "it may be lost since");
        progress.forget_old(at(100) + LONGEST);
        assert!(progress.waits(since, late, 7, 3).reached);
        progress.ended(7);
        assert!(!progress.waits(since, late, 7, 3).reached);
    }
}
