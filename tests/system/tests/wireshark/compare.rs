//! What the dissector shows, beside what the codec reads.

use crate::capture::Captured;
use crate::tshark::{self, Shown, all, each, number, numbers};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use tlp_codec::fabric::{Frame, FrameKind, Header, Record, RecordAddress, TlpTraits};

/// What `tlp decode --json` says: by packet and sequence of the record, or of the first one.
pub(crate) struct Decoded {
    tlps: HashMap<(u64, u32), Value>,
    /// The same for TLPs that were split: by source and destination node and sequence of the header
    /// record.
    split: HashMap<(u64, u64, u32), Value>,
}

impl Decoded {
    /// Has the `tlp` command read a capture.
    pub(crate) fn of(capture: &Path) -> Self {
        let own = std::env::current_exe().expect("a test knows its executable");
        let program = own.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("tlp");
        let mut command = Command::new(&program);
        let output = command.args(["decode", "--json", "--file"]).arg(capture).output();
        let output = output.unwrap_or_else(|error| {
            panic!("{}: {error}: run `cargo build --workspace` first", program.display())
        });
        let (mut tlps, mut split) = (HashMap::new(), HashMap::new());
        for line in String::from_utf8(output.stdout).expect("JSON is UTF-8").lines() {
            let tlp: Value = serde_json::from_str(line).expect("a line of JSON");
            let from = &tlp["from"];
            let sequence = from["sequence"].as_u64().unwrap() as u32;
            let [source, destination] =
                ["source", "destination"].map(|end| from[end].as_u64().unwrap());
            split.insert((source, destination, sequence), tlp.clone());
            tlps.insert((from["packet"].as_u64().unwrap(), sequence), tlp);
        }
        Self { tlps, split }
    }

    pub(crate) fn len(&self) -> usize {
        self.tlps.len()
    }
}

/// Compares every frame, record and TLP of a capture of `frames`. Gives the number of TLPs that were
/// compared.
pub(crate) fn compare(frames: &[Captured], shown: &[Shown], decoded: &Decoded) -> usize {
    assert_eq!(frames.len(), shown.len());
    let mut compared = 0;
    for (frame, shown) in frames.iter().zip(shown) {
        let place = format!("packet {}", shown.number);
        let tree = shown.tree.as_ref().unwrap_or_else(|| panic!("{place} is not ours"));
        let frame = Frame::new_checked(&frame.bytes[..]).expect("a right frame");
        compare_header(&place, &frame.header(), frame.frame_len(), tree);
        match frame.kind() {
            FrameKind::Open => compare_open(&place, &frame, tree),
            FrameKind::Close => {
                let reason = frame.close().unwrap().reason.byte();
                assert_eq!(numbers(tree, "dxpu.close.reason"), [u64::from(reason)], "{place}");
            }
            FrameKind::Probe => {
                assert!(tree.get("dxpu.record.kind").is_none(), "{place}: a probe has no records");
            }
            FrameKind::Data => {
                compared += compare_records(&place, shown.number, &frame, tree, decoded);
            }
        }
    }
    compared
}

#[track_caller]
fn same(place: &str, tree: &Value, name: &str, expected: impl Into<u64>) {
    let name = format!("dxpu.{name}");
    let shown: Vec<u64> = each(tree.get(&name)).into_iter().map(number).collect();
    assert_eq!(shown, [expected.into()], "{place}: {name} in {tree}");
}

fn compare_header(place: &str, header: &Header, length: usize, tree: &Value) {
    same(place, tree, "version", 1_u8);
    same(place, tree, "kind", header.kind as u8);
    same(place, tree, "length", length as u64);
    same(place, tree, "source", header.source.get());
    same(place, tree, "destination", header.destination.get());
    same(place, tree, "source_incarnation", header.source_incarnation);
    let incarnation = header.destination_incarnation;
    same(place, tree, "destination_incarnation", incarnation.unwrap_or(0));
    same(place, &tree["dxpu.flags_tree"], "flags.destination_known", incarnation.is_some());
    same(place, &tree["dxpu.flags_tree"], "flags.ack", header.ack.is_some());
    same(place, tree, "session", header.session);
    same(place, tree, "path", header.path.get());
    same(place, tree, "packet", header.packet);
    same(place, tree, "sequence", header.sequence);
    same(place, &tree["dxpu.crc_tree"], "crc.ok", true);
    let Some(ack) = &header.ack else {
        assert!(tree.get("dxpu.ack").is_none(), "{place}: {tree}");
        return;
    };
    same(place, tree, "ack", ack.next);
    let branch = &tree["dxpu.ack_tree"];
    same(place, branch, "ack.path", ack.path.get());
    same(place, branch, "ack.packet", ack.packet);
    same(place, branch, "ack.delay", ack.delay_us);
    same(place, branch, "ack.ce", ack.ce);
    let ranges = ack.sacks.as_slice();
    let firsts: Vec<u64> =
        ranges.iter().map(|range| ack.next.wrapping_add(range.offset.into()).into()).collect();
    let lasts: Vec<u64> = ranges
        .iter()
        .map(|range| u32::from(range.offset) + u32::from(range.length) - 1)
        .map(|distance| ack.next.wrapping_add(distance).into())
        .collect();
    assert_eq!(numbers(branch, "dxpu.sack.first"), firsts, "{place}");
    assert_eq!(numbers(branch, "dxpu.sack.last"), lasts, "{place}");
}

