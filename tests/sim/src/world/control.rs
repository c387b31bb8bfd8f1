//! Proxies come to life and talk with the manager.

use super::answers::Answers;
use super::causes::slot_of;
use super::tables::is_kept;
use super::{Event, World};
use crate::clock::OwnClock;
use crate::director::node_id;
use crate::host::FUNCTIONS;
use crate::oracle::binding::Binding;
use crate::oracle::counted::Counted;
use crate::oracle::{Verdict, Violation};
use crate::random::{Drawer, Random};
use crate::trace::What;
use proxy_core::control::{FromProxy, OperationId, Removal, Reply, Request, Term};
use proxy_core::time::Instant;
use std::collections::BTreeSet;
use std::time::Duration;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, SlotId};

/// How often the manager looks at what is to be done.
const TURN: Duration = Duration::from_millis(1);
/// How long a proxy takes to connect again.
const RECONNECT: Duration = Duration::from_millis(5);
/// By which name they are counted.
const LOST_WITH_CONNECTION: &str = "control messages that were lost with their connection";

/// A message on its way, one way or the other.
#[allow(clippy::large_enum_variant)] // few are on their way at a time
enum Letter {
    ToProxy {
        node: usize,
        connection: u32,
        id: OperationId,
        term: Term,
        request: Request,
    },
    ToManager {
        node: usize,
        connection: u32,
        message: FromProxy,
    },
    /// The connection was made: this life is there.
    Hello {
        node: usize,
        connection: u32,
        incarnation: u32,
    },
}

/// Control messages on their way. Each connection keeps its order.
pub(super) struct Post {
    random: Random,
    letters: Vec<Option<Letter>>,
    free: Vec<u32>,
    /// Of each node: the number of its connection, and when its last message arrives, to and fro.
    connections: Vec<u32>,
    last: Vec<[Instant; 2]>,
    /// Messages take so much longer, one entry for each fault.
    pub(super) slow: Vec<(u32, Duration)>,
    /// Entries of its tables that a proxy was asked for and has not answered.
    asked: Vec<(usize, OperationId, Request)>,
    /// What proxies were asked by a manager that is in charge no more, and have not answered.
    stale: BTreeSet<(usize, OperationId)>,
    pub(super) answers: Answers,
}

impl Post {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::stream(seed, Drawer::Manager, 0),
            letters: Vec::new(),
            free: Vec::new(),
            connections: Vec::new(),
            last: Vec::new(),
            slow: Vec::new(),
            asked: Vec::new(),
            stale: BTreeSet::new(),
            answers: Answers::default(),
        }
    }

    fn know(&mut self, node: usize) {
        if self.connections.len() <= node {
            self.connections.resize(node + 1, 0);
            self.last.resize(node + 1, [Instant::ZERO; 2]);
        }
    }

    /// What a node was asked is not answered any more.
    fn expects_nothing_of(&mut self, node: usize) {
        self.asked.retain(|asked| asked.0 != node);
        self.stale.retain(|stale| stale.0 != node);
        self.answers.forget(node);
    }

    fn put(&mut self, letter: Letter) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.letters[number as usize] = Some(letter);
                number
            }
            None => {
                self.letters.push(Some(letter));
                self.letters.len() as u32 - 1
            }
        }
    }
}

/// The end of a binding that is at one proxy.
pub(super) enum BoundEnd {
    Slot { at_box: usize, slot: usize },
    Port(usize),
}

fn is_unbind(request: &Request) -> bool {
    matches!(request, Request::UnbindSlot(_) | Request::UnbindPort { .. })
}

/// Whether a box that is this node has a binding under that key.
fn binds(binding: &Binding, node: usize, hosts: usize, key: &BindingKey) -> bool {
    hosts + binding.at_box == node
        && binding.slot == slot_of(key)
        && binding.epoch == key.epoch.bits()
}

/// Whether a binding of a host that is this node is meant by its box, slot and epoch.
fn is_of(
    binding: &Binding,
    node: usize,
    hosts: usize,
    (box_node, slot, epoch): (NodeId, SlotId, Epoch),
) -> bool {
    binding.host == node
        && node_id(hosts + binding.at_box) == box_node
        && binding.slot / FUNCTIONS + 1 == usize::from(slot.get())
        && binding.epoch == epoch.bits()
}

impl World {
    fn send_letter(&mut self, node: usize, back: bool, letter: Letter) {
        let [low, high] = self.profile.fabric.control_us;
        let slow: Duration = self.post.slow.iter().map(|slow| slow.1).sum();
        let straight = Duration::from_micros(self.post.random.between(low, high));
        let delay = straight + slow;
        if delay > straight {
            self.did.once("control messages that a slow manager held up");
        }
        let last = &mut self.post.last[node][usize::from(back)];
        let at = (self.agenda.now() + delay).max(*last + Duration::from_nanos(1));
        *last = at;
        let number = self.post.put(letter);
        self.agenda.plan(at, Event::Message(number));
    }

