//! Frames: which records are next, and what they say.

use super::flight::{Entry, Fate, Sent};
use super::path::{Path, Raise};
use super::send::Splitting;
use super::slab::BufferId;
use super::types::{ChannelId, Transmit};
use super::{Link, path_id};
use crate::stamps::Stamps;
use crate::time::Instant;
use tlp_codec::fabric::{
    CREDIT_RECORD, Credits, FrameKind, FrameWriter, Full, Header, MAX_OVERHEAD, NOP_RECORD,
    RECORD_HEADER, Record, RecordAddress, SPLIT_DATA, SPLIT_HEADER, SplitData, SplitHeader,
    TlpRecord,
};
use tlp_codec::ids::BindingKey;

/// How often a record was sent in vain when it goes in a small frame. Congestion seldom loses one as
/// often.
const STUBBORN: u8 = 5;

/// TLP bytes in the header record and in each data record of a split TLP.
pub(super) fn split_sizes(frame: usize) -> (usize, usize) {
    let room = frame - MAX_OVERHEAD;
    ((room - SPLIT_HEADER) & !3, (room - SPLIT_DATA) & !3)
}
impl Link {
    /// Writes a data frame: what was lost first, then what is new, with the acknowledgement.
    pub(super) fn poll_data(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        stamps: &mut Stamps,
    ) -> Option<Transmit> {
        if self.out.behind != 0 {
            self.credit_at.start_if_stopped(now + self.config.credit_delay);
        }
        if let Some(probe) = self.poll_probe(now, buffer) {
            return Some(probe);
        }
        let resend = self.flight.first_lost();
        let fresh = !self.flight.is_full(self.peer_limits.window);
        let mut tried = 0_u8;
        while (resend.is_some() || fresh && self.out.has_work(u64::MAX))
            && let Some(path) = self.path_for_records(tried)
        {
            tried |= 1 << path;
            let has_work = resend.is_some() || self.out.has_work(self.reach[path]);
            if has_work
                && let Some(sent) = self.write_frame(now, path, resend, true, buffer, stamps)
            {
                return Some(sent);
            }
        }
        if !self.is_ack_due() {
            return None;
        }
        self.write_frame(now, self.path_for_word(), None, false, buffer, stamps)
    }

    /// Writes a data frame for a path: with records, or with an acknowledgement alone.
    fn write_frame(
        &mut self,
        now: Instant,
        path: usize,
        resend: Option<u32>,
        records: bool,
        buffer: &mut [u8],
        stamps: &mut Stamps,
    ) -> Option<Transmit> {
        assert!(buffer.len() >= self.peer_limits.frame, "it takes the largest frame");
        let header = self.header(now, path, resend.unwrap_or(self.flight.next()));
        // What was lost so often in large frames may be too large by now for the path that it took. Timeouts
        // do not tell as long as small frames come through.
        let again = resend.map(|sequence| *self.flight.entry(sequence));
        if let Some(lost) = again.filter(|entry| entry.tries >= STUBBORN) {
            self.shrink_frames(now, lost.path.into(), false);
        }
        let Path { frame, raise, .. } = self.paths[path];
        let small = self.paths[path].congestion.frame();
        let (size, spare) = match (resend, raise) {
            (None, Raise::Wanted) => (self.peer_limits.frame, 0),
            // A window that has no room for several large frames has some for small ones.
            (None, _) => (frame.min(small), 0),
            // What went in one frame goes in one again: only so shows that it is too large. Nothing else
            // goes with it then.
            (Some(_), _) => (frame, frame.saturating_sub(small)),
        };
        let mut writer = FrameWriter::new(&mut buffer[..size], &header).ok()?;
        let mut end = header.sequence;
        if resend.is_some() {
            end = self.write_lost(now, path, header.packet, end, spare, &mut writer);
        }
        if records && end == self.flight.next() {
            end = self.write_new(now, path, header.packet, spare, &mut writer, stamps);
        }
        let count = end.wrapping_sub(header.sequence);
        // A word may have another path than records.
        if count == 0 && (records || !self.is_ack_due()) {
            return None;
        }
        self.departed(now, path, count);
        let len = writer.finish();
        if len > frame {
            self.paths[path].raise = Raise::Tried { packet: header.packet, length: len };
        }
        Some(Transmit { path: header.path, len })
    }

