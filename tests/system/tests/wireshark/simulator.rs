//! What the simulator writes as a capture.

use crate::capture::Captured;
use crate::compare::{self, Decoded, has_expert};
use crate::tshark;
use pcap_file::pcap::PcapReader;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use tlp_codec::fabric::ETHERTYPE;

/// Packets that are compared.
const MOST: usize = 500;

/// The frames of the first packets of a capture.
fn frames(file: &Path) -> Vec<Captured> {
    let mut reader = PcapReader::new(File::open(file).expect("the capture")).unwrap();
    let mut frames = Vec::new();
    while frames.len() < MOST
        && let Some(packet) = reader.next_packet()
    {
        let packet = packet.expect("a packet");
        assert_eq!(packet.data[12..14], ETHERTYPE.to_be_bytes());
        frames.push(Captured::new(packet.timestamp, packet.data[14..].to_vec()));
    }
    frames
}

#[test]
fn a_capture_of_the_simulator_is_shown_as_the_codec_reads_it() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().expect("a test knows its executable");
    let program = own.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("dxpu-sim");
    // None in which a proxy begins anew: sequences would, too.
    for (profile, seed) in [("reset", "7"), ("lossy", "12")] {
        let path = folder.path().join(format!("{profile}.pcap"));
        let mut simulator = Command::new(&program);
        simulator.args(["--profile", profile, "--seeds", seed, "--pcap"]).arg(&path);
        let said = simulator.output().unwrap_or_else(|error| {
            panic!("{}: {error}: run `cargo build --workspace` first", program.display())
        });
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        let frames = frames(&path);
        assert_eq!(frames.len(), MOST, "{profile}");
        let shown = tshark::json_of_first(&path, MOST as u32);
        let compared = compare::compare(&frames, &shown, &Decoded::of(&path));
        assert!(compared > 100, "{profile}: {compared} TLPs");
        // They are as they were sent, whatever became of them.
        for tree in shown.iter().filter_map(|shown| shown.tree.as_ref()) {
            for name in ["crc", "frame", "record", "tlp", "tlp_crc", "class"] {
                assert!(!has_expert(tree, name), "{profile}: {name}: {tree}");
            }
        }
    }
}
