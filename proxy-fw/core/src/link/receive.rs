//! From the peer: frames checked, records stored under their sequence and taken in order.

use super::channel::Phase;
use super::sequence::before;
use super::slab::{BufferId, Slab};
use super::types::{ChannelId, FrameDropped, LinkState, Violation};
use super::{Fault, Link, path_id};
use crate::control::{BindingFailure, LinkDownReason};
use crate::limits::{ACK_EVERY, LINK_WINDOW, MAX_CHANNELS, SIDEBAND_QUEUE, TLP_BUFFER};
use crate::stamps::{Stage, StampId, StampKey, Stamps};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use tlp_codec::crc;
use tlp_codec::fabric::{
    Ack, CloseReason, Credits, Frame, FrameError, FrameKind, Header, Record, RecordAddress,
    SackRange, Sacks, Sideband, SplitData, SplitHeader, TlpTraits,
};
use tlp_codec::tlp::Class;

/// What a receive buffer holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) channel: ChannelId,
    pub(super) traits: TlpTraits,
    pub(super) stamp: Option<StampId>,
    /// Counts up with every TLP and sideband record, in link order.
    pub(super) ordinal: u64,
    /// Handed out and not released.
    pub(super) lent: bool,
    /// Of a split TLP: bytes that came so far, and its CRC.
    got: u16,
    crc: u32,
}

/// What came under a sequence that is not taken yet.
#[derive(Clone, Copy, Debug)]
enum Arrived {
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
    },
    SplitData {
        part: u16,
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
struct Joining {
    /// The sequence of the header record.
    base: u32,
    buffer: BufferId,
    next_part: u16,
    parts: u16,
}

/// What came and is not drained.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) slab: Slab<Stored>,
    ring: Box<[Arrived]>,
    /// The next sequence to be taken: everything before is received and stored.
    next: u32,
    /// One behind the highest sequence that came.
    end: u32,
    joining: Option<Joining>,
    ordinal: u64,
    /// Sideband records that were not polled, in link order.
    pub(super) sidebands: VecDeque<(u64, ChannelId, Sideband)>,
    /// Places with stored TLPs.
    pub(super) tlps: u64,
    /// An acknowledgement is to be sent with the next frame, and at once.
    pub(super) ack_now: bool,
    /// An acknowledgement is to be sent at this time at the latest.
    pub(super) ack_at: Option<Instant>,
    /// Frames with records since the last acknowledgement.
    unacknowledged: u32,
}

impl Inbox {
    pub(super) fn new(buffers: usize) -> Self {
        Self {
            slab: Slab::new(buffers),
            ring: vec![Arrived::Missing; LINK_WINDOW].into_boxed_slice(),
            next: 0,
            end: 0,
            joining: None,
            ordinal: 0,
            sidebands: VecDeque::with_capacity(MAX_CHANNELS * SIDEBAND_QUEUE),
            tlps: 0,
            ack_now: false,
            ack_at: None,
            unacknowledged: 0,
        }
    }

    /// Begins at another sequence than 0.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, sequence: u32) {
        (self.next, self.end) = (sequence, sequence);
    }

    fn slot(&mut self, sequence: u32) -> &mut Arrived {
        &mut self.ring[sequence as usize & (LINK_WINDOW - 1)]
    }

    fn has(&self, sequence: u32) -> bool {
        let slot = &self.ring[sequence as usize & (LINK_WINDOW - 1)];
        !matches!(slot, Arrived::Missing | Arrived::HeaderMissing(_))
    }

    fn next_ordinal(&mut self) -> u64 {
        self.ordinal += 1;
        self.ordinal
    }

    /// The runs that came beyond the first gap, as many as a frame tells.
    fn sacks(&self) -> Sacks {
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

    /// An acknowledgement was sent.
    pub(super) fn acknowledged(&mut self) {
        self.ack_now = false;
        self.ack_at = None;
        self.unacknowledged = 0;
    }
}

