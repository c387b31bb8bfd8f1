use super::*;
use crate::limits::{RECORDER_PIECE, STAMP_RING};
use crate::stamps::{StampedTlp, Stamps};
use std::vec;
use std::vec::Vec as Growing;
use tlp_codec::crc;
use tlp_codec::fabric::{Header, RecordAddress, TlpRecord, TlpTraits};
use tlp_codec::ids::{Epoch, OutstandingRef, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

fn binding(slot: u8) -> BindingKey {
    BindingKey {
        slot: SlotId::new(slot).unwrap(),
        function: SlotFunction::ZERO,
        epoch: Epoch::new(0, 1).unwrap(),
    }
}

fn recorded(slot: u8) -> Recorded {
    Recorded { peer: node(2), binding: binding(slot), one_in: 1, tlps: 64, frames: 9000 }
}

fn stamp(slot: u8) -> StampRecord {
    let tlp = StampedTlp::Request(OutstandingRef { index: 1, generation: 2 });
    let key = StampKey { peer: node(2), binding: binding(slot), from_host: true, tlp };
    let at = [Some(Instant::from_nanos(1)), Some(Instant::from_nanos(2)), None, None, None, None];
    StampRecord { key, at }
}

/// The entries of a page, with the bytes that follow each.
fn entries(page: &[u8]) -> Growing<(Entry, Growing<u8>)> {
    let found = super::entries(page).map(Result::unwrap);
    found.map(|(entry, bytes)| (entry, bytes.to_vec())).collect()
}

fn read_all(recorder: &mut Recorder) -> Growing<(Entry, Growing<u8>)> {
    let (mut from, mut all) = (0, Growing::new());
    loop {
        let page = recorder.read(from, Instant::ZERO);
        from = page.first + page.bytes.len() as u64;
        all.extend(entries(&page.bytes));
        if from == page.end {
            recorder.read(from, Instant::ZERO);
            return all;
        }
        assert!(!page.bytes.is_empty(), "there is more to come");
    }
}

#[test]
fn only_what_is_listed_is_recorded() {
    let mut recorder = Recorder::new(4096);
    recorder.tlp(7, &stamp(1), &[1; 16]);
    assert!(!recorder.sample(&stamp(1).key));
    recorder.set(&[recorded(1)]);
    recorder.tlp(8, &stamp(1), &[2; 100]);
    recorder.tlp(9, &stamp(3), &[3; 16]);
    recorder.stamps(8, &stamp(1));
    recorder.stamps(9, &stamp(3));
    let stamps = stamp(1).entry();
    let kept = read_all(&mut recorder);
    let tlp = Entry::Tlp { id: 8, length: 100, stamps: stamps.clone() };
    assert_eq!(kept, [(tlp, vec![2; 64]), (Entry::Stamps { id: 8, stamps }, vec![])]);
}

#[test]
fn a_page_that_got_lost_is_given_again() {
    let mut recorder = Recorder::new(4096);
    recorder.set(&[recorded(1)]);
    recorder.stamps(1, &stamp(1));
    let page = recorder.read(0, Instant::ZERO);
    assert_eq!(recorder.read(0, Instant::ZERO), page);
    // A position inside an entry frees what ends before it.
    assert_eq!(recorder.read(1, Instant::ZERO), page);
    recorder.stamps(2, &stamp(1));
    let next = page.first + page.bytes.len() as u64;
    let page = recorder.read(next, Instant::ZERO);
    assert_eq!(page.first, next);
    assert!(matches!(entries(&page.bytes)[..], [(Entry::Stamps { id: 2, .. }, _)]));
    let over = recorder.read(u64::MAX, Instant::ZERO);
    assert_eq!((over.first, over.bytes.len()), (over.end, 0));
}

#[test]
fn what_finds_no_room_is_counted_where_it_is_missing() {
    let mut recorder = Recorder::new(1000);
    recorder.set(&[recorded(1)]);
    for id in 0..100 {
        recorder.tlp(id, &stamp(1), &[id as u8; 64]);
    }
    let lost = recorder.lost();
    let kept = read_all(&mut recorder);
    // Also where nothing follows.
    let ((last, _), kept) = kept.split_last().unwrap();
    assert_eq!(*last, Entry::Lost { entries: lost });
    assert_eq!(kept.len() as u64 + lost, 100);
    assert!(lost > 0 && kept.iter().all(|(entry, _)| matches!(entry, Entry::Tlp { .. })));
    let before = lost;
    for id in 100..120 {
        recorder.tlp(id, &stamp(1), &[id as u8; 64]);
    }
    let lost = recorder.lost() - before;
    assert!(lost > 0);
    recorder.read(recorder.ring.head() + 1000, Instant::ZERO);
    recorder.tlp(200, &stamp(1), &[]);
    recorder.tlp(201, &stamp(1), &[1; 64]);
    let kept = read_all(&mut recorder);
    assert_eq!(kept[0].0, Entry::Lost { entries: lost });
    assert!(matches!(kept[1].0, Entry::Tlp { id: 201, .. }));
    assert_eq!((kept.len(), recorder.lost()), (2, before + lost));
}

#[test]
fn entries_come_whole_and_in_order_wherever_the_ring_ends() {
    let mut recorder = Recorder::new(3 * RECORDER_PIECE);
    // Six at most are kept between two readings: two to a piece, with their heads.
    let longest = RECORDER_PIECE / 2 - 128;
    recorder.set(&[Recorded { tlps: u16::MAX, ..recorded(1) }]);
    let (mut next, mut seen) = (0_u32, 0_u32);
    for round in 0..500 {
        for _ in 0..round % 7 {
            let bytes = vec![next as u8; 1 + (next as usize * 37) % longest];
            let lost = recorder.lost();
            recorder.tlp(next, &stamp(1), &bytes);
            assert_eq!(recorder.lost(), lost, "{next}");
            next += 1;
        }
        for (entry, bytes) in read_all(&mut recorder) {
            let Entry::Tlp { id, length, .. } = entry else { panic!("{entry:?}") };
            assert_eq!(id, seen);
            assert_eq!(bytes, vec![seen as u8; length.into()]);
            seen += 1;
        }
    }
    assert_eq!(seen, next);
    assert!(next > 1000);
}

#[test]
fn requests_are_counted_and_every_nth_is_sampled() {
    let mut recorder = Recorder::new(100);
    recorder.set(&[Recorded { one_in: 3, ..recorded(1) }, recorded(2)]);
    let sampled: Growing<bool> = (0..6).map(|_| recorder.sample(&stamp(1).key)).collect();
    assert_eq!(sampled, [true, false, false, true, false, false]);
    assert!(!recorder.sample(&stamp(3).key));
    assert_eq!(recorder.read(0, Instant::ZERO).requests, [6, 0]);
    // Who wants all of them has the next one, whoever wanted few before.
    recorder.set(&[Recorded { one_in: 1_000_000, ..recorded(1) }, recorded(2)]);
    recorder.sample(&stamp(1).key);
    assert!(!recorder.sample(&stamp(1).key));
    // A binding that stays is counted on, wherever it stands in the list.
    recorder.set(&[recorded(2), recorded(1)]);
    assert!(recorder.sample(&stamp(1).key));
    assert_eq!(recorder.read(0, Instant::ZERO).requests, [0, 9]);
    recorder.set(&[Recorded { one_in: 0, tlps: 0, ..recorded(1) }]);
    assert!(!recorder.wants_stamps() && recorder.wants_frames());
    recorder.stop();
    assert!(!recorder.wants_stamps() && !recorder.wants_frames());
}

fn tlp_record(slot: u8, tlp: &[u8]) -> Record<'_> {
    let traits =
        TlpTraits { class: Class::Posted, relaxed: false, sampled: false, outstanding: None };
    let address = RecordAddress::from_host(&binding(slot));
    Record::Tlp(TlpRecord { address, traits, tlp, crc: crc::tlp(tlp) })
}

