//! A box in the world: its proxy, its devices, and the oracles between them.

use super::hosts::HostNode;
use super::room::{Room, no_room};
use super::{World, link_config};
use crate::device::{Device, Drive, End, Errand, Manner, Mark, Medium, Model, Part};
use crate::director::slot_id;
use crate::dress;
use crate::host::layout::function_at;
use crate::host::{FUNCTIONS, all_of, first, slot_name};
use crate::oracle::binding::Bindings;
use crate::oracle::order::{STRAY, Seen};
use crate::oracle::said::{REMEMBERED, Said};
use crate::oracle::spells::Spells;
use crate::oracle::tags::Tags;
use crate::oracle::{Verdict, Violation};
use crate::profile::{Profile, Work};
use crate::random::Drawer;
use crate::trace::What;
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::link::ClassSet;
use proxy_core::time::Instant;
use std::convert::Infallible;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{Class, CplStatus, Packet, TlpType};

/// A function's first base address register, and its upper half.
const BAR: [u16; 2] = [0x10, 0x14];
/// In the lowest byte of the first: there is an upper half.
const WIDE: u8 = 0b100;

/// What a device was asked.
#[derive(Clone, Copy)]
struct Asked {
    binding: usize,
    /// The binding of the device that asked, if it was not the host.
    from: Option<usize>,
    request: u64,
    /// When its host's proxy took it.
    since: Instant,
    /// An I/O or configuration write.
    is_write: bool,
    /// It came on another binding than its function's, and so goes its answer.
    unplaced: bool,
}

/// A function of what is in a slot.
pub(crate) struct SlotNode {
    pub(crate) device: Device,
    /// Its proxy died, and the device was not reset since.
    stale: bool,
    /// Whether the device has that function, and is in its slot.
    pub(super) there: bool,
    pub(crate) present: bool,
    pub(crate) binding: Option<usize>,
    /// What the device was asked under each tag.
    asked: Vec<Option<Asked>>,
    /// When the device misbehaved.
    pub(super) spells: Spells,
    /// What it said while it lied.
    pub(super) said: Said,
    /// Its proxy has had an answer of its own, which was right, since the device was reset last.
    pub(super) answers_proxy: bool,
    /// What it leaves unanswered.
    pub(super) tags: Tags,
    room: Room,
    /// When the device has something to say by itself, if that is planned.
    pub(super) wakes: Option<Instant>,
}

/// A box.
pub(crate) struct BoxNode {
    pub(crate) role: Option<BoxRole>,
    pub(crate) slots: Vec<SlotNode>,
}

impl SlotNode {
    /// A function of a device, of so many.
    fn new(
        seed: u64,
        serial: u64,
        of: (usize, usize),
        says: ([u64; 2], Work),
        drive: Option<&(String, usize, Medium)>,
    ) -> Self {
        let (function, functions) = of;
        let there = function < functions;
        let device = match drive {
            None => Device::Model(Box::new(Model::new(seed, serial, of, says))),
            Some((name, block, medium)) => {
                Device::Drive(Box::new(Drive::new(serial, name, *block, medium.clone())))
            }
        };
        let asked = vec![None; 256];
        Self {
            device,
            stale: false,
            there,
            present: there,
            binding: None,
            asked,
            spells: Spells::default(),
            said: Said::default(),
            answers_proxy: false,
            tags: Tags::new(),
            room: Room::new(seed, Drawer::Stall, serial),
            wakes: None,
        }
    }

    /// The device was reset, pulled, or is another one.
    pub(super) fn forget(&mut self, now: Instant) {
        self.asked.fill(None);
        self.tags.reset(now);
        self.answers_proxy = false;
        self.stale = false;
    }

    #[cfg(test)]
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// The proxy died. The device is as it was; what it asked for runs out by its own timer.
    pub(super) fn lose_proxy(&mut self, now: Instant) {
        self.binding = None;
        self.forget(now);
        self.stale = true;
        self.device.end().requests.forget();
    }
}