fn compare_open(place: &str, frame: &Frame<&[u8]>, tree: &Value) {
    let open = frame.open().unwrap();
    same(place, tree, "open.min_version", open.min_version);
    same(place, tree, "open.max_version", open.max_version);
    same(place, tree, "open.max_frame", open.max_frame);
    same(place, tree, "open.window", open.window);
    same(place, tree, "open.max_tlp", open.max_tlp);
    same(place, tree, "open.session", open.session);
    same(place, tree, "open.token", open.token);
    same(place, tree, "open.echo", open.echo);
}

fn compare_records(
    place: &str,
    packet: u64,
    frame: &Frame<&[u8]>,
    tree: &Value,
    decoded: &Decoded,
) -> usize {
    let header = frame.header();
    let records: Vec<_> = frame.records().map(|record| record.expect("a right record")).collect();
    let branches = each(tree.get("dxpu.record"));
    assert_eq!(branches.len(), records.len(), "{place}: {tree}");
    let mut sequence = header.sequence;
    let mut compared = 0;
    for (record, branch) in records.iter().zip(branches) {
        let place = format!("{place} record {sequence}");
        same(&place, branch, "record.sequence", sequence);
        same(&place, branch, "record.length", record.emitted_len() as u64);
        compare_record(&place, record, branch);
        let first = match record {
            Record::SplitData(data) => sequence.wrapping_sub(data.part.into()),
            _ => sequence,
        };
        for tlp in each(branch.get("dxpu.tlp")) {
            let [source, destination] =
                [header.source, header.destination].map(|node| u64::from(node.get()));
            let expected = match record {
                Record::Tlp(_) => decoded.tlps.get(&(packet, sequence)),
                _ => decoded.split.get(&(source, destination, first)),
            };
            match expected {
                Some(expected) => compare_tlp(&place, tlp, expected),
                None => assert!(tlp.get("dxpu.tlp.rule").is_some(), "{place}: {tlp}"),
            }
            compared += 1;
        }
        sequence = sequence.wrapping_add(1);
    }
    compared
}

fn compare_record(place: &str, record: &Record<'_>, branch: &Value) {
    let kind = |kind: u8| same(place, branch, "record.kind", kind);
    match record {
        Record::Nop => kind(0),
        Record::Tlp(tlp) => {
            kind(1);
            compare_address(place, &tlp.address, branch);
            compare_traits(place, &tlp.traits, branch);
            same(place, branch, "record.tlp_crc", tlp.crc);
            let crc = &branch["dxpu.record.tlp_crc_tree"];
            same(place, crc, "record.tlp_crc.ok", tlp.crc_matches());
        }
        Record::SplitHeader(start) => {
            kind(2);
            compare_address(place, &start.address, branch);
            compare_traits(place, &start.traits, branch);
            same(place, branch, "split.total", start.total);
            same(place, branch, "split.parts", start.parts);
            same(place, branch, "record.tlp_crc", start.crc);
            assert_eq!(bytes(&branch["dxpu.split.bytes"]), start.bytes, "{place}");
        }
        Record::SplitData(data) => {
            kind(3);
            compare_address(place, &data.address, branch);
            let flags = &branch["dxpu.record.flags_tree"];
            same(place, flags, "record.class", data.class as u8);
            same(place, branch, "split.part", data.part);
            same(place, branch, "split.offset", data.offset);
            assert_eq!(bytes(&branch["dxpu.split.bytes"]), data.bytes, "{place}");
        }
        Record::Sideband(address, sideband) => {
            kind(4);
            compare_address(place, address, branch);
            let (code, argument) = sideband.code();
            same(place, branch, "sideband.code", code);
            same(place, branch, "sideband.argument", argument);
            same(place, branch, "sideband.flushes", sideband.flushes());
        }
        Record::Credits(credits) => {
            kind(5);
            compare_address(place, &credits.address, branch);
            let flags = &branch["dxpu.record.flags_tree"];
            same(place, flags, "record.announce", credits.announce);
            same(place, branch, "credits.posted", credits.tlps[0]);
            same(place, branch, "credits.non_posted", credits.tlps[1]);
            same(place, branch, "credits.completion", credits.tlps[2]);
            same(place, branch, "credits.sideband", credits.sideband);
        }
        Record::Unbind(address) => {
            kind(6);
            compare_address(place, address, branch);
        }
    }
}

