//! Leases of servers that are not to be trusted.

use super::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpPacket, DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetFrame, EthernetProtocol,
    IpProtocol, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

const LEASE: Duration = Duration::from_secs(60);

/// A DHCP server.
struct Server {
    /// Where its packets say that they come from.
    source: Ipv4Address,
    /// One after the other, what it prefers first.
    routers: Vec<u8>,
    /// What the card asked it for.
    asked: Vec<DhcpMessageType>,
    /// Whose MAC address the card wanted last.
    sought: Option<[u8; 4]>,
}

impl Server {
    fn answer(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let header = EthernetFrame::new_checked(frame).unwrap();
        if header.ethertype() == EthernetProtocol::Arp {
            let sought = ArpPacket::new_checked(header.payload()).unwrap();
            self.sought = sought.target_protocol_addr().first_chunk().copied();
            return None;
        }
        let ip = Ipv4Packet::new_checked(header.payload()).ok()?;
        if ip.next_header() != IpProtocol::Udp {
            return None;
        }
        let udp = UdpPacket::new_checked(ip.payload()).unwrap();
        let asked = DhcpPacket::new_checked(udp.payload()).unwrap();
        let asked = DhcpRepr::parse(&asked).unwrap();
        self.asked.push(asked.message_type);
        let message_type = match asked.message_type {
            DhcpMessageType::Discover => DhcpMessageType::Offer,
            _ => DhcpMessageType::Ack,
        };
        let server = Ipv4Address::new(10, 0, 0, 1);
        let answer = DhcpRepr {
            message_type,
            your_ip: Ipv4Address::new(10, 0, 0, 2),
            server_ip: server,
            router: None,
            subnet_mask: Some(Ipv4Address::new(255, 255, 255, 0)),
            requested_ip: None,
            client_identifier: None,
            server_identifier: Some(server),
            parameter_request_list: None,
            max_size: None,
            lease_duration: Some(LEASE.as_secs() as u32),
            additional_options: &[DhcpOption { kind: ROUTERS, data: &self.routers }],
            ..asked
        };
        let (ports, to) = (UdpRepr { src_port: 67, dst_port: 68 }, Ipv4Address::BROADCAST);
        let ip = Ipv4Repr {
            src_addr: self.source,
            dst_addr: to,
            next_header: IpProtocol::Udp,
            payload_len: ports.header_len() + answer.buffer_len(),
            hop_limit: 64,
        };
        let mut bytes = vec![0; 14 + ip.buffer_len() + ip.payload_len];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
        frame.set_dst_addr(EthernetAddress::BROADCAST);
        frame.set_src_addr(EthernetAddress([2, 0, 0, 0, 0, 1]));
        frame.set_ethertype(EthernetProtocol::Ipv4);
        let checksums = ChecksumCapabilities::default();
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, &checksums);
        ports.emit(
            &mut UdpPacket::new_unchecked(packet.payload_mut()),
            &self.source.into(),
            &to.into(),
            answer.buffer_len(),
            |room| answer.emit(&mut DhcpPacket::new_unchecked(room)).unwrap(),
            &checksums,
        );
        Some(bytes)
    }
}

/// A card whose manager is in another subnet, for so long. Its address at the end, and what the server
/// saw of it.
fn served(source: [u8; 4], routers: &[u8], time: Duration) -> (Option<Ipv4Address>, Server) {
    let (mut wire, mut mac) = WireMac::pair(1, 2, 64);
    let (routers, asked) = (routers.to_vec(), Vec::new());
    let mut server = Server { source: source.into(), routers, asked, sought: None };
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let end = now + time;
    let config = ManagementConfig {
        addressing: Addressing::Dhcp,
        manager: ([192, 0, 2, 1], 7781),
        ..at_fixed_address()
    };
    let mut manage = Management::new(now, &mut mac, config);
    while now < end {
        manage.turn(now, &mut mac);
        while let Some(frame) = wire.receive(|arrived| arrived.bytes.to_vec()) {
            if let Some(answer) = server.answer(&frame) {
                manage.handle_frame(&answer);
                manage.turn(now, &mut mac);
            }
        }
        now = now + Duration::from_millis(50);
    }
    (manage.interface.ipv4_addr(), server)
}

#[test]
fn a_router_that_is_no_host_is_not_used() {
    let server = [10, 0, 0, 1];
    for router in [[0; 4], [255; 4], [224, 0, 0, 1], server] {
        let (address, _) = served(server, &router, Duration::from_secs(20));
        assert_eq!(address, Some(Ipv4Address::new(10, 0, 0, 2)), "{router:?}");
    }
}

#[test]
fn the_manager_is_reached_by_the_first_of_several_routers() {
    for routers in [&[10, 0, 0, 7][..], &[10, 0, 0, 7, 10, 0, 0, 8], &[10, 0, 0, 7, 1]] {
        let (_, server) = served([10, 0, 0, 1], routers, Duration::from_secs(20));
        assert_eq!(server.sought, Some([10, 0, 0, 7]), "{routers:?}");
    }
    let (address, server) = served([10, 0, 0, 1], &[10, 0], Duration::from_secs(20));
    assert_eq!(address, Some(Ipv4Address::new(10, 0, 0, 2)));
    assert_eq!(server.sought, None, "there is no way to the manager");
}

/// Who sent it could not be asked to renew it.
#[test]
fn a_lease_from_nowhere_is_not_taken() {
    let (address, Server { asked, .. }) = served([0; 4], &[10, 0, 0, 1], LEASE);
    assert_eq!(address, None);
    assert!(asked.len() < 100, "asked {} times", asked.len());
    let (address, Server { asked, .. }) = served([10, 0, 0, 1], &[10, 0, 0, 1], LEASE * 3);
    assert_eq!(address, Some(Ipv4Address::new(10, 0, 0, 2)));
    let renewals = asked.iter().filter(|asked| **asked == DhcpMessageType::Request).count();
    assert!((2..20).contains(&renewals), "{renewals} requests");
}
