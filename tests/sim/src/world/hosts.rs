//! A host in the world: its proxy, its root complex, and the oracles between the two.

use super::boxes::SlotNode;
use super::gates::{self, Gates};
use super::messages::{self, Wires};
use super::returns::{Causes, came_back};
use super::room::{Room, no_room};
use super::{World, link_config, stood_long};
use crate::device::Manner;
use crate::dress;
use crate::egress::Egress;
use crate::host::driver::Failure;
use crate::host::memory::is_nowhere;
use crate::host::os::{Os, Then};
use crate::host::root::{Answer, Root};
use crate::host::{Asker, FUNCTIONS, Purpose, all_of, first, host_name, port_name};
use crate::oracle::blocks::Drives;
use crate::oracle::completion::Requests;
use crate::oracle::order::{STRAY, Seen};
use crate::oracle::said::{REMEMBERED, Said, digest_to};
use crate::oracle::spells::Spells;
use crate::oracle::tags::Tags;
use crate::oracle::{Verdict, Violation};
use crate::profile::Profile;
use crate::random::Drawer;
use crate::trace::What;
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::LINK_GIVE_UP;
use proxy_core::switch::{ResetKind, SwitchConfig};
use proxy_core::time::Instant;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{Class, Packet, TlpType};

/// How often in the time that its proxy waits for a device the root complex asks it to take the same.
const AGAIN: u32 = 4;
/// What it is given beyond that: the root complex may take nothing itself for a while.
const FRONT: Duration = Duration::from_millis(200);

/// A host.
pub(crate) struct HostNode {
    /// Its proxy; nothing while that is dead.
    pub(crate) role: Option<HostRole>,
    pub(crate) os: Os,
    pub(crate) out: Egress<Purpose>,
    pub(crate) requests: Requests<Asker>,
    /// The binding of each port.
    pub(crate) ports: Vec<Option<usize>>,
    /// The binding whose device the operating system let go of last.
    pub(super) let_go_of: Option<usize>,
    pub(super) root: Root,
    /// When the root complex misbehaved, what it said while it lied, and the last request that each port's
    /// device asked it under each tag.
    pub(super) spells: Spells,
    pub(super) said: Said,
    asked: BTreeMap<(usize, u16), u64>,
    pub(super) wires: Wires,
    /// What the ports let pass.
    pub(super) gates: Gates,
    /// What the root complex takes.
    pub(super) room: Room,
    /// Whether what devices asked of it has to wait for its answers.
    answers: Room,
    /// Requests of devices for others that it passes on, by port and tag.
    pub(super) passes: BTreeMap<(usize, u16), u64>,
    /// When it takes everything again, or answers, if that is planned.
    pub(super) takes_again: Option<Instant>,
    /// How long its proxy waits for a device that takes nothing.
    hold: Duration,
    /// After how long of a device that does so it may give up: what the network held up before counts,
    /// too, but where a proxy is told to wait for less than a link does.
    pub(super) patience: Duration,
    /// Since when the first of what the root complex has for its proxy is posted and waits.
    front: Option<Instant>,
}

impl HostNode {
    pub(super) fn new(
        seed: u64,
        index: usize,
        ports: usize,
        profile: &Profile,
        drives: Drives,
    ) -> Self {
        Self {
            role: None,
            os: Os::new((seed, index), ports, profile, drives),
            out: Egress::new(),
            requests: Requests::new(),
            ports: vec![None; ports],
            let_go_of: None,
            root: Root::new(seed, index, profile.work.dress),
            spells: Spells::default(),
            said: Said::default(),
            asked: BTreeMap::new(),
            wires: Wires::default(),
            gates: Gates::new(ports),
            room: Room::new(seed, Drawer::RootStall, index as u64),
            answers: Room::new(seed, Drawer::RootAnswers, index as u64),
            passes: BTreeMap::new(),
            takes_again: None,
            hold: Duration::ZERO,
            patience: Duration::ZERO,
            front: None,
        }
    }

