//! The `tlp` command on capture files with DxPU frames.

mod common;

use common::{first_line, tlp};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::{DataLink, pcapng::PcapNgBlock};
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;
use tlp_codec::crc;
use tlp_codec::fabric::{
    FrameKind, FrameWriter, Header, Record, RecordAddress, Sideband, SplitData, SplitHeader,
    TlpRecord, TlpTraits,
};
use tlp_codec::ids::{BindingKey, Epoch, NodeId, OutstandingRef, PathId, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

const READ: [u8; 12] = [0, 0, 0, 1, 1, 0, 5, 0x0f, 0, 0, 0x10, 0];

fn address() -> RecordAddress {
    RecordAddress::from_host(&BindingKey {
        slot: SlotId::new(3).unwrap(),
        function: SlotFunction::ZERO,
        epoch: Epoch::new(1, 7).unwrap(),
    })
}

fn traits(class: Class) -> TlpTraits {
    let outstanding = Some(OutstandingRef { index: 4, generation: 9 });
    TlpTraits { class, relaxed: false, sampled: false, outstanding }
}

fn frame(sequence: u32, records: &[Record<'_>]) -> Vec<u8> {
    frame_of((1, 2), sequence, records)
}

/// A frame between these lives of both ends.
fn frame_of(lives: (u32, u32), sequence: u32, records: &[Record<'_>]) -> Vec<u8> {
    frame_between((1, 2), lives, sequence, records)
}

/// A frame from one node to another, between these lives of theirs.
fn frame_between(
    nodes: (u16, u16),
    lives: (u32, u32),
    sequence: u32,
    records: &[Record<'_>],
) -> Vec<u8> {
    let header = Header {
        kind: FrameKind::Data,
        destination: NodeId::new(nodes.1).unwrap(),
        source: NodeId::new(nodes.0).unwrap(),
        source_incarnation: lives.0,
        destination_incarnation: Some(lives.1),
        session: 5,
        path: PathId::ZERO,
        packet: sequence,
        sequence,
        ack: None,
    };
    let mut bytes = vec![0; 9000];
    let mut writer = FrameWriter::new(&mut bytes, &header).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

fn tlp_record(tlp: &[u8]) -> Record<'_> {
    let (address, traits) = (address(), traits(Class::NonPosted));
    Record::Tlp(TlpRecord { address, traits, tlp, crc: crc::tlp(tlp) })
}

fn ethernet(tagged: bool, frame: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    if tagged {
        packet.extend([0x81, 0x00, 0x00, 0x65]);
    }
    packet.extend([0x88, 0xb5]);
    packet.extend(frame);
    // Ethernet pads what is short.
    packet.resize(packet.len().max(60) + 3, 0);
    packet
}

fn udp(frame: &[u8]) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(40000, 4791);
    let mut packet = Vec::new();
    builder.write(&mut packet, frame).unwrap();
    packet
}

fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let header = PcapHeader { datalink: DataLink::ETHERNET, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for packet in packets {
        let packet = PcapPacket::new(Duration::from_millis(1), packet.len() as u32, packet);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0xffff);
    writer.write_block(&interface.into_block()).unwrap();
    for packet in packets {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_millis(1),
            original_len: packet.len() as u32,
            data: Cow::Borrowed(packet),
            options: Vec::new(),
        };
        writer.write_block(&block.into_block()).unwrap();
    }
    writer.into_inner()
}

#[test]
fn frames_in_ethernet_vlan_and_udp_give_their_tlps() {
    let one = frame(10, &[tlp_record(&READ)]);
    let two = frame(11, &[tlp_record(&READ), tlp_record(&READ)]);
    let last = udp(&frame(13, &[tlp_record(&READ)]));
    let packets = [ethernet(false, &one), ethernet(true, &two), last, udp(b"somebody else's")];
    for capture in [pcap(&packets), pcapng(&packets)] {
        let ran = tlp(&["decode", "--json"], &capture);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let lines: Vec<Value> =
            ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["type"], "MRd");
        let from = &lines[2]["from"];
        assert_eq!((&from["packet"], &from["sequence"]), (&2.into(), &12.into()));
        assert_eq!((&from["source"], &from["destination"]), (&1.into(), &2.into()));
        assert_eq!((&from["destination_slot"], &from["epoch"]), (&3.into(), &"1.7".into()));
        assert_eq!(from["outstanding"], "4.9");

        let text = tlp(&["decode"], &capture).out;
        assert!(text.contains("# packet 2 source 1 destination 2"), "{text}");
        for lines in [ran.out, text] {
            let back = tlp(&["encode"], lines.as_bytes());
            assert_eq!(back.out, "00000001010005 0f00001000\n".replace(' ', "").repeat(4));
        }
    }
}

/// The upper half of a pcap's link type says how long the packets' checksums are.
#[test]
fn packets_with_their_checksum_behind_them_are_read() {
    let mut packet = ethernet(false, &frame(10, &[tlp_record(&READ)]));
    packet.extend([1, 2, 3, 4]);
    let mut capture = pcap(&[packet]);
    const LINK: usize = 20;
    let field: &mut [u8; 4] = (&mut capture[LINK..LINK + 4]).try_into().unwrap();
    let big = u32::from_be_bytes(*field) == 1;
    let with_checksum: u32 = 0x4400_0001;
    *field = if big { with_checksum.to_be_bytes() } else { with_checksum.to_le_bytes() };
    let ran = tlp(&["decode"], &capture);
    assert_eq!((ran.code, ran.out.lines().count()), (0, 1), "{}", ran.err);
}

#[test]
fn what_comes_through_a_pipe_is_printed_while_it_goes_on() {
    let packets = [ethernet(false, &frame(10, &[tlp_record(&READ)]))];
    for capture in [pcap(&packets), pcapng(&packets)] {
        let line = first_line(&["decode"], &capture).unwrap_or_default();
        assert!(line.starts_with("MRd "), "{line}");
    }
    let line = first_line(&["decode"], b"00000001_0100050f_00001000\n").unwrap_or_default();
    assert!(line.starts_with("MRd "), "{line}");
    let line = first_line(&["encode"], b"MRd tag=5 address=0x1000\n").unwrap_or_default();
    assert_eq!(line, "000000010000050f00001000\n");
}

#[test]
fn frames_that_a_machine_hands_its_kernel_at_once_are_told_apart() {
    let two = [tlp_record(&READ), tlp_record(&READ)];
    let frames = vec![frame(8, &two), frame(10, &two), frame(12, &two[..1])];
    let sequences = |capture: &[u8]| {
        let ran = tlp(&["decode", "--json"], capture);
        let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found: Vec<_> = lines.map(|line| line["from"]["sequence"].as_u64().unwrap()).collect();
        (ran.code, found, ran.err)
    };
    let (code, found, err) = sequences(&pcap(&[udp(&frames.concat())]));
    assert_eq!((code, found, err.as_str()), (0, vec![8, 9, 10, 11, 12], ""));
    // Behind a frame in Ethernet there is padding, whatever it looks like.
    let (code, found, _) = sequences(&pcap(&[ethernet(false, &frames.concat())]));
    assert_eq!((code, found), (0, vec![8, 9]));
    // The capture has not all of it.
    let whole = udp(&frames.concat());
    let first = whole.len() - frames.concat().len() + frames[0].len();
    for (snap, there) in [
        (first - 30, &[][..]),
        (first, &[8, 9]),
        (first + 2, &[8, 9]),
        (first + 60, &[8, 9]),
        (whole.len() - 1, &[8, 9, 10, 11]),
    ] {
        for capture in cut_to(snap, std::slice::from_ref(&whole)) {
            let (code, found, err) = sequences(&capture);
            assert_eq!((code, &found[..]), (1, there), "{snap}: {err}");
            assert!(err.contains(&format!("only {snap} of the packet's")), "{snap}: {err}");
        }
    }
    // One of them is damaged, in its header or behind it.
    for (at, said) in [(0, "version"), (60, "CRC")] {
        let mut frames = frames.clone();
        frames[1][at] ^= 2;
        let (code, found, err) = sequences(&pcap(&[udp(&frames.concat())]));
        assert_eq!((code, found), (1, vec![8, 9, 12]), "{err}");
        assert!(err.contains("packet 1") && err.contains(said), "{err}");
    }
}

/// A write of 4 KB, and the packets of its three frames: sequences 20 to 22.
fn split_write() -> (String, [Vec<u8>; 3]) {
    split_write_of((1, 2))
}

/// The same between these lives of both ends.
fn split_write_of(lives: (u32, u32)) -> (String, [Vec<u8>; 3]) {
    let mut write = vec![0x60, 0, 0, 0, 1, 0, 0, 0xff, 0, 0, 0, 1, 0, 0, 0, 0];
    write.extend((0..4096_u32).map(|i| (i % 251) as u8));
    let (address, class) = (address(), Class::Posted);
    let traits = TlpTraits { outstanding: None, ..traits(class) };
    let (crc, total) = (crc::tlp(&write), write.len() as u16);
    let start = Record::SplitHeader(SplitHeader {
        address,
        traits,
        total,
        parts: 2,
        crc,
        bytes: &write[..1016],
    });
    let more = |part, from: usize, to: usize| {
        let bytes = &write[from..to];
        Record::SplitData(SplitData { address, class, part, offset: from as u16, bytes })
    };
    let frames = [
        frame_of(lives, 20, &[start]),
        frame_of(lives, 21, &[more(1, 1016, 2000)]),
        frame_of(lives, 22, &[more(2, 2000, write.len())]),
    ];
    let hex = write.iter().map(|byte| format!("{byte:02x}")).collect();
    (hex, frames.map(|frame| ethernet(false, &frame)))
}

#[test]
fn split_tlps_are_joined_in_any_order() {
    let (hex, [first, second, third]) = split_write();
    let packets = [third, first, second];
    let ran = tlp(&["decode"], &pcap(&packets));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let back = tlp(&["encode"], ran.out.as_bytes());
    assert_eq!(back.out.trim_end(), hex);

    // Without one of them, it says which TLP is not all there.
    let ran = tlp(&["decode"], &pcap(&packets[..2]));
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("sequence 20 from node 1 to node 2"), "{}", ran.err);
}

