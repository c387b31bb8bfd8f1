//! Stored records, taken in the order of the link: TLPs into their class's queue, and what each
//! other record does.

use super::channel::Phase;
use super::credit::News;
use super::inbox::{Arrived, Joining};
use super::slab::{BufferId, Fifo};
use super::types::{ChannelId, LinkOrder, Violation};
use super::{Fault, Link};
use crate::control::BindingFailure;
use tlp_codec::crc;
use tlp_codec::fabric::Sideband;
use tlp_codec::tlp::Class;

impl Link {
    /// Takes what is there, in the order of the link.
    pub(super) fn take_in_order(&mut self) -> Result<(), Violation> {
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

    /// Takes what comes next in the order of the link.
    pub(super) fn take(&mut self, arrived: Arrived) -> Result<(), Violation> {
        if self.inbox.joining.is_some() && !matches!(arrived, Arrived::SplitData { .. }) {
            self.abandon_join();
        }
        match arrived {
            Arrived::Missing | Arrived::HeaderMissing(_) | Arrived::Void => {}
            Arrived::Tlp(buffer) => self.deliver(buffer),
            Arrived::Damaged(channel) => {
                self.counters.tlp_crc_errors += 1;
                self.fail(channel, BindingFailure::TlpCrc);
            }
            Arrived::SplitHeader { buffer, parts, length } => {
                let base = self.inbox.next.wrapping_sub(1);
                self.inbox.joining = Some(Joining { base, buffer, next_part: 1, parts, length });
            }
            Arrived::SplitData { part, offset, length } => self.join(part, offset, length)?,
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
    pub(super) fn deliver(&mut self, buffer: BufferId) {
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

    /// Takes the next data record of a split TLP. It has to begin where the one before ended: a
    /// sum of lengths would not see an overlap that is as large as a gap.
    fn join(&mut self, part: u16, offset: u16, length: u16) -> Result<(), Violation> {
        let Some(joining) = self.inbox.joining else { return Ok(()) };
        if part != joining.next_part || part > joining.parts || offset != joining.length {
            return Err(Violation::Split);
        }
        // Its bytes were stored, so that they end inside a buffer.
        let length = joining.length + length;
        if part < joining.parts {
            self.inbox.joining = Some(Joining { next_part: part + 1, length, ..joining });
            return Ok(());
        }
        self.inbox.joining = None;
        let (slab, buffer) = (&self.inbox.slab, joining.buffer);
        let stored = *slab.meta(buffer);
        if usize::from(length) != slab.bytes(buffer).len() {
            return Err(Violation::Split);
        }
        if crc::tlp(slab.bytes(buffer)) != stored.crc && !self.faulty(Fault::IgnoreSplitCrc) {
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
        let keeps = sideband == Sideband::PerstAssert && self.faulty(Fault::KeepQueueAtPerst);
        if sideband.flushes() && !keeps {
            self.flush(channel);
        }
        self.place(channel).gate.get_or_insert(ordinal);
        self.inbox.sidebands.push_back((ordinal, channel, sideband));
    }

    /// One binding is over, while the link goes on.
    pub(super) fn fail(&mut self, channel: ChannelId, reason: BindingFailure) {
        self.flush(channel);
        let place = self.place(channel);
        if place.phase == Phase::Open {
            place.phase = Phase::Failed(reason);
            self.failures |= 1 << channel.index;
        }
    }

    /// Drops what is stored for a binding, and what it has queued.
    fn flush(&mut self, channel: ChannelId) {
        self.drop_stored(channel, LinkOrder::END);
        self.drop_unsent(channel);
    }

    /// Drops what is stored for a binding, came before `before` and is not handed out.
    pub(super) fn drop_stored(&mut self, channel: ChannelId, before: LinkOrder) {
        let place = channel.index as usize;
        for class in Class::ALL {
            loop {
                let queue = &mut self.channels.place(place).stored[class as usize];
                let is_older = |front: &BufferId| self.inbox.slab.meta(*front).ordinal < before.0;
                let Some(buffer) = queue.front().filter(is_older) else { break };
                queue.pop(&mut self.inbox.slab);
                self.free_received(buffer);
                self.counters.flushed_received += 1;
            }
        }
        if self.channels.place(place).stored.iter().all(Fifo::is_empty) {
            self.inbox.tlps &= !(1 << channel.index);
        }
    }

    /// Gives a receive buffer back, and its credit to the peer.
    pub(super) fn free_received(&mut self, buffer: BufferId) {
        let stored = self.inbox.slab.give_back(buffer);
        if let Some((place, shared)) = self.channels.with_shared(stored.channel) {
            let account = &mut place.accounts[stored.traits.class as usize];
            account.release(shared);
            let news = account.news();
            self.note_credits(stored.channel, news);
        }
    }

    /// Something of a binding was drained: its limits are told now, or a little later.
    pub(super) fn note_credits(&mut self, channel: ChannelId, news: News) {
        let bit = 1 << channel.index;
        match news {
            News::None => {}
            News::Later => self.out.behind |= bit,
            News::Urgent => self.out.credits |= bit,
        }
    }

    /// Ends everything that is stored for a binding that closes.
    pub(super) fn abandon_received(&mut self, channel: ChannelId) {
        self.drop_stored(channel, LinkOrder::END);
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
