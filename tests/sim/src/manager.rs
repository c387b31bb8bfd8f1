//! The manager's own code in virtual time: records, planner, operations, reconcile, sessions and
//! the bytes of the control protocol, on a runtime of one thread whose clock stands still until
//! the simulation moves it. Only the store is another one (memory), and what carries the bytes.
//!
//! An operator asks it for one slot for one host, again whenever there is no such lending.

use crate::director::{Order, Terms};
use manager::config::Settings;
use manager::control::server;
use manager::manager::Manager;
use manager::operations::{self, ReleaseMode, ReleaseTarget};
use manager::planner::PlanRequest;
use manager::reconcile;
use manager::records::{Records, next_generation};
use manager::store::{Change, Record, Store, StoreError, Table};
use manager::types::{Desired, DeviceState, EventKind, NodeName, Phase, SlotAddress};
use proxy_core::control::{
    self, CONTROL_VERSION, Decoded, FromProxy, Hello, MAX_MESSAGE, PathAddress, Request, RoleKind,
    Term, ToProxy,
};
use proxy_core::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// How long the operator waits before it asks again for what it did not get.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long a manager that crashed stays away.
const AWAY: Duration = Duration::from_millis(200);
/// How long a host without a root complex keeps what it has. No host here is without one for
/// longer than a moment, so nothing is ever taken back for that.
const GRACE: Duration = Duration::from_millis(100);
/// How long an operating system has to let go.
const ORDERLY_MS: u32 = 2_000;

/// A store in memory, that a crash can hit at any write.
#[derive(Default)]
struct MemoryStore {
    inner: Mutex<Stored>,
}

#[derive(Default, Clone)]
struct Stored {
    records: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    commits: u64,
    /// The manager dies at this write, which is made or not.
    dies_at: Option<(u64, bool)>,
    dead: bool,
}

impl MemoryStore {
    fn stored(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.inner.lock().expect("no one panics while holding it")
    }

    fn is_dead(&self) -> bool {
        self.stored().dead
    }

    /// What is in it, for another life.
    fn copy(&self) -> Self {
        let records = self.stored().records.clone();
        Self { inner: Mutex::new(Stored { records, ..Stored::default() }) }
    }
}

impl Store for MemoryStore {
    fn read(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        let stored = self.stored();
        let records = stored.records.iter().filter(|((of, _), _)| *of == table);
        Ok(records.map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        let mut stored = self.stored();
        stored.commits += 1;
        let dies = stored.dies_at.filter(|(at, _)| stored.commits >= *at);
        stored.dead |= dies.is_some();
        if stored.dead && !dies.is_some_and(|(at, made)| made && at == stored.commits) {
            let gone = std::io::Error::other("the manager died");
            return Err(StoreError::io(Path::new("memory"), "written", gone));
        }
        for change in changes {
            let key = (change.table, change.key.clone());
            match &change.value {
                Some(value) => stored.records.insert(key, value.clone()),
                None => stored.records.remove(&key),
            };
        }
        Ok(())
    }

    fn is_in_memory(&self) -> bool {
        true
    }
}

/// What came out of the runtime.
#[allow(clippy::large_enum_variant)] // few wait at a time
enum Heard {
    Said(ToProxy),
    Closed,
}

type Outbox = Arc<Mutex<VecDeque<(usize, u64, Heard)>>>;

/// One life of a manager.
struct Life {
    runtime: Runtime,
    began: Instant,
    origin: tokio::time::Instant,
    manager: Arc<Manager>,
    store: Arc<MemoryStore>,
    outbox: Outbox,
    /// The connection of each node: its number, and where the proxy's messages go in.
    connections: BTreeMap<usize, (u64, mpsc::UnboundedSender<FromProxy>)>,
    next: u64,
}

impl Life {
    fn new(now: Instant, store: Arc<MemoryStore>, settings: &Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without a driver");
        let (manager, origin) = runtime.block_on(async {
            let records =
                Records::open(store.clone(), Path::new("memory")).expect("memory reads as written");
            let (manager, queues) = Manager::new(records, settings.clone(), Arc::default());
            tokio::spawn(reconcile::driver::run(manager.clone()));
            tokio::spawn(operations::watchdog::run(manager.clone()));
            tokio::spawn(operations::grace::run(manager.clone()));
            let recorder = manager.clone();
            tokio::spawn(async move { recorder.record_events(queues.events).await });
            (manager, tokio::time::Instant::now())
        });
        Self {
            runtime,
            began: now,
            origin,
            manager,
            store,
            outbox: Outbox::default(),
            connections: BTreeMap::new(),
            next: 0,
        }
    }

