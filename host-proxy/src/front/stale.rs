//! Socket files that were left behind.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

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
