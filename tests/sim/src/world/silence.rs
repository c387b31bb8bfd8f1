//! How long a network at fault kept two nodes from hearing each other. A link that limps, cut for
//! less than its bound again and again, can hold a request up until its time is over; nothing else
//! may.

use crate::clock::may_have_given_up;
use proxy_core::limits::SYNTHESISED_COMPLETION;
use proxy_core::time::Instant;
use std::time::Duration;

/// A shorter silence is what a lost frame costs.
const SHORT: Duration = Duration::from_millis(20);
/// So much silence there has to be in a request's time, that of both directions added up, for it to
/// be the cause of the request's end: what is lost one way costs the other one its answers.
const ENOUGH: Duration = SYNTHESISED_COMPLETION.checked_div(4).expect("not zero");

/// What one node heard of another.
#[derive(Clone, Debug, Default)]
struct Ear {
    last: Instant,
    /// Something was lost since.
    lost: bool,
    silences: Vec<(Instant, Instant)>,
}

/// What all nodes heard of each other.
pub(super) struct Silences {
    nodes: usize,
    ears: Vec<Ear>,
}

impl Silences {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, ears: vec![Ear::default(); nodes * nodes] }
    }

    pub(super) fn came(&mut self, now: Instant, from: usize, to: usize) {
        let ear = &mut self.ears[from * self.nodes + to];
        if ear.lost && now.saturating_since(ear.last) > SHORT {
            ear.silences.push((ear.last, now));
        }
        (ear.last, ear.lost) = (now, false);
    }

    pub(super) fn lost(&mut self, from: usize, to: usize) {
        self.ears[from * self.nodes + to].lost = true;
    }

    /// Whether silence between two nodes explains that a request's time ran out.
    pub(super) fn explain(&self, since: Instant, now: Instant, one: usize, other: usize) -> bool {
        let heard = |from, to| {
            let ear: &Ear = &self.ears[from * self.nodes + to];
            let open = ear.lost.then_some((ear.last, now));
            let all = ear.silences.iter().copied().chain(open);
            all.map(|(from, to)| to.min(now).saturating_since(from.max(since))).sum::<Duration>()
        };
        may_have_given_up(since, now) && heard(one, other) + heard(other, one) >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn only_a_silence_with_losses_within_the_time_explains_anything() {
        let mut silences = Silences::new(3);
        silences.came(at(0), 0, 2);
        silences.came(at(900), 0, 2);
        assert!(!silences.explain(at(0), at(2000), 0, 2), "nobody spoke");
        silences.lost(0, 2);
        silences.came(at(1500), 0, 2);
        assert!(silences.explain(at(0), at(2000), 2, 0), "600 ms");
        assert!(!silences.explain(at(0), at(1999), 2, 0), "its time is not over");
        assert!(!silences.explain(at(1100), at(3100), 2, 0), "400 ms are within it");
        assert!(!silences.explain(at(0), at(2000), 1, 0), "others heard each other");
        silences.lost(2, 0);
        assert!(silences.explain(at(1600), at(3600), 2, 0), "it lasts");
    }
}
