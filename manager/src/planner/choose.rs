//! Which of the slots that will do a request gets.
//!
//! What is best is said by a [`Cost`], and it is said of a box by its shape. So all shapes are
//! ranked, and then the first box of the best shape is taken that is there.

mod flow;
mod one;
mod several;
mod spread;

use super::Liveness;
use super::filter::Filter;
use super::kept::Budget;
use super::ranked::{Boxes, InOrder, Ranked};
use crate::records::pool::{BoxEntry, IslandShape, Scope, Shape};
use crate::types::topology::BoxKind;
use crate::types::wishes::Together;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use tlp_codec::ids::{NodeId, SlotId};

/// One slot of one box.
pub(super) type Place = (NodeId, SlotId);

/// What it costs the pool to take some slots out of a box; the lowest is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Islands of which all was free, and no longer will be.
    pub(super) broken: usize,
    /// Slots that are taken out of islands.
    pub(super) from_islands: usize,
    /// Boxes whose GPUs are joined come after plain ones.
    pub(super) kind: BoxKind,
    /// Slots that would do and are left over, so that what is nearly used up is used up.
    pub(super) left_over: usize,
}

impl Cost {
    /// What is spared, whatever is left over.
    fn spared(self) -> (usize, usize, BoxKind) {
        (self.broken, self.from_islands, self.kind)
    }
}

/// Slots of an island, or of none, that are free and will do.
#[derive(Clone, Copy, Default)]
struct Part {
    island: Option<u8>,
    /// Whether all of the island is free.
    whole: bool,
    count: usize,
}

/// A slot that is free and will do.
#[derive(Clone, Copy)]
struct Fitting {
    slot: SlotId,
    island: Option<u8>,
    demand: u64,
    /// The kept model that it has.
    kept: Option<usize>,
}

/// Slots that take as much of a proxy each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demand {
    pub(super) each: u64,
    /// The kept model that they have.
    pub(super) kept: Option<usize>,
    pub(super) count: usize,
}

/// What is free of a shape and will do; kept from one shape to the next, to be filled again.
#[derive(Default)]
struct Scratch {
    parts: Vec<Part>,
    /// How many take how much.
    demands: Vec<Demand>,
}

/// A choice that is being made.
pub(super) struct Chooser<'a, L> {
    pub(super) filter: &'a Filter<'a>,
    pub(super) live: &'a L,
    /// What is left of the host's bandwidth, bytes a second.
    pub(super) room: u64,
}

/// The sum of so many of the lowest demands; nothing if there are not so many that may be taken.
fn cheapest(demands: &mut [Demand], wanted: usize, mut budget: Budget) -> Option<u64> {
    if demands.len() > 1 {
        demands.sort_unstable();
    }
    let (mut left, mut sum) = (wanted, 0_u64);
    for demand in demands {
        let taken = budget.take(demand.kept, left.min(demand.count));
        sum = sum.saturating_add(demand.each.saturating_mul(taken as u64));
        left -= taken;
    }
    (left == 0).then_some(sum)
}

/// The first of these that may be taken, so many; nothing if there are not so many.
fn first(from: &[Fitting], wanted: usize, mut budget: Budget) -> Option<Vec<Fitting>> {
    let may = from.iter().filter(|fitting| budget.take(fitting.kept, 1) == 1);
    let chosen: Vec<Fitting> = may.take(wanted).copied().collect();
    (chosen.len() == wanted).then_some(chosen)
}

fn sum(chosen: &[Fitting]) -> u64 {
    chosen.iter().map(|fitting| fitting.demand).fold(0, u64::saturating_add)
}

