//! The socket's file, and who connects to it.

use crate::bench::{Bench, Said, device};
use crate::client::*;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::os::unix::net::UnixListener;
use std::path::Path;
use vfio_user_server::{OpenError, Server};

#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("left");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::listen(&path, device()).unwrap();
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    drop(server);
    assert!(!path.exists(), "and goes with the server");
}

#[test]
fn what_is_in_the_way_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("there");
    std::fs::write(&path, "precious").unwrap();
    let error = Server::listen(&path, device()).unwrap_err();
    assert!(matches!(error, OpenError::NotASocket(_)));
    assert!(error.to_string().contains("there") && error.to_string().contains("another path"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(matches!(Server::listen(folder.path(), device()), Err(OpenError::NotASocket(_))));

    let taken = folder.path().join("taken");
    let _listener = UnixListener::bind(&taken).unwrap();
    assert!(matches!(Server::listen(&taken, device()), Err(OpenError::InUse(_))));
    // A name that leads elsewhere is not followed.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert!(matches!(Server::listen(&link, device()), Err(OpenError::NotASocket(_))));
}

/// Connecting to it would wait until somebody is accepted.
#[test]
fn a_socket_whose_listener_accepts_nobody_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let address = SocketAddrUnix::new(&path).unwrap();
    let stream = |flags| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let listener = stream(SocketFlags::empty());
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let waiting: Vec<_> = std::iter::repeat_with(|| stream(SocketFlags::NONBLOCK))
        .take_while(|socket| connect(socket, &address).is_ok())
        .collect();
    assert!(!waiting.is_empty());
    let (said, hears) = std::sync::mpsc::channel();
    let at = path.clone();
    std::thread::spawn(move || said.send(Server::listen(&at, device()).map(drop)));
    let result = hears.recv_timeout(std::time::Duration::from_secs(20)).expect("it does not wait");
    assert!(matches!(result, Err(OpenError::InUse(_))), "{result:?}");
    assert!(path.exists());
}

#[test]
fn paths_that_no_socket_has() {
    let long = format!("/tmp/{}", "x".repeat(120));
    assert!(matches!(Server::listen(Path::new(&long), device()), Err(OpenError::TooLong(_))));
    let nowhere = Path::new("/nowhere/at/all/device.sock");
    assert!(matches!(Server::listen(nowhere, device()), Err(OpenError::NoFolder(_))));
}

#[test]
fn another_servers_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.sock");
    let old = Server::listen(&path, device()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _new = Server::listen(&path, device()).unwrap();
    drop(old);
    assert!(path.exists());
}

#[test]
fn the_second_client_waits_for_the_first_to_go() {
    let mut bench = Bench::new();
    let mut second = Client::connect(&bench.path);
    second.send(VERSION, 0, &version(0, 0, QEMU_CAPABILITIES), &[]);
    assert_eq!(bench.poll(), None);
    assert!(second.receive().is_none() && !second.is_closed());
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0);
    bench.client = second;
    assert!(matches!(bench.poll(), Some(Said::Disconnected(_))));
    assert_eq!(bench.poll(), Some(Said::Connected));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.client.receive().unwrap().command, VERSION);
}

#[test]
fn a_listening_socket_of_somebody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut server = Server::adopt(listener, device()).unwrap();
    assert_eq!(server.poll(), None, "it does not block");
    let _client = Client::connect(&path);
    assert_eq!(server.poll(), Some(vfio_user_server::Event::Connected));
    drop(server);
    assert!(path.exists(), "the file is not the server's");
}

#[test]
fn the_caller_waits_for_the_right_things() {
    let mut bench = Bench::connected();
    let only = |bench: &Bench| {
        let waits: Vec<_> = bench.server.waits_on().map(|(_, read, write)| (read, write)).collect();
        waits
    };
    assert_eq!(only(&bench), [(true, false)]);
    bench.client = Client::connect(&bench.path);
    assert!(matches!(bench.poll(), Some(Said::Disconnected(_))));
    assert_eq!(only(&bench), [(true, false)], "the listening socket");
}

/// The data plane's thread has it.
#[test]
fn a_server_can_be_given_to_a_thread() {
    fn is_send<T: Send>() {}
    is_send::<Server>();
}