    /// A proxy comes to life, for the first time or again.
    pub(super) fn start(&mut self, node: usize) -> Verdict {
        let now = self.now();
        self.post.know(node);
        let life = &mut self.lives[node];
        life.incarnation += 1;
        life.counted = Counted::default();
        let number = u64::from(life.incarnation) << 32 | node as u64;
        life.clock = OwnClock::draw(&mut Random::stream(self.seed, Drawer::Clock, number), now);
        let local = life.clock.at(now);
        let incarnation = life.incarnation * 16 + node as u32 + 1;
        self.trace.say(now, node as u16 + 1, format!("proxy starts, incarnation {incarnation}"));
        match self.hosts.len() {
            hosts if node < hosts => self.hosts[node].start(incarnation, &self.profile, self.hold),
            hosts => self.boxes[node - hosts].start(local, incarnation, &self.profile),
        }
        self.role(node).expect("it has just started").set_node(node_id(node));
        if !self.begin_restore(node) {
            self.connect(node)?;
        }
        self.pump(node)
    }

    /// A proxy dies. What it had is gone, but for its tables, if they are kept; what is outstanding
    /// above it ends.
    pub(super) fn crash(&mut self, node: usize, tables: bool) -> Verdict {
        let now = self.now();
        self.check_counters(node)?;
        self.did.died(node < self.hosts.len(), tables);
        self.trace.say(now, node as u16 + 1, "proxy dies".into());
        self.keep_tables(node, tables);
        self.disconnect(node);
        self.wire.died(node);
        self.links.died(now, node);
        self.silences.died(node);
        self.lied.retain(|lied| lied.0 != node);
        self.lives[node].timer = None;
        let hosts = self.hosts.len();
        if node < hosts {
            let host = &mut self.hosts[node];
            host.role = None;
            self.bindings.access.reset(node);
            host.requests.forget();
            host.out.clear();
            host.ports.fill(None);
            host.os.boot();
        } else {
            let at_box = node - hosts;
            self.boxes[at_box].role = None;
            for slot in &mut self.boxes[at_box].slots {
                slot.lose_proxy(now);
            }
        }
        for binding in self.bindings.all_mut() {
            if binding.host == node || hosts + binding.at_box == node {
                binding.end();
            }
        }
        Ok(())
    }

    /// A proxy that is not connected dials the manager.
    pub(super) fn connect(&mut self, node: usize) -> Verdict {
        if self.lives[node].connected || self.role(node).is_none() {
            return Ok(());
        }
        self.lives[node].connected = true;
        // Nothing that was asked before is answered.
        self.post.expects_nothing_of(node);
        self.post.connections[node] += 1;
        let connection = self.post.connections[node];
        self.role(node).expect("it is alive").control_reconnected();
        let incarnation = self.lives[node].incarnation * 16 + node as u32 + 1;
        self.send_letter(node, true, Letter::Hello { node, connection, incarnation });
        Ok(())
    }

    /// The control connection ends; what is on it is lost.
    pub(super) fn disconnect(&mut self, node: usize) {
        self.lender.disconnected(node);
        self.hang_up(node);
    }

    fn hang_up(&mut self, node: usize) {
        self.lives[node].connected = false;
        self.post.connections[node] += 1;
        self.post.expects_nothing_of(node);
    }

    /// As [`World::disconnect`], and it is made again a little later.
    pub(super) fn lose_control(&mut self, node: usize) {
        self.disconnect(node);
        self.agenda.plan(self.now() + RECONNECT, Event::Connect(node));
    }

    /// A proxy leaves its manager for the one that is in charge.
    pub(super) fn redial(&mut self, node: usize) {
        self.lender.redials(node);
        self.hang_up(node);
        self.agenda.plan(self.now() + RECONNECT, Event::Connect(node));
    }

    /// A letter arrives.
    pub(super) fn message(&mut self, number: u32) -> Verdict {
        let now = self.now();
        let letter = self.post.letters[number as usize].take().expect("it arrives once");
        self.post.free.push(number);
        match letter {
            Letter::Hello { node, connection, incarnation } => {
                if self.post.connections[node] == connection {
                    let term = Term(self.lives[node].term);
                    self.lender.connected(node, incarnation, term);
                }
                Ok(())
            }
            Letter::ToManager { node, connection, message } => {
                if self.post.connections[node] == connection {
                    self.lender.told(now, node, &message);
                } else {
                    self.did.once(LOST_WITH_CONNECTION);
                }
                Ok(())
            }
            Letter::ToProxy { node, connection, id, term, request } => {
                if self.post.connections[node] != connection {
                    self.did.once(LOST_WITH_CONNECTION);
                    return Ok(());
                }
                if self.lives[node].frozen.is_some() {
                    // It reads when it goes on.
                    let letter = Letter::ToProxy { node, connection, id, term, request };
                    let number = self.post.put(letter);
                    self.lives[node].unread.push(number);
                    return Ok(());
                }
                self.ask(node, id, term, request)
            }
        }
    }

