//! The flight recorder: a drive is recorded while it is used, in every format, and what comes of
//! it is read by Wireshark's dissector and by these tests themselves.

use crate::harness::{BOUND, Ended, NVME, Pool, end, program, wait_for};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::Block;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tlp_codec::fabric::{Frame, Record};
use tlp_codec::ids::SlotId;
use tlp_codec::tlp::{Class, Packet};

/// What is written to the drive that is recorded, and to the one beside it.
const MINE: &[u8; 8] = b"RECORDED";
const OTHERS: &[u8; 8] = b"A SECRET";

/// Two drives of one box at one host, of which the first is recorded.
struct Desk {
    pool: Pool,
    _host: crate::harness::Daemon,
    boxed: Option<crate::harness::Daemon>,
    recorded: String,
    beside: String,
}

impl Desk {
    fn new() -> Self {
        let pool = Pool::new();
        let slots = [pool.drive(1, "one.img"), pool.drive(2, "two.img")];
        let boxed = Some(pool.boxed("box-a", &slots));
        let host = pool.host("host-a");
        pool.wait_ready(2);
        pool.allocate("host-a", "box-a/1");
        let recorded = pool.find("host-a", NVME, 1).remove(0);
        pool.allocate("host-a", "box-a/2");
        let both = pool.find("host-a", NVME, 2);
        let beside = both.into_iter().find(|drive| *drive != recorded).expect("there are two");
        for (name, word) in [("mine", MINE), ("others", OTHERS)] {
            std::fs::write(pool.path(name), word.repeat(8192)).expect("a file");
        }
        Self { pool, _host: host, boxed, recorded, beside }
    }

    /// Starts to record the first drive; returns when it runs.
    fn record(&self, file: &str, arguments: &[&str]) -> Child {
        let before = self.running();
        let mut command = program("dxpu-manager");
        command.args(["--server", &format!("http://{}", self.pool.listen()), "--json", "record"]);
        command.args(["bind-1", "--for", "10m", "--out", &self.pool.argument(file)]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the manager's command line");
        wait_for("the recording to run", || (self.running() > before).then_some(()));
        child
    }

    fn running(&self) -> usize {
        let list = self.pool.manager_json(&["recordings"]);
        crate::harness::items(&list).iter().filter(|recording| recording["ended"].is_null()).count()
    }

    /// Writes and reads both drives at the same time, and reads a register of the first.
    fn traffic(&self) {
        let write = |drive: &str, what: &str| {
            let file = self.pool.argument(what);
            self.pool.host_json("host-a", &["nvme-write", drive, &file]);
            let back = self.pool.argument(&format!("{what}.back"));
            self.pool.host_json("host-a", &["nvme-read", drive, &back, "--bytes", "65536"]);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write(&self.beside, "others"));
            write(&self.recorded, "mine");
            self.pool.host_json("host-a", &["latency", &self.recorded, "--reads", "20"]);
        });
    }

    /// Records while there is traffic, and ends it as Ctrl-C does.
    fn record_traffic(&self, file: &str, arguments: &[&str]) -> (PathBuf, Value) {
        let child = self.record(file, arguments);
        self.traffic();
        // SAFETY: kill(2) has no memory effects; the child is not reaped yet.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
        let view = end(child, BOUND).json();
        assert_eq!(view["ended"]["reason"], "stopped", "{view}");
        assert_eq!((&view["lost_at_host"], &view["lost_at_box"]), (&0.into(), &0.into()));
        (self.pool.path(file), view)
    }
}

/// A packet of a capture.
struct Captured {
    data: Vec<u8>,
    length: u32,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    date: u64,
    sent: bool,
    comments: Vec<String>,
}

