//! Virtual time: what will happen, in the order of its time; equal times in the order in which
//! they were planned.

use proxy_core::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is planned.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    now: Instant,
    planned: u64,
    heap: BinaryHeap<Reverse<Entry<E>>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Instant,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> Agenda<E> {
    /// Nothing planned. Time begins a little after the origin, so that no stamp is 0.
    pub(crate) fn new() -> Self {
        Self { now: Instant::from_nanos(1_000_000), planned: 0, heap: BinaryHeap::new() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Plans something; what is in the past happens next.
    pub(crate) fn plan(&mut self, at: Instant, event: E) {
        self.planned += 1;
        let entry = Entry { at: at.max(self.now), number: self.planned, event };
        self.heap.push(Reverse(entry));
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.0.at)
    }

    /// The next thing that happens until `until`; the clock jumps to it.
    pub(crate) fn pop(&mut self, until: Instant) -> Option<E> {
        if self.next_at()? > until {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Nothing happens until then.
    pub(crate) fn jump(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_the_order_of_their_times_and_then_of_planning() {
        let at = |n: u64| Instant::from_nanos(2_000_000 + n);
        let mut agenda = Agenda::new();
        for (time, event) in [(5, 'd'), (1, 'a'), (3, 'b'), (3, 'c')] {
            agenda.plan(at(time), event);
        }
        assert_eq!(agenda.pop(at(0)), None);
        let order: String = std::iter::from_fn(|| agenda.pop(at(9))).collect();
        assert_eq!(order, "abcd");
        assert_eq!(agenda.now(), at(5));
        agenda.plan(at(0), 'e');
        assert_eq!(agenda.pop(at(9)), Some('e'));
        assert_eq!(agenda.now(), at(5), "time does not go back");
    }
}
