//! What comes back after timeouts tells whether something was lost, or a peer stood still.

use super::pair::*;
use crate::limits::{LINK_MIN_RTO, LINK_RAISE, MAX_FRAME, SAFE_FRAME};
use crate::link::LinkConfig;
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
        (0..40).all(|_| pair.send(0, key, Posted, false, 540));
        pair.drain_for(MS).unwrap();
    }
}

/// A link with a window that has grown, and nothing under way.
fn warm(config: LinkConfig) -> (Pair, BindingKey) {
    let (mut pair, key) = Pair::bound_with(config);
    busy(&mut pair, key, 50);
    pair.drain_for(20 * MS).unwrap();
    (pair, key)
}

/// Frames of end 0 with so many TLPs each, off the network.
fn frames(pair: &mut Pair, key: BindingKey, counts: &[usize]) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for count in counts {
        assert!((0..*count).all(|_| pair.send(0, key, Posted, false, 540)));
        sent.append(&mut pair.frames_from(0));
    }
    assert_eq!(sent.len(), counts.len());
    sent
}

/// What end 0 sends while it hears nothing for two timeouts, off the network.
fn time_out(pair: &mut Pair) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for time in TIMEOUTS {
        pair.now = pair.now + time;
        pair.ends[0].handle_timeout(pair.now);
        sent.append(&mut pair.frames_from(0));
    }
    sent
}

