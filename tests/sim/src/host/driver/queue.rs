//! A pair of queues of a drive, in host memory.

use super::pages::Page;
use crate::host::memory::Memory;
use crate::oracle::{Verdict, Violation};
use nvme_driver::Status;
use nvme_driver::command::{COMPLETION_ENTRY, SUBMISSION_ENTRY};
use proxy_core::time::Instant;

/// Commands of a queue that wait for their completions.
const OUTSTANDING: usize = 12;

/// A command that waits for its completion.
pub(super) struct Waiting<T> {
    id: u16,
    pub(super) since: Instant,
    pub(super) work: T,
}

/// A pair of queues and what is in them.
pub(super) struct Pair<T> {
    pub(super) number: u16,
    submission: Page,
    completion: Page,
    /// Entries of each.
    pub(super) sizes: (u16, u16),
    tail: u16,
    /// Where the drive fetches next, as it said last.
    fetched: u16,
    head: u16,
    phase: bool,
    waiting: Vec<Waiting<T>>,
    next_id: u16,
    /// Interrupts that came, and completions.
    interrupts: u64,
    completions: u64,
    /// Doorbells that are to be rung.
    tail_moved: bool,
    head_moved: bool,
}

impl<T> Pair<T> {
    /// Two pages of a port's low memory, empty.
    pub(super) fn new(port: usize, number: u16, sizes: (u16, u16), memory: &mut Memory) -> Self {
        let page = |n: u16| Page::low(port, usize::from(2 * number + n));
        let (submission, completion) = (page(0), page(1));
        submission.bytes(memory).fill(0);
        completion.bytes(memory).fill(0);
        Self {
            number,
            submission,
            completion,
            sizes,
            tail: 0,
            fetched: 0,
            head: 0,
            phase: true,
            waiting: Vec::new(),
            next_id: number << 12,
            interrupts: 0,
            completions: 0,
            tail_moved: false,
            head_moved: false,
        }
    }

    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.submission.address(), self.completion.address())
    }

    pub(super) fn has_room(&self) -> bool {
        (self.tail + 1) % self.sizes.0 != self.fetched && self.waiting.len() < OUTSTANDING
    }

    pub(super) fn waiting(&self) -> &[Waiting<T>] {
        &self.waiting
    }

    /// Puts a command behind the others; `entry` makes its bytes from its identifier.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        work: T,
        entry: impl FnOnce(u16) -> [u8; SUBMISSION_ENTRY],
    ) {
        assert!(self.has_room(), "looked at before");
        // An identifier comes round as late as can be.
        self.next_id = self.next_id.wrapping_add(1);
        let id = self.next_id;
        let at = usize::from(self.tail) * SUBMISSION_ENTRY;
        self.submission.bytes(memory)[at..at + SUBMISSION_ENTRY].copy_from_slice(&entry(id));
        self.tail = (self.tail + 1) % self.sizes.0;
        self.tail_moved = true;
        self.waiting.push(Waiting { id, since: now, work });
    }

    /// The next completion, if there is one: what it is of, since when, and its status.
    pub(super) fn complete(
        &mut self,
        memory: &mut Memory,
    ) -> Verdict<Option<(T, Instant, Status)>> {
        let at = usize::from(self.head) * COMPLETION_ENTRY;
        let bytes = &self.completion.bytes(memory)[at..at + COMPLETION_ENTRY];
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let (place, end) = (word(8), word(12));
        if (end >> 16 & 1 != 0) != self.phase {
            return Ok(None);
        }
        let wrong = |what: String| {
            Err(Violation::new(1, format!("queue {} of a drive: {what}", self.number)))
        };
        let (id, fetched) = (end as u16, place as u16);
        if (place >> 16) as u16 != self.number {
            return wrong(format!("a completion of queue {}", place >> 16));
        }
        let Some(index) = self.waiting.iter().position(|waiting| waiting.id == id) else {
            return wrong(format!("a completion of command {id:#x}, which nobody waits for"));
        };
        let distance = |to: u16| (to + self.sizes.0 - self.fetched) % self.sizes.0;
        if fetched >= self.sizes.0 || distance(fetched) > distance(self.tail) {
            return wrong(format!("{fetched} is fetched next, behind what there is"));
        }
        self.fetched = fetched;
        self.head += 1;
        if self.head == self.sizes.1 {
            (self.head, self.phase) = (0, !self.phase);
        }
        self.head_moved = true;
        self.completions += 1;
        let waiting = self.waiting.remove(index);
        Ok(Some((waiting.work, waiting.since, Status::from_bits((end >> 17) as u16))))
    }

    /// An interrupt came.
    pub(super) fn interrupted(&mut self) {
        self.interrupts += 1;
    }

    /// Every interrupt says that at least one completion more is there, and comes after it.
    pub(super) fn check_interrupts(&self) -> Verdict {
        if self.interrupts <= self.completions {
            return Ok(());
        }
        let what = format!(
            "interrupt {} of queue {} of a drive came before its completion; {} have come",
            self.interrupts, self.number, self.completions
        );
        Err(Violation::new(1, what))
    }

    /// What is to be written to the tail and head doorbells.
    pub(super) fn take_doorbells(&mut self) -> [Option<u32>; 2] {
        let tail = std::mem::take(&mut self.tail_moved).then_some(self.tail.into());
        let head = std::mem::take(&mut self.head_moved).then_some(self.head.into());
        [tail, head]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a drive does it.
    fn post(pair: &Pair<char>, memory: &mut Memory, at: usize, words: [u32; 2]) {
        let at = at * COMPLETION_ENTRY + 8;
        for (n, word) in words.iter().enumerate() {
            let place = at + 4 * n;
            pair.completion.bytes(memory)[place..place + 4].copy_from_slice(&word.to_le_bytes());
        }
    }

    #[test]
    fn queues_wrap_and_what_comes_twice_is_noticed() {
        let mut memory = Memory::new(1);
        let mut pair = Pair::new(0, 1, (3, 2), &mut memory);
        let mut ids = Vec::new();
        for work in ['a', 'b'] {
            pair.submit(Instant::ZERO, &mut memory, work, |id| {
                ids.push(id);
                [id as u8; SUBMISSION_ENTRY]
            });
        }
        assert!(!pair.has_room());
        assert_eq!(pair.take_doorbells(), [Some(2), None]);
        assert!(pair.complete(&mut memory).unwrap().is_none());
        post(&pair, &mut memory, 0, [1 << 16 | 2, u32::from(ids[1]) | 1 << 16]);
        let (work, _, status) = pair.complete(&mut memory).unwrap().unwrap();
        assert_eq!((work, status), ('b', Status::SUCCESS));
        assert!(pair.has_room());
        pair.interrupted();
        assert_eq!(pair.check_interrupts(), Ok(()));
        pair.interrupted();
        assert_eq!(pair.check_interrupts().unwrap_err().promise, 1);
        post(&pair, &mut memory, 1, [1 << 16 | 2, u32::from(ids[0]) | 0x81 << 17 | 1 << 16]);
        let (work, _, status) = pair.complete(&mut memory).unwrap().unwrap();
        assert_eq!((work, status.code()), ('a', 0x81));
        assert_eq!(pair.take_doorbells(), [None, Some(0)]);
        // The phase has turned.
        assert!(pair.complete(&mut memory).unwrap().is_none());
        post(&pair, &mut memory, 0, [1 << 16 | 2, u32::from(ids[0])]);
        assert!(pair.complete(&mut memory).is_err());
    }
}
