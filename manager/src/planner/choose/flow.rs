//! Slots where several kept models are short: as many as are wanted, which take least together.
//!
//! This is a flow. Out of each box come so many slots at most, into each kept model go so many as may be
//! taken of it, and what a slot takes of the bandwidth is what its way costs. One slot more goes the
//! cheapest way that there is, on which boxes may change from one model to another. So after each one the
//! slots are those that take least of all that are so many, and if there is no way, there are no more
//! (successive shortest paths: R. K. Ahuja, T. L. Magnanti, J. B. Orlin, "Network Flows", 1993, section
//! 9.7).

use super::{Fitting, Place};
use crate::planner::kept::Budget;
use tlp_codec::ids::NodeId;

/// What a box can give.
pub(super) struct Source {
    node: NodeId,
    /// Bandwidth that it has, bytes a second.
    room: u64,
    /// How many more slots it may give.
    left: usize,
    /// By kept model, and last those of other ones: what it has, those first that take least.
    of: Vec<Vec<Fitting>>,
    /// So many of the first ones of each are taken.
    taken: Vec<usize>,
}

impl Source {
    /// A box that gives so many slots at most, of these. Where they take different amounts and it gives
    /// more than one, its bandwidth may not be enough for those that are chosen; then nothing is.
    pub(super) fn new(
        node: NodeId,
        room: u64,
        most: usize,
        budget: &Budget,
        mut fitting: Vec<Fitting>,
    ) -> Self {
        fitting.sort_by_key(|fitting| fitting.demand);
        let others = budget.models();
        let mut of = vec![Vec::new(); others + 1];
        for fitting in fitting {
            of[fitting.kept.unwrap_or(others)].push(fitting);
        }
        Self { node, room, left: most, taken: vec![0; of.len()], of }
    }

    /// What the next slot of a model takes, if there is one.
    fn next(&self, model: usize) -> Option<i128> {
        self.of[model].get(self.taken[model]).map(|fitting| fitting.demand.into())
    }

    /// What is saved when the last one that was taken of a model is given back.
    fn last(&self, model: usize) -> Option<i128> {
        let last = self.taken[model].checked_sub(1)?;
        Some(self.of[model][last].demand.into())
    }

    fn chosen(&self) -> impl Iterator<Item = &Fitting> {
        self.of.iter().zip(&self.taken).flat_map(|(of, taken)| &of[..*taken])
    }

    fn sum(&self) -> u64 {
        self.chosen().map(|fitting| fitting.demand).fold(0, u64::saturating_add)
    }
}

/// So many slots of these boxes that take least of the host's `room`; nothing if there are not so many,
/// or it is not enough.
pub(super) fn least(
    mut sources: Vec<Source>,
    budget: &Budget,
    wanted: usize,
    room: u64,
) -> Option<Vec<Place>> {
    let mut budget = budget.clone();
    for _ in 0..wanted {
        one_more(&mut sources, &mut budget)?;
    }
    let all = sources.iter().map(Source::sum).fold(0, u64::saturating_add);
    if all > room || sources.iter().any(|source| source.sum() > source.room) {
        return None;
    }
    let places = sources.iter().flat_map(|s| s.chosen().map(|fitting| (s.node, fitting.slot)));
    Some(places.collect())
}

/// The cheapest ways to where one slot more could come from or go to.
struct Ways {
    /// To each box: what it costs, and the model of which the box gives one back; none of one that may
    /// give a slot more.
    boxes: Vec<Option<(i128, Option<usize>)>>,
    /// To each model: what it costs, and the box that gives the slot.
    models: Vec<Option<(i128, usize)>>,
}

impl Ways {
    fn find(sources: &[Source], models: usize) -> Self {
        let first = |source: &Source| (source.left > 0).then_some((0, None));
        let mut ways =
            Self { boxes: sources.iter().map(first).collect(), models: vec![None; models] };
        // No way gets cheaper by going round, so this ends.
        while ways.on_to_models(sources) && ways.on_to_boxes(sources) {}
        ways
    }

