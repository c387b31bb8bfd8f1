//! `tests/vectors/link.json`, which an implementation in Python wrote from `wire.md` alone, against
//! the link of proxy-core.

use proxy_core::control::LinkDownReason;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::link::{
    ChannelId, ClassSet, FrameDropped, Link, LinkConfig, LinkEvent, LinkState, Violation,
};
use proxy_core::stamps::Stamps;
use proxy_core::time::Instant;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tlp_codec::fabric::{Frame, FrameKind, FrameWriter, Header, Open, Record};
use tlp_codec::ids::{BindingKey, Epoch, NodeId, PathId, SlotFunction, SlotId};

/// The box's number for this link is made of the time when the link is made.
const MADE: Instant = Instant::from_nanos(0xb0b << 10);
const HOST_LIFE: u32 = 0x1111_1111;
const BOX_LIFE: u32 = 0x2222_2222;
const HOST_SESSION: u32 = 0xa0a;

/// The receiver of the vectors, and what it said and did.
struct Receiver {
    link: Link,
    stamps: Stamps,
    now: Instant,
    channel: Option<ChannelId>,
    sent: Vec<Vec<u8>>,
    events: Vec<LinkEvent>,
}

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

impl Receiver {
    fn new(vector: &Value) -> Self {
        // Exactly the credits that wire.md guarantees.
        let config = LinkConfig { shared_receive: 0, channels: 2, ..LinkConfig::default() };
        let link = Link::new(node(2), BOX_LIFE, node(1), Some(HOST_LIFE), false, config);
        let (sent, events) = (Vec::new(), Vec::new());
        let mut receiver =
            Self { link, stamps: Stamps::new(), now: MADE, channel: None, sent, events };
        receiver.poll();
        let key = BindingKey {
            slot: SlotId::new(3).unwrap(),
            function: SlotFunction::ZERO,
            epoch: Epoch::new(0, 7).unwrap(),
        };
        if vector["binding"] != "none" {
            receiver.channel = Some(receiver.link.open_channel(key).unwrap());
        }
        if vector["state"] != "opening" {
            receiver.come_up();
        }
        if vector["binding"] == "closed" {
            receiver.link.close_channel(receiver.channel.take().unwrap());
        }
        if vector["state"] == "down" {
            receiver.link.close(receiver.now, LinkDownReason::Removed);
            receiver.poll();
            receiver.pass(Duration::from_secs(1));
        }
        receiver.poll();
        receiver.sent.clear();
        receiver.events.clear();
        receiver
    }

    /// The host's part of the handshake.
    fn come_up(&mut self) {
        let asked = Open {
            min_version: 1,
            max_version: 1,
            max_frame: 9000,
            window: 1024,
            max_tlp: 552,
            session: HOST_SESSION,
            token: 5,
            echo: 0,
        };
        self.open_from_host(&asked);
        let answer = self.opens().pop().expect("an answer");
        assert_eq!(answer.echo, 5);
        assert_eq!(answer.session, 0xb0b, "the vectors' session");
        self.open_from_host(&Open { token: 0, echo: answer.token, ..asked });
        assert_eq!(self.link.state(), LinkState::Up);
    }

    fn open_from_host(&mut self, open: &Open) {
        let header = Header {
            kind: FrameKind::Open,
            destination: node(2),
            source: node(1),
            source_incarnation: HOST_LIFE,
            destination_incarnation: Some(BOX_LIFE),
            session: 0,
            path: PathId::ZERO,
            packet: 0,
            sequence: 0,
            ack: None,
        };
        let mut buffer = [0; 512];
        let mut writer = FrameWriter::new(&mut buffer, &header).unwrap();
        writer.body(&open.emit()).unwrap();
        let length = writer.finish();
        self.hand_over(&buffer[..length]).unwrap();
    }

    fn hand_over(&mut self, frame: &[u8]) -> Result<(), FrameDropped> {
        self.sent.clear();
        let taken = self.link.handle_frame(self.now, frame, &mut self.stamps);
        self.poll();
        taken
    }

    fn poll(&mut self) {
        let mut buffer = [0; 9000];
        while let Some(sent) = self.link.poll_transmit(self.now, &mut buffer, &mut self.stamps) {
            self.sent.push(buffer[..sent.len].to_vec());
        }
        self.events.extend(std::iter::from_fn(|| self.link.poll_event()));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.link.handle_timeout(self.now);
        self.poll();
    }

    fn frames(&self) -> impl Iterator<Item = Frame<&[u8]>> {
        self.sent.iter().map(|bytes| Frame::new_checked(&bytes[..]).expect("its own frames"))
    }

    fn opens(&self) -> Vec<Open> {
        let opens = self.frames().filter(|frame| frame.kind() == FrameKind::Open);
        opens.map(|frame| frame.open().unwrap()).collect()
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.link.counters().collect()
    }

