//! TLPs from the root complex towards devices.

use super::ports::Port;
use super::{HostRequest, HostRole, ROOT_RESERVE, Watched};
use crate::canaries::{Canary, planted};
use crate::control::Event;
use crate::limits::ROOT_OUTSTANDING;
use crate::link::{SendError, TlpMeta};
use crate::node::Target;
use crate::outstanding::{Progress, RequestInfo};
use crate::rewrite::rewrite;
use crate::role::Backpressure;
use crate::stamps::StampedTlp;
use crate::switch::DownstreamVerdict as Verdict;
use crate::time::Instant;
use tlp_codec::ids::PortId;
use tlp_codec::tlp::{Class, Packet, TlpType};

/// A request of the root complex to the memory of a device for which there was no room. It is handed
/// in again and again until there is some, which is looked for before its way is.
#[derive(Clone, Copy)]
pub(super) struct Refused {
    /// Its header, which decides its way.
    head: [u8; 16],
    length: usize,
    class: Class,
    port: PortId,
    function: Option<u8>,
}

impl Refused {
    fn head_of(tlp: &[u8]) -> [u8; 16] {
        let mut head = [0; 16];
        let length = tlp.len().min(16);
        head[..length].copy_from_slice(&tlp[..length]);
        head
    }

    /// Of a TLP whose way is in its first 16 bytes: a read or write without prefixes.
    fn of(tlp: &[u8], port: PortId, ports: &[Port]) -> Option<Self> {
        let packet = Packet::new_checked(tlp).ok()?;
        let by_address = matches!(packet.tlp_type(), TlpType::MRd | TlpType::MWr);
        let class = packet.class().filter(|_| by_address && packet.prefix_bytes().is_empty())?;
        let function = ports[port.get() as usize].function_of(packet);
        Some(Self { head: Self::head_of(tlp), length: tlp.len(), class, port, function })
    }

    /// Whether a TLP that is handed in has the way that this one had.
    fn is(&self, tlp: &[u8]) -> bool {
        self.length == tlp.len() && self.head == Self::head_of(tlp)
    }
}

impl HostRole {
    /// Takes a TLP from the root complex. What is malformed is counted and gone.
    ///
    /// # Errors
    ///
    /// [`Backpressure`] when there is no room now, for it or for what the switch may have to say of
    /// it; the same TLP is to be handed in again later, and TLPs of its class behind it wait.
    pub fn handle_tlp(&mut self, now: Instant, tlp: &[u8]) -> Result<(), Backpressure> {
        if self.to_root.room() < ROOT_RESERVE {
            self.excuse();
            self.counters.backpressure += 1;
            return Err(Backpressure);
        }
        if let Some(port) = self.still_has_no_room(tlp) {
            return self.has_no_room(now, tlp, port);
        }
        let Some(packet) = self.node.malformed.sound(tlp) else {
            self.counters.malformed_from_root += 1;
            self.switch.report_malformed(None, tlp, &mut self.to_root);
            return Ok(());
        };
        let mut scratch = self.scratch.take().expect("put back after each use");
        scratch[..tlp.len()].copy_from_slice(tlp);
        let result = self.route_downstream(now, &mut scratch[..tlp.len()]);
        self.scratch = Some(scratch);
        match result {
            Ok(None) => Ok(()),
            Ok(Some(port)) => {
                self.switch.forwarded(port, &packet, &mut self.to_root);
                Ok(())
            }
            Err(port) => {
                self.refused = Refused::of(tlp, port, &self.ports);
                self.has_no_room(now, tlp, port)
            }
        }
    }

    /// No device is to blame for how long a TLP has waited since it was handed in last: the root complex
    /// does not take what it has to take first.
    #[cold]
    #[inline(never)]
    pub fn excuse(&mut self) {
        self.ports.iter_mut().for_each(|port| port.hold.excuse());
    }

    /// The port whose device has no room still, if this is the TLP that was refused last and nothing
    /// has changed for it.
    fn still_has_no_room(&mut self, tlp: &[u8]) -> Option<PortId> {
        let refused = self.refused.filter(|refused| refused.is(tlp))?;
        let Refused { class, port, function, .. } = refused;
        let target = self.ports[port.get() as usize].target(function)?;
        (self.switch.is_open(port) && !self.has_room(port, target, class)).then_some(port)
    }

