//! Encoding then decoding gives the same; any bytes at all give a reason or a frame.

use super::*;
use crate::ids::{Epoch, NodeId, OutstandingRef, PathId, SlotFunction, SlotId};
use crate::tlp::Class;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::vec::Vec;

fn address() -> impl Strategy<Value = RecordAddress> {
    (any::<u8>(), 1u8.., 0u16..256, any::<u8>(), 1..=Epoch::MAX_COUNTER, any::<bool>()).prop_map(
        |(a, b, function, generation, counter, swap)| {
            let (source, destination) = if swap { (b, a) } else { (a, b) };
            RecordAddress {
                source: SlotId::new(source).unwrap(),
                destination: SlotId::new(destination).unwrap(),
                function: SlotFunction::new(function).unwrap(),
                epoch: Epoch::new(generation, counter).unwrap(),
            }
        },
    )
}

fn traits() -> impl Strategy<Value = TlpTraits> {
    let outstanding = proptest::option::of(
        any::<(u16, u16)>().prop_map(|(index, generation)| OutstandingRef { index, generation }),
    );
    (0usize..3, any::<bool>(), any::<bool>(), outstanding).prop_map(
        |(class, relaxed, sampled, outstanding)| TlpTraits {
            class: Class::ALL[class],
            relaxed,
            sampled,
            outstanding,
        },
    )
}

/// A record that owns its bytes.
#[derive(Clone, Debug)]
enum Owned {
    Nop,
    Tlp(RecordAddress, TlpTraits, Vec<u8>, u32),
    SplitHeader(RecordAddress, TlpTraits, u16, Vec<u8>, u32),
    SplitData(RecordAddress, TlpTraits, u16, u16, Vec<u8>),
    Sideband(RecordAddress, u8, u16),
    Credits(RecordAddress, bool, [u32; 4]),
    Unbind(RecordAddress),
}

impl Owned {
    fn as_record(&self) -> Record<'_> {
        match self {
            Self::Nop => Record::Nop,
            Self::Tlp(address, traits, tlp, crc) => {
                Record::Tlp(TlpRecord { address: *address, traits: *traits, tlp, crc: *crc })
            }
            Self::SplitHeader(address, traits, parts, bytes, crc) => {
                Record::SplitHeader(SplitHeader {
                    address: *address,
                    traits: *traits,
                    total: bytes.len() as u16 + 4,
                    parts: *parts,
                    crc: *crc,
                    bytes,
                })
            }
            Self::SplitData(address, traits, part, offset, bytes) => Record::SplitData(SplitData {
                address: *address,
                class: traits.class,
                part: *part,
                offset: *offset * 4,
                bytes,
            }),
            Self::Sideband(address, code, argument) => {
                Record::Sideband(*address, Sideband::from_code(*code, *argument))
            }
            Self::Credits(address, announce, [p, n, c, s]) => Record::Credits(Credits {
                address: *address,
                announce: *announce,
                tlps: [*p, *n, *c],
                sideband: *s,
            }),
            Self::Unbind(address) => Record::Unbind(*address),
        }
    }
}

fn dwords(min: usize) -> impl Strategy<Value = Vec<u8>> {
    (min..80).prop_flat_map(|n| proptest::collection::vec(any::<u8>(), n * 4))
}

fn record() -> impl Strategy<Value = Owned> {
    prop_oneof![
        Just(Owned::Nop),
        (address(), traits(), dwords(3), any::<u32>())
            .prop_map(|(a, t, tlp, crc)| Owned::Tlp(a, t, tlp, crc)),
        (address(), traits(), 1u16.., dwords(3), any::<u32>())
            .prop_map(|(a, t, parts, b, crc)| Owned::SplitHeader(a, t, parts, b, crc)),
        (address(), traits(), 1u16.., 0u16..1000, dwords(1))
            .prop_map(|(a, t, part, o, b)| Owned::SplitData(a, t, part, o, b)),
        (address(), any::<u8>(), any::<u16>()).prop_map(|(a, c, x)| Owned::Sideband(a, c, x)),
        (address(), any::<bool>(), any::<[u32; 4]>()).prop_map(|(a, n, l)| Owned::Credits(a, n, l)),
        address().prop_map(Owned::Unbind),
    ]
}