/// What it costs to take so many slots: those outside of islands go first, then those of islands
/// that are broken, then those of as few islands as can be.
fn cost(kind: BoxKind, parts: &[Part], wanted: usize) -> Cost {
    let count = |which: fn(&&Part) -> bool| parts.iter().filter(which).map(|p| p.count).sum();
    let outside: usize = count(|part| part.island.is_none());
    let broken_before: usize = count(|part| part.island.is_some() && !part.whole);
    let from_islands = wanted.saturating_sub(outside);
    let mut rest = from_islands.saturating_sub(broken_before);
    let all: usize = parts.iter().map(|part| part.count).sum();
    let left_over = all.saturating_sub(wanted);
    if rest == 0 {
        return Cost { broken: 0, from_islands, kind, left_over };
    }
    let whole = parts.iter().filter(|part| part.whole).map(|part| part.count);
    if whole.clone().any(|count| count >= rest) {
        return Cost { broken: 1, from_islands, kind, left_over };
    }
    let mut whole: Vec<usize> = whole.collect();
    whole.sort_unstable_by_key(|count| Reverse(*count));
    let mut broken = 0;
    for count in whole {
        if rest == 0 {
            break;
        }
        broken += 1;
        rest = rest.saturating_sub(count);
    }
    Cost { broken, from_islands, kind, left_over }
}

/// In which order islands are broken for so many slots: as few of them as can be, and the last one
/// no larger than it has to be.
fn order_of_islands(mut whole: BTreeMap<u8, usize>, mut rest: usize) -> Vec<u8> {
    let mut order = Vec::new();
    while !whole.is_empty() {
        let enough = whole.iter().filter(|(_, count)| **count >= rest);
        let smallest = enough.min_by_key(|(_, count)| **count);
        let largest = whole.iter().max_by_key(|(_, count)| **count);
        let (&island, &count) = smallest.or(largest).expect("there is one");
        whole.remove(&island);
        rest = rest.saturating_sub(count);
        order.push(island);
    }
    order
}

impl<'a, L: Liveness> Chooser<'a, L> {
    /// The slots that the request gets, if there are enough.
    pub(super) fn choose(&self) -> Option<Vec<Place>> {
        let wanted = self.filter.request.count as usize;
        match self.filter.request.wishes.together {
            Together::Box => self.one_box(wanted),
            Together::Island => self.one_island(wanted),
            Together::Spread => self.spread(wanted),
            Together::Any => self.one_box(wanted).or_else(|| self.several_boxes(wanted)),
        }
    }

    /// The parts of the pool to look at, one after the other.
    fn scopes(&self) -> Vec<Scope> {
        let filter = self.filter;
        let all = match (filter.only("rack"), filter.only("site")) {
            (Some(rack), _) => self.scope(|scope| match scope {
                Scope::Rack(name) => name.as_str().eq_ignore_ascii_case(rack),
                _ => false,
            }),
            (None, Some(site)) => self.scope(|scope| match scope {
                Scope::Site(name) => name.as_str().eq_ignore_ascii_case(site),
                _ => false,
            }),
            (None, None) => Some(Scope::Pool),
        };
        let Some(all) = all else { return Vec::new() };
        if !filter.request.wishes.near {
            return vec![all];
        }
        let facts = filter.tables.pool().facts();
        let (rack, site) = facts.place_of_host(&filter.request.host);
        let near = [rack.map(Scope::Rack), site.map(Scope::Site), Some(all)];
        near.into_iter().flatten().collect()
    }

    /// The one part of the pool that is meant; all of it if there are several, nothing if none of
    /// them has anything free.
    fn scope(&self, is_meant: impl Fn(&Scope) -> bool) -> Option<Scope> {
        let mut found = self.filter.tables.pool().scopes().filter(|scope| is_meant(scope));
        match (found.next(), found.next()) {
            (Some(scope), None) => Some(scope.clone()),
            (Some(_), Some(_)) => Some(Scope::Pool),
            (None, _) => None,
        }
    }

