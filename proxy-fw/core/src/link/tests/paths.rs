//! Several paths: spreading, death, return.

use super::network::Trouble;
use super::pair::*;
use crate::control::PathSet;
use crate::limits::{LINK_ACK_DELAY, LINK_KEEP_ALIVE, LINK_RAISE, SAFE_FRAME};
use crate::link::*;
use core::time::Duration;
use std::vec::Vec;
use tlp_codec::fabric::{Frame, MAX_SACKS};
use tlp_codec::ids::BindingKey;
use tlp_codec::tlp::Class::{self, Completion, Posted};

const MS: Duration = Duration::from_millis(1);

fn paths(count: usize) -> LinkConfig {
    LinkConfig { paths: count, ..LinkConfig::default() }
}

/// Two links with two paths between, both found, and one binding.
fn two() -> (Pair, BindingKey) {
    two_with(paths(2))
}

fn two_with(config: LinkConfig) -> (Pair, BindingKey) {
    let (mut pair, key) = Pair::bound_with(config);
    pair.run_for(MS);
    assert!(
        pair.ends.iter().all(|end| end.is_path_good(path_id(0)) && end.is_path_good(path_id(1)))
    );
    (pair, key)
}

/// Sends some TLPs every so often, as there is room, and drains them; the longest time for which
/// nothing came.
fn traffic(pair: &mut Pair, key: BindingKey, rounds: usize) -> Duration {
    bursts(pair, key, rounds, (4, 540))
}

/// As [`traffic`], of so many TLPs of two classes, and of such a length, at a time.
fn bursts(
    pair: &mut Pair,
    key: BindingKey,
    rounds: usize,
    (most, length): (usize, usize),
) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, pair.now);
    for _ in 0..rounds {
        for class in [Posted, Completion] {
            let _ = (0..most).take_while(|_| pair.send(0, key, class, false, length)).count();
        }
        pair.run_for(Duration::from_micros(100));
        if pair.drain(1, ClassSet::ALL, usize::MAX).unwrap() > 0 {
            longest = longest.max(pair.now.saturating_since(last));
            last = pair.now;
        }
    }
    longest
}

/// Everything that was sent has come.
fn settle(pair: &mut Pair) {
    pair.drain_for(Duration::from_secs(2)).unwrap();
    assert!(pair.both_up());
    assert_eq!(pair.oracle.missing(), 0);
}

fn cut(pair: &mut Pair, path: usize, ends: [bool; 2]) {
    pair.network.routes[path].cut = ends;
}

fn events(pair: &Pair, end: usize) -> Vec<LinkEvent> {
    let of_paths = |e: &&LinkEvent| matches!(e, LinkEvent::PathLost(_) | LinkEvent::PathFound(_));
    pair.events[end].iter().filter(of_paths).copied().collect()
}

#[test]
fn load_is_spread_over_paths_that_are_alike() {
    let (mut pair, key) = two();
    bursts(&mut pair, key, 20, (400, 540));
    settle(&mut pair);
    let [first, second, ..] = pair.network.carried;
    assert!(first.min(second) * 3 > first.max(second), "{first} and {second} frames");
    assert_eq!(pair.counter(0, "records_retransmitted"), 0);
}

#[test]
fn a_lone_tlp_takes_the_quicker_path() {
    let (mut pair, key) = Pair::bound_with(paths(2));
    pair.network.routes[0].delay = MS;
    // Time for the probes of a few keep-alives.
    for _ in 0..8 {
        pair.send(0, key, Posted, false, 16);
        pair.drain_for(Duration::from_secs(1)).unwrap();
    }
    let before = pair.network.carried;
    for _ in 0..10 {
        pair.send(0, key, Posted, false, 16);
        pair.drain_for(10 * MS).unwrap();
    }
    assert!(pair.network.carried[0] <= before[0] + 8, "probes and their answers");
    assert!(pair.network.carried[1] >= before[1] + 10);
}

/// Records overtake each other all the time, and nothing is taken for lost.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn paths_of_different_length_lose_nothing() {
    let (mut pair, key) = two();
    pair.network.routes[1].delay = pair.network.routes[0].delay * 3;
    bursts(&mut pair, key, 20, (400, 540));
    assert!(pair.network.carried[1] > 40, "{:?}", pair.network.carried);
    settle(&mut pair);
    assert_eq!(pair.counter(0, "records_retransmitted"), 0);
    assert_eq!(pair.counter(0, "paths_lost"), 0);
}

