//! Messages in and out of a socket, with their file descriptors.

use crate::limits::{MAX_MESSAGE, MAX_MSG_FDS, MAX_UNSENT};
use crate::wire::{HEADER, Header};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A message that came.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    /// What comes after the header.
    pub(crate) payload: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// Why some file descriptors that were sent with it are not here.
    pub(crate) fds_lost: Option<Errno>,
}

/// What reading gave.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message),
    /// Nothing now.
    Nothing,
    /// The other side closed its end. `whole` says whether it did so between two messages.
    Closed {
        whole: bool,
    },
    /// The size in the header is not one that a message has.
    BadSize(u32),
    /// The socket is broken.
    Failed(Errno),
}

/// A message on its way out.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// Goes with the first byte.
    fd: Option<OwnedFd>,
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    inbox: Inbox,
    outbox: VecDeque<Outgoing>,
    unsent: usize,
    /// The other side takes nothing any more; what it had sent before can still be read.
    deaf: bool,
}

/// The message that is being received.
#[derive(Debug, Default)]
struct Inbox {
    head: [u8; HEADER],
    /// Bytes that are here, of header and payload.
    have: usize,
    header: Option<Header>,
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
    fds_lost: Option<Errno>,
}

impl Channel {
    /// Of a socket that does not block.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket, inbox: Inbox::default(), outbox: VecDeque::new(), unsent: 0, deaf: false }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Bytes that the socket has not taken yet.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Whether the other side takes nothing any more.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Reads a message, with `reads` system calls at most, which it counts down. One that is not
    /// whole yet is kept. More than `max_fds` file descriptors are closed.
    pub(crate) fn receive(&mut self, max_fds: usize, reads: &mut usize) -> Received {
        while *reads > 0 {
            *reads -= 1;
            match self.inbox.read(self.socket.as_fd(), max_fds) {
                Ok(0) => return Received::Closed { whole: self.inbox.have == 0 },
                Ok(_) => {}
                Err(Errno::AGAIN) => return Received::Nothing,
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => {
                    return Received::Closed { whole: self.inbox.have == 0 };
                }
                Err(error) => return Received::Failed(error),
            }
            if let Err(size) = self.inbox.look_at_header() {
                return Received::BadSize(size);
            }
            if let Some(message) = self.inbox.take_whole() {
                return Received::Message(message);
            }
        }
        Received::Nothing
    }

    /// Whether there is something to read, or the start of a message is here.
    pub(crate) fn has_more(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.inbox.have > 0
            || recv(&self.socket, &mut [0; 1], flags).is_ok_and(|(_, length)| length > 0)
    }

    /// Puts a message behind what waits to be sent, and sends what the socket takes. False: more
    /// than [`MAX_UNSENT`] bytes wait.
    pub(crate) fn send(&mut self, bytes: Vec<u8>, fd: Option<OwnedFd>) -> Result<bool, Errno> {
        if self.deaf {
            return Ok(true);
        }
        self.unsent += bytes.len();
        self.outbox.push_back(Outgoing { bytes, sent: 0, fd });
        self.flush()?;
        Ok(self.unsent <= MAX_UNSENT)
    }

    /// Sends what the socket takes. Each message has system calls of its own: a client may take it
    /// for granted that a header comes in one piece (QEMU 11 does), and the kernel cuts what is
    /// written in one call only after some kilobytes.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        while let Some(first) = self.outbox.front_mut() {
            match first.write(self.socket.as_fd()) {
                Ok(sent) => {
                    self.unsent -= sent;
                    if first.sent == first.bytes.len() {
                        self.outbox.pop_front();
                    }
                }
                // Without memory at this moment the kernel takes it later, as without room.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.deaf = true;
                    self.outbox.clear();
                    self.unsent = 0;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Outgoing {
    fn write(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = self.fd.as_ref().map(|fd| [fd.as_fd()]);
        if let Some(fds) = &fds {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "there is room for one");
        }
        let rest = IoSlice::new(&self.bytes[self.sent..]);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(socket, &[rest], &mut control, flags)?;
        self.sent += sent;
        self.fd = None;
        Ok(sent)
    }
}

impl Inbox {
    /// Reads the rest of the header, or of the payload, and never beyond: the kernel hands out
    /// file descriptors with the bytes that they were sent with, so these belong to this message.
    fn read(&mut self, socket: BorrowedFd<'_>, max_fds: usize) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MSG_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = match self.header {
            None => &mut self.head[self.have..],
            Some(_) => &mut self.payload[self.have - HEADER..],
        };
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, flags)?;
        self.have += got.bytes;
        let mut came = 0;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    came += 1;
                    if self.fds.len() < max_fds {
                        self.fds.push(fd);
                    } else {
                        self.fds_lost = Some(Errno::INVAL);
                    }
                }
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            // There were more than there was room for, or this process has no room for more.
            self.fds_lost = Some(if came < MAX_MSG_FDS { Errno::MFILE } else { Errno::INVAL });
        }
        Ok(got.bytes)
    }

    /// Once the header is whole, makes room for the payload.
    fn look_at_header(&mut self) -> Result<(), u32> {
        if self.header.is_some() || self.have < HEADER {
            return Ok(());
        }
        let header = Header::parse(&self.head);
        let size = usize::try_from(header.size).unwrap_or(usize::MAX);
        if !(HEADER..=MAX_MESSAGE).contains(&size) {
            return Err(header.size);
        }
        self.payload = vec![0; size - HEADER];
        self.header = Some(header);
        Ok(())
    }

    fn take_whole(&mut self) -> Option<Message> {
        let header = self.header?;
        if self.have < HEADER + self.payload.len() {
            return None;
        }
        let Self { payload, fds, fds_lost, .. } = std::mem::take(self);
        Some(Message { header, payload, fds, fds_lost })
    }
}