    /// Lets it do what it does until then.
    fn run_until(&self, now: Instant) {
        let until = self.origin + now.saturating_since(self.began);
        self.runtime.block_on(async {
            tokio::time::sleep_until(until).await;
            // What is due now is done now.
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        });
    }

    fn connect(&mut self, node: usize, hello: Hello) {
        self.next += 1;
        let number = self.next;
        let (theirs, ours) = tokio::io::duplex(4 * MAX_MESSAGE);
        let (sender, messages) = mpsc::unbounded_channel();
        let _ = sender.send(FromProxy::Hello(hello));
        self.connections.insert(node, (number, sender));
        let (manager, outbox) = (self.manager.clone(), self.outbox.clone());
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, node as u16 + 1));
        let store = self.store.clone();
        self.runtime.spawn(async move { server::attend(&manager, theirs, remote, || ()).await });
        self.runtime.spawn(carry(ours, messages, move |heard| {
            // What a dead manager says nobody hears.
            if !store.is_dead() {
                let mut outbox = outbox.lock().expect("no one panics while holding it");
                outbox.push_back((node, number, heard));
            }
        }));
    }

    fn say(&self, node: usize, message: FromProxy) {
        if let Some((_, sender)) = self.connections.get(&node) {
            let _ = sender.send(message);
        }
    }
}

/// Carries one connection's messages as bytes, both ways.
async fn carry(
    stream: DuplexStream,
    mut messages: mpsc::UnboundedReceiver<FromProxy>,
    heard: impl Fn(Heard),
) {
    let (mut read, mut write) = tokio::io::split(stream);
    let speak = async {
        let mut buffer = vec![0; 4 + MAX_MESSAGE];
        while let Some(message) = messages.recv().await {
            let bytes = control::encode(&message, &mut buffer).expect("messages fit");
            if write.write_all(bytes).await.is_err() {
                break;
            }
        }
    };
    let listen = async {
        let mut buffer = Vec::new();
        let mut chunk = vec![0; MAX_MESSAGE];
        while let Ok(count @ 1..) = read.read(&mut chunk).await {
            buffer.extend_from_slice(&chunk[..count]);
            while let Ok(Decoded::Message(message, used)) = control::decode::<ToProxy>(&buffer) {
                buffer.drain(..used);
                heard(Heard::Said(message));
            }
        }
    };
    tokio::select! {
        biased;
        () = listen => {}
        () = speak => {}
    }
    heard(Heard::Closed);
}

/// One slot for one host.
struct Wish {
    host: NodeName,
    slot: SlotAddress,
    not_before: Instant,
    /// How often it was asked for: each time on other terms.
    asked: u32,
}

/// The manager, the one before it that has not noticed yet, and the operator.
pub(crate) struct Managed {
    current: Option<Life>,
    stale: Option<Life>,
    /// What the next life finds.
    left: Arc<MemoryStore>,
    back_at: Option<Instant>,
    wishes: Vec<Wish>,
    terms: Terms,
    settings: Settings,
    hosts: usize,
    ports: u8,
    slots: u8,
    paths: usize,
    frame: u16,
    /// Nodes whose connection ended.
    pub(crate) closed: Vec<usize>,
    pub(crate) crashes: u64,
}

/// The number in a name that [`name`] gave: of the host, or of the box.
fn number(name: &NodeName) -> usize {
    let digits = name.as_str().trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().expect("the names here end in a number")
}

fn name(hosts: usize, node: usize) -> NodeName {
    let text = if node < hosts { format!("host{node}") } else { format!("box{}", node - hosts) };
    NodeName::new(&text).expect("a name")
}

impl Managed {
    pub(crate) fn new(
        now: Instant,
        hosts: usize,
        lendings: &[(usize, usize, usize, usize)],
        (ports, slots): (usize, usize),
        (paths, frame): (usize, usize),
        terms: Terms,
    ) -> Self {
        let wish = |&(host, _, at_box, slot): &(usize, usize, usize, usize)| Wish {
            host: name(hosts, host),
            slot: SlotAddress::new(name(hosts, hosts + at_box), crate::director::slot_id(slot))
                .expect("a slot"),
            not_before: Instant::ZERO,
            asked: 0,
        };
        let store = Arc::new(MemoryStore::default());
        let settings = Settings { host_grace: Some(GRACE), ..Settings::default() };
        Self {
            current: Some(Life::new(now, store.clone(), &settings)),
            stale: None,
            left: store,
            back_at: None,
            wishes: lendings.iter().map(wish).collect(),
            terms,
            settings,
            hosts,
            ports: ports as u8,
            slots: slots as u8,
            paths,
            frame: frame as u16,
            closed: Vec::new(),
            crashes: 0,
        }
    }

