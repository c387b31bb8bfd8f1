//! What a link does on a quiet network.

use super::network::Trouble;
use super::pair::*;
use crate::control::{BindingFailure, LinkDownReason};
use crate::limits::*;
use crate::link::*;
use crate::stamps::{Sampling, Stage, StampKey, StampedTlp};
use core::time::Duration;
use std::vec::Vec;
use tlp_codec::fabric::{DeviceState, Frame, Record, Sideband};
use tlp_codec::ids::OutstandingRef;
use tlp_codec::tlp::Class::{self, Completion, NonPosted, Posted};

const MS: Duration = Duration::from_millis(1);

#[test]
fn both_ends_come_up_in_three_frames_each() {
    let pair = Pair::up();
    assert_eq!(pair.events, [[LinkEvent::Up], [LinkEvent::Up]]);
    assert!(pair.network.delivered <= 6, "{} frames", pair.network.delivered);
}

#[test]
fn tlps_of_every_class_and_size_arrive_both_ways() {
    let (mut pair, key) = Pair::bound();
    for length in (12..=TLP_BUFFER).step_by(4) {
        for end in 0..2 {
            assert!(pair.send(end, key, Class::ALL[length / 4 % 3], false, length));
        }
        pair.drain_for(MS).unwrap();
    }
    assert_eq!(pair.oracle.missing(), 0);
    assert_eq!(pair.oracle.delivered, 2 * ((TLP_BUFFER - 12) / 4 + 1));
    assert_eq!(pair.counter(0, "records_retransmitted"), 0);
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn a_lone_tlp_leaves_at_once_and_many_share_a_frame() {
    let (mut pair, key) = Pair::bound();
    pair.send(0, key, NonPosted, false, 16);
    assert_eq!(pair.frames_from(0).len(), 1);
    for _ in 0..40 {
        pair.send(0, key, NonPosted, false, 16);
    }
    let frames = pair.frames_from(0);
    assert_eq!(frames.len(), 1, "40 small TLPs fit one jumbo frame");
    let records = Frame::new_checked(&frames[0]).unwrap().records().count();
    assert_eq!(records, 40);
}

#[test]
fn nothing_is_lost_when_one_end_binds_long_before_the_other() {
    for first in 0..2 {
        let mut pair = Pair::up();
        let key = key(1, 9);
        pair.ends[first].open_channel(key).unwrap();
        assert!(pair.send(first, key, Posted, false, 64));
        assert!(pair.send_sideband(first, key, Sideband::DeviceReady));
        pair.drain_for(300 * MS).unwrap();
        assert_eq!(pair.oracle.delivered, 0);
        pair.ends[1 - first].open_channel(key).unwrap();
        assert!(pair.send(1 - first, key, Posted, false, 64));
        pair.drain_for(MS).unwrap();
        assert_eq!(pair.oracle.missing(), 0);
        assert_eq!(pair.sidebands[1 - first], [(key, Sideband::DeviceReady)]);
    }
}

#[test]
fn a_binding_that_is_not_drained_stops_only_itself() {
    let (mut pair, hung) = Pair::bound();
    let alive = key(4, 1);
    for end in 0..2 {
        pair.ends[end].open_channel(alive).unwrap();
    }
    while pair.send(0, hung, Posted, false, 512) {}
    while pair.send(0, hung, NonPosted, false, 16) {}
    pair.run_for(100 * MS);
    for _ in 0..500 {
        assert!(pair.send(0, alive, Posted, false, 512));
        pair.run_for(MS);
        let channel = pair.ends[1].channel_of(&alive).unwrap();
        assert!(pair.take(1, channel, ClassSet::ALL).is_some());
    }
    assert!(pair.both_up());
}

#[test]
fn what_may_pass_a_blocked_class_passes_it() {
    let (mut pair, key) = Pair::bound();
    let channel = pair.ends[1].channel_of(&key).unwrap();
    for (class, relaxed) in [
        (NonPosted, false),
        (Completion, false),
        (Posted, false),
        (Completion, true),
        (Completion, false),
    ] {
        assert!(pair.send(0, key, class, relaxed, 16));
    }
    pair.run_for(MS);
    let mut take = |ready: &[Class]| {
        let set = ready.iter().copied().collect();
        pair.take(1, channel, set).map(|(_, tlp)| tlp[8])
    };
    // Posted and completions pass the request that nobody takes.
    assert_eq!(take(&[Completion]), Some(1));
    // A relaxed completion passes the write; the one behind it does not.
    assert_eq!(take(&[Completion]), Some(3));
    assert_eq!(take(&[Completion]), None);
    assert_eq!(take(&[Posted]), Some(2));
    assert_eq!(take(&[Completion]), Some(4));
    assert_eq!(take(&[Posted, Completion]), None);
    assert_eq!(take(&[NonPosted]), Some(0));
}

#[test]
fn posted_tlps_without_credit_let_nothing_pass_that_pcie_holds_back() {
    let (mut pair, key) = Pair::bound();
    // Without drains, the receiver's promise is used up and the rest waits at the sender.
    for _ in 0..GUARANTEED_CREDITS[0] + 5 {
        assert!(pair.send(0, key, Posted, false, 64));
    }
    pair.run_for(10 * MS);
    assert!(pair.send(0, key, NonPosted, false, 16));
    assert!(pair.send(0, key, Completion, true, 16));
    pair.run_for(10 * MS);
    let channel = pair.ends[1].channel_of(&key).unwrap();
    let stored = |class: Class| {
        !pair.ends[1].channels.get(channel).unwrap().stored[class as usize].is_empty()
    };
    assert!(!stored(NonPosted), "a read does not pass writes");
    assert!(stored(Completion), "a relaxed completion does");
    pair.drain_for(10 * MS).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
}

#[test]
fn a_full_queue_pushes_back_and_recovers() {
    let (mut pair, key) = Pair::bound();
    let mut sent = 0;
    while pair.send(0, key, Posted, false, 512) {
        sent += 1;
    }
    assert_eq!(sent, SEND_QUEUES[0]);
    let channel = pair.ends[0].channel_of(&key).unwrap();
    let meta = TlpMeta { class: Posted, outstanding: None, relaxed: false, stamp: None };
    let now = pair.now;
    assert_eq!(pair.ends[0].send_tlp(now, channel, meta, &[0; 16]), Err(SendError::Full));
    pair.drain_for(50 * MS).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
    assert!(pair.ends[0].can_send(channel, Posted));
}

#[test]
fn tlps_larger_than_a_frame_are_split_and_joined() {
    let small = LinkConfig { max_frame: MIN_FRAME, ..LinkConfig::default() };
    let mut pair = Pair::new(7, Default::default(), small);
    pair.run_for(MS);
    let key = key(1, 1);
    for end in 0..2 {
        pair.ends[end].open_channel(key).unwrap();
    }
    for n in 0..300 {
        assert!(pair.send(n % 2, key, Posted, false, TLP_BUFFER - 4 * (n % 40)));
        if n % 3 == 0 {
            pair.drain_for(MS).unwrap();
        }
    }
    pair.drain_for(10 * MS).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
    assert!(pair.counter(0, "tlps_split") > 100);
}

#[test]
fn a_flush_ends_what_was_before_it_and_nothing_after() {
    let (mut pair, key) = Pair::bound();
    for _ in 0..40 {
        pair.send(0, key, Posted, false, 64);
        pair.send(1, key, Posted, false, 64);
    }
    pair.run_for(MS);
    // 16 are stored at each end, the rest waits for credit.
    pair.send_sideband(0, key, Sideband::HotReset);
    pair.send(0, key, Posted, false, 68);
    for frame in pair.frames_from(0) {
        pair.hand_over(1, &frame).unwrap();
    }
    let channel = pair.ends[1].channel_of(&key).unwrap();
    assert!(pair.take(1, channel, ClassSet::ALL).is_none(), "the reset comes first");
    pair.drain_for(10 * MS).unwrap();
    assert_eq!(pair.sidebands[1], [(key, Sideband::HotReset)]);
    assert_eq!(pair.oracle.missing(), 0, "what was sent behind the reset came");
    assert!(pair.counter(1, "flushed_unsent") > 0, "the box's own queue is flushed too");
    assert!(pair.counter(1, "flushed_received") > 0);
}

#[test]
fn sideband_records_come_in_order_and_overtake_tlps() {
    let (mut pair, key) = Pair::bound();
    for _ in 0..30 {
        pair.send(1, key, Posted, false, 64);
    }
    let all = [
        Sideband::LinkUp { speed: 3, width: 16 },
        Sideband::PowerState(DeviceState::D3Hot),
        Sideband::DeviceReady,
        Sideband::Unknown { code: 200, argument: 77 },
    ];
    for record in all {
        assert!(pair.send_sideband(1, key, record));
    }
    pair.run_for(MS);
    pair.drain(0, ClassSet::NONE, 0).unwrap();
    let got: Vec<Sideband> = pair.sidebands[0].iter().map(|(_, s)| *s).collect();
    assert_eq!(got, all);
    pair.drain_for(10 * MS).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
}

#[test]
fn the_sideband_reserve_is_bounded_and_comes_back() {
    let (mut pair, key) = Pair::bound();
    let mut sent = 0;
    while pair.send_sideband(0, key, Sideband::Unknown { code: 99, argument: sent }) {
        sent += 1;
        for frame in pair.frames_from(0) {
            pair.hand_over(1, &frame).unwrap();
        }
    }
    assert_eq!(usize::from(sent), 2 * SIDEBAND_QUEUE, "stored there and queued here");
    pair.drain_for(10 * MS).unwrap();
    assert_eq!(pair.sidebands[1].len(), usize::from(sent));
    assert!(pair.send_sideband(0, key, Sideband::Flush));
}

/// Ahead of a flush that finds no room yet.
#[test]
fn what_is_queued_is_dropped_also_where_no_record_has_room() {
    let (mut pair, key) = Pair::bound();
    let mut record = 0;
    while pair.send_sideband(0, key, Sideband::Unknown { code: 99, argument: record }) {
        record += 1;
    }
    pair.send(0, key, Posted, false, 64);
    assert!(!pair.send_sideband(0, key, Sideband::Flush));
    let channel = pair.ends[0].channel_of(&key).unwrap();
    pair.ends[0].drop_unsent(channel);
    assert_eq!(pair.counter(0, "flushed_unsent"), 1);
    for frame in pair.frames_from(0) {
        pair.hand_over(1, &frame).unwrap();
    }
    assert_eq!(pair.counter(1, "tlps_received"), 0);
}

/// A reset that waits for credit comes before what is meant for the device after it.
#[test]
fn tlps_do_not_overtake_sideband_records_that_wait() {
    let (mut pair, key) = Pair::bound();
    for argument in 0..SIDEBAND_QUEUE as u16 {
        assert!(pair.send_sideband(0, key, Sideband::Unknown { code: 99, argument }));
    }
    for frame in pair.frames_from(0) {
        pair.hand_over(1, &frame).unwrap();
    }
    assert!(pair.send_sideband(0, key, Sideband::Unknown { code: 98, argument: 0 }));
    assert!(pair.send_sideband(0, key, Sideband::HotReset));
    pair.send(0, key, Posted, false, 64);
    for frame in pair.frames_from(0) {
        pair.hand_over(1, &frame).unwrap();
    }
    assert_eq!(pair.counter(1, "tlps_received"), 0, "two records wait for credit before it");
    pair.drain_for(10 * MS).unwrap();
    assert_eq!(pair.sidebands[1].len(), SIDEBAND_QUEUE + 2);
    assert_eq!(pair.counter(1, "flushed_received"), 0);
    assert_eq!(pair.oracle.missing(), 0, "what was sent behind the reset came");
}

#[test]
fn a_closed_binding_is_told_to_the_peer_and_its_records_are_stale() {
    let (mut pair, key) = Pair::bound();
    let channel = pair.ends[0].channel_of(&key).unwrap();
    pair.send(1, key, Posted, false, 64);
    let late = pair.frames_from(1);
    pair.ends[0].close_channel(channel);
    for frame in &late {
        pair.hand_over(0, frame).unwrap();
    }
    assert_eq!(pair.counter(0, "records_stale"), 1);
    pair.drain_for(10 * MS).unwrap();
    let failed = |e: &LinkEvent| matches!(e, LinkEvent::ChannelFailed { key: k, reason: BindingFailure::PeerUnbound, .. } if *k == key);
    assert!(pair.events[1].iter().any(failed));
    assert_eq!(pair.ends[0].open_channel(key), Err(ChannelError::WasClosed));
    let channel = pair.ends[1].channel_of(&key).unwrap();
    let meta = TlpMeta { class: Posted, outstanding: None, relaxed: false, stamp: None };
    let now = pair.now;
    assert_eq!(pair.ends[1].send_tlp(now, channel, meta, &[0; 12]), Err(SendError::Failed));
    pair.ends[1].close_channel(channel);
    assert_eq!(pair.ends[1].send_tlp(now, channel, meta, &[0; 12]), Err(SendError::Closed));
}

#[test]
fn whoever_opens_what_the_other_has_closed_is_told() {
    let (mut pair, key) = Pair::bound();
    let channel = pair.ends[1].channel_of(&key).unwrap();
    pair.ends[1].close_channel(channel);
    // The box goes; a host that has not heard of the first binding opens it.
    pair.run_for(MS);
    pair.ends[0] = link(0, 100, LinkConfig::default());
    pair.ends[1] = link(1, 200, LinkConfig::default());
    pair.run_for(10 * MS);
    let channel = pair.ends[1].open_channel(key).unwrap();
    pair.ends[1].close_channel(channel);
    pair.run_for(MS);
    pair.ends[0].open_channel(key).unwrap();
    pair.run_for(MS);
    assert!(matches!(
        pair.events[0].last(),
        Some(LinkEvent::ChannelFailed { reason: BindingFailure::PeerUnbound, .. })
    ));
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn bindings_are_many_and_bounded() {
    let mut pair = Pair::up();
    for n in 0..MAX_CHANNELS as u8 {
        let key = key(n + 1, 1);
        for end in 0..2 {
            pair.ends[end].open_channel(key).unwrap();
        }
    }
    assert_eq!(pair.ends[0].open_channel(key(200, 1)), Err(ChannelError::Full));
    assert_eq!(pair.ends[0].open_channel(key(1, 1)), Err(ChannelError::AlreadyOpen));
    assert_eq!(pair.ends[0].open_channel(key(0, 1)), Err(ChannelError::NotASlot));
    pair.run_for(MS);
    for round in 0..20 {
        for n in 0..MAX_CHANNELS as u8 {
            for class in Class::ALL {
                pair.send(round % 2, key(n + 1, 1), class, false, 512);
            }
        }
    }
    pair.drain_for(100 * MS).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
    assert!(pair.oracle.delivered > 1500);
}

#[test]
fn a_busy_binding_gets_more_credit_than_its_guarantee() {
    let (mut pair, key) = Pair::bound();
    for _ in 0..20 {
        while pair.send(0, key, Completion, false, 512) {}
        pair.drain_for(MS).unwrap();
    }
    let channel = pair.ends[1].channel_of(&key).unwrap();
    while pair.send(0, key, Completion, false, 512) {}
    pair.run_for(10 * MS);
    let place = pair.ends[1].channels.get(channel).unwrap();
    let mut stored = 0;
    assert!(!place.stored[2].is_empty());
    while pair.take(1, channel, ClassSet::ALL).is_some() {
        stored += 1;
    }
    assert_eq!(stored, CREDITS_COMPLETION);
    pair.ends[1].close_channel(channel);
    assert_eq!(pair.ends[1].channels.shared.used(), 0);
}

#[test]
fn a_link_with_nothing_to_do_only_shows_that_it_lives() {
    let (mut pair, _) = Pair::bound();
    let before = pair.network.delivered;
    pair.run_for(Duration::from_secs(10));
    let frames = pair.network.delivered - before;
    assert!(pair.both_up());
    assert!((20..=80).contains(&frames), "{frames} frames in ten seconds");
}

#[test]
fn a_peer_that_vanishes_takes_the_link_down_in_bounded_time() {
    let (mut pair, key) = Pair::bound();
    pair.network.cut = true;
    let start = pair.now;
    assert!(pair.send(0, key, NonPosted, false, 16));
    while pair.ends[0].state() == LinkState::Up {
        pair.step(Instant::FAR_FUTURE);
    }
    let took = pair.now - start;
    assert_eq!(pair.ends[0].state(), LinkState::Down(LinkDownReason::GaveUp));
    assert!(took >= LINK_GIVE_UP && took < LINK_GIVE_UP + LINK_MAX_RTO, "{took:?}");
    // The other end had nothing to send and finds out by itself.
    pair.run_for(LINK_KEEP_ALIVE + LINK_GIVE_UP + LINK_MAX_RTO);
    assert_eq!(pair.ends[1].state(), LinkState::Down(LinkDownReason::GaveUp));
    let channel = pair.ends[0].channel_of(&key).unwrap();
    assert!(!pair.ends[0].can_send(channel, Posted));
    assert_eq!(pair.ends[0].poll_timeout(), None);
}

#[test]
fn a_proxy_that_was_stopped_for_long_does_not_blame_its_peer() {
    let (mut pair, key) = Pair::bound();
    assert!(pair.send(0, key, NonPosted, false, 16));
    pair.flush();
    // Nothing runs for ten seconds; then what came meanwhile is found.
    pair.now = pair.now + Duration::from_secs(10);
    for end in &mut pair.ends {
        end.handle_timeout(pair.now);
    }
    pair.drain_for(100 * MS).unwrap();
    assert!(pair.both_up());
    assert_eq!(pair.oracle.missing(), 0);
}

#[test]
fn closing_tells_the_peer() {
    let (mut pair, _) = Pair::bound();
    let now = pair.now;
    pair.ends[0].close(now, LinkDownReason::Removed);
    pair.run_for(MS);
    assert_eq!(pair.events[0].last(), Some(&LinkEvent::Down(LinkDownReason::Removed)));
    assert_eq!(pair.events[1].last(), Some(&LinkEvent::Down(LinkDownReason::PeerClosed)));
}

#[test]
fn a_lost_goodbye_is_said_again() {
    let (mut pair, key) = Pair::bound();
    pair.network.cut = true;
    let now = pair.now;
    pair.ends[0].close(now, LinkDownReason::Removed);
    pair.run_for(MS);
    pair.network.cut = false;
    pair.run_for(20 * MS);
    pair.send(1, key, Posted, false, 16);
    pair.run_for(10 * MS);
    assert_eq!(pair.ends[1].state(), LinkState::Down(LinkDownReason::PeerClosed));
}

#[test]
fn a_restarted_peer_is_noticed_at_once() {
    let (mut pair, _) = Pair::bound();
    pair.ends[1] = link(1, 201, LinkConfig::default());
    pair.run_for(10 * MS);
    assert_eq!(pair.ends[0].state(), LinkState::Down(LinkDownReason::PeerRestarted));
    assert_eq!(pair.ends[1].state(), LinkState::Opening, "it waits for a new link here");
    pair.ends[0] = link(0, 100, LinkConfig::default());
    pair.run_for(LINK_OPEN_RETRY + MS);
    assert!(pair.both_up());
}

/// It asks again while the first answer is under way, so that what it echoes is never the token
/// that was made last.
#[test]
fn a_restarted_peer_that_asked_twice_is_noticed_all_the_same() {
    let (mut pair, _) = Pair::bound();
    pair.ends[1] = link(1, 201, LinkConfig::default());
    let mut asked = pair.frames_from(1);
    pair.now = pair.now + LINK_OPEN_RETRY;
    asked.extend(pair.frames_from(1));
    assert_eq!(asked.len(), 2);
    let mut answers = Vec::new();
    for frame in asked {
        pair.hand_over(0, &frame).unwrap();
        answers.extend(pair.frames_from(0));
    }
    assert_eq!(answers.len(), 2);
    for frame in answers {
        pair.hand_over(1, &frame).unwrap();
        pair.flush();
        pair.now = pair.now + Duration::from_micros(10);
    }
    pair.run_for(10 * MS);
    assert_eq!(pair.ends[0].state(), LinkState::Down(LinkDownReason::PeerRestarted));
}

#[test]
fn a_new_link_between_the_same_lives_replaces_the_old() {
    let (mut pair, key) = Pair::bound();
    pair.send(0, key, Posted, false, 64);
    let late = pair.frames_from(0);
    pair.run_for(MS);
    pair.ends[0] = link(0, 100, LinkConfig::default());
    pair.run_for(10 * MS);
    assert_eq!(pair.ends[1].state(), LinkState::Down(LinkDownReason::PeerClosed));
    pair.ends[1] = link(1, 200, LinkConfig::default());
    pair.run_for(LINK_OPEN_RETRY + MS);
    assert!(pair.both_up());
    for frame in late {
        assert_eq!(pair.hand_over(1, &frame), Err(FrameDropped::OtherSession));
    }
}

#[test]
fn only_the_life_that_the_manager_told_is_taken() {
    let mut pair = Pair::new(3, Default::default(), LinkConfig::default());
    pair.ends[0] = Link::new(node(0), 100, node(1), Some(999), true, LinkConfig::default());
    pair.run_for(300 * MS);
    assert!(!pair.both_up());
    assert!(pair.counter(0, "dropped_incarnation") > 0);
}

#[test]
fn a_link_opens_late_as_well() {
    let mut pair = Pair::new(3, Default::default(), LinkConfig::default());
    pair.network.cut = true;
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.ends[0].state(), LinkState::Opening);
    pair.network.cut = false;
    pair.run_for(LINK_OPEN_RETRY + MS);
    assert!(pair.both_up());
}

#[test]
fn sampled_tlps_are_stamped_at_both_ends() {
    let (mut pair, key) = Pair::bound();
    pair.stamps[0].set_sampling(Sampling::All);
    let outstanding = OutstandingRef { index: 5, generation: 6 };
    let channel = pair.ends[0].channel_of(&key).unwrap();
    let tlp = StampedTlp::Request(outstanding);
    let stamp_key = StampKey { binding: key, peer: node(1), from_host: true, tlp };
    let stamp = pair.stamps[0].arrived(stamp_key, pair.now);
    let meta = TlpMeta {
        class: NonPosted,
        outstanding: Some(outstanding),
        relaxed: false,
        stamp: Some(stamp),
    };
    let now = pair.now;
    pair.ends[0].send_tlp(now, channel, meta, &[1; 16]).unwrap();
    pair.run_for(MS);
    let sent = *pair.stamps[0].places().flatten().next().unwrap();
    assert!(sent.at[Stage::Sent as usize].is_some());
    let came = *pair.stamps[1].places().flatten().next().unwrap();
    assert_eq!((came.key.tlp, came.key.from_host), (tlp, true));
    assert!(came.at[Stage::Received as usize].is_some());
    pair.stamps[1].mark(pair.now);
    let came = *pair.stamps[1].places().flatten().next().unwrap();
    assert!(came.at[Stage::Decoded as usize].is_some());
    let channel = pair.ends[1].channel_of(&key).unwrap();
    let (received, _) = pair.take(1, channel, ClassSet::ALL).unwrap();
    assert!(received.stamp.is_some());
    let answer = TlpMeta {
        class: Completion,
        outstanding: Some(outstanding),
        relaxed: false,
        stamp: received.stamp,
    };
    let now = pair.now;
    pair.ends[1].send_tlp(now, channel, answer, &[2; 12]).unwrap();
    pair.run_for(MS);
    let back = pair.stamps[0].places().flatten().last().unwrap();
    assert_eq!((back.key.tlp, back.key.from_host), (StampedTlp::Completion(outstanding), true));
}

/// Which record a posted request was is known by its sequence, also when it is split, and when
/// its first frame is lost.
#[test]
fn the_stamps_of_posted_tlps_join_by_the_sequence_of_their_record() {
    for length in [16, 528] {
        let config = LinkConfig { max_frame: 512, ..Default::default() };
        let (mut pair, key) = Pair::bound_with(config);
        pair.stamps[0].set_sampling(Sampling::All);
        for lost in [false, true, false] {
            pair.network.cut = lost;
            assert!(pair.send(0, key, Posted, false, length));
            pair.run_for(MS);
            pair.network.cut = false;
            pair.drain_for(Duration::from_secs(1)).unwrap();
        }
        let joined = |end: usize| -> Vec<_> {
            let keys = pair.stamps[end].places().flatten().map(|record| record.key);
            keys.map(|key| (key.binding, key.from_host, key.tlp)).collect()
        };
        assert_eq!(joined(0), joined(1));
        assert_eq!(joined(0).len(), 3);
        assert!(joined(0).iter().all(|(.., tlp)| matches!(tlp, StampedTlp::Posted(Some(_)))));
        let second = |end: usize, stage: Stage| {
            pair.stamps[end].places().flatten().nth(1).and_then(|r| r.at[stage as usize]).unwrap()
        };
        assert!(second(1, Stage::Received) > second(0, Stage::Sent) + MS, "it was sent again");
    }
}

#[test]
fn congestion_marks_are_echoed() {
    let (mut pair, key) = Pair::bound();
    pair.ends[1].handle_congestion_mark(tlp_codec::ids::PathId::ZERO);
    pair.send(1, key, Posted, false, 16);
    let frame = pair.frames_from(1).remove(0);
    let ack = Frame::new_checked(&frame).unwrap().header().ack.unwrap();
    assert_eq!(ack.ce, 1);
    let open = |pair: &Pair| pair.ends[0].paths[0].congestion.allows(12_000);
    assert!(open(&pair));
    pair.hand_over(0, &frame).unwrap();
    assert!(!open(&pair), "the sender slows down");
}

#[test]
fn turns_go_round() {
    let mut pair = Pair::up();
    for n in [1, 5, 9] {
        for end in 0..2 {
            pair.ends[end].open_channel(key(n, 1)).unwrap();
        }
    }
    pair.run_for(MS);
    for n in [1, 9] {
        pair.send(0, key(n, 1), Posted, false, 12);
    }
    pair.run_for(MS);
    let a = pair.ends[1].next_with_received(None).unwrap();
    let b = pair.ends[1].next_with_received(Some(a)).unwrap();
    assert_ne!(a, b);
    assert_eq!(pair.ends[1].next_with_received(Some(b)), Some(a));
    assert_eq!(pair.ends[1].channels_with_received().count(), 2);
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn frames_never_exceed_what_the_peer_takes() {
    let mut pair = Pair::new(5, Default::default(), LinkConfig::default());
    let small = LinkConfig { max_frame: 1500, ..LinkConfig::default() };
    pair.ends[1] = link(1, 200, small);
    pair.run_for(MS);
    let key = key(1, 1);
    for end in 0..2 {
        pair.ends[end].open_channel(key).unwrap();
    }
    pair.run_for(MS);
    for _ in 0..16 {
        pair.send(0, key, Posted, false, 552);
    }
    let frames = pair.frames_from(0);
    assert!(frames.len() > 4 && frames.iter().all(|f| f.len() <= 1500));
    let first = Frame::new_checked(&frames[0]).unwrap();
    assert!(first.records().all(|r| matches!(r, Ok(Record::Tlp(_)))));
}

/// Data and the interrupt behind it, in frames that leave at once: the peer tells of the second one
/// when it is too early to call the first one lost, and then of nothing more.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "a card waits for its retransmission timeout")]
fn what_was_overtaken_is_sent_again_after_a_round_trip_or_two_though_nothing_follows() {
    let (mut pair, key) = Pair::bound();
    for _ in 0..8 {
        pair.send(1, key, Posted, false, 64);
        pair.drain_for(MS).unwrap();
    }
    pair.send(1, key, Posted, false, 64);
    drop(pair.frames_from(1));
    pair.send(1, key, Posted, false, 16);
    pair.run_for(Duration::from_micros(300));
    assert_eq!(pair.drain(0, ClassSet::ALL, usize::MAX), Ok(2));
    assert!(pair.both_up());
}

/// An end that waits long for its peer between its tries, and hears of it, is up soon even when its
/// answer's answer is lost.
#[test]
fn whoever_hears_of_its_peer_tries_to_open_as_often_as_at_the_beginning() {
    let mut pair = Pair::new(1, Trouble::default(), LinkConfig::default());
    for _ in 0..900 {
        drop(pair.frames_from(0));
        pair.now = pair.now + MS;
        let now = pair.now;
        pair.ends[0].handle_timeout(now);
    }
    let asks = pair.one_frame(1).unwrap();
    pair.hand_over(0, &asks).unwrap();
    let answer = pair.one_frame(0).unwrap();
    pair.hand_over(1, &answer).unwrap();
    assert_eq!(pair.ends[1].state(), LinkState::Up);
    drop(pair.frames_from(1));
    pair.run_for(5 * LINK_INITIAL_RTT);
    assert!(pair.both_up());
}

/// Found by the simulator: a device was pulled while a data write was lost and the interrupt behind
/// it was stored at the host, which then got the interrupt without the data.
#[test]
fn what_was_sent_behind_a_lost_tlp_does_not_come_when_the_binding_is_closed() {
    let (mut pair, key) = Pair::bound();
    pair.send(1, key, Posted, false, 64);
    drop(pair.frames_from(1));
    pair.send(1, key, Posted, false, 16);
    pair.run_for(Duration::from_micros(30));
    assert_eq!(pair.drain(0, ClassSet::ALL, usize::MAX), Ok(0), "it waits for the lost one");
    pair.close(1, key);
    pair.run_for(300 * MS);
    assert_eq!(pair.drain(0, ClassSet::ALL, usize::MAX), Ok(0));
    let reason = BindingFailure::PeerUnbound;
    let failed = |event: &LinkEvent| matches!(event, LinkEvent::ChannelFailed { reason: r, .. } if *r == reason);
    assert!(pair.events[0].iter().any(failed), "{:?}", pair.events[0]);
    assert!(pair.both_up());
}

/// What an end hears after a long pause says that its packet came "long ago", not how long ago.
#[test]
fn a_pause_is_not_taken_for_a_round_trip() {
    let (mut pair, key) = Pair::bound();
    for n in 0..8 {
        pair.send(n % 2, key, Posted, false, 64);
        pair.drain_for(300 * MS).unwrap();
    }
    for end in 0..2 {
        pair.send(end, key, Posted, false, 64);
        assert_eq!(pair.frames_from(end).len(), 1, "and it is lost");
        pair.drain_for(2 * LINK_MIN_RTO).unwrap();
        assert_eq!(pair.oracle.missing(), 0, "from end {end}");
    }
}

/// The peer has heard of none of them.
#[test]
fn bindings_that_end_before_the_link_is_up_leave_room_for_others() {
    let mut pair = Pair::new(1, Trouble::default(), LinkConfig::default());
    for counter in 1..200 {
        let channel = pair.ends[0].open_channel(key(3, counter)).unwrap();
        pair.ends[0].close_channel(channel);
    }
    pair.run_for(Duration::from_millis(1));
    assert!(pair.both_up());
    pair.ends[0].open_channel(key(3, 200)).unwrap();
}

/// What waits for room in a full queue waits for nothing else: whoever sleeps until then sleeps.
#[test]
fn an_acknowledgement_that_is_due_wakes_nobody_until_there_is_room() {
    let (mut pair, key) = Pair::bound();
    pair.run_for(Duration::from_millis(1));
    pair.send(0, key, Posted, false, 16);
    let frame = pair.one_frame(0).unwrap();
    pair.hand_over(1, &frame).unwrap();
    let due = pair.ends[1].poll_timeout().unwrap();
    assert!(due > pair.now);
    pair.ends[1].handle_timeout(due);
    assert!(pair.ends[1].is_ack_due() && pair.ends[1].poll_timeout().unwrap() > due);
    pair.now = due;
    assert!(pair.one_frame(1).is_some());
}