    /// A proxy is asked for something.
    fn ask(&mut self, node: usize, id: OperationId, term: Term, request: Request) -> Verdict {
        let now = self.now();
        self.trace.control(now, node as u16 + 1, What::Asked, format!("{id:?} {request:?}"));
        let life = &mut self.lives[node];
        life.spin.moved();
        if term.0 < life.term {
            self.did.once("requests of a manager that is in charge no more");
            self.post.stale.insert((node, id));
        } else {
            life.term = term.0;
            self.ends_binding(node, &request);
        }
        let local = self.local(node);
        if let Some(role) = self.role(node) {
            role.handle_control(local, id, term, &request);
            if self.lives[node].connected {
                self.post.answers.asked(now, node, id, &request);
            }
            if is_kept(&request) || is_unbind(&request) {
                self.post.asked.push((node, id, request));
            }
        }
        self.pump(node)?;
        self.post.answers.check_node(node)?;
        self.check_tables()
    }

    /// What a request ends by itself: from here on losses are excused.
    fn ends_binding(&mut self, node: usize, request: &Request) {
        let hosts = self.hosts.len();
        for binding in self.bindings.all_mut() {
            match request {
                Request::UnbindSlot(key) if binds(binding, node, hosts, key) => binding.end(),
                Request::UnbindPort { box_node, slot, epoch, mode, .. }
                    if is_of(binding, node, hosts, (*box_node, *slot, *epoch)) =>
                {
                    match mode {
                        Removal::Force => binding.end(),
                        Removal::Orderly { .. } => binding.ask_back(),
                    }
                }
                _ => {}
            }
        }
    }

    /// A proxy answered that it has given a binding up: nothing of that comes out at its end any more.
    fn unbound(&mut self, node: usize, request: &Request) {
        let hosts = self.hosts.len();
        for binding in self.bindings.all_mut() {
            match request {
                Request::UnbindSlot(key) if binds(binding, node, hosts, key) => {
                    binding.down.close();
                }
                Request::UnbindPort { box_node, slot, epoch, .. }
                    if is_of(binding, node, hosts, (*box_node, *slot, *epoch)) =>
                {
                    binding.up.close();
                }
                _ => {}
            }
        }
    }

    /// Takes what a proxy has to tell, and keeps the books of who is bound to whom.
    pub(super) fn listen(&mut self, node: usize) -> Verdict {
        let now = self.now();
        while let Some(message) = self.role(node).and_then(|role| role.poll_control()) {
            self.lives[node].spin.moved();
            self.trace.control(now, node as u16 + 1, What::Told, format!("{message:?}"));
            match &message {
                FromProxy::Response { id, result } => {
                    if self.post.stale.remove(&(node, *id)) && result.is_ok() {
                        let what = format!("node {} obeyed a manager of a former term", node + 1);
                        return World::broken(4, what);
                    }
                    if self.restored(node, *id, result)? {
                        continue;
                    }
                    if self.lives[node].connected {
                        self.post.answers.answered(node, *id, result.is_ok())?;
                    }
                    let at = self.post.asked.iter().position(|a| (a.0, a.1) == (node, *id));
                    if let Some(at) = at {
                        let (_, _, request) = self.post.asked.remove(at);
                        if is_unbind(&request) && result.is_ok() {
                            self.did.once("bindings that a proxy gave up when it was asked to");
                            self.unbound(node, &request);
                        }
                        if *result == Ok(Reply::Done) {
                            self.lives[node].tables.took(&request);
                            self.watch(node, &request);
                            self.bound(node, &request)?;
                        }
                    }
                }
                FromProxy::Event { event, .. } => self.happened(node, event)?,
                FromProxy::Hello(_) | FromProxy::Pong | FromProxy::Reset(_) => {}
            }
            if self.lives[node].connected {
                let connection = self.post.connections[node];
                self.send_letter(node, true, Letter::ToManager { node, connection, message });
            }
        }
        self.links.settle(now);
        Ok(())
    }