#[test]
fn a_split_tlp_whose_parts_are_sent_again_is_given_once() {
    let (hex, parts) = split_write();
    // Before the TLP is complete and behind it; one part, and all of them.
    for order in [&[0, 0, 1, 1, 2][..], &[0, 1, 2, 1], &[0, 1, 2, 0], &[0, 1, 2, 0, 1, 2]] {
        let packets: Vec<Vec<u8>> = order.iter().map(|&part| parts[part].clone()).collect();
        let ran = tlp(&["decode"], &pcap(&packets));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{order:?}");
        assert!(ran.out.contains("# packet 1 source 1"), "its header was first: {order:?}");
        let back = tlp(&["encode"], ran.out.as_bytes());
        assert_eq!(back.out.trim_end(), hex, "{order:?}");
    }
}

/// An end that restarted may have the session number of its last life.
#[test]
fn a_split_tlp_of_another_life_is_another() {
    for lives in [(3, 2), (1, 4)] {
        let (hex, parts) = split_write();
        let packets = [parts, split_write_of(lives).1].concat();
        let ran = tlp(&["decode"], &pcap(&packets));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let back = tlp(&["encode"], ran.out.as_bytes());
        assert_eq!(back.out, format!("{hex}\n").repeat(2), "{lives:?}");
    }
}