    /// Whether a way got cheaper.
    fn on_to_models(&mut self, sources: &[Source]) -> bool {
        let mut changed = false;
        for (at, source) in sources.iter().enumerate() {
            let Some((cost, _)) = self.boxes[at] else { continue };
            for (model, way) in self.models.iter_mut().enumerate() {
                let Some(cost) = source.next(model).map(|takes| cost + takes) else { continue };
                if way.is_none_or(|(before, _)| cost < before) {
                    *way = Some((cost, at));
                    changed = true;
                }
            }
        }
        changed
    }

    /// Whether a way got cheaper.
    fn on_to_boxes(&mut self, sources: &[Source]) -> bool {
        let mut changed = false;
        for (source, way) in sources.iter().zip(&mut self.boxes) {
            for (model, by) in self.models.iter().enumerate() {
                let Some((cost, _)) = by else { continue };
                let Some(cost) = source.last(model).map(|saves| cost - saves) else { continue };
                if way.is_none_or(|(before, _)| cost < before) {
                    *way = Some((cost, Some(model)));
                    changed = true;
                }
            }
        }
        changed
    }
}

/// Takes one slot more, if there is a way.
fn one_more(sources: &mut [Source], budget: &mut Budget) -> Option<()> {
    let others = budget.models();
    let ways = Ways::find(sources, others + 1);
    let kept = |model: usize| (model != others).then_some(model);
    let open = |model: &usize| budget.clone().take(kept(*model), 1) == 1;
    let reached = (0..=others).filter(open).filter_map(|model| Some((ways.models[model]?, model)));
    let ((_, mut at), mut model) = reached.min_by_key(|((cost, _), _)| *cost)?;
    budget.take(kept(model), 1);
    loop {
        sources[at].taken[model] += 1;
        let (_, given_back) = ways.boxes[at].expect("the way went through it");
        let Some(other) = given_back else {
            sources[at].left -= 1;
            return Some(());
        };
        sources[at].taken[other] -= 1;
        model = other;
        (_, at) = ways.models[model].expect("the way went through it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tlp_codec::ids::SlotId;

    /// What a slot takes, and its kept model.
    type Slot = (u64, Option<usize>);

    /// What the best way takes to have so many slots, each of another box; tries all.
    fn best(boxes: &[Vec<Slot>], budget: &Budget, wanted: usize) -> Option<u64> {
        if wanted == 0 {
            return Some(0);
        }
        let (first, rest) = boxes.split_first()?;
        let with = |(takes, kept): &Slot| {
            let mut budget = budget.clone();
            let may = budget.take(*kept, 1) == 1;
            Some(best(rest, &budget, wanted - 1).filter(|_| may)? + takes)
        };
        first.iter().filter_map(with).chain(best(rest, budget, wanted)).min()
    }

    fn source(at: usize, slots: &[Slot], budget: &Budget) -> Source {
        let fitting = slots.iter().zip(1..).map(|((demand, kept), slot)| {
            let slot = SlotId::new(slot).unwrap();
            Fitting { slot, island: None, demand: *demand, kept: *kept }
        });
        let node = NodeId::new(at as u16 + 1).unwrap();
        Source::new(node, u64::MAX, 1, budget, fitting.collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn each_of_another_box_take_as_little_as_can_be(
            boxes in prop::collection::vec(
                prop::collection::vec((0..5_u64, prop::option::weighted(0.9, 0..3_usize)), 0..4),
                0..6,
            ),
            budget in [0..3_usize, 0..3, 0..3],
            wanted in 1..6_usize,
        ) {
            let budget = Budget::of(&budget);
            let plan = |room| {
                let sources = boxes.iter().enumerate().map(|(at, of)| source(at, of, &budget));
                least(sources.collect(), &budget, wanted, room)
            };
            let Some(best) = best(&boxes, &budget, wanted) else {
                prop_assert_eq!(plan(u64::MAX), None);
                return Ok(());
            };
            let chosen = plan(best);
            prop_assert!(chosen.is_some(), "{best} is enough");
            let mut left = budget.clone();
            let mut seen = std::collections::HashSet::new();
            for (node, slot) in chosen.unwrap() {
                let of = &boxes[usize::from(node.get()) - 1];
                let (_, kept) = of[usize::from(slot.get()) - 1];
                prop_assert!(seen.insert(node) && left.take(kept, 1) == 1);
            }
            prop_assert_eq!(seen.len(), wanted);
            if let Some(less) = best.checked_sub(1) {
                prop_assert_eq!(plan(less), None);
            }
        }
    }
}
