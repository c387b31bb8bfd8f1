//! Bindings that want more than there is: weights, guaranteed rates, limits.

use super::pair::*;
use crate::control::{PathSet, Share};
use crate::limits::{SEND_QUEUES, SHARED_SEND, TLP_BUFFER};
use crate::link::*;
use crate::stamps::Stamps;
use core::time::Duration;
use std::vec::Vec;
use tlp_codec::fabric::{MAX_OVERHEAD, TLP_OVERHEAD};
use tlp_codec::ids::{BindingKey, SlotFunction};
use tlp_codec::tlp::Class;

/// Bytes a second of the network in these tests: one frame each turn. A card's are smaller: what
/// waits in it would not fill larger ones.
const RATE: u64 = 100_000_000;
const FRAME: usize = if cfg!(dxpu_limits = "card") { 1500 } else { 9000 };
const TURN: Duration = Duration::from_nanos(FRAME as u64 * 1_000_000_000 / RATE);

/// As many bindings as there are shares, each of a device of its own, towards end 1.
fn bindings(shares: &[Share]) -> (Pair, Vec<BindingKey>) {
    let of_devices = (1..).zip(shares).map(|(slot, share)| (key(slot, 1), *share));
    opened(of_devices.collect())
}

/// These bindings, with these shares, towards end 1.
fn opened(bindings: Vec<(BindingKey, Share)>) -> (Pair, Vec<BindingKey>) {
    let mut pair = Pair::up_with(LinkConfig { max_frame: FRAME, ..LinkConfig::default() });
    for (key, _) in &bindings {
        for end in [1, 0] {
            pair.ends[end].open_channel(*key).unwrap();
        }
    }
    pair.drain_for(Duration::from_millis(5)).unwrap();
    for (key, share) in &bindings {
        let channel = pair.ends[0].channel_of(key).unwrap();
        pair.ends[0].set_share(channel, *share);
    }
    (pair, bindings.into_iter().map(|(key, _)| key).collect())
}

/// A device with two functions in slot 1, and one with one in slot 2.
fn two_functions_and_another(device: Share, other: Share) -> (Pair, Vec<BindingKey>) {
    let second = BindingKey { function: SlotFunction::new(1).unwrap(), ..key(1, 1) };
    opened(std::vec![(key(1, 1), device), (second, device), (key(2, 1), other)])
}

/// Every binding has always something to send, of `lengths`, and one frame leaves each turn: the
/// record bytes of each binding that came in so much time.
fn contend(pair: &mut Pair, keys: &[BindingKey], lengths: &[usize], time: Duration) -> Vec<u64> {
    contend_by(1, pair, keys, lengths, time)
}

/// A frame that leaves by this path, as if all others were full.
fn frame_by(pair: &mut Pair, path: usize) -> Option<Vec<u8>> {
    let others = |pair: &mut Pair, full: fn(&mut u64)| {
        let paths = pair.ends[0].paths.iter_mut().enumerate();
        paths.filter(|(index, _)| *index != path).for_each(|(_, other)| full(&mut other.in_flight));
    };
    others(pair, |under_way| *under_way += 1 << 40);
    let frame = pair.one_frame(0);
    others(pair, |under_way| *under_way -= 1 << 40);
    frame
}

/// As [`contend`], with a frame by each of so many paths each turn.
fn contend_by(
    paths: usize,
    pair: &mut Pair,
    keys: &[BindingKey],
    lengths: &[usize],
    time: Duration,
) -> Vec<u64> {
    let mut came = std::vec![0; keys.len()];
    let until = pair.now + time;
    while pair.now < until {
        for (key, &length) in keys.iter().zip(lengths) {
            while pair.send(0, *key, Class::Posted, false, length) {}
        }
        let now = pair.now;
        let frames: Vec<_> = (0..paths).filter_map(|path| frame_by(pair, path)).collect();
        for frame in frames {
            pair.hand_over(1, &frame).unwrap();
        }
        for (index, key) in keys.iter().enumerate() {
            let channel = pair.ends[1].channel_of(key).unwrap();
            while let Some((_, tlp)) = pair.take(1, channel, ClassSet::ALL) {
                came[index] += (tlp.len() + TLP_OVERHEAD) as u64;
            }
        }
        while let Some(frame) = pair.one_frame(1) {
            pair.hand_over(0, &frame).unwrap();
        }
        pair.now = now + TURN;
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.handle_timeout(now));
    }
    came
}

const SECOND: Duration = Duration::from_secs(1);

