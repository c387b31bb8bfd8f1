//! Towards the peer: queues, the order in which records take their sequence, and frames.

use super::channel::Phase;
use super::flight::{Entry, Fate, Sent};
use super::slab::{BufferId, Slab};
use super::types::{ChannelId, LinkState, SendError, TlpMeta, Transmit};
use super::{Link, MIN_TLP, path_id};
use crate::limits::{GUARANTEED_SEND, SEND_QUEUES, TLP_BUFFER};
use crate::stamps::{Stage, StampId, Stamps};
use crate::time::Instant;
use tlp_codec::crc;
use tlp_codec::fabric::{
    CREDIT_RECORD, Credits, FrameKind, FrameWriter, Full, Header, MAX_OVERHEAD, NOP_RECORD,
    RECORD_HEADER, Record, RecordAddress, SPLIT_DATA, SPLIT_HEADER, Sideband, SplitData,
    SplitHeader, TLP_OVERHEAD, TlpRecord, TlpTraits,
};
use tlp_codec::ids::BindingKey;
use tlp_codec::tlp::Class;

/// What a send buffer holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) channel: ChannelId,
    pub(super) key: BindingKey,
    pub(super) traits: TlpTraits,
    pub(super) crc: u32,
    pub(super) stamp: Option<StampId>,
    /// Counts up with every TLP that is handed to the link.
    pub(super) ordinal: u64,
    /// Records of it that are not acknowledged; 0 while it waits.
    pub(super) records: u16,
}

/// A TLP of which some records are sequenced and the others follow at once.
#[derive(Clone, Copy, Debug)]
struct Splitting {
    buffer: BufferId,
    next_part: u16,
    parts: u16,
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) slab: Slab<Queued>,
    /// Buffers in use beyond the guarantees, and how many there are.
    shared_used: usize,
    shared: usize,
    ordinal: u64,
    splitting: Option<Splitting>,
    /// The longest TLP that was ever queued, in bytes.
    pub(super) longest: usize,
    /// Bindings that may have a TLP to send.
    pub(super) tlps: u64,
    /// Bindings that may have a sideband record to send.
    pub(super) sidebands: u64,
    /// Bindings whose limits the peer is to be told.
    pub(super) credits: u64,
    /// Bindings with limits that the peer does not know and that can wait a little.
    pub(super) behind: u64,
    /// Places with a closed binding that the peer is to be told of.
    pub(super) unbinds: u64,
    /// A record is wanted for a sign of life.
    pub(super) nop: bool,
    /// A timeout lets one frame out whatever the congestion window says.
    pub(super) probe: bool,
    /// The place whose turn is next.
    cursor: u32,
}

impl Outbox {
    pub(super) fn new(channels: usize, shared: usize) -> Self {
        Self {
            slab: Slab::new(channels * SEND_QUEUES.len() * GUARANTEED_SEND + shared),
            shared_used: 0,
            shared,
            ordinal: 0,
            splitting: None,
            longest: 0,
            tlps: 0,
            sidebands: 0,
            credits: 0,
            behind: 0,
            unbinds: 0,
            nop: false,
            probe: false,
            cursor: 0,
        }
    }

    fn is_idle(&self) -> bool {
        let masks = self.tlps | self.sidebands | self.credits | self.unbinds;
        masks == 0 && self.splitting.is_none() && !self.nop
    }

    /// Takes a place out of a set, the one whose turn it is.
    fn turn(&mut self, set: u64) -> Option<usize> {
        if set == 0 {
            return None;
        }
        let index = (set.rotate_right(self.cursor).trailing_zeros() + self.cursor) % 64;
        self.cursor = (index + 1) % 64;
        Some(index as usize)
    }
}

/// TLP bytes in the header record and in each data record of a split TLP.
fn split_sizes(frame: usize) -> (usize, usize) {
    let room = frame - MAX_OVERHEAD;
    ((room - SPLIT_HEADER) & !3, (room - SPLIT_DATA) & !3)
}

impl Link {
    /// Whether the queue of a class has room for a TLP.
    #[must_use]
    pub fn can_send(&self, channel: ChannelId, class: Class) -> bool {
        let Some(c) = self.channels.get(channel) else { return false };
        let buffers = usize::from(c.outgoing[class as usize].buffers);
        c.phase == Phase::Open
            && !matches!(self.state, LinkState::Down(_))
            && buffers < SEND_QUEUES[class as usize]
            && (buffers < GUARANTEED_SEND || self.out.shared_used < self.out.shared)
    }

