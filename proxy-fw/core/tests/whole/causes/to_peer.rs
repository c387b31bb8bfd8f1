//! A device's request to another device of the same host.

use super::*;
use std::time::Duration;

const FIRST: Bdf = Bdf::from_bits(0x0300);
const FOR_DEVICE: &str = "box: completions synthesised for devices";

pub(super) const CASES: &[Case] = &[
    Case {
        cause: "no device behind the target's port",
        run: |world| {
            ask(world, FIRST);
            received(world)
        },
        counters: &["switch.link_down"],
    },
    Case {
        cause: "the target is released, fails or is reset",
        run: |world| {
            two(world, Manner::Silent);
            ask(world, FIRST);
            world.config_write(PEER_PORT, BRIDGE_CONTROL, 0x0040_0000);
            world.config_write(PEER_PORT, BRIDGE_CONTROL, 0);
            ask(world, FIRST);
            let now = world.now;
            world.second().boxes.device_removed(now, slot(1));
            world.run(Duration::from_millis(10));
            let got = received(world);
            assert!(matches!(&got, Seen::Statuses(all) if all.len() == 2), "{got:?}");
            got
        },
        counters: &["host: completions synthesised"],
    },
    Case {
        cause: "the requester is released, fails or is reset",
        run: |world| {
            two(world, Manner::Holds);
            ask(world, FIRST);
            world.ask_host(force(0)).unwrap();
            world.second().device.answer(Manner::Answers);
            world.run(Duration::from_millis(2100));
            received(world)
        },
        counters: &[FOR_DEVICE, "host: late completions from the root complex"],
    },
    Case {
        cause: "timeout: the target does not answer",
        run: |world| {
            two(world, Manner::Silent);
            ask(world, FIRST);
            world.run(Duration::from_millis(2100));
            received(world)
        },
        counters: &[FOR_DEVICE],
    },
    Case {
        cause: "the requester ID is not behind the requester's port",
        run: |world| {
            two(world, Manner::Answers);
            ask(world, bdf(4, 0));
            received(world)
        },
        counters: &["host: requests between devices whose requester is not behind its port"],
    },
    Case {
        cause: "the target answers UR",
        run: |world| {
            two(world, Manner::Refuses(CplStatus::UnsupportedRequest));
            ask(world, FIRST);
            received(world)
        },
        counters: &["host: non-posted requests between devices"],
    },
];

/// Another world, with two devices; the second behaves so.
fn two(world: &mut World, manner: Manner) {
    *world = World::pair();
    prepare(world);
    world.second().device.manner = manner;
}

fn ask(world: &mut World, requester: Bdf) {
    let read = mem_read(requester, 9, SECOND_WINDOW, 1);
    world.device.out.push_back(emit(&Repr::new(read)));
    world.turn();
}

fn received(world: &World) -> Seen {
    Seen::Statuses(statuses(&world.device.received))
}
