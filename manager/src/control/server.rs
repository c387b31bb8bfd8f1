//! Accepts proxies and serves each until it goes.

use super::registry::NoEntry;
use super::session::{Identity, Session};
use super::wire::{self, Heard, Reader, WireError};
use super::{MAX_PROXIES, MAX_STRANGERS, events, handshake};
use crate::manager::Manager;
use crate::reconcile;
use crate::recorder::tap;
use crate::types::{EventKind, EventRecord, NodeName};
use proxy_core::control::{CONTROL_VERSION, Hello, MAX_MESSAGE, Refused, Reply, ToProxy, Welcome};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// Accepts connections until the manager stops, then ends them all.
pub async fn serve(manager: Arc<Manager>, listener: TcpListener) {
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                tell_panic(ended);
                continue;
            }
            () = manager.stopping() => break,
        };
        match accepted {
            Ok((stream, remote)) => {
                let Ok(permit) = strangers.clone().try_acquire_owned() else {
                    tracing::warn!("{remote} is one too many of those that have not said Hello");
                    continue;
                };
                let manager = manager.clone();
                // Requests are small and wait for their answers.
                let _ = stream.set_nodelay(true);
                connections.spawn(async move {
                    attend(&manager, stream, remote, || drop(permit)).await;
                });
            }
            // Out of file descriptors, or the peer is gone already: others may still come.
            Err(error) => {
                tracing::warn!("cannot accept a proxy's connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    while let Some(ended) = connections.join_next().await {
        tell_panic(ended);
    }
}

/// A connection whose task panicked is over, and the proxy may connect again ([`Entered`]). The others
/// go on.
fn tell_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(
            "a proxy's connection is ended by a mistake of the manager: {}",
            text.unwrap_or("it says no more")
        );
    }
}

/// A session that is in the registry, and leaves it when its task ends, however that is: also by a
/// panic. Otherwise nobody would be let in under its name again.
struct Entered {
    manager: Arc<Manager>,
    session: Arc<Session>,
}

impl Entered {
    /// Takes it out of the registry. Whether it was there still.
    fn leave(&self) -> bool {
        let was_there = self.manager.registry.leave(&self.session);
        if was_there {
            self.manager.observed.left(self.session.name());
        }
        was_there
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.session.close("its task ended");
        if self.leave() && std::thread::panicking() {
            let (name, role) = (self.session.name(), self.session.identity().role);
            let detail = format!("{role} {name} is disconnected: a mistake of the manager");
            let event = EventRecord::new(EventKind::NodeDisconnected, detail);
            self.manager.event_soon(event.node(name));
        }
    }
}

/// Serves one connection, whatever carries it, from its Hello until it ends. `greeted` is called
/// when it is no stranger any more, or is refused.
pub async fn attend<S: AsyncRead + AsyncWrite>(
    manager: &Arc<Manager>,
    stream: S,
    remote: SocketAddr,
    greeted: impl FnOnce(),
) {
    let known = tokio::select! {
        biased;
        known = greet(manager, stream, remote) => known,
        () = manager.stopping() => None,
    };
    greeted();
    if let Some((entered, connection)) = known {
        run(manager, &entered, connection).await;
    }
}

struct Connection<S> {
    reader: Reader<ReadHalf<S>>,
    writer: WriteHalf<S>,
    queue: mpsc::Receiver<Box<[u8]>>,
}

/// Hears the Hello and answers it.
async fn greet<S: AsyncRead + AsyncWrite>(
    manager: &Arc<Manager>,
    stream: S,
    remote: SocketAddr,
) -> Option<(Entered, Connection<S>)> {
    let (read, mut writer) = tokio::io::split(stream);
    let mut reader = Reader::new(read);
    let hello = match reader.next(manager.settings.hello_bound).await {
        Ok(Heard::Hello(hello)) => hello,
        Ok(_) => {
            return refuse(manager, &mut writer, remote, "", "the first message is Hello").await;
        }
        Err(WireError::Decode(error)) => {
            return refuse(manager, &mut writer, remote, "", &error.to_string()).await;
        }
        Err(error) => {
            tracing::info!(%remote, "a connection ended before it said Hello: {error}");
            return None;
        }
    };
    match welcome(manager, &hello, remote).await {
        Ok((entered, queue)) => {
            let welcome = Welcome {
                version: CONTROL_VERSION,
                node: entered.session.identity().node,
                term: manager.term(),
            };
            let bound = manager.settings.request_bound;
            match wire::write(&mut writer, &wire::encode(&ToProxy::Welcome(welcome)), bound).await {
                Ok(()) => Some((entered, Connection { reader, writer, queue })),
                Err(error) => {
                    tracing::info!(%remote, "{}: {error}", entered.session.name());
                    None
                }
            }
        }
        Err(reason) => refuse(manager, &mut writer, remote, hello.name.as_str(), &reason).await,
    }
}

