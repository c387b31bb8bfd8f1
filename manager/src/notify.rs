//! Tells systemd how the service is doing: the protocol of sd_notify(3), when `NOTIFY_SOCKET` is
//! set.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says something, such as `READY=1`, if anybody listens. A manager that cannot say it goes on.
pub fn tell(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(path.as_bytes(), state) {
        tracing::warn!("systemd cannot be told {state:?}: {error}");
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_socket_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("dxpu-notify-{}", std::process::id());
        let named = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let hidden = UnixDatagram::bind_addr(&address).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1").unwrap();
        send(format!("@{abstract_name}").as_bytes(), "STOPPING=1").unwrap();
        let mut buffer = [0; 64];
        assert_eq!(named.recv(&mut buffer).unwrap(), 7);
        assert_eq!(&buffer[..7], b"READY=1");
        assert_eq!(hidden.recv(&mut buffer).unwrap(), 10);
        assert_eq!(&buffer[..10], b"STOPPING=1");
        assert!(send(b"/nowhere/socket", "READY=1").is_err());
    }
}