#[test]
fn a_tlp_that_is_sent_again_is_marked_and_encoded_once() {
    let [first, second] = [10, 11].map(|sequence| frame(sequence, &[tlp_record(&READ)]));
    let of_another_life = frame_of((3, 2), 10, &[tlp_record(&READ)]);
    let both = frame(10, &[tlp_record(&READ), tlp_record(&READ), tlp_record(&READ)]);
    let packets = [first.clone(), second, first, of_another_life, both];
    let capture = pcap(&packets.map(|frame| ethernet(false, &frame)));
    let marked = [false, false, true, false, true, true, false];
    let [text, json] = [&["decode"][..], &["decode", "--json"]].map(|args| tlp(args, &capture));
    assert_eq!((text.code, json.code), (0, 0), "{}{}", text.err, json.err);
    let in_text: Vec<bool> = text.out.lines().map(|line| line.contains(" again #")).collect();
    assert_eq!(in_text, marked, "{}", text.out);
    let of = |line| serde_json::from_str::<Value>(line).unwrap()["again"] == Value::Bool(true);
    assert_eq!(json.out.lines().map(of).collect::<Vec<_>>(), marked, "{}", json.out);
    for ran in [text, json] {
        let back = tlp(&["encode"], ran.out.as_bytes());
        assert_eq!((back.code, back.out.lines().count()), (0, 4), "{}", back.err);
    }
}