    /// The header of a data frame that leaves now.
    pub(super) fn header(&self, now: Instant, path: usize, sequence: u32) -> Header {
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
            sequence,
            ack: self.acknowledgement(now),
        }
    }

    /// A data frame with so many records, and all acknowledgements that were due, leaves.
    fn departed(&mut self, now: Instant, path: usize, records: u32) {
        self.counters.frames_sent += 1;
        self.acknowledgement_left();
        self.paths[path].depart(now);
        if self.out.behind == 0 {
            self.credit_at.stop();
        }
        if records == 0 {
            self.counters.acks_sent += 1;
            return;
        }
        self.out.probe = None;
        if !self.paths[path].timeout_at.runs() {
            self.restart_timeout(now, path);
        }
    }

    /// Writes the run of lost records that begins at `sequence`; returns where it ends. `spare` bytes are
    /// for those alone that went in one frame with the first.
    fn write_lost(
        &mut self,
        now: Instant,
        path: usize,
        packet: u32,
        mut sequence: u32,
        spare: usize,
        writer: &mut FrameWriter<'_>,
    ) -> u32 {
        let frame = |entry: &Entry| (entry.path, entry.packet);
        let together = frame(self.flight.entry(sequence));
        while sequence != self.flight.next() {
            let entry = *self.flight.entry(sequence);
            let before = writer.remaining();
            let is_room = before >= spare + usize::from(entry.bytes);
            if entry.fate != Fate::Lost || !is_room && frame(&entry) != together {
                break;
            }
            if self.write(now, path, entry.what, writer).is_err() {
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

    /// Gives as many new records as fit their sequence, and writes them; returns where they end. `spare`
    /// bytes are not for them.
    fn write_new(
        &mut self,
        now: Instant,
        path: usize,
        packet: u32,
        spare: usize,
        writer: &mut FrameWriter<'_>,
        stamps: &mut Stamps,
    ) -> u32 {
        while !self.flight.is_full(self.peer_limits.window) {
            let before = writer.remaining();
            let room = before.saturating_sub(spare);
            let Some(what) = self.next_record(now, path, room, stamps) else { break };
            self.write(now, path, what, writer).expect("chosen to fit");
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
    fn next_record(
        &mut self,
        now: Instant,
        path: usize,
        room: usize,
        stamps: &mut Stamps,
    ) -> Option<Sent> {
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
        self.next_tlp(now, path, room, stamps)
    }

    fn next_control(&mut self) -> Option<Sent> {
        if let Some(key) = self.out.unbinds.pop_front() {
            return Some(Sent::Unbind(key));
        }
        while self.out.sidebands != 0 {
            let index = self.out.sidebands.trailing_zeros() as usize;
            let place = self.channels.place(index);
            if place.sideband_used != place.sideband_limit
                && let (Some(record), Some(key)) = (place.sideband.pop_front(), place.key)
            {
                place.sideband_used = place.sideband_used.wrapping_add(1);
                self.counters.sideband_sent += 1;
                if place.sideband.is_empty() {
                    // TLPs waited behind it.
                    self.out.tlps |= 1 << index;
                }
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

    /// Data records of a TLP that is split.
    pub(super) fn parts(&self, buffer: BufferId) -> u16 {
        let (first, rest) = split_sizes(self.peer_limits.record_frame());
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
        let (first, rest) = split_sizes(self.peer_limits.record_frame());
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

    fn write(
        &mut self,
        now: Instant,
        path: usize,
        what: Sent,
        writer: &mut FrameWriter<'_>,
    ) -> Result<(), Full> {
        match what {
            Sent::Nop => writer.push(&Record::Nop),
            Sent::Tlp(buffer) => {
                let meta = self.out.slab.meta(buffer);
                writer.push_tlp(&TlpRecord {
                    address: self.address(&meta.key),
                    traits: meta.traits,
                    tlp: self.out.slab.bytes(buffer),
                    crc: meta.crc,
                })
            }
            Sent::SplitHeader(buffer) => {
                let (meta, tlp) = (self.out.slab.meta(buffer), self.out.slab.bytes(buffer));
                writer.push(&Record::SplitHeader(SplitHeader {
                    address: self.address(&meta.key),
                    traits: meta.traits,
                    total: tlp.len() as u16,
                    parts: self.parts(buffer),
                    crc: meta.crc,
                    bytes: &tlp[..split_sizes(self.peer_limits.record_frame()).0],
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
            Sent::Credits(channel) => self.write_credits(now, path, channel, writer),
            Sent::Unbind(key) => writer.push(&Record::Unbind(self.address(&key))),
        }
    }

    fn write_credits(
        &mut self,
        now: Instant,
        path: usize,
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
        let round_trip = self.paths[path].rtt.smoothed();
        self.out.behind &= !(1 << channel.index);
        let place = self.channels.place(channel.index as usize);
        writer.push(&Record::Credits(Credits {
            address,
            announce: !place.peer_open,
            tlps: core::array::from_fn(|class| place.accounts[class].advertise(now, round_trip)),
            sideband: place.sideband_account.advertise(now, round_trip),
        }))
    }
}

const _: () = assert!(CREDIT_RECORD >= RECORD_HEADER, "room for it is room for any control record");
