//! Echo requests of whoever looks whether the card is there.

use super::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv4Packet, Icmpv4Repr, IpProtocol,
    Ipv4Packet, Ipv4Repr,
};

const ABOVE: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
const CARD: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);

/// An echo request from the manager's machine.
fn request(data: &[u8], dst_addr: Ipv4Address) -> Vec<u8> {
    let echo = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 3, data };
    let (next_header, payload_len) = (IpProtocol::Icmp, echo.buffer_len());
    let ip = Ipv4Repr { src_addr: ABOVE, dst_addr, next_header, payload_len, hop_limit: 64 };
    let ethernet = EthernetRepr {
        src_addr: EthernetAddress([2, 0, 0, 0, 0, 1]),
        dst_addr: EthernetAddress([2, 0, 0, 0, 0, 2]),
        ethertype: EthernetProtocol::Ipv4,
    };
    let length = ethernet.buffer_len() + ip.buffer_len() + payload_len;
    let mut bytes = vec![0; length];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    ethernet.emit(&mut frame);
    let checksums = ChecksumCapabilities::default();
    let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    ip.emit(&mut packet, &checksums);
    echo.emit(&mut Icmpv4Packet::new_unchecked(packet.payload_mut()), &checksums);
    bytes
}

/// What a card answers a frame with.
fn answer(bench: &mut Bench, frame: &[u8]) -> Option<Vec<u8>> {
    bench.manage.handle_frame(frame);
    bench.manage.turn(bench.now, &mut bench.mac);
    bench.manager.mac.receive(|arrived| arrived.bytes.to_vec())
}

/// Data of an echo reply to the manager's machine.
fn replied(frame: &[u8]) -> Vec<u8> {
    let frame = EthernetFrame::new_checked(frame).unwrap();
    assert_eq!(frame.dst_addr(), EthernetAddress([2, 0, 0, 0, 0, 1]));
    let packet = Ipv4Packet::new_checked(frame.payload()).unwrap();
    assert!(packet.verify_checksum());
    assert_eq!((packet.src_addr(), packet.dst_addr()), (CARD, ABOVE));
    let icmp = Icmpv4Packet::new_checked(packet.payload()).unwrap();
    match Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()).unwrap() {
        Icmpv4Repr::EchoReply { ident: 7, seq_no: 3, data } => data.to_vec(),
        other => panic!("no echo reply: {other:?}"),
    }
}

/// As large as an echo request fits a frame.
#[test]
fn an_echo_request_is_answered_and_nothing_else_is() {
    let mut bench = Bench::new();
    assert!(bench.is_greeted());
    while bench.manager.mac.receive(|_| ()).is_some() {}
    for length in [0, 56, 1472] {
        let data: Vec<u8> = (0..length).map(|n| n as u8).collect();
        let reply = answer(&mut bench, &request(&data, CARD)).expect("an answer");
        assert_eq!(replied(&reply), data);
    }
    let elsewhere = request(&[1; 56], Ipv4Address::new(10, 0, 0, 3));
    assert_eq!(answer(&mut bench, &elsewhere), None);
    let mut broken = request(&[1; 56], CARD);
    *broken.last_mut().unwrap() ^= 1;
    assert_eq!(answer(&mut bench, &broken), None, "its checksum is wrong");
    assert_eq!(answer(&mut bench, &request(&[1; 56], CARD)[..40]), None, "it is cut short");
    assert!(answer(&mut bench, &request(&[1; 56], CARD)).is_some());
}