#[test]
fn a_frame_is_cut_to_the_records_of_one_binding() {
    let header = Header {
        kind: FrameKind::Data,
        destination: node(2),
        source: node(1),
        source_incarnation: 1,
        destination_incarnation: Some(2),
        session: 3,
        path: PathId::ZERO,
        packet: 4,
        sequence: 5,
        ack: None,
    };
    let (mine, secret) = ([0x11; 24], [0xee; 80]);
    let mut buffer = [0; 1000];
    let mut writer = FrameWriter::new(&mut buffer, &header).unwrap();
    for (slot, tlp) in [(2, &secret[..]), (1, &mine[..]), (3, &secret[..]), (1, &mine[..])] {
        writer.push(&tlp_record(slot, tlp)).unwrap();
    }
    let length = writer.finish();
    let frame = Frame::new_checked(&buffer[..length]).unwrap();
    let mut recorder = Recorder::new(RECORDER_PIECE);
    recorder.set(&[recorded(1), recorded(4)]);
    recorder.frame(Instant::from_nanos(9), node(2), false, true, &frame);
    recorder.frame(Instant::from_nanos(9), node(3), false, true, &frame);
    let kept = read_all(&mut recorder);
    let [(Entry::Frame { at: 9, received: false, length, .. }, bytes)] = &kept[..] else {
        panic!("{kept:?}")
    };
    assert_eq!(usize::from(*length), bytes.len());
    assert!(!bytes.contains(&0xee));
    let cut = Frame::new_checked(&bytes[..]).unwrap();
    assert_eq!(cut.header(), header);
    let records: Growing<_> = cut.records().map(Result::unwrap).collect();
    assert_eq!(records, [Record::Nop, tlp_record(1, &mine), Record::Nop, tlp_record(1, &mine)]);
    // Without room it is lost to who has records in it, and to nobody else.
    let mut full = Recorder::new(frame.size());
    full.set(&[recorded(1), recorded(4)]);
    full.frame(Instant::from_nanos(9), node(2), false, true, &frame);
    let lost = Growing::from([(Entry::Lost { entries: 1 }, Growing::new())]);
    assert_eq!((full.lost(), read_all(&mut full)), (1, lost));
}