    /// A proxy dials in.
    pub(crate) fn connected(&mut self, node: usize, incarnation: u32, term: Term) {
        let address = |path| PathAddress::Ethernet {
            mac: [2, 0xd0, 0xac, path as u8, 0, node as u8],
            vlan: None,
        };
        let role = if node < self.hosts {
            RoleKind::Host { ports: self.ports }
        } else {
            RoleKind::Box { slots: self.slots }
        };
        let hello = Hello {
            version: CONTROL_VERSION,
            name: name(self.hosts, node).as_str().try_into().expect("a short name"),
            role,
            incarnation,
            node: None,
            paths: (0..self.paths).map(address).collect(),
            mtu: self.frame,
            term,
        };
        if let Some(stale) = &mut self.stale {
            stale.connections.remove(&node);
        }
        match &mut self.current {
            Some(life) => life.connect(node, hello),
            None => self.closed.push(node),
        }
    }

    /// A proxy's connection ends.
    pub(crate) fn disconnected(&mut self, node: usize) {
        for life in [&mut self.current, &mut self.stale].into_iter().flatten() {
            life.connections.remove(&node);
        }
    }

    /// A proxy says something.
    pub(crate) fn told(&mut self, node: usize, message: &FromProxy) {
        for life in [&self.current, &self.stale].into_iter().flatten() {
            life.say(node, message.clone());
        }
    }

    /// It dies at its n-th write from now, which is made or not.
    pub(crate) fn dies_at(&mut self, writes: u64, made: bool) {
        if let Some(life) = &self.current {
            let mut stored = life.store.stored();
            stored.dies_at = Some((stored.commits + writes.max(1), made));
        }
    }

    /// Another one takes over, and this one goes on as long as anybody listens to it. It has a copy of
    /// the records, which goes to its next generation as a restored one does: what the first one
    /// lends from now on may be known to nobody when it is needed.
    pub(crate) fn taken_over(&mut self, now: Instant) {
        let Some(before) = self.current.take() else { return };
        self.left = Arc::new(before.store.copy());
        next_generation(self.left.as_ref(), Path::new("memory"), 0).expect("there are 255 more");
        self.stale = Some(before);
        self.current = Some(Life::new(now, self.left.clone(), &self.settings));
    }

    /// The one before is gone at last.
    pub(crate) fn end_stale(&mut self) {
        if let Some(stale) = self.stale.take() {
            self.closed.extend(stale.connections.keys());
        }
    }

    /// Lets it do what is to be done; what it says to the proxies.
    pub(crate) fn orders(&mut self, now: Instant) -> Vec<Order> {
        if self.back_at.is_some_and(|at| at <= now) {
            self.back_at = None;
            self.current = Some(Life::new(now, self.left.clone(), &self.settings));
        }
        self.wish(now);
        let mut orders = Vec::new();
        for life in [&mut self.current, &mut self.stale].into_iter().flatten() {
            life.run_until(now);
            let outbox: Vec<_> = {
                let mut outbox = life.outbox.lock().expect("no one panics while holding it");
                outbox.drain(..).collect()
            };
            for (node, number, heard) in outbox {
                if life.connections.get(&node).is_none_or(|there| there.0 != number) {
                    continue;
                }
                match heard {
                    Heard::Said(ToProxy::Request { id, term, body }) => {
                        orders.push((node, id, term, body));
                    }
                    Heard::Said(ToProxy::Ping) => life.say(node, FromProxy::Pong),
                    Heard::Said(ToProxy::Welcome(welcome)) => {
                        assert_eq!(
                            usize::from(welcome.node.get()),
                            node + 1,
                            "a number is for ever"
                        );
                    }
                    Heard::Said(ToProxy::Refused(_)) | Heard::Closed => {
                        life.connections.remove(&node);
                        self.closed.push(node);
                    }
                }
            }
        }
        if self.current.as_ref().is_some_and(|life| life.store.is_dead()) {
            let life = self.current.take().expect("looked at just now");
            self.left = Arc::new(life.store.copy());
            self.closed.extend(life.connections.keys());
            self.back_at = Some(now + AWAY);
            self.crashes += 1;
        }
        orders
    }