    /// Queues a TLP for the peer. It is sent when there is credit and PCIe's ordering allows.
    ///
    /// # Errors
    ///
    /// [`SendError`]; with any of them, nothing was queued.
    pub fn send_tlp(
        &mut self,
        _now: Instant,
        channel: ChannelId,
        meta: TlpMeta,
        tlp: &[u8],
    ) -> Result<(), SendError> {
        let key = self.check_open(channel)?;
        let max = self.peer_limits.tlp.min(TLP_BUFFER);
        if tlp.len() < MIN_TLP || !tlp.len().is_multiple_of(4) {
            self.counters.refused_tlp += 1;
            return Err(SendError::NotATlp);
        }
        if tlp.len() > max {
            self.counters.refused_tlp += 1;
            return Err(SendError::TooLong { length: tlp.len(), max });
        }
        if !self.can_send(channel, meta.class) {
            self.counters.refused_full += 1;
            return Err(SendError::Full);
        }
        let TlpMeta { class, outstanding, relaxed, stamp } = meta;
        let queued = Queued {
            channel,
            key,
            traits: TlpTraits { class, relaxed, sampled: stamp.is_some(), outstanding },
            crc: crc::tlp(tlp),
            stamp,
            ordinal: self.out.ordinal,
            records: 0,
        };
        self.out.ordinal += 1;
        self.out.longest = self.out.longest.max(tlp.len());
        let buffer = self.out.slab.take(tlp.len(), queued).expect("`can_send` counts the buffers");
        self.out.slab.bytes_mut(buffer).copy_from_slice(tlp);
        let place = self.channels.place(channel.index as usize);
        let outgoing = &mut place.outgoing[class as usize];
        if usize::from(outgoing.buffers) >= GUARANTEED_SEND {
            self.out.shared_used += 1;
        }
        outgoing.buffers += 1;
        outgoing.queue.push(&mut self.out.slab, buffer);
        self.out.tlps |= 1 << channel.index;
        Ok(())
    }

    /// Sends a sideband record. It does not wait behind TLPs; one that
    /// [flushes](Sideband::flushes) drops the TLPs that this end has queued.
    ///
    /// # Errors
    ///
    /// [`SendError`]; with any of them, nothing was queued or dropped.
    pub fn send_sideband(
        &mut self,
        _now: Instant,
        channel: ChannelId,
        record: Sideband,
    ) -> Result<(), SendError> {
        self.check_open(channel)?;
        let place = self.channels.place(channel.index as usize);
        if place.sideband.push_back(record).is_err() {
            self.counters.refused_full += 1;
            return Err(SendError::Full);
        }
        self.out.sidebands |= 1 << channel.index;
        if record.flushes() {
            self.drop_unsent(channel);
        }
        Ok(())
    }

    fn check_open(&self, channel: ChannelId) -> Result<BindingKey, SendError> {
        if matches!(self.state, LinkState::Down(_)) {
            return Err(SendError::LinkDown);
        }
        let c = self.channels.get(channel).ok_or(SendError::Closed)?;
        match (c.phase, c.key) {
            (Phase::Open, Some(key)) => Ok(key),
            (Phase::Failed(_), _) => Err(SendError::Failed),
            _ => Err(SendError::Closed),
        }
    }

    /// Drops what a binding has queued and not sent.
    pub(super) fn drop_unsent(&mut self, channel: ChannelId) {
        for class in Class::ALL {
            while let Some(c) = self.channels.get_mut(channel) {
                let queue = &mut c.outgoing[class as usize].queue;
                let Some(buffer) = queue.pop(&mut self.out.slab) else { break };
                self.free_sent(buffer);
                self.counters.flushed_unsent += 1;
            }
        }
    }

    /// Gives a send buffer back.
    fn free_sent(&mut self, buffer: BufferId) {
        let meta = self.out.slab.give_back(buffer);
        if let Some(c) = self.channels.get_mut(meta.channel) {
            let outgoing = &mut c.outgoing[meta.traits.class as usize];
            outgoing.buffers -= 1;
            if usize::from(outgoing.buffers) >= GUARANTEED_SEND {
                self.out.shared_used -= 1;
            }
        }
    }

