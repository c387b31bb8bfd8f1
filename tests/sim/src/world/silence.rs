//! How long a network at fault kept two nodes from hearing each other. A link that limps, cut for
//! less than its bound again and again, can hold a request up until its time is over; nothing else
//! may. As long as one of several paths is whole, the others are no excuse.

use crate::clock::may_have_given_up;
use crate::network::Network;
use crate::oracle::progress::Waits;
use proxy_core::limits::{LINK_MAX_RTO, MAX_PATHS, SYNTHESISED_COMPLETION};
use proxy_core::time::Instant;
use std::time::Duration;

/// A shorter silence is what a lost frame costs.
const SHORT: Duration = Duration::from_millis(20);
/// So much silence there has to be in a request's time, that of both directions added up, for it to
/// be the cause of the request's end: what is lost one way costs the other one its answers.
const ENOUGH: Duration = SYNTHESISED_COMPLETION.checked_div(PART).expect("not zero");
/// Of a time in which an answer was only under way, this part.
const PART: u32 = 4;
/// Both ends use a path that is whole again after this time at the latest: twice the longest pause
/// between two probes (`wire.md`, section 14), of which one may be lost.
const FOUND: Duration = LINK_MAX_RTO.saturating_mul(5);

/// So much of the time since then explains that a request's time ran out.
pub(super) fn enough(since: Instant, now: Instant) -> Duration {
    ENOUGH.min(now.saturating_since(since) / PART)
}

/// The paths to another node that a node was told of: how many, and when each of them was new.
#[derive(Clone, Debug, Default)]
struct Told {
    count: usize,
    since: [Instant; MAX_PATHS],
}

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
    told: Vec<Told>,
}

impl Silences {
    pub(super) fn new(nodes: usize) -> Self {
        let (ears, told) =
            (vec![Ear::default(); nodes * nodes], vec![Told::default(); nodes * nodes]);
        Self { nodes, ears, told }
    }

    /// A node was told how many paths there are to another one; none, when it forgot that one.
    pub(super) fn told(&mut self, now: Instant, node: usize, other: usize, count: usize) {
        let told = &mut self.told[node * self.nodes + other];
        let count = count.min(MAX_PATHS);
        told.since[told.count.min(count)..count].fill(now);
        told.count = count;
    }

    /// A node's proxy died, and knows nobody.
    pub(super) fn died(&mut self, node: usize) {
        self.told[node * self.nodes..][..self.nodes].fill(Told::default());
    }

    /// Since when two nodes have used a path that is whole, or could have.
    pub(super) fn whole_since(
        &self,
        network: &Network,
        now: Instant,
        one: usize,
        other: usize,
    ) -> Option<Instant> {
        let ends =
            [(one, other), (other, one)].map(|(from, to)| &self.told[from * self.nodes + to]);
        let both = ends.iter().map(|told| told.count).min().expect("there are two");
        let since = (0..both).filter_map(|path| {
            let whole = network.whole_since(now, [one, other], path as u8)?;
            Some(ends.iter().fold(whole, |since, told| since.max(told.since[path])) + FOUND)
        });
        since.min()
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
    pub(super) fn explain(
        &self,
        network: &Network,
        waits: &Waits,
        now: Instant,
        (one, other): (usize, usize),
    ) -> bool {
        let since = waits.network;
        let heard = |from, to| {
            let ear: &Ear = &self.ears[from * self.nodes + to];
            let open = ear.lost.then_some((ear.last, now));
            let all = ear.silences.iter().copied().chain(open);
            all.map(|(from, to)| to.min(now).saturating_since(from.max(since))).sum::<Duration>()
        };
        may_have_given_up(waits.since, now)
            && heard(one, other) + heard(other, one) >= enough(since, now)
            && self.whole_since(network, now, one, other).is_none_or(|whole| whole > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Cables, Loss};
    use crate::profile::{Fabric, Profile, Trouble};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A request that was handed over then and got nowhere.
    fn waits(since: u64) -> Waits {
        Waits { since: at(since), network: at(since), device: Some(at(since)), reached: false }
    }

    /// Of three nodes with two paths.
    fn network() -> Network {
        let fabric = Fabric { hosts: 2, boxes: 1, paths: 2, ..Profile::calm().fabric };
        Network::new(1, &fabric, Trouble::default())
    }

    #[test]
    fn only_a_silence_with_losses_within_the_time_explains_anything() {
        let (mut silences, network) = (Silences::new(3), network());
        let explain = |silences: &Silences, since, now, nodes| {
            silences.explain(&network, &waits(since), at(now), nodes)
        };
        silences.came(at(0), 0, 2);
        silences.came(at(900), 0, 2);
        assert!(!explain(&silences, 0, 2000, (0, 2)), "nobody spoke");
        silences.lost(0, 2);
        silences.came(at(1500), 0, 2);
        assert!(explain(&silences, 0, 2000, (2, 0)), "600 ms");
        assert!(!explain(&silences, 0, 1999, (2, 0)), "its time is not over");
        assert!(!explain(&silences, 1100, 3100, (2, 0)), "400 ms are within it");
        assert!(!explain(&silences, 0, 2000, (1, 0)), "others heard each other");
        silences.lost(2, 0);
        assert!(explain(&silences, 1600, 3600, (2, 0)), "it lasts");
    }

    #[test]
    fn no_silence_explains_anything_beside_a_path_that_is_whole() {
        let (mut silences, mut network) = (Silences::new(3), network());
        let dead = Cables::one_way(0, 0, true);
        network.cut(dead, Loss::PathDeadOneWay);
        silences.came(at(0), 0, 2);
        silences.lost(0, 2);
        for (node, other) in [(0, 2), (2, 0)] {
            assert!(silences.explain(&network, &waits(1000), at(3000), (0, 2)), "who knows of it?");
            silences.told(at(400), node, other, 2);
        }
        assert!(!silences.explain(&network, &waits(1000), at(3000), (2, 0)));
        assert!(
            silences.explain(&network, &waits(899), at(2899), (2, 0)),
            "not known for long enough"
        );
        silences.told(at(950), 2, 0, 1);
        assert!(
            silences.explain(&network, &waits(1000), at(3000), (2, 0)),
            "one end has the dead one only"
        );
        silences.told(at(950), 2, 0, 2);
        assert!(!silences.explain(&network, &waits(1450), at(3450), (2, 0)));
        let other = Cables::one_way(2, 1, true);
        network.cut(other, Loss::PathDeadOneWay);
        assert!(silences.explain(&network, &waits(1450), at(3450), (2, 0)), "none is whole");
        network.mend(at(2000), other, Loss::PathDeadOneWay);
        assert!(silences.explain(&network, &waits(2499), at(4499), (2, 0)));
        assert!(!silences.explain(&network, &waits(2500), at(4500), (2, 0)));
        silences.died(0);
        assert!(silences.explain(&network, &waits(2500), at(4500), (2, 0)));
    }
}
