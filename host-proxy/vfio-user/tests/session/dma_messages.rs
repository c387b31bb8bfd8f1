//! `VFIO_USER_DMA_READ` and `VFIO_USER_DMA_WRITE`: messages to the client.

use crate::bench::{Bench, Said};
use crate::client::*;
use crate::errno::*;
use std::os::unix::net::UnixStream;
use vfio_user_server::{DmaRefused, Errno, Gone};

const REPLY: u32 = 1;
const ERROR: u32 = 0x21;

/// The head of a reply to a DMA message.
fn head(address: u64, count: u64) -> Bytes {
    bytes().u64(address).u64(count)
}

#[test]
fn an_interrupt_as_a_write() {
    let mut bench = Bench::new();
    let token = bench.server.dma_write(0xfee0_1000, &[0x41, 0, 0, 0]).unwrap();
    let got = bench.client.receive().unwrap();
    assert_eq!((got.command, got.flags), (DMA_WRITE, 0));
    assert_eq!(got.payload, head(0xfee0_1000, 4).and(&[0x41, 0, 0, 0]).0);
    assert_eq!(bench.poll(), None);
    // QEMU's reply has no payload.
    bench.client.send_raw(&message(got.id, DMA_WRITE, REPLY, &[]), &[]);
    assert_eq!(bench.poll(), Some(Said::DmaDone(token, Ok(vec![]))));
}

#[test]
fn a_read() {
    let mut bench = Bench::new();
    let token = bench.server.dma_read(0x1234, 5).unwrap();
    let got = bench.client.receive().unwrap();
    assert_eq!((got.command, got.flags, &got.payload), (DMA_READ, 0, &head(0x1234, 5).0));
    let reply = head(0x1234, 5).and(b"hello").0;
    bench.client.send_raw(&message(got.id, DMA_READ, REPLY, &reply), &[]);
    assert_eq!(bench.poll(), Some(Said::DmaDone(token, Ok(b"hello".to_vec()))));
}

#[test]
fn replies_in_any_order_and_with_errors() {
    let mut bench = Bench::new();
    let tokens: Vec<_> = (0..4).map(|n| bench.server.dma_read(n << 12, 1).unwrap()).collect();
    let ids: Vec<u16> = (0..4).map(|_| bench.client.receive().unwrap().id).collect();
    // 14: EFAULT, of a client that says so; 0 and what is no errno are EIO.
    for (which, errno, seen) in [(2, 14, 14), (0, 0, EIO), (3, u32::MAX, EIO)] {
        let mut reply = message(ids[which], DMA_READ, ERROR, &[]);
        reply[12..16].copy_from_slice(&u32::to_ne_bytes(errno));
        bench.client.send_raw(&reply, &[]);
        let errno = Errno::from_raw_os_error(seen);
        assert_eq!(bench.poll(), Some(Said::DmaDone(tokens[which], Err(errno))));
    }
    bench.client.send_raw(&message(ids[1], DMA_READ, REPLY, &head(1 << 12, 1).and(&[7]).0), &[]);
    assert_eq!(bench.poll(), Some(Said::DmaDone(tokens[1], Ok(vec![7]))));
}

#[test]
fn replies_that_are_none() {
    let mut bench = Bench::new();
    let protocol = Err(Errno::from_raw_os_error(EPROTO));
    for reply in [
        vec![],
        head(0x1000, 4).0,
        head(0x1000, 4).and(&[1, 2, 3]).0,
        head(0x1000, 4).and(&[1, 2, 3, 4, 5]).0,
        head(0x1001, 4).and(&[1, 2, 3, 4]).0,
        head(0x1000, 3).and(&[1, 2, 3]).0,
        head(0x1000, u64::MAX).and(&[1, 2, 3, 4]).0,
    ] {
        let token = bench.server.dma_read(0x1000, 4).unwrap();
        let id = bench.client.receive().unwrap().id;
        bench.client.send_raw(&message(id, DMA_READ, REPLY, &reply), &[]);
        assert_eq!(bench.poll(), Some(Said::DmaDone(token, protocol.clone())), "{reply:?}");
    }
    for (reply, right) in [
        // As the specification has it, and libvfio-user.
        (bytes().u64(0x1000).u32(4).0, true),
        (head(0x1000, 4).0, true),
        (bytes().u64(0x1000).u32(3).0, false),
        (head(0x1008, 4).0, false),
        (vec![0; 8], false),
        (vec![0; 20], false),
    ] {
        let token = bench.server.dma_write(0x1000, &[0; 4]).unwrap();
        let id = bench.client.receive().unwrap().id;
        bench.client.send_raw(&message(id, DMA_WRITE, REPLY, &reply), &[]);
        let result = if right { Ok(vec![]) } else { protocol.clone() };
        assert_eq!(bench.poll(), Some(Said::DmaDone(token, result)), "{reply:?}");
    }
}