impl BoxNode {
    /// With drives in its first slots.
    pub(super) fn new(
        seed: u64,
        index: usize,
        profile: &Profile,
        drives: &[(String, usize, Medium)],
    ) -> Self {
        let slot = |slot| {
            let serial = ((index as u64 + 1) << 32) | (slot as u64 + 1);
            let drive = drives.get(slot / FUNCTIONS);
            let functions = if drive.is_some() { 1 } else { profile.fabric.functions };
            let of = (slot % FUNCTIONS, functions);
            let says = (profile.fabric.ready_ms, profile.work);
            SlotNode::new(seed, serial, of, says, drive)
        };
        Self { role: None, slots: (0..profile.fabric.slots * FUNCTIONS).map(slot).collect() }
    }

    /// A proxy without tables: it resets every slot before it serves.
    pub(super) fn start(&mut self, now: Instant, incarnation: u32, profile: &Profile) {
        let config = BoxConfig {
            incarnation,
            slots: self.slots.len() / FUNCTIONS,
            link: link_config(profile, self.slots.len()),
            peers: profile.fabric.hosts,
            ..BoxConfig::default()
        };
        let mut role = BoxRole::new(&config);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.binding = None;
            if slot.present && index == first(index) {
                role.device_inserted(now, id_of(index), model());
            }
        }
        self.role = Some(role);
    }
}

pub(super) fn model() -> proxy_core::control::Name {
    "model".try_into().expect("a short name")
}

/// The slot of a function.
pub(super) fn id_of(slot: usize) -> tlp_codec::ids::SlotId {
    slot_id(slot / FUNCTIONS)
}

/// Whether a function has its address with this: with the upper half, if it has one, which is written
/// last. All ones only ask for its size.
fn places(packet: &Packet<&[u8]>) -> bool {
    if packet.tlp_type() != TlpType::CfgWr0 || packet.payload() == [0xff; 4] {
        return false;
    }
    let narrow = packet.payload().first().is_some_and(|low| low & WIDE == 0);
    packet.register() == BAR[0] && narrow || packet.register() == BAR[1]
}

/// The function that a TLP for a slot's device is for.
fn function_of(packet: &Packet<&[u8]>) -> usize {
    let by_id = |id: Bdf| usize::from(id.function().get());
    match packet.tlp_type() {
        TlpType::Cpl | TlpType::CplD => by_id(packet.requester()),
        TlpType::CfgRd0 | TlpType::CfgWr0 => by_id(packet.destination()),
        TlpType::Msg(_) | TlpType::MsgD(_) => 0,
        _ => function_at(packet.address()),
    }
}

/// The port whose device a request asks, if it is not the host, and the binding that is there now.
fn peer_of(
    packet: &Packet<&[u8]>,
    bound: Option<usize>,
    bindings: &Bindings,
    hosts: &[HostNode],
) -> Option<(usize, Option<usize>)> {
    if matches!(packet.tlp_type(), TlpType::Msg(_) | TlpType::MsgD(_)) {
        return None;
    }
    let host = &hosts[bindings.all()[bound?].host];
    let port = host.os.layout().port_at(packet.address())?;
    Some((port, host.ports.get(port).copied().flatten()))
}

/// A device answers its host, or another device.
fn answers(bindings: &mut Bindings, now: Instant, seen: Seen, was: Asked, optional: bool) {
    let port = was.from.and_then(|from| bindings.all()[from].port);
    match port {
        None => bindings.get(was.binding).sent_up(now, seen, was.request, optional),
        Some(port) => {
            let way = (was.binding, port);
            bindings.sent_aside(now, (seen, was.request), way, was.from, optional);
        }
    }
}

impl World {
    /// Whether anything happened.
    pub(super) fn pump_box(&mut self, index: usize) -> Verdict<bool> {
        let mut busy = false;
        for slot in 0..self.boxes[index].slots.len() {
            if self.boxes[index].slots[slot].present && self.boxes[index].role.is_some() {
                if slot == first(slot) {
                    if self.steps % 2 == 1 {
                        // As a card does: what a device has said is taken before it is signalled to.
                        for function in all_of(slot) {
                            busy |= self.boxes[index].slots[function].present
                                && self.hear_device(index, function);
                        }
                    }
                    busy |= self.serve_device(index, slot)?;
                }
                busy |= self.hear_device(index, slot);
                self.plan_device(index, slot);
            }
        }
        Ok(busy)
    }