    /// A proxy without tables.
    pub(super) fn start(&mut self, incarnation: u32, profile: &Profile, hold: Duration) {
        self.hold = hold;
        let network = if profile.fabric.hold_ms.is_empty() { LINK_GIVE_UP } else { Duration::ZERO };
        self.patience = hold.saturating_sub(network);
        let ports = (self.ports.len() / FUNCTIONS) as u8;
        let switch = SwitchConfig { ports, ..SwitchConfig::default() };
        let config = HostConfig {
            incarnation,
            switch,
            link: link_config(profile, self.ports.len()),
            peers: profile.fabric.boxes,
            longest_hold: hold,
            ..HostConfig::default()
        };
        let mut role = HostRole::new(&config).expect("a switch that can be made");
        role.set_root_complex(true);
        self.role = Some(role);
        self.boot();
    }

    /// The root complex begins anew: nothing is outstanding, and the operating system starts.
    pub(super) fn boot(&mut self) {
        self.out.clear();
        self.requests.forget();
        self.root.forget();
        self.asked.clear();
        self.room.forget();
        self.answers.forget();
        self.passes.clear();
        self.wires.reset();
        self.gates.reset();
        self.front = None;
        self.os.boot();
    }

    /// The manners of its root complex change, towards what devices ask of it.
    pub(super) fn set_manner(&mut self, now: Instant, manner: Manner) {
        self.root.set_manner(manner);
        self.spells.turn(now, manner.fault());
    }

    /// What is posted to one device waits for it no longer than the proxy is to: nothing may pass it.
    pub(super) fn check_front(&self, now: Instant, still: impl Fn(Instant) -> Duration) -> Verdict {
        // Without a proxy there is nobody who could take it.
        let Some(front) = self.front.filter(|_| self.role.is_some()) else { return Ok(()) };
        let bound = self.hold + self.hold / AGAIN + FRONT + still(front);
        if now.saturating_since(front) <= bound {
            return Ok(());
        }
        Err(Violation::new(0, format!("what is posted at a root complex waits since {front:?}")))
    }

    /// It begins anew without a word to anybody: with PERST# from the root complex, or only another
    /// operating system, to which the root complex brings what its predecessor asked for.
    pub(super) fn reboot(&mut self, local: Instant, perst: bool) {
        if !perst {
            return self.os.take_over();
        }
        if let Some(role) = &mut self.role {
            role.handle_reset(local, ResetKind::Fundamental);
            // As a front-end says it: this one is gone, and there is the next.
            role.set_root_complex(false);
            role.set_root_complex(true);
        }
        self.boot();
    }
}

/// Whether a request is for a device's memory, and not for a function by its number.
fn goes_by_address(tlp: &[u8]) -> bool {
    let packet = Packet::new_checked(tlp).expect("own TLP");
    let by_number = matches!(packet.tlp_type(), TlpType::CfgRd1 | TlpType::CfgWr1);
    packet.class() != Some(Class::Completion) && !by_number
}

impl World {
    /// Whether anything happened.
    pub(super) fn pump_host(&mut self, index: usize) -> Verdict<bool> {
        if self.hosts[index].role.is_none() {
            return Ok(false);
        }
        let mut busy = self.tell_proxy(index)?;
        busy |= self.hear_proxy(index)?;
        self.plan_root(index);
        self.settle_ports(index);
        self.check_failures(index)?;
        let now = self.now();
        for (at, alarm) in std::mem::take(&mut self.hosts[index].os.alarms) {
            self.agenda.plan(at.max(now), super::Event::Alarm { host: index, alarm });
        }
        Ok(busy)
    }

