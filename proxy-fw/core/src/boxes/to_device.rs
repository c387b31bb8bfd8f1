//! TLPs from hosts towards a device.

use super::BoxRole;
use super::renewal::Owned;
use super::slot::{Function, HostControl2, Slot, ToDevice, Work};
use crate::canaries::{Canary, planted};
use crate::link::{ClassSet, Taken};
use crate::node::Target;
use crate::outstanding::{Progress, RequestInfo};
use crate::rewrite::rewrite;
use crate::stamps::{Stage, StampId};
use crate::time::Instant;
use tlp_codec::ids::{OutstandingRef, SlotId, Tag};
use tlp_codec::tlp::{Class, Packet, TlpType};

impl BoxRole {
    /// Whether [`poll_signal`](Self::poll_signal) or [`poll_tlp`](Self::poll_tlp) may have
    /// something for a slot.
    pub fn may_poll(&self, slot: SlotId) -> bool {
        let Some(index) = self.slot_index(slot) else { return false };
        let slot = &self.slots[index];
        !slot.egress.is_empty()
            || !slot.asks.is_empty()
            || !slot.signals.is_empty()
            || matches!(slot.work, Work::Erase(_))
            || slot.functions.iter().any(|function| function.binding.is_some())
                && self.node.has_received()
    }

    /// The next TLP for the device in a slot, of one of the classes that it has room for, written
    /// into `buf`, which holds [`crate::limits::TLP_BUFFER`] bytes; its length. The slot's
    /// functions are served in turn.
    pub fn poll_tlp(
        &mut self,
        now: Instant,
        slot: SlotId,
        room: ClassSet,
        buf: &mut [u8],
    ) -> Option<usize> {
        let index = self.slot_index(slot)?;
        let room = match self.poll_own(index, room, buf) {
            Ok(length) => return Some(length),
            Err(room) => room,
        };
        if room.contains(Class::Completion)
            && let Some(length) = self.answer_of_eraser(index, buf)
        {
            return Some(length);
        }
        let count = self.slots[index].functions.len();
        for step in 0..count {
            let function = (self.slots[index].turn + step) % count;
            if let Some(length) = self.poll_function(now, index, function, room, buf) {
                self.slots[index].turn = function + 1;
                return Some(length);
            }
        }
        None
    }

    /// What the proxy itself sends to a device; or the classes of which something else may go, beside
    /// what of it has to wait (PCIe 5.0 table 2-40).
    fn poll_own(
        &mut self,
        slot: usize,
        mut room: ClassSet,
        buf: &mut [u8],
    ) -> Result<usize, ClassSet> {
        let Slot { egress, asks, .. } = &mut self.slots[slot];
        let first = egress.front().and_then(|tlp| Packet::new_checked(tlp).ok()?.class());
        match first {
            Some(class) if room.contains(class) => return egress.pop(buf).ok_or(room),
            Some(Class::Posted) => return Err(ClassSet::NONE),
            Some(class) => room = room.without(class),
            None => {}
        }
        let asks = Some(asks).filter(|_| room.contains(Class::NonPosted));
        asks.and_then(|asks| asks.pop(buf)).ok_or(room)
    }

    fn poll_function(
        &mut self,
        now: Instant,
        slot: usize,
        function: usize,
        room: ClassSet,
        buf: &mut [u8],
    ) -> Option<usize> {
        let target = self.slots[slot].target(function)?;
        loop {
            let mut ready = room;
            // One tag stays for what takes a function back.
            let tags = &self.slots[slot].tags;
            let no_tag = tags.room() < 2;
            // Those that are out of use come back with a reset only, for which nothing has to wait but
            // for the end of another one.
            let resets = |function: &Function| function.renewal.in_reset;
            let hopeless =
                no_tag && tags.live() == 0 && !self.slots[slot].functions.iter().any(resets);
            let waits = hopeless && self.last_resort_waits(slot, function, target, room);
            if self.slots[slot].functions[function].renewal.owned != Owned::Set
                && self.is_used_next(slot, function, target)
            {
                self.hurry_renewal(now, slot, function);
                if let Ok(length) = self.poll_own(slot, room, buf) {
                    return Some(length);
                }
            }
            let link = self.node.link(target.peer);
            if hopeless && !waits && link.can_send(target.channel, Class::Completion) {
                ready = ready.with(Class::NonPosted);
            } else if no_tag {
                ready = ready.without(Class::NonPosted);
            }
            let taken = link.take_received(target.channel, ready, buf)?;
            let Taken { class, outstanding, stamp, length } = taken;
            if class == Class::NonPosted {
                self.slots[slot].functions[function].renewal.in_front = false;
            }
            if let Some(id) = stamp {
                self.node.stamps.taken(id, &buf[..length]);
            }
            if self.node.malformed.as_said(&buf[..length], class, outstanding).is_none() {
                self.counters.malformed_from_host += 1;
                continue;
            }
            let packet = Packet::known(&mut buf[..length]);
            let deliver = match class {
                Class::Posted => true,
                Class::NonPosted if hopeless && !self.is_last_resort(slot, function, &packet) => {
                    self.refuse_for_want_of_tags(now, target, outstanding, stamp, &packet);
                    false
                }
                Class::NonPosted => {
                    self.request_to_device(now, slot, function, target, outstanding, stamp, packet)
                }
                Class::Completion => self.completion_to_device(slot, function, outstanding, packet),
            };
            if deliver {
                if let Some(id) = stamp {
                    self.node.stamps.ends(id, Stage::Delivered);
                }
                return Some(length);
            }
        }
    }

