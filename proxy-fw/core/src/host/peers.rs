//! TLPs from one device of this host to another, through the switch and not the root complex.
//!
//! A request takes a tag of its port's own, like one for the root complex, and an entry at the
//! port that it leaves by, like one of the root complex; its completions go the same way back. So
//! either end can go at any time: what the completer still owed is completed with Unsupported
//! Request, and what comes for a requester that is gone finds its tag in quarantine.

use super::upstream::{Fate, Origin};
use super::{HostRole, ports::Port};
use crate::canaries::{Canary, planted};
use crate::limits::{HOST_RESERVED, TLP_BUFFER};
use crate::link::ClassSet;
use crate::outstanding::RequestInfo;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec;
use tlp_codec::ids::{BindingKey, PortId};
use tlp_codec::tlp::{Class, CplStatus, Packet};

/// TLPs of one port that the switch has sent to another port and that found no room there, one of
/// each class. What may not pass them waits in the link's receive storage.
pub(super) struct Held {
    waiting: [Option<Waiting>; 3],
    /// How many of them there are.
    count: u8,
    bytes: Box<[[u8; TLP_BUFFER]]>,
}

#[derive(Clone, Copy)]
struct Waiting {
    origin: Origin,
    to: PortId,
    /// The binding that it was sent to: a later one does not get it.
    key: Option<BindingKey>,
    length: usize,
}

impl Held {
    pub(super) fn new() -> Self {
        let bytes = vec![[0; TLP_BUFFER]; 3].into_boxed_slice();
        Self { waiting: [None; 3], count: 0, bytes }
    }

    pub(super) fn clear(&mut self) {
        (self.waiting, self.count) = ([None; 3], 0);
    }

