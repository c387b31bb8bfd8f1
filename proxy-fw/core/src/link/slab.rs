//! TLP buffers, and queues through them.
//!
//! Allocated once. The free list is last in, first out, so that the memory that is ever touched is
//! the most that was ever used at a time.

use crate::limits::{SHORT_TLP, TLP_BUFFER};
use alloc::boxed::Box;
use alloc::vec;
use core::ops::Range;
use tlp_codec::tlp::Class;

/// The number of a buffer.
pub(super) type BufferId = u16;

const NONE: BufferId = BufferId::MAX;

#[derive(Debug)]
struct Entry<M> {
    /// The next of the free list or of the queue that the buffer is in.
    next: BufferId,
    /// Bytes of the buffer that mean something.
    length: u16,
    /// Whether they lie where short ones do.
    short: bool,
    /// What the buffer holds; `None` when it is free.
    meta: Option<M>,
}

/// So many buffers of [`TLP_BUFFER`] bytes, each with an `M` while it is in use.
///
/// What is at most [`SHORT_TLP`] bytes long lies closer together: each would keep a page of memory
/// for itself otherwise.
#[derive(Debug)]
pub(super) struct Slab<M> {
    bytes: Box<[u8]>,
    short: Box<[u8]>,
    entries: Box<[Entry<M>]>,
    free: BufferId,
}

impl<M> Slab<M> {
    /// Allocates. Panics when buffers cannot be numbered.
    #[inline(never)] // it is done once: short code counts
    pub(super) fn new(count: usize) -> Self {
        assert!(count < NONE as usize, "buffers are numbered with 16 bits");
        let entry = |_| Entry { next: NONE, length: 0, short: false, meta: None };
        let mut slab = Self {
            bytes: vec![0; count * TLP_BUFFER].into_boxed_slice(),
            short: vec![0; count * SHORT_TLP].into_boxed_slice(),
            entries: (0..count).map(entry).collect(),
            free: NONE,
        };
        slab.clear();
        slab
    }

    /// Bytes that it allocated.
    pub(super) fn allocated(&self) -> usize {
        size_of_val(&*self.bytes) + size_of_val(&*self.short) + size_of_val(&*self.entries)
    }

    /// How many are in use.
    pub(super) fn in_use(&self) -> usize {
        self.entries.iter().filter(|entry| entry.meta.is_some()).count()
    }

    /// Takes all buffers back, whoever has them.
    pub(super) fn clear(&mut self) {
        self.free = NONE;
        for (id, entry) in self.entries.iter_mut().enumerate().rev() {
            *entry = Entry { next: self.free, length: 0, short: false, meta: None };
            self.free = id as BufferId;
        }
    }

    /// Takes a free buffer for `length` bytes. `None` when all are in use.
    pub(super) fn take(&mut self, length: usize, meta: M) -> Option<BufferId> {
        assert!(length <= TLP_BUFFER, "checked where the TLP came in");
        let id = self.free;
        let entry = self.entries.get_mut(id as usize)?;
        self.free = entry.next;
        let short = SHORT_TLP > 0 && length <= SHORT_TLP;
        *entry = Entry { next: NONE, length: length as u16, short, meta: Some(meta) };
        Some(id)
    }

    /// Gives a buffer back.
    pub(super) fn give_back(&mut self, id: BufferId) -> M {
        let entry = &mut self.entries[id as usize];
        let meta = entry.meta.take().expect("a buffer is given back once");
        entry.next = self.free;
        self.free = id;
        meta
    }

    /// What a buffer holds, if it is in use.
    pub(super) fn get(&self, id: BufferId) -> Option<&M> {
        self.entries.get(id as usize)?.meta.as_ref()
    }

    /// What a buffer in use holds.
    pub(super) fn meta(&self, id: BufferId) -> &M {
        self.entries[id as usize].meta.as_ref().expect("the buffer is in use")
    }

    /// What a buffer in use holds, to be changed.
    pub(super) fn meta_mut(&mut self, id: BufferId) -> &mut M {
        self.entries[id as usize].meta.as_mut().expect("the buffer is in use")
    }

    /// How many bytes mean something.
    pub(super) fn length(&self, id: BufferId) -> usize {
        usize::from(self.entries[id as usize].length)
    }

    /// Sets how many bytes mean something.
    pub(super) fn set_length(&mut self, id: BufferId, length: usize) {
        assert!(length <= TLP_BUFFER, "checked where the TLP came in");
        self.entries[id as usize].length = length as u16;
    }

    /// Whether a buffer lies with the short ones, and which bytes of those mean something.
    fn place(&self, id: BufferId) -> (bool, Range<usize>) {
        let &Entry { length, short, .. } = &self.entries[id as usize];
        let at = id as usize * if short { SHORT_TLP } else { TLP_BUFFER };
        (short, at..at + usize::from(length))
    }

