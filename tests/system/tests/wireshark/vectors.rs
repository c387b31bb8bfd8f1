//! The vectors of `tests/vectors` and the examples of `wire.md`.

use crate::capture::{self, Captured, Within};
use crate::compare::{self, Decoded, has_expert, unhex};
use crate::tshark::{self, all, each, numbers};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tlp_codec::crc;
use tlp_codec::fabric::*;
use tlp_codec::ids::*;
use tlp_codec::tlp::{Class, Packet};

fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("vectors are JSON")
}

pub(crate) fn header(kind: FrameKind, packet: u32, sequence: u32) -> Header {
    Header {
        kind,
        destination: NodeId::new(2).unwrap(),
        source: NodeId::new(1).unwrap(),
        source_incarnation: 7,
        destination_incarnation: Some(8),
        session: 9,
        path: PathId::ZERO,
        packet,
        sequence,
        ack: None,
    }
}

pub(crate) fn address() -> RecordAddress {
    RecordAddress {
        source: SlotId::HOST,
        destination: SlotId::new(3).unwrap(),
        function: SlotFunction::new(1).unwrap(),
        epoch: Epoch::new(2, 77).unwrap(),
    }
}

/// A frame with `body` between its header and its CRC.
pub(crate) fn frame(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 9000];
    let mut writer = FrameWriter::new(&mut buffer, header).unwrap();
    writer.body(body).unwrap();
    let length = writer.finish();
    buffer[..length].to_vec()
}

/// The record of a TLP of any bytes, also such as the codec would not send.
fn tlp_record(tlp: &[u8]) -> Vec<u8> {
    let class = Packet::new_header_checked(tlp).ok().and_then(|packet| packet.class());
    let class = class.unwrap_or(Class::Posted);
    let outstanding =
        (class != Class::Posted).then_some(OutstandingRef { index: 6, generation: 2 });
    let traits = TlpTraits { class, relaxed: false, sampled: false, outstanding };
    let record = TlpRecord { address: address(), traits, tlp, crc: crc::tlp(tlp) };
    let mut bytes = vec![0; TLP_OVERHEAD + tlp.len()];
    Record::Tlp(record).emit(&mut bytes).unwrap();
    bytes
}

/// A capture with one TLP in each frame.
fn capture_of(tlps: &[Vec<u8>]) -> Vec<Captured> {
    let frames = tlps.iter().enumerate().map(|(n, tlp)| {
        let bytes = frame(&header(FrameKind::Data, n as u32, n as u32), &tlp_record(tlp));
        Captured::new(Duration::from_micros(n as u64), bytes).within(Within::ALL[n % 4])
    });
    frames.collect()
}

/// The TLP that the dissector shows of a packet.
fn tlp_of<'a>(name: &str, shown: &'a tshark::Shown) -> &'a Value {
    let tree = shown.tree.as_ref().unwrap_or_else(|| panic!("{name} is not ours"));
    all(tree, "dxpu.tlp")[0]
}

#[test]
fn every_vector_is_shown_as_it_is() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    for file in ["cocotbext.json", "captures.json", "hand.json"] {
        let path = folder.path().join(file).with_extension("pcap");
        // Of those that a capture has cut short there is nothing to be put in a record.
        let vectors: Vec<Value> = vectors(file)
            .into_iter()
            .filter(|vector| vector.get("cut_short_of").is_none())
            .collect();
        let tlps: Vec<Vec<u8>> =
            vectors.iter().map(|vector| unhex(vector["hex"].as_str().unwrap())).collect();
        let frames = capture_of(&tlps);
        capture::write(&path, &frames);
        let (shown, decoded) = (tshark::json(&path), Decoded::of(&path));
        assert_eq!(compare::compare(&frames, &shown, &decoded), vectors.len());
        assert_eq!(decoded.len(), vectors.len());
        for (vector, shown) in vectors.iter().zip(&shown) {
            let name = format!("{file}: {}", vector["name"]);
            let tlp = tlp_of(&name, shown);
            compare::compare_tlp(&name, tlp, &without_steered_tag(&vector["tlp"], tlp));
            assert!(tlp.get("dxpu.tlp.rule").is_none(), "{name}: {tlp}");
            if let Some(good) = vector["ecrc"].as_bool() {
                assert_eq!(numbers(tlp, "dxpu.tlp.ecrc.ok"), [u64::from(good)], "{name}");
                assert_eq!(has_expert(tlp, "ecrc"), !good, "{name}");
            }
        }
    }
}

