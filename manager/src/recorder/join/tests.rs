use super::*;
use crate::recorder::clock::{Anchor, Reading};
use crate::recorder::collect::KeptTlp;
use std::sync::LazyLock;
use std::time::Duration;
use tlp_codec::ids::{Epoch, NodeId, SlotFunction, SlotId};
use tokio::time::Instant;

fn binding() -> BindingKey {
    BindingKey {
        slot: SlotId::new(1).unwrap(),
        function: SlotFunction::ZERO,
        epoch: Epoch::new(0, 1).unwrap(),
    }
}

fn entry(index: u16, generation: u16) -> OutstandingRef {
    OutstandingRef { index, generation }
}

/// Stamps of one TLP at one end: 0 is a stage that is not here.
fn stamps(from_host: bool, tlp: StampedTlp, at: [u64; 6]) -> StampEntry {
    let at = at.map(|at| (at > 0).then_some(at));
    StampEntry { peer: NodeId::new(2).unwrap(), binding: binding(), from_host, tlp, at }
}

/// An MRd of 4 bytes at 0xfe000010.
const READ: [u8; 12] = [0, 0, 0, 1, 0, 0, 5, 0x0f, 0xfe, 0, 0, 0x10];

/// When all recordings begin.
static BEGIN: LazyLock<(Anchor, Instant)> = LazyLock::new(|| (Anchor::now(), Instant::now()));

/// What an end recorded, whose clock shows `proxy` when recordings begin.
fn collected(proxy: u64, all: &[(bool, StampEntry)]) -> Collected {
    let mut collected = Collected::new(Vec::new(), BEGIN.0);
    collected.clock.take(&Reading { proxy, asked: BEGIN.1, doubt: Duration::ZERO });
    for (id, (bytes, stamps)) in all.iter().enumerate() {
        let id = id as u32;
        if *bytes {
            let tlp = KeptTlp { id, length: 12, stamps: stamps.clone(), bytes: READ.to_vec() };
            collected.tlps.push(tlp);
        }
        collected.stamps.push((id, stamps.clone()));
    }
    collected
}

use StampedTlp::{Completion, Posted, Request};

#[test]
fn a_round_trip_is_put_together_whatever_the_two_clocks_say() {
    let ask = stamps(true, Request(entry(3, 9)), [100, 110, 130, 0, 0, 0]);
    let answer = stamps(true, Completion(entry(3, 9)), [0, 0, 0, 1130, 1140, 1150]);
    let host = collected(0, &[(true, ask), (true, answer)]);
    let asked = stamps(true, Request(entry(3, 9)), [0, 0, 0, 77_000, 77_010, 77_040]);
    let answered = stamps(true, Completion(entry(3, 9)), [77_540, 77_550, 77_600, 0, 0, 0]);
    let boxed = collected(0, &[(false, asked), (false, answered)]);
    let trips = trips(tlps(&host, &boxed, true));
    let [trip] = &trips[..] else { panic!("{trips:?}") };
    let round_trip = trip.round_trip().unwrap();
    assert_eq!((round_trip.start, round_trip.total()), (100, 1050));
    assert_eq!(round_trip.request, Part { first: 10, second: 20 });
    assert_eq!(round_trip.answer, Part { first: 10, second: 10 });
    let far = round_trip.far.unwrap();
    assert_eq!((far.request.total(), far.original, far.answer.total()), (40, 500, 60));
    assert_eq!(round_trip.network(), Some(400));
    assert_eq!(trip.request.describe().line(), "MRd 0xfe000010 4 B");
    // Seen from the box, it is the same.
    let asked = stamps(true, Request(entry(3, 9)), [0, 0, 0, 77_000, 77_010, 77_040]);
    let answered = stamps(true, Completion(entry(3, 9)), [77_540, 77_550, 77_600, 0, 0, 0]);
    let boxed = collected(0, &[(true, asked), (true, answered)]);
    assert_eq!(super::trips(tlps(&host, &boxed, false))[0].round_trip(), Some(round_trip));
}

