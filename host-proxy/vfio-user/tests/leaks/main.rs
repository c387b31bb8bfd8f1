//! Nothing that a client sent stays open or mapped. In a process of its own, where nobody else
//! opens files.

#[path = "../session/client.rs"]
#[allow(dead_code, reason = "the other tests' client, of which this is a part")]
mod client;

use client::*;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use vfio_user_server::{Access, Device, Event, Irq, Region, Server};

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mappings of what a client calls its memory.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:guest").count()
}

fn device() -> Device {
    let mut device = Device::default();
    device.regions[0] = Region { size: 0x1000, access: Access::ReadWrite };
    device.irqs = [1, 32, 64, 1, 1];
    device
}

/// Polls until there is nothing; whether the client is still there.
fn settle(server: &mut Server, answer: bool) -> bool {
    let mut there = true;
    while let Some(event) = server.poll() {
        match event {
            Event::Disconnected(_) => there = false,
            Event::Write { .. } | Event::Reset if answer => server.answer(Ok(&[])),
            Event::Read { len, .. } if answer => server.answer(Ok(&vec![0; len])),
            _ => {}
        }
    }
    there
}

/// File descriptors of every kind that a client can think of.
fn zoo() -> Vec<OwnedFd> {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
    let folder = rustix::fs::open("/", OFlags::DIRECTORY, Mode::empty()).unwrap();
    let path = rustix::fs::open("/", OFlags::PATH, Mode::empty()).unwrap();
    let sealed = sealed_memfd(0x4000);
    let plain = memfd(0x4000);
    vec![read, write, left.into(), right.into(), folder, path, sealed, plain, eventfd()]
}

/// A client that sends `fds` wherever they belong and wherever they do not.
fn hostile(server: &mut Server, path: &Path, fds: &[OwnedFd], greets: bool) {
    let mut client = Client::connect(path);
    assert_eq!(server.poll(), Some(Event::Connected));
    if greets {
        client.send(VERSION, 0, &version(0, 0, QEMU_CAPABILITIES), &[]);
    }
    assert!(settle(server, true));
    let all = borrowed(fds);
    for (page, fd) in fds.iter().enumerate() {
        let page = page as u64;
        client.send(DMA_MAP, 0, &dma_map(3, 0, page << 14, 0x4000), &[fd.as_fd()]);
        client.send(DMA_MAP, 0, &dma_map(3, 0, page << 14, 0x4000), &[fd.as_fd()]);
        client.send(DMA_MAP, 0, &dma_map(1, 0x1000, page << 14 | 1 << 40, 0x1000), &[fd.as_fd()]);
        client.send(SET_IRQS, 0, &set_irqs(0x24, 2, 3, 1, &[]), &[fd.as_fd()]);
        for command in 0..20 {
            client.send(command, NO_REPLY, &access(0, 0, 0, &[]), &[fd.as_fd()]);
        }
        assert!(settle(server, true));
        while client.receive().is_some() {}
    }
    for many in [16, 17, 64, 253] {
        let many: Vec<_> = all.iter().cycle().take(many).copied().collect();
        client.send(SET_IRQS, 0, &set_irqs(0x24, 2, 0, many.len() as u32, &[]), &many);
        client.send(DMA_MAP, 0, &dma_map(3, 0, 1 << 50, 0x4000), &many);
        assert!(settle(server, true));
    }
    // Some wait behind an access, some in the socket, and some belong to half a message.
    client.send(RESET, 0, &[], &[]);
    for _ in 0..10 {
        client.send(SET_IRQS, 0, &set_irqs(0x24, 2, 0, all.len() as u32, &[]), &all);
    }
    let half = &message(1, DMA_MAP, 0, &dma_map(3, 0, 0, 0x4000))[..20];
    client.send_raw(half, &all);
    if greets {
        settle(server, false);
        server.let_go();
    }
    drop(client);
    settle(server, false);
    assert!(!server.is_connected());
}

#[test]
fn nothing_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.sock");
    let fds = zoo();
    let without = open_files();
    let mut server = Server::listen(&path, device()).unwrap();
    let before = open_files();
    assert_eq!(mappings(), 0);
    for round in 0..20 {
        hostile(&mut server, &path, &fds, round % 2 == 0);
        assert_eq!((open_files(), mappings()), (before, 0), "round {round}");
    }
    what_is_in_use_is_open(&mut server, &path, before);
    assert_eq!((open_files(), mappings()), (before, 0));
    no_room_for_file_descriptors(&mut server, &path);
    assert_eq!((open_files(), mappings()), (before, 0));
    drop(server);
    assert_eq!(open_files(), without);
}

/// What is counted is what is there.
fn what_is_in_use_is_open(server: &mut Server, path: &Path, before: usize) {
    let mut client = Client::connect(path);
    assert_eq!(server.poll(), Some(Event::Connected));
    client.send(VERSION, 0, &version(0, 0, QEMU_CAPABILITIES), &[]);
    let (sealed, plain, event) = (sealed_memfd(0x1000), memfd(0x1000), eventfd());
    client.send(DMA_MAP, 0, &dma_map(3, 0, 0, 0x1000), &[sealed.as_fd()]);
    client.send(DMA_MAP, 0, &dma_map(3, 0, 0x1000, 0x1000), &[plain.as_fd()]);
    client.send(SET_IRQS, 0, &set_irqs(0x24, 2, 0, 1, &[]), &[event.as_fd()]);
    assert!(settle(server, true));
    // The test's three, both ends of the connection, the plain file and the eventfd. What is
    // mapped needs no file descriptor.
    assert_eq!((open_files() - before, mappings()), (3 + 2 + 2, 1));
    client.send(DMA_UNMAP, 0, &dma_unmap(0, 0x1000, 0x1000), &[]);
    client.send(DMA_UNMAP, 0, &dma_unmap(0, 0, 0x1000), &[]);
    client.send(SET_IRQS, 0, &set_irqs(0x21, 2, 0, 0, &[]), &[]);
    assert!(settle(server, true));
    assert_eq!((open_files() - before, mappings()), (3 + 2, 0));
    drop(client);
    assert!(!settle(server, true));
}

/// This process may open nothing more: what was sent is lost, and the request is told so.
fn no_room_for_file_descriptors(server: &mut Server, path: &Path) {
    let mut client = Client::connect(path);
    assert_eq!(server.poll(), Some(Event::Connected));
    client.send(VERSION, 0, &version(0, 0, QEMU_CAPABILITIES), &[]);
    assert!(settle(server, true));
    client.receive().unwrap();
    let events: Vec<OwnedFd> = (0..4).map(|_| eventfd()).collect();
    let limit = getrlimit(Resource::Nofile);
    let highest = events.iter().map(std::os::fd::AsRawFd::as_raw_fd).max().unwrap();
    let tight = Rlimit { current: Some(highest as u64 + 1), maximum: limit.maximum };
    setrlimit(Resource::Nofile, tight).unwrap();
    client.send(SET_IRQS, 0, &set_irqs(0x24, 2, 0, 4, &[]), &borrowed(&events));
    let there = settle(server, true);
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(there);
    assert_eq!(client.receive().unwrap().error, 24, "EMFILE");
    assert!(!server.trigger(Irq::Msix, 0));
    client.send(SET_IRQS, 0, &set_irqs(0x24, 2, 0, 4, &[]), &borrowed(&events));
    assert!(settle(server, true));
    assert_eq!(client.receive().unwrap().error, 0);
    drop((client, events));
    assert!(!settle(server, true));
}
