//! The control protocol's end at a proxy, over any stream of bytes: `control.md` says what is
//! said. Whoever has the stream asks [`Conversation::wants_stream`] and tells what became of it.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;
use core::time::Duration;
use proxy_core::control::{
    Decoded, FromProxy, Hello, OperationId, Request, SILENCE_BOUND, Term, ToProxy, Welcome, decode,
    encode,
};
use proxy_core::limits::MAX_ANSWER;
use proxy_core::time::Instant;

/// Bytes of the longest message that is taken from the manager, with its length: the longest
/// request is far shorter than `MAX_MESSAGE`.
pub(super) const INBOX: usize = 4 + 4096;

/// How long a connection may take to be made, and then the manager to answer Hello.
const WELCOME_BOUND: Duration = Duration::from_secs(5);

/// Pauses between attempts grow from the first to the second, doubling.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the manager said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack for one call
pub enum Heard {
    /// Joined, or joined again.
    Joined(Welcome),
    /// The conversation ended; answers to what was asked in it are not wanted any more.
    Lost(Lost),
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

/// Why there is no conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // there is one, and only until it is told
pub enum Lost {
    /// Nobody answered there, or the connection broke.
    Closed,
    /// The connection or the answer to Hello took too long.
    NoAnswer,
    /// Nothing came for 15 s.
    Silent,
    /// The manager says no.
    Refused(heapless::String<256>),
    /// What came is no message, or not one that comes now.
    Protocol(&'static str),
    /// The manager numbers this node otherwise than before in this life.
    OtherNode,
}

impl Lost {
    /// In a few words, without the manager's own.
    pub fn brief(&self) -> &'static str {
        match self {
            Self::Closed => "no connection",
            Self::NoAnswer => "no answer, or no address",
            Self::Silent => "it is silent",
            Self::Refused(_) => "it refuses this card",
            Self::Protocol(what) => what,
            Self::OtherNode => "it numbers this node anew; restart the card",
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("no connection to the manager"),
            Self::NoAnswer => f.write_str("the manager does not answer"),
            Self::Silent => f.write_str("the manager is silent"),
            Self::Refused(why) => write!(f, "the manager refuses this card: {why}"),
            Self::Protocol(what) => write!(f, "the manager breaks the protocol: {what}"),
            Self::OtherNode => f.write_str("the manager numbers this node anew; restart the card"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No connection until then.
    Pausing(Instant),
    /// The stream is being made, at most until then.
    Dialling(Instant),
    /// Hello is said; the answer comes until then.
    Greeting(Instant),
    /// Joined; something comes until then.
    Joined(Instant),
}

/// One end of a conversation that is begun again whenever it ends.
pub struct Conversation {
    hello: Hello,
    state: State,
    pause: Duration,
    inbox: Box<[u8]>,
    received: usize,
    outbox: Box<[u8]>,
    /// Bytes of the outbox that are to be sent, and those of them that were.
    filled: usize,
    sent: usize,
    /// A ping waits for its answer to find room.
    owes_pong: bool,
    /// What ended the last conversation, until it is told.
    lost: Option<Lost>,
}

impl Conversation {
    /// A proxy that says this hello; it learns its node number and the highest term by itself.
    pub fn new(hello: Hello) -> Self {
        Self {
            hello,
            state: State::Pausing(Instant::ZERO),
            pause: FIRST_PAUSE,
            inbox: vec![0; INBOX].into_boxed_slice(),
            received: 0,
            outbox: vec![0; 4 + MAX_ANSWER].into_boxed_slice(),
            filled: 0,
            sent: 0,
            owes_pong: false,
            lost: None,
        }
    }

    /// The number of this life, as the manager was told it.
    pub fn incarnation(&self) -> u32 {
        self.hello.incarnation
    }

    /// Whether the manager knows this card now.
    pub fn is_joined(&self) -> bool {
        matches!(self.state, State::Joined(_))
    }

    /// Whether there should be a stream; one that is there and should not be is to be closed.
    pub fn wants_stream(&self) -> bool {
        !matches!(self.state, State::Pausing(_))
    }

    /// Whether the end of the stream is to be kept from it for now: whoever refuses a card says why and
    /// hangs up, and that is to be heard first.
    pub fn is_to_hear(&self) -> bool {
        self.received > 0 && matches!(self.state, State::Greeting(_))
    }

    /// The stream is there: says hello.
    pub fn handle_open(&mut self, now: Instant) {
        let State::Dialling(_) = self.state else { return };
        self.state = State::Greeting(now + WELCOME_BOUND);
        self.greet();
    }

    /// Apart, since a message is large and whoever calls has no room for it on its stack.
    #[inline(never)]
    fn greet(&mut self) {
        let hello = FromProxy::Hello(self.hello.clone());
        let said = self.say(&hello);
        assert!(said, "the outbox is empty before hello");
    }

    /// There is no stream, or none any more.
    pub fn handle_closed(&mut self, now: Instant) {
        self.end(now, Lost::Closed);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Instant {
        match self.state {
            State::Pausing(at) | State::Dialling(at) | State::Greeting(at) | State::Joined(at) => {
                at
            }
        }
    }

    /// A bound may be over.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.poll_timeout() {
            return;
        }
        match self.state {
            State::Pausing(_) => self.state = State::Dialling(now + WELCOME_BOUND),
            State::Dialling(_) | State::Greeting(_) => self.end(now, Lost::NoAnswer),
            State::Joined(_) => self.end(now, Lost::Silent),
        }
    }

    /// Whether [`poll`](Self::poll) could give something: asked each turn, in which mostly nothing
    /// came.
    pub fn has_news(&self) -> bool {
        self.received > 0 || self.lost.is_some() || self.owes_pong
    }

    /// Room for bytes from the stream.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.inbox[self.received..]
    }

