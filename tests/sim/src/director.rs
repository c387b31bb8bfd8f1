//! The simplest thing that lends: each slot to one host for ever, again under a new epoch whenever
//! it fails. It speaks to the proxies as a manager does and keeps nothing but what it needs.

mod terms;

use proxy_core::control::{
    ControlError, Event, FromProxy, MappingEntry, OperationId, PathAddress, Peer, PortBinding,
    PortState, Removal, Reply, Request, SlotBinding, SlotEntry, SlotState, Term, Window,
};
use proxy_core::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;
pub(crate) use terms::Terms;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, PortId, SlotFunction, SlotId};

/// How long it waits after something did not go.
const RETRY: Duration = Duration::from_millis(20);
/// After how long it asks again what was not answered.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an operating system has to let go.
const ORDERLY_MS: u32 = 2_000;
/// In the place of a lending's number in the number of a request that reads a table.
const TABLE: u64 = 0xffff;
/// The same, of a request that only introduces a node to another one.
const INTRODUCES: u64 = 0xfffe;

/// Where a lending stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    PeerAtBox,
    PeerAtHost,
    /// Of a function.
    BindSlot(usize),
    BindPort,
    Bound,
    UnbindPort(Removal),
    /// Of a function.
    UnbindSlot(usize),
    /// The slot failed its test: it is tried again.
    Recover,
}

/// One slot and the port that it is for.
#[derive(Debug)]
struct Lending {
    host: usize,
    port: usize,
    at_box: usize,
    slot: usize,
    /// How many functions of it there are to lend.
    functions: usize,
    /// Of all of them.
    epoch: Epoch,
    /// An epoch that was there before, as a box told.
    highest: Option<Epoch>,
    /// Some of those that were taken back are not free yet: they may wait for the others.
    releasing: bool,
    step: Step,
    /// The request that waits for its answer, and since when.
    asked: Option<(u64, Instant)>,
    not_before: Instant,
}

/// The director.
pub(crate) struct Director {
    lendings: Vec<Lending>,
    /// The life of each node that is connected.
    nodes: Vec<Option<u32>>,
    /// Nodes whose table is to be read, and from which entry on: what they told while they were not
    /// connected is lost.
    unread: Vec<(usize, u16)>,
    hosts: usize,
    /// Whether a slot that was released is lent to the next host.
    roams: bool,
    paths: usize,
    terms: Terms,
    /// How many paths there are between a host and a box, if not all.
    fewer: BTreeMap<(usize, usize), usize>,
    /// Nodes that are to be told of their paths to another one, and the request that does.
    untold: BTreeMap<(usize, usize), Option<u64>>,
    frame: usize,
    next: u64,
}

/// Something to be said to a proxy.
pub(crate) type Order = (usize, OperationId, Term, Request);

pub(crate) fn node_id(index: usize) -> NodeId {
    NodeId::new(index as u16 + 1).expect("few nodes")
}

pub(crate) fn slot_id(slot: usize) -> SlotId {
    SlotId::new(slot as u8 + 1).expect("few slots")
}

impl Director {
    /// `lendings`: host, port, box, slot.
    pub(crate) fn new(
        hosts: usize,
        boxes: usize,
        lendings: impl Iterator<Item = (usize, usize, usize, usize)>,
        frame: usize,
        terms: Terms,
    ) -> Self {
        let lend = |(host, port, at_box, slot)| Lending {
            host,
            port,
            at_box,
            slot,
            functions: terms.functions(slot),
            epoch: Epoch::new(0, 1).expect("the first"),
            highest: None,
            releasing: false,
            step: Step::PeerAtBox,
            asked: None,
            not_before: Instant::ZERO,
        };
        let nodes = vec![None; hosts + boxes];
        Self {
            lendings: lendings.map(lend).collect(),
            nodes,
            unread: Vec::new(),
            hosts,
            roams: false,
            paths: terms.paths(),
            terms,
            fewer: BTreeMap::new(),
            untold: BTreeMap::new(),
            frame,
            next: 0,
        }
    }

    /// Whether a slot that was released goes to the next host.
    pub(crate) fn roaming(self, roams: bool) -> Self {
        Self { roams, ..self }
    }