#[test]
fn what_has_no_stamps_any_more_is_counted() {
    let mut stamps = Stamps::with_recorder(4096);
    stamps.recorder.set(&[recorded(1)]);
    let old = stamps.arrived(stamp(1).key, Instant::ZERO);
    for _ in 0..STAMP_RING {
        stamps.arrived(stamp(3).key, Instant::ZERO);
        stamps.mark(Instant::ZERO);
    }
    assert_eq!(stamps.recorder.lost(), 0);
    stamps.sent(old, 5, &[0; 12]);
    stamps.mark(Instant::ZERO);
    assert_eq!(stamps.recorder.lost(), 2, "the TLP, and its stamps");
    stamps.recorder.stop();
    stamps.sent(old, 5, &[0; 12]);
    stamps.mark(Instant::ZERO);
    assert_eq!(stamps.recorder.lost(), 2, "nobody wants them");
}

#[test]
fn what_is_no_entry_ends_a_page() {
    let lost = [2, 0, 3, 9];
    let all = |bytes: &[u8]| super::entries(bytes).map(|e| e.ok().map(|(e, _)| e)).collect();
    let good = Some(Entry::Lost { entries: 9 });
    let found: [Growing<Option<Entry>>; 5] = [
        all(&[lost, lost].concat()),
        all(&[&lost[..], &[7]].concat()),
        all(&[&lost[..], &[1, 0]].concat()),
        all(&[&lost[..], &[1, 0, 4], &lost[..]].concat()),
        all(&[0, 0]),
    ];
    let broken = vec![good.clone(), None];
    assert_eq!(
        found,
        [vec![good.clone(), good], broken.clone(), broken.clone(), broken, vec![None]]
    );
}

#[test]
fn what_nobody_read_is_not_given_to_the_next_one() {
    let mut recorder = Recorder::new(4096);
    recorder.set(&[recorded(1)]);
    recorder.tlp(7, &stamp(1), &[1; 16]);
    recorder.set(&[]);
    recorder.set(&[recorded(1)]);
    assert_eq!(read_all(&mut recorder), []);
    recorder.stamps(8, &stamp(1));
    assert_eq!(read_all(&mut recorder).len(), 1);
}