/// Enters a proxy that may come in. Of two connections with one name, the same life's later one
/// stays; another life has to wait until the first is known to be gone, but not that of a card which
/// was told to restart.
async fn welcome(
    manager: &Arc<Manager>,
    hello: &Hello,
    remote: SocketAddr,
) -> Result<(Entered, mpsc::Receiver<Box<[u8]>>), String> {
    let name = NodeName::new(hello.name.as_str());
    match name.ok().and_then(|name| manager.registry.get(&name)) {
        // It takes the place that it has.
        Some(there) => make_room(&there, hello, remote)?,
        None if manager.registry.count() >= MAX_PROXIES => return Err(full()),
        None => {}
    }
    let identity: Identity = handshake::admit(manager, hello, remote).await?;
    let (session, queue) = Session::new(identity, manager.term());
    let session = Arc::new(session);
    loop {
        match manager.registry.enter(&session) {
            Ok(()) => {
                let entered = Entered { manager: manager.clone(), session };
                if is_known(manager, &entered.session).await {
                    return Ok((entered, queue));
                }
                let name = entered.session.name();
                return Err(format!("{name} was forgotten just now; connect again"));
            }
            Err(NoEntry::There(there)) => make_room(&there, hello, remote)?,
            // Others came in while it was admitted.
            Err(NoEntry::Full) => return Err(full()),
        }
    }
}

fn full() -> String {
    format!("{MAX_PROXIES} proxies are connected, which is the limit")
}

/// Whether the records still have a proxy that is entered now. From here on it is not forgotten, and
/// this is its life: another one of its name may have been admitted and not entered.
async fn is_known(manager: &Arc<Manager>, session: &Session) -> bool {
    let identity = session.identity();
    let is_known = |txn: &mut crate::records::Txn| {
        let known = txn.nodes().get(&identity.name);
        let is_known = known.is_some_and(|record| record.node == identity.node);
        if is_known {
            txn.learn_life(&identity.name, identity.incarnation);
        }
        is_known
    };
    manager.records.apply(is_known).await.unwrap_or(true)
}

fn make_room(there: &Session, hello: &Hello, remote: SocketAddr) -> Result<(), String> {
    if there.identity().incarnation == hello.incarnation {
        there.close("the same proxy connected again");
        return Ok(());
    }
    // A card that restarts ends no connection, and is back before it is noticed that it was gone.
    if there.is_leaving() && there.identity().remote.ip() == remote.ip() {
        there.close("it restarts, as it was told to");
        return Ok(());
    }
    if there.close_reason().is_some() {
        return Ok(());
    }
    there.doubted.notify_one();
    Err(format!(
        "the name {} is taken: a proxy with it is connected from {}. Stop that one, or give this \
         one another --name. If that one is gone already, this is noticed in a moment",
        there.name(),
        there.identity().remote
    ))
}

async fn refuse<T>(
    manager: &Arc<Manager>,
    writer: &mut (impl AsyncWrite + Unpin),
    remote: SocketAddr,
    name: &str,
    reason: &str,
) -> Option<T> {
    match name {
        // Anybody can send bytes here; only what names a proxy is worth an event.
        "" => tracing::info!(%remote, "refused a connection: {reason}"),
        name => {
            let detail = format!("refused {name:?} from {remote}: {reason}");
            let mut event = EventRecord::new(EventKind::NodeRefused, detail);
            let tables = manager.records.snapshot();
            if let Some((known, _)) =
                NodeName::new(name).ok().and_then(|n| tables.nodes().get_key_value(&n))
            {
                event = event.node(known);
            }
            if let Some(event) = manager.flapping.tell(event, Instant::now()) {
                manager.event_soon(event);
            }
        }
    }
    let mut text = Refused { reason: Default::default() };
    for c in reason.chars() {
        if text.reason.push(c).is_err() {
            break;
        }
    }
    let message = wire::encode(&ToProxy::Refused(text));
    if wire::write(writer, &message, manager.settings.request_bound).await.is_ok() {
        let _ = writer.shutdown().await;
    }
    None
}

