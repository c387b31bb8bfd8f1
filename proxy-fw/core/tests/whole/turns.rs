//! Links that share a host's network interface.

use crate::world::*;
use proxy_core::control::Share;
use proxy_core::limits::MAX_FRAME;
use proxy_core::role::Role as _;
use std::time::Duration;
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::*;

const PAYLOAD: [u8; 128] = [7; 128];

/// Bytes that left for each device while the interface took a frame at a time. Before each, `write` has
/// its writes taken, of as many bytes for each device.
fn contend<const N: usize>(
    shares: [Share; N],
    mut write: impl FnMut(u64, usize) -> bool,
) -> [usize; N] {
    let mut world = World::with_boxes(&shares);
    let mut left = [0; N];
    let mut frame = vec![0; MAX_FRAME];
    for number in 0..1000 * N as u64 {
        for device in 0..N {
            let window = FIRST_WINDOW + WINDOW * device as u64;
            let tlp = emit(&Repr::new(mem_write(Bdf::default(), window, &PAYLOAD)));
            while write(number, device) && world.host.handle_tlp(world.now, &tlp).is_ok() {}
        }
        let Some(out) = world.host.poll_transmit(world.now, &mut frame) else {
            panic!("there is always something to send")
        };
        let device = usize::from(out.peer.get() - BOX);
        left[device] += out.len;
        let (now, bytes) = (world.now, &frame[..out.len]);
        let boxes = match device.checked_sub(1) {
            None => &mut world.boxes,
            Some(further) => &mut world.further[further].boxes,
        };
        boxes.handle_frame(now, bytes);
        world.now = now + Duration::from_micros(7);
        world.turn_boxes();
    }
    left
}

/// As much as is taken.
fn all(_: u64, _: usize) -> bool {
    true
}

fn share(weight: u8, guarantee: u64) -> Share {
    Share { weight, limit: 0, guarantee }
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "a card's queues hold less than a frame")]
fn links_take_turns_by_the_weight_of_those_who_send() {
    let ratio = |shares| {
        let [first, second] = contend(shares, all);
        first as f64 / second as f64
    };
    for (shares, wanted) in [
        ([share(1, 0), share(1, 0)], 1.0),
        ([share(3, 0), share(1, 0)], 3.0),
        ([share(2, 0), share(16, 0)], 0.125),
    ] {
        let found = ratio(shares);
        assert!((found / wanted - 1.0).abs() < 0.15, "{shares:?}: {found} and not {wanted}");
    }
}

/// Its link waits for none of the others' turns, however much those weigh.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "a card's queues hold less than a frame")]
fn what_is_guaranteed_goes_before_all_turns() {
    // Of the 1.2 GB/s or so that leave, a frame each 7 microseconds.
    let [first, second] = contend([share(1, 400_000_000), share(16, 0)], all);
    let part = first as f64 / (first + second) as f64;
    assert!(part > 0.25, "{part} of all");
    let [first, second] = contend([share(1, 0), share(16, 0)], all);
    let part = first as f64 / (first + second) as f64;
    assert!(part < 0.1, "{part} of all");
}

/// Who goes first takes nobody's turn: those behind it get as much as each other.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "a card's queues hold less than a frame")]
fn what_goes_first_leaves_the_others_turns_as_they_are() {
    for place in 0..4 {
        let mut shares = [share(4, 0); 4];
        shares[place] = share(1, 500_000_000);
        let left = contend(shares, all);
        let others = || (0..4).filter(|other| *other != place).map(|other| left[other]);
        let (least, most) = (others().min().unwrap(), others().max().unwrap());
        assert!(least * 10 > most * 8, "guaranteed: {place}, {left:?}");
        assert!(left[place] * 4 > left.iter().sum::<usize>(), "guaranteed: {place}, {left:?}");
    }
}

/// Where more is guaranteed than there is, those with guarantees have some of it each, and the others
/// enough for their links to stay up.
#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "a card's queues hold less than a frame")]
fn where_more_is_guaranteed_than_there_is_all_have_some() {
    let much = share(1, 2_000_000_000);
    let left = contend([much, share(1, 0), much], all);
    let whole: usize = left.iter().sum();
    assert!(left[0] * 5 > whole * 2 && left[2] * 5 > whole * 2, "{left:?}");
    // A sixteenth is by turns, of which who goes first has half of its own.
    assert!(left[1] * 40 > whole, "{left:?}");
}
