//! Messages of the server to the client: reads and writes of its memory.

use crate::channel::Message;
use crate::limits::MAX_DMA_OUTSTANDING;
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
    /// The client takes no more bytes in one message than this.
    #[error("more than {most} bytes in one DMA message")]
    TooLong {
        /// Bytes that the client takes.
        most: usize,
    },
    /// [`MAX_DMA_OUTSTANDING`] have no answer yet.
    #[error("too many DMA messages without an answer")]
    Busy,
}

#[derive(Debug)]
struct Asked {
    id: u16,
    token: DmaToken,
    command: Command,
    access: DmaAccess,
}

/// The messages that have no reply yet.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    asked: Vec<Asked>,
    next_id: u16,
    /// The payload of the last reply.
    payload: Vec<u8>,
}

impl Outstanding {
    /// Whether every message has its reply.
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Notes a message and gives its bytes.
    pub(super) fn ask(
        &mut self,
        token: DmaToken,
        command: Command,
        address: u64,
        len: usize,
        data: &[u8],
    ) -> Result<Vec<u8>, DmaRefused> {
        if self.asked.len() == MAX_DMA_OUTSTANDING {
            return Err(DmaRefused::Busy);
        }
        let access = DmaAccess { address, count: len as u64 };
        let id = self.free_id();
        self.asked.push(Asked { id, token, command, access });
        let bytes =
            message(id, command, Kind::Command { no_reply: false }, &[&access.emit(), data]);
        Ok(bytes)
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

    /// What a reply says; none if nothing was asked that it answers.
    pub(super) fn answered(
        &mut self,
        message: Message,
    ) -> Option<(DmaToken, Result<Range<usize>, Errno>)> {
        let Kind::Reply { error } = message.header.kind else {
            return None;
        };
        let (id, command) = (message.header.id, message.header.command);
        let at = self.asked.iter().position(|a| a.id == id && a.command == command)?;
        let Asked { token, access, .. } = self.asked.remove(at);
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
        Some((token, result))
    }

    /// The payload of the last reply.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}
