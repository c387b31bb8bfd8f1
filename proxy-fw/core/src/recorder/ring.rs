//! Entries in a ring of bytes, by position.

use super::Entry;
use crate::limits::RECORDER_PIECE;
use alloc::boxed::Box;
use alloc::vec;
use heapless::Vec;

/// Bytes of an entry's length.
const LENGTH: usize = 2;

/// Room for [`Entry::Lost`] with its length.
const LOST: usize = LENGTH + 1 + 10;

/// Room for an entry without the bytes of its TLP or frame.
const LONGEST_HEAD: usize = 128;

/// A position is how many bytes were written before it, in the life of the proxy.
pub(super) struct Ring {
    bytes: Box<[u8]>,
    head: u64,
    tail: u64,
    /// Entries that found no room since the last one that did.
    missing: u64,
    lost: u64,
}

impl Ring {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes].into_boxed_slice(), head: 0, tail: 0, missing: 0, lost: 0 }
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn room(&self) -> usize {
        self.bytes.len() - (self.tail - self.head) as usize
    }

    /// Forgets everything. Positions go on.
    pub(super) fn clear(&mut self) {
        self.head = self.tail;
        self.missing = 0;
    }

    /// Whether an entry with so many bytes of a TLP or frame has room, however long its head.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        LOST + LENGTH + LONGEST_HEAD + bytes <= self.room()
    }

    /// An entry is lost.
    pub(super) fn lose(&mut self) {
        self.missing += 1;
        self.lost += 1;
    }

    /// Adds an entry, or counts it as lost.
    pub(super) fn push(&mut self, entry: &Entry, bytes: &[u8]) {
        let mut buffer = [0; LONGEST_HEAD];
        let head = postcard::to_slice(entry, &mut buffer).expect("the longest entry fits");
        let length = LENGTH + head.len() + bytes.len();
        // What is said to be missing is missing right before what follows.
        let lost = if self.missing > 0 { LOST } else { 0 };
        if lost + length > self.room() || length > RECORDER_PIECE {
            return self.lose();
        }
        self.tell_missing();
        self.write(head, bytes);
    }

    /// Says what is missing since the last entry, if there is room to say so: whoever reads all that
    /// there is hears of it also when nothing follows.
    pub(super) fn tell_missing(&mut self) {
        if self.missing > 0 && LOST <= self.room() {
            let missing = Entry::Lost { entries: core::mem::take(&mut self.missing) };
            let mut buffer = [0; LOST];
            let lost = postcard::to_slice(&missing, &mut buffer).expect("a number and a number");
            self.write(lost, &[]);
        }
    }

    fn write(&mut self, head: &[u8], bytes: &[u8]) {
        self.put(&((head.len() + bytes.len()) as u16).to_le_bytes());
        self.put(head);
        self.put(bytes);
    }

    fn put(&mut self, part: &[u8]) {
        let at = (self.tail % self.bytes.len() as u64) as usize;
        let first = part.len().min(self.bytes.len() - at);
        self.bytes[at..at + first].copy_from_slice(&part[..first]);
        self.bytes[..part.len() - first].copy_from_slice(&part[first..]);
        self.tail += part.len() as u64;
    }

    fn byte(&self, position: u64) -> u8 {
        self.bytes[(position % self.bytes.len() as u64) as usize]
    }

    /// Bytes that the entry at a position takes with its length.
    fn entry_size(&self, position: u64) -> u64 {
        let length = u16::from_le_bytes([self.byte(position), self.byte(position + 1)]);
        LENGTH as u64 + u64::from(length)
    }

    /// Forgets the entries that end at a position or before.
    pub(super) fn free(&mut self, position: u64) {
        while self.head < self.tail && self.head + self.entry_size(self.head) <= position {
            self.head += self.entry_size(self.head);
        }
    }

    /// The entries at the head, as many whole ones as fit.
    pub(super) fn page(&self) -> Vec<u8, RECORDER_PIECE> {
        let mut end = self.head;
        while end < self.tail && end + self.entry_size(end) - self.head <= RECORDER_PIECE as u64 {
            end += self.entry_size(end);
        }
        let mut page = Vec::new();
        let count = (end - self.head) as usize;
        if count > 0 {
            let at = (self.head % self.bytes.len() as u64) as usize;
            let first = count.min(self.bytes.len() - at);
            let fits = page.extend_from_slice(&self.bytes[at..at + first]);
            let fits = fits.and(page.extend_from_slice(&self.bytes[..count - first]));
            fits.expect("no more than a piece");
        }
        page
    }
}