fn share(weight: u8, limit: u64, guarantee: u64) -> Share {
    Share { weight, limit, guarantee }
}

/// Whether `value` is within five in a hundred of `wanted`.
#[track_caller]
fn about(value: u64, wanted: u64) {
    assert!(value.abs_diff(wanted) * 20 <= wanted, "{value} is not about {wanted}");
}

/// Nothing is left of the network but the frames' own bytes, and what was too little for a TLP.
#[track_caller]
fn full(came: &[u64]) {
    let all: u64 = came.iter().sum();
    assert!((RATE * 9 / 10..=RATE).contains(&all), "{all} of {RATE}");
}

/// Whoever asked once may send so many, of whichever classes, without asking again.
#[test]
fn as_many_are_taken_as_there_is_said_to_be_room_for() {
    let (mut pair, keys) = bindings(&[Share::EVEN; 3]);
    let room = |pair: &Pair, key: &BindingKey, class| {
        let channel = pair.ends[0].channel_of(key).unwrap();
        pair.ends[0].send_room(channel, class)
    };
    // Nothing is acknowledged meanwhile: the queues fill, and then what all share.
    for round in 0..10 * SHARED_SEND {
        let key = keys[round % keys.len()];
        let sure = Class::ALL.map(|class| room(&pair, &key, class)).into_iter().min().unwrap();
        for n in 0..sure.min(7) {
            let class = Class::ALL[(round + n) % 3];
            assert!(room(&pair, &key, class) >= sure - n);
            assert!(pair.send(0, key, class, false, 16), "one of {sure} was refused");
        }
    }
    for key in &keys {
        assert!(Class::ALL.iter().any(|class| room(&pair, key, *class) == 0));
    }
}

#[test]
fn bytes_are_shared_and_not_tlps() {
    let (mut pair, keys) = bindings(&[Share::EVEN; 3]);
    let came = contend(&mut pair, &keys, &[16, 128, TLP_BUFFER], SECOND);
    about(came[0], came[1]);
    about(came[0], came[2]);
    full(&came);
}

#[test]
fn a_weight_is_a_part_of_what_there_is() {
    let (mut pair, keys) = bindings(&[share(1, 0, 0), share(2, 0, 0), share(5, 0, 0)]);
    let came = contend(&mut pair, &keys, &[540, 540, 100], SECOND);
    about(came[1], 2 * came[0]);
    about(came[2], 5 * came[0]);
}

#[test]
fn a_limit_holds_and_the_others_have_the_rest() {
    let (mut pair, keys) = bindings(&[share(200, RATE / 10, 0), Share::EVEN]);
    let came = contend(&mut pair, &keys, &[100, 100], SECOND);
    about(came[0], RATE / 10);
    about(came[1], RATE * 9 / 10);
    assert!(pair.counter(0, "sends_limited") > 100);
}

#[test]
fn a_limit_holds_when_nobody_else_wants_anything() {
    let (mut pair, keys) = bindings(&[share(1, RATE / 4, 0)]);
    about(contend(&mut pair, &keys, &[256], SECOND)[0], RATE / 4);
}

#[test]
fn a_guarantee_comes_before_every_weight() {
    let (mut pair, keys) = bindings(&[share(1, 0, RATE / 2), share(255, 0, 0), share(255, 0, 0)]);
    let came = contend(&mut pair, &keys, &[300, 100, 100], SECOND);
    assert!(came[0] >= RATE / 2 * 95 / 100, "{} of {}", came[0], RATE / 2);
    about(came[1], came[2]);
    full(&came);
}

/// Before other links' turns leaves what is guaranteed, and nothing that rides with it.
#[test]
fn first_goes_only_what_is_guaranteed() {
    let (mut pair, keys) = bindings(&[share(1, 0, RATE / 2), share(255, 0, 0)]);
    let mut frame = [0; FRAME];
    let mut poll = |pair: &mut Pair, first| {
        let poll = if first { Link::poll_first } else { Link::poll_transmit };
        let sent = poll(&mut pair.ends[0], pair.now, &mut frame, &mut Stamps::new())?;
        pair.hand_over(1, &frame[..sent.len]).unwrap();
        let came = keys.iter().map(|key| {
            let channel = pair.ends[1].channel_of(key).unwrap();
            core::iter::from_fn(|| pair.take(1, channel, ClassSet::ALL)).count()
        });
        Some(came.collect::<Vec<_>>())
    };
    for key in &keys {
        while pair.send(0, *key, Class::Posted, false, 64) {}
    }
    let now = pair.now;
    assert!(pair.ends[0].goes_first(now));
    let came = poll(&mut pair, true).unwrap();
    assert!(came[0] > 0 && came[1] == 0, "{came:?}");
    while pair.ends[0].goes_first(now) {
        assert_eq!(poll(&mut pair, true).map_or(0, |came| came[1]), 0);
    }
    assert_eq!(poll(&mut pair, true), None, "it had what is guaranteed, or has no more");
    assert!(poll(&mut pair, false).unwrap()[1] > 0);
}