#[test]
fn a_path_that_dies_costs_less_than_ten_milliseconds_and_nothing_else() {
    for dead in 0..2 {
        let (mut pair, key) = two();
        traffic(&mut pair, key, 50);
        cut(&mut pair, dead, [true; 2]);
        let pause = traffic(&mut pair, key, 500);
        assert!(pause < 10 * MS, "{pause:?}");
        assert_eq!(pair.counter(0, "paths_lost"), 1);
        settle(&mut pair);
        let lost = LinkEvent::PathLost(path_id(dead));
        assert!(events(&pair, 0).contains(&lost));
        let carried = pair.network.carried[dead];
        traffic(&mut pair, key, 100);
        assert!(pair.network.carried[dead] - carried < 10, "only probes");
    }
}

/// More is missing than an acknowledgement has ranges for: what arrived behind that is not under way,
/// and takes no room from what is sent again.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn a_path_that_died_under_many_frames_leaves_the_other_one_its_room() {
    let (mut pair, [dead, alive]) = many_frames();
    // Of those that come one is lost where the list does not reach, too.
    let lost = alive.len() - 5;
    for (number, frame) in alive.iter().enumerate() {
        if number != lost {
            pair.hand_over(1, frame).unwrap();
        }
        for said in pair.frames_from(1) {
            pair.hand_over(0, &said).unwrap();
        }
    }
    let under_way = pair.ends[0].paths[1].in_flight;
    assert!(under_way < 4 * 1500, "{under_way} bytes under way where all but two frames came");
    cut(&mut pair, 0, [false, true]);
    let again = pair.counter(0, "records_retransmitted");
    settle(&mut pair);
    let again = pair.counter(0, "records_retransmitted") - again;
    assert!(again < 3 * dead.len() as u64 + 3, "{again} records of {} frames", dead.len());
    assert_eq!(pair.counter(0, "paths_lost"), 1);
}

/// Many frames that end 0 sends now, by their paths.
fn many_frames() -> (Pair, [Vec<Vec<u8>>; 2]) {
    let (mut pair, key) = two_with(LinkConfig { max_frame: 1500, ..paths(2) });
    bursts(&mut pair, key, 20, (100, 540));
    settle(&mut pair);
    // No path is silent for so long that it is asked.
    bursts(&mut pair, key, 2, (100, 540));
    pair.drain_for(5 * MS).unwrap();
    while pair.send(0, key, Posted, false, 540) {}
    let frames = pair.frames_from(0);
    let by = |frame: &Vec<u8>| usize::from(Frame::new_checked(frame).unwrap().header().path.get());
    let (first, second): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| by(frame) == 0);
    assert!(first.len().min(second.len()) > 2 * MAX_SACKS, "{first:?} and {second:?}");
    (pair, [first, second])
}

/// End 1 gets these frames; the last word that it has to say to that.
fn word_after(pair: &mut Pair, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut last = None;
    for frame in frames {
        pair.hand_over(1, frame).unwrap();
        last = pair.frames_from(1).pop().or(last);
    }
    // It waits a little with what is not urgent.
    pair.now = pair.now + LINK_ACK_DELAY;
    let now = pair.now;
    pair.ends[1].handle_timeout(now);
    pair.frames_from(1).pop().or(last).expect("it says what came")
}

/// Words overtake each other, by different paths.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn a_late_word_with_a_full_list_stops_no_timer() {
    let (mut pair, [mut first, second]) = many_frames();
    // What it carried is all that is missing in the end, and comes behind eight other holes.
    first.remove(first.len() - 5);
    let late = word_after(&mut pair, &first);
    let soon = word_after(&mut pair, &second);
    pair.hand_over(0, &soon).unwrap();
    pair.hand_over(0, &late).unwrap();
    assert!(!pair.ends[0].flight.is_empty(), "one frame is missing");
    let waits = pair.ends[0].paths.iter().any(|path| path.timeout_at.runs());
    assert!(waits || pair.ends[0].flight.first_lost().is_some(), "it goes again");
    pair.drain_for(20 * MS).unwrap();
    assert_eq!(pair.oracle.missing(), 0);
}