    /// What it does at once: as `answer` of the vectors.
    fn answers(&self) -> Vec<&'static str> {
        let mut answers = Vec::new();
        for open in self.opens() {
            answers.push(match (open.echo != 0, open.token != 0) {
                (true, true) => "open with echo and token",
                (true, false) => "open with echo",
                (false, true) => "open with token",
                (false, false) => "open that says nothing",
            });
        }
        for frame in self.frames().filter(|frame| frame.kind() == FrameKind::Data) {
            let credits = |r: Result<Record<'_>, _>| matches!(r, Ok(Record::Credits(_)));
            if frame.records().any(credits) {
                answers.push("credits");
            }
            if frame.header().ack.is_some() {
                answers.push("acknowledgement");
            }
        }
        if self.events.iter().any(|event| matches!(event, LinkEvent::ChannelFailed { .. })) {
            answers.push("binding failed");
        }
        answers
    }

    fn delivered(&mut self) -> Vec<String> {
        let Some(channel) = self.channel else { return Vec::new() };
        let mut delivered = Vec::new();
        let mut tlp = [0; TLP_BUFFER];
        while let Some(taken) = self.link.take_received(channel, ClassSet::ALL, &mut tlp) {
            delivered.push(tlp[..taken.length].iter().map(|b| format!("{b:02x}")).collect());
        }
        delivered
    }
}

/// The counter that goes with a `counted` of the vectors.
fn counter(counted: &str) -> &'static str {
    match counted {
        "not-for-us" => "link.dropped_not_for_us",
        "not-from-peer" => "link.dropped_not_from_peer",
        "incarnation" => "link.dropped_incarnation",
        "session" => "link.dropped_session",
        "path" => "link.dropped_path",
        "not-up" => "link.dropped_not_up",
        "link-down" => "link.dropped_link_down",
        "acknowledgement" => "link.violations_acknowledgement",
        "record" => "link.violations_record",
        "credit" => "link.violations_credit",
        "tlp-too-long" => "link.violations_tlp_too_long",
        "split" => "link.violations_split",
        "duplicate" => "link.records_duplicate",
        "beyond-window" => "link.records_beyond_window",
        "stale" => "link.records_stale",
        "unknown" => "link.records_unknown",
        "failed-binding" => "link.records_failed_binding",
        "tlp-crc" => "link.tlp_crc_errors",
        other => panic!("{other}: no counter of that name"),
    }
}

fn check(vector: &Value) {
    let name = &vector["name"];
    let mut receiver = Receiver::new(vector);
    let mut last = "taken";
    let mut before = BTreeMap::new();
    for frame in vector["frames"].as_array().unwrap() {
        let text = frame.as_str().unwrap();
        let bytes: Vec<u8> = (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect();
        before = receiver.counters();
        last = match receiver.hand_over(&bytes) {
            Ok(()) => "taken",
            Err(FrameDropped::Violation(Violation::Open)) => "violation of the opening",
            Err(FrameDropped::Violation(_)) => "violation",
            Err(_) => "dropped",
        };
    }
    assert_eq!(last, vector["last"], "{name}");
    if let Some(counted) = vector["counted"].as_str() {
        let counter = counter(counted);
        assert!(receiver.counters()[counter] > before[counter], "{name}: {counter}");
    }
    let state = match receiver.link.state() {
        LinkState::Opening => "opening",
        LinkState::Up => "up",
        LinkState::Down(_) => "down",
    };
    assert_eq!(state, vector["link"], "{name}");
    let closes = receiver.frames().filter(|frame| frame.kind() == FrameKind::Close);
    let reason = closes.map(|frame| u64::from(frame.close().unwrap().reason.byte())).next();
    assert_eq!(reason, vector["close"].as_u64(), "{name}: the close frame");
    let answers = receiver.answers();
    match vector["answer"].as_str() {
        Some(answer) => assert!(answers.contains(&answer), "{name}: {answers:?}"),
        None => assert!(
            answers.iter().all(|answer| matches!(*answer, "acknowledgement" | "credits")),
            "{name}: {answers:?}"
        ),
    }
    // What is behind a sideband record is drained after it.
    let sidebands = std::iter::from_fn(|| receiver.link.poll_sideband());
    let codes: Vec<u64> = sidebands.map(|taken| taken.record.code().0.into()).collect();
    if let Some(expected) = vector["sideband"].as_array() {
        assert_eq!(codes, *expected, "{name}: sideband");
    }
    if let Some(expected) = vector["delivered"].as_array() {
        assert_eq!(receiver.delivered(), *expected, "{name}: delivered");
    }
    if let Some(next) = vector["next"].as_u64() {
        receiver.pass(Duration::from_millis(10));
        let told = receiver.frames().filter_map(|frame| frame.header().ack).last();
        assert_eq!(told.map_or(0, |ack| u64::from(ack.next)), next, "{name}: acknowledged");
    }
}

#[test]
fn the_link_does_what_the_vectors_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/link.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let vectors: Vec<Value> = serde_json::from_str(&text).expect("vectors are JSON");
    assert!(vectors.len() > 60, "vectors were lost");
    let mut failed = Vec::new();
    for vector in &vectors {
        if let Err(why) = std::panic::catch_unwind(|| check(vector)) {
            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
            failed.push(format!("{}: {why}", vector["name"]));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), vectors.len(), failed.join("\n"));
}
