//! Boxes by how good it is to take them, as many as are looked at.

use imbl::OrdSet;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use tlp_codec::ids::NodeId;

/// Boxes of one shape.
#[derive(Clone, Copy)]
pub(super) enum Boxes<'a> {
    One(NodeId),
    All(&'a OrdSet<NodeId>),
}

impl<'a> Boxes<'a> {
    /// The first of them.
    pub(super) fn first(self) -> Option<NodeId> {
        match self {
            Self::One(node) => Some(node),
            Self::All(all) => all.get_min().copied(),
        }
    }

    fn iter(self) -> impl Iterator<Item = NodeId> + use<'a> {
        let (one, all) = match self {
            Self::One(node) => (Some(node), None),
            Self::All(all) => (None, Some(all)),
        };
        one.into_iter().chain(all.into_iter().flatten().copied())
    }
}

/// Boxes of one shape and how good it is; of two that are as good, the first box decides.
pub(super) struct Ranked<'a, K> {
    pub(super) key: K,
    pub(super) first: NodeId,
    pub(super) boxes: Boxes<'a>,
}

impl<K: Ord> Ord for Ranked<'_, K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then_with(|| self.first.cmp(&other.first))
    }
}

impl<K: Ord> PartialOrd for Ranked<'_, K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord> PartialEq for Ranked<'_, K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: Ord> Eq for Ranked<'_, K> {}

/// Boxes, those of the best shape first.
pub(super) struct InOrder<'a, K> {
    /// The best shape. Most requests need no other, and the others need not be put in order.
    best: Option<Ranked<'a, K>>,
    unordered: Vec<Reverse<Ranked<'a, K>>>,
    ranked: BinaryHeap<Reverse<Ranked<'a, K>>>,
    /// The rest of those of the shape that is being looked at.
    boxes: std::vec::IntoIter<NodeId>,
}

impl<K> Default for InOrder<'_, K> {
    fn default() -> Self {
        let (unordered, ranked) = (Vec::new(), BinaryHeap::new());
        Self { best: None, unordered, ranked, boxes: Vec::new().into_iter() }
    }
}

impl<'a, K: Ord> InOrder<'a, K> {
    /// Adds boxes of one more shape, before any is taken.
    pub(super) fn add(&mut self, mut found: Ranked<'a, K>) {
        match &mut self.best {
            None => self.best = Some(found),
            Some(best) => {
                if found < *best {
                    std::mem::swap(best, &mut found);
                }
                self.unordered.push(Reverse(found));
            }
        }
    }
}

impl<K: Ord> Iterator for InOrder<'_, K> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        loop {
            if let Some(node) = self.boxes.next() {
                return Some(node);
            }
            if self.best.is_none() && !self.unordered.is_empty() {
                self.ranked = std::mem::take(&mut self.unordered).into();
            }
            let best = self.best.take().or_else(|| self.ranked.pop().map(|Reverse(next)| next))?;
            self.boxes = best.boxes.iter().collect::<Vec<_>>().into_iter();
        }
    }
}