/// What its path's own word was too late to say, the next one says that knows all.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn what_is_behind_a_full_list_is_not_under_way_by_any_path() {
    let (mut pair, [first, second]) = many_frames();
    let late = word_after(&mut pair, &second);
    let soon = word_after(&mut pair, &first[2..3]);
    pair.hand_over(0, &soon).unwrap();
    pair.hand_over(0, &late).unwrap();
    assert!(pair.ends[0].paths[1].in_flight > 4 * 1500, "it did not know all");
    let all = word_after(&mut pair, &first[4..5]);
    pair.hand_over(0, &all).unwrap();
    let under_way = pair.ends[0].paths[1].in_flight;
    assert!(under_way < 4 * 1500, "{under_way} bytes under way of frames that came");
    settle(&mut pair);
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "needs deeper queues than a card's")]
fn a_late_word_loses_nothing_that_came_since() {
    let (mut pair, [first, second]) = many_frames();
    let late = word_after(&mut pair, &second[..1]);
    let full = word_after(&mut pair, &first);
    pair.hand_over(0, &full).unwrap();
    pair.hand_over(0, &late).unwrap();
    assert_eq!(pair.counter(0, "losses_detected"), 0);
    let all = word_after(&mut pair, &second[1..]);
    pair.hand_over(0, &all).unwrap();
    assert_eq!(pair.counter(0, "records_retransmitted"), 0);
    settle(&mut pair);
}

/// A device with one request at a time does not wait for a retransmission timeout.
#[test]
fn a_lone_tlp_waits_two_milliseconds_for_a_path_that_died() {
    for dead in 0..2 {
        let (mut pair, key) = two();
        cut(&mut pair, dead, [true; 2]);
        for _ in 0..20 {
            pair.send(0, key, Posted, false, 16);
            let sent = pair.now;
            while pair.drain(1, ClassSet::ALL, usize::MAX).unwrap() == 0 {
                pair.run_for(Duration::from_micros(50));
            }
            let waited = pair.now.saturating_since(sent);
            assert!(waited < 2 * MS, "{waited:?} with path {dead} dead");
            pair.run_for(MS / 2);
        }
        settle(&mut pair);
        assert!(events(&pair, 0).contains(&LinkEvent::PathLost(path_id(dead))));
    }
}

/// The estimate of the round trip is long for many of them then, and an idle path has few.
#[test]
fn what_waits_for_a_path_that_died_does_not_wait_as_long_as_a_peer_stood_still_once() {
    for dead in 0..2 {
        let (mut pair, key) = two();
        let usual = pair.network.routes[0].delay;
        (0..2).for_each(|path| pair.network.routes[path].delay = 20 * MS);
        for _ in 0..10 {
            pair.send(0, key, Posted, false, 16);
            pair.drain_for(20 * MS).unwrap();
        }
        (0..2).for_each(|path| pair.network.routes[path].delay = usual);
        // Time for a probe of each path.
        pair.drain_for(LINK_KEEP_ALIVE + 50 * MS).unwrap();
        let timeout = Duration::from_nanos(pair.ends[0].paths()[dead].timeout(&pair.ends[0].times));
        assert!(timeout > 20 * MS, "{timeout:?}: it is long");
        cut(&mut pair, dead, [true; 2]);
        for _ in 0..3 {
            pair.send(0, key, Posted, false, 16);
        }
        let (sent, mut came) = (pair.now, 0);
        while came < 3 {
            came += pair.drain(1, ClassSet::ALL, usize::MAX).unwrap();
            pair.run_for(Duration::from_micros(50));
        }
        let waited = pair.now.saturating_since(sent);
        assert!(waited <= timeout / 3, "{waited:?} with path {dead} dead, {timeout:?}");
        settle(&mut pair);
    }
}

#[test]
fn a_path_that_is_late_for_once_is_doubted_and_not_lost() {
    let (mut pair, key) = two();
    for path in 0..2 {
        let before = pair.network.routes[path].delay;
        pair.network.routes[path].delay = 2 * MS;
        for _ in 0..4 {
            pair.send(0, key, Posted, false, 16);
        }
        pair.run_for(MS / 10);
        pair.network.routes[path].delay = before;
        pair.drain_for(10 * MS).unwrap();
    }
    settle(&mut pair);
    assert!(pair.counter(0, "paths_doubted") > 0);
    assert_eq!(pair.counter(0, "paths_lost"), 0);
    assert!(events(&pair, 0).iter().all(|event| !matches!(event, LinkEvent::PathLost(_))));
}

#[test]
fn losses_are_counted_where_they_happen() {
    let (mut pair, key) = two();
    pair.network.routes[1].loss = 100;
    bursts(&mut pair, key, 100, (400, 540));
    settle(&mut pair);
    let traffic: Vec<_> = pair.ends[0].path_traffic().collect();
    let [(_, sent, none), (_, lossy, lost)] = traffic[..] else { panic!("{traffic:?}") };
    // The network counts both directions.
    let carried = &pair.network.carried;
    assert!(sent > 0 && sent < carried[0] && lossy < carried[1]);
    assert_eq!(none, 0);
    // What was sent last and lost is sent again because nothing comes back, before that shows.
    let doubted = pair.counter(0, "paths_doubted");
    let permille = (u64::from(lost) + doubted) * 1000 / lossy;
    assert!(lost > 0, "of {lossy}");
    assert!((30..=250).contains(&permille), "{lost} and {doubted} of {lossy} frames, not records");
}

