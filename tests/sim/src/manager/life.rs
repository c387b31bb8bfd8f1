//! One life of a manager: its store, its runtime, and the connections that it has.

use manager::config::Settings;
use manager::control::server;
use manager::manager::Manager;
use manager::records::{Records, WallClock};
use manager::store::{Change, Record, Store, StoreError, Table};
use manager::{operations, reconcile};
use proxy_core::control::{self, Decoded, FromProxy, Hello, MAX_MESSAGE, ToProxy};
use proxy_core::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};

/// A store in memory, that a crash can hit at any write.
#[derive(Default)]
pub(super) struct MemoryStore {
    inner: Mutex<Stored>,
}

#[derive(Default, Clone)]
pub(super) struct Stored {
    records: BTreeMap<(Table, Vec<u8>), Vec<u8>>,
    pub(super) commits: u64,
    /// The manager dies at this write, which is made or not.
    pub(super) dies_at: Option<(u64, bool)>,
    dead: bool,
}

impl MemoryStore {
    pub(super) fn stored(&self) -> MutexGuard<'_, Stored> {
        self.inner.lock().expect("no one panics while holding it")
    }

    pub(super) fn is_dead(&self) -> bool {
        self.stored().dead
    }

    /// What is in it, for another life.
    pub(super) fn copy(&self) -> Self {
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
pub(super) enum Heard {
    Said(ToProxy),
    Closed,
}

type Outbox = Arc<Mutex<VecDeque<(usize, u64, Heard)>>>;

/// One life of a manager.
pub(super) struct Life {
    pub(super) runtime: Runtime,
    /// It did something on another thread, which is at an end whenever that is.
    left_thread: Arc<AtomicBool>,
    began: Instant,
    origin: tokio::time::Instant,
    pub(super) manager: Arc<Manager>,
    pub(super) store: Arc<MemoryStore>,
    outbox: Outbox,
    /// The connection of each node: its number, and where the proxy's messages go in.
    connections: BTreeMap<usize, (u64, mpsc::UnboundedSender<FromProxy>)>,
    next: u64,
}

impl Life {
    pub(super) fn new(
        now: Instant,
        wall: &WallClock,
        store: Arc<MemoryStore>,
        settings: &Settings,
    ) -> Self {
        let left_thread = Arc::new(AtomicBool::new(false));
        let leaves = left_thread.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_start(move || leaves.store(true, Ordering::Relaxed))
            .build()
            .expect("a runtime without a driver");
        let (manager, origin) = runtime.block_on(async {
            let records = Records::open_by(wall.clone(), store.clone(), Path::new("memory"));
            let records = records.expect("memory reads as written");
            let (manager, queues) = Manager::new(records, settings.clone(), Arc::default());
            tokio::spawn(reconcile::driver::run(manager.clone()));
            tokio::spawn(operations::watchdog::run(manager.clone()));
            tokio::spawn(operations::grace::run(manager.clone()));
            tokio::spawn(operations::lease::run(manager.clone()));
            tokio::spawn(operations::drain::run(manager.clone()));
            let recorder = manager.clone();
            tokio::spawn(
                async move { recorder.record_events(queues.events, &Notify::new()).await },
            );
            (manager, tokio::time::Instant::now())
        });
        Self {
            runtime,
            began: now,
            left_thread,
            origin,
            manager,
            store,
            outbox: Outbox::default(),
            connections: BTreeMap::new(),
            next: 0,
        }
    }

    /// Lets it do what it does until then; what it says to nodes that are connected.
    pub(super) fn run_until(&self, now: Instant) -> Vec<(usize, Heard)> {
        let until = self.origin + now.saturating_since(self.began);
        self.runtime.block_on(async {
            tokio::time::sleep_until(until).await;
            // What is due now is done now.
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        });
        assert!(
            !self.left_thread.load(Ordering::Relaxed),
            "one seed is one run on one thread only"
        );
        let mut outbox = self.outbox.lock().expect("no one panics while holding it");
        let of_now = |(node, number, _): &(usize, u64, Heard)| {
            self.connections.get(node).is_some_and(|there| there.0 == *number)
        };
        outbox.drain(..).filter(of_now).map(|(node, _, heard)| (node, heard)).collect()
    }

    /// Whether a node is connected to it.
    pub(super) fn knows(&self, node: usize) -> bool {
        self.connections.contains_key(&node)
    }

    /// The nodes that are.
    pub(super) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.connections.keys().copied()
    }

    /// One is so no more.
    pub(super) fn disconnect(&mut self, node: usize) {
        self.connections.remove(&node);
    }

    pub(super) fn connect(&mut self, node: usize, hello: Hello) {
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

    pub(super) fn say(&self, node: usize, message: FromProxy) {
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
