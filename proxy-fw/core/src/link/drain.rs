//! What is handed on: stored TLPs in an order that PCIe allows, and sideband records.

use super::channel::Channel;
use super::inbox::Stored;
use super::slab::{BufferId, Fifo, Slab, only_one};
use super::types::{ChannelId, ClassSet, LinkOrder, LinkState, Taken, TakenSideband};
use super::{Fault, Link};
use tlp_codec::tlp::Class;

/// What PCIe's ordering table lets be drained next among the classes `ready` (PCIe 5.0 section
/// 2.4.1, table 2-40): nothing passes a posted TLP that came before it, except a completion with
/// relaxed ordering; posted TLPs and completions pass what is not ready. Among what may go, the
/// oldest goes.
fn drainable(
    channel: &Channel,
    slab: &Slab<Stored>,
    ready: ClassSet,
    any_order: bool,
) -> Option<(Class, BufferId)> {
    if channel.gate.is_none()
        && let Some((class, front)) = only_one(channel.stored.each_ref())
    {
        // Most often there is nothing to pass and nothing that could.
        return ready.contains(class).then_some((class, front));
    }
    let ordinal = |id: BufferId| slab.meta(id).ordinal;
    let posted = channel.stored[0].front().map(ordinal).filter(|_| !any_order);
    let mut best: Option<(u64, Class, BufferId)> = None;
    for class in Class::ALL.into_iter().filter(|&class| ready.contains(class)) {
        let Some(front) = channel.stored[class as usize].front() else { continue };
        let at = ordinal(front);
        let passes = class == Class::Completion && slab.meta(front).traits.relaxed;
        let behind_posted = class != Class::Posted && !passes && posted.is_some_and(|p| p < at);
        let behind_sideband = channel.gate.is_some_and(|gate| gate < at);
        if !behind_posted && !behind_sideband && best.is_none_or(|(oldest, ..)| at < oldest) {
            best = Some((at, class, front));
        }
    }
    best.map(|(_, class, front)| (class, front))
}

impl Link {
    /// The next TLP of a binding among the classes that the caller can take, copied to the front of
    /// `buf`. It is drained then: its storage is free, and its credit goes back to the peer.
    ///
    /// TLPs that came behind a sideband record are not given before
    /// [`poll_sideband`](Self::poll_sideband) gave that.
    ///
    /// # Panics
    ///
    /// When `buf` is shorter than the TLP: [`TLP_BUFFER`](crate::limits::TLP_BUFFER) bytes are
    /// enough.
    pub fn take_received(
        &mut self,
        channel: ChannelId,
        ready: ClassSet,
        buf: &mut [u8],
    ) -> Option<Taken> {
        let (class, buffer) = self.next_stored(channel, ready)?;
        let bytes = self.inbox.slab.bytes(buffer);
        let length = bytes.len();
        buf[..length].copy_from_slice(bytes);
        let stored = self.inbox.slab.meta(buffer);
        let (outstanding, stamp) = (stored.traits.outstanding, stored.stamp);
        if self.faulty(Fault::ForgetCredit) {
            self.inbox.slab.give_back(buffer);
        } else {
            self.free_received(buffer);
        }
        Some(Taken { class, outstanding, stamp, length })
    }

    /// The TLP of a class that is stored for longest, which may have to wait behind others.
    pub fn first_received(&self, channel: ChannelId, class: Class) -> Option<&[u8]> {
        let first = self.channels.get(channel)?.stored[class as usize].front()?;
        Some(self.inbox.slab.bytes(first))
    }

    /// Takes the next TLP out of its queue.
    fn next_stored(&mut self, channel: ChannelId, ready: ClassSet) -> Option<(Class, BufferId)> {
        if self.state != LinkState::Up || self.inbox.tlps >> channel.index & 1 == 0 {
            return None;
        }
        let any_order = self.faulty(Fault::IgnoreOrder);
        let place = self.channels.get_mut(channel)?;
        let (class, buffer) = drainable(place, &self.inbox.slab, ready, any_order)?;
        place.stored[class as usize].pop(&mut self.inbox.slab);
        if place.stored.iter().all(Fifo::is_empty) {
            self.inbox.tlps &= !(1 << channel.index);
        }
        Some((class, buffer))
    }

    /// The next sideband record, in link order.
    pub fn poll_sideband(&mut self) -> Option<TakenSideband> {
        if self.state != LinkState::Up {
            return None;
        }
        let (at, channel, record) = self.inbox.sidebands.pop_front()?;
        let gate = self.inbox.sidebands.iter().find(|(_, c, _)| *c == channel).map(|(at, ..)| *at);
        if let Some((place, shared)) = self.channels.with_shared(channel) {
            place.gate = gate;
            place.sideband_account.release(shared);
            let news = place.sideband_account.news();
            self.note_credits(channel, news);
        }
        Some(TakenSideband { channel, record, at: LinkOrder(at) })
    }

    /// Drops what is stored for a binding and came before a record of another one, and gives its
    /// credits back: for a record that ends more than its own binding's traffic.
    pub fn drop_received_before(&mut self, channel: ChannelId, before: LinkOrder) {
        if self.channels.get(channel).is_some() {
            self.drop_stored(channel, before);
        }
    }

    /// The bindings that have stored TLPs. One whose class is not ready, or that waits behind a
    /// sideband record, is among them.
    pub fn channels_with_received(&self) -> impl Iterator<Item = ChannelId> {
        let set = if self.state == LinkState::Up { self.inbox.tlps } else { 0 };
        (0..self.channels.count())
            .filter(move |index| set >> index & 1 != 0)
            .map(|index| self.channels.id_at(index))
    }

    /// The binding with stored TLPs that follows `after` in a fixed round, for taking turns.
    pub fn next_with_received(&self, after: Option<ChannelId>) -> Option<ChannelId> {
        let past = after.map_or(0, |id| u32::from(id.index) + 1);
        let set = if self.state == LinkState::Up { self.inbox.tlps } else { 0 };
        let later = set & u64::MAX.checked_shl(past).unwrap_or(0);
        let turn = if later != 0 { later } else { set };
        (turn != 0).then(|| self.channels.id_at(turn.trailing_zeros() as usize))
    }
}
