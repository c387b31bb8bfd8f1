//! A link with losses: records sent again, frames that came twice, split TLPs, requests and their
//! completions.

use crate::capture::{self, Captured, Within};
use crate::compare::{self, Decoded};
use crate::traffic;
use crate::tshark::{self, Shown, each, numbers};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use tlp_codec::fabric::{Frame, FrameKind, Record};
use tlp_codec::tlp::Class;

/// What must be found out about a capture of one link in one life, worked out from its frames.
#[derive(Default)]
struct Oracle {
    /// Source node and sequence of a record -> the packet that carried it first.
    records: HashMap<(u16, u32), u64>,
    /// Source node and packet number -> packet.
    packets: HashMap<(u16, u32), u64>,
    /// Node that asked and its entry -> packet of the request.
    requests: HashMap<(u16, String), u64>,
    retransmissions: usize,
    duplicates: usize,
    completions: usize,
    /// Records with a whole TLP.
    whole: usize,
    /// Source node and sequence of the header records of split TLPs.
    split: HashSet<(u16, u32)>,
}

impl Oracle {
    fn packet(&mut self, number: u64, captured: &Captured, tree: &Value) {
        let frame = Frame::new_checked(&captured.bytes[..]).unwrap();
        let header = frame.header();
        let source = header.source.get();
        if frame.kind() == FrameKind::Open {
            return;
        }
        let first = *self.packets.entry((source, header.packet)).or_insert(number);
        let shown = numbers(tree, "dxpu.duplicate_of");
        self.duplicates += usize::from(first != number);
        assert_eq!(shown, if first == number { vec![] } else { vec![first] }, "packet {number}");
        let branches = each(tree.get("dxpu.record"));
        let mut sequence = header.sequence;
        if frame.kind() == FrameKind::Data {
            for (record, branch) in frame.records().zip(branches) {
                self.record(number, (source, header.destination.get()), sequence, branch);
                self.transaction(number, header.destination.get(), &record.unwrap(), branch);
                sequence = sequence.wrapping_add(1);
            }
        }
    }

    fn record(&mut self, number: u64, (source, _): (u16, u16), sequence: u32, branch: &Value) {
        let first = *self.records.entry((source, sequence)).or_insert(number);
        let shown = numbers(branch, "dxpu.record.retransmission_of");
        self.retransmissions += usize::from(first != number);
        assert_eq!(shown, if first == number { vec![] } else { vec![first] }, "packet {number}");
        if let Some(part) = branch.get("dxpu.split.part").map(tshark::number) {
            self.split.insert((source, sequence.wrapping_sub(part as u32)));
        }
    }

    fn transaction(&mut self, number: u64, to: u16, record: &Record<'_>, branch: &Value) {
        let traits = match record {
            Record::Tlp(tlp) => {
                self.whole += 1;
                tlp.traits
            }
            Record::SplitHeader(start) => start.traits,
            _ => return,
        };
        let Some(entry) = traits.outstanding else { return };
        let entry = format!("{}.{}", entry.index, entry.generation);
        match traits.class {
            Class::Completion => {
                let request = self.requests[&(to, entry)];
                assert_eq!(numbers(branch, "dxpu.request_in"), [request], "packet {number}");
                self.completions += 1;
            }
            _ => {
                let from = 3 - to;
                self.requests.entry((from, entry)).or_insert(number);
            }
        }
    }
}

/// Every completion says how long its request took, and every request where it was completed.
fn check_times(frames: &[Captured], shown: &[Shown]) {
    let mut answered = 0;
    for (frame, packet) in frames.iter().zip(shown) {
        for branch in each(packet.tree.as_ref().unwrap().get("dxpu.record")) {
            let Some(request) = numbers(branch, "dxpu.request_in").first().copied() else {
                continue;
            };
            let since = frame.at - frames[request as usize - 1].at;
            let time = branch["dxpu.response_time"].as_str().unwrap();
            assert_eq!(time, format!("{}.{:09}", since.as_secs(), since.subsec_micros() * 1000));
            if branch.get("dxpu.record.retransmission_of").is_none() {
                let asked = shown[request as usize - 1].tree.as_ref().unwrap();
                assert!(numbers(asked, "dxpu.response_in").contains(&packet.number));
                answered += 1;
            }
        }
    }
    assert!(answered > 100, "{answered} requests were answered");
}

