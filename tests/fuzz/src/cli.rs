//! What the `tlp` command is given: lines of hex, of text, of JSON, captures. Whatever `decode`
//! prints, `encode` takes, and makes the same of it.

use std::io::Cursor;
use tlp_cli::Outcome;

/// Takes one byte that says which command with which options, and its input.
pub fn run(data: &[u8]) {
    let Some((how, input)) = data.split_first() else { return };
    if how & 1 == 0 {
        decode_and_back(input, how & 2 != 0, how & 4 != 0);
    } else {
        encode_and_back(input);
    }
}

type Ran = Option<(Outcome, Vec<u8>)>;

fn decode(input: &[u8], json: bool, all: bool) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let input = Cursor::new(input.to_vec());
    let outcome = tlp_cli::decode(input, json, all, &mut out, &mut err);
    outcome.ok().map(|outcome| said(outcome, out, &err))
}

fn encode(input: &[u8]) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = tlp_cli::encode(Cursor::new(input.to_vec()), &mut out, &mut err);
    outcome.ok().map(|outcome| said(outcome, out, &err))
}

/// Whoever is told that something was broken is told what, as text.
fn said(outcome: Outcome, out: Vec<u8>, err: &[u8]) -> (Outcome, Vec<u8>) {
    let (text, why) = (core::str::from_utf8(&out), core::str::from_utf8(err));
    assert!(text.is_ok() && why.is_ok());
    assert_eq!(outcome == Outcome::SomeBroken, !err.is_empty(), "{why:?}");
    (outcome, out)
}

/// Input that a person could not tell from a capture is one.
fn is_capture(input: &[u8]) -> bool {
    matches!(input.first(), Some(0x0a | 0xa1 | 0xd4 | 0x4d))
}

fn decode_and_back(input: &[u8], json: bool, all: bool) {
    let Some((_, lines)) = decode(input, json, all) else { return };
    let (outcome, hex) = encode(&lines).expect("what was printed is no capture");
    let shown = String::from_utf8_lossy(&lines).into_owned();
    assert_eq!(outcome, Outcome::Clean, "{shown}");
    let (outcome, again) = decode(&hex, json, false).expect("hex is no capture");
    assert_eq!(outcome, Outcome::Clean, "{shown}");
    if !is_capture(input) {
        // Those of a capture say where they were, too.
        assert_eq!(String::from_utf8_lossy(&again), shown);
    }
}

fn encode_and_back(input: &[u8]) {
    let Some((_, hex)) = encode(input) else { return };
    let (outcome, lines) = decode(&hex, true, false).expect("hex is no capture");
    assert_eq!(outcome, Outcome::Clean, "{}", String::from_utf8_lossy(&hex));
    let (outcome, again) = encode(&lines).expect("JSON is no capture");
    assert_eq!((outcome, again), (Outcome::Clean, hex));
}