fn ack() -> impl Strategy<Value = Ack> {
    let ranges = proptest::collection::vec((1u16..50, 1u16..50), 0..=MAX_SACKS);
    (any::<u32>(), 0u8..8, any::<u32>(), any::<u16>(), any::<u16>(), ranges).prop_map(
        |(next, path, packet, delay_us, ce, ranges)| {
            let mut sacks = Sacks::default();
            for (gap, length) in ranges {
                let offset = sacks.end() as u16 + gap;
                sacks.push(SackRange { offset, length }).unwrap();
            }
            Ack { next, path: PathId::new(path).unwrap(), packet, delay_us, ce, sacks }
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    (
        (1u16..0xffff, 1u16..0xffff, any::<u32>(), proptest::option::of(any::<u32>())),
        (any::<u32>(), 0u8..8, any::<u32>(), any::<u32>(), proptest::option::of(ack())),
    )
        .prop_map(|((to, from, life, peer_life), (session, path, packet, sequence, ack))| {
            Header {
                kind: FrameKind::Data,
                destination: NodeId::new(to).unwrap(),
                source: NodeId::new(from).unwrap(),
                source_incarnation: life,
                destination_incarnation: peer_life,
                session,
                path: PathId::new(path).unwrap(),
                packet,
                sequence,
                ack,
            }
        })
}

fn write(header: &Header, records: &[Owned]) -> Vec<u8> {
    let mut buffer = std::vec![0xee; 9000];
    let mut writer = FrameWriter::new(&mut buffer, header).unwrap();
    for record in records {
        writer.push(&record.as_record()).unwrap();
    }
    let length = writer.finish();
    buffer.truncate(length);
    buffer
}

/// Any frame at all, for tests that break it.
fn some_frame() -> Vec<u8> {
    let header = Header {
        kind: FrameKind::Data,
        destination: NodeId::new(2).unwrap(),
        source: NodeId::new(1).unwrap(),
        source_incarnation: 7,
        destination_incarnation: Some(9),
        session: 3,
        path: PathId::ZERO,
        packet: 1,
        sequence: 1,
        ack: None,
    };
    write(&header, &[Owned::Nop])
}

fn with_crc(mut frame: Vec<u8>) -> Vec<u8> {
    let end = frame.len() - FRAME_CRC;
    let crc = crate::crc::frame(&frame[..end]);
    frame[end..].copy_from_slice(&crc.to_le_bytes());
    frame
}

proptest! {
    #[test]
    fn frames_come_back_as_they_were(
        header in header(),
        records in proptest::collection::vec(record(), 0..12),
        padding in 0usize..40,
    ) {
        let mut bytes = write(&header, &records);
        bytes.resize(bytes.len() + padding, 0);
        let frame = Frame::new_checked(&bytes).unwrap();
        prop_assert_eq!(frame.header(), header);
        let back: Result<Vec<_>, _> = frame.records().collect();
        let sent: Vec<_> = records.iter().map(Owned::as_record).collect();
        prop_assert_eq!(back.unwrap(), sent);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        look_at_everything(&bytes);
    }

    #[test]
    fn no_bytes_behind_a_right_crc_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), HEADER + FRAME_CRC..300),
        plausible in any::<bool>(),
    ) {
        let length = bytes.len() as u16;
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&length.to_le_bytes());
        if plausible {
            bytes[1] = bytes[1] % 3 + 1;
            bytes[20] &= 7;
            bytes[22] = 0;
            bytes[23] = 0;
            bytes[42] &= 7;
            bytes[43] &= 1;
        }
        look_at_everything(&with_crc(bytes));
    }

    #[test]
    fn no_record_bytes_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 4..120),
        kind in 0u8..8,
        length in 0u16..120,
    ) {
        bytes[0] = kind;
        bytes[2..4].copy_from_slice(&length.to_le_bytes());
        if let Ok((record, taken)) = Record::parse(&bytes) {
            let mut again = [0; 200];
            prop_assert_eq!(record.emit(&mut again), Ok(taken));
            prop_assert_eq!(Record::parse(&again[..taken]), Ok((record, taken)));
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed(header in header(), bit in 0usize..8 * 52) {
        let mut bytes = write(&header, &[]);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Frame::new_checked(&bytes).is_err());
    }

    #[test]
    fn sideband_codes_go_both_ways(code in any::<u8>(), argument in any::<u16>()) {
        let sideband = Sideband::from_code(code, argument);
        let (again, value) = sideband.code();
        prop_assert_eq!(Sideband::from_code(again, value), sideband);
    }
}

