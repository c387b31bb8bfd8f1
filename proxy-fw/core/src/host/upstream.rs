//! TLPs from devices towards the root complex.

use super::{CommandWrite, DeviceRequest, HostRequest, HostRole, ROOT_RESERVE, Watched};
use crate::bits::ones;
use crate::canaries::{Canary, planted};
use crate::limits::{OWN_TLP, SYNTHESISED_COMPLETION};
use crate::link::{ChannelId, ClassSet, Link, Taken, TlpMeta};
use crate::node::Target;
use crate::outstanding::{MOST_COMPLETIONS, Progress, RequestInfo, completions_at_most};
use crate::rewrite::rewrite;
use crate::stamps::{Stage, StampedTlp};
use crate::switch::UpstreamVerdict as Verdict;
use crate::time::Instant;
use tlp_codec::ids::{BindingKey, OutstandingRef, PortId, Tag};
use tlp_codec::tlp::{Class, CplStatus, Packet, TlpType};

/// What came with a TLP of a device.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) port: PortId,
    pub(super) key: BindingKey,
    pub(super) function: usize,
    pub(super) outstanding: Option<OutstandingRef>,
    pub(super) sampled: bool,
}

/// A request that a completion fits.
pub(super) struct Owed {
    /// As the completion leaves it.
    request: HostRequest,
    /// Whether more are owed.
    progress: Progress,
}

/// What becomes of a TLP of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes to the root complex.
    ToRoot,
    /// It is handed on, answered or dropped.
    Gone,
    /// There is no room for it where it goes.
    Waits,
}

impl HostRole {
    /// The next TLP for a root complex that takes any, written into `buf`, which holds
    /// [`TLP_BUFFER`](crate::limits::TLP_BUFFER) bytes; its length. Ports are served in turn.
    pub fn poll_tlp(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        self.poll_tlp_of(now, ClassSet::ALL, buf)
    }

    /// As [`poll_tlp`](Self::poll_tlp), of one of the classes that the root complex has room for. What
    /// it has none for is passed by what may (PCIe 5.0 table 2-40).
    pub fn poll_tlp_of(&mut self, now: Instant, room: ClassSet, buf: &mut [u8]) -> Option<usize> {
        self.synthesise(now);
        // What the switch itself says is posted or a completion. It waits for room of both, which a root
        // complex always has for completions (section 2.6.1), and nothing passes what is posted.
        if !room.contains(Class::Posted) || !room.contains(Class::Completion) {
            return None;
        }
        if planted(Canary::PassNothing) && room != ClassSet::ALL {
            return None;
        }
        if let Some(length) = self.to_root.pop(buf) {
            return Some(length);
        }
        let later = self.awake & u32::MAX.checked_shl(self.turn as u32).unwrap_or(0);
        for index in ones(later).chain(ones(self.awake & !later)) {
            if let Some(length) = self.poll_port(now, index, room, buf) {
                self.turn = index + 1;
                return Some(length);
            }
        }
        // Handling a device's TLP may have made the switch speak.
        self.to_root.pop(buf)
    }

    /// As [`poll_tlp`](Self::poll_tlp), but only of what the switch itself has to say: it takes no TLP
    /// of the root complex while much of that waits.
    pub fn poll_own(&mut self, buf: &mut [u8]) -> Option<usize> {
        self.to_root.pop(buf)
    }

    /// Whether [`poll_tlp`](Self::poll_tlp) may have a TLP: the switch has something to say, or
    /// one of a device is there, which may have to wait for room.
    pub fn may_poll(&self) -> bool {
        !self.to_root.is_empty() || self.node.has_received()
    }

    /// Whether a TLP between devices is held for lack of room, which
    /// [`poll_tlp`](Self::poll_tlp) tries again.
    pub fn holds_any(&self) -> bool {
        ones(self.awake).any(|index| !self.ports[index].held.is_empty())
    }