    /// Hands the proxy what the root complex has for it.
    fn tell_proxy(&mut self, index: usize) -> Verdict<bool> {
        let local = self.local(index);
        let Self { hosts, boxes, bindings, agenda, trace, requests: numbers, profile, .. } = self;
        let HostNode {
            role,
            os,
            out,
            requests,
            ports,
            let_go_of,
            answers,
            patience,
            front,
            root,
            spells,
            said,
            asked,
            gates,
            ..
        } = &mut hosts[index];
        let Some(role) = role else { return Ok(false) };
        let now = agenda.now();
        os.work(now, out, profile)?;
        if root.wake(now, out) {
            spells.was_late(now);
        }
        let taken = out.offer(|waiting| {
            let own = !matches!(waiting.mark, Purpose::PassedOn { .. });
            if waiting.class == Class::NonPosted && own {
                let Some(tag) = requests.free_tag() else { return Ok(false) };
                dress::set_tag(&mut waiting.bytes, Tag::new(tag).expect("8 bits"));
            }
            let is_answer = matches!(waiting.mark, Purpose::Answer { .. } | Purpose::Lie);
            if is_answer && answers.stalls(now, &profile.work) {
                return Ok(false);
            }
            let to_all = matches!(waiting.mark, Purpose::Broadcast);
            let lost = to_all.then(|| messages::broadcasts_lost(role));
            if role.handle_tlp(local, &waiting.bytes).is_err() {
                return Ok::<bool, Infallible>(false);
            }
            trace.note(now, index as u16 + 1, What::TlpIn, &waiting.bytes);
            if let Some(lost) = lost {
                let seen = Seen::of(&waiting.bytes).expect("own TLP");
                let lost = messages::broadcasts_lost(role) > lost;
                messages::broadcast((now, *patience), seen, ports, (bindings, boxes), lost);
            }
            if let Purpose::PassedOn { from, port, to, request, optional } = waiting.mark {
                if let Some(from) = from {
                    // It may have waited until another one was there.
                    let optional = optional || bindings.is_upset(to);
                    let seen = Seen::of(&waiting.bytes).expect("it was looked at when it came");
                    bindings.passed_on(now, (seen, request), (from, port), ports[port], optional);
                }
                return Ok(true);
            }
            let device = waiting.mark.device();
            let shut = device.is_some_and(|port| !gates.lets_down(port))
                && gates::needs_window(&waiting.bytes);
            if shut {
                let request = (waiting.class == Class::NonPosted).then(|| {
                    *numbers += 1;
                    requests.ask(now, &waiting.bytes, *numbers, (waiting.mark, None));
                    *numbers
                });
                gates.refuse(request);
                return Ok(true);
            }
            let (binding, mut request) = match waiting.mark {
                // What asked for it may be from before the port was bound anew.
                Purpose::Answer { binding, request } => (Some(binding), request),
                _ => (device.and_then(|port| ports[port]), 0),
            };
            if waiting.class == Class::NonPosted {
                *numbers += 1;
                request = *numbers;
                requests.ask(now, &waiting.bytes, request, (waiting.mark, binding));
            }
            if let Purpose::Access { then: Then::BusReset { behind }, .. } = waiting.mark {
                ports[all_of(behind)]
                    .iter()
                    .flatten()
                    .for_each(|bound| bindings.get(*bound).reset_begins());
            }
            if let Purpose::Access { then: Then::AccessControl { behind, bits }, .. } = waiting.mark
            {
                bindings.access.set(now, (index, behind), bits);
            }
            if let Purpose::Access { then: Then::Gate { behind, write, .. }, .. } = waiting.mark {
                gates::written(now, gates, ports, bindings, (behind, write));
            }
            if let Purpose::Access { port, then: Then::LetGo | Then::GaveUp, .. } = waiting.mark {
                *let_go_of = ports[port];
            }
            let is_lie = matches!(waiting.mark, Purpose::Lie);
            if is_lie || is_answer && spells.lied_within(REMEMBERED, now) {
                let packet = Packet::new_checked(&waiting.bytes[..]).expect("own TLP");
                let tag = packet.tag().get();
                let last =
                    os.layout().port_of(packet.requester()).and_then(|p| asked.get(&(p, tag)));
                // What is right is a lie, too, where another one is asked under its tag by now.
                if is_lie || last.is_some_and(|last| *last != request) {
                    spells.lied(now);
                }
                let seen = Seen::of(&waiting.bytes).expect("own TLP");
                said.note(now, digest_to(packet.requester(), &seen));
            }
            let Some(binding) = binding.map(|b| bindings.get(b)) else { return Ok(true) };
            let seen = Seen::of(&waiting.bytes).expect("own TLP");
            let further = binding.slot != first(binding.slot);
            let unplaced = further && !binding.placed && goes_by_address(&waiting.bytes);
            let stuck = boxes[binding.at_box].slots[binding.slot].spells.gives_up(now, *patience);
            binding.sent_down(now, seen.unplaced(unplaced), request, stuck);
            if let Purpose::Answer { binding, request } = waiting.mark
                && seen.last
                && !stuck
            {
                bindings.answered(now, binding, request);
            }
            Ok(true)
        });
        let taken = taken.unwrap_or_default();
        let waits = out.front().is_some_and(|waiting| waiting.class == Class::Posted);
        *front = waits.then(|| front.filter(|_| !taken).unwrap_or(now));
        Ok(taken)
    }