/// The packets of a capture, its link type and what was lost.
fn read(file: &Path) -> (DataLink, Vec<Captured>, u64) {
    let mut reader = PcapNgReader::new(std::fs::File::open(file).expect("a file")).expect("pcapng");
    let (mut link, mut packets, mut lost, mut last) = (None, Vec::new(), None, None);
    while let Some(block) = reader.next_block() {
        match block.expect("a block") {
            Block::InterfaceDescription(interface) => link = Some(interface.linktype),
            Block::EnhancedPacket(packet) => {
                assert!(last <= Some(packet.timestamp), "in the order of time");
                last = Some(packet.timestamp);
                let (mut comments, mut way) = (Vec::new(), 0);
                for option in &packet.options {
                    match option {
                        EnhancedPacketOption::Comment(text) => comments.push(text.to_string()),
                        EnhancedPacketOption::Flags(flags) => way = flags & 3,
                        _ => {}
                    }
                }
                let (data, length) = (packet.data.into_owned(), packet.original_len);
                let date = packet.timestamp.as_nanos() as u64;
                packets.push(Captured { data, length, date, sent: way == 2, comments });
            }
            Block::InterfaceStatistics(statistics) => {
                lost = statistics.options.iter().find_map(|option| match option {
                    InterfaceStatisticsOption::IsbIfDrop(count) => Some(*count),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    (link.expect("an interface"), packets, lost.expect("statistics"))
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// Lines that tshark prints of fields, with the dissector; `None` where there is no tshark.
fn tshark(capture: &Path, arguments: &[&str], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tlp-codec/wireshark/dxpu.lua");
    let mut command = Command::new("tshark");
    command.args(["-n", "-2", "-C", "Default", "-X"]);
    command.arg(format!("lua_script:{}", script.display())).arg("-r").arg(capture);
    command.args(arguments).args(["-T", "fields"]);
    // No configuration of this user's.
    command.env("WIRESHARK_CONFIG_DIR", capture.with_extension("config"));
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        println!("SKIPPED: tshark does not start: install the package tshark");
        return None;
    };
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success() && !err.contains("Lua"), "{err}");
    Some(out.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

#[test]
fn frames_have_this_binding_and_no_other() {
    let desk = Desk::new();
    for from in ["host", "box"] {
        let file = format!("frames-{from}.pcapng");
        let (path, view) = desk.record_traffic(&file, &["--seen-from", from]);
        assert_eq!(view["format"], "frames");
        let (link, packets, lost) = read(&path);
        assert_eq!((link, lost), (DataLink::ETHERNET, 0));
        assert_eq!(view["packets"], packets.len());
        let (mut tlps, mut nops) = (0, 0);
        for packet in &packets {
            // Ethernet, IPv4 and UDP.
            let frame = Frame::new_checked(&packet.data[42..]).expect("a right frame");
            assert_eq!(packet.length as usize, packet.data.len());
            for record in frame.records() {
                let address = match record.expect("a right record") {
                    Record::Nop => {
                        nops += 1;
                        continue;
                    }
                    Record::Tlp(r) => {
                        assert!(r.crc_matches());
                        tlps += 1;
                        r.address
                    }
                    Record::SplitHeader(r) => r.address,
                    Record::SplitData(r) => r.address,
                    Record::Credits(r) => r.address,
                    Record::Sideband(address, _) | Record::Unbind(address) => address,
                };
                let slot = address.source.get().max(address.destination.get());
                assert_eq!(SlotId::new(slot), SlotId::new(1));
            }
        }
        assert!(tlps > 100, "{tlps} TLPs, {nops} NOPs");
        let bytes = std::fs::read(&path).expect("a file");
        assert!(has(&bytes, MINE) && !has(&bytes, OTHERS));
        let fields = [
            "dxpu.source",
            "dxpu.response_in",
            "dxpu.expert.crc",
            "dxpu.expert.record",
            "frame.comment",
        ];
        if let Some(shown) = tshark(&path, &[], &fields) {
            assert_eq!(shown.len(), packets.len());
            let column = |at: usize| shown.iter().filter(|line| !line[at].is_empty()).count();
            assert_eq!(column(0), packets.len(), "each is a frame of the fabric");
            assert!(column(1) > 20, "requests know their completions");
            assert_eq!((column(2), column(3)), (0, 0), "nothing is wrong with any");
            for (line, packet) in shown.iter().zip(&packets) {
                assert_eq!(line[4].matches("kind=").count(), packet.comments.len(), "{line:?}");
            }
        }
    }
    // The first bytes alone are no payload, and say which TLP the first one is.
    let (path, _) = desk.record_traffic("short.pcapng", &["--snap", "70"]);
    let (_, packets, _) = read(&path);
    let first = packets.iter().filter_map(|packet| packet.comments.first());
    assert!(first.filter(|comment| comment.contains("host.arrived=")).count() > 20);
    assert!(packets.iter().all(|packet| packet.data.len() <= 42 + 70));
    assert!(packets.iter().any(|packet| packet.length as usize > packet.data.len()));
    assert!(!has(&std::fs::read(&path).expect("a file"), &MINE.repeat(8)));
}

/// The words `name=value` of a comment.
fn words(comment: &str) -> BTreeMap<&str, &str> {
    comment.split(' ').filter_map(|word| word.split_once('=')).collect()
}

#[test]
fn tlps_have_the_six_stages_of_both_ends() {
    let desk = Desk::new();
    for from in ["host", "box"] {
        let file = format!("tlps-{from}.pcapng");
        let (path, view) = desk.record_traffic(&file, &["--format", "tlps", "--seen-from", from]);
        let (link, packets, lost) = read(&path);
        assert_eq!((link, lost), (DataLink::USER0, 0));
        assert_eq!(view["packets"], packets.len());
        let (mut whole, mut requests, mut completions) = (0, 0, 0);
        for packet in &packets {
            let tlp = Packet::new_checked(&packet.data[..]).expect("a right TLP");
            assert_eq!(tlp.total_len(), packet.length as usize);
            let [comment] = &packet.comments[..] else { panic!("{:?}", packet.comments) };
            let words = words(comment);
            assert_eq!((words["slot"], words["function"]), ("1", "0"), "{comment}");
            match words["kind"] {
                "request" => requests += 1,
                "completion" => completions += 1,
                "posted" => assert!(words.contains_key("sequence"), "{comment}"),
                other => panic!("{other}"),
            }
            let host_sends = (words["asker"] == "host") != (words["kind"] == "completion");
            let (sent, got) = stages(&words, host_sends);
            whole += u32::from(sent.iter().chain(&got).all(Option::is_some));
        }
        // Those under way at the beginning or the end are not whole.
        assert!(whole as usize * 100 > packets.len() * 95, "{whole} of {}", packets.len());
        assert!(requests > 50 && completions > 50, "{requests}, {completions}");
        let bytes = std::fs::read(&path).expect("a file");
        assert!(has(&bytes, MINE) && !has(&bytes, OTHERS));
        let user = r#"uat:user_dlts:"User 0 (DLT=147)","dxpu_tlp","0","","0","""#;
        if let Some(shown) = tshark(&path, &["-o", user], &["dxpu.tlp.type", "frame.comment"]) {
            assert_eq!(shown.len(), packets.len());
            assert!(shown.iter().all(|line| !line[0].is_empty() && line[1].contains("kind=")));
        }
    }
}

/// Three stages of a TLP at one end.
type Stages = [Option<u64>; 3];

/// When a TLP was where, by the words of its comment: at its sender, and at its receiver.
fn stages(words: &BTreeMap<&str, &str>, host_sends: bool) -> (Stages, Stages) {
    let (sender, receiver) = if host_sends { ("host", "box") } else { ("box", "host") };
    let time = |end: &str, stage: &str| -> Option<u64> {
        words.get(format!("{end}.{stage}").as_str()).map(|time| time.parse().unwrap())
    };
    let sent = ["arrived", "encoded", "sent"].map(|stage| time(sender, stage));
    let got = ["received", "decoded", "delivered"].map(|stage| time(receiver, stage));
    assert!(sent.is_sorted() && got.is_sorted(), "{words:?}");
    (sent, got)
}

/// What a comment has to begin with, of a record that carries a TLP.
fn said(sequence: u32, record: &Record<'_>, host_sends: bool) -> Option<String> {
    let (address, traits) = match record {
        Record::Tlp(r) => (r.address, r.traits),
        Record::SplitHeader(r) => (r.address, r.traits),
        Record::SplitData(r) => return Some(format!("record={sequence} part={} ", r.part)),
        _ => return None,
    };
    let (kind, answers) = match traits.class {
        Class::Posted => ("posted", false),
        Class::NonPosted => ("request", false),
        Class::Completion => ("completion", true),
    };
    let which = match traits.outstanding {
        Some(entry) => format!("outstanding={}.{}", entry.index, entry.generation),
        None => format!("sequence={sequence}"),
    };
    let asker = if host_sends != answers { "host" } else { "device" };
    let key = address.binding(host_sends);
    Some(format!(
        "record={sequence} kind={kind} {which} asker={asker} slot={} function={} epoch={}",
        key.slot, key.function, key.epoch
    ))
}

#[test]
fn frames_have_the_stages_of_each_of_their_records() {
    let desk = Desk::new();
    for from in ["host", "box"] {
        let (path, _) = desk.record_traffic(&format!("{from}.pcapng"), &["--seen-from", from]);
        let (_, packets, _) = read(&path);
        let (mut all, mut whole, mut between) = (0, 0, Vec::new());
        let mut seen = HashSet::new();
        for packet in &packets {
            let frame = Frame::new_checked(&packet.data[42..]).expect("a right frame");
            let host_sends = packet.sent == (from == "host");
            let numbered = (frame.header().sequence..).zip(frame.records());
            let wanted: Vec<(u32, String)> = numbered
                .filter_map(|(at, record)| {
                    Some((at, said(at, &record.expect("a right record"), host_sends)?))
                })
                .collect();
            let comments = &packet.comments;
            assert_eq!(comments.len(), wanted.len(), "{wanted:?}, {comments:?}");
            for (comment, (at, wanted)) in comments.iter().zip(&wanted) {
                assert!(comment.starts_with(wanted), "{wanted}, but {comment}");
                let words = words(comment);
                let (sent, got) = stages(&words, host_sends);
                all += 1;
                whole += u32::from(sent.iter().chain(&got).all(Option::is_some));
                // The frame's own time is that at which it came or was begun, by the same clock. A
                // record that is sent again came with the first of its frames.
                let first = seen.insert((host_sends, *at));
                if let (false, true, Some(received)) = (packet.sent, first, got[0]) {
                    between.push(packet.date.wrapping_sub(received));
                }
            }
        }
        // Those under way at the beginning or the end are not whole.
        assert!(all > 100 && whole * 100 > all * 95, "{whole} of {all}");
        assert!(between.len() > 50 && between.iter().all(|all| *all == between[0]), "{between:?}");
    }
}

/// Asserts that slices of one track lie inside each other or follow each other.
fn assert_nested(slices: &mut [(f64, f64)]) {
    slices.sort_by(|a, b| a.0.total_cmp(&b.0).then((b.0 + b.1).total_cmp(&(a.0 + a.1))));
    // A thousandth of a nanosecond is rounding.
    let slack = 1e-3;
    let mut open: Vec<f64> = Vec::new();
    for &(start, length) in slices.iter() {
        let end = start + length;
        while open.last().is_some_and(|&until| until <= start + slack) {
            open.pop();
        }
        if let Some(&until) = open.last() {
            assert!(end <= until + slack, "a slice to {end} in one to {until}");
        }
        open.push(end);
    }
}

#[test]
fn a_trace_has_a_slice_for_each_request_with_its_stages_inside() {
    let desk = Desk::new();
    let (path, view) = desk.record_traffic("drive.perfetto.json", &[]);
    assert_eq!(view["format"], "perfetto");
    let bytes = std::fs::read(&path).expect("a file");
    let trace: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(trace["displayTimeUnit"], "ns");
    assert_eq!(
        (&trace["otherData"]["lost_at_host"], &trace["otherData"]["lost_at_box"]),
        (&0.into(), &0.into())
    );
    let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let (mut names, mut inside, mut requests) = (Vec::new(), BTreeMap::new(), 0);
    for event in trace["traceEvents"].as_array().expect("events") {
        let number = |field: &str| event[field].as_u64().unwrap_or_else(|| panic!("{event}"));
        let track = (number("pid"), number("tid"));
        match event["ph"].as_str() {
            Some("M") => {
                let name = event["args"]["name"].as_str().expect("a name");
                if event["name"] == "process_name" {
                    assert!(name.contains("box-a/1") && name.contains("host-a"), "{name}");
                }
                names.push((event["name"].as_str().expect("a text").to_owned(), track));
            }
            Some("X") => {
                let time = |field: &str| event[field].as_f64().unwrap_or_else(|| panic!("{event}"));
                let (start, length) = (time("ts"), time("dur"));
                assert!(start >= 0.0 && length >= 0.0, "{event}");
                tracks.entry(track).or_default().push((start, length));
                let name = event["name"].as_str().expect("a name").to_owned();
                if event["cat"].is_string() {
                    requests += 1;
                    assert!(event["args"]["bytes"].is_u64(), "{event}");
                } else {
                    *inside.entry(name).or_insert(0) += 1;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(requests > 100, "{requests}");
    for stage in [
        "arrived → encoded",
        "encoded → sent",
        "network",
        "received → decoded",
        "decoded → delivered",
        "device",
        "host memory",
    ] {
        assert!(inside.get(stage).is_some_and(|count| *count > 5), "{stage}: {inside:?}");
    }
    for (track, slices) in &mut tracks {
        assert!(names.contains(&("thread_name".to_owned(), *track)), "{track:?}");
        assert_nested(slices);
    }
}

#[test]
fn a_recording_ends_with_a_reason_when_a_proxy_restarts() {
    let mut desk = Desk::new();
    let child = desk.record("cut.pcapng", &[]);
    desk.traffic();
    desk.boxed.take().expect("it runs").kill();
    let view = end(child, BOUND).json();
    let reason = view["ended"]["reason"].as_str().expect("it ended");
    assert!(["proxy-gone", "binding-ended"].contains(&reason), "{view}");
    let detail = view["ended"]["detail"].as_str().expect("a text");
    assert!(detail.contains("box-a") || detail.contains("bind-1"), "{view}");
    // What was recorded until then is there.
    let (_, packets, _) = read(&desk.pool.path("cut.pcapng"));
    assert!(!packets.is_empty());
    // What does not exist cannot be recorded, and leaves no file.
    let file = desk.pool.argument("nothing.pcapng");
    let ended: Ended = desk.pool.manager(&["record", "bind-77", "--out", &file]);
    ended.fails(3, &["bind-77"]);
    assert!(!desk.pool.path("nothing.pcapng").exists());
    // Nor does it cost what was there before.
    let cut = std::fs::read(desk.pool.path("cut.pcapng")).expect("a file");
    let file = desk.pool.argument("cut.pcapng");
    desk.pool.manager(&["record", "bind-77", "--out", &file]).fails(3, &["bind-77"]);
    assert_eq!(std::fs::read(desk.pool.path("cut.pcapng")).expect("a file"), cut);
    let names = std::fs::read_dir(desk.pool.path("cut.pcapng").parent().expect("a folder"));
    let partial = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".partial");
    assert!(!names.expect("a folder").any(|entry| partial(entry.expect("an entry").file_name())));
}

#[test]
fn live_shows_each_device_and_the_slowest_requests() {
    let desk = Desk::new();
    let server = format!("http://{}", desk.pool.listen());
    // A recording at the same time takes nothing away, and has nothing taken from it.
    let recording = desk.record("beside.pcapng", &["--format", "tlps"]);
    let mut live = program("tlp");
    live.args(["live", "--manager", &server, "--interval", "2s", "--once", "--json"]);
    let live = live.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tlp");
    let mut live = Some(live);
    let look = wait_for("traffic in a look", || {
        desk.traffic();
        desk.traffic();
        let look = end(live.take()?, BOUND).json();
        Some(look)
    });
    let device = |slot: &str| {
        let devices = look["devices"].as_array().expect("devices");
        let found = devices.iter().find(|device| device["slot"] == slot);
        found.unwrap_or_else(|| panic!("{slot} is not in {look}")).clone()
    };
    for slot in ["box-a/1", "box-a/2"] {
        let device = device(slot);
        assert!(device["device_requests_per_s"].as_f64().expect("a rate") > 1.0, "{device}");
        let split = &device["from_device"];
        let part = |name: &str| split[name].as_u64().unwrap_or_else(|| panic!("{device}"));
        assert!(part("samples") > 10 && part("p50_ns") <= part("p99_ns"), "{device}");
        assert!(part("network_ns") > 0 && part("host_conversion_ns") > 0, "{device}");
    }
    assert!(device("box-a/1")["from_host"]["samples"].as_u64() > Some(10), "{look}");
    let slowest = look["slowest"].as_array().expect("a list");
    assert_eq!(slowest.len(), 5, "{look}");
    for slow in slowest {
        let stages = slow["stages"].as_array().expect("stages");
        let sum: u64 = stages.iter().map(|stage| stage["ns"].as_u64().expect("a time")).sum();
        let total = slow["total_ns"].as_u64().expect("a time");
        // Clocks of two processes of one machine run at one rate.
        assert!(sum.abs_diff(total) * 100 <= total, "{slow}");
        assert!(slow["kind"].is_string() && slow["address"].is_u64(), "{slow}");
    }
    // SAFETY: kill(2) has no memory effects; the child is not reaped yet.
    unsafe { libc::kill(recording.id() as libc::pid_t, libc::SIGINT) };
    let view = end(recording, BOUND).json();
    assert!(view["packets"].as_u64().expect("a number") > 100, "{view}");
    let mut text = program("tlp");
    text.args(["live", "--manager", &server, "--interval", "100ms", "--once"]);
    let text = crate::harness::run(&mut text);
    assert!(text.code == Some(0) && text.stdout.contains("box-a/2"), "{text:?}");
    let mut nobody = program("tlp");
    nobody.args(["live", "--manager", "http://127.0.0.1:1", "--once"]);
    crate::harness::run(&mut nobody).fails(2, &["127.0.0.1:1", "--manager"]);
}
