//! A failing schedule made short: delta debugging (Zeller, Hildebrandt: *Simplifying and isolating
//! failure-inducing input*, 2002) over its entries.
//!
//! What is left breaks the same promise; not always by the same event.

use crate::profile::Profile;
use crate::run::{Outcome, Run};
use crate::schedule::Entry;

/// What was found.
pub(crate) struct Shrunk {
    pub(crate) schedule: Vec<Entry>,
    /// How many entries there were.
    pub(crate) before: usize,
    pub(crate) outcome: Outcome,
}

/// Runs that are tried at most.
const RUNS: usize = 2_000;

/// Shrinks; `None` when the whole schedule breaks nothing. `progress`: entries left, runs tried.
pub(crate) fn shrink(
    seed: u64,
    profile: &Profile,
    whole: Vec<Entry>,
    mut progress: impl FnMut(usize, usize),
) -> Option<Shrunk> {
    let before = whole.len();
    let outcome = Run::of(seed, profile, whole.clone()).go();
    let promise = outcome.violation.as_ref()?.promise;
    let mut best = Shrunk { schedule: whole, before, outcome };
    let (mut parts, mut runs) = (2, 1);
    while best.schedule.len() >= 2 && runs < RUNS {
        let size = best.schedule.len().div_ceil(parts);
        let mut shorter = None;
        for part in 0..parts {
            let mut rest = best.schedule.clone();
            let from = (part * size).min(rest.len());
            let to = (from + size).min(rest.len());
            if from == to {
                continue;
            }
            rest.drain(from..to);
            runs += 1;
            let outcome = Run::of(seed, profile, rest.clone()).go();
            if outcome.violation.as_ref().is_some_and(|v| v.promise == promise) {
                shorter = Some((rest, outcome));
                break;
            }
        }
        match shorter {
            Some((schedule, outcome)) => {
                best = Shrunk { schedule, before, outcome };
                parts = (parts - 1).max(2);
                progress(best.schedule.len(), runs);
            }
            None if parts >= best.schedule.len() => break,
            None => parts = (parts * 2).min(best.schedule.len()),
        }
    }
    Some(best)
}
