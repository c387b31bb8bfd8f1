//! A proxy that speaks the real control protocol over real TCP and does by a script what real
//! ones do rarely. It keeps tables as a real one does, so that a test can look at what reached it.

use proxy_core::control::*;
use proxy_core::limits::MAX_RECORDED;
use proxy_core::recorder::Recorded;
use server::{Server, emit};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tlp_codec::ids::{BindingKey, NodeId, SlotFunction, SlotId};

mod pages;
mod server;

pub use pages::inventory_page;

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
    /// Device ID.
    pub device: u16,
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
    /// What it tells before it answers anything, as a proxy tells of what was let go of.
    pub first: Vec<Event>,
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
        device: 0x1000,
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
        first: Vec::new(),
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

    /// Connects with these tables. The error is the manager's reason to refuse, or why it was not
    /// reached: it may be killed at this moment.
    pub fn connect(
        control: SocketAddr,
        spec: Spec,
        state: Arc<Mutex<State>>,
    ) -> Result<Fake, String> {
        let gone = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect(control).map_err(gone)?;
        stream.set_nodelay(true).map_err(gone)?;
        let hello = spec.hello(&state.lock().unwrap());
        send(&stream, &FromProxy::Hello(hello)).map_err(gone)?;
        let mut buffer = Vec::new();
        let welcome = match receive(&stream, &mut buffer) {
            Some(ToProxy::Welcome(welcome)) => welcome,
            Some(ToProxy::Refused(refused)) => return Err(refused.reason.as_str().to_owned()),
            other => return Err(format!("{other:?}")),
        };
        state.lock().unwrap().node = Some(welcome.node);
        let events = Arc::new(Mutex::new(1));
        let server = Server {
            stream: stream.try_clone().map_err(gone)?,
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
                Err(reason) => assert!(begun.elapsed() < crate::common::LONG, "refused: {reason}"),
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
        self.restart_into(control, SlotState::Free)
    }

    /// As [`Fake::restart`], with the devices in this state when it is connected again.
    pub fn restart_into(self, control: SocketAddr, devices: SlotState) -> Fake {
        let (mut spec, state) = self.leave();
        spec.incarnation += 1;
        {
            let mut state = state.lock().unwrap();
            state.ports.clear();
            state.peers.clear();
            for slot in &mut state.slots {
                slot.bound = None;
                if slot.state != SlotState::Empty {
                    slot.state = devices;
                }
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

    /// Looks at what is in a slot, as after a restart, until it is told otherwise: it says no IDs.
    pub fn probe(&self, slot: u8) {
        self.set_state(slot, SlotState::Probing);
    }

    /// Says that a slot is in another state now.
    pub fn set_state(&self, slot: u8, state: SlotState) {
        self.with(|s| s.slots[usize::from(slot) - 1].state = state);
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