    /// The device behind a port has no room for a TLP. It waits, or is given up: a request that is
    /// answered is completed with Unsupported Request, as one that a device never answers.
    #[cold]
    #[inline(never)]
    fn has_no_room(&mut self, now: Instant, tlp: &[u8], port: PortId) -> Result<(), Backpressure> {
        let packet = Packet::known(tlp);
        let hold = &mut self.ports[port.get() as usize].hold;
        let gives_up = packet.class().is_some_and(|c| hold.gives_up(now, c, self.longest_hold));
        if !gives_up || self.to_root.room() == 0 {
            self.counters.backpressure += 1;
            return Err(Backpressure);
        }
        self.refused = None;
        self.counters.given_up += 1;
        if let Some(info) = RequestInfo::of(&packet) {
            let completer = self.switch.device_id(port);
            self.refuse(now, &HostRequest { info, completer, asker: None, watched: None });
        } else if packet.class() == Some(Class::Completion) {
            // The rest of them is yet to come, for nobody.
            self.came_late(port.get().into(), packet);
        }
        Ok(())
    }

    /// The port of the device that it was handed on to, if it was; or of that for which there is no room.
    fn route_downstream(&mut self, now: Instant, tlp: &mut [u8]) -> Result<Option<PortId>, PortId> {
        let verdict = self.switch.handle_downstream(now, tlp, &mut self.to_root);
        let result = match verdict {
            Verdict::Forward(port) => {
                let sent = self.send_to_device(now, port, tlp, None);
                sent.map(|()| Some(port)).map_err(|Backpressure| port)
            }
            Verdict::Broadcast => {
                self.broadcast(now, tlp);
                Ok(None)
            }
            Verdict::Consumed => {
                // It may have been a register on which somebody's way depends.
                self.refused = None;
                Ok(None)
            }
            Verdict::Discarded(_) => {
                self.end_with_discarded(tlp);
                Ok(None)
            }
        };
        self.process_switch_events(now);
        result
    }

    /// A completion that the switch lets nobody have, since its requester's device was taken out or is
    /// being reset, has come all the same: the request waits for it no longer, and its tag is used
    /// again.
    #[cold]
    #[inline(never)]
    fn end_with_discarded(&mut self, tlp: &mut [u8]) {
        let packet = Packet::known(tlp);
        if packet.class() != Some(Class::Completion) || planted(Canary::LeakTag) {
            return;
        }
        // Whoever asked hears nothing of it any more.
        let _ = self.came_late_anywhere(packet.borrowed());
    }

    /// As [`came_late`](Self::came_late), of any port's: the bus of who asked may be behind another one by
    /// now.
    #[cold]
    #[inline(never)]
    fn came_late_anywhere(&mut self, packet: Packet<&[u8]>) -> bool {
        (0..self.ports.len()).any(|port| self.came_late(port, packet.borrowed()))
    }

    /// Queues a TLP for the device behind a port. A request is the root complex's, or that of the
    /// device behind the port `asker`.
    pub(super) fn send_to_device(
        &mut self,
        now: Instant,
        port: PortId,
        tlp: &mut [u8],
        asker: Option<PortId>,
    ) -> Result<(), Backpressure> {
        let packet = Packet::known(tlp);
        let class = packet.class();
        match class {
            Some(Class::NonPosted) => self.send_request(now, port, packet, asker)?,
            Some(Class::Posted) => self.send_posted(now, port, packet)?,
            Some(Class::Completion) => self.send_completion(now, port, packet)?,
            None => self.counters.malformed_from_root += 1,
        }
        if let Some(class) = class {
            self.ports[port.get() as usize].hold.taken(class);
        }
        Ok(())
    }

    /// Whether a TLP for the device behind a port can be sent now.
    pub(super) fn has_room(&mut self, port: PortId, target: Target, class: Class) -> bool {
        let entry = &self.ports[port.get() as usize];
        // What the box has to be told first may not be passed by it.
        !entry.pending.is_some()
            && (class != Class::NonPosted || entry.requests.has_room())
            && self.node.link(target.peer).can_send(target.channel, class)
    }