    /// The boxes in a part of the pool for which `rank` says something, best first.
    fn ranked<K: Ord>(
        &self,
        scope: &Scope,
        mut rank: impl FnMut(&Shape) -> Option<K>,
    ) -> InOrder<'a, K> {
        let filter: &'a Filter<'a> = self.filter;
        let pool = filter.tables.pool();
        let named = self.filter.request.wishes.box_name.as_ref().map(|name| {
            let node = self.filter.tables.nodes().get(name).map(|record| record.node);
            node.into_iter().collect()
        });
        let mut ranked = InOrder::default();
        let mut enter = |shape: &Shape, boxes: Boxes<'a>| {
            if let (Some(key), Some(first)) = (rank(shape), boxes.first()) {
                ranked.add(Ranked { key, first, boxes });
            }
        };
        if let Some(boxes) = named.or_else(|| self.filter.by_serial()) {
            let there = boxes.into_iter().filter_map(|node| pool.get(node));
            for entry in there.filter(|entry| entry.is_in(scope)) {
                enter(entry.shape(), Boxes::One(entry.node));
            }
        } else if let Some(shapes) = pool.shapes(scope) {
            for (shape, boxes) in shapes {
                enter(shape, Boxes::All(boxes));
            }
        }
        ranked
    }

    /// A box if it is there and will do.
    fn there(&self, node: NodeId) -> Option<&BoxEntry> {
        let entry = self.filter.tables.pool().get(node)?;
        (self.filter.box_fits(entry) && self.live.is_ready(&entry.name)).then_some(entry)
    }

    /// Bandwidth that a box and the host have in common, bytes a second.
    fn room(&self, shape: &Shape) -> u64 {
        shape.room.min(self.room)
    }

    /// Looks what is free and will do by what is in it, by islands; `only` in one of them if it is
    /// said.
    fn look(&self, shape: &Shape, only: Option<u8>, scratch: &mut Scratch) {
        scratch.parts.clear();
        scratch.demands.clear();
        for group in &shape.groups {
            if only.is_some() && group.island != only {
                continue;
            }
            let Some(demand) = self.filter.demand(group.profile) else { continue };
            let count = usize::from(group.free);
            let kept = self.filter.kept.get(group.profile);
            scratch.demands.push(Demand { each: demand, kept, count });
            // Groups are in the order of their islands.
            match scratch.parts.last_mut() {
                Some(last) if last.island == group.island => last.count += count,
                _ => {
                    let island = group.island.map(|index| shape.islands[usize::from(index)]);
                    let whole = island.is_some_and(IslandShape::is_whole);
                    scratch.parts.push(Part { island: group.island, whole, count });
                }
            }
        }
    }

    /// So many, and those that come later.
    fn with_those_beside(&self, wanted: usize) -> usize {
        wanted + self.filter.request.beside as usize
    }

    /// Whether there is bandwidth for so many of these, and the box has it for those that come later,
    /// too. The host need not: each of them gives back there what it had before the next one comes.
    fn carried(&self, shape: &Shape, demands: &mut [Demand], wanted: usize) -> bool {
        let all = self.with_those_beside(wanted);
        let mut take = |count, room| {
            let demand = cheapest(demands, count, self.filter.kept.budget());
            demand.is_some_and(|demand| demand <= room)
        };
        take(wanted, self.room(shape)) && (all == wanted || take(all, shape.room))
    }

    /// What it costs to take so many slots out of such a box; nothing if it has not so many, or
    /// not enough bandwidth for them.
    fn box_cost(&self, shape: &Shape, wanted: usize, scratch: &mut Scratch) -> Option<Cost> {
        self.look(shape, None, scratch);
        self.carried(shape, &mut scratch.demands, wanted)
            .then(|| cost(shape.kind, &scratch.parts, wanted))
    }

    /// The slots of a box that are free and will do, those first that it costs least to take if so
    /// many are wanted.
    fn fitting(&self, entry: &BoxEntry, wanted: usize) -> Vec<Fitting> {
        let fits = entry.slots.iter().filter_map(|slot| {
            let demand = self.filter.slot_fits(entry, slot)?;
            let kept = self.filter.kept.get(slot.profile?);
            Some(Fitting { slot: slot.slot, island: slot.island, demand, kept })
        });
        let mut fitting: Vec<Fitting> = fits.collect();
        let islands = &entry.shape().islands;
        if islands.is_empty() {
            return fitting;
        }
        let is_whole = |island: u8| islands[usize::from(island)].is_whole();
        let mut whole: BTreeMap<u8, usize> = BTreeMap::new();
        let mut rest = wanted;
        for found in &fitting {
            match found.island {
                Some(island) if is_whole(island) => *whole.entry(island).or_default() += 1,
                _ => rest = rest.saturating_sub(1),
            }
        }
        let order = order_of_islands(whole, rest);
        fitting.sort_by_key(|found| {
            let Some(island) = found.island else { return (0, 0, 0, found.slot) };
            match order.iter().position(|other| *other == island) {
                // Of those that are broken the smallest first.
                None => (1, usize::from(islands[usize::from(island)].free), island, found.slot),
                Some(place) => (2, place, island, found.slot),
            }
        });
        fitting
    }

    /// So many of these slots: the first ones if the bandwidth is enough for them, else those that
    /// take least of it. There have to be those that come later, too, and the box's bandwidth for them.
    fn take(
        &self,
        entry: &BoxEntry,
        mut from: Vec<Fitting>,
        wanted: usize,
        budget: Budget,
    ) -> Option<Vec<Fitting>> {
        let all = self.with_those_beside(wanted);
        let shape = entry.shape();
        let fits = |all: &[Fitting]| {
            sum(all) <= shape.room && all.get(..wanted).is_some_and(|now| sum(now) <= self.room)
        };
        let mut chosen = first(&from, all, budget.clone())?;
        if !fits(&chosen) {
            from.sort_by_key(|fitting| fitting.demand);
            chosen = first(&from, all, budget)?;
        }
        fits(&chosen).then(|| {
            chosen.truncate(wanted);
            chosen
        })
    }

    /// Boxes that are there and will do, near ones first, then by `rank`, each once; with the
    /// number of the scope in which it was found first. They are looked for as they are taken.
    fn in_order<'b, K: Ord + 'b>(
        &'b self,
        rank: impl Fn(&Shape) -> Option<K> + 'b,
    ) -> impl Iterator<Item = (usize, &'b BoxEntry)> {
        let mut seen = HashSet::new();
        let scopes = self.scopes().into_iter().enumerate();
        let boxes = scopes.flat_map(move |(distance, scope)| {
            self.ranked(&scope, &rank).map(move |node| (distance, node))
        });
        boxes
            .filter(move |(_, node)| seen.insert(*node))
            .filter_map(|(distance, node)| Some((distance, self.there(node)?)))
    }

    /// One slot of a box, if it will do and there is bandwidth for it.
    pub(super) fn slot(&self, entry: &BoxEntry, slot: SlotId) -> Option<Vec<Place>> {
        let there = self.there(entry.node)?;
        let demand = self.filter.slot_fits(there, there.slot(slot)?)?;
        (demand <= self.room(there.shape())).then(|| vec![(there.node, slot)])
    }

    /// How many slots of such a box its bandwidth is enough for, at most.
    pub(super) fn usable(
        &self,
        room: u64,
        demands: &mut [Demand],
        wanted: usize,
        budget: &Budget,
    ) -> usize {
        let all = demands.iter().map(|demand| demand.count).sum::<usize>().min(wanted);
        let enough = |count: &usize| {
            cheapest(demands, *count, budget.clone()).is_some_and(|sum| sum <= room)
        };
        (1..=all).rev().find(enough).unwrap_or(0)
    }

    /// As [`Chooser::usable`], of the slots of a box that were looked at.
    fn usable_of(
        &self,
        entry: &BoxEntry,
        fitting: &[Fitting],
        wanted: usize,
        budget: &Budget,
    ) -> usize {
        let demand = |f: &Fitting| Demand { each: f.demand, kept: f.kept, count: 1 };
        let mut demands: Vec<_> = fitting.iter().map(demand).collect();
        self.usable(self.room(entry.shape()), &mut demands, wanted, budget)
    }
}
