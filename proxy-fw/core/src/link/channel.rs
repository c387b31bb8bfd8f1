//! One binding on a link: its credits and its queues, both ways.

use super::credit::{Account, Shared};
use super::sequence::{before, later};
use super::share::Turn;
use super::slab::{Fifo, Slab, only_one};
use super::types::{ChannelError, ChannelId};
use crate::control::{BindingFailure, PathSet, Share};
use crate::limits::{CREDIT_TARGETS, GUARANTEED_CREDITS, LINK_FUNCTIONS, SIDEBAND_QUEUE};
use alloc::boxed::Box;
use heapless::{Deque, Vec};
use tlp_codec::fabric::Sideband;
use tlp_codec::ids::{BindingKey, Epoch, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

/// Whether a place holds a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// None.
    Free,
    /// A binding that works.
    Open,
    /// A binding that only waits to be closed.
    Failed(BindingFailure),
}

/// One class towards the peer.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Waiting for credit and for their turn.
    pub(super) queue: Fifo,
    /// Send buffers in use: waiting, sent and not acknowledged, or reserved.
    pub(super) buffers: u16,
    /// Of these, the ones that are kept for TLPs which are still to come.
    pub(super) reserved: u16,
    /// How many were ever sent, modulo 2^32.
    pub(super) used: u32,
    /// How many may ever have been sent, as the peer last said.
    pub(super) limit: u32,
}

impl Outgoing {
    /// Whether one more may be sent.
    pub(super) fn has_credit(&self) -> bool {
        before(self.used, self.limit)
    }
}

/// A place for one binding.
#[derive(Debug)]
pub(super) struct Channel {
    /// The binding, or the last one that was here.
    pub(super) key: Option<BindingKey>,
    pub(super) phase: Phase,
    /// Tells one binding of this place from the next.
    pub(super) life: u16,
    /// The paths that its TLPs take as long as one of them is usable.
    pub(super) paths: PathSet,
    /// Which turn its device has.
    turn: u8,
    /// The peer has told its limits.
    pub(super) peer_open: bool,
    /// By class.
    pub(super) outgoing: [Outgoing; 3],
    /// Sideband records that wait for the reserve.
    pub(super) sideband: Deque<Sideband, SIDEBAND_QUEUE>,
    /// How many sideband records were ever sent, and may have been.
    pub(super) sideband_used: u32,
    pub(super) sideband_limit: u32,
    /// By class.
    pub(super) accounts: [Account; 3],
    pub(super) sideband_account: Account,
    /// By class: stored, in order, not drained.
    pub(super) stored: [Fifo; 3],
    /// Ordinal of the first sideband record that was not polled: what came behind it waits.
    pub(super) gate: Option<u64>,
}

impl Channel {
    fn free() -> Self {
        let account = |class: usize| Account::new(GUARANTEED_CREDITS[class], CREDIT_TARGETS[class]);
        Self {
            key: None,
            phase: Phase::Free,
            life: 0,
            paths: PathSet::ALL,
            turn: 0,
            peer_open: false,
            outgoing: Default::default(),
            sideband: Deque::new(),
            sideband_used: 0,
            sideband_limit: 0,
            accounts: [account(0), account(1), account(2)],
            sideband_account: Account::new(SIDEBAND_QUEUE as u32, SIDEBAND_QUEUE as u32),
            stored: Default::default(),
            gate: None,
        }
    }

    /// The first TLP of a class that waits, if it may be sent now.
    ///
    /// PCIe 5.0 section 2.4.1: nothing passes a posted TLP that came before it, except a
    /// completion with relaxed ordering; posted TLPs and completions pass what waits. Nothing passes a
    /// sideband record that waits for credit: it may be a reset that comes before them.
    pub(super) fn sendable(&self, slab: &Slab<super::send::Queued>) -> Option<Class> {
        if !self.sideband.is_empty() {
            return None;
        }
        if let Some((class, _)) = only_one(self.outgoing.each_ref().map(|class| &class.queue)) {
            // Most often there is nothing to pass and nothing that could.
            return self.outgoing[class as usize].has_credit().then_some(class);
        }
        let posted = self.outgoing[0].queue.front().map(|id| slab.meta(id).ordinal);
        let mut best: Option<(u64, Class)> = None;
        for class in Class::ALL {
            let outgoing = &self.outgoing[class as usize];
            let Some(front) = outgoing.queue.front().filter(|_| outgoing.has_credit()) else {
                continue;
            };
            let meta = slab.meta(front);
            let passes = class == Class::Completion && meta.traits.relaxed;
            let behind_posted = posted.is_some_and(|ordinal| ordinal < meta.ordinal);
            if behind_posted && class != Class::Posted && !passes {
                continue;
            }
            if best.is_none_or(|(ordinal, _)| meta.ordinal < ordinal) {
                best = Some((meta.ordinal, class));
            }
        }
        best.map(|(_, class)| class)
    }

