//! One client, from the time that it connects until it is gone.

mod dma;
mod in_hand;
mod requests;

use crate::channel::{Channel, Message, Received};
use crate::device::Device;
use crate::irqs::Irqs;
use crate::limits::{
    DEFAULT_MSG_FDS, MAX_QUEUED_BYTES, MAX_QUEUED_FDS, MAX_QUEUED_MESSAGES, PAUSE_UNSENT,
    READS_A_POLL,
};
use crate::memory::Memory;
use crate::version::Negotiated;
use crate::wire::{Command, DmaAccess, Kind, message};
use dma::{Answered, Outstanding, longest};
pub use dma::{DmaRefused, DmaToken};
use in_hand::InHand;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

/// Why a client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// It closed the connection, after its last message.
    #[error("it closed the connection")]
    Closed,
    /// The connection ended within a message.
    #[error("it closed the connection within a message")]
    Died,
    /// It proposed another major version of the protocol.
    #[error("it speaks another version of vfio-user")]
    Version,
    /// A message said that it has this size, which none has.
    #[error("a message that says it has {0} bytes")]
    BadSize(u32),
    /// It does not read what is sent to it.
    #[error("it does not read what is sent to it")]
    NotReading,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Io(Errno),
    /// The caller let it go.
    #[error("it was let go")]
    LetGo,
}

/// What happened, without the bytes that belong to it.
#[derive(Debug)]
pub(crate) enum Step {
    Disconnected(Gone),
    Reset,
    Read {
        region: u8,
        offset: u64,
        len: usize,
    },
    /// The data is this part of the payload in hand.
    Write {
        region: u8,
        offset: u64,
        data: Range<usize>,
    },
    /// The data is this part of the last DMA reply.
    DmaDone {
        token: DmaToken,
        result: Result<Range<usize>, Errno>,
    },
}

/// What the server counts, over all clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) stray_replies: u64,
    pub(crate) dma_messages: u64,
    pub(crate) stray_fds: u64,
}

/// What the client sets up, and what has to be gone with it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) device: Device,
    pub(crate) memory: Memory,
    pub(crate) irqs: Irqs,
    pub(crate) counts: Counts,
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Session {
    main: Channel,
    /// For messages of the server, where the client wants them on a socket of their own.
    twin: Option<Channel>,
    /// The client has not closed it.
    twin_open: bool,
    negotiated: Option<Negotiated>,
    /// What came behind the access in hand.
    queue: Queue,
    in_hand: InHand,
    dma: Outstanding,
    /// The client sends nothing any more, and is gone once the queue is done.
    ended: Option<Gone>,
    /// The client is gone.
    gone: Option<Gone>,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    fds: usize,
}

impl Queue {
    fn is_full(&self) -> bool {
        self.messages.len() >= MAX_QUEUED_MESSAGES
            || self.bytes >= MAX_QUEUED_BYTES
            || self.fds >= MAX_QUEUED_FDS
    }

    fn push(&mut self, message: Message) {
        self.bytes += message.payload.len();
        self.fds += message.fds.len();
        self.messages.push_back(message);
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.payload.len();
        self.fds -= message.fds.len();
        Some(message)
    }
}

