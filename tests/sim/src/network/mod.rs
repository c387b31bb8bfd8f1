//! Switches with ports, queues, rates and delays, and frames on their way through them.
//!
//! Path `p` of every node is a plane of its own: the node's p-th network port leads to a switch of
//! plane `p`, and nothing leads from one plane to another. A plane is one switch, or two of them
//! (hosts at one, boxes at the other) with a cable between.

mod counts;
mod damage;
mod port;

use crate::profile::{Fabric, Trouble};
pub(crate) use counts::Loss;
use counts::{Counts, HeldUp};
use port::{Fate, Port};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::BindingKey;

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Its sender and its receiver, by index.
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) path: u8,
    pub(crate) bytes: Vec<u8>,
    /// A switch had a long queue (Congestion Experienced).
    pub(crate) marked: bool,
    pub(crate) harm: Harm,
    /// The ports that it still has to pass, last one first.
    hops: [u16; 3],
    left: u8,
    /// As which of all frames it was sent; and it is the second one of that number.
    number: u64,
    again: bool,
    /// How often its plane's switches had been rebooted when it set out.
    reboots: u32,
}

/// What was changed of a frame on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Harm {
    /// Bits of it, so that its CRC is wrong.
    pub(crate) flipped: Vec<usize>,
    /// TLPs in it, and its CRC made right again: the binding of each.
    pub(crate) lies: Vec<BindingKey>,
}

/// What comes of moving a frame on.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It comes to the next place then; under these numbers (a doubled one has two).
    Goes([Option<(Instant, u32)>; 2]),
    /// It is at its receiver.
    Arrived(InFlight),
    /// It is lost.
    Lost(InFlight, Loss),
}

/// What a fault concerns: some of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cables {
    /// What one node sends on one path.
    From { node: usize, path: u8 },
    /// What one node gets on one path.
    To { node: usize, path: u8 },
    /// Both directions of one node's path.
    Of { node: usize, path: u8 },
    /// Every cable of a plane.
    Plane { path: u8 },
}

impl Cables {
    /// Of a node's path what it sends, or what it gets.
    pub(crate) const fn one_way(node: usize, path: u8, sends: bool) -> Self {
        if sends { Self::From { node, path } } else { Self::To { node, path } }
    }
}

/// The network.
pub(crate) struct Network {
    nodes: usize,
    hosts: usize,
    paths: usize,
    tiers: usize,
    ports: Vec<Port>,
    reboots: Vec<u32>,
    flights: Vec<Option<InFlight>>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// Frames that set out, came, were lost, and were marked.
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    pub(crate) lost: u64,
    pub(crate) marked: u64,
    /// Of those that were lost, the ones that a cable did not carry which carried the other direction.
    pub(crate) lost_one_way: u64,
    counts: Counts,
}

impl Network {
    pub(crate) fn new(seed: u64, fabric: &Fabric, always: Trouble) -> Self {
        let (nodes, paths) = (fabric.hosts + fabric.boxes, fabric.paths);
        // From each node, to each node, and the two directions between a plane's switches.
        let count = nodes * paths * 2 + paths * 2;
        let ports = (0..count).map(|index| Port::new(seed, index, fabric.cable, always)).collect();
        Self {
            nodes,
            hosts: fabric.hosts,
            paths,
            tiers: fabric.tiers,
            ports,
            reboots: vec![0; paths],
            flights: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            sent: 0,
            arrived: 0,
            lost: 0,
            marked: 0,
            lost_one_way: 0,
            counts: Counts::new(nodes * nodes * paths),
        }
    }

    fn leaving(&self, node: usize, path: usize) -> usize {
        node * self.paths + path
    }

    fn reaching(&self, node: usize, path: usize) -> usize {
        (self.nodes + node) * self.paths + path
    }

    fn between(&self, path: usize, from_hosts: bool) -> usize {
        self.nodes * self.paths * 2 + path * 2 + usize::from(from_hosts)
    }

    /// The other direction of a cable.
    fn opposite(&self, port: usize) -> usize {
        let ends = self.nodes * self.paths;
        match port {
            _ if port < ends => port + ends,
            _ if port < 2 * ends => port - ends,
            _ => 2 * ends + ((port - 2 * ends) ^ 1),
        }
    }

    /// Since when a path between two nodes is whole in both directions, if it is: everything passes,
    /// in its time, but for what is lost by itself now and then.
    pub(crate) fn whole_since(&self, now: Instant, nodes: [usize; 2], path: u8) -> Option<Instant> {
        let plane = usize::from(path);
        let ends = nodes.map(|node| [self.leaving(node, plane), self.reaching(node, plane)]);
        let between = [false, true].map(|from_hosts| self.between(plane, from_hosts));
        let mut ports = ends.into_iter().flatten().chain(between);
        ports.try_fold(Instant::ZERO, |since, port| {
            Some(since.max(self.ports[port].whole_since(now)?))
        })
    }

    /// Frames on their way.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// A node sends a frame by one of its paths. `None`: it has no such path.
    pub(crate) fn send(&mut self, from: usize, to: usize, path: u8, frame: &[u8]) -> Option<u32> {
        let plane = path as usize;
        if plane >= self.paths || to >= self.nodes {
            return None;
        }
        let crosses = self.tiers == 2 && (from < self.hosts) != (to < self.hosts);
        let mut hops = [self.reaching(to, plane) as u16, 0, 0];
        let mut left = 1;
        if crosses {
            hops[left] = self.between(plane, from < self.hosts) as u16;
            left += 1;
        }
        hops[left] = self.leaving(from, plane) as u16;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        self.sent += 1;
        let reboots = self.reboots[plane];
        let left = left as u8 + 1;
        let flight = InFlight {
            from,
            to,
            path,
            bytes,
            marked: false,
            harm: Harm::default(),
            hops,
            left,
            number: self.sent,
            again: false,
            reboots,
        };
        Some(self.keep(flight))
    }

