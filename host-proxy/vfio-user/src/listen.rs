//! The listening socket.

use crate::limits::ACCEPT_PAUSE;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why the server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is a file of another kind.
    #[error("vfio-user socket {}: it is there and is no socket; choose another path", .0.display())]
    NotASocket(PathBuf),
    /// Somebody else listens there.
    #[error("vfio-user socket {}: in use; stop who listens there or choose another path", .0.display())]
    InUse(PathBuf),
    /// The path is no path for a socket.
    #[error(
        "vfio-user socket {}: the path of a socket has 1 to 107 bytes; choose a shorter one",
        .0.display()
    )]
    TooLong(PathBuf),
    /// The folder that the socket would be in is not there.
    #[error(
        "vfio-user socket {}: its folder is not there; make it or choose another path",
        .0.display()
    )]
    NoFolder(PathBuf),
    /// What the operating system says.
    #[error("vfio-user socket {}: {error}", path.display())]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
}

/// A listening socket, and its file, which goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    file: Option<File>,
    /// Accepting failed, and is tried again then.
    paused: Option<Instant>,
}

/// Who came.
pub(crate) enum Accepted {
    Nobody,
    /// A socket that does not block.
    Client(UnixStream),
    /// Somebody, but accepting failed, as it does without a file descriptor left.
    Failed,
}

/// The socket's file, as it was made.
#[derive(Debug)]
struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Listener {
    /// Listens at a path. A socket that nobody listens at is replaced.
    pub(crate) fn bind(path: &Path) -> Result<Self, OpenError> {
        let io = |error: std::io::Error| match error.kind() {
            ErrorKind::InvalidInput => OpenError::TooLong(path.to_owned()),
            ErrorKind::NotFound => OpenError::NoFolder(path.to_owned()),
            _ => OpenError::Io { path: path.to_owned(), error },
        };
        remove_stale(path, &io)?;
        let socket = UnixListener::bind(path).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => OpenError::InUse(path.to_owned()),
            _ => io(error),
        })?;
        socket.set_nonblocking(true).map_err(io)?;
        let data = std::fs::symlink_metadata(path).map_err(io)?;
        let file = File { path: path.to_owned(), device: data.dev(), inode: data.ino() };
        Ok(Self { socket, file: Some(file), paused: None })
    }

    /// One that somebody else made.
    pub(crate) fn adopt(socket: UnixListener) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, file: None, paused: None })
    }

    /// Accepts who waits, unless that failed a moment ago.
    pub(crate) fn accept(&mut self) -> Accepted {
        if self.pause().is_some_and(|left| !left.is_zero()) {
            return Accepted::Nobody;
        }
        self.paused = None;
        let accepted = self.socket.accept().and_then(|(socket, _)| {
            // One that cannot be made non-blocking is closed.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match accepted {
            Ok(socket) => Accepted::Client(socket),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Accepted::Nobody,
            Err(_) => {
                self.paused = Some(Instant::now() + ACCEPT_PAUSE);
                Accepted::Failed
            }
        }
    }

    /// How long nobody is accepted yet, when accepting failed; none, once that is over, until it is
    /// tried again. The socket is ready all that time, and must not be waited on.
    pub(crate) fn pause(&self) -> Option<Duration> {
        Some(self.paused?.saturating_duration_since(Instant::now()))
    }
}

fn remove_stale(path: &Path, io: &impl Fn(std::io::Error) -> OpenError) -> Result<(), OpenError> {
    let data = match std::fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    if !data.file_type().is_socket() {
        return Err(OpenError::NotASocket(path.to_owned()));
    }
    let address = SocketAddrUnix::new(path).map_err(|_| OpenError::TooLong(path.to_owned()))?;
    // Who listens there may accept nobody: connecting must not wait until he does.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(|error| io(error.into()))?;
    match connect(&socket, &address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(io),
        Err(Errno::NOENT) => Ok(()),
        // Also EAGAIN: so many wait already that there is no room for one more.
        _ => Err(OpenError::InUse(path.to_owned())),
    }
}

impl Drop for Listener {
    /// Removes the socket's file, unless another one is there by now.
    fn drop(&mut self) {
        if let Some(File { path, device, inode }) = &self.file {
            let ours = std::fs::symlink_metadata(path)
                .is_ok_and(|data| data.dev() == *device && data.ino() == *inode);
            if ours {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