    /// A root complex that stands still goes on by itself.
    fn plan_root(&mut self, index: usize) {
        let now = self.now();
        let host = &mut self.hosts[index];
        // What the proxy does not take it is asked to again and again, as a front-end does.
        let again = (host.out.len() > 0).then(|| now + host.hold / AGAIN);
        let until = [host.room.until(), host.answers.until(), host.root.next_at(), again];
        let until = until.into_iter().flatten();
        let until = until.filter(|until| *until > now).min();
        if let Some(at) = until
            && host.takes_again.is_none_or(|planned| at < planned || planned <= now)
        {
            host.takes_again = Some(at);
            self.agenda.plan(at, super::Event::RootTakes(index));
        }
    }

    /// Takes what the proxy has for the root complex.
    fn hear_proxy(&mut self, index: usize) -> Verdict<bool> {
        let mut any = false;
        let mut tlp = std::mem::take(&mut self.tlp);
        let local = self.local(index);
        let result = loop {
            let now = self.now();
            let HostNode { role: Some(role), room, requests, .. } = &mut self.hosts[index] else {
                break Ok(any);
            };
            let work = &self.profile.work;
            let takes = room.of(now, work, requests.live() > 0);
            let Some(length) = role.poll_tlp_of(local, takes, &mut tlp) else { break Ok(any) };
            let class = Packet::new_checked(&tlp[..length]).ok().and_then(|packet| packet.class());
            let class = class.unwrap_or(Class::Posted);
            if !takes.contains(class) {
                break no_room(class);
            }
            room.took(class);
            any = true;
            if let Err(violation) = self.at_root(index, &tlp[..length]) {
                break Err(violation);
            }
        };
        self.tlp = tlp;
        result
    }