    fn keep(&mut self, flight: InFlight) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.flights[number as usize] = Some(flight);
                number
            }
            None => {
                self.flights.push(Some(flight));
                self.flights.len() as u32 - 1
            }
        }
    }

    /// A frame is at its next place.
    pub(crate) fn step(&mut self, now: Instant, number: u32) -> Moved {
        let flight = self.flights[number as usize].as_mut().expect("a frame moves once at a time");
        if flight.reboots != self.reboots[flight.path as usize] {
            return self.lose(number, Loss::Rebooted);
        }
        if flight.left == 0 {
            self.arrived += 1;
            let flight = self.take(number);
            let flow = (flight.from * self.nodes + flight.to) * self.paths;
            self.counts.arrived(flow + usize::from(flight.path), &flight);
            return Moved::Arrived(flight);
        }
        flight.left -= 1;
        let port = &mut self.ports[flight.hops[flight.left as usize] as usize];
        let fate = port.enter(now, &mut flight.bytes, &mut flight.harm);
        if let Fate::Comes { marked: true, .. } = fate {
            self.marked += u64::from(!flight.marked);
            flight.marked = true;
        }
        match fate {
            Fate::Lost(why) => {
                let at = usize::from(flight.hops[flight.left as usize]);
                let one_way = why.is_cut() && self.ports[self.opposite(at)].carries(now);
                self.lost_one_way += u64::from(one_way);
                self.lose(number, why)
            }
            Fate::Comes { at, again: None, .. } => Moved::Goes([Some((at, number)), None]),
            Fate::Comes { at, again: Some(again), .. } => {
                let (bytes, harm) = (flight.bytes.clone(), flight.harm.clone());
                let copy = InFlight { bytes, harm, again: true, ..*flight };
                Moved::Goes([Some((at, number)), Some((again, self.keep(copy)))])
            }
        }
    }

    fn take(&mut self, number: u32) -> InFlight {
        self.free.push(number);
        self.flights[number as usize].take().expect("it is on its way")
    }

    fn lose(&mut self, number: u32, why: Loss) -> Moved {
        self.lost += 1;
        self.counts.lost(why);
        Moved::Lost(self.take(number), why)
    }

    /// A frame is used up.
    pub(crate) fn recycle(&mut self, flight: InFlight) {
        if self.spare.len() < 64 {
            self.spare.push(flight.bytes);
        }
    }

    fn ports_of(&self, cables: Cables) -> Vec<usize> {
        match cables {
            Cables::From { node, path } => vec![self.leaving(node, path.into())],
            Cables::To { node, path } => vec![self.reaching(node, path.into())],
            Cables::Of { node, path } => {
                vec![self.leaving(node, path.into()), self.reaching(node, path.into())]
            }
            Cables::Plane { path } => {
                let plane = usize::from(path);
                let mut all: Vec<usize> = (0..self.nodes)
                    .flat_map(|n| [self.leaving(n, plane), self.reaching(n, plane)])
                    .collect();
                all.extend([self.between(plane, false), self.between(plane, true)]);
                all
            }
        }
    }

    fn each(&mut self, cables: Cables, act: impl Fn(&mut Port)) {
        for port in self.ports_of(cables) {
            act(&mut self.ports[port]);
        }
    }

    pub(crate) fn storm(&mut self, cables: Cables, id: u32, trouble: Trouble) {
        self.each(cables, |port| port.storm(id, trouble));
    }

    pub(crate) fn shrink(&mut self, cables: Cables, id: u32, mtu: usize) {
        self.each(cables, |port| port.shrink(id, mtu));
    }

    pub(crate) fn spike(&mut self, cables: Cables, id: u32, delay: Duration) {
        self.each(cables, |port| port.spike(id, delay));
    }

    pub(crate) fn pause(&mut self, cables: Cables, until: Instant) {
        self.each(cables, |port| port.pause(until));
    }

    /// The cables are cut.
    pub(crate) fn cut(&mut self, cables: Cables, why: Loss) {
        self.each(cables, |port| port.down.push(why));
    }

    /// They are whole again, but for what else has cut them.
    pub(crate) fn mend(&mut self, now: Instant, cables: Cables, why: Loss) {
        self.each(cables, |port| port.mend(now, why));
    }

    /// A fault of [`Network::storm`], [`Network::shrink`] or [`Network::spike`] is over.
    pub(crate) fn end(&mut self, now: Instant, cables: Cables, id: u32) {
        self.each(cables, |port| port.end(now, id));
    }

    /// The switches of a plane are rebooted: what is in them is gone.
    pub(crate) fn reboot(&mut self, path: u8) {
        self.reboots[path as usize] += 1;
    }

    /// What became of the frames, by its name.
    pub(crate) fn happened(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let held = self.ports.iter().fold(HeldUp::default(), |all, port| HeldUp {
            by_pauses: all.by_pauses + port.held_up.by_pauses,
            by_spikes: all.by_spikes + port.held_up.by_spikes,
            alone: all.alone + port.held_up.alone,
        });
        self.counts.list(held)
    }

    /// From now on the network loses nothing by itself.
    pub(crate) fn heal(&mut self) {
        self.ports.iter_mut().for_each(Port::heal);
    }
}

#[cfg(test)]
mod tests;