    /// A proxy is connected, perhaps in another life.
    pub(crate) fn connected(&mut self, node: usize, incarnation: u32) {
        let restarted = self.nodes[node].is_some_and(|before| before != incarnation);
        self.nodes[node] = Some(incarnation);
        self.unread.push((node, 0));
        // What it was told may have been lost with its connection.
        self.untold.iter_mut().filter(|(of, _)| of.0 == node).for_each(|(_, asked)| *asked = None);
        for index in 0..self.lendings.len() {
            let Lending { host, at_box, .. } = self.lendings[index];
            if node == host || node == self.hosts + at_box {
                self.lendings[index].asked = None;
                if restarted {
                    self.fail(index);
                }
            }
        }
    }

    /// So many paths between a host and a box are left; both are told.
    pub(crate) fn set_paths(&mut self, host: usize, at_box: usize, count: usize) {
        self.fewer.insert((host, self.hosts + at_box), count);
        for pair in [(host, self.hosts + at_box), (self.hosts + at_box, host)] {
            self.untold.insert(pair, None);
        }
    }

    /// Whether every slot is lent, and every node told of its paths.
    pub(crate) fn is_settled(&self) -> bool {
        self.untold.is_empty() && self.lendings.iter().all(|lending| lending.step == Step::Bound)
    }

    /// What is not lent, for a person.
    pub(crate) fn unsettled(&self) -> String {
        let waits = self.lendings.iter().filter(|l| l.step != Step::Bound);
        let text = waits.map(|l| format!("box {} slot {}: {:?}", l.at_box, l.slot + 1, l.step));
        text.collect::<Vec<_>>().join(", ")
    }

    fn fail(&mut self, index: usize) {
        let lending = &mut self.lendings[index];
        if !matches!(lending.step, Step::UnbindPort(_) | Step::UnbindSlot(_)) {
            lending.step = Step::UnbindPort(Removal::Force);
            lending.asked = None;
        }
    }

    /// Takes a slot back, to lend it again. Whether it is lent.
    pub(crate) fn release(&mut self, at_box: usize, slot: usize, force: bool) -> bool {
        let mut any = false;
        let mode = if force { Removal::Force } else { Removal::Orderly { within_ms: ORDERLY_MS } };
        for lending in &mut self.lendings {
            if (lending.at_box, lending.slot) == (at_box, slot) && lending.step == Step::Bound {
                lending.step = Step::UnbindPort(mode);
                any = true;
            }
        }
        any
    }

    /// What is to be said now.
    pub(crate) fn orders(&mut self, now: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        // First: what is asked of a node after it is not in the table that is read.
        for (node, from) in std::mem::take(&mut self.unread) {
            self.next += 1;
            let id = OperationId(self.next << 16 | TABLE);
            orders.push((node, id, Term(1), Request::ReadTable { from }));
        }
        self.introduce(&mut orders);
        for index in 0..self.lendings.len() {
            let lending = &self.lendings[index];
            let asked = lending.asked.is_some_and(|(_, at)| now.saturating_since(at) < PATIENCE);
            if asked || now < lending.not_before || lending.step == Step::Bound {
                continue;
            }
            let at_box = self.hosts + lending.at_box;
            let (node, request) = match lending.step {
                Step::PeerAtBox => (at_box, self.peer(at_box, lending.host)),
                Step::PeerAtHost => (lending.host, self.peer(lending.host, at_box)),
                Step::BindSlot(function) => (at_box, Some(self.bind_slot(lending, function))),
                Step::BindPort => (lending.host, Some(self.bind_port(lending))),
                Step::UnbindPort(mode) => (lending.host, Some(self.unbind_port(lending, mode))),
                Step::UnbindSlot(function) => {
                    (at_box, Some(Request::UnbindSlot(key(lending, function))))
                }
                Step::Recover => (at_box, Some(Request::Recover(slot_id(lending.slot)))),
                Step::Bound => continue,
            };
            let Some(request) = request.filter(|_| self.nodes[node].is_some()) else { continue };
            self.next += 1;
            let id = self.next << 16 | index as u64;
            self.lendings[index].asked = Some((id, now));
            orders.push((node, OperationId(id), Term(1), request));
        }
        orders
    }

    /// Those whose paths have changed are told.
    fn introduce(&mut self, orders: &mut Vec<Order>) {
        let waiting: Vec<_> = self.untold.iter().filter(|(_, asked)| asked.is_none()).collect();
        let pairs: Vec<_> = waiting.into_iter().map(|(pair, _)| *pair).collect();
        for (to, node) in pairs {
            let Some(request) = self.peer(to, node).filter(|_| self.nodes[to].is_some()) else {
                continue;
            };
            self.next += 1;
            let id = self.next << 16 | INTRODUCES;
            self.untold.insert((to, node), Some(id));
            orders.push((to, OperationId(id), Term(1), request));
        }
    }