#[test]
fn paths_are_told_again_as_they_are() {
    let (mut pair, key) = two();
    cut(&mut pair, 1, [true; 2]);
    traffic(&mut pair, key, 300);
    pair.ends[0].tell_paths();
    let told: Vec<_> = std::iter::from_fn(|| pair.ends[0].poll_told_path()).collect();
    assert_eq!(told, [(path_id(0), true), (path_id(1), false)]);
}

/// Without a binding nothing is tried.
#[test]
fn a_path_is_told_when_it_was_tried() {
    let mut pair = Pair::new(9, Trouble::default(), paths(3));
    pair.run_for(Duration::from_secs(1));
    assert!(pair.both_up());
    cut(&mut pair, 2, [true; 2]);
    pair.ends[0].tell_paths();
    let proven = pair.ends[0].poll_told_path();
    assert!(matches!(proven, Some((_, true))), "{proven:?}");
    assert_eq!(pair.ends[0].poll_told_path(), None);
    pair.ends.iter_mut().for_each(|end| _ = end.open_channel(key(3, 1)).unwrap());
    pair.run_for(Duration::from_secs(1));
    let (Some((first, _)), found) = (proven, events(&pair, 0)) else { unreachable!() };
    assert!(first != path_id(2), "it is cut");
    let [LinkEvent::PathFound(second)] = found[..] else { panic!("{found:?}") };
    assert!(first != second && second != path_id(2));
    assert_eq!(pair.ends[0].poll_told_path(), Some((path_id(2), false)), "and no event before");
    assert_eq!(pair.ends[0].poll_told_path(), None);
}

#[test]
fn a_path_that_never_works_is_told_without_being_asked_for() {
    let mut pair = Pair::new(9, Trouble::default(), paths(2));
    cut(&mut pair, 1, [true; 2]);
    pair.ends.iter_mut().for_each(|end| _ = end.open_channel(key(3, 1)).unwrap());
    pair.run_for(Duration::from_secs(1));
    assert!(pair.both_up());
    assert_eq!(pair.ends[0].poll_told_path(), Some((path_id(0), true)));
    assert_eq!(pair.ends[0].poll_told_path(), Some((path_id(1), false)));
    assert_eq!(pair.ends[0].poll_told_path(), None);
}

#[test]
fn a_path_that_returns_is_used_again() {
    let (mut pair, key) = two();
    cut(&mut pair, 1, [true; 2]);
    traffic(&mut pair, key, 300);
    assert!(!pair.ends[0].is_path_good(path_id(1)));
    cut(&mut pair, 1, [false; 2]);
    // The longest pause between two probes, and a little.
    pair.drain_for(Duration::from_millis(300)).unwrap();
    let (one, found) = (path_id(1), LinkEvent::PathFound(path_id(1)));
    assert!(pair.ends.iter().all(|end| end.is_path_good(one)));
    assert_eq!(events(&pair, 0)[events(&pair, 0).len() - 2..], [LinkEvent::PathLost(one), found]);
    let before = pair.network.carried[1];
    bursts(&mut pair, key, 20, (400, 540));
    assert!(pair.network.carried[1] > before + 50);
    settle(&mut pair);
}

/// Each end judges what it sends: the other direction goes on.
#[test]
fn a_path_may_be_dead_in_one_direction_only() {
    let (mut pair, key) = two();
    cut(&mut pair, 1, [false, true]);
    traffic(&mut pair, key, 200);
    pair.drain_for(Duration::from_secs(2)).unwrap();
    assert!(!pair.ends[0].is_path_good(path_id(1)));
    assert!(pair.ends[1].is_path_good(path_id(1)));
    settle(&mut pair);
}

/// What a probe of a dead path says of the others is not received.
#[test]
fn a_path_that_is_dead_takes_no_acknowledgement_away() {
    let (mut pair, key) = two();
    cut(&mut pair, 1, [true; 2]);
    settle(&mut pair);
    assert!(!pair.ends[0].is_path_good(path_id(1)));
    pair.send(1, key, Posted, false, 16);
    pair.flush();
    while !pair.ends[0].paths[0].ack_at.runs() {
        let later = pair.now + Duration::from_micros(1);
        pair.step(later);
    }
    pair.ends[0].paths[1].probe = Some(64);
    pair.flush();
    assert!(pair.ends[0].paths[0].ack_at.runs());
}

