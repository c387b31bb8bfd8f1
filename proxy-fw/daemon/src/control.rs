//! The connection to the manager: dials, says hello, dials again when it is lost.

use proxy_core::control::{
    Decoded, FromProxy, Hello, MAX_MESSAGE, OperationId, Request, SILENCE_BOUND, Term, ToProxy,
    Welcome, decode, encode,
};
use std::future::{Future as _, poll_fn};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::mpsc as blocking;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;
use tlp_codec::ids::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

/// Messages that wait in either direction. Towards the data plane a full queue stops reading from
/// the manager; towards the manager it stops taking answers and events out of the core, and requests
/// into it.
const QUEUE: usize = 64;

/// How long a connection to one of the manager's addresses may take. The kernel alone would try for
/// minutes.
const CONNECT_BOUND: Duration = Duration::from_secs(5);

/// How long the manager may take to answer Hello.
const WELCOME_BOUND: Duration = Duration::from_secs(5);

/// Pauses between attempts to dial grow from the first to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the data plane learns from the connection.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // few, and moved once
pub enum Inbound {
    /// Joined, or joined again.
    Joined(Welcome),
    /// The connection is lost.
    Lost,
    /// The manager asks.
    Request {
        /// To be echoed.
        id: OperationId,
        /// The leader's term.
        term: Term,
        /// What.
        body: Request,
    },
}

/// A message, and the connection that it is meant for.
type Said = (u64, FromProxy);

/// The data plane's end of the connection.
pub struct ControlHandle {
    inbound: blocking::Receiver<Inbound>,
    outbound: mpsc::Sender<Said>,
    /// Counts connections, as the client does: answers carry the numbers of one connection and
    /// mean something else in the next.
    connection: u64,
    /// Was looked at, and is not taken yet.
    next: Option<Inbound>,
    _thread: Option<JoinHandle<()>>,
}

impl ControlHandle {
    /// A handle and the other ends of it, for a test that plays the manager.
    pub fn pair() -> (Self, blocking::SyncSender<Inbound>, mpsc::Receiver<Said>) {
        let (to_plane, inbound) = blocking::sync_channel(QUEUE);
        let (outbound, from_plane) = mpsc::channel(QUEUE);
        (Self { inbound, outbound, connection: 0, next: None, _thread: None }, to_plane, from_plane)
    }

    /// Dials `manager` (HOST:PORT) from a thread of its own, for as long as the process lives.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn dial(manager: String, hello: Hello) -> std::io::Result<Self> {
        let (mut handle, to_plane, from_plane) = Self::pair();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            let silence = SILENCE_BOUND;
            let lookup = Lookup::new(|name| name.to_socket_addrs());
            let client =
                Client { manager, lookup, hello, to_plane, from_plane, connection: 0, silence };
            let run = std::panic::AssertUnwindSafe(|| runtime.block_on(client.run()));
            if std::panic::catch_unwind(run).is_err() {
                // It would go on without ever hearing of a manager again. Whoever supervises it starts
                // it anew.
                std::process::exit(PANICKED);
            }
        })?;
        handle._thread = Some(thread);
        Ok(handle)
    }

    /// Whether the next thing from the manager is a request, if there is one.
    pub fn is_asked(&mut self) -> bool {
        if self.next.is_none() {
            self.next = self.inbound.try_recv().ok();
        }
        matches!(self.next, Some(Inbound::Request { .. }))
    }

    /// The next thing from the manager, if there is one.
    pub fn try_recv(&mut self) -> Option<Inbound> {
        let inbound = self.next.take().or_else(|| self.inbound.try_recv().ok())?;
        if let Inbound::Joined(_) = inbound {
            self.connection += 1;
        }
        Some(inbound)
    }

    /// Whether a message can be handed over now.
    pub fn has_room(&self) -> bool {
        self.outbound.capacity() > 0
    }

    /// Hands a message over; `false` when there is no room.
    pub fn try_send(&self, message: FromProxy) -> bool {
        self.outbound.try_send((self.connection, message)).is_ok()
    }
}

/// The exit status of a program that panicked.
const PANICKED: i32 = 101;

type Addresses = std::io::Result<std::vec::IntoIter<SocketAddr>>;

/// So many looks for the manager's name are under way at most.
const LOOKS: usize = 8;

/// After this time another look is begun beside one that has not ended: what that waits for may never
/// come, though who knows names is well again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The addresses that a name has, from whoever knows them, and they may take their time: each look is
/// a thread, which nobody can end.
struct Lookup {
    resolve: fn(&str) -> Addresses,
    /// Those that have not ended.
    under_way: Vec<oneshot::Receiver<Addresses>>,
    /// When the newest of them began, if none has ended since: who knows names may not be well.
    begun: Option<Instant>,
}

impl Lookup {
    fn new(resolve: fn(&str) -> Addresses) -> Self {
        Self { resolve, under_way: Vec::new(), begun: None }
    }

