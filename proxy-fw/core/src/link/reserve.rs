//! Room in a send queue that is kept for TLPs which are still to come.
//!
//! What a host reads for a device comes back one completion after the other, through one queue of
//! the root complex: a completion that finds no room holds up those for every other device. So room
//! is kept for all of them before a read is let through, and a binding whose link stands still
//! holds up nobody but itself. A read that wants more than a queue ever holds has what there is, alone:
//! its function has no other read until the rest of it needs no more.

use super::Link;
use super::channel::{Channel, Outgoing};
use super::types::{ChannelId, SendError, TlpMeta};
use crate::limits::GUARANTEED_SEND;
use crate::time::Instant;
use tlp_codec::tlp::Class;

impl Outgoing {
    /// Counts so many more buffers; how many of them are shared ones.
    pub(super) fn count_in(&mut self, buffers: u16) -> usize {
        let shared = self.shared();
        self.buffers += buffers;
        self.shared() - shared
    }

    /// Counts so many buffers less; how many of them were shared ones.
    pub(super) fn count_out(&mut self, buffers: u16) -> usize {
        let shared = self.shared();
        self.buffers -= buffers;
        shared - self.shared()
    }

    /// Of the buffers in use, those beyond the guarantee.
    fn shared(&self) -> usize {
        usize::from(self.buffers).saturating_sub(GUARANTEED_SEND)
    }
}

impl Link {
    /// Whether the queue of a class has room for so many TLPs. What is more than it ever holds
    /// finds room when nothing is in it.
    pub fn can_reserve(&self, channel: ChannelId, class: Class, count: usize) -> bool {
        let unused = |c: &Channel| c.outgoing[class as usize].buffers == 0;
        let room = self.send_room(channel, class);
        room >= count || room > 0 && self.channels.get(channel).is_some_and(unused)
    }

    /// Keeps room in the queue of a class for so many TLPs, or for as many as it has room for; how
    /// many. [`send_reserved`](Self::send_reserved) uses it, [`unreserve`](Self::unreserve) gives
    /// it back, and what is left of it ends with the binding.
    pub fn reserve(&mut self, channel: ChannelId, class: Class, count: u16) -> u16 {
        let count = self.send_room(channel, class).min(count.into()) as u16;
        if count > 0 {
            let outgoing = &mut self.channels.place(channel.index.into()).outgoing[class as usize];
            outgoing.reserved += count;
            self.out.shared_used += outgoing.count_in(count);
        }
        count
    }

    /// Gives room back that was kept. Nothing happens when its binding is closed.
    pub fn unreserve(&mut self, channel: ChannelId, class: Class, count: u16) {
        let Some(c) = self.channels.get_mut(channel) else { return };
        let outgoing = &mut c.outgoing[class as usize];
        assert!(count <= outgoing.reserved, "what is given back was kept");
        outgoing.reserved -= count;
        self.out.shared_used -= outgoing.count_out(count);
    }

    /// Queues a TLP for the peer that room was [kept](Self::reserve) for, which is used by it, or
    /// free again when it cannot be sent.
    ///
    /// # Errors
    ///
    /// As [`send_tlp`](Self::send_tlp), but that there is room.
    ///
    /// # Panics
    ///
    /// When no room was kept.
    pub fn send_reserved(
        &mut self,
        _now: Instant,
        channel: ChannelId,
        meta: TlpMeta,
        tlp: &[u8],
    ) -> Result<(), SendError> {
        let checked = self.check_tlp(channel, tlp);
        self.unreserve(channel, meta.class, 1);
        self.queue_tlp(channel, checked?, meta, tlp);
        Ok(())
    }

    /// Ends what is kept for a binding that closes.
    pub(super) fn abandon_reserved(&mut self, channel: ChannelId) {
        for class in Class::ALL {
            let reserved = self.channels.get(channel).map(|c| c.outgoing[class as usize].reserved);
            self.unreserve(channel, class, reserved.unwrap_or(0));
        }
    }

    /// Buffers that are kept for TLPs which are still to come.
    pub(super) fn reserved(&self) -> usize {
        let of =
            |c: &Channel| c.outgoing.iter().map(|class| usize::from(class.reserved)).sum::<usize>();
        let open = self.channels.ids().filter_map(|id| self.channels.get(id));
        open.map(of).sum()
    }
}
