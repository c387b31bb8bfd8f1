//! OpenOCD's remote-bitbang protocol (`doc/manual/jtag/drivers/remote_bitbang.txt` of OpenOCD):
//! a character for each change of the pins, and one back for each reading of TDO.
//!
//! [`Pins`] is the protocol without a connection; [`Server`] has one client at a time over TCP.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::card::Card;

/// Bytes that are read from a client at once.
const CHUNK: usize = 4096;
/// Chunks that wait for the card. A client that sends more waits: TCP holds it back.
const QUEUE: usize = 16;
/// How long a client may leave its answers unread before it is hung up on.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client asked for besides pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To go on.
    Continue,
    /// To end the connection.
    Quit,
}

/// The protocol: pins in, TDO out.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    system_reset: bool,
    unknown: u64,
}

impl Pins {
    /// Characters that are none of the protocol's. They are ignored.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Does what a client sent, up to its quitting, and adds the answers to `answers`: one byte
    /// at most for each that came.
    pub fn handle(&mut self, bytes: &[u8], card: &mut Card, answers: &mut Vec<u8>) -> Ask {
        for byte in bytes {
            match byte {
                b'0'..=b'7' => {
                    let pins = byte - b'0';
                    card.set_jtag(pins & 4 != 0, pins & 2 != 0, pins & 1 != 0);
                }
                b'R' => answers.push(if card.tdo() { b'1' } else { b'0' }),
                b'r'..=b'u' => self.resets(byte - b'r', card),
                // The probe's light.
                b'B' | b'b' => {}
                b'Q' => return Ask::Quit,
                _ => self.unknown += 1,
            }
        }
        Ask::Continue
    }

    /// SRST is bit 0, TRST bit 1. The card is reset when SRST is released.
    fn resets(&mut self, lines: u8, card: &mut Card) {
        let system_reset = lines & 1 != 0;
        if self.system_reset && !system_reset {
            card.reset();
        }
        self.system_reset = system_reset;
        if lines & 2 != 0 {
            card.test_reset();
        }
    }
}

/// From the thread that has the connection.
enum Event {
    Connected(TcpStream),
    Bytes(Vec<u8>),
    Gone,
}

/// A server for one client at a time; further ones wait.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    events: Receiver<Event>,
    client: Option<TcpStream>,
    pins: Pins,
    answers: Vec<u8>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens; with port 0 at a port of the system's choice.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened at.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (sender, events) = sync_channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("remote-bitbang".into())
            .spawn(move || serve(&listener, &sender, &stopped))?;
        let thread = Some(thread);
        let (client, pins, answers) = (None, Pins::default(), Vec::with_capacity(CHUNK));
        Ok(Self { address, events, client, pins, answers, stop, thread })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a client is there.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.is_some()
    }

    /// Does what came, and waits for the first of it for so long. Says whether something came.
    pub fn poll(&mut self, card: &mut Card, wait: Duration) -> bool {
        match self.events.recv_timeout(wait) {
            Ok(event) => self.handle(event, card),
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => {
                // The listener is gone, which `bind`'s caller cannot help; keep the pace.
                std::thread::sleep(wait);
                return false;
            }
        }
        // No more than what is queued now, so that a busy client does not stop the card's time.
        for _ in 0..QUEUE {
            let Ok(event) = self.events.try_recv() else { break };
            self.handle(event, card);
        }
        true
    }

    fn handle(&mut self, event: Event, card: &mut Card) {
        match event {
            Event::Connected(client) => {
                self.pins = Pins::default();
                self.client = Some(client);
            }
            Event::Bytes(bytes) => self.answer(&bytes, card),
            Event::Gone => self.client = None,
        }
    }

    fn answer(&mut self, bytes: &[u8], card: &mut Card) {
        let Some(client) = &mut self.client else { return };
        self.answers.clear();
        let ask = self.pins.handle(bytes, card, &mut self.answers);
        let written = client.write_all(&self.answers);
        if ask == Ask::Quit || written.is_err() {
            // The thread that reads sees it and waits for the next client.
            let _ = client.shutdown(Shutdown::Both);
            self.client = None;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(client) = self.client.take() {
            let _ = client.shutdown(Shutdown::Both);
        }
        // Clients that were not looked at yet, too.
        while let Ok(event) = self.events.try_recv() {
            if let Event::Connected(client) = event {
                let _ = client.shutdown(Shutdown::Both);
            }
        }
        // Whoever waits in `accept` is woken by a connection, and whoever waits for room in the
        // queue by its end.
        drop(std::mem::replace(&mut self.events, sync_channel(1).1));
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let woken = TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Accepts clients and reads from them.
fn serve(listener: &TcpListener, events: &SyncSender<Event>, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let Ok((client, _)) = listener.accept() else {
            // Out of descriptors, say; another try comes soon enough.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if stop.load(Ordering::SeqCst) || !serve_client(client, events, stop) {
            return;
        }
    }
}

/// Whether there is somebody to serve for.
fn serve_client(mut client: TcpStream, events: &SyncSender<Event>, stop: &AtomicBool) -> bool {
    let prepared = client
        .set_nodelay(true)
        .and_then(|()| client.set_write_timeout(Some(WRITE_TIMEOUT)))
        .and_then(|()| client.try_clone());
    let Ok(writer) = prepared else { return true };
    if events.send(Event::Connected(writer)).is_err() {
        return false;
    }
    let mut chunk = [0; CHUNK];
    while let Ok(length @ 1..) = client.read(&mut chunk) {
        if events.send(Event::Bytes(chunk[..length].to_vec())).is_err() {
            return false;
        }
        if stop.load(Ordering::SeqCst) {
            return false;
        }
    }
    events.send(Event::Gone).is_ok()
}
