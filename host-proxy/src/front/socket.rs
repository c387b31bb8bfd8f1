//! A root complex at a Unix socket: `docs/tlp-socket.md`.

pub mod session;

use super::absence::Absence;
use super::lines::Lines;
use super::stale::remove_stale;
use proxy_core::host::HostRole;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::role::Role;
use proxy_core::switch::ResetKind;
use proxy_core::time::Instant;
use proxy_daemon::plane::Plane;
use proxy_daemon::stop::Stop;
use session::{HEADER, MAX_RECORD, Session, Taken, kind, record};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Records moved in either direction in one turn.
const BATCH: usize = 64;

/// How long a client has to say hello; one that says nothing would keep others out for good.
const HELLO_BOUND: Duration = Duration::from_secs(30);

/// The listening socket.
pub struct SocketFront {
    path: PathBuf,
    listener: Socket,
    hello_bound: Duration,
}

/// Why a client is let go.
enum Gone {
    /// It closed the connection.
    Closed,
    /// It did something wrong, which it is told.
    Wrong(String),
}

/// What went nowhere at this socket, for the proxy's counters.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    discarded: u64,
    unknown: u64,
    wrong: u64,
    refused: u64,
}

impl Counts {
    fn list(self) -> Vec<(&'static str, u64)> {
        vec![
            ("socket: TLPs for a root complex that is not there", self.discarded),
            ("socket: records of an unknown kind", self.unknown),
            ("socket: root complexes disconnected for a wrong record", self.wrong),
            ("socket: root complexes refused: one is connected", self.refused),
        ]
    }
}

/// What whoever is at the socket can cause as often as they like, and is told in the log.
#[derive(Debug, Default)]
struct Told {
    connected: Lines,
    disconnected: Lines,
    wrong: Lines,
    not_taken: Lines,
}

struct Client {
    socket: Socket,
    session: Session,
    /// When a client that was not greeted yet is let go.
    hello_until: Instant,
    /// Whether the last turn read all that it had sent.
    drained: bool,
    /// A TLP of the client that the role had no room for.
    held: Option<usize>,
    /// One byte more than a record has, so that a longer one shows.
    inbox: Box<[u8; MAX_RECORD + 1]>,
    /// A record for the client that the socket had no room for.
    unsent: Option<usize>,
    outbox: Box<[u8; MAX_RECORD]>,
}