    /// What the operator asks for.
    fn wish(&mut self, now: Instant) {
        let Some(life) = &self.current else { return };
        let tables = life.manager.records.snapshot();
        for wish in self.wishes.iter_mut().filter(|wish| wish.not_before <= now) {
            let mut functions = tables.devices_of(wish.slot.box_name());
            let quarantined = functions.any(|device| {
                device.address.slot == wish.slot && device.state == DeviceState::Quarantined
            });
            let manager = life.manager.clone();
            if quarantined {
                wish.not_before = now + ASK_AGAIN * 10;
                if let Some(session) = manager.registry.ready(wish.slot.box_name()) {
                    let (slot, bound) = (wish.slot.slot(), self.settings.unbind_bound);
                    life.runtime.spawn(async move {
                        let _ = session.request(Request::Recover(slot), bound).await;
                        session.sync.notify_one();
                    });
                }
            } else if tables.binding_at_slot(&wish.slot).is_none() {
                wish.not_before = now + ASK_AGAIN;
                let mut request = PlanRequest::for_host(wish.host.clone());
                request.wishes.box_name = Some(wish.slot.box_name().clone());
                request.slot = Some(wish.slot.slot());
                let at_box = number(wish.slot.box_name());
                request.link =
                    self.terms.wished(at_box, usize::from(wish.slot.slot().get()), wish.asked);
                wish.asked += 1;
                life.runtime.spawn(async move {
                    let asked = manager.records.change(|txn| {
                        operations::allocate(
                            txn,
                            &manager.registry,
                            &request,
                            // Not every operating system here enables what it has in time.
                            operations::Terms { keep_unenumerated: true, ..Default::default() },
                            None,
                        )
                    });
                    let _ = asked.await;
                });
            }
        }
    }

    /// The operator takes a slot back.
    pub(crate) fn release(&mut self, at_box: usize, slot: usize, force: bool) {
        let Some(life) = &self.current else { return };
        let slot =
            SlotAddress::new(name(self.hosts, self.hosts + at_box), crate::director::slot_id(slot));
        let tables = life.manager.records.snapshot();
        let Some(id) = slot.ok().and_then(|s| tables.binding_at_slot(&s)).map(|b| b.id) else {
            return;
        };
        let mode =
            if force { ReleaseMode::Force } else { ReleaseMode::Orderly { within_ms: ORDERLY_MS } };
        let manager = life.manager.clone();
        life.runtime.spawn(async move {
            let asked = manager
                .records
                .change(|txn| operations::release(txn, ReleaseTarget::Binding(id), mode, None));
            let _ = asked.await;
        });
    }

    /// Whether every wish is granted and nothing is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled().is_empty()
    }

    /// What is not, for a person.
    pub(crate) fn unsettled(&self) -> String {
        let Some(life) = &self.current else { return "there is no manager".into() };
        let tables = life.manager.records.snapshot();
        let waits =
            self.wishes.iter().filter_map(|wish| match tables.binding_at_slot(&wish.slot) {
                None => Some(format!("{} is not lent", wish.slot)),
                Some(b) if b.phase != Phase::Configured || b.desired != Desired::Bound => {
                    Some(format!("{}: {} ({:?})", wish.slot, b.phase, b.trouble))
                }
                Some(b) => b.operation.map(|operation| format!("{}: {operation}", wish.slot)),
            });
        waits.collect::<Vec<_>>().join(", ")
    }

    /// Whether it took devices back from a host for having no root complex.
    pub(crate) fn gave_a_host_up(&self) -> bool {
        let Some(life) = &self.current else { return false };
        let tables = life.manager.records.snapshot();
        tables.events().values().any(|event| event.kind == EventKind::HostGraceOver)
    }

    /// The bindings as the records have them, each function's: host and port, box and slot, epoch.
    pub(crate) fn records(&self) -> Vec<(usize, u8, usize, u8, u32)> {
        let Some(life) = &self.current else { return Vec::new() };
        let tables = life.manager.records.snapshot();
        let entries = |b: &manager::types::BindingRecord| {
            let (host, at_box) = (number(&b.host), number(b.slot.box_name()));
            let (port, slot) = (b.port.get(), b.slot.slot().get());
            let epochs: Vec<_> = b.functions.iter().map(|function| function.epoch.bits()).collect();
            epochs.into_iter().map(move |epoch| (host, port, at_box, slot, epoch))
        };
        tables.bindings().values().flat_map(entries).collect()
    }
}