    fn plan_device(&mut self, at_box: usize, slot: usize) {
        let now = self.now();
        let entry = &mut self.boxes[at_box].slots[slot];
        if let Some(at) =
            [entry.device.next_at(now), entry.room.until()].into_iter().flatten().min()
            && entry.wakes.is_none_or(|planned| at < planned)
        {
            entry.wakes = Some(at);
            self.agenda.plan(at, super::Event::Device { at_box, slot });
        }
    }

    fn node_of_box(&self, index: usize) -> u16 {
        (self.hosts.len() + index) as u16 + 1
    }

    /// What a slot of a box is called in what a seed broke.
    pub(super) fn slot_of_box(&self, index: usize, slot: usize) -> String {
        format!("box {index} (node {}) {}", self.node_of_box(index), slot_name(slot))
    }

    /// The device forgets everything.
    pub(super) fn device_was_reset(&mut self, index: usize, slot: usize) {
        let now = self.now();
        let entry = &mut self.boxes[index].slots[slot];
        entry.forget(now);
        if entry.device.is_stuck() && entry.device.set_manner(Manner::Good) {
            entry.spells.turn(now, None);
        }
        if let Some(binding) = entry.binding {
            self.bindings.get(binding).device_was_reset(self.requests);
        }
    }

    /// Takes what the proxy has for a slot's device, whichever function it is for.
    fn serve_device(&mut self, index: usize, slot: usize) -> Verdict<bool> {
        let mut any = false;
        let (now, node) = (self.now(), self.node_of_box(index));
        let local = self.local(self.hosts.len() + index);
        let mut tlp = std::mem::take(&mut self.tlp);
        let result = loop {
            let BoxNode { role, slots } = &mut self.boxes[index];
            let (Some(role), entry) = (role, &mut slots[slot]) else { break Ok(any) };
            if let Some(signal) = role.poll_signal(id_of(slot)) {
                any = true;
                self.did.signalled(signal);
                self.trace.say(now, node, format!("{} {signal:?}", slot_name(first(slot))));
                for slot in all_of(slot) {
                    if self.boxes[index].slots[slot].device.signal(now, signal) {
                        self.device_was_reset(index, slot);
                    }
                }
                continue;
            }
            let mut room = entry.room.of(now, &self.profile.work, false);
            let full = |slot: &SlotNode| !slot.device.room().contains(Class::NonPosted);
            if slots[all_of(slot)].iter().any(full) {
                room = room.without(Class::NonPosted);
            }
            if slots[slot].device.is_stuck() {
                room = ClassSet::NONE;
            }
            let Some(length) = role.poll_tlp(local, id_of(slot), room, &mut tlp) else {
                break Ok(any);
            };
            any = true;
            let packet = Packet::new_checked(&tlp[..length]).ok();
            let class = packet.as_ref().and_then(Packet::class).unwrap_or(Class::Posted);
            if !room.contains(class) {
                break no_room(class);
            }
            slots[slot].room.took(class);
            let function = packet.map_or(0, |packet| function_of(&packet));
            // What is for none of its functions the first one refuses.
            let there = all_of(slot).find(|n| n % FUNCTIONS == function && slots[*n].present);
            if let Err(violation) = self.at_device(index, there.unwrap_or(slot), &tlp[..length]) {
                break Err(violation);
            }
        };
        self.tlp = tlp;
        result
    }

