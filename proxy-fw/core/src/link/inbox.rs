//! What came and is not drained: buffers, and what lies under which sequence.

use super::sequence::before;
use super::slab::{BufferId, Slab};
use super::types::ChannelId;
use crate::limits::{LINK_WINDOW, SIDEBAND_QUEUE};
use crate::stamps::StampId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use tlp_codec::fabric::{SackRange, Sacks, Sideband, TlpTraits};

/// What a receive buffer holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) channel: ChannelId,
    pub(super) traits: TlpTraits,
    pub(super) stamp: Option<StampId>,
    /// Counts up with every TLP and sideband record, in link order.
    pub(super) ordinal: u64,
    /// Of a split TLP: its CRC.
    pub(super) crc: u32,
}

/// What came under a sequence that is not taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrived {
    /// Nothing came.
    Missing,
    /// Data records of a split TLP came, but not its header record.
    HeaderMissing(BufferId),
    /// Nothing that matters: a NOP, or a record whose binding is not open here.
    Void,
    Tlp(BufferId),
    /// A TLP whose own CRC is wrong.
    Damaged(ChannelId),
    SplitHeader {
        buffer: BufferId,
        parts: u16,
        /// Bytes of the TLP that it had.
        length: u16,
    },
    SplitData {
        part: u16,
        /// Where in the TLP its bytes begin, and how many they are.
        offset: u16,
        length: u16,
    },
    Sideband(ChannelId, Sideband),
    Credits {
        channel: ChannelId,
        announce: bool,
        tlps: [u32; 3],
        sideband: u32,
    },
    Unbind(ChannelId),
}

/// A split TLP whose header record was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joining {
    /// The sequence of the header record.
    pub(super) base: u32,
    pub(super) buffer: BufferId,
    pub(super) next_part: u16,
    pub(super) parts: u16,
    /// Bytes of the TLP that the records taken so far had: the next part begins there.
    pub(super) length: u16,
}

/// What came and is not drained.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) slab: Slab<Stored>,
    pub(super) ring: Box<[Arrived]>,
    /// The next sequence to be taken: everything before is received and stored.
    pub(super) next: u32,
    /// One behind the highest sequence that came.
    pub(super) end: u32,
    pub(super) joining: Option<Joining>,
    pub(super) ordinal: u64,
    /// Sideband records that were not polled, in link order.
    pub(super) sidebands: VecDeque<(u64, ChannelId, Sideband)>,
    /// Places with stored TLPs.
    pub(super) tlps: u64,
    /// The frame that is being taken has a record that came before.
    pub(super) repeated: bool,
}

impl Inbox {
    pub(super) fn new(buffers: usize, channels: usize) -> Self {
        let ring = vec![Arrived::Missing; LINK_WINDOW].into_boxed_slice();
        let sidebands = VecDeque::with_capacity(channels * SIDEBAND_QUEUE);
        Self::empty(Slab::new(buffers), ring, sidebands)
    }

    /// Bytes that it allocated.
    pub(super) fn allocated(&self) -> usize {
        let sidebands = self.sidebands.capacity() * size_of::<(u64, ChannelId, Sideband)>();
        self.slab.allocated() + size_of_val(&*self.ring) + sidebands
    }

    /// The same storage with nothing in it.
    pub(super) fn cleared(mut self) -> Self {
        self.slab.clear();
        self.ring.fill(Arrived::Missing);
        self.sidebands.clear();
        Self::empty(self.slab, self.ring, self.sidebands)
    }

    fn empty(
        slab: Slab<Stored>,
        ring: Box<[Arrived]>,
        sidebands: VecDeque<(u64, ChannelId, Sideband)>,
    ) -> Self {
        Self {
            slab,
            ring,
            next: 0,
            end: 0,
            joining: None,
            ordinal: 0,
            sidebands,
            tlps: 0,
            repeated: false,
        }
    }

    /// Begins at another sequence than 0.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, sequence: u32) {
        (self.next, self.end) = (sequence, sequence);
    }

    pub(super) fn slot(&mut self, sequence: u32) -> &mut Arrived {
        &mut self.ring[sequence as usize & (LINK_WINDOW - 1)]
    }

    /// A record came under a sequence.
    pub(super) fn came(&mut self, sequence: u32) {
        let behind = sequence.wrapping_add(1);
        if before(self.end, behind) {
            self.end = behind;
        }
    }

    pub(super) fn has(&self, sequence: u32) -> bool {
        let slot = &self.ring[sequence as usize & (LINK_WINDOW - 1)];
        !matches!(slot, Arrived::Missing | Arrived::HeaderMissing(_))
    }

    pub(super) fn next_ordinal(&mut self) -> u64 {
        self.ordinal += 1;
        self.ordinal
    }

    /// The runs that came beyond the first gap, as many as a frame tells.
    pub(super) fn sacks(&self) -> Sacks {
        let mut sacks = Sacks::default();
        let beyond = self.end.wrapping_sub(self.next);
        let mut offset = 1;
        while offset < beyond && !sacks.is_full() {
            let run = (offset..beyond).take_while(|&n| self.has(self.next.wrapping_add(n))).count()
                as u32;
            if run > 0 {
                let range = SackRange { offset: offset as u16, length: run as u16 };
                sacks.push(range).expect("not full");
            }
            offset += run + 1;
        }
        sacks
    }
}