    /// Who gives this up and asks again waits for the same look, and the first that ends counts.
    async fn addresses(&mut self, name: &str) -> Addresses {
        if let Ok(address) = name.parse() {
            return Ok(vec![address].into_iter());
        }
        let is_time = self.begun.is_none_or(|begun| begun.elapsed() >= LOOK_AGAIN);
        if self.under_way.is_empty() || is_time && self.under_way.len() < LOOKS {
            self.look(name)?;
        }
        let found = poll_fn(|context| {
            for place in 0..self.under_way.len() {
                if let Poll::Ready(found) = Pin::new(&mut self.under_way[place]).poll(context) {
                    self.under_way.swap_remove(place);
                    self.begun = None;
                    return Poll::Ready(found);
                }
            }
            Poll::Pending
        });
        found.await.unwrap_or_else(|_| Err(std::io::ErrorKind::Interrupted.into()))
    }

    /// Begins a look. What the runtime has for that panics where no thread can be had.
    fn look(&mut self, name: &str) -> std::io::Result<()> {
        let (found, addresses) = oneshot::channel();
        let (name, resolve) = (name.to_owned(), self.resolve);
        std::thread::Builder::new().name("lookup".into()).spawn(move || {
            // Whoever asked may have gone.
            let _ = found.send(resolve(&name));
        })?;
        self.under_way.push(addresses);
        self.begun = Some(Instant::now());
        Ok(())
    }
}

struct Client {
    manager: String,
    lookup: Lookup,
    hello: Hello,
    to_plane: blocking::SyncSender<Inbound>,
    from_plane: mpsc::Receiver<Said>,
    connection: u64,
    /// [`SILENCE_BOUND`].
    silence: Duration,
}

/// Why a connection ended.
enum End {
    /// The data plane is gone: so is the process.
    Stopped,
    /// The manager is there and says no, for a reason that tells a person what to do.
    Refused(String),
    Lost(String),
}

/// Why nobody welcomed this proxy.
enum Unwelcome {
    Refused(String),
    Broken(String),
}

