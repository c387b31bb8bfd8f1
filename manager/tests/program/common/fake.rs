//! A proxy that speaks the real control protocol over real TCP and does by a script what real
//! ones do rarely. It keeps tables as a real one does, so that a test can look at what reached it.

use proxy_core::control::*;
use proxy_core::limits::{MAX_RECORDED, PAGE, RECORDER_PIECE};
use proxy_core::recorder::{Entry, Recorded};
use proxy_core::stamps::StampedTlp;
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tlp_codec::ids::{
    Bdf, BindingKey, Epoch, NodeId, OutstandingRef, PortId, SlotFunction, SlotId,
};

/// What to do instead of obeying.
#[derive(Clone, Debug)]
pub enum Script {
    /// Say no.
    Refuse(ControlError),
    /// Answer with this.
    Answer(Box<Reply>),
    /// Say nothing.
    Ignore,
    /// Break the connection before obeying.
    Vanish,
    /// Obey, then break the connection instead of answering.
    ObeyAndVanish,
}

type Rule = Box<dyn FnMut(&Request) -> Option<Script> + Send>;

/// A slot.
#[derive(Clone, Debug)]
pub struct Slot {
    pub state: SlotState,
    pub model: String,
    pub highest: u32,
    pub bound: Option<SlotBinding>,
    /// Whether the device fails its reset when it is taken back.
    pub fails_reset: bool,
    /// Serial number of the device, if it is not one of the slot.
    pub serial: Option<u64>,
}

/// What a proxy has, which may outlive its connection.
pub struct State {
    pub slots: Vec<Slot>,
    pub ports: BTreeMap<u8, (PortBinding, PortState)>,
    pub peers: BTreeMap<u16, Peer>,
    pub term: u64,
    /// Every request, in order.
    pub log: Vec<Request>,
    /// Whether the operating system behind it enables what is plugged.
    pub enumerates: bool,
    /// Whether it tells when that has happened.
    pub tells: bool,
    /// Whether a host has a root complex.
    pub root_complex: bool,
    /// Asked for each request before it is obeyed.
    pub rules: Vec<Rule>,
    pub node: Option<NodeId>,
    /// What the manager wants recorded, and how often it asked what was.
    pub recorded: heapless::Vec<Recorded, MAX_RECORDED>,
    pub recorder_pages: u64,
    /// What it counts besides what all count.
    pub counters: BTreeMap<String, u64>,
}

/// Who it is.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    pub role: RoleKind,
    pub incarnation: u32,
    pub version: u16,
    pub mtu: u16,
    /// Where its paths end, besides the first.
    pub paths: Vec<PathAddress>,
}

pub struct Fake {
    pub spec: Spec,
    pub state: Arc<Mutex<State>>,
    pub welcome: Welcome,
    stream: TcpStream,
    events: Arc<Mutex<u64>>,
    over: Arc<AtomicBool>,
}

pub fn host(name: &str, ports: u8) -> Spec {
    let role = RoleKind::Host { ports };
    Spec {
        name: name.into(),
        role,
        incarnation: 1,
        version: CONTROL_VERSION,
        mtu: 1500,
        paths: Vec::new(),
    }
}

pub fn boxed(name: &str, slots: u8) -> Spec {
    let role = RoleKind::Box { slots };
    Spec {
        name: name.into(),
        role,
        incarnation: 1,
        version: CONTROL_VERSION,
        mtu: 9000,
        paths: Vec::new(),
    }
}

/// A new proxy's tables: every slot has a free device of this model.
pub fn fresh(spec: &Spec, model: &str) -> Arc<Mutex<State>> {
    let slots = match spec.role {
        RoleKind::Box { slots } => slots,
        RoleKind::Host { .. } => 0,
    };
    let slot = Slot {
        state: SlotState::Free,
        model: model.to_owned(),
        highest: 0,
        bound: None,
        fails_reset: false,
        serial: None,
    };
    Arc::new(Mutex::new(State {
        slots: vec![slot; slots.into()],
        ports: BTreeMap::new(),
        peers: BTreeMap::new(),
        term: 0,
        log: Vec::new(),
        enumerates: true,
        tells: true,
        root_complex: true,
        rules: Vec::new(),
        recorded: heapless::Vec::new(),
        recorder_pages: 0,
        counters: BTreeMap::new(),
        node: None,
    }))
}