impl Link {
    /// Takes a frame from the network: any bytes at all.
    ///
    /// # Errors
    ///
    /// [`FrameDropped`] says why nothing, or with [`FrameDropped::Violation`] not everything, was
    /// taken. Each reason is counted.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        frame: &[u8],
        stamps: &mut Stamps,
    ) -> Result<(), FrameDropped> {
        let result = self.take_frame(now, frame, stamps);
        let counter = match &result {
            Ok(()) => &mut self.counters.frames_received,
            Err(FrameDropped::Malformed(FrameError::CutShort { .. })) => {
                &mut self.counters.dropped_cut_short
            }
            Err(FrameDropped::Malformed(FrameError::Version(_))) => {
                &mut self.counters.dropped_version
            }
            Err(FrameDropped::Malformed(FrameError::Crc { .. })) => {
                &mut self.counters.dropped_frame_crc
            }
            Err(FrameDropped::Malformed(_)) => &mut self.counters.dropped_malformed,
            Err(FrameDropped::NotForUs) => &mut self.counters.dropped_not_for_us,
            Err(FrameDropped::NotFromPeer) => &mut self.counters.dropped_not_from_peer,
            Err(FrameDropped::OtherIncarnation) => &mut self.counters.dropped_incarnation,
            Err(FrameDropped::OtherSession) => &mut self.counters.dropped_session,
            Err(FrameDropped::NotUp) => &mut self.counters.dropped_not_up,
            Err(FrameDropped::LinkDown) => &mut self.counters.dropped_link_down,
            Err(FrameDropped::Violation(_)) => &mut self.counters.violations,
        };
        *counter += 1;
        result
    }

    fn take_frame(
        &mut self,
        now: Instant,
        bytes: &[u8],
        stamps: &mut Stamps,
    ) -> Result<(), FrameDropped> {
        let frame = Frame::new_checked(bytes).map_err(FrameDropped::Malformed)?;
        let header = frame.header();
        if header.destination != self.local {
            return Err(FrameDropped::NotForUs);
        }
        if header.source != self.peer {
            return Err(FrameDropped::NotFromPeer);
        }
        match header.kind {
            FrameKind::Open => {
                let open = frame.open().map_err(FrameDropped::Malformed)?;
                self.handle_open(now, &header, &open)
            }
            FrameKind::Close => {
                frame.close().map_err(FrameDropped::Malformed)?;
                self.handle_close(&header)
            }
            FrameKind::Data => self.take_data(now, &header, &frame, stamps),
        }
    }

    fn take_data(
        &mut self,
        now: Instant,
        header: &Header,
        frame: &Frame<&[u8]>,
        stamps: &mut Stamps,
    ) -> Result<(), FrameDropped> {
        self.check_lives(header)?;
        match self.state {
            LinkState::Up => {}
            LinkState::Opening => return Err(FrameDropped::NotUp),
            LinkState::Down(_) => {
                self.say_goodbye_again(now);
                return Err(FrameDropped::LinkDown);
            }
        }
        let Some(path) = self.paths.get_mut(header.path.get() as usize) else {
            return Err(FrameDropped::Malformed(FrameError::Path(header.path.get())));
        };
        path.arrive(header.packet, now);
        self.last_heard = now;
        if let Some(ack) = &header.ack {
            self.handle_ack(now, ack).map_err(|v| self.violation(v))?;
        }
        let mut sequence = header.sequence;
        for record in frame.records() {
            let record = record.map_err(|e| self.violation(Violation::Record(e)))?;
            self.arrive(now, sequence, &record, stamps).map_err(|v| self.violation(v))?;
            sequence = sequence.wrapping_add(1);
        }
        if sequence == header.sequence {
            return Ok(());
        }
        self.take_in_order().map_err(|v| self.violation(v))?;
        self.want_ack(now);
        Ok(())
    }

    /// The peer broke the protocol.
    pub(super) fn violation(&mut self, violation: Violation) -> FrameDropped {
        self.go_down(LinkDownReason::Protocol, Some(CloseReason::Protocol));
        FrameDropped::Violation(violation)
    }

    /// A frame with records came; with a gap in the sequence, or many frames, at once.
    fn want_ack(&mut self, now: Instant) {
        let inbox = &mut self.inbox;
        inbox.unacknowledged += 1;
        inbox.ack_now |= inbox.end != inbox.next || inbox.unacknowledged >= ACK_EVERY;
        inbox.ack_at.get_or_insert(now + self.config.ack_delay);
    }

    /// The acknowledgement for a frame that leaves now.
    pub(super) fn acknowledgement(&self, now: Instant) -> Option<Ack> {
        let (packet, came_at) = self.paths[0].received?;
        let delay = now.saturating_since(came_at).as_micros();
        let early = self.faulty(Fault::AcknowledgeEarly);
        Some(Ack {
            next: if early { self.inbox.end } else { self.inbox.next },
            path: path_id(0),
            packet,
            delay_us: u16::try_from(delay).unwrap_or(u16::MAX),
            ce: self.paths[0].marked,
            sacks: if early { Sacks::default() } else { self.inbox.sacks() },
        })
    }

    /// Stores one record under its sequence, once.
    fn arrive(
        &mut self,
        now: Instant,
        sequence: u32,
        record: &Record<'_>,
        stamps: &mut Stamps,
    ) -> Result<(), Violation> {
        let next = self.inbox.next;
        if self.faulty(Fault::IgnoreDuplicates)
            && before(sequence, next)
            && let Record::Tlp(again) = record
            && let Arrived::Tlp(buffer) = self.store_tlp(now, again, stamps)?
        {
            self.deliver(buffer);
            return Ok(());
        }
        if before(sequence, next) || self.is_stored(sequence) {
            self.counters.records_duplicate += 1;
            self.inbox.ack_now = true;
            return Ok(());
        }
        if sequence.wrapping_sub(next) >= LINK_WINDOW as u32 {
            self.counters.records_beyond_window += 1;
            return Ok(());
        }
        let arrived = match record {
            Record::Nop => Arrived::Void,
            Record::Tlp(r) => self.store_tlp(now, r, stamps)?,
            Record::SplitHeader(r) => self.store_split_header(now, sequence, r, stamps)?,
            Record::SplitData(r) => self.store_split_data(sequence, r)?,
            Record::Sideband(address, sideband) => match self.open_binding(address) {
                Some(channel) => {
                    let account = &mut self.place(channel).sideband_account;
                    if !account.take() {
                        return Err(Violation::Credit);
                    }
                    Arrived::Sideband(channel, *sideband)
                }
                None => Arrived::Void,
            },
            Record::Credits(r) => self.store_credits(r),
            Record::Unbind(address) => match self.open_binding(address) {
                Some(channel) => Arrived::Unbind(channel),
                None => Arrived::Void,
            },
        };
        let before_it = core::mem::replace(self.inbox.slot(sequence), arrived);
        if let (Arrived::HeaderMissing(buffer), false) =
            (before_it, matches!(arrived, Arrived::SplitHeader { .. }))
        {
            self.free_received(buffer);
        }
        let behind = sequence.wrapping_add(1);
        if before(self.inbox.end, behind) {
            self.inbox.end = behind;
        }
        Ok(())
    }

    fn is_stored(&self, sequence: u32) -> bool {
        before(sequence, self.inbox.end) && self.inbox.has(sequence)
    }

    fn place(&mut self, channel: ChannelId) -> &mut super::channel::Channel {
        self.channels.place(channel.index as usize)
    }

    /// The binding that a record belongs to, if it is open here and works. If not, the record is
    /// counted: it is acknowledged and dropped.
    fn open_binding(&mut self, address: &RecordAddress) -> Option<ChannelId> {
        let host_end = if self.local_is_host { address.destination } else { address.source };
        let key = address.binding(!self.local_is_host);
        let found = if host_end.get() == 0 { self.channels.find(&key) } else { None };
        match found.map(|id| (id, self.channels.get(id).map(|c| c.phase))) {
            Some((id, Some(Phase::Open))) => return Some(id),
            Some(_) => self.counters.records_failed_binding += 1,
            None if self.faulty(Fault::IgnoreEpoch) => return self.channels.find_any_epoch(&key),
            None if self.channels.was_closed(&key) => self.counters.records_stale += 1,
            None => self.counters.records_unknown += 1,
        }
        None
    }

    fn store_tlp(
        &mut self,
        now: Instant,
        record: &tlp_codec::fabric::TlpRecord<'_>,
        stamps: &mut Stamps,
    ) -> Result<Arrived, Violation> {
        let Some(channel) = self.open_binding(&record.address) else { return Ok(Arrived::Void) };
        if record.tlp.len() > TLP_BUFFER {
            return Err(Violation::TlpTooLong);
        }
        if !self.place(channel).accounts[record.traits.class as usize].take() {
            return Err(Violation::Credit);
        }
        if !record.crc_matches() && !self.faulty(Fault::IgnoreTlpCrc) {
            return Ok(Arrived::Damaged(channel));
        }
        let buffer = self.take_buffer(channel, record.traits, record.tlp.len());
        self.inbox.slab.bytes_mut(buffer).copy_from_slice(record.tlp);
        self.start_stamps(now, buffer, stamps);
        Ok(Arrived::Tlp(buffer))
    }

    /// A buffer for a TLP whose credit was taken.
    fn take_buffer(&mut self, channel: ChannelId, traits: TlpTraits, length: usize) -> BufferId {
        let stored =
            Stored { channel, traits, stamp: None, ordinal: 0, lent: false, got: 0, crc: 0 };
        self.inbox.slab.take(length, stored).expect("credit is never promised beyond the pool")
    }

    fn start_stamps(&mut self, now: Instant, buffer: BufferId, stamps: &mut Stamps) {
        let stored = self.inbox.slab.meta_mut(buffer);
        let (true, Some(outstanding)) = (stored.traits.sampled, stored.traits.outstanding) else {
            return;
        };
        let Some(binding) = self.channels.get(stored.channel).and_then(|c| c.key) else { return };
        let completion = stored.traits.class == Class::Completion;
        // A completion comes from where the request went to.
        let from_host = completion == self.local_is_host;
        let key = StampKey { binding, peer: self.peer, outstanding, from_host };
        let stamp = stamps.start(key, completion, Stage::Received, now);
        stamps.ends(stamp, Stage::Decoded);
        stored.stamp = Some(stamp);
    }

    fn store_credits(&mut self, record: &Credits) -> Arrived {
        let Credits { announce, tlps, sideband, .. } = *record;
        if let Some(channel) = self.open_binding(&record.address) {
            return Arrived::Credits { channel, announce, tlps, sideband };
        }
        let key = record.address.binding(!self.local_is_host);
        if announce && let Some((index, place)) = self.channels.closed_place(&key) {
            // The peer has just opened what is over here.
            place.unbind = Some(key);
            self.out.unbinds |= 1 << index;
        }
        Arrived::Void
    }

    fn store_split_header(
        &mut self,
        now: Instant,
        sequence: u32,
        record: &SplitHeader<'_>,
        stamps: &mut Stamps,
    ) -> Result<Arrived, Violation> {
        let waiting = match *self.inbox.slot(sequence) {
            Arrived::HeaderMissing(buffer) => Some(buffer),
            _ => None,
        };
        let Some(channel) = self.open_binding(&record.address) else {
            return Ok(Arrived::Void);
        };
        let total = usize::from(record.total);
        if total > TLP_BUFFER {
            return Err(Violation::TlpTooLong);
        }
        let buffer = match waiting {
            Some(buffer) => buffer,
            None => self.split_buffer(channel, record.traits)?,
        };
        let slab = &mut self.inbox.slab;
        let stored = slab.meta_mut(buffer);
        if (stored.channel, stored.traits.class) != (channel, record.traits.class) {
            return Err(Violation::Split);
        }
        stored.traits = record.traits;
        stored.crc = record.crc;
        stored.got += record.bytes.len() as u16;
        slab.set_length(buffer, total);
        slab.bytes_mut(buffer)[..record.bytes.len()].copy_from_slice(record.bytes);
        self.start_stamps(now, buffer, stamps);
        Ok(Arrived::SplitHeader { buffer, parts: record.parts })
    }

    /// A buffer for a split TLP, of which this is the first record to come.
    fn split_buffer(&mut self, channel: ChannelId, traits: TlpTraits) -> Result<u16, Violation> {
        if !self.place(channel).accounts[traits.class as usize].take() {
            return Err(Violation::Credit);
        }
        Ok(self.take_buffer(channel, traits, TLP_BUFFER))
    }

    fn store_split_data(
        &mut self,
        sequence: u32,
        record: &SplitData<'_>,
    ) -> Result<Arrived, Violation> {
        let Some(channel) = self.open_binding(&record.address) else { return Ok(Arrived::Void) };
        let base = sequence.wrapping_sub(u32::from(record.part));
        let buffer = if before(base, self.inbox.next) {
            match self.inbox.joining {
                Some(joining) if joining.base == base => joining.buffer,
                // Its sender closed the binding and put nothing under the other sequences.
                _ => return Ok(Arrived::Void),
            }
        } else {
            match *self.inbox.slot(base) {
                Arrived::SplitHeader { buffer, .. } | Arrived::HeaderMissing(buffer) => buffer,
                Arrived::Missing => {
                    let traits = TlpTraits {
                        class: record.class,
                        relaxed: false,
                        sampled: false,
                        outstanding: None,
                    };
                    let buffer = self.split_buffer(channel, traits)?;
                    *self.inbox.slot(base) = Arrived::HeaderMissing(buffer);
                    buffer
                }
                _ => return Ok(Arrived::Void),
            }
        };
        let slab = &mut self.inbox.slab;
        let stored = slab.meta_mut(buffer);
        if stored.channel != channel {
            return Err(Violation::Split);
        }
        stored.got = stored.got.saturating_add(record.bytes.len() as u16);
        let at = usize::from(record.offset);
        slab.bytes_mut(buffer)
            .get_mut(at..at + record.bytes.len())
            .ok_or(Violation::Split)?
            .copy_from_slice(record.bytes);
        Ok(Arrived::SplitData { part: record.part })
    }

    /// Takes what is there, in the order of the link.
    fn take_in_order(&mut self) -> Result<(), Violation> {
        while self.inbox.next != self.inbox.end {
            let next = self.inbox.next;
            if !self.inbox.has(next) {
                break;
            }
            let arrived = core::mem::replace(self.inbox.slot(next), Arrived::Missing);
            self.inbox.next = next.wrapping_add(1);
            self.take(arrived)?;
        }
        Ok(())
    }

    fn take(&mut self, arrived: Arrived) -> Result<(), Violation> {
        if !matches!(arrived, Arrived::SplitData { .. }) {
            self.abandon_join();
        }
        match arrived {
            Arrived::Missing | Arrived::HeaderMissing(_) | Arrived::Void => {}
            Arrived::Tlp(buffer) => self.deliver(buffer),
            Arrived::Damaged(channel) => {
                self.counters.tlp_crc_errors += 1;
                self.fail(channel, BindingFailure::TlpCrc);
            }
            Arrived::SplitHeader { buffer, parts } => {
                let base = self.inbox.next.wrapping_sub(1);
                self.inbox.joining = Some(Joining { base, buffer, next_part: 1, parts });
            }
            Arrived::SplitData { part } => self.join(part)?,
            Arrived::Sideband(channel, sideband) => self.take_sideband(channel, sideband),
            Arrived::Credits { channel, announce, tlps, sideband } => {
                let index = channel.index;
                self.place(channel).take_limits(tlps, sideband);
                self.out.tlps |= 1 << index;
                self.out.sidebands |= 1 << index;
                if announce {
                    self.out.credits |= 1 << index;
                }
            }
            Arrived::Unbind(channel) => self.fail(channel, BindingFailure::PeerUnbound),
        }
        Ok(())
    }

    /// A whole TLP joins its class's queue.
    fn deliver(&mut self, buffer: BufferId) {
        let ordinal = self.inbox.next_ordinal();
        let stored = self.inbox.slab.meta_mut(buffer);
        stored.ordinal = ordinal;
        let (channel, class) = (stored.channel, stored.traits.class);
        let place = self.channels.place(channel.index as usize);
        if place.phase != Phase::Open {
            self.free_received(buffer);
            self.counters.records_failed_binding += 1;
            return;
        }
        place.stored[class as usize].push(&mut self.inbox.slab, buffer);
        self.inbox.tlps |= 1 << channel.index;
        self.counters.tlps_received += 1;
    }

    /// Takes the next data record of a split TLP.
    fn join(&mut self, part: u16) -> Result<(), Violation> {
        let Some(joining) = self.inbox.joining else { return Ok(()) };
        if part != joining.next_part || part > joining.parts {
            return Err(Violation::Split);
        }
        if part < joining.parts {
            self.inbox.joining = Some(Joining { next_part: part + 1, ..joining });
            return Ok(());
        }
        self.inbox.joining = None;
        let (slab, buffer) = (&self.inbox.slab, joining.buffer);
        let stored = *slab.meta(buffer);
        if usize::from(stored.got) != slab.bytes(buffer).len() {
            return Err(Violation::Split);
        }
        if crc::tlp(slab.bytes(buffer)) != stored.crc {
            self.free_received(buffer);
            self.counters.tlp_crc_errors += 1;
            self.fail(stored.channel, BindingFailure::TlpCrc);
            return Ok(());
        }
        self.deliver(buffer);
        Ok(())
    }

    /// A split TLP whose rest does not follow: its sender has closed the binding.
    fn abandon_join(&mut self) {
        if let Some(joining) = self.inbox.joining.take() {
            self.counters.splits_abandoned += 1;
            self.free_received(joining.buffer);
        }
    }

    fn take_sideband(&mut self, channel: ChannelId, sideband: Sideband) {
        let ordinal = self.inbox.next_ordinal();
        self.counters.sideband_received += 1;
        if sideband.flushes() {
            self.drop_stored(channel);
            self.drop_unsent(channel);
        }
        self.place(channel).gate.get_or_insert(ordinal);
        self.inbox.sidebands.push_back((ordinal, channel, sideband));
    }

    /// One binding is over, while the link goes on.
    pub(super) fn fail(&mut self, channel: ChannelId, reason: BindingFailure) {
        self.drop_stored(channel);
        self.drop_unsent(channel);
        let place = self.place(channel);
        if place.phase == Phase::Open {
            place.phase = Phase::Failed(reason);
            self.failures |= 1 << channel.index;
        }
    }

    /// Drops what is stored for a binding and not handed out.
    pub(super) fn drop_stored(&mut self, channel: ChannelId) {
        for class in Class::ALL {
            loop {
                let queue = &mut self.channels.place(channel.index as usize).stored[class as usize];
                let Some(buffer) = queue.pop(&mut self.inbox.slab) else { break };
                self.free_received(buffer);
                self.counters.flushed_received += 1;
            }
        }
        self.inbox.tlps &= !(1 << channel.index);
    }

    /// Gives a receive buffer back, and its credit to the peer.
    pub(super) fn free_received(&mut self, buffer: BufferId) {
        let stored = self.inbox.slab.give_back(buffer);
        if let Some((place, shared)) = self.channels.with_shared(stored.channel) {
            place.accounts[stored.traits.class as usize].release(shared);
            self.note_credits(stored.channel);
        }
    }

    /// Something of a binding was drained: its limits are told now, or a little later.
    pub(super) fn note_credits(&mut self, channel: ChannelId) {
        let (place, bit) = (self.channels.place(channel.index as usize), 1 << channel.index);
        if place.credits_urgent() {
            self.out.credits |= bit;
        } else if place.credits_behind() {
            self.out.behind |= bit;
        }
    }

    /// Ends everything that is stored for a binding that closes.
    pub(super) fn abandon_received(&mut self, channel: ChannelId) {
        self.drop_stored(channel);
        let inbox = &mut self.inbox;
        for slot in &mut inbox.ring {
            let mine = match *slot {
                Arrived::Tlp(buffer) | Arrived::SplitHeader { buffer, .. } => {
                    inbox.slab.meta(buffer).channel == channel
                }
                Arrived::Damaged(c)
                | Arrived::Sideband(c, _)
                | Arrived::Credits { channel: c, .. }
                | Arrived::Unbind(c) => c == channel,
                Arrived::HeaderMissing(buffer) => {
                    if inbox.slab.meta(buffer).channel == channel {
                        *slot = Arrived::Missing;
                    }
                    false
                }
                Arrived::Missing | Arrived::Void | Arrived::SplitData { .. } => false,
            };
            if mine {
                *slot = Arrived::Void;
            }
        }
        if let Some(joining) = inbox.joining
            && inbox.slab.meta(joining.buffer).channel == channel
        {
            inbox.joining = None;
        }
        for buffer in inbox.slab.ids() {
            if inbox.slab.get(buffer).is_some_and(|s| s.channel == channel) {
                inbox.slab.give_back(buffer);
            }
        }
        inbox.sidebands.retain(|(_, c, _)| *c != channel);
    }
}