/// Who only receives, and has nothing to say but that, does not notice that its quickest path is dead.
/// What it says goes by the paths that it speaks of, or they would seem dead, too.
#[test]
fn a_dead_path_takes_no_other_one_with_it() {
    let lost = |fault| {
        let (mut pair, key) = Pair::bound_with(paths(3));
        pair.network.routes[1..].iter_mut().for_each(|route| route.delay *= 2);
        pair.run_for(MS);
        traffic(&mut pair, key, 20);
        settle(&mut pair);
        pair.ends[1].fault = fault;
        cut(&mut pair, 0, [true; 2]);
        for _ in 0..30 {
            // Not drained, so that there are no credits to tell of.
            assert!(pair.send(0, key, Posted, false, 16));
            pair.run_for(MS);
        }
        pair.ends[1].fault = None;
        let lost = pair.counter(0, "paths_lost");
        settle(&mut pair);
        lost
    };
    assert_eq!(lost(None), 1);
    assert_eq!(lost(Some(Fault::AnswerByQuickest)), 3);
}

/// Nobody sends, and the death of a path is noticed all the same.
#[test]
fn an_idle_path_is_looked_after() {
    let (mut pair, _) = two();
    cut(&mut pair, 0, [true; 2]);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.ends.iter().all(|end| !end.is_path_good(path_id(0))));
    cut(&mut pair, 0, [false; 2]);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.ends.iter().all(|end| end.is_path_good(path_id(0))));
    assert!(pair.both_up());
}

/// What asks whether larger frames pass is lost every second, which says nothing of the path.
#[test]
fn a_path_that_carries_only_small_frames_is_not_lost_for_it() {
    let (mut pair, key) = two();
    pair.network.routes[0].mtu = 1500;
    bursts(&mut pair, key, 20, (400, 540));
    settle(&mut pair);
    assert!(pair.ends[0].paths()[0].frame <= 1500);
    let before = pair.counter(0, "paths_lost");
    for millis in 0..60_000 {
        pair.run_for(MS);
        // Now and then a word, so that it is asked at ever other times.
        if millis % 997 == 0 {
            traffic(&mut pair, key, 1);
        }
    }
    assert_eq!(pair.counter(0, "paths_lost"), before);
    assert!(pair.ends[0].is_path_good(path_id(0)));
}

#[test]
fn a_link_whose_paths_are_all_away_for_a_while_goes_on() {
    let (mut pair, key) = two();
    traffic(&mut pair, key, 20);
    for path in 0..2 {
        cut(&mut pair, path, [true; 2]);
    }
    traffic(&mut pair, key, 3000);
    cut(&mut pair, 1, [false; 2]);
    traffic(&mut pair, key, 100);
    settle(&mut pair);
    assert!(!pair.ends[0].is_path_good(path_id(0)));
}

#[test]
fn a_link_opens_by_any_path_that_works() {
    for only in 0..3 {
        let mut pair = Pair::new(9, Trouble::default(), paths(3));
        for path in 0..3 {
            cut(&mut pair, path, [path != only; 2]);
        }
        pair.run_for(Duration::from_millis(200));
        assert!(pair.both_up(), "by path {only}");
    }
}

#[test]
fn a_binding_keeps_to_its_paths_as_long_as_one_of_them_works() {
    let (mut pair, key) = two();
    let channel = pair.ends[0].channel_of(&key).unwrap();
    pair.ends[0].set_paths(channel, PathSet(0b10));
    let before = pair.network.carried;
    for _ in 0..100 {
        pair.send(0, key, Posted, false, 500);
        pair.drain_for(MS).unwrap();
    }
    assert!(pair.network.carried[1] >= before[1] + 100);
    let strayed = pair.network.carried[0] - before[0];
    cut(&mut pair, 1, [true; 2]);
    for _ in 0..100 {
        pair.send(0, key, Posted, false, 500);
        pair.drain_for(MS).unwrap();
    }
    settle(&mut pair);
    assert!(pair.network.carried[0] - before[0] > strayed + 90);
}

/// Where none is good, those that it names are no better than others.
#[test]
fn a_binding_takes_any_path_when_none_is_good() {
    let (mut pair, key) = two();
    let channel = pair.ends[0].channel_of(&key).unwrap();
    pair.ends[0].set_paths(channel, PathSet::FIRST);
    let takes = |pair: &Pair| [0, 1].map(|path| pair.ends[0].reach[path] >> channel.index & 1);
    assert_eq!(takes(&pair), [1, 0]);
    for path in 0..2 {
        pair.ends[0].suspect(pair.now, path, true);
    }
    assert_eq!(takes(&pair), [1, 1]);
}

