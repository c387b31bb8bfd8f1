//! `docs/image.md` says what the code does: its bytes are the bytes, its tables the tables.

use std::collections::BTreeMap;

use card_image::*;
use nor_model::{Direct, Nor, Part};

const DOCUMENT: &str = include_str!("../docs/image.md");

/// Secret key of RFC 8032, 7.1, test 2.
const SECRET: [u8; 32] = [
    0x4c, 0xcd, 0x08, 0x9b, 0x28, 0xff, 0x96, 0xda, 0x9d, 0xb6, 0xc3, 0x46, 0xec, 0x11, 0x4e, 0x0f,
    0x5b, 0x8a, 0x31, 0x9f, 0x35, 0xab, 0xa6, 0x24, 0xda, 0x8c, 0xf6, 0xed, 0x4f, 0xb8, 0xa6, 0xfb,
];

const PAYLOAD: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

fn header() -> Header {
    let parts = ImageParts {
        board: BoardName::new("qemu-virt").unwrap(),
        role: Role::Box,
        version: Version { major: 1, minor: 2, patch: 3, build: 4 },
        security: SecurityVersion(5),
        load: 0x8000_0000,
        entry: 0x8000_0004,
    };
    seal(parts.unsigned(&PAYLOAD).unwrap(), KeyId(0x17), &SECRET).unwrap()
}

fn state() -> BootState {
    let other = ImageId([0x22; 16]);
    BootState {
        slots: [
            SlotState::Healthy { image: header().id() },
            SlotState::Writing { image: other, done: 65536 },
        ],
        wanted: SlotId::A,
        lowest_security: SecurityVersion(5),
    }
}

/// The state as the first record of a flash.
fn record() -> [u8; STATE_RECORD] {
    let mut flash: Direct<4, 1024> = Direct(Nor::new(Part::small(2 << 10), 1));
    let region = Region { start: 0, len: 2 << 10 };
    let mut journal = Journal::<STATE_RECORD>::open(&mut flash, region, |_| true).unwrap();
    journal.append(&mut flash, &state().emit()).unwrap();
    flash.0.cells()[..STATE_RECORD].try_into().unwrap()
}

fn lines(bytes: &[u8]) -> String {
    let line = |line: &[u8]| -> String {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.join(" ")
    };
    bytes.chunks(32).map(line).collect::<Vec<_>>().join("\n")
}

fn example(name: &str) -> &'static str {
    let start = format!("```hex {name}\n");
    let at = DOCUMENT.find(&start).expect("the example is there") + start.len();
    DOCUMENT[at..].split("\n```").next().unwrap()
}

