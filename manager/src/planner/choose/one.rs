//! Slots of one box, or of one island of it.

use super::{Chooser, Cost, Fitting, Part, Place, Scratch, cost};
use crate::planner::Liveness;
use crate::records::pool::{BoxEntry, Shape};
use tlp_codec::ids::NodeId;

impl<L: Liveness> Chooser<'_, L> {
    /// As [`Chooser::take`], if it is from this box alone.
    fn take_all(&self, entry: &BoxEntry, from: Vec<Fitting>, wanted: usize) -> Option<Vec<Place>> {
        let chosen = self.take(entry, from, wanted, self.filter.kept.budget())?;
        Some(chosen.iter().map(|fitting| (entry.node, fitting.slot)).collect())
    }

    pub(super) fn one_box(&self, wanted: usize) -> Option<Vec<Place>> {
        let mut scratch = Scratch::default();
        self.scopes().iter().find_map(|scope| {
            let mut boxes = self.ranked(scope, |shape| self.box_cost(shape, wanted, &mut scratch));
            if !self.filter.goes_by_shape() {
                return self.best_box(boxes, wanted);
            }
            boxes.find_map(|node| {
                let entry = self.there(node)?;
                self.take_all(entry, self.fitting(entry, wanted), wanted)
            })
        })
    }

    /// The best of these boxes by the slots that will do themselves: a shape promises more, where
    /// single ones are excluded or asked for. But no box spares more than its shape promises, so that
    /// the first one that keeps that is the best. What is left over goes by the shape.
    fn best_box(&self, boxes: impl Iterator<Item = NodeId>, wanted: usize) -> Option<Vec<Place>> {
        let mut scratch = Scratch::default();
        let mut best = None;
        for node in boxes {
            let Some(entry) = self.there(node) else { continue };
            let promised = self.box_cost(entry.shape(), wanted, &mut scratch).map(Cost::spared);
            if best.as_ref().is_some_and(|(spared, _)| Some(*spared) <= promised) {
                break;
            }
            let fitting = self.fitting(entry, wanted);
            let spared = self.cost_of(entry, &fitting, wanted).spared();
            if best.as_ref().is_none_or(|(other, _)| spared < *other)
                && let Some(places) = self.take_all(entry, fitting, wanted)
            {
                best = Some((spared, places));
            }
        }
        best.map(|(_, places)| places)
    }

    /// What it costs to take so many of these slots out of a box.
    fn cost_of(&self, entry: &BoxEntry, fitting: &[Fitting], wanted: usize) -> Cost {
        let shape = entry.shape();
        let mut parts: Vec<Part> = Vec::new();
        for Fitting { island, .. } in fitting.iter().copied() {
            match parts.iter_mut().find(|part| part.island == island) {
                Some(part) => part.count += 1,
                None => {
                    let whole = island.is_some_and(|of| shape.islands[usize::from(of)].is_whole());
                    parts.push(Part { island, whole, count: 1 });
                }
            }
        }
        cost(shape.kind, &parts, wanted)
    }

    /// The islands of such a box that have so many slots that will do, and bandwidth for them; with
    /// how much of each is left over, the least first.
    fn islands(&self, shape: &Shape, wanted: usize, scratch: &mut Scratch) -> Vec<(usize, u8)> {
        let mut found = Vec::new();
        for (island, of) in (0..).zip(&shape.islands) {
            let is_fast = self.filter.request.wishes.island_rate.is_none_or(|rate| of.rate >= rate);
            if usize::from(of.free) < wanted || !is_fast || !self.filter.is_meant(island) {
                continue;
            }
            self.look(shape, Some(island), scratch);
            if self.carried(shape, &mut scratch.demands, wanted) {
                found.push((usize::from(of.free) - wanted, island));
            }
        }
        found.sort_unstable();
        found
    }

    pub(super) fn one_island(&self, wanted: usize) -> Option<Vec<Place>> {
        let mut scratch = Scratch::default();
        self.scopes().iter().find_map(|scope| {
            let best = |shape: &Shape| {
                self.islands(shape, wanted, &mut scratch).first().map(|(left, _)| *left)
            };
            let mut boxes = self.ranked(scope, best);
            boxes.find_map(|node| {
                let entry = self.there(node)?;
                let islands = self.islands(entry.shape(), wanted, &mut Scratch::default());
                islands.into_iter().find_map(|(_, island)| {
                    let mut fitting = self.fitting(entry, wanted);
                    fitting.retain(|fitting| fitting.island == Some(island));
                    self.take_all(entry, fitting, wanted)
                })
            })
        })
    }
}