#[test]
fn replies_to_nothing_are_passed_over() {
    let mut bench = Bench::new();
    bench.client.send_raw(&message(0, DMA_READ, REPLY, &[0; 20]), &[]);
    assert_eq!(bench.poll(), None, "nothing was asked yet");
    let token = bench.server.dma_read(0, 1).unwrap();
    let id = bench.client.receive().unwrap().id;
    let right = head(0, 1).and(&[1]).0;
    // Another ID, another command, and twice.
    bench.client.send_raw(&message(id ^ 1, DMA_READ, REPLY, &right), &[]);
    bench.client.send_raw(&message(id, DMA_WRITE, REPLY, &[]), &[]);
    bench.client.send_raw(&message(id, REGION_READ, REPLY, &right), &[]);
    assert_eq!(bench.poll(), None);
    bench.client.send_raw(&message(id, DMA_READ, REPLY, &right), &[]);
    bench.client.send_raw(&message(id, DMA_READ, REPLY, &right), &[]);
    assert_eq!(bench.poll(), Some(Said::DmaDone(token, Ok(vec![1]))));
    assert_eq!(bench.poll(), None);
    assert!(bench.server.counters().contains(&("vfio-user: replies to nothing", 5)));
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0);
}

/// QEMU may need the reply to go on with the access that waits for it.
#[test]
fn replies_are_taken_while_an_access_is_in_hand() {
    let mut bench = Bench::new();
    bench.client.send(REGION_READ, 0, &access(0, 0, 1, &[]), &[]);
    bench.client.send(RESET, 0, &[], &[]);
    assert_eq!(bench.poll(), Some(Said::Read(0, 0, 1)));
    let token = bench.server.dma_read(0, 1).unwrap();
    let id = bench.client.receive().unwrap().id;
    bench.client.send_raw(&message(id, DMA_READ, REPLY, &head(0, 1).and(&[9]).0), &[]);
    assert_eq!(bench.poll(), Some(Said::DmaDone(token, Ok(vec![9]))));
    assert_eq!(bench.poll(), None);
    bench.server.answer(Ok(&[1]));
    assert_eq!(bench.poll(), Some(Said::Reset));
}

