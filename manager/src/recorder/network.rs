//! The headers in front of a frame on its network, made from what the manager knows of both ends.

use etherparse::PacketBuilder;
use proxy_core::control::PathAddress;
use tlp_codec::fabric::ETHERTYPE;
use tlp_codec::ids::{NodeId, PathId};

/// One end of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) node: NodeId,
    pub(super) address: Option<PathAddress>,
}

/// A locally administered MAC address that says node and path, where the real one is not known.
fn mac(node: NodeId, path: PathId) -> [u8; 6] {
    let [high, low] = node.get().to_be_bytes();
    [0x02, 0xd0, 0xac, path.get(), high, low]
}

/// The headers of a frame of so many bytes from one end to the other. In raw Ethernet they are
/// those of the wire. In UDP, addresses, ports and lengths are; the Ethernet header around them is
/// made up from node and path, and fields that the sender's system chose have usual values. The
/// UDP checksum is 0 (none), because the payload may be cut.
pub(super) fn headers(from: End, to: End, path: PathId, length: usize) -> Vec<u8> {
    let macs = (mac(from.node, path), mac(to.node, path));
    let udp_header = |builder: etherparse::PacketBuilderStep<etherparse::IpHeaders>,
                      ports: (u16, u16)| {
        let payload = vec![0; length];
        let builder = builder.udp(ports.0, ports.1);
        let mut packet = Vec::with_capacity(builder.size(length));
        builder.write(&mut packet, &payload).expect("a frame fits a datagram");
        packet.truncate(packet.len() - length);
        let checksum = packet.len() - 2;
        packet[checksum..].fill(0);
        packet
    };
    let (source, destination) = (from.address, to.address);
    match (source, destination) {
        (
            Some(PathAddress::Udp4 { ip: source, port: source_port }),
            Some(PathAddress::Udp4 { ip: destination, port }),
        ) => {
            let ethernet = PacketBuilder::ethernet2(macs.0, macs.1);
            udp_header(ethernet.ipv4(source, destination, 64), (source_port, port))
        }
        (
            Some(PathAddress::Udp6 { ip: source, port: source_port }),
            Some(PathAddress::Udp6 { ip: destination, port }),
        ) => {
            let ethernet = PacketBuilder::ethernet2(macs.0, macs.1);
            udp_header(ethernet.ipv6(source, destination, 64), (source_port, port))
        }
        _ => {
            let real = |address| match address {
                Some(PathAddress::Ethernet { mac, vlan }) => Some((mac, vlan)),
                _ => None,
            };
            let (destination, vlan) = real(destination).unwrap_or((macs.1, None));
            let source = real(source).map_or(macs.0, |(mac, _)| mac);
            let mut header = [destination, source].concat();
            if let Some(vlan) = vlan {
                header.extend_from_slice(&0x8100_u16.to_be_bytes());
                header.extend_from_slice(&vlan.to_be_bytes());
            }
            header.extend_from_slice(&ETHERTYPE.to_be_bytes());
            header
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::SlicedPacket;

    fn end(node: u16, address: Option<PathAddress>) -> End {
        End { node: NodeId::new(node).unwrap(), address }
    }

    #[test]
    fn ethernet_has_the_addresses_of_both_ends() {
        let address = |last, vlan| Some(PathAddress::Ethernet { mac: [2, 0, 0, 0, 0, last], vlan });
        let (from, to) = (end(1, address(7, Some(5))), end(2, address(9, Some(5))));
        let header = headers(from, to, PathId::ZERO, 100);
        assert_eq!(header[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7]);
        assert_eq!(header[12..], [0x81, 0, 0, 5, 0x88, 0xb5]);
        let unknown = headers(end(1, None), end(2, None), PathId::new(3).unwrap(), 100);
        assert_eq!(unknown, [2, 0xd0, 0xac, 3, 0, 2, 2, 0xd0, 0xac, 3, 0, 1, 0x88, 0xb5]);
    }

    #[test]
    fn udp_has_the_addresses_the_ports_and_the_lengths() {
        let v4 = |last, port| Some(PathAddress::Udp4 { ip: [10, 0, 0, last], port });
        let v6 = |last, port| {
            let mut ip = [0; 16];
            ip[15] = last;
            Some(PathAddress::Udp6 { ip, port })
        };
        for (from, to) in [(v4(1, 4000), v4(2, 5000)), (v6(1, 4000), v6(2, 5000))] {
            let mut packet = headers(end(1, from), end(2, to), PathId::ZERO, 60);
            packet.resize(packet.len() + 60, 7);
            let sliced = SlicedPacket::from_ethernet(&packet).unwrap();
            assert!(sliced.net.is_some());
            let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else { panic!() };
            assert_eq!((udp.source_port(), udp.destination_port()), (4000, 5000));
            assert_eq!((udp.length(), udp.payload()), (68, &[7; 60][..]));
        }
    }
}
