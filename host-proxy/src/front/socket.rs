//! A root complex at a Unix socket: `docs/tlp-socket.md`.

pub mod session;

use super::absence::Absence;
use super::lines::Lines;
use super::stale::{OwnFile, remove_stale};
use proxy_core::host::HostRole;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::role::Role;
use proxy_core::switch::ResetKind;
use proxy_core::time::Instant;
use proxy_daemon::plane::Plane;
use proxy_daemon::stop::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::{HEADER, MAX_RECORD, Session, Taken, kind, record};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

/// Records moved in either direction in one turn.
const BATCH: usize = 64;

/// How long a client has to say hello; one that says nothing would keep others out for good.
const HELLO_BOUND: Duration = Duration::from_secs(30);

/// How long a client takes nothing until it is one that does not read. One that reads finds the socket
/// full, too, again and again, while a device sends much.
const NOT_READING: Duration = Duration::from_millis(100);

/// The listening socket.
pub struct SocketFront {
    file: OwnFile,
    listener: Socket,
    hello_bound: Duration,
    /// TLPs that a test has no room for.
    #[cfg(test)]
    full: fn(&[u8]) -> bool,
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
    /// With those of a client that is there.
    fn and(self, client: Option<&Client>) -> Self {
        let Some(client) = client else { return self };
        let unknown = self.unknown + client.session.unknown();
        Self { unknown, ..self }
    }

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
    given_up: Lines,
    /// TLPs given up when that was told last, in a line or not.
    given_up_count: u64,
}

impl Told {
    /// The device that a TLP was for took nothing for too long.
    fn tell_given_up(&mut self, now: Instant, all: u64) {
        if all > self.given_up_count {
            self.given_up_count = all;
            // Of the lines some go unsaid: only the sum tells of those, too.
            let line = format_args!("TLPs given up, their device takes nothing: {all} so far");
            self.given_up.warn(now, line);
        }
    }
}

