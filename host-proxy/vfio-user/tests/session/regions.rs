//! Accesses to regions, resets, and their order.

use crate::bench::{Bench, Said};
use crate::client::*;
use crate::errno::*;
use std::os::fd::AsFd;
use vfio_user_server::Errno;

const MIB: u32 = 1 << 20;

#[test]
fn accesses_that_no_region_has_never_reach_the_device() {
    let mut bench = Bench::new();
    for (offset, region, count, errno) in [
        (0, 9, 4, EINVAL),
        (0, 256, 4, EINVAL),
        (0, u32::MAX, 4, EINVAL),
        (0, 1, 1, EINVAL),
        (0, 1, 0, EINVAL),
        (0x10_0000, 0, 1, EINVAL),
        (0xf_fffd, 0, 4, EINVAL),
        (u64::MAX, 0, 1, EINVAL),
        (u64::MAX - 3, 0, 4, EINVAL),
        (0, 0, MIB + 1, E2BIG),
        (0, 0, u32::MAX, E2BIG),
        (0, 2, 4, EPERM),
    ] {
        let errno_of = bench.errno(REGION_READ, &access(offset, region, count, &[]), &[]);
        assert_eq!(errno_of, errno, "read {offset:#x} {region} {count}");
    }
    for (offset, region, count, errno) in [
        (0, 9, 4, EINVAL),
        (0x800, 6, 1, EINVAL),
        (0xfff, 7, 2, EINVAL),
        (u64::MAX, 7, 2, EINVAL),
        (0, 6, 4, EPERM),
    ] {
        let payload = access(offset, region, count, &vec![0; count as usize]);
        assert_eq!(bench.errno(REGION_WRITE, &payload, &[]), errno, "write {offset:#x} {region}");
    }
    // The count is not that of the data.
    for (count, data) in [(4, 3), (4, 5), (0, 1), (1, 0), (u32::MAX, 4), (MIB + 1, 4)] {
        let payload = access(0, 0, count, &vec![0; data]);
        assert_eq!(bench.errno(REGION_WRITE, &payload, &[]), EINVAL, "{count}, {data}");
    }
    for len in [0, 8, 15] {
        assert_eq!(bench.errno(REGION_READ, &vec![0; len], &[]), EINVAL);
        assert_eq!(bench.errno(REGION_WRITE, &vec![0; len], &[]), EINVAL);
    }
}

#[test]
fn what_is_behind_the_access_in_hand_is_told() {
    let mut bench = Bench::new();
    assert!(!bench.server.has_more());
    let read = access(0x10, 0, 4, &[]);
    bench.client.send(REGION_READ, 0, &read, &[]);
    assert!(bench.server.has_more(), "in the socket");
    assert_eq!(bench.poll(), Some(Said::Read(0, 0x10, 4)));
    assert!(!bench.server.has_more(), "this one is in hand");
    bench.client.send(REGION_READ, 0, &read, &[]);
    assert!(bench.server.has_more(), "in the socket behind it");
    assert_eq!(bench.poll(), None);
    assert!(bench.server.has_more(), "taken in behind it");
    bench.server.answer(Ok(&[0; 4]));
    assert_eq!(bench.poll(), Some(Said::Read(0, 0x10, 4)));
    assert!(!bench.server.has_more());
    // The start of a message.
    bench.client.send_raw(&message(9, REGION_READ, 0, &read)[..20], &[]);
    assert_eq!(bench.poll(), None);
    assert!(bench.server.has_more());
}

#[test]
fn an_access_of_no_bytes_does_nothing() {
    let mut bench = Bench::new();
    for (command, region) in [(REGION_READ, 0), (REGION_WRITE, 0), (REGION_WRITE, 6)] {
        let payload = access(0x10, region, 0, &[]);
        let got = bench.call(command, &payload, &[]);
        assert_eq!((got.error, got.payload), (0, payload));
    }
}

