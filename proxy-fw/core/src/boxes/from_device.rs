//! TLPs from a device towards its host.

use super::BoxRole;
use super::slot::{Binding, FromDevice, Slot, ToDevice, Work};
use super::windows::{self, Mapped};
use crate::canaries::{Canary, planted};
use crate::link::{ClassSet, TlpMeta};
use crate::node::Target;
use crate::outstanding::{AfterExpiry, Progress, RequestInfo};
use crate::rewrite::rewrite;
use crate::role::Backpressure;
use crate::stamps::{StampId, StampedTlp};
use crate::switch::errors::Severity;
use crate::time::Instant;
use tlp_codec::ids::{Bdf, OutstandingRef, SlotId};
use tlp_codec::tlp::{AddressType, Class, CplStatus, Packet, TlpType};

/// The proxy's own routing ID towards its devices: the port above them.
pub(super) const PORT: Bdf = Bdf::from_bits(0);

/// What becomes of a request of the device.
enum Way {
    /// To the host, as it is or at another address.
    Host(Target, Option<u64>),
    /// Nowhere: an Unsupported Request.
    Refused,
}

/// What of a device's TLP is something else at its host.
enum Change {
    /// The address of a request, in another window.
    Address(u64),
    /// The value of a register.
    Value(u32),
}

/// What the link is to know of a TLP.
fn meta(
    packet: &Packet<&[u8]>,
    class: Class,
    outstanding: Option<OutstandingRef>,
    stamp: Option<StampId>,
) -> TlpMeta {
    TlpMeta { class, outstanding, relaxed: packet.attributes().relaxed_ordering, stamp }
}

impl BoxRole {
    /// The classes of which a TLP of the device in a slot is taken now, whichever function sends
    /// it.
    pub fn can_take(&self, slot: SlotId) -> ClassSet {
        self.takes(slot).0
    }

    /// As [`BoxRole::can_take`], and how many TLPs of these classes are taken, one after the other,
    /// whatever they are, while the proxy has no requests of its own for the device: one then.
    pub fn takes(&self, slot: SlotId) -> (ClassSet, usize) {
        let Some(index) = self.slot_index(slot) else { return (ClassSet::NONE, 0) };
        let slot = &self.slots[index];
        let mut room = [usize::MAX, slot.egress.room(), usize::MAX];
        for function in &slot.functions {
            let Some(Binding { peer, channel, .. }) = &function.binding else { continue };
            let link = self.node.peers[*peer].as_ref().map(|peer| &peer.link);
            for (class, room) in Class::ALL.into_iter().zip(&mut room) {
                *room = link.map_or(0, |link| link.send_room(*channel, class)).min(*room);
            }
            room[Class::NonPosted as usize] =
                room[Class::NonPosted as usize].min(function.requests.room());
        }
        if matches!(&slot.work, Work::Erase(erase) if erase.eraser.read.is_some()) {
            // A drive that is being erased reads the proxy's own memory: one read at a time.
            room[Class::NonPosted as usize] = 0;
        }
        let taken = Class::ALL.into_iter().filter(|&class| room[class as usize] > 0);
        let sure = taken.clone().map(|class| room[class as usize]).min().unwrap_or(0);
        let idle = matches!(slot.work, Work::Idle)
            && !slot.functions.iter().any(|function| function.renewal.writes());
        (taken.collect(), if idle { sure } else { sure.min(1) })
    }

    /// Takes a TLP from the device in a slot. What is malformed is counted and gone.
    ///
    /// # Errors
    ///
    /// [`Backpressure`] when there is no room now; the same TLP is to be handed in again later.
    /// TLPs of this slot that may not pass it wait behind it; a completion must be able to pass a
    /// request, or two devices that ask each other wait for ever. Whoever can choose what it
    /// takes from the device looks at [`BoxRole::can_take`] first.
    ///
    /// # Panics
    ///
    /// When there is no such slot.
    pub fn handle_tlp(
        &mut self,
        now: Instant,
        slot: SlotId,
        tlp: &[u8],
    ) -> Result<(), Backpressure> {
        let index = self.slot_index(slot).expect("a slot of this box");
        if !self.slots[index].signals.is_empty() {
            // Its reset is on the way: what it asked before is forgotten already.
            self.counters.before_reset += 1;
            return Ok(());
        }
        let Some(packet) = self.node.malformed.sound(tlp) else {
            self.counters.malformed_from_device += 1;
            return Ok(());
        };
        if let Some(result) = self.plain_write(now, index, &packet) {
            return result;
        }
        let result = match packet.class() {
            Some(Class::Completion) => self.completion_from_device(now, index, &packet),
            Some(class) => self.request_from_device(now, index, &packet, class),
            None => Ok(()),
        };
        match result {
            Ok(()) => self.count_error_message(index, &packet),
            // It comes again, and is counted then.
            Err(_) => self.counters.backpressure += 1,
        }
        result
    }

