//! Slots of several boxes.

use super::flow::{self, Source};
use super::{Chooser, Place, Scratch, sum};
use crate::planner::Liveness;
use crate::records::pool::BoxEntry;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tlp_codec::ids::NodeId;

impl<L: Liveness> Chooser<'_, L> {
    /// As few boxes as can be: those first that have most.
    pub(super) fn several_boxes(&self, wanted: usize) -> Option<Vec<Place>> {
        let budget = self.filter.kept.budget();
        let order = self.in_order(|shape| {
            let mut scratch = Scratch::default();
            self.look(shape, None, &mut scratch);
            let usable = self.usable(self.room(shape), &mut scratch.demands, wanted, &budget);
            (usable > 0).then_some(Reverse(usable))
        });
        let mut boxes: Vec<_> = order.collect();
        if !self.filter.goes_by_shape() {
            // What a shape promises is not all there: count again.
            boxes.sort_by_cached_key(|(distance, entry)| {
                let fitting = self.fitting(entry, 0);
                (*distance, Reverse(self.usable_of(entry, &fitting, wanted, &budget)))
            });
        }
        let first = self.each_box(&boxes, wanted, false);
        if !budget.matters() {
            return self.or_least_demand(first?, wanted);
        }
        // What the first boxes need not have of a kept model the next ones may need.
        let chosen = first.or_else(|| self.each_box(&boxes, wanted, true));
        let chosen = chosen.and_then(|chosen| self.or_least_demand(chosen, wanted));
        chosen.or_else(|| {
            let sources = boxes.iter().map(|(_, entry)| {
                let fitting = self.fitting(entry, 0);
                let most = self.usable_of(entry, &fitting, wanted, &budget);
                Source::new(entry.node, self.room(entry.shape()), most, &budget, fitting)
            });
            flow::least(sources.collect(), &budget, wanted, self.room)
        })
    }

    /// These, if the host's bandwidth is enough for what they take, else those that take least.
    fn or_least_demand(
        &self,
        (chosen, taken): (Vec<Place>, u64),
        wanted: usize,
    ) -> Option<Vec<Place>> {
        // The best boxes may have what the host's bandwidth is not enough for.
        if taken <= self.room { Some(chosen) } else { self.least_demand(wanted) }
    }

    /// As many as can be of each box until there are enough, and what they take of the host;
    /// `sparing` with those of kept models last in each.
    fn each_box(
        &self,
        boxes: &[(usize, &BoxEntry)],
        wanted: usize,
        sparing: bool,
    ) -> Option<(Vec<Place>, u64)> {
        let mut budget = self.filter.kept.budget();
        let (mut chosen, mut taken) = (Vec::new(), 0_u64);
        for (_, entry) in boxes {
            let left = wanted - chosen.len();
            let mut fitting = self.fitting(entry, left);
            if sparing {
                fitting.sort_by_key(|fitting| fitting.kept.is_some());
            }
            let usable = self.usable_of(entry, &fitting, left, &budget);
            let Some(places) = self.take(entry, fitting, usable, budget.clone()) else { continue };
            for place in &places {
                budget.take(place.kept, 1);
            }
            taken = taken.saturating_add(sum(&places));
            chosen.extend(places.iter().map(|place| (entry.node, place.slot)));
            if chosen.len() == wanted {
                return Some((chosen, taken));
            }
        }
        None
    }

    /// The slots that take least of the host's bandwidth, wherever they are.
    fn least_demand(&self, wanted: usize) -> Option<Vec<Place>> {
        let mut all: Vec<_> = self
            .in_order(|shape| self.box_cost(shape, 1, &mut Scratch::default()))
            .flat_map(|(_, entry)| self.fitting(entry, 0).into_iter().map(move |f| (f, entry)))
            .collect();
        all.sort_by_key(|(fitting, _)| (fitting.demand, fitting.kept.is_some()));
        let mut budget = self.filter.kept.budget();
        let mut rooms: BTreeMap<NodeId, u64> = BTreeMap::new();
        let (mut chosen, mut taken) = (Vec::new(), 0_u64);
        for (fitting, entry) in all {
            let demand = fitting.demand;
            let room = rooms.entry(entry.node).or_insert(entry.shape().room);
            if demand <= *room && chosen.len() < wanted && budget.take(fitting.kept, 1) == 1 {
                *room -= demand;
                taken = taken.saturating_add(demand);
                chosen.push((entry.node, fitting.slot));
            }
        }
        (chosen.len() == wanted && taken <= self.room).then_some(chosen)
    }
}