/// A path may be dead for a while in which the capture's other links go on.
#[test]
fn what_is_sent_again_came_before_however_much_others_sent_meanwhile() {
    let of_another = |sequence, records: &[Record<'_>]| {
        ethernet(false, &frame_between((3, 2), (1, 2), sequence, records))
    };
    let whole = vec![tlp_record(&READ); 100];
    let others: Vec<Vec<u8>> = (0..170).map(|n| of_another(n * 100, &whole)).collect();
    let read = ethernet(false, &frame(10, &[tlp_record(&READ)]));
    let packets = [&[read.clone()][..], &others, &[read]].concat();
    let ran = tlp(&["decode"], &pcap(&packets));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let marked = ran.out.lines().filter(|line| line.contains(" again #")).count();
    assert_eq!((marked, ran.out.lines().count()), (1, 17_002));
    assert_eq!(tlp(&["encode"], ran.out.as_bytes()).out.lines().count(), 17_001);

    // The same of split TLPs: one of which a part is sent again when it is complete, or before.
    let write = [&[0x60, 0, 0, 1, 1, 0, 0, 0x0f, 0, 0, 0, 1, 0, 0, 0, 0][..], &[7; 4]].concat();
    let (address, class, crc) = (address(), Class::Posted, crc::tlp(&write));
    let traits = TlpTraits { outstanding: None, ..traits(class) };
    let (start, end) = write.split_at(16);
    let split = [
        Record::SplitHeader(SplitHeader {
            address,
            traits,
            total: write.len() as u16,
            parts: 1,
            crc,
            bytes: start,
        }),
        Record::SplitData(SplitData { address, class, part: 1, offset: 16, bytes: end }),
    ];
    let others: Vec<Vec<u8>> = (0..17_000).map(|n| of_another(n * 2, &split)).collect();
    let (_, complete) = split_write();
    for (before, behind) in [
        (&complete[..], &complete[2..]),
        (&complete[..], &complete[..]),
        (&complete[..2], &complete[1..]),
    ] {
        let ran = tlp(&["decode"], &pcap(&[before, &others, behind].concat()));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert_eq!(ran.out.lines().count(), 17_001);
    }
}

#[test]
fn other_records_are_shown_on_demand_and_passed_over_by_encode() {
    let reset = Record::Sideband(address(), Sideband::from_code(1, 0));
    let records = frame(30, &[reset, tlp_record(&READ), Record::Unbind(address())]);
    let capture = pcap(&[ethernet(false, &records)]);
    assert_eq!(tlp(&["decode"], &capture).out.lines().count(), 1);
    for args in [&["decode", "--all"][..], &["decode", "--all", "--json"]] {
        let ran = tlp(args, &capture);
        assert_eq!((ran.code, ran.out.lines().count()), (0, 3), "{}", ran.err);
        assert!(ran.out.contains("unbind"), "{}", ran.out);
        let back = tlp(&["encode"], ran.out.as_bytes());
        assert_eq!((back.code, back.out.lines().count()), (0, 1), "{}", back.err);
    }
}

#[test]
fn broken_frames_and_tlps_are_reported_by_packet() {
    let good = frame(1, &[tlp_record(&READ)]);
    let mut flipped = good.clone();
    flipped[60] ^= 1;
    let cut = &good[..30];
    let wrong_crc = Record::Tlp(TlpRecord {
        address: address(),
        traits: traits(Class::NonPosted),
        tlp: &READ,
        crc: 0,
    });
    let mut crosses = READ;
    crosses[3] = 2;
    crosses[7] = 0xff;
    crosses[11] = 0xfc;
    crosses[10] = 0x1f;
    let packets = [
        ethernet(false, &flipped),
        ethernet(false, cut),
        ethernet(false, &frame(2, &[wrong_crc, tlp_record(&READ)])),
        ethernet(false, &frame(4, &[tlp_record(&crosses)])),
        ethernet(false, &good),
    ];
    let ran = tlp(&["decode"], &pcap(&packets));
    assert_eq!((ran.code, ran.out.lines().count()), (1, 2), "{}", ran.err);
    let reports: Vec<&str> = ran.err.lines().collect();
    assert_eq!(reports.len(), 4, "{}", ran.err);
    let reasons = ["frame CRC", "frame ", "CRC is wrong in a right frame", "4 KB"];
    for (n, (report, reason)) in reports.iter().zip(reasons).enumerate() {
        assert!(report.starts_with(&format!("tlp: packet {}: ", n + 1)), "{report}");
        assert!(report.contains(reason), "{report}");
    }
}

/// In UDP anything may be somebody else's, but not what begins as a frame does.
#[test]
fn a_frame_with_a_wrong_crc_is_told_in_udp_too() {
    let mut damaged = frame(10, &[tlp_record(&READ)]);
    let last = damaged.len() - 8;
    damaged[last] ^= 1;
    for packet in [udp(&damaged), ethernet(false, &damaged)] {
        let ran = tlp(&["decode"], &pcap(&[packet]));
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert!(ran.err.contains("CRC"), "{}", ran.err);
    }
}

