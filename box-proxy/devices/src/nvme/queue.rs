//! Submission and completion queues, each an object of its own.

use super::entry::{CQE_LEN, Completion, SQE_LEN};
use std::collections::VecDeque;
use std::time::Duration;

/// A submission queue: the host writes at the tail, we fetch at the head.
#[derive(Debug)]
pub(super) struct SubmissionQueue {
    base: u64,
    size: u16,
    /// Completion queue of its commands.
    pub(super) cq: u16,
    /// Next entry to be fetched; what completions tell the host.
    head: u16,
    tail: u16,
    /// Entries being fetched now.
    fetching: u16,
    /// The command that deletes it and waits for the images: nothing is fetched any more.
    pub(super) deleted_by: Option<u16>,
}

impl SubmissionQueue {
    pub(super) fn new(base: u64, size: u16, cq: u16) -> Self {
        Self { base, size, cq, head: 0, tail: 0, fetching: 0, deleted_by: None }
    }

    pub(super) fn head(&self) -> u16 {
        self.head
    }

    /// The doorbell: whether the value is one that the queue has.
    pub(super) fn set_tail(&mut self, tail: u32) -> bool {
        let good = tail < u32::from(self.size);
        if good {
            self.tail = tail as u16;
        }
        good
    }

    /// Whether there is something to be fetched and nothing being fetched.
    pub(super) fn wants_fetch(&self) -> bool {
        self.fetching == 0 && self.head != self.tail && self.deleted_by.is_none()
    }

    /// Address and number of the next entries, at most `most`, that lie behind each other.
    pub(super) fn next_entries(&self, most: u16) -> (u64, u16) {
        let end = if self.tail > self.head { self.tail } else { self.size };
        let count = (end - self.head).min(most);
        (self.base.wrapping_add(u64::from(self.head) * SQE_LEN as u64), count)
    }

    pub(super) fn start_fetch(&mut self, count: u16) {
        self.fetching = count;
    }

    /// The fetch ended: whether the entries came.
    pub(super) fn end_fetch(&mut self, came: bool) {
        if came {
            self.head = (self.head + self.fetching) % self.size;
        }
        self.fetching = 0;
    }
}

/// A completion queue: we write at the tail, the host reads at the head.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    base: u64,
    size: u16,
    /// Interrupt vector, if it has interrupts.
    pub(super) vector: Option<u16>,
    head: u16,
    tail: u16,
    phase: bool,
    /// Completions that wait for a free entry: one for each command at most.
    pub(super) waiting: VecDeque<Completion>,
    /// Entries written since the last interrupt, and since when.
    pub(super) unsignalled: u32,
    pub(super) since: Duration,
}

impl CompletionQueue {
    pub(super) fn new(base: u64, size: u16, vector: Option<u16>) -> Self {
        Self {
            base,
            size,
            vector,
            head: 0,
            tail: 0,
            phase: true,
            waiting: VecDeque::new(),
            unsignalled: 0,
            since: Duration::ZERO,
        }
    }

    /// The doorbell: whether the value is one that the host can mean, one of the entries written
    /// since the last.
    pub(super) fn set_head(&mut self, head: u32) -> bool {
        let size = u32::from(self.size);
        if head >= size {
            return false;
        }
        let distance = |to: u32| (to + size - u32::from(self.head)) % size;
        let good = distance(head) <= distance(self.tail.into());
        if good {
            self.head = head as u16;
        }
        good
    }

    pub(super) fn is_full(&self) -> bool {
        (self.tail + 1) % self.size == self.head
    }

    /// Whether the host has entries to read.
    pub(super) fn has_unread(&self) -> bool {
        self.tail != self.head
    }

    /// Address and phase of the next free entry.
    pub(super) fn next_entry(&self) -> (u64, bool) {
        (self.base.wrapping_add(u64::from(self.tail) * CQE_LEN as u64), self.phase)
    }

    /// The next free entry has been written.
    pub(super) fn advance(&mut self) {
        self.tail += 1;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !self.phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_fetched_in_order_and_not_over_the_end() {
        let mut q = SubmissionQueue::new(0x1000, 4, 1);
        assert!(!q.wants_fetch());
        assert!(!q.set_tail(4));
        assert!(q.set_tail(3));
        assert_eq!(q.next_entries(8), (0x1000, 3));
        q.start_fetch(3);
        assert!(!q.wants_fetch());
        q.end_fetch(true);
        assert!(q.set_tail(1));
        assert_eq!(q.next_entries(8), (0x10c0, 1));
        q.start_fetch(1);
        q.end_fetch(false);
        assert_eq!(q.head(), 3);
        q.start_fetch(1);
        q.end_fetch(true);
        assert_eq!(q.next_entries(8), (0x1000, 1));
    }

    #[test]
    fn the_phase_turns_at_the_end_and_doorbells_are_checked() {
        let mut q = CompletionQueue::new(0x2000, 3, None);
        assert_eq!(q.next_entry(), (0x2000, true));
        assert!(!q.set_head(1), "nothing was written");
        q.advance();
        q.advance();
        assert!(q.is_full());
        assert!(!q.set_head(3));
        assert!(q.set_head(1));
        assert!(!q.is_full());
        q.advance();
        assert_eq!(q.next_entry(), (0x2000, false));
        assert!(q.set_head(0));
        assert!(!q.has_unread());
    }
}
