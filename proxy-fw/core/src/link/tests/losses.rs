//! What later frames have overtaken, looked at when its time is over though nothing more comes back.
//! A card waits for its retransmission timeout instead.
#![cfg(not(dxpu_limits = "card"))]

use super::pair::*;
use crate::limits::LINK_ACK_DELAY;
use crate::link::ClassSet;
use core::time::Duration;
use std::vec::Vec;
use tlp_codec::ids::BindingKey;
use tlp_codec::tlp::Class::{self, Posted};

/// How long a frame is under way.
const ROUTE: Duration = Duration::from_millis(1);

/// Two links of which end 1 knows its round trip, of two routes.
fn warm() -> (Pair, BindingKey) {
    let (mut pair, key) = Pair::bound();
    for round in 0..48 {
        let frame = one_tlp(&mut pair, 1, key);
        pair.now = pair.now + ROUTE;
        pair.hand_over(0, &frame).unwrap();
        answer(&mut pair, key);
        // What gives credit is a record, too: none is due in the end.
        for end in if round < 47 { 0..2 } else { 0..0 } {
            pair.drain(end, ClassSet::ALL, usize::MAX).unwrap();
        }
    }
    assert!(pair.ends[1].flight.is_empty(), "nothing is under way");
    (pair, key)
}

/// A frame with one TLP, off the network.
#[track_caller]
fn one_tlp(pair: &mut Pair, end: usize, key: BindingKey) -> Vec<u8> {
    assert!(pair.send(end, key, Posted, false, 64));
    pair.one_frame(end).expect("a frame with a TLP")
}

/// What end 0 says now comes to end 1 after its route; the time stands then where it came.
fn answer(pair: &mut Pair, key: BindingKey) {
    let frame = one_tlp(pair, 0, key);
    pair.now = pair.now + ROUTE;
    pair.hand_over(1, &frame).unwrap();
}

/// An acknowledgement of end 1 without a record.
fn word(pair: &mut Pair, key: BindingKey) -> Vec<u8> {
    let frame = one_tlp(pair, 0, key);
    pair.hand_over(1, &frame).unwrap();
    pair.now = pair.now + LINK_ACK_DELAY;
    let now = pair.now;
    pair.ends[1].handle_timeout(now);
    pair.one_frame(1).expect("an acknowledgement")
}

fn timers(pair: &mut Pair) {
    let now = pair.now;
    pair.ends[1].handle_timeout(now);
}

/// The timer of what was found lost before it was due is not the one of what else is under way.
#[test]
fn what_was_overtaken_and_found_lost_before_its_time_is_no_timeout_of_what_is_under_way() {
    let (mut pair, key) = warm();
    let began = pair.now;
    drop(one_tlp(&mut pair, 1, key));
    pair.now = pair.now + ROUTE / 2;
    let words = [word(&mut pair, key), word(&mut pair, key)];
    drop(one_tlp(&mut pair, 1, key));
    pair.now = began + ROUTE;
    pair.hand_over(0, &words[0]).unwrap();
    answer(&mut pair, key);
    assert_eq!(pair.counter(1, "losses_detected"), 0);
    // Frames that came are looked at before timers.
    pair.hand_over(0, &words[1]).unwrap();
    let frame = one_tlp(&mut pair, 0, key);
    pair.now = began + ROUTE * 12 / 5;
    pair.hand_over(1, &frame).unwrap();
    assert_eq!(pair.counter(1, "losses_detected"), 1);
    timers(&mut pair);
    assert_eq!(pair.counter(1, "timeouts"), 0);
}

#[test]
fn each_of_several_that_were_overtaken_is_found_at_its_time() {
    let (mut pair, key) = warm();
    let began = pair.now;
    drop(one_tlp(&mut pair, 1, key));
    pair.now = pair.now + ROUTE / 5;
    drop(one_tlp(&mut pair, 1, key));
    pair.now = pair.now + ROUTE / 20;
    let behind = one_tlp(&mut pair, 1, key);
    pair.now = pair.now + ROUTE;
    pair.hand_over(0, &behind).unwrap();
    let said = pair.one_frame(0).expect("something is missing");
    pair.now = began + 2 * ROUTE;
    pair.hand_over(1, &said).unwrap();
    let end = began + 3 * ROUTE;
    while let Some(due) = pair.ends[1].poll_timeout().filter(|due| *due < end) {
        pair.now = due;
        timers(&mut pair);
        // What is sent once more is lost again.
        drop(pair.frames_from(1));
    }
    assert_eq!(pair.counter(1, "losses_detected"), 2);
    assert_eq!(pair.counter(1, "records_retransmitted"), 2);
    assert_eq!(pair.counter(1, "timeouts"), 0);
}

/// An acknowledgement has room for so many ranges: what lies behind them may have come.
#[test]
fn what_the_last_acknowledgement_did_not_speak_of_is_not_lost_at_a_timer() {
    let (mut pair, key) = warm();
    // Of these every other one is lost.
    for n in 0..36_usize {
        // So many of one class have no room.
        assert!(pair.send(1, key, Class::ALL[n % 3], false, 64));
        let frame = pair.one_frame(1).expect("a frame with a TLP");
        pair.now = pair.now + Duration::from_micros(1);
        if n % 2 == 0 {
            pair.hand_over(0, &frame).unwrap();
        }
    }
    pair.now = pair.now + 2 * ROUTE;
    let said = pair.one_frame(0).expect("much is missing");
    pair.hand_over(1, &said).unwrap();
    // Of what is sent once more the last but one is lost again.
    let again = pair.frames_from(1);
    assert_eq!(again.len(), 8, "a full list has so many holes");
    pair.now = pair.now + ROUTE;
    for (n, frame) in again.iter().enumerate() {
        if n != 6 {
            pair.hand_over(0, frame).unwrap();
        }
    }
    let said = pair.one_frame(0).expect("much is missing still");
    pair.now = pair.now + ROUTE;
    pair.hand_over(1, &said).unwrap();
    drop(pair.frames_from(1));
    let before = pair.counter(1, "losses_detected");
    pair.now = pair.now + ROUTE / 2;
    timers(&mut pair);
    assert_eq!(pair.counter(1, "losses_detected"), before + 1, "the others behind it had come");
}