    /// So many bytes were put into [`room`](Self::room).
    ///
    /// # Panics
    ///
    /// When there was no room for so many.
    pub fn handle_received(&mut self, bytes: usize) {
        self.received += bytes;
        assert!(self.received <= self.inbox.len(), "no more than there was");
    }

    /// The next thing that the manager said. Requests are given only while there is room for an
    /// answer.
    pub fn poll(&mut self, now: Instant) -> Option<Heard> {
        loop {
            if let Some(lost) = self.lost.take() {
                return Some(Heard::Lost(lost));
            }
            self.pay_pong();
            if !self.wants_stream() || (self.is_joined() && !self.has_room()) {
                return None;
            }
            let message = match decode::<ToProxy>(&self.inbox[..self.received]) {
                Ok(Decoded::Message(message, used)) => {
                    self.inbox.copy_within(used..self.received, 0);
                    self.received -= used;
                    message
                }
                Ok(Decoded::Incomplete) if self.received < self.inbox.len() => return None,
                Ok(Decoded::Incomplete) => {
                    self.end(now, Lost::Protocol("a message is too long for a card"));
                    continue;
                }
                Err(_) => {
                    self.end(now, Lost::Protocol("it sends what is no message"));
                    continue;
                }
            };
            if let Some(heard) = self.take(now, message) {
                return Some(heard);
            }
        }
    }

    fn take(&mut self, now: Instant, message: ToProxy) -> Option<Heard> {
        let joined = self.is_joined();
        if joined {
            self.state = State::Joined(now + SILENCE_BOUND);
        }
        match message {
            ToProxy::Welcome(welcome) if !joined => self.welcomed(now, welcome),
            ToProxy::Welcome(_) => {
                self.end(now, Lost::Protocol("it welcomes twice"));
                None
            }
            ToProxy::Refused(refused) if !joined => {
                self.end(now, Lost::Refused(refused.reason));
                None
            }
            ToProxy::Refused(_) => {
                self.end(now, Lost::Protocol("it refuses whom it welcomed"));
                None
            }
            ToProxy::Request { id, term, body } if joined => {
                self.hello.term = self.hello.term.max(term);
                Some(Heard::Request { id, term, body })
            }
            ToProxy::Request { .. } => {
                self.end(now, Lost::Protocol("it asks before it welcomes"));
                None
            }
            ToProxy::Ping => {
                self.owes_pong = joined;
                None
            }
        }
    }

    fn welcomed(&mut self, now: Instant, welcome: Welcome) -> Option<Heard> {
        if self.hello.node.is_some_and(|mine| mine != welcome.node) {
            self.end(now, Lost::OtherNode);
            return None;
        }
        self.hello.node = Some(welcome.node);
        self.hello.term = self.hello.term.max(welcome.term);
        self.state = State::Joined(now + SILENCE_BOUND);
        self.pause = FIRST_PAUSE;
        Some(Heard::Joined(welcome))
    }

    /// Whether a message can be [said](Self::say).
    pub fn has_room(&self) -> bool {
        self.sent == self.filled && !self.owes_pong
    }

    /// Puts a message into the outbox. False: another one is there still.
    pub fn say(&mut self, message: &FromProxy) -> bool {
        if self.sent < self.filled {
            return false;
        }
        // Unlike `expect`, this needs no names of errors.
        let Ok(bytes) = encode(message, &mut self.outbox) else {
            panic!("no message is longer than MAX_ANSWER");
        };
        self.filled = bytes.len();
        self.sent = 0;
        true
    }

    fn pay_pong(&mut self) {
        if self.owes_pong && self.sent == self.filled {
            // As a constant it would have the bytes of the longest message.
            let pong = FromProxy::Pong;
            self.owes_pong = !self.say(&pong);
        }
    }

    /// What is to be sent next.
    pub fn outgoing(&self) -> &[u8] {
        &self.outbox[self.sent..self.filled]
    }

    /// The stream took so many bytes of [`outgoing`](Self::outgoing).
    ///
    /// # Panics
    ///
    /// When there were not so many.
    pub fn handle_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        assert!(self.sent <= self.filled, "no more than there was");
    }

    fn end(&mut self, now: Instant, why: Lost) {
        if !self.wants_stream() {
            return;
        }
        self.state = State::Pausing(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        (self.received, self.filled, self.sent) = (0, 0, 0);
        self.owes_pong = false;
        self.lost = Some(why);
    }
}

#[cfg(test)]
mod tests;
