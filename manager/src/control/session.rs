//! One proxy's connection: requests and their answers.

use super::heard::Unheard;
use super::{MAX_PAGES, OUTGOING_QUEUE, TABLE_BOUNDS, wire};
use crate::recorder::tap::Tap;
use crate::types::{NodeName, Problem, ProblemCode, Role, Timestamp};
use proxy_core::control::{
    ControlError, OperationId, PathAddress, Peer, Reply, Request, Term, ToProxy,
};
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tlp_codec::ids::{BindingKey, NodeId, PortId};
use tokio::sync::{Notify, RwLock, mpsc, oneshot, watch};
use tokio::time::Instant;

/// Why a request has no good answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The connection ended before the answer came.
    #[error("the connection ended")]
    Closed,
    /// No answer came in time; the connection was ended for that.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The proxy said no.
    #[error("{0}")]
    Refused(ControlError),
    /// The answer is of the wrong kind, or its pages have no end; the connection was ended.
    #[error("the answer makes no sense")]
    Nonsense,
}

impl RequestError {
    /// As a problem of the request that needed the proxy.
    pub fn problem(&self, name: &NodeName) -> Problem {
        match self {
            Self::Closed | Self::Nonsense => {
                Problem::new(ProblemCode::NotConnected, format!("{name}: {self}"))
            }
            Self::TimedOut(_) => Problem::new(ProblemCode::ProxyTimeout, format!("{name}: {self}")),
            Self::Refused(error) => {
                Problem::new(ProblemCode::ProxyRefused, format!("{name} refused: {error}"))
            }
        }
    }
}

/// What a proxy said of itself when it connected, and what it was told.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name.
    pub name: NodeName,
    /// Host or box.
    pub role: Role,
    /// Downstream ports or slots.
    pub size: u8,
    /// Node number.
    pub node: NodeId,
    /// Its life.
    pub incarnation: u32,
    /// Where its paths end.
    pub paths: Vec<PathAddress>,
    /// Largest frame it takes, bytes.
    pub mtu: u16,
    /// Where its connection comes from.
    pub remote: SocketAddr,
    /// When it connected.
    pub since: Timestamp,
}

/// Whether a host has a root complex, as its proxy said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootComplex {
    /// One is there.
    Present,
    /// None is.
    Away {
        /// Since it was found so, on this connection.
        since: Instant,
        /// The same for people.
        at: Timestamp,
    },
}

type Answer = Result<Box<Reply>, ControlError>;

/// A connected proxy.
pub struct Session {
    identity: Identity,
    term: Term,
    outgoing: mpsc::Sender<Box<[u8]>>,
    waiting: Mutex<HashMap<OperationId, oneshot::Sender<Answer>>>,
    next: AtomicU64,
    closing: watch::Sender<Option<String>>,
    ready: AtomicBool,
    leaving: AtomicBool,
    stray_ports: Mutex<BTreeSet<PortId>>,
    complaints: Mutex<Vec<String>>,
    let_go: Mutex<BTreeSet<(NodeId, BindingKey)>>,
    /// How much has been told of slots, and how much of that its tables were read after.
    told: AtomicU64,
    read: AtomicU64,
    /// Wakes who waits for that, or for the end, in the order in which they began to: a `watch`
    /// would draw lots, and the same would not happen each time that the same has happened.
    moved: Notify,
    root_complex: Mutex<Option<RootComplex>>,
    stale: watch::Sender<Option<Term>>,
    peerings: Mutex<HashMap<NodeName, Arc<RwLock<()>>>>,
    /// Wakes the loop that compares its tables with the records.
    pub sync: Notify,
    /// When nothing that it says is read. The bounds of requests do not run then.
    pub unheard: Unheard,
    /// What it records, and who wants to know.
    pub tap: Tap,
    /// When set, the proxy has to show signs of life at once: somebody else claims its name.
    pub doubted: Notify,
}

