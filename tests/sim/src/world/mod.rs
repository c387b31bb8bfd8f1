//! Everything at once: nodes, network, manager and oracles under one clock.

mod answers;
mod boxes;
mod causes;
mod check;
mod control;
#[cfg(test)]
mod crashes;
mod faults;
mod gates;
mod happened;
mod hosts;
mod links;
mod messages;
mod peers;
mod redirect;
mod returns;
mod room;
mod settle;
mod silence;
mod spin;
mod standing;
mod tables;
mod terms;
#[cfg(test)]
mod tests;

use crate::clock::{Agenda, OwnClock};
use crate::device::Medium;
use crate::director::{Director, Terms};
use crate::dress;
use crate::host::FUNCTIONS;
use crate::host::os::Alarm;
use crate::lender::Lender;
use crate::manager::Managed;
use crate::network::{Moved, Network};
use crate::oracle::binding::Bindings;
use crate::oracle::blocks::Drives;
use crate::oracle::counted::Counted;
use crate::oracle::spells::Spells;
use crate::oracle::wire::Wire;
use crate::oracle::{Verdict, Violation, bounds};
use crate::profile::{Fabric, Profile};
use crate::random::{Drawer, Random};
use crate::schedule::Entry;
use crate::trace::{Trace, What};
use boxes::BoxNode;
use causes::slot_of;
use control::Post;
use happened::Did;
use hosts::HostNode;
use links::Links;
use proxy_core::limits::{LONGEST_HOLD, MAX_FRAME, SYNTHESISED_COMPLETION};
use proxy_core::link::LinkConfig;
use proxy_core::role::Role;
use proxy_core::time::Instant;
use silence::Silences;
use spin::Spin;
use standing::Standstills;
use std::collections::BTreeSet;
use std::time::Duration;
use tables::Tables;

/// How often what is seen only by looking is looked at.
const CHECK: Duration = Duration::from_millis(50);
/// What a proxy is given beyond its bound: it acts when it is called.
const GRACE: Duration = Duration::from_millis(20);
/// Frames that wait at a proxy that stands still.
const BACKLOG: usize = 512;

/// Something that will happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A frame comes to its next place.
    Frame(u32),
    /// A timer of a node's role.
    Timer(usize),
    /// An entry of the schedule begins, or ends.
    Begin(usize),
    End(usize),
    /// An operating system wanted to be woken.
    Alarm {
        host: usize,
        alarm: Alarm,
    },
    /// A device has something to say.
    Device {
        at_box: usize,
        slot: usize,
    },
    /// A root complex that took only some classes takes all of them again, or answers again.
    RootTakes(usize),
    /// A control message is where it was sent.
    Message(u32),
    /// The manager's turn.
    Manager,
    /// Everything is looked at.
    Check,
    /// A proxy is there (again).
    Start(usize),
    /// A proxy that stood still goes on.
    Thaw(usize),
    /// A proxy connects to the manager (again).
    Connect(usize),
    /// A proxy that has its tables still writes them.
    Restore(usize),
    /// A proxy leaves its manager for the one that is in charge.
    Redial(usize),
}

/// What every node has.
#[derive(Default)]
pub(crate) struct Life {
    incarnation: u32,
    clock: OwnClock,
    /// Until when it stands still.
    frozen: Option<Instant>,
    /// Since when.
    froze: Option<Instant>,
    /// From when to when it stood still before.
    stood_still: Vec<(Instant, Instant)>,
    /// Frames that came meanwhile.
    backlog: Vec<u32>,
    /// Control messages that came meanwhile.
    unread: Vec<u32>,
    /// When its timer is planned.
    timer: Option<Instant>,
    spin: Spin,
    /// What it has to have counted.
    counted: Counted,
    connected: bool,
    /// The highest term that it was asked under.
    term: u64,
    tables: Tables,
}

impl Life {
    /// How long of a time until now it stood still.
    fn stood_still(&self, since: Instant, now: Instant) -> Duration {
        let all = self.stood_still.iter().copied().chain(self.froze.map(|froze| (froze, now)));
        all.map(|(from, to)| to.min(now).saturating_since(from.max(since))).sum()
    }
}

/// Whether one of two nodes stood still, or the device that they are about took nothing, for so much of
/// the time since then that this explains that a request's time ran out. Neither has to be long enough
/// by itself: what waited for the one may meet the other.
fn stood_long(
    lives: &[Life],
    nodes: [usize; 2],
    device: &Spells,
    since: Instant,
    now: Instant,
) -> bool {
    let still: Duration = nodes.map(|node| lives[node].stood_still(since, now)).into_iter().sum();
    let still = still + device.stuck_for(since, now);
    !still.is_zero() && still >= silence::enough(since, now)
}