#[test]
fn an_acknowledgement_that_waited_for_as_long_as_it_may_goes_first() {
    let (mut pair, keys) = bindings(&[Share::EVEN]);
    assert!(pair.send(0, keys[0], Class::Posted, false, 64));
    let frame = pair.one_frame(0).unwrap();
    pair.hand_over(1, &frame).unwrap();
    let now = pair.now;
    assert!(!pair.ends[1].goes_first(now));
    let due = now + LinkConfig::default().ack_delay;
    pair.ends[1].handle_timeout(due);
    assert!(pair.ends[1].goes_first(due));
    assert!(pair.ends[1].poll_first(due, &mut [0; FRAME], &mut Stamps::new()).is_some());
    assert!(!pair.ends[1].goes_first(due));
}

/// It is what a binding has at least, and not more when it does not want it.
#[test]
fn what_is_guaranteed_and_not_used_is_the_others() {
    let (mut pair, keys) = bindings(&[share(1, 0, RATE / 2), Share::EVEN]);
    let came = contend(&mut pair, &keys[1..], &[100], SECOND);
    about(came[0], RATE);
}

#[test]
fn a_limited_binding_sends_in_time_without_other_events() {
    let (mut pair, keys) = bindings(&[share(1, 100_000, 0)]);
    let tlps = SEND_QUEUES[0].min(100);
    for _ in 0..tlps {
        assert!(pair.send(0, keys[0], Class::Posted, false, 100 - TLP_OVERHEAD));
    }
    // Each is a millisecond's, and there are ten saved up.
    let late = Duration::from_millis(tlps as u64);
    pair.drain_for(late - Duration::from_millis(15)).unwrap();
    assert!(pair.oracle.missing() > 0);
    pair.drain_for(Duration::from_millis(20)).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
}

#[test]
fn send_buffers_are_shared_among_the_bindings_that_are_open() {
    let (mut pair, keys) = bindings(&[Share::EVEN; 16]);
    let fill = |pair: &mut Pair, key: BindingKey| {
        (0..).take_while(|_| pair.send(0, key, Class::Posted, false, 64)).count()
    };
    // Nothing leaves: what the first has does not keep the last from having as much.
    for key in &keys {
        assert_eq!(fill(&mut pair, *key), SHARED_SEND / 16);
    }
    pair.drain_for(Duration::from_millis(50)).unwrap();
    for key in &keys[1..] {
        for end in [0, 1] {
            let channel = pair.ends[end].channel_of(key).unwrap();
            pair.ends[end].close_channel(channel);
        }
    }
    assert_eq!(fill(&mut pair, keys[0]), SEND_QUEUES[0], "who is alone has the whole queue");
    pair.drain_for(Duration::from_millis(50)).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
}

/// What it had beyond its rate while nobody else wanted anything is not held against it.
#[test]
fn a_guarantee_holds_after_a_second_alone() {
    let (mut pair, keys) = bindings(&[share(1, 0, RATE / 10), share(255, 0, 0)]);
    contend(&mut pair, &keys[..1], &[300], SECOND);
    let came = contend(&mut pair, &keys, &[300, 100], SECOND);
    assert!(came[0] >= RATE / 10 * 9 / 10, "{} of {}", came[0], RATE / 10);
}

#[test]
fn where_more_is_guaranteed_than_there_is_all_have_some_of_it() {
    let (mut pair, keys) = bindings(&[share(1, 0, RATE * 6 / 10); 3]);
    let came = contend(&mut pair, &keys, &[300; 3], SECOND);
    assert!(came.iter().all(|came| *came > RATE / 4), "{came:?}");
}

/// So that one more is guaranteed than TLPs fit a frame: whoever did not fit is first in the next.
#[test]
fn where_more_is_guaranteed_than_fits_a_frame_nobody_starves() {
    let length = TLP_BUFFER.min(FRAME / 3 - 200);
    let fit = (FRAME - MAX_OVERHEAD) / (length + TLP_OVERHEAD);
    let shares = std::vec![share(1, 0, RATE); fit + 1];
    let (mut pair, keys) = bindings(&shares);
    let came = contend(&mut pair, &keys, &std::vec![length; fit + 1], SECOND);
    let even = came.iter().sum::<u64>() / (fit as u64 + 1);
    came.iter().for_each(|came| about(*came, even));
}

