//! Records that are sent and not acknowledged.

use super::sequence::before;
use super::slab::BufferId;
use super::types::ChannelId;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec;
use tlp_codec::fabric::Sideband;
use tlp_codec::ids::BindingKey;

/// What a sequence number stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sent {
    /// Nothing, or no longer anything: its binding was closed.
    Nop,
    /// A whole TLP.
    Tlp(BufferId),
    /// The start of a split TLP.
    SplitHeader(BufferId),
    /// Data record number `part` of a split TLP.
    SplitData { buffer: BufferId, part: u16 },
    /// A sideband record.
    Sideband(BindingKey, Sideband),
    /// Credit limits; each time it is sent it says the limits of then.
    Credits(ChannelId),
    /// A binding was closed.
    Unbind(BindingKey),
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Under way.
    Flying,
    /// To be sent again.
    Lost,
    /// No longer under way: what left behind it on its path has arrived. Whether it has the peer's list
    /// of ranges was too full to say.
    Untold,
    /// Received, beyond something that was not.
    Acknowledged,
}

/// One record in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) what: Sent,
    pub(super) fate: Fate,
    /// Index of the path it last took, and its packet number there.
    pub(super) path: u8,
    pub(super) packet: u32,
    pub(super) first_sent: Instant,
    pub(super) last_sent: Instant,
    /// How often it was sent, up to 255.
    pub(super) tries: u8,
    /// Its size in the frame.
    pub(super) bytes: u16,
}

const EMPTY: Entry = Entry {
    what: Sent::Nop,
    fate: Fate::Acknowledged,
    path: 0,
    packet: 0,
    first_sent: Instant::ZERO,
    last_sent: Instant::ZERO,
    tries: 0,
    bytes: 0,
};

/// The records from the oldest that is not acknowledged to the newest.
#[derive(Debug)]
pub(super) struct Flight {
    ring: Box<[Entry]>,
    /// The oldest sequence that is not cumulatively acknowledged.
    oldest: u32,
    /// The sequence of the next new record.
    next: u32,
    /// Entries that are [`Fate::Lost`], and that are [`Fate::Untold`].
    lost: u16,
    untold: u16,
}

impl Flight {
    /// For `window` records, a power of two.
    pub(super) fn new(window: usize) -> Self {
        assert!(window.is_power_of_two(), "sequences wrap around the ring");
        assert!(window < usize::from(u16::MAX), "they are counted");
        Self {
            ring: vec![EMPTY; window].into_boxed_slice(),
            oldest: 0,
            next: 0,
            lost: 0,
            untold: 0,
        }
    }

    /// Bytes that it allocated.
    pub(super) fn allocated(&self) -> usize {
        size_of_val(&*self.ring)
    }

    /// The same ring with nothing in flight.
    pub(super) fn cleared(mut self) -> Self {
        self.ring.fill(EMPTY);
        Self { oldest: 0, next: 0, lost: 0, untold: 0, ..self }
    }