#[test]
fn a_read_in_pieces_ends_with_the_last() {
    let ask = stamps(false, Request(entry(0, 1)), [100, 110, 120, 0, 0, 0]);
    let first = stamps(false, Completion(entry(0, 1)), [0, 0, 0, 200, 210, 220]);
    let last = stamps(false, Completion(entry(0, 1)), [0, 0, 0, 300, 310, 330]);
    let boxed = collected(0, &[(true, ask), (true, first), (true, last)]);
    let asked = stamps(false, Request(entry(0, 1)), [0, 0, 0, 10, 20, 30]);
    let early = stamps(false, Completion(entry(0, 1)), [35, 36, 37, 0, 0, 0]);
    let late = stamps(false, Completion(entry(0, 1)), [50, 60, 90, 0, 0, 0]);
    let host = collected(0, &[(true, asked), (true, early), (true, late)]);
    for at_host in [true, false] {
        let trips = trips(tlps(&host, &boxed, at_host));
        assert_eq!((trips.len(), trips[0].completions.len()), (1, 2));
        let round_trip = trips[0].round_trip().unwrap();
        assert_eq!(round_trip.total(), 230);
        assert_eq!(round_trip.away, 180);
        assert_eq!(round_trip.far.unwrap().original, 20);
    }
}

/// A steering tag stands where byte enables would, but of a MWr.
#[test]
fn a_read_with_a_steering_tag_asks_for_all_its_bytes() {
    let line = |bytes: &[u8]| {
        let ask = stamps(true, Request(entry(3, 9)), [100, 110, 130, 0, 0, 0]);
        let mut host = collected(0, &[(true, ask)]);
        host.tlps[0].bytes = bytes.to_vec();
        tlps(&host, &collected(0, &[]), true)[0].describe().line()
    };
    // TH, 16 bytes, the steering tag 0x21.
    assert_eq!(line(&[0, 1, 0, 4, 0, 0, 5, 0x21, 0xfe, 0, 0, 0x11]), "MRd 0xfe000010 16 B");
    assert_eq!(line(&[0, 0, 0, 4, 0, 0, 5, 0x7f, 0xfe, 0, 0, 0x10]), "MRd 0xfe000010 15 B");
    // A MWr has it in place of the tag.
    assert_eq!(line(&[0x40, 1, 0, 4, 0, 0, 0x21, 0x7f, 0xfe, 0, 0, 0x11]), "MWr 0xfe000010 15 B");
}

/// Of one whose last completion was lost it is not known how long it took.
#[test]
fn a_read_whose_last_piece_was_not_recorded_has_no_end() {
    // CplD of 64 bytes, of which with those behind it so many are owed.
    let piece = |owed: u16, lower: u8| {
        let [high, low] = owed.to_be_bytes();
        [0x4a, 0, 0, 16, 0, 8, high, low, 3, 0, 5, lower]
    };
    for (bytes, ends) in [(piece(128, 0), false), (piece(64, 64), true), (piece(62, 2), true)] {
        let ask = stamps(true, Request(entry(3, 9)), [100, 110, 130, 0, 0, 0]);
        let answer = stamps(true, Completion(entry(3, 9)), [0, 0, 0, 1130, 1140, 1150]);
        let mut host = collected(0, &[(true, ask), (true, answer)]);
        host.tlps[1].bytes = bytes.to_vec();
        let boxed = collected(0, &[]);
        let trips = trips(tlps(&host, &boxed, true));
        assert_eq!(trips[0].round_trip().is_some(), ends, "{bytes:02x?}");
    }
}

/// The same index and generation come again after 65,536 requests.
#[test]
fn a_name_that_is_used_again_is_told_apart_by_its_date() {
    let second = 1_000_000_000;
    let at = |time| [0, 0, 0, time, time + 1, time + 2];
    let asked = |time| (false, stamps(true, Request(entry(1, 1)), at(time)));
    // The first is of a request that the host did not record.
    let boxed = collected(5 * second, &[asked(second), asked(4 * second)]);
    let ask =
        stamps(true, Request(entry(1, 1)), [9 * second, 9 * second + 1, 9 * second + 2, 0, 0, 0]);
    let host = collected(10 * second, &[(true, ask)]);
    let tlps = tlps(&host, &boxed, true);
    assert_eq!(tlps[0].boxed[3], Some(4 * second));
}

/// Whose stamps the other end lost has none of its, and does not take those of the next one.
#[test]
fn one_that_was_lost_does_not_shift_those_behind_it() {
    const SECOND: u64 = 1_000_000_000;
    let there = |s: u64| (false, stamps(true, Request(entry(1, 1)), [0, 0, 0, s, s + 1, s + 2]));
    let here = |s: u64| (true, stamps(true, Request(entry(1, 1)), [s - 2, s - 1, s, 0, 0, 0]));
    let joined = |sent: &[u64], received: &[u64]| -> Vec<Option<u64>> {
        let at = |times: &[u64], one: &dyn Fn(u64) -> (bool, StampEntry)| {
            times.iter().map(|s| one(s * SECOND)).collect::<Vec<_>>()
        };
        let host = collected(10 * SECOND, &at(sent, &here));
        let boxed = collected(10 * SECOND, &at(received, &there));
        let whole = tlps(&host, &boxed, true);
        let of = |tlp: &Tlp<'_>| tlp.boxed[3].map(|at| at / SECOND);
        let bare: Vec<_> = stamped(&host, &boxed, true).iter().map(of).collect();
        assert_eq!(whole.iter().map(of).collect::<Vec<_>>(), bare);
        bare
    };
    assert_eq!(joined(&[1, 4, 7], &[4, 7]), [None, Some(4), Some(7)]);
    assert_eq!(joined(&[1, 4, 7], &[1, 7]), [Some(1), None, Some(7)]);
    assert_eq!(joined(&[1, 4, 7], &[1, 4]), [Some(1), Some(4), None]);
    assert_eq!(joined(&[4, 7], &[1, 4, 7]), [Some(4), Some(7)]);
    assert_eq!(joined(&[7], &[1]), [None]);
    assert_eq!(joined(&[1], &[7]), [None]);
}

