//! The connection to the manager: dials, says hello, dials again when it is lost.

use proxy_core::control::{
    Decoded, FromProxy, Hello, MAX_MESSAGE, OperationId, Request, Term, ToProxy, Welcome, decode,
    encode,
};
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;
use tlp_codec::ids::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

/// Messages that wait in either direction. Towards the data plane a full queue stops reading from
/// the manager; towards the manager it stops taking answers and events out of the core.
const QUEUE: usize = 64;

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
    _thread: Option<JoinHandle<()>>,
}

impl ControlHandle {
    /// A handle and the other ends of it, for a test that plays the manager.
    pub fn pair() -> (Self, blocking::SyncSender<Inbound>, mpsc::Receiver<Said>) {
        let (to_plane, inbound) = blocking::sync_channel(QUEUE);
        let (outbound, from_plane) = mpsc::channel(QUEUE);
        (Self { inbound, outbound, connection: 0, _thread: None }, to_plane, from_plane)
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
            runtime.block_on(Client { manager, hello, to_plane, from_plane, connection: 0 }.run());
        })?;
        handle._thread = Some(thread);
        Ok(handle)
    }

    /// The next thing from the manager, if there is one.
    pub fn try_recv(&mut self) -> Option<Inbound> {
        let inbound = self.inbound.try_recv().ok()?;
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

struct Client {
    manager: String,
    hello: Hello,
    to_plane: blocking::SyncSender<Inbound>,
    from_plane: mpsc::Receiver<Said>,
    connection: u64,
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
            let why = match self.once(&mut pause).await {
                End::Stopped => return,
                End::Refused(why) => format!("the manager refuses this proxy: {why}"),
                End::Lost(why) => format!("no manager: {why}"),
            };
            // The same again and again is said once.
            if complained.as_ref() == Some(&why) {
                debug!(manager = %self.manager, "{why}");
            } else {
                warn!(manager = %self.manager, "{why}; trying again");
                complained = Some(why);
            }
            if pause == FIRST_PAUSE {
                complained = None;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn once(&mut self, pause: &mut Duration) -> End {
        let mut stream = match TcpStream::connect(&self.manager).await {
            Ok(stream) => stream,
            Err(e) => return End::Lost(e.to_string()),
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
        if self.to_plane.send(Inbound::Joined(welcome)).is_err() {
            return End::Stopped;
        }
        let end = self.converse(stream, inbox).await;
        if self.to_plane.send(Inbound::Lost).is_err() {
            return End::Stopped;
        }
        end
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

    async fn converse(&mut self, stream: TcpStream, mut inbox: Vec<u8>) -> End {
        let (mut reader, mut writer) = stream.into_split();
        loop {
            match next(&mut inbox) {
                Err(why) => return End::Lost(why),
                Ok(Some(ToProxy::Request { id, term, body })) => {
                    self.hello.term = self.hello.term.max(term);
                    let request = Inbound::Request { id, term, body };
                    if let Err(end) = self.hand_over(request).await {
                        return end;
                    }
                    continue;
                }
                Ok(Some(ToProxy::Ping)) => {
                    if let Err(why) = write(&mut writer, &FromProxy::Pong).await {
                        return End::Lost(why);
                    }
                    continue;
                }
                Ok(Some(_)) => return End::Lost("it welcomes twice".into()),
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
                    if let Err(why) = write(&mut writer, &message).await {
                        return End::Lost(why);
                    }
                }
            }
        }
    }

    /// Waits for room in the data plane's queue without holding up the runtime's thread for good.
    async fn hand_over(&mut self, mut message: Inbound) -> Result<(), End> {
        loop {
            match self.to_plane.try_send(message) {
                Ok(()) => return Ok(()),
                Err(blocking::TrySendError::Disconnected(_)) => return Err(End::Stopped),
                Err(blocking::TrySendError::Full(back)) => message = back,
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Takes the next whole message off the front of what was read.
fn next(inbox: &mut Vec<u8>) -> Result<Option<ToProxy>, String> {
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

async fn write(
    stream: &mut (impl AsyncWriteExt + Unpin),
    message: &FromProxy,
) -> Result<(), String> {
    let mut buf = vec![0; MAX_MESSAGE + 4];
    let bytes = encode(message, &mut buf).map_err(|e| format!("message does not encode: {e}"))?;
    stream.write_all(bytes).await.map_err(|e| e.to_string())
}
