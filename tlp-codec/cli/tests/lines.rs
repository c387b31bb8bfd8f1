//! The `tlp` command on lines: the vectors there and back, broken lines, usage.

mod common;

use common::tlp;
use serde_json::Value;

fn vectors(file: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// All vectors that are whole.
fn whole() -> Vec<Value> {
    let files = ["cocotbext.json", "captures.json", "hand.json"];
    let all = files.into_iter().flat_map(vectors);
    all.filter(|vector| vector["cut_short_of"].is_null()).collect()
}

fn hex_lines(vectors: &[Value]) -> String {
    vectors.iter().map(|vector| format!("{}\n", vector["hex"].as_str().unwrap())).collect()
}

/// Numbers and their text are the same to a reader.
fn same(a: &Value, b: &Value) -> bool {
    fn number(value: &Value) -> Option<u64> {
        match value {
            Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
            other => other.as_u64(),
        }
    }
    a == b || number(a).is_some_and(|n| number(b) == Some(n))
}

#[test]
fn every_vector_goes_to_text_and_back() {
    let hex = hex_lines(&whole());
    let text = tlp(&["decode"], hex.as_bytes());
    assert_eq!((text.code, text.err.as_str()), (0, ""));
    assert_eq!(text.out.lines().count(), hex.lines().count());
    let back = tlp(&["encode"], text.out.as_bytes());
    assert_eq!((back.code, back.err.as_str()), (0, ""));
    assert_eq!(back.out, hex);
}

#[test]
fn every_vector_goes_to_json_and_back_and_has_the_fields_that_it_names() {
    let vectors = whole();
    let hex = hex_lines(&vectors);
    let json = tlp(&["decode", "--json"], hex.as_bytes());
    assert_eq!((json.code, json.err.as_str()), (0, ""));
    for (line, vector) in json.out.lines().zip(&vectors) {
        let decoded: Value = serde_json::from_str(line).unwrap();
        let mut decoded = decoded.as_object().unwrap().clone();
        decoded.remove("notes");
        let expected = vector["tlp"].as_object().unwrap();
        for (key, value) in expected {
            assert!(same(&decoded[key], value), "{}: {key}: {line}", vector["name"]);
        }
        // What cocotbext-pcie cannot say, it does not: reserved bits.
        decoded.remove("reserved");
        let mut expected = expected.clone();
        expected.remove("reserved");
        assert_eq!(decoded.len(), expected.len(), "{}: {line}", vector["name"]);
    }
    let back = tlp(&["encode"], json.out.as_bytes());
    assert_eq!((back.code, back.out), (0, hex));
}

#[test]
fn vectors_themselves_encode_to_their_bytes() {
    for vector in whole() {
        let line = vector["tlp"].to_string();
        let ran = tlp(&["encode", &line], b"");
        assert_eq!(ran.out.trim_end(), vector["hex"].as_str().unwrap(), "{line}: {}", ran.err);
    }
}

#[test]
fn broken_lines_are_reported_and_the_others_go_through() {
    let broken = vectors("broken.json");
    let good = "000000010113550f00001000";
    let mut input = String::new();
    let mut expected = Vec::new();
    for (n, vector) in broken.iter().enumerate() {
        let hex = vector["hex"].as_str().unwrap();
        if !hex.is_empty() {
            expected.push(3 * n + 2);
        }
        input += &format!("{good}\n{hex} # {}\n\n", vector["name"].as_str().unwrap());
    }
    let ran = tlp(&["decode"], input.as_bytes());
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out.lines().count(), broken.len());
    let reported: Vec<&str> = ran.err.lines().collect();
    assert_eq!(reported.len(), expected.len());
    for (line, number) in reported.iter().zip(expected) {
        assert!(line.starts_with(&format!("tlp: line {number}: ")), "{line}");
        assert!(line.contains("PCIe 5.0") || line.contains("ECN"), "{line} names no section");
    }
}