/// The fabric.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) profile: Profile,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) trace: Trace,
    network: Network,
    silences: Silences,
    standstills: Standstills,
    links: Links,
    /// Bindings of which something came that was changed under a right CRC of its frame: to whom,
    /// from whom, slot and epoch.
    lied: BTreeSet<(usize, usize, usize, u32)>,
    hosts: Vec<HostNode>,
    boxes: Vec<BoxNode>,
    drives: Drives,
    lives: Vec<Life>,
    bindings: Bindings,
    /// What is sent, and under which terms.
    wire: Wire,
    lender: Lender,
    post: Post,
    schedule: Vec<Entry>,
    /// When the schedule began; it does when everything was lent once.
    began: Option<Instant>,
    requests: u64,
    frame: Vec<u8>,
    tlp: Vec<u8>,
    /// What came, by its kinds.
    pub(crate) came: dress::Counts,
    did: Did,
    held: Vec<Option<crate::network::InFlight>>,
    /// What a request may take, besides the time that the proxy which is to end it stands still.
    bound: Duration,
    /// How long hosts' proxies wait for a device that takes nothing.
    hold: Duration,
    /// Events that happened.
    pub(crate) steps: u64,
}

impl World {
    pub(crate) fn new(seed: u64, profile: &Profile, schedule: Vec<Entry>) -> Self {
        let fabric = &profile.fabric;
        let lendings = lendings(profile);
        let spare = fabric.spare.min(1);
        let ports = lendings.iter().map(|l| l.1 + 1 + spare).max().unwrap_or(1);
        let nodes = fabric.hosts + fabric.boxes;
        let agenda = Agenda::new();
        let lender = if fabric.manager {
            let (sizes, now) = ((ports, fabric.slots), agenda.now());
            let (network, terms) = ((fabric.paths, fabric.frame), Terms::new(seed, fabric));
            let managed = Managed::new(now, fabric.hosts, &lendings, sizes, network, terms);
            Lender::Manager(Box::new(managed.roaming(fabric.roams).leasing(fabric.lease_ms)))
        } else {
            let lendings = lendings.into_iter();
            let (terms, frame) = (Terms::new(seed, fabric), fabric.frame);
            let director = Director::new(fabric.hosts, fabric.boxes, lendings, frame, terms);
            Lender::Director(Box::new(director.roaming(fabric.roams)))
        };
        let media = drives(fabric);
        let drives = Drives::new(media.iter().cloned());
        let host = |n| HostNode::new(seed, n, ports * FUNCTIONS, profile, drives.clone());
        let a_box = |n| {
            let slots = n * fabric.drives..(n + 1) * fabric.drives;
            BoxNode::new(seed, n, profile, &media[slots])
        };
        let mut world = Self {
            seed,
            profile: profile.clone(),
            agenda,
            trace: Trace::new(),
            network: Network::new(seed, fabric, profile.always),
            silences: Silences::new(nodes),
            standstills: Standstills::default(),
            links: Links::new(nodes),
            lied: BTreeSet::new(),
            hosts: (0..fabric.hosts).map(host).collect(),
            boxes: (0..fabric.boxes).map(a_box).collect(),
            drives,
            lives: (0..nodes).map(|_| Life::default()).collect(),
            bindings: Bindings::default(),
            wire: Wire::new(fabric.paths),
            lender,
            post: Post::new(seed),
            schedule,
            began: None,
            requests: 0,
            frame: vec![0; MAX_FRAME],
            tlp: vec![0; MAX_FRAME],
            held: Vec::new(),
            came: dress::Counts::default(),
            did: Did::default(),
            bound: SYNTHESISED_COMPLETION + GRACE + room::longest_stall(&profile.work) * 3,
            hold: hold(seed, fabric),
            steps: 0,
        };
        for node in 0..nodes {
            // One after the other: the manager numbers them as they come.
            let at = world.agenda.now() + Duration::from_millis(10 * node as u64);
            world.agenda.plan(at, Event::Start(node));
        }
        world.agenda.plan(world.agenda.now(), Event::Check);
        world.agenda.plan(world.agenda.now(), Event::Manager);
        world
    }

    pub(crate) fn now(&self) -> Instant {
        self.agenda.now()
    }

    /// What the clock of a node's proxy shows.
    fn local(&self, node: usize) -> Instant {
        self.lives[node].clock.at(self.agenda.now())
    }