    /// Introduces a node to another one.
    fn peer(&self, to: usize, node: usize) -> Option<Request> {
        let paths = self.fewer.get(&(to.min(node), to.max(node))).copied().unwrap_or(self.paths);
        let address = |path| PathAddress::Ethernet {
            mac: [2, 0xd0, 0xac, path as u8, 0, node as u8],
            vlan: None,
        };
        Some(Request::SetPeer(Peer {
            node: node_id(node),
            incarnation: self.nodes[node]?,
            paths: (0..paths).map(address).collect(),
            mtu: self.frame as u16,
        }))
    }

    fn bind_slot(&self, lending: &Lending, function: usize) -> Request {
        let (key, host) = (key(lending, function), node_id(lending.host));
        let (share, path_set) = self.terms.of(lending.at_box, lending.slot, key.epoch, true);
        let windows = [Window::everything(host, path_set, key.epoch)].into_iter().collect();
        Request::BindSlot(SlotBinding { key, host, path_set, share, windows })
    }

    fn bind_port(&self, lending: &Lending) -> Request {
        let keys = (0..lending.functions).map(|function| key(lending, function));
        let key = key(lending, 0);
        let (share, path_set) = self.terms.of(lending.at_box, lending.slot, key.epoch, false);
        Request::BindPort(PortBinding {
            port: PortId::new(lending.port as u8).expect("few ports"),
            box_node: node_id(self.hosts + lending.at_box),
            slot: key.slot,
            functions: keys.map(|key| (key.function, key.epoch)).collect(),
            path_set,
            share,
        })
    }

    fn unbind_port(&self, lending: &Lending, mode: Removal) -> Request {
        Request::UnbindPort {
            port: PortId::new(lending.port as u8).expect("few ports"),
            box_node: node_id(self.hosts + lending.at_box),
            slot: slot_id(lending.slot),
            epoch: lending.epoch,
            mode,
        }
    }

    /// A proxy said something.
    pub(crate) fn told(&mut self, now: Instant, node: usize, message: &FromProxy) {
        match message {
            FromProxy::Response { id, result } if id.0 & 0xffff == TABLE => {
                self.table(node, result.as_ref().expect("a table can always be read"));
            }
            FromProxy::Response { id, result } if id.0 & 0xffff == INTRODUCES => {
                self.introduction_answered(*id, result.is_ok());
            }
            FromProxy::Response { id, result } => {
                let index = (id.0 & 0xffff) as usize;
                let Some(lending) = self.lendings.get_mut(index) else { return };
                if lending.asked.is_some_and(|(asked, _)| asked == id.0) {
                    lending.asked = None;
                    let released = matches!(lending.step, Step::UnbindSlot(_));
                    answered(lending, now, result);
                    if self.roams && released && lending.step == Step::PeerAtBox {
                        lending.host = (lending.host + 1) % self.hosts;
                    }
                }
            }
            FromProxy::Event { event, .. } => self.event(node, event),
            FromProxy::Hello(_) | FromProxy::Pong | FromProxy::Reset(_) => {}
        }
    }

    /// A node answered whether it knows its paths to another one now; else it is asked again.
    fn introduction_answered(&mut self, id: OperationId, knows: bool) {
        let pair =
            self.untold.iter().find(|(_, asked)| **asked == Some(id.0)).map(|(pair, _)| *pair);
        if let Some(pair) = pair {
            self.untold.remove(&pair);
            if !knows {
                self.untold.insert(pair, None);
            }
        }
    }

    /// A page of a node's table. What was lent and is not in it any more has failed.
    fn table(&mut self, node: usize, page: &Reply) {
        let next = match page {
            Reply::Mapping { next, .. } | Reply::Slots { next, .. } => *next,
            other => panic!("{other:?} is no table"),
        };
        for index in 0..self.lendings.len() {
            let lending = &self.lendings[index];
            let lost = match page {
                Reply::Mapping { entries, .. } => {
                    let at = |e: &&MappingEntry| usize::from(e.port.get()) == lending.port;
                    let entry = entries.iter().find(at).filter(|_| node == lending.host);
                    entry.is_some_and(|e| {
                        let epoch = e.functions.first().map(|function| function.1);
                        e.state == PortState::Failed || epoch != Some(lending.epoch)
                    })
                }
                Reply::Slots { entries, .. } => {
                    let lost = |e: &SlotEntry| {
                        e.slot == slot_id(lending.slot)
                            && usize::from(e.function.get()) < lending.functions
                            && (!e.used || e.epoch != lending.epoch.bits())
                    };
                    node == self.hosts + lending.at_box && entries.iter().any(lost)
                }
                _ => unreachable!("looked at above"),
            };
            if lost && lending.step == Step::Bound {
                self.fail(index);
            }
        }
        self.unread.extend(next.map(|next| (node, next)));
    }