#[test]
fn every_kind_of_wrong_text_has_its_reason() {
    let lines = [
        ("Foo x=1", "not a type"),
        ("MRd", "`address` is missing"),
        ("MRd address=0x1000 bogus=1", "no field `bogus`"),
        ("MRd address=0x1002", "multiple of 4"),
        ("MRd address=zero", "not a number"),
        ("MRd address=0x1000 tag=1024", "out of range"),
        ("MRd address=0x1000 requester=1:2", "bus:device.function"),
        ("MRd address=0x1000 data=00000000", "has no data"),
        ("MRd address=0x1ffc length=2", "4 KB boundary"),
        ("MRd address=0x1000 at=sometimes", "not one of"),
        ("MRd address=0x1000 tag=1 tag=2", "twice"),
        ("MRd address=0x1000 prefixes=00000000", "100b"),
        ("MRd address=0x1000 prefixes=91", "four bytes"),
        ("MRd address=0x1000 ecrc=12", "four bytes"),
        ("MRd address=0x1000 ecrc=no", "field `ecrc`: `n` is not hex; it is hex or auto"),
        ("MRd address=0x1000 prefixes=no", "field `prefixes`: `n` is not hex"),
        ("MRd address=0x1000 ro=maybe", "neither true nor false"),
        ("MRd address=0x1000 reserved=0x10000", "ignored bits"),
        ("MWr address=0x1000", "needs the field `data`"),
        ("MWr address=0x1000 data=0011", "whole doublewords"),
        ("MWr address=0x1000 data=0011223", "odd number"),
        ("IORd address=0x1_0000_0000", "32 bits"),
        ("CfgRd0 register=0x10", "`destination` is missing"),
        ("Msg routing=sideways code=LTR", "field `routing`: `sideways` is not one of to-root, by-"),
        ("Msg routing=local code=Hello", "neither a message code's name"),
        ("Msg routing=local code=0x100", "neither a message code's name"),
        ("Msg routing=local code=LTR fields=00", "header bytes 8 to 15"),
        ("Msg routing=to-root code=LTR", "routing is not the one"),
        ("Cpl status=8", "neither SC"),
        ("{\"type\":\"MRd\",\"address\":true}", "not a number"),
        ("{\"type\":3}", "not text"),
        ("{\"address\":3}", "type is missing"),
        ("{\"type\":\"MRd\"", "not a JSON object"),
        ("[]", "not a type"),
    ];
    let input: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    let ran = tlp(&["encode"], input.as_bytes());
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    let reported: Vec<&str> = ran.err.lines().collect();
    assert_eq!(reported.len(), lines.len(), "{}", ran.err);
    for (n, ((line, reason), report)) in lines.iter().zip(reported).enumerate() {
        assert!(report.starts_with(&format!("tlp: line {}: ", n + 1)), "{report}");
        assert!(report.contains(reason), "{line}: {report}");
    }
}

#[test]
fn fields_that_are_left_out_have_their_usual_value() {
    let ran = tlp(
        &[
            "encode",
            "MRd address=0x1000",
            "MWr address=0x2_0000_0000 data=0011223344556677 ecrc=auto",
            "CplD data=01020304 lower_address=1",
            "Cpl status=UR # for a write",
            r#"{"type":"CfgRd0","destination":"01:00.0","register":4}"#,
        ],
        b"",
    );
    let expected = "\
000000010000000f00001000
60008002000000ff0000000200000000001122334455667726b1e40d
4a0000010000000300000001 01020304
0a0000000000200400000000
040000010000000f01000004
";
    assert_eq!((ran.code, ran.out), (0, expected.replace(' ', "")), "{}", ran.err);
}

#[test]
fn hex_comes_spaced_out_as_arguments_or_in_a_file() {
    let ran =
        tlp(&["decode", "0x00000001_0113550f_00001000", "00:00:00:01 01 13 55 0f 00001004"], b"");
    assert_eq!((ran.code, ran.out.lines().count()), (0, 2), "{}", ran.err);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tlps.txt");
    std::fs::write(&path, "# two\n000000010113550f00001000\nxyz\r\n").unwrap();
    let path = path.to_str().unwrap();
    for args in [&["decode", path][..], &["decode", "--file", path]] {
        let ran = tlp(args, b"");
        assert_eq!((ran.code, ran.out.lines().count()), (1, 1));
        assert_eq!(ran.err, "tlp: line 3: `x` is not hex\n");
    }
    let ran = tlp(&["decode", "-f", "-"], b"000000010113550f00001000");
    assert_eq!((ran.code, ran.out.lines().count()), (0, 1));
}

#[test]
fn bytes_that_are_not_text_are_a_broken_line() {
    let ran = tlp(&["decode"], b"\xff\xfe\n000000010113550f00001000\n");
    assert_eq!((ran.code, ran.out.lines().count()), (1, 1));
    assert!(ran.err.starts_with("tlp: line 1: "), "{}", ran.err);
    let ran = tlp(&["encode"], b"\xff\xfe\n");
    assert_eq!(ran.code, 1);
}