    /// Lets the next thing happen. `false`: nothing more until then.
    pub(crate) fn step(&mut self, until: Instant) -> Verdict<bool> {
        let Some(event) = self.agenda.pop(until) else {
            self.agenda.jump(until);
            return Ok(false);
        };
        self.steps += 1;
        match event {
            Event::Frame(number) => self.frame(number)?,
            Event::Timer(node) => {
                let now = self.now();
                if self.lives[node].timer == Some(now) {
                    self.lives[node].timer = None;
                    self.pump(node)?;
                }
            }
            Event::Begin(index) => self.begin(index)?,
            Event::End(index) => self.end(index)?,
            Event::Alarm { host, alarm } => {
                let now = self.now();
                self.hosts[host].os.alarm(now, alarm);
                self.pump(host)?;
            }
            Event::Device { at_box, slot } => {
                let now = self.now();
                self.boxes[at_box].slots[slot].wakes = None;
                self.boxes[at_box].slots[slot].device.wake(now);
                self.pump(self.hosts.len() + at_box)?;
            }
            Event::RootTakes(host) => {
                self.hosts[host].takes_again = None;
                self.pump(host)?;
            }
            Event::Message(number) => self.message(number)?,
            Event::Manager => self.manager_turn()?,
            Event::Check => {
                self.check()?;
                self.agenda.plan(self.now() + CHECK, Event::Check);
            }
            Event::Start(node) => self.start(node)?,
            Event::Thaw(node) => self.thaw(node)?,
            Event::Connect(node) => self.connect(node)?,
            Event::Restore(node) => self.restore(node)?,
            Event::Redial(node) => {
                if self.role(node).is_some() {
                    self.redial(node);
                }
            }
        }
        Ok(true)
    }

    fn frame(&mut self, number: u32) -> Verdict {
        match self.network.step(self.agenda.now(), number) {
            Moved::Goes(next) => {
                for (at, number) in next.into_iter().flatten() {
                    self.agenda.plan(at, Event::Frame(number));
                }
                Ok(())
            }
            Moved::Lost(flight, why) => {
                let node = flight.to as u16 + 1;
                self.trace.lost(self.agenda.now(), node, why.why(), &flight.bytes);
                self.silences.lost(flight.from, flight.to);
                self.network.recycle(flight);
                Ok(())
            }
            Moved::Arrived(flight) => {
                let life = &mut self.lives[flight.to];
                if life.frozen.is_some() {
                    if life.backlog.len() < BACKLOG {
                        life.backlog.push(self.held.len() as u32);
                        self.held.push(Some(flight));
                    }
                    return Ok(());
                }
                self.arrived(flight)
            }
        }
    }

    fn arrived(&mut self, flight: crate::network::InFlight) -> Verdict {
        let (now, to) = (self.agenda.now(), flight.to);
        let local = self.local(to);
        self.trace.note(now, to as u16 + 1, What::FrameCame, &flight.bytes);
        self.silences.came(now, flight.from, to);
        self.wire.came(flight.from, to, flight.path);
        self.lives[to].spin.moved();
        if self.role(to).is_some() {
            self.note_harm(now, &flight);
        }
        if let Some(role) = self.role(to) {
            if flight.marked {
                role.handle_marked_frame(local, &flight.bytes);
            } else {
                role.handle_frame(local, &flight.bytes);
            }
            self.lives[to].counted.give(&flight.harm);
        }
        self.network.recycle(flight);
        self.pump(to)
    }

    /// Before a proxy is given a frame: what it has heard, and of which bindings that may be wrong.
    fn note_harm(&mut self, now: Instant, flight: &crate::network::InFlight) {
        let (from, to, harm) = (flight.from, flight.to, &flight.harm);
        if harm.flipped.is_empty() {
            self.links.came(now, from, to);
        }
        let lied = harm.lies.iter().map(|key| (to, from, slot_of(key), key.epoch.bits()));
        self.lied.extend(lied);
    }

    fn role(&mut self, node: usize) -> Option<&mut dyn Role> {
        let hosts = self.hosts.len();
        if node < hosts {
            self.hosts[node].role.as_mut().map(|role| role as &mut dyn Role)
        } else {
            self.boxes[node - hosts].role.as_mut().map(|role| role as &mut dyn Role)
        }
    }

    /// Lets a node do everything that it can do now.
    pub(crate) fn pump(&mut self, node: usize) -> Verdict {
        if self.lives[node].frozen.is_some() {
            return Ok(());
        }
        let local = self.local(node);
        let due =
            self.role(node).and_then(|role| role.poll_timeout()).is_some_and(|at| at <= local);
        if due && let Some(role) = self.role(node) {
            role.handle_timeout(local);
        }
        loop {
            self.listen(node)?;
            let hosts = self.hosts.len();
            let busy =
                if node < hosts { self.pump_host(node)? } else { self.pump_box(node - hosts)? };
            if !(busy | self.transmit(node)?) {
                break;
            }
            self.lives[node].spin.moved();
        }
        self.check_held(node)?;
        self.plan_timer(node)
    }

