//! The simplest thing that lends: each slot to one host for ever, again under a new epoch whenever
//! it fails. It speaks to the proxies as a manager does and keeps nothing but what it needs.

use proxy_core::control::{
    ControlError, Event, FromProxy, OperationId, PathAddress, PathSet, Peer, PortBinding,
    PortState, Removal, Reply, Request, Share, SlotBinding, SlotState, Term, Window,
};
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, PortId, SlotFunction, SlotId};

/// How long it waits after something did not go.
const RETRY: Duration = Duration::from_millis(20);
/// After how long it asks again what was not answered.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an operating system has to let go.
const ORDERLY_MS: u32 = 2_000;

/// Where a lending stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    PeerAtBox,
    PeerAtHost,
    BindSlot,
    BindPort,
    Bound,
    UnbindPort(Removal),
    UnbindSlot,
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
    epoch: Epoch,
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
    hosts: usize,
    /// Whether a slot that was released is lent to the next host.
    roams: bool,
    paths: usize,
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
        paths: usize,
        frame: usize,
    ) -> Self {
        let lend = |(host, port, at_box, slot)| Lending {
            host,
            port,
            at_box,
            slot,
            epoch: Epoch::new(0, 1).expect("the first"),
            step: Step::PeerAtBox,
            asked: None,
            not_before: Instant::ZERO,
        };
        let nodes = vec![None; hosts + boxes];
        Self {
            lendings: lendings.map(lend).collect(),
            nodes,
            hosts,
            roams: false,
            paths,
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

    /// Whether every slot is lent.
    pub(crate) fn is_settled(&self) -> bool {
        self.lendings.iter().all(|lending| lending.step == Step::Bound)
    }

    /// What is not lent, for a person.
    pub(crate) fn unsettled(&self) -> String {
        let waits = self.lendings.iter().filter(|l| l.step != Step::Bound);
        let text = waits.map(|l| format!("box {} slot {}: {:?}", l.at_box, l.slot, l.step));
        text.collect::<Vec<_>>().join(", ")
    }

    fn fail(&mut self, index: usize) {
        let lending = &mut self.lendings[index];
        if !matches!(lending.step, Step::UnbindPort(_) | Step::UnbindSlot) {
            lending.step = Step::UnbindPort(Removal::Force);
            lending.asked = None;
        }
    }

    /// Takes a slot back, to lend it again.
    pub(crate) fn release(&mut self, at_box: usize, slot: usize, force: bool) {
        let mode = if force { Removal::Force } else { Removal::Orderly { within_ms: ORDERLY_MS } };
        for lending in &mut self.lendings {
            if (lending.at_box, lending.slot) == (at_box, slot) && lending.step == Step::Bound {
                lending.step = Step::UnbindPort(mode);
            }
        }
    }

    /// What is to be said now.
    pub(crate) fn orders(&mut self, now: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        for index in 0..self.lendings.len() {
            let lending = &self.lendings[index];
            let asked = lending.asked.is_some_and(|(_, at)| now.saturating_since(at) < PATIENCE);
            if asked || now < lending.not_before || lending.step == Step::Bound {
                continue;
            }
            let at_box = self.hosts + lending.at_box;
            let (node, request) = match lending.step {
                Step::PeerAtBox => (at_box, self.peer(lending.host)),
                Step::PeerAtHost => (lending.host, self.peer(at_box)),
                Step::BindSlot => (at_box, Some(self.bind_slot(lending))),
                Step::BindPort => (lending.host, Some(self.bind_port(lending))),
                Step::UnbindPort(mode) => (lending.host, Some(self.unbind_port(lending, mode))),
                Step::UnbindSlot => (at_box, Some(Request::UnbindSlot(key(lending)))),
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

    fn peer(&self, node: usize) -> Option<Request> {
        let address = |path| PathAddress::Ethernet {
            mac: [2, 0xd0, 0xac, path as u8, 0, node as u8],
            vlan: None,
        };
        Some(Request::SetPeer(Peer {
            node: node_id(node),
            incarnation: self.nodes[node]?,
            paths: (0..self.paths).map(address).collect(),
            mtu: self.frame as u16,
        }))
    }

    fn paths(&self) -> PathSet {
        PathSet::first(self.paths)
    }

    fn bind_slot(&self, lending: &Lending) -> Request {
        let (key, host) = (key(lending), node_id(lending.host));
        let everything = Window::everything(host, self.paths(), key.epoch);
        let windows = [everything].into_iter().collect();
        Request::BindSlot(SlotBinding {
            key,
            host,
            path_set: self.paths(),
            share: Share::EVEN,
            windows,
        })
    }

    fn bind_port(&self, lending: &Lending) -> Request {
        let key = key(lending);
        Request::BindPort(PortBinding {
            port: PortId::new(lending.port as u8).expect("few ports"),
            box_node: node_id(self.hosts + lending.at_box),
            slot: key.slot,
            functions: [(key.function, key.epoch)].into_iter().collect(),
            path_set: self.paths(),
            share: Share::EVEN,
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
            FromProxy::Response { id, result } => {
                let index = (id.0 & 0xffff) as usize;
                let Some(lending) = self.lendings.get_mut(index) else { return };
                if lending.asked.is_some_and(|(asked, _)| asked == id.0) {
                    lending.asked = None;
                    let released = lending.step == Step::UnbindSlot;
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
                    *peer == node_id(other) && *failed == key(lending)
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

fn key(lending: &Lending) -> BindingKey {
    let function = SlotFunction::ZERO;
    BindingKey { slot: slot_id(lending.slot), function, epoch: lending.epoch }
}

/// What an answer means for a lending.
fn answered(lending: &mut Lending, now: Instant, result: &Result<Reply, ControlError>) {
    let next = match (lending.step, result) {
        (Step::PeerAtBox, Ok(_)) => Step::PeerAtHost,
        (Step::PeerAtHost, Ok(_)) => Step::BindSlot,
        (Step::BindSlot, Ok(_)) => Step::BindPort,
        (Step::BindPort, Ok(_)) => Step::Bound,
        (Step::UnbindPort(_), Ok(_)) => Step::UnbindSlot,
        (Step::UnbindSlot, Ok(Reply::Slot(SlotState::Releasing))) => Step::UnbindSlot,
        (Step::Recover, Ok(Reply::Slot(SlotState::Free | SlotState::Bound))) => Step::BindSlot,
        (Step::UnbindSlot, Ok(_)) => {
            lending.epoch = lending.epoch.next().expect("a run is short");
            Step::PeerAtBox
        }
        (_, Err(error)) => {
            lending.not_before = now + RETRY;
            match error {
                ControlError::StaleEpoch(highest) => {
                    lending.epoch = highest.next().expect("a run is short");
                    Step::BindSlot
                }
                ControlError::UnknownPeer(_) | ControlError::LinkDown(_) => Step::PeerAtBox,
                ControlError::Quarantined(_) => Step::Recover,
                ControlError::InUse(_) => Step::UnbindPort(Removal::Force),
                _ => lending.step,
            }
        }
        (step, Ok(_)) => step,
    };
    if next == lending.step {
        lending.not_before = now + RETRY;
    }
    lending.step = next;
}