impl Spec {
    pub fn hello(&self, state: &State) -> Hello {
        let number = self.name.bytes().fold(0, u8::wrapping_add);
        let path = PathAddress::Udp4 { ip: [127, 0, 0, number], port: 4000 };
        Hello {
            version: self.version,
            name: Name::try_from(self.name.as_str()).unwrap(),
            role: self.role,
            incarnation: self.incarnation,
            node: state.node,
            paths: std::iter::once(path).chain(self.paths.iter().copied()).collect(),
            mtu: self.mtu,
            term: Term(state.term),
        }
    }
}

/// Sends one message.
pub fn send(mut stream: &TcpStream, message: &FromProxy) -> std::io::Result<()> {
    let mut buffer = vec![0; 4 + MAX_MESSAGE];
    stream.write_all(encode(message, &mut buffer).unwrap())
}

/// Receives one message; none when the connection ended.
pub fn receive(mut stream: &TcpStream, buffer: &mut Vec<u8>) -> Option<ToProxy> {
    loop {
        match decode(buffer).expect("the manager's messages decode") {
            Decoded::Message(message, used) => {
                buffer.drain(..used);
                return Some(message);
            }
            Decoded::Incomplete => {
                let mut chunk = [0; 4096];
                match stream.read(&mut chunk) {
                    Ok(0) | Err(_) => return None,
                    Ok(count) => buffer.extend(&chunk[..count]),
                }
            }
        }
    }
}

impl Fake {
    /// Connects a new proxy.
    pub fn join(control: SocketAddr, spec: Spec, model: &str) -> Fake {
        let state = fresh(&spec, model);
        Self::connect(control, spec, state).unwrap_or_else(|reason| panic!("refused: {reason}"))
    }

    /// Connects with these tables. The error is the manager's reason to refuse.
    pub fn connect(
        control: SocketAddr,
        spec: Spec,
        state: Arc<Mutex<State>>,
    ) -> Result<Fake, String> {
        let stream = TcpStream::connect(control).unwrap();
        stream.set_nodelay(true).unwrap();
        let hello = spec.hello(&state.lock().unwrap());
        send(&stream, &FromProxy::Hello(hello)).unwrap();
        let mut buffer = Vec::new();
        let welcome = match receive(&stream, &mut buffer) {
            Some(ToProxy::Welcome(welcome)) => welcome,
            Some(ToProxy::Refused(refused)) => return Err(refused.reason.as_str().to_owned()),
            other => return Err(format!("{other:?}")),
        };
        state.lock().unwrap().node = Some(welcome.node);
        let events = Arc::new(Mutex::new(1));
        let server = Server {
            stream: stream.try_clone().unwrap(),
            state: state.clone(),
            role: spec.role,
            events: events.clone(),
        };
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        std::thread::spawn(move || {
            server.run(buffer);
            ended.store(true, Ordering::Relaxed);
        });
        Ok(Fake { spec, state, welcome, stream, events, over })
    }

    /// Whether its connection has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Says something of its own accord.
    pub fn say(&self, message: &FromProxy) {
        send(&self.stream, message).unwrap();
    }

