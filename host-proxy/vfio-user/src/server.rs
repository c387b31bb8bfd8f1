//! The server.

use crate::device::{Device, Irq};
use crate::irqs::Irqs;
use crate::limits::MAX_VECTORS;
use crate::listen::{Accepted, Listener, OpenError};
use crate::memory::Memory;
use crate::session::{Counts, DmaRefused, DmaToken, Gone, Session, State, Step};
use crate::wire::Command;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

/// A vfio-user server: one device, for one client at a time.
///
/// Whoever connects while a client is there waits until that one is gone.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    session: Option<Session>,
    state: State,
    connected: u64,
    refused: u64,
    let_go: u64,
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A client connected. It has agreed on nothing yet.
    Connected,
    /// The client is gone; nothing of it is mapped or open any more. An access in hand is not
    /// answered, and DMA messages without an answer get none.
    Disconnected(Gone),
    /// The device is to be reset. To be answered, as an access.
    Reset,
    /// A read of a region, which has all of it. To be answered with the data.
    Read {
        /// The region's index.
        region: u8,
        /// Where in the region it begins.
        offset: u64,
        /// Bytes, 1 to [`MAX_DATA_XFER`](crate::limits::MAX_DATA_XFER).
        len: usize,
    },
    /// A write to a region, which has all of it. To be answered with no data.
    Write {
        /// The region's index.
        region: u8,
        /// Where in the region it begins.
        offset: u64,
        /// What to write, 1 to [`MAX_DATA_XFER`](crate::limits::MAX_DATA_XFER) bytes.
        data: &'a [u8],
    },
    /// The client answered a DMA message, with the data if it was a read. EPROTO: what it said is
    /// no answer to what was asked.
    DmaDone {
        /// What asking gave.
        token: DmaToken,
        /// The answer.
        result: Result<&'a [u8], Errno>,
    },
}

impl Server {
    /// Listens at a path. A socket that nobody listens at is replaced; when the server goes, its
    /// socket does.
    ///
    /// # Errors
    ///
    /// [`OpenError`], with what to do.
    ///
    /// # Panics
    ///
    /// When the device has more than [`MAX_VECTORS`] of a kind of interrupt.
    pub fn listen(path: &Path, device: Device) -> Result<Self, OpenError> {
        Ok(Self::with(Listener::bind(path)?, device))
    }

    /// Serves at a listening socket that somebody else made, as with `--fd` in the specification's
    /// conventions for such programs.
    ///
    /// # Errors
    ///
    /// The operating system's, when the socket cannot be made one that does not block.
    ///
    /// # Panics
    ///
    /// As [`Server::listen`].
    pub fn adopt(listener: UnixListener, device: Device) -> std::io::Result<Self> {
        Ok(Self::with(Listener::adopt(listener)?, device))
    }

    fn with(listener: Listener, device: Device) -> Self {
        assert!(device.irqs.iter().all(|count| *count <= MAX_VECTORS), "interrupts of a kind");
        let state = State {
            device,
            memory: Memory::default(),
            irqs: Irqs::new(&device),
            counts: Counts::default(),
        };
        Self { listener, session: None, state, connected: 0, refused: 0, let_go: 0 }
    }