    /// Begins at another sequence than 0.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, sequence: u32) {
        (self.oldest, self.next) = (sequence, sequence);
    }

    pub(super) fn oldest(&self) -> u32 {
        self.oldest
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Records in flight.
    pub(super) fn len(&self) -> usize {
        self.next.wrapping_sub(self.oldest) as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.oldest == self.next
    }

    /// Whether a further record would be more than `window` or this ring allow.
    pub(super) fn is_full(&self, window: usize) -> bool {
        self.len() >= window.min(self.ring.len())
    }

    /// The entry of a sequence in flight.
    pub(super) fn entry(&self, sequence: u32) -> &Entry {
        &self.ring[sequence as usize & (self.ring.len() - 1)]
    }

    /// The entry of a sequence in flight, to be changed; its fate by the methods below only.
    pub(super) fn entry_mut(&mut self, sequence: u32) -> &mut Entry {
        let mask = self.ring.len() - 1;
        &mut self.ring[sequence as usize & mask]
    }

    /// The oldest entry.
    pub(super) fn oldest_entry(&self) -> Option<&Entry> {
        (!self.is_empty()).then(|| self.entry(self.oldest))
    }

    /// Adds a record with the next sequence.
    pub(super) fn push(&mut self, entry: Entry) {
        assert!(self.len() < self.ring.len(), "the window was checked");
        *self.entry_mut(self.next) = entry;
        self.next = self.next.wrapping_add(1);
    }

    /// The first record that is to be sent again.
    pub(super) fn first_lost(&self) -> Option<u32> {
        if self.lost == 0 {
            return None;
        }
        self.sequences().find(|&s| self.entry(s).fate == Fate::Lost)
    }

    /// Marks a record lost. Returns its bytes if it was flying.
    pub(super) fn lose(&mut self, sequence: u32) -> Option<u16> {
        let entry = self.entry_mut(sequence);
        if entry.fate != Fate::Flying {
            return None;
        }
        entry.fate = Fate::Lost;
        let bytes = entry.bytes;
        self.lost += 1;
        Some(bytes)
    }

    /// Whether what became of some record is [untold](Fate::Untold).
    pub(super) fn has_untold(&self) -> bool {
        self.untold > 0
    }

    /// A flying record is not under way any more. Returns its bytes.
    pub(super) fn land(&mut self, sequence: u32) -> u16 {
        let entry = self.entry_mut(sequence);
        assert!(entry.fate == Fate::Flying, "only what is under way comes to an end of it");
        entry.fate = Fate::Untold;
        let bytes = entry.bytes;
        self.untold += 1;
        bytes
    }

    /// The peer's list reaches a record that was untold, and does not have it.
    pub(super) fn told_lost(&mut self, sequence: u32) {
        let entry = self.entry_mut(sequence);
        assert!(entry.fate == Fate::Untold, "else it is no news");
        entry.fate = Fate::Lost;
        self.untold -= 1;
        self.lost += 1;
    }

    /// Marks a lost record as flying again.
    pub(super) fn resend(&mut self, sequence: u32, path: u8, packet: u32, now: Instant) {
        let entry = self.entry_mut(sequence);
        assert!(entry.fate == Fate::Lost, "only what was lost is sent again");
        entry.fate = Fate::Flying;
        entry.path = path;
        entry.packet = packet;
        entry.last_sent = now;
        entry.tries = entry.tries.saturating_add(1);
        self.lost -= 1;
    }

    /// Marks a record acknowledged. Returns what it was and how it fared, the first time.
    pub(super) fn acknowledge(&mut self, sequence: u32) -> Option<Entry> {
        let entry = self.entry_mut(sequence);
        if entry.fate == Fate::Acknowledged {
            return None;
        }
        let before = *entry;
        entry.fate = Fate::Acknowledged;
        match before.fate {
            Fate::Lost => self.lost -= 1,
            Fate::Untold => self.untold -= 1,
            Fate::Flying | Fate::Acknowledged => {}
        }
        Some(before)
    }

    /// Forgets the oldest record, which is acknowledged.
    pub(super) fn retire(&mut self) {
        assert!(self.entry(self.oldest).fate == Fate::Acknowledged, "retired in order");
        self.oldest = self.oldest.wrapping_add(1);
    }

    /// Whether a peer may acknowledge everything before `sequence`.
    pub(super) fn may_acknowledge(&self, sequence: u32) -> bool {
        !before(self.next, sequence)
    }

    /// The sequences in flight, oldest first.
    pub(super) fn sequences(&self) -> impl Iterator<Item = u32> + use<> {
        let oldest = self.oldest;
        (0..self.len() as u32).map(move |n| oldest.wrapping_add(n))
    }

    /// Those of them from `first` on.
    pub(super) fn sequences_from(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        let over = if before(first, self.oldest) { 0 } else { first.wrapping_sub(self.oldest) };
        self.sequences().skip(over as usize)
    }
}
