//! Messages of the server to the client: reads and writes of its memory.

use crate::channel::Message;
use crate::limits::{MAX_DATA_XFER, MAX_DMA_OUTSTANDING, MAX_DMA_PIECES};
use crate::wire::{Command, DmaAccess, Kind, message};
use rustix::io::Errno;
use std::ops::Range;

/// Says which DMA message is done. None is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DmaToken(pub(super) u64);

impl DmaToken {
    /// As a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Why a DMA message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaRefused {
    /// There is no client, or none that has agreed on a version.
    #[error("no client is connected")]
    NotConnected,
    /// The client takes no more bytes than this in as many messages as an access may be.
    #[error("more than {most} bytes in one DMA access")]
    TooLong {
        /// Bytes that the client takes.
        most: usize,
    },
    /// [`MAX_DMA_OUTSTANDING`] messages have no answer yet.
    #[error("too many DMA messages without an answer")]
    Busy,
}

#[derive(Debug)]
struct Asked {
    id: u16,
    token: DmaToken,
    command: Command,
    access: DmaAccess,
    /// Where its bytes are in the whole, if it is a piece.
    at: usize,
}

/// An access in several messages, not all of which have their reply.
#[derive(Debug)]
struct Cut {
    token: DmaToken,
    left: usize,
    result: Result<Vec<u8>, Errno>,
}

/// What a reply was.
pub(super) enum Answered {
    /// Nothing was asked that it answers.
    Nothing,
    /// Other pieces of the same access have none yet.
    Partly,
    /// The access is done; its data is this part of the payload.
    Done(DmaToken, Result<Range<usize>, Errno>),
}

/// An access as what a client takes in one message: cut at whole words, which a processor may look
/// at while they are written.
fn pieces(address: u64, len: usize, limit: usize) -> impl Iterator<Item = Range<usize>> {
    // An access of no bytes is one message.
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let at = next?;
        let crooked = address.wrapping_add(at as u64) as usize % WORD;
        let end = if len - at <= limit { len } else { at + whole(limit) - crooked };
        next = (end < len).then_some(end);
        Some(at..end)
    })
}

/// Bytes of a word.
const WORD: usize = 8;

const fn whole(bytes: usize) -> usize {
    bytes / WORD * WORD
}

/// The most bytes that an access may have for a client that takes `limit` of them in one message.
pub(super) fn longest(limit: usize) -> usize {
    (whole(limit) * MAX_DMA_PIECES).clamp(limit, MAX_DATA_XFER)
}

/// The messages that have no reply yet.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    asked: Vec<Asked>,
    cut: Vec<Cut>,
    next_id: u16,
    /// The payload of the last reply.
    payload: Vec<u8>,
}

impl Outstanding {
    /// Whether every message has its reply.
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Notes an access of the client's memory in messages of `limit` bytes at most, and gives their
    /// bytes.
    pub(super) fn ask(
        &mut self,
        token: DmaToken,
        command: Command,
        access: DmaAccess,
        data: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, DmaRefused> {
        if self.asked.len() >= MAX_DMA_OUTSTANDING {
            return Err(DmaRefused::Busy);
        }
        let len = access.count as usize;
        let messages: Vec<_> = pieces(access.address, len, limit)
            .map(|piece| {
                let address = access.address.wrapping_add(piece.start as u64);
                let access = DmaAccess { address, count: piece.len() as u64 };
                let (id, at) = (self.free_id(), piece.start);
                self.asked.push(Asked { id, token, command, access, at });
                let data = data.get(piece).unwrap_or_default();
                let kind = Kind::Command { no_reply: false };
                message(id, command, kind, &[&access.emit(), data])
            })
            .collect();
        if messages.len() > 1 {
            let bytes = if command == Command::DmaRead { len } else { 0 };
            self.cut.push(Cut { token, left: messages.len(), result: Ok(vec![0; bytes]) });
        }
        Ok(messages)
    }

    /// One that no message without a reply has.
    fn free_id(&mut self) -> u16 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            if self.asked.iter().all(|asked| asked.id != id) {
                return id;
            }
        }
    }

    /// What a reply says.
    pub(super) fn answered(&mut self, message: Message) -> Answered {
        let Kind::Reply { error } = message.header.kind else {
            return Answered::Nothing;
        };
        let (id, command) = (message.header.id, message.header.command);
        let found = self.asked.iter().position(|a| a.id == id && a.command == command);
        let Some(found) = found else { return Answered::Nothing };
        let Asked { token, access, at, .. } = self.asked.remove(found);
        self.payload = message.payload;
        let whole = match command {
            Command::DmaRead => access.is_answered_by(&self.payload),
            _ => access.is_acknowledged_by(&self.payload),
        };
        let data = match command {
            Command::DmaRead => DmaAccess::LEN..self.payload.len(),
            _ => 0..0,
        };
        let result = match error {
            Some(error) => Err(error),
            None if whole => Ok(data),
            None => Err(Errno::PROTO),
        };
        match self.cut.iter().position(|cut| cut.token == token) {
            None => Answered::Done(token, result),
            Some(index) => self.piece_answered(index, at, result),
        }
    }

    /// Ends an access to which no reply can come any more.
    pub(super) fn give_up(&mut self) -> Option<DmaToken> {
        let token = self.asked.first()?.token;
        self.asked.retain(|asked| asked.token != token);
        self.cut.retain(|cut| cut.token != token);
        Some(token)
    }

    /// A piece of an access is done. The first error is the whole's.
    fn piece_answered(
        &mut self,
        index: usize,
        at: usize,
        result: Result<Range<usize>, Errno>,
    ) -> Answered {
        let cut = &mut self.cut[index];
        cut.left -= 1;
        match (&mut cut.result, result) {
            (Ok(all), Ok(data)) if !data.is_empty() => {
                all[at..at + data.len()].copy_from_slice(&self.payload[data]);
            }
            (all @ Ok(_), Err(error)) => *all = Err(error),
            _ => {}
        }
        if cut.left > 0 {
            return Answered::Partly;
        }
        let Cut { token, result, .. } = self.cut.swap_remove(index);
        Answered::Done(
            token,
            result.map(|all| {
                self.payload = all;
                0..self.payload.len()
            }),
        )
    }

    /// The payload of the last reply.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}
