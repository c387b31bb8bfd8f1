//! What the manager asks of a box proxy.

use super::BoxRole;
use super::probe::timeout_setting;
use super::renewal::Owned;
use super::slot::{Binding, Pending, Work};
use crate::answers::{Answer, Outbound, Page, counters_page, page};
use crate::control::{
    ControlError, FromProxy, InventoryEntry, OperationId, PathSet, Reply, Request, SlotBinding,
    SlotEntry, SlotState,
};
use crate::limits::MAX_FUNCTIONS;
use crate::time::Instant;
use heapless::Vec;
use tlp_codec::ids::{BindingKey, Epoch, SlotId};

impl BoxRole {
    pub(super) fn control(&mut self, now: Instant, id: OperationId, request: &Request) {
        if let Request::RemovePeer(node) = request {
            let peer = self.node.peer_index(*node);
            if peer.is_some_and(|peer| self.find(|t| t.peer == peer).is_some()) {
                self.node.answer(id, Err(ControlError::Busy));
                return;
            }
        }
        if let Request::SetPeer(peer) = request {
            self.node.close_earlier_life(now, peer);
            self.process_link_events(now);
        }
        if let Some(result) = self.node.handle_common(now, request) {
            self.process_link_events(now);
            self.node.answer(id, result);
            return;
        }
        let result = match request {
            Request::BindSlot(binding) => Some(self.bind_slot(binding)),
            Request::UnbindSlot(key) => self.unbind_slot(now, id, key),
            Request::Recover(slot) => self.recover(now, id, *slot),
            Request::Erase(request) => {
                Some(self.erase(now, request).map(|e| Answer::Erasure(e.into())))
            }
            _ => Some(Err(ControlError::WrongRole)),
        };
        if let Some(result) = result {
            self.node.answer(id, result);
        }
    }

    /// Slot and function of a key, if there is such a function.
    pub(super) fn place(&self, key: &BindingKey) -> Result<(usize, usize), ControlError> {
        let slot = self.slot_index(key.slot).ok_or(ControlError::NoSuchSlot(key.slot))?;
        if !self.slots[slot].present {
            return Err(ControlError::SlotEmpty(key.slot));
        }
        match self.slots[slot].function_index(key.function.get()) {
            Some(function) => Ok((slot, function)),
            // It may be there in a moment.
            None if matches!(self.slots[slot].work, Work::Probe(_)) => Err(ControlError::Busy),
            None if self.slots[slot].functions.is_empty() => {
                Err(ControlError::Quarantined(key.slot))
            }
            None => Err(ControlError::NoSuchSlot(key.slot)),
        }
    }

    fn bind_slot(&mut self, request: &SlotBinding) -> Result<Answer, ControlError> {
        let key = request.key;
        let (slot, function) = self.place(&key)?;
        let entry = &self.slots[slot].functions[function];
        if let Some(binding) = &entry.binding {
            return if binding.request == *request {
                Ok(Answer::Done)
            } else {
                Err(ControlError::InUse(binding.request.key.epoch))
            };
        }
        match entry.state {
            SlotState::Free => {}
            SlotState::Quarantined => return Err(ControlError::Quarantined(key.slot)),
            _ => return Err(ControlError::Busy),
        }
        // It may come to need a reset of the whole device, and that would wait for this binding, too.
        if self.slots[slot].functions.iter().any(|f| f.state == SlotState::Releasing) {
            return Err(ControlError::Busy);
        }
        // What is the proxy's in it is not there yet after a reset of the whole device.
        if entry.renewal.owned != Owned::Set {
            return Err(ControlError::Busy);
        }
        if key.epoch.bits() <= entry.highest_epoch {
            let highest = Epoch::from_bits(entry.highest_epoch).expect("not 0, it is not below");
            return Err(ControlError::StaleEpoch(highest));
        }
        if timeout_setting(&entry.facts, self.config.completion_timeout).is_none() {
            return Err(ControlError::CompletionTimeout(key.slot));
        }
        super::windows::check(&request.windows)?;
        // Windows to further hosts need those hosts' bindings; one host has the device so far.
        let own = |w: &crate::control::Window| w.node == request.host && w.epoch == key.epoch;
        if !request.windows.iter().all(own) {
            return Err(ControlError::BadWindows);
        }
        let peer =
            self.node.peer_index(request.host).ok_or(ControlError::UnknownPeer(request.host))?;
        let channel = self.node.open_channel(peer, key, request.path_set, request.share)?;
        let entry = &mut self.slots[slot].functions[function];
        entry.highest_epoch = key.epoch.bits();
        entry.erased = None;
        entry.binding = Some(Binding { request: request.clone(), peer, channel });
        self.set_state(slot, function, SlotState::Bound);
        Ok(Answer::Done)
    }