impl Session {
    /// Of a socket that does not block.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self {
            main: Channel::new(socket),
            twin: None,
            twin_open: false,
            negotiated: None,
            queue: Queue::default(),
            in_hand: InHand::Nothing,
            dma: Outstanding::default(),
            ended: None,
            gone: None,
        }
    }

    pub(crate) fn is_negotiated(&self) -> bool {
        self.negotiated.is_some()
    }

    /// As [`Server::awaits_answer`](crate::Server::awaits_answer).
    pub(crate) fn awaits_answer(&self) -> bool {
        self.in_hand.is_given() && self.dma.is_empty() && self.gone.is_none()
    }

    /// The next thing that happened.
    pub(crate) fn poll(&mut self, state: &mut State) -> Option<Step> {
        self.flush();
        let mut reads = READS_A_POLL;
        loop {
            if let Some(gone) = self.gone {
                return Some(Step::Disconnected(gone));
            }
            if let Some(step) = self.next_in_queue(state) {
                return Some(step);
            }
            if let Some(done) = self.receive_twin(state, &mut reads) {
                return Some(done);
            }
            if !self.reads_main() {
                return self.ending();
            }
            let max_fds = self.negotiated.map_or(DEFAULT_MSG_FDS, |negotiated| negotiated.msg_fds);
            match self.main.receive(max_fds, &mut reads) {
                Received::Nothing => return self.ending(),
                Received::Message(message) => {
                    if let Some(done) = self.take(state, message) {
                        return Some(done);
                    }
                }
                Received::Closed { whole: true } => self.ended = Some(Gone::Closed),
                Received::Closed { whole: false } => self.ended = Some(Gone::Died),
                Received::BadSize(size) => self.gone = Some(Gone::BadSize(size)),
                Received::Failed(error) => self.gone = Some(Gone::Io(error)),
            }
        }
    }

    /// As [`Server::has_more`](crate::Server::has_more).
    pub(crate) fn has_more(&self) -> bool {
        self.in_hand.has_more() || !self.queue.messages.is_empty() || self.main.has_more()
    }

    /// The client's end, which is told once everything before it is done.
    fn ending(&mut self) -> Option<Step> {
        if self.gone.is_none() && self.in_hand.is_nothing() && self.queue.messages.is_empty() {
            self.gone = self.ended;
        }
        self.gone.map(Step::Disconnected)
    }

    /// Goes on with what is in hand, or with what waits behind it.
    fn next_in_queue(&mut self, state: &mut State) -> Option<Step> {
        loop {
            if self.in_hand.is_given() || self.gone.is_some() {
                return None;
            }
            if let Some(step) = self.next_of_multi(state) {
                return Some(step);
            }
            if self.main.unsent() > PAUSE_UNSENT {
                if self.queue.is_full() {
                    // It sends and sends and reads nothing: neither side can go on.
                    self.gone = Some(Gone::NotReading);
                }
                return None;
            }
            let message = self.queue.pop()?;
            if let Some(step) = self.handle(state, message) {
                return Some(step);
            }
        }
    }

    /// Whether more is read from the client.
    fn reads_main(&self) -> bool {
        self.ended.is_none() && self.gone.is_none() && !self.queue.is_full()
    }

    /// A message on the main socket.
    fn take(&mut self, state: &mut State, message: Message) -> Option<Step> {
        match message.header.kind {
            Kind::Reply { .. } if self.twin.is_none() => self.dma_reply(state, message),
            Kind::Reply { .. } => {
                state.counts.stray_replies += 1;
                None
            }
            _ => {
                self.queue.push(message);
                None
            }
        }
    }

    /// A message on the socket for the server's own: only replies have a business there.
    fn receive_twin(&mut self, state: &mut State, reads: &mut usize) -> Option<Step> {
        while self.twin_open {
            let received = self.twin.as_mut()?.receive(0, reads);
            match received {
                Received::Nothing => return None,
                Received::Message(message) => match message.header.kind {
                    Kind::Reply { .. } => {
                        if let Some(step) = self.dma_reply(state, message) {
                            return Some(step);
                        }
                    }
                    Kind::Command { no_reply: true } => state.counts.errors += 1,
                    Kind::Command { .. } | Kind::Unknown(_) => {
                        state.counts.errors += 1;
                        let bytes = refusal(&message, Errno::INVAL);
                        if let Some(twin) = &mut self.twin {
                            let sent = twin.send(bytes, None);
                            self.look_at(sent);
                        }
                    }
                },
                Received::Closed { .. } => {
                    // The client goes, as its main socket will say, or does without DMA messages.
                    self.twin_open = false;
                }
                Received::BadSize(size) => {
                    self.gone = Some(Gone::BadSize(size));
                    return None;
                }
                Received::Failed(error) => {
                    self.gone = Some(Gone::Io(error));
                    return None;
                }
            }
            if self.gone.is_some() {
                return None;
            }
        }
        self.twin.as_ref()?;
        // Whoever waits for these replies would wait for as long as the client is there.
        let token = self.dma.give_up()?;
        Some(Step::DmaDone { token, result: Err(Errno::PIPE) })
    }

    fn dma_reply(&mut self, state: &mut State, message: Message) -> Option<Step> {
        match self.dma.answered(message) {
            Answered::Done(token, result) => Some(Step::DmaDone { token, result }),
            Answered::Partly => None,
            Answered::Nothing => {
                state.counts.stray_replies += 1;
                None
            }
        }
    }

    /// The caller's answer to what it has in hand.
    pub(crate) fn answer(&mut self, state: &mut State, result: Result<&[u8], Errno>) {
        match std::mem::replace(&mut self.in_hand, InHand::Nothing) {
            InHand::Nothing => panic!("an answer, but no access is in hand"),
            InHand::Read { message, access } => {
                if let Ok(data) = result {
                    assert_eq!(data.len(), access.count as usize, "bytes of a read");
                }
                let head = access.emit();
                match result {
                    Ok(data) => self.reply(state, &message, Ok((&head, data))),
                    Err(error) => self.reply(state, &message, Err(error)),
                }
            }
            InHand::Write { message, access } => {
                let head = access.emit();
                self.reply(state, &message, result.map(|_| (&head[..], &[][..])));
            }
            InHand::Reset { message } => {
                self.reply(state, &message, result.map(|_| (&[][..], &[][..])));
            }
            InHand::Multi(mut multi) => {
                multi.answered(result.map(|_| ()));
                self.in_hand = InHand::Multi(multi);
            }
        }
    }

    /// Replies to a request, if it wants that: with a payload in two parts, or with an error.
    fn reply(
        &mut self,
        state: &mut State,
        request: &Message,
        result: Result<(&[u8], &[u8]), Errno>,
    ) {
        state.counts.errors += u64::from(result.is_err());
        if matches!(request.header.kind, Kind::Command { no_reply: true }) {
            return;
        }
        let bytes = match result {
            Ok((head, data)) => message(
                request.header.id,
                request.header.command,
                Kind::Reply { error: None },
                &[head, data],
            ),
            Err(error) => refusal(request, error),
        };
        let sent = self.main.send(bytes, None);
        self.look_at(sent);
    }

    fn look_at(&mut self, sent: Result<bool, Errno>) {
        match sent {
            Ok(true) => {}
            Ok(false) => self.gone = Some(Gone::NotReading),
            Err(error) => self.gone = Some(Gone::Io(error)),
        }
    }

    fn flush(&mut self) {
        let main = self.main.flush();
        self.look_at(main.map(|()| true));
        if let Some(twin) = &mut self.twin {
            let sent = twin.flush();
            self.look_at(sent.map(|()| true));
        }
    }

    /// The payload in hand.
    pub(crate) fn payload(&self) -> &[u8] {
        self.in_hand.payload()
    }

    /// The payload of the last DMA reply.
    pub(crate) fn dma_payload(&self) -> &[u8] {
        self.dma.payload()
    }

    /// Messages of the server: a DMA write of `data`, or a read of `len` bytes.
    pub(crate) fn dma(
        &mut self,
        state: &mut State,
        command: Command,
        address: u64,
        len: usize,
        data: &[u8],
    ) -> Result<DmaToken, DmaRefused> {
        let negotiated = self.negotiated.ok_or(DmaRefused::NotConnected)?;
        let channel = self.twin.as_ref().unwrap_or(&self.main);
        let closed = self.twin.is_some() && !self.twin_open;
        if self.gone.is_some() || self.ended.is_some() || closed || channel.is_deaf() {
            return Err(DmaRefused::NotConnected);
        }
        let (limit, most) = (negotiated.dma_xfer, longest(negotiated.dma_xfer));
        if len > most {
            return Err(DmaRefused::TooLong { most });
        }
        let token = DmaToken(state.counts.dma_messages);
        let access = DmaAccess { address, count: len as u64 };
        for bytes in self.dma.ask(token, command, access, data, limit)? {
            state.counts.dma_messages += 1;
            let sent = self.twin.as_mut().unwrap_or(&mut self.main).send(bytes, None);
            self.look_at(sent);
            if self.gone.is_some() {
                // The other pieces go nowhere, and must not give another reason.
                break;
            }
        }
        Ok(token)
    }

    /// What to wait for, as in [`Server::waits_on`](crate::Server::waits_on).
    pub(crate) fn waits_on(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool, bool)> {
        let main = (self.main.as_fd(), self.reads_main(), self.main.unsent() > 0);
        let twin = self.twin.as_ref();
        let twin = twin.map(|twin| (twin.as_fd(), self.twin_open, twin.unsent() > 0));
        [Some(main), twin].into_iter().flatten().filter(|(_, read, write)| *read || *write)
    }

    /// Lets the client go.
    pub(crate) fn let_go(&mut self) {
        self.gone.get_or_insert(Gone::LetGo);
    }
}

/// An error reply: the header and nothing else.
fn refusal(request: &Message, error: Errno) -> Vec<u8> {
    message(request.header.id, request.header.command, Kind::Reply { error: Some(error) }, &[])
}