impl Session {
    /// A session, and the messages that it wants written.
    pub fn new(identity: Identity, term: Term) -> (Self, mpsc::Receiver<Box<[u8]>>) {
        let (outgoing, queue) = mpsc::channel(OUTGOING_QUEUE);
        let session = Self {
            identity,
            term,
            outgoing,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            closing: watch::Sender::new(None),
            ready: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            stray_ports: Mutex::default(),
            complaints: Mutex::default(),
            let_go: Mutex::default(),
            // Nothing is read before the first look.
            told: AtomicU64::new(1),
            read: AtomicU64::new(0),
            moved: Notify::new(),
            root_complex: Mutex::default(),
            stale: watch::Sender::new(None),
            peerings: Mutex::default(),
            sync: Notify::new(),
            unheard: Unheard::default(),
            tap: Tap::default(),
            doubted: Notify::new(),
        };
        (session, queue)
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How many paths there are between it and another proxy: as many as both have.
    pub fn common_paths(&self, peer: &Session) -> usize {
        self.identity.paths.len().min(peer.identity.paths.len())
    }

    /// Its name.
    pub fn name(&self) -> &NodeName {
        &self.identity.name
    }

    /// Whether its tables have been read, so that it can be given work.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && self.closing.borrow().is_none()
    }