#[test]
fn the_longest_accesses_go_in_pieces_of_the_socket() {
    let mut bench = Bench::new();
    let data: Vec<u8> = (0..MIB).map(|n| (n >> 8) as u8 ^ n as u8).collect();
    bench.client.send(REGION_READ, 0, &access(0, 0, MIB, &[]), &[]);
    assert_eq!(bench.poll(), Some(Said::Read(0, 0, MIB as usize)));
    bench.server.answer(Ok(&data));
    assert!(bench.server.waits_on().any(|(_, _, write)| write), "the socket is full");
    // The client reads while the server sends.
    let mut socket = bench.client.socket.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; 32 + MIB as usize];
        std::io::Read::read_exact(&mut socket, &mut all).unwrap();
        all
    });
    while bench.server.waits_on().any(|(_, _, write)| write) {
        assert_eq!(bench.poll(), None);
        std::thread::yield_now();
    }
    assert_eq!(reader.join().unwrap()[32..], data);

    let mut socket = bench.client.socket.try_clone().unwrap();
    let write = message(1, REGION_WRITE, 0, &access(0, 0, MIB, &data));
    let writer = std::thread::spawn(move || {
        std::io::Write::write_all(&mut socket, &write).unwrap();
    });
    let said = loop {
        match bench.poll() {
            Some(said) => break said,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(said, Said::Write(0, 0, data));
    writer.join().unwrap();
}

#[test]
fn the_device_fails_an_access() {
    let mut bench = Bench::new();
    bench.client.send(REGION_READ, 0, &access(0, 0, 4, &[]), &[]);
    bench.client.send(REGION_WRITE, 0, &access(0, 0, 4, &[0; 4]), &[]);
    bench.client.send(RESET, 0, &[], &[]);
    for said in [Said::Read(0, 0, 4), Said::Write(0, 0, vec![0; 4]), Said::Reset] {
        assert_eq!(bench.poll(), Some(said));
        bench.server.answer(Err(Errno::IO));
        let got = bench.client.receive().unwrap();
        assert_eq!((got.flags, got.error, got.payload.len()), (0x21, EIO as u32, 0));
    }
}

#[test]
fn a_write_without_a_reply_is_answered_and_nothing_is_sent() {
    let mut bench = Bench::new();
    bench.client.send(REGION_WRITE, NO_REPLY, &access(8, 0, 2, &[1, 2]), &[]);
    bench.client.send(REGION_WRITE, NO_REPLY, &access(9, 9, 2, &[1, 2]), &[]);
    bench.client.send(REGION_WRITE, NO_REPLY, &access(16, 0, 2, &[3, 4]), &[]);
    bench.client.send(REGION_READ, NO_REPLY, &access(32, 0, 2, &[]), &[]);
    assert_eq!(bench.poll(), Some(Said::Write(0, 8, vec![1, 2])));
    bench.server.answer(Ok(&[]));
    assert_eq!(bench.poll(), Some(Said::Write(0, 16, vec![3, 4])));
    bench.server.answer(Err(Errno::IO));
    assert_eq!(bench.poll(), Some(Said::Read(0, 32, 2)));
    bench.server.answer(Ok(&[5, 6]));
    assert_eq!(bench.poll(), None);
    assert!(bench.client.receive().is_none());
}

#[test]
fn a_reset() {
    let mut bench = Bench::new();
    let vector = eventfd();
    assert_eq!(bench.errno(SET_IRQS, &set_irqs(0x24, 2, 0, 1, &[]), &[vector.as_fd()]), 0);
    assert_eq!(bench.errno(DMA_MAP, &dma_map(3, 0, 0, 0x1000), &[]), 0);
    let id = bench.client.send(RESET, 0, &[], &[]);
    assert_eq!(bench.poll(), Some(Said::Reset));
    assert!(bench.client.receive().is_none());
    bench.server.answer(Ok(&[]));
    let got = bench.client.receive().unwrap();
    assert_eq!((got.id, got.flags, got.payload.len()), (id, 1, 0));
    // The device is reset, not the client.
    assert!(bench.server.trigger(vfio_user_server::Irq::Msix, 0));
    assert_eq!(bench.server.memory().maps(), 1);
}

#[test]
fn everything_behind_an_access_waits_for_its_answer() {
    let mut bench = Bench::new();
    let vector = eventfd();
    bench.client.send(DMA_MAP, 0, &dma_map(3, 0, 0, 0x1000), &[]);
    bench.client.send(REGION_READ, 0, &access(0, 0, 1, &[]), &[]);
    bench.client.send(DMA_UNMAP, 0, &dma_unmap(0, 0, 0x1000), &[]);
    bench.client.send(SET_IRQS, 0, &set_irqs(0x24, 2, 0, 1, &[]), &[vector.as_fd()]);
    bench.client.send(REGION_WRITE, NO_REPLY, &access(0, 0, 1, &[7]), &[]);
    bench.client.send(RESET, 0, &[], &[]);
    bench.client.send(GET_INFO, 0, &info(0), &[]);
    assert_eq!(bench.poll(), Some(Said::Read(0, 0, 1)));
    for _ in 0..3 {
        assert_eq!(bench.poll(), None);
    }
    assert_eq!(bench.server.memory().maps(), 1, "it is still mapped");
    assert!(!bench.server.trigger(vfio_user_server::Irq::Msix, 0));
    assert_eq!(bench.client.receive().unwrap().command, DMA_MAP);
    assert!(bench.client.receive().is_none());

    bench.server.answer(Ok(&[1]));
    assert_eq!(bench.server.memory().maps(), 1, "an answer does not go on by itself");
    assert_eq!(bench.poll(), Some(Said::Write(0, 0, vec![7])));
    assert_eq!(bench.server.memory().maps(), 0);
    assert!(bench.server.trigger(vfio_user_server::Irq::Msix, 0));
    bench.server.answer(Ok(&[]));
    assert_eq!(bench.poll(), Some(Said::Reset));
    bench.server.answer(Ok(&[]));
    assert_eq!(bench.poll(), None);
    let commands: Vec<u16> = std::iter::from_fn(|| bench.client.receive())
        .inspect(|got| assert_eq!(got.error, 0))
        .map(|got| got.command)
        .collect();
    assert_eq!(commands, [REGION_READ, DMA_UNMAP, SET_IRQS, RESET, GET_INFO]);
}

fn entry(offset: u64, region: u32, count: u32, data: u64) -> Vec<u8> {
    bytes().u64(offset).u32(region).u32(count).u64(data).0
}

fn multi(entries: &[Vec<u8>]) -> Vec<u8> {
    bytes().u64(entries.len() as u64).and(&entries.concat()).0
}

#[test]
fn several_writes_in_one_message() {
    let mut bench = Bench::new();
    let writes = [entry(0, 0, 8, u64::MAX), entry(4, 2, 1, 0x55), entry(8, 7, 4, 0)];
    bench.client.send(WRITE_MULTI, 0, &multi(&writes), &[]);
    bench.client.send(GET_INFO, 0, &info(0), &[]);
    for said in [
        Said::Write(0, 0, vec![0xff; 8]),
        Said::Write(2, 4, 0x55_u64.to_ne_bytes()[..1].to_vec()),
        Said::Write(7, 8, vec![0; 4]),
    ] {
        assert_eq!(bench.poll(), Some(said));
        assert_eq!(bench.poll(), None);
        assert!(bench.client.receive().is_none());
        bench.server.answer(Ok(&[]));
    }
    assert_eq!(bench.poll(), None);
    let got = bench.client.receive().unwrap();
    assert_eq!((got.command, got.u64(0), got.payload.len()), (WRITE_MULTI, 3, 8));
    assert_eq!(bench.client.receive().unwrap().command, GET_INFO);
}

#[test]
fn each_of_several_writes_stands_for_itself() {
    let mut bench = Bench::new();
    let writes = [
        entry(0, 9, 4, 0),
        entry(0, 0, 9, 0),
        entry(0, 6, 4, 0),
        entry(0x10_0000, 0, 1, 0),
        entry(1, 0, 1, 0),
        entry(0, 0, 0, 0),
        entry(2, 0, 1, 0),
    ];
    bench.client.send(WRITE_MULTI, 0, &multi(&writes), &[]);
    assert_eq!(bench.poll(), Some(Said::Write(0, 1, vec![0])));
    bench.server.answer(Ok(&[]));
    assert_eq!(bench.poll(), Some(Said::Write(0, 2, vec![0])));
    bench.server.answer(Err(Errno::IO));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.client.receive().unwrap().u64(0), 2, "writes that were done");

    // None was: the first error.
    bench.client.send(WRITE_MULTI, 0, &multi(&[entry(0, 6, 4, 0), entry(0, 0, 9, 0)]), &[]);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.client.receive().unwrap().error, EPERM as u32);
    assert_eq!(bench.call(WRITE_MULTI, &multi(&[]), &[]).u64(0), 0);
}

