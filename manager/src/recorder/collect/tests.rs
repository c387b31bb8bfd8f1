use super::*;
use crate::recorder::clock::Reading;
use std::time::Duration;
use tlp_codec::crc;
use tlp_codec::fabric::{FrameKind, Header, RecordAddress, TlpRecord, TlpTraits};
use tlp_codec::ids::{Epoch, NodeId, SlotFunction, SlotId};
use tlp_codec::tlp::Class;
use tokio::time::Instant;

fn peer() -> NodeId {
    NodeId::new(2).unwrap()
}

fn binding(function: u16) -> BindingKey {
    BindingKey {
        slot: SlotId::new(1).unwrap(),
        function: SlotFunction::new(function).unwrap(),
        epoch: Epoch::new(0, 1).unwrap(),
    }
}

/// The frame with this packet number that has a record of each of these functions, as the proxy records
/// it for one of them, or whole.
fn frame(packet: u32, functions: &[u16], of: Option<u16>) -> Vec<u8> {
    let header = Header {
        kind: FrameKind::Data,
        destination: peer(),
        source: NodeId::new(1).unwrap(),
        source_incarnation: 1,
        destination_incarnation: Some(2),
        session: 7,
        path: PathId::ZERO,
        packet,
        sequence: 100,
        ack: None,
    };
    let mut bytes = vec![0; 1000];
    let mut writer = FrameWriter::new(&mut bytes, &header).unwrap();
    for function in functions {
        let tlp = &[*function as u8; 16];
        let address = RecordAddress::from_host(&binding(*function));
        let traits =
            TlpTraits { class: Class::Posted, relaxed: false, sampled: true, outstanding: None };
        let own = Record::Tlp(TlpRecord { address, traits, tlp, crc: crc::tlp(tlp) });
        let shown = of.is_none_or(|of| of == *function);
        writer.push(if shown { &own } else { &Record::Nop }).unwrap();
    }
    let length = writer.finish();
    bytes.truncate(length);
    bytes
}

/// What is kept of frames, each with when it was seen and for which function.
fn kept(snap: u16, frames: &[(u64, u16, Vec<u8>)]) -> Collected {
    let recorded = |function| Recorded {
        peer: peer(),
        binding: binding(function),
        one_in: 1,
        tlps: 0,
        frames: snap,
    };
    let mut collected = Collected::new([0, 1].map(recorded).into(), Anchor::now());
    let entries = frames.iter().map(|(at, function, bytes)| {
        let (binding, length) = (binding(*function), bytes.len() as u16);
        let entry = Entry::Frame {
            at: *at,
            received: true,
            peer: peer(),
            binding,
            path: PathId::ZERO,
            length,
        };
        (entry, bytes[..bytes.len().min(snap.into())].to_vec())
    });
    collected.take(&Piece {
        entries: entries.collect(),
        next: 0,
        end: 0,
        clock: Reading { proxy: 0, asked: Instant::now(), doubt: Duration::ZERO },
        requests: Vec::new(),
    });
    collected
}

#[test]
fn a_frame_with_records_of_two_functions_is_one() {
    let [one, other] = [0, 1].map(|function| frame(4, &[0, 1, 0], Some(function)));
    let next = frame(5, &[1], Some(1));
    let frames = [(9, 0, one.clone()), (9, 1, other.clone()), (10, 1, next.clone())];
    let collected = kept(9000, &frames);
    let bytes: Vec<_> = collected.frames.iter().map(|frame| &frame.bytes).collect();
    let whole = frame(4, &[0, 1, 0], None);
    assert_eq!(bytes, [&whole, &next]);
    assert_eq!(usize::from(collected.frames[0].length), whole.len());
    assert_eq!(collected.bytes, 2 * ENTRY + whole.len() + next.len());
    // Frames of their own, and what was cut, are left as they are.
    assert_eq!(
        kept(9000, &[(9, 0, one.clone()), (9, 1, frame(5, &[0, 1, 0], Some(1)))]).frames.len(),
        2
    );
    assert_eq!(kept(9000, &[(9, 0, one.clone()), (9, 0, one.clone())]).frames.len(), 2);
    assert_eq!(kept(40, &[(9, 0, one), (9, 1, other)]).frames.len(), 2);
}

/// A proxy may say anything; a file is made of it all the same.
#[test]
fn a_frame_that_is_longer_than_any_or_shorter_than_what_was_kept_is_left_out() {
    let mut collected = kept(9000, &[(1, 0, frame(4, &[0], None))]);
    for length in [MAX_FRAME as u16 + 1, u16::MAX, 3] {
        let entry = Entry::Frame {
            at: 2,
            received: true,
            peer: peer(),
            binding: binding(0),
            path: PathId::ZERO,
            length,
        };
        collected.entry(&entry, &[0; 4]);
    }
    assert_eq!(collected.frames.len(), 1);
}

/// A proxy may say anything.
#[test]
fn more_losses_than_can_be_counted_are_the_most_that_can_be() {
    let wanted = Recorded { peer: peer(), binding: binding(0), one_in: 1, tlps: 0, frames: 0 };
    let mut collected = Collected::new(vec![wanted], Anchor::now());
    let lost = (Entry::Lost { entries: u64::MAX }, Vec::new());
    collected.take(&Piece {
        entries: vec![lost.clone(), lost],
        next: 0,
        end: 0,
        clock: Reading { proxy: 0, asked: Instant::now(), doubt: Duration::ZERO },
        requests: Vec::new(),
    });
    assert_eq!(collected.lost, u64::MAX);
}
