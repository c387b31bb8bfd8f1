//! The `tlp` command on pcapng captures as others write them, and on such as nobody should.

mod common;

use common::{Ran, tlp};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const READ: [u8; 12] = [0, 0, 0, 1, 1, 0, 5, 0x0f, 0, 0, 0x10, 0];
/// The link type of TLPs that are alone.
const USER0: u16 = 147;
const COMMENT: u16 = 1;

/// Writes blocks in one byte order.
#[derive(Clone, Copy)]
struct Writer {
    big: bool,
}

const LITTLE: Writer = Writer { big: false };
const BIG: Writer = Writer { big: true };

impl Writer {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        assert!(body.len().is_multiple_of(4));
        let length = self.u32(body.len() as u32 + 12);
        [&self.u32(kind)[..], &length, body, &length].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let head = [self.u16(code), self.u16(value.len() as u16)].concat();
        [head, padded(value)].concat()
    }

    fn section(self, options: &[u8]) -> Vec<u8> {
        let head = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &[&head, options].concat())
    }

    fn interface(self, link: u16, snap: u32, options: &[u8]) -> Vec<u8> {
        let head = [&self.u16(link)[..], &[0; 2], &self.u32(snap)].concat();
        self.block(1, &[&head, options].concat())
    }

    fn packet(self, interface: u32, bytes: &[u8], options: &[u8]) -> Vec<u8> {
        let length = self.u32(bytes.len() as u32);
        let head = [&self.u32(interface)[..], &[0; 8], &length, &length].concat();
        self.block(6, &[&head, &padded(bytes), options].concat())
    }

    /// The start of a capture of TLPs alone.
    fn start(self) -> Vec<u8> {
        [self.section(&[]), self.interface(USER0, 0, &[])].concat()
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// That these packets were printed, and nothing reported.
fn assert_packets(ran: &Ran, packets: &[u64]) {
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let place = |line: &str| line.split("# packet ").nth(1)?.split([' ', ';']).next()?.parse().ok();
    assert_eq!(ran.out.lines().filter_map(place).collect::<Vec<u64>>(), packets, "{}", ran.out);
}

#[test]
fn whatever_nobody_asks_for_is_passed_over() {
    for w in [LITTLE, BIG] {
        let custom = w.option(2988, &[1]);
        let options = [
            // A time zone as it was once described, a resolution and an offset that cannot be.
            w.interface(USER0, 0, &[w.option(10, &[0; 4]), w.option(9, &[0xff; 3])].concat()),
            w.interface(USER0, 0, &[w.option(14, &[1]), custom.clone()].concat()),
            // Options that go beyond the block, and less than an option.
            w.interface(USER0, 0, &[w.u16(2), w.u16(500)].concat()),
            w.interface(USER0, 0, &[w.u16(2), w.u16(4)].concat()),
        ];
        let blocks = [
            // Name resolution: without its end, with a name without one, of another kind.
            w.block(4, &[&w.u16(1)[..], &w.u16(6), &[10, 0, 0, 1, b'a', b'b', 0, 0]].concat()),
            w.block(4, &[w.u16(1), w.u16(500)].concat()),
            w.block(4, &[]),
            // Interface statistics: too short, and of an interface that is not there.
            w.block(5, &[0; 4]),
            w.block(5, &w.u32(77).repeat(3)),
            // A custom block, decryption secrets, one that nobody knows, with nothing in it.
            w.block(0xbad, &[0; 4]),
            w.block(10, &[0xff; 8]),
            w.block(0x7fff_1234, &[]),
        ];
        let [zone, custom_option, beyond, short] = options;
        let capture = [w.section(&custom), zone, w.packet(0, &READ, &[])];
        let behind =
            [custom_option, beyond, short, w.packet(3, &READ, &[]), w.packet(1, &READ, &[])];
        let capture = [capture.concat(), blocks.concat(), behind.concat()].concat();
        assert_packets(&tlp(&["decode"], &capture), &[1, 2, 3]);
    }
}

#[test]
fn comments_are_found_among_whatever_options() {
    for w in [LITTLE, BIG] {
        let known = w.option(COMMENT, b"kind=request slot=7");
        let not_text = w.option(COMMENT, b"kind=\xff slot=6");
        let custom = w.option(2988, &[1, 2]);
        let end = w.option(0, &[]);
        for options in [
            known.clone(),
            [known.clone(), end.clone()].concat(),
            [not_text, custom, known.clone()].concat(),
            [&known[..], &w.u16(COMMENT), &w.u16(90)].concat(),
        ] {
            let ran = tlp(&["decode"], &[w.start(), w.packet(0, &READ, &options)].concat());
            assert_packets(&ran, &[1]);
            assert!(ran.out.contains("slot 7"), "{}", ran.out);
        }
        // Nothing is behind the end.
        let ran =
            tlp(&["decode"], &[w.start(), w.packet(0, &READ, &[end, known].concat())].concat());
        assert!(!ran.out.contains("slot"), "{}", ran.out);
    }
}

#[test]
fn every_kind_of_packet_is_read_in_its_section() {
    let capture = |w: Writer| {
        let length = w.u32(12);
        let old = [&w.u16(0)[..], &w.u16(5), &[0; 8], &length, &length, &READ].concat();
        let simple = [&length[..], &READ].concat();
        [w.start(), w.block(2, &old), w.block(3, &simple), w.packet(0, &READ, &[])].concat()
    };
    // Interfaces are those of the section: of the second one the first is no carrier of ours.
    let other = [LITTLE.section(&[]), LITTLE.interface(148, 0, &[]), LITTLE.packet(0, &READ, &[])];
    let capture = [capture(LITTLE), capture(BIG), other.concat(), capture(LITTLE)].concat();
    assert_packets(&tlp(&["decode"], &capture), &[1, 2, 3, 4, 5, 6, 8, 9, 10]);
    // Of a simple packet there is what its interface's limit lets through.
    let w = LITTLE;
    let simple = [&w.u32(12)[..], &READ[..8]].concat();
    let cut = [w.section(&[]), w.interface(USER0, 8, &[]), w.block(3, &simple)].concat();
    let ran = tlp(&["decode"], &cut);
    assert!(ran.err.contains("packet 1: the capture holds only 8 of"), "{}", ran.err);
}

#[test]
fn a_broken_packet_is_reported_and_the_others_are_read() {
    let w = LITTLE;
    let short = [&w.u32(0)[..], &[0; 8], &w.u32(13), &w.u32(13), &READ].concat();
    let most = [&w.u32(0)[..], &[0; 8], &[0xff; 8]].concat();
    for (block, said) in [
        (w.packet(3, &READ, &[]), "its interface 3 is not described in front of it"),
        // Its number is used all the same.
        (w.packet(1, &READ, &[]), "its interface 1 is not described in front of it"),
        (w.block(6, &short), "its block is said to have 13 of its bytes and has only 12"),
        (w.block(6, &most), "its block is said to have 4294967295 of its bytes and has only 0"),
        (w.block(3, &[w.u32(9), w.u32(0)].concat()), "of its bytes and has only 4"),
        (w.block(6, &[0; 16]), "its block has only 28 bytes, too few for any packet"),
        (w.block(2, &[]), "its block has only 12 bytes, too few for any packet"),
        (w.block(3, &[]), "its block has only 12 bytes, too few for any packet"),
    ] {
        let start = [w.start(), w.block(1, &[0; 4]), w.interface(USER0, 0, &[])].concat();
        let capture = [start, block, w.packet(2, &READ, &[])].concat();
        let ran = tlp(&["decode"], &capture);
        assert_eq!((ran.code, ran.out.lines().count()), (1, 1), "{said}: {}", ran.err);
        assert!(ran.out.contains("# packet 2"), "{}", ran.out);
        let reports: Vec<&str> = ran.err.lines().collect();
        assert!(
            matches!(reports[..], [report]
            if report.starts_with("tlp: packet 1: ") && report.ends_with(said)),
            "{}",
            ran.err
        );
    }
}

#[test]
fn what_is_behind_a_block_without_an_end_is_not_read() {
    let w = LITTLE;
    let before = [w.start(), w.packet(0, &READ, &[])].concat();
    let head = |length: u32| [w.u32(6), w.u32(length)].concat();
    let mut no_order = w.section(&[]);
    no_order[8] ^= 1;
    let mut version = w.section(&[]);
    version[12] = 2;
    let mut ends_differ = w.packet(0, &READ, &[]);
    *ends_differ.last_mut().unwrap() = 1;
    let unknown = |length: u32| [&w.u32(99)[..], &w.u32(length), &[0; 8]].concat();
    let whole = w.packet(0, &READ, &[]);
    for (bytes, said) in [
        (no_order, "a section header has no byte order"),
        (version, "a section is of version 2; only version 1 is known"),
        (ends_differ, "a block has 44 bytes by its start and"),
        (head(0), "a block is said to have 0 bytes, which no block has"),
        (head(11), "a block is said to have 11 bytes"),
        (head(46), "a block is said to have 46 bytes"),
        (head(1 << 24 | 4), "a packet's block has 16777220 bytes, more than 16777216"),
        (head(0xffff_fffc), "more than 16777216"),
        (head(1 << 24), "it ends in the middle of a block"),
        (unknown(8), "a block is said to have 8 bytes"),
        (unknown(0xffff_fffc), "it ends in the middle of a block"),
        (unknown(0xffff_ffff), "a block is said to have 4294967295 bytes"),
        (whole[..7].to_vec(), "it ends in the middle of a block"),
        (whole[..whole.len() - 1].to_vec(), "it ends in the middle of a block"),
    ] {
        let ran = tlp(&["decode"], &[&before[..], &bytes].concat());
        assert_eq!((ran.code, ran.out.lines().count()), (1, 1), "{said}: {}", ran.err);
        let start = "tlp: behind packet 1: the capture cannot be read further: ";
        assert!(ran.err.starts_with(start) && ran.err.contains(said), "{said}: {}", ran.err);
    }
}

/// Whatever is cut off or changed, `tlp` says what it is and does not go down.
#[test]
fn no_damage_makes_it_panic() {
    for w in [LITTLE, BIG] {
        let comment = w.option(COMMENT, b"kind=posted slot=1");
        let simple = w.block(3, &[&w.u32(12)[..], &READ].concat());
        let packet = w.packet(0, &READ, &comment);
        let whole = [w.start(), packet, simple, w.block(4, &[0; 4])].concat();
        for at in 0..whole.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= change;
                let (mut out, mut err) = (Vec::new(), Vec::new());
                for input in [damaged, whole[..at].to_vec()] {
                    let input = std::io::Cursor::new(input);
                    let _ = tlp_cli::decode(input, false, false, &mut out, &mut err);
                }
            }
        }
    }
}

/// A block that is whole is read at once: whoever watches a running `tcpdump` does not wait for what
/// comes behind it.
#[test]
fn a_running_capture_is_read_as_it_comes() {
    let w = LITTLE;
    let mut child = Command::new(env!("CARGO_BIN_EXE_tlp"))
        .arg("decode")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut reports = BufReader::new(child.stderr.take().unwrap()).lines();
    // Of the name resolution more could be wanted, if its records were read.
    let unfinished = w.block(4, &[w.u16(1), w.u16(500)].concat());
    input.write_all(&[w.start(), unfinished, w.packet(0, &READ[..4], &[])].concat()).unwrap();
    input.flush().unwrap();
    // The pipe is still open.
    assert!(reports.next().unwrap().unwrap().starts_with("tlp: packet 1: "));
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