#[test]
fn several_writes_without_a_reply() {
    let mut bench = Bench::new();
    bench.client.send(WRITE_MULTI, NO_REPLY, &multi(&[entry(4, 0, 4, 0)]), &[]);
    bench.client.send(WRITE_MULTI, NO_REPLY, &multi(&[entry(0, 9, 4, 0)]), &[]);
    assert_eq!(bench.poll(), Some(Said::Write(0, 4, vec![0; 4])));
    bench.server.answer(Ok(&[]));
    assert_eq!(bench.poll(), None);
    assert!(bench.client.receive().is_none());
}

#[test]
fn a_number_of_writes_that_is_not_theirs_is_invalid() {
    let mut bench = Bench::new();
    let two = [entry(0, 0, 4, 0), entry(4, 0, 4, 0)].concat();
    for count in [0, 1, 3, u64::MAX, u64::MAX / 24 + 3, 1 << 61] {
        let payload = bytes().u64(count).and(&two).0;
        assert_eq!(bench.errno(WRITE_MULTI, &payload, &[]), EINVAL, "{count}");
    }
    for len in [0, 7, 9, 31] {
        let payload = &bytes().u64(1).and(&two).0[..len];
        assert_eq!(bench.errno(WRITE_MULTI, payload, &[]), EINVAL, "{len}");
    }
}

#[test]
#[should_panic(expected = "no access is in hand")]
fn an_answer_to_nothing() {
    Bench::new().server.answer(Ok(&[]));
}

#[test]
#[should_panic(expected = "bytes of a read")]
fn an_answer_of_another_length() {
    let mut bench = Bench::new();
    bench.client.send(REGION_READ, 0, &access(0, 0, 4, &[]), &[]);
    assert_eq!(bench.poll(), Some(Said::Read(0, 0, 4)));
    bench.server.answer(Ok(&[1, 2]));
}
