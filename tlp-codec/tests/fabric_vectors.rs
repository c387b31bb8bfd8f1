//! The wire's vectors of `tests/vectors`, which an implementation in Python wrote from
//! `docs/wire.md` alone: the codec reads the same out of the same bytes, writes the same bytes, and
//! refuses the same for the same reason.

mod common;

use common::{bytes_of, vectors};
use serde_json::{Value, json};
use tlp_codec::fabric::*;
use tlp_codec::ids::OutstandingRef;
use tlp_codec::tlp::Class;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Posted => "posted",
        Class::NonPosted => "non-posted",
        Class::Completion => "completion",
    }
}

/// A JSON object with the fields of all of these.
fn merged(parts: &[Value]) -> Value {
    let fields = parts.iter().flat_map(|part| part.as_object().unwrap().clone());
    Value::Object(fields.collect())
}

fn address(address: &RecordAddress) -> Value {
    json!({
        "source_slot": address.source.get(),
        "destination_slot": address.destination.get(),
        "function": address.function.get(),
        "epoch": address.epoch.bits(),
    })
}

fn traits(traits: &TlpTraits) -> Value {
    let entry =
        |OutstandingRef { index, generation }| json!({"index": index, "generation": generation});
    json!({
        "class": class(traits.class),
        "relaxed": traits.relaxed,
        "sampled": traits.sampled,
        "entry": traits.outstanding.map(entry),
    })
}

/// What the vectors say of a record.
fn record(record: &Record<'_>) -> Value {
    match record {
        Record::Nop => json!({"kind": "Nop"}),
        Record::Tlp(r) => merged(&[
            address(&r.address),
            traits(&r.traits),
            json!({"kind": "Tlp", "tlp": hex(r.tlp), "crc": r.crc}),
        ]),
        Record::SplitHeader(r) => merged(&[
            address(&r.address),
            traits(&r.traits),
            json!({"kind": "SplitHeader", "total": r.total, "parts": r.parts, "crc": r.crc}),
            json!({"data": hex(r.bytes)}),
        ]),
        Record::SplitData(r) => merged(&[
            address(&r.address),
            json!({"kind": "SplitData", "class": class(r.class), "part": r.part}),
            json!({"offset": r.offset, "data": hex(r.bytes)}),
        ]),
        Record::Sideband(to, sideband) => {
            let (code, argument) = sideband.code();
            merged(&[address(to), json!({"kind": "Sideband", "code": code, "argument": argument})])
        }
        Record::Credits(r) => {
            let [posted, non_posted, completion] = r.tlps;
            merged(&[
                address(&r.address),
                json!({"kind": "Credits", "announce": r.announce, "limits": {
                    "posted": posted, "non_posted": non_posted, "completion": completion,
                    "sideband": r.sideband,
                }}),
            ])
        }
        Record::Unbind(to) => merged(&[address(to), json!({"kind": "Unbind"})]),
    }
}

fn acknowledgement(ack: &Ack) -> Value {
    let ranges = ack.sacks.as_slice().iter().map(|r| json!([r.offset, r.length]));
    json!({
        "next": ack.next,
        "packet": ack.packet,
        "delay_us": ack.delay_us,
        "path": ack.path.get(),
        "ce": ack.ce,
        "ranges": ranges.collect::<Vec<_>>(),
    })
}

/// What the vectors say of a frame.
fn frame(frame: &Frame<&[u8]>) -> Value {
    let header = frame.header();
    let common = json!({
        "destination": header.destination.get(),
        "source": header.source.get(),
        "source_incarnation": header.source_incarnation,
        "destination_incarnation": header.destination_incarnation,
        "session": header.session,
        "path": header.path.get(),
        "packet": header.packet,
        "sequence": header.sequence,
        "ack": header.ack.as_ref().map(acknowledgement),
    });
    let own = match frame.kind() {
        FrameKind::Open => {
            let open = frame.open().unwrap();
            json!({"kind": "open", "open": {
                "session": open.session,
                "token": open.token,
                "echo": open.echo,
                "lowest": open.min_version,
                "highest": open.max_version,
                "max_frame": open.max_frame,
                "window": open.window,
                "max_tlp": open.max_tlp,
            }})
        }
        FrameKind::Close => {
            json!({"kind": "close", "reason": frame.close().unwrap().reason.byte()})
        }
        FrameKind::Probe => json!({"kind": "probe", "padding": frame.body().len()}),
        FrameKind::Data => {
            let records = frame.records().map(|r| record(&r.unwrap()));
            json!({"kind": "data", "records": records.collect::<Vec<_>>()})
        }
    };
    merged(&[common, own])
}

