//! A client with an encoding of its own: what it sends can be as wrong as a test wants it.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(crate) const VERSION: u16 = 1;
pub(crate) const DMA_MAP: u16 = 2;
pub(crate) const DMA_UNMAP: u16 = 3;
pub(crate) const GET_INFO: u16 = 4;
pub(crate) const GET_REGION_INFO: u16 = 5;
pub(crate) const GET_REGION_IO_FDS: u16 = 6;
pub(crate) const GET_IRQ_INFO: u16 = 7;
pub(crate) const SET_IRQS: u16 = 8;
pub(crate) const REGION_READ: u16 = 9;
pub(crate) const REGION_WRITE: u16 = 10;
pub(crate) const DMA_READ: u16 = 11;
pub(crate) const DMA_WRITE: u16 = 12;
pub(crate) const RESET: u16 = 13;
pub(crate) const WRITE_MULTI: u16 = 15;
pub(crate) const DEVICE_FEATURE: u16 = 16;
pub(crate) const MIG_DATA_READ: u16 = 17;
pub(crate) const MIG_DATA_WRITE: u16 = 18;

pub(crate) const NO_REPLY: u32 = 0x10;

/// What QEMU 11.1 proposes.
pub(crate) const QEMU_CAPABILITIES: &str = r#"{"capabilities": {"max_data_xfer_size": 1048576, "max_dma_maps": 65535, "max_msg_fds": 16, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "pgsizes": 4096, "write_multiple": true}}"#;

/// Pieces of a payload.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

pub(crate) fn bytes() -> Bytes {
    Bytes(Vec::new())
}

impl Bytes {
    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn and(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// A message that came.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) id: u16,
    pub(crate) command: u16,
    pub(crate) flags: u32,
    pub(crate) error: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Got {
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.payload[at..at + 8].try_into().unwrap())
    }
}

/// The whole message of a request.
pub(crate) fn message(id: u16, command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = 16 + payload.len() as u32;
    bytes().u16(id).u16(command).u32(size).u32(flags).u32(0).and(payload).0
}

pub(crate) fn version(major: u16, minor: u16, json: &str) -> Vec<u8> {
    bytes().u16(major).u16(minor).and(json.as_bytes()).and(&[0]).0
}

pub(crate) fn dma_map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    bytes().u32(32).u32(flags).u64(offset).u64(address).u64(size).0
}

pub(crate) fn dma_unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    bytes().u32(24).u32(flags).u64(address).u64(size).0
}

pub(crate) fn region_info(index: u32) -> Vec<u8> {
    bytes().u32(32).u32(0).u32(index).u32(0).u64(0).u64(0).0
}

/// Also for what has the same form: the IRQ information, the I/O file descriptors.
pub(crate) fn info(index: u32) -> Vec<u8> {
    bytes().u32(16).u32(0).u32(index).u32(0).0
}

pub(crate) fn set_irqs(flags: u32, index: u32, start: u32, count: u32, data: &[u8]) -> Vec<u8> {
    let argsz = 20 + data.len() as u32;
    bytes().u32(argsz).u32(flags).u32(index).u32(start).u32(count).and(data).0
}

pub(crate) fn access(offset: u64, region: u32, count: u32, data: &[u8]) -> Vec<u8> {
    bytes().u64(offset).u32(region).u32(count).and(data).0
}

/// A connection.
pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    next_id: u16,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        Self { socket: UnixStream::connect(path).unwrap(), next_id: 100 }
    }

    /// Sends a request; its ID.
    pub(crate) fn send(
        &mut self,
        command: u16,
        flags: u32,
        payload: &[u8],
        fds: &[BorrowedFd],
    ) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        self.send_raw(&message(self.next_id, command, flags, payload), fds);
        self.next_id
    }

    /// Sends bytes and file descriptors in one system call.
    pub(crate) fn send_raw(&mut self, bytes: &[u8], fds: &[BorrowedFd]) {
        send_raw(&self.socket, bytes, fds);
    }

    /// A message that is there.
    pub(crate) fn receive(&mut self) -> Option<Got> {
        receive(&self.socket)
    }

    /// Whether the server closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0; 1];
        match rustix::net::recv(&self.socket, &mut byte, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, got)) => got == 0,
            Err(error) => error == rustix::io::Errno::CONNRESET,
        }
    }
}

pub(crate) fn send_raw(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    assert_eq!(sent, bytes.len(), "the socket takes it in one piece");
}

/// The message that is there, which has its header in one piece: QEMU insists on that.
pub(crate) fn receive(socket: &UnixStream) -> Option<Got> {
    let mut header = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut header)];
    let got = recvmsg(socket, &mut room, &mut control, RecvFlags::DONTWAIT).ok()?;
    if got.bytes == 0 {
        return None;
    }
    assert_eq!(got.bytes, 16, "the header comes in one piece");
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let number = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
    let mut payload = vec![0; number(4) as usize - 16];
    if !payload.is_empty() {
        std::io::Read::read_exact(&mut &*socket, &mut payload).unwrap();
    }
    Some(Got {
        id: u16::from_ne_bytes([header[0], header[1]]),
        command: u16::from_ne_bytes([header[2], header[3]]),
        flags: number(8),
        error: number(12),
        payload,
        fds,
    })
}

/// A memfd that never shrinks, as QEMU makes it.
pub(crate) fn sealed_memfd(size: u64) -> OwnedFd {
    let fd = memfd(size);
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    fd
}

pub(crate) fn memfd(size: u64) -> OwnedFd {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, size).unwrap();
    fd
}

pub(crate) fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

/// How often an eventfd was written since it was last asked.
pub(crate) fn written(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    let mut ready = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut ready, Some(&none)).unwrap() == 0 {
        return 0;
    }
    rustix::io::read(fd, &mut count).unwrap();
    u64::from_ne_bytes(count)
}

pub(crate) fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}