fn compare_address(place: &str, address: &RecordAddress, branch: &Value) {
    same(place, branch, "record.source_slot", address.source.get());
    same(place, branch, "record.destination_slot", address.destination.get());
    same(place, branch, "record.function", address.function.get());
    assert_eq!(branch["dxpu.record.epoch"], address.epoch.to_string(), "{place}");
}

fn compare_traits(place: &str, traits: &TlpTraits, branch: &Value) {
    let flags = &branch["dxpu.record.flags_tree"];
    same(place, flags, "record.class", traits.class as u8);
    same(place, branch, "record.relaxed", traits.relaxed);
    same(place, branch, "record.sampled", traits.sampled);
    same(place, branch, "record.has_outstanding", traits.outstanding.is_some());
    let expected = traits.outstanding.map(|entry| format!("{}.{}", entry.index, entry.generation));
    let shown = branch.get("dxpu.record.outstanding").and_then(Value::as_str);
    assert_eq!(shown, expected.as_deref(), "{place}");
}

/// Bytes as tshark writes them: `01:02`.
fn bytes(value: &Value) -> Vec<u8> {
    let digits: String = value.as_str().expect("bytes").split(':').collect();
    unhex(&digits)
}

pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits")).collect()
}

const ADDRESS_TYPES: [&str; 4] = ["untranslated", "translation-request", "translated", "reserved"];
const ROUTINGS: [&str; 8] =
    ["to-root", "by-address", "by-id", "broadcast", "local", "gathered", "reserved6", "reserved7"];

/// Compares a TLP with the fields that `tlp decode --json`, or a vector, has of it.
pub(crate) fn compare_tlp(place: &str, tlp: &Value, expected: &Value) {
    let shown = |name: &str| {
        let values = all(tlp, &format!("dxpu.tlp.{name}"));
        assert!(values.len() == 1, "{place}: {name} is there {} times in {tlp}", values.len());
        values[0]
    };
    for (name, value) in expected.as_object().expect("fields") {
        match name.as_str() {
            // `reserved` are bits that a receiver ignores.
            "from" | "notes" | "reserved" | "again" => {}
            "prefixes" => {
                let prefixes: Vec<Vec<u8>> =
                    all(tlp, "dxpu.tlp.prefixes").into_iter().map(bytes).collect();
                let expected = value.as_array().expect("a list").iter();
                let expected: Vec<Vec<u8>> =
                    expected.map(|prefix| unhex(prefix.as_str().unwrap())).collect();
                assert_eq!(prefixes, expected, "{place}");
            }
            "data" | "ecrc" | "fields" => {
                assert_eq!(bytes(shown(name)), unhex(value.as_str().unwrap()), "{place}: {name}");
            }
            "status" => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                assert_eq!(shown("status.name"), &Value::from(text), "{place}");
            }
            "at" | "routing" => {
                let names = if name == "at" { &ADDRESS_TYPES[..] } else { &ROUTINGS[..] };
                assert_eq!(names[number(shown(name)) as usize], value, "{place}: {name}");
            }
            _ => match value {
                Value::Bool(on) => {
                    assert_eq!(number(shown(name)), u64::from(*on), "{place}: {name}")
                }
                Value::Number(n) => {
                    assert_eq!(Some(number(shown(name))), n.as_u64(), "{place}: {name}");
                }
                Value::String(text) if text.starts_with("0x") && name != "code" => {
                    assert_eq!(number(shown(name)), number(value), "{place}: {name}");
                }
                text => assert_eq!(shown(name), text, "{place}: {name}"),
            },
        }
    }
    // What the codec does not say has its usual value.
    for flag in ["ro", "ns", "ido", "ln", "poisoned", "bcm", "tc", "at"] {
        if expected.get(flag).is_none() {
            let values = numbers(tlp, &format!("dxpu.tlp.{flag}"));
            assert!(values.iter().all(|value| *value == 0), "{place}: {flag} in {tlp}");
        }
    }
    for absent in ["data", "ecrc", "prefixes"] {
        let there = !all(tlp, &format!("dxpu.tlp.{absent}")).is_empty();
        assert_eq!(there, expected.get(absent).is_some(), "{place}: {absent} in {tlp}");
    }
}

/// The sequence of the first expert item of a name that a tree has, if any.
pub(crate) fn has_expert(tree: &Value, name: &str) -> bool {
    !tshark::all(tree, &format!("dxpu.expert.{name}")).is_empty()
}