struct Client {
    socket: Socket,
    session: Session,
    /// When a client that was not greeted yet is let go.
    hello_until: Instant,
    /// A TLP of the client that the role had no room for.
    held: Option<usize>,
    #[cfg(test)]
    full: fn(&[u8]) -> bool,
    /// One byte more than a record has, so that a longer one shows.
    inbox: Box<[u8; MAX_RECORD + 1]>,
    /// What a hello is answered with, as far as the client has it not.
    greeting: VecDeque<Vec<u8>>,
    /// A record for the client that the socket had no room for.
    unsent: Option<usize>,
    /// When the socket had room for one last.
    given_at: Instant,
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
        let file = OwnFile::new(path).map_err(text)?;
        listener.listen(4).map_err(text)?;
        listener.set_nonblocking(true).map_err(text)?;
        Ok(Self {
            file,
            listener,
            hello_bound: HELLO_BOUND,
            #[cfg(test)]
            full: |_| false,
        })
    }

    /// Serves one client after the other until told to stop.
    ///
    /// # Errors
    ///
    /// When the fabric is broken for good.
    pub fn run(self, mut plane: Plane<HostRole>, stop: &Stop) -> Result<(), String> {
        let mut client: Option<Client> = None;
        // One that connected while a client is there. It is judged only when it is sure that that one
        // is there still: a root complex that reconnects is not in its own way.
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
                        counts = counts.and(client.take().as_ref());
                        let now = plane.now();
                        plane.role.handle_reset(now, ResetKind::Fundamental);
                    }
                }
            } else {
                counts.discarded += discard(&mut plane);
            }
            match (&client, newcomer.take()) {
                (None, Some(socket)) => client = self.welcome(socket, plane.latest(), &mut told),
                (Some(there), Some(socket)) if !there.has_left() => {
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
            told.tell_given_up(plane.latest(), plane.role.given_up());
            if plane.role.is_asked_for_counters() {
                plane.set_device_counters(counts.and(client.as_ref()).list());
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
        let line = format_args!("a root complex connected to {}", self.file.path().display());
        told.connected.info(now, line);
        Some(Client {
            socket,
            session: Session::default(),
            hello_until: now + self.hello_bound,
            held: None,
            #[cfg(test)]
            full: self.full,
            inbox: Box::new([0; MAX_RECORD + 1]),
            greeting: VecDeque::new(),
            unsent: None,
            given_at: now,
            outbox: Box::new([0; MAX_RECORD]),
        })
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

/// Whether a record that could not be sent can be later: the socket has no room, or the kernel no memory.
fn is_for_later(error: &std::io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    error.kind() == ErrorKind::WouldBlock
        || matches!(errno, Some(rustix::io::Errno::NOBUFS | rustix::io::Errno::NOMEM))
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
        for moved in 0..BATCH {
            // The next record waits for what is to be said to the last one.
            if !self.greeting.is_empty() {
                return Ok(moved > 0);
            }
            let length = match self.held.take() {
                Some(length) => length,
                None => match self.socket.read(&mut self.inbox[..]) {
                    // An empty record looks like the end.
                    Ok(0) if self.has_left() => return Err(Gone::Closed),
                    Ok(length) => length,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(moved > 0),
                    Err(_) => return Err(Gone::Closed),
                },
            };
            if !self.handle(plane, length)? {
                self.held = Some(length);
                // Nothing is read behind it, and the connection's end neither.
                if self.has_left() {
                    return Err(Gone::Closed);
                }
                return Ok(moved > 0);
            }
        }
        Ok(true)
    }

    /// Whether the record was taken.
    fn handle(&mut self, plane: &mut Plane<HostRole>, length: usize) -> Result<bool, Gone> {
        #[cfg(test)]
        if length > HEADER && self.inbox[0] == kind::TLP && (self.full)(&self.inbox[HEADER..length])
        {
            return Ok(false);
        }
        let now = plane.now();
        // A device may lack room for what it would answer, as long as the client does not read.
        if self.does_not_read(now) {
            plane.role.excuse();
        }
        let taken = self.session.take(&mut plane.role, now, &self.inbox[..length]);
        match taken.map_err(|why| Gone::Wrong(why.into()))? {
            Taken::NoRoom => return Ok(false),
            Taken::Done => {}
            Taken::Tlp => {
                if plane.role.wants_mark() {
                    let now = plane.now();
                    plane.role.mark(now);
                }
            }
            Taken::Hello => {
                self.greeting.extend(Session::greeting(&plane.role));
                self.greet()?;
            }
        }
        Ok(true)
    }

    /// Whether there is something for the client, and has been for long.
    fn does_not_read(&self, now: Instant) -> bool {
        self.unsent.is_some() && now.saturating_since(self.given_at) > NOT_READING
    }

    /// Whether the client has closed the connection, whatever of it was not read yet.
    fn has_left(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut ends = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        // The end of the other side shows without being asked for.
        poll(&mut ends, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Gives TLPs to the client while the socket has room.
    fn give(&mut self, plane: &mut Plane<HostRole>) -> Result<bool, Gone> {
        if !self.session.is_greeted() || !self.greet()? {
            return Ok(false);
        }
        for moved in 0..BATCH {
            let length = match self.unsent.take() {
                Some(length) => length,
                None => match self.next_tlp(plane) {
                    Some(length) => length,
                    None => return Ok(moved > 0),
                },
            };
            match self.socket.send(&self.outbox[..length]) {
                Ok(_) => self.given_at = plane.latest(),
                Err(e) if is_for_later(&e) => {
                    self.unsent = Some(length);
                    return Ok(moved > 0);
                }
                Err(_) => return Err(Gone::Closed),
            }
        }
        Ok(true)
    }

    /// Says what is to be said to a hello, as far as the socket has room. Whether that is all.
    fn greet(&mut self) -> Result<bool, Gone> {
        while let Some(record) = self.greeting.front() {
            match self.socket.send(record) {
                Ok(_) => drop(self.greeting.pop_front()),
                Err(e) if is_for_later(&e) => return Ok(false),
                Err(_) => return Err(Gone::Closed),
            }
        }
        Ok(true)
    }

    /// Puts the next TLP for the client into the outbox; the length of its record.
    fn next_tlp(&mut self, plane: &mut Plane<HostRole>) -> Option<usize> {
        let now = plane.now();
        let length = plane.role.poll_tlp(now, &mut self.outbox[HEADER..])?;
        if plane.role.wants_mark() {
            let now = plane.now();
            plane.role.mark(now);
        }
        self.outbox[..HEADER].copy_from_slice(&[kind::TLP, 0, 0, 0]);
        Some(HEADER + length)
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