    /// A TLP comes to a device.
    pub(super) fn at_device(&mut self, index: usize, slot: usize, tlp: &[u8]) -> Verdict {
        let (now, node) = (self.now(), self.node_of_box(index));
        self.trace.note(now, node, What::TlpOut, tlp);
        let Some(seen) = Seen::of(tlp) else {
            return Err(Violation::new(1, "a device got what is no TLP"));
        };
        let packet = Packet::new_checked(tlp).expect("looked at just now");
        self.came.came(&packet, false);
        let mut doubtful = false;
        let entry = &mut self.boxes[index].slots[slot];
        if entry.stale {
            let what = "a proxy that began anew uses a device that it has not reset";
            return Err(Violation::new(2, what));
        }
        let tag = packet.tag().get() as usize & 0xff;
        match seen.class {
            Class::Completion => {
                let asked = entry.device.end().requests.of(tlp)?;
                if asked.purpose.peer.is_some() {
                    self.answered_by_peer(&asked, seen, tlp)?;
                } else if let Some(binding) = asked.purpose.binding {
                    let host = &self.hosts[self.bindings.get(binding).host];
                    doubtful = host.spells.lies(asked.since, now);
                    self.answered_by_host((index, slot), (binding, &asked), seen, tlp)?;
                }
                if seen.last {
                    self.bindings.progress.ended(asked.request);
                }
            }
            // What the proxy asks on its own account is about configuration space.
            _ if packet.requester().bits() == 0 => {
                if !matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0) {
                    return Err(Violation::new(2, "a device got a request of nobody"));
                }
                entry.asked[tag] = None;
                entry.tags.asked(tag as u16, now);
            }
            _ => {
                let Some(binding) = entry.binding else {
                    return Err(Violation::new(2, "a device that is not lent got a TLP of a host"));
                };
                let layout = self.hosts[self.bindings.get(binding).host].os.layout();
                let (from, sent) = match layout.port_of(packet.requester()) {
                    None => (None, self.bindings.get(binding).down.deliver(seen, None)?),
                    Some(port) => {
                        let (from, sent) =
                            self.bindings.deliver_aside(binding, port, seen, None)?;
                        (Some(from), sent)
                    }
                };
                if places(&packet) {
                    self.bindings.get(binding).placed = true;
                }
                if seen.class == Class::NonPosted {
                    let is_write = matches!(
                        packet.tlp_type(),
                        TlpType::IOWr | TlpType::CfgWr0 | TlpType::CfgWr1
                    );
                    let (request, since, unplaced) = (sent.request, sent.at, sent.is_unplaced());
                    self.bindings.progress.reached(now, request);
                    entry.tags.asked(tag as u16, since);
                    let asked = Asked { binding, from, request, since, is_write, unplaced };
                    let before = entry.asked[tag].replace(asked);
                    // Its answer is still to leave, but something was taken for it.
                    if before.is_some_and(|before| entry.spells.lies(before.since, now)) {
                        entry.spells.lied(now);
                    }
                }
            }
        }
        let entry = &mut self.boxes[index].slots[slot];
        let own = seen.class == Class::NonPosted && packet.requester().bits() == 0;
        if entry.device.handle(now, tlp, doubtful)? {
            // One that its proxy asked for leaves all tags free.
            if own {
                entry.tags.reset(now);
                entry.answers_proxy = false;
            } else {
                self.did.once("functions that their hosts reset");
            }
            // What it had answered is on its way; the rest is forgotten.
            if let Some(binding) = entry.binding {
                self.bindings.get(binding).function_was_reset(now, self.requests);
            }
        }
        Ok(())
    }

    /// Hands the proxy what a device has to say.
    fn hear_device(&mut self, index: usize, slot: usize) -> bool {
        let node = self.node_of_box(index);
        let local = self.local(self.hosts.len() + index);
        let Self { boxes, bindings, hosts, agenda, trace, did, requests: numbers, .. } = self;
        let BoxNode { role, slots } = &mut boxes[index];
        let (Some(role), entry) = (role, &mut slots[slot]) else { return false };
        let SlotNode { device, binding, asked, spells, said, tags, answers_proxy, .. } = entry;
        let (now, bound, may_ask) = (agenda.now(), *binding, device.may_ask());
        let End { out, requests, held_back, .. } = device.end();
        let mut asks = false;
        let taken = out.offer(|waiting| {
            if matches!(waiting.mark, Mark::Asks(_)) {
                // It was told so after it had begun with that.
                if !may_ask {
                    *held_back += 1;
                    return Ok(false);
                }
                let Some(tag) = requests.free_tag() else { return Ok(false) };
                dress::set_tag(&mut waiting.bytes, Tag::new(tag).expect("10 bits"));
            }
            if role.handle_tlp(local, id_of(slot), &waiting.bytes).is_err() {
                return Ok::<bool, Infallible>(false);
            }
            trace.note(now, node, What::TlpIn, &waiting.bytes);
            let packet = Packet::new_checked(&waiting.bytes[..]).expect("own TLP");
            let seen = Seen::of(&waiting.bytes).expect("own TLP");
            let lie = matches!(waiting.mark, Mark::TooMany | Mark::Lie { .. });
            if seen.class == Class::Completion && (lie || spells.lied_within(REMEMBERED, now)) {
                said.note(now, seen.digest);
            }
            // What of it is wrong its proxy may not have to look at.
            let own = seen.class == Class::Completion && packet.requester().bits() == 0;
            *answers_proxy |= own && packet.status() == CplStatus::Success;
            did.said(&waiting.mark);
            match waiting.mark {
                Mark::Own | Mark::Asks(_) | Mark::AsksTagged => {
                    let peer = peer_of(&packet, bound, bindings, hosts);
                    asks |= !matches!(waiting.mark, Mark::Own) && bound.is_some();
                    let part = match waiting.mark {
                        Mark::Own => None,
                        Mark::Asks(part) => Some(part),
                        _ => Some(Part::NONE),
                    };
                    let request = part.map_or(0, |part| {
                        *numbers += 1;
                        let peer = peer.map(|(port, there)| (port, bindings.state(there)));
                        let errand = Errand { part, binding: bound, peer };
                        requests.ask(now, &waiting.bytes, *numbers, errand);
                        *numbers
                    });
                    match (bound, peer) {
                        (Some(binding), Some((port, there))) => {
                            let way = (binding, port);
                            bindings.sent_aside(now, (seen, request), way, there, false);
                        }
                        (Some(binding), None) => {
                            let sender = &bindings.all()[binding];
                            let gates = &hosts[sender.host].gates;
                            let shut = sender.port.is_some_and(|port| !gates.lets_up(port));
                            bindings.get(binding).sent_up(now, seen, request, shut);
                        }
                        (None, _) => {}
                    }
                }
                Mark::Answers | Mark::Part => {
                    let tag = packet.tag().get() as usize & 0xff;
                    let was = asked[tag];
                    if matches!(waiting.mark, Mark::Answers) {
                        tags.answered(now, tag as u16);
                        asked[tag] = None;
                    }
                    if let Some(was) = was {
                        // Another's answer may have been taken for it.
                        let late = bound != Some(was.binding) || spells.lies(was.since, now);
                        let seen = seen.answers_write(was.is_write).unplaced(was.unplaced);
                        answers(bindings, now, seen, was, late);
                        if seen.last && !late {
                            bindings.answered(now, was.binding, was.request);
                        }
                    }
                }
                Mark::TooMany => spells.lied(now),
                Mark::Lie { asked_under } => {
                    let was = asked[asked_under as usize & 0xff].take();
                    spells.lied(now);
                    // Some of it is an answer all the same: a status is a device's own affair.
                    if let Some(was) = was.filter(|_| asked_under == packet.tag().get()) {
                        let seen = seen.answers_write(was.is_write).unplaced(was.unplaced);
                        answers(bindings, now, seen, was, true);
                    }
                }
                // Nothing of it comes out anywhere.
                Mark::Nobodys | Mark::Wire => {}
                Mark::Stray => {
                    if let Some(binding) = bound {
                        bindings.get(binding).sent_up(now, seen, STRAY, true);
                    }
                }
            }
            Ok(true)
        });
        let taken = taken.unwrap_or_default();
        if asks {
            device.asks();
        }
        if taken {
            device.work(now);
        }
        taken
    }

    /// The manners of a slot's device change, of all its functions. While they are bad, what is asked
    /// of it may come to nothing.
    pub(super) fn set_manner(&mut self, index: usize, slot: usize, manner: Manner) {
        let now = self.now();
        for entry in &mut self.boxes[index].slots[all_of(slot * FUNCTIONS)] {
            if entry.device.set_manner(manner) {
                entry.spells.turn(now, manner.fault());
            }
        }
    }
}
