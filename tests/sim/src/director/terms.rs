//! Under which terms a binding is lent: its shares of the links and its paths. They are drawn for
//! each binding and direction from the seed and the binding's own name, so that a binding that is
//! made again under a new epoch has others: that is how terms change while everything else runs.

use crate::profile::{Fabric, Shares};
use crate::random::{Drawer, Random};
use manager::types::LinkUse;
use proxy_core::control::{PathSet, Share};
use tlp_codec::ids::Epoch;

/// Bits of an epoch, in a binding's name.
const BITS: u32 = 32;

/// What terms are drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    seed: u64,
    shares: Option<Shares>,
    /// Whether bindings may use some of the paths only, and how many there are.
    sets: bool,
    paths: usize,
    /// Slots with drives, and the functions of the devices in the others.
    drives: usize,
    functions: usize,
}

impl Terms {
    pub(crate) fn new(seed: u64, fabric: &Fabric) -> Self {
        Self {
            seed,
            shares: fabric.shares,
            sets: fabric.path_sets,
            paths: fabric.paths,
            drives: fabric.drives,
            functions: fabric.functions,
        }
    }

    /// Functions of a slot that are lent together.
    pub(super) fn functions(&self, slot: usize) -> usize {
        if slot < self.drives { 1 } else { self.functions }
    }

    pub(super) fn paths(&self) -> usize {
        self.paths
    }

    /// Of the binding of a slot under an epoch: what goes to the device, or comes from it (`up`).
    pub(crate) fn of(
        &self,
        at_box: usize,
        slot: usize,
        epoch: Epoch,
        up: bool,
    ) -> (Share, PathSet) {
        self.draw(name(at_box, slot, up, epoch.bits()))
    }

    fn draw(&self, name: u64) -> (Share, PathSet) {
        let mut random = Random::stream(self.seed, Drawer::Terms, name);
        let all = PathSet::first(self.paths);
        let paths = if self.sets { PathSet(random.between(1, all.0.into()) as u8) } else { all };
        let share = self.shares.map_or(Share::EVEN, |shares| share(&shares, &mut random));
        (share, paths)
    }

    /// For how long an operator wishes it then, milliseconds, if for a time.
    pub(crate) fn lease(
        &self,
        at_box: usize,
        slot: usize,
        asked: u32,
        [from, to]: [u64; 2],
    ) -> Option<u64> {
        let name = name(at_box, slot, false, asked);
        let mut random = Random::stream(self.seed, Drawer::Leases, name);
        (to > 0 && random.chance(500_000)).then(|| random.between(from, to))
    }

    /// What an operator wishes of the links when it asks the manager for a slot, the `asked`-th time:
    /// the same for both directions.
    pub(crate) fn wished(&self, at_box: usize, slot: usize, asked: u32) -> LinkUse {
        let (Share { weight, limit, guarantee }, PathSet(set)) =
            self.draw(name(at_box, slot, false, asked));
        let rate = |rate: u64| (rate > 0).then_some(rate);
        LinkUse {
            paths: (0..8).filter(|path| self.sets && set >> path & 1 == 1).collect(),
            weight: weight.max(1),
            limit: rate(limit),
            // More than its limit nobody is guaranteed.
            guarantee: rate(if limit > 0 { guarantee.min(limit) } else { guarantee }),
        }
    }
}

/// What the terms of a slot in one direction are drawn by: an epoch, or how often it was asked for.
fn name(at_box: usize, slot: usize, up: bool, number: u32) -> u64 {
    let place = (at_box as u64) << 9 | (slot as u64) << 1 | u64::from(up);
    place << BITS | u64::from(number)
}

fn share(shares: &Shares, random: &mut Random) -> Share {
    let mut rate = |ppm, [low, high]: [u64; 2]| {
        let mbps = random.between(low, high);
        if random.chance(ppm) { mbps * 1_000_000 / 8 } else { 0 }
    };
    let limit = rate(shares.limited_ppm, shares.limit_mbps);
    let guarantee = rate(shares.guaranteed_ppm, shares.guarantee_mbps);
    let weight = random.between(shares.weights[0], shares.weights[1]) as u8;
    Share { weight, limit, guarantee }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn terms_are_of_their_binding_and_every_kind_is_drawn() {
        let fabric = Profile::find("shares").unwrap().fabric;
        let terms = Terms::new(7, &Fabric { path_sets: true, paths: 2, ..fabric });
        let epoch = |counter| Epoch::new(0, counter).unwrap();
        let all: Vec<_> = (1..200).map(|n| terms.of(1, 1, epoch(n), false)).collect();
        assert_eq!(all[4], terms.of(1, 1, epoch(5), false));
        for other in [terms.of(1, 1, epoch(5), true), terms.of(0, 1, epoch(5), false)] {
            assert_ne!(all[4], other);
        }
        for set in 1..=3 {
            assert!(all.iter().any(|(_, paths)| *paths == PathSet(set)), "{set:#b}");
        }
        let wanted: [fn(&Share) -> bool; 5] = [
            |share| share.limit > 0,
            |share| share.limit == 0,
            |share| share.guarantee > 0,
            |share| share.guarantee == 0,
            |share| share.weight > 1,
        ];
        for (number, wanted) in wanted.into_iter().enumerate() {
            assert!(all.iter().any(|(share, _)| wanted(share)), "{number}");
        }
    }

    #[test]
    fn what_is_wished_of_the_manager_it_accepts_and_is_something_else_each_time() {
        let terms = Terms::new(3, &Profile::find("lending").unwrap().fabric);
        let wishes: Vec<_> = (0..50).map(|asked| terms.wished(1, 2, asked)).collect();
        assert!(wishes.iter().all(|wish| wish.check().is_ok() && !wish.paths.is_empty()));
        assert!(wishes.iter().all(|wish| wish.paths.iter().all(|path| *path < 3)));
        assert!(wishes.iter().any(|wish| wish.limit.is_some() && wish.guarantee.is_some()));
        assert!(wishes.windows(2).filter(|pair| pair[0] == pair[1]).count() < 5);
    }
}