    fn event(&mut self, node: usize, event: &Event) {
        for index in 0..self.lendings.len() {
            let lending = &self.lendings[index];
            let at_box = self.hosts + lending.at_box;
            let here = node == lending.host || node == at_box;
            let other = if node == lending.host { at_box } else { lending.host };
            let begun = !matches!(lending.step, Step::PeerAtBox | Step::PeerAtHost);
            let failed = match event {
                Event::LinkDown { peer, .. } => *peer == node_id(other),
                Event::BindingFailed { peer, key: failed, .. } => {
                    let of_it = |function| *failed == key(lending, function);
                    *peer == node_id(other) && (0..lending.functions).any(of_it)
                }
                Event::Port { port, state: PortState::Failed } => {
                    node == lending.host && usize::from(port.get()) == lending.port
                }
                _ => false,
            };
            if here && begun && failed {
                self.fail(index);
            }
        }
    }
}

fn key(lending: &Lending, function: usize) -> BindingKey {
    let function = SlotFunction::new(function as u16).expect("few functions");
    BindingKey { slot: slot_id(lending.slot), function, epoch: lending.epoch }
}

/// What an answer means for a lending.
fn answered(lending: &mut Lending, now: Instant, result: &Result<Reply, ControlError>) {
    let next = match (lending.step, result) {
        (step, Ok(reply)) => went_well(lending, now, step, reply),
        (step, Err(error)) => {
            lending.not_before = now + RETRY;
            failed(lending, step, error)
        }
    };
    if next == lending.step {
        lending.not_before = now + RETRY;
    }
    lending.step = next;
}

fn went_well(lending: &mut Lending, now: Instant, step: Step, reply: &Reply) -> Step {
    let another = |function: usize| function + 1 < lending.functions;
    match (step, reply) {
        (Step::PeerAtBox, _) => Step::PeerAtHost,
        (Step::PeerAtHost, _) => Step::BindSlot(0),
        (Step::BindSlot(function), _) if another(function) => Step::BindSlot(function + 1),
        (Step::BindSlot(_), _) => Step::BindPort,
        (Step::BindPort, _) => Step::Bound,
        (Step::UnbindPort(_), _) => {
            lending.releasing = false;
            Step::UnbindSlot(0)
        }
        (Step::UnbindSlot(function), reply) => {
            lending.releasing |= *reply == Reply::Slot(SlotState::Releasing);
            match another(function) {
                // Whatever became of this one: it may wait until none is lent.
                true => Step::UnbindSlot(function + 1),
                false => all_taken_back(lending, now),
            }
        }
        (Step::Recover, Reply::Slot(SlotState::Bound)) => Step::PeerAtBox,
        // It may have been lent under this epoch; a box that began anew does not know. One that kept
        // its tables knows its peers, but they do not know its new life.
        (Step::Recover, Reply::Slot(SlotState::Free)) => Step::UnbindPort(Removal::Force),
        (Step::Recover | Step::Bound, _) => step,
    }
}

/// None of them is lent any more. They are lent again, under the next epoch, when all are free.
fn all_taken_back(lending: &mut Lending, now: Instant) -> Step {
    if std::mem::take(&mut lending.releasing) {
        lending.not_before = now + RETRY;
        return Step::UnbindSlot(0);
    }
    let highest = lending.highest.take().unwrap_or(lending.epoch);
    lending.epoch = highest.max(lending.epoch).next().expect("a run is short");
    Step::PeerAtBox
}

