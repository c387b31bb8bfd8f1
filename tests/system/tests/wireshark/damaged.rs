//! Bytes that were damaged, cut off or made up: the dissector says so and goes on.

use crate::capture::{self, Captured, Within};
use crate::compare::has_expert;
use crate::random::Random;
use crate::traffic;
use crate::tshark;
use crate::vectors::{frame, header};
use std::time::Duration;
use tlp_codec::crc;
use tlp_codec::fabric::{Frame, FrameKind};

/// Makes the frame CRC right again, so that what is wrong is found behind it.
fn seal(bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(4) else { return };
    let (covered, place) = bytes.split_at_mut(end);
    place.copy_from_slice(&crc::frame(covered).to_le_bytes());
}

/// One frame with something wrong.
fn damage(random: &mut Random, good: &Captured) -> Captured {
    let mut captured = good.clone().within(Within::ALL[random.below(4)]);
    let bytes = &mut captured.bytes;
    if random.one_in(8) {
        // Two at once, as a machine that sends captures them.
        bytes.extend_from_within(..);
    }
    match random.below(5) {
        // Cut off by the sender, or by who captured.
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 => captured.kept = Some(14 + random.below(bytes.len() + 40)),
        // Header fields and lengths are where most of the decisions are.
        2 => {
            let at = random.below(bytes.len().min(72));
            bytes[at] = random.next() as u8;
        }
        _ => {
            for _ in 0..=random.below(4) {
                let bit = random.below(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    if random.one_in(2) {
        // A length that fits again.
        if captured.bytes.len() >= 52 && random.one_in(2) {
            let length = captured.bytes.len() as u16;
            captured.bytes[2..4].copy_from_slice(&length.to_le_bytes());
        }
        seal(&mut captured.bytes);
    }
    captured
}

/// A right frame whose records, or body, are anything.
fn made_up(random: &mut Random, n: u32) -> Captured {
    let kind = [FrameKind::Data, FrameKind::Data, FrameKind::Open, FrameKind::Close];
    let kind = kind[random.below(4)];
    let mut body = Vec::new();
    for _ in 0..=random.below(4) {
        let length = 4 * random.below(24);
        let mut record = random.bytes(length.max(4));
        record[0] = random.below(8) as u8;
        if !random.one_in(4) {
            record[2..4].copy_from_slice(&(length.max(4) as u16).to_le_bytes());
        }
        if record.len() >= 16 {
            // Slots, function and epoch that are taken, and a first header byte of a TLP.
            record[4..8].copy_from_slice(&[1, 0, 0, 0]);
            record[1] &= 0x3e;
        }
        if record.len() > 24 && random.one_in(2) {
            record[16] = [0x00, 0x40, 0x4a, 0x0a, 0x74, 0x34, 0x91, 0x4c][random.below(8)];
            record[18] &= 0x80;
            record[19] = random.below(8) as u8;
        }
        body.extend(record);
    }
    let header = header(kind, n, n.wrapping_mul(7));
    Captured::new(Duration::from_micros(n.into()), frame(&header, &body))
        .within(Within::ALL[random.below(4)])
}

/// Whether a receiver that looks at nothing but the frame drops it.
fn is_dropped(bytes: &[u8]) -> bool {
    let Ok(frame) = Frame::new_checked(bytes) else { return true };
    match frame.kind() {
        FrameKind::Open => frame.open().is_err(),
        FrameKind::Close => frame.close().is_err(),
        FrameKind::Data | FrameKind::Probe => false,
    }
}

fn breaks_the_protocol(bytes: &[u8]) -> bool {
    let Ok(frame) = Frame::new_checked(bytes) else { return false };
    frame.kind() == FrameKind::Data && frame.records().any(|record| record.is_err())
}

#[test]
fn damaged_frames_are_told_and_nothing_fails() {
    let Some(()) = tshark::found() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.pcap");
    let good = traffic::of_a_link(3);
    let mut random = Random::new(4);
    let mut frames: Vec<Captured> = good
        .iter()
        .chain(&good)
        .take(4000)
        .map(|frame| damage(&mut random, frame))
        .chain((0..4000).map(|n| made_up(&mut Random::new(u64::from(n) + 1), n)))
        .collect();
    // An empty one, too.
    frames.push(Captured::new(Duration::ZERO, Vec::new()));
    capture::write(&path, &frames);
    let mut shown = tshark::json(&path);
    let all = shown.len();
    shown.dedup_by_key(|shown| shown.number);
    assert_eq!(shown.len(), frames.len());
    assert!(all > shown.len() + 100, "some have two frames: {all}");
    let mut told = [0, 0];
    for (frame, shown) in frames.iter().zip(&shown) {
        // Behind UDP it must look like a frame to be taken for one.
        if frame.within.is_udp() || frame.kept.is_some() || frame.bytes.is_empty() {
            continue;
        }
        let place = format!("packet {}: {frame:02x?}", shown.number);
        let tree = shown.tree.as_ref().unwrap_or_else(|| panic!("{place}"));
        let dropped = has_expert(tree, "frame") || has_expert(tree, "crc");
        assert_eq!(dropped, is_dropped(&frame.bytes), "{place}: {tree}");
        if !dropped {
            let broken = breaks_the_protocol(&frame.bytes);
            assert_eq!(has_expert(tree, "record"), broken, "{place}: {tree}");
            told[1] += usize::from(broken);
        }
        told[0] += usize::from(dropped);
    }
    assert!(told.iter().all(|many| *many > 200), "{told:?}");
    // The trees as text take other ways through Wireshark.
    tshark::text(&path);
}
