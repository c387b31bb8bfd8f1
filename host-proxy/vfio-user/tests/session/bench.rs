//! A server and a client, in one thread.

use crate::client::{Client, Got, QEMU_CAPABILITIES, VERSION, version};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use vfio_user_server::{Access, Device, Errno, Event, Gone, Region, Server};

/// A device with two BARs, a ROM, a configuration space and vectors of each kind.
pub(crate) fn device() -> Device {
    let region = |size, access| Region { size, access };
    let mut device = Device::default();
    device.regions[0] = region(0x10_0000, Access::ReadWrite);
    device.regions[2] = region(0x1000, Access::Write);
    device.regions[6] = region(0x800, Access::Read);
    device.regions[7] = region(0x1000, Access::ReadWrite);
    device.irqs = [1, 4, 64, 1, 1];
    device
}

/// What the server said, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Connected,
    Disconnected(Gone),
    Reset,
    Read(u8, u64, usize),
    Write(u8, u64, Vec<u8>),
    DmaDone(vfio_user_server::DmaToken, Result<Vec<u8>, Errno>),
}

impl From<Event<'_>> for Said {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Connected => Self::Connected,
            Event::Disconnected(gone) => Self::Disconnected(gone),
            Event::Reset => Self::Reset,
            Event::Read { region, offset, len } => Self::Read(region, offset, len),
            Event::Write { region, offset, data } => Self::Write(region, offset, data.to_vec()),
            Event::DmaDone { token, result } => Self::DmaDone(token, result.map(<[u8]>::to_vec)),
        }
    }
}

pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// A client that has connected and nothing else.
    pub(crate) fn connected() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device.sock");
        let mut server = Server::listen(&path, device()).unwrap();
        let client = Client::connect(&path);
        assert_eq!(server.poll(), Some(Event::Connected));
        Self { server, client, path, _folder: folder }
    }

    /// One that has agreed on the version, as QEMU does.
    pub(crate) fn new() -> Self {
        Self::with(QEMU_CAPABILITIES)
    }

    pub(crate) fn with(capabilities: &str) -> Self {
        let mut bench = Self::connected();
        bench.greet(capabilities);
        bench
    }

    pub(crate) fn greet(&mut self, capabilities: &str) -> Got {
        let got = self.call(VERSION, &version(0, 0, capabilities), &[]);
        assert_eq!((got.flags, got.error), (1, 0));
        got
    }

    /// What the server says next.
    pub(crate) fn poll(&mut self) -> Option<Said> {
        self.server.poll().map(Said::from)
    }

    /// Sends a request that the device has no part in, and gives the reply.
    pub(crate) fn call(&mut self, command: u16, payload: &[u8], fds: &[BorrowedFd]) -> Got {
        let id = self.client.send(command, 0, payload, fds);
        assert_eq!(self.poll(), None, "the device has no part in it");
        let got = self.client.receive().expect("there is a reply");
        assert_eq!((got.id, got.command), (id, command));
        assert_eq!(got.flags & 0xf, 1);
        if got.flags & 0x20 != 0 {
            assert!(got.payload.is_empty(), "an error is a header and nothing else");
        }
        got
    }

    /// The errno of a request; 0 for success.
    pub(crate) fn errno(&mut self, command: u16, payload: &[u8], fds: &[BorrowedFd]) -> i32 {
        let got = self.call(command, payload, fds);
        assert_eq!(got.flags & 0x20 != 0, got.error != 0);
        i32::try_from(got.error).unwrap()
    }

    /// Another client, once this one is gone.
    pub(crate) fn reconnect(&mut self) {
        self.client = Client::connect(Path::new(&self.path));
        assert!(matches!(self.poll(), Some(Said::Disconnected(_))));
        assert_eq!(self.poll(), Some(Said::Connected));
    }
}