    /// Takes in and sends what the sockets let it, and gives the next thing that happened. Never
    /// blocks; nothing: there is nothing now.
    ///
    /// [`Event::Read`], [`Event::Write`] and [`Event::Reset`] come one at a time: whatever the
    /// client sent behind one waits until that one has its [`answer`](Server::answer), except for
    /// replies to DMA messages.
    pub fn poll(&mut self) -> Option<Event<'_>> {
        let Some(session) = &mut self.session else {
            return self.accept().then_some(Event::Connected);
        };
        let step = session.poll(&mut self.state)?;
        if let Step::Disconnected(gone) = step {
            self.end(gone);
            return Some(Event::Disconnected(gone));
        }
        let session = self.session.as_ref().expect("it is still there");
        Some(match step {
            Step::Disconnected(_) => unreachable!("it was looked at"),
            Step::Reset => Event::Reset,
            Step::Read { region, offset, len } => Event::Read { region, offset, len },
            Step::Write { region, offset, data } => {
                Event::Write { region, offset, data: &session.payload()[data] }
            }
            Step::DmaDone { token, result } => {
                let result = result.map(|data| &session.dma_payload()[data]);
                Event::DmaDone { token, result }
            }
        })
    }

    fn accept(&mut self) -> bool {
        match self.listener.accept() {
            Accepted::Client(socket) => {
                self.connected += 1;
                self.session = Some(Session::new(socket));
                true
            }
            Accepted::Failed => {
                self.refused += 1;
                false
            }
            Accepted::Nobody => false,
        }
    }

    /// Forgets the client and all that it set up.
    fn end(&mut self, gone: Gone) {
        self.let_go += u64::from(!matches!(gone, Gone::Closed | Gone::Died));
        self.session = None;
        self.state.memory.clear();
        self.state.irqs.clear();
    }

    /// Answers the access or the reset in hand: with the data for a read, with nothing for a
    /// write, with the error that the client is to see. A write that wants no reply is answered
    /// all the same, and the client sees nothing of it.
    ///
    /// # Panics
    ///
    /// When nothing is in hand, or the data has not the length that was asked for.
    pub fn answer(&mut self, result: Result<&[u8], Errno>) {
        let session = self.session.as_mut().expect("an answer, but no client");
        session.answer(&mut self.state, result);
    }

    /// Triggers an interrupt. False: the client has set no eventfd for it.
    pub fn trigger(&mut self, irq: Irq, vector: u32) -> bool {
        self.state.irqs.trigger(irq, vector)
    }

    /// The client's memory, as far as it gave it.
    pub fn memory(&self) -> &Memory {
        &self.state.memory
    }

    /// Asks the client to write to an address of its memory, or of what is no memory: an MSI.
    /// [`Event::DmaDone`] tells when it has. What is longer than the client takes in one message is
    /// several, in increasing order of addresses.
    ///
    /// # Errors
    ///
    /// [`DmaRefused`].
    pub fn dma_write(&mut self, address: u64, data: &[u8]) -> Result<DmaToken, DmaRefused> {
        let session = self.session.as_mut().ok_or(DmaRefused::NotConnected)?;
        session.dma(&mut self.state, Command::DmaWrite, address, data.len(), data)
    }

    /// Asks the client for bytes of its memory. [`Event::DmaDone`] brings them.
    ///
    /// # Errors
    ///
    /// [`DmaRefused`].
    pub fn dma_read(&mut self, address: u64, len: usize) -> Result<DmaToken, DmaRefused> {
        let session = self.session.as_mut().ok_or(DmaRefused::NotConnected)?;
        session.dma(&mut self.state, Command::DmaRead, address, len, &[])
    }

    /// What to wait for, with poll(2), once [`Server::poll`] gave nothing and every access has its
    /// answer or waits for something else: each file descriptor with whether it is to be read and
    /// written. For [`waits_at_most`](Server::waits_at_most), if that is anything.
    pub fn waits_on(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool, bool)> {
        let listener = self.session.is_none() && self.listener.pause().is_none();
        let listener = listener.then(|| (self.listener.socket.as_fd(), true, false));
        listener.into_iter().chain(self.session.iter().flat_map(Session::waits_on))
    }

    /// When to [`poll`](Server::poll) again whatever happens: a client could not be accepted, for
    /// lack of a file descriptor, and that it waits says nothing until then. Once the time is over
    /// it is zero, until that poll.
    pub fn waits_at_most(&self) -> Option<Duration> {
        if self.session.is_none() { self.listener.pause() } else { None }
    }

    /// Whether an access is in hand and no reply to a DMA message is due. What the client sends
    /// meanwhile waits for the answer, so a caller that turns often need not
    /// [`poll`](Server::poll) in each turn: a look costs a system call.
    pub fn awaits_answer(&self) -> bool {
        self.session.as_ref().is_some_and(Session::awaits_answer)
    }

    /// Whether the client has sent anything behind what is in hand that is not done yet. Costs a
    /// system call.
    pub fn has_more(&self) -> bool {
        self.session.as_ref().is_some_and(Session::has_more)
    }

    /// Whether a client is there.
    pub fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the client has agreed on a version. The caller decides how long one may take that
    /// keeps others out, and then lets it [go](Server::let_go).
    pub fn is_negotiated(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_negotiated)
    }

    /// Lets the client go, if there is one; the next [`Server::poll`] says so.
    pub fn let_go(&mut self) {
        if let Some(session) = &mut self.session {
            session.let_go();
        }
    }

    /// What was counted since the server began, with its names.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.state.counts;
        vec![
            ("vfio-user: clients", self.connected),
            ("vfio-user: clients that were let go", self.let_go),
            ("vfio-user: times that nobody could be accepted", self.refused),
            ("vfio-user: requests", counts.requests),
            ("vfio-user: requests with an error", counts.errors),
            ("vfio-user: DMA messages", counts.dma_messages),
            ("vfio-user: replies to nothing", counts.stray_replies),
            ("vfio-user: messages with stray file descriptors", counts.stray_fds),
        ]
    }
}