/// A TLP may wait for long before it is sent: what counts is how long it was between the ends.
#[test]
fn how_far_two_stamps_are_from_each_other_is_seen_on_the_network() {
    let joined = |ask: [u64; 6], asked: [u64; 6]| {
        let host = collected(0, &[(true, stamps(true, Request(entry(1, 1)), ask))]);
        let boxed = collected(0, &[(false, stamps(true, Request(entry(1, 1)), asked))]);
        tlps(&host, &boxed, true)[0].boxed[3].is_some()
    };
    let (sent, far) = (5 * NOT_THE_SAME, NOT_THE_SAME);
    let ask = [1, 2, sent, 0, 0, 0];
    let asked = |at| [0, 0, 0, at, at + 1, at + 2];
    assert!(joined(ask, asked(sent + far)) && joined(ask, asked(sent - far)));
    assert!(!joined(ask, asked(sent + far + 1)) && !joined(ask, asked(sent - far - 1)));
}

/// 100 ppm are more in an hour than what two stamps of one TLP may be apart.
#[test]
fn what_both_ends_stamped_is_joined_however_long_their_clocks_have_drifted() {
    const SECOND: u64 = 1_000_000_000;
    let shown = |since: u64| since + since / 10_000;
    let times: Vec<u64> = (1..3600).map(|second| second * SECOND).collect();
    let name = |at: &u64| Request(entry((at / SECOND) as u16 % 7, 1));
    let ask = |at: &u64| (true, stamps(true, name(at), [at - 2, at - 1, *at, 0, 0, 0]));
    let asked = |at: &u64| {
        let came = shown(*at);
        (false, stamps(true, name(at), [0, 0, 0, came, came + 1, came + 2]))
    };
    let mut host = collected(0, &times.iter().map(ask).collect::<Vec<_>>());
    let mut boxed = collected(0, &times.iter().map(asked).collect::<Vec<_>>());
    for since in &times {
        let read = |proxy, ms| {
            let asked = BEGIN.1 + Duration::from_nanos(*since);
            Reading { proxy, asked, doubt: Duration::from_millis(ms) }
        };
        host.clock.take(&read(*since, 1));
        boxed.clock.take(&read(shown(*since), 2));
    }
    let tlps = tlps(&host, &boxed, true);
    let alone = tlps.iter().filter(|tlp| tlp.boxed[3] != tlp.host[2].map(shown)).count();
    assert_eq!((tlps.len(), alone), (times.len(), 0));
}

#[test]
fn what_one_end_did_not_see_has_no_far_part() {
    let ask = stamps(true, Request(entry(3, 9)), [100, 110, 130, 0, 0, 0]);
    let answer = stamps(true, Completion(entry(3, 9)), [0, 0, 0, 1130, 1140, 1150]);
    let silent = stamps(true, Request(entry(4, 9)), [100, 110, 130, 0, 0, 0]);
    let posted = stamps(true, Posted(Some(7)), [200, 210, 215, 0, 0, 0]);
    let host = collected(0, &[(true, ask), (true, silent), (true, posted), (true, answer)]);
    let there = stamps(true, Posted(Some(7)), [0, 0, 0, 10, 20, 50]);
    let boxed = collected(0, &[(false, there)]);
    let trips = trips(tlps(&host, &boxed, true));
    assert_eq!(trips.len(), 3);
    let round_trip = trips[0].round_trip().unwrap();
    assert_eq!((round_trip.far, round_trip.network(), round_trip.total()), (None, None, 1050));
    assert_eq!(trips[1].round_trip(), None);
    let (start, sending, receiving) = trips[2].one_way().unwrap();
    assert_eq!((start, sending.total()), (200, 15));
    assert_eq!(receiving, Some(Part { first: 10, second: 30 }));
}
