//! What comes back after timeouts tells whether something was lost, or only late.

use super::pair::*;
use crate::limits::{LINK_RAISE, MAX_FRAME, SAFE_FRAME};
use core::time::Duration;
use std::vec::Vec;
use tlp_codec::ids::BindingKey;
use tlp_codec::tlp::Class::Posted;

const MS: Duration = Duration::from_millis(1);

/// Time after which a timeout has run out, and the one after it.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(8), Duration::from_millis(16)];

/// The window of the only path of end 0, and the largest frame there.
fn path(pair: &Pair) -> (u64, usize) {
    let path = &pair.ends[0].paths()[0];
    (path.congestion.window(), path.frame)
}

/// So much time in which end 0 has something to send.
fn busy(pair: &mut Pair, key: BindingKey, millis: u32) {
    for _ in 0..millis {
        (0..40).for_each(|_| drop(pair.send(0, key, Posted, false, 540)));
        pair.drain_for(MS).unwrap();
    }
}

/// A link that sent something large and heard nothing for two timeouts: its window until then, what it
/// sent before them, and what by them.
fn silent() -> (Pair, BindingKey, u64, [Vec<Vec<u8>>; 2]) {
    let (mut pair, key) = Pair::bound();
    busy(&mut pair, key, 50);
    pair.drain_for(20 * MS).unwrap();
    let (before, frame) = path(&pair);
    assert_eq!(frame, MAX_FRAME);
    // Two large frames and one that is small.
    let mut sent = Vec::new();
    for count in [4, 4, 1] {
        assert!((0..count).all(|_| pair.send(0, key, Posted, false, 540)));
        sent.append(&mut pair.frames_from(0));
    }
    let are_small: Vec<_> = sent.iter().map(|frame| frame.len() < SAFE_FRAME).collect();
    assert_eq!(are_small, [false, false, true]);
    let mut again = Vec::new();
    for time in TIMEOUTS {
        pair.now = pair.now + time;
        pair.ends[0].handle_timeout(pair.now);
        again.append(&mut pair.frames_from(0));
    }
    assert_eq!(pair.counter(0, "timeouts"), 2);
    assert_eq!(path(&pair), (3000, SAFE_FRAME));
    (pair, key, before, [sent, again])
}

/// These frames come to end 1, which answers what it got then.
fn arrive(pair: &mut Pair, frames: &[Vec<u8>]) {
    for frame in frames {
        pair.hand_over(1, frame).unwrap();
    }
    pair.now = pair.now + MS;
    pair.ends[1].handle_timeout(pair.now);
    for frame in pair.frames_from(1) {
        pair.hand_over(0, &frame).unwrap();
    }
}

#[test]
fn a_peer_that_stood_still_changes_nothing() {
    // It answers when it has what came first, or when it has all.
    for all in [false, true] {
        let (mut pair, _, before, [sent, again]) = silent();
        arrive(&mut pair, &if all { [sent, again].concat() } else { sent });
        let after = path(&pair);
        assert!(after.0 >= before && after.1 == MAX_FRAME, "{all}: {after:?}, {before} before");
    }
}

#[test]
fn what_was_lost_with_all_behind_it_is_one_event() {
    let (mut pair, key, _, [_, again]) = silent();
    arrive(&mut pair, &again);
    let (window, frame) = path(&pair);
    assert!(window < 6000, "it begins anew: {window}");
    assert_eq!(frame, SAFE_FRAME);
    // Whether large frames pass is tried soon, and they do.
    pair.drain_for(20 * MS).unwrap();
    busy(&mut pair, key, 20);
    assert!(20 * MS < LINK_RAISE / 10);
    assert!(path(&pair).1 + SAFE_FRAME > MAX_FRAME, "{:?}", path(&pair));
}

#[test]
fn small_frames_that_were_late_say_nothing_of_large_ones() {
    let (mut pair, _, _, [sent, _]) = silent();
    // Of what left before the timeouts only the last comes, which is small.
    arrive(&mut pair, &sent[2..]);
    let (window, frame) = path(&pair);
    assert!(window > 6000 && frame == SAFE_FRAME, "{window}, {frame}");
}
