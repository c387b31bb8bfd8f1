//! Socket files: one's own, and those that were left behind.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file of a socket that was bound. It is removed with this, unless it was replaced by another one.
#[derive(Debug)]
pub(crate) struct OwnFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OwnFile {
    /// The file that was made just now.
    ///
    /// # Errors
    ///
    /// When it is not there any more.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let data = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_path_buf(), device: data.dev(), inode: data.ino() })
    }

    /// Where it was made.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|data| data.dev() == self.device && data.ino() == self.inode);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A socket's file that nobody listens at any more is in the way, and is removed; nothing else is.
/// `what` is the socket's name in errors, `kind` that of the sockets that listen there.
///
/// # Errors
///
/// A text that names the path and says what to do.
pub(crate) fn remove_stale(what: &str, path: &Path, kind: Type) -> Result<(), String> {
    let name = path.display();
    if !path.exists() {
        return Ok(());
    }
    if !std::fs::metadata(path).is_ok_and(|data| data.file_type().is_socket()) {
        return Err(format!("{what} {name}: not a socket; choose another path"));
    }
    let text = |e: Error| format!("{what} {name}: {e}");
    let address = SockAddr::unix(path).map_err(text)?;
    let probe = Socket::new(Domain::UNIX, kind, None).map_err(text)?;
    // Who listens there may accept nobody: connecting must not wait until he does.
    probe.set_nonblocking(true).map_err(text)?;
    match probe.connect(&address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(text)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Also EAGAIN: so many wait already that there is no room for one more.
        _ => Err(format!("{what} {name}: in use; stop who listens there or choose another path")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_file_that_another_one_has_made_since_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::write(&path, "").unwrap();
        let own = OwnFile::new(&path).unwrap();
        // Both are there for a moment: the other one has a number of its own.
        std::fs::write(folder.path().join("other"), "").unwrap();
        std::fs::rename(folder.path().join("other"), &path).unwrap();
        let other = OwnFile::new(&path).unwrap();
        drop(own);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists());
    }

    fn socket(kind: Type) -> Socket {
        Socket::new(Domain::UNIX, kind, None).unwrap()
    }

    /// A listener that accepts nobody, and as many as wait for it at most.
    pub(crate) fn crowd(path: &Path, kind: Type) -> Vec<Socket> {
        let address = SockAddr::unix(path).unwrap();
        let listener = socket(kind);
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let mut crowd = vec![listener];
        crowd.extend(std::iter::from_fn(|| {
            let socket = socket(kind);
            socket.set_nonblocking(true).unwrap();
            socket.connect(&address).ok().map(|()| socket)
        }));
        crowd
    }

    /// What `open` says of a socket that is in use, without waiting for who listens there.
    pub(crate) fn refusal<T>(open: impl FnOnce() -> Result<T, String> + Send + 'static) -> String {
        let (said, hears) = channel();
        std::thread::spawn(move || said.send(open().map(drop)));
        let result = hears.recv_timeout(Duration::from_secs(60)).expect("it does not wait");
        result.expect_err("it is in use")
    }

    #[test]
    fn only_what_nobody_listens_at_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        for (kind, other) in [(Type::STREAM, Type::SEQPACKET), (Type::SEQPACKET, Type::STREAM)] {
            assert_eq!(remove_stale("a", &path, kind), Ok(()), "none is there");
            let crowd = crowd(&path, kind);
            for kind in [kind, other] {
                let path = path.clone();
                let said = refusal(move || remove_stale("a socket", &path, kind));
                assert!(said.starts_with("a socket ") && said.contains("in use"), "{said}");
            }
            assert!(path.exists());
            drop(crowd);
            assert_eq!(remove_stale("a", &path, kind), Ok(()));
            assert!(!path.exists());
        }
        std::fs::write(&path, "text").unwrap();
        assert!(remove_stale("a", &path, Type::STREAM).unwrap_err().contains("not a socket"));
        assert!(path.exists());
    }
}