    /// One record of a TLP was acknowledged or given up: the last one frees the buffer.
    pub(super) fn record_done(&mut self, what: Sent) {
        let (Sent::Tlp(buffer) | Sent::SplitHeader(buffer) | Sent::SplitData { buffer, .. }) = what
        else {
            return;
        };
        let meta = self.out.slab.meta_mut(buffer);
        meta.records -= 1;
        let rest_follows = self.out.splitting.is_some_and(|s| s.buffer == buffer);
        if meta.records == 0 && !rest_follows {
            self.free_sent(buffer);
        }
    }

    /// Ends a closing binding's TLPs: those that wait are dropped, and what is in flight becomes
    /// nothing, under its sequence.
    pub(super) fn abandon_sent(&mut self, channel: ChannelId) {
        self.drop_unsent(channel);
        if let Some(s) = self.out.splitting
            && self.out.slab.meta(s.buffer).channel == channel
        {
            self.out.splitting = None;
            if self.out.slab.meta(s.buffer).records == 0 {
                self.free_sent(s.buffer);
            }
        }
        for sequence in self.flight.sequences() {
            let entry = self.flight.entry_mut(sequence);
            if entry.fate == Fate::Acknowledged {
                continue;
            }
            let (Sent::Tlp(buffer) | Sent::SplitHeader(buffer) | Sent::SplitData { buffer, .. }) =
                entry.what
            else {
                continue;
            };
            if self.out.slab.meta(buffer).channel == channel {
                let what = core::mem::replace(&mut entry.what, Sent::Nop);
                self.record_done(what);
            }
        }
    }

    /// Writes a data frame: what was lost first, then what is new, with the acknowledgement.
    pub(super) fn poll_data(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        stamps: &mut Stamps,
    ) -> Option<Transmit> {
        if self.out.behind != 0 {
            self.credit_at.get_or_insert(now + self.config.credit_delay);
        }
        let path = 0;
        let open = self.out.probe || {
            let path = &self.paths[path];
            path.congestion.allows(path.in_flight)
        };
        let resend = if open { self.flight.first_lost() } else { None };
        let fresh = open && !self.out.is_idle() && !self.flight.is_full(self.peer_limits.window);
        let ack_now = self.inbox.ack_now;
        if resend.is_none() && !fresh && !ack_now {
            return None;
        }
        let size = self.peer_limits.frame;
        assert!(buffer.len() >= size, "the caller's buffer takes the largest frame");
        let header = self.data_header(now, path, resend);
        let mut writer = FrameWriter::new(&mut buffer[..size], &header).ok()?;
        let mut end = header.sequence;
        if resend.is_some() {
            end = self.write_lost(now, path, header.packet, end, &mut writer);
        }
        if open && end == self.flight.next() {
            end = self.write_new(now, path, header.packet, &mut writer, stamps);
        }
        let records = end.wrapping_sub(header.sequence);
        if records == 0 && !ack_now {
            return None;
        }
        self.paths[path].depart(now);
        self.departed(now, records);
        Some(Transmit { path: header.path, len: writer.finish() })
    }

    fn data_header(&self, now: Instant, path: usize, resend: Option<u32>) -> Header {
        let life = self.handshake.peer.expect("an open link knows its peer");
        Header {
            kind: FrameKind::Data,
            destination: self.peer,
            source: self.local,
            source_incarnation: self.local_incarnation,
            destination_incarnation: Some(life.incarnation),
            session: life.session,
            path: path_id(path),
            packet: self.paths[path].next_packet,
            sequence: resend.unwrap_or(self.flight.next()),
            ack: self.acknowledgement(now),
        }
    }

    /// A data frame with so many records, and all acknowledgements that were due, leaves.
    fn departed(&mut self, now: Instant, records: u32) {
        self.counters.frames_sent += 1;
        self.inbox.acknowledged();
        if self.out.behind == 0 {
            self.credit_at = None;
        }
        if records == 0 {
            self.counters.acks_sent += 1;
            return;
        }
        self.out.probe = false;
        if self.timeout_at.is_none() {
            self.restart_timeout(now);
        }
    }

