//! Clients that lie, flood, stall and die.

use crate::bench::{Bench, Said};
use crate::client::*;
use crate::errno::*;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use vfio_user_server::{Errno, Gone};

/// A header that says `size`.
fn header(command: u16, size: u32) -> Vec<u8> {
    bytes().u16(1).u16(command).u32(size).u32(0).u32(0).0
}

#[test]
fn a_size_that_no_message_has_ends_the_session() {
    for size in [0, 1, 15, 16 + 16 + (1 << 20) + 1, u32::MAX] {
        let mut bench = Bench::new();
        bench.client.send_raw(&header(GET_INFO, size), &[]);
        assert_eq!(bench.poll(), Some(Said::Disconnected(Gone::BadSize(size))));
        assert!(bench.client.is_closed());
        // And the next client is served.
        bench.client = Client::connect(&bench.path);
        assert_eq!(bench.poll(), Some(Said::Connected));
        bench.greet(QEMU_CAPABILITIES);
    }
}

#[test]
fn byte_by_byte() {
    let mut bench = Bench::new();
    let vector = eventfd();
    let mut stream = message(1, REGION_WRITE, 0, &access(4, 0, 3, &[1, 2, 3]));
    stream.extend(message(2, SET_IRQS, 0, &set_irqs(0x24, 2, 0, 1, &[])));
    let fds_go_with = stream.len() - 1;
    for (at, byte) in stream.iter().enumerate() {
        let fds = [vector.as_fd()];
        let fds = if at == fds_go_with { &fds[..] } else { &[] };
        bench.client.send_raw(&[*byte], fds);
        match bench.poll() {
            Some(Said::Write(0, 4, data)) => {
                assert_eq!((at, data), (34, vec![1, 2, 3]));
                bench.server.answer(Ok(&[]));
            }
            other => assert_eq!(other, None),
        }
    }
    assert_eq!(bench.client.receive().unwrap().command, REGION_WRITE);
    let got = bench.client.receive().unwrap();
    assert_eq!((got.command, got.error), (SET_IRQS, 0));
    assert!(bench.server.trigger(vfio_user_server::Irq::Msix, 0));
}

/// Messages that come in one piece; each keeps its file descriptors.
#[test]
fn many_messages_at_once() {
    let mut bench = Bench::new();
    let mut stream = Vec::new();
    for page in 0..10 {
        stream.extend(message(page, DMA_MAP, 0, &dma_map(3, 0, u64::from(page) << 12, 0x1000)));
    }
    bench.client.send_raw(&stream, &[]);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.server.memory().maps(), 10);
    // The kernel hands them out with the first byte that they were sent with.
    let ram = sealed_memfd(0x1000);
    let first = message(11, DMA_UNMAP, 0, &dma_unmap(2, 0, 0));
    bench.client.send_raw(&first, &[]);
    let maps = [
        message(12, DMA_MAP, 0, &dma_map(3, 0, 0, 0x1000)),
        message(13, DMA_MAP, 0, &dma_map(3, 0, 0x1000, 0x1000)),
    ];
    bench.client.send_raw(&maps.concat(), &[ram.as_fd()]);
    assert_eq!(bench.poll(), None);
    bench.server.memory().write(0, &[1]).unwrap();
    assert!(bench.server.memory().write(0x1000, &[1]).is_err());
}

#[test]
fn it_dies() {
    // Between messages, in a header, in a payload.
    let whole = message(1, REGION_WRITE, 0, &access(0, 0, 4, &[0; 4]));
    for (sent, gone) in [(0, Gone::Closed), (7, Gone::Died), (20, Gone::Died)] {
        let mut bench = Bench::new();
        bench.client.send_raw(&whole[..sent], &[]);
        assert_eq!(bench.poll(), None);
        bench.client = Client::connect(&bench.path);
        assert_eq!(bench.poll(), Some(Said::Disconnected(gone)), "{sent}");
        assert!(!bench.server.is_connected());
        assert_eq!(bench.poll(), Some(Said::Connected));
    }
}

