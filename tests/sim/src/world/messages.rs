//! Messages at a root complex, the INTx wires that its switch shows it, and messages to all devices.

use super::World;
use super::boxes::BoxNode;
use crate::host::os::Os;
use crate::host::{FUNCTIONS, host_name, port_name};
use crate::oracle::binding::Bindings;
use crate::oracle::order::Seen;
use crate::oracle::{Verdict, Violation};
use proxy_core::host::HostRole;
use proxy_core::time::Instant;
use std::time::Duration;
use tlp_codec::tlp::{MsgCode, Packet};

/// The counter of messages to all devices that were lost to one.
const BROADCASTS_LOST: &str = "host: broadcast messages lost to a device without room";
/// Wires of a switch.
const WIRES: u8 = 4;

/// INTx as a root complex sees it.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    /// A bit for each that is asserted.
    asserted: u8,
    pub(super) turns: u64,
}

impl Wires {
    /// The root complex begins anew.
    pub(super) fn reset(&mut self) {
        self.asserted = 0;
    }

    /// The switch says something of its own: of its wires, or where that is enabled of an error. What
    /// would be fatal does not happen here.
    fn turn(&mut self, code: MsgCode, of_upstream: bool, errors: bool) -> Verdict {
        if errors && matches!(code, MsgCode::ErrCor | MsgCode::ErrNonFatal) {
            return Ok(());
        }
        let first = MsgCode::AssertInta.byte();
        let Some(turn) = code.byte().checked_sub(first).filter(|t| *t < 2 * WIRES && of_upstream)
        else {
            return Err(Violation::new(1, format!("a switch says {code:?}, without a cause")));
        };
        let (bit, asserts) = (1 << (turn % WIRES), turn < WIRES);
        if asserts == (self.asserted & bit != 0) {
            return Err(Violation::new(1, format!("a switch says {code:?} twice")));
        }
        self.asserted ^= bit;
        self.turns += 1;
        Ok(())
    }
}

/// A message came to a root complex.
pub(super) fn at_root(
    packet: &Packet<&[u8]>,
    seen: Seen,
    (os, ports, wires): (&mut Os, &[Option<usize>], &mut Wires),
    bindings: &mut Bindings,
) -> Verdict {
    os.messages += 1;
    let requester = packet.requester();
    let Some(port) = os.layout().port_of(requester) else {
        let of_upstream = requester == os.layout().upstream();
        return wires.turn(packet.message_code(), of_upstream, os.errors);
    };
    let Some(bound) = ports.get(port).copied().flatten() else {
        let name = port_name(port);
        let what = format!("a message of a device came from {name}, to which nothing is bound");
        return Err(Violation::new(2, what));
    };
    bindings.get(bound).up.deliver(seen, None).map(|_| ())
}

/// Messages to all devices that a host's proxy has lost for want of room, so far.
pub(super) fn broadcasts_lost(role: &HostRole) -> u64 {
    let mut counters = role.counters();
    counters.find(|(name, _)| *name == BROADCASTS_LOST).expect("every host counts that").1
}

/// A message to all devices of a host was taken; some of them may not get it.
pub(super) fn broadcast(
    (now, patience): (Instant, Duration),
    seen: Seen,
    ports: &[Option<usize>],
    (bindings, boxes): (&mut Bindings, &[BoxNode]),
    lost: bool,
) {
    for bound in ports.iter().step_by(FUNCTIONS).flatten() {
        let binding = bindings.get(*bound);
        let spells = &boxes[binding.at_box].slots[binding.slot].spells;
        let stuck = spells.gives_up(now, patience);
        binding.sent_down(now, seen, 0, lost || stuck);
    }
}

impl World {
    /// At rest, a root complex whose wires are not what its devices say, each by its port's number
    /// further than by its function's (PCIe 5.0 section 2.2.8.1, table 2-20).
    pub(super) fn wrong_wires(&self) -> Option<String> {
        self.hosts.iter().enumerate().find_map(|(index, host)| {
            let mut said = 0;
            for (port, bound) in host.ports.iter().enumerate() {
                let Some(binding) = bound.map(|bound| &self.bindings.all()[bound]) else {
                    continue;
                };
                let slot = &self.boxes[binding.at_box].slots[binding.slot];
                if !binding.is_over() && slot.binding == *bound && slot.device.has_wire() {
                    said |= 1 << ((port / FUNCTIONS + port % FUNCTIONS) % usize::from(WIRES));
                }
            }
            let seen = host.wires.asserted;
            (seen != said).then(|| {
                format!("at rest, {} sees wires {seen:#b}; they are {said:#b}", host_name(index))
            })
        })
    }
}
