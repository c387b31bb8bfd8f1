//! Capture files of frames.

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use std::path::Path;
use std::time::Duration;

/// A frame of ours, as it is put in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    /// Since the capture began.
    pub(crate) at: Duration,
    pub(crate) bytes: Vec<u8>,
    pub(crate) within: Within,
    /// The capture holds only so many bytes of the packet.
    pub(crate) kept: Option<usize>,
}

impl Captured {
    pub(crate) fn new(at: Duration, bytes: Vec<u8>) -> Self {
        Self { at, bytes, within: Within::Ethernet, kept: None }
    }

    pub(crate) fn within(self, within: Within) -> Self {
        Self { within, ..self }
    }
}

/// What a frame travels in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    Ethernet,
    Vlan,
    Udp4,
    Udp6,
}

impl Within {
    pub(crate) const ALL: [Self; 4] = [Self::Ethernet, Self::Vlan, Self::Udp4, Self::Udp6];

    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Self::Udp4 | Self::Udp6)
    }
}

/// No port that Wireshark knows: the frames must be found by what they say.
const PORTS: [u16; 2] = [41_234, 52_345];

fn udp(frame: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    let length = 8 + frame.len() as u16;
    for word in [PORTS[0], PORTS[1], length, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(frame);
    datagram
}

/// The packet around a frame, headers first.
fn packet(frame: &[u8], within: Within) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match within {
        Within::Ethernet => packet.extend([0x88, 0xb5]),
        Within::Vlan => packet.extend([0x81, 0x00, 0x60, 0x2a, 0x88, 0xb5]),
        Within::Udp4 => {
            let datagram = udp(frame);
            let length = (20 + datagram.len() as u16).to_be_bytes();
            packet.extend([0x08, 0x00, 0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, 17, 0, 0]);
            packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            packet.extend(datagram);
            return packet;
        }
        Within::Udp6 => {
            let datagram = udp(frame);
            let length = (datagram.len() as u16).to_be_bytes();
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], 17, 64]);
            for last in [1, 2] {
                packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
            packet.extend(datagram);
            return packet;
        }
    }
    packet.extend(frame);
    packet
}

/// Writes them in their order.
pub(crate) fn write(path: &Path, frames: &[Captured]) {
    let file = std::fs::File::create(path).expect("a file in our own folder");
    let header = PcapHeader { datalink: DataLink::ETHERNET, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(file, header).expect("a header");
    for frame in frames {
        let data = packet(&frame.bytes, frame.within);
        let kept = frame.kept.unwrap_or(data.len()).min(data.len());
        // A point in time that every reader takes.
        let at = Duration::from_secs(1_700_000_000) + frame.at;
        let packet = PcapPacket::new(at, data.len() as u32, &data[..kept]);
        writer.write_packet(&packet).expect("a packet");
    }
}
