//! Frames that are wrong in every way: each is dropped and counted under its reason, and nothing
//! else is lost; or it breaks the protocol, and takes the link down.

use super::network::lie;
use super::pair::*;
use crate::control::{BindingFailure, LinkDownReason};
use crate::limits::TLP_BUFFER;
use crate::link::*;
use core::time::Duration;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;
use tlp_codec::crc;
use tlp_codec::fabric::*;
use tlp_codec::ids::{BindingKey, PathId};
use tlp_codec::tlp::Class;

const MS: Duration = Duration::from_millis(1);

/// A pair with a binding, and a frame with one TLP from the host on its way.
fn with_frame() -> (Pair, BindingKey, Vec<u8>) {
    let (mut pair, key) = Pair::bound();
    assert!(pair.send(0, key, Class::Posted, false, 64));
    let frame = pair.frames_from(0).remove(0);
    (pair, key, frame)
}

fn with_crc(mut frame: Vec<u8>) -> Vec<u8> {
    let end = frame.len() - FRAME_CRC;
    let crc = crc::frame(&frame[..end]);
    frame[end..].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// The same frame with other content, its CRC right again.
fn changed(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    with_crc(frame)
}

#[test]
fn each_wrong_frame_is_counted_and_nothing_is_lost() {
    let (mut pair, _, frame) = with_frame();
    let cut = frame[..frame.len() - 1].to_vec();
    let mut damaged = frame.clone();
    damaged[60] ^= 1;
    let cases = [
        (cut, "dropped_cut_short"),
        (vec![], "dropped_cut_short"),
        (changed(&frame, 0, &[2]), "dropped_version"),
        (damaged, "dropped_frame_crc"),
        (changed(&frame, 1, &[9]), "dropped_kind"),
        (changed(&frame, 22, &[1]), "dropped_key"),
        (changed(&frame, 20, &[1]), "dropped_path"),
        (changed(&frame, 2, &[51, 0]), "dropped_length"),
        (changed(&frame, 6, &[0, 0]), "dropped_node"),
        (changed(&frame, 43, &[9]), "dropped_ranges"),
        (changed(&frame, 4, &[9, 0]), "dropped_not_for_us"),
        (changed(&frame, 6, &[9, 0]), "dropped_not_from_peer"),
        (changed(&frame, 8, &[1, 2, 3, 4]), "dropped_incarnation"),
        (changed(&frame, 12, &[1, 2, 3, 4]), "dropped_incarnation"),
        (changed(&frame, 21, &[2]), "dropped_incarnation"),
        (changed(&frame, 16, &[1, 2, 3, 4]), "dropped_session"),
    ];
    for (bytes, counter) in cases {
        let before = pair.counter(1, counter);
        assert!(pair.hand_over(1, &bytes).is_err(), "{counter}");
        assert_eq!(pair.counter(1, counter), before + 1, "{counter}");
    }
    pair.hand_over(1, &frame).unwrap();
    pair.hand_over(1, &frame).unwrap();
    assert_eq!(pair.counter(1, "records_duplicate"), 1);
    pair.drain_for(10 * MS).unwrap();
    assert!(pair.both_up());
    assert_eq!(pair.oracle.missing(), 0);
}

#[test]
fn a_record_far_ahead_is_not_taken() {
    let (mut pair, _, frame) = with_frame();
    let sequence = Frame::new_checked(&frame).unwrap().header().sequence;
    let ahead = changed(&frame, 28, &(sequence + 5000).to_le_bytes());
    pair.hand_over(1, &ahead).unwrap();
    assert_eq!(pair.counter(1, "records_beyond_window"), 1);
    pair.drain_for(100 * MS).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
}

#[test]
fn a_wrong_tlp_crc_in_a_right_frame_fails_the_binding_alone() {
    let (mut pair, key, mut frame) = with_frame();
    let other = super::pair::key(9, 1);
    for end in 0..2 {
        pair.ends[end].open_channel(other).unwrap();
    }
    lie(&mut frame);
    pair.hand_over(1, &frame).unwrap();
    pair.run_for(MS);
    assert_eq!(pair.counter(1, "tlp_crc_errors"), 1);
    let channel = pair.ends[1].channel_of(&key).unwrap();
    let failed = LinkEvent::ChannelFailed { channel, key, reason: BindingFailure::TlpCrc };
    assert_eq!(pair.events[1].last(), Some(&failed));
    assert!(pair.send(0, other, Class::Posted, false, 64));
    pair.run_for(MS);
    let channel = pair.ends[1].channel_of(&other).unwrap();
    assert!(pair.take(1, channel, ClassSet::ALL).is_some());
    assert!(pair.both_up());
}

/// A data frame from the host that this test writes by itself.
fn forged(pair: &Pair, records: &[Record<'_>], sequence: u32, ack: Option<Ack>) -> Vec<u8> {
    let header = Header {
        kind: FrameKind::Data,
        destination: node(1),
        source: node(0),
        source_incarnation: 100,
        destination_incarnation: Some(200),
        session: pair.ends[1].handshake.session.unwrap(),
        path: PathId::ZERO,
        packet: 1_000,
        sequence,
        ack,
    };
    let mut bytes = vec![0; 9000];
    let mut writer = FrameWriter::new(&mut bytes, &header).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

fn next_sequence(pair: &Pair) -> u32 {
    pair.ends[0].flight.next()
}

fn tlp_record(key: &BindingKey, tlp: &[u8]) -> Record<'static> {
    let traits =
        TlpTraits { class: Class::Posted, relaxed: false, sampled: false, outstanding: None };
    let tlp: &'static [u8] = tlp.to_vec().leak();
    let address = RecordAddress::from_host(key);
    Record::Tlp(TlpRecord { address, traits, tlp, crc: crc::tlp(tlp) })
}

fn violation_of(pair: &mut Pair, frame: &[u8]) -> Violation {
    let Err(FrameDropped::Violation(violation)) = pair.hand_over(1, frame) else {
        panic!("the frame was taken, or dropped for another reason");
    };
    assert_eq!(pair.ends[1].state(), LinkState::Down(LinkDownReason::Protocol));
    assert_eq!(pair.counter(1, "violations"), 1);
    pair.run_for(10 * MS);
    assert_eq!(pair.ends[0].state(), LinkState::Down(LinkDownReason::PeerClosed), "it is told");
    violation
}

#[test]
fn more_than_was_promised_breaks_the_protocol() {
    let (mut pair, key) = Pair::bound();
    let records: Vec<Record<'_>> = (0..17).map(|_| tlp_record(&key, &[0; 12])).collect();
    let frame = forged(&pair, &records, next_sequence(&pair), None);
    assert_eq!(violation_of(&mut pair, &frame), Violation::Credit);
}

#[test]
fn a_tlp_that_is_too_long_breaks_the_protocol() {
    let (mut pair, key) = Pair::bound();
    let frame =
        forged(&pair, &[tlp_record(&key, &[0; TLP_BUFFER + 4])], next_sequence(&pair), None);
    assert_eq!(violation_of(&mut pair, &frame), Violation::TlpTooLong);
}

#[test]
fn acknowledging_what_was_never_sent_breaks_the_protocol() {
    let wrong = [
        Ack { next: 1000, ..some_ack() },
        Ack { packet: 1000, ..some_ack() },
        Ack { packet: u32::MAX, ..some_ack() },
        Ack { path: PathId::new(3).unwrap(), ..some_ack() },
    ];
    for ack in wrong {
        let (mut pair, _) = Pair::bound();
        let frame = forged(&pair, &[], 0, Some(ack));
        assert_eq!(violation_of(&mut pair, &frame), Violation::Acknowledgement);
    }
}

fn some_ack() -> Ack {
    Ack { next: 0, path: PathId::ZERO, packet: 0, delay_us: 0, ce: 0, sacks: Sacks::default() }
}

#[test]
fn bytes_that_are_no_record_break_the_protocol() {
    let (mut pair, _) = Pair::bound();
    let mut frame = forged(&pair, &[Record::Nop], next_sequence(&pair), None);
    frame[HEADER] = 77;
    let frame = with_crc(frame);
    assert_eq!(violation_of(&mut pair, &frame), Violation::Record(RecordError::Kind(77)));
}

#[test]
fn parts_that_do_not_make_a_tlp_break_the_protocol() {
    // Of 32 zeros, the first 12 in the header record: class, offset and length of each part.
    let posted = |offset, length| (Class::Posted, offset, length);
    let right = [posted(12, 8), posted(20, 12)];
    let wrong = [
        ("too little", vec![posted(12, 8)]),
        ("too much", vec![posted(12, 8), posted(20, 8), posted(28, 8)]),
        ("an overlap and as large a gap", vec![posted(12, 8), posted(16, 12)]),
        ("a gap and as large an overlap", vec![posted(16, 12), posted(24, 8)]),
        ("an overlap with the header record", vec![posted(8, 12), posted(20, 8)]),
        ("the wrong order", vec![posted(20, 12), posted(12, 8)]),
        ("another class", vec![posted(12, 8), (Class::Completion, 20, 12)]),
    ];
    let send = |parts: &[(Class, u16, usize)]| {
        let (pair, key) = Pair::bound();
        let address = RecordAddress::from_host(&key);
        let Record::Tlp(TlpRecord { traits, .. }) = tlp_record(&key, &[0; 12]) else {
            unreachable!()
        };
        let mut records = vec![Record::SplitHeader(SplitHeader {
            address,
            traits,
            total: 32,
            parts: parts.len() as u16,
            crc: crc::tlp(&[0; 32]),
            bytes: &[0; 12],
        })];
        for (i, &(class, offset, length)) in parts.iter().enumerate() {
            let (part, bytes) = (i as u16 + 1, &[0; 32][..length]);
            records.push(Record::SplitData(SplitData { address, class, part, offset, bytes }));
        }
        let frame = forged(&pair, &records, next_sequence(&pair), None);
        (pair, frame)
    };
    let (mut pair, frame) = send(&right);
    pair.hand_over(1, &frame).unwrap();
    assert_eq!(pair.counter(1, "tlps_received"), 1);
    for (what, parts) in wrong {
        let (mut pair, frame) = send(&parts);
        assert_eq!(violation_of(&mut pair, &frame), Violation::Split, "{what}");
    }
}

#[test]
fn a_split_tlp_whose_rest_is_taken_back_is_abandoned() {
    let (mut pair, key) = Pair::bound();
    let address = RecordAddress::from_host(&key);
    let Record::Tlp(TlpRecord { traits, .. }) = tlp_record(&key, &[0; 12]) else { unreachable!() };
    let header = Record::SplitHeader(SplitHeader {
        address,
        traits,
        total: 20,
        parts: 1,
        crc: 0,
        bytes: &[0; 12],
    });
    let frame = forged(&pair, &[header, Record::Nop], next_sequence(&pair), None);
    pair.hand_over(1, &frame).unwrap();
    assert_eq!(pair.counter(1, "splits_abandoned"), 1);
    assert_eq!(pair.ends[1].state(), LinkState::Up);
}

#[test]
fn a_peer_with_another_version_is_told_so() {
    let mut pair = Pair::new(1, Default::default(), LinkConfig::default());
    pair.flush();
    // What the host sends is changed into an open frame of a later version only.
    let (_, open) = loop {
        match pair.network.arrive(pair.now + MS).unwrap() {
            (1, frame) => break (1, frame),
            _ => continue,
        }
    };
    pair.hand_over(1, &open).unwrap();
    let answer = pair.frames_from(1).remove(0);
    let token = Frame::new_checked(&answer).unwrap().open().unwrap().token;
    let frame = Frame::new_checked(&open).unwrap();
    let (header, body) = (frame.header(), frame.open().unwrap());
    let body = Open { min_version: 2, max_version: 3, echo: token, token: 0, ..body };
    let mut bytes = vec![0; 200];
    let header = Header { destination_incarnation: Some(200), ..header };
    let mut writer = FrameWriter::new(&mut bytes, &header).unwrap();
    writer.body(&body.emit()).unwrap();
    let length = writer.finish();
    let result = pair.hand_over(1, &bytes[..length]);
    assert_eq!(result, Err(FrameDropped::Violation(Violation::Open)));
    let goodbye = pair.frames_from(1).remove(0);
    let close = Frame::new_checked(&goodbye).unwrap().close().unwrap();
    assert_eq!(close.reason, CloseReason::Version);
}

proptest! {
    /// Whatever a peer says in right frames, nothing panics and no promise is broken.
    #[test]
    fn no_right_frame_panics(
        frames in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..120), 0u8..8, 0u32..40, 0u32..40, any::<bool>()),
            1..20,
        ),
    ) {
        let (mut pair, key) = Pair::bound();
        pair.send(1, key, Class::Posted, false, 64);
        let _ = pair.frames_from(1);
        for (mut body, kind, sequence, next, acks) in frames {
            if body.len() >= 12 {
                body[0] = kind;
                let length = body.len() as u16 & !3;
                body[2..4].copy_from_slice(&length.to_le_bytes());
                body[4..12].copy_from_slice(&[0, 3, 0, 0, 1, 0, 0, 0]);
            }
            let ack = acks.then(|| Ack { next, ..some_ack() });
            let mut frame = forged(&pair, &[], sequence, ack);
            let end = frame.len() - FRAME_CRC;
            frame.splice(end..end, body);
            let length = frame.len() as u16;
            frame[2..4].copy_from_slice(&length.to_le_bytes());
            let _ = pair.hand_over(1, &with_crc(frame));
            let _ = pair.frames_from(1);
            while pair.ends[1].poll_sideband().is_some() {}
            if let Some(channel) = pair.ends[1].channel_of(&key) {
                let _ = pair.take(1, channel, ClassSet::ALL);
            }
            let now = pair.now + MS;
            pair.now = now;
            pair.ends[1].handle_timeout(now);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut pair, _) = Pair::bound();
        prop_assert!(pair.hand_over(0, &bytes).is_err());
    }
}