/// A path that loses large frames is not the one that carries a record at last.
#[test]
fn what_a_path_lost_too_often_makes_no_other_path_small() {
    let (mut pair, key) = two();
    assert!(pair.send(0, key, Posted, false, 540));
    let sent = pair.one_frame(0).expect("a frame with a TLP");
    let by = usize::from(Frame::new_checked(&sent[..]).unwrap().header().path.get());
    let link = &mut pair.ends[0];
    let first = link.flight.oldest();
    link.flight.entry_mut(first).tries = u8::MAX;
    link.lose_path(by);
    link.suspect(pair.now, by, true);
    while let Some(frame) = pair.one_frame(0) {
        drop(frame);
    }
    let frames = [0, 1].map(|path| pair.ends[0].paths[path].frame);
    assert_eq!(frames[by], SAFE_FRAME, "it does not carry it");
    assert!(frames[1 - by] > SAFE_FRAME, "nothing is known of that one");
}

/// A path that has a probe to answer is still the one that a binding has named.
#[test]
fn a_binding_keeps_to_a_path_that_is_asked() {
    let (mut pair, key) = two();
    let channel = pair.ends[0].channel_of(&key).unwrap();
    pair.ends[0].set_paths(channel, PathSet::FIRST);
    pair.drain_for(10 * MS).unwrap();
    pair.network.routes[0].delay = 3 * MS;
    let before = pair.ends[0].paths()[1].next_packet;
    for _ in 0..15 {
        pair.send(0, key, Posted, false, 16);
        pair.drain_for(MS / 5).unwrap();
    }
    let doubted = pair.counter(0, "paths_doubted");
    assert!((1..4).contains(&doubted), "{doubted} doubts");
    assert_eq!(pair.counter(0, "paths_lost"), 0);
    let strayed = u64::from(pair.ends[0].paths()[1].next_packet - before);
    assert!(strayed <= doubted + 2, "{strayed} frames: what was doubted, and what is no binding's");
    settle(&mut pair);
}

#[test]
fn a_link_that_is_left_with_one_path_asks_it_nothing() {
    let (mut pair, key) = two();
    traffic(&mut pair, key, 10);
    for end in 0..2 {
        pair.ends[end].set_peer_paths(pair.now, 1);
    }
    pair.drain_for(Duration::from_millis(20)).unwrap();
    let probes = pair.counter(0, "probes_sent");
    pair.drain_for(Duration::from_secs(3)).unwrap();
    assert_eq!(pair.counter(0, "probes_sent"), probes);
    // Nor does it doubt it.
    cut(&mut pair, 0, [true; 2]);
    pair.send(0, key, Posted, false, 16);
    pair.run_for(3 * MS);
    cut(&mut pair, 0, [false; 2]);
    settle(&mut pair);
    assert_eq!(pair.counter(0, "paths_doubted"), 0);
}

/// A frame of jumbo size gets through no more, a small one does (RFC 8899 calls it a black hole).
#[test]
fn frames_shrink_to_what_a_path_carries_and_grow_again() {
    for (count, length) in [(1, 540), (2, 540), (1, TLP_BUFFER), (2, TLP_BUFFER)] {
        let (mut pair, key) = Pair::bound_with(paths(count));
        traffic(&mut pair, key, 20);
        for path in 0..count {
            pair.network.routes[path].mtu = 1500;
        }
        bursts(&mut pair, key, 20, (400, length));
        settle(&mut pair);
        assert!(pair.counter(0, "frames_shrunk") >= 1);
        assert!(pair.ends[0].paths().iter().all(|path| path.frame <= 1500));
        for path in 0..count {
            pair.network.routes[path].mtu = MAX_FRAME;
        }
        pair.drain_for(LINK_RAISE * 2).unwrap();
        assert!(pair.ends[0].paths().iter().all(|path| path.frame == MAX_FRAME));
    }
}

/// A frame that is a little larger than what surely passes says nothing of the largest ones.
#[test]
fn frames_grow_no_further_than_what_has_passed() {
    for count in [1, 2] {
        let (mut pair, key) = Pair::bound_with(paths(count));
        traffic(&mut pair, key, 20);
        (0..count).for_each(|path| pair.network.routes[path].mtu = 1500);
        bursts(&mut pair, key, 20, (400, 540));
        settle(&mut pair);
        let before = ["timeouts", "paths_lost"].map(|name| pair.counter(0, name));
        // A few at a time, so that what tries it is seldom full.
        bursts(&mut pair, key, 11_000, (2, 300));
        assert!(pair.ends[0].paths().iter().all(|path| path.frame <= 1500), "{count}");
        bursts(&mut pair, key, 20, (100, 540));
        let after = ["timeouts", "paths_lost"].map(|name| pair.counter(0, name));
        assert_eq!(before, after, "{count}");
    }
}