    fn send_posted(
        &mut self,
        now: Instant,
        port: PortId,
        packet: Packet<&mut [u8]>,
    ) -> Result<(), Backpressure> {
        let entry = &self.ports[port.get() as usize];
        let function = entry.function_of(packet.borrowed());
        let Some(target) = entry.target(function) else { return Ok(()) };
        if !self.has_room(port, target, Class::Posted) {
            if planted(Canary::DropWhenFull) {
                return Ok(());
            }
            return Err(Backpressure);
        }
        let meta = TlpMeta {
            class: Class::Posted,
            outstanding: None,
            relaxed: packet.attributes().relaxed_ordering,
            stamp: self.node.sample(now, target.stamp_key(true, StampedTlp::Posted(None))),
        };
        let link = self.node.link(target.peer);
        match link.send_tlp(now, target.channel, meta, packet.as_bytes()) {
            Ok(()) => Ok(()),
            Err(SendError::TooLong { .. }) => {
                // Its box stores no payload so large, and said so in the device's capabilities.
                self.counters.too_long_for_box += 1;
                Ok(())
            }
            Err(_) => Err(Backpressure),
        }
    }

    fn send_request(
        &mut self,
        now: Instant,
        port: PortId,
        packet: Packet<&mut [u8]>,
        asker: Option<PortId>,
    ) -> Result<(), Backpressure> {
        let watched = Watched::of(&packet);
        let entry = &self.ports[port.get() as usize];
        let by_address = || entry.function_of(packet.borrowed());
        let target = entry.target(config_function(&packet).or_else(by_address));
        if let Some(target) = target
            && !self.has_room(port, target, Class::NonPosted)
        {
            return Err(Backpressure);
        }
        let info = RequestInfo::of(&packet).expect("the class is non-posted");
        let completer = self.switch.device_id(port);
        let request = HostRequest { info, completer, asker, watched };
        let Some(target) = target else {
            // What the switch had to say first may have taken the room that there was.
            if self.to_root.room() == 0 {
                return Err(Backpressure);
            }
            self.counters.function_not_lent += 1;
            self.refuse(now, &request);
            return Ok(());
        };
        let entry = &mut self.ports[port.get() as usize];
        let deadline = now + self.completion_bound;
        let outstanding = entry.requests.insert(deadline, request).expect("has room");
        let stamped = StampedTlp::Request(outstanding);
        let meta = TlpMeta {
            class: Class::NonPosted,
            outstanding: Some(outstanding),
            relaxed: packet.attributes().relaxed_ordering,
            stamp: self.node.sample(now, target.stamp_key(true, stamped)),
        };
        let link = self.node.link(target.peer);
        if link.send_tlp(now, target.channel, meta, packet.as_bytes()).is_err() {
            // The link is going down; its event completes everything that is outstanding.
            entry.requests.expire(outstanding, now);
            self.synthesised_at = None;
        }
        if packet.tlp_type() == TlpType::CfgWr0 {
            self.switch.device_found(port);
            self.look_at_write(now, port, watched, packet.payload());
        }
        Ok(())
    }

    /// What the root complex writes shows how far the operating system is with the device.
    fn look_at_write(&mut self, now: Instant, port: PortId, watched: Option<Watched>, data: &[u8]) {
        let entry = &mut self.ports[port.get() as usize];
        if let Some(Watched::Command(command)) = watched
            && command.enables_device()
            && entry.configured()
        {
            self.node.event(Event::DeviceConfigured { port });
        } else if let Some(Watched::Bar(bar)) = watched
            && let Ok(value) = data.try_into()
        {
            entry.bar_written(now, bar, u32::from_le_bytes(value));
            self.refused = None;
        }
    }