    /// The peer told its limits. Older ones than are known change nothing.
    pub(super) fn take_limits(&mut self, tlps: [u32; 3], sideband: u32) {
        self.peer_open = true;
        self.sideband_limit = later(self.sideband_limit, sideband);
        for (outgoing, limit) in self.outgoing.iter_mut().zip(tlps) {
            outgoing.limit = later(outgoing.limit, limit);
        }
    }
}

/// All places of a link.
#[derive(Debug)]
pub(super) struct Channels {
    list: Box<[Channel]>,
    /// As many as there may be devices.
    turns: Box<[Turn]>,
    /// Where the search for a free place goes on, so that closed bindings are remembered long.
    cursor: u8,
    /// The place that was found last: records come in runs of one binding.
    recent: u8,
    /// What receivers share.
    pub(super) shared: Shared,
    /// Of every function that was lent on this link, the last epoch that is over.
    over: Vec<(SlotId, SlotFunction, Option<Epoch>), LINK_FUNCTIONS>,
}

impl Channels {
    pub(super) fn new(count: usize, shared: usize) -> Self {
        Self {
            list: (0..count).map(|_| Channel::free()).collect(),
            turns: (0..count).map(|_| Turn::new(Share::EVEN)).collect(),
            cursor: 0,
            recent: 0,
            shared: Shared::new(shared),
            over: Vec::new(),
        }
    }

    /// Bytes that they allocated.
    pub(super) fn allocated(&self) -> usize {
        size_of_val(&*self.list) + size_of_val(&*self.turns)
    }

    /// The same places, all free and with nothing remembered.
    pub(super) fn cleared(mut self) -> Self {
        self.list.fill_with(Channel::free);
        self.turns.fill(Turn::new(Share::EVEN));
        self.over.clear();
        Self { shared: self.shared.cleared(), cursor: 0, recent: 0, ..self }
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        self.list.len()
    }

    /// Takes a place for a binding.
    pub(super) fn open(&mut self, key: BindingKey) -> Result<ChannelId, ChannelError> {
        if key.slot.get() == 0 {
            return Err(ChannelError::NotASlot);
        }
        if self.find(&key).is_some() {
            return Err(ChannelError::AlreadyOpen);
        }
        if self.was_closed(&key) {
            return Err(ChannelError::WasClosed);
        }
        let count = self.list.len();
        let index = (0..count)
            .map(|n| (usize::from(self.cursor) + n) % count)
            .find(|&n| self.list[n].phase == Phase::Free)
            .ok_or(ChannelError::Full)?;
        if !self.over.iter().any(|(s, f, _)| (*s, *f) == (key.slot, key.function)) {
            let first = (key.slot, key.function, None);
            self.over.push(first).map_err(|_| ChannelError::Full)?;
        }
        self.cursor = index as u8 + 1;
        self.shared.open_one();
        let turn = self.join_turn(index, key.slot);
        let place = &mut self.list[index];
        let life = place.life.wrapping_add(1);
        *place = Channel { key: Some(key), phase: Phase::Open, life, turn, ..Channel::free() };
        Ok(ChannelId { index: index as u8, life })
    }

    /// The turn of the device that a place is about to be of: that of its other functions, or its own.
    fn join_turn(&mut self, index: usize, slot: SlotId) -> u8 {
        let of_device =
            |c: &&Channel| c.phase != Phase::Free && c.key.is_some_and(|k| k.slot == slot);
        let turn = match self.list.iter().find(of_device) {
            Some(other) => other.turn,
            None => {
                let free = self.turns.iter().position(Turn::is_free);
                let turn = free.expect("there are as many turns as places");
                self.turns[turn] = Turn::new(Share::EVEN);
                turn as u8
            }
        };
        self.turns[usize::from(turn)].join(index);
        turn
    }

