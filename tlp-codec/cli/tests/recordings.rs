//! The `tlp` command on recordings of TLPs alone; `recordings/README.md` says what they are of.

mod common;

use common::tlp;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use serde_json::Value;
use std::io::BufReader;
use std::time::Duration;

const WHOLE: &[u8] = include_bytes!("recordings/tlps.pcapng");
const CUT: &[u8] = include_bytes!("recordings/tlps-cut.pcapng");

/// The types of the TLPs that are in both.
const TYPES: [&str; 5] = ["CfgRd0", "CplD", "MWr", "MRd", "CplD"];

/// What a pipe gives at a time may be less than what tells a capture from lines.
#[test]
fn what_comes_byte_by_byte_reads_the_same() {
    let decode = |at_a_time| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let input = BufReader::with_capacity(at_a_time, WHOLE);
        tlp_cli::decode(input, true, false, &mut out, &mut err).unwrap();
        [out, err].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let whole = decode(WHOLE.len());
    assert_eq!((whole[0].lines().count(), whole[1].as_str()), (TYPES.len(), ""));
    for at_a_time in 1..5 {
        assert_eq!(decode(at_a_time), whole);
    }
}

#[test]
fn a_recording_of_tlps_gives_them_and_what_it_knows_of_each() {
    let ran = tlp(&["decode", "--json"], WHOLE);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let lines: Vec<Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["type"].as_str().unwrap()).collect::<Vec<_>>(), TYPES);
    assert_eq!((&lines[1]["data"], &lines[4]["data"]), (&"361bacd0".into(), &"44584143".into()));
    for (line, packet) in lines.iter().zip(1..) {
        let from = &line["from"];
        assert_eq!(from["packet"], packet);
        assert_eq!((&from["asker"], &from["slot"]), (&"host".into(), &1.into()));
        assert_eq!(from["epoch"], "0.1");
        for stage in ["arrived", "encoded", "sent", "received", "decoded", "delivered"] {
            let stamp = |end: &str| from[format!("{end}.{stage}")].is_u64();
            assert!(stamp("host") != stamp("box"), "{stage}: {line}");
        }
    }
    let from = |n: usize| &lines[n]["from"];
    assert_eq!((&from(0)["kind"], &from(2)["kind"]), (&"request".into(), &"posted".into()));
    // What belongs together is named the same.
    assert_eq!(from(0)["outstanding"], from(1)["outstanding"]);
    assert_ne!(from(0)["outstanding"], from(3)["outstanding"]);
}

#[test]
fn what_is_printed_of_a_recording_encodes_to_its_bytes() {
    let text = tlp(&["decode"], WHOLE).out;
    assert!(text.lines().all(|line| line.contains(" # packet ")), "{text}");
    assert!(text.contains(" kind posted sequence "), "{text}");
    let hex = tlp(&["encode"], text.as_bytes());
    assert_eq!((hex.code, hex.err.as_str()), (0, ""));
    assert_eq!(hex.out.lines().count(), TYPES.len());
    for line in hex.out.lines() {
        let digit = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..line.len()).step_by(2).map(digit).collect();
        assert!(WHOLE.windows(bytes.len()).any(|part| part == bytes), "{line}");
    }
}

#[test]
fn tlps_that_a_recording_cut_are_reported_and_the_others_go_through() {
    let ran = tlp(&["decode", "--json"], CUT);
    assert_eq!((ran.code, ran.out.lines().count()), (1, 2), "{}", ran.err);
    let reports: Vec<&str> = ran.err.lines().collect();
    assert_eq!(reports.len(), 3, "{}", ran.err);
    for (report, packet) in reports.iter().zip([2, 3, 5]) {
        let told = format!("tlp: packet {packet}: the capture holds only 12 of the packet's 16 ");
        assert!(report.starts_with(&told) && report.contains("--snap"), "{report}");
    }
}

#[test]
fn tlps_alone_may_be_in_the_older_format_too_and_wrong_ones_are_reported() {
    let capture = |link: DataLink| {
        let header = PcapHeader { datalink: link, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for bytes in [&[0, 0, 0, 1, 1, 0, 5, 0x0f, 0, 0, 0x10, 0][..], &[0, 0, 0, 1]] {
            let packet = PcapPacket::new(Duration::from_millis(1), bytes.len() as u32, bytes);
            writer.write_packet(&packet).unwrap();
        }
        writer.into_writer()
    };
    let ran = tlp(&["decode"], &capture(DataLink::USER0));
    assert_eq!((ran.code, ran.out.lines().count()), (1, 1), "{}", ran.err);
    assert!(ran.out.starts_with("MRd ") && ran.out.contains("# packet 1"), "{}", ran.out);
    assert!(ran.err.starts_with("tlp: packet 2: "), "{}", ran.err);
    // Under another link type they are no TLPs.
    let ran = tlp(&["decode"], &capture(DataLink::USER1));
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("no DxPU frame and no TLP in it; packets read: 2"), "{}", ran.err);
}
