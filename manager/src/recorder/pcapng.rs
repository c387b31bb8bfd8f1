//! Recordings as pcapng (draft-ietf-opsawg-pcapng), which Wireshark opens.

use super::carried::Carried;
use super::collect::Collected;
use super::join::{Times, Tlp, on_network};
use super::network::{self, End};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness};
use proxy_core::control::PathAddress;
use proxy_core::stamps::StampedTlp;
use std::time::Duration;
use tlp_codec::ids::{BindingKey, NodeId};
use tlp_codec::tlp::Class;

/// The names of the stages, in the order of the times.
pub const STAGES: [&str; 6] = ["arrived", "encoded", "sent", "received", "decoded", "delivered"];

/// What a capture says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// The proxy that it is seen from.
    pub seen_from: String,
    /// What was recorded, and why it ended, for a person.
    pub comment: String,
    /// Bytes that were kept of each packet.
    pub snap: u16,
    /// Entries that were lost.
    pub lost: u64,
}

/// A node and where its paths end.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its number.
    pub node: NodeId,
    /// By path.
    pub paths: Vec<PathAddress>,
}

/// The longest headers in front of a frame.
const HEADERS: u32 = 64;

struct Packet {
    date: u64,
    data: Vec<u8>,
    length: u32,
    received: bool,
    lost_before: u64,
    comments: Vec<String>,
}

/// Direction of a packet in the option `epb_flags`.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// What is to be a packet, by date: frames are recorded in order, TLPs are dated by their stamps.
fn in_order<T>(of: impl Iterator<Item = (u64, T)>) -> Vec<(u64, T)> {
    let mut all: Vec<_> = of.collect();
    all.sort_by_key(|(date, _)| *date);
    all
}

/// A time as the format has it in this block, too: two numbers of 32 bits, the upper one first. The
/// crate writes one of 64 bits in the section's order, which is little-endian: the lower one first.
const fn upper_half_first(time: u64) -> u64 {
    time.rotate_left(32)
}

/// Each packet is made when it is its turn: there is one at a time.
fn write(
    about: &About,
    link: DataLink,
    snap: u32,
    packets: impl Iterator<Item = Packet>,
) -> Vec<u8> {
    let section = SectionHeaderBlock {
        endianness: Endianness::Little,
        options: vec![
            SectionHeaderOption::Comment(about.comment.clone().into()),
            SectionHeaderOption::UserApplication(
                concat!("dxpu-manager ", env!("CARGO_PKG_VERSION")).into(),
            ),
        ],
        ..SectionHeaderBlock::default()
    };
    const MEMORY: &str = "memory takes it";
    let mut out = PcapNgWriter::with_section_header(Vec::new(), section).expect(MEMORY);
    let interface = InterfaceDescriptionBlock {
        linktype: link,
        snaplen: snap,
        options: vec![
            InterfaceDescriptionOption::IfName(about.seen_from.clone().into()),
            // Nanoseconds.
            InterfaceDescriptionOption::IfTsResol(9),
        ],
    };
    out.write_pcapng_block(interface).expect(MEMORY);
    let mut end = 0;
    for packet in packets {
        end = packet.date;
        let way = if packet.received { INBOUND } else { OUTBOUND };
        let mut options = vec![EnhancedPacketOption::Flags(way)];
        if packet.lost_before > 0 {
            options.push(EnhancedPacketOption::DropCount(packet.lost_before));
        }
        let comments = packet.comments.into_iter();
        options.extend(comments.map(|text| EnhancedPacketOption::Comment(text.into())));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(packet.date),
            original_len: packet.length,
            data: packet.data.into(),
            options,
        };
        out.write_pcapng_block(block).expect(MEMORY);
    }
    let statistics = InterfaceStatisticsBlock {
        interface_id: 0,
        timestamp: upper_half_first(end),
        options: vec![InterfaceStatisticsOption::IsbIfDrop(about.lost)],
    };
    out.write_pcapng_block(statistics).expect(MEMORY);
    out.into_inner()
}