/// Serves a connection until it ends.
async fn run<S: AsyncRead + AsyncWrite>(
    manager: &Arc<Manager>,
    entered: &Entered,
    connection: Connection<S>,
) {
    let session = &entered.session;
    let Connection { mut reader, mut writer, queue } = connection;
    let why = tokio::select! {
        biased;
        error = listen(manager, session, &mut reader) => error.to_string(),
        error = speak(manager, &mut writer, queue) => error.to_string(),
        () = heartbeat(manager, session) => "it showed no sign of life".to_owned(),
        () = reconcile::sync::run(manager, session) => "its tables cannot be read".to_owned(),
        error = tap::run(session, manager.settings.request_bound) => error.to_string(),
        () = session.closed() => session.close_reason().unwrap_or_default(),
        () = manager.stopping() => "the manager is stopping".to_owned(),
    };
    // What closed it says more than what noticed.
    session.close(why);
    let why = session.close_reason().expect("it is closed");
    entered.leave();
    let name = session.name();
    if let Some(term) = session.stale_term() {
        let learned = manager.records.apply(|txn| {
            txn.learn_term(term.0);
        });
        if let Err(problem) = learned.await {
            tracing::error!("{problem}");
        }
    }
    let detail = format!("{} {name} is disconnected: {why}", session.identity().role);
    let event = EventRecord::new(EventKind::NodeDisconnected, detail).node(name);
    manager.connection_event(event).await;
    let _ = writer.shutdown().await;
}

/// Takes in what the proxy says, in order.
async fn listen(
    manager: &Arc<Manager>,
    session: &Arc<Session>,
    reader: &mut Reader<impl AsyncRead + Unpin>,
) -> WireError {
    let mut next_event = None;
    loop {
        // One that tells without a pause would take all of the task's turn, and no bound on its answers
        // would ever be looked at.
        tokio::task::yield_now().await;
        let message = match reader.next(manager.settings.silence_bound).await {
            Ok(message) => message,
            Err(error) => return error,
        };
        match message {
            Heard::Response { id, result } => {
                // Here, in its order with the events that say the same, and not by who asked.
                if let Ok(Reply::Mapping { root_complex, .. }) = result.as_deref() {
                    events::root_complex(manager, session, *root_complex);
                }
                if !session.answered(id, result) {
                    tracing::debug!("{}: an answer that nobody waits for", session.name());
                }
            }
            Heard::Event { sequence, event } => {
                if next_event.is_some_and(|expected| expected != sequence) {
                    tracing::warn!("{}: events were lost; reading its tables", session.name());
                    session.slot_told();
                }
                next_event = Some(sequence.wrapping_add(1));
                // It may wait for the store.
                let _unheard = session.unheard.begin();
                events::handle(manager, session, event).await;
            }
            Heard::Pong => {}
            Heard::Reset(report) => events::card_reset(manager, session, &report),
            Heard::Hello(_) => {
                return WireError::Io(std::io::Error::other("protocol error: a second Hello"));
            }
        }
    }
}

/// Writes what the manager says.
async fn speak(
    manager: &Arc<Manager>,
    writer: &mut (impl AsyncWrite + Unpin),
    mut queue: mpsc::Receiver<Box<[u8]>>,
) -> WireError {
    while let Some(mut messages) = queue.recv().await.map(Vec::from) {
        // What waits behind it goes with it.
        while messages.len() < MAX_MESSAGE
            && let Ok(message) = queue.try_recv()
        {
            messages.extend_from_slice(&message);
        }
        if let Err(error) = wire::write(writer, &messages, manager.settings.request_bound).await {
            return error;
        }
    }
    WireError::Closed
}

