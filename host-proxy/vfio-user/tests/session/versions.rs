//! `VFIO_USER_VERSION`.

use crate::bench::{Bench, Said};
use crate::client::*;
use crate::errno::*;
use std::os::fd::AsFd;
use vfio_user_server::Gone;

/// The JSON of a reply.
fn json(payload: &[u8]) -> &str {
    let (nul, json) = payload[4..].split_last().unwrap();
    assert_eq!(*nul, 0);
    std::str::from_utf8(json).unwrap()
}

#[test]
fn qemu_is_answered_in_no_more_bytes_than_it_has_room_for() {
    let mut bench = Bench::connected();
    assert!(bench.server.is_connected() && !bench.server.is_negotiated());
    let got = bench.greet(QEMU_CAPABILITIES);
    assert!(bench.server.is_negotiated());
    assert!(got.payload.len() <= version(0, 0, QEMU_CAPABILITIES).len());
    assert_eq!(&got.payload[..4], &[0, 0, 0, 0]);
    assert_eq!(
        json(&got.payload),
        r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"max_dma_maps":1024,"pgsizes":4096,"write_multiple":true}}"#
    );
}

#[test]
fn the_minor_version_is_the_smaller_one() {
    for (proposed, agreed) in [(0, 0), (1, 1), (2, 1), (0xffff, 1)] {
        let mut bench = Bench::connected();
        let got = bench.call(VERSION, &version(0, proposed, "{}"), &[]);
        assert_eq!((got.error, got.u32(0)), (0, agreed << 16));
    }
}

#[test]
fn another_major_version_is_told_so_and_let_go() {
    let mut bench = Bench::connected();
    bench.client.send(VERSION, 0, &version(1, 0, "{}"), &[]);
    assert_eq!(bench.poll(), Some(Said::Disconnected(Gone::Version)));
    assert_eq!(bench.client.receive().unwrap().error, EINVAL as u32);
    assert!(bench.client.is_closed());
}