fn look_at_everything(bytes: &[u8]) {
    if let Ok(frame) = Frame::new_checked(bytes) {
        let _ = frame.header();
        let _ = frame.open();
        let _ = frame.close();
        for record in frame.records() {
            if let Ok(Record::Tlp(tlp)) = record {
                let _ = tlp.crc_matches();
            }
        }
    }
}

#[test]
fn each_thing_that_is_wrong_has_its_reason() {
    let right = some_frame();
    let broken = |at: usize, value: u8| {
        let mut bytes = right.clone();
        bytes[at] = value;
        Frame::new_checked(with_crc(bytes)).map(|_| ()).unwrap_err()
    };
    assert_eq!(broken(0, 2), FrameError::Version(2));
    assert_eq!(broken(1, 0), FrameError::Kind(0));
    assert_eq!(broken(1, 5), FrameError::Kind(5));
    assert_eq!(broken(2, 51), FrameError::Length(51));
    assert_eq!(broken(4, 0), FrameError::Node(0));
    assert_eq!(broken(20, 8), FrameError::Path(8));
    assert_eq!(broken(22, 1), FrameError::Key(1));
    assert_eq!(broken(43, 9), FrameError::Sacks);
    assert_eq!(broken(43, 2), FrameError::Sacks);
    let cut = Frame::new_checked(&right[..right.len() - 1]).map(|_| ()).unwrap_err();
    assert_eq!(cut, FrameError::CutShort { need: 56, have: 55 });
    let mut wrong = right.clone();
    wrong[30] ^= 4;
    assert!(matches!(Frame::new_checked(&wrong), Err(FrameError::Crc { .. })));
}

#[test]
fn each_broken_record_has_its_reason() {
    let key = address().new_tree(&mut Default::default()).unwrap().current();
    let mut right = [0; RECORD_HEADER];
    Record::Unbind(key).emit(&mut right).unwrap();
    let broken = |at: usize, bytes: &[u8]| {
        let mut record = right;
        record[at..at + bytes.len()].copy_from_slice(bytes);
        Record::parse(&record).map(|_| ()).unwrap_err()
    };
    assert_eq!(broken(0, &[7]), RecordError::Kind(7));
    assert_eq!(broken(2, &[12, 0]), RecordError::Length(12));
    assert_eq!(broken(2, &[20, 0]), RecordError::CutShort { need: 20, have: 16 });
    assert_eq!(broken(4, &[0, 0]), RecordError::Slots);
    assert_eq!(broken(6, &[0, 1]), RecordError::Function(256));
    assert_eq!(broken(8, &[0, 0, 0, 5]), RecordError::Epoch(0x0500_0000));
    let mut tlp = [0; TLP_OVERHEAD + MIN_TLP];
    tlp[..RECORD_HEADER].copy_from_slice(&right);
    tlp[..4].copy_from_slice(&[1, 3, 32, 0]);
    assert_eq!(Record::parse(&tlp), Err(RecordError::Class(3)));
}