    /// Writes the run of lost records that begins at `sequence`; returns where it ends.
    fn write_lost(
        &mut self,
        now: Instant,
        path: usize,
        packet: u32,
        mut sequence: u32,
        writer: &mut FrameWriter<'_>,
    ) -> u32 {
        while sequence != self.flight.next() && self.flight.entry(sequence).fate == Fate::Lost {
            let what = self.flight.entry(sequence).what;
            let before = writer.remaining();
            if self.write(what, writer).is_err() {
                break;
            }
            let bytes = before - writer.remaining();
            self.flight.entry_mut(sequence).bytes = bytes as u16;
            self.flight.resend(sequence, path as u8, packet, now);
            self.paths[path].in_flight += bytes as u64;
            self.counters.records_retransmitted += 1;
            sequence = sequence.wrapping_add(1);
        }
        sequence
    }

    /// Gives as many new records as fit their sequence, and writes them; returns where they end.
    fn write_new(
        &mut self,
        now: Instant,
        path: usize,
        packet: u32,
        writer: &mut FrameWriter<'_>,
        stamps: &mut Stamps,
    ) -> u32 {
        while !self.flight.is_full(self.peer_limits.window) {
            let Some(what) = self.next_record(writer.remaining(), stamps) else { break };
            let before = writer.remaining();
            self.write(what, writer).expect("chosen to fit");
            let bytes = before - writer.remaining();
            self.paths[path].in_flight += bytes as u64;
            self.flight.push(Entry {
                what,
                fate: Fate::Flying,
                path: path as u8,
                packet,
                first_sent: now,
                last_sent: now,
                tries: 1,
                bytes: bytes as u16,
            });
        }
        self.flight.next()
    }

    /// Chooses the next new record that fits into `room` and takes it out of its queue, with its
    /// credit. The rest of a split TLP comes before everything, control before TLPs.
    fn next_record(&mut self, room: usize, stamps: &mut Stamps) -> Option<Sent> {
        if let Some(splitting) = self.out.splitting {
            return self.next_part(splitting, room);
        }
        if room >= CREDIT_RECORD
            && let Some(control) = self.next_control()
        {
            return Some(control);
        }
        if self.out.nop && room >= NOP_RECORD {
            self.out.nop = false;
            return Some(Sent::Nop);
        }
        self.next_tlp(room, stamps)
    }

    fn next_control(&mut self) -> Option<Sent> {
        while self.out.unbinds != 0 {
            let index = self.out.unbinds.trailing_zeros() as usize;
            self.out.unbinds &= self.out.unbinds - 1;
            if let Some(key) = self.channels.place(index).unbind.take() {
                return Some(Sent::Unbind(key));
            }
        }
        while self.out.sidebands != 0 {
            let index = self.out.sidebands.trailing_zeros() as usize;
            let place = self.channels.place(index);
            if place.sideband_used != place.sideband_limit
                && let (Some(record), Some(key)) = (place.sideband.pop_front(), place.key)
            {
                place.sideband_used = place.sideband_used.wrapping_add(1);
                self.counters.sideband_sent += 1;
                return Some(Sent::Sideband(key, record));
            }
            self.out.sidebands &= self.out.sidebands - 1;
        }
        if self.out.credits != 0 {
            let index = self.out.credits.trailing_zeros() as usize;
            self.out.credits &= self.out.credits - 1;
            return Some(Sent::Credits(self.channels.id_at(index)));
        }
        None
    }

    fn next_tlp(&mut self, room: usize, stamps: &mut Stamps) -> Option<Sent> {
        while let Some(index) = self.out.turn(self.out.tlps) {
            let place = self.channels.place(index);
            let Some(class) = place.sendable(&self.out.slab) else {
                self.out.tlps &= !(1 << index);
                continue;
            };
            let outgoing = &mut place.outgoing[class as usize];
            let buffer = outgoing.queue.front().expect("a sendable class has a first TLP");
            let length = self.out.slab.bytes(buffer).len();
            let split = TLP_OVERHEAD + length > self.peer_limits.frame - MAX_OVERHEAD;
            let (first, _) = split_sizes(self.peer_limits.frame);
            let need = if split { SPLIT_HEADER + first } else { TLP_OVERHEAD + length };
            if need > room {
                // It is first in the next frame.
                self.out.cursor = index as u32;
                return None;
            }
            outgoing.queue.pop(&mut self.out.slab);
            outgoing.used = outgoing.used.wrapping_add(1);
            let meta = self.out.slab.meta_mut(buffer);
            meta.records = 1;
            if let Some(stamp) = meta.stamp.take() {
                stamps.ends(stamp, Stage::Sent);
            }
            self.counters.tlps_sent += 1;
            if !split {
                return Some(Sent::Tlp(buffer));
            }
            self.counters.tlps_split += 1;
            let parts = self.parts(buffer);
            self.out.splitting = Some(Splitting { buffer, next_part: 1, parts });
            return Some(Sent::SplitHeader(buffer));
        }
        None
    }