/// What tries whether large frames pass is lost, and nothing behind it tells so but a timeout.
#[test]
fn a_large_frame_that_is_lost_last_is_no_congestion() {
    let (mut pair, key) = Pair::bound_with(paths(1));
    traffic(&mut pair, key, 20);
    pair.network.routes[0].mtu = 1500;
    bursts(&mut pair, key, 20, (400, 540));
    settle(&mut pair);
    traffic(&mut pair, key, 200);
    settle(&mut pair);
    let path = |pair: &Pair| (pair.ends[0].paths()[0].frame, pair.ends[0].paths()[0].raise);
    let window = |pair: &Pair| pair.ends[0].paths()[0].congestion.window();
    let timeouts = |pair: &Pair| pair.counter(0, "timeouts");
    assert_eq!(path(&pair).0, SAFE_FRAME);
    let (before, timed_out) = (window(&pair), timeouts(&pair));
    pair.ends[0].paths[0].raise = super::super::path::Raise::Wanted;
    assert!((0..5).all(|_| pair.send(0, key, Posted, false, 540)));
    pair.drain_for(MS * 20).unwrap();
    assert_eq!((timeouts(&pair), window(&pair)), (timed_out + 1, before));
    // One that has another reason shrinks it.
    cut(&mut pair, 0, [true; 2]);
    assert!(pair.send(0, key, Posted, false, 540));
    pair.drain_for(MS * 20).unwrap();
    assert!(timeouts(&pair) > timed_out + 1 && window(&pair) < before);
}

/// The acknowledgement of a probe names another packet if more came with it.
#[test]
fn frames_grow_again_beside_a_load_and_a_path_that_stays_small_costs_little() {
    /// Nothing is sent but when the paths are tried next, which is while something is under way.
    fn tried_under_load(pair: &mut Pair, key: BindingKey) {
        let at = pair.ends[0]
            .paths()
            .iter()
            .map(|path| path.raise_at)
            .filter(|at| at.runs())
            .map(Timer::at)
            .max();
        let early = MS + Duration::from_micros(30);
        pair.drain_for(at.unwrap().saturating_since(pair.now) - early).unwrap();
        bursts(pair, key, 20, (100, 540));
    }
    for count in [1, 2] {
        let (mut pair, key) = Pair::bound_with(paths(count));
        let are_all = |pair: &Pair, frame| pair.ends[0].paths().iter().all(|p| p.frame == frame);
        traffic(&mut pair, key, 20);
        (0..count).for_each(|path| pair.network.routes[path].mtu = 1500);
        bursts(&mut pair, key, 20, (400, 540));
        settle(&mut pair);
        assert!(are_all(&pair, SAFE_FRAME));
        let counted =
            |pair: &Pair| ["timeouts", "records_retransmitted"].map(|name| pair.counter(0, name));
        let before = counted(&pair);
        for _ in 0..3 {
            tried_under_load(&mut pair, key);
        }
        let after = counted(&pair);
        assert_eq!(before[0], after[0], "timeouts");
        let again = after[1] - before[1];
        assert!((16..=64 * count as u64).contains(&again), "{again} records were sent again");
        assert!(are_all(&pair, SAFE_FRAME));
        (0..count).for_each(|path| pair.network.routes[path].mtu = MAX_FRAME);
        // As large as what is sent makes them.
        let are_large = |pair: &Pair| {
            pair.ends[0].paths().iter().all(|path| path.frame + SAFE_FRAME > MAX_FRAME)
        };
        (0..3).for_each(|_| {
            if !are_large(&pair) {
                tried_under_load(&mut pair, key);
            }
        });
        assert!(are_large(&pair));
        settle(&mut pair);
    }
}

/// Its peer loses a path that carries only small frames and gets another one in its place.
#[test]
fn a_path_that_is_new_carries_large_frames_and_is_not_tried_with_them() {
    let (mut pair, key) = two();
    pair.network.routes[1].mtu = 1500;
    bursts(&mut pair, key, 20, (400, 540));
    settle(&mut pair);
    assert!(pair.ends[0].paths()[1].raise_at.runs());
    pair.network.routes[1].mtu = MAX_FRAME;
    for count in [1, 2] {
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.set_peer_paths(now, count));
    }
    let path = &pair.ends[0].paths()[1];
    assert_eq!((path.frame, path.raise_at), (MAX_FRAME, Timer::STOPPED));
    bursts(&mut pair, key, 20, (400, 540));
    settle(&mut pair);
    assert!(!pair.ends[0].paths()[1].raise_at.runs());
}