    /// Takes a memory write of a function that is lent, which goes to its host as it is and which
    /// nobody stamps: what [`request_from_device`](Self::request_from_device) would do with it, by
    /// as few questions as there are. Nothing: it is something else.
    #[inline]
    fn plain_write(
        &mut self,
        now: Instant,
        slot: usize,
        packet: &Packet<&[u8]>,
    ) -> Option<Result<(), Backpressure>> {
        let untranslated = packet.address_type() == AddressType::Untranslated;
        if packet.tlp_type() != TlpType::MWr || !untranslated || self.node.stamps.may_sample() {
            return None;
        }
        let Slot { work, functions, .. } = &self.slots[slot];
        let number = u16::from(packet.requester().routed_function());
        let anybody = planted(Canary::TakeNobodys);
        let function = functions.iter().find(|f| f.number.get() == number || anybody)?;
        let Binding { request, peer, channel } = function.binding.as_ref()?;
        let (address, bytes) = (packet.address(), packet.payload_len() as u64);
        let there = windows::lookup(&request.windows, address, bytes, true).ok()?.address;
        if matches!(work, Work::Erase(_)) || there != address {
            return None;
        }
        let link = &mut self.node.peers[*peer].as_mut().expect("it is bound to a peer").link;
        if !link.can_send(*channel, Class::Posted) {
            self.counters.backpressure += 1;
            return Some(Err(Backpressure));
        }
        // Room was checked; a link that is going down ends everything by its event.
        let meta = meta(packet, Class::Posted, None, None);
        let _ = link.send_tlp(now, *channel, meta, packet.as_bytes());
        Some(Ok(()))
    }

    /// Counts a device's error message, whoever it goes to.
    fn count_error_message(&mut self, slot: usize, packet: &Packet<&[u8]>) {
        if let TlpType::Msg(_) = packet.tlp_type()
            && let Some(severity) = Severity::of_message(packet.message_code())
        {
            self.slots[slot].errors[severity.index()] += 1;
        }
    }

    fn completion_from_device(
        &mut self,
        now: Instant,
        slot: usize,
        packet: &Packet<&[u8]>,
    ) -> Result<(), Backpressure> {
        let entry = &mut self.slots[slot];
        let tag = packet.tag().get();
        let Some((reference, request)) = entry.tags.at_index(tag) else {
            if entry.tags.is_quarantined(tag) {
                self.counters.late_from_device += 1;
            } else {
                self.counters.unexpected_from_device += 1;
            }
            return Ok(());
        };
        // A completion is known by its Transaction ID, the Requester ID with the tag (PCIe 5.0
        // section 2.2.6.2); any other one is unexpected (section 2.3.2).
        if packet.requester() != request.requester() {
            self.counters.unexpected_from_device += 1;
            return Ok(());
        }
        let request = *request;
        let ToDevice::Host { function, key, outstanding, mut info, register, sampled, .. } =
            request
        else {
            entry.tags.remove(reference);
            if entry.access.tag() == Some(tag) {
                entry.access.handle(now, packet);
                self.continue_work(now, slot);
            } else if let ToDevice::Own(Some(function)) = request {
                self.renewal_answered(now, slot, function, tag, packet.status());
            }
            return Ok(());
        };
        let Some(target) = entry.target(function).filter(|t| t.key == key) else {
            self.counters.late_from_device += 1;
            // Nobody waits for it. Its tag is used again when all of it has come.
            match info.accept(packet) {
                Ok(Progress::Final) => {
                    entry.tags.remove(reference);
                }
                Ok(Progress::Partial) => entry.owes(reference, info),
                Err(_) => self.counters.mismatched_from_device += 1,
            }
            return Ok(());
        };
        if !self.node.link(target.peer).can_send(target.channel, Class::Completion) {
            return Err(Backpressure);
        }
        let Ok(progress) = info.accept(packet) else {
            self.counters.mismatched_from_device += 1;
            return Ok(());
        };
        let shown = register.and_then(|register| self.shown(slot, function, register, packet));
        let change = shown.map(Change::Value);
        let stamped = StampedTlp::Completion(outstanding);
        let stamp = sampled.then(|| self.node.stamps.arrived(target.stamp_key(true, stamped), now));
        let meta = meta(packet, Class::Completion, Some(outstanding), stamp);
        self.send(now, target, meta, packet, change);
        match progress {
            Progress::Final => {
                self.slots[slot].tags.remove(reference);
                if self.slots[slot].renewal_waits {
                    self.renew(now, slot);
                }
            }
            Progress::Partial if planted(Canary::ForgetProgress) => {}
            Progress::Partial => self.slots[slot].owes(reference, info),
        }
        Ok(())
    }