impl SocketFront {
    /// Listens.
    ///
    /// # Errors
    ///
    /// A text that names the path and says what to do.
    pub fn open(path: &Path) -> Result<Self, String> {
        let text = |e: std::io::Error| format!("TLP socket {}: {e}", path.display());
        let address = SockAddr::unix(path).map_err(text)?;
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).map_err(text)?;
        remove_stale("TLP socket", path, Type::SEQPACKET)?;
        listener.bind(&address).map_err(text)?;
        listener.listen(4).map_err(text)?;
        listener.set_nonblocking(true).map_err(text)?;
        Ok(Self { path: path.to_path_buf(), listener, hello_bound: HELLO_BOUND })
    }

    /// Serves one client after the other until told to stop.
    ///
    /// # Errors
    ///
    /// When the fabric is broken for good.
    pub fn run(self, mut plane: Plane<HostRole>, stop: &Stop) -> Result<(), String> {
        let mut client: Option<Client> = None;
        // One that connected while a client is there. It is judged only after that one was read to
        // its end: a root complex that reconnects is not in its own way.
        let mut newcomer: Option<Socket> = None;
        let mut counts = Counts::default();
        let mut told = Told::default();
        let mut absence = Absence::default();
        while !stop.requested() {
            let mut busy = plane.receive().map_err(|e| e.to_string())?;
            if let Some(connected) = &mut client {
                match connected.turn(&mut plane) {
                    Ok(moved) => busy |= moved,
                    Err(gone) => {
                        connected.leave(&gone, plane.latest(), &mut told);
                        counts.wrong += u64::from(matches!(gone, Gone::Wrong(_)));
                        counts.unknown += connected.session.unknown();
                        client = None;
                        let now = plane.now();
                        plane.role.handle_reset(now, ResetKind::Fundamental);
                    }
                }
            } else {
                counts.discarded += discard(&mut plane);
            }
            match (&client, newcomer.take()) {
                (None, Some(socket)) => client = self.welcome(socket, plane.latest(), &mut told),
                (Some(there), Some(socket)) if there.drained => {
                    refuse(&socket, "another root complex is connected");
                    counts.refused += 1;
                }
                (_, waiting) => newcomer = waiting,
            }
            if newcomer.is_none() {
                newcomer = self.listener.accept().ok().map(|(socket, _)| socket);
                busy |= newcomer.is_some();
            }
            let present = client.as_ref().is_some_and(|client| client.session.is_greeted());
            if absence.lasts(plane.latest(), present) {
                plane.role.set_root_complex(false);
            }
            if plane.role.is_asked_for_counters() {
                let unknown =
                    counts.unknown + client.as_ref().map_or(0, |client| client.session.unknown());
                plane.set_device_counters(Counts { unknown, ..counts }.list());
            }
            busy |= plane.transmit().map_err(|e| e.to_string())?;
            plane.rest(busy, None).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn welcome(&self, socket: Socket, now: Instant, told: &mut Told) -> Option<Client> {
        if let Err(error) = socket.set_nonblocking(true) {
            told.not_taken.warn(now, format_args!("a client was not taken: {error}"));
            return None;
        }
        let line = format_args!("a root complex connected to {}", self.path.display());
        told.connected.info(now, line);
        Some(Client {
            socket,
            session: Session::default(),
            hello_until: now + self.hello_bound,
            drained: false,
            held: None,
            inbox: Box::new([0; MAX_RECORD + 1]),
            unsent: None,
            outbox: Box::new([0; MAX_RECORD]),
        })
    }
}

impl Drop for SocketFront {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// TLPs for a root complex that is not there go nowhere. How many there were.
fn discard(plane: &mut Plane<HostRole>) -> u64 {
    let mut buf = [0; TLP_BUFFER];
    let now = plane.now();
    (0..BATCH).take_while(|_| plane.role.poll_tlp(now, &mut buf).is_some()).count() as u64
}

/// Says why a client is let go, as far as it still listens.
fn refuse(mut socket: &Socket, why: &str) {
    let _ = socket.send(&record(kind::ERROR, why.as_bytes()));
    // The kernel tells the other end of a socket that is closed with unread records only that the
    // connection was reset, and not what was sent to it.
    let _ = socket.set_nonblocking(true);
    let mut record = [0; MAX_RECORD];
    for _ in 0..BATCH {
        if !socket.read(&mut record).is_ok_and(|length| length > 0) {
            return;
        }
    }
}

impl Client {
    fn turn(&mut self, plane: &mut Plane<HostRole>) -> Result<bool, Gone> {
        let taken = self.take(plane)?;
        if !self.session.is_greeted() && plane.latest() >= self.hello_until {
            return Err(Gone::Wrong("no hello came in time".into()));
        }
        let given = self.give(plane)?;
        Ok(taken | given)
    }

    /// Takes records from the client while the role has room.
    fn take(&mut self, plane: &mut Plane<HostRole>) -> Result<bool, Gone> {
        self.drained = false;
        for moved in 0..BATCH {
            let length = match self.held.take() {
                Some(length) => length,
                None => match self.socket.read(&mut self.inbox[..]) {
                    Ok(0) => return Err(Gone::Closed),
                    Ok(length) => length,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        self.drained = true;
                        return Ok(moved > 0);
                    }
                    Err(_) => return Err(Gone::Closed),
                },
            };
            if !self.handle(plane, length)? {
                self.held = Some(length);
                return Ok(moved > 0);
            }
        }
        Ok(true)
    }

    /// Whether the record was taken.
    fn handle(&mut self, plane: &mut Plane<HostRole>, length: usize) -> Result<bool, Gone> {
        let now = plane.now();
        let taken = self.session.take(&mut plane.role, now, &self.inbox[..length]);
        match taken.map_err(|why| Gone::Wrong(why.into()))? {
            Taken::NoRoom => return Ok(false),
            Taken::Done => {}
            Taken::Tlp if plane.role.wants_mark() => {
                let now = plane.now();
                plane.role.mark(now);
            }
            Taken::Tlp => {}
            Taken::Hello => {
                for record in Session::greeting(&plane.role) {
                    self.socket.send(&record).map_err(|_| Gone::Closed)?;
                }
            }
        }
        Ok(true)
    }

    /// Gives TLPs to the client while the socket has room.
    fn give(&mut self, plane: &mut Plane<HostRole>) -> Result<bool, Gone> {
        if !self.session.is_greeted() {
            return Ok(false);
        }
        for moved in 0..BATCH {
            let length = match self.unsent.take() {
                Some(length) => length,
                None => {
                    let now = plane.now();
                    let Some(length) = plane.role.poll_tlp(now, &mut self.outbox[HEADER..]) else {
                        return Ok(moved > 0);
                    };
                    if plane.role.wants_mark() {
                        let now = plane.now();
                        plane.role.mark(now);
                    }
                    self.outbox[..HEADER].copy_from_slice(&[kind::TLP, 0, 0, 0]);
                    HEADER + length
                }
            };
            match self.socket.send(&self.outbox[..length]) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.unsent = Some(length);
                    return Ok(moved > 0);
                }
                Err(_) => return Err(Gone::Closed),
            }
        }
        Ok(true)
    }

    fn leave(&self, gone: &Gone, now: Instant, told: &mut Told) {
        let unknown = self.session.unknown();
        match gone {
            Gone::Closed => {
                let line =
                    format_args!("the root complex disconnected (unknown records: {unknown})");
                told.disconnected.info(now, line);
            }
            Gone::Wrong(why) => {
                refuse(&self.socket, why);
                let line = format_args!(
                    "the root complex was disconnected: {why} (unknown records: {unknown})"
                );
                told.wrong.warn(now, line);
            }
        }
    }
}

#[cfg(test)]
mod tests;