    /// A proxy took something into its tables.
    pub(super) fn watch(&mut self, node: usize, request: &Request) {
        self.watch_wire(node, request);
        let now = self.now();
        match request {
            Request::SetPeer(peer) => {
                let other = usize::from(peer.node.get()) - 1;
                self.links.introduced(node, other, peer.incarnation);
                self.silences.told(now, node, other, peer.paths.len());
            }
            Request::RemovePeer(peer) => {
                let other = usize::from(peer.get()) - 1;
                self.links.removed(now, node, other);
                self.silences.told(now, node, other, 0);
            }
            _ => {}
        }
    }

    /// A proxy said yes to a binding.
    fn bound(&mut self, node: usize, request: &Request) -> Verdict {
        for (index, end) in self.ends_of(node, request)? {
            self.bound_end(node, index, end)?;
        }
        Ok(())
    }

    fn bound_end(&mut self, node: usize, index: usize, end: BoundEnd) -> Verdict {
        let before = match end {
            BoundEnd::Slot { at_box, slot } => &mut self.boxes[at_box].slots[slot].binding,
            BoundEnd::Port(port) => {
                let bound = &mut self.hosts[node].ports[port];
                let binding = self.bindings.get(index);
                binding.port = Some(port);
                binding.begin();
                // A proxy that only says so again has seen what was written meanwhile.
                binding.placed &= *bound == Some(index);
                bound
            }
        }
        .replace(index);
        self.replaced(before, index)
    }

    /// The bindings that a request to a proxy is for, and the ends of them that are there.
    pub(super) fn ends_of(
        &mut self,
        node: usize,
        request: &Request,
    ) -> Verdict<Vec<(usize, BoundEnd)>> {
        let hosts = self.hosts.len();
        match request {
            Request::BindSlot(binding) => {
                let (at_box, slot) = (node - hosts, slot_of(&binding.key));
                let host = usize::from(binding.host.get()) - 1;
                let epoch = binding.key.epoch.bits();
                let index = self.bindings.find(host, at_box, slot, epoch)?;
                Ok(vec![(index, BoundEnd::Slot { at_box, slot })])
            }
            Request::BindPort(binding) => {
                let at_box = usize::from(binding.box_node.get()) - 1 - hosts;
                let port = usize::from(binding.port.get()) * FUNCTIONS;
                let mut ends = Vec::new();
                for (function, epoch) in &binding.functions {
                    let key = BindingKey { slot: binding.slot, function: *function, epoch: *epoch };
                    let index = self.bindings.find(node, at_box, slot_of(&key), epoch.bits())?;
                    ends.push((index, BoundEnd::Port(port + usize::from(function.get()))));
                }
                Ok(ends)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The binding before this one is over for good: nothing of it may come any more. So are those
    /// of its slot to other hosts. One whose proxy stands still may still take what the device had
    /// sent it before, since it has not been told, and nothing else.
    fn replaced(&mut self, before: Option<usize>, now: usize) -> Verdict {
        let Binding { host, at_box, slot, .. } = *self.bindings.get(now);
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            for port in 0..self.hosts[other].ports.len() {
                let Some(index) = self.hosts[other].ports[port] else { continue };
                let binding = self.bindings.get(index);
                if (binding.at_box, binding.slot) != (at_box, slot) {
                    continue;
                }
                if self.lives[other].frozen.is_some() {
                    binding.close_down();
                    continue;
                }
                binding.close();
                self.hosts[other].ports[port] = None;
            }
        }
        if let Some(before) = before.filter(|before| *before != now) {
            let before = self.bindings.get(before);
            if self.lives[before.host].frozen.is_some() {
                before.close_down();
            } else {
                before.close();
            }
        }
        Ok(())
    }

    /// The manager goes on with what it has to do.
    pub(super) fn manager_turn(&mut self) -> Verdict {
        let now = self.now();
        let deaths = self.lender.manager().map_or(0, |manager| manager.crashes);
        let orders = self.lender.orders(now);
        if let Some(what) = self.lender.manager().and_then(|manager| manager.wrong_lease(now)) {
            return Self::broken(4, what);
        }
        if self.lender.manager().map_or(0, |manager| manager.crashes) != deaths {
            self.trace.say(now, 0, "the manager dies".into());
        }
        for (node, id, term, request) in orders {
            let connection = self.post.connections[node];
            let letter = Letter::ToProxy { node, connection, id, term, request };
            self.send_letter(node, false, letter);
        }
        for node in self.lender.take_closed() {
            self.lose_control(node);
        }
        if self.began.is_none() && self.is_quiet() {
            self.begin_schedule();
        }
        self.agenda.plan(now + TURN, Event::Manager);
        Ok(())
    }

    /// A promise that can be seen only from outside of all nodes.
    pub(super) fn broken(promise: u8, what: String) -> Verdict {
        Err(Violation::new(promise, what))
    }
}