#[test]
fn a_capture_that_ends_in_the_middle_gives_what_it_has() {
    let good = ethernet(false, &frame(1, &[tlp_record(&READ)]));
    for capture in [pcap(&[good.clone(), good.clone()]), pcapng(&[good.clone(), good.clone()])] {
        let ran = tlp(&["decode"], &capture[..capture.len() - 20]);
        assert_eq!((ran.code, ran.out.lines().count()), (1, 1), "{}", ran.err);
        assert!(ran.err.contains("behind packet 1: the capture cannot be read"), "{}", ran.err);
        assert!(ran.err.contains("it ends in the middle of a "), "{}", ran.err);
    }
    let nothing = tlp(&["decode"], &pcap(&[udp(b"somebody else's")]));
    assert_eq!(nothing.code, 1);
    assert!(nothing.err.contains("no TLP in it; packets read: 1"), "{}", nothing.err);
}

/// The end of a list of options may be left out where its block ends.
#[test]
fn a_packet_whose_options_end_with_its_block_is_read() {
    let packet = ethernet(false, &frame(1, &[tlp_record(&READ)]));
    let capture = pcapng(&[packet.clone(), packet]);
    let last = u32::from_ne_bytes(*capture.last_chunk().unwrap());
    let at = capture.len() - 2 * last as usize;
    let (first, second) = (&capture[at..][..last as usize], &capture[at + last as usize..]);
    let comment = [&1_u16.to_ne_bytes()[..], &3_u16.to_ne_bytes(), b"why\0"].concat();
    let length = (last + comment.len() as u32).to_ne_bytes();
    let middle = &first[8..first.len() - 4];
    let longer = [&first[..4], &length, middle, &comment, &length].concat();
    let ran = tlp(&["decode"], &[&capture[..at], &longer, second].concat());
    assert_eq!((ran.code, ran.out.lines().count()), (0, 2), "{}", ran.err);
}

/// A capture with a snap length: of the packets that are longer, the start.
fn cut_to(snap: usize, packets: &[Vec<u8>]) -> [Vec<u8>; 2] {
    let header =
        PcapHeader { datalink: DataLink::ETHERNET, snaplen: snap as u32, ..PcapHeader::default() };
    let mut old = PcapWriter::with_header(Vec::new(), header).unwrap();
    let mut new = PcapNgWriter::new(Vec::new()).unwrap();
    let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, snap as u32);
    new.write_block(&interface.into_block()).unwrap();
    for packet in packets {
        let (data, original_len) = (&packet[..packet.len().min(snap)], packet.len() as u32);
        let raw = PcapPacket::new(Duration::from_millis(1), original_len, data);
        old.write_packet(&raw).unwrap();
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_millis(1),
            original_len,
            data: Cow::Borrowed(data),
            options: Vec::new(),
        };
        new.write_block(&block.into_block()).unwrap();
    }
    [old.into_writer(), new.into_inner()]
}

#[test]
fn a_packet_that_the_capture_cut_is_reported_and_the_others_go_through() {
    let small = frame(1, &[tlp_record(&READ)]);
    let large = frame(2, &[tlp_record(&READ); 4]);
    let others = vec![0; 500];
    let packets = [
        ethernet(false, &small),
        ethernet(false, &large),
        udp(&small),
        udp(&large),
        udp(&others),
        ethernet(true, &large),
        ethernet(true, &small),
    ];
    let snap = [0, 2, 6].map(|n: usize| packets[n].len()).into_iter().max().unwrap();
    for capture in cut_to(snap, &packets) {
        for flags in [&["decode"][..], &["decode", "--json"]] {
            let ran = tlp(flags, &capture);
            assert_eq!((ran.code, ran.out.lines().count()), (1, 3), "{}", ran.err);
            let reports: Vec<&str> = ran.err.lines().collect();
            assert_eq!(reports.len(), 3, "{}", ran.err);
            for (report, n) in reports.iter().zip([2, 4, 6]) {
                let length = packets[n - 1].len();
                let start = format!("tlp: packet {n}: the capture holds only {snap} of the ");
                assert!(report.starts_with(&start), "{report}");
                assert!(report.contains(&format!(" {length} bytes")), "{report}");
            }
        }
    }
    // So short that nothing tells whose they are.
    for capture in cut_to(45, &[udp(&small), udp(&large)]) {
        let ran = tlp(&["decode"], &capture);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("read: 2, of which only the start is there: 2"), "{}", ran.err);
    }
}
