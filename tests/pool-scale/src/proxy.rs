//! Simulated proxies: each does at once what it is asked for, keeps its tables, and dials again
//! when its connection is lost.

use proxy_core::control::{
    CONTROL_VERSION, ControlError, Decoded, EraseFailure, Erasure, Event, FromProxy, Hello,
    InventoryEntry, MAX_MESSAGE, MappingEntry, Name, PathAddress, PathSet, PortBinding, PortState,
    RecorderPage, Removal, Reply, Request, RoleKind, SlotBinding, SlotEntry, SlotState, Term,
    ToProxy, decode, encode,
};
use proxy_core::limits::PAGE;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::ids::{Bdf, Epoch, NodeId, PortId, SlotFunction, SlotId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// How long a proxy waits before it dials again.
const REDIAL: Duration = Duration::from_millis(200);

/// What is counted over all proxies.
#[derive(Default)]
pub(crate) struct Counters {
    /// Proxies whose tables were read since they connected.
    pub(crate) read: AtomicU64,
    /// Requests that change a table.
    pub(crate) writes: AtomicU64,
}

/// A slot.
#[derive(Default)]
pub(crate) struct Slot {
    highest: u32,
    pub(crate) bound: Option<SlotBinding>,
}

/// What a proxy has, which outlives its connections.
pub(crate) struct State {
    node: Option<NodeId>,
    term: u64,
    pub(crate) slots: Vec<Slot>,
    pub(crate) ports: Vec<Option<PortBinding>>,
    peers: BTreeSet<u16>,
    events: u64,
}

/// One proxy.
pub(crate) struct Proxy {
    name: String,
    index: u16,
    role: RoleKind,
    counters: Arc<Counters>,
    pub(crate) state: Mutex<State>,
    /// Makes it tell of a link that came up.
    pub(crate) nudge: Notify,
}

/// A message that is to be sent, or the end of the connection.
type Outgoing = Vec<u8>;

thread_local! {
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; 4 + MAX_MESSAGE]);
}

fn put(out: &mut Outgoing, message: &FromProxy) {
    // Most are short: room for the longest is there once for each thread.
    ROOM.with_borrow_mut(|room| {
        out.extend_from_slice(encode(message, room).expect("messages fit"));
    });
}

