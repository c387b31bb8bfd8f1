//! `docs/wire.md` cannot drift from the code: every hex example in it is built here by the codec
//! and read back, and its table of header fields is the code's.

use tlp_codec::crc;
use tlp_codec::fabric::*;
use tlp_codec::ids::*;
use tlp_codec::tlp::Class;

const DOCUMENT: &str = include_str!("../docs/wire.md");

/// The hex blocks of the document: what follows "```hex " and the bytes, without the comments that
/// begin with a semicolon.
fn blocks() -> Vec<(&'static str, Vec<u8>)> {
    let mut blocks = Vec::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let body = lines.by_ref().take_while(|l| *l != "```");
        let digits: String = body
            .flat_map(|l| l.split(';').next().unwrap_or("").chars())
            .filter(|c| !c.is_whitespace())
            .collect();
        let bytes = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits"))
            .collect();
        blocks.push((name, bytes));
    }
    blocks
}

fn key() -> BindingKey {
    BindingKey {
        slot: SlotId::new(3).unwrap(),
        function: SlotFunction::ZERO,
        epoch: Epoch::new(0, 7).unwrap(),
    }
}

/// A host is node 1 in its life 0x11111111, a box node 2 in its life 0x22222222.
fn header(kind: FrameKind, from_host: bool) -> Header {
    let (host, rack) = (NodeId::new(1).unwrap(), NodeId::new(2).unwrap());
    let (source, destination) = if from_host { (host, rack) } else { (rack, host) };
    let life = |node: NodeId| u32::from(node.get()) * 0x1111_1111;
    Header {
        kind,
        destination,
        source,
        source_incarnation: life(source),
        destination_incarnation: Some(life(destination)),
        session: if from_host { 0x0b0b } else { 0x0a0a },
        path: PathId::ZERO,
        packet: 4,
        sequence: 9,
        ack: None,
    }
}

fn frame(header: &Header, records: &[Record<'_>]) -> Vec<u8> {
    let mut buffer = [0; 1500];
    let mut writer = FrameWriter::new(&mut buffer, header).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    let length = writer.finish();
    buffer[..length].to_vec()
}

fn body_frame(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 1500];
    let mut writer = FrameWriter::new(&mut buffer, header).unwrap();
    writer.body(body).unwrap();
    let length = writer.finish();
    buffer[..length].to_vec()
}