    /// What the host is to see of what the device says in a register, where that is something
    /// else.
    fn shown(
        &self,
        slot: usize,
        function: usize,
        register: u16,
        packet: &Packet<&[u8]>,
    ) -> Option<u32> {
        let value = u32::from_le_bytes(*packet.payload().first_chunk()?);
        let shown = self.slots[slot].functions[function].facts.shown(register, value);
        (shown != value).then_some(shown)
    }

    fn send(
        &mut self,
        now: Instant,
        target: Target,
        meta: TlpMeta,
        packet: &Packet<&[u8]>,
        change: Option<Change>,
    ) {
        let link = self.node.link(target.peer);
        // Room was checked; a link that is going down ends everything by its event. A payload that
        // the host does not store is larger than the device was given, and counted by the link.
        let Some(change) = change else {
            let _ = link.send_tlp(now, target.channel, meta, packet.as_bytes());
            return;
        };
        let copy = &mut self.scratch[..packet.as_bytes().len()];
        copy.copy_from_slice(packet.as_bytes());
        let mut changed = Packet::known(copy);
        rewrite(&mut changed, |packet| match change {
            Change::Address(address) => packet.set_address(address),
            Change::Value(value) => packet.payload_mut()[..4].copy_from_slice(&value.to_le_bytes()),
        });
        let _ = link.send_tlp(now, target.channel, meta, changed.as_bytes());
    }

    fn request_from_device(
        &mut self,
        now: Instant,
        slot: usize,
        packet: &Packet<&[u8]>,
        class: Class,
    ) -> Result<(), Backpressure> {
        let number = u16::from(packet.requester().routed_function());
        let function = self.slots[slot].function_index(number);
        if self.is_for_eraser(slot, function) {
            return self.request_for_eraser(now, slot, packet, class);
        }
        let way = match function {
            Some(function) => self.way(slot, function, packet, class),
            None => {
                self.count_unbound(class);
                Way::Refused
            }
        };
        let (target, address) = match way {
            Way::Host(target, address) => (target, address),
            Way::Refused => return self.refuse(slot, packet),
        };
        if !self.node.link(target.peer).can_send(target.channel, class) {
            return Err(Backpressure);
        }
        let change = address.map(Change::Address);
        let function = function.expect("it has a way");
        if class == Class::Posted {
            let key = target.stamp_key(false, StampedTlp::Posted(None));
            let stamp = self.node.sample(now, key);
            self.send(now, target, meta(packet, class, None, stamp), packet, change);
            return Ok(());
        }
        let info = RequestInfo::of(packet).expect("the class is non-posted");
        let tag = info.tag.get();
        let entry = &mut self.slots[slot].functions[function];
        if !entry.may_use_tag(tag) {
            // It has ten bits where they are off, or its first request is still outstanding: the
            // device broke a rule, and an answer could reach the wrong request.
            self.counters.tag_reused += 1;
            return Ok(());
        }
        let deadline = now + self.config.completion_bound;
        let Some(outstanding) = entry.requests.insert(deadline, FromDevice { info }) else {
            return Err(Backpressure);
        };
        entry.set_tag(tag, true);
        let key = target.stamp_key(false, StampedTlp::Request(outstanding));
        let stamp = self.node.sample(now, key);
        self.send(now, target, meta(packet, class, Some(outstanding), stamp), packet, change);
        Ok(())
    }