fn emitted(frame: &Frame<&[u8]>) -> Vec<u8> {
    let mut buffer = vec![0; 9000];
    let mut writer = FrameWriter::new(&mut buffer, &frame.header()).unwrap();
    match frame.kind() {
        FrameKind::Open => writer.body(&frame.open().unwrap().emit()).unwrap(),
        FrameKind::Close => writer.body(&frame.close().unwrap().emit()).unwrap(),
        FrameKind::Probe => writer.body(&vec![0; frame.body().len()]).unwrap(),
        FrameKind::Data => {
            for record in frame.records() {
                writer.push(&record.unwrap()).unwrap();
            }
        }
    }
    let length = writer.finish();
    buffer.truncate(length);
    buffer
}

/// Whether a sender writes these very bytes, and not only a receiver takes them.
fn is_canonical(vector: &Value) -> bool {
    vector["canonical"] != false
}

#[test]
fn frames_mean_what_the_vectors_say() {
    for vector in vectors("frames.json") {
        let (name, bytes) = (&vector["name"], bytes_of(&vector));
        let read = Frame::new_checked(&bytes[..]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(frame(&read), vector["frame"], "{name}");
        if is_canonical(&vector) {
            assert_eq!(hex(&emitted(&read)), hex(&bytes), "{name}");
        } else {
            assert_ne!(emitted(&read), bytes, "{name}: a sender writes it after all");
        }
    }
}

#[test]
fn records_mean_what_the_vectors_say() {
    for vector in vectors("records.json") {
        let (name, bytes) = (&vector["name"], bytes_of(&vector));
        let (read, length) = Record::parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(length, bytes.len(), "{name}");
        assert_eq!(record(&read), vector["record"], "{name}");
        let mut buffer = vec![0; bytes.len()];
        assert_eq!(read.emit(&mut buffer), Ok(length), "{name}");
        assert_eq!(buffer == bytes, is_canonical(&vector), "{name}: {}", hex(&buffer));
    }
}

#[test]
fn frames_that_are_none_break_the_rule_that_the_vectors_say() {
    for vector in vectors("frames-broken.json") {
        let (name, bytes) = (&vector["name"], bytes_of(&vector));
        let error = Frame::new_checked(&bytes[..]).and_then(|frame| match frame.kind() {
            FrameKind::Open => frame.open().map(drop),
            FrameKind::Close => frame.close().map(drop),
            FrameKind::Data | FrameKind::Probe => Ok(()),
        });
        let rule = match error.expect_err("it is none") {
            FrameError::CutShort { need: 52, .. } => "short",
            FrameError::CutShort { .. } => "cut-short",
            FrameError::Version(_) => "version",
            FrameError::Length(_) => "length",
            FrameError::Crc { .. } => "frame-crc",
            FrameError::Key(_) => "key",
            FrameError::Kind(_) => "kind",
            FrameError::Node(_) => "node",
            FrameError::Path(_) => "path",
            FrameError::Sacks => "ranges",
            FrameError::Body => "body",
        };
        assert_eq!(rule, vector["rule"], "{name}");
    }
}

#[test]
fn records_that_are_none_break_the_rule_that_the_vectors_say() {
    for vector in vectors("records-broken.json") {
        let (name, bytes) = (&vector["name"], bytes_of(&vector));
        let rule = match Record::parse(&bytes).expect_err("it is none") {
            RecordError::CutShort { .. } | RecordError::Length(_) => "record-length",
            RecordError::Kind(_) => "record-kind",
            RecordError::Class(_) => "record-class",
            RecordError::Function(_) => "record-function",
            RecordError::Epoch(_) => "record-epoch",
            RecordError::Slots => "record-slots",
            RecordError::Split => "record-split",
        };
        assert_eq!(rule, vector["rule"], "{name}");
    }
}