    fn poll_port(
        &mut self,
        now: Instant,
        index: usize,
        room: ClassSet,
        buf: &mut [u8],
    ) -> Option<usize> {
        self.retry_held(now, index);
        let count = self.ports[index].functions();
        let mut function = self.ports[index].turn;
        for _ in 0..count {
            if function >= count {
                function = 0;
            }
            let target = self.ports[index].target_of(function)?;
            while let Some(taken) = self.take_from(index, function, &target, room, buf) {
                let Taken { outstanding, length, .. } = taken;
                let port = PortId::new(index as u8).expect("at most 32 ports");
                let (key, sampled) = (target.key, taken.stamp.is_some());
                let origin = Origin { port, key, function, outstanding, sampled };
                if self.comes_through(now, origin, &taken, &mut buf[..length]) {
                    // What the others wait for is theirs next.
                    self.ports[index].turn = function + 1;
                    return Some(length);
                }
            }
            function += 1;
        }
        None
    }

    /// The next TLP of a function that may be handed on now.
    fn take_from(
        &mut self,
        index: usize,
        function: usize,
        target: &Target,
        room: ClassSet,
        buf: &mut [u8],
    ) -> Option<Taken> {
        if self.to_root.room() < ROOT_RESERVE {
            return None;
        }
        let port = &self.ports[index];
        let link = self.node.link(target.peer);
        let mut ready = port.held.passable().and(room);
        if port.is_flushed(function) {
            // What is dropped waits for nobody, and is taken as it came: nothing of it is left behind
            // an answer, and nothing is dropped that came behind one.
            let answers = ready.contains(Class::Completion);
            ready = if answers { ClassSet::ALL } else { ClassSet::NONE };
        } else if !port.upstream.has_room()
            || port.is_short(function)
            || !has_room_for_answers(link, target.channel)
        {
            ready = ready.without(Class::NonPosted);
        }
        link.take_received(target.channel, ready, buf)
    }

    /// Whether a TLP of a device is of before its reset: before it answered anything that it was asked
    /// since. A reset device asks nothing until its operating system has found it again, and order lets
    /// nothing of before stay behind that answer: what the box had queued is dropped there, and what
    /// is stored here is taken as it came. One that its host shares with others is not reset; to this
    /// host it is all the same, and nothing of it comes before the host has found it again.
    #[inline]
    fn is_stale(&self, origin: Origin, class: Class) -> bool {
        class != Class::Completion
            && self.ports[usize::from(origin.port.get())].is_flushed(origin.function)
    }

    /// Whether a TLP of a device, which may be changed on the way, goes to the root complex.
    fn comes_through(
        &mut self,
        now: Instant,
        origin: Origin,
        taken: &Taken,
        tlp: &mut [u8],
    ) -> bool {
        let Taken { class, outstanding, stamp, .. } = *taken;
        if let Some(id) = stamp {
            self.node.stamps.taken(id, tlp);
        }
        if self.is_stale(origin, class) {
            self.counters.stale_from_device += 1;
            return false;
        }
        let Some(packet) = self.node.malformed.as_said(tlp, class, outstanding) else {
            self.counters.malformed_from_device += 1;
            self.switch.report_malformed(Some(origin.port), tlp, &mut self.to_root);
            return false;
        };
        let reads = packet.tlp_type() == TlpType::MRd;
        let through = self.switch.passes_write(origin.port, &packet);
        let fate = match class {
            _ if through => Fate::ToRoot,
            Class::Completion => self.complete(now, origin, tlp),
            _ => self.request_from_device(now, origin, class, tlp),
        };
        let out = fate == Fate::ToRoot;
        if let Some(id) = stamp.filter(|_| out) {
            self.node.stamps.ends(id, Stage::Delivered);
        }
        if !(through || out && reads) {
            // A request that goes through is no event for the switch.
            self.process_switch_events(now);
        }
        out
    }