/// Rows of the table that follows some text: the cells.
fn table(after: &str) -> Vec<Vec<String>> {
    let at = DOCUMENT.find(after).unwrap_or_else(|| panic!("{after:?} is not there")) + after.len();
    let rows = DOCUMENT[at..].lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| -> Vec<String> {
        let row = row.trim_matches('|').split('|');
        row.map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

/// The fields of a table of bytes, which are without gaps.
fn fields(after: &str, whole: usize) -> BTreeMap<String, std::ops::Range<usize>> {
    let mut next = 0;
    let mut fields = BTreeMap::new();
    for row in table(after) {
        let [at, bytes, name] = [0, 1, 2].map(|n| row[n].clone());
        let (at, bytes): (usize, usize) = (at.parse().unwrap(), bytes.parse().unwrap());
        assert_eq!(at, next, "{name}");
        next = at + bytes;
        let name = if name == "0" { format!("0 at {at}") } else { name };
        assert!(fields.insert(name, at..next).is_none());
    }
    assert_eq!(next, whole);
    fields
}

/// A field whose name begins so has these bytes.
fn check(
    fields: &BTreeMap<String, std::ops::Range<usize>>,
    bytes: &[u8],
    name: &str,
    expected: &[u8],
) {
    let mut found = fields.iter().filter(|(field, _)| field.starts_with(name));
    let (_, range) = found.next().unwrap_or_else(|| panic!("no field {name}"));
    assert!(found.next().is_none(), "{name} is there twice");
    assert_eq!(bytes[range.clone()], *expected, "{name}");
}

#[test]
fn the_example_header_is_the_header() {
    assert_eq!(example("header"), lines(&header().emit()), "\n{}", lines(&header().emit()));
    let keys = [TrustedKey { id: KeyId(0x17), key: public_key(&SECRET) }];
    assert_eq!(header().check_signature(&keys), Ok(()));
}

#[test]
fn the_example_record_is_the_record() {
    assert_eq!(example("record"), lines(&record()), "\n{}", lines(&record()));
}

#[test]
fn the_header_has_the_fields_of_the_table() {
    let fields = fields("## Header", HEADER_LEN);
    let header = header();
    let bytes = header.emit();
    let check = |name: &str, expected: &[u8]| check(&fields, &bytes, name, expected);
    check("magic: DxPU-img", &MAGIC);
    check("version of this format: 1", &FORMAT_VERSION.to_le_bytes());
    check("bytes of the header: 256", &256_u16.to_le_bytes());
    check("bytes of the payload", &8_u32.to_le_bytes());
    check("load address", &0x8000_0000_u32.to_le_bytes());
    check("entry", &0x8000_0004_u32.to_le_bytes());
    check("version: major", &[1, 0]);
    check("version: minor", &[2, 0]);
    check("version: patch", &[3, 0]);
    check("version: build", &[4, 0, 0, 0]);
    check("security version", &[5, 0, 0, 0]);
    check("board", b"qemu-virt\0\0\0\0\0\0\0");
    check("role: 0 any, 1 host, 2 box", &[Role::Box as u8]);
    assert_eq!([Role::Any, Role::Host, Role::Box].map(|role| role as u8), [0, 1, 2]);
    check("CRC-32 (ISO-HDLC) of the payload", &header.payload_crc.to_le_bytes());
    check("SHA-512 of the payload", &header.payload_digest);
    check("number of the signing key", &[0x17, 0, 0, 0]);
    check("Ed25519 signature", &header.signature);
    for (name, range) in fields.iter().filter(|(name, _)| name.starts_with("0 at")) {
        assert!(bytes[range.clone()].iter().all(|&byte| byte == 0), "{name}");
        let mut image = [&bytes[..], &PAYLOAD].concat();
        image[range.start] = 1;
        assert!(Header::parse(&image).is_err(), "{name} is looked at");
    }
}

#[test]
fn the_record_has_the_fields_of_the_tables() {
    let bytes = record();
    let frame = fields("## Journal", STATE_RECORD);
    check(&frame, &bytes, "sequence number, from 1", &[1, 0, 0, 0]);
    check(&frame, &bytes, "content", &state().emit());
    let content = state().emit();
    let fields_of_state = fields("The content is the boot state:", STATE_RECORD - 8);
    check(&fields_of_state, &content, "version of the content: 1", &[1]);
    check(&fields_of_state, &content, "wanted slot: 0 a, 1 b", &[0]);
    check(&fields_of_state, &content, "lowest security version", &[5, 0, 0, 0]);
    let slot = fields("and a slot is", 24);
    let writing = &content[fields_of_state["slot b"].clone()];
    check(&slot, writing, "state", &[1]);
    check(&slot, writing, "bytes of the image", &65536_u32.to_le_bytes());
    check(&slot, writing, "the image", &[0x22; 16]);
    let trying = SlotState::Trying { image: ImageId([1; 16]), left: 2 };
    let content = BootState { slots: [trying; 2], ..BootState::NEW }.emit();
    check(&slot, &content[8..32], "tries left", &[2]);
}

/// A state of each name of the transition table, and its number.
fn states() -> Vec<(&'static str, u8, SlotState)> {
    let image = ImageId([1; 16]);
    vec![
        ("Empty", 0, SlotState::Empty),
        ("Writing", 1, SlotState::Writing { image, done: 1 }),
        ("Staged", 2, SlotState::Staged { image }),
        ("Trying, tries left", 3, SlotState::Trying { image, left: 1 }),
        ("Trying, none left", 3, SlotState::Trying { image, left: 0 }),
        ("Healthy", 4, SlotState::Healthy { image }),
        ("Failed", 5, SlotState::Failed { image }),
    ]
}

fn name(debug: &str) -> String {
    debug.split([' ', '(']).next().unwrap().to_owned()
}

#[test]
fn states_have_the_numbers_of_the_table() {
    let rows = table("## States");
    for (documented, number, state) in states() {
        let bytes = BootState { slots: [state; 2], ..BootState::NEW }.emit();
        assert_eq!(bytes[8], number, "{documented}");
        let row = &rows[usize::from(number)];
        assert_eq!(
            (row[0].as_str(), &row[1]),
            (&*number.to_string(), &name(&format!("{state:?}")))
        );
    }
    assert_eq!(rows.len(), 6);
}

#[test]
fn transitions_are_those_of_the_table() {
    let image = ImageId([2; 16]);
    let events = [
        SlotEvent::Begin(image),
        SlotEvent::Progress(2),
        SlotEvent::Written,
        SlotEvent::Adopt(image),
        SlotEvent::Try,
        SlotEvent::Healthy,
        SlotEvent::Fail,
    ];
    let heading = DOCUMENT.lines().find(|line| line.starts_with("| state | `Begin`")).unwrap();
    let titles: Vec<String> =
        heading.trim_matches('|').split('|').skip(1).map(|t| t.trim().replace('`', "")).collect();
    assert_eq!(titles, events.map(|event| name(&format!("{event:?}"))));
    let rows = table("tries left takes one away.");
    for (row, (documented, _, state)) in rows.iter().zip(states()) {
        assert_eq!(row[0], documented);
        for (cell, event) in row[1..].iter().zip(events) {
            let after = state.after(event).map(|after| name(&format!("{after:?}")));
            assert_eq!(*cell, after.unwrap_or_default(), "{documented}: {event:?}");
        }
    }
    assert_eq!(rows.len(), states().len());
    assert!(DOCUMENT.contains(&format!("it has {BOOT_TRIES} starts in all")));
}

#[test]
fn every_reason_to_refuse_is_there() {
    let board = BoardName::new("x").unwrap();
    let none = SecurityVersion(0);
    let all = [
        Refusal::Truncated { have: 0, need: 0 },
        Refusal::NotAnImage,
        Refusal::NewerFormat(2),
        Refusal::HeaderDamaged,
        Refusal::Malformed(""),
        Refusal::OtherBoard(board),
        Refusal::OtherRole(Role::Any),
        Refusal::TooLarge { length: 0, room: 0 },
        Refusal::NoMemory { load: 0 },
        Refusal::Unsigned,
        Refusal::UnknownKey(KeyId(1)),
        Refusal::BadSignature,
        Refusal::Downgrade { has: none, lowest: none },
        Refusal::BadCrc,
        Refusal::BadDigest,
        Refusal::NotAsRecorded,
    ];
    let documented: Vec<String> =
        table("## What a card refuses").into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(documented, all.map(|refusal| name(&format!("{refusal:?}"))));
}