/// What was sent by a guaranteed rate counts for the turns, but not so much that it takes long to
/// find whose turn it is when the others have nothing.
#[test]
fn what_is_owed_of_turns_is_bounded() {
    let (mut pair, keys) = bindings(&[share(1, 0, RATE * 8 / 10), Share::EVEN]);
    contend(&mut pair, &keys, &[300, 300], SECOND);
    let channel = pair.ends[0].channel_of(&keys[0]).unwrap();
    let owed = -pair.ends[0].channels.turn(channel.index as usize).left();
    assert!((1..=16 * (TLP_BUFFER + TLP_OVERHEAD) as i64).contains(&owed.into()), "{owed}");
}

#[test]
fn functions_of_a_device_have_its_weight_together() {
    let (mut pair, keys) = two_functions_and_another(share(2, 0, 0), share(3, 0, 0));
    let came = contend(&mut pair, &keys, &[100, 300, 200], SECOND);
    // One TLP of each after the other.
    let record = |length: u64| length + TLP_OVERHEAD as u64;
    about(came[0] * record(300), came[1] * record(100));
    about(3 * (came[0] + came[1]), 2 * came[2]);
    full(&came);
    // Who is alone of them has all of it.
    let came = contend(&mut pair, &keys[1..], &[300, 200], SECOND);
    about(3 * came[0], 2 * came[1]);
}

#[test]
fn functions_of_a_device_have_its_limit_together() {
    let (mut pair, keys) = two_functions_and_another(share(200, RATE / 10, 0), Share::EVEN);
    let came = contend(&mut pair, &keys, &[100; 3], SECOND);
    about(came[0], RATE / 20);
    about(came[1], RATE / 20);
    about(came[2], RATE * 9 / 10);
    // One that is closed takes no more of it, and the limit stays.
    for end in [0, 1] {
        let channel = pair.ends[end].channel_of(&keys[0]).unwrap();
        pair.ends[end].close_channel(channel);
    }
    about(contend(&mut pair, &keys[1..2], &[100], SECOND)[0], RATE / 10);
}

#[test]
fn functions_of_a_device_have_its_guarantee_together() {
    let (mut pair, keys) = two_functions_and_another(share(1, 0, RATE / 2), share(255, 0, 0));
    let came = contend(&mut pair, &keys, &[300, 300, 100], SECOND);
    about(came[0], came[1]);
    about(came[0] + came[1], RATE / 2);
    full(&came);
}

/// Two bindings on a path of their own beside a third one on another: frames of both paths leave by
/// turns, and the turns of either are none of the other's. What came of the three.
fn beside_another_path(length: usize, weight: u8, guarantee: u64) -> [u64; 3] {
    let config = LinkConfig { max_frame: FRAME, paths: 2, ..LinkConfig::default() };
    let mut pair = Pair::up_with(config);
    let keys = [key(1, 1), key(2, 1), key(3, 1)];
    for (key, end) in keys.iter().flat_map(|key| [(key, 1), (key, 0)]) {
        pair.ends[end].open_channel(*key).unwrap();
    }
    pair.drain_for(Duration::from_millis(50)).unwrap();
    for (key, paths) in keys.iter().zip([0b01, 0b01, 0b10]) {
        let channel = pair.ends[0].channel_of(key).unwrap();
        pair.ends[0].set_share(channel, share(weight, 0, guarantee));
        pair.ends[0].set_paths(channel, PathSet(paths));
    }
    let came = contend_by(2, &mut pair, &keys, &[length; 3], 4000 * TURN);
    came.try_into().expect("three bindings")
}

#[test]
fn turns_are_even_beside_another_path() {
    // Turns of two frames, of one TLP, of a few of which a frame holds more or fewer.
    let two_frames = (2 * FRAME / 512) as u8;
    let all = [(300, two_frames), (520, 1), (1032, 1), (520, 17), (300, 5), (248, 16)];
    for (length, weight) in all.into_iter().filter(|(length, _)| *length <= TLP_BUFFER) {
        for guarantee in [0, 4 * RATE] {
            let [first, second, other] = beside_another_path(length, weight, guarantee);
            about(first, (first + second) / 2);
            assert!(other > first, "{length} {weight}: {first} {second} {other}");
        }
    }
}