impl Proxy {
    pub(crate) fn new(name: String, index: u16, role: RoleKind, counters: &Arc<Counters>) -> Self {
        let (slots, ports) = match role {
            RoleKind::Box { slots } => (slots, 0),
            RoleKind::Host { ports } => (0, ports),
        };
        let state = State {
            node: None,
            term: 0,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            ports: vec![None; ports.into()],
            peers: BTreeSet::new(),
            events: 0,
        };
        let (counters, nudge) = (counters.clone(), Notify::new());
        Self { name, index, role, counters, state: Mutex::new(state), nudge }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its node number; nothing before it was first let in.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.with(|state| state.node)
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock().expect("no one panics while holding it"))
    }

    /// Dials and serves, again and again.
    pub(crate) async fn run(self: Arc<Self>, control: SocketAddr) {
        loop {
            if let Ok(stream) = TcpStream::connect(control).await {
                // Whatever ended it, it is dialled again.
                let _ = self.converse(stream).await;
            }
            tokio::time::sleep(REDIAL).await;
        }
    }

    fn hello(&self) -> FromProxy {
        let [high, low] = self.index.to_be_bytes();
        let path = PathAddress::Udp4 { ip: [10, 0, high, low], port: 4000 };
        let (node, term) = self.with(|state| (state.node, state.term));
        FromProxy::Hello(Hello {
            version: CONTROL_VERSION,
            name: Name::try_from(self.name.as_str()).expect("it is short"),
            role: self.role,
            incarnation: 1,
            node,
            paths: [path].into_iter().collect(),
            mtu: 9000,
            term: Term(term),
        })
    }

    async fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut input, mut output) = (Vec::new(), Vec::new());
        put(&mut output, &self.hello());
        stream.write_all(&output).await?;
        let mut read_once = false;
        let mut buffer = [0; 4096];
        loop {
            output.clear();
            tokio::select! {
                count = stream.read(&mut buffer) => {
                    let count = count?;
                    if count == 0 {
                        break;
                    }
                    input.extend_from_slice(&buffer[..count]);
                    if !self.take_in(&mut input, &mut output, &mut read_once) {
                        break;
                    }
                }
                () = self.nudge.notified() => {
                    let peer = self.node().unwrap_or(NodeId::MAX);
                    self.tell(&mut output, Event::LinkUp { peer });
                }
            }
            if !output.is_empty() {
                stream.write_all(&output).await?;
            }
            input.shrink_to(4096);
            output.shrink_to(4096);
        }
        if read_once {
            self.counters.read.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn tell(&self, output: &mut Outgoing, event: Event) {
        let sequence = self.with(|state| {
            state.events += 1;
            state.events
        });
        put(output, &FromProxy::Event { sequence, event });
    }

    /// Takes in whole messages. Whether the conversation goes on.
    fn take_in(&self, input: &mut Vec<u8>, output: &mut Outgoing, read_once: &mut bool) -> bool {
        let mut used = 0;
        let goes_on = loop {
            match decode::<ToProxy>(&input[used..]) {
                Ok(Decoded::Message(message, length)) => {
                    used += length;
                    match message {
                        ToProxy::Welcome(welcome) => {
                            self.with(|state| state.node = Some(welcome.node));
                        }
                        ToProxy::Refused(_) => break false,
                        ToProxy::Ping => put(output, &FromProxy::Pong),
                        ToProxy::Request { id, term, body } => {
                            let result = self.obey(term, &body);
                            let last = is_last_page(&result);
                            put(output, &FromProxy::Response { id, result });
                            if last && !*read_once {
                                *read_once = true;
                                self.counters.read.fetch_add(1, Ordering::Relaxed);
                            }
                            if let Request::BindPort(binding) = body {
                                self.tell(output, Event::DeviceConfigured { port: binding.port });
                            }
                        }
                    }
                }
                Ok(Decoded::Incomplete) => break true,
                Err(_) => break false,
            }
        };
        input.drain(..used);
        goes_on
    }

    fn obey(&self, term: Term, body: &Request) -> Result<Reply, ControlError> {
        let mut state = self.state.lock().expect("no one panics while holding it");
        if term.0 < state.term {
            return Err(ControlError::StaleTerm(Term(state.term)));
        }
        state.term = term.0;
        match body {
            Request::BindSlot(_) | Request::UnbindSlot(_) | Request::BindPort(_) => {
                self.counters.writes.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        match (self.role, body) {
            (_, Request::SetPeer(peer)) => {
                state.peers.insert(peer.node.get());
                Ok(Reply::Done)
            }
            (_, Request::RemovePeer(node)) => {
                state.peers.remove(&node.get());
                Ok(Reply::Done)
            }
            (RoleKind::Host { .. }, Request::ReadTable { from }) => Ok(state.mapping(*from)),
            (RoleKind::Box { .. }, Request::ReadTable { from }) => Ok(state.table(*from)),
            (RoleKind::Box { .. }, Request::ReadInventory { from }) => {
                Ok(state.inventory(*from, self.index))
            }
            (RoleKind::Box { .. }, Request::BindSlot(binding)) => state.bind_slot(binding),
            (RoleKind::Box { .. }, Request::UnbindSlot(key)) => {
                let slot = state.slot(key.slot)?;
                if slot.bound.as_ref().is_some_and(|there| there.key == *key) {
                    slot.bound = None;
                }
                Ok(Reply::Slot(slot.state()))
            }
            (RoleKind::Host { .. }, Request::BindPort(binding)) => state.bind_port(binding),
            (RoleKind::Host { .. }, Request::UnbindPort { port, epoch, mode, .. }) => {
                let there = state.port(*port)?;
                if there.as_ref().is_some_and(|there| there.functions[0].1 == *epoch) {
                    *there = None;
                }
                Ok(Reply::Removed { orderly: *mode != Removal::Force })
            }
            (RoleKind::Box { .. }, Request::Recover(slot)) => {
                let slot = state.slot(*slot)?;
                Ok(Reply::Slot(slot.state()))
            }
            (RoleKind::Box { .. }, Request::Erase(erase)) => {
                let done = erase.methods.iter().next().map(Erasure::Done);
                let answer = done.unwrap_or(Erasure::Failed(EraseFailure::NotOffered));
                Ok(Reply::Erasure(answer.into()))
            }
            (_, Request::SetSampling(_) | Request::SetLogLevel(_) | Request::SetRecorder(_)) => {
                Ok(Reply::Done)
            }
            (_, Request::ReadCounters { .. }) => {
                let name = Name::try_from("tlps.sent").expect("it is short");
                let entries = [(name, state.events)].into_iter().collect();
                Ok(Reply::Counters { entries, next: None })
            }
            // No TLP ever passes.
            (_, Request::ReadStamps { .. }) => {
                Ok(Reply::Stamps { entries: Default::default(), next: None })
            }
            (_, Request::ReadRecorder { from }) => Ok(Reply::Recorder(RecorderPage {
                first: *from,
                end: *from,
                lost: 0,
                now: state.events,
                requests: Default::default(),
                bytes: Default::default(),
            })),
            (_, Request::Firmware(_)) => Err(ControlError::NoFirmware),
            _ => Err(ControlError::WrongRole),
        }
    }
}

/// Whether this ends the reading of a host's or box's bindings, which are read last.
fn is_last_page(result: &Result<Reply, ControlError>) -> bool {
    matches!(result, Ok(Reply::Mapping { next: None, .. } | Reply::Slots { next: None, .. }))
}

impl Slot {
    fn state(&self) -> SlotState {
        if self.bound.is_some() { SlotState::Bound } else { SlotState::Free }
    }
}

impl State {
    fn slot(&mut self, slot: SlotId) -> Result<&mut Slot, ControlError> {
        let index = usize::from(slot.get()).wrapping_sub(1);
        self.slots.get_mut(index).ok_or(ControlError::NoSuchSlot(slot))
    }

    fn port(&mut self, port: PortId) -> Result<&mut Option<PortBinding>, ControlError> {
        self.ports.get_mut(usize::from(port.get())).ok_or(ControlError::NoSuchPort(port))
    }

    fn bind_slot(&mut self, binding: &SlotBinding) -> Result<Reply, ControlError> {
        if !self.peers.contains(&binding.host.get()) {
            return Err(ControlError::UnknownPeer(binding.host));
        }
        let slot = self.slot(binding.key.slot)?;
        match &slot.bound {
            Some(there) if there == binding => return Ok(Reply::Done),
            Some(there) => return Err(ControlError::InUse(there.key.epoch)),
            None => {}
        }
        if binding.key.epoch.bits() <= slot.highest {
            let highest = Epoch::from_bits(slot.highest).expect("it was one");
            return Err(ControlError::StaleEpoch(highest));
        }
        slot.highest = binding.key.epoch.bits();
        slot.bound = Some(binding.clone());
        Ok(Reply::Done)
    }

    fn bind_port(&mut self, binding: &PortBinding) -> Result<Reply, ControlError> {
        if !self.peers.contains(&binding.box_node.get()) {
            return Err(ControlError::UnknownPeer(binding.box_node));
        }
        let there = self.port(binding.port)?;
        match there {
            Some(there) if there == binding => Ok(Reply::Done),
            Some(there) => Err(ControlError::InUse(there.functions[0].1)),
            None => {
                *there = Some(binding.clone());
                Ok(Reply::Done)
            }
        }
    }

    fn mapping(&self, from: u16) -> Reply {
        let entry = |(index, bound): (usize, &Option<PortBinding>)| MappingEntry {
            port: PortId::new(index as u8).expect("few ports"),
            used: bound.is_some(),
            state: if bound.is_some() { PortState::Present } else { PortState::Empty },
            buses: (index as u8 + 2, index as u8 + 2),
            device: Bdf::from_bits((index as u16 + 2) << 8),
            memory: None,
            prefetchable: None,
            io: None,
            box_node: bound.as_ref().map_or(0, |b| b.box_node.get()),
            slot: bound.as_ref().map_or(0, |b| b.slot.get()),
            functions: bound.as_ref().map(|b| b.functions.clone()).unwrap_or_default(),
            path_set: PathSet::FIRST,
            configured: bound.is_some(),
        };
        let (entries, next) = page(&self.ports, from, entry);
        Reply::Mapping { root_complex: true, entries, next }
    }

    fn table(&self, from: u16) -> Reply {
        let entry = |(index, slot): (usize, &Slot)| SlotEntry {
            entry: index as u16,
            valid: true,
            used: slot.bound.is_some(),
            state: slot.state(),
            slot: SlotId::new(index as u8 + 1).expect("few slots"),
            function: SlotFunction::ZERO,
            host_node: slot.bound.as_ref().map_or(0, |b| b.host.get()),
            path_set: PathSet::FIRST,
            epoch: slot.highest,
            windows: slot.bound.as_ref().map(|b| b.windows.clone()).unwrap_or_default(),
        };
        let (entries, next) = page(&self.slots, from, entry);
        Reply::Slots { entries, next }
    }

    fn inventory(&self, from: u16, index: u16) -> Reply {
        let entry = |(slot, there): (usize, &Slot)| InventoryEntry {
            slot: SlotId::new(slot as u8 + 1).expect("few slots"),
            function: SlotFunction::ZERO,
            state: there.state(),
            model: Name::try_from("gpu").expect("it is short"),
            id: (0x10de, 0x20b5),
            subsystem: (0x10de, 0x1533),
            class: 0x03_0200,
            revision: 0xa1,
            serial: (u64::from(index) << 8) | slot as u64 | 1 << 40,
            bars: [16 << 20, 0, 80 << 30, 0, 32 << 20, 0],
            highest_epoch: there.highest,
        };
        let (entries, next) = page(&self.slots, from, entry);
        Reply::Inventory { entries, next }
    }
}

/// As many entries as fit in one answer, and where the next page begins.
fn page<T, E, C: FromIterator<E>>(
    all: &[T],
    from: u16,
    entry: impl Fn((usize, &T)) -> E,
) -> (C, Option<u16>) {
    let from = usize::from(from).min(all.len());
    let end = (from + PAGE).min(all.len());
    let entries = all.iter().enumerate().take(end).skip(from).map(entry).collect();
    (entries, (end < all.len()).then_some(end as u16))
}