    /// How many TLPs are held.
    pub(super) fn count(&self) -> usize {
        self.count.into()
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The classes that may pass what is held (PCIe 5.0 table 2-40, with the choices of the wire
    /// specification's section 9).
    pub(super) fn passable(&self) -> ClassSet {
        let mut ready = ClassSet::ALL;
        if self.count == 0 || planted(Canary::PassHeld) {
            return ready;
        }
        for class in Class::ALL {
            if self.waiting[class as usize].is_some() {
                ready = if class == Class::Posted { ClassSet::NONE } else { ready.without(class) };
            }
        }
        ready
    }

    /// What waits for the device behind a port may not be what it gets next after its reset.
    pub(super) fn flush(&mut self, to: PortId) {
        for waiting in self.waiting.iter_mut().flatten().filter(|waiting| waiting.to == to) {
            // As if the binding were another one.
            waiting.key = None;
        }
    }

    fn put(&mut self, class: Class, waiting: Waiting, tlp: &[u8]) {
        assert!(self.waiting[class as usize].is_none(), "a class that waits was taken from");
        self.bytes[class as usize][..tlp.len()].copy_from_slice(tlp);
        self.waiting[class as usize] = Some(waiting);
        self.count += 1;
    }
}

impl Port {
    /// Whether one more request of another device may be outstanding here.
    fn has_room_for_peer(&self) -> bool {
        self.requests.room() > HOST_RESERVED
    }
}

impl HostRole {
    /// Hands a TLP of a device to the device behind another port, or holds it until there is room.
    pub(super) fn pass_to_peer(
        &mut self,
        now: Instant,
        origin: Origin,
        to: PortId,
        class: Class,
        tlp: &mut [u8],
    ) {
        if self.hand_over(now, origin, to, class, tlp) == Fate::Waits {
            let key = self.ports[to.get() as usize].target(None).map(|target| target.key);
            let waiting = Waiting { origin, to, key, length: tlp.len() };
            self.ports[origin.port.get() as usize].held.put(class, waiting, tlp);
        }
    }

    /// Tries again what a port holds.
    pub(super) fn retry_held(&mut self, now: Instant, index: usize) {
        if self.ports[index].held.is_empty() {
            return;
        }
        for class in Class::ALL {
            let held = &mut self.ports[index].held;
            let Some(waiting) = held.waiting[class as usize] else { continue };
            // Trying it again puts nothing here.
            let mut bytes = core::mem::take(&mut held.bytes);
            let tlp = &mut bytes[class as usize][..waiting.length];
            let mut fate = self.retry(now, waiting, class, tlp);
            if fate == Fate::Waits && self.gives_up(now, waiting, class, tlp) {
                fate = Fate::Gone;
            }
            let held = &mut self.ports[index].held;
            held.bytes = bytes;
            if fate != Fate::Waits {
                held.waiting[class as usize] = None;
                held.count -= 1;
            }
        }
    }

    /// Whether a TLP that waits is given up: the device that it is for has had no room for too long.
    #[cold]
    #[inline(never)]
    fn gives_up(&mut self, now: Instant, waiting: Waiting, class: Class, tlp: &[u8]) -> bool {
        let Waiting { origin, to, .. } = waiting;
        let port = &self.ports[to.get() as usize];
        let target = port.target(port.function_of(Packet::known(tlp)));
        if target.is_none_or(|target| self.has_room(to, target, class)) {
            // It waits for something else.
            return false;
        }
        let hold = &mut self.ports[to.get() as usize].hold;
        let in_time = !hold.gives_up(now, class, self.longest_hold);
        if in_time || (class == Class::NonPosted && !self.can_answer(origin, 1)) {
            return false;
        }
        self.counters.given_up += 1;
        if class == Class::NonPosted {
            self.refuse_peer(now, origin, to, tlp);
        }
        true
    }

    fn retry(&mut self, now: Instant, waiting: Waiting, class: Class, tlp: &mut [u8]) -> Fate {
        let Waiting { origin, to, key, .. } = waiting;
        let there = self.ports[to.get() as usize].target(None).map(|target| target.key);
        if class == Class::Completion || there == key {
            return self.hand_over(now, origin, to, class, tlp);
        }
        self.counters.peer_gone += 1;
        if class == Class::NonPosted {
            if !self.can_answer(origin, 1) {
                return Fate::Waits;
            }
            self.refuse_peer(now, origin, to, tlp);
        }
        Fate::Gone
    }

    fn hand_over(
        &mut self,
        now: Instant,
        origin: Origin,
        to: PortId,
        class: Class,
        tlp: &mut [u8],
    ) -> Fate {
        match class {
            Class::Posted => match self.send_to_device(now, to, tlp, None) {
                Ok(()) => Fate::Gone,
                Err(_) if planted(Canary::DropHeld) => Fate::Gone,
                Err(_) => Fate::Waits,
            },
            Class::NonPosted => self.hand_request_over(now, origin, to, tlp),
            Class::Completion => self.hand_completion_over(now, origin, to, tlp),
        }
    }

    fn hand_request_over(
        &mut self,
        now: Instant,
        origin: Origin,
        to: PortId,
        tlp: &mut [u8],
    ) -> Fate {
        let packet = Packet::known(&*tlp);
        let completions = RequestInfo::of(&packet).map_or(1, |info| info.completions());
        let tag = packet.tag();
        if self.switch.port_behind(packet.requester()) != Some(origin.port) {
            // Its completions would find the way to somebody else.
            if !self.can_answer(origin, 1) {
                return Fate::Waits;
            }
            self.counters.peer_requester += 1;
            self.refuse_peer(now, origin, to, tlp);
            return Fate::Gone;
        }
        let port = &self.ports[origin.port.get() as usize];
        let (room_for_tag, short) = (port.upstream.has_room(), port.is_short(origin.function));
        let answers_have_room = !short && self.can_answer(origin, completions);
        let room_for_peer = self.ports[to.get() as usize].has_room_for_peer();
        if !room_for_peer || !room_for_tag || !answers_have_room {
            return Fate::Waits;
        }
        let taken = self.take_tag(now, origin, tlp);
        // Both may be behind the same link, and what is kept for the answers be the last room there.
        if self.send_to_device(now, to, tlp, Some(origin.port)).is_err() {
            self.give_tag_back(origin, taken, tag, tlp);
            return Fate::Waits;
        }
        self.counters.peer_requests += 1;
        Fate::Gone
    }

    fn hand_completion_over(
        &mut self,
        now: Instant,
        origin: Origin,
        to: PortId,
        tlp: &mut [u8],
    ) -> Fate {
        let packet = Packet::known(&mut *tlp);
        let Some(owed) = self.owed(origin, &packet) else { return Fate::Gone };
        if self.send_completion(now, to, packet).is_err() {
            return Fate::Waits;
        }
        self.ports[to.get() as usize].hold.taken(Class::Completion);
        self.book(origin, &owed, tlp);
        Fate::Gone
    }

    /// Completes a device's request to another device with Unsupported Request, at its own port.
    #[cold]
    #[inline(never)]
    fn refuse_peer(&mut self, now: Instant, origin: Origin, to: PortId, tlp: &[u8]) {
        let packet = Packet::known(tlp);
        let info = RequestInfo::of(&packet).expect("only requests are refused");
        let refusal = info.completion(self.switch.port_id(to), CplStatus::UnsupportedRequest);
        let pushed = self.bounce.push(&refusal);
        assert!(pushed, "it is emptied after each use");
        self.send_bounced(now, origin);
    }
}