    pub(super) fn at_root(&mut self, index: usize, tlp: &[u8]) -> Verdict {
        if self.is_passed_on(index, tlp)? {
            return Ok(());
        }
        let kept = self.peers_kept_from_root(index, tlp);
        let Self { hosts, boxes, bindings, agenda, trace, silences, network, came, lives, .. } =
            self;
        let boxes_from = hosts.len();
        let HostNode {
            os, out, requests, ports, root, asked: by_tag, wires, gates, patience, ..
        } = &mut hosts[index];
        let now = agenda.now();
        trace.note(now, index as u16 + 1, What::TlpOut, tlp);
        let Some(seen) = Seen::of(tlp) else {
            return Err(Violation::new(1, "a root complex got what is no TLP"));
        };
        let packet = Packet::new_checked(tlp).expect("looked at just now");
        came.came(&packet, true);
        if seen.class == Class::Completion {
            let asked = requests.of(tlp)?;
            let mut doubtful = false;
            gates.came_back(asked.request, tlp)?;
            if let Some(bound) = asked.purpose.1 {
                let waits = bindings.waits(asked.since, now, bound, asked.request);
                let binding = bindings.get(bound);
                let (since, at_box) = (asked.since, binding.at_box);
                let slots = &boxes[at_box].slots;
                let SlotNode { spells, .. } = &slots[binding.slot];
                // All functions are asked under the tags of their slot: each can answer for others.
                let functions = all_of(binding.slot);
                doubtful = slots[functions.clone()].iter().any(|s| s.spells.lies(since, now));
                let of_slot = || slots[functions.clone()].iter().map(|slot| &slot.tags);
                let no_tags = Tags::may_all_have_been_gone(of_slot(), since, now)
                    || spells.gives_up(since, *patience);
                let short = || Tags::may_be_short(of_slot());
                let other = boxes_from + at_box;
                let silence = || {
                    kept || stood_long(lives, [index, other], spells, waits.network, now)
                        || spells.keep(&waits, now, short)
                        || silences.explain(network, &waits, now, (index, other))
                };
                // All functions answer under the tags of their slot.
                let said =
                    || slots[functions.clone()].iter().any(|s| s.said.since(since, seen.digest));
                let said = &said;
                let causes = Causes { since, now, doubtful, said, no_tags, silence: &silence };
                came_back(binding, tlp, seen, asked.request, &causes)?;
            }
            let done = requests.complete(tlp, doubtful)?;
            if done.last {
                bindings.progress.ended(asked.request);
            }
            let payload = packet.payload();
            return match done.asked.purpose.0 {
                Purpose::Driver { port, life, question, .. } => {
                    os.answered(now, (port, life), question, &done, payload)
                }
                Purpose::Access { port, boot, then, .. } => {
                    os.accessed(now, (port, boot), then, &done, payload);
                    Ok(())
                }
                _ => Ok(()),
            };
        }
        if matches!(packet.tlp_type(), TlpType::Msg(_) | TlpType::MsgD(_)) {
            return messages::at_root(&packet, seen, (os, ports, wires), bindings);
        }
        let port = os.layout().port_of(packet.requester());
        let Some(port) = port else { return os.written(&packet, None) };
        let Some(bound) = ports.get(port).copied().flatten() else {
            let port = port_name(port);
            let what = format!("a TLP of a device came from {port}, to which nothing is bound");
            return Err(Violation::new(2, what));
        };
        gates.came_up(port)?;
        let sent = bindings.get(bound).up.deliver(seen, None)?;
        if seen.class == Class::NonPosted {
            bindings.progress.reached(now, sent.request);
        }
        let strays = os.strays;
        if seen.class == Class::Posted {
            os.written(&packet, Some(port))?;
        } else {
            let request = sent.request;
            by_tag.insert((port, packet.tag().get()), request);
            let answer = Answer { binding: bound, request, payload: os.payload(port) };
            let there = root.answer(now, &packet, (port, answer), &mut os.memory, out)?;
            os.strays += u64::from(!there);
        }
        if os.strays > strays && sent.request != STRAY && !is_nowhere(packet.address()) {
            let what = format!(
                "a device was let through to {:#x}, which nobody gave it",
                packet.address()
            );
            return Err(Violation::new(2, what));
        }
        Ok(())
    }

    /// What a driver wants done succeeds, unless something happened to its binding.
    fn check_failures(&mut self, index: usize) -> Verdict {
        let Self { hosts, boxes, bindings, agenda, .. } = self;
        let now = agenda.now();
        let HostNode { os, ports, .. } = &mut hosts[index];
        for (port, binding) in ports.iter().enumerate() {
            let Some(Failure { since, what }) = os.take_failure(port) else { continue };
            let excused = binding.is_none_or(|binding| {
                let binding = bindings.get(binding);
                let spells = &boxes[binding.at_box].slots[binding.slot].spells;
                binding.excuses_failure(since, now, spells)
            });
            if !excused {
                let (host, port) = (host_name(index), port_name(port));
                return Err(Violation::new(3, format!("{host} {port}: {what}")));
            }
        }
        Ok(())
    }

    /// What the operating system did with its devices, for the bindings behind them.
    fn settle_ports(&mut self, index: usize) {
        let Self { hosts, bindings, .. } = self;
        let HostNode { os, ports, .. } = &mut hosts[index];
        for port in std::mem::take(&mut os.unsettled) {
            if let Some(binding) = ports[port] {
                bindings.get(binding).unsettle();
            }
        }
        for (port, binding) in ports.iter().enumerate() {
            if let Some(binding) = binding
                && os.take_settled(port)
            {
                bindings.get(*binding).settle();
            }
        }
    }
}