    /// The turn of a place's device.
    pub(super) fn turn(&mut self, index: usize) -> &mut Turn {
        &mut self.turns[usize::from(self.list[index].turn)]
    }

    /// Gives a place back. Queues and buffers are the caller's to empty first.
    pub(super) fn close(&mut self, id: ChannelId) {
        let Some(place) = self.get_mut(id) else { return };
        place.phase = Phase::Free;
        let key = place.key.expect("what is open has a name");
        self.shared.close_one();
        self.end_epoch(&key);
        self.turn(usize::from(id.index)).leave(usize::from(id.index));
        let place = &mut self.list[id.index as usize];
        for account in &mut place.accounts {
            account.close(&mut self.shared);
        }
    }

    /// The open or failed binding with this name.
    pub(super) fn find(&self, key: &BindingKey) -> Option<ChannelId> {
        self.list
            .iter()
            .position(|c| c.phase != Phase::Free && c.key.as_ref() == Some(key))
            .map(|index| self.id_at(index))
    }

    /// As [`Channels::find`], quicker for the one that was asked for last.
    pub(super) fn find_recent(&mut self, key: &BindingKey) -> Option<ChannelId> {
        let recent = &self.list[usize::from(self.recent)];
        if recent.phase == Phase::Free || recent.key.as_ref() != Some(key) {
            self.recent = self.find(key)?.index;
        }
        Some(self.id_at(usize::from(self.recent)))
    }

    /// The open binding of the same function under any epoch: what a receiver must not do.
    pub(super) fn find_any_epoch(&self, key: &BindingKey) -> Option<ChannelId> {
        self.ids().find(|&id| {
            let open = self.get(id).filter(|c| c.phase == Phase::Open).and_then(|c| c.key);
            open.is_some_and(|k| (k.slot, k.function) == (key.slot, key.function))
        })
    }

    /// Whether this binding was closed, or a later one of the same function was opened.
    pub(super) fn was_closed(&self, key: &BindingKey) -> bool {
        let later = |k: &BindingKey| {
            (k.slot, k.function) == (key.slot, key.function) && k.epoch > key.epoch
        };
        self.last_over(key).is_some_and(|epoch| epoch >= key.epoch)
            || self.list.iter().any(|c| c.key.as_ref().is_some_and(later))
    }

    /// The last epoch of a binding's function that is over.
    fn last_over(&self, key: &BindingKey) -> Option<Epoch> {
        let found = self.over.iter().find(|(s, f, _)| (*s, *f) == (key.slot, key.function));
        found.and_then(|(.., epoch)| *epoch)
    }

    fn end_epoch(&mut self, key: &BindingKey) {
        let found = self.over.iter_mut().find(|(s, f, _)| (*s, *f) == (key.slot, key.function));
        let (.., epoch) = found.expect("it was noted when the binding was opened");
        *epoch = Some(key.epoch).max(*epoch);
    }

    /// The binding that `id` means, if it is still the one in that place.
    pub(super) fn get(&self, id: ChannelId) -> Option<&Channel> {
        self.list.get(id.index as usize).filter(|c| c.life == id.life && c.phase != Phase::Free)
    }

    /// As [`Channels::get`].
    pub(super) fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.list.get_mut(id.index as usize).filter(|c| c.life == id.life && c.phase != Phase::Free)
    }

    /// As [`Channels::get`], with what receivers share.
    pub(super) fn with_shared(&mut self, id: ChannelId) -> Option<(&mut Channel, &mut Shared)> {
        let Self { list, shared, .. } = self;
        let channel = list.get_mut(id.index as usize)?;
        (channel.life == id.life && channel.phase != Phase::Free).then_some((channel, shared))
    }

    /// The name of whatever is in a place now.
    pub(super) fn id_at(&self, index: usize) -> ChannelId {
        ChannelId { index: index as u8, life: self.list[index].life }
    }

    /// The place itself, whatever is in it.
    pub(super) fn place(&mut self, index: usize) -> &mut Channel {
        &mut self.list[index]
    }

    /// How many places there are.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// All bindings that are open or failed.
    pub(super) fn ids(&self) -> impl Iterator<Item = ChannelId> {
        self.list
            .iter()
            .enumerate()
            .filter(|(_, c)| c.phase != Phase::Free)
            .map(|(index, c)| ChannelId { index: index as u8, life: c.life })
    }
}