    /// Data records of a TLP that is split.
    fn parts(&self, buffer: BufferId) -> u16 {
        let (first, rest) = split_sizes(self.peer_limits.frame);
        (self.out.slab.bytes(buffer).len() - first).div_ceil(rest) as u16
    }

    fn next_part(&mut self, splitting: Splitting, room: usize) -> Option<Sent> {
        let Splitting { buffer, next_part: part, parts } = splitting;
        if SPLIT_DATA + self.part_bytes(buffer, part).1.len() > room {
            return None;
        }
        self.out.slab.meta_mut(buffer).records += 1;
        self.out.splitting =
            (part < parts).then_some(Splitting { buffer, next_part: part + 1, parts });
        Some(Sent::SplitData { buffer, part })
    }

    /// Where a data record's bytes begin in the TLP, and the bytes.
    fn part_bytes(&self, buffer: BufferId, part: u16) -> (usize, &[u8]) {
        let (first, rest) = split_sizes(self.peer_limits.frame);
        let tlp = self.out.slab.bytes(buffer);
        let at = first + (part as usize - 1) * rest;
        (at, &tlp[at..tlp.len().min(at + rest)])
    }

    /// Which way a binding's records go.
    fn address(&self, key: &BindingKey) -> RecordAddress {
        if self.local_is_host {
            RecordAddress::from_host(key)
        } else {
            RecordAddress::from_box(key)
        }
    }

    fn write(&mut self, what: Sent, writer: &mut FrameWriter<'_>) -> Result<(), Full> {
        match what {
            Sent::Nop => writer.push(&Record::Nop),
            Sent::Tlp(buffer) => {
                let meta = self.out.slab.meta(buffer);
                writer.push(&Record::Tlp(TlpRecord {
                    address: self.address(&meta.key),
                    traits: meta.traits,
                    tlp: self.out.slab.bytes(buffer),
                    crc: meta.crc,
                }))
            }
            Sent::SplitHeader(buffer) => {
                let (meta, tlp) = (self.out.slab.meta(buffer), self.out.slab.bytes(buffer));
                writer.push(&Record::SplitHeader(SplitHeader {
                    address: self.address(&meta.key),
                    traits: meta.traits,
                    total: tlp.len() as u16,
                    parts: self.parts(buffer),
                    crc: meta.crc,
                    bytes: &tlp[..split_sizes(self.peer_limits.frame).0],
                }))
            }
            Sent::SplitData { buffer, part } => {
                let meta = self.out.slab.meta(buffer);
                let (offset, bytes) = self.part_bytes(buffer, part);
                writer.push(&Record::SplitData(SplitData {
                    address: self.address(&meta.key),
                    class: meta.traits.class,
                    part,
                    offset: offset as u16,
                    bytes,
                }))
            }
            Sent::Sideband(key, sideband) => {
                writer.push(&Record::Sideband(self.address(&key), sideband))
            }
            Sent::Credits(channel) => self.write_credits(channel, writer),
            Sent::Unbind(key) => writer.push(&Record::Unbind(self.address(&key))),
        }
    }

    fn write_credits(
        &mut self,
        channel: ChannelId,
        writer: &mut FrameWriter<'_>,
    ) -> Result<(), Full> {
        let Some(key) = self.channels.get(channel).and_then(|c| c.key) else {
            // The binding was closed since the record took its sequence.
            return writer.push(&Record::Nop);
        };
        if writer.remaining() < CREDIT_RECORD {
            return Err(Full);
        }
        let address = self.address(&key);
        self.out.behind &= !(1 << channel.index);
        let place = self.channels.place(channel.index as usize);
        writer.push(&Record::Credits(Credits {
            address,
            announce: !place.peer_open,
            tlps: core::array::from_fn(|class| place.accounts[class].advertise()),
            sideband: place.sideband_account.advertise(),
        }))
    }
}

const _: () = assert!(CREDIT_RECORD >= RECORD_HEADER, "room for it is room for any control record");
