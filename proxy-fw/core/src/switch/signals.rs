//! Everything that the switch sends to the root complex unasked: interrupts, power management
//! events, error messages, INTx wires, the acknowledgement of PME_Turn_Off.
//!
//! Nothing is queued. Each is a flag or a level that stays until a sink took the TLP, so a full
//! sink loses nothing and memory is bounded.

use super::config::msi;
use super::errors::Severity;
use super::messages::TurnOff;
use super::sink::TlpSink;
use super::verdict::Counted;
use super::{UPSTREAM_DIRTY, VirtualSwitch, Who};
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::ids::{Bdf, PortId, Tag};
use tlp_codec::tlp::{ByteEnables, Kind, MsgCode, MsgRouting, Repr};

/// How long software may take to clear the PME_Status of a port that has sent its power management event
/// (PCIe 5.0 section 5.3.3.3.1).
const PME_SERVICE: Duration = Duration::from_millis(100);

const TAG: Tag = match Tag::new(0) {
    Ok(tag) => tag,
    Err(_) => unreachable!(),
};

fn push(kind: Kind<'_>, out: &mut impl TlpSink) -> bool {
    let mut bytes = [0; 20];
    // Which rule is not told: its words would be all of a card's code that writes out such errors.
    let Ok(length) = Repr::new(kind).emit(&mut bytes) else {
        panic!("the switch makes TLPs that keep the rules")
    };
    out.push(&bytes[..length])
}

fn push_message(code: MsgCode, routing: MsgRouting, id: Bdf, out: &mut impl TlpSink) -> bool {
    let message =
        Kind::Message { routing, code, requester: id, tag: TAG, fields: [0; 8], data: &[] };
    push(message, out)
}

impl VirtualSwitch {
    /// Sends the power management events again that wait for service for too long: a root port keeps two
    /// and drops the others.
    pub(super) fn power_events_timeout(&mut self, now: Instant) {
        let Some(due) = self.power_events_at.filter(|at| *at <= now) else { return };
        self.power_events_at = None;
        if !self.turn_off.lets_wake() {
            return;
        }
        for port in self.port_ids() {
            let bridge = &mut self.port_mut(port).bridge;
            if !bridge.waits_for_service() {
                continue;
            }
            // Who has sent one does not know the time.
            if due != Instant::ZERO {
                bridge.may_wake();
                self.mark(port);
            }
            self.power_events_at = Some(now + PME_SERVICE);
        }
    }

    /// Whether nothing is due to be sent.
    pub(super) fn says_nothing(&self) -> bool {
        self.dirty == 0 && self.turn_off != TurnOff::Gathered
    }

    /// Sends what is due. Cheap when nothing changed.
    pub(super) fn flush(&mut self, out: &mut impl TlpSink) {
        if self.says_nothing() {
            return;
        }
        self.blocked = false;
        let above = self.upstream.decoded.masters;
        for index in 0..self.ports.len() {
            let port = PortId::new(index as u8).unwrap_or(PortId::MAX);
            if self.dirty >> index & 1 == 0 {
                continue;
            }
            self.ports[index].bridge.update_interrupt(above);
            if self.flush_interrupt(port, out)
                && self.flush_power_event(port, out)
                && self.flush_errors(Who::Port(port), out)
            {
                self.dirty &= !(1 << index);
            } else {
                self.blocked = true;
            }
        }
        let rest = self.flush_errors(Who::Upstream, out)
            && self.flush_wires(out)
            && self.flush_turn_off(out);
        if rest {
            self.dirty &= !UPSTREAM_DIRTY;
        } else {
            self.dirty |= UPSTREAM_DIRTY;
            self.blocked = true;
        }
    }

    /// `false`: the sink is full.
    fn flush_interrupt(&mut self, port: PortId, out: &mut impl TlpSink) -> bool {
        let id = self.port_id(port);
        let bridge = &mut self.port_mut(port).bridge;
        let masked = bridge.config.any(msi::MASK, msi::VECTOR);
        let pending = if masked && bridge.unsent.interrupt { msi::VECTOR } else { 0 };
        bridge.config.put(msi::PENDING, msi::VECTOR, pending);
        if masked || !bridge.unsent.interrupt {
            return true;
        }
        let (address, data) = msi::message(&bridge.config);
        let write = Kind::MemWrite {
            requester: id,
            tag: TAG,
            address,
            enables: ByteEnables::all(1),
            hint: None,
            data: &data.to_le_bytes(),
        };
        if !push(write, out) {
            return false;
        }
        bridge.unsent.interrupt = false;
        self.counters.count(Counted::Interrupt);
        true
    }

    fn flush_power_event(&mut self, port: PortId, out: &mut impl TlpSink) -> bool {
        let id = self.port_id(port);
        if !self.port(port).bridge.unsent.power_event {
            return true;
        }
        if !self.turn_off.lets_wake() {
            self.port_mut(port).bridge.unsent.power_event = false;
            return true;
        }
        if !push_message(MsgCode::PmPme, MsgRouting::ToRootComplex, id, out) {
            return false;
        }
        self.port_mut(port).bridge.unsent.power_event = false;
        self.power_events_at = Some(Instant::ZERO);
        self.counters.count(Counted::PowerEvent);
        true
    }

    fn flush_errors(&mut self, who: Who, out: &mut impl TlpSink) -> bool {
        let id = match who {
            Who::Upstream => self.id,
            Who::Port(port) => self.port_id(port),
        };
        for severity in Severity::ALL {
            if !self.bridge_mut(who).unsent.errors.contains(severity) {
                continue;
            }
            // What a downstream port says passes the upstream port as any message from below.
            if who == Who::Upstream || self.upstream.passes_error(severity) {
                let code = severity.message();
                if !push_message(code, MsgRouting::ToRootComplex, id, out) {
                    return false;
                }
                self.counters.count(Counted::ErrorMessage);
            }
            self.bridge_mut(who).unsent.errors.remove(severity);
        }
        true
    }

    fn flush_wires(&mut self, out: &mut impl TlpSink) -> bool {
        let wires = self.wires_upstream();
        for wire in 0..4 {
            let bit = 1 << wire;
            if (wires ^ self.wires) & bit == 0 {
                continue;
            }
            let base = if wires & bit != 0 { 0x20 } else { 0x24 };
            let code = MsgCode::from_byte(base + wire);
            if !push_message(code, MsgRouting::Local, self.id, out) {
                return false;
            }
            self.wires ^= bit;
        }
        true
    }

    fn flush_turn_off(&mut self, out: &mut impl TlpSink) -> bool {
        if self.turn_off == TurnOff::Gathered {
            if !push_message(MsgCode::PmeToAck, MsgRouting::Gathered, self.id, out) {
                return false;
            }
            self.turn_off = TurnOff::Done;
        }
        true
    }
}