#[test]
fn what_it_sent_before_it_went_is_done() {
    let mut bench = Bench::new();
    bench.client.send(REGION_READ, 0, &access(0, 0, 1, &[]), &[]);
    bench.client.send(REGION_WRITE, NO_REPLY, &access(0, 0, 1, &[1]), &[]);
    bench.client.send(REGION_WRITE, NO_REPLY, &access(0, 0, 1, &[2]), &[]);
    assert_eq!(bench.poll(), Some(Said::Read(0, 0, 1)));
    bench.client = Client::connect(&bench.path);
    assert_eq!(bench.poll(), None, "the access in hand comes first");
    assert_eq!(bench.server.waits_on().count(), 0, "and nothing wakes its waiting");
    bench.server.answer(Ok(&[0]));
    for data in [1, 2] {
        assert_eq!(bench.poll(), Some(Said::Write(0, 0, vec![data])));
        bench.server.answer(Ok(&[]));
    }
    assert_eq!(bench.poll(), Some(Said::Disconnected(Gone::Closed)));
    assert_eq!(bench.poll(), Some(Said::Connected));
}

#[test]
fn the_caller_lets_it_go() {
    let mut bench = Bench::new();
    bench.client.send(RESET, 0, &[], &[]);
    assert_eq!(bench.poll(), Some(Said::Reset));
    bench.server.let_go();
    assert_eq!(bench.server.dma_write(0, &[1]), Err(vfio_user_server::DmaRefused::NotConnected));
    assert_eq!(bench.poll(), Some(Said::Disconnected(Gone::LetGo)));
    assert!(bench.client.is_closed());
    bench.server.let_go();
    assert_eq!(bench.poll(), None);
}

#[test]
fn more_file_descriptors_than_a_message_has() {
    let mut bench = Bench::new();
    let fds: Vec<OwnedFd> = (0..64).map(|_| eventfd()).collect();
    let payload = set_irqs(0x24, 2, 0, 64, &[]);
    assert_eq!(bench.errno(SET_IRQS, &payload, &borrowed(&fds)), EINVAL);
    let payload = set_irqs(0x24, 2, 0, 17, &[]);
    assert_eq!(bench.errno(SET_IRQS, &payload, &borrowed(&fds[..17])), EINVAL);
    // In several pieces.
    let stream = message(5, SET_IRQS, 0, &payload);
    bench.client.send_raw(&stream[..10], &borrowed(&fds[..9]));
    bench.client.send_raw(&stream[10..], &borrowed(&fds[9..17]));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.client.receive().unwrap().error, EINVAL as u32);
    assert!((0..64).all(|vector| !bench.server.trigger(vfio_user_server::Irq::Msix, vector)));
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0, "the stream is still in step");
}

/// Sends what the socket takes; whether it took anything.
fn flood(socket: &UnixStream, bytes: &[u8]) -> bool {
    let sent = rustix::net::send(
        socket,
        bytes,
        rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
    );
    match sent {
        Ok(sent) if sent < bytes.len() => {
            socket.set_nonblocking(false).unwrap();
            false
        }
        Ok(_) => true,
        Err(_) => false,
    }
}

#[test]
fn a_flood_does_not_keep_the_caller() {
    let mut bench = Bench::new();
    let requests = message(1, GET_INFO, NO_REPLY, &info(0)).repeat(1000);
    assert!(flood(&bench.client.socket, &requests));
    let mut polls = 0;
    let handled = |bench: &Bench| bench.server.counters()[3].1;
    let before = handled(&bench);
    while handled(&bench) < before + 1000 {
        assert_eq!(bench.poll(), None);
        polls += 1;
        assert!(handled(&bench) - before <= 64 * polls);
    }
    assert!(polls > 10);
}

/// Behind an access in hand only so much is taken in; the rest stays with the client.
#[test]
fn a_queue_that_is_full_is_not_read_on() {
    let mut bench = Bench::new();
    bench.client.send(REGION_READ, 0, &access(0, 0, 1, &[]), &[]);
    assert_eq!(bench.poll(), Some(Said::Read(0, 0, 1)));
    let write = message(1, REGION_WRITE, NO_REPLY, &access(0, 0, 1, &[1]));
    let mut sent = 0;
    let mut stuck = 0;
    while stuck < 10 {
        if flood(&bench.client.socket, &write) {
            sent += 1;
            stuck = 0;
        } else {
            stuck += 1;
        }
        assert_eq!(bench.poll(), None);
    }
    assert!(sent >= 1024);
    assert_eq!(bench.server.waits_on().count(), 0);
    bench.server.answer(Ok(&[0]));
    let mut done = 0;
    while let Some(said) = bench.poll() {
        assert_eq!(said, Said::Write(0, 0, vec![1]));
        bench.server.answer(Ok(&[]));
        done += 1;
    }
    assert_eq!(done, sent, "nothing is lost");
}

