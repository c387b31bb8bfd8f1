//! Slots that are each in another box.

use super::flow::{self, Source};
use super::{Chooser, Fitting, Place, Scratch};
use crate::planner::Liveness;
use std::collections::HashSet;
use tlp_codec::ids::NodeId;

impl<L: Liveness> Chooser<'_, L> {
    /// Each in another box.
    pub(super) fn spread(&self, wanted: usize) -> Option<Vec<Place>> {
        if self.filter.kept.budget().matters() {
            return self.spread_sparing(wanted);
        }
        let mut each = Vec::new();
        for (_, entry) in self.in_order(|shape| self.box_cost(shape, 1, &mut Scratch::default())) {
            let fitting = self.fitting(entry, 1);
            let cheapest = fitting.iter().min_by_key(|fitting| fitting.demand).copied();
            let first = fitting.into_iter().find(|f| f.demand <= self.room(entry.shape()));
            let Some((first, cheapest)) = first.zip(cheapest) else { continue };
            each.push((entry.node, first, cheapest));
            // Those that come first are best, unless the host's bandwidth is not enough for them.
            if each.len() == wanted {
                let demands = each.iter().map(|(_, first, _)| first.demand);
                if demands.fold(0, u64::saturating_add) <= self.room {
                    return Some(each.iter().map(|(node, first, _)| (*node, first.slot)).collect());
                }
            }
        }
        each.sort_by_key(|(_, _, cheapest)| cheapest.demand);
        each.truncate(wanted);
        let sum = each.iter().map(|(_, _, f)| f.demand).fold(0, u64::saturating_add);
        (each.len() == wanted && sum <= self.room)
            .then(|| each.iter().map(|(node, _, cheapest)| (*node, cheapest.slot)).collect())
    }

    /// As [`Chooser::spread`], where not as many of a model may be taken as are wanted: those of
    /// other models first, and if the host's bandwidth is not enough for them, those first that
    /// take least of it. Where neither will do, boxes give what others need not.
    fn spread_sparing(&self, wanted: usize) -> Option<Vec<Place>> {
        let boxes = self.in_order(|shape| self.box_cost(shape, 1, &mut Scratch::default()));
        let boxes: Vec<(NodeId, Vec<Fitting>)> = boxes
            .map(|(_, entry)| {
                let room = self.room(entry.shape());
                let mut fitting = self.fitting(entry, 1);
                fitting.retain(|fitting| fitting.demand <= room);
                (entry.node, fitting)
            })
            .collect();
        let of_box = |(node, of): &(NodeId, Vec<Fitting>)| {
            let node = *node;
            of.clone().into_iter().map(move |fitting| (node, fitting))
        };
        let mut all: Vec<(NodeId, Fitting)> = boxes.iter().flat_map(of_box).collect();
        all.sort_by_key(|(_, fitting)| (fitting.kept.is_some(), fitting.demand));
        let chosen = self.one_each(&all, wanted).or_else(|| {
            all.sort_by_key(|(_, fitting)| fitting.demand);
            self.one_each(&all, wanted)
        });
        chosen.or_else(|| {
            let budget = self.filter.kept.budget();
            let sources = boxes.into_iter();
            let sources = sources.map(|(node, of)| Source::new(node, self.room, 1, &budget, of));
            flow::least(sources.collect(), &budget, wanted, self.room)
        })
    }

    /// The first of these that are in different boxes, if the host's bandwidth is enough for them.
    fn one_each(&self, all: &[(NodeId, Fitting)], wanted: usize) -> Option<Vec<Place>> {
        let mut budget = self.filter.kept.budget();
        let mut boxes = HashSet::new();
        let (mut chosen, mut taken) = (Vec::new(), 0_u64);
        for (node, fitting) in all {
            if chosen.len() == wanted {
                break;
            }
            if !boxes.contains(node) && budget.take(fitting.kept, 1) == 1 {
                boxes.insert(*node);
                taken = taken.saturating_add(fitting.demand);
                chosen.push((*node, fitting.slot));
            }
        }
        (chosen.len() == wanted && taken <= self.room).then_some(chosen)
    }
}
