//! Completions on their way from the adapter to the switch.

use super::lane::{Lane, must_wait};
use super::{Below, Counts, passed};
use crate::front::routes::port_towards;
use proxy_core::limits::{MAX_PORTS, TLP_BUFFER};
use proxy_core::switch::VirtualSwitch;
use proxy_core::time::Instant;
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::Packet;
use vmd_adapter::Adapter;

/// A lane for each port: a device that takes no completions holds up no other.
pub(super) struct Completions {
    lanes: Vec<Lane>,
    /// The lanes that hold one, by bit.
    held: u32,
    scratch: Box<[u8; TLP_BUFFER]>,
}

impl Completions {
    pub(super) fn new() -> Self {
        Self {
            lanes: (0..MAX_PORTS).map(|_| Lane::new()).collect(),
            held: 0,
            scratch: Box::new([0; TLP_BUFFER]),
        }
    }

    pub(super) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(Lane::clear);
        self.held = 0;
    }

    /// Moves what can be moved, but nothing past a write of the machine to the same device.
    /// Whether there was anything.
    pub(super) fn pass(
        &mut self,
        now: Instant,
        below: &mut impl Below,
        adapter: &mut Adapter,
        before: Option<&[u8]>,
        counts: &mut Counts,
    ) -> bool {
        let mut moved = false;
        for index in 0..MAX_PORTS {
            if self.held & 1 << index != 0 {
                moved |= self.pass_one(now, index, below, before, counts);
            }
        }
        loop {
            let held = self.held;
            // Mostly none is held, and there is nothing to look for.
            let free = |of: Bdf| held == 0 || held & 1 << lane_of(below.switch(), of) == 0;
            let Some(length) = adapter.poll_completion(free, &mut self.scratch[..]) else {
                return moved;
            };
            let tlp = &self.scratch[..length];
            let requester = Packet::new_checked(tlp).expect("the adapter built it").requester();
            let index = lane_of(below.switch(), requester);
            self.lanes[index].fill(now, |room| {
                room[..length].copy_from_slice(tlp);
                Some(length)
            });
            moved |= self.pass_one(now, index, below, before, counts);
        }
    }

    fn pass_one(
        &mut self,
        now: Instant,
        index: usize,
        below: &mut impl Below,
        before: Option<&[u8]>,
        counts: &mut Counts,
    ) -> bool {
        let lane = &mut self.lanes[index];
        let held = lane.held().expect("the caller saw one");
        let waits = before.is_some_and(|before| must_wait(below.switch(), held, before));
        let gone = !waits && passed(lane.pass(now, below), counts);
        if gone {
            self.held &= !(1 << index);
        } else {
            self.held |= 1 << index;
        }
        gone
    }
}

/// The lane of completions for a requester: its port's. What leads to no port is the switch's to
/// answer for, which takes it. Where the switch is not at hand one lane is everybody's.
fn lane_of(switch: Option<&VirtualSwitch>, requester: Bdf) -> usize {
    let port = switch.and_then(|switch| port_towards(switch, requester.bus()));
    port.map_or(0, |port| usize::from(port.get()))
}