/// A posted write with a steering tag has it in the tag's place: only bits 9:8 are a tag.
fn without_steered_tag(expected: &Value, tlp: &Value) -> Value {
    let mut expected = expected.clone();
    if expected["type"] == "MWr" && numbers(tlp, "dxpu.tlp.th") == [1] {
        let tag = expected["tag"].as_u64().unwrap();
        expected["tag"] = (tag & 0x300).into();
    }
    expected
}

#[test]
fn every_broken_vector_says_which_rule_it_breaks() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.pcap");
    // A record has room for 12 bytes and more, in doublewords; rules that need to know how the
    // receiver is set up, or that a TLP was read, are not the dissector's.
    let fits = |bytes: &[u8]| bytes.len() >= 12 && bytes.len().is_multiple_of(4);
    let other = ["PayloadAboveMax", "UnknownMessage", "ReadCompletionBoundary"];
    let vectors: Vec<Value> = vectors("broken.json")
        .into_iter()
        .filter(|vector| fits(&unhex(vector["hex"].as_str().unwrap())))
        .filter(|vector| !other.contains(&vector["rule"].as_str().unwrap()))
        .collect();
    assert!(vectors.len() > 20);
    let tlps: Vec<Vec<u8>> =
        vectors.iter().map(|vector| unhex(vector["hex"].as_str().unwrap())).collect();
    capture::write(&path, &capture_of(&tlps));
    for (vector, shown) in vectors.iter().zip(tshark::json(&path)) {
        let name = vector["name"].as_str().unwrap();
        let tlp = tlp_of(name, &shown);
        match vector["rule"].as_str().unwrap() {
            "Poisoned" => assert!(has_expert(tlp, "poisoned"), "{name}: {tlp}"),
            "Ecrc" => assert!(has_expert(tlp, "ecrc"), "{name}: {tlp}"),
            rule => {
                assert_eq!(all(tlp, "dxpu.tlp.rule"), [rule], "{name}: {tlp}");
                assert!(has_expert(tlp, "tlp"), "{name}: {tlp}");
            }
        }
    }
}

/// The hex blocks of `wire.md`, by name.
fn examples() -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tlp-codec/docs/wire.md");
    let document = std::fs::read_to_string(path).expect("wire.md");
    let mut lines = document.lines();
    let mut examples = Vec::new();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let digits: String = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .flat_map(|line| line.split(';').next().unwrap_or("").split_whitespace())
            .collect();
        examples.push((name.to_owned(), unhex(&digits)));
    }
    examples
}

#[test]
fn every_example_of_the_specification_is_shown_as_the_codec_reads_it() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wire.pcap");
    let mut frames = Vec::new();
    let mut kinds = Vec::new();
    for (n, (name, bytes)) in examples().into_iter().enumerate() {
        let n = n as u32;
        let bytes = if name.starts_with("record ") {
            kinds.push(bytes[0]);
            // Examples of TLPs are shown without their CRC, which comes behind.
            let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
            let mut record = bytes.clone();
            if bytes.len() < length {
                record.extend(crc::tlp(&bytes[RECORD_HEADER..]).to_le_bytes());
            }
            frame(&header(FrameKind::Data, n, n * 16), &record)
        } else {
            bytes
        };
        frames.push(Captured::new(Duration::from_micros(n.into()), bytes));
    }
    kinds.sort_unstable();
    assert_eq!(kinds, [0, 1, 2, 3, 4, 5, 6], "an example of each kind of record");
    // Ethernet pads short frames.
    for frame in &mut frames {
        frame.bytes.extend([0xee; 10]);
    }
    capture::write(&path, &frames);
    let shown = tshark::json(&path);
    let decoded = Decoded::of(&path);
    assert!(compare::compare(&frames, &shown, &decoded) >= 3);
    for shown in &shown {
        let tree = shown.tree.as_ref().unwrap();
        assert_eq!(each(tree.get("dxpu.padding")), ["ee:ee:ee:ee:ee:ee:ee:ee:ee:ee"]);
    }
}