/// Small frames come through all the time, so that no timeout tells that large ones do not.
#[test]
fn what_a_path_carries_no_more_goes_in_small_frames_beside_a_trickle() {
    for pause in [1, 3, 8] {
        let (mut pair, key) = Pair::bound_with(paths(1));
        let other = super::pair::key(2, 1);
        for end in 0..2 {
            pair.ends[end].open_channel(other).unwrap();
        }
        traffic(&mut pair, key, 20);
        pair.network.routes[0].mtu = 1500;
        for _ in 0..10 {
            assert!(pair.send(0, key, Posted, false, 272));
        }
        let mut left = 0;
        while pair.oracle.missing() > 0 {
            pair.drain_for(pause * MS).unwrap();
            left += pause;
            assert!(left < 60, "nothing comes through beside a frame each {pause} ms");
            pair.send(0, other, Posted, false, 16);
            pair.drain_for(MS / 2).unwrap();
        }
        settle(&mut pair);
        assert!(pair.both_up());
        // A card has no queue for so many, and sends no frame that is too large.
        let shrunk = pair.counter(0, "frames_shrunk") > 0 || cfg!(dxpu_limits = "card");
        assert!(shrunk, "what follows is lost again and again");
    }
}

/// Nobody else would tell the peer, and no binding is left that asks after the path.
#[test]
fn the_end_of_the_last_binding_is_told_by_another_path() {
    for dead in 0..2 {
        let (mut pair, key) = two();
        pair.network.routes[1 - dead].delay = pair.network.routes[dead].delay * 3;
        traffic(&mut pair, key, 50);
        settle(&mut pair);
        cut(&mut pair, dead, [true; 2]);
        pair.close(0, key);
        pair.run_for(50 * MS);
        let failed = |event: &LinkEvent| matches!(event, LinkEvent::ChannelFailed { .. });
        assert!(pair.events[1].iter().any(failed), "path {dead}");
        assert!(pair.both_up());
    }
}

#[test]
fn a_peer_may_get_and_lose_a_path() {
    let (mut pair, key) = Pair::bound_with(paths(2));
    let now = pair.now;
    pair.ends.iter_mut().for_each(|end| end.set_peer_paths(now, 1));
    traffic(&mut pair, key, 50);
    let before = pair.network.carried[1];
    traffic(&mut pair, key, 50);
    assert_eq!(pair.network.carried[1], before);
    let now = pair.now;
    pair.ends.iter_mut().for_each(|end| end.set_peer_paths(now, 2));
    bursts(&mut pair, key, 20, (400, 540));
    assert!(pair.network.carried[1] > before + 20);
    settle(&mut pair);
    // To be taken away is not to be lost.
    assert_eq!([0, 1].map(|end| pair.counter(end, "paths_lost")), [0, 0]);
}

/// Nothing is asked of a path that is alone: that it works again shows when there are others.
#[test]
fn a_path_that_was_alone_and_dead_comes_back_with_the_others() {
    let (mut pair, key) = two();
    cut(&mut pair, 0, [true; 2]);
    traffic(&mut pair, key, 50);
    while pair.ends.iter().any(|end| end.is_path_good(path_id(0))) {
        pair.drain_for(Duration::from_millis(1)).unwrap();
    }
    for count in [1, 2] {
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.set_peer_paths(now, count));
        pair.run_for(MS);
    }
    cut(&mut pair, 0, [false; 2]);
    pair.drain_for(Duration::from_secs(3)).unwrap();
    for end in &pair.ends {
        assert!((0..2).all(|path| end.is_path_good(path_id(path))));
    }
}

#[test]
fn a_goodbye_is_said_by_every_path() {
    let (mut pair, _) = two();
    cut(&mut pair, 0, [true; 2]);
    let now = pair.now;
    pair.ends[0].close(now, LinkDownReason::Removed);
    pair.run_for(MS);
    assert_eq!(pair.ends[1].state(), LinkState::Down(LinkDownReason::PeerClosed));
}

/// What each end reads in one frame of the other's says nothing of another path.
#[test]
fn a_frame_on_a_path_that_this_end_does_not_have_is_dropped() {
    let (mut pair, key) = two();
    let now = pair.now;
    pair.ends[1].set_peer_paths(now, 1);
    pair.ends[0].set_paths(pair.ends[0].channel_of(&key).unwrap(), PathSet(0b10));
    pair.send(0, key, Class::Posted, false, 16);
    settle(&mut pair);
    assert!(pair.counter(1, "dropped_path") > 0);
    assert!(!pair.ends[0].is_path_good(path_id(1)));
}