#[test]
fn a_link_with_losses_is_shown_as_it_was() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (n, within) in Within::ALL.into_iter().enumerate() {
        let path = folder.path().join(format!("link-{n}.pcap"));
        let frames = traffic::of_a_link(n as u64 + 1);
        let frames: Vec<Captured> = frames.into_iter().map(|frame| frame.within(within)).collect();
        capture::write(&path, &frames);
        let shown = tshark::json(&path);
        let decoded = Decoded::of(&path);
        let compared = compare::compare(&frames, &shown, &decoded);
        let mut oracle = Oracle::default();
        for (frame, shown) in frames.iter().zip(&shown) {
            oracle.packet(shown.number, frame, shown.tree.as_ref().unwrap());
        }
        // As often as its record was sent; a split one where the last of its parts came first.
        assert_eq!(compared, oracle.whole + oracle.split.len());
        let split: usize = shown
            .iter()
            .flat_map(|shown| each(shown.tree.as_ref().unwrap().get("dxpu.record")))
            .filter(|branch| branch.get("dxpu.split.reassembled_in").is_some())
            .filter(|branch| branch.get("dxpu.tlp").is_some())
            .count();
        assert_eq!(split, oracle.split.len(), "each split TLP is shown once");
        assert!(split > 20, "{split} TLPs were split");
        assert!(oracle.retransmissions > 20, "{} records sent again", oracle.retransmissions);
        assert!(oracle.duplicates > 5, "{} frames came twice", oracle.duplicates);
        assert!(oracle.completions > 100, "{} completions", oracle.completions);
        check_times(&frames, &shown);
        let sacks: usize =
            shown.iter().map(|s| numbers(s.tree.as_ref().unwrap(), "dxpu.sack.first").len()).sum();
        assert!(sacks > 20, "{sacks} selective ranges");
    }
}

/// Frames of one sender that follow each other, as a machine that sends them hands them to its kernel
/// at once: all as long as the first, but the last, which may be shorter.
fn at_once(frames: &[Captured]) -> Vec<Vec<Captured>> {
    let mut packets: Vec<Vec<Captured>> = Vec::new();
    for frame in frames {
        let source =
            |frame: &Captured| Frame::new_checked(&frame.bytes[..]).unwrap().header().source;
        let joins = packets.last().is_some_and(|packet| {
            let (first, last) = (&packet[0], &packet[packet.len() - 1]);
            let size = first.bytes.len();
            source(first) == source(frame)
                && last.bytes.len() == size
                && frame.bytes.len() <= size
                && packet.len() < 100
        });
        match packets.last_mut().filter(|_| joins) {
            Some(packet) => packet.push(frame.clone()),
            None => packets.push(vec![frame.clone()]),
        }
    }
    packets
}

#[test]
fn frames_that_a_machine_hands_its_kernel_at_once_are_told_apart() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (seed, within) in [(5, Within::Udp4), (6, Within::Udp6)] {
        let frames = traffic::of_a_link(seed);
        let packets = at_once(&frames);
        let whole: Vec<Captured> = packets
            .iter()
            .map(|packet| {
                let bytes = packet.iter().flat_map(|frame| frame.bytes.clone()).collect();
                Captured::new(packet[0].at, bytes).within(within)
            })
            .collect();
        let path = folder.path().join(format!("at-once-{seed}.pcap"));
        capture::write(&path, &whole);
        let most = packets.iter().map(Vec::len).max().unwrap();
        let several = packets.iter().filter(|packet| packet.len() > 1).count();
        assert!(several > 100 && most > 2, "{several} packets have several, {most} at most");
        let shown = tshark::json(&path);
        let numbers: Vec<u64> = packets
            .iter()
            .enumerate()
            .flat_map(|(index, packet)| vec![index as u64 + 1; packet.len()])
            .collect();
        assert_eq!(shown.iter().map(|shown| shown.number).collect::<Vec<_>>(), numbers);
        assert!(compare::compare(&frames, &shown, &Decoded::of(&path)) > 400);
        let mut oracle = Oracle::default();
        for (frame, shown) in frames.iter().zip(&shown) {
            oracle.packet(shown.number, frame, shown.tree.as_ref().unwrap());
        }
        assert!(oracle.retransmissions > 10 && oracle.completions > 100);
        let list = tshark::list(&path);
        assert!(list.iter().any(|line| line.contains(" ‖ ")), "{list:#?}");
        // Behind a frame in Ethernet there is padding, whatever it looks like.
        let padded: Vec<Captured> =
            whole.iter().map(|packet| packet.clone().within(Within::Ethernet)).collect();
        capture::write(&path, &padded);
        assert_eq!(tshark::json(&path).len(), packets.len());
        let padded = tshark::matching(&path, "dxpu.padding").len();
        assert_eq!(padded, packets.iter().filter(|packet| packet.len() > 1).count());
    }
}