#[test]
fn file_descriptors_in_the_queue_are_limited() {
    let mut bench = Bench::new();
    bench.client.send(RESET, 0, &[], &[]);
    assert_eq!(bench.poll(), Some(Said::Reset));
    let fds: Vec<OwnedFd> = (0..16).map(|_| eventfd()).collect();
    for _ in 0..8 {
        bench.client.send(SET_IRQS, NO_REPLY, &set_irqs(0x24, 2, 0, 16, &[]), &borrowed(&fds));
        assert_eq!(bench.poll(), None);
    }
    assert_eq!(bench.server.waits_on().count(), 0, "after four of them");
    bench.server.answer(Ok(&[]));
    assert_eq!(bench.poll(), None);
    assert!(bench.server.trigger(vfio_user_server::Irq::Msix, 15));
}

/// It sends requests and never reads a reply.
#[test]
fn a_client_that_reads_nothing_is_let_go() {
    let mut bench = Bench::new();
    let read = message(1, REGION_READ, 0, &access(0, 0, 0x1_0000, &[]));
    let mut reads = 0;
    let gone = loop {
        flood(&bench.client.socket, &read);
        match bench.poll() {
            Some(Said::Read(0, 0, len)) => {
                bench.server.answer(Ok(&vec![0; len]));
                reads += 1;
            }
            Some(Said::Disconnected(gone)) => break gone,
            other => assert_eq!(other, None),
        }
    };
    assert_eq!(gone, Gone::NotReading);
    assert!(reads < 64, "replies for {reads} reads were kept");
    assert!(!bench.server.is_connected());
}

#[test]
fn messages_that_nobody_reads_end_the_session() {
    let mut bench = Bench::new();
    let mut sent = 0;
    while let Ok(_token) = bench.server.dma_write(0, &[0; 1 << 20]) {
        sent += 1;
        assert!(sent < 12);
    }
    assert_eq!(bench.poll(), Some(Said::Disconnected(Gone::NotReading)));
}

/// One access is two messages to it.
#[test]
fn nothing_is_sent_behind_the_message_that_ended_the_session() {
    let mut bench = Bench::with(r#"{"capabilities":{"max_data_xfer_size":524288}}"#);
    let mut sent = 0;
    while let Ok(_token) = bench.server.dma_write(0, &[0; 1 << 20]) {
        sent += 2;
        assert!(sent < 24);
    }
    let counters = bench.server.counters();
    let messages = counters.iter().find(|(name, _)| *name == "vfio-user: DMA messages").unwrap().1;
    assert_eq!(messages, sent - 1, "the first of the last two was too many");
    assert_eq!(bench.poll(), Some(Said::Disconnected(Gone::NotReading)));
}

/// It reads one request's reply late, and then goes on.
#[test]
fn a_client_that_reads_late_is_waited_for() {
    let mut bench = Bench::new();
    for _ in 0..8 {
        bench.client.send(REGION_READ, 0, &access(0, 0, 0x8_0000, &[]), &[]);
    }
    let mut answered = 0;
    while let Some(said) = bench.poll() {
        assert_eq!(said, Said::Read(0, 0, 0x8_0000));
        bench.server.answer(Ok(&[0x5a; 0x8_0000]));
        answered += 1;
    }
    assert!(answered < 8, "the others wait until there is room");
    let socket = bench.client.socket.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; 8 * (32 + 0x8_0000)];
        std::io::Read::read_exact(&mut &socket, &mut all).unwrap();
    });
    while answered < 8 || bench.server.waits_on().any(|(_, _, write)| write) {
        if bench.poll().is_some() {
            bench.server.answer(Err(Errno::IO).or(Ok(&[0x5a; 0x8_0000])));
            answered += 1;
        }
        std::thread::yield_now();
    }
    reader.join().unwrap();
}

/// The client closes its receiving side only.
#[test]
fn a_client_that_cannot_hear() {
    let mut bench = Bench::new();
    bench.client.socket.shutdown(std::net::Shutdown::Read).unwrap();
    bench.client.send(REGION_WRITE, 0, &access(0, 0, 1, &[1]), &[]);
    bench.client.send(REGION_WRITE, 0, &access(0, 0, 1, &[2]), &[]);
    for data in [1, 2] {
        assert_eq!(bench.poll(), Some(Said::Write(0, 0, vec![data])));
        bench.server.answer(Ok(&[]));
    }
    assert_eq!(bench.server.dma_write(0, &[1]), Err(vfio_user_server::DmaRefused::NotConnected));
    assert_eq!(bench.poll(), None);
}