fn record(record: &Record<'_>) -> Vec<u8> {
    let mut buffer = [0; 1500];
    let length = record.emit(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

/// MRd of one doubleword at 0xfe000010 by 00:00.0, tag 5.
const READ: [u8; 12] = [0, 0, 0, 1, 0, 0, 5, 0x0f, 0xfe, 0, 0, 0x10];
/// Its completion with data 0x12345678 (in memory order) by 03:00.0.
const COMPLETION: [u8; 16] = [0x4a, 0, 0, 1, 3, 0, 0, 4, 0, 0, 5, 0x10, 0x78, 0x56, 0x34, 0x12];

fn tlp(tlp: &[u8], class: Class, from_host: bool) -> Record<'_> {
    let address =
        if from_host { RecordAddress::from_host(&key()) } else { RecordAddress::from_box(&key()) };
    let outstanding = Some(OutstandingRef { index: 6, generation: 2 });
    let traits = TlpTraits { class, relaxed: false, sampled: false, outstanding };
    Record::Tlp(TlpRecord { address, traits, tlp, crc: crc::tlp(tlp) })
}

fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let from_host = RecordAddress::from_host(&key());
    let from_box = RecordAddress::from_box(&key());
    let open = Open {
        min_version: 1,
        max_version: 1,
        max_frame: 9000,
        window: 1024,
        max_tlp: 552,
        session: 0x0a0a,
        token: 0x00c0_ffee,
        echo: 0,
    };
    let opening = Header {
        destination_incarnation: None,
        session: 0,
        packet: 0,
        sequence: 0,
        ..header(FrameKind::Open, true)
    };
    let answering = Header { session: 0, packet: 0, sequence: 0, ..header(FrameKind::Open, false) };
    let answer = Open { session: 0x0b0b, token: 0xbeef, echo: 0x00c0_ffee, ..open };
    let mut sacks = Sacks::default();
    sacks.push(SackRange { offset: 2, length: 3 }).unwrap();
    let ack = Ack { next: 10, path: PathId::ZERO, packet: 4, delay_us: 25, ce: 0, sacks };
    let acknowledging = Header { ack: Some(ack), ..header(FrameKind::Data, false) };
    let probing =
        Header { path: PathId::new(1).unwrap(), packet: 7, ..header(FrameKind::Probe, true) };
    let write: Vec<u8> = (0..20).collect();
    let traits =
        TlpTraits { class: Class::Posted, relaxed: false, sampled: false, outstanding: None };
    let split = SplitHeader {
        address: from_host,
        traits,
        total: 20,
        parts: 1,
        crc: crc::tlp(&write),
        bytes: &write[..16],
    };
    let rest = SplitData {
        address: from_host,
        class: Class::Posted,
        part: 1,
        offset: 16,
        bytes: &write[16..],
    };
    let limits = Credits { address: from_box, announce: true, tlps: [16, 64, 32], sideband: 8 };
    vec![
        (
            "frame with a read",
            frame(&header(FrameKind::Data, true), &[tlp(&READ, Class::NonPosted, true)]),
        ),
        (
            "frame with its completion",
            frame(&acknowledging, &[tlp(&COMPLETION, Class::Completion, false)]),
        ),
        ("open", body_frame(&opening, &open.emit())),
        ("open answered", body_frame(&answering, &answer.emit())),
        (
            "close",
            body_frame(
                &header(FrameKind::Close, true),
                &Close { reason: CloseReason::Removed }.emit(),
            ),
        ),
        ("probe", body_frame(&probing, &[0; 4])),
        ("record nop", record(&Record::Nop)),
        ("record tlp", record(&tlp(&READ, Class::NonPosted, true))),
        ("record split header", record(&Record::SplitHeader(split))),
        ("record split data", record(&Record::SplitData(rest))),
        (
            "record sideband",
            record(&Record::Sideband(from_box, Sideband::LinkUp { speed: 3, width: 16 })),
        ),
        ("record credits", record(&Record::Credits(limits))),
        ("record unbind", record(&Record::Unbind(from_host))),
    ]
}

#[test]
fn every_example_is_what_the_codec_writes() {
    let (written, built) = (blocks(), examples());
    for (name, bytes) in &built {
        let found = written.iter().find(|(n, _)| n == name);
        let shown = bytes
            .chunks(16)
            .map(|line| line.iter().map(|b| format!("{b:02x} ")).collect::<String>())
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(
            found.map(|(_, b)| b),
            Some(bytes),
            "the example \"{name}\" of docs/wire.md is to say\n{shown}"
        );
    }
    assert_eq!(written.len(), built.len(), "an example that no one checks");
}

#[test]
fn every_example_reads_back() {
    for (name, bytes) in blocks() {
        if name.starts_with("record ") {
            let (_, length) = Record::parse(&bytes).unwrap();
            assert_eq!(length, bytes.len(), "{name}");
        } else {
            let frame = Frame::new_checked(&bytes).unwrap();
            assert_eq!(frame.frame_len(), bytes.len(), "{name}");
            match frame.kind() {
                FrameKind::Open => drop(frame.open().unwrap()),
                FrameKind::Close => drop(frame.close().unwrap()),
                FrameKind::Probe => assert!(frame.body().iter().all(|&b| b == 0), "{name}"),
                FrameKind::Data => assert!(frame.records().all(|r| r.is_ok()), "{name}"),
            }
        }
    }
}

#[test]
fn sideband_codes_are_as_the_table_says() {
    let mut rows = 0;
    for line in DOCUMENT.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, code, name, _, flushes, _, _] = cells[..] else { continue };
        let Ok(code) = code.parse::<u8>() else { continue };
        let sideband = Sideband::from_code(code, 0);
        let debug = format!("{sideband:?}");
        let known = debug.split([' ', '(']).next().unwrap();
        assert_eq!(
            known.to_lowercase(),
            name.replace([' ', '#'], "").to_lowercase(),
            "code {code}"
        );
        assert_eq!(sideband.flushes(), flushes == "yes", "{name}");
        rows += 1;
    }
    assert_eq!(rows, 13, "a row for each sideband record");
}
