//! Writes and interrupts that wait for the machine: those that go by message, and what comes
//! behind them.
//!
//! Messages arrive in the order in which they were sent. A signal is another way to the machine,
//! and so waits until every write before it is known to be done. So is memory that is reached at
//! once: while a write by message is not known to be done, whatever comes behind it goes by message
//! ([`Posted::is_done`]). It need not do so behind an interrupt, which reaches a processor whenever
//! that takes it.

use crate::guest::{Guest, NoMessage, Token};
use proxy_core::limits::{CREDITS_POSTED, MAX_PORTS};
use std::collections::VecDeque;

/// How many may wait. An adapter with no room for what one TLP may need takes no TLP, unless the
/// machine waits for one.
pub const POSTED: usize = 256;

/// How many may wait while the machine waits for an answer, which may be behind them: what all
/// devices have credit for, at both ends of their links. Beyond that, too, no TLP is taken. Were all
/// of them of the largest payload it would be 256 MB, of which is there what waits.
const POSTED_BEHIND: usize = MAX_PORTS * 2 * CREDITS_POSTED;

/// Room that one TLP may need: a write whose byte enables leave holes is several.
pub(crate) const RESERVE: usize = 8;

/// Bytes of one write.
const LONGEST: usize = proxy_core::limits::MAX_PAYLOAD_OFFERED;

enum Waiting {
    Message { address: u64, data: Vec<u8>, to: To },
    Signal(u16),
}

/// What a message writes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Memory,
    Interrupts,
}

/// The queue. What is in it goes out in order.
#[derive(Default)]
pub(crate) struct Posted {
    waiting: VecDeque<Waiting>,
    /// Sent, and not answered. The machine's side bounds how many there are.
    asked: VecDeque<(Token, To)>,
    /// Writes to memory that wait or are not answered.
    writes: usize,
    /// Writes that the machine will never take.
    dropped: u64,
}

impl Posted {
    /// Whether there is room for what one TLP may need, and the machine `waits` or not.
    pub(crate) fn has_room(&self, waits: bool) -> bool {
        let most = if waits { POSTED_BEHIND } else { POSTED };
        self.waiting.len() + RESERVE <= most
    }

    /// Whether every write was sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether every write to memory is known to be done.
    pub(crate) fn is_done(&self) -> bool {
        self.writes == 0
    }

    /// Writes that the machine will never take.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A write to memory by message.
    pub(crate) fn write(&mut self, address: u64, data: &[u8], guest: &mut impl Guest) {
        self.writes += 1;
        self.message(address, data, To::Memory, guest);
    }

    fn message(&mut self, address: u64, data: &[u8], to: To, guest: &mut impl Guest) {
        assert!(data.len() <= LONGEST && self.waiting.len() < POSTED_BEHIND, "the caller saw room");
        if !self.flush(guest) || !self.send(address, data, to, guest) {
            self.waiting.push_back(Waiting::Message { address, data: data.to_vec(), to });
        }
    }

    /// Whether the message is on its way, or nobody will ever take it.
    fn send(&mut self, address: u64, data: &[u8], to: To, guest: &mut impl Guest) -> bool {
        match guest.begin_write(address, data) {
            Ok(token) => self.asked.push_back((token, to)),
            Err(NoMessage::Never) => {
                self.dropped += 1;
                self.end(to);
            }
            Err(NoMessage::Busy) => return false,
        }
        true
    }

    /// A message is done, or never will be.
    fn end(&mut self, to: To) {
        self.writes -= usize::from(to == To::Memory);
    }

    /// An interrupt that is a write: one that waits already need not wait twice, the machine
    /// would take both as one.
    pub(crate) fn interrupt(&mut self, address: u64, data: u32, guest: &mut impl Guest) {
        let bytes = data.to_le_bytes();
        let same = |waiting: &Waiting| matches!(waiting, Waiting::Message { address: at, data, .. } if *at == address && data[..] == bytes);
        if self.waiting.back().is_none_or(|last| !same(last)) {
            self.message(address, &bytes, To::Interrupts, guest);
        }
    }

    /// One of the adapter's own vectors.
    pub(crate) fn signal(&mut self, vector: u16, guest: &mut impl Guest) {
        assert!(self.waiting.len() < POSTED_BEHIND, "the caller saw room");
        if self.flush(guest) && self.asked.is_empty() {
            guest.signal(vector);
        } else {
            self.waiting.push_back(Waiting::Signal(vector));
        }
    }

    /// A message was answered: whether it was one of these.
    pub(crate) fn answered(&mut self, token: Token) -> bool {
        // Answers come in order, or nearly.
        let Some(index) = self.asked.iter().position(|(asked, _)| *asked == token) else {
            return false;
        };
        if let Some((_, to)) = self.asked.remove(index) {
            self.end(to);
        }
        true
    }

    /// Sends what can be sent; whether nothing waits any more.
    pub(crate) fn flush(&mut self, guest: &mut impl Guest) -> bool {
        while let Some(first) = self.waiting.pop_front() {
            let sent = match &first {
                Waiting::Message { address, data, to } => self.send(*address, data, *to, guest),
                Waiting::Signal(_) if !self.asked.is_empty() => false,
                Waiting::Signal(vector) => {
                    guest.signal(*vector);
                    true
                }
            };
            if !sent {
                self.waiting.push_front(first);
                return false;
            }
        }
        true
    }

    /// Whether something waits to be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Forgets everything; the last message whose answer may still come.
    pub(crate) fn clear(&mut self) -> Option<Token> {
        self.waiting.clear();
        self.writes = 0;
        self.asked.drain(..).map(|(token, _)| token).max()
    }
}
