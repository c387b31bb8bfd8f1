use super::*;
use crate::recorder::clock::Anchor;
use crate::recorder::join;
use proxy_core::control::StampEntry;
use tlp_codec::fabric::{FrameKind, FrameWriter, SplitData, SplitHeader, TlpRecord};
use tlp_codec::ids::{Epoch, NodeId, OutstandingRef, PathId, SlotFunction, SlotId};

const SESSION: u32 = 7;
const ENTRY: OutstandingRef = OutstandingRef { index: 3, generation: 9 };

fn binding() -> BindingKey {
    BindingKey {
        slot: SlotId::new(1).unwrap(),
        function: SlotFunction::ZERO,
        epoch: Epoch::new(0, 1).unwrap(),
    }
}

fn traits(class: Class) -> TlpTraits {
    let outstanding = (class != Class::Posted).then_some(ENTRY);
    TlpTraits { class, relaxed: false, sampled: true, outstanding }
}

/// A record with a TLP of 16 bytes that a host sends.
fn record(class: Class) -> Record<'static> {
    let address = RecordAddress::from_host(&binding());
    let tlp = &[0; 16];
    Record::Tlp(TlpRecord { address, traits: traits(class), tlp, crc: crc::tlp(tlp) })
}

/// A frame of the host's with these records from this sequence on.
fn frame(at: u64, received: bool, sequence: u32, records: &[Record<'_>]) -> KeptFrame {
    let header = Header {
        kind: FrameKind::Data,
        destination: NodeId::new(2).unwrap(),
        source: NodeId::new(1).unwrap(),
        source_incarnation: 1,
        destination_incarnation: Some(2),
        session: SESSION,
        path: PathId::ZERO,
        packet: 4,
        sequence,
        ack: None,
    };
    let mut bytes = vec![0; 1000];
    let mut writer = FrameWriter::new(&mut bytes, &header).unwrap();
    for record in records {
        writer.push(record).unwrap();
    }
    let length = writer.finish();
    bytes.truncate(length);
    let (path, length) = (PathId::ZERO, length as u16);
    KeptFrame { at, received, binding: binding(), path, length, bytes, lost_before: 0 }
}

/// What an end has of frames and of stamps; of a stage that is not there, 0.
fn collected(frames: Vec<KeptFrame>, stamps: &[(bool, StampedTlp, [u64; 6])]) -> Collected {
    let mut collected = Collected::new(Vec::new(), Anchor::now());
    collected.frames = frames;
    for (from_host, tlp, at) in stamps {
        let (peer, at) = (NodeId::new(2).unwrap(), at.map(|at| (at > 0).then_some(at)));
        let (binding, from_host, tlp) = (binding(), *from_host, *tlp);
        collected.stamps.push((0, StampEntry { peer, binding, from_host, tlp, at }));
    }
    collected
}

/// The comments of each frame.
fn comments(host: &Collected, boxed: &Collected, at_host: bool) -> Vec<Vec<String>> {
    let seen = if at_host { host } else { boxed };
    let tlps = join::stamped(host, boxed, at_host);
    let carried = Carried::new(seen, at_host, &tlps);
    seen.frames.iter().map(|frame| carried.comments(frame)).collect()
}

use StampedTlp::{Completion, Posted, Request};

#[test]
fn a_frame_has_the_stamps_of_its_records_each_time_it_is_sent() {
    let records = [record(Class::NonPosted), Record::Nop, record(Class::Posted)];
    let host = collected(
        vec![frame(125, false, 40, &records), frame(5000, false, 40, &records)],
        &[
            (true, Request(ENTRY), [100, 110, 130, 0, 0, 0]),
            (true, Posted(Some(42)), [105, 120, 130, 0, 0, 0]),
        ],
    );
    let boxed = collected(
        vec![frame(80, true, 40, &records), frame(90, true, 40, &records)],
        &[
            (true, Request(ENTRY), [0, 0, 0, 80, 81, 82]),
            (true, Posted(Some(42)), [0, 0, 0, 80, 82, 85]),
        ],
    );
    let wanted = [
        "record=40 kind=request outstanding=3.9 asker=host slot=1 function=0 epoch=0.1 \
         host.arrived=100 host.encoded=110 host.sent=130 box.received=80 box.decoded=81 \
         box.delivered=82",
        "record=42 kind=posted sequence=42 asker=host slot=1 function=0 epoch=0.1 \
         host.arrived=105 host.encoded=120 host.sent=130 box.received=80 box.decoded=82 \
         box.delivered=85",
    ];
    assert_eq!(comments(&host, &boxed, true), [wanted, wanted]);
    assert_eq!(comments(&host, &boxed, false), [wanted, wanted]);
}

#[test]
fn completions_of_one_request_are_told_apart_in_whatever_order_they_came() {
    let piece = || vec![record(Class::Completion)];
    let sent = [[10, 11, 21, 0, 0, 0], [12, 13, 31, 0, 0, 0]];
    // The second overtook the first; what came is handed on in the order of sending.
    let got = [[0, 0, 0, 260, 261, 262], [0, 0, 0, 250, 251, 263]];
    let stamps = |at: [[u64; 6]; 2]| at.map(|at| (false, Completion(ENTRY), at));
    let host = collected(
        vec![frame(20, false, 1, &piece()), frame(30, false, 2, &piece())],
        &stamps(sent),
    );
    let boxed =
        collected(vec![frame(250, true, 2, &piece()), frame(260, true, 1, &piece())], &stamps(got));
    let of = |arrived: u32, received: u32, text: &str| {
        assert!(text.contains(" asker=device "), "{text}");
        assert!(text.contains(&format!(" host.arrived={arrived} ")), "{text}");
        assert!(text.contains(&format!(" box.received={received} ")), "{text}");
    };
    let seen = comments(&host, &boxed, true);
    of(10, 260, &seen[0][0]);
    of(12, 250, &seen[1][0]);
    let seen = comments(&host, &boxed, false);
    of(12, 250, &seen[0][0]);
    of(10, 260, &seen[1][0]);
}

#[test]
fn what_was_not_stamped_is_named_and_is_not_taken_for_another() {
    // It was first sent before the recording; the entry is used again later.
    let records = [record(Class::NonPosted)];
    let host = collected(
        vec![frame(50, false, 8, &records), frame(900_000_000, false, 66_000, &records)],
        &[(true, Request(ENTRY), [900_000_010, 900_000_020, 900_000_030, 0, 0, 0])],
    );
    let seen = comments(&host, &Collected::default(), true);
    let bare = "record=8 kind=request outstanding=3.9 asker=host slot=1 function=0 epoch=0.1";
    assert_eq!(seen[0], [bare]);
    assert!(
        seen[1][0].starts_with("record=66000 ") && seen[1][0].contains("host.arrived=900000010")
    );
}

/// A proxy may say that it stamped one name very often. What looks each of them up anew for every
/// frame does not end.
#[test]
fn many_of_one_name_are_found_in_time() {
    const MANY: u64 = 100_000;
    const APART: u64 = 10_000;
    let of_frames = |received: bool, class| -> Vec<KeptFrame> {
        let model = frame(0, received, 0, &[record(class)]);
        let number = |n: u64| {
            let mut frame = KeptFrame { at: (n + 1) * APART, ..model.clone() };
            // Where a frame has the sequence of its first record.
            frame.bytes[28..32].copy_from_slice(&(n as u32).to_le_bytes());
            frame
        };
        (0..MANY).map(number).collect()
    };
    let of_stamps = |times: &dyn Fn(u64) -> [u64; 6]| -> Vec<_> {
        (0..MANY).map(|n| (true, Request(ENTRY), times(n))).collect()
    };
    let nothing = Collected::default();
    let named = |host: &Collected, boxed: &Collected, at_host, n: usize| {
        let seen = if at_host { host } else { boxed };
        let tlps = join::stamped(host, boxed, at_host);
        let carried = Carried::new(seen, at_host, &tlps);
        assert_eq!(carried.comments(&seen.frames[n])[0].split(' ').next().unwrap(), {
            format!("record={n}")
        });
        (carried.by_place.len(), carried.comments(&seen.frames[n])[0].clone())
    };
    let sent = |n: u64| [(n + 1) * APART - 2, (n + 1) * APART - 1, (n + 1) * APART + 5, 0, 0, 0];
    let got = |n: u64| [0, 0, 0, (n + 1) * APART, (n + 1) * APART + 1, (n + 1) * APART + 2];
    let host = collected(of_frames(false, Class::NonPosted), &of_stamps(&sent));
    let boxed = collected(of_frames(true, Class::NonPosted), &of_stamps(&got));
    // Both ends have all.
    for at_host in [true, false] {
        let (found, text) = named(&host, &boxed, at_host, 77_776);
        assert_eq!(found as u64, MANY);
        assert!(text.contains(" host.sent=777770005 box.received=777770000 "), "{text}");
    }
    // Stamps of other times than the frames: long after them, and before them.
    for shift in [2 * NOT_THE_SAME + MANY * APART, 1] {
        let frames = of_frames(false, Class::NonPosted).into_iter();
        let later = if shift == 1 { 2 * NOT_THE_SAME + MANY * APART } else { 0 };
        let frames = frames.map(|f| KeptFrame { at: f.at + later, ..f }).collect();
        let stamps = of_stamps(&|n| sent(n).map(|at| if at > 0 { at + shift } else { 0 }));
        let (found, text) = named(&collected(frames, &stamps), &nothing, true, 77_776);
        assert!(found == 0 && !text.contains("host."), "{found}: {text}");
    }
    // Delivered the other way round than they came.
    let boxed = collected(of_frames(true, Class::NonPosted), &of_stamps(&|n| got(MANY - 1 - n)));
    let (found, text) = named(&nothing, &boxed, false, 77_776);
    assert_eq!(found as u64, MANY);
    assert!(text.contains(" box.received=777770000 "), "{text}");
}

#[test]
fn parts_of_a_split_tlp_have_the_stamps_of_all_of_it() {
    let address = RecordAddress::from_host(&binding());
    let (class, total, parts, bytes) = (Class::Posted, 200, 2, &[0; 64][..]);
    let begin = Record::SplitHeader(SplitHeader {
        address,
        traits: traits(class),
        total,
        parts,
        crc: 0,
        bytes,
    });
    let part = |part, offset| Record::SplitData(SplitData { address, class, part, offset, bytes });
    let host = collected(
        vec![frame(5, false, u32::MAX, &[begin, part(1, 64)]), frame(6, false, 1, &[part(2, 128)])],
        &[(true, Posted(Some(u32::MAX)), [3, 4, 6, 0, 0, 0])],
    );
    let seen = comments(&host, &Collected::default(), true);
    let said = "kind=posted sequence=4294967295 asker=host slot=1 function=0 epoch=0.1 \
                host.arrived=3 host.encoded=4 host.sent=6";
    assert_eq!(seen[0], [format!("record=4294967295 {said}"), format!("record=0 part=1 {said}")]);
    assert_eq!(seen[1], [format!("record=1 part=2 {said}")]);
    // Without its beginning it is not known which one it is.
    let host = collected(vec![frame(6, false, 1, &[part(2, 128)])], &[]);
    let seen = comments(&host, &Collected::default(), true);
    assert_eq!(seen[0], ["record=1 part=2 kind=posted asker=host slot=1 function=0 epoch=0.1"]);
}

#[test]
fn of_a_cut_frame_the_records_that_begin_in_what_was_kept_are_named() {
    let records = [record(Class::NonPosted), record(Class::Posted)];
    for (kept, named) in [
        (HEADER - 1, 0),
        (HEADER + RECORD_HEADER - 1, 0),
        (HEADER + RECORD_HEADER, 1),
        (HEADER + 36 + RECORD_HEADER - 1, 1),
        (HEADER + 36 + RECORD_HEADER, 2),
        (usize::MAX, 2),
    ] {
        let mut frame = frame(125, false, 40, &records);
        frame.bytes.truncate(kept);
        let host = collected(vec![frame], &[(true, Posted(Some(41)), [100, 110, 130, 0, 0, 0])]);
        let seen = comments(&host, &Collected::default(), true);
        assert_eq!(seen[0].len(), named, "{kept}: {seen:?}");
        assert!(seen[0].iter().all(|text| !text.contains("slot=0")), "{seen:?}");
        assert!(named < 2 || seen[0][1].contains("host.sent=130"), "{seen:?}");
    }
}