fn failed(lending: &mut Lending, step: Step, error: &ControlError) -> Step {
    match error {
        ControlError::StaleEpoch(highest) if step == Step::BindSlot(0) => {
            lending.epoch = highest.next().expect("a run is short");
            step
        }
        // Its other functions are bound under the one that it has.
        ControlError::StaleEpoch(highest) => {
            lending.highest = Some(*highest);
            Step::UnbindPort(Removal::Force)
        }
        // It waits for a reset of the whole device, and that for the functions that are lent already.
        ControlError::Busy if matches!(step, Step::BindSlot(1..)) => {
            Step::UnbindPort(Removal::Force)
        }
        ControlError::UnknownPeer(_) | ControlError::LinkDown(_) => Step::PeerAtBox,
        ControlError::Quarantined(_) => Step::Recover,
        ControlError::InUse(_) => Step::UnbindPort(Removal::Force),
        _ => step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy_core::control::{PathSet, WindowRange};
    use tlp_codec::ids::Bdf;

    /// Answers what the director asks, until it asks nothing more; tables with what `table` says.
    fn answer(director: &mut Director, table: &dyn Fn(usize) -> Reply) {
        answer_all(director, Instant::ZERO, &mut |node, request| match request {
            Request::ReadTable { .. } => table(node),
            Request::UnbindSlot(_) => Reply::Slot(SlotState::Free),
            _ => Reply::Done,
        });
    }

    fn answer_all(
        director: &mut Director,
        now: Instant,
        reply: &mut dyn FnMut(usize, &Request) -> Reply,
    ) {
        loop {
            let orders = director.orders(now);
            if orders.is_empty() {
                return;
            }
            for (node, id, _, request) in orders {
                let result = Ok(reply(node, &request));
                director.told(now, node, &FromProxy::Response { id, result });
            }
        }
    }

    fn mapping(epoch: Epoch, state: PortState) -> Reply {
        let entry = MappingEntry {
            port: PortId::new(0).unwrap(),
            used: true,
            state,
            buses: (1, 1),
            device: Bdf::from_bits(0),
            memory: WindowRange::default(),
            prefetchable: WindowRange::default(),
            io: WindowRange::default(),
            box_node: 2,
            slot: 1,
            functions: [(SlotFunction::ZERO, epoch)].into_iter().collect(),
            path_set: PathSet::first(1),
            configured: true,
        };
        let entries = [entry].into_iter().collect();
        Reply::Mapping { root_complex: true, entries, next: None }
    }

    #[test]
    fn what_failed_while_a_host_was_not_connected_is_lent_again() {
        let terms = Terms::new(0, &crate::profile::Profile::calm().fabric);
        let mut director = Director::new(1, 1, [(0, 0, 0, 0)].into_iter(), 1500, terms);
        let slots = || Reply::Slots { entries: Default::default(), next: None };
        director.connected(0, 1);
        director.connected(1, 1);
        let first = Epoch::new(0, 1).unwrap();
        let all_is_well = |node| match node {
            0 => mapping(first, PortState::Present),
            _ => slots(),
        };
        answer(&mut director, &all_is_well);
        assert!(director.is_settled());

        director.connected(0, 1);
        answer(&mut director, &all_is_well);
        assert_eq!(director.lendings[0].epoch, first, "nothing failed");

        director.connected(0, 1);
        answer(&mut director, &|_| mapping(first, PortState::Failed));
        assert!(director.is_settled());
        assert_eq!(director.lendings[0].epoch, first.next().unwrap(), "it is another binding");
    }

    /// A box answers that a function is not free yet, and it will not be before the other one is back.
    #[test]
    fn a_function_that_waits_for_the_others_keeps_none_of_them() {
        let terms = Terms::new(0, &crate::profile::Profile::find("functions").unwrap().fabric);
        let mut director = Director::new(1, 1, [(0, 0, 0, 0)].into_iter(), 1500, terms);
        director.connected(0, 1);
        director.connected(1, 1);
        let mut lent = [false; 2];
        let mut play = |director: &mut Director, now| {
            answer_all(director, now, &mut |node, request| match request {
                Request::ReadTable { .. } if node == 0 => {
                    Reply::Mapping { root_complex: true, entries: Default::default(), next: None }
                }
                Request::ReadTable { .. } => {
                    Reply::Slots { entries: Default::default(), next: None }
                }
                Request::BindSlot(binding) => {
                    lent[usize::from(binding.key.function.get())] = true;
                    Reply::Done
                }
                Request::UnbindSlot(key) => {
                    lent[usize::from(key.function.get())] = false;
                    let any = lent.contains(&true);
                    Reply::Slot(if any { SlotState::Releasing } else { SlotState::Free })
                }
                _ => Reply::Done,
            });
        };
        play(&mut director, Instant::ZERO);
        assert!(director.is_settled());
        let epoch = director.lendings[0].epoch;
        director.release(0, 0, true);
        play(&mut director, Instant::ZERO);
        assert!(!director.is_settled(), "the first one is not free yet");
        play(&mut director, Instant::ZERO + RETRY);
        assert!(director.is_settled(), "{}", director.unsettled());
        assert_eq!(director.lendings[0].epoch, epoch.next().unwrap());
    }
}