    /// Whether it is about to restart, and gets nothing new for so long.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Says whether it is.
    pub fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Release);
    }

    /// Says that its tables have been read. Whether that is new.
    pub fn set_ready(&self) -> bool {
        !self.ready.swap(true, Ordering::AcqRel)
    }

    /// What is held for reading while a peer is introduced and bound to, for writing while it is
    /// removed. Each peer has its own: one that does not answer holds up nobody else's bindings.
    pub fn peering(&self, peer: &NodeName) -> Arc<RwLock<()>> {
        let mut peerings = self.peerings.lock().expect("no one panics while holding it");
        // Only those are kept that somebody holds or waits for.
        peerings.retain(|_, peering| Arc::strong_count(peering) > 1);
        peerings.entry(peer.clone()).or_default().clone()
    }

    /// Ports that its table shows in use although no record says so.
    pub fn stray_ports(&self) -> BTreeSet<PortId> {
        self.stray_ports.lock().expect("no one panics while holding it").clone()
    }

    /// Says which those are now.
    pub fn set_stray_ports(&self, ports: BTreeSet<PortId>) {
        *self.stray_ports.lock().expect("no one panics while holding it") = ports;
    }

    /// Says what is wrong with its report now. What was not wrong with the one before.
    pub fn new_complaints(&self, now: Vec<String>) -> Vec<String> {
        let mut known = self.complaints.lock().expect("no one panics while holding it");
        let new = now.iter().filter(|complaint| !known.contains(complaint)).cloned().collect();
        *known = now;
        new
    }

    /// What the host's operating system let go of by itself and could not be recorded so far: at which
    /// box, and what.
    pub fn let_go(&self) -> BTreeSet<(NodeId, BindingKey)> {
        self.let_go.lock().expect("no one panics while holding it").clone()
    }

    /// Keeps that it let go of something until that can be recorded.
    pub fn keep_let_go(&self, peer: NodeId, key: BindingKey) {
        self.let_go.lock().expect("no one panics while holding it").insert((peer, key));
    }

    /// These are recorded.
    pub fn let_go_recorded(&self, these: &BTreeSet<(NodeId, BindingKey)>) {
        let mut kept = self.let_go.lock().expect("no one panics while holding it");
        kept.retain(|one| !these.contains(one));
    }

    /// Something is told of a slot: it says its state, and not what is in it now.
    pub fn slot_told(&self) {
        self.told.fetch_add(1, Ordering::AcqRel);
        self.sync.notify_one();
    }

    /// How much has been told of slots.
    pub fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// Its tables, read after so much was told, are in the records.
    pub fn set_read(&self, told: u64) {
        self.read.store(told, Ordering::Release);
        self.moved.notify_waiters();
    }

    /// Waits until the records have what is in its slots since what was last told of them. Whether
    /// they have: within `bound`, and before the connection ends.
    pub async fn is_read(&self, bound: Duration) -> bool {
        let told = self.told();
        tokio::select! {
            biased;
            () = self.until(|| self.read.load(Ordering::Acquire) >= told) => true,
            () = self.closed() => false,
            () = tokio::time::sleep(bound) => false,
        }
    }

    /// Whether it has a root complex; nothing if it has not said so yet.
    pub fn root_complex(&self) -> Option<RootComplex> {
        *self.root_complex.lock().expect("no one panics while holding it")
    }

    /// Says whether it has one now. Whether that is news: another state, or none from the
    /// beginning.
    pub fn set_root_complex(&self, present: bool) -> bool {
        let mut root_complex = self.root_complex.lock().expect("no one panics while holding it");
        let before = root_complex.map(|before| before == RootComplex::Present);
        if before != Some(present) {
            *root_complex = Some(match present {
                true => RootComplex::Present,
                false => RootComplex::Away { since: Instant::now(), at: Timestamp::now() },
            });
        }
        before.unwrap_or(true) != present
    }

    /// Ends the connection.
    pub fn close(&self, reason: impl Into<String>) {
        self.closing.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason.into());
            }
            first
        });
        self.moved.notify_waiters();
        self.waiting.lock().expect("no one panics while holding it").clear();
    }

    /// Why the connection ends, if it does.
    pub fn close_reason(&self) -> Option<String> {
        self.closing.borrow().clone()
    }

    /// Waits until something is so.
    async fn until(&self, is: impl Fn() -> bool) {
        loop {
            let mut moved = pin!(self.moved.notified());
            // What happens from here on wakes it.
            moved.as_mut().enable();
            if is() {
                return;
            }
            moved.await;
        }
    }

    /// Waits until the connection ends.
    pub async fn closed(&self) {
        self.until(|| self.closing.borrow().is_some()).await;
    }

    /// The later term that this proxy obeys, if it said so.
    pub fn stale_term(&self) -> Option<Term> {
        *self.stale.borrow()
    }

    /// Sends a ping, if there is room for it.
    pub fn ping(&self) {
        let _ = self.outgoing.try_send(wire::encode(&ToProxy::Ping));
    }

    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    ///
    /// When there is none within `bound`, or the proxy says no.
    pub fn request(
        &self,
        body: Request,
        bound: Duration,
    ) -> impl Future<Output = Result<Box<Reply>, RequestError>> + use<'_> {
        let id = OperationId(self.next.fetch_add(1, Ordering::Relaxed));
        let what = kind(&body);
        // Here already: who waits for the answer keeps no request, which has room for long lists.
        let message = wire::encode(&ToProxy::Request { id, term: self.term, body });
        self.exchange(id, what, message, bound)
    }

    async fn exchange(
        &self,
        id: OperationId,
        what: &'static str,
        message: Box<[u8]>,
        bound: Duration,
    ) -> Result<Box<Reply>, RequestError> {
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().expect("no one panics while holding it").insert(id, answer);
        let _waiting = Waiting { session: self, id };
        if self.close_reason().is_some() {
            return Err(RequestError::Closed);
        }
        let exchange = async {
            self.outgoing.send(message).await.map_err(|_| RequestError::Closed)?;
            answered.await.map_err(|_| RequestError::Closed)
        };
        match self.unheard.within(bound, exchange).await {
            Some(Ok(answer)) => match answer {
                Ok(reply) => Ok(reply),
                Err(error) => {
                    if let ControlError::StaleTerm(term) = error {
                        self.stale.send_replace(Some(term));
                        self.close(error.to_string());
                    }
                    Err(RequestError::Refused(error))
                }
            },
            Some(Err(error)) => Err(error),
            None => {
                self.close(format!("no answer to {what} within {bound:?}"));
                Err(RequestError::TimedOut(bound))
            }
        }
    }

    /// Takes an answer in. Whether anybody waited for it.
    pub fn answered(&self, id: OperationId, answer: Answer) -> bool {
        let waiting = self.waiting.lock().expect("no one panics while holding it").remove(&id);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// Asks for something that is answered by [`Reply::Done`].
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub async fn request_done(&self, body: Request, bound: Duration) -> Result<(), RequestError> {
        match *self.request(body, bound).await? {
            Reply::Done => Ok(()),
            _ => Err(self.nonsense()),
        }
    }

    /// Reads a table page by page. `ask` makes the request for one page, `page` takes an answer
    /// apart. Each page is to come within `bound`, and all of them within [`TABLE_BOUNDS`] such: a
    /// proxy that answers slowly has many pages to do so.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub async fn read_all<T>(
        &self,
        ask: impl Fn(u16) -> Request,
        page: impl Fn(Box<Reply>) -> Option<(Vec<T>, Option<u16>)>,
        bound: Duration,
    ) -> Result<Vec<T>, RequestError> {
        let (what, whole) = (kind(&ask(0)), bound * TABLE_BOUNDS);
        let read = self.unheard.within(whole, self.read_pages(ask, page, bound)).await;
        read.unwrap_or_else(|| {
            self.close(format!("the answers to {what} did not end within {whole:?}"));
            Err(RequestError::TimedOut(whole))
        })
    }

    async fn read_pages<T>(
        &self,
        ask: impl Fn(u16) -> Request,
        page: impl Fn(Box<Reply>) -> Option<(Vec<T>, Option<u16>)>,
        bound: Duration,
    ) -> Result<Vec<T>, RequestError> {
        let mut all = Vec::new();
        let mut from = 0;
        for _ in 0..MAX_PAGES {
            let reply = self.request(ask(from), bound).await?;
            let (entries, next) = page(reply).ok_or_else(|| self.nonsense())?;
            all.extend(entries);
            match next {
                None => return Ok(all),
                Some(next) if next > from => from = next,
                Some(_) => break,
            }
        }
        Err(self.nonsense())
    }

    /// Ends the connection for an answer that makes no sense.
    pub fn nonsense(&self) -> RequestError {
        self.close("an answer that makes no sense");
        RequestError::Nonsense
    }

    /// Tells the proxy of a peer. Told again although it knows the same, it makes a link anew that
    /// went down and leaves one alone that is up.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub async fn set_peer(&self, peer: &Identity, bound: Duration) -> Result<(), RequestError> {
        let peer = Peer {
            node: peer.node,
            incarnation: peer.incarnation,
            paths: peer.paths.iter().copied().collect(),
            mtu: peer.mtu.min(self.identity.mtu),
        };
        self.request_done(Request::SetPeer(peer), bound).await
    }
}

/// A request that is waited for. Whoever stops waiting takes it off the list.
struct Waiting<'a> {
    session: &'a Session,
    id: OperationId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.session.waiting.lock().expect("no one panics while holding it").remove(&self.id);
    }
}

/// What a request is called in messages for people.
fn kind(body: &Request) -> &'static str {
    match body {
        Request::SetPeer(_) => "SetPeer",
        Request::RemovePeer(_) => "RemovePeer",
        Request::BindSlot(_) => "BindSlot",
        Request::UnbindSlot(_) => "UnbindSlot",
        Request::BindPort(_) => "BindPort",
        Request::UnbindPort { .. } => "UnbindPort",
        Request::Recover(_) => "Recover",
        Request::ReadTable { .. } => "ReadTable",
        Request::ReadInventory { .. } => "ReadInventory",
        Request::ReadCounters { .. } => "ReadCounters",
        Request::SetSampling(_) => "SetSampling",
        Request::ReadStamps { .. } => "ReadStamps",
        Request::SetRecorder(_) => "SetRecorder",
        Request::ReadRecorder { .. } => "ReadRecorder",
        Request::SetLogLevel(_) => "SetLogLevel",
        Request::Firmware(_) => "Firmware",
        Request::Erase(_) => "Erase",
    }
}