    /// The bytes that mean something.
    pub(super) fn bytes(&self, id: BufferId) -> &[u8] {
        let (short, place) = self.place(id);
        let bytes = if short { &self.short } else { &self.bytes };
        &bytes[place]
    }

    /// The bytes that mean something, to be changed.
    pub(super) fn bytes_mut(&mut self, id: BufferId) -> &mut [u8] {
        let (short, place) = self.place(id);
        let bytes = if short { &mut self.short } else { &mut self.bytes };
        &mut bytes[place]
    }

    /// The numbers of all buffers, in use or not.
    pub(super) fn ids(&self) -> impl Iterator<Item = BufferId> + use<M> {
        0..self.entries.len() as BufferId
    }
}

/// A queue of buffers, first in, first out, linked through the slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    head: BufferId,
    tail: BufferId,
}

impl Default for Fifo {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl Fifo {
    /// The first buffer.
    pub(super) fn front(&self) -> Option<BufferId> {
        (self.head != NONE).then_some(self.head)
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Adds a buffer that is in no queue.
    pub(super) fn push<M>(&mut self, slab: &mut Slab<M>, id: BufferId) {
        slab.entries[id as usize].next = NONE;
        if self.head == NONE {
            self.head = id;
        } else {
            slab.entries[self.tail as usize].next = id;
        }
        self.tail = id;
    }

    /// Removes the first buffer.
    pub(super) fn pop<M>(&mut self, slab: &mut Slab<M>) -> Option<BufferId> {
        let id = self.front()?;
        self.head = slab.entries[id as usize].next;
        Some(id)
    }
}

/// The class that has something, and its first, if the others have nothing.
#[inline]
pub(super) fn only_one(queues: [&Fifo; 3]) -> Option<(Class, BufferId)> {
    let [posted, non_posted, completion] = queues.map(|queue| queue.head);
    match (posted != NONE, non_posted != NONE, completion != NONE) {
        (true, false, false) => Some((Class::Posted, posted)),
        (false, true, false) => Some((Class::NonPosted, non_posted)),
        (false, false, true) => Some((Class::Completion, completion)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_run_out_and_come_back() {
        let mut slab = Slab::new(2);
        let a = slab.take(4, 'a').unwrap();
        let b = slab.take(8, 'b').unwrap();
        assert_eq!(slab.take(4, 'c'), None);
        assert_eq!((slab.bytes(a).len(), slab.bytes(b).len()), (4, 8));
        assert_eq!(slab.give_back(a), 'a');
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.take(4, 'c'), Some(a));
    }

    #[test]
    fn short_ones_lie_close_together_and_keep_their_place() {
        let mut slab = Slab::new(2);
        let lengths = [SHORT_TLP.max(8), TLP_BUFFER];
        for lengths in [lengths, [lengths[1], lengths[0]], [lengths[0]; 2], [lengths[1]; 2]] {
            let ids = lengths.map(|length| slab.take(length, ()).unwrap());
            for (fill, id) in (1..).zip(ids) {
                slab.bytes_mut(id).fill(fill);
            }
            for (fill, (id, length)) in (1..).zip(ids.into_iter().zip(lengths)) {
                assert_eq!(slab.bytes(id).len(), length);
                assert!(slab.bytes(id).iter().all(|byte| *byte == fill), "nobody else's");
            }
            if SHORT_TLP > 0 && lengths == [SHORT_TLP; 2] {
                let at = ids.map(|id| slab.bytes(id).as_ptr().addr());
                assert_eq!(at[0].abs_diff(at[1]), SHORT_TLP);
            }
            // What becomes shorter stays where it is.
            let before = slab.bytes(ids[0]).as_ptr();
            slab.set_length(ids[0], 4);
            assert_eq!((slab.bytes(ids[0]).as_ptr(), slab.length(ids[0])), (before, 4));
            ids.into_iter().for_each(|id| slab.give_back(id));
        }
    }

    #[test]
    fn a_queue_keeps_its_order() {
        let mut slab = Slab::new(4);
        let mut fifo = Fifo::default();
        for n in 0..4 {
            let id = slab.take(0, n).unwrap();
            fifo.push(&mut slab, id);
        }
        for n in 0..4 {
            let id = fifo.pop(&mut slab).unwrap();
            assert_eq!(slab.give_back(id), n);
        }
        assert!(fifo.is_empty());
        let id = slab.take(0, 9).unwrap();
        fifo.push(&mut slab, id);
        assert_eq!(fifo.front(), Some(id));
    }

    #[test]
    #[should_panic(expected = "once")]
    fn giving_back_twice_is_our_own_mistake() {
        let mut slab = Slab::new(1);
        let id = slab.take(0, ()).unwrap();
        slab.give_back(id);
        slab.give_back(id);
    }
}