/// A link that sent a frame of each so many TLPs and heard nothing for two timeouts: its window until then,
/// what it sent before them, and what by them.
fn silent(counts: &[usize]) -> (Pair, BindingKey, u64, [Vec<Vec<u8>>; 2]) {
    let (mut pair, key) = warm(LinkConfig::default());
    let (before, frame) = path(&pair);
    assert_eq!(frame, MAX_FRAME);
    let sent = frames(&mut pair, key, counts);
    let again = time_out(&mut pair);
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

/// The window is soon what it is after one loss.
fn recovers(pair: &mut Pair, key: BindingKey, before: u64) {
    pair.drain_for(20 * MS).unwrap();
    busy(pair, key, 10);
    assert!(path(pair).0 > before * 6 / 10, "{:?}, {before} before", path(pair));
}

#[test]
fn a_peer_that_stood_still_carries_large_frames_at_once() {
    // It answers when it has what came first, or when it has all.
    for all in [false, true] {
        let (mut pair, key, before, [sent, again]) = silent(&[9, 9, 1]);
        arrive(&mut pair, &if all { [sent, again].concat() } else { sent });
        assert_eq!(path(&pair).1, MAX_FRAME, "{all}");
        recovers(&mut pair, key, before);
    }
}

/// No later frame tells of the last ones: the first of them goes once more well before the timeout, and
/// what is heard of that tells of the others.
#[test]
fn what_is_lost_last_is_sent_again_before_a_timeout() {
    for count in [1, 2] {
        let (mut pair, key) = warm(LinkConfig::default());
        frames(&mut pair, key, &[1, 9][..count]);
        pair.drain_for(LINK_MIN_RTO * 3 / 4).unwrap();
        assert_eq!(pair.oracle.missing(), 0, "{count} were lost");
        assert_eq!(pair.counter(0, "timeouts"), 0);
        assert_eq!(pair.counter(0, "tails_probed"), 1);
    }
}

/// Nor for room in the window, of which too much is under way. What goes again has a round trip's time.
#[test]
fn what_is_lost_last_does_not_wait_for_the_window() {
    let (mut pair, key) = warm(LinkConfig::default());
    pair.network.routes[0].delay = MS;
    for _ in 0..40 {
        pair.send(0, key, Posted, false, 64);
        pair.drain_for(10 * MS).unwrap();
    }
    let timeout = |pair: &Pair| {
        let path = &pair.ends[0].paths()[0];
        Duration::from_nanos(path.timeout(&pair.ends[0].times))
    };
    assert_eq!(timeout(&pair), LINK_MIN_RTO, "two round trips are most of it");
    let sent = frames(&mut pair, key, &[9, 9]);
    pair.ends[0].paths[0].congestion.timed_out(pair.now);
    assert!(pair.send(0, key, Posted, false, 540) && pair.frames_from(0).is_empty(), "it is full");
    pair.now = pair.now + 4 * MS + MS / 2;
    pair.ends[0].handle_timeout(pair.now);
    let again = pair.frames_from(0);
    assert_eq!((again.len(), again[0].len()), (1, sent[0].len()), "the first of them");
    pair.now = pair.now + MS;
    pair.ends[0].handle_timeout(pair.now);
    assert_eq!(pair.counter(0, "timeouts"), 0, "the answer is under way");
}

/// It is the timeout that waits longer each time.
#[test]
fn what_is_sent_again_in_vain_is_not_sent_again_and_again() {
    let (mut pair, key) = warm(LinkConfig::default());
    pair.network.routes[0].cut = [true; 2];
    pair.send(0, key, Posted, false, 64);
    pair.drain_for(200 * MS).unwrap();
    assert_eq!(pair.counter(0, "tails_probed"), 1);
    assert!((3..9).contains(&pair.counter(0, "timeouts")), "{}", pair.counter(0, "timeouts"));
}

/// What it did not hear in that time was under way for long, and is no long way.
#[test]
fn a_peer_that_stood_still_is_soon_waited_for_as_before() {
    let (mut pair, key, _, [sent, again]) = silent(&[1]);
    let still = 300 * MS;
    pair.now = pair.now + still;
    arrive(&mut pair, &[sent, again].concat());
    for _ in 0..3 {
        pair.send(0, key, Posted, false, 64);
        assert_eq!(pair.frames_from(0).len(), 1, "and it is lost");
        pair.drain_for(LINK_MIN_RTO * 2).unwrap();
        assert_eq!(pair.oracle.missing(), 0, "a timeout is as long as the peer stood still");
    }
}

/// Of a way that is longer than any timeout so far everything comes late.
#[test]
fn a_way_that_has_become_long_is_measured() {
    let (mut pair, key) = warm(LinkConfig::default());
    pair.network.routes[0].delay = 20 * MS;
    for _ in 0..4 {
        pair.send(0, key, Posted, false, 64);
        pair.drain_for(200 * MS).unwrap();
    }
    let before = pair.counter(0, "timeouts");
    for _ in 0..10 {
        pair.send(0, key, Posted, false, 64);
        pair.drain_for(200 * MS).unwrap();
    }
    assert_eq!(pair.counter(0, "timeouts"), before, "it is known to be long");
}

#[test]
fn what_was_lost_is_one_event_and_large_frames_are_tried_soon() {
    // The large ones, or all.
    for first in [1, 3] {
        let (mut pair, key, before, [sent, again]) = silent(&[9, 1, 1]);
        arrive(&mut pair, &[&again, &sent[first..]].concat());
        assert_eq!(path(&pair).1, SAFE_FRAME, "nothing large was late");
        recovers(&mut pair, key, before);
        assert!(path(&pair).1 > SAFE_FRAME);
    }
}

#[test]
fn what_carries_no_large_frames_any_more_has_one_tried_in_a_while() {
    let (mut pair, key, _, [_, again]) = silent(&[9, 1, 1]);
    pair.network.routes[0].mtu = 1500;
    arrive(&mut pair, &again[again.len() - 1..]);
    pair.drain_for(20 * MS).unwrap();
    busy(&mut pair, key, 20);
    let lost = pair.ends[0].paths()[0].losses;
    busy(&mut pair, key, 100);
    assert_eq!(pair.ends[0].paths()[0].losses, lost, "no further one for a second");
    assert_eq!(path(&pair).1, SAFE_FRAME);
}

/// A frame is what passed before the timeouts, no more, and larger ones are tried as before.
#[test]
fn a_path_that_carries_no_large_frames_carries_none_after_a_standstill() {
    let (mut pair, key) = warm(LinkConfig::default());
    let entry = &mut pair.ends[0].paths[0];
    entry.frame = 1500;
    entry.raise_at.start(pair.now + LINK_RAISE);
    let sent = frames(&mut pair, key, &[2, 2]);
    let again = time_out(&mut pair);
    assert_eq!(path(&pair).1, SAFE_FRAME);
    arrive(&mut pair, &[sent, again].concat());
    assert_eq!(path(&pair).1, 1500);
    assert!(pair.ends[0].paths[0].raise_at.runs());
}

/// Of two paths both time out, and what comes back speaks of one packet on one of them.
#[test]
fn each_path_is_heard_by_its_records() {
    let (mut pair, key) = warm(LinkConfig { paths: 2, ..LinkConfig::default() });
    let sent = frames(&mut pair, key, &[1; 8]);
    let again = time_out(&mut pair);
    let backoffs = |pair: &Pair| [0, 1].map(|path| pair.ends[0].paths[path].backoff);
    assert!(backoffs(&pair).iter().all(|backoff| *backoff > 0), "{:?}", backoffs(&pair));
    for frame in [sent, again].concat() {
        pair.hand_over(1, &frame).unwrap();
    }
    let answer = pair.one_frame(1).expect("an acknowledgement");
    pair.hand_over(0, &answer).unwrap();
    assert_eq!(backoffs(&pair), [0, 0]);
}

/// A peer on a busy computer stands still for longer than two timeouts, many times: how many TLPs were in
/// a frame, of those that were sent while it did not.
fn in_a_frame(standstill: Duration) -> u64 {
    const STEP: Duration = Duration::from_micros(500);
    let (mut pair, key) = Pair::bound();
    let route = pair.network.routes[0];
    let (mut taken, mut frames) = (0, 0);
    let load = |pair: &mut Pair| {
        let sent = (0..60).take_while(|_| pair.send(0, key, Posted, false, 540)).count();
        pair.drain_for(STEP).unwrap();
        sent as u64
    };
    for _ in 0..6 {
        let until = pair.now + standstill;
        while pair.now < until {
            pair.network.routes[0].delay = route.delay + until.saturating_since(pair.now);
            load(&mut pair);
        }
        pair.network.routes[0] = route;
        let before = pair.network.carried[0];
        taken += (0..60).map(|_| load(&mut pair)).sum::<u64>();
        frames += pair.network.carried[0] - before;
    }
    taken / frames
}

#[test]
fn frames_stay_full_beside_standstills() {
    let without = in_a_frame(Duration::ZERO);
    let with = in_a_frame(LINK_MIN_RTO * 4);
    assert!(with * 3 >= without * 2, "{with} TLPs in a frame, {without} without");
}
