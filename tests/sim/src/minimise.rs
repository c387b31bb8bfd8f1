//! A failing schedule made short: delta debugging (Zeller, Hildebrandt: *Simplifying and isolating
//! failure-inducing input*, 2002) over its entries.
//!
//! What is left breaks the same promise; not always by the same event. Of the entries that are left, work
//! is made shorter, and what lasts a while, as long as it still does.

use crate::profile::Profile;
use crate::run::{Outcome, Run};
use crate::schedule::{Act, Entry};

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
    let mut runs = 1;
    let mut breaks = |schedule: &[Entry]| {
        let outcome = Run::of(seed, profile, schedule.to_vec()).go();
        outcome.violation.as_ref().is_some_and(|v| v.promise == promise).then_some(outcome)
    };
    // What goes wrong by itself needs no entry.
    if let Some(outcome) = breaks(&[]) {
        progress(0, 2);
        return Some(Shrunk { schedule: Vec::new(), before, outcome });
    }
    runs += 1;
    drop_entries(&mut best, &mut runs, &mut breaks, &mut progress);
    halve(&mut best, &mut runs, &mut breaks);
    Some(best)
}

/// Drops entries, ever smaller parts of them.
fn drop_entries(
    best: &mut Shrunk,
    runs: &mut usize,
    breaks: &mut impl FnMut(&[Entry]) -> Option<Outcome>,
    progress: &mut impl FnMut(usize, usize),
) {
    let mut parts = 2;
    while best.schedule.len() >= 2 && *runs < RUNS {
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
            *runs += 1;
            if let Some(outcome) = breaks(&rest) {
                shorter = Some((rest, outcome));
                break;
            }
        }
        match shorter {
            Some((schedule, outcome)) => {
                (best.schedule, best.outcome) = (schedule, outcome);
                parts = (parts - 1).max(2);
                progress(best.schedule.len(), *runs);
            }
            None if parts >= best.schedule.len() => break,
            None => parts = (parts * 2).min(best.schedule.len()),
        }
    }
}

/// Makes what is left last half as long, and again, entry by entry.
fn halve(
    best: &mut Shrunk,
    runs: &mut usize,
    breaks: &mut impl FnMut(&[Entry]) -> Option<Outcome>,
) {
    for number in 0..best.schedule.len() {
        while *runs < RUNS
            && let Some(half) = halved(best.schedule[number])
        {
            let mut schedule = best.schedule.clone();
            schedule[number] = half;
            *runs += 1;
            let Some(outcome) = breaks(&schedule) else { break };
            (best.schedule, best.outcome) = (schedule, outcome);
        }
    }
}

/// An entry with half of its operations, or half as long; `None` where it cannot be less.
fn halved(entry: Entry) -> Option<Entry> {
    match entry.act {
        Act::Work { host, port, task, operations } if operations > 1 => {
            let act = Act::Work { host, port, task, operations: operations / 2 };
            Some(Entry { act, ..entry })
        }
        _ if entry.for_us > 1 => Some(Entry { for_us: entry.for_us / 2, ..entry }),
        _ => None,
    }
}