    /// Gives a completion for a device its tag back and queues it.
    pub(super) fn send_completion(
        &mut self,
        now: Instant,
        port: PortId,
        mut packet: Packet<&mut [u8]>,
    ) -> Result<(), Backpressure> {
        let entry = &mut self.ports[port.get() as usize];
        let index = packet.tag().get();
        let asked = entry.upstream.at_index(index);
        let asked = asked.filter(|(_, request)| request.info.requester == packet.requester());
        let Some((reference, request)) = asked else {
            let late = self.came_late_anywhere(packet.borrowed());
            self.counters.unexpected_from_root += u64::from(!late);
            return Ok(());
        };
        let mut request = *request;
        let target = entry.target_of(request.function).filter(|t| t.key == request.key);
        let Some(target) = target else {
            entry.upstream.remove(reference);
            self.counters.late_from_root += 1;
            return Ok(());
        };
        let reserved = request.reserved > 0;
        let waits = match reserved {
            // What the box has to be told first may not be passed by it.
            true => entry.pending.is_some(),
            false => !self.has_room(port, target, Class::Completion),
        };
        if waits {
            return Err(Backpressure);
        }
        let Ok(progress) = request.info.accept(&packet) else {
            self.counters.unexpected_from_root += 1;
            return Ok(());
        };
        rewrite(&mut packet, |packet| packet.set_tag(request.info.tag));
        let stamped = StampedTlp::Completion(request.outstanding);
        let stamp = request
            .sampled
            .then(|| self.node.stamps.arrived(target.stamp_key(false, stamped), now));
        let meta = TlpMeta {
            class: Class::Completion,
            outstanding: Some(request.outstanding),
            relaxed: packet.attributes().relaxed_ordering,
            stamp,
        };
        let (link, channel) = (self.node.link(target.peer), target.channel);
        // A link that is going down ends the request at the device's side, too, and the box's bound
        // one whose completions are larger than it stores.
        let _ = match reserved {
            true => link.send_reserved(now, channel, meta, packet.as_bytes()),
            false => link.send_tlp(now, channel, meta, packet.as_bytes()),
        };
        request.reserved -= u16::from(reserved);
        let owed = if progress == Progress::Final { 0 } else { request.info.completions() };
        let kept = request.reserved.min(owed);
        self.keep_room(port.get() as usize, &request, kept);
        request.reserved = kept;
        let upstream = &mut self.ports[port.get() as usize].upstream;
        match progress {
            Progress::Final => {
                upstream.remove(reference);
            }
            Progress::Partial => {
                *upstream.get_mut(reference).expect("it was there just now") = request;
            }
        }
        Ok(())
    }

    /// Nobody waits for what is owed to a port's device any more. Its tags stay out of use until that
    /// has come.
    pub(super) fn give_up_on_all(&mut self, port: usize) {
        for tag in 0..ROOT_OUTSTANDING as u16 {
            self.give_up_on(port, tag);
        }
    }

    /// As [`give_up_on_all`](Self::give_up_on_all), of what is owed under this tag, if anything is.
    fn give_up_on(&mut self, port: usize, tag: u16) {
        let upstream = &mut self.ports[port].upstream;
        if let Some((reference, request)) = upstream.at_index(tag) {
            let request = *request;
            upstream.quarantine(reference);
            self.keep_room(port, &request, 0);
        }
    }

    /// A completion for a request of this port's that was given up on, or is now: nobody waits for it any
    /// more. Its tag is used again when all of it has come. `false` if there is no such request.
    fn came_late(&mut self, port: usize, packet: Packet<&[u8]>) -> bool {
        let (index, requester) = (packet.tag().get(), packet.requester());
        let live = self.ports[port].upstream.at_index(index);
        if live.is_some_and(|(_, request)| request.info.requester == requester) {
            self.give_up_on(port, index);
        }
        let upstream = &mut self.ports[port].upstream;
        let request = upstream.late_mut(index).filter(|late| late.info.requester == requester);
        match request.map(|request| request.info.accept(&packet)) {
            Some(Ok(Progress::Final)) => upstream.release_one(index),
            Some(Ok(Progress::Partial)) => {}
            Some(Err(_)) | None => return false,
        }
        self.counters.late_from_root += 1;
        true
    }
}

/// The function that a configuration request is for; other requests are not for one by number.
fn config_function(packet: &Packet<&mut [u8]>) -> Option<u8> {
    match packet.tlp_type() {
        TlpType::CfgRd0 | TlpType::CfgWr0 => Some(packet.destination().routed_function()),
        _ => None,
    }
}
