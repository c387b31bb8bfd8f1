//! Configuration requests: which function is meant, and what a write does
//! (PCIe 5.0 sections 7.3 and 2.2.7.1).

use super::completion::Completion;
use super::config::slot::Indicator;
use super::config::{ResetKind, Written, express, header, power, slot};
use super::events::Notice;
use super::port::Occupant;
use super::sink::TlpSink;
use super::verdict::{Cause, Counted, DownstreamVerdict as Verdict};
use super::{Refusal, VirtualSwitch, Who};
use crate::rewrite::rewrite;
use crate::time::Instant;
use tlp_codec::ids::{Bdf, PortId};
use tlp_codec::tlp::{CplStatus, Packet, TlpType};

/// A function of the switch itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Upstream,
    Downstream(PortId),
    Placeholder(PortId),
}

impl VirtualSwitch {
    /// A configuration request from the root complex.
    pub(super) fn route_configuration(
        &mut self,
        now: Instant,
        mut request: Packet<&mut [u8]>,
        out: &mut impl TlpSink,
    ) -> Result<Verdict, Refusal> {
        let destination = request.destination();
        if matches!(request.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0) {
            // Type 0 on the link above means the upstream port, whatever the device number is
            // (section 7.3.1); a write tells it who it is (section 2.2.6.2).
            if destination.function().get() != 0 {
                return Err(Who::Upstream.refuses(Cause::NoFunction));
            }
            if request.tlp_type() == TlpType::CfgWr0 {
                self.id = destination;
            }
            return self.access(now, Function::Upstream, &request, out);
        }

        let bus = destination.bus().get();
        if !self.upstream.decoded.holds_bus(bus) {
            return Err(Who::Upstream.refuses(Cause::NoBus));
        }
        if bus == self.upstream.decoded.secondary {
            let port = self.port_at(destination);
            let port = port.ok_or(Who::Upstream.refuses(Cause::NoFunction))?;
            return self.access(now, Function::Downstream(port), &request, out);
        }
        let port = self.port_of_bus(bus).ok_or(Who::Upstream.refuses(Cause::NoBus))?;
        let who = Who::Port(port);
        let slot = self.port(port);
        if !slot.link_is_up() {
            return Err(who.refuses(Cause::LinkDown));
        }
        if bus == slot.bridge.decoded.secondary {
            // Only device 0 is on a link, unless ARI makes the device number part of the
            // function number (sections 7.3.1 and 6.13).
            let ari = slot.bridge.config.any(express::DEVICE_CONTROL_2, express::ARI_FORWARDING);
            let is_there = match slot.occupant {
                Occupant::Device => ari || destination.device().get() == 0,
                _ => destination.bits() & 0xff == 0,
            };
            if !is_there {
                return Err(who.refuses(Cause::NoFunction));
            }
            if slot.occupant == Occupant::Placeholder {
                return self.access(now, Function::Placeholder(port), &request, out);
            }
        } else if slot.occupant == Occupant::Placeholder {
            return Err(who.refuses(Cause::NoBus));
        }
        if !slot.ready {
            return Err(who.refuses(Cause::NotReady));
        }
        if bus == slot.bridge.decoded.secondary {
            rewrite(&mut request, Packet::convert_config_to_type0);
        }
        Ok(Verdict::Forward(port))
    }

    /// The downstream port with this ID.
    fn port_at(&self, id: Bdf) -> Option<PortId> {
        let port = PortId::new(id.device().get()).ok()?;
        (id.function().get() == 0 && usize::from(port.get()) < self.ports.len()).then_some(port)
    }

    fn access(
        &mut self,
        now: Instant,
        function: Function,
        request: &Packet<&mut [u8]>,
        out: &mut impl TlpSink,
    ) -> Result<Verdict, Refusal> {
        let (register, enables) = (request.register(), request.byte_enables().first);
        let completer = match function {
            Function::Upstream => self.id,
            Function::Downstream(port) => self.port_id(port),
            Function::Placeholder(_) => request.destination(),
        };
        let completion = match (request.tlp_type(), request.payload().first_chunk::<4>()) {
            (TlpType::CfgWr0 | TlpType::CfgWr1, Some(data)) => {
                if request.is_poisoned() {
                    return Err(function.who().refuses(Cause::Poisoned));
                }
                self.counters.count(Counted::ConfigWrite);
                self.write(now, function, register, u32::from_le_bytes(*data), enables);
                Completion::without_data(request, completer, CplStatus::Success)
            }
            _ => {
                self.counters.count(Counted::ConfigRead);
                let value = self.read(function, register);
                Completion::with_register(request, completer, value)
            }
        };
        self.complete(&completion, out);
        Ok(Verdict::Consumed)
    }

    fn read(&self, function: Function, register: u16) -> u32 {
        match function {
            Function::Upstream => self.upstream.config.read(register),
            Function::Downstream(port) => self.port(port).bridge.config.read(register),
            Function::Placeholder(port) => {
                self.port(port).placeholder.as_ref().map_or(0, |p| p.read(register))
            }
        }
    }

    fn write(&mut self, now: Instant, function: Function, register: u16, value: u32, enables: u8) {
        match function {
            Function::Upstream => {
                if let Some(written) = self.upstream.write(register, value, enables) {
                    self.upstream_written(written);
                }
            }
            Function::Downstream(port) => {
                let bridge = &mut self.port_mut(port).bridge;
                if let Some(written) = bridge.write(register, value, enables) {
                    self.port_written(now, port, written);
                }
            }
            Function::Placeholder(port) => {
                if let Some(placeholder) = &mut self.port_mut(port).placeholder {
                    placeholder.write(register, value, enables);
                }
            }
        }
    }