#[test]
fn messages_are_refused() {
    let mut bench = Bench::connected();
    assert_eq!(bench.server.dma_write(0, &[1]), Err(DmaRefused::NotConnected), "no version yet");
    bench.greet(r#"{"capabilities":{"max_data_xfer_size":100}}"#);
    let most = 96 * 64;
    assert_eq!(bench.server.dma_write(0, &[0; 6145]), Err(DmaRefused::TooLong { most }));
    assert_eq!(bench.server.dma_read(0, 6145), Err(DmaRefused::TooLong { most }));
    bench.server.dma_read(0, 100).unwrap();
    for _ in 1..256 {
        bench.server.dma_write(0, &[0; 4]).unwrap();
    }
    assert_eq!(bench.server.dma_write(0, &[0; 4]), Err(DmaRefused::Busy));
    let first = bench.client.receive().unwrap();
    bench.client.send_raw(&message(first.id, DMA_READ, ERROR, &[]), &[]);
    assert!(matches!(bench.poll(), Some(Said::DmaDone(_, Err(_)))));
    bench.server.dma_write(0, &[0; 4]).unwrap();

    bench.reconnect();
    assert_eq!(bench.server.dma_write(0, &[1]), Err(DmaRefused::NotConnected));
    // Without a limit of the client's there is the protocol's.
    bench.greet("{}");
    assert_eq!(bench.server.dma_read(0, 1 << 21), Err(DmaRefused::TooLong { most: 1 << 20 }));
}

/// Each message of an access, in the order in which they came.
fn messages(bench: &mut Bench) -> Vec<Got> {
    std::iter::from_fn(|| bench.client.receive()).collect()
}

#[test]
fn what_is_longer_than_the_client_takes_is_several_messages() {
    let data: Vec<u8> = (0..=255).cycle().take(512).collect();
    for (limit, address, wanted) in [
        (512, 0x1004, &[512][..]),
        (511, 0x1000, &[504, 8][..]),
        (200, 0x1004, &[196, 200, 116][..]),
        (64, 0xffff_ffff_ffff_fe00, &[64; 8][..]),
    ] {
        let mut bench = Bench::connected();
        bench.greet(&format!(r#"{{"capabilities":{{"max_data_xfer_size":{limit}}}}}"#));
        let token = bench.server.dma_write(address, &data).unwrap();
        let got = messages(&mut bench);
        assert!(got.iter().all(|got| got.command == DMA_WRITE), "{limit}");
        let counts: Vec<u64> = got.iter().map(|got| got.u64(8)).collect();
        assert_eq!(counts, wanted, "{limit}");
        let mut at = 0;
        for (left, got) in got.iter().enumerate().map(|(n, got)| (wanted.len() - n - 1, got)) {
            assert_eq!(got.u64(0), address + at as u64);
            assert_eq!(got.payload[16..], data[at..at + got.u64(8) as usize]);
            at += got.u64(8) as usize;
            bench.client.send_raw(&message(got.id, DMA_WRITE, REPLY, &[]), &[]);
            let done = (left == 0).then_some(Said::DmaDone(token, Ok(vec![])));
            assert_eq!(bench.poll(), done);
        }

        let token = bench.server.dma_read(address, 512).unwrap();
        let got = messages(&mut bench);
        assert!(got.iter().all(|got| got.command == DMA_READ), "{limit}");
        let counts: Vec<u64> = got.iter().map(|got| got.u64(8)).collect();
        assert_eq!(counts, wanted, "{limit}");
        // The answers need not come in order.
        for (left, got) in got.iter().enumerate().rev() {
            let at = (got.u64(0) - address) as usize;
            let reply = [&got.payload[..16], &data[at..at + got.u64(8) as usize]].concat();
            bench.client.send_raw(&message(got.id, DMA_READ, REPLY, &reply), &[]);
            let done = (left == 0).then_some(Said::DmaDone(token, Ok(data.clone())));
            assert_eq!(bench.poll(), done);
        }
        assert!(bench.server.counters().contains(&("vfio-user: replies to nothing", 0)));
    }
}

#[test]
fn an_access_of_which_a_piece_fails_fails_once() {
    let mut bench = Bench::connected();
    bench.greet(r#"{"capabilities":{"max_data_xfer_size":64}}"#);
    for failing in 0..3 {
        let token = bench.server.dma_read(0x1000, 192).unwrap();
        let other = bench.server.dma_read(0x2000, 64).unwrap();
        let got = messages(&mut bench);
        assert_eq!(got.len(), 4, "three pieces and another access");
        for (n, got) in got.iter().enumerate() {
            let reply = [&got.payload[..], &[n as u8; 64]].concat();
            let mut reply = message(got.id, DMA_READ, REPLY, &reply);
            if n == failing {
                reply = message(got.id, DMA_READ, ERROR, &[]);
                reply[12..16].copy_from_slice(&14_u32.to_ne_bytes());
            }
            bench.client.send_raw(&reply, &[]);
            let error = Err(Errno::from_raw_os_error(14));
            let done = match n {
                2 => Some(Said::DmaDone(token, error)),
                3 => Some(Said::DmaDone(other, Ok(vec![3; 64]))),
                _ => None,
            };
            assert_eq!(bench.poll(), done);
        }
    }
}

#[test]
fn no_token_is_used_twice_and_none_outlives_its_client() {
    let mut bench = Bench::new();
    let before = bench.server.dma_write(0, &[1]).unwrap();
    let id = bench.client.receive().unwrap().id;
    bench.reconnect();
    bench.greet(QEMU_CAPABILITIES);
    bench.client.send_raw(&message(id, DMA_WRITE, REPLY, &[]), &[]);
    assert_eq!(bench.poll(), None);
    assert!(bench.server.dma_write(0, &[1]).unwrap() > before);
}

const TWIN: &str = r#"{"capabilities":{"max_msg_fds":8,"twin_socket":{"supported":true}}}"#;

fn twin(bench: &mut Bench) -> UnixStream {
    bench.greet(TWIN).fds.pop().unwrap().into()
}

#[test]
fn a_socket_of_its_own_for_the_servers_messages() {
    let mut bench = Bench::connected();
    let twin = twin(&mut bench);
    assert_eq!(bench.server.waits_on().count(), 2);
    let token = bench.server.dma_read(0x10, 2).unwrap();
    assert!(bench.client.receive().is_none());
    let got = receive(&twin).unwrap();
    assert_eq!((got.command, &got.payload), (DMA_READ, &head(0x10, 2).0));
    let reply = message(got.id, DMA_READ, REPLY, &head(0x10, 2).and(&[1, 2]).0);
    // On the other socket it is no reply.
    bench.client.send_raw(&reply, &[]);
    assert_eq!(bench.poll(), None);
    send_raw(&twin, &reply, &[]);
    assert_eq!(bench.poll(), Some(Said::DmaDone(token, Ok(vec![1, 2]))));
    // And requests have no business here.
    send_raw(&twin, &message(7, GET_INFO, 0, &info(0)), &[]);
    send_raw(&twin, &message(8, REGION_WRITE, NO_REPLY, &access(0, 0, 1, &[1])), &[]);
    assert_eq!(bench.poll(), None);
    let got = receive(&twin).unwrap();
    assert_eq!((got.id, got.error), (7, EINVAL as u32));
    assert!(receive(&twin).is_none());
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0);
}

#[test]
fn the_twin_is_closed_or_broken() {
    let mut bench = Bench::connected();
    drop(twin(&mut bench));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.server.dma_write(0, &[1]), Err(DmaRefused::NotConnected));
    assert_eq!(bench.server.waits_on().count(), 1);
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0, "the client does without");

    // What it has not answered ends, also if it is in pieces.
    bench.reconnect();
    let small = TWIN.replace("{\"max_msg", "{\"max_data_xfer_size\":64,\"max_msg");
    let socket = UnixStream::from(bench.greet(&small).fds.pop().unwrap());
    let asked = [bench.server.dma_write(0, &[1]), bench.server.dma_read(0, 100)];
    let (answered, asked) = (bench.server.dma_read(8, 1).unwrap(), asked.map(Result::unwrap));
    let id = std::iter::from_fn(|| receive(&socket)).last().unwrap().id;
    send_raw(&socket, &message(id, DMA_READ, REPLY, &head(8, 1).and(&[3]).0), &[]);
    drop(socket);
    assert_eq!(bench.poll(), Some(Said::DmaDone(answered, Ok(vec![3]))));
    for token in asked {
        assert_eq!(bench.poll(), Some(Said::DmaDone(token, Err(Errno::PIPE))));
    }
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.server.waits_on().count(), 1);
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0);

    bench.reconnect();
    let socket = twin(&mut bench);
    let mut broken = message(1, DMA_READ, REPLY, &[]);
    broken[4..8].copy_from_slice(&15_u32.to_ne_bytes());
    send_raw(&socket, &broken, &[]);
    assert_eq!(bench.poll(), Some(Said::Disconnected(Gone::BadSize(15))));
    assert!(bench.client.is_closed());
}