    /// A completion for a request of the host or of another device: gives it the requester's
    /// identity back; the switch decides. One that it refuses was never there: the request runs
    /// into its bound.
    fn complete(&mut self, now: Instant, origin: Origin, tlp: &mut [u8]) -> Fate {
        let mut packet = Packet::known(&mut *tlp);
        let Some(owed) = self.owed(origin, &packet) else { return Fate::Gone };
        let Owed { request, .. } = owed;
        if planted(Canary::LoseLateAnswer) && self.is_late(now, origin) {
            return Fate::Gone;
        }
        rewrite(&mut packet, |packet| {
            packet.set_requester(request.info.requester);
            if !planted(Canary::ForgetTag) {
                packet.set_tag(request.info.tag);
            }
        });
        match self.ask_switch(now, origin, tlp) {
            Verdict::ToRoot => {
                self.book(origin, &owed, tlp);
                Fate::ToRoot
            }
            // Without an asker it is the root complex's request on behalf of a device.
            Verdict::ToPort(to) if request.asker.is_none_or(|asker| asker == to) => {
                self.pass_to_peer(now, origin, to, Class::Completion, tlp);
                Fate::Gone
            }
            Verdict::ToPort(_) => {
                self.counters.unexpected_from_device += 1;
                Fate::Gone
            }
            Verdict::Consumed | Verdict::Discarded(_) => Fate::Gone,
        }
    }

    /// The request that a completion is for.
    fn request_of(&mut self, origin: Origin) -> Option<&mut HostRequest> {
        self.ports[origin.port.get() as usize].requests.get_mut(origin.outstanding?)
    }

    /// Whether half of the time of a completion's request is over.
    fn is_late(&self, now: Instant, origin: Origin) -> bool {
        let requests = &self.ports[usize::from(origin.port.get())].requests;
        let deadline = origin.outstanding.and_then(|reference| requests.deadline(reference));
        deadline.is_some_and(|deadline| now + SYNTHESISED_COMPLETION / 2 >= deadline)
    }

    /// The request that a completion fits, and what it does to it; if there is none, that is
    /// counted.
    pub(super) fn owed<T: AsRef<[u8]>>(
        &mut self,
        origin: Origin,
        completion: &Packet<T>,
    ) -> Option<Owed> {
        let Some(mut request) = self.request_of(origin).copied() else {
            self.counters.unexpected_from_device += 1;
            return None;
        };
        let progress = request.info.accept(completion);
        self.counters.mismatched_from_device += u64::from(progress.is_err());
        self.ports[usize::from(origin.port.get())].flushed &= !(1 << origin.function);
        progress.ok().map(|progress| Owed { request, progress })
    }

    /// Books a completion that was handed on; with the last one the request is over.
    pub(super) fn book(&mut self, origin: Origin, owed: &Owed, tlp: &[u8]) {
        if let Some(watched) = owed.request.watched {
            self.look_at_answer(origin.port, watched, tlp);
        }
        let over = owed.progress == Progress::Final && !planted(Canary::CompleteTwice);
        if let Some(reference) = origin.outstanding.filter(|_| over) {
            self.ports[origin.port.get() as usize].requests.remove(reference);
        } else if let Some(request) = self.request_of(origin) {
            request.info = owed.request.info;
        }
    }

    /// What a device answers to some configuration requests is of interest to others, too.
    fn look_at_answer(&mut self, port: PortId, watched: Watched, tlp: &[u8]) {
        let packet = Packet::known(tlp);
        if packet.status() != CplStatus::Success {
            return;
        }
        match watched {
            Watched::Command(CommandWrite { function, value, enables }) => {
                let command = (value, enables);
                self.switch.command_written(port, function, command, &mut self.to_root);
            }
            Watched::Bar(bar) => {
                if let Ok(value) = packet.payload().try_into() {
                    self.ports[port.get() as usize].bar_read(bar, u32::from_le_bytes(value));
                }
            }
        }
    }

    /// A request or message of a device: the switch decides.
    fn request_from_device(
        &mut self,
        now: Instant,
        origin: Origin,
        class: Class,
        tlp: &mut [u8],
    ) -> Fate {
        match self.ask_switch(now, origin, tlp) {
            Verdict::ToRoot => {
                self.take_tag(now, origin, tlp);
                Fate::ToRoot
            }
            Verdict::ToPort(to) => {
                self.pass_to_peer(now, origin, to, class, tlp);
                Fate::Gone
            }
            Verdict::Consumed | Verdict::Discarded(_) => Fate::Gone,
        }
    }

    fn ask_switch(&mut self, now: Instant, origin: Origin, tlp: &mut [u8]) -> Verdict {
        let Self { switch, to_root, bounce, .. } = self;
        let verdict = switch.handle_upstream(now, origin.port, tlp, to_root, bounce);
        self.send_bounced(now, origin);
        verdict
    }