    /// Connects until the manager lets it in: after a restart of the manager, or while an older
    /// connection of the same name is still there.
    pub fn insist(control: SocketAddr, spec: Spec, state: Arc<Mutex<State>>) -> Fake {
        let begun = Instant::now();
        loop {
            match Self::connect(control, spec.clone(), state.clone()) {
                Ok(fake) => return fake,
                Err(reason) => assert!(begun.elapsed() < super::LONG, "refused: {reason}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the connection and gives back the tables.
    pub fn leave(self) -> (Spec, Arc<Mutex<State>>) {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap_or(());
        (self.spec.clone(), self.state.clone())
    }

    /// Ends the connection as a restart does: the tables are lost, epochs are not.
    pub fn restart(self, control: SocketAddr) -> Fake {
        let (mut spec, state) = self.leave();
        spec.incarnation += 1;
        {
            let mut state = state.lock().unwrap();
            state.ports.clear();
            state.peers.clear();
            for slot in &mut state.slots {
                slot.bound = None;
                slot.state = SlotState::Free;
            }
        }
        Self::insist(control, spec, state)
    }

    /// Puts a device with this serial number into a slot, or pulls what is in it out.
    pub fn set_device(&self, slot: u8, serial: Option<u64>) {
        let state = if serial.is_some() { SlotState::Free } else { SlotState::Empty };
        self.with(|s| {
            let slot = &mut s.slots[usize::from(slot) - 1];
            (slot.state, slot.serial, slot.bound) = (state, serial, None);
        });
        let (slot, function) = (SlotId::new(slot).unwrap(), SlotFunction::ZERO);
        self.event(Event::Slot { slot, function, state });
    }

    /// Counts on.
    pub fn count(&self, name: &str, more: u64) {
        self.with(|s| *s.counters.entry(name.to_owned()).or_default() += more);
    }

    /// Sends an event.
    pub fn event(&self, event: Event) {
        emit(&self.stream, &self.events, event);
    }

    /// Lets the host's root complex come or go.
    pub fn set_root_complex(&self, present: bool) {
        self.with(|state| state.root_complex = present);
        self.event(Event::RootComplex { present });
    }

    /// Leaves a hole in the events' numbers.
    pub fn lose_event(&self) {
        *self.events.lock().unwrap() += 1;
    }

    /// Does something else than obeying.
    pub fn rule(&self, rule: impl FnMut(&Request) -> Option<Script> + Send + 'static) {
        self.state.lock().unwrap().rules.push(Box::new(rule));
    }

    /// Does these things, in this order, for the first requests that a condition holds for.
    pub fn script(&self, which: fn(&Request) -> bool, scripts: impl IntoIterator<Item = Script>) {
        let mut scripts: VecDeque<Script> = scripts.into_iter().collect();
        self.rule(move |request| if which(request) { scripts.pop_front() } else { None });
    }

    pub fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock().unwrap())
    }

    /// Key of the binding in a slot.
    pub fn bound(&self, slot: u8) -> Option<BindingKey> {
        self.with(|s| s.slots[usize::from(slot) - 1].bound.as_ref().map(|b| b.key))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn emit(stream: &TcpStream, events: &Mutex<u64>, event: Event) {
    let mut next = events.lock().unwrap();
    let sequence = *next;
    *next += 1;
    let _ = send(stream, &FromProxy::Event { sequence, event });
}

struct Server {
    stream: TcpStream,
    state: Arc<Mutex<State>>,
    role: RoleKind,
    events: Arc<Mutex<u64>>,
}

impl Server {
    fn run(self, mut buffer: Vec<u8>) {
        while let Some(message) = receive(&self.stream, &mut buffer) {
            let sent = match message {
                ToProxy::Ping => send(&self.stream, &FromProxy::Pong),
                ToProxy::Request { id, term, body } => match self.request(id, term, body) {
                    Some(sent) => sent,
                    None => break,
                },
                other => panic!("not in a conversation: {other:?}"),
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Answers, or ends the connection.
    fn request(&self, id: OperationId, term: Term, body: Request) -> Option<std::io::Result<()>> {
        let mut state = self.state.lock().unwrap();
        let mut rules = std::mem::take(&mut state.rules);
        let script = rules.iter_mut().find_map(|rule| rule(&body));
        state.rules.extend(rules);
        state.log.push(body.clone());
        let result = match script {
            Some(Script::Refuse(error)) => Err(error),
            Some(Script::Answer(reply)) => Ok(*reply),
            Some(Script::Ignore) => return Some(Ok(())),
            Some(Script::Vanish) => return None,
            Some(Script::ObeyAndVanish) => {
                let _ = self.obey(&mut state, term, body);
                return None;
            }
            None => self.obey(&mut state, term, body.clone()),
        };
        let bound = matches!((&body, &result), (Request::BindPort(_), Ok(_)));
        let sent = send(&self.stream, &FromProxy::Response { id, result });
        if let Request::BindPort(binding) = body
            && bound
            && state.enumerates
            && state.tells
        {
            emit(&self.stream, &self.events, Event::DeviceConfigured { port: binding.port });
        }
        Some(sent)
    }

    fn obey(&self, state: &mut State, term: Term, body: Request) -> Result<Reply, ControlError> {
        if term.0 < state.term {
            return Err(ControlError::StaleTerm(Term(state.term)));
        }
        state.term = term.0;
        let host = matches!(self.role, RoleKind::Host { .. });
        match body {
            Request::SetPeer(peer) => {
                state.peers.insert(peer.node.get(), peer);
                Ok(Reply::Done)
            }
            Request::RemovePeer(node) => {
                state.peers.remove(&node.get());
                Ok(Reply::Done)
            }
            Request::ReadTable { from } if host => Ok(mapping_page(state, self.role, from)),
            Request::ReadTable { from } => Ok(slot_page(state, from)),
            Request::ReadCounters { from } => Ok(counter_page(state, from)),
            Request::SetSampling(_) | Request::SetLogLevel(_) => Ok(Reply::Done),
            Request::ReadStamps { .. } => {
                let at = [Some(1), Some(2), Some(3), None, None, None];
                let key = BindingKey {
                    slot: SlotId::new(1).unwrap(),
                    function: SlotFunction::ZERO,
                    epoch: Epoch::new(0, 1).unwrap(),
                };
                let stamp = StampEntry {
                    peer: NodeId::new(2).unwrap(),
                    binding: key,
                    from_host: true,
                    tlp: StampedTlp::Request(OutstandingRef { index: 5, generation: 6 }),
                    at,
                };
                let posted = StampEntry { tlp: StampedTlp::Posted(Some(77)), ..stamp.clone() };
                Ok(Reply::Stamps { entries: [stamp, posted].into_iter().collect(), next: None })
            }
            Request::SetRecorder(list) => {
                state.recorded = list;
                Ok(Reply::Done)
            }
            Request::ReadRecorder { from } => Ok(Reply::Recorder(recorder_page(state, host, from))),
            Request::BindPort(binding) if host => bind_port(state, binding),
            Request::UnbindPort { port, box_node, slot, epoch, mode } if host => {
                let there = state.ports.get(&port.get());
                let there = there.map(|(b, _)| (b.box_node, b.slot, b.functions[0].1));
                if there == Some((box_node, slot, epoch)) {
                    state.ports.remove(&port.get());
                }
                Ok(Reply::Removed { orderly: mode != Removal::Force })
            }
            Request::BindSlot(binding) if !host => bind_slot(state, binding),
            Request::UnbindSlot(key) if !host => unbind_slot(state, key),
            Request::Recover(slot) if !host => {
                let slot = slot_of(state, slot)?;
                slot.state = SlotState::Free;
                Ok(Reply::Slot(SlotState::Free))
            }
            Request::ReadInventory { from } if !host => Ok(inventory_page(state, from)),
            // Erased in a moment, by the first means.
            Request::Erase(erase) if !host => {
                let node = state.node;
                let slot = slot_of(state, erase.key.slot)?;
                if serial_of(node, erase.key.slot.get() - 1, slot) != erase.serial {
                    return Err(ControlError::SlotEmpty(erase.key.slot));
                }
                let done = erase.methods.iter().next().map(Erasure::Done);
                let answer = done.unwrap_or(Erasure::Failed(EraseFailure::NotOffered));
                Ok(Reply::Erasure(answer.into()))
            }
            Request::Firmware(_) => Err(ControlError::NoFirmware),
            _ => Err(ControlError::WrongRole),
        }
    }
}

/// One read of the host from each binding that is recorded, again and again: each end's clock
/// counts the pages.
fn recorder_page(state: &mut State, host: bool, from: u64) -> RecorderPage {
    state.recorder_pages += 1;
    let time = state.recorder_pages * 1_000_000;
    let entry = OutstandingRef { index: 1, generation: state.recorder_pages as u16 };
    let (ask, answer) = if host {
        ([0, 10, 20, 0, 0, 0], [0, 0, 0, 520, 530, 540])
    } else {
        ([0, 0, 0, 100, 110, 120], [300, 310, 320, 0, 0, 0])
    };
    let mut bytes = heapless::Vec::new();
    for recorded in &state.recorded {
        if recorded.frames > 0 {
            put(&mut bytes, &Entry::Lost { entries: 3 }, &[]);
            continue;
        }
        for (tlp, at) in
            [(StampedTlp::Request(entry), ask), (StampedTlp::Completion(entry), answer)]
        {
            let sends = (tlp == StampedTlp::Request(entry)) == host;
            let here = |stage: usize| (stage < 3) == sends;
            let at = std::array::from_fn(|stage| here(stage).then(|| time + at[stage]));
            let (peer, binding) = (recorded.peer, recorded.binding);
            let stamps = StampEntry { peer, binding, from_host: true, tlp, at };
            let (id, length) = (u32::from(tlp != StampedTlp::Request(entry)), 12);
            if recorded.tlps > 0 {
                let tlp = Entry::Tlp { id, length, stamps: stamps.clone() };
                put(&mut bytes, &tlp, &[0, 0, 0, 1, 0, 0, 5, 0x0f, 0xfe, 0, 0, 0x10]);
            }
            put(&mut bytes, &Entry::Stamps { id, stamps }, &[]);
        }
    }
    let requests = state.recorded.iter().map(|_| state.recorder_pages).collect();
    let end = from + bytes.len() as u64;
    RecorderPage { first: from, end, lost: 0, now: time + 1000, requests, bytes }
}

fn put(page: &mut heapless::Vec<u8, RECORDER_PIECE>, entry: &Entry, bytes: &[u8]) {
    let mut buffer = [0; 128];
    let head = postcard::to_slice(entry, &mut buffer).unwrap();
    page.extend_from_slice(&((head.len() + bytes.len()) as u16).to_le_bytes()).unwrap();
    page.extend_from_slice(head).unwrap();
    page.extend_from_slice(bytes).unwrap();
}

fn slot_of(state: &mut State, slot: SlotId) -> Result<&mut Slot, ControlError> {
    let index = usize::from(slot.get()).wrapping_sub(1);
    state.slots.get_mut(index).ok_or(ControlError::NoSuchSlot(slot))
}

fn bind_port(state: &mut State, binding: PortBinding) -> Result<Reply, ControlError> {
    if !state.peers.contains_key(&binding.box_node.get()) {
        return Err(ControlError::UnknownPeer(binding.box_node));
    }
    match state.ports.get(&binding.port.get()) {
        Some((there, _)) if *there == binding => Ok(Reply::Done),
        Some((there, _)) => Err(ControlError::InUse(there.functions[0].1)),
        None => {
            state.ports.insert(binding.port.get(), (binding, PortState::Present));
            Ok(Reply::Done)
        }
    }
}

fn bind_slot(state: &mut State, binding: SlotBinding) -> Result<Reply, ControlError> {
    if !state.peers.contains_key(&binding.host.get()) {
        return Err(ControlError::UnknownPeer(binding.host));
    }
    let slot = slot_of(state, binding.key.slot)?;
    if slot.bound.as_ref() == Some(&binding) {
        return Ok(Reply::Done);
    }
    match slot.state {
        SlotState::Empty => return Err(ControlError::SlotEmpty(binding.key.slot)),
        SlotState::Quarantined => return Err(ControlError::Quarantined(binding.key.slot)),
        _ => {}
    }
    if let Some(there) = &slot.bound {
        return Err(ControlError::InUse(there.key.epoch));
    }
    if binding.key.epoch.bits() <= slot.highest {
        return Err(ControlError::StaleEpoch(Epoch::from_bits(slot.highest).unwrap()));
    }
    slot.highest = binding.key.epoch.bits();
    slot.state = SlotState::Bound;
    slot.bound = Some(binding);
    Ok(Reply::Done)
}

fn unbind_slot(state: &mut State, key: BindingKey) -> Result<Reply, ControlError> {
    let slot = slot_of(state, key.slot)?;
    if slot.bound.as_ref().is_some_and(|b| b.key == key) {
        slot.bound = None;
        slot.state = if slot.fails_reset { SlotState::Quarantined } else { SlotState::Free };
    }
    Ok(Reply::Slot(slot.state))
}

fn mapping_page(state: &State, role: RoleKind, from: u16) -> Reply {
    let RoleKind::Host { ports } = role else { unreachable!() };
    let entry = |port: u8| {
        let bound = state.ports.get(&port);
        MappingEntry {
            port: PortId::new(port).unwrap(),
            used: bound.is_some(),
            state: bound.map_or(PortState::Empty, |(_, state)| *state),
            buses: (port + 2, port + 2),
            device: Bdf::from_bits(u16::from(port + 2) << 8),
            memory: bound.map(|_| (0xe000_0000, 0xe00f_ffff)),
            prefetchable: None,
            io: None,
            box_node: bound.map_or(0, |(b, _)| b.box_node.get()),
            slot: bound.map_or(0, |(b, _)| b.slot.get()),
            functions: bound.map(|(b, _)| b.functions.clone()).unwrap_or_default(),
            path_set: PathSet::FIRST,
            configured: state.enumerates
                && bound.is_some_and(|(_, state)| *state == PortState::Present),
        }
    };
    let from = from.min(ports.into()) as u8;
    let entries = (from..ports).map(entry).take(PAGE).collect();
    Reply::Mapping { root_complex: state.root_complex, entries, next: None }
}

fn slot_page(state: &State, from: u16) -> Reply {
    let entry = |(index, slot): (usize, &Slot)| SlotEntry {
        entry: index as u16,
        valid: slot.state != SlotState::Empty,
        used: slot.bound.is_some(),
        state: slot.state,
        slot: SlotId::new(index as u8 + 1).unwrap(),
        function: SlotFunction::ZERO,
        host_node: slot.bound.as_ref().map_or(0, |b| b.host.get()),
        path_set: PathSet::FIRST,
        epoch: slot.highest,
        windows: slot.bound.as_ref().map(|b| b.windows.clone()).unwrap_or_default(),
    };
    let (from, end) = page_of(state.slots.len(), from);
    let entries = state.slots.iter().enumerate().take(end).skip(from).map(entry).collect();
    Reply::Slots { entries, next: (end < state.slots.len()).then_some(end as u16) }
}

/// Two entries a page, so that there are several pages.
fn page_of(count: usize, from: u16) -> (usize, usize) {
    let from = usize::from(from).min(count);
    (from, (from + 2).min(count))
}

/// What the device in a slot has for a serial number: its own, else one of box and slot.
fn serial_of(node: Option<NodeId>, index: u8, slot: &Slot) -> u64 {
    if slot.state == SlotState::Empty {
        return 0;
    }
    let number = node.map_or(0, |node| u64::from(node.get()));
    slot.serial.unwrap_or(0x1122_3344_0000_7700 + (number << 16) + u64::from(index))
}

pub fn inventory_page(state: &State, from: u16) -> Reply {
    let is_there = |slot: &Slot| u16::from(slot.state != SlotState::Empty);
    let entry = |(index, slot): (usize, &Slot)| InventoryEntry {
        slot: SlotId::new(index as u8 + 1).unwrap(),
        function: SlotFunction::ZERO,
        state: slot.state,
        model: Name::try_from(slot.model.as_str()).unwrap(),
        id: (0x1af4 * is_there(slot), (0x1000 + index as u16) * is_there(slot)),
        subsystem: (0x1af4, 1),
        class: 0x01_0802,
        revision: 1,
        serial: serial_of(state.node, index as u8, slot),
        bars: [16384, 0, 1 << 20, 0, 0, 0],
        highest_epoch: slot.highest,
    };
    let (from, end) = page_of(state.slots.len(), from);
    let entries = state.slots.iter().enumerate().take(end).skip(from).map(entry).collect();
    Reply::Inventory { entries, next: (end < state.slots.len()).then_some(end as u16) }
}

fn counter_page(state: &State, from: u16) -> Reply {
    let name = |text: &str| Name::try_from(text).unwrap();
    let (entries, next) = match from {
        0 => ([(name("frames.sent"), 3), (name("frames.bad_crc"), 0)], Some(2)),
        _ => ([(name("tlps.sent"), 7), (name("tlps.dropped"), 1)], None),
    };
    let own = state.counters.iter().filter(|_| from != 0);
    let own = own.map(|(text, value)| (name(text), *value));
    Reply::Counters { entries: entries.into_iter().chain(own).collect(), next }
}