    fn upstream_written(&mut self, written: Written) {
        if written.changed() != 0 {
            self.mark_upstream();
        }
        match written.offset {
            header::BRIDGE_CONTROL if written.set() & header::SECONDARY_BUS_RESET != 0 => {
                for port in self.port_ids() {
                    self.port_mut(port).reset(ResetKind::Hot);
                    self.below_is_reset(port, true, true);
                }
            }
            header::BRIDGE_CONTROL if written.cleared() & header::SECONDARY_BUS_RESET != 0 => {
                for port in self.port_ids() {
                    self.below_is_reset(port, false, true);
                }
            }
            offset if is_mapping(offset) && written.changed() != 0 => {
                for port in self.port_ids() {
                    self.port_mut(port).notices.note(Notice::WindowsChanged);
                }
            }
            _ => {}
        }
        self.programmed();
    }

    fn port_written(&mut self, now: Instant, port: PortId, written: Written) {
        if written.changed() != 0 {
            self.mark(port);
        }
        // What a write clears may be set again by what else the same write does: that is to be told.
        let above = self.upstream.decoded.masters;
        self.port_mut(port).bridge.update_interrupt(above);
        match written.offset {
            header::BRIDGE_CONTROL if written.changed() & header::SECONDARY_BUS_RESET != 0 => {
                let asserted = written.new & header::SECONDARY_BUS_RESET != 0;
                self.below_is_reset(port, asserted, false);
            }
            express::LINK_CONTROL => self.link_control_written(port, written),
            power::CONTROL if written.changed() != 0 => self.port_mut(port).bridge.may_wake(),
            slot::CONTROL => self.slot_control_written(now, port, written),
            _ => {}
        }
        if is_mapping(written.offset) && written.changed() != 0 {
            self.port_mut(port).notices.note(Notice::WindowsChanged);
        }
        self.programmed();
    }

    /// Secondary Bus Reset of this port or, `from_above`, of the upstream port began or ended.
    fn below_is_reset(&mut self, port: PortId, asserted: bool, from_above: bool) {
        let upstream_in_reset = self.upstream_in_reset();
        let slot = self.port_mut(port);
        slot.ready = false;
        if asserted && let Some(placeholder) = &mut slot.placeholder {
            placeholder.reset(ResetKind::Hot);
        }
        if slot.occupant == Occupant::Device {
            slot.notices.note(if asserted {
                Notice::ResetAsserted
            } else {
                Notice::ResetDeasserted
            });
        }
        let before = slot.bridge.config.get(slot::CONTROL);
        slot.update_presence(upstream_in_reset);
        if from_above {
            // The port was itself in reset and has seen nothing.
            slot.bridge.config.put(slot::CONTROL, slot::LINK_STATE_CHANGED, before);
        }
        self.link_changed(port);
    }

    fn link_control_written(&mut self, port: PortId, written: Written) {
        let upstream_in_reset = self.upstream_in_reset();
        let slot = self.port_mut(port);
        if written.changed() & express::LINK_DISABLE != 0 {
            let disabled = written.new & express::LINK_DISABLE != 0;
            slot.ready = false;
            if slot.occupant == Occupant::Device {
                slot.notices.note(if disabled {
                    Notice::LinkDisabled
                } else {
                    Notice::LinkEnabled
                });
            }
            slot.update_presence(upstream_in_reset);
            self.link_changed(port);
        } else if written.given & express::RETRAIN != 0 && slot.link_is_up() {
            // Trained as it was, at once (section 7.5.3.7).
            slot.bridge.config.set(express::LINK_CONTROL, express::BANDWIDTH_STATUS);
            self.mark(port);
        }
    }

    fn slot_control_written(&mut self, now: Instant, port: PortId, written: Written) {
        let slot = self.port_mut(port);
        // A reserved indicator value (a write of zeros) leaves the indicator as it was.
        for (field, shift) in [
            (slot::POWER_CONTROL, slot::POWER_CONTROL_SHIFT),
            (slot::ATTENTION_CONTROL, slot::ATTENTION_CONTROL_SHIFT),
        ] {
            if Indicator::from_bits(written.new >> shift).is_none() {
                slot.bridge.config.put(slot::CONTROL, field, written.old);
            }
        }
        let now_shown = slot.bridge.config.get(slot::CONTROL);
        if (now_shown ^ written.old) & slot::ATTENTION_CONTROL != 0 {
            slot.notices.note(Notice::AttentionIndicator);
        }
        if written.given & slot::POWER_CONTROL == 0 {
            return;
        }
        // The first is what it held before the reset, put back.
        let is_first = !core::mem::replace(&mut slot.is_controlled, true);
        if (now_shown ^ written.old) & slot::POWER_CONTROL == 0 {
            return;
        }
        slot.notices.note(Notice::PowerIndicator);
        if !is_first {
            let to = slot.power_indicator();
            self.power_indicator_set(now, port, to);
        }
    }
}

impl Function {
    fn who(self) -> Who {
        match self {
            Self::Upstream => Who::Upstream,
            Self::Downstream(port) | Self::Placeholder(port) => Who::Port(port),
        }
    }
}

/// Whether a register is part of what [`VirtualSwitch::mapping`] tells.
fn is_mapping(offset: u16) -> bool {
    matches!(
        offset,
        header::COMMAND
            | header::BUSES
            | header::IO
            | header::MEMORY
            | header::PREFETCHABLE
            | header::PREFETCHABLE_BASE_UPPER
            | header::PREFETCHABLE_LIMIT_UPPER
            | header::IO_UPPER
    )
}
