//! The demo's traffic, captured: in a network of its own, where nothing else talks.

use crate::capture::Captured;
use crate::compare::{self, Decoded, has_expert};
use crate::tshark;
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tlp_codec::fabric::{ETHERTYPE, Frame};

/// Packets that are compared: opening, enumeration and the first transfers; and the last ones, with which
/// the device is taken back.
const FIRST: usize = 1000;
const LATEST: usize = 300;

/// What the kernel holds for `dumpcap`, in MiB: more than all that the demo sends, so that a
/// machine that leaves `dumpcap` no processor for a while loses no frame of the capture.
const BUFFER_MIB: &str = "64";

/// A packet to nobody that is captured behind the demo's own.
const LAST: &str = "behind all that the demo sent";

const BOUND: Duration = Duration::from_secs(60);

fn skipped(reason: &str) {
    println!("SKIPPED: {reason}");
}

fn is_root() -> bool {
    // SAFETY: geteuid(2) only returns a number.
    unsafe { libc::geteuid() == 0 }
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// A network namespace, gone when dropped.
struct Space(String);

impl Space {
    /// One with nothing but a loopback interface; `None` where it cannot be had.
    fn new() -> Option<Self> {
        let name = format!("dxpu-wireshark-{}", std::process::id());
        let made = run(Command::new("ip").args(["netns", "add", &name])).status.success();
        let space = made.then_some(Self(name))?;
        let up = run(space.command("ip").args(["link", "set", "lo", "up"])).status.success();
        up.then_some(space)
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        run(Command::new("ip").args(["netns", "delete", &self.0]));
    }
}

/// A capture that goes on.
struct Dump(Child);

impl Dump {
    fn start(mut command: Command, file: &Path) -> Self {
        command.args(["-q", "-i", "lo", "-f", "udp", "-B", BUFFER_MIB, "-w"]).arg(file);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("dumpcap");
        // It has written its file's header before it captures.
        let deadline = Instant::now() + BOUND;
        while !file.metadata().is_ok_and(|file| file.len() > 0) {
            assert!(Instant::now() < deadline, "dumpcap does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }

    /// Ends it once what was sent before is in its file: it throws away what it did not read yet.
    fn stop(mut self, space: &Space, file: &Path) {
        let sent = run(space.command("bash").args([
            "-c",
            "printf '%s' \"$0\" > /dev/udp/127.0.0.1/9",
            LAST,
        ]));
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        let deadline = Instant::now() + BOUND;
        let written = || std::fs::read(file).expect("the capture");
        while !written().windows(LAST.len()).any(|bytes| bytes == LAST.as_bytes()) {
            assert!(Instant::now() < deadline, "dumpcap does not write what was sent");
            std::thread::sleep(Duration::from_millis(50));
        }
        // SAFETY: kill(2) has no memory effects; the child is not reaped yet.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGINT) };
        self.0.wait().expect("it is a child");
    }
}

/// The packets that a capture's interface had no room for; `None` where it does not say.
fn dropped(statistics: &InterfaceStatisticsBlock) -> Option<u64> {
    statistics.options.iter().find_map(|option| match option {
        InterfaceStatisticsOption::IsbIfDrop(packets) => Some(*packets),
        _ => None,
    })
}

/// The frames of a capture of UDP over IPv4 in Ethernet, by packet.
fn frames(file: &Path) -> Vec<Vec<Captured>> {
    const HEADERS: usize = 14 + 20 + 8;
    let mut reader = PcapNgReader::new(std::fs::File::open(file).expect("the capture")).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        let packet = match block.expect("a block") {
            Block::EnhancedPacket(packet) => packet,
            Block::InterfaceStatistics(statistics) => {
                let lost = dropped(&statistics).unwrap_or_default();
                assert_eq!(lost, 0, "dumpcap lost packets of the capture");
                continue;
            }
            _ => continue,
        };
        assert_ne!(packet.data[12..14], ETHERTYPE.to_be_bytes());
        let (mut frames, mut rest) = (Vec::new(), &packet.data[HEADERS..]);
        if rest == LAST.as_bytes() {
            continue;
        }
        while !rest.is_empty() {
            let length = Frame::new_checked(rest).expect("a frame").frame_len();
            let (frame, behind) = rest.split_at(length);
            frames.push(Captured::new(packet.timestamp, frame.to_vec()));
            rest = behind;
        }
        packets.push(frames);
    }
    packets
}

#[test]
fn the_demos_traffic_is_shown_as_the_codec_reads_it() {
    let Some(()) = tshark::found() else { return };
    if !is_root() {
        return skipped("to capture what the demo sends needs root");
    }
    if Command::new("dumpcap").arg("--version").output().is_err() {
        return skipped("dumpcap does not start: install the package wireshark-common");
    }
    let Some(space) = Space::new() else {
        return skipped("`ip netns add` makes no network namespace here: install iproute2");
    };
    let folder = tempfile::tempdir().unwrap();
    let (path, input) = (folder.path().join("demo.pcapng"), folder.path().join("file"));
    std::fs::write(&input, vec![0x5a; 100_000]).unwrap();
    let dump = Dump::start(space.command("dumpcap"), &path);
    let own = std::env::current_exe().expect("a test knows its executable");
    let program = own.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("dxpu-demo");
    let mut demo = space.command(program);
    demo.args(["--button-ms", "100", "--bandwidth-mib", "1", "--reads", "20", "--json"]);
    let ended = run(demo.arg(&input));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    dump.stop(&space, &path);
    let packets = frames(&path);
    // The machine that sends captures what its kernel was given at once.
    let most = packets.iter().map(Vec::len).max();
    println!("at most {} frames in one packet", most.expect("packets"));
    let count = packets.len();
    assert!(count > FIRST + LATEST, "{count} packets");
    let frames = [&packets[..FIRST], &packets[count - LATEST..]].concat().concat();
    let latest = count - LATEST + 1;
    let which = format!("frame.number <= {FIRST} || frame.number in {{{latest}..{count}}}");
    let shown = tshark::json_matching(&path, &which);
    let compared = compare::compare(&frames, &shown, &Decoded::of(&path));
    assert!(compared > 500, "{compared} TLPs in {} frames", frames.len());
    let trees: Vec<&Value> = shown.iter().filter_map(|shown| shown.tree.as_ref()).collect();
    let types: BTreeSet<&str> = trees
        .iter()
        .flat_map(|tree| tshark::all(tree, "dxpu.tlp.type"))
        .filter_map(Value::as_str)
        .collect();
    for known in ["CfgRd0", "CfgWr0", "MRd", "MWr", "Cpl", "CplD"] {
        assert!(types.contains(known), "no {known} in {types:?}");
    }
    // There is credit, and a binding's end is told. (Nothing in the demo resets a device: other captures
    // have what goes beside the TLPs.)
    let kinds: BTreeSet<u64> =
        trees.iter().flat_map(|tree| tshark::numbers(tree, "dxpu.record.kind")).collect();
    for (kind, name) in [(1, "TLP"), (5, "credits"), (6, "unbind")] {
        assert!(kinds.contains(&kind), "no record of {name}: {kinds:?}");
    }
    // Whoever asked was answered, and nothing was wrong.
    let wrong = ["crc", "frame", "record", "tlp", "tlp_crc", "class", "stale", "no_request"];
    for (number, tree) in trees.iter().enumerate() {
        for name in wrong {
            assert!(!has_expert(tree, name), "packet {}: {name}: {tree}", number + 1);
        }
    }
    let answers = trees.iter().map(|tree| tshark::all(tree, "dxpu.response_time").len());
    assert!(answers.sum::<usize>() > 100);
}