/// Pings now and then, so that a proxy that is gone is noticed. Ends when a doubted one shows no
/// sign of life; the reader notices the rest.
async fn heartbeat(manager: &Arc<Manager>, session: &Session) {
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(manager.settings.ping_interval) => session.ping(),
            () = session.doubted.notified() => {
                let request = proxy_core::control::Request::ReadTable { from: u16::MAX };
                let bound = manager.settings.doubt_bound;
                // Any answer is a sign of life. None ends the session by itself.
                let _ = session.request(request, bound).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::control::RequestError;
    use crate::records::Records;
    use crate::store::{Change, EmbeddedStore, Record, Store, StoreError, Table};
    use proxy_core::control::{
        Event, FromProxy, Name, OperationId, PathAddress, Request, RoleKind, Term, encode,
    };
    use proxy_core::recorder::Recorded;
    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tlp_codec::ids::{BindingKey, Epoch, NodeId, PortId, SlotFunction, SlotId};
    use tokio::io::ReadBuf;

    /// Says Hello, and panics when it is read again.
    struct Panics(Vec<u8>);

    impl AsyncRead for Panics {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            assert!(!self.0.is_empty(), "a mistake");
            into.put_slice(&std::mem::take(&mut self.0));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Panics {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    const REMOTE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    fn hello(name: &str, incarnation: u32) -> Hello {
        Hello {
            version: CONTROL_VERSION,
            name: Name::try_from(name).unwrap(),
            role: RoleKind::Host { ports: 1 },
            incarnation,
            node: None,
            paths: [PathAddress::Udp4 { ip: [127, 0, 0, 1], port: 1 }].into_iter().collect(),
            mtu: 1500,
            term: Term(0),
        }
    }

    #[tokio::test]
    async fn who_is_in_comes_back_also_where_nobody_else_may_come() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let records = Records::open(Arc::new(EmbeddedStore::open(&path).unwrap()), &path).unwrap();
        let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
        let (first, _queue) = welcome(&manager, &hello("host0", 1), REMOTE).await.unwrap();
        for n in 2..MAX_PROXIES {
            let name = NodeName::new(format!("host{n}")).unwrap();
            let identity = Identity { name, ..first.session.identity().clone() };
            let session = Arc::new(Session::new(identity, manager.term()).0);
            manager.registry.enter(&session).map_err(drop).unwrap();
        }
        // Two come for the last place at the same time.
        let (one, other) = (hello("one", 1), hello("other", 1));
        let (one, other) =
            tokio::join!(welcome(&manager, &one, REMOTE), welcome(&manager, &other, REMOTE));
        let (Ok(_in), Err(refusal)) = (if one.is_ok() { (one, other) } else { (other, one) })
        else {
            panic!("both came in, or nobody");
        };
        assert!(refusal.contains("the limit"), "{refusal}");
        let refusal = welcome(&manager, &hello("one-more", 1), REMOTE).await.err().unwrap();
        assert!(refusal.contains("the limit"), "{refusal}");
        let refusal = welcome(&manager, &hello("host0", 2), REMOTE).await.err().unwrap();
        assert!(refusal.contains("is taken"), "{refusal}");
        assert!(welcome(&manager, &hello("host0", 1), REMOTE).await.is_ok());
    }

    /// Its connection is there still: a card that restarts ends none.
    #[tokio::test]
    async fn a_card_that_was_told_to_restart_is_let_in_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let records = Records::open(Arc::new(EmbeddedStore::open(&path).unwrap()), &path).unwrap();
        let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
        let (first, _queue) = welcome(&manager, &hello("host1", 1), REMOTE).await.unwrap();
        let next = hello("host1", 2);
        let refusal = welcome(&manager, &next, REMOTE).await.err().unwrap();
        assert!(refusal.contains("is taken"), "nobody told it to: {refusal}");
        first.session.set_leaving(true);
        let elsewhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), 1);
        let refusal = welcome(&manager, &next, elsewhere).await.err().unwrap();
        assert!(refusal.contains("is taken"), "it may be another one: {refusal}");
        let (second, _queue) = welcome(&manager, &next, REMOTE).await.unwrap();
        let closed = first.session.close_reason();
        assert_eq!(closed.as_deref(), Some("it restarts, as it was told to"));
        drop(first);
        let there = manager.registry.get(second.session.name()).unwrap();
        assert!(Arc::ptr_eq(&there, &second.session));
    }

    /// A store on a disk that stalls: what is written waits until that is over.
    struct Stalls(std::sync::Mutex<bool>, std::sync::Condvar);

    impl Store for Stalls {
        fn read(&self, _: Table) -> Result<Vec<Record>, StoreError> {
            Ok(Vec::new())
        }

        fn commit(&self, _: &[Change]) -> Result<(), StoreError> {
            let stalls = self.0.lock().unwrap();
            drop(self.1.wait_while(stalls, |stalls| *stalls).unwrap());
            Ok(())
        }
    }

    impl Stalls {
        fn set(&self, stalls: bool) {
            *self.0.lock().unwrap() = stalls;
            self.1.notify_all();
        }
    }

    #[tokio::test]
    async fn a_proxy_that_answers_in_time_stays_while_the_disk_stalls() {
        let store = Arc::new(Stalls(std::sync::Mutex::new(false), std::sync::Condvar::new()));
        let records = Records::open(store.clone(), "store.redb".as_ref()).unwrap();
        let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
        let (entered, _queue) = welcome(&manager, &hello("host1", 1), REMOTE).await.unwrap();
        let session = &entered.session;
        let (mut proxy, ours) = tokio::io::duplex(1 << 16);
        let mut reader = Reader::new(ours);

        store.set(true);
        // Something is written meanwhile, on which what the event does stands.
        let (_, written) = manager.records.make(|txn| txn.learn_term(9)).await;
        let event = Event::DeviceConfigured { port: PortId::new(1).unwrap() };
        let event = FromProxy::Event { sequence: 0, event };
        let answer = |id| FromProxy::Response { id: OperationId(id), result: Ok(Reply::Done) };
        let mut buffer = vec![0; 4 + MAX_MESSAGE];
        for message in [event, answer(1), answer(2)] {
            proxy.write_all(encode(&message, &mut buffer).unwrap()).await.unwrap();
        }
        let bound = Duration::from_millis(250);
        let goes_on = async {
            tokio::time::sleep(bound * 4).await;
            store.set(false);
        };
        let asks = session.request_done(Request::RemovePeer(NodeId::new(9).unwrap()), bound);
        // Who wants to record waits for what another one asks.
        let (peer, slot) = (NodeId::new(9).unwrap(), SlotId::new(1).unwrap());
        let (function, epoch) = (SlotFunction::ZERO, Epoch::new(0, 1).unwrap());
        let binding = BindingKey { slot, function, epoch };
        let wanted = vec![Recorded { peer, binding, one_in: 0, tlps: 0, frames: 100 }];
        let records = tap::watch(session, wanted, bound);
        let asks = async {
            tokio::select! {
                (answer, watch) = async { tokio::join!(asks, records) } => {
                    (answer, watch.map(drop).map_err(|error| error.to_string()))
                }
                error = listen(&manager, session, &mut reader) => panic!("{error}"),
                error = tap::run(session, bound) => panic!("{error}"),
            }
        };
        let (answers, ()) = tokio::join!(asks, goes_on);
        assert_eq!((answers, session.close_reason()), ((Ok(()), Ok(())), None));
        written.written().await.unwrap();
        // One that does not answer still goes.
        let asked = session.request_done(Request::RemovePeer(NodeId::new(9).unwrap()), bound).await;
        assert_eq!(asked, Err(RequestError::TimedOut(bound)));
    }

    /// Says the same without a pause, as a socket in which there is always something.
    struct Tells(Vec<u8>, usize);

    impl AsyncRead for Tells {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            std::task::ready!(std::pin::pin!(tokio::task::consume_budget()).poll(context));
            let left = &self.0[self.1..];
            let length = left.len().min(into.remaining());
            into.put_slice(&left[..length]);
            self.1 = (self.1 + length) % self.0.len();
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_proxy_that_tells_without_a_pause_and_answers_nothing_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let records = Records::open(Arc::new(EmbeddedStore::open(&path).unwrap()), &path).unwrap();
        let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
        let (entered, _queue) = welcome(&manager, &hello("host1", 1), REMOTE).await.unwrap();
        let session = entered.session.clone();
        let mut buffer = vec![0; 4 + MAX_MESSAGE];
        let pong = encode(&FromProxy::Pong, &mut buffer).unwrap().to_vec();
        let bound = Duration::from_millis(100);
        let mut ends = tokio::spawn(async move {
            let mut reader = Reader::new(Tells(pong, 0));
            tokio::select! {
                biased;
                error = listen(&manager, &session, &mut reader) => panic!("{error}"),
                answer = session.request_done(Request::RemovePeer(NodeId::new(9).unwrap()), bound) => answer,
            }
        });
        let ended = tokio::time::timeout(Duration::from_secs(20), &mut ends).await;
        ends.abort();
        assert_eq!(ended.expect("it waits for ever").unwrap(), Err(RequestError::TimedOut(bound)));
    }

    #[tokio::test]
    async fn a_proxy_whose_session_panicked_is_let_in_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let records = Records::open(Arc::new(EmbeddedStore::open(&path).unwrap()), &path).unwrap();
        let (manager, _queues) = Manager::new(records, Settings::default(), Arc::default());
        for incarnation in 1..=2 {
            let hello = FromProxy::Hello(hello("host1", incarnation));
            let mut buffer = vec![0; 4 + MAX_MESSAGE];
            let hello = encode(&hello, &mut buffer).unwrap().to_vec();
            let attending = manager.clone();
            let mut connections = JoinSet::new();
            connections
                .spawn(async move { attend(&attending, Panics(hello), REMOTE, || ()).await });
            let ended = connections.join_next().await.unwrap();
            assert!(ended.as_ref().is_err_and(JoinError::is_panic));
            tell_panic(ended);
            assert_eq!(manager.registry.count(), 0, "the other life {incarnation}");
            let name = NodeName::new("host1").unwrap();
            assert!(manager.registry.left(&name).is_some(), "it was in");
        }
    }
}