    /// Hands the network what a node has to send.
    fn transmit(&mut self, node: usize) -> Verdict<bool> {
        let Self { hosts, boxes, network, agenda, trace, frame, wire, links, lives, .. } = self;
        let now = agenda.now();
        let local = lives[node].clock.at(now);
        let role: Option<&mut dyn Role> = match hosts.get_mut(node) {
            Some(host) => host.role.as_mut().map(|role| role as &mut dyn Role),
            None => boxes[node - hosts.len()].role.as_mut().map(|role| role as &mut dyn Role),
        };
        let Some(role) = role else { return Ok(false) };
        let mut any = false;
        while let Some(out) = role.poll_transmit(local, frame) {
            any = true;
            let (bytes, path) = (&frame[..out.len], out.path.get());
            let to = out.peer.get();
            wire.sent(local, (node, usize::from(to) - 1), bytes)?;
            links.sent(now, node, usize::from(to) - 1);
            trace.note(now, node as u16 + 1, What::FrameSent, bytes);
            trace.capture(now, node as u16 + 1, to, path, bytes);
            if let Some(number) = network.send(node, usize::from(to) - 1, path, bytes) {
                agenda.plan(now, Event::Frame(number));
            }
        }
        bounds::check_frames(network.in_flight(), hosts.len() * boxes.len())?;
        Ok(any)
    }

    fn plan_timer(&mut self, node: usize) -> Verdict {
        let now = self.now();
        let Some(at) = self.role(node).and_then(|role| role.poll_timeout()) else { return Ok(()) };
        let life = &mut self.lives[node];
        let at = life.clock.when(at);
        let at = life.spin.plan(now, at).map_err(|spins| {
            Violation::new(spins.promise, format!("node {}: {}", node + 1, spins.what))
        })?;
        if at < Instant::FAR_FUTURE
            && life.timer.is_none_or(|planned| at < planned || planned <= now)
        {
            life.timer = Some(at);
            self.agenda.plan(at, Event::Timer(node));
        }
        Ok(())
    }
}

/// How long the hosts' proxies of a seed wait for a device that takes nothing.
fn hold(seed: u64, fabric: &Fabric) -> Duration {
    let mut random = Random::stream(seed, Drawer::Hold, 0);
    let drawn = (!fabric.hold_ms.is_empty())
        .then(|| fabric.hold_ms[random.below(fabric.hold_ms.len() as u64) as usize]);
    drawn.map_or(LONGEST, Duration::from_millis)
}

/// A card waits longer than for an answer, of which it awaits few at a time: a device that answers
/// nothing has room again when they are over.
const LONGEST: Duration = if cfg!(dxpu_limits = "card") {
    SYNTHESISED_COMPLETION.saturating_mul(3).checked_div(2).unwrap()
} else {
    LONGEST_HOLD
};

/// What is asked of a device by a card may wait so much longer than profiles say: for one of its few tags,
/// which a device that answers late keeps.
const FOR_TAGS: Duration = if cfg!(dxpu_limits = "card") {
    SYNTHESISED_COMPLETION.saturating_mul(4)
} else {
    Duration::ZERO
};

/// The drives of a box's slots: serial number, bytes of a block, medium.
fn drives(fabric: &Fabric) -> Vec<(String, usize, Medium)> {
    let slots = (0..fabric.boxes).flat_map(|b| (0..fabric.drives).map(move |s| (b, s)));
    let drive = |(at_box, slot): (usize, usize)| {
        let block = if (at_box + slot) % 2 == 0 { 512 } else { 4096 };
        (format!("SIM-B{at_box}S{slot}"), block, Medium::new())
    };
    slots.map(drive).collect()
}

/// Which slot is for which port: host, port, box, slot. Round the hosts; where slots roam, each has
/// a port of every host. The last ones are spare.
fn lendings(profile: &Profile) -> Vec<(usize, usize, usize, usize)> {
    let fabric = &profile.fabric;
    let port = |n: usize| if fabric.roams { n } else { n / fabric.hosts };
    let slots = (0..fabric.boxes * fabric.slots).map(|n| (n / fabric.slots, n % fabric.slots));
    let lend = |(n, (at_box, slot))| (n % fabric.hosts, port(n), at_box, slot);
    let lent = fabric.boxes * fabric.slots - fabric.spare;
    slots.enumerate().take(lent).map(lend).collect()
}

/// The links of a fabric's proxies.
fn link_config(profile: &Profile, channels: usize) -> LinkConfig {
    LinkConfig {
        max_frame: profile.fabric.frame,
        paths: profile.fabric.paths,
        channels: channels.clamp(1, proxy_core::limits::MAX_CHANNELS),
        shared_receive: profile.fabric.shared_buffers,
        shared_send: profile.fabric.shared_buffers,
        ..LinkConfig::default()
    }
}
