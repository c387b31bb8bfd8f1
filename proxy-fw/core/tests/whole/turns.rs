//! Links that share a host's network interface.

use crate::world::*;
use proxy_core::control::Share;
use proxy_core::limits::MAX_FRAME;
use proxy_core::role::Role as _;
use std::time::Duration;
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::*;

const PAYLOAD: [u8; 128] = [7; 128];

/// Writes to both devices without an end, while the interface takes a frame at a time: bytes that left
/// for each.
fn contend(world: &mut World) -> [usize; 2] {
    let mut left = [0; 2];
    let mut frame = vec![0; MAX_FRAME];
    for _ in 0..2000 {
        for window in [FIRST_WINDOW, SECOND_WINDOW] {
            let write = emit(&Repr::new(mem_write(Bdf::default(), window, &PAYLOAD)));
            while world.host.handle_tlp(world.now, &write).is_ok() {}
        }
        let Some(out) = world.host.poll_transmit(world.now, &mut frame) else {
            panic!("there is always something to send")
        };
        let second = out.peer == node(OTHER_BOX);
        left[usize::from(second)] += out.len;
        let (now, bytes) = (world.now, &frame[..out.len]);
        let boxes = if second { &mut world.second().boxes } else { &mut world.boxes };
        boxes.handle_frame(now, bytes);
        world.now = now + Duration::from_micros(7);
        world.turn_boxes();
    }
    left
}

fn share(weight: u8, guarantee: u64) -> Share {
    Share { weight, limit: 0, guarantee }
}

#[test]
#[cfg_attr(dxpu_limits = "card", ignore = "a card's queues hold less than a frame")]
fn links_take_turns_by_the_weight_of_those_who_send() {
    let ratio = |shares| {
        let [first, second] = contend(&mut World::pair_with(shares));
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
    let [first, second] = contend(&mut World::pair_with([share(1, 400_000_000), share(16, 0)]));
    let part = first as f64 / (first + second) as f64;
    assert!(part > 0.25, "{part} of all");
    let [first, second] = contend(&mut World::pair_with([share(1, 0), share(16, 0)]));
    let part = first as f64 / (first + second) as f64;
    assert!(part < 0.1, "{part} of all");
}