    /// Where a request of a function goes: by its binding and, for memory, its DMA windows.
    fn way(&mut self, slot: usize, function: usize, packet: &Packet<&[u8]>, class: Class) -> Way {
        let Some(target) = self.slots[slot].target(function) else {
            self.count_unbound(class);
            return Way::Refused;
        };
        let write = match packet.tlp_type() {
            TlpType::MRd | TlpType::MRdLk => false,
            TlpType::MWr | TlpType::DMWr => true,
            TlpType::FetchAdd | TlpType::Swap | TlpType::Cas => true,
            TlpType::IORd | TlpType::IOWr | TlpType::Msg(_) | TlpType::MsgD(_) => {
                return Way::Host(target, None);
            }
            // A device has no business in configuration space.
            _ => {
                self.counters.not_a_devices += 1;
                return Way::Refused;
            }
        };
        if packet.address_type() != AddressType::Untranslated {
            self.counters.translated += 1;
            return Way::Refused;
        }
        let address = packet.address();
        // Of a compare and swap half of the data is what is compared.
        let operands = if packet.tlp_type() == TlpType::Cas { 2 } else { 1 };
        let bytes = u64::from(packet.length_dw()) * 4 / operands;
        let binding = self.slots[slot].functions[function].binding.as_ref().expect("has a target");
        let mapped = windows::lookup(&binding.request.windows, address, bytes, write);
        // An atomic operation gives what was there before.
        let mapped = match packet.tlp_type() {
            TlpType::FetchAdd | TlpType::Swap | TlpType::Cas => mapped
                .and_then(|_| windows::lookup(&binding.request.windows, address, bytes, false)),
            _ => mapped,
        };
        match mapped {
            Ok(Mapped { address: there, .. }) if fits(packet, there) => {
                Way::Host(target, (there != address).then_some(there))
            }
            _ => {
                match class {
                    Class::Posted => self.counters.window_posted += 1,
                    _ => self.counters.window_non_posted += 1,
                }
                Way::Refused
            }
        }
    }

    pub(super) fn count_unbound(&mut self, class: Class) {
        match class {
            Class::Posted => self.counters.unbound_posted += 1,
            _ => self.counters.unbound_non_posted += 1,
        }
    }

    /// Unsupported Request: a posted one is gone, a non-posted one is completed.
    pub(super) fn refuse(
        &mut self,
        slot: usize,
        packet: &Packet<&[u8]>,
    ) -> Result<(), Backpressure> {
        let Some(info) = RequestInfo::of(packet) else { return Ok(()) };
        let refusal = info.completion(PORT, CplStatus::UnsupportedRequest);
        if self.slots[slot].egress.push(&refusal) { Ok(()) } else { Err(Backpressure) }
    }

    /// Requests of hosts that the device did not answer: Unsupported Request for the host, and
    /// the tag is not used again until the device was reset.
    pub(super) fn expire_host_requests(&mut self, now: Instant, slot: usize) {
        while let Some((_, request)) =
            self.slots[slot].tags.pop_expired(now, AfterExpiry::Quarantine)
        {
            self.counters.device_silent += 1;
            self.refuse_expired(now, slot, request);
        }
    }

    /// Unsupported Request for what will not be answered, if a host asked for it that has the function
    /// still.
    pub(super) fn refuse_expired(&mut self, now: Instant, slot: usize, request: ToDevice) {
        let ToDevice::Host { function, key, outstanding, info, sampled, .. } = request else {
            return;
        };
        if let Some(target) = self.slots[slot].target(function).filter(|t| t.key == key) {
            self.refuse_host(now, target, &info, outstanding, sampled);
        }
    }

    /// Unsupported Request for a host's request. Without room the host's own bound ends it a
    /// moment later.
    pub(super) fn refuse_host(
        &mut self,
        now: Instant,
        target: Target,
        info: &RequestInfo,
        outstanding: OutstandingRef,
        sampled: bool,
    ) {
        let refusal = info.completion(PORT, CplStatus::UnsupportedRequest);
        let packet = Packet::known(&refusal[..]);
        let stamped = StampedTlp::Completion(outstanding);
        let stamp = sampled.then(|| self.node.stamps.arrived(target.stamp_key(true, stamped), now));
        let meta = meta(&packet, Class::Completion, Some(outstanding), stamp);
        self.send(now, target, meta, &packet, None);
    }
}

/// Whether an address fits the header that the request has: a window that moves a request across
/// 4 GB is refused when the header has three doublewords. (PCIe 5.0 section 2.2.4.1 asks for the
/// short form below 4 GB, so the other direction is checked too.)
fn fits(packet: &Packet<&[u8]>, address: u64) -> bool {
    packet.address() == address || packet.has_4dw_header() == (address > u64::from(u32::MAX))
}
