//! Records of a right frame: checked, and stored under their sequence, once.

use super::channel::{Channel, Phase};
use super::inbox::{Arrived, Stored};
use super::sequence::before;
use super::slab::BufferId;
use super::types::{ChannelId, Violation};
use super::{Fault, Link};
use crate::limits::{LINK_WINDOW, TLP_BUFFER, UNBIND_QUEUE};
use crate::stamps::{StampKey, StampedTlp, Stamps};
use crate::time::Instant;
use tlp_codec::fabric::{
    Credits, Record, RecordAddress, SplitData, SplitHeader, TlpRecord, TlpTraits,
};
use tlp_codec::tlp::Class;

impl Link {
    /// Stores one record under its sequence, once.
    pub(super) fn arrive(
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
            && let Arrived::Tlp(buffer) = self.store_tlp(now, sequence, again, stamps)?
        {
            self.deliver(buffer);
            return Ok(());
        }
        if before(sequence, next) || self.is_stored(sequence) {
            self.counters.records_duplicate += 1;
            self.inbox.repeated = true;
            return Ok(());
        }
        if sequence.wrapping_sub(next) >= LINK_WINDOW as u32 {
            self.counters.records_beyond_window += 1;
            return Ok(());
        }
        if sequence == next
            && let Record::Tlp(r) = record
        {
            return self.arrive_next(now, r, stamps);
        }
        let arrived = match record {
            Record::Nop => Arrived::Void,
            Record::Tlp(r) => self.store_tlp(now, sequence, r, stamps)?,
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
        if let Arrived::Missing = arrived {
            // It is not acknowledged, and comes again.
            return Ok(());
        }
        let before_it = core::mem::replace(self.inbox.slot(sequence), arrived);
        if let (Arrived::HeaderMissing(buffer), false) =
            (before_it, matches!(arrived, Arrived::SplitHeader { .. }))
        {
            self.free_received(buffer);
        }
        self.inbox.came(sequence);
        Ok(())
    }

    /// A TLP under the next sequence goes where it is to be taken from at once, which is what most
    /// of them do.
    fn arrive_next(
        &mut self,
        now: Instant,
        record: &TlpRecord<'_>,
        stamps: &mut Stamps,
    ) -> Result<(), Violation> {
        let sequence = self.inbox.next;
        let arrived = self.store_tlp(now, sequence, record, stamps)?;
        let slot = self.inbox.slot(sequence);
        if let Arrived::HeaderMissing(buffer) = *slot {
            *slot = Arrived::Missing;
            self.free_received(buffer);
        }
        self.inbox.came(sequence);
        self.inbox.next = sequence.wrapping_add(1);
        self.take(arrived)
    }

    fn is_stored(&self, sequence: u32) -> bool {
        before(sequence, self.inbox.end) && self.inbox.has(sequence)
    }

    pub(super) fn place(&mut self, channel: ChannelId) -> &mut Channel {
        self.channels.place(channel.index as usize)
    }

    /// The binding that a record belongs to, if it is open here and works. If not, the record is
    /// counted: it is acknowledged and dropped.
    fn open_binding(&mut self, address: &RecordAddress) -> Option<ChannelId> {
        let host_end = if self.local_is_host { address.destination } else { address.source };
        let key = address.binding(!self.local_is_host);
        let found = if host_end.get() == 0 { self.channels.find_recent(&key) } else { None };
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
        sequence: u32,
        record: &TlpRecord<'_>,
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
        if record.traits.sampled {
            self.start_stamps(now, sequence, buffer, stamps);
        }
        Ok(Arrived::Tlp(buffer))
    }

    /// A buffer for a TLP whose credit was taken.
    fn take_buffer(&mut self, channel: ChannelId, traits: TlpTraits, length: usize) -> BufferId {
        let stored = Stored { channel, traits, stamp: None, ordinal: 0, crc: 0 };
        self.inbox.slab.take(length, stored).expect("credit is never promised beyond the pool")
    }

    /// Of a TLP that is sampled.
    fn start_stamps(&mut self, now: Instant, sequence: u32, buffer: BufferId, stamps: &mut Stamps) {
        let stored = self.inbox.slab.meta_mut(buffer);
        let TlpTraits { class, outstanding, .. } = stored.traits;
        let Some(binding) = self.channels.get(stored.channel).and_then(|c| c.key) else { return };
        let tlp = match (class, outstanding) {
            (Class::Posted, _) => StampedTlp::Posted(Some(sequence)),
            (Class::NonPosted, Some(entry)) => StampedTlp::Request(entry),
            (Class::Completion, Some(entry)) => StampedTlp::Completion(entry),
            (_, None) => return,
        };
        // A completion comes from where the request went to.
        let from_host = (class == Class::Completion) == self.local_is_host;
        stored.stamp =
            Some(stamps.received(StampKey { binding, peer: self.peer, from_host, tlp }, now));
    }

    fn store_credits(&mut self, record: &Credits) -> Arrived {
        let Credits { announce, tlps, sideband, .. } = *record;
        if let Some(channel) = self.open_binding(&record.address) {
            return Arrived::Credits { channel, announce, tlps, sideband };
        }
        let key = record.address.binding(!self.local_is_host);
        if announce && self.channels.was_closed(&key) {
            // The peer has just opened what is over here.
            if self.out.unbinds.len() + self.channels.shared.open() as usize >= UNBIND_QUEUE {
                self.counters.records_no_room += 1;
                return Arrived::Missing;
            }
            let _ = self.out.unbinds.push_back(key);
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
        slab.set_length(buffer, total);
        slab.bytes_mut(buffer)[..record.bytes.len()].copy_from_slice(record.bytes);
        if record.traits.sampled {
            self.start_stamps(now, sequence, buffer, stamps);
        }
        let length = record.bytes.len() as u16;
        Ok(Arrived::SplitHeader { buffer, parts: record.parts, length })
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
        let stored = slab.meta(buffer);
        if (stored.channel, stored.traits.class) != (channel, record.class) {
            return Err(Violation::Split);
        }
        let at = usize::from(record.offset);
        slab.bytes_mut(buffer)
            .get_mut(at..at + record.bytes.len())
            .ok_or(Violation::Split)?
            .copy_from_slice(record.bytes);
        let length = record.bytes.len() as u16;
        Ok(Arrived::SplitData { part: record.part, offset: record.offset, length })
    }
}
