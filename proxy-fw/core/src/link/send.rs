//! Towards the peer: what waits to be sent, and what holds a send buffer.

use super::channel::Phase;
use super::faults::Fault;
use super::flight::{Fate, Sent};
use super::slab::{BufferId, Slab};
use super::types::{ChannelId, LinkState, SendError, TlpMeta};
use super::{Link, MIN_TLP};
use crate::limits::{GUARANTEED_SEND, SEND_QUEUES, TLP_BUFFER, UNBIND_QUEUE};
use crate::stamps::StampId;
use crate::time::Instant;
use heapless::Deque;
use tlp_codec::crc;
use tlp_codec::fabric::{Sideband, TlpTraits};
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
pub(super) struct Splitting {
    pub(super) buffer: BufferId,
    pub(super) next_part: u16,
    pub(super) parts: u16,
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) slab: Slab<Queued>,
    /// Buffers in use beyond the guarantees, and how many there are.
    pub(super) shared_used: usize,
    pub(super) shared: usize,
    /// The most that one class of one binding may have: its part of what is shared when all that
    /// are open want as much.
    pub(super) fair: usize,
    pub(super) ordinal: u64,
    pub(super) splitting: Option<Splitting>,
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
    /// Closed bindings that the peer is to be told of.
    pub(super) unbinds: Deque<BindingKey, UNBIND_QUEUE>,
    /// A record is wanted for a sign of life.
    pub(super) nop: bool,
    /// A timeout lets one frame out on this path whatever the congestion window says.
    pub(super) probe: Option<u8>,
    /// The places whose turn has begun: there are several where paths carry different ones.
    pub(super) begun: u64,
    /// How many turns there were.
    pub(super) turns: u32,
    /// Bindings with a guaranteed rate.
    pub(super) guaranteed: u64,
    /// Nothing else may leave now: it is another link's turn.
    pub(super) first: bool,
    /// What those that sent lately weigh together.
    pub(super) weight: u32,
    /// Bindings that may have a TLP to send and have reached their limit.
    pub(super) limited: u64,
}

impl Outbox {
    pub(super) fn new(channels: usize, shared: usize) -> Self {
        Self::empty(Slab::new(channels * SEND_QUEUES.len() * GUARANTEED_SEND + shared), shared)
    }

    /// The same storage with nothing in it.
    pub(super) fn cleared(mut self) -> Self {
        self.slab.clear();
        Self::empty(self.slab, self.shared)
    }

    fn empty(slab: Slab<Queued>, shared: usize) -> Self {
        Self {
            slab,
            shared_used: 0,
            shared,
            fair: shared,
            ordinal: 0,
            splitting: None,
            longest: 0,
            tlps: 0,
            sidebands: 0,
            credits: 0,
            behind: 0,
            unbinds: Deque::new(),
            nop: false,
            probe: None,
            begun: 0,
            turns: 1,
            guaranteed: 0,
            first: false,
            weight: 1,
            limited: 0,
        }
    }

    /// Whether there may be something to send for a path that a set of bindings may use.
    pub(super) fn has_work(&self, reach: u64) -> bool {
        let masks = self.tlps & reach | self.sidebands | self.credits;
        masks != 0 || self.splitting.is_some() || self.nop || !self.unbinds.is_empty()
    }
}

impl Link {
    /// A binding was opened or closed.
    pub(super) fn share_buffers(&mut self) {
        let open = self.channels.shared.open().max(1) as usize;
        self.out.fair = (self.out.shared / open).max(GUARANTEED_SEND);
    }

    /// Whether the queue of a class has room for a TLP.
    #[must_use]
    pub fn can_send(&self, channel: ChannelId, class: Class) -> bool {
        self.send_room(channel, class) > 0
    }

    /// How many TLPs the queue of a class has room for. One that is queued, of whichever class,
    /// makes it one less at most.
    pub fn send_room(&self, channel: ChannelId, class: Class) -> usize {
        let Some(c) = self.channels.get(channel) else { return 0 };
        if c.phase != Phase::Open || matches!(self.state, LinkState::Down(_)) {
            return 0;
        }
        let buffers = usize::from(c.outgoing[class as usize].buffers);
        let queue = SEND_QUEUES[class as usize].min(self.out.fair).saturating_sub(buffers);
        let own = GUARANTEED_SEND.saturating_sub(buffers);
        queue.min(own + self.out.shared - self.out.shared_used)
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
        let key = self.check_tlp(channel, tlp)?;
        if !self.can_send(channel, meta.class) {
            self.counters.refused_full += 1;
            return Err(SendError::Full);
        }
        self.queue_tlp(channel, key, meta, tlp);
        Ok(())
    }

    /// The name of a binding that a TLP can be queued for when there is room.
    pub(super) fn check_tlp(
        &mut self,
        channel: ChannelId,
        tlp: &[u8],
    ) -> Result<BindingKey, SendError> {
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
        Ok(key)
    }

    /// Queues a TLP that there is room for.
    pub(super) fn queue_tlp(
        &mut self,
        channel: ChannelId,
        key: BindingKey,
        meta: TlpMeta,
        tlp: &[u8],
    ) {
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
        let buffer = self.out.slab.take(tlp.len(), queued).expect("the buffers are counted");
        self.out.slab.bytes_mut(buffer).copy_from_slice(tlp);
        let place = self.channels.place(channel.index as usize);
        let outgoing = &mut place.outgoing[class as usize];
        self.out.shared_used += outgoing.count_in(1);
        outgoing.queue.push(&mut self.out.slab, buffer);
        self.out.tlps |= 1 << channel.index;
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
        let keeps = record == Sideband::PerstAssert && self.faulty(Fault::KeepQueueAtPerst);
        if record.flushes() && !keeps {
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

    /// Drops the TLPs that a binding has queued and not sent. By itself it is for what is to be done
    /// ahead of a record that [flushes](Sideband::flushes): that may find no room yet.
    pub fn drop_unsent(&mut self, channel: ChannelId) {
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
            self.out.shared_used -= c.outgoing[meta.traits.class as usize].count_out(1);
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

    /// Ends a closing binding's TLPs: those that wait are dropped, and each record that is in flight
    /// becomes an unbind record under its sequence. Becoming nothing would not do: if it was lost,
    /// the peer would go on with what was sent behind it, such as an interrupt without its data.
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
        let nothing = self.faulty(Fault::NothingForClosed);
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
            let meta = self.out.slab.meta(buffer);
            if meta.channel == channel {
                let instead = if nothing { Sent::Nop } else { Sent::Unbind(meta.key) };
                let what = core::mem::replace(&mut entry.what, instead);
                self.record_done(what);
            }
        }
    }
}