    /// Gives a non-posted request of a device a tag of the port's own; the entry that has it.
    pub(super) fn take_tag(
        &mut self,
        now: Instant,
        origin: Origin,
        tlp: &mut [u8],
    ) -> Option<OutstandingRef> {
        let mut packet = Packet::known(tlp);
        let info = RequestInfo::of(&packet)?;
        let outstanding = origin.outstanding?;
        let Origin { key, function, sampled, .. } = origin;
        let entry = &mut self.ports[origin.port.get() as usize];
        let target = entry.target_of(function).filter(|target| target.key == key);
        let reserved = target.map_or(0, |Target { peer, channel, .. }| {
            self.node.link(peer).reserve(channel, Class::Completion, info.completions())
        });
        let request = DeviceRequest { info, key, outstanding, function, sampled, reserved };
        let deadline = now + self.completion_bound;
        let port = &mut self.ports[origin.port.get() as usize];
        let upstream = &mut port.upstream;
        // Only a port with room is asked for non-posted requests.
        let entry = upstream.insert(deadline, request).expect("has room");
        port.last[function] = entry.index;
        let tag = Tag::new(entry.index).expect("the table has at most 256 entries");
        rewrite(&mut packet, |packet| packet.set_tag(tag));
        Some(entry)
    }

    /// Makes that undone: the request was not sent, and has the tag that it came with.
    pub(super) fn give_tag_back(
        &mut self,
        origin: Origin,
        taken: Option<OutstandingRef>,
        tag: Tag,
        tlp: &mut [u8],
    ) {
        let index = usize::from(origin.port.get());
        if let Some(request) = taken.and_then(|entry| self.ports[index].upstream.remove(entry)) {
            self.keep_room(index, &request, 0);
        }
        let mut packet = Packet::known(tlp);
        rewrite(&mut packet, |packet| packet.set_tag(tag));
    }

    /// Whether so many completions towards the device have room.
    pub(super) fn can_answer(&mut self, origin: Origin, completions: u16) -> bool {
        self.ports[origin.port.get() as usize].target_of(origin.function).is_none_or(|target| {
            let link = self.node.link(target.peer);
            link.can_reserve(target.channel, Class::Completion, completions.into())
        })
    }

    /// Of the room that is kept for the completions of a port's device's request, so much is kept
    /// further.
    pub(super) fn keep_room(&mut self, index: usize, request: &DeviceRequest, kept: u16) {
        let target = self.ports[index].target_of(request.function);
        if let Some(Target { peer, channel, .. }) = target.filter(|t| t.key == request.key) {
            let free = if planted(Canary::KeepRoom) { 0 } else { request.reserved - kept };
            self.node.link(peer).unreserve(channel, Class::Completion, free);
        }
    }

    /// Sends what the switch answered a device's request with back to the device.
    pub(super) fn send_bounced(&mut self, now: Instant, origin: Origin) {
        if self.bounce.is_empty() {
            return;
        }
        let mut buf = [0; OWN_TLP];
        while let Some(length) = self.bounce.pop(&mut buf) {
            let Some(target) = self.ports[origin.port.get() as usize].target_of(origin.function)
            else {
                continue;
            };
            let outstanding = origin.outstanding;
            let stamp = outstanding.filter(|_| origin.sampled).map(|entry| {
                let key = target.stamp_key(false, StampedTlp::Completion(entry));
                self.node.stamps.arrived(key, now)
            });
            let meta = TlpMeta { class: Class::Completion, outstanding, relaxed: false, stamp };
            // Room was checked before the request was taken; a dying link ends it at the box.
            let _ = self.node.link(target.peer).send_tlp(now, target.channel, meta, &buf[..length]);
        }
    }
}

/// Whether all completions of the request of a device that is next have room on its link.
fn has_room_for_answers(link: &Link, channel: ChannelId) -> bool {
    if link.send_room(channel, Class::Completion) >= MOST_COMPLETIONS {
        return true;
    }
    let next = link.first_received(channel, Class::NonPosted);
    next.is_some_and(|request| {
        link.can_reserve(channel, Class::Completion, completions_at_most(request))
    })
}