    fn unbind_slot(
        &mut self,
        now: Instant,
        id: OperationId,
        key: &BindingKey,
    ) -> Option<Result<Answer, ControlError>> {
        let (slot, function) = match self.place(key) {
            Ok(place) => place,
            Err(ControlError::SlotEmpty(_)) => return Some(Ok(Answer::Slot(SlotState::Empty))),
            Err(ControlError::Busy) => return Some(Ok(Answer::Slot(SlotState::Probing))),
            Err(error) => return Some(Err(error)),
        };
        let is_erased = self.is_for_eraser(slot, Some(function));
        let in_perst = self.slots[slot].perst;
        let entry = &mut self.slots[slot].functions[function];
        match &entry.binding {
            Some(binding) if binding.request.key == *key => {
                self.unlink(now, slot, function);
                self.set_state(slot, function, SlotState::Releasing);
                self.start_release(now, slot, function, Some(id));
                None
            }
            // Another epoch's binding is none of this request's business.
            Some(_) => Some(Ok(Answer::Slot(SlotState::Bound))),
            // What may take hours, or as long as a host wants, is not waited for.
            None if entry.release == Pending::Reset || is_erased || in_perst => {
                Some(Ok(Answer::Slot(entry.state)))
            }
            None if entry.state == SlotState::Releasing => {
                entry.release_operation = Some(id);
                None
            }
            None => Some(Ok(Answer::Slot(entry.state))),
        }
    }

    fn recover(
        &mut self,
        now: Instant,
        id: OperationId,
        slot: SlotId,
    ) -> Option<Result<Answer, ControlError>> {
        let Some(index) = self.slot_index(slot) else {
            return Some(Err(ControlError::NoSuchSlot(slot)));
        };
        if !self.slots[index].present {
            return Some(Err(ControlError::SlotEmpty(slot)));
        }
        if !matches!(self.slots[index].work, Work::Idle) {
            return Some(Err(ControlError::Busy));
        }
        if self.slots[index].functions.is_empty() {
            self.start_probe(now, index);
            return Some(Ok(Answer::Slot(SlotState::Probing)));
        }
        let is_quarantined =
            |f: &usize| self.slots[index].functions[*f].state == SlotState::Quarantined;
        let functions = 0..self.slots[index].functions.len();
        let quarantined: Vec<usize, MAX_FUNCTIONS> = functions.filter(is_quarantined).collect();
        let Some(&last) = quarantined.last() else {
            return Some(Ok(Answer::Slot(self.slots[index].function_state(0).1)));
        };
        for function in &quarantined {
            // Whoever asks for it takes it as it is.
            self.slots[index].functions[*function].erased = None;
            self.set_state(index, *function, SlotState::Releasing);
            self.slots[index].functions[*function].release = Pending::Turn;
        }
        // They are taken in their order.
        self.start_release(now, index, last, Some(id));
        None
    }

    pub(super) fn outbound(&mut self) -> Option<FromProxy> {
        let (id, what, from) = match self.node.poll_outbound()? {
            Outbound::Message(message) => return Some(message),
            Outbound::Page(id, what, from) => (id, what, from),
            Outbound::Recorder(id, from, asked) => {
                let page = self.node.stamps.recorder.read(from, asked);
                return Some(FromProxy::Response { id, result: Ok(Reply::Recorder(page)) });
            }
        };
        let reply = match what {
            Page::Table => {
                let (entries, next) = page(self.slot_places(), from);
                Reply::Slots { entries, next }
            }
            Page::Inventory => {
                let (entries, next) = page(self.inventory_places(), from);
                Reply::Inventory { entries, next }
            }
            Page::Counters => {
                let others = self.device_errors().chain(self.node.path_counters());
                counters_page(self.counters(), others, from)
            }
            Page::Stamps => self.node.stamps_page(from),
        };
        Some(FromProxy::Response { id, result: Ok(reply) })
    }

    /// What is in the slots, as configuration space says.
    pub fn inventory(&self) -> impl Iterator<Item = InventoryEntry> {
        self.inventory_places().flatten()
    }

    fn inventory_places(&self) -> impl Iterator<Item = Option<InventoryEntry>> {
        self.slots.iter().flat_map(|slot| (0..MAX_FUNCTIONS).map(|place| slot.inventory(place)))
    }

    /// The slot table: an entry for each function of each slot.
    pub fn slot_entries(&self) -> impl Iterator<Item = SlotEntry> {
        self.slot_places().flatten()
    }

    fn slot_places(&self) -> impl Iterator<Item = Option<SlotEntry>> {
        let places = self.slots.iter().flat_map(|slot| {
            let count = slot.functions.len().max(1);
            (0..MAX_FUNCTIONS).map(move |place| (place < count).then_some((slot, place)))
        });
        let mut entries = 0..;
        places.map(move |place| {
            let (slot, index) = place?;
            let (function, state) = slot.function_state(index);
            let found = slot.functions.get(index);
            let binding = found.and_then(|f| f.binding.as_ref()).map(|b| &b.request);
            Some(SlotEntry {
                entry: entries.next()?,
                valid: slot.present,
                used: binding.is_some(),
                state,
                slot: slot.id,
                function,
                host_node: binding.map_or(0, |b| b.host.get()),
                path_set: binding.map_or(PathSet(0), |b| b.path_set),
                epoch: binding.map_or(slot.highest_epoch(index), |b| b.key.epoch.bits()),
                windows: binding.map_or(Vec::new(), |b| b.windows.clone()),
            })
        })
    }
}
