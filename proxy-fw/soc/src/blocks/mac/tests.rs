use super::*;
use crate::blocks::testing::{Hardware, Memory, Words};
use std::vec::Vec;

const FABRIC: &str = "mac[0].receive_fabric";
const OTHER: &str = "mac[0].receive_other";
const TRANSMIT: &str = "mac[0].transmit";
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

type Port<'a> = MacPort<&'a Hardware, Words<'a>, Memory<'a>>;

fn port(hardware: &Hardware) -> Port<'_> {
    let rings = MacRings {
        fabric: hardware.ring(0x1000, 3),
        other: hardware.ring(0x2000, 2),
        transmit: hardware.ring(0x3000, 2),
    };
    let block = hardware.card().mac(0).unwrap();
    MacPort::new(block, rings, hardware.memory(8 + 4 + 3, 1518), OWN, 1518)
}

/// A frame comes; false: there is no buffer for it.
fn comes(hardware: &Hardware, queue: &str, length: u16, mark: u8) -> bool {
    hardware.carry_out(queue, |lengths, status, bytes| {
        assert_eq!(*lengths >> 16, 1518, "it has room for a frame");
        *lengths = *lengths & !0xffff | u32::from(length);
        *status = Status::from_bits(*status).with_congestion_experienced(mark == 7).bits();
        bytes.fill(mark);
    })
}

fn next(port: &mut Port<'_>) -> Option<(u8, usize, bool)> {
    port.receive(|arrived| (arrived.bytes[0], arrived.bytes.len(), arrived.marked))
}

#[test]
fn the_block_is_told_who_the_port_is() {
    let hardware = Hardware::new();
    let mut port = port(&hardware);
    assert_eq!(hardware.get("mac[0].address_low"), 0x0000_0002);
    assert_eq!(hardware.get("mac[0].address_high"), 0x0100);
    assert_eq!(hardware.get("mac[0].max_frame"), 1518);
    assert_eq!(hardware.get("mac[0].fabric"), u32::from(ETHERTYPE));
    assert_eq!(hardware.get("mac[0].control"), 0b111, "it receives, sends, and hears broadcasts");
    assert_eq!((hardware.level(FABRIC), hardware.level(OTHER)), (8, 4));
    assert!(!port.link_is_up());
    hardware.set("mac[0].link", 1);
    assert!(port.link_is_up());
}

#[test]
fn both_queues_are_asked_in_turn_and_get_their_buffers_back() {
    let hardware = Hardware::new();
    let mut port = port(&hardware);
    for round in 0..100 {
        for mark in [1, 2, 3] {
            assert!(comes(&hardware, FABRIC, 100, mark), "round {round}");
        }
        for mark in [7, 8] {
            assert!(comes(&hardware, OTHER, 60, mark), "round {round}");
        }
        let got: Vec<_> = core::iter::from_fn(|| next(&mut port)).collect();
        let fabric = |mark| (mark, 100, false);
        let expected = [fabric(1), (7, 60, true), fabric(2), (8, 60, false), fabric(3)];
        // Who was last is asked last.
        let begin = got[0].0;
        assert!(begin == 1 || begin == 7, "round {round}: {got:?}");
        let mut sorted = got.clone();
        sorted.sort_by_key(|(mark, ..)| *mark);
        let mut all = expected.to_vec();
        all.sort_by_key(|(mark, ..)| *mark);
        assert_eq!(sorted, all);
        assert!(got.iter().position(|(mark, ..)| *mark == 8) < Some(4), "it did not wait for all");
    }
    assert_eq!(EthernetMac::counters(&port).received, 500);
    assert_eq!((hardware.level(FABRIC), hardware.level(OTHER)), (8, 4));
}

#[test]
fn a_block_that_lies_about_lengths_is_survived() {
    let hardware = Hardware::new();
    let mut port = port(&hardware);
    for length in [0, 13, 1519, u16::MAX] {
        assert!(comes(&hardware, FABRIC, length, 1));
    }
    assert!(comes(&hardware, FABRIC, 14, 2));
    assert_eq!(next(&mut port), Some((2, 14, false)));
    assert_eq!(next(&mut port), None);
    let counters = EthernetMac::counters(&port);
    assert_eq!((counters.damaged, counters.received), (4, 1));
    assert_eq!(hardware.level(FABRIC), 8, "no buffer is lost");
}

#[test]
fn frames_are_sent_as_they_were_written_until_there_is_no_room() {
    let hardware = Hardware::new();
    let mut port = port(&hardware);
    for mark in 0..3 {
        let said = port.transmit(1518, |room| {
            room[..64].fill(mark);
            (64, mark)
        });
        assert_eq!(said, Some(mark));
    }
    // There are three buffers for four descriptors.
    assert!(!port.can_transmit());
    assert_eq!(port.transmit(64, |_| -> (usize, ()) { panic!("there is no room") }), None);
    let mut sent = Vec::new();
    while hardware.carry_out(TRANSMIT, |length, status, bytes| {
        sent.push((*length, bytes[63]));
        *status = Status::from_bits(*status).with_aborted(bytes[0] == 1).bits();
    }) {}
    assert_eq!(sent, [(64, 0), (64, 1), (64, 2)]);
    assert!(port.can_transmit());
    assert_eq!(port.transmit(64, |_| (0, ())), Some(()), "nothing is to be sent");
    assert_eq!(hardware.level(TRANSMIT), 0);
    let counters = EthernetMac::counters(&port);
    assert_eq!((counters.sent, counters.full), (2, 1));
    assert_eq!(port.further_counters()[0].1, 1, "the link was down for one");
}

#[test]
fn the_blocks_counts_go_on_beyond_32_bits() {
    let hardware = Hardware::new();
    let port = port(&hardware);
    hardware.set("mac[0].dropped_fabric", u32::MAX);
    hardware.set("mac[0].dropped_other", 2);
    hardware.set("mac[0].receive_errors", 3);
    hardware.set("mac[0].receive_lengths", 4);
    assert_eq!(EthernetMac::counters(&port).dropped, u64::from(u32::MAX) + 2);
    hardware.set("mac[0].dropped_fabric", 5);
    let counters = EthernetMac::counters(&port);
    assert_eq!((counters.dropped, counters.damaged), ((1 << 32) + 5 + 2, 7));
}

#[test]
fn queues_that_stopped_begin_anew() {
    let hardware = Hardware::new();
    let mut port = port(&hardware);
    for mark in 0..3 {
        port.transmit(64, |room| {
            room.fill(mark);
            (64, ())
        });
    }
    assert!(comes(&hardware, FABRIC, 60, 1));
    hardware.fail(FABRIC);
    hardware.fail(TRANSMIT);
    assert!(!comes(&hardware, FABRIC, 60, 2));
    assert!(port.recover());
    assert_eq!(hardware.level(FABRIC), 8);
    assert!(comes(&hardware, FABRIC, 60, 3));
    assert_eq!(next(&mut port), Some((3, 60, false)));
    let mut sent = Vec::new();
    while hardware.carry_out(TRANSMIT, |_, _, bytes| sent.push(bytes[0])) {}
    assert_eq!(sent, [1, 2], "the one that it was at is lost");
    assert!(port.can_transmit());
    assert_eq!(port.further_counters().map(|(_, count)| count), [1, 2]);
    assert_eq!(EthernetMac::counters(&port).damaged, 1);
}