impl From<String> for Unwelcome {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

impl Client {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut complained = None;
        loop {
            let joined = self.connection;
            let why = match self.once(&mut pause).await {
                End::Stopped => return,
                End::Refused(why) => format!("the manager refuses this proxy: {why}"),
                End::Lost(why) => format!("no manager: {why}"),
            };
            if self.connection != joined {
                complained = None;
            }
            // The same again and again is said once.
            if complained.as_ref() == Some(&why) {
                debug!(manager = %self.manager, "{why}");
            } else {
                warn!(manager = %self.manager, "{why}; trying again");
                complained = Some(why);
            }
            // What is said meanwhile is for nobody, and the data plane may wait for room behind it.
            let until_it_ends = async { while self.from_plane.recv().await.is_some() {} };
            if timeout(pause, until_it_ends).await.is_ok() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn once(&mut self, pause: &mut Duration) -> End {
        let mut stream = match self.connect().await {
            Ok(stream) => stream,
            Err(why) => return End::Lost(why),
        };
        let _ = stream.set_nodelay(true);
        let mut inbox = Vec::new();
        let welcome = match timeout(WELCOME_BOUND, self.join(&mut stream, &mut inbox)).await {
            Ok(Ok(welcome)) => welcome,
            Ok(Err(Unwelcome::Refused(why))) => return End::Refused(why),
            Ok(Err(Unwelcome::Broken(why))) => return End::Lost(why),
            Err(_) => return End::Lost("it did not answer Hello".into()),
        };
        info!(manager = %self.manager, node = %welcome.node, term = welcome.term.0, "joined");
        *pause = FIRST_PAUSE;
        self.hello.node = Some(welcome.node);
        self.hello.term = self.hello.term.max(welcome.term);
        self.connection += 1;
        let nobody = None::<&mut TcpStream>;
        if let Err(end) = self.hand_over(Inbound::Joined(welcome), nobody).await {
            return end;
        }
        let end = self.converse(stream, inbox).await;
        let nobody = None::<&mut TcpStream>;
        self.hand_over(Inbound::Lost, nobody).await.map_or_else(|stopped| stopped, |()| end)
    }

    async fn connect(&mut self) -> Result<TcpStream, String> {
        match timeout(CONNECT_BOUND, self.lookup.addresses(&self.manager)).await {
            Ok(Ok(addresses)) => connect_to_one(addresses, CONNECT_BOUND).await,
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err("looking its name up takes too long".into()),
        }
    }

    async fn join(
        &mut self,
        stream: &mut TcpStream,
        inbox: &mut Vec<u8>,
    ) -> Result<Welcome, Unwelcome> {
        write(stream, &FromProxy::Hello(self.hello.clone())).await?;
        loop {
            match next(inbox)? {
                Some(ToProxy::Welcome(welcome)) => return Ok(self.same_node(welcome)?),
                Some(ToProxy::Refused(refused)) => {
                    return Err(Unwelcome::Refused(refused.reason.as_str().into()));
                }
                Some(ToProxy::Ping) => {}
                Some(ToProxy::Request { .. }) => {
                    return Err(Unwelcome::Broken("it asks before it welcomes".into()));
                }
                None => read(stream, inbox).await?,
            }
        }
    }

    fn same_node(&self, welcome: Welcome) -> Result<Welcome, String> {
        let node: NodeId = welcome.node;
        match self.hello.node {
            Some(mine) if mine != node => Err(format!(
                "it numbers this node {node}, but in this life it is {mine}; restart this proxy"
            )),
            _ => Ok(welcome),
        }
    }

    async fn converse(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        mut inbox: Vec<u8>,
    ) -> End {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut gone_at = Instant::now() + self.silence;
        loop {
            match next(&mut inbox) {
                Err(why) => return End::Lost(why),
                Ok(Some(message)) => {
                    if let Err(end) = self.take(message, &mut writer, gone_at).await {
                        return end;
                    }
                    // Not from when it came: that the data plane had no room is no silence.
                    gone_at = Instant::now() + self.silence;
                    continue;
                }
                Ok(None) => {}
            }
            tokio::select! {
                result = read(&mut reader, &mut inbox) => {
                    if let Err(why) = result {
                        return End::Lost(why);
                    }
                }
                message = self.from_plane.recv() => {
                    let Some((connection, message)) = message else { return End::Stopped };
                    if connection != self.connection {
                        continue;
                    }
                    if let Err(why) = write_until(&mut writer, &message, gone_at).await {
                        return End::Lost(why);
                    }
                }
                () = sleep_until(gone_at) => return End::Lost(SILENT.into()),
            }
        }
    }

    /// Does what a manager that has welcomed says.
    async fn take(
        &mut self,
        message: ToProxy,
        writer: &mut (impl AsyncWrite + Unpin),
        gone_at: Instant,
    ) -> Result<(), End> {
        match message {
            ToProxy::Request { id, term, body } => {
                self.hello.term = self.hello.term.max(term);
                self.hand_over(Inbound::Request { id, term, body }, Some(writer)).await
            }
            ToProxy::Ping => {
                write_until(writer, &FromProxy::Pong, gone_at).await.map_err(End::Lost)
            }
            ToProxy::Welcome(_) | ToProxy::Refused(_) => Err(End::Lost("it welcomes twice".into())),
        }
    }

    /// Waits for room in the data plane's queue without holding up the runtime's thread for good. What
    /// the data plane says meanwhile goes to the manager, if there is one: it takes no request while it
    /// has no room for an answer, and each of the two would wait for the other.
    async fn hand_over(
        &mut self,
        mut message: Inbound,
        mut writer: Option<&mut (impl AsyncWrite + Unpin)>,
    ) -> Result<(), End> {
        loop {
            match self.to_plane.try_send(message) {
                Ok(()) => return Ok(()),
                Err(blocking::TrySendError::Disconnected(_)) => return Err(End::Stopped),
                Err(blocking::TrySendError::Full(back)) => message = back,
            }
            let said = timeout(Duration::from_millis(1), self.from_plane.recv()).await;
            let Ok(said) = said else { continue };
            let Some((connection, said)) = said else { return Err(End::Stopped) };
            if let Some(writer) = writer.as_deref_mut()
                && connection == self.connection
            {
                let gone_at = Instant::now() + self.silence;
                write_until(writer, &said, gone_at).await.map_err(End::Lost)?;
            }
        }
    }
}

/// What is said of a manager that went without ending the connection.
const SILENT: &str = "it is silent";

/// A connection to the first of the addresses that takes it; one that does not answer in time keeps
/// nobody from the next.
async fn connect_to_one(
    addresses: impl Iterator<Item = SocketAddr>,
    bound: Duration,
) -> Result<TcpStream, String> {
    let mut why = "its name has no address".to_string();
    for address in addresses {
        why = match timeout(bound, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("{address} does not answer"),
        };
    }
    Err(why)
}

/// Takes the next whole message off the front of what was read.
fn next(inbox: &mut Vec<u8>) -> Result<Option<ToProxy>, String> {
    if inbox.starts_with(b"HTTP") {
        return Err(
            "it speaks HTTP: that is a REST API; --manager is where proxies dial in, port \
                    7781 if nothing else was said"
                .into(),
        );
    }
    match decode(inbox).map_err(|e| format!("it sends what is no message: {e}"))? {
        Decoded::Incomplete => Ok(None),
        Decoded::Message(message, used) => {
            inbox.drain(..used);
            Ok(Some(message))
        }
    }
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin), inbox: &mut Vec<u8>) -> Result<(), String> {
    match stream.read_buf(inbox).await {
        Ok(0) => Err("it closed the connection".into()),
        Ok(_) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// As [`write()`]. A manager that went takes no more than the kernel has room for.
async fn write_until(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &FromProxy,
    gone_at: Instant,
) -> Result<(), String> {
    timeout_at(gone_at, write(stream, message)).await.unwrap_or_else(|_| Err(SILENT.into()))
}

async fn write(
    stream: &mut (impl AsyncWriteExt + Unpin),
    message: &FromProxy,
) -> Result<(), String> {
    let mut buf = vec![0; MAX_MESSAGE + 4];
    let bytes = encode(message, &mut buf).map_err(|e| format!("message does not encode: {e}"))?;
    stream.write_all(bytes).await.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