/// The frames that one proxy recorded, link type Ethernet, each with what is known of its TLPs in
/// comments.
pub fn frames(
    about: &About,
    seen: &Collected,
    at_host: bool,
    tlps: &[Tlp<'_>],
    here: &Node,
    there: &Node,
) -> Vec<u8> {
    let known = Carried::new(seen, at_host, tlps);
    let frames = in_order(seen.frames.iter().map(|frame| (seen.date(frame.at), frame)));
    let packets = frames.into_iter().map(|(date, frame)| {
        let end = |node: &Node| End {
            node: node.node,
            address: node.paths.get(usize::from(frame.path.get())).copied(),
        };
        let (from, to) =
            if frame.received { (end(there), end(here)) } else { (end(here), end(there)) };
        let mut data = network::headers(from, to, frame.path, frame.length.into());
        let length = (data.len() + usize::from(frame.length)) as u32;
        data.extend_from_slice(&frame.bytes);
        Packet {
            date,
            data,
            length,
            received: frame.received,
            lost_before: frame.lost_before,
            comments: known.comments(frame),
        }
    });
    let snap = HEADERS + u32::from(about.snap);
    write(about, DataLink::ETHERNET, snap, packets)
}

/// TLPs alone, link type USER0, each with the stamps of both ends in a comment.
pub fn tlps(about: &About, seen: &Collected, at_host: bool, tlps: &[Tlp<'_>]) -> Vec<u8> {
    let received = |tlp: &Tlp<'_>| tlp.sent_by_host() != at_host;
    let date = |tlp: &Tlp<'_>| on_network(if at_host { &tlp.host } else { &tlp.boxed }, seen);
    let all = in_order(tlps.iter().map(|tlp| (date(tlp), tlp)));
    let packets = all.into_iter().map(|(date, tlp)| Packet {
        date,
        data: tlp.bytes.to_vec(),
        length: tlp.length.into(),
        received: received(tlp),
        lost_before: 0,
        comments: vec![comment(tlp)],
    });
    write(about, DataLink::USER0, about.snap.into(), packets)
}

/// The words of a comment that say which TLP it is of. `what` is not known of parts of a split TLP
/// whose beginning was not recorded.
pub(super) fn name(
    class: Class,
    what: Option<StampedTlp>,
    from_host: bool,
    binding: &BindingKey,
) -> String {
    let kind = match class {
        Class::Posted => "posted",
        Class::NonPosted => "request",
        Class::Completion => "completion",
    };
    let which = match what {
        Some(StampedTlp::Request(entry) | StampedTlp::Completion(entry)) => {
            format!(" outstanding={}.{}", entry.index, entry.generation)
        }
        Some(StampedTlp::Posted(Some(sequence))) => format!(" sequence={sequence}"),
        Some(StampedTlp::Posted(None)) | None => String::new(),
    };
    let asker = if from_host { "host" } else { "device" };
    format!(
        "kind={kind}{which} asker={asker} slot={} function={} epoch={}",
        binding.slot, binding.function, binding.epoch
    )
}

/// What is known of a TLP beside its bytes: words of the form `name=value`. Times are nanoseconds,
/// each by the clock of the proxy that is named.
pub fn comment(tlp: &Tlp<'_>) -> String {
    let class = match tlp.what {
        StampedTlp::Request(_) => Class::NonPosted,
        StampedTlp::Completion(_) => Class::Completion,
        StampedTlp::Posted(_) => Class::Posted,
    };
    let mut text = name(class, Some(tlp.what), tlp.from_host, &tlp.binding);
    let mut end = |name: &str, times: &Times| {
        for (stage, time) in STAGES.iter().zip(times) {
            if let Some(time) = time {
                text.push_str(&format!(" {name}.{stage}={time}"));
            }
        }
    };
    if tlp.sent_by_host() {
        end("host", &tlp.host);
        end("box", &tlp.boxed);
    } else {
        end("box", &tlp.boxed);
        end("host", &tlp.host);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bodies of the blocks of one type in a little-endian section.
    fn blocks(file: &[u8], wanted: u32) -> Vec<&[u8]> {
        let mut rest = file;
        let mut found = Vec::new();
        while let Some((kind, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(behind[..4].try_into().unwrap()) as usize;
            if u32::from_le_bytes(*kind) == wanted {
                found.push(&rest[8..length - 4]);
            }
            rest = &rest[length..];
        }
        found
    }

    #[test]
    fn all_times_have_their_upper_half_first() {
        let about =
            About { seen_from: "host1".into(), comment: "recorded".into(), snap: 64, lost: 3 };
        let packet = |date| Packet {
            date,
            data: vec![0; 4],
            length: 4,
            received: false,
            lost_before: 0,
            comments: Vec::new(),
        };
        let dates = [0x1122_3344_5566_7788, 0x1122_3345_0000_0001];
        let file = write(&about, DataLink::USER0, 64, dates.into_iter().map(packet));

        let packets = blocks(&file, 6);
        assert_eq!(packets.len(), 2);
        let upper_first = [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55];
        assert_eq!(packets[0][..12], upper_first, "interface, then time");
        let statistics = blocks(&file, 5);
        let upper_first = [0, 0, 0, 0, 0x45, 0x33, 0x22, 0x11, 1, 0, 0, 0];
        assert_eq!(statistics.len(), 1);
        assert_eq!(statistics[0][..12], upper_first, "interface, then time");
    }
}