    /// A request to a device that has let so many run out of time that no tag is left.
    fn refuse_for_want_of_tags(
        &mut self,
        now: Instant,
        target: Target,
        outstanding: Option<OutstandingRef>,
        stamp: Option<StampId>,
        packet: &Packet<&mut [u8]>,
    ) {
        self.counters.no_tag_left += 1;
        if let (Some(outstanding), Some(info)) = (outstanding, RequestInfo::of(packet)) {
            self.refuse_host(now, target, &info, outstanding, stamp.is_some());
        }
    }

    /// Gives a request of the host a device-side tag. Whether it is to be delivered.
    #[allow(clippy::too_many_arguments)] // what came with the TLP, taken apart by the caller
    fn request_to_device(
        &mut self,
        now: Instant,
        slot: usize,
        function: usize,
        target: Target,
        outstanding: Option<OutstandingRef>,
        stamp: Option<StampId>,
        mut packet: Packet<&mut [u8]>,
    ) -> bool {
        let (Some(outstanding), Some(info)) = (outstanding, RequestInfo::of(&packet)) else {
            self.counters.malformed_from_host += 1;
            return false;
        };
        let own = self.slots[slot].functions[function].number.get();
        let configures = matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0);
        if configures && u16::from(packet.destination().routed_function()) != own {
            // A host reaches no function but the one that it was lent.
            self.counters.malformed_from_host += 1;
            self.refuse_host(now, target, &info, outstanding, stamp.is_some());
            return false;
        }
        if packet.tlp_type() == TlpType::CfgWr0 {
            self.slots[slot].functions[function].id = Some(packet.destination());
        }
        let wakes = self.slots[slot].functions[function].wakes_anew(&packet);
        if wakes || self.is_function_reset(slot, function, &packet) {
            self.function_is_reset(now, slot, function);
            // The function gives up what it asked for and may use the tags again at once; answers
            // that still come find their generation over.
            if planted(Canary::FlrForAll) {
                self.slots[slot].functions.iter_mut().for_each(Function::forget_requests);
            } else if !planted(Canary::KeepTagsAtFlr) {
                self.slots[slot].functions[function].forget_requests();
            }
        }
        let register = (packet.tlp_type() == TlpType::CfgRd0).then(|| packet.register());
        let request = ToDevice::Host {
            function,
            key: target.key,
            outstanding,
            info,
            register,
            sampled: stamp.is_some(),
            void: false,
        };
        let deadline = now + self.config.completion_bound;
        let tag = self.slots[slot].tags.insert(deadline, request).expect("room was checked");
        let tag = Tag::new(tag.index).expect("device-side tags have 8 bits");
        if turns_bus_master_on(&packet) {
            self.slots[slot].functions[function].renewal.note_use(now);
        }
        rewrite(&mut packet, |packet| {
            self.keep_owned_fields(slot, function, packet);
            packet.set_tag(tag);
        });
        true
    }

    /// Whether a request is the one that gives a function its tags back, and there is one for it: that
    /// of the proxy's own, which is not under way.
    fn is_last_resort<T: AsRef<[u8]>>(
        &self,
        slot: usize,
        function: usize,
        packet: &Packet<T>,
    ) -> bool {
        self.slots[slot].tags.room() > 0 && self.is_function_reset(slot, function, packet)
    }

    /// Whether that one comes next and the device has no room for it now: it is not refused, and a
    /// device is handed nothing that it has no room for.
    fn last_resort_waits(
        &self,
        slot: usize,
        function: usize,
        target: Target,
        room: ClassSet,
    ) -> bool {
        let first = self.node.link_of(target.peer).first_received(target.channel, Class::NonPosted);
        !room.contains(Class::NonPosted)
            && first
                .and_then(|tlp| Packet::new_checked(tlp).ok())
                .is_some_and(|packet| self.is_last_resort(slot, function, &packet))
    }

    /// Whether the next request of its host turns a function's bus mastering on. What is the proxy's goes
    /// in front of that: the function may ask for something at once.
    fn is_used_next(&self, slot: usize, function: usize, target: Target) -> bool {
        let link = self.node.link_of(target.peer);
        let next = link.first_received(target.channel, Class::NonPosted);
        let next = next.and_then(|tlp| Packet::new_checked(tlp).ok());
        let number = self.slots[slot].functions[function].number.get();
        next.is_some_and(|packet| {
            turns_bus_master_on(&packet)
                && u16::from(packet.destination().routed_function()) == number
        })
    }

    /// Whether a request is a write that begins a function-level reset (Device Control bit 15).
    fn is_function_reset<T: AsRef<[u8]>>(
        &self,
        slot: usize,
        function: usize,
        packet: &Packet<T>,
    ) -> bool {
        let facts = &self.slots[slot].functions[function].facts;
        packet.tlp_type() == TlpType::CfgWr0
            && !packet.is_poisoned()
            && facts.function_level_reset
            && packet.register() == facts.pcie_capability + 0x08
            && packet.byte_enables().first & 0b10 != 0
            && packet.payload().get(1).is_some_and(|high| high & 0x80 != 0)
    }

    /// Device Control 2's completion timeout and 10-bit tag fields are the proxy's: what the host
    /// writes there is replaced by what the proxy set. A capability that it does not see it does
    /// not write: its control register gets 0, which is off.
    fn keep_owned_fields(&mut self, slot: usize, function: usize, packet: &mut Packet<&mut [u8]>) {
        // One that is poisoned writes nothing (PCIe 5.0 section 2.7.2.2).
        if packet.tlp_type() != TlpType::CfgWr0 || packet.is_poisoned() {
            return;
        }
        let facts = &self.slots[slot].functions[function].facts;
        if facts.hidden.covers(packet.register()) {
            packet.payload_mut().fill(0);
            self.counters.config_writes_owned += 1;
            return;
        }
        if facts.pcie_capability == 0 || packet.register() != facts.pcie_capability + 0x28 {
            return;
        }
        let setting = super::probe::owned_setting(facts, self.config.completion_timeout);
        let enables = packet.byte_enables().first;
        if let Some(bytes) = packet.payload_mut().first_chunk_mut::<2>() {
            let before = *bytes;
            let rest = u16::from_le_bytes(before) & !HostControl2::OWNED;
            *bytes = (rest | setting.unwrap_or(0)).to_le_bytes();
            let bytes = *bytes;
            self.counters.config_writes_owned += u64::from(before != bytes);
            self.slots[slot].functions[function].control_2.note(enables, bytes);
        }
    }

    /// Gives a completion for the device its tag back. Whether it is to be delivered.
    fn completion_to_device(
        &mut self,
        slot: usize,
        function: usize,
        outstanding: Option<OutstandingRef>,
        mut packet: Packet<&mut [u8]>,
    ) -> bool {
        let entry = &mut self.slots[slot].functions[function];
        let Some((reference, request)) =
            outstanding.and_then(|o| entry.requests.get_mut(o).map(|request| (o, request)))
        else {
            self.counters.unexpected_from_host += 1;
            return false;
        };
        let Ok(progress) = request.info.accept(&packet) else {
            self.counters.unexpected_from_host += 1;
            return false;
        };
        let info = request.info;
        rewrite(&mut packet, |packet| {
            packet.set_requester(info.requester);
            packet.set_tag(info.tag);
        });
        if progress == Progress::Final {
            entry.requests.remove(reference);
            entry.set_tag(info.tag.get(), false);
        }
        true
    }
}

impl Function {
    /// A request comes to it. Whether it takes the function out of D3hot, which is a reset of one that
    /// has no No_Soft_Reset (PCIe 5.0 section 5.3.1.4.1).
    fn wakes_anew<T: AsRef<[u8]>>(&mut self, packet: &Packet<T>) -> bool {
        let control = u16::from(self.facts.power_control);
        if packet.tlp_type() != TlpType::CfgWr0
            || packet.is_poisoned()
            || control == 0
            || packet.register() != control
            || packet.byte_enables().first & 0b1 == 0
        {
            return false;
        }
        match packet.payload().first().map(|low| low & 0b11) {
            Some(0b11) => self.asleep = true,
            Some(0) => return core::mem::take(&mut self.asleep),
            // A state that it lacks is not entered.
            _ => {}
        }
        false
    }
}

/// Whether a request is a write that turns bus mastering on (Command bit 2).
fn turns_bus_master_on<T: AsRef<[u8]>>(packet: &Packet<T>) -> bool {
    packet.tlp_type() == TlpType::CfgWr0
        && !packet.is_poisoned()
        && packet.register() == 0x04
        && packet.byte_enables().first & 0b01 != 0
        && packet.payload().first().is_some_and(|low| low & 0b100 != 0)
}