#[test]
fn of_frames_handed_over_at_once_a_damaged_or_cut_one_hides_no_other() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let packets = at_once(&traffic::of_a_link(7));
    let three = packets.iter().find(|packet| packet.len() > 2).expect("there are some");
    let whole: Vec<u8> = three.iter().flat_map(|frame| frame.bytes.clone()).collect();
    let (first, headers) = (three[0].bytes.len(), 14 + 20 + 8);
    // The capture has not all of it.
    let kept = [first - 10, first, first + 3, first + 30, 2 * first, whole.len() - 1];
    let cut: Vec<Captured> = kept
        .iter()
        .map(|kept| Captured {
            kept: Some(headers + kept),
            ..Captured::new(three[0].at, whole.clone()).within(Within::Udp4)
        })
        .collect();
    let path = folder.path().join("cut.pcap");
    capture::write(&path, &cut);
    assert_eq!(tshark::matching(&path, "dxpu.expert.cut"), [1, 2, 3, 4, 5, 6]);
    let frames = |number| tshark::json(&path).iter().filter(|s| s.number == number).count();
    assert_eq!([1, 2, 3, 5].map(frames), [1, 1, 2, 2]);
    // The second frame's version, or something in it, is wrong.
    for at in [0, 60] {
        let mut bytes = whole.clone();
        bytes[first + at] ^= 0x10;
        capture::write(&path, &[Captured::new(three[0].at, bytes).within(Within::Udp4)]);
        let shown = tshark::json(&path);
        let wrong: Vec<bool> = shown
            .iter()
            .map(|shown| shown.tree.as_ref().unwrap())
            .map(|tree| compare::has_expert(tree, "frame") || compare::has_expert(tree, "crc"))
            .collect();
        let expected: Vec<bool> = (0..three.len()).map(|place| place == 1).collect();
        assert_eq!(wrong, expected, "{shown:?}");
    }
}

/// What a person types, and sees in the list.
#[test]
fn filters_and_the_list_say_what_happened() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("link.pcap");
    let frames = traffic::of_a_link(9);
    capture::write(&path, &frames);
    let list = tshark::list(&path);
    assert_eq!(list.len(), frames.len());
    assert!(list.iter().all(|line| line.starts_with("DxPU\t")), "{list:#?}");
    let says = |text: &str| {
        assert!(list.iter().any(|line| line.contains(text)), "nothing says `{text}`: {list:#?}");
    };
    for text in [
        "1 → 2 Open token",
        "2 → 1 Open token and echo",
        "announce",
        "MRd 0xfe000000 4 B tag",
        "CplD SC 4 B tag",
        "MWr 0x123456000 64 B",
        "Split header 528 B",
        "Split data 1: MWr 0x123456000 512 B",
        "[again]",
        "[duplicate]",
        "Sideband link up x16",
        "Sideband power state D3hot",
        "Unbind",
        "Close: removed",
    ] {
        says(text);
    }
    let packets = |filter: &str| tshark::matching(&path, filter).len();
    assert_eq!(packets("dxpu"), frames.len());
    assert_eq!(packets("dxpu.kind == 3"), 1);
    assert!(packets("dxpu.tlp.type == \"MRd\" && dxpu.tlp.address == 0xfe000000") > 100);
    assert!(packets("dxpu.tlp.status.name == \"SC\"") > 100);
    assert!(packets("dxpu.record.retransmission_of") > 10);
    // The answer is sent when the question has come, 30 us after it was sent, or later.
    assert!(packets("dxpu.response_time >= 0.00003") > 100);
    assert_eq!(packets("dxpu.response_time < 0.000025"), 0);
    assert!(packets("dxpu.record.epoch == \"1.5\"") > 100);
    assert_eq!(packets("dxpu.expert.crc || dxpu.expert.frame || dxpu.expert.record"), 0);
}

/// The filters of the table in the dissector's README.
fn filters_of_the_readme() -> Vec<String> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tlp-codec/wireshark/README.md");
    let readme = std::fs::read_to_string(readme).expect("the dissector's README");
    let rows = readme.lines().skip_while(|line| *line != "| to see | filter |").skip(2);
    let cells = rows.map_while(|row| row.strip_prefix("| ")?.split_once(" | "));
    let cells: Vec<String> = cells.map(|(_, filters)| filters.to_owned()).collect();
    cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn every_filter_of_the_readme_is_one() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("link.pcap");
    let frames = traffic::of_a_link(2);
    capture::write(&path, &frames[..40]);
    let filters = filters_of_the_readme();
    assert!(filters.len() > 12, "{filters:?}");
    for filter in filters {
        let found = tshark::matching(&path, &filter).len();
        assert!(found > 0 || filter != "dxpu", "{filter}");
    }
}

