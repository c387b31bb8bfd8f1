//! The order in which things ended.

use imbl::OrdMap;

/// What has ended, first what ended first: not by the wall clock, which may be set back. What ends then
/// would be the oldest, and the first to go where no more are kept.
#[derive(Clone)]
pub(super) struct Ends<K> {
    next: u64,
    order: OrdMap<u64, K>,
    places: OrdMap<K, u64>,
}

impl<K> Default for Ends<K> {
    fn default() -> Self {
        Self { next: 0, order: OrdMap::new(), places: OrdMap::new() }
    }
}

impl<K: Ord + Clone> Ends<K> {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// What ended first of all that is left.
    pub(super) fn first(&self) -> Option<&K> {
        self.order.get_min().map(|(_, one)| one)
    }

    /// It has ended; what had already keeps its place.
    pub(super) fn insert(&mut self, one: K) {
        if !self.places.contains_key(&one) {
            self.places.insert(one.clone(), self.next);
            self.order.insert(self.next, one);
            self.next += 1;
        }
    }

    pub(super) fn remove(&mut self, one: &K) {
        if let Some(place) = self.places.remove(one) {
            self.order.remove(&place);
        }
    }
}
