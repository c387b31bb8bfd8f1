//! What the ports of a host's switch let pass, by what its operating system has written there: a port
//! whose memory windows are closed passes no request by its address to its device, and one that does not
//! master none of its device's. Completions, configuration requests and messages pass always.
//!
//! The switch takes a write at once, so what the root complex hands over is judged exactly. What a device
//! sends comes to the switch some time later: of that, what is under way when the gate closes or opens may
//! be refused, and nothing else.

use super::World;
use super::hosts::HostNode;
use crate::host::os::GateWrite;
use crate::host::{FUNCTIONS, all_of, port_name};
use crate::oracle::binding::Bindings;
use crate::oracle::order::is_made_up;
use crate::oracle::{Verdict, Violation};
use proxy_core::time::Instant;
use std::collections::BTreeSet;
use tlp_codec::tlp::{Class, Packet, TlpType};

/// One port.
#[derive(Clone, Debug)]
struct Gate {
    memory: bool,
    masters: bool,
    awake: bool,
    /// From when to when its device's requests were refused.
    shut: Vec<(Instant, Instant)>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { memory: true, masters: true, awake: true, shut: Vec::new() }
    }
}

/// The ports of one host.
#[derive(Debug, Default)]
pub(super) struct Gates {
    ports: Vec<Gate>,
    /// Requests of the root complex that were handed over while the gate was closed, and have no answer.
    refused: BTreeSet<u64>,
    /// How many TLPs of the root complex and of devices were refused.
    pub(super) counts: [u64; 2],
}

impl Gates {
    pub(super) fn new(ports: usize) -> Self {
        Self { ports: vec![Gate::default(); ports / FUNCTIONS], ..Self::default() }
    }

    /// The switch is as after a reset, and what was asked is forgotten.
    pub(super) fn reset(&mut self) {
        self.ports.fill(Gate::default());
        self.refused.clear();
    }

    fn gate(&self, port: usize) -> &Gate {
        &self.ports[port / FUNCTIONS]
    }

    /// Whether requests to the device behind a port pass.
    pub(super) fn lets_down(&self, port: usize) -> bool {
        let gate = self.gate(port);
        gate.memory && gate.awake
    }

    /// Whether requests of the device behind a port pass.
    pub(super) fn lets_up(&self, port: usize) -> bool {
        let gate = self.gate(port);
        gate.masters && gate.awake
    }

    /// Whether requests of the device were refused at some time since then.
    pub(super) fn refused_up(&self, port: usize, since: Instant) -> bool {
        self.gate(port).shut.iter().any(|(_, until)| since <= *until)
    }

    /// The switch has taken a write. Whether it refuses the device's requests from now on.
    fn set(&mut self, now: Instant, port: usize, write: GateWrite) -> bool {
        let before = self.lets_up(port);
        let gate = &mut self.ports[port / FUNCTIONS];
        match write {
            GateWrite::Command { memory, masters } => {
                (gate.memory, gate.masters) = (memory, masters);
            }
            GateWrite::Power { awake } => gate.awake = awake,
        }
        let after = self.lets_up(port);
        let gate = &mut self.ports[port / FUNCTIONS];
        match (before, after) {
            (true, false) => gate.shut.push((now, Instant::FAR_FUTURE)),
            (false, true) => {
                if let Some(last) = gate.shut.last_mut() {
                    last.1 = now;
                }
            }
            _ => {}
        }
        before && !after
    }

    /// A request of the root complex was handed over that no window of a port claims.
    pub(super) fn refuse(&mut self, request: Option<u64>) {
        self.counts[0] += 1;
        self.refused.extend(request);
    }

    /// A completion came for a request: one that was refused gets nothing but that.
    pub(super) fn came_back(&mut self, request: u64, tlp: &[u8]) -> Verdict {
        if self.refused.remove(&request) && !is_made_up(tlp) {
            let what = format!("request {request} of a host passed a port with closed windows");
            return Err(Violation::new(3, what));
        }
        Ok(())
    }

    /// A request of the device behind a port came to the root complex.
    pub(super) fn came_up(&self, port: usize) -> Verdict {
        if self.lets_up(port) {
            return Ok(());
        }
        let name = port_name(port);
        let what = format!("a request of a device passed {name}, which does not master");
        Err(Violation::new(2, what))
    }
}

/// Whether a TLP of the root complex needs a window to pass.
pub(super) fn needs_window(tlp: &[u8]) -> bool {
    let packet = Packet::new_checked(tlp).expect("own TLP");
    let other = matches!(
        packet.tlp_type(),
        TlpType::CfgRd1 | TlpType::CfgWr1 | TlpType::Msg(_) | TlpType::MsgD(_)
    );
    !other && packet.class() != Some(Class::Completion)
}

/// A port's switch has taken a write.
pub(super) fn written(
    now: Instant,
    gates: &mut Gates,
    ports: &[Option<usize>],
    bindings: &mut Bindings,
    (behind, write): (usize, GateWrite),
) {
    if gates.set(now, behind, write) {
        for bound in ports[all_of(behind)].iter().flatten() {
            bindings.get(*bound).up.relax_requests();
        }
    }
}

impl World {
    /// Whether a request of a device, on a binding since then, may have been refused by its port. It does
    /// not come to the root complex any more.
    pub(super) fn port_refused(
        &mut self,
        index: usize,
        (request, since): (u64, Instant),
        tlp: &[u8],
    ) -> bool {
        let now = self.now();
        let waits = self.bindings.waits(since, now, index, request);
        let binding = &self.bindings.all()[index];
        let HostNode { gates, .. } = &mut self.hosts[binding.host];
        let shut = binding.port.is_some_and(|port| gates.refused_up(port, since));
        let refused = shut && !waits.reached && is_made_up(tlp);
        if refused {
            gates.counts[1] += 1;
            self.bindings.get(index).up.drop_request(request);
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_gate_is_closed_from_write_to_write() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut gates = Gates::new(2 * FUNCTIONS);
        let port = FUNCTIONS;
        assert!(gates.lets_up(port) && gates.lets_down(port));
        let off = GateWrite::Command { memory: true, masters: false };
        assert!(gates.set(at(10), port, off) && !gates.set(at(11), port, off));
        assert!(!gates.lets_up(port) && gates.lets_down(port) && gates.lets_up(0));
        assert!(gates.came_up(port).is_err() && gates.refused_up(port, at(50)));
        let sleeps = GateWrite::Power { awake: false };
        assert!(!gates.set(at(20), port, sleeps), "it was closed");
        assert!(!gates.lets_down(port));
        let on = GateWrite::Command { memory: true, masters: true };
        gates.set(at(30), port, on);
        assert!(!gates.lets_up(port), "it sleeps");
        gates.set(at(40), port, GateWrite::Power { awake: true });
        assert!(gates.lets_up(port) && gates.lets_down(port));
        assert!(gates.refused_up(port, at(40)) && !gates.refused_up(port, at(41)));
        assert!(!gates.refused_up(0, at(0)), "another port");
    }
}