#[test]
fn a_line_without_an_end_is_one_broken_line() {
    const LONGEST: usize = 64 << 10;
    let hex = "00000001_0100050f_00001000";
    let text = "MRd tag=5 address=0x1000";
    for (command, line) in [("decode", hex), ("encode", text)] {
        let padded = |length: usize, end: &str| {
            format!("{line}{}{end}", " ".repeat(length - line.len() - end.len()))
        };
        let fits = [padded(LONGEST, ""), padded(LONGEST, "\n"), padded(LONGEST + 1, "\n")];
        for input in fits {
            let ran = tlp(&[command], format!("{input}\n").as_bytes());
            assert_eq!((ran.code, ran.out.lines().count()), (0, 1), "{}", ran.err);
        }
        for long in [padded(LONGEST + 1, ""), padded(LONGEST + 2, "\n"), padded(20 << 20, "\n")] {
            let ran = tlp(&[command], format!("{line}\n{long}\n{line}\n").as_bytes());
            assert_eq!((ran.code, ran.out.lines().count()), (1, 2), "{}", ran.err);
            assert!(ran.err.starts_with("tlp: line 2: the line is too long"), "{}", ran.err);
            assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        }
        let ran = tlp(&[command], padded(LONGEST + 1, "").as_bytes());
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    }
}

#[test]
fn help_says_what_a_newcomer_needs() {
    let help = tlp(&["--help"], b"");
    assert_eq!(help.code, 0);
    for word in ["decode", "encode", "Exit codes", "stderr"] {
        assert!(help.out.contains(word), "no {word} in:\n{}", help.out);
    }
    let decode = tlp(&["decode", "--help"], b"").out;
    for word in ["hex", "pcapng", "--json", "0x88B5", "lower_address"] {
        assert!(decode.contains(word), "no {word} in:\n{decode}");
    }
    let version = tlp(&["--version"], b"");
    assert_eq!(version.out, format!("tlp {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_and_unreadable_files_exit_with_2() {
    assert_eq!(tlp(&[], b"").code, 2);
    assert_eq!(tlp(&["decode", "--nonsense"], b"").code, 2);
    let ran = tlp(&["decode", "--file", "/nonexistent/capture.pcap"], b"");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("cannot read /nonexistent/capture.pcap"), "{}", ran.err);
    let ran = tlp(&["encode"], &[0xd4, 0xc3, 0xb2, 0xa1, 0, 0]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("tlp decode"), "{}", ran.err);
}

#[test]
fn an_argument_that_is_neither_hex_nor_a_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (missing, file) = (folder.join("nosuchfile"), folder.join("tlps.txt"));
    std::fs::write(&file, "000000010113550f00001000\n").unwrap();
    let [folder, missing, file] = [folder, &missing, &file].map(|path| path.to_str().unwrap());
    for (arguments, told) in [
        (
            &["decode", missing][..],
            format!("argument 1: `/` is not hex, and there is no file `{missing}`"),
        ),
        (&["decode", folder], format!("`{folder}` is a directory")),
        (
            &["decode", "00", file],
            format!("argument 2: `/` is not hex, and `{file}` is a file among"),
        ),
    ] {
        let ran = tlp(arguments, b"");
        assert_eq!(ran.code, 2, "{told}");
        assert!(ran.err.contains(&told), "{told}: {}", ran.err);
    }
    // As the help says; what else is broken, before it or behind it, changes nothing.
    assert!(tlp(&["--help"], b"").out.contains("an argument of `tlp decode` that is neither hex"));
    for arguments in [["decode", missing, "0"], ["decode", "0", missing]] {
        assert_eq!(tlp(&arguments, b"").code, 2);
    }
    let read = "000000010113550f00001000";
    let ran = tlp(&["decode", missing, read], b"");
    assert_eq!((ran.code, ran.out.lines().count()), (2, 1), "the others go through: {}", ran.err);
    let ran = tlp(&["decode", "--file", folder], b"");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains(&format!("cannot read {folder}")), "{}", ran.err);
}

#[test]
fn a_binary_file_that_is_no_capture_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    std::fs::write(&path, [&b"\x7fELF\x02\x01\x01\0"[..], &b"\n\xff\0"[..].repeat(100)].concat())
        .unwrap();
    let path = path.to_str().unwrap();
    for arguments in [&["decode", "--file", path][..], &["decode", path], &["encode", "-f", path]] {
        let ran = tlp(arguments, b"");
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.lines().count()),
            (2, "", 1),
            "{}",
            ran.err
        );
        assert!(ran.err.contains(path) && ran.err.contains("neither a capture"), "{}", ran.err);
    }
}