#[test]
fn only_what_was_proposed_is_answered() {
    for (proposed, answered) in [
        (r#"{}"#, None),
        (r#"{"capabilities":{}}"#, Some(r#"{"capabilities":{}}"#)),
        (r#"{"capabilities":{"color":"red"},"x":[1,{"y":null}]}"#, Some(r#"{"capabilities":{}}"#)),
        (r#"{"capabilities":{"max_msg_fds":1}}"#, Some(r#"{"capabilities":{"max_msg_fds":16}}"#)),
        (r#"{"capabilities":{"write_multiple":false}}"#, Some(r#"{"capabilities":{}}"#)),
        (r#"{"capabilities":{"max_dma_maps":8}}"#, Some(r#"{"capabilities":{"max_dma_maps":8}}"#)),
        (r#"{"capabilities":{"twin_socket":{}}}"#, Some(r#"{"capabilities":{}}"#)),
        (
            r#"{"capabilities":{"twin_socket":{"supported":true}}}"#,
            Some(r#"{"capabilities":{"twin_socket":{"supported":true,"fd_index":0}}}"#),
        ),
        (
            r#"{"capabilities":{"max_msg_fds":0,"twin_socket":{"supported":true}}}"#,
            Some(r#"{"capabilities":{"max_msg_fds":16}}"#),
        ),
    ] {
        let mut bench = Bench::connected();
        let got = bench.greet(proposed);
        match answered {
            Some(answered) => assert_eq!(json(&got.payload), answered, "{proposed}"),
            None => assert_eq!(got.payload.len(), 4, "{proposed}"),
        }
        let twin = answered.is_some_and(|answered| answered.contains("twin"));
        assert_eq!(got.fds.len(), usize::from(twin), "{proposed}");
    }
}

#[test]
fn a_version_without_data_is_one() {
    let mut bench = Bench::connected();
    let got = bench.call(VERSION, &[0, 0, 1, 0], &[]);
    assert_eq!((got.error, &got.payload[..]), (0, &[0, 0, 1, 0][..]));
    // Such a client sends one file descriptor at a time.
    let fds = [eventfd(), eventfd()];
    let two = set_irqs(0x24, 2, 0, 2, &[]);
    assert_eq!(bench.errno(SET_IRQS, &two, &borrowed(&fds)), EINVAL);
    assert_eq!(bench.errno(SET_IRQS, &set_irqs(0x24, 2, 0, 1, &[]), &borrowed(&fds[..1])), 0);
}

#[test]
fn what_is_malformed_is_refused_and_can_be_tried_again() {
    let deep = format!("{}{}", "[".repeat(4000), "]".repeat(4000));
    let capability = |capability: &str| format!("{{\"capabilities\":{{{capability}}}}}");
    let malformed = [
        vec![],
        vec![0, 0, 0],
        // No NUL at the end.
        version(0, 0, "{}")[..6].to_vec(),
        version(0, 0, ""),
        version(0, 0, "{"),
        version(0, 0, "[]"),
        version(0, 0, "{}x"),
        version(0, 0, "{}\0"),
        version(0, 0, &deep),
        version(0, 0, "{\"capabilities\":[]}"),
        version(0, 0, &capability("\"max_msg_fds\":-1")),
        version(0, 0, &capability("\"max_msg_fds\":1.5")),
        version(0, 0, &capability("\"max_msg_fds\":\"many\"")),
        version(0, 0, &capability("\"max_data_xfer_size\":18446744073709551616")),
        // Less than a DMA message may well be.
        version(0, 0, &capability("\"max_data_xfer_size\":0")),
        version(0, 0, &capability("\"max_data_xfer_size\":63")),
        version(0, 0, &capability("\"max_dma_maps\":true")),
        version(0, 0, &capability("\"pgsizes\":{}")),
        version(0, 0, &capability("\"write_multiple\":1")),
        version(0, 0, &capability("\"twin_socket\":true")),
        version(0, 0, &capability("\"twin_socket\":{\"supported\":\"yes\"}")),
        [&[0, 0, 0, 0][..], &[0xff; 40], &[0]].concat(),
    ];
    let mut bench = Bench::connected();
    for payload in malformed {
        let shown = String::from_utf8_lossy(&payload).into_owned();
        assert_eq!(bench.errno(VERSION, &payload, &[]), EINVAL, "{shown}");
        assert!(!bench.server.is_negotiated());
    }
    bench.greet(QEMU_CAPABILITIES);
}

#[test]
fn nothing_comes_before_the_version_and_no_second_one_after_it() {
    let mut bench = Bench::connected();
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), EINVAL);
    let ram = sealed_memfd(0x1000);
    assert_eq!(bench.errno(DMA_MAP, &dma_map(3, 0, 0, 0x1000), &[ram.as_fd()]), EINVAL);
    assert_eq!(bench.server.memory().maps(), 0);
    assert_eq!(bench.errno(RESET, &[], &[]), EINVAL);
    assert_eq!(bench.errno(VERSION, &version(0, 0, "{}"), &[ram.as_fd()]), EINVAL, "with a file");
    bench.greet(QEMU_CAPABILITIES);
    assert_eq!(bench.errno(VERSION, &version(0, 0, QEMU_CAPABILITIES), &[]), EINVAL);
    assert_eq!(bench.errno(GET_INFO, &info(0), &[]), 0);
}

#[test]
fn a_version_without_a_reply_is_agreed_on() {
    let mut bench = Bench::connected();
    let twin = r#"{"capabilities":{"twin_socket":{"supported":true}}}"#;
    bench.client.send(VERSION, NO_REPLY, &version(0, 0, twin), &[]);
    assert_eq!(bench.poll(), None);
    assert!(bench.client.receive().is_none());
    assert!(bench.server.is_negotiated());
    // There is no way to hand over a socket, so that messages come on this one.
    bench.server.dma_write(0, &[1]).unwrap();
    assert_eq!(bench.client.receive().unwrap().command, DMA_WRITE);
}