/// A record of an epoch that is over, as only a broken proxy would send it.
#[test]
fn an_epoch_that_is_over_is_marked() {
    use crate::vectors::{address, frame, header};
    use tlp_codec::fabric::{RecordAddress, Sideband};
    use tlp_codec::ids::Epoch;
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stale.pcap");
    let frames: Vec<Captured> = [77, 78, 77, 78]
        .into_iter()
        .enumerate()
        .map(|(n, counter)| {
            let address = RecordAddress { epoch: Epoch::new(2, counter).unwrap(), ..address() };
            let mut record = [0; 16];
            Record::Sideband(address, Sideband::Flush).emit(&mut record).unwrap();
            let header = header(FrameKind::Data, n as u32, n as u32);
            Captured::new(std::time::Duration::from_millis(n as u64), frame(&header, &record))
        })
        .collect();
    capture::write(&path, &frames);
    assert_eq!(tshark::matching(&path, "dxpu.expert.stale"), [3]);
    assert_eq!(tshark::matching(&path, "dxpu.record.newer_epoch_in == 2"), [3]);
}

fn emitted(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = vec![0; record.emitted_len()];
    record.emit(&mut bytes).unwrap();
    bytes
}

/// A response time that is a hair below whole seconds, as a difference of two times may be.
#[test]
fn a_response_time_of_a_second_is_one() {
    use crate::vectors::{address, frame, header};
    use tlp_codec::crc;
    use tlp_codec::fabric::{Header, TlpRecord, TlpTraits};
    use tlp_codec::ids::OutstandingRef;
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("second.pcap");
    let record = |class, tlp: &[u8]| {
        let mut address = address();
        if class == Class::Completion {
            (address.source, address.destination) = (address.destination, address.source);
        }
        let outstanding = Some(OutstandingRef { index: 6, generation: 2 });
        let traits = TlpTraits { class, relaxed: false, sampled: false, outstanding };
        emitted(&Record::Tlp(TlpRecord { address, traits, tlp, crc: crc::tlp(tlp) }))
    };
    let asked = record(Class::NonPosted, &[0, 0, 0, 1, 1, 0, 5, 0x0f, 0, 0, 0x10, 0]);
    let completion = [0x4a, 0, 0, 1, 3, 0, 0, 4, 0, 0, 5, 0x10, 1, 2, 3, 4];
    let answered = record(Class::Completion, &completion);
    let there = header(FrameKind::Data, 2, 1);
    let back = Header {
        source: there.destination,
        destination: there.source,
        source_incarnation: there.destination_incarnation.unwrap(),
        destination_incarnation: Some(there.source_incarnation),
        ..there
    };
    let at = std::time::Duration::from_millis;
    let begin = Captured::new(at(0), frame(&header(FrameKind::Probe, 1, 0), &[]));
    let frames = [
        begin,
        Captured::new(at(1300), frame(&there, &asked)),
        Captured::new(at(2300), frame(&back, &answered)),
    ];
    capture::write(&path, &frames);
    assert_eq!(tshark::matching(&path, "dxpu.response_time == 1"), [3]);
}

#[test]
fn a_split_tlp_s_header_record_is_where_it_came_first() {
    use crate::vectors::{address, frame, header};
    use tlp_codec::crc;
    use tlp_codec::fabric::{SplitData, SplitHeader, TlpTraits};
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("split.pcap");
    let write = [&[0x60, 0, 0, 1, 1, 0, 0, 0x0f, 0, 0, 0, 1, 0, 0, 0, 0][..], &[7; 4]].concat();
    let (address, class) = (address(), Class::Posted);
    let traits = TlpTraits { class, relaxed: false, sampled: false, outstanding: None };
    let (crc, bytes) = (crc::tlp(&write), &write[..16]);
    let start =
        Record::SplitHeader(SplitHeader { address, traits, total: 20, parts: 1, crc, bytes });
    let bytes = &write[16..];
    let more = Record::SplitData(SplitData { address, class, part: 1, offset: 16, bytes });
    let frames: Vec<Captured> = [(&start, 20), (&start, 20), (&more, 21)]
        .into_iter()
        .enumerate()
        .map(|(n, (record, sequence))| {
            let header = header(FrameKind::Data, n as u32, sequence);
            let at = std::time::Duration::from_millis(n as u64);
            Captured::new(at, frame(&header, &emitted(record)))
        })
        .collect();
    capture::write(&path, &frames);
    assert_eq!(tshark::matching(&path, "dxpu.split.header_in == 1"), [1, 2, 3]);
    assert_eq!(tshark::matching(&path, "dxpu.split.reassembled_in == 3"), [1, 2, 3]);
}
